"""Which node is slow, in a campaign that runs the same job on each node (`axes: {place.node: …}`, `seatrial sweep --each-node`).

In: CampaignResults. Out: one answer for the headline of every report: the slow nodes with how much and its interval, or that there is none,
or why it is unknown. It words the ranking for such a campaign, in place of the winner, and is not a finding: a gate is a criterion
(`regression_pct` against a node).

A node is slow where all of the 95 % interval of its ratio to the fastest node is more than SLOW_PCT below 1: among many nodes the last is
always significantly slower than the first, by little. The middle node is no reference, as it may itself be slow.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.core.text import count, join_names
from seatrial.records.measure import Estimate
from seatrial.records.plan import NODE_AXIS
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults
from seatrial.report.view import campaign

# Healthy nodes of one kind differ by up to this: fans, firmware, position in the rack.
SLOW_PCT = 3.0
# Twice as fast as the fastest: an interval beyond that, as of two repeats of a noisy node, is not shown.
MIN_PCT = -100.0
SLOW, NONE_SLOW, UNKNOWN = "slow node", "no slow node", "slow node unknown"


@dataclass(frozen=True, kw_only=True)
class SlowNodes:
    """The answer in a word and a clause."""

    word: str
    text: str


def find_slow_nodes(results: CampaignResults) -> SlowNodes | None:
    """None for a campaign that compares anything but nodes."""
    rows = [row for row in campaign.main_rows(results) if NODE_AXIS in row.summary.axes]
    others = {tuple((name, value) for name, value in row.summary.axes.items() if name != NODE_AXIS) for row in rows}
    if len(rows) < 2 or len(rows) < len(campaign.main_rows(results)) or len(others) > 1:
        return None
    failed = [_name(row) for row in rows if row.estimate is None]
    beside = f"; no figure of {join_names(failed)}" if failed else ""
    best = next((row for row in rows if row.is_best), None)
    measured = [row for row in rows if row is not best and row.ratio is not None]
    if best is None or not measured:
        return SlowNodes(word=UNKNOWN, text=f"{count(len(rows) - len(failed), 'node')} measured{beside}")
    if any(row.ratio is None or row.ratio.low is None for row in measured):
        return SlowNodes(word=UNKNOWN, text=f"one run per node proves nothing: raise repeats{beside}")
    speeds = {_name(row): _speed(row.ratio, results) for row in measured if row.ratio}
    limit = 1 - SLOW_PCT / 100
    if slow := [row for row in measured if (speeds[_name(row)].high or 1.0) < limit]:
        nodes = len(measured) + 1
        most = f"{len(slow)} of {nodes} nodes are slower than {_name(best)}: " if len(slow) > nodes / 2 else ""
        return SlowNodes(word=SLOW, text=f"{most}{'; '.join(_clause(row, best, results) for row in reversed(slow))}{beside}")
    last = min(measured, key=lambda row: speeds[_name(row)].low or 1.0)
    if (speeds[_name(last)].low or 1.0) < limit:
        return SlowNodes(word=UNKNOWN, text=f"it may be {_clause(last, best, results)}: raise repeats{beside}")
    return SlowNodes(word=NONE_SLOW, text=f"of {len(measured) + 1}; the last is {_clause(last, best, results)}{beside}")


def _clause(row: RankedGroup, best: RankedGroup, results: CampaignResults) -> str:
    """`node2, 66.3 % slower than node1 (95 %: 66.2 to 66.4 %), 6.625 steps/s`."""
    assert row.ratio is not None
    speed = _speed(row.ratio, results)
    low, high = ((1 - (end or 1.0)) * 100 for end in (speed.high, speed.low))
    interval = f"95 %: {low:.1f} to {high:.1f} %" if low >= MIN_PCT else "too few repeats for an interval"
    value = campaign.figure_text(results, row)
    return f"{_name(row)}, {(1 - speed.mean) * 100:.1f} % slower than {_name(best)} ({interval}), {value}"


def _speed(found: Estimate, results: CampaignResults) -> Estimate:
    """The ratio of speeds: the inverse where the figure is a time."""
    if results.ranking.higher_is_better:
        return found
    low, high = (1 / end if end else None for end in (found.high, found.low))
    return Estimate(mean=1 / found.mean, low=low, high=high, n=found.n)


def _name(row: RankedGroup) -> str:
    return str(row.summary.axes[NODE_AXIS])
