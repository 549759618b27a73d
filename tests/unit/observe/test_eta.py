"""ETA of run and campaign."""

from __future__ import annotations

import pytest

from seatrial.observe.eta import StepMark, campaign_eta_s, run_eta_s
from tests.unit.records.test_codec import spec


def mark(step: int, elapsed_s: float) -> StepMark:
    return StepMark(step=step, elapsed_s=elapsed_s)


def test_start_up_does_not_count() -> None:
    assert run_eta_s(mark(0, 100.0), mark(10, 110.0), 21) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("first", "last", "total"), [(None, None, 10), (mark(3, 1.0), mark(3, 2.0), 10), (mark(0, 0.0), mark(5, 1.0), None)]
)
def test_none_where_nothing_can_be_said(first: StepMark | None, last: StepMark | None, total: int | None) -> None:
    assert run_eta_s(first, last, total) is None


def test_never_negative_when_a_script_steps_beyond_its_total() -> None:
    assert run_eta_s(mark(0, 0.0), mark(30, 3.0), 20) == 0


def test_campaign_takes_each_groups_own_length() -> None:
    todo = [spec(group_key="a"), spec(group_key="b"), spec(group_key="new")]
    assert campaign_eta_s(todo, {"a": 10.0, "b": 20.0}, 5.0, 1.0) == pytest.approx(10 + 20 + 15 + 5)


def test_campaign_from_the_first_run_alone() -> None:
    assert campaign_eta_s([spec()], {}, 6.0, 4.0) == pytest.approx(16.0)
    assert campaign_eta_s([spec()], {}, None, 4.0) is None
