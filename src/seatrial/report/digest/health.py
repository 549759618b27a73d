"""Whether the runs were well. In: CampaignResults. Out: `Health` of the current runs that came to an end of their own, and in words what
it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.records.measure import HarmlessCount, RunHealth
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults
from seatrial.wording import count, named

NOTHING = "Nothing is known: no run has come to an end of its own yet, or what the runs printed could not be read."
HARMLESS = "Harmless warnings, about which nothing needs doing; they are no sign of a failure:"
# deepspeed says it of every run on one machine: the summary lists it, and a terminal that said so each time would say nothing.
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
    """Of all current runs together."""

    runs: int
    """Runs that were looked at."""
    fatal_tracebacks: tuple[str, ...]
    """Failed runs with a traceback in their output."""
    other_tracebacks: tuple[str, ...]
    """Runs that ended ok and printed one all the same."""
    ranks_started: int
    """Of the runs that tell how their ranks ended."""
    ranks_ended_well: int
    ranks_unknown: tuple[str, ...]
    """Failed runs that do not tell."""
    harmless: tuple[WarningSeen, ...]
    harmless_runs: int
    """Runs that printed at least one of them."""


def health_of(results: CampaignResults) -> Health:
    """The facts."""
    looked_at = list(_looked_at(results))
    printed = [(run, is_ok) for run, is_ok, health in looked_at if health.tracebacks]
    told = [(health.ranks, health.ranks_ended_well) for _, _, health in looked_at if health.ranks_ended_well is not None]
    return Health(
        runs=len(looked_at),
        fatal_tracebacks=tuple(run for run, is_ok in printed if not is_ok),
        other_tracebacks=tuple(run for run, is_ok in printed if is_ok),
        ranks_started=sum(started for started, _ in told),
        ranks_ended_well=sum(well for _, well in told),
        ranks_unknown=tuple(run for run, _, health in looked_at if health.ranks_ended_well is None),
        harmless=_warnings([one for _, _, health in looked_at for one in health.harmless]),
        harmless_runs=sum(bool(health.harmless) for _, _, health in looked_at),
    )


def health_line(results: CampaignResults) -> str:
    """What the terminal says beside its failures and cautions; nothing where there is nothing."""
    health = health_of(results)
    parts = []
    kinds = ", ".join(one.id for one in health.harmless)
    if {one.id for one in health.harmless} - IN_EVERY_RUN:
        parts.append(f"harmless warnings in {count(health.harmless_runs, 'run')} ({kinds}), nothing to do")
    if health.other_tracebacks:
        parts.append(_printed_and_ok(health))
    return f"Health: {'; '.join(parts)}." if parts else ""


def _looked_at(results: CampaignResults) -> Iterator[tuple[str, bool, RunHealth]]:
    """Run, whether it ended ok, and its health."""
    for run in results.runs:
        health = run.measure.health if run.measure else None
        if run.attempt.current and health and run.outcome and not run.outcome.is_cut_short:
            yield run.attempt.spec.run, run.outcome is Outcome.OK, health


def _warnings(seen: list[HarmlessCount]) -> tuple[WarningSeen, ...]:
    kinds = {one.id: one.meaning for one in seen}
    of_kind = {id: [one.lines for one in seen if one.id == id] for id in kinds}
    return tuple(WarningSeen(id=id, meaning=kinds[id], runs=len(lines), lines=sum(lines)) for id, lines in of_kind.items())


def facts(health: Health) -> Iterator[str]:
    """One sentence each."""
    fatal = f"{count(len(health.fatal_tracebacks), 'run')}: {named(health.fatal_tracebacks)}" if health.fatal_tracebacks else "none"
    yield f"Fatal tracebacks: {fatal}."
    if health.other_tracebacks:
        yield f"Not fatal: {_printed_and_ok(health)}."
    unknown = f"; not told by {named(health.ranks_unknown)}" if health.ranks_unknown else ""
    yield f"Ranks: {health.ranks_ended_well} of {health.ranks_started} ended well{unknown}."
    if not health.harmless:
        yield "Harmless warnings: none."


def _printed_and_ok(health: Health) -> str:
    return f"{count(len(health.other_tracebacks), 'run')} printed a traceback and ended well ({named(health.other_tracebacks)})"
