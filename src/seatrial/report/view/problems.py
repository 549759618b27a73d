"""What went wrong and what was found: failures, health, findings beside the criteria."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.core.log_lines import lines_to_show
from seatrial.core.text import count, format_duration, join_names
from seatrial.records.caution import Scalar
from seatrial.records.measure import HarmlessCount, RunHealth
from seatrial.records.outcome import Fault, Outcome, RunOutcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.signatures.registry import fault_of
from seatrial.records.verdict import Criterion, Finding, Verdict
from seatrial.report.text import figure, one_line

FRAME = re.compile(r'File "[^"]+", line \d+')
WHAT_FITS = "what_fits"
"""Kind of the cautions that are shown with the failures."""
RUN_AGAIN = (
    "Platform failure: not counted against the group. Fix the platform and run the same command again; until then attribute no difference "
    "to the code."
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Runs that ended in the same way for the same reason, an entry of `failures` in summary.json; `detail`, `log_tail` and `telling` are
    those of the first run."""

    runs: tuple[str, ...]
    outcome: str
    cause: str
    detail: str
    action: str
    duration_s: float
    """Duration of the shortest run."""
    log_tail: tuple[str, ...]
    fault: str = Fault.UNKNOWN.value
    """The `Fault`: platform, settings or script."""
    telling: tuple[str, ...] = ()
    """The most relevant lines, where no signature explains the end."""
    fits: tuple[str, ...] = ()
    """What fits, for a run that ran out of memory."""
    longest_s: float | None = None
    """Duration of the longest run."""

    @property
    def after(self) -> str:
        """`12.0 s`, `12.0 s to 1m 04s`."""
        times_s = (self.duration_s, self.longest_s)
        return " to ".join(dict.fromkeys(format_duration(time_s) for time_s in times_s if time_s is not None))

    @property
    def where(self) -> str:
        """The innermost frame, or the most relevant line that is not in the detail."""
        lines = [line.strip() for line in self.telling if line.strip() not in self.detail]
        frames = [line for line in lines if FRAME.match(line)]
        return next(iter([*frames[-1:], *lines[:1]]), "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks: the platform was at fault; what fits."""
        return (*([RUN_AGAIN] if self.fault == Fault.INFRASTRUCTURE.value else []), *self.fits)


def failures(results: CampaignResults) -> list[Failure]:
    """Failed current runs; those with the same cause and message are one entry."""
    together: dict[tuple[str, str, str], list[MeasuredRun]] = {}
    for run, ended in _failed(results):
        together.setdefault((ended.outcome.value, ended.cause.value, ended.message), []).append(run)
    return [_failure(runs, results) for runs in together.values()]


def _failed(results: CampaignResults) -> Iterator[tuple[MeasuredRun, RunOutcome]]:
    for run in results.runs:
        ended = run.attempt.outcome
        if run.attempt.current and ended is not None and ended.outcome.is_failure:
            yield run, ended


def _failure(runs: list[MeasuredRun], results: CampaignResults) -> Failure:
    ended = runs[0].attempt.outcome
    assert ended is not None
    lengths_s = [run.attempt.outcome.duration_s for run in runs if run.attempt.outcome]
    groups = {run.attempt.spec.group for run in runs}
    fits = (caution.text for caution in results.cautions if caution.kind == WHAT_FITS and caution.subject in groups)
    return Failure(
        runs=tuple(run.attempt.spec.run for run in runs),
        outcome=ended.outcome.value,
        cause=ended.cause.value,
        detail=ended.detail,
        action=ended.action,
        duration_s=min(lengths_s),
        longest_s=max(lengths_s),
        log_tail=tuple(lines_to_show(ended.log_tail)),
        fault=fault_of(ended).value,
        telling=tuple(lines_to_show(ended.excerpt or ended.telling)),
        fits=tuple(dict.fromkeys(fits)),
    )


NO_HEALTH = "Unknown: no run has ended by itself yet, or its output is unreadable."
HARMLESS = "Harmless warnings; nothing needs doing:"
# DeepSpeed prints it in every run on one machine: the summary lists it, the terminal does not.
IN_EVERY_RUN = frozenset({"no_hostfile"})


@dataclass(frozen=True, kw_only=True)
class WarningSeen:
    """One kind of harmless warning over all runs."""

    id: str
    meaning: str
    runs: int
    lines: int


@dataclass(frozen=True, kw_only=True)
class Health:
    """The health of all current runs together."""

    runs: int
    """Number of examined runs."""
    fatal_tracebacks: tuple[str, ...]
    """Failed runs with a traceback in their output."""
    other_tracebacks: tuple[str, ...]
    """Runs that ended ok and printed one nevertheless."""
    ranks_started: int
    """Ranks of the runs that recorded how their ranks ended."""
    ranks_ended_well: int
    ranks_unknown: tuple[str, ...]
    """Runs that did not record it."""
    harmless: tuple[WarningSeen, ...]
    harmless_runs: int
    """Number of runs that printed at least one of them."""


def health_of(results: CampaignResults) -> Health:
    examined = list(_examined(results))
    printed = [(run, is_ok) for run, is_ok, health in examined if health.tracebacks]
    known = [(health.ranks, health.ranks_ended_well) for _, _, health in examined if health.ranks_ended_well is not None]
    return Health(
        runs=len(examined),
        fatal_tracebacks=tuple(run for run, is_ok in printed if not is_ok),
        other_tracebacks=tuple(run for run, is_ok in printed if is_ok),
        ranks_started=sum(started for started, _ in known),
        ranks_ended_well=sum(well for _, well in known),
        ranks_unknown=tuple(run for run, _, health in examined if health.ranks_ended_well is None),
        harmless=_warnings([one for _, _, health in examined for one in health.harmless]),
        harmless_runs=sum(bool(health.harmless) for _, _, health in examined),
    )


def health_line(results: CampaignResults) -> str:
    """One line for the terminal; '' where there is nothing to add to failures and cautions."""
    health = health_of(results)
    parts = []
    kinds = ", ".join(one.id for one in health.harmless)
    if {one.id for one in health.harmless} - IN_EVERY_RUN:
        parts.append(f"harmless warnings in {count(health.harmless_runs, 'run')} ({kinds}), nothing to do")
    if health.other_tracebacks:
        parts.append(_printed_and_ok(health))
    return f"Health: {'; '.join(parts)}." if parts else ""


def _examined(results: CampaignResults) -> Iterator[tuple[str, bool, RunHealth]]:
    """Name, whether it ended ok, and health of each examined run."""
    for run in results.runs:
        health = run.measure.health if run.measure else None
        if run.attempt.current and health and run.outcome and not run.outcome.is_cut_short:
            yield run.attempt.spec.run, run.outcome is Outcome.OK, health


def _warnings(seen: list[HarmlessCount]) -> tuple[WarningSeen, ...]:
    kinds = {one.id: one.meaning for one in seen}
    of_kind = {id: [one.lines for one in seen if one.id == id] for id in kinds}
    return tuple(WarningSeen(id=id, meaning=kinds[id], runs=len(lines), lines=sum(lines)) for id, lines in of_kind.items())


def health_sentences(health: Health) -> Iterator[str]:
    """The facts, one sentence each."""
    fatal = f"{count(len(health.fatal_tracebacks), 'run')}: {join_names(health.fatal_tracebacks)}" if health.fatal_tracebacks else "none"
    yield f"Fatal tracebacks: {fatal}."
    if health.other_tracebacks:
        yield f"{_printed_and_ok(health)}."
    unknown = f"; unknown of {join_names(health.ranks_unknown)}" if health.ranks_unknown else ""
    yield f"Ranks: {health.ranks_ended_well} of {health.ranks_started} exited cleanly{unknown}."
    if not health.harmless:
        yield "Harmless warnings: none."


def _printed_and_ok(health: Health) -> str:
    names = join_names(health.other_tracebacks)
    return f"{count(len(health.other_tracebacks), 'run')} exited 0 after a traceback: may have failed, read the log ({names})"


DECIDES_NOTHING = "None of these changes the verdict: only criteria do."
# Shown elsewhere: in the section of failures, the sentence about the winners, cautions.
STATED_ELSEWHERE = frozenset({"failure", "winner", "steady_state", "debug", "process_group"})
# By kind: the text where it holds, and where it is undecided.
HOLDS = {
    "leak": "no leak",
    "straggler": "no straggler",
    "stability": "stable",
    "drift": "no drift",
    "steady_state": "steady state",
    "slow_steps": "few slow steps",
}
OPEN = {"leak": "leaks", "straggler": "stragglers", "stability": "stability", "drift": "drift"}


WORDS = {Verdict.FAIL: "problem", Verdict.INCONCLUSIVE: "unknown", Verdict.PASS: "ok"}
"""Words for findings without a criterion: PASS, FAIL and INCONCLUSIVE are only for criteria, which decide."""
MARKS = {"PASS": "+", "FAIL": "x", "INCONCLUSIVE": "?", "problem": "!", "unknown": "?", "ok": "+"}
"""Word → mark."""


def is_statement(finding: Finding) -> bool:
    """Whether it is a finding without a criterion."""
    return finding.criterion is None and finding.kind != "criterion"


def word_of(finding: Finding) -> str:
    """`FAIL` for a criterion, `problem` for other findings."""
    return WORDS[finding.verdict] if is_statement(finding) else finding.verdict.value


def short_id(finding: Finding) -> str:
    """The number of a criterion, which `seatrial why` accepts; else the whole id."""
    return finding.id.split("-")[0] if finding.criterion else finding.id


def failed_statements(results: CampaignResults) -> list[Finding]:
    """Problems that no other section shows."""
    return [one for one in results.verdict.statements if one.verdict is Verdict.FAIL and one.kind not in STATED_ELSEWHERE]


def open_kinds(results: CampaignResults) -> list[str]:
    """Kinds of undecided findings; mostly the runs were too short."""
    found = (one.kind for one in results.verdict.statements if one.verdict is Verdict.INCONCLUSIVE and one.kind not in STATED_ELSEWHERE)
    return list(dict.fromkeys(OPEN.get(kind, kind) for kind in found))


def holding_kinds(results: CampaignResults) -> list[str]:
    """Kinds of findings that hold, with a remark where they hold only in some runs."""
    statements = results.verdict.statements
    doubtful = {one.kind for one in statements if one.verdict is not Verdict.PASS}
    holding = dict.fromkeys(one.kind for one in statements if one.verdict is Verdict.PASS and one.kind in HOLDS)
    return [f"{HOLDS[kind]} in the rest" if kind in doubtful else HOLDS[kind] for kind in holding]


def criterion_text(criterion: Criterion) -> str:
    """'samples_per_s, scope winner, at least 1,300 samples/s, against mb16, from stage1_speed'."""
    unit = f" {criterion.unit}" if criterion.unit and criterion.unit != "ratio" else ""
    parts = [criterion.metric, f"group {criterion.group}" if criterion.group else f"scope {criterion.scope}"]
    parts += [f"at least {criterion.at_least:,.10g}{unit}"] if criterion.at_least is not None else []
    parts += [f"at most {criterion.at_most:,.10g}{unit}"] if criterion.at_most is not None else []
    parts += [f"against {criterion.baseline.shown}"] if criterion.baseline and criterion.baseline.text else []
    parts += [f"from {criterion.ready}"] if criterion.ready else []
    return ", ".join(parts)


def value_text(value: Scalar, unit: str) -> str:
    """'1,270 samples/s', 'none', 'true'."""
    if value is None:
        return "none"
    shown = str(value).lower() if isinstance(value, bool) else figure(value) if isinstance(value, float) else str(value)
    return f"{one_line(shown)} {unit}".rstrip()
