"""When a run ran, for cutting a file that covers many runs.

In: a run and its campaign. Out: the time of the attempt that counts and the file that told it: outcome.json of ours, else launcher.log or
train.log as `seatrial report` reads them, whose times are local and count only where some file tells the zone, else gpu_telemetry.csv.
"""

from __future__ import annotations

from typing import Any

from seatrial.collect.original.samples import read_run_samples
from seatrial.collect.original.spans import Span, span_of
from seatrial.collect.original.zones import zone_of
from seatrial.files import read_json
from seatrial.paths import AttemptPaths
from seatrial_runbooks.stage1.leak_inputs import Campaign, LeakRun


def run_span(run: LeakRun, campaign: Campaign) -> Span | None:
    """None where no file tells it."""
    return _by_outcome(AttemptPaths(run.folder)) or _by_logs(run, campaign)


def _by_outcome(paths: AttemptPaths) -> Span | None:
    stored = read_json(paths.outcome)
    told: dict[str, Any] = stored if isinstance(stored, dict) else {}
    first_t, last_t = told.get("started_t"), told.get("ended_t")
    if not (isinstance(first_t, (int, float)) and isinstance(last_t, (int, float)) and 0 < first_t < last_t):
        return None
    return Span(first_t=first_t, last_t=last_t, duration_s=last_t - first_t, source=paths.outcome.name)


def _by_logs(run: LeakRun, campaign: Campaign) -> Span | None:
    samples = read_run_samples(run.folder, campaign.host_samples)
    zone_s, attempt = zone_of(run.logs, samples, campaign.host_samples.zone_s()), run.logs.counting
    told = span_of(attempt, zone_s) if attempt is not None and zone_s is not None else Span()
    if told.first_t is not None:
        return told
    # The samplers begin their files anew with every attempt.
    return samples.gpu.span() if attempt is None or attempt is run.logs.newest else None
