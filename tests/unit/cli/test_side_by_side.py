"""What `report --compare` says of two campaigns, for people and for machines."""

from __future__ import annotations

from seatrial.cli.side_by_side import compared_json, compared_lines
from seatrial.report.html.compare_page import Compared


def test_what_may_not_be_compared_is_a_sentence() -> None:
    refused = Compared(refused="unlike machines")
    assert compared_lines(refused, 80) == ["Not compared: unlike machines"]
    assert compared_json(refused) == {"refused": "unlike machines"}


def test_nothing_to_compare_is_no_refusal() -> None:
    assert compared_json(Compared(note="no group in common")) == {"comparisons": [], "note": "no group in common"}
    assert "no group in common" in " ".join(compared_lines(Compared(note="no group in common"), 80))
