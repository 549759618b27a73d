"""The order of the groups of a campaign: what they are ranked by, which one won, and what the order rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seatrial.records.caution import Caution
from seatrial.records.codec import to_json
from seatrial.records.measure import Estimate, GroupSummary

WINNER, RECOMMENDED, ONLY_GROUP = "winner", "recommended", "only group"
TIED, NO_INTERVAL, CANNOT_WIN, OFF_LANE = "tied", "no interval", "cannot win", "off lane"
NOT_RUN, NOT_ENDED = "not run yet", "no run ended"
CONFOUNDED, DUPLICATE = "confounded", "duplicate"
"""Notes of a ranking row, in every report and in summary.json."""


@dataclass(frozen=True, kw_only=True)
class RankedGroup:
    """One row of the ranking, from the analysis to every page: the group, the figure it is ranked by, and its rank."""

    rank: int
    summary: GroupSummary
    estimate: Estimate | None = None
    """The figure it is ranked by: geometric mean over the runs, with its interval where there are two or more."""
    ratio: Estimate | None = None
    """This group over the one with the best mean, with its Welch interval on logs; None for the best, and without a figure."""
    tied: bool = False
    """Indistinguishable from the best at 95 %, or without an interval."""
    can_win: bool = True
    reason: str = ""
    """Why it cannot win, or why it is tied."""
    note: str = ""
    """`winner`, `recommended` (not proven), `tied`, `off lane` …; set by CampaignResults.ranking_rows."""
    is_conditional: bool = False
    """Whether it is the winner or recommended only under Ranking.condition; set with `note`."""
    confounded: str = ""
    """What confounds it with the best, `tower_graph is on in z0 and off in z1`; for the best, with the first such group."""
    is_compared: bool = True
    """False where it is confounded with the best and that is not allowed: it has no ratio then."""
    same_as: str = ""
    """The group that ran the same in effect: the two are not compared, and only that one can win."""
    no_effect: str = ""
    """Of such a group, what had no effect: `attn_impl had no effect: both ran sdpa (…)`."""

    @property
    def group(self) -> str:
        """The group's name."""
        return self.summary.group

    @property
    def value(self) -> float | None:
        return self.estimate.mean if self.estimate else None

    @property
    def n(self) -> int | None:
        """Steps that its figure is based on, else runs; None without a figure."""
        return (self.summary.window_n or self.summary.runs) if self.estimate else None

    @property
    def is_best(self) -> bool:
        """Whether it has the best mean, with which the others are compared; of tied ones another may be recommended."""
        return self.can_win and self.ratio is None and self.estimate is not None and self.is_compared


# In the order of the line.
SUMMARY_KEYS = (
    "group", "group_key", "mode", "lane", "axes", "runs", "failed_runs", "infrastructure_failures", "failed_attempts", "set_aside_runs",
    "may_have_failed", "broken_losses", "unsteady_runs", "counted", "fingerprint", "figures", "window_n", "seed", "stability", "debug",
    "cautions", "work", "typed_work", "declares_work", "effective_settings", "requested",
)  # fmt: skip
SUMMARY_FIELDS = {"seed": "stage1"}
"""Keys whose field has another name."""


def ranked_group_json(row: RankedGroup) -> dict[str, Any]:
    """A row as `run --json` has it."""
    summary = {name: to_json(getattr(row.summary, SUMMARY_FIELDS.get(name, name))) for name in SUMMARY_KEYS}
    document = {**to_json(row), "summary": summary}
    # `reason` has it.
    del document["no_effect"]
    return document


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The order of all groups of the main lane and of those off it."""

    metric: str
    unit: str
    higher_is_better: bool
    groups: tuple[RankedGroup, ...]
    off_lane: tuple[RankedGroup, ...] = ()
    winner: str | None = None
    """The group that is proven best (`decided`); None where none is."""
    latency_winner: str | None = None
    """Stage 1's best: lowest mean tail iter p50; None where that group is confounded with another, unless that is allowed, and where
    the size of a sample differs."""
    lowest_latency: str | None = None
    """The group with the lowest mean tail iter p50, winner or not."""
    latency_confounded: str = ""
    """What confounds that group with another one; empty where all else is equal."""
    latency_unlike: str = ""
    """Why step times of these groups cannot be compared; empty where they can."""
    decided: bool = False
    """The winner's runs are steady, and it is significantly better than every other group that can win, on one kind of machine."""
    reason: str = ""
    """One sentence: how the best group compares with the others, or why none can win."""
    cautions: tuple[Caution, ...] = ()
    recommended: str | None = None
    """The group to use as things are: the winner, else one of those at the top that are indistinguishable; None where none can win."""
    recommended_reason: str = ""
    """Why this one, `the lowest p90/p50 (1.02) of the 3 indistinguishable groups at the top`; empty where no other can win."""
    confounded: str = ""
    """One sentence: which settings confound the best group with another, and the remedy; empty where all else is equal."""
    confounded_by: tuple[str, ...] = ()
    """Names of these settings."""
    allow_confounded: bool = False
    """`--allow-confounded`: a winner may be named and is marked."""
    condition: str = ""
    """What must hold for the order to mean anything, where that is unknown: `if a step is the same work in every group`."""
    condition_remedy: str = ""
    """How to show it: `pass --samples-per-step`."""
    without_effect: tuple[str, ...] = ()
    """What had no effect, so that groups ran the same: `attn_impl had no effect: both ran sdpa (flash_attn is not installed)`."""
