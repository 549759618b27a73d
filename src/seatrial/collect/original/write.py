"""One run of the original scripts, written as attempts of ours.

In: its attempts with spec, outcome and samples. Out: attempt-1/, attempt-2/ … with the files that every reader of a campaign takes; the
outcome last. Events hold what the settings came to and no steps: nobody recorded any.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial import files
from seatrial.collect.original.merged_log import merge_logs
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.run_specs import effective_of
from seatrial.collect.original.samples import SampleFile, account_of
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import Provenance
from seatrial.records.events import EVENT_VERSION
from seatrial.records.outcome import RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.records.telemetry import TelemetryAccount


@dataclass(frozen=True, kw_only=True)
class Translated:
    """One attempt, ready to be written."""

    original: OriginalAttempt
    spec: RunSpec
    outcome: RunOutcome
    provenance: Provenance
    zone_s: float
    gpu: SampleFile | None = None
    host: SampleFile | None = None


def write_attempt(paths: AttemptPaths, attempt: Translated) -> None:
    """Every file of the attempt; what an earlier translation left under a name that is not needed now is removed."""
    merged = merge_logs(attempt.original, attempt.zone_s)
    segment = attempt.original.segment
    files.write_json(paths.spec, to_json(attempt.spec))
    files.write_json(paths.provenance, to_json(attempt.provenance))
    files.write_text(paths.launcher_log, merged.log)
    files.write_text(paths.arrivals, merged.arrivals)
    files.write_text(paths.events(0), "".join(_effective_lines(attempt)))
    files.write_json(paths.telemetry, to_json(_account(attempt)))
    texts = {
        paths.train_log: "".join(f"{line}\n" for line in segment.lines) if segment else None,
        paths.gpu_telemetry: attempt.gpu.text() if attempt.gpu and attempt.gpu.columns else None,
        paths.host_telemetry: attempt.host.text() if attempt.host and attempt.host.columns else None,
    }
    for path, text in texts.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            files.write_text(path, text)
    files.write_json(paths.outcome, to_json(attempt.outcome))


def _account(attempt: Translated) -> TelemetryAccount:
    asked = attempt.spec.telemetry
    return TelemetryAccount(gpu=account_of(attempt.gpu, asked.gpu_s), host=account_of(attempt.host, asked.host_s))


def _effective_lines(attempt: Translated) -> Iterator[str]:
    t = attempt.outcome.started_t
    common = {"v": EVENT_VERSION, "run": attempt.spec.run, "attempt": attempt.outcome.attempt, "rank": 0, "t": t, "m": t}
    for setting, (requested, effective, reason) in effective_of(attempt.original.cells).items():
        event = {**common, "kind": "effective", "setting": setting, "requested": requested, "effective": effective, "reason": reason}
        yield json.dumps(event) + "\n"
