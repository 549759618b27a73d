"""A plan after reading: every default filled, the matrix expanded, in the order it will run. plan.json holds this."""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.run_spec import RunSpec, Scalar
from seatrial.records.verdict import Criterion

SENTINEL = "sentinel"
"""Group and mode of the runs that only watch the platform; they are off the lane and ranked nowhere."""


@dataclass(frozen=True, kw_only=True)
class CampaignPlan:
    """One plan, resolved. Several may share an output folder; each is kept under its name in OUT/plans/."""

    name: str
    output: str
    source: str = ""
    """The file it was read from, or the command line of a one-liner."""
    axes: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    repeats: int = 1
    order: str = "interleaved"
    """`interleaved`: repeats in rounds, shuffled within a round by `seed`; `rounds` and `nested`: as the axes are written."""
    seed: int = 0
    rank_by: str = "throughput"
    """`throughput` (samples/s, else tokens/s, else steps/s, else length of the run), or a metric by name."""
    baseline: str = "old_like"
    """The group that `speedup_vs_baseline` compares with."""
    sentinel_group: str = ""
    """The group that the sentinel's runs repeat; empty where the plan has no sentinel."""
    sentinel_every: int | None = None
    """Runs between two of them."""
    criteria: tuple[Criterion, ...] = ()
    stop_on_error: bool = False
    budget_s: float | None = None
    runs: tuple[RunSpec, ...] = ()
    """In the order they are to be run."""
    selected: tuple[str, ...] = ()
    """Runs chosen by `--only`; empty means all. The others are not waited for."""

    @property
    def chosen(self) -> tuple[RunSpec, ...]:
        """The runs to be run: all, or those that `--only` chose."""
        return tuple(spec for spec in self.runs if not self.selected or spec.run in self.selected)
