"""Which of the ranks that stand still the others wait for. In: their standings. Out: one of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from seatrial.observe.progress import BETWEEN_STEPS, RankStanding

# The order of a step: of two ranks that ended the same step, the one in the earlier part is behind.
ORDER = {phase: place for place, phase in enumerate((BETWEEN_STEPS, "data_wait", "preprocess", "fwd", "bwd", "step"))}


def behind(standings: Sequence[RankStanding]) -> list[RankStanding]:
    """Those with the fewest steps; a rank that was started anew has none."""
    fewest = min(_ended(standing) for standing in standings)
    return [standing for standing in standings if _ended(standing) == fewest]


def culprit_of(last: Sequence[RankStanding], silent: frozenset[int]) -> RankStanding:
    """Of ranks at the same step, one that is not heard of any more; else of the rarest phase, else of the earliest, else the lowest."""
    unheard = [standing for standing in last if standing.rank in silent]
    among = unheard or last
    counts = Counter(standing.phase for standing in among)
    return min(among, key=lambda standing: (counts[standing.phase], ORDER.get(standing.phase, len(ORDER)), standing.rank))


def _ended(standing: RankStanding) -> int:
    return 0 if standing.step is None else standing.step + 1
