"""Where keys were written, and errors that name it."""

from __future__ import annotations

import pytest

from seatrial.plan.locate import LONGEST_SHOWN, KeyPath, Locations, Where, key_text

BASE, CHILD = Where("base.yaml", 3), Where("child.yaml", 7)


def known() -> Locations:
    return Locations("child.yaml", {("axes",): BASE, ("axes", "bs"): CHILD, ("axes", "bs", "values", 1): Where("child.yaml", 8)})


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("axes", "bs"), CHILD),
        (("axes", "bs", "values", 1), Where("child.yaml", 8)),
        (("axes", "bs", "values", 0), CHILD),
        (("axes", "lr"), BASE),
        (("limits", "run_s"), Where("child.yaml")),
        ((), Where("child.yaml")),
    ],
)
def test_a_key_lies_where_it_was_written_or_in_the_nearest_mapping_around_it(path: KeyPath, where: Where) -> None:
    assert known().of(path) == where


def test_an_error_names_file_line_and_key() -> None:
    assert str(known().error(("axes", "bs"), "is empty")) == "child.yaml:7: axes.bs: is empty"
    assert str(Locations().error((), "no plan")) == "no plan"


def test_what_is_forgotten_takes_all_below_with_it() -> None:
    locations = known()
    assert set(locations.under(("axes", "bs"))) == {("axes", "bs"), ("axes", "bs", "values", 1)}
    locations.forget(("axes", "bs"))
    assert locations.where == {("axes",): BASE}
    locations.forget(("nothing",))
    assert locations.where == {("axes",): BASE}


def test_two_plans_are_equal_whatever_file_they_came_from() -> None:
    assert Locations("a.yaml", {("name",): BASE}) == Locations("b.yaml", {})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("repeats",), "repeats"),
        (("axes", "bs", "values", 1), "axes.bs[1]"),
        (("axes", "bs", "bundles", "old"), "axes.bs.bundles.old"),
        (("criteria", 0, "metric"), "criteria[0].metric"),
        (("env", "a\nb"), r"env.'a\nb'"),
    ],
)
def test_a_key_as_people_write_it(path: KeyPath, text: str) -> None:
    assert key_text(path) == text


def test_a_key_without_end_is_cut() -> None:
    assert key_text(("env", "x" * 500)) == "env." + "x" * (LONGEST_SHOWN - 1) + "…"
