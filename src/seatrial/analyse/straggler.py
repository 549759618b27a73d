"""Which rank holds the others up.

In: the step tables of an attempt and its window. Out: `Straggler`: the rank, by how much, in which phase and where it ran; that there is
none; or why nothing can be said and how to get it. None for a single rank.

Ranks that exchange gradients end every step together, so their step times are equal and blame nobody. The one that waits least where
they meet came last: its own work is the longest (analyse.straggler_work finds where they meet). What a rank does inside that very phase
before it begins to wait cannot be seen, so a rank that is slow there alone is never named. It may show all the same: its chance delays
become everybody's, while those of the others vanish in their waiting; then an abstention tells the rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seatrial.analyse import straggler_words as words
from seatrial.analyse.quantile import median
from seatrial.analyse.straggler_late import CONSISTENT, EXPLAINED, Late, driving_rank, latest, slow_ranks
from seatrial.analyse.straggler_work import USUAL, RankWork, rank_work, synchronising_phase
from seatrial.records.health import RankPlace, Straggler, StragglerVerdict
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables

LEAST_STEPS = 20
"""Below it a rank may well come last in most steps by chance."""
LEAST_SCORE = 0.02
"""A rank a tenth slower in all it does is seen by its work outside the synchronising phase alone, which may be a third of the whole or
less. Healthy ranks differ by some tenths of a percent."""
CHANCE = 0.001
"""That some rank of so many comes last so often by chance."""
LEAST_ERRORS = 4.0
"""Standard errors, of steps that are not independent counted as fewer: noise that lasts for many steps is no slow rank."""


def find_straggler(tables: StepTables, window: Window | None) -> Straggler | None:
    """The rank that holds the others up, judged on the steps of the window that every rank tells the phases of."""
    seen = _ranks(tables)
    world_size = max(tables.world_size, max(seen, default=0) + 1)
    if world_size < 2:
        return None
    if len(seen) < world_size:
        return _abstained(words.missing_ranks(seen, world_size), tables)
    work = rank_work(tables, window)
    if not any(name in work.phases for name in ("fwd", "bwd", "step")):
        return _abstained(words.NO_PHASES, tables, work)
    if len(work.steps) < LEAST_STEPS:
        return _abstained(words.too_few(work, LEAST_STEPS), tables, work)
    phase = synchronising_phase(work) or _phase_without_consequence(work)
    return _abstained(words.unknown_phase(work), tables, work) if phase is None else _judge(work, phase, tables)


def _phase_without_consequence(work: RankWork) -> str | None:
    """Where it cannot be told which of two phases they meet in: either, if nobody is late in the one nor in the other."""
    either = [name for name in USUAL if name in work.shared]
    return either[0] if either and not any(_is_late(latest(work, name), work) for name in either) else None


def _ranks(tables: StepTables) -> set[int]:
    """The table goes by rank: each begins where the number changes."""
    rank = tables.steps["rank"].to_numpy()
    return set(rank[np.flatnonzero(np.diff(rank, prepend=-1))].tolist())


def _judge(work: RankWork, phase: str, tables: StepTables) -> Straggler:
    late = latest(work, phase)
    if not _is_late(late, work):
        return _nobody(work, phase, late, tables)
    if doubt := _doubt(late, work, phase):
        return _abstained(doubt, tables, work)
    return _named(work, phase, late, tables)


def _is_late(late: Late, work: RankWork) -> bool:
    return late.score >= LEAST_SCORE and _is_consistent(late, work)


def _is_consistent(late: Late, work: RankWork) -> bool:
    """Whether it is late in nearly all steps, more often than any of so many ranks would be by chance."""
    if late.share < CONSISTENT or late.errors < LEAST_ERRORS:
        return False
    # A sixth of a second to import, in every worker, and few runs have a rank that is late.
    from scipy.special import bdtrc

    n = len(work.steps)
    return float(bdtrc(round(late.share * n) - 1, n, 0.5)) * len(work.ranks) <= CHANCE


def _doubt(late: Late, work: RankWork, phase: str) -> str:
    """Why a rank that waits less is not yet one that holds the others up; empty where it is."""
    rank = int(work.ranks[late.at])
    if late.is_in_phases:
        return ""
    if late.outside_ms is None or late.rest_ms + late.outside_ms < EXPLAINED * late.extra_ms:
        return words.unexplained(rank, phase, late)
    return words.two_outside(rank, phase, late) if len(work.ranks) == 2 else ""


def _named(work: RankWork, phase: str, late: Late, tables: StepTables) -> Straggler:
    waits = work.phases[phase]
    slow = slow_ranks(waits, LEAST_SCORE * late.own_ms)
    slow[late.at] = True
    held_up_ms = None if slow.all() else median(np.maximum(waits[~slow].min(axis=0) - waits[late.at], 0.0))
    rank = int(work.ranks[late.at])
    places = {place.rank: place for place in tables.places}
    place = places.get(rank, RankPlace(rank=rank))
    others = [int(each) for each in work.ranks[slow] if each != rank]
    slow_host, on_it = _slow_host([rank, *others], places)
    return Straggler(
        verdict=StragglerVerdict.NAMED,
        reason=words.named(work, phase, late, others, places, held_up_ms) + (words.OWN_CLOCK if tables.source.startswith("log:") else ""),
        rank=rank,
        score=late.score,
        phase=late.phase,
        host=place.host,
        gpu=place.gpu,
        held_up_ms=held_up_ms,
        n=len(work.steps),
        first_step=int(work.steps[0]),
        last_step=int(work.steps[-1]),
        source=tables.source,
        slow_host=slow_host,
        slow_host_ranks=on_it,
    )


def _slow_host(slow: Sequence[int], places: Mapping[int, RankPlace]) -> tuple[str, int]:
    """The host whose ranks are the slow ones, all of them and no others, and how many it has; a single rank's host is not told from it."""
    hosts = {places[rank].host if rank in places else "" for rank in slow}
    host = hosts.pop() if len(hosts) == 1 else ""
    on_it = [place.rank for place in places.values() if place.host == host]
    is_host = host and len(on_it) > 1 and set(on_it) == set(slow) and len(on_it) < len(places)
    return (host, len(on_it)) if is_host else ("", 0)


def _nobody(work: RankWork, phase: str, late: Late, tables: StepTables) -> Straggler:
    driving = driving_rank(work, phase, late.own_ms)
    if driving is not None:
        rank = int(work.ranks[driving])
        return _abstained(words.hidden(rank, phase), tables, work, rank=rank, phase=phase)
    return Straggler(
        verdict=StragglerVerdict.NONE,
        reason=words.nobody(work, phase, late, LEAST_SCORE),
        n=len(work.steps),
        first_step=int(work.steps[0]),
        last_step=int(work.steps[-1]),
        source=tables.source,
    )


def _abstained(reason: str, tables: StepTables, work: RankWork | None = None, *, rank: int | None = None, phase: str = "") -> Straggler:
    known = work is not None and len(work.steps) > 0
    return Straggler(
        verdict=StragglerVerdict.ABSTAINED,
        reason=f"{reason} ({words.span(work)})." if work is not None and known else f"{reason}.",
        rank=rank,
        phase=phase,
        n=len(work.steps) if work is not None else 0,
        first_step=int(work.steps[0]) if work is not None and known else None,
        last_step=int(work.steps[-1]) if work is not None and known else None,
        source=tables.source,
    )
