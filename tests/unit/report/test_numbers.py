"""Numbers as people read them."""

from __future__ import annotations

import pytest

from seatrial.records.measure import Estimate
from seatrial.report import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(1270.4, "1,270"), (123456.7, "123,457"), (84.213, "84.21"), (1.0, "1.000"), (0.042113, "0.04211"), (0.0, "0"), (None, "–")],
)
def test_four_digits_that_matter(value: float | None, text: str) -> None:
    assert numbers.figure(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_a_dash(value: float) -> None:
    assert (numbers.figure(value), numbers.ratio(value)) == ("–", "–")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(98.0, 102.0, "±2.0 %"), (60.0, 200.0, "±83 %"), (50.0, 200.0, "± over 100 %"), (1.0, 10_000.0, "± over 100 %"), (None, None, "")],
)
def test_margin(low: float | None, high: float | None, text: str) -> None:
    assert numbers.margin(Estimate(mean=100.0, low=low, high=high, n=2)) == text


def test_interval() -> None:
    assert numbers.interval(Estimate(mean=100.0, low=98.0, high=102.04, n=2)) == "98.00 to 102.0"
    assert numbers.interval(Estimate(mean=100.0)) == "–"


def test_what_is_no_number_is_none() -> None:
    odd = (True, "3", None, [], float("nan"), float("inf"))
    assert [numbers.number_in(value) for value in (1, 2.5, 0, *odd)] == [1, 2.5, 0, *[None] * len(odd)]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1270.4, "1,270"), (84.213, "84.2"), (9.876, "9.88"), (0.42, "0.42"), (0.004, "<0.01"), (0.0, "0"), (-0.004, ">-0.01"), (None, "–")],
)
def test_what_a_glance_takes_in(value: float | None, text: str) -> None:
    assert numbers.short(value) == text
