"""How a campaign's throughput grows with its ranks, where its runs had several numbers of them.

In: a grouped campaign. Out: `Scaling` over the groups that differ in nothing but ranks, or None where all had the same number.
"""

from __future__ import annotations

from seatrial.campaign.grouped import Grouped
from seatrial.campaign.sides import groups_to_compare, side_of
from seatrial.errors import SeatrialError
from seatrial.records.comparison import Scaling


def scaling_within(grouped: Grouped) -> Scaling | None:
    """Of the main lane's groups; a failure to compare them is no failure of the campaign."""
    sizes = {run.measure.world_size for run in grouped.runs if run.attempt.current and run.measure}
    if len(sizes) < 2:
        return None
    from seatrial.analyse.scaling import scaling

    try:
        return scaling([side_of(grouped, name) for name in groups_to_compare(grouped)])
    except SeatrialError:
        return None
