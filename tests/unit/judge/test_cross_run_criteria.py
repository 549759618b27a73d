"""Counts, comparisons with a baseline, scaling and drift as criteria."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge.cross_run_criteria import (
    campaign_value,
    comparison_value,
    count_of_campaign,
    count_of_group,
    count_text,
    drift_evidence,
    drift_window,
    recommended_value,
)
from seatrial.judge.evidence import CriterionValue, JudgedCampaign, judged_campaign
from seatrial.records.comparison import Comparison, LossParity, LossVerdict, Scaling, ScalingPoint
from seatrial.records.measure import (
    ANTI_CORRELATED_GPUS,
    Estimate,
    JitterCause,
    MemoryTrend,
    MemoryVerdict,
    RunHealth,
    SentinelDrift,
    StabilityVerdict,
    StragglerVerdict,
    TimingPoint,
)
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import TelemetrySpec
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Baseline, Criterion, Finding, Verdict
from tests.facts import states
from tests.unit.analyse.factory import golden
from tests.unit.judge.campaigns import changed, clean_runs, comparison, course, finding, judged, platform_failed, straggler
from tests.unit.report import factory

SENTENCES = golden("cross_run_criteria", Path(__file__).parent)

NO_LEAKS = Criterion(metric="leaking_runs", scope="campaign", at_most=0)
NO_FAILURES = Criterion(metric="failed_runs", scope="campaign", at_most=0)
LEVEL = course(MemoryVerdict.PLATEAU)


def level_runs() -> list:
    return [changed(run, memory=(LEVEL,)) for run in clean_runs()]


def test_a_leak_fails_and_is_reported_with_its_slope() -> None:
    runs = level_runs()
    runs[0] = changed(runs[0], memory=(LEVEL, course(MemoryVerdict.LEAK)))
    found = finding(NO_LEAKS, runs=runs)
    assert found.verdict is Verdict.FAIL
    assert found.text in SENTENCES
    slope = next(evidence for evidence in found.evidence if evidence.value == 12.5)
    assert (slope.subject, slope.unit, slope.n, slope.window) == ("mb16_nw2_r1", "MiB/min", 300, "600 s after warm-up")
    assert slope.file == "mb16_nw2_r1/attempt-1/host_telemetry.csv"


UNSAID, LEAK = course(MemoryVerdict.INCONCLUSIVE), course(MemoryVerdict.LEAK)


@pytest.mark.parametrize(
    ("courses", "at_most", "verdict"),
    [
        ([(LEVEL,)] * 4, 0, Verdict.PASS),
        ([(LEVEL,), (UNSAID,), (LEVEL,)], 0, Verdict.INCONCLUSIVE),
        ([()], 0, Verdict.INCONCLUSIVE),
        # More leaks than allowed fail whatever the others are.
        ([(LEAK,), (LEAK,), (UNSAID,)], 1, Verdict.FAIL),
    ],
)
def test_leaks_are_counted_and_an_unknown_run_keeps_the_count_from_passing(
    courses: list[tuple[MemoryTrend, ...]], at_most: int, verdict: Verdict
) -> None:
    runs = [changed(run, memory=memory) for run, memory in zip(clean_runs(), courses, strict=False)]
    assert finding(dataclasses.replace(NO_LEAKS, at_most=at_most), runs=runs).verdict is verdict


def test_a_failed_run_has_not_shown_that_it_does_not_leak() -> None:
    found = finding(NO_LEAKS, runs=[*level_runs(), factory.oom("mb8_nw2", 2)])
    assert found.verdict is Verdict.INCONCLUSIVE and found.text in SENTENCES


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        (StragglerVerdict.NAMED, Verdict.FAIL),
        (StragglerVerdict.NONE, Verdict.PASS),
        (StragglerVerdict.ABSTAINED, Verdict.INCONCLUSIVE),
    ],
)
def test_stragglers(how: StragglerVerdict, verdict: Verdict) -> None:
    run = changed(clean_runs()[0], straggler=straggler(how))
    found = finding(Criterion(metric="straggling_runs", scope="campaign", at_most=0), runs=[run])
    assert found.verdict is verdict and found.text in SENTENCES


def test_a_single_rank_cannot_straggle_and_unmeasured_ranks_are_no_pass() -> None:
    criterion = Criterion(metric="straggling_runs", scope="campaign", at_most=0)
    alone = changed(clean_runs()[0], world_size=1)
    found = finding(criterion, runs=[alone])
    assert found.verdict is Verdict.PASS and found.text in SENTENCES
    score = finding(Criterion(metric="straggler_score", scope="every_run", at_most=0.1), runs=[alone])
    assert score.verdict is Verdict.PASS and score.text in SENTENCES
    assert finding(Criterion(metric="straggler_score", scope="every_run", at_most=0.1)).verdict is Verdict.INCONCLUSIVE
    assert finding(criterion, runs=[clean_runs()[0]]).verdict is Verdict.INCONCLUSIVE


TURNS = Criterion(metric="turn_taking_runs", scope="campaign", at_most=0)
ANTI_CORRELATED_CAUSE = JitterCause(
    kind=ANTI_CORRELATED_GPUS,
    text="GPU 0 and GPU 1 have anti-correlated utilisation.",
    numbers={"gpu_a": 0, "gpu_b": 1, "rank_correlation": -0.9},
    file="gpu_telemetry.csv",
    window="steps 100–999",
    n=200,
    strength=0.9,
)


def on_gpus(run: MeasuredRun, *devices: str, gpu_s: float | None = 2.0) -> MeasuredRun:
    place = dataclasses.replace(run.attempt.spec.place, devices=devices)
    spec = dataclasses.replace(run.attempt.spec, place=place, telemetry=TelemetrySpec(gpu_s=gpu_s))
    return dataclasses.replace(run, attempt=dataclasses.replace(run.attempt, spec=spec))


def test_gpus_that_take_turns_fail_and_unsampled_ones_do_not_pass() -> None:
    healthy = changed(on_gpus(clean_runs()[0], "0", "1"), jitter_causes=(), telemetry={"gpu_util_mean_pct": 95.0}, window_s=400.0)
    found = finding(TURNS, runs=[changed(healthy, jitter_causes=(ANTI_CORRELATED_CAUSE,))])
    assert found.verdict is Verdict.FAIL and "GPU 0 and GPU 1" in found.text
    assert any(one.value == -0.9 and one.file.endswith("gpu_telemetry.csv") for one in found.evidence)
    assert finding(TURNS, runs=[healthy]).verdict is Verdict.PASS
    assert finding(TURNS, runs=[on_gpus(healthy, "0")]).verdict is Verdict.PASS
    unsampled = changed(healthy, telemetry={})
    assert finding(TURNS, runs=[unsampled]).verdict is Verdict.INCONCLUSIVE
    assert finding(TURNS, runs=[on_gpus(healthy, "0", "1", gpu_s=None)]).verdict is Verdict.INCONCLUSIVE
    assert finding(TURNS, runs=[changed(healthy, window_s=30.0)]).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.1] * 20, Verdict.PASS),
        ([2.1] * 10 + [1.1] * 10, Verdict.FAIL),
        ([2.1] * 9 + [1.1] * 11, Verdict.PASS),
        ([2.0] * 20, Verdict.PASS),
        ([2.1] * 2, Verdict.INCONCLUSIVE),
    ],
)
def test_a_ratio_that_is_persistently_above_2(ratios: list[float], verdict: Verdict) -> None:
    # The first two windows hold step 0, which is cold.
    values = [9.0, 9.0, *ratios]
    points = tuple(
        TimingPoint(index=at, step=50 * at, values={"iter_ms_p50": 100.0, "iter_ms_p90": 100.0 * ratio}) for at, ratio in enumerate(values)
    )
    criterion = Criterion(metric="jittering_runs", scope="campaign", at_most=0)
    assert finding(criterion, runs=[changed(clean_runs()[0], timing_points=points)]).verdict is verdict


def test_halted_and_stalled_runs() -> None:
    criterion = Criterion(metric="halted_runs", scope="campaign", at_most=0)
    halted = changed(clean_runs()[0], health=RunHealth(ranks=2, halted=True))
    stalled = factory.measured("mb8_nw2", 1, how=Outcome.STALLED, cause=Cause.STALL)
    assert finding(criterion).verdict is Verdict.PASS
    assert finding(criterion, runs=[halted]).verdict is Verdict.FAIL
    assert finding(criterion, runs=[*clean_runs(), stalled]).verdict is Verdict.FAIL
    assert finding(criterion, runs=[changed(clean_runs()[0], health=None)]).verdict is Verdict.INCONCLUSIVE


def test_a_run_that_the_platform_failed_does_not_count_and_does_not_pass() -> None:
    verdict = judged(NO_FAILURES, runs=[*clean_runs(), platform_failed("mb8_nw2", 1)])
    found = verdict.findings[0]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.text in SENTENCES
    assert verdict.notes["runs"] == "4 ended ok, 0 failed, 1 failed because of the platform, 0 pending"
    excused = finding(NO_FAILURES, runs=[*clean_runs(), platform_failed("mb8_nw2", 1), factory.oom("mb8_nw2", 2)])
    assert excused.verdict is Verdict.FAIL and excused.text in SENTENCES


@pytest.mark.parametrize(
    ("courses", "verdict"),
    [
        ((LEVEL,), Verdict.PASS),
        ((course(MemoryVerdict.LEAK), course(MemoryVerdict.LEAK, subject="GPU 0", slope_mib_per_min=20.0)), Verdict.FAIL),
        ((course(MemoryVerdict.INCONCLUSIVE),), Verdict.INCONCLUSIVE),
        ((), Verdict.INCONCLUSIVE),
    ],
)
def test_leak_rate_of_every_run(courses: tuple, verdict: Verdict) -> None:
    run = changed(clean_runs()[0], memory=courses)
    found = finding(Criterion(metric="leak_mib_per_min", scope="every_run", at_most=5), runs=[run])
    assert found.verdict is verdict and found.text in SENTENCES


def count_facts(*runs: MeasuredRun) -> JudgedCampaign:
    return judged_campaign(runs, (), factory.ranking(), ())


def test_a_count_spans_from_what_is_known_to_what_may_be() -> None:
    first, second, third, _ = level_runs()
    leaking, unsaid = changed(first, memory=(course(MemoryVerdict.LEAK),)), changed(second, memory=(course(MemoryVerdict.INCONCLUSIVE),))
    (found,) = count_of_campaign("leaking_runs", count_facts(leaking, unsaid, third))
    assert (found.value, found.low, found.high, found.n, found.unit) == (1, 1, 2, 3, "runs")
    assert (found.file, found.window) == ("per_run_metrics.csv", "the window of each run")
    assert found.unsettled in SENTENCES
    (failed,) = count_of_campaign("failed_runs", count_facts(first))
    assert (failed.file, failed.window) == ("run_manifest.tsv", "whole runs")
    assert count_of_campaign("failed_runs", count_facts()) == []


def test_a_group_without_runs_and_one_with() -> None:
    group = factory.summary("mb16_nw2")
    assert count_of_group("failed_runs", group, count_facts()).missing in SENTENCES
    run = clean_runs()[0]
    own = dataclasses.replace(group, group_key=run.attempt.spec.key)
    found = count_of_group("failed_runs", own, count_facts(*clean_runs()))
    assert (found.subject, found.value, found.n) == ("mb16_nw2", 0, 2)
    assert count_text("failed_runs", found) in SENTENCES


def test_reasons_that_differ_only_in_numbers_are_reported_once_with_their_runs() -> None:
    unsaid = [course(MemoryVerdict.INCONCLUSIVE, reason=f"Too few samples: {count}.") for count in (3, 4)]
    runs = [changed(run, memory=(one,)) for run, one in zip(clean_runs(), unsaid, strict=False)]
    (found,) = count_of_campaign("leaking_runs", count_facts(*runs))
    assert found.unsettled in SENTENCES


def test_notes_of_some_runs_are_given_with_their_number() -> None:
    alone = changed(clean_runs()[0], world_size=1)
    together = changed(clean_runs()[1], straggler=straggler(StragglerVerdict.NONE))
    (all_alone,) = count_of_campaign("straggling_runs", count_facts(alone))
    assert all_alone.detail in SENTENCES
    (some,) = count_of_campaign("straggling_runs", count_facts(alone, together))
    assert some.detail in SENTENCES


@pytest.mark.parametrize(
    ("metric", "value", "words"),
    [
        ("failed_runs", 2, "2 of 7 runs failed"),
        ("halted_runs", 1, "1 of 7 runs halted"),
        ("leaking_runs", 1, "1 of 7 runs leaks"),
        ("leaking_runs", 2, "2 of 7 runs leak"),
        ("straggling_runs", 1, "1 of 7 runs has a straggler"),
        ("straggling_runs", 0, "0 of 7 runs have stragglers"),
    ],
)
def test_counts_as_text(metric: str, value: int, words: str) -> None:
    assert count_text(metric, CriterionValue(subject="campaign", value=value, n=7)) == words
    assert count_text(metric, CriterionValue(subject="mb8", value=value, n=7, detail="a, b")) == f"{words} in mb8: a, b"


def test_what_a_failed_run_is_counted_by_is_its_outcome() -> None:
    (found,) = count_of_campaign("failed_runs", count_facts(factory.oom("mb8_nw2", 2)))
    (evidence,) = found.further
    assert (evidence.subject, evidence.name, evidence.value, evidence.window, evidence.n) == (
        "mb8_nw2_r2",
        "cause",
        "cuda_oom",
        "whole run",
        1,
    )
    assert evidence.file == "mb8_nw2_r2/attempt-1/outcome.json"


def test_a_run_that_halted_is_counted_by_its_outcome() -> None:
    (found,) = count_of_campaign("halted_runs", count_facts(changed(clean_runs()[0], health=RunHealth(ranks=2, halted=True))))
    (evidence,) = found.further
    assert (evidence.name, evidence.value, evidence.file) == ("halted", True, "mb16_nw2_r1/attempt-1/outcome.json")


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


def test_a_speed_up_that_stands_under_a_condition_says_so() -> None:
    found = compared(dataclasses.replace(comparison(1.25, 1.21, 1.29), condition="if a step is the same work in both"))
    assert found.verdict is Verdict.PASS and "only if a step is the same work in both" in found.text


def test_the_text_has_baseline_interval_and_method() -> None:
    found = compared(comparison(1.25, 1.21, 1.29))
    assert found.text in SENTENCES
    assert [(one.subject, one.name, one.unit, one.n) for one in found.evidence] == [
        ("mb16_nw2", "", "%", 10),
        ("mb16_nw2", "lower end of the 95 % interval", "%", 10),
        ("mb16_nw2", "upper end of the 95 % interval", "%", 10),
        ("mb16_nw0", "samples_per_s", "samples/s", 5),
        ("mb16_nw2", "samples_per_s", "samples/s", 5),
    ]


def test_what_weakens_a_comparison_is_in_its_text() -> None:
    found = comparison(
        1.25, 1.21, 1.29, unit="steps/s", confidence=0.975, differs=("micro_batch (8 → 16)",), cautions=("1 run of mb16_nw0 failed.",)
    )
    text = compared(found).text
    assert "by steps/s, 97.5 % interval 21 to 29 %" in text
    assert text.endswith("; what differs: micro_batch (8 → 16); 1 run of mb16_nw0 failed).")


def test_several_settings_that_differ_have_made_the_difference_together() -> None:
    found = comparison(1.25, 1.21, 1.29, differs=("zero_stage (1 → 0)", "attn (a → b)"), settings_apart=("zero_stage", "attn"))
    assert states(compared(found).text, "zero_stage (1 → 0), attn (a → b)", "together")
    one = dataclasses.replace(found, settings_apart=("attn",))
    assert "together" not in compared(one).text


def test_a_named_group_is_judged_whichever_is_recommended() -> None:
    """mb16_nw2 is; what it gains is not what mb8_nw2 gains."""
    named = dataclasses.replace(SPEEDUP, group="mb8_nw2")
    against = {KEY: comparison(1.4, 1.35, 1.45), ("mb8_nw2", "mb16_nw0"): comparison(1.1, 1.05, 1.15, b="mb8_nw2")}
    facts = {"comparisons": against, "groups": [*factory.groups()[1:3], factory.summary("mb8_nw2")]}
    found = finding(named, **facts)
    assert found.verdict is Verdict.FAIL and finding(SPEEDUP, **facts).verdict is Verdict.PASS
    assert found.id == "1-speedup_pct-mb8_nw2"
    assert found.text.startswith("speedup_pct of mb8_nw2 against mb16_nw0 at least 20 %: 10 % in mb8_nw2")


def test_a_named_group_without_runs_is_no_pass() -> None:
    named = dataclasses.replace(SPEEDUP, group="mb4")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "there is no group mb4 here: run the plan"),
        ({"pending": ["mb4_r1"]}, "mb4 is pending"),
        ({"left_out": ["mb4_r1"]}, "mb4 is in the plan and was not run"),
    ]
    for how, words in cases:
        found = finding(named, **how)
        assert found.verdict is Verdict.INCONCLUSIVE and words in found.text


def test_a_baseline_elsewhere_is_named_with_its_place() -> None:
    for baseline, file in ((Baseline(campaign="/data/old"), "/data/old/group_summary.csv"), (Baseline(history="v100"), "history:v100")):
        criterion = dataclasses.replace(SPEEDUP, baseline=baseline)
        found = finding(criterion, comparisons={("mb16_nw2", baseline.text): comparison(1.25, 1.21, 1.29, a="/data/old:mb8")})
        assert ("/data/old:mb8", file) in [(one.subject, one.file) for one in found.evidence]
    assert finding(dataclasses.replace(SPEEDUP, baseline=Baseline(campaign="/data/old"))).text in SENTENCES


def test_a_baseline_that_was_left_out_or_is_pending_is_reported() -> None:
    criterion = dataclasses.replace(SPEEDUP, baseline=Baseline(group="mb8"))
    assert finding(criterion, left_out=["mb8_r1"]).text in SENTENCES
    assert finding(criterion, pending=["mb8_r1"]).text in SENTENCES


def test_where_lower_is_better_the_inverse_is_the_speed_up() -> None:
    found = compared(comparison(0.8, 0.79, 0.81, higher_is_better=False))
    assert found.verdict is Verdict.PASS and found.evidence[0].value == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("ends", "verdict"), [((0.98, 1.0), Verdict.PASS), ((0.9, 0.94), Verdict.FAIL), ((0.93, 0.99), Verdict.INCONCLUSIVE)]
)
def test_a_regression_is_what_was_lost(ends: tuple[float, float], verdict: Verdict) -> None:
    criterion = Criterion(metric="regression_pct", scope="every_group", at_most=3, baseline=AGAINST)
    assert compared(comparison(sum(ends) / 2, *ends), criterion).verdict is verdict


def test_no_baseline_comes_with_how_to_name_one_in_all_three_ways() -> None:
    found = finding(dataclasses.replace(SPEEDUP, baseline=None))
    assert found.verdict is Verdict.INCONCLUSIVE
    for form in ("baseline: {group: NAME}", "baseline: {campaign: OUT, group: NAME}", "baseline: {history: NAME}"):
        assert form in found.text


@pytest.mark.parametrize(
    "found",
    [
        "there is no campaign in OUT",
        comparison(1.5, 1.4, 1.6, blocked="mb16_r2 was failed by the platform (io_error); run it again first."),
        comparison(1.5, 1.4, 1.6, ratio=None, reason="No run of mb16_nw0 counts."),
    ],
)
def test_what_could_not_be_compared_is_no_pass(found: Comparison | str) -> None:
    one = compared(found)
    assert one.verdict is Verdict.INCONCLUSIVE and one.text in SENTENCES


OWN = dataclasses.replace(SPEEDUP, baseline=Baseline(group="mb16_nw2"))


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((0.532, 2.05), Verdict.INCONCLUSIVE), ((0.9, 1.1), Verdict.FAIL), ((1.21, 1.3), Verdict.INCONCLUSIVE)],
)
def test_where_the_baseline_ranks_first_the_best_other_decides(ends: tuple[float, float], verdict: Verdict) -> None:
    found = finding(OWN, comparisons={("mb16_nw0", "mb16_nw2"): comparison(sum(ends) / 2, *ends, a="mb16_nw2", b="mb16_nw0")})
    assert found.verdict is verdict
    assert found.text in SENTENCES


def test_a_baseline_without_a_rival_gains_nothing() -> None:
    ranking = factory.ranking()
    alone = dataclasses.replace(ranking, groups=tuple(place for place in ranking.groups if place.group != "mb16_nw0"))
    found = finding(OWN, ranking=alone)
    assert found.verdict is Verdict.FAIL and found.text in SENTENCES
    lost = Criterion(metric="regression_pct", scope="winner", at_most=3, baseline=OWN.baseline)
    assert finding(lost).verdict is Verdict.PASS


def test_a_baseline_without_a_loss_has_none_to_compare() -> None:
    criterion = Criterion(metric="loss_comparable", scope="winner", baseline=OWN.baseline)
    assert finding(criterion).verdict is Verdict.PASS
    silent = [changed(run, last_loss=None) for run in clean_runs()]
    found = finding(criterion, runs=silent)
    assert found.verdict is Verdict.INCONCLUSIVE and found.text in SENTENCES
    broken = finding(criterion, runs=[changed(run, loss_finite=False) for run in clean_runs()])
    assert broken.verdict is Verdict.FAIL and broken.text in SENTENCES


def test_the_baseline_is_not_compared_with_itself() -> None:
    found = finding(dataclasses.replace(SPEEDUP, scope="every_group"), comparisons={KEY: comparison(1.25, 1.21, 1.29)})
    assert found.verdict is Verdict.PASS
    alone = finding(dataclasses.replace(SPEEDUP, scope="every_group"), groups=[factory.summary("mb16_nw0")])
    assert alone.verdict is Verdict.INCONCLUSIVE and alone.text in SENTENCES


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
    findings = judged(SPEEDUP, Criterion(metric="loss_comparable", scope="winner", baseline=AGAINST), comparisons={KEY: found}).findings
    assert (findings[0].verdict, findings[1].verdict) == (faster, comparable)
    assert ("The loss is 0.3 above" in findings[0].text) == (loss is not LossVerdict.COMPARABLE)


@pytest.mark.parametrize(
    ("ends", "verdict"), [((0.85, 0.95), Verdict.PASS), ((0.7, 0.78), Verdict.FAIL), ((0.75, 0.85), Verdict.INCONCLUSIVE)]
)
def test_scaling_is_judged_at_the_largest_number(ends: tuple[float, float], verdict: Verdict) -> None:
    largest = scaling_point(4, Estimate(mean=sum(ends) / 2, low=ends[0], high=ends[1], n=3))
    measured = scaling(scaling_point(1, Estimate(mean=1.0, n=3)), largest)
    found = finding(Criterion(metric="scaling_efficiency", scope="campaign", at_least=0.8), scaling=measured)
    assert found.verdict is verdict and found.text in SENTENCES


def comparison_facts(found: Comparison | str | None = None, **changes: object) -> JudgedCampaign:
    made = judged_campaign(clean_runs(), factory.groups(), factory.ranking(), ())
    return dataclasses.replace(made, **{"comparisons": {} if found is None else {KEY: found}, **changes})  # type: ignore[arg-type]


def test_a_reading_has_both_sides_in_numbers() -> None:
    found = comparison_value(SPEEDUP, factory.summary("mb16_nw2"), comparison_facts(comparison(1.25, 1.21, 1.29)))
    assert found is not None and (found.value, found.low, found.high, found.n, found.repeats) == (25.0, 21.0, 29.0, 10, 5)
    assert (found.unit, found.file, found.window, found.confidence) == ("%", "verdict.json", "Welch on logs, 5 and 5 runs", 0.95)
    few = comparison(1.25, 1.21, 1.29, value_b=Estimate(mean=1250.0, n=2))
    smaller = comparison_value(SPEEDUP, factory.summary("mb16_nw2"), comparison_facts(few))
    assert smaller is not None and smaller.repeats == 2
    assert [(one.subject, one.name, one.value, one.unit, one.file, one.n) for one in found.further] == [
        ("mb16_nw0", "samples_per_s", 1000.0, "samples/s", "group_summary.csv", 5),
        ("mb16_nw2", "samples_per_s", 1250.0, "samples/s", "group_summary.csv", 5),
    ]


def test_a_time_that_came_to_nothing_is_no_division_by_it() -> None:
    zero = comparison(0.5, 0.0, 1.0, higher_is_better=False)
    found = comparison_value(SPEEDUP, factory.summary("mb16_nw2"), comparison_facts(zero))
    assert found is not None and (found.value, found.low) == (100.0, 0.0) and found.high == float("inf")


def test_losses_in_numbers() -> None:
    loss = LossParity(
        verdict=LossVerdict.WORSE, reason="Higher.", difference=0.5, allowed=0.05, loss_a=1.0, loss_b=1.5, last_step=199, n=50
    )
    criterion = Criterion(metric="loss_comparable", scope="winner", baseline=AGAINST)
    found = comparison_value(criterion, factory.summary("mb16_nw2"), comparison_facts(comparison(1.25, 1.21, 1.29, loss=loss)))
    assert found is not None and (found.value, found.window, found.n, found.detail) == (False, "to step 199", 50, "Higher")
    assert [(one.name, one.value, one.n) for one in found.further] == [
        ("loss difference", 0.5, 50),
        ("loss of the baseline", 1.0, 50),
        ("loss of the group", 1.5, 50),
        ("difference allowed", 0.05, 50),
    ]
    bare = dataclasses.replace(loss, last_step=None, difference=None, loss_a=None, loss_b=None, allowed=None)
    other = comparison_value(criterion, factory.summary("mb16_nw2"), comparison_facts(comparison(1.25, 1.21, 1.29, loss=bare)))
    assert other is not None and (other.window, other.further) == ("the steps both have", ())


def test_of_the_others_that_can_win_the_best_is_what_there_is_to_gain() -> None:
    """mb8_nw2 has a figure and cannot win: it is not looked at."""
    criterion = dataclasses.replace(SPEEDUP, baseline=Baseline(group="mb16_nw2"))
    winner = factory.summary("mb16_nw2")
    other = dataclasses.replace(comparison(0.985, 0.96, 1.011), a="mb16_nw2", b="mb16_nw0")
    found = recommended_value(criterion, winner, comparison_facts(comparisons={("mb16_nw0", "mb16_nw2"): other}))
    assert found.subject == "mb16_nw0" and found.unsettled in SENTENCES
    assert found.detail in SENTENCES
    missing = recommended_value(criterion, winner, comparison_facts())
    assert missing.missing in SENTENCES
    lost = recommended_value(dataclasses.replace(criterion, metric="regression_pct"), winner, comparison_facts())
    assert (lost.value, lost.unit, lost.detail, lost.n) == (0.0, "%", "it is the baseline itself", 2)


def test_where_low_is_better_the_lowest_other_is_the_best() -> None:
    places = tuple(
        dataclasses.replace(place, summary=dataclasses.replace(place.summary, group=name), estimate=Estimate(mean=value), can_win=True)
        for place, name, value in zip(factory.ranking().groups, ("mb16_nw2", "mb16_nw0", "mb8_nw2"), (1.0, 3.0, 2.0), strict=True)
    )
    criterion = dataclasses.replace(SPEEDUP, baseline=Baseline(group="mb16_nw2"))
    low = comparison_facts(ranking=factory.ranking(groups=places, higher_is_better=False))
    assert recommended_value(criterion, factory.summary("mb16_nw2"), low).missing in SENTENCES
    high = comparison_facts(ranking=factory.ranking(groups=places))
    assert recommended_value(criterion, factory.summary("mb16_nw2"), high).missing in SENTENCES


@pytest.mark.parametrize(("low", "high"), [(None, 1.3), (1.2, None), (None, None)])
def test_an_interval_with_one_end_is_none(low: float | None, high: float | None) -> None:
    found = comparison_value(SPEEDUP, factory.summary("mb16_nw2"), comparison_facts(comparison(1.25, low, high)))
    assert found is not None
    assert found.missing in SENTENCES


def campaign_facts(**changes: Any) -> JudgedCampaign:
    return dataclasses.replace(judged_campaign(clean_runs(), (), factory.ranking(), ()), **changes)


def read(metric: str, **changes: Any) -> CriterionValue:
    (found,) = campaign_value(Criterion(metric=metric, scope="campaign", at_least=0), campaign_facts(**changes))
    return found


def scaling_point(gpus: int, efficiency: Estimate, runs: int = 3) -> ScalingPoint:
    value = Estimate(mean=100.0 * gpus, n=runs)
    return ScalingPoint(
        gpus=gpus,
        nodes=1,
        group=f"g{gpus}",
        source="out",
        value=value,
        per_gpu=value,
        efficiency=efficiency,
        step_ms=1.0,
        runs=runs,
        weak=True,
    )


def scaling(*points: ScalingPoint, **changes: Any) -> Scaling:
    return Scaling(metric="samples_per_s", unit="samples/s", points=points, **changes)


def drift(**changes: Any) -> SentinelDrift:
    values: dict[str, Any] = {"verdict": StabilityVerdict.STABLE, "reason": "Too few sentinels: 2.", "group": "s", "runs": 5}
    return SentinelDrift(**{**values, **changes})


ONE, FOUR = scaling_point(1, Estimate(mean=1.0, n=3)), scaling_point(4, Estimate(mean=0.8, low=0.7, high=0.9, n=6), runs=2)


def test_nothing_has_ended() -> None:
    assert campaign_value(Criterion(metric="scaling_efficiency", scope="campaign"), campaign_facts(ok=())) == []


def test_efficiency_at_the_largest_number_with_its_interval() -> None:
    found = read("scaling_efficiency", scaling=scaling(FOUR, ONE, family="mb=8"))
    assert (found.subject, found.value, found.low, found.high, found.n, found.repeats, found.confidence) == (
        "g4",
        0.8,
        0.7,
        0.9,
        6,
        2,
        0.95,
    )
    assert found.window == "1 → 4 GPUs, the windows of 3 and 2 runs"
    assert found.detail in SENTENCES
    assert [(one.subject, one.name, one.value, one.unit, one.n) for one in found.further] == [
        ("g1", "total at 1 GPU", 100.0, "samples/s", 3),
        ("g4", "total at 4 GPUs", 400.0, "samples/s", 2),
    ]
    assert read("scaling_efficiency", scaling=scaling(ONE, FOUR)).detail in SENTENCES


def test_scaling_that_was_not_measured_or_has_no_interval() -> None:
    how = ": run the same group on 1, 2, 4 … ranks into one folder"
    assert read("scaling_efficiency").missing == "all groups ran on the same number of ranks" + how
    assert read("scaling_efficiency", scaling=scaling(ONE, reason="One number only.")).missing == "One number only" + how
    assert read("scaling_efficiency", scaling=scaling(ONE)).missing == "all groups ran on the same number of ranks" + how
    bare = scaling_point(4, Estimate(mean=0.8, n=1), runs=1)
    assert read("scaling_efficiency", scaling=scaling(ONE, bare, worker="rank")).missing in SENTENCES


@pytest.mark.parametrize(
    ("low", "high", "level", "ends", "value"),
    [
        (-8.0, -4.0, None, (4.0, 8.0), 6.0),
        (4.0, 8.0, None, (4.0, 8.0), 6.0),
        (-1.0, 13.0, None, (0.0, 13.0), 6.0),
        (-13.0, 1.0, None, (0.0, 13.0), 6.0),
        (0.0, 12.0, None, (0.0, 12.0), 6.0),
        (-1.0, 3.0, -9.0, (9.0, 9.0), 9.0),
        (-8.0, 10.0, 9.0, (9.0, 10.0), 9.0),
    ],
)
def test_how_far_the_platform_moved_whichever_way(
    low: float, high: float, level: float | None, ends: tuple[float, float], value: float
) -> None:
    moved = drift(drift_pct=6.0, drift_low=low, drift_high=high, level_change_pct=level)
    found = read("drift_pct", drift=moved)
    assert (found.low, found.high) == ends and found.value == value
    passes = finding(Criterion(metric="sentinel_drift_pct", scope="campaign", at_most=8, unit="%"), drift=moved).verdict
    assert passes is (Verdict.PASS if ends[1] <= 8 else Verdict.FAIL if ends[0] > 8 else Verdict.INCONCLUSIVE)


def test_drift_as_text_and_numbers() -> None:
    made = drift(drift_pct=-6.0, drift_low=-8.0, drift_high=-4.0, level_change_pct=-5.0, spread_pct=9.0, first_t=60.0, last_t=3660.0)
    found = read("drift_pct", drift=made)
    assert found.detail in SENTENCES
    assert (found.subject, found.unit, found.window, found.n, found.repeats) == ("s", "%", "over 60 min of the campaign", 5, 5)
    assert [(one.name, one.value) for one in drift_evidence(made)] == [
        ("drift", -6.0),
        ("drift, lower end", -8.0),
        ("drift, upper end", -4.0),
        ("change of level", -5.0),
        ("spread", 9.0),
    ]


def test_drift_that_is_not_known() -> None:
    assert read("drift_pct").missing in SENTENCES
    found = read("drift_pct", drift=drift(spread_pct=3.0))
    assert found.missing in SENTENCES and [one.name for one in found.further] == ["spread"]
    assert read("drift_pct", drift=drift(drift_pct=1.0, drift_low=0.5)).missing in SENTENCES
    assert drift_window(None, 3.0) == drift_window(3.0, None) == "over the campaign"
    assert drift_window(0.0, 90.0) == "over 2 min of the campaign"
