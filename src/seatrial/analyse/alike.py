"""Whether two sides may be compared at all, and what a reader must know where they may.

In: two sides. Out: why they must not be compared (the same runs, unlike machines, debug settings of one only), the cautions beside a
comparison, and the settings and code in which they differ, which are what an A/B is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seatrial.analyse.debug_switches import switched_on
from seatrial.analyse.rank_metric import Metric
from seatrial.analyse.step_work import unlike_work
from seatrial.records.comparison import Side
from seatrial.wording import MOST_IN_PASSING, count, named

MOST_NAMED = 6
LONGEST_VALUE = 24
# Times and spreads that are worth a look while the work of a step differs; rates by steps and lengths of runs are not compared then.
WITH_THE_STEP = ("wall_p50_ms", "wall_p90_over_p50")


def refusal(a: Side, b: Side, *, across: bool = False) -> str:
    """Why the two must not be compared, and what to do; empty where they may."""
    shared = shared_runs(a, b)
    if shared:
        which = "are the same runs" if len(shared) == len(a.runs) == len(b.runs) else "have runs in common"
        return f"{a.name} and {b.name} {which} ({named(shared, MOST_IN_PASSING)}); name two sides that were measured apart"
    if switched_on(a.debug) != switched_on(b.debug):
        return (
            f"{a.name} and {b.name} were not measured with the same debug settings: {a.name} has {_listed(a.debug)}, {b.name} has "
            f"{_listed(b.debug)}; run both without them, or both with the same"
        )
    unlike = unlike_facts(a, b)
    if unlike and not across:
        return (
            f"{a.name} and {b.name} ran on unlike machines: {_shown(unlike)}; run both on one machine, or compare them all the same with "
            "--across"
        )
    return ""


def shared_runs(a: Side, b: Side) -> list[str]:
    """Runs that are in both, be it that one is a copy of the other's campaign or a row of history made of it."""
    known = {run.identity for run in a.runs}
    return [run.run for run in b.runs if run.identity in known]


def unlike_facts(a: Side, b: Side) -> dict[str, tuple[str, str]]:
    """Facts of the machines that are known of both and differ."""
    return {name: (a.machine[name], b.machine[name]) for name in a.machine if name in b.machine and a.machine[name] != b.machine[name]}


def differences(a: Side, b: Side) -> tuple[str, ...]:
    """Settings, then what they came to, then code, in words: `micro_batch (8 → 16)`."""
    told: dict[str, tuple[str, str]] = {}
    for before, after in ((a.settings, b.settings), (a.effective, b.effective), (a.code, b.code)):
        told = told | {name: values for name, values in _parted(before, after).items() if name not in told}
    return tuple(_words(told))


def cautions(a: Side, b: Side, metric: Metric) -> Iterator[str]:
    """Everything that weakens the comparison, the gravest first."""
    unlike = unlike_facts(a, b)
    if unlike:
        yield f"Unlike machines are compared ({_shown(unlike)}): the difference may be theirs."
    elif not a.machine or not b.machine:
        unknown = " and ".join(side.name for side in (a, b) if not side.machine)
        yield f"Nothing is recorded of the machine of {unknown}: the two may have run on unlike ones."
    yield from _failures(a)
    yield from _failures(b)
    if metric.name in WITH_THE_STEP and (work := unlike_work(a, b)):
        yield f"{metric.unit} is compared while {work}: a step does not do the same work."
    if a.world_size != b.world_size:
        ranks = f"{a.name} ran on {a.world_size} rank{'s' * (a.world_size > 1)} and {b.name} on {b.world_size}"
        yield f"{ranks}: {metric.unit} is what is compared, and `compare --scaling` says how the whole grows."
    if a.debug:
        yield f"Both were measured with {_listed(a.debug)}: neither figure is that of a plain run."


def _failures(side: Side) -> Iterator[str]:
    if side.failed_runs:
        failed = f"{count(side.failed_runs, 'run')} of {side.name} failed"
        yield f"{failed}: only those that ended well are compared, and one that fails is not fast."
    if side.pending:
        yield f"{count(len(side.pending), 'run')} of {side.name} {'is' if len(side.pending) == 1 else 'are'} still to be run."


def _parted(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = dict.fromkeys([*before, *after])
    return {name: (before.get(name, ""), after.get(name, "")) for name in names if before.get(name) != after.get(name)}


def _words(facts: Mapping[str, tuple[str, str]]) -> list[str]:
    return [f"{name} ({before[:LONGEST_VALUE] or 'none'} → {after[:LONGEST_VALUE] or 'none'})" for name, (before, after) in facts.items()]


def _shown(facts: Mapping[str, tuple[str, str]]) -> str:
    return named(_words(facts), MOST_NAMED)


def _listed(settings: tuple[str, ...]) -> str:
    return ", ".join(sorted(settings)) or "none"
