"""Statements about how runs went: failures by cause, settings for finding faults, steady state, slow steps.

In: the campaign's facts. Out: findings without a criterion; what many runs say alike is said once, with the runs as evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.judge.facts import Facts, fault, is_spoilt
from seatrial.judge.reading import FILES, MOST_APART, attempt_file, listed, outcome_file, run_window, runs_text, window_text
from seatrial.records.health import DebugSetting, SlowSteps
from seatrial.records.measure import Window
from seatrial.records.outcome import Fault, RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Evidence, Finding, Verdict
from seatrial.wording import count

# Slow steps that take more of a run's time than this are told as a fault; below they are only named. A twentieth is what the ready
# criteria allow a speed to differ by.
GRAVE_TIME_SHARE = 0.05
MOST_STEPS_NAMED = 3
MOST_LINES = 3

Slow = tuple[MeasuredRun, SlowSteps]


def failure_statements(facts: Facts) -> Iterator[Finding]:
    """Each cause once, with whose fault it is and what to do."""
    together: dict[tuple[str, str, str], list[tuple[MeasuredRun, RunOutcome]]] = {}
    for run in (*facts.failed, *facts.spoilt):
        outcome = run.attempt.outcome
        if outcome:
            together.setdefault((outcome.cause.value, outcome.signature, outcome.action), []).append((run, outcome))
    seen: dict[str, int] = {}
    for (cause, _, _), failures in together.items():
        seen[cause] = seen.get(cause, 0) + 1
        yield _failure(f"failure:{cause}" + (f":{seen[cause]}" if seen[cause] > 1 else ""), failures)


def _failure(name: str, failures: Sequence[tuple[MeasuredRun, RunOutcome]]) -> Finding:
    run, outcome = failures[0]
    whose = fault(run)
    told = f", {_FAULTS[whose]}" if whose in _FAULTS else ""
    action = f" What to do: {outcome.action}" if outcome.action else ""
    again = " That does not weigh on the group; run it again on a healthy platform." if is_spoilt(run) else ""
    names = listed([one.attempt.spec.run for one, _ in failures])
    return Finding(
        id=name,
        kind="failure",
        verdict=Verdict.INCONCLUSIVE if is_spoilt(run) else Verdict.FAIL,
        text=f"{names}: {outcome.outcome.value}, {outcome.cause.value}{told}. {outcome.detail}".rstrip(". ")
        + f".{_telling(outcome)}{action}{again}",
        evidence=tuple(
            Evidence(
                subject=one.attempt.spec.run,
                name="cause",
                value=ended.cause.value,
                file=outcome_file(one),
                window=f"whole run, {ended.duration_s:.1f} s",
                n=1,
            )
            for one, ended in failures
        ),
    )


def _telling(outcome: RunOutcome) -> str:
    """Of a cause that nobody knows, what a reader would look at first."""
    return f" Its most telling lines: {' | '.join(outcome.telling[:MOST_LINES])}." if outcome.telling else ""


_FAULTS = {
    Fault.INFRASTRUCTURE: "the platform's fault",
    Fault.CONFIGURATION: "a matter of its settings",
    Fault.CODE: "a matter of the script",
}


def debug_statements(facts: Facts) -> Iterator[Finding]:
    """Each setting once: figures taken with it are not those of a plain run."""
    together: dict[tuple[str, str], list[tuple[MeasuredRun, DebugSetting]]] = {}
    for run in facts.finished:
        for setting in run.measure.debug if run.measure else ():
            together.setdefault((setting.name, setting.value), []).append((run, setting))
    for (name, value), found in together.items():
        # A run may show the same setting twice, by its environment and by its log.
        runs = list(dict.fromkeys(run.attempt.spec.run for run, _ in found))
        several = sum(other == name for other, _ in together) > 1
        yield Finding(
            id=f"debug:{name}={value}" if several else f"debug:{name}",
            kind="debug",
            verdict=Verdict.INCONCLUSIVE,
            text=f"{name}={value} was on in {listed(runs)}: {found[0][1].why.rstrip('.')}. {_what_of_it(found)}",
            evidence=tuple(_debug_evidence(run, setting) for run, setting in found),
        )


def _what_of_it(found: Sequence[tuple[MeasuredRun, DebugSetting]]) -> str:
    varied = all(setting.varied for _, setting in found)
    return "The plan itself turns it on: differences hold what it costs." if varied else "Measure without it."


def _debug_evidence(run: MeasuredRun, setting: DebugSetting) -> Evidence:
    file, _, line = setting.source.partition(":")
    window = f"line {line}" if line else run_window(run)[0]
    return Evidence(subject=run.attempt.spec.run, name=setting.name, value=setting.value, file=attempt_file(run, file), window=window, n=1)


def steady_statements(facts: Facts) -> Iterator[Finding]:
    """Runs in which no steady state was found, with the reason; and how many have one."""
    windows = [(run, run.measure.window) for run in facts.ok if run.measure and run.measure.window]
    yield from _unsteady([(run, window) for run, window in windows if not window.steady])
    steady = [(run, window) for run, window in windows if window.steady]
    if steady:
        warmup = max(window.warmup_steps for _, window in steady)
        num_steps = sum(window.n for _, window in steady)
        text = f"{runs_text(len(steady))} reached a steady state, after {count(warmup, 'step')} of warm-up at most; "
        text += f"{count(num_steps, 'step')} {'counts' if num_steps == 1 else 'count'}."
        yield _steady("steady_state", Verdict.PASS, text, steady)


def _unsteady(found: Sequence[tuple[MeasuredRun, Window]]) -> Iterator[Finding]:
    """A few one by one, as each has a reason of its own; many together, with the first one's."""
    several = len(found) > MOST_APART
    for part in [found] if several else [[one] for one in found]:
        run, window = part[0]
        subject = f"{runs_text(len(part))} ({listed([one.attempt.spec.run for one, _ in part])})" if several else run.attempt.spec.run
        whose = f"of {run.attempt.spec.run}: " if several else ""
        yield _steady(
            "steady_state-none" if several else f"steady_state:{run.attempt.spec.run}",
            Verdict.INCONCLUSIVE,
            f"No steady state in {subject}: {whose}{window.reason.rstrip('.') or 'too few steps'}.",
            part,
        )


def _steady(name: str, verdict: Verdict, text: str, found: Sequence[tuple[MeasuredRun, Window]]) -> Finding:
    evidence = tuple(
        Evidence(
            subject=run.attempt.spec.run,
            name="steps of warm-up",
            value=window.warmup_steps,
            unit="steps",
            file=FILES.per_run_metrics.name,
            window=window_text(window),
            n=window.n,
        )
        for run, window in found
    )
    return Finding(id=name, kind="steady_state", verdict=verdict, text=text, evidence=evidence)


def slow_step_statements(facts: Facts) -> Iterator[Finding]:
    """Steps that stand out count all the same; they are named, and are a fault where they take much of the time."""
    found = [(run, run.measure.slow_steps) for run in facts.ok if run.measure and run.measure.slow_steps and run.measure.slow_steps.count]
    grave = [(run, slow) for run, slow in found if slow.time_share > GRAVE_TIME_SHARE]
    slight = [(run, slow) for run, slow in found if slow.time_share <= GRAVE_TIME_SHARE]
    yield from _slow_steps("slow_steps", Verdict.FAIL, grave)
    yield from _slow_steps("slow_steps-few", Verdict.PASS, slight)


def _slow_steps(name: str, verdict: Verdict, found: Sequence[Slow]) -> Iterator[Finding]:
    if not found:
        return
    run, slow = max(found, key=lambda pair: pair[1].time_share)
    worst = ", ".join(f"{one.step} ({one.ms:.4g} ms, {one.over_median:.3g} × the median)" for one in slow.worst[:MOST_STEPS_NAMED])
    window, n = run_window(run)
    subject = run.attempt.spec.run if len(found) == 1 else f"{runs_text(len(found))}, most in {run.attempt.spec.run}"
    steps = f"{slow.count} of {count(n or 0, 'step')} {'takes' if slow.count == 1 else 'take'}"
    share = f"{slow.time_share * 100:.1f} % of its time beyond the median step"
    yield Finding(
        id=name,
        kind="slow_steps",
        verdict=verdict,
        text=f"Slow steps in {subject}: {steps} {share} ({window}): {worst}.",
        evidence=tuple(evidence for one, each in found for evidence in _slow_evidence(one, each)),
    )


def _slow_evidence(run: MeasuredRun, slow: SlowSteps) -> Iterator[Evidence]:
    """The share, and each step that is named."""
    window, n = run_window(run)
    name = run.attempt.spec.run
    share = slow.time_share * 100
    yield Evidence(subject=name, name="time of slow steps", value=share, unit="%", file=FILES.per_run_metrics.name, window=window, n=n)
    for step in slow.worst:
        yield Evidence(
            subject=name, name=f"time of step {step.step}", value=step.ms, unit="ms", file=FILES.verdict.name, window=window, n=1
        )
