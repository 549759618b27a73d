"""How a campaign's throughput grows with its ranks, where its runs had several numbers of them.

In: a grouped campaign. Out: `Scaling` of each family of groups that differ in nothing but ranks; and of the one that scales worst, which
is what a criterion is held against. None where all runs had the same number.
"""

from __future__ import annotations

from seatrial.campaign.grouped import Grouped
from seatrial.campaign.sides import groups_to_compare, side_of
from seatrial.errors import SeatrialError
from seatrial.records.comparison import Scaling


def scaling_within(grouped: Grouped) -> Scaling | None:
    """Of the worst family; `family` names it where there are several."""
    from seatrial.analyse.scaling_families import worst_family

    return worst_family(families_within(grouped))


def families_within(grouped: Grouped) -> list[Scaling]:
    """Of the main lane's groups. That they cannot be compared is no failure of the campaign, but it is said."""
    sizes = {run.measure.world_size for run in grouped.runs if run.attempt.current and run.measure}
    if len(sizes) < 2:
        return []
    from seatrial.analyse.scaling_families import scaling_families

    try:
        return scaling_families([side_of(grouped, name) for name in groups_to_compare(grouped)])
    except SeatrialError as error:
        return [Scaling(metric="throughput", unit="", points=(), reason=f"Scaling is not told: {error}.")]
