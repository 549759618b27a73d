"""Comparisons as criteria: the interval decides, and a baseline that is not there is no pass."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.judge.compared import baseline_file, comparison_reading, winner_reading
from seatrial.judge.facts import Facts, sort_runs
from seatrial.records.comparison import Comparison, LossParity, LossVerdict, Scaling, ScalingPoint
from seatrial.records.measure import Estimate
from seatrial.records.stability import SentinelDrift, StabilityVerdict
from seatrial.records.verdict import Baseline, Criterion, Finding, Verdict
from tests.unit.judge.campaigns import changed, clean_runs, comparison, finding, judged
from tests.unit.report import factory

AGAINST = Baseline(group="mb16_nw0")
SPEEDUP = Criterion(metric="speedup_pct", scope="winner", at_least=20, unit="%", baseline=AGAINST)
KEY = ("mb16_nw2", "mb16_nw0")


def compared(found: Comparison | str, criterion: Criterion = SPEEDUP) -> Finding:
    return finding(criterion, comparisons={KEY: found})


@pytest.mark.parametrize(
    ("mean", "low", "high", "verdict"),
    [
        (1.25, 1.21, 1.29, Verdict.PASS),
        (1.25, 1.2, 1.3, Verdict.PASS),
        (1.15, 1.12, 1.18, Verdict.FAIL),
        (1.22, 1.15, 1.29, Verdict.INCONCLUSIVE),
        (1.18, 1.12, 1.24, Verdict.INCONCLUSIVE),
    ],
)
def test_the_whole_interval_must_be_on_one_side(mean: float, low: float, high: float, verdict: Verdict) -> None:
    assert compared(comparison(mean, low, high)).verdict is verdict


def test_the_text_has_baseline_interval_and_method() -> None:
    found = compared(comparison(1.25, 1.21, 1.29))
    assert found.text == (
        "speedup_pct of the winner against mb16_nw0 at least 20 %: 25 % in mb16_nw2 "
        "(against mb16_nw0 by samples/s, 95 % interval 21 to 29 %, Welch on logs, 5 and 5 runs)."
    )
    assert [(one.subject, one.name, one.unit, one.n) for one in found.evidence] == [
        ("mb16_nw2", "", "%", 10),
        ("mb16_nw2", "lower end of the 95 % interval", "%", 10),
        ("mb16_nw2", "upper end of the 95 % interval", "%", 10),
        ("mb16_nw0", "samples_per_s", "samples/s", 5),
        ("mb16_nw2", "samples_per_s", "samples/s", 5),
    ]


def test_an_open_interval_says_how_many_repeats_would_tell() -> None:
    found = compared(comparison(1.24, 1.18, 1.30))
    # 6 points wide to either side, 4 points from the bound: (6/4)² × 5 runs are 11.25, so 7 more.
    assert "the interval reaches over the bound; about 7 more repeats of each would tell" in found.text


def test_repeats_are_not_advised_where_they_would_not_help() -> None:
    assert "no number of repeats tells: INCONCLUSIVE stands" in compared(comparison(1.2001, 1.1, 1.3)).text
    # 10 points to either side, 1 from the bound: 100 times the 5 runs.
    assert "about 495 more repeats of each would be needed to tell" in compared(comparison(1.21, 1.11, 1.31)).text


def test_what_weakens_a_comparison_stands_beside_it() -> None:
    found = comparison(
        1.25, 1.21, 1.29, unit="steps/s", confidence=0.975, differs=("micro_batch (8 → 16)",), cautions=("1 run of mb16_nw0 failed.",)
    )
    text = compared(found).text
    assert "by steps/s, 97.5 % interval 21 to 29 %" in text
    assert text.endswith("; what differs: micro_batch (8 → 16); 1 run of mb16_nw0 failed).")


def test_a_baseline_elsewhere_is_named_with_its_place() -> None:
    for baseline, file in ((Baseline(campaign="/data/old"), "/data/old/group_summary.csv"), (Baseline(history="v100"), "history:v100")):
        criterion = dataclasses.replace(SPEEDUP, baseline=baseline)
        found = finding(criterion, comparisons={("mb16_nw2", baseline.text): comparison(1.25, 1.21, 1.29, a="/data/old:mb8")})
        assert ("/data/old:mb8", file) in [(one.subject, one.file) for one in found.evidence]
    assert (
        "against the winner of /data/old at least 20 %"
        in finding(dataclasses.replace(SPEEDUP, baseline=Baseline(campaign="/data/old"))).text
    )


def test_a_baseline_that_was_left_out_or_is_to_come_is_told() -> None:
    criterion = dataclasses.replace(SPEEDUP, baseline=Baseline(group="mb8"))
    assert "mb8 is in the plan and was not run" in finding(criterion, left_out=["mb8_r1"]).text
    assert "mb8 is in the plan and still to be run" in finding(criterion, pending=["mb8_r1"]).text


def test_one_run_each_has_no_interval_and_no_verdict() -> None:
    found = compared(comparison(1.5, None, None))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "+50 % samples/s, without an interval; set repeats to 3 or more" in found.text


def test_where_lower_is_better_the_inverse_is_the_speed_up() -> None:
    found = compared(comparison(0.8, 0.79, 0.81, higher_is_better=False))
    assert found.verdict is Verdict.PASS and found.evidence[0].value == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("ends", "verdict"), [((0.98, 1.0), Verdict.PASS), ((0.9, 0.94), Verdict.FAIL), ((0.93, 0.99), Verdict.INCONCLUSIVE)]
)
def test_a_regression_is_what_was_lost(ends: tuple[float, float], verdict: Verdict) -> None:
    criterion = Criterion(metric="regression_pct", scope="every_group", at_most=3, baseline=AGAINST)
    assert compared(comparison(sum(ends) / 2, *ends), criterion).verdict is verdict


def test_no_baseline_says_how_to_name_one_in_all_three_ways() -> None:
    found = finding(dataclasses.replace(SPEEDUP, baseline=None))
    assert found.verdict is Verdict.INCONCLUSIVE
    for form in ("baseline: {group: NAME}", "baseline: {campaign: OUT, group: NAME}", "baseline: {history: NAME}"):
        assert form in found.text


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("there is no campaign in OUT", "there is no campaign in OUT"),
        (comparison(1.5, 1.4, 1.6, blocked="mb16_r2 was failed by the platform (io_error); run it again first."), "run it again first"),
        (comparison(1.5, 1.4, 1.6, ratio=None, reason="No run of mb16_nw0 counts."), "No run of mb16_nw0 counts"),
    ],
)
def test_what_could_not_be_compared_is_no_pass(found: Comparison | str, words: str) -> None:
    told = compared(found)
    assert told.verdict is Verdict.INCONCLUSIVE and words in told.text


def test_a_baseline_nobody_looked_up_is_no_pass() -> None:
    assert finding(SPEEDUP).verdict is Verdict.INCONCLUSIVE


OWN = dataclasses.replace(SPEEDUP, baseline=Baseline(group="mb16_nw2"))


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((0.532, 2.05), Verdict.INCONCLUSIVE), ((0.9, 1.1), Verdict.FAIL), ((1.21, 1.3), Verdict.INCONCLUSIVE)],
)
def test_where_the_baseline_stands_first_the_best_other_decides(ends: tuple[float, float], verdict: Verdict) -> None:
    found = finding(OWN, comparisons={("mb16_nw0", "mb16_nw2"): comparison(sum(ends) / 2, *ends, a="mb16_nw2", b="mb16_nw0")})
    assert found.verdict is verdict
    assert "in mb16_nw0 (against mb16_nw2" in found.text and "mb16_nw2, the baseline itself, stands first" in found.text


def test_a_baseline_without_a_rival_gains_nothing() -> None:
    ranking = factory.ranking()
    alone = dataclasses.replace(ranking, groups=tuple(place for place in ranking.groups if place.group != "mb16_nw0"))
    found = finding(OWN, ranking=alone)
    assert found.verdict is Verdict.FAIL and "0 % in mb16_nw2 (it is the baseline itself)" in found.text
    lost = Criterion(metric="regression_pct", scope="winner", at_most=3, baseline=OWN.baseline)
    assert finding(lost).verdict is Verdict.PASS


def test_a_baseline_that_tells_no_loss_has_none_to_compare() -> None:
    criterion = Criterion(metric="loss_comparable", scope="winner", baseline=OWN.baseline)
    assert finding(criterion).verdict is Verdict.PASS
    silent = [changed(run, last_loss=None) for run in clean_runs()]
    found = finding(criterion, runs=silent)
    assert found.verdict is Verdict.INCONCLUSIVE and "tells no loss" in found.text


def test_the_baseline_is_not_held_against_itself() -> None:
    found = finding(dataclasses.replace(SPEEDUP, scope="every_group"), comparisons={KEY: comparison(1.25, 1.21, 1.29)})
    assert found.verdict is Verdict.PASS
    alone = finding(dataclasses.replace(SPEEDUP, scope="every_group"), groups=[factory.summary("mb16_nw0")])
    assert alone.verdict is Verdict.INCONCLUSIVE and "no group but the baseline itself" in alone.text


@pytest.mark.parametrize(
    ("loss", "faster", "comparable"),
    [
        (LossVerdict.COMPARABLE, Verdict.PASS, Verdict.PASS),
        (LossVerdict.WORSE, Verdict.FAIL, Verdict.FAIL),
        (LossVerdict.UNKNOWN, Verdict.PASS, Verdict.INCONCLUSIVE),
    ],
)
def test_a_speed_up_that_costs_the_training_is_none(loss: LossVerdict, faster: Verdict, comparable: Verdict) -> None:
    found = comparison(1.3, 1.25, 1.35, loss=LossParity(verdict=loss, reason="The loss is 0.3 above.", difference=0.3, n=50))
    told = judged(SPEEDUP, Criterion(metric="loss_comparable", scope="winner", baseline=AGAINST), comparisons={KEY: found}).findings
    assert (told[0].verdict, told[1].verdict) == (faster, comparable)
    assert ("The loss is 0.3 above" in told[0].text) == (loss is not LossVerdict.COMPARABLE)


def point(gpus: int, efficiency: Estimate) -> ScalingPoint:
    total = Estimate(mean=100.0 * gpus * efficiency.mean, n=3)
    return ScalingPoint(
        gpus=gpus, nodes=1, group=f"g{gpus}", source="out", value=total, per_gpu=total, efficiency=efficiency, step_ms=10.0, runs=3
    )


@pytest.mark.parametrize(
    ("ends", "verdict"), [((0.85, 0.95), Verdict.PASS), ((0.7, 0.78), Verdict.FAIL), ((0.75, 0.85), Verdict.INCONCLUSIVE)]
)
def test_scaling_is_judged_at_the_largest_number(ends: tuple[float, float], verdict: Verdict) -> None:
    largest = point(4, Estimate(mean=sum(ends) / 2, low=ends[0], high=ends[1], n=3))
    scaling = Scaling(metric="samples_per_s", unit="samples/s", points=(point(1, Estimate(mean=1.0, n=3)), largest))
    found = finding(Criterion(metric="scaling_efficiency", scope="campaign", at_least=0.8), scaling=scaling)
    assert found.verdict is verdict and "1 → 4 GPUs" in found.text


@pytest.mark.parametrize("scaling", [None, Scaling(metric="m", unit="u", points=(), reason="Only one number of GPUs.")])
def test_no_scaling_is_no_pass(scaling: Scaling | None) -> None:
    found = finding(Criterion(metric="scaling_efficiency", scope="campaign", at_least=0.8), scaling=scaling)
    assert found.verdict is Verdict.INCONCLUSIVE and "1, 2, 4" in found.text


def drifted(low: float, high: float, level_change_pct: float | None = None) -> Finding:
    drift = SentinelDrift(
        verdict=StabilityVerdict.INCONCLUSIVE,
        reason="As said.",
        group="sentinel",
        runs=5,
        drift_pct=(low + high) / 2,
        drift_low=low,
        drift_high=high,
        level_change_pct=level_change_pct,
        first_t=0.0,
        last_t=3600.0,
    )
    return finding(Criterion(metric="sentinel_drift_pct", scope="campaign", at_most=3, unit="%"), drift=drift)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-2.0, 1.0, Verdict.PASS),
        (-12.0, -6.0, Verdict.FAIL),
        (6.0, 9.0, Verdict.FAIL),
        (-4.0, 2.0, Verdict.INCONCLUSIVE),
        (-6.0, -1.0, Verdict.INCONCLUSIVE),
    ],
)
def test_the_interval_of_a_drift_decides_whichever_way_it_goes(low: float, high: float, verdict: Verdict) -> None:
    assert drifted(low, high).verdict is verdict


def test_a_level_that_changed_counts_as_drift() -> None:
    found = drifted(1.0, 2.0, level_change_pct=-9.0)
    assert found.verdict is Verdict.FAIL and found.evidence[0].value == 9.0
    assert "its level changed by -9 % in between" in found.text


def test_too_few_sentinels_tell_no_drift() -> None:
    drift = SentinelDrift(verdict=StabilityVerdict.INCONCLUSIVE, reason="2 of 2 runs tell it.", group="sentinel", runs=2)
    found = finding(Criterion(metric="sentinel_drift_pct", scope="campaign", at_most=3, unit="%"), drift=drift)
    assert found.verdict is Verdict.INCONCLUSIVE and "2 of 2 runs tell it" in found.text


def test_a_baseline_whose_loss_breaks_is_not_comparable_with_itself() -> None:
    runs = [changed(run, loss_finite=False) for run in clean_runs()]
    winner = factory.results().ranking.winner
    found = finding(Criterion(metric="loss_comparable", scope="winner", baseline=Baseline(group=winner or "")), runs=runs)
    assert found.verdict is Verdict.FAIL and "is no number" in found.text


def test_no_sentinel_says_how_to_have_one() -> None:
    found = finding(Criterion(metric="sentinel_drift_pct", scope="campaign", at_most=3))
    assert found.verdict is Verdict.INCONCLUSIVE and "set `sentinel`" in found.text


def facts(found: Comparison | str | None = None, **changes: object) -> Facts:
    made = sort_runs(clean_runs(), factory.groups(), factory.ranking(), ())
    return dataclasses.replace(made, **{"comparisons": {} if found is None else {KEY: found}, **changes})  # type: ignore[arg-type]


def test_a_reading_has_both_sides_in_numbers() -> None:
    found = comparison_reading(SPEEDUP, factory.summary("mb16_nw2"), facts(comparison(1.25, 1.21, 1.29)))
    assert found is not None and (found.value, found.low, found.high, found.n, found.repeats) == (25.0, 21.0, 29.0, 10, 5)
    assert (found.unit, found.file, found.window, found.confidence) == ("%", "verdict.json", "Welch on logs, 5 and 5 runs", 0.95)
    assert [(one.subject, one.name, one.value, one.unit, one.file, one.n) for one in found.further] == [
        ("mb16_nw0", "samples_per_s", 1000.0, "samples/s", "group_summary.csv", 5),
        ("mb16_nw2", "samples_per_s", 1250.0, "samples/s", "group_summary.csv", 5),
    ]


def test_the_smaller_side_is_what_an_interval_rests_on() -> None:
    few = comparison(1.25, 1.21, 1.29, value_b=Estimate(mean=1250.0, n=2))
    found = comparison_reading(SPEEDUP, factory.summary("mb16_nw2"), facts(few))
    assert found is not None and found.repeats == 2
    unknown = comparison_reading(SPEEDUP, factory.summary("mb16_nw2"), facts(comparison(1.25, 1.21, 1.29, value_a=None, value_b=None)))
    assert unknown is not None and unknown.repeats == 10 and unknown.further == ()


def test_a_time_that_came_to_nothing_is_no_division_by_it() -> None:
    zero = comparison(0.5, 0.0, 1.0, higher_is_better=False)
    found = comparison_reading(SPEEDUP, factory.summary("mb16_nw2"), facts(zero))
    assert found is not None and (found.value, found.low) == (100.0, 0.0) and found.high == float("inf")


def test_where_a_baselines_figures_stand() -> None:
    assert baseline_file(AGAINST) == "group_summary.csv"
    assert baseline_file(Baseline(campaign="OUT", group="a")) == "OUT/group_summary.csv"
    assert baseline_file(Baseline(history="v1")) == "history:v1"


def test_losses_in_numbers() -> None:
    loss = LossParity(
        verdict=LossVerdict.WORSE, reason="Higher.", difference=0.5, allowed=0.05, loss_a=1.0, loss_b=1.5, last_step=199, n=50
    )
    criterion = Criterion(metric="loss_comparable", scope="winner", baseline=AGAINST)
    found = comparison_reading(criterion, factory.summary("mb16_nw2"), facts(comparison(1.25, 1.21, 1.29, loss=loss)))
    assert found is not None and (found.value, found.window, found.n, found.detail) == (False, "to step 199", 50, "Higher")
    assert [(one.name, one.value) for one in found.further] == [
        ("loss difference", 0.5),
        ("loss of the baseline", 1.0),
        ("loss of the group", 1.5),
        ("difference allowed", 0.05),
    ]
    bare = dataclasses.replace(loss, last_step=None, difference=None, loss_a=None, loss_b=None, allowed=None)
    other = comparison_reading(criterion, factory.summary("mb16_nw2"), facts(comparison(1.25, 1.21, 1.29, loss=bare)))
    assert other is not None and (other.window, other.further) == ("the steps both have", ())


def test_of_the_others_that_can_win_the_best_is_what_there_is_to_gain() -> None:
    """mb8_nw2 has a figure and cannot win: it is not looked at."""
    criterion = dataclasses.replace(SPEEDUP, baseline=Baseline(group="mb16_nw2"))
    winner = factory.summary("mb16_nw2")
    other = dataclasses.replace(comparison(0.985, 0.96, 1.011), a="mb16_nw2", b="mb16_nw0")
    found = winner_reading(criterion, winner, facts(comparisons={("mb16_nw0", "mb16_nw2"): other}))
    assert found.subject == "mb16_nw0" and found.unsettled == "so it is not the winner's"
    assert found.detail.endswith("; mb16_nw2, the baseline itself, stands first")
    missing = winner_reading(criterion, winner, facts())
    assert missing.missing.startswith("mb16_nw2, the baseline itself, stands first; mb16_nw0 was not held against mb16_nw2")
    lost = winner_reading(dataclasses.replace(criterion, metric="regression_pct"), winner, facts())
    assert (lost.value, lost.unit, lost.detail, lost.n) == (0.0, "%", "it is the baseline itself", 2)


def test_where_low_is_better_the_lowest_other_is_the_best() -> None:
    places = tuple(
        dataclasses.replace(place, group=name, value=value, can_win=True)
        for place, name, value in zip(factory.ranking().groups, ("mb16_nw2", "mb16_nw0", "mb8_nw2"), (1.0, 3.0, 2.0), strict=True)
    )
    criterion = dataclasses.replace(SPEEDUP, baseline=Baseline(group="mb16_nw2"))
    low = facts(ranking=factory.ranking(groups=places, higher_is_better=False))
    assert "; mb8_nw2 was not held against" in winner_reading(criterion, factory.summary("mb16_nw2"), low).missing
    high = facts(ranking=factory.ranking(groups=places))
    assert "; mb16_nw0 was not held against" in winner_reading(criterion, factory.summary("mb16_nw2"), high).missing


@pytest.mark.parametrize(("low", "high"), [(None, 1.3), (1.2, None), (None, None)])
def test_an_interval_with_one_end_is_none(low: float | None, high: float | None) -> None:
    found = comparison_reading(SPEEDUP, factory.summary("mb16_nw2"), facts(comparison(1.25, low, high)))
    assert found is not None
    assert found.missing == "mb16_nw2 against mb16_nw0: +25 % samples/s, without an interval; set repeats to 3 or more"
