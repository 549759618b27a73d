"""What is said of a rank that holds the others up, and why nothing can be said.

In: what was found of one rank against the others, or what is missing. Out: sentences; each tells its steps and n, or how to get what
is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from seatrial.analyse.straggler_late import Late
from seatrial.analyse.straggler_work import RankWork
from seatrial.records.health import RankPlace

MOST_NAMED = 5
ALL_RANKS = "`rank_scope: all` in the plan (TIMING_RANK_SCOPE=all for the stage 1 scripts) makes every rank tell its steps"
HOW_PHASES = "put fwd, bwd and step into `probe.phase(…)`, or let the script print TimingRank lines with them"
MORE_PHASES = "run more steps, or take phases more often: a lower `timing.phase_every`, or `timing: {sync: true}` on GPUs for every step"
OWN_CLOCK = " The times are the script's own: on GPUs they tell work only if it synchronises before it takes them (`timing: {sync: true}`)."
NO_PHASES = f"No rank tells the phases of its steps, so who waits for whom cannot be seen: {HOW_PHASES}"


def span(work: RankWork) -> str:
    return f"steps {int(work.steps[0])}–{int(work.steps[-1])}, n = {len(work.steps)}"


def missing_ranks(seen: Collection[int], world_size: int) -> str:
    told = len(seen)
    if not told:
        return f"None of {world_size} ranks tells its steps: give the script the probe and its phases, or TimingRank lines; {ALL_RANKS}"
    # A garbled line may claim any number of ranks: the missing ones are not all written out to show the first.
    missing = list(islice((rank for rank in range(world_size) if rank not in seen), MOST_NAMED + 1))
    return f"Only {told} of {world_size} ranks tell their steps (not {_listed(missing)}), and any other may be the slow one: {ALL_RANKS}"


def too_few(work: RankWork, least: int) -> str:
    return f"Only {len(work.steps)} steps have the phases of all {len(work.ranks)} ranks, and {least} are needed: {MORE_PHASES}"


def unknown_phase(work: RankWork) -> str:
    if not any(name in work.shared for name in ("fwd", "bwd", "step")):
        return f"The ranks tell no phase that all of them have: {HOW_PHASES}"
    return (
        "The ranks differ in bwd and in step by as much, and which of the two is waiting cannot be told from these steps: "
        "take phases at every step (`timing: {sync: true}` on GPUs)"
    )


def unexplained(rank: int, phase: str, late: Late) -> str:
    return (
        f"Rank {rank} is in {phase} for {late.extra_ms:.2f} ms less than the others, but no longer anywhere else: either {phase} is not "
        f"where the ranks meet, or its time goes where no phase is; {HOW_PHASES}"
    )


def two_outside(rank: int, phase: str, late: Late) -> str:
    return (
        f"Rank {rank} is in {phase} for {late.extra_ms:.2f} ms less than the other, and outside the phases for longer: with two ranks that "
        "may be work of its own or waiting for the other; put what it does there into a phase, or into `probe.pause(…)`"
    )


def hidden(rank: int, phase: str) -> str:
    return (
        f"Rank {rank} comes last in {phase}, though its other phases are no longer than the others': its chance delays become everybody's. "
        f"How much longer it works inside {phase} cannot be seen, as the others wait there; time its {phase} without the exchange "
        "(`no_sync`), or compare its GPU's clocks and power with the others'"
    )


def nobody(work: RankWork, phase: str, late: Late, least_score: float) -> str:
    widest = f"the widest is rank {int(work.ranks[late.at])} with {_percent(max(late.score, 0.0), 1)}"
    return (
        f"No rank stands out: by what they wait in {phase}, where the ranks meet, none works {_percent(least_score)} longer than the "
        f"others in nearly all steps ({widest}; {span(work)}). A rank that is slow inside {phase} alone may not show."
    )


def named(work: RankWork, phase: str, late: Late, others: Sequence[int], places: Mapping[int, RankPlace], held_up_ms: float | None) -> str:
    """`others` are slow too."""
    rank = int(work.ranks[late.at])
    place = places.get(rank, RankPlace(rank=rank))
    spent = f"in {late.phase} (+{late.longer[late.phase]:.2f} ms)" if late.phase else "outside the phases (logging, reading a loss back)"
    without = "" if held_up_ms is None else f" Without {'them' if others else 'it'} a step would be {held_up_ms:.2f} ms shorter."
    return (
        f"Rank {rank}{_where(place)} waits least in {phase}, where the ranks meet: its own work is longer than the others' by at least "
        f"{_percent(late.score, 1)}, {spent}, in {_percent(late.share)} of the steps ({span(work)}).{_also(others, place, places)}{without}"
    )


def _where(place: RankPlace) -> str:
    told = [text for text in (place.host and f"host {place.host}", place.gpu and f"GPU {place.gpu}") if text]
    return f" ({', '.join(told)})" if told else ""


def _also(others: Sequence[int], place: RankPlace, places: Mapping[int, RankPlace]) -> str:
    """The others that are slow; and the host, where all of them are of one while there are more."""
    if not others:
        return ""
    also = f" Rank {others[0]} is slow too" if len(others) == 1 else f" Ranks {_listed(others)} are slow too"
    hosts = {places[rank].host if rank in places else "" for rank in others}
    is_host = place.host and hosts == {place.host} and len({each.host for each in places.values()}) > 1
    return f"{also}, all on host {place.host}: look at the host first." if is_host else f"{also}."


def _percent(share: float, decimals: int = 0) -> str:
    return f"{100 * share:.{decimals}f} %"


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:MOST_NAMED])) + (" …" if len(ranks) > MOST_NAMED else "")
