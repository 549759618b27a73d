"""Criteria that count runs: failed, halted, leaking, straggling.

In: a metric and the runs it looks at. Out: a reading whose value is how many are known to be so. A run of which that cannot be said may
yet be one more: the count then has a high end above its value, and is no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seatrial.judge.facts import Facts, is_spoilt
from seatrial.judge.memory import NO_SAMPLES, course_evidence, slope_text, unsaid_text
from seatrial.judge.reading import FILES, Reading, how_it_ended, listed, missing, outcome_file, run_window, runs_text, shape
from seatrial.judge.straggling import ONE_RANK, is_alone, straggler_evidence
from seatrial.records.criteria_catalog import CAMPAIGN
from seatrial.records.health import MemoryCourse, MemoryVerdict, StragglerVerdict
from seatrial.records.measure import GroupSummary
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Evidence


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one run says; `so` is None where it cannot be said, and `what` then tells why. Of one that is not so, `what` is what a reader
    must know beside."""

    so: bool | None
    what: str = ""
    evidence: tuple[Evidence, ...] = ()


def count_of_campaign(metric: str, facts: Facts) -> list[Reading]:
    """Over all runs; [] where none has ended."""
    return [_reading(metric, CAMPAIGN, facts.finished)] if facts.finished else []


def count_of_group(metric: str, group: GroupSummary, facts: Facts) -> Reading:
    runs = facts.runs_of(group)
    if not runs:
        return missing(group.group, f"no run of {group.group} has ended; run the plan", FILES.group_summary.name)
    return _reading(metric, group.group, runs)


def _reading(metric: str, subject: str, runs: Sequence[MeasuredRun]) -> Reading:
    seen = [(run, COUNTED[metric](run)) for run in runs]
    so = [(run, one) for run, one in seen if one.so]
    unsaid = [(run, one) for run, one in seen if one.so is None]
    return Reading(
        subject=subject,
        value=len(so),
        unit="runs",
        file=FILES.manifest.name if metric == "failed_runs" else FILES.per_run_metrics.name,
        window="whole runs" if metric == "failed_runs" else "the window of each run",
        n=len(seen),
        low=len(so),
        high=len(so) + len(unsaid),
        unsettled=_unsettled(unsaid),
        detail=listed([f"{run.attempt.spec.run} ({one.what})" for run, one in so]) or _beside([one for _, one in seen]),
        further=tuple(evidence for _, one in seen for evidence in one.evidence),
    )


def told_count(metric: str, reading: Reading) -> str:
    """'1 of 7 runs failed: mb8_r2 (failed: cuda_oom)'; of a group, its name too."""
    where = "" if reading.subject == CAMPAIGN else f" in {reading.subject}"
    one, more = VERBS[metric]
    told = f"{reading.value} of {runs_text(reading.n or 0)} {one if reading.value == 1 else more}{where}"
    return f"{told}: {reading.detail}" if reading.detail else told


def _beside(seen: Sequence[Seen]) -> str:
    """'one rank only: nothing to hold up', with how many where it is not said of all."""
    notes = [one.what for one in seen if one.so is False and one.what]
    told = dict.fromkeys(notes)
    return "; ".join(note if notes.count(note) == len(seen) else f"{runs_text(notes.count(note))}: {note}" for note in told)


def _unsettled(unsaid: Sequence[tuple[MeasuredRun, Seen]]) -> str:
    """Why, reasons that differ only in numbers once, with their runs."""
    reasons: dict[str, str] = {}
    runs: dict[str, list[str]] = {}
    for run, one in unsaid:
        reasons.setdefault(shape(one.what), one.what)
        runs.setdefault(shape(one.what), []).append(run.attempt.spec.run)
    return listed([f"{listed(runs[key])}: {why}" for key, why in reasons.items()], "; ")


def _failed(run: MeasuredRun) -> Seen:
    if run.outcome is Outcome.OK:
        return Seen(so=False)
    outcome = run.attempt.outcome
    at = Evidence(
        subject=run.attempt.spec.run,
        name="cause",
        value=outcome.cause.value if outcome else None,
        file=outcome_file(run),
        window="whole run",
        n=1,
    )
    if is_spoilt(run):
        return Seen(so=None, what=f"failed by the platform ({at.value}): run it again on a healthy one", evidence=(at,))
    return Seen(so=True, what=how_it_ended(run), evidence=(at,))


def _halted(run: MeasuredRun) -> Seen:
    health = run.measure.health if run.measure else None
    if run.outcome is Outcome.STALLED or (health and health.halted):
        at = Evidence(subject=run.attempt.spec.run, name="halted", value=True, file=outcome_file(run), window="whole run", n=1)
        return Seen(so=True, what=how_it_ended(run), evidence=(at,))
    if health is None:
        return Seen(so=None, what="nothing was read of how its ranks ended; make the report again with its event files in place")
    return _cut_short(run) or Seen(so=False)


def _leaking(run: MeasuredRun) -> Seen:
    courses = run.measure.memory if run.measure else ()
    leaks = [course for course in courses if course.verdict is MemoryVerdict.LEAK]
    if leaks:
        told = listed([f"{course.subject} {slope_text(course)}" for course in leaks])
        return Seen(so=True, what=told, evidence=_of_courses(run, leaks))
    if short := _cut_short(run):
        return short
    if not courses:
        return Seen(so=None, what=NO_SAMPLES)
    open_ones = [course for course in courses if course.verdict is MemoryVerdict.INCONCLUSIVE]
    if open_ones:
        return Seen(so=None, what=unsaid_text(open_ones[0]), evidence=_of_courses(run, open_ones))
    return Seen(so=False, evidence=_of_courses(run, courses))


def _of_courses(run: MeasuredRun, courses: Sequence[MemoryCourse]) -> tuple[Evidence, ...]:
    return tuple(evidence for course in courses for evidence in course_evidence(run, course))


def _straggling(run: MeasuredRun) -> Seen:
    found = run.measure.straggler if run.measure else None
    if found and found.verdict is StragglerVerdict.NAMED:
        return Seen(so=True, what=f"rank {found.rank}", evidence=(straggler_evidence(run, found),))
    if short := _cut_short(run):
        return short
    if is_alone(run.measure):
        return Seen(so=False, what=ONE_RANK)
    if found is None:
        return Seen(so=None, what="its ranks were not looked at; let every rank report its steps through the probe")
    return Seen(so=False) if found.verdict is StragglerVerdict.NONE else Seen(so=None, what=found.reason.rstrip("."))


def _cut_short(run: MeasuredRun) -> Seen | None:
    """A run that did not end ok has not shown that it is well."""
    if run.outcome is Outcome.OK:
        return None
    window, _ = run_window(run)
    return Seen(so=None, what=f"it ended before it could show that ({how_it_ended(run)}, {window}); mend it and run it again")


COUNTED: dict[str, Callable[[MeasuredRun], Seen]] = {
    "failed_runs": _failed,
    "halted_runs": _halted,
    "leaking_runs": _leaking,
    "straggling_runs": _straggling,
}
VERBS = {
    "failed_runs": ("failed", "failed"),
    "halted_runs": ("halted", "halted"),
    "leaking_runs": ("leaks", "leak"),
    "straggling_runs": ("is held up by one rank", "are held up by one rank"),
}
"""Of one run, and of any other number."""
