"""Whether a step of one side does what a step of another does."""

from __future__ import annotations

import math

import pytest

from seatrial.analyse.step_work import differing_batch, unlike_work, work_of_step
from seatrial.records.comparison import Side, SideRun
from tests.unit.analyse.made_sides import side


def working(name: str, **figures: float) -> Side:
    """A side of one run that tells just these figures."""
    return side(name, (), runs=(SideRun(run=f"{name}_r1", repeat=1, started_t=0.0, figures=figures),))


def test_work_of_a_step_is_rate_over_steps_in_the_geometric_mean() -> None:
    runs = tuple(
        SideRun(run=f"a_r{at}", repeat=at, started_t=0.0, figures={"samples_per_s": 10.0 * at, "steps_per_s": 1.0}) for at in (1, 4)
    )
    found = work_of_step(side("a", (), runs=runs), "samples_per_s")
    assert found is not None and math.isclose(found, 20.0)


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"samples_per_s": 10.0},
        {"steps_per_s": 2.0},
        {"samples_per_s": 0.0, "steps_per_s": 2.0},
        {"samples_per_s": -1.0, "steps_per_s": -1.0},
    ],
)
def test_a_run_that_does_not_tell_leaves_it_unknown(figures: dict[str, float]) -> None:
    assert work_of_step(working("a", **figures), "samples_per_s") is None
    assert work_of_step(side("a", ()), "samples_per_s") is None


@pytest.mark.parametrize(("other", "text"), [(80.3, ""), (81.0, "a step takes 8 samples in a and 8.1 in b")])
def test_a_last_batch_that_is_not_full_is_the_same_work(other: float, text: str) -> None:
    a, b = working("a", samples_per_s=80.0, steps_per_s=10.0), working("b", samples_per_s=other, steps_per_s=10.0)
    assert unlike_work(a, b) == text


def test_tokens_where_samples_are_not_told_by_both() -> None:
    a = working("a", samples_per_s=80.0, tokens_per_s=1000.0, steps_per_s=10.0)
    assert unlike_work(a, working("b", tokens_per_s=2000.0, steps_per_s=10.0)) == "a step takes 100 tokens in a and 200 in b"


def test_settings_speak_where_the_steps_do_not() -> None:
    a, b = working("a"), working("b")
    settings = {"lr": "1", "train.batch_size": "8"}
    assert unlike_work(a, b) == ""
    told = unlike_work(side("a", (), settings=settings), side("b", (), settings={"lr": "2", "train.batch_size": "16"}))
    assert told == "train.batch_size (8 → 16) differs"


def test_a_setting_that_one_side_lacks_and_the_number_of_ranks() -> None:
    assert differing_batch(side("a", (), settings={"env.BATCH_SIZE": "8"}), side("b", ())) == "env.BATCH_SIZE (8 → none)"
    assert differing_batch(side("a", (), settings={"batch_of.lr": "1"}), side("b", ())) == "", "only the last word of a name says it"
    assert differing_batch(side("a", (), world_size=2), side("b", (), world_size=4)) == "the number of ranks (2 → 4)"
