"""The sentences of a comparison."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seatrial.analyse import compare_words as words
from seatrial.analyse.interval import Difference
from seatrial.analyse.rank_metric import METRICS
from seatrial.records.comparison import LossParity, LossVerdict, Relation, SideRun
from seatrial.records.measure import Estimate
from tests.unit.analyse.made_sides import side

A, B = side("a", [1.0, 1.0]), side("b", [1.0, 1.0, 1.0])
RATE = METRICS["samples_per_s"]


def seen(relation: Relation, ratio: Estimate | None, **changes: Any) -> words.Seen:
    values: dict[str, Any] = {
        "a": A,
        "b": B,
        "metric": RATE,
        "relation": relation,
        "ratio": ratio,
        "difference": Difference(mean=0.03, spread=0.02, error=0.01, freedom=4.0, n=5, paired=True),
        "paired": True,
        "confidence": 0.95,
        "comparisons": 1,
        "margin_pct": 1.0,
        "chance": 0.012,
        "loss": LossParity(verdict=LossVerdict.COMPARABLE, reason="as the other"),
        "problem": "",
    }
    return words.Seen(**{**values, **changes})


def ratio(mean: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(mean=mean, low=low, high=high, n=5)


FASTER = ratio(1.031, 1.02, 1.042)


def test_a_difference_with_interval_method_and_chance() -> None:
    assert words.reason(seen(Relation.FASTER, FASTER)) == (
        "b has 3.1 % more samples/s than a (95 % interval +2.0 % to +4.2 %; paired t on logs, 5 pairs, p = 0.012)."
    )
    assert words.reason(seen(Relation.SLOWER, ratio(0.5, 0.4, 0.6), chance=0.00001)) == (
        "b has 50.0 % fewer samples/s than a (95 % interval −60.0 % to −40.0 %; paired t on logs, 5 pairs, p < 0.0001)."
    )


def test_a_p90_over_p50_is_high_or_low() -> None:
    found = words.reason(seen(Relation.FASTER, ratio(0.9, 0.8, 0.95), metric=METRICS["wall_p90_over_p50"], chance=None))
    assert found.startswith("b has a 10.0 % lower p90/p50 than a (95 % interval −20.0 % to −5.0 %; paired t on logs, 5 pairs).")


@pytest.mark.parametrize(
    ("low", "high", "near"), [(1.005, 1.05, True), (1.02, 1.05, False), (0.9, 0.995, True), (0.9, 1 / 1.01, True), (0.9, 0.98, False)]
)
def test_what_may_still_be_within_the_margin(low: float, high: float, near: bool) -> None:
    found = words.reason(seen(Relation.FASTER, ratio(math.sqrt(low * high), low, high)))
    assert ("It may still be within the 1 % that does not matter." in found) is near


def test_the_same_to_within_the_margin() -> None:
    assert words.reason(seen(Relation.SAME, ratio(1.001, 0.995, 1.007), paired=False)) == (
        "b and a have the same samples/s, to within 1 %: +0.10 % (95 % interval −0.50 % to +0.70 %; Welch on logs, 2 and 3 runs)."
    )


def test_not_told_apart_says_how_many_repeats_would() -> None:
    found = words.reason(seen(Relation.AMBIGUOUS, ratio(1.03, 0.99, 1.07)))
    assert found.startswith("b is not told apart from a in samples/s: +3.0 % (95 % interval −1.0 % to +7.0 %;")
    assert "repeats a side would show a difference of 3 % four times in five." in found
    at_least = words.reason(
        seen(
            Relation.AMBIGUOUS,
            ratio(1.5, 0.9, 2.5),
            difference=Difference(mean=0.4, spread=1e-6, error=1e-6, freedom=4.0, n=5, paired=True),
        )
    )
    assert "About 6 repeats a side" in at_least, "never fewer than there were"
    never = words.reason(
        seen(
            Relation.AMBIGUOUS, ratio(1.0, 0.1, 9.0), difference=Difference(mean=0.0, spread=9e3, error=9e3, freedom=4.0, n=5, paired=True)
        )
    )
    assert "repeats a side would be needed to show a difference of 1 %; make the runs longer or steadier." in never


def test_a_difference_that_may_not_matter() -> None:
    found = words.reason(seen(Relation.AMBIGUOUS, ratio(1.008, 1.002, 1.014)))
    assert found.startswith(
        "b has 0.80 % more samples/s than a, which may not matter: it is within the margin of 1 %, and its interval reaches"
    )


def test_a_speed_up_that_costs_the_training_does_not_count() -> None:
    worse = LossParity(verdict=LossVerdict.WORSE, reason="its loss is 0.5 higher")
    assert words.reason(seen(Relation.FASTER, FASTER, loss=worse)).endswith("since its training is worse: its loss is 0.5 higher.")
    assert "training" not in words.reason(seen(Relation.SLOWER, ratio(0.9, 0.8, 0.95), loss=worse))


def test_what_cannot_be_said() -> None:
    assert words.reason(seen(Relation.AMBIGUOUS, None)) == "b against a cannot be said in samples/s: there is no interval."
    assert words.reason(seen(Relation.FASTER, FASTER, problem="it rains")) == "b against a cannot be said in samples/s: it rains."


def test_the_method_with_its_correction() -> None:
    assert words.method(seen(Relation.SAME, None, difference=None)) == ""
    assert words.method(seen(Relation.SAME, None, comparisons=3)) == "paired t on logs, 5 pairs, Holm over 3 comparisons"


def test_what_the_platform_failed_is_run_again_first() -> None:
    assert words.blocked(A, B) == ""
    one = side("a", [], infrastructure_failures=("a_r1 (io_error)",))
    assert words.blocked(one, one) == "the platform failed a_r1 (io_error): run it again on a healthy platform first"
    assert words.blocked(one, side("b", [], infrastructure_failures=("b_r1",))).endswith(
        "a_r1 (io_error), b_r1: run them again on a healthy platform first"
    )


def test_sides_with_too_few_runs() -> None:
    none, one = side("n", []), side("o", [1.0])
    assert words.no_interval(A, B) == ""
    assert words.no_interval(none, one) == "n has no run that counts: there is no interval; use repeats: 3 or more"
    assert words.no_interval(one, side("p", [2.0])).startswith("o and p have one run only: there is no interval")


@pytest.mark.parametrize(("metric", "what"), [("steps_per_s", "a step"), ("duration_s", "a run"), ("samples_per_s", "")])
def test_figures_by_steps_of_unlike_work(metric: str, what: str) -> None:
    found = words.unlike_steps(side("a", [10.0]), side("b", [10.0], metric="tokens_per_s", settings={"bs": "8"}), METRICS[metric])
    assert found.startswith(f"bs (none → 8) differs, so {what} does not do the same work in both") if what else found == ""


def restless(spread: float | None) -> SideRun:
    figures = {} if spread is None else {"wall_p90_over_p50": spread}
    return SideRun(run="c_r1", repeat=1, started_t=0.0, figures=figures, steady=False)


@pytest.mark.parametrize(
    ("spread", "low", "high", "text"),
    [
        (1.2, 1.45, 1.5, ""),
        (
            1.2,
            1.43,
            1.5,
            "no steady state was found in c_r1, whose steps vary by up to 44.0 %, which may be all of the difference: run more steps",
        ),
        (1.2, 0.5, 0.69, ""),
        (
            1.01,
            1.24,
            1.5,
            "no steady state was found in c_r1, whose steps vary by up to 25.0 %, which may be all of the difference: run more steps",
        ),
        (None, 9.0, 9.9, "no steady state was found in c_r1: run more steps"),
        (math.inf, 9.0, 9.9, "no steady state was found in c_r1: run more steps"),
        (1.2, None, None, "no steady state was found in c_r1: run more steps"),
    ],
)
def test_runs_without_a_steady_state(spread: float | None, low: float | None, high: float | None, text: str) -> None:
    assert words.unsteady(A, side("c", (), runs=(restless(spread),)), ratio(1.0, low, high)) == text


def test_where_all_are_steady_nothing_is_said_of_it() -> None:
    assert words.unsteady(A, B, FASTER) == "" and words.restless_runs(A, B) == []
    assert words.stands_all_the_same([restless(1.2)]) == (
        "No steady state was found in c_r1: their steps vary by up to 44.0 %, which is less than the difference."
    )


def test_runs_that_do_not_tell_and_figures_without_noise() -> None:
    assert words.left_out(["a_r1"], RATE) == "samples/s is compared, and a_r1 does not tell it and is left out."
    assert words.left_out(["a_r1", "a_r2"], RATE) == "samples/s is compared, and a_r1, a_r2 do not tell it and are left out."
    assert words.no_noise(None) == "" == words.no_noise(Difference(mean=0.0, spread=2e-10, error=1.0, freedom=1.0, n=2, paired=True))
    assert words.no_noise(Difference(mean=0.0, spread=1e-10, error=0.0, freedom=1.0, n=2, paired=True)).startswith(
        "every repeat gives the same"
    )


@pytest.mark.parametrize(
    ("mean", "text"), [(1.0, "+0.00 %"), (1.0099, "+0.99 %"), (1.01, "+1.0 %"), (1.999, "+99.9 %"), (2.0, "+100 %"), (21.0, "+2,000 %")]
)
def test_per_cent_with_as_many_digits_as_count(mean: float, text: str) -> None:
    assert f": {text} (" in words.reason(seen(Relation.SAME, ratio(mean, 0.9, 1.1)))
