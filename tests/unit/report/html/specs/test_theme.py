"""What all charts have in common."""

from __future__ import annotations

import pytest

from seatrial.report.html.specs.theme import CONFIG, SCHEMA, TEXT, by_width, document, legend, named_y, quantity, row_height, short


def test_a_document_reads_the_rows_and_is_as_wide_as_its_container() -> None:
    made = document(mark="bar")
    assert made["$schema"] == SCHEMA and made["data"] == {"name": "rows"} and made["width"] == "container" and made["mark"] == "bar"
    assert document(width=300)["width"] == 300, "what a chart says itself goes over what all have"


def test_text_has_the_pages_own_colour() -> None:
    assert {CONFIG["axis"][name] for name in CONFIG["axis"] if name.endswith("Color") and name != "gridColor"} == {TEXT}


@pytest.mark.parametrize(("count", "step"), [(1, 26), (12, 26), (13, 20), (40, 20)])
def test_many_names_stand_closer(count: int, step: int) -> None:
    assert row_height(count) == {"step": step}


def test_a_number_for_a_phone_and_one_for_all_else() -> None:
    assert by_width(4, 8)["expr"].endswith("? 4 : 8")


def test_names_are_sorted_by_their_place_and_shortened() -> None:
    y = named_y("group")
    assert y["sort"] == {"field": "place", "op": "min", "order": "ascending"} and y["axis"]["labelExpr"] == short(14, 34)


def test_of_a_long_label_begin_and_end_are_kept() -> None:
    assert "…" in short(14, 34) and short(14, 34).endswith(": datum.label"), "a short one stays as it is"


def test_a_quantity_begins_at_nothing_unless_asked_otherwise() -> None:
    assert quantity("ms", "ms a step")["scale"] == {"zero": True}
    assert quantity("ms", "ms a step", zero=False, type="log")["scale"] == {"zero": False, "type": "log"}


def test_more_columns_leave_less_room_for_each_word() -> None:
    assert legend(columns=(1, 2))["labelExpr"] == short(24, 44) and legend()["labelExpr"] == short(12, 22)
