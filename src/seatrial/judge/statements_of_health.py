"""Statements about memory that leaks and ranks that hold the others up.

In: the campaign's facts. Out: findings without a criterion. A few runs are told one by one, many that say the same together; runs of
which nothing can be said are told once with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.judge.facts import Facts
from seatrial.judge.memory import NO_SAMPLES, course_evidence, slope_text, unsaid_text
from seatrial.judge.reading import MOST_APART, listed, runs_text
from seatrial.judge.straggling import held_up_evidence, steps_text, straggler_evidence
from seatrial.records.health import MemoryCourse, MemoryVerdict, Straggler, StragglerVerdict
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Evidence, Finding, Verdict
from seatrial.units import format_duration
from seatrial.wording import count

Course = tuple[MeasuredRun, MemoryCourse]
Held = tuple[MeasuredRun, Straggler]


def leak_statements(facts: Facts) -> Iterator[Finding]:
    """Every leak; then, of the runs that ended ok, whether the rest are known to be without one."""
    courses = [(run, course) for run in facts.finished if run.measure for course in run.measure.memory]
    leaks = [(run, course) for run, course in courses if course.verdict is MemoryVerdict.LEAK]
    for key in dict.fromkeys(_key(course) for _, course in leaks):
        yield from _leaks(key, [(run, course) for run, course in leaks if _key(course) == key])
    leaking = {run.attempt.spec.run for run, _ in leaks}
    yield from _not_leaking([run for run in facts.ok if run.attempt.spec.run not in leaking and run.measure], len(facts.ok))


def _key(course: MemoryCourse) -> str:
    """`host`, `gpu0`: what an id can hold."""
    return "host" if course.kind == "host" else course.subject.lower().replace(" ", "")


def _leaks(key: str, leaks: Sequence[Course]) -> Iterator[Finding]:
    worst = sorted(leaks, key=lambda pair: -(pair[1].slope_mib_per_min or 0.0))
    if len(worst) <= MOST_APART:
        for run, course in worst:
            name = run.attempt.spec.run
            yield _leak(f"leak:{name}:{key}", f"{name} leaks", course, [(run, course)])
        return
    run, course = worst[0]
    names = listed([one.attempt.spec.run for one, _ in worst])
    yield _leak(f"leak:{key}", f"{runs_text(len(worst))} leak ({names}), the worst, {run.attempt.spec.run}", course, worst)


def _leak(name: str, subject: str, course: MemoryCourse, leaks: Sequence[Course]) -> Finding:
    span = course.last_t - course.first_t if course.first_t is not None and course.last_t is not None else None
    over = f", {count(course.n, 'sample')}" + (f" over {format_duration(span)}" if span is not None else "")
    return Finding(
        id=name,
        kind="leak",
        verdict=Verdict.FAIL,
        text=f"{subject}: {course.subject} {slope_text(course)}{_per_steps(course)}{over}{_hours(course)}.",
        evidence=tuple(evidence for run, each in leaks for evidence in course_evidence(run, each)),
    )


def _per_steps(course: MemoryCourse) -> str:
    return f", {course.mib_per_1000_steps:.4g} MiB in 1,000 steps" if course.mib_per_1000_steps is not None else ""


def _hours(course: MemoryCourse) -> str:
    if course.hours_left is None:
        return ""
    least = f", {_time(course.hours_low)} at the steepest" if course.hours_low is not None else ""
    return f"; full in {_time(course.hours_left)}{least}"


def _time(hours: float) -> str:
    return format_duration(hours * 3600)


def _not_leaking(runs: Sequence[MeasuredRun], of: int) -> Iterator[Finding]:
    level = [run for run in runs if _is_level(run)]
    unsaid = [run for run in runs if not _is_level(run)]
    if unsaid:
        yield Finding(
            id="leak-unknown",
            kind="leak",
            verdict=Verdict.INCONCLUSIVE,
            text=f"Whether memory leaks in {_subject(unsaid, of)} cannot be said: {_why_unsaid(unsaid[0])}.",
            evidence=_courses(unsaid),
        )
    if level:
        text = f"No leak in {runs_text(len(level))}: memory stays level after warm-up ({count(_samples(level), 'sample')})."
        yield Finding(id="leak-none", kind="leak", verdict=Verdict.PASS, text=text, evidence=_courses(level))


def _subject(runs: Sequence[MeasuredRun], of: int) -> str:
    """'mb8_r1', 'any of 6 runs', '2 runs (mb8_r1, mb8_r2)'."""
    if len(runs) == 1:
        return runs[0].attempt.spec.run
    if len(runs) == of:
        return f"any of {runs_text(of)}"
    return f"{runs_text(len(runs))} ({listed([run.attempt.spec.run for run in runs])})"


def _is_level(run: MeasuredRun) -> bool:
    courses = run.measure.memory if run.measure else ()
    return bool(courses) and all(course.verdict is MemoryVerdict.PLATEAU for course in courses)


def _why_unsaid(run: MeasuredRun) -> str:
    courses = run.measure.memory if run.measure else ()
    return next((unsaid_text(course) for course in courses if course.verdict is MemoryVerdict.INCONCLUSIVE), NO_SAMPLES)


def _courses(runs: Sequence[MeasuredRun]) -> tuple[Evidence, ...]:
    courses = ((run, course) for run in runs if run.measure for course in run.measure.memory)
    return tuple(evidence for run, course in courses for evidence in course_evidence(run, course))


def _samples(runs: Sequence[MeasuredRun]) -> int:
    return sum(course.n for run in runs if run.measure for course in run.measure.memory)


def straggler_statements(facts: Facts) -> Iterator[Finding]:
    """Every rank that holds its runs up; then how many runs have none, or cannot tell. Nothing is said of runs of a single rank."""
    judged = [(run, run.measure.straggler) for run in facts.finished if run.measure and run.measure.straggler]
    named = [pair for pair in judged if pair[1].verdict is StragglerVerdict.NAMED]
    for place in dict.fromkeys(_place(found) for _, found in named):
        yield _straggler([pair for pair in named if _place(pair[1]) == place])
    ok = {run.attempt.spec.run for run in facts.ok}
    of_ok = [pair for pair in judged if pair[0].attempt.spec.run in ok]
    yield from _abstained([pair for pair in of_ok if pair[1].verdict is StragglerVerdict.ABSTAINED], len(facts.ok))
    yield from _without([pair for pair in of_ok if pair[1].verdict is StragglerVerdict.NONE])


def _place(found: Straggler) -> tuple[int | None, str, str, str]:
    return found.rank, found.host, found.gpu, found.phase


def _straggler(pairs: Sequence[Held]) -> Finding:
    """One rank at one place; of several runs the one it holds up most is told."""
    worst, found = max(pairs, key=lambda pair: pair[1].score or 0.0)
    runs = listed([run.attempt.spec.run for run, _ in pairs])
    where = ", ".join(part for part in (found.host, f"GPU {found.gpu}" if found.gpu else "") if part)
    phase = f" in {found.phase}" if found.phase else ""
    held = f", {found.held_up_ms:.4g} ms of each step" if found.held_up_ms is not None else ""
    whose = f"{worst.attempt.spec.run}, " if len(pairs) > 1 else ""
    # What it does longer inside the phase in which the ranks meet cannot be seen.
    score = (
        f": at least {found.score * 100:.0f} % longer at work than the others{held} ({whose}{steps_text(found)})"
        if found.score is not None
        else ""
    )
    rank = f"rank {found.rank}{f' ({where})' if where else ''}"
    if found.slow_host:
        rank = f"host {found.slow_host} (all its {found.slow_host_ranks} ranks and no others, rank {found.rank} most)"
    return Finding(
        id=f"straggler:{pairs[0][0].attempt.spec.run}:rank{found.rank}",
        kind="straggler",
        verdict=Verdict.FAIL,
        text=f"{rank[0].upper()}{rank[1:]} holds {runs} up{phase}{score}.",
        evidence=tuple(of(run, each) for run, each in pairs for of in (straggler_evidence, held_up_evidence)),
    )


def _abstained(pairs: Sequence[Held], of: int) -> Iterator[Finding]:
    if pairs:
        subject = _subject([run for run, _ in pairs], of)
        yield Finding(
            id="straggler-unknown",
            kind="straggler",
            verdict=Verdict.INCONCLUSIVE,
            text=f"Whether one rank holds {subject} up cannot be said: {pairs[0][1].reason.rstrip('.')}.",
            evidence=tuple(straggler_evidence(run, found) for run, found in pairs),
        )


def _without(pairs: Sequence[Held]) -> Iterator[Finding]:
    if pairs:
        steps = sum(found.n for _, found in pairs)
        yield Finding(
            id="straggler-none",
            kind="straggler",
            verdict=Verdict.PASS,
            text=f"No rank holds the others up in {runs_text(len(pairs))} ({count(steps, 'step')}).",
            evidence=tuple(straggler_evidence(run, found) for run, found in pairs),
        )
