"""Who waits for whom. In: CampaignResults whose runs have charts. Out: one `Ranks` for each group of two ranks or more, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from seatrial.records.charts import RANKS
from seatrial.records.measure import Cell, GroupSummary
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.charted_runs import charted_runs, rows_of, steps_taken_apart
from seatrial.report.digest.standings import windows_text
from seatrial.report.numbers import number_in

EVEN_SHARE = 0.05
"""Of a step: ranks that differ by less are alike, and a line for every group of such ranks would say nothing."""


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """One rank of a group: medians, and over the runs the median of those."""

    rank: int
    where: str
    work_ms: float
    wait_ms: float


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The ranks of one group, by number."""

    group: GroupSummary
    window: str
    ranks: tuple[RankTimes, ...]
    n: int = 0
    """Steps that work and wait are medians of, over the runs."""

    @property
    def is_even(self) -> bool:
        """Whether no rank waits EVEN_SHARE of a step longer than another."""
        least = self.waits_least
        return self.waits_most.wait_ms - least.wait_ms < EVEN_SHARE * (least.work_ms + least.wait_ms)

    @property
    def waits_least(self) -> RankTimes:
        return min(self.ranks, key=lambda one: one.wait_ms)

    @property
    def waits_most(self) -> RankTimes:
        return max(self.ranks, key=lambda one: one.wait_ms)


def ranks(results: CampaignResults) -> list[Ranks]:
    """Of every group with two ranks or more that say how long they work and wait."""
    found = (_ranks(group, runs, windows_text(runs)) for group, runs in charted_runs(results, RANKS))
    return [one for one in found if one]


def _ranks(group: GroupSummary, runs: Sequence[MeasuredRun], window: str) -> Ranks | None:
    rows = [row for run in runs for row in rows_of(run, RANKS) if number_in(row.get("wait_p50_ms")) is not None]
    by_rank: dict[int, list[dict[str, Cell]]] = {}
    for row in rows:
        if isinstance(rank := row.get("rank"), int):
            by_rank.setdefault(rank, []).append(row)
    if len(by_rank) < 2:
        return None
    return Ranks(
        group=group,
        window=window,
        ranks=tuple(_rank(rank, by_rank[rank]) for rank in sorted(by_rank)),
        n=sum(map(steps_taken_apart, runs)),
    )


def _rank(rank: int, rows: Sequence[dict[str, Cell]]) -> RankTimes:
    places = dict.fromkeys(_where(row) for row in rows)
    return RankTimes(
        rank=rank,
        where=", ".join(place for place in places if place),
        work_ms=median([ms for row in rows if (ms := number_in(row.get("work_p50_ms"))) is not None] or [0.0]),
        wait_ms=median([ms for row in rows if (ms := number_in(row.get("wait_p50_ms"))) is not None] or [0.0]),
    )


def _where(row: dict[str, Cell]) -> str:
    gpu = row.get("gpu")
    return " ".join(part for part in (str(row.get("host") or ""), f"GPU {gpu}" if gpu not in (None, "") else "") if part)
