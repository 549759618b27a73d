"""What may be the reason for a throughput that falls short, and what to do: what the runs concerned themselves show.

In: a criterion that FAILs and the runs or groups that broke it. Out: advice, each kind once with all runs that show it as evidence: signs
in logs and settings (the registry of signatures), settings for finding faults that were on, and causes seen in samples and phases.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.judge.facts import Facts
from seatrial.judge.reading import attempt_file, listed, run_window, shape
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.caution import Number
from seatrial.records.health import DebugSetting, SlowSign, UnevenCause
from seatrial.records.measure import RunMeasure
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Advice, Criterion, Evidence
from seatrial.signatures.registry import slow_sign_for

# Metrics that a slow run breaks; of the others these signs say nothing.
OF_THROUGHPUT = frozenset(
    {
        "samples_per_s",
        "tokens_per_s",
        "steps_per_s",
        "samples_per_s_per_gpu",
        "tokens_per_s_per_gpu",
        "wall_p50_ms",
        "speedup_pct",
        "regression_pct",
        "scaling_efficiency",
    }
)
# Causes that say something of the measurement and nothing of the speed.
NO_ADVICE = frozenset({"telemetry_gaps"})


@dataclass(frozen=True, kw_only=True)
class _Hint:
    """One sign of one run."""

    id: str
    action: str
    """What to do; empty where `seen` says it."""
    seen: str
    evidence: Evidence


def advice_for(criterion: Criterion, subjects: Sequence[str], facts: Facts) -> tuple[Advice, ...]:
    """From the runs behind `subjects` (runs or groups that broke the criterion); () for what is not about throughput."""
    if criterion.metric not in OF_THROUGHPUT:
        return ()
    return merged(hint for run in _runs(subjects, facts) for hint in _hints(run))


def cause_advice(causes: Iterable[UnevenCause], subject: str) -> tuple[Advice, ...]:
    """Causes of a group's unsteadiness, in their own words."""
    return tuple(Advice(id=cause.kind, text=cause.text, evidence=(_cause_evidence(subject, cause, cause.file),)) for cause in causes)


def causes_seen(runs: Iterable[MeasuredRun], but: Container[str] = ()) -> tuple[Advice, ...]:
    """Every kind of cause that the runs show, each once with all of them; without the kinds in `but`."""
    shown = [(run, cause) for run in runs if run.measure for cause in run.measure.uneven if cause.kind not in but]
    return merged(replace(_of_cause(run, cause), id=cause.kind) for run, cause in shown)


def merged(hints: Iterable[_Hint]) -> tuple[Advice, ...]:
    """Each id once, with all that was seen of it and all runs that show it."""
    together: dict[str, list[_Hint]] = {}
    for hint in hints:
        together.setdefault(hint.id, []).append(hint)
    return tuple(_advice(name, found) for name, found in together.items())


def _advice(name: str, hints: Sequence[_Hint]) -> Advice:
    runs = listed(list(dict.fromkeys(hint.evidence.subject for hint in hints)))
    action = next((hint.action.rstrip(".") for hint in hints if hint.action), "")
    seen = "; ".join(_distinct(hint.seen.rstrip(".") for hint in hints if hint.action or not action))
    told = f"{action}. Seen: {seen}" if action and seen else action or seen
    return Advice(id=name, text=f"{told} ({runs}).", evidence=tuple(hint.evidence for hint in hints))


def _distinct(parts: Iterable[str]) -> list[str]:
    """Each once; what another begins with is in that one. Of causes, whose numbers differ from run to run, the first stands for all."""
    found = {shape(part): part for part in reversed([part for part in parts if part])}
    kept = list(reversed(found.values()))
    return [part for part in kept if not any(other != part and other.startswith(part) for other in kept)]


def _runs(subjects: Sequence[str], facts: Facts) -> list[MeasuredRun]:
    wanted = set(subjects)
    of_groups = [run for name in subjects if (group := facts.group(name)) for run in facts.runs_of(group) if run.outcome is Outcome.OK]
    found = [*(run for run in facts.ok if run.attempt.spec.run in wanted), *of_groups]
    return list({run.attempt.spec.run: run for run in found if run.measure}.values())


def _hints(run: MeasuredRun) -> Iterator[_Hint]:
    measure = run.measure or RunMeasure(source="")
    yield from (_of_sign(run, sign) for sign in measure.slow_signs)
    # What the plan itself turns on is the difference under test.
    yield from (_of_debug(run, setting) for setting in measure.debug if not setting.varied)
    yield from (_of_cause(run, cause) for cause in measure.uneven if cause.kind not in NO_ADVICE)


def _of_sign(run: MeasuredRun, sign: SlowSign) -> _Hint:
    window, _ = run_window(run)
    file = attempt_file(run, sign.file or ATTEMPT_FILES.launcher_log.name)
    evidence = Evidence(subject=run.attempt.spec.run, name=sign.id, value=sign.detail, file=file, window=window, n=sign.n or 1)
    return _Hint(id=sign.id, action=sign.action, seen=sign.detail, evidence=evidence)


def _of_debug(run: MeasuredRun, setting: DebugSetting) -> _Hint:
    window, _ = run_window(run)
    file = attempt_file(run, setting.source.split(":")[0])
    entry = slow_sign_for("debug")
    evidence = Evidence(subject=run.attempt.spec.run, name=setting.name, value=setting.value, file=file, window=window, n=1)
    return _Hint(
        id=entry.id if entry else "debug",
        action=entry.action if entry else "Measure without it.",
        seen=f"{setting.name}={setting.value}, {setting.why}",
        evidence=evidence,
    )


def _of_cause(run: MeasuredRun, cause: UnevenCause) -> _Hint:
    """Its text has the numbers and the remedy; the id is that of the registry, which explains it."""
    entry = slow_sign_for(cause.kind)
    file = attempt_file(run, cause.file) if cause.file else ""
    evidence = _cause_evidence(run.attempt.spec.run, cause, file)
    return _Hint(id=entry.id if entry else cause.kind, action="", seen=cause.text, evidence=evidence)


def _cause_evidence(subject: str, cause: UnevenCause, file: str) -> Evidence:
    numbers = ", ".join(f"{name} {_shown(value)}" for name, value in cause.numbers.items() if value is not None)
    return Evidence(subject=subject, name=cause.kind, value=numbers or None, file=file, window=cause.window, n=cause.n)


def _shown(value: Number) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
