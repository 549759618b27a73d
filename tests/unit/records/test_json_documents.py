"""Documents that other programs read name their keys, so that a new field is decided on and not forgotten."""

from dataclasses import fields

from seatrial.records.comparison import ROW_KEYS, ComparedGroup
from seatrial.records.measure import GroupSummary
from seatrial.records.ranking import SUMMARY_FIELDS, SUMMARY_KEYS


def test_a_row_of_history_has_every_field_of_a_group() -> None:
    assert set(ROW_KEYS) == {field.name for field in fields(ComparedGroup)} | {"effective"}


def test_a_ranked_group_has_every_field_of_its_summary() -> None:
    # Of those of a group's facts that the ranks decide, the row has its own.
    written = {SUMMARY_FIELDS.get(key, key) for key in SUMMARY_KEYS}
    assert {field.name for field in fields(GroupSummary)} - written == {"world_size", "ranks_known"}
