"""Attempts as they lie on disk.

In: a campaign's folder. Out: one `Attempt` for every attempt-N/ with a readable spec.json, and which of them are current: the
newest one that came to its own end, for every run and hash that a plan of this folder asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from seatrial import files
from seatrial.collect.alarms import alarm_cautions
from seatrial.collect.sample_count import counted_samples
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.caution import Caution
from seatrial.records.codec import from_json
from seatrial.records.command import Provenance
from seatrial.records.outcome import RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.records.telemetry import TelemetryAccount

Record = TypeVar("Record")


def read_campaign(paths: CampaignPaths, plans: Sequence[CampaignPlan] | None = None) -> list[Attempt]:
    """Every attempt of every run, by run name, then number; `plans` are the folder's, where they were read already."""
    found = [attempt for run in paths.runs() for at in run.attempts() if (attempt := read_attempt(at))]
    found.sort(key=lambda attempt: (attempt.spec.run, attempt.number))
    current = _current(found, _asked(paths, plans))
    return [replace(attempt, current=attempt.folder in current) for attempt in found]


def read_plans(paths: CampaignPaths) -> list[CampaignPlan]:
    """Every plan that was run into this folder and can be read, the latest last."""
    latest = _read(CampaignPlan, paths.plan)
    plans = [plan for path in sorted(paths.plans.glob("*.json")) if (plan := _read(CampaignPlan, path))]
    return sorted(plans, key=lambda plan: latest is not None and plan.name == latest.name)


def read_attempt(paths: AttemptPaths) -> Attempt | None:
    """One attempt; None when its spec.json is missing or not readable, since nothing can then be said of it."""
    spec = _read(RunSpec, paths.spec)
    if spec is None:
        return None
    outcome, provenance, telemetry = (
        _read(RunOutcome, paths.outcome),
        _read(Provenance, paths.provenance),
        _read(TelemetryAccount, paths.telemetry),
    )
    alarms = alarm_cautions(spec.run, paths.alarms)
    unreadable = [path for path, value in ((paths.outcome, outcome), (paths.provenance, provenance)) if value is None and path.exists()]
    return Attempt(
        folder=str(paths.folder),
        number=paths.number,
        spec=spec,
        outcome=outcome,
        provenance=provenance or Provenance(),
        telemetry=telemetry or (counted_samples(paths, spec.telemetry) if outcome else None),
        cautions=(*(_unreadable(path, spec.run) for path in unreadable), *alarms),
    )


def _read(kind: type[Record], path: Path) -> Record | None:
    try:
        value = files.read_json(path)
        return from_json(kind, value) if isinstance(value, dict) else None
    except (TypeError, ValueError, KeyError, AttributeError, OSError):
        return None


def _unreadable(path: Path, run: str) -> Caution:
    return Caution(
        kind="unreadable_file",
        subject=run,
        text=f"{path} is not what Seatrial writes and was passed over; run the run again, or put the file back from a copy.",
    )


def _asked(paths: CampaignPaths, plans: Sequence[CampaignPlan] | None) -> set[tuple[str, str]] | None:
    """Run and hash of everything the folder's plans ask for; None where it keeps no plans."""
    if not paths.plans.is_dir():
        return None
    return {(spec.run, spec.hash) for plan in (read_plans(paths) if plans is None else plans) for spec in plan.runs}


def _current(attempts: Iterable[Attempt], asked: set[tuple[str, str]] | None) -> set[str]:
    """Folders of the attempts whose results count."""
    newest: dict[tuple[str, str], Attempt] = {}
    for attempt in attempts:
        key = (attempt.spec.run, attempt.spec.hash if asked is not None else "")
        wanted = asked is None or key in asked
        if wanted and (key not in newest or asked is None or ended(attempt) or not ended(newest[key])):
            newest[key] = attempt
    return {attempt.folder for attempt in newest.values()}


def ended(attempt: Attempt) -> bool:
    """Whether the attempt came to its own end, good or bad: one that was cut short from outside does not hide an older result."""
    return attempt.outcome is not None and not attempt.outcome.outcome.is_cut_short
