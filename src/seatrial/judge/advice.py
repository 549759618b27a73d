"""Why a throughput may fall short, and what to do.

In: a criterion that FAILs and the runs or groups that violate it. Out: advice, each kind once, with every run that shows it as evidence:
signs in logs and settings (the registry of signatures), debug settings, causes found in telemetry and phases.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.core.paths import ATTEMPT_FILES
from seatrial.judge.evidence import JudgedCampaign, attempt_file, listed, run_window, without_numbers
from seatrial.records.measure import DebugSetting, JitterCause, RunMeasure, SlowSign
from seatrial.records.outcome import Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.signatures.registry import slow_sign_for
from seatrial.records.verdict import Advice, Criterion, Evidence

# Metrics that a slow run violates; the signs apply to these only.
THROUGHPUT_METRICS = frozenset(
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
# Causes that affect the measurement, not the speed.
NO_ADVICE = frozenset({"telemetry_gaps"})


@dataclass(frozen=True, kw_only=True)
class _Hint:
    """One sign of one run."""

    id: str
    action: str
    """What to do; empty where `seen` has it."""
    seen: str
    evidence: Evidence


def advice_for(criterion: Criterion, subjects: Sequence[str], campaign: JudgedCampaign) -> tuple[Advice, ...]:
    """Advice from the runs behind `subjects` (runs or groups that violate the criterion); () for metrics unrelated to throughput."""
    if criterion.metric not in THROUGHPUT_METRICS:
        return ()
    return _merged(hint for run in _runs(subjects, campaign) for hint in _hints(run))


def cause_advice(causes: Iterable[JitterCause], subject: str) -> tuple[Advice, ...]:
    """Advice for the causes of a group's instability."""
    return tuple(Advice(id=cause.kind, text=cause.text, evidence=(_cause_evidence(subject, cause, cause.file),)) for cause in causes)


def causes_seen(runs: Iterable[MeasuredRun], but: Container[str] = ()) -> tuple[Advice, ...]:
    """Every kind of cause found in the runs, each once with all its runs, except the kinds in `but`."""
    shown = [(run, cause) for run in runs if run.measure for cause in run.measure.jitter_causes if cause.kind not in but]
    return _merged(replace(_cause_hint(run, cause), id=cause.kind) for run, cause in shown)


def _merged(hints: Iterable[_Hint]) -> tuple[Advice, ...]:
    """Each id once, with everything seen of it and every run that shows it."""
    together: dict[str, list[_Hint]] = {}
    for hint in hints:
        together.setdefault(hint.id, []).append(hint)
    return tuple(_advice(name, found) for name, found in together.items())


def _advice(name: str, hints: Sequence[_Hint]) -> Advice:
    runs = listed(list(dict.fromkeys(hint.evidence.subject for hint in hints)))
    action = next((hint.action.rstrip(".") for hint in hints if hint.action), "")
    seen = "; ".join(_distinct(hint.seen.rstrip(".") for hint in hints if hint.action or not action))
    text = f"{action}. Seen: {seen}" if action and seen else action or seen
    return Advice(id=name, text=f"{text} ({runs}).", evidence=tuple(hint.evidence for hint in hints))


def _distinct(parts: Iterable[str]) -> list[str]:
    """Distinct texts, without those that are the beginning of another; of texts that differ only in numbers, the first."""
    found = {without_numbers(part): part for part in reversed([part for part in parts if part])}
    kept = list(reversed(found.values()))
    return [part for part in kept if not any(other != part and other.startswith(part) for other in kept)]


def _runs(subjects: Sequence[str], campaign: JudgedCampaign) -> list[MeasuredRun]:
    wanted = set(subjects)
    in_groups = [
        run for name in subjects if (group := campaign.group(name)) for run in campaign.runs_of(group) if run.outcome is Outcome.OK
    ]
    found = [*(run for run in campaign.ok if run.attempt.spec.run in wanted), *in_groups]
    return list({run.attempt.spec.run: run for run in found if run.measure}.values())


def _hints(run: MeasuredRun) -> Iterator[_Hint]:
    measure = run.measure or RunMeasure(source="")
    yield from (_sign_hint(run, sign) for sign in measure.slow_signs)
    # What the plan varies is the difference under test.
    yield from (_debug_hint(run, setting) for setting in measure.debug if not setting.varied)
    yield from (_cause_hint(run, cause) for cause in measure.jitter_causes if cause.kind not in NO_ADVICE)


def _sign_hint(run: MeasuredRun, sign: SlowSign) -> _Hint:
    window, _ = run_window(run)
    file = attempt_file(run, sign.file or ATTEMPT_FILES.launcher_log.name)
    evidence = Evidence(subject=run.attempt.spec.run, name=sign.id, value=sign.detail, file=file, window=window, n=sign.n or 1)
    return _Hint(id=sign.id, action=sign.action, seen=sign.detail, evidence=evidence)


def _debug_hint(run: MeasuredRun, setting: DebugSetting) -> _Hint:
    window, _ = run_window(run)
    file = attempt_file(run, setting.file)
    entry = slow_sign_for("debug")
    evidence = Evidence(subject=run.attempt.spec.run, name=setting.name, value=setting.value, file=file, window=window, n=1)
    return _Hint(
        id=entry.id if entry else "debug",
        action=entry.action if entry else "Measure without it.",
        seen=f"{setting.name}={setting.value}, {setting.why}",
        evidence=evidence,
    )


def _cause_hint(run: MeasuredRun, cause: JitterCause) -> _Hint:
    """The cause's text contains numbers and remedy; the id is the registry's."""
    entry = slow_sign_for(cause.kind)
    file = attempt_file(run, cause.file) if cause.file else ""
    evidence = _cause_evidence(run.attempt.spec.run, cause, file)
    return _Hint(id=entry.id if entry else cause.kind, action="", seen=cause.text, evidence=evidence)


def _cause_evidence(subject: str, cause: JitterCause, file: str) -> Evidence:
    known = {name: value for name, value in cause.numbers.items() if value is not None}
    numbers = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in known.items())
    return Evidence(subject=subject, name=cause.kind, value=numbers or None, file=file, window=cause.window, n=cause.n)
