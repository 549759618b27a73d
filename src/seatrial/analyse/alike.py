"""Whether two sides may be compared at all, and what a reader must know where they may.

In: two sides. Out: why they must not be compared (unlike machines, debug settings of one only), the cautions beside a comparison, and
the settings and code in which they differ, which are what an A/B is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seatrial.analyse.loss_parity import SAME_WORK, WORK, differing_batch, work_of_step
from seatrial.analyse.rank_metric import Metric
from seatrial.records.comparison import Side

MOST_NAMED = 6
LONGEST_VALUE = 24
BY_STEP = ("steps_per_s", "wall_p50_ms", "wall_p90_over_p50", "duration_s")


def refusal(a: Side, b: Side, *, across: bool = False) -> str:
    """Why the two must not be compared, and what to do; empty where they may."""
    if set(a.debug) != set(b.debug):
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
    yield from _unequal_work(a, b, metric)
    if a.world_size != b.world_size:
        ranks = f"{a.name} ran on {a.world_size} ranks and {b.name} on {b.world_size}"
        yield f"{ranks}: totals are compared; `--scaling` gives each GPU's share."
    if a.debug:
        yield f"Both were measured with {_listed(a.debug)}: neither figure is that of a plain run."


def _failures(side: Side) -> Iterator[str]:
    if side.failed_runs:
        yield f"{_runs(side.failed_runs)} of {side.name} failed: only those that ended well are compared, and one that fails is not fast."
    if side.pending:
        yield f"{_runs(len(side.pending))} of {side.name} {'is' if len(side.pending) == 1 else 'are'} still to be run."


def _unequal_work(a: Side, b: Side, metric: Metric) -> Iterator[str]:
    if metric.name not in BY_STEP:
        return
    works = [(work_of_step(a, name), work_of_step(b, name)) for name in WORK]
    known = [(before, after) for before, after in works if before and after]
    unequal = any(abs(after / before - 1) > SAME_WORK for before, after in known)
    differing = differing_batch(a, b) if not known else "the work of a step" if unequal else ""
    if differing:
        yield f"{metric.unit} is compared while {differing} differs: a step does not do the same work. Let the script tell its samples."


def _parted(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = dict.fromkeys([*before, *after])
    return {name: (before.get(name, ""), after.get(name, "")) for name in names if before.get(name) != after.get(name)}


def _words(facts: Mapping[str, tuple[str, str]]) -> list[str]:
    return [f"{name} ({before[:LONGEST_VALUE] or 'none'} → {after[:LONGEST_VALUE] or 'none'})" for name, (before, after) in facts.items()]


def _shown(facts: Mapping[str, tuple[str, str]]) -> str:
    words = _words(facts)
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return ", ".join(words[:MOST_NAMED]) + more


def _listed(settings: tuple[str, ...]) -> str:
    return ", ".join(sorted(settings)) or "none"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
