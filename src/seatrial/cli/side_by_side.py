"""What `report OUT --compare OUT2` says of the two, as `seatrial compare OUT OUT2` says it: lines for people, plain values for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seatrial.report.html.compare_page import Compared


def compared_lines(compared: Compared, width: int) -> list[str]:
    """For people."""
    from seatrial.report.comparison_text import comparison_lines

    if compared.refused:
        return [f"Not compared: {compared.refused}"]
    return comparison_lines(compared.comparisons, width, compared.note)


def compared_json(compared: Compared) -> dict[str, Any]:
    """For machines."""
    from seatrial.records.codec import to_json

    if compared.refused:
        return {"refused": compared.refused}
    return {"comparisons": [to_json(one) for one in compared.comparisons], "note": compared.note}
