"""From criteria to a verdict: bounds, intervals, pending runs, sentences."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge import evidence as under_test
from seatrial.judge.evidence import BoundStatus, CriterionValue, JudgedCampaign, failed_by_platform, fault, judged_campaign, listed, missing
from seatrial.judge.verdict import (
    criterion_text,
    met_text,
    needs_bound,
    repeats_wanted,
    undecided_text,
    unit_of,
    unit_text,
    violated_text,
)
from seatrial.records.caution import MAY_HAVE_FAILED, Caution
from seatrial.records.measure import Window
from seatrial.records.outcome import Cause, Fault, Outcome
from seatrial.records.ranking import Ranking
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import METRICS, Baseline, Criterion, Verdict
from tests.facts import states
from tests.unit.analyse.factory import golden
from tests.unit.judge.campaigns import changed, clean_runs, finding, judged, platform_failed
from tests.unit.report import factory

SENTENCES = golden("verdict", Path(__file__).parent)

NO_FAILURES = Criterion(metric="failed_runs", scope="campaign", at_most=0)
LOSS_FALLS = Criterion(metric="loss_falls", scope="every_run")


def test_a_clean_campaign_passes() -> None:
    verdict = judged(NO_FAILURES, LOSS_FALLS)
    assert verdict.verdict is Verdict.PASS
    assert not verdict.partial
    assert len({found.id for found in judged(LOSS_FALLS, NO_FAILURES, NO_FAILURES).findings}) == 3
    assert [found.text for found in verdict.findings] == [
        "failed_runs at most 0: 0 of 4 runs failed.",
        "loss_falls in every run: loss fell in all 4 runs.",
    ]
    assert verdict.notes == {"runs": "4 ended ok, 0 failed, 0 pending"}


def test_no_criteria_means_no_failed_runs() -> None:
    verdict = judged(runs=[*clean_runs(), factory.oom("mb8_nw2", 2)])
    assert verdict.verdict is Verdict.FAIL
    assert verdict.findings[0].text in SENTENCES


@pytest.mark.parametrize("how", [Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED])
def test_every_bad_end_is_a_failed_run(how: Outcome) -> None:
    bad = factory.measured("mb8_nw2", 1, how=how, cause=Cause.UNKNOWN)
    assert finding(NO_FAILURES, runs=[*clean_runs(), bad]).verdict is Verdict.FAIL


@pytest.mark.parametrize("how", [Outcome.INTERRUPTED, Outcome.SKIPPED, None])
def test_a_run_without_its_own_end_is_still_to_be_run(how: Outcome | None) -> None:
    verdict = judged(NO_FAILURES, runs=[*clean_runs(), factory.measured("mb8_nw2", 1, how=how)])
    assert (verdict.verdict, verdict.partial) == (Verdict.INCONCLUSIVE, True)
    assert verdict.findings[0].text in SENTENCES
    assert verdict.notes["pending"].startswith("1 run is pending: mb8_nw2_r1.")


def test_a_campaign_of_which_nothing_ran_never_passes() -> None:
    everything = [Criterion(metric=name, scope=scope, at_most=1e9) for name, entry in METRICS.items() for scope in entry.scopes]
    none = Ranking(metric="samples_per_s", unit="samples/s", higher_is_better=True, groups=())
    verdict = judged(*everything, runs=[], groups=[], ranking=none)
    assert {found.verdict for found in verdict.findings} == {Verdict.INCONCLUSIVE}
    assert verdict.notes["nothing_ran"]


def test_a_failure_outweighs_what_is_inconclusive() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2)]
    verdict = judged(LOSS_FALLS, NO_FAILURES, runs=runs, pending=["x_r1"])
    assert [found.verdict for found in verdict.findings] == [Verdict.INCONCLUSIVE, Verdict.FAIL]
    assert verdict.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("criterion", "verdict", "text"),
    [
        (
            Criterion(metric="samples_per_s", scope="winner", at_least=1300),
            Verdict.FAIL,
            "samples_per_s of the recommended group at least 1,300 samples/s: 1,270 samples/s in mb16_nw2 "
            "(95 % interval 1,257 to 1,283, 2 runs).",
        ),
        (
            Criterion(metric="samples_per_s", scope="every_group", at_least=100),
            Verdict.PASS,
            "samples_per_s in every group at least 100 samples/s: met in all 2, nearest 1,251 samples/s in mb16_nw0 "
            "(95 % interval 1,226 to 1,276, 2 runs).",
        ),
        (
            Criterion(metric="samples_per_s", scope="every_run", at_least=1260, at_most=1268, reason="the contract"),
            Verdict.FAIL,
            "samples_per_s in every run at least 1,260 samples/s and at most 1,268 samples/s: violated in 2 of 4: "
            "1,270 samples/s in mb16_nw2_r1, 1,251 samples/s in mb16_nw0_r1 (reason: the contract).",
        ),
        (
            Criterion(metric="iter_p90_over_p50", scope="every_run", at_most=1.5),
            Verdict.PASS,
            "iter_p90_over_p50 in every run at most 1.5: met in all 4, nearest 1.1 in mb16_nw2_r1.",
        ),
        (
            Criterion(metric="unstable_run_ratio", scope="winner", at_most=0),
            Verdict.PASS,
            "unstable_run_ratio of the recommended group at most 0: 0 in mb16_nw2 (over 2 runs).",
        ),
        (
            Criterion(metric="failed_runs", scope="every_group", at_most=0),
            Verdict.PASS,
            "failed_runs in every group at most 0: met in all 2, nearest 0 of 2 runs failed in mb16_nw0.",
        ),
    ],
)
def test_bounds_and_scopes(criterion: Criterion, verdict: Verdict, text: str) -> None:
    found = finding(criterion)
    assert (found.verdict, found.text) == (verdict, text)


def test_a_bound_that_is_met_exactly_holds() -> None:
    assert finding(Criterion(metric="startup_s", scope="every_run", at_most=4.25)).verdict is Verdict.PASS


@pytest.mark.parametrize("value", [None, "mixed", float("nan")])
def test_no_number_is_no_pass(value: object) -> None:
    group = factory.summary("mb16_nw2", stage1={"unstable_run_ratio": value})
    found = finding(Criterion(metric="unstable_run_ratio", scope="every_group", at_most=1), groups=[group])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.text in SENTENCES


@pytest.mark.parametrize(
    "criterion",
    [
        Criterion(metric="startup_s", scope="every_run"),
        Criterion(metric="sample_per_s", scope="winner", at_least=1),
        Criterion(metric="startup_s", scope="campaign", at_most=1),
    ],
)
def test_a_criterion_that_cannot_be_judged_gives_the_reason(criterion: Criterion) -> None:
    found = finding(criterion)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.text in SENTENCES


@pytest.mark.parametrize(
    ("at_least", "verdict"), [(1250, Verdict.PASS), (1257, Verdict.PASS), (1265, Verdict.INCONCLUSIVE), (1283, Verdict.FAIL)]
)
def test_the_interval_of_a_figure_decides(at_least: float, verdict: Verdict) -> None:
    """1,257.3 to 1,282.7."""
    found = finding(Criterion(metric="samples_per_s", scope="winner", at_least=at_least))
    assert found.verdict is verdict
    assert [one.name for one in found.evidence] == ["", "lower end of the 95 % interval", "upper end of the 95 % interval"]
    # 12.7 to either side, 5 from the bound: (12.7 / 5)² × 2 runs are 12.9, so 11 more.
    assert verdict is not Verdict.INCONCLUSIVE or "includes the bound; about 11 more repeats would decide it" in found.text


@pytest.mark.parametrize(
    ("at_least", "pending", "verdict"),
    [
        (3, [], Verdict.FAIL),
        (3, ["mb16_nw2_r3"], Verdict.INCONCLUSIVE),
        (3, ["mb16_nw0_r3"], Verdict.FAIL),
        (5, ["mb16_nw2_r3"], Verdict.FAIL),
    ],
)
def test_a_count_is_not_too_low_while_pending_runs_may_reach_it(at_least: int, pending: list[str], verdict: Verdict) -> None:
    criterion = Criterion(metric="counted_runs", scope="every_group", at_least=at_least)
    found = finding(criterion, groups=[factory.summary("mb16_nw2")], pending=pending)
    assert found.verdict is verdict
    assert verdict is Verdict.FAIL or "1 pending run of mb16_nw2" in found.text


def test_runs_that_were_not_chosen_are_reported() -> None:
    verdict = judged(NO_FAILURES, left_out=["mb8_nw2_r1", "mb8_nw2_r2", "mb16_nw2_r1"])
    assert verdict.verdict is Verdict.PASS
    assert states(verdict.notes["left_out"], "4 of", "6 runs", "mb8_nw2_r1, mb8_nw2_r2")


def criterion(metric: str = "samples_per_s", scope: str = "every_run", **changes: Any) -> Criterion:
    return Criterion(metric=metric, scope=scope, **changes)


def reading(value: object, subject: str = "a_r1", **changes: Any) -> CriterionValue:
    return CriterionValue(subject=subject, value=value, **{"unit": "samples/s", **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (criterion(at_least=1200), "samples_per_s in every run at least 1,200 samples/s"),
        (criterion(at_least=1, at_most=2.5), "samples_per_s in every run at least 1 samples/s and at most 2.5 samples/s"),
        (criterion(), None),
        (criterion("loss_falls"), "loss_falls in every run"),
        (criterion("failed_runs", "campaign", at_most=0), "failed_runs at most 0"),
        (criterion("wall_p90_over_p50", "winner", at_most=1.5), "wall_p90_over_p50 of the recommended group at most 1.5"),
        (
            criterion("speedup_pct", "every_group", at_least=20, baseline=Baseline(campaign="OUT")),
            "speedup_pct in every group against the recommended group of OUT at least 20 %",
        ),
        (criterion("speedup_pct", "winner", at_least=20, baseline=Baseline()), "speedup_pct of the recommended group at least 20 %"),
        (criterion("no_such_metric"), None),
    ],
)
def test_a_criterion_as_text(made: Criterion, text: str | None) -> None:
    assert criterion_text(made) == text


def test_units_that_are_not_shown() -> None:
    assert (unit_of(criterion("failed_runs", "campaign")), unit_of(criterion("wall_p90_over_p50")), unit_of(criterion("no_such"))) == (
        "",
        "",
        "",
    )
    assert unit_of(criterion(unit="samples/min")) == "samples/min"
    assert (unit_text(""), unit_text("runs"), unit_text("ms")) == ("", "", " ms")
    assert needs_bound(criterion("no_such")) and not needs_bound(criterion("loss_falls"))


def test_one_that_is_broken_and_several() -> None:
    one = reading(1270.4, "mb16", detail="2 runs")
    assert violated_text(criterion(at_least=2000), [one], 1) in SENTENCES
    falls = [reading(False, f"r{at}", detail=f"{at} → 9", unit="") for at in range(2)]
    assert violated_text(criterion("loss_falls"), falls, 8) in SENTENCES
    worse = reading(30.0, "mb16", unit="%", violation="its loss is worse.")
    assert violated_text(criterion("speedup_pct", "winner", at_least=20), [worse], 1) in SENTENCES


def test_where_all_hold_the_nearest_to_the_bound_is_reported() -> None:
    several = [reading(value, f"r{value}") for value in (100, 300, 200)]
    assert met_text(criterion(at_least=50), several) in SENTENCES
    assert met_text(criterion(at_most=500), several) in SENTENCES
    assert met_text(criterion(at_least=50), several[:1]) in SENTENCES
    noted = [reading(True, "a", note="1 of 2 ranks reported"), reading(True, "b", note="1 of 2 ranks reported"), reading(True, "c")]
    assert met_text(criterion("loss_falls"), noted) in SENTENCES
    assert met_text(criterion("loss_falls"), noted[2:] * 2) in SENTENCES


def test_reasons_that_differ_only_in_numbers_are_reported_once() -> None:
    gaps = [CriterionValue(subject=f"r{at}", missing=f"r{at} has {at} samples") for at in (1, 2, 3)]
    other = CriterionValue(subject="x", missing="x told nothing")
    assert undecided_text(criterion(), [*gaps, other]) in SENTENCES


def test_why_a_value_is_open() -> None:
    unsettled = reading(5, unsettled="2 runs of it pending", low=5, high=7)
    assert undecided_text(criterion(at_least=6), [unsettled]) in SENTENCES
    over = reading(110, low=90, high=130, confidence=0.95, repeats=3)
    assert undecided_text(criterion(at_least=100), [over]) in SENTENCES
    inside = reading(110, low=105, high=130, confidence=0.95, repeats=3, unsettled="but runs are missing")
    assert undecided_text(criterion(at_least=100), [inside]) in SENTENCES


@pytest.mark.parametrize(
    ("value", "repeats", "words"),
    [
        # Half the interval is 20; its width goes with the root of the runs.
        (110, 3, "about 9 more repeats would decide it"),
        (120, 3, "about 1 more repeat would decide it"),
        (119, 1, "about 1 more repeat would decide it"),
        (104, 5, "about 120 more repeats would be needed"),
        (104, 4, "about 96 more repeats would decide it"),
        (100, 3, "the value lies on the bound, repeats will not decide it"),
        (100.1, 3, "the value lies on the bound, repeats will not decide it"),
        (110, None, "more repeats may decide it"),
        (None, 3, "more repeats may decide it"),
    ],
)
def test_how_many_repeats_would_settle_it(value: float | None, repeats: int | None, words: str) -> None:
    made = None if value is None else float(value)
    low, high = (None, None) if made is None else (made - 20, made + 20)
    assert repeats_wanted(reading(made, low=low, high=high, repeats=repeats), criterion(at_least=100)) == words


def test_the_nearer_of_two_bounds_counts_and_of_a_comparison_both_sides_repeat() -> None:
    made = reading(110.0, low=90.0, high=130.0, repeats=3)
    assert repeats_wanted(made, criterion(at_least=100, at_most=115)) in SENTENCES
    assert repeats_wanted(made, criterion(at_least=100, at_most=500)) in SENTENCES
    assert repeats_wanted(made, criterion("speedup_pct", "winner", at_least=100)) in SENTENCES
    assert repeats_wanted(made, criterion("scaling_efficiency", "campaign", at_least=100)) in SENTENCES


def sorted_runs(*runs: MeasuredRun, pending: tuple[str, ...] = (), groups: tuple = ()) -> JudgedCampaign:
    return judged_campaign(runs, groups, factory.ranking(), pending)


def names(runs: tuple[MeasuredRun, ...]) -> list[str]:
    return [run.attempt.spec.run for run in runs]


def test_every_end_has_its_place() -> None:
    waiting = [
        factory.measured(group, repeat, how=how)
        for group, repeat, how in (("mb16_nw0", 1, Outcome.INTERRUPTED), ("mb16_nw0", 2, Outcome.SKIPPED), ("mb16_nw2", 2, None))
    ]
    found = sorted_runs(
        clean_runs()[0], factory.oom("mb8_nw2", 1), platform_failed("mb8_nw2", 2), *waiting, pending=("x_r1", "mb16_nw0_r1")
    )
    assert (names(found.ok), names(found.failed), names(found.platform_failed)) == (["mb16_nw2_r1"], ["mb8_nw2_r1"], ["mb8_nw2_r2"])
    assert found.pending == ("x_r1", "mb16_nw0_r1", "mb16_nw0_r2", "mb16_nw2_r2")
    assert names(found.finished) == ["mb16_nw2_r1", "mb8_nw2_r1", "mb8_nw2_r2"]


def test_old_attempts_are_left_out() -> None:
    run = clean_runs()[0]
    old = dataclasses.replace(run, attempt=dataclasses.replace(run.attempt, current=False))
    assert sorted_runs(old).finished == () and sorted_runs(old).pending == ()


def test_a_run_set_aside_is_not_judged_unless_it_failed() -> None:
    first, second = clean_runs()[:2]
    aside = factory.summary("mb16_nw2", set_aside_runs=1)
    aside = dataclasses.replace(aside, counted=("mb16_nw2_r1",), group_key=first.attempt.spec.key)
    assert names(sorted_runs(first, second, groups=(aside,)).ok) == ["mb16_nw2_r1"]
    whole = dataclasses.replace(aside, set_aside_runs=0)
    assert names(sorted_runs(first, second, groups=(whole,)).ok) == ["mb16_nw2_r1", "mb16_nw2_r2"]


def test_runs_of_a_group_and_those_to_come_by_their_names() -> None:
    group = factory.summary("mb16_nw2")
    facts = dataclasses.replace(
        sorted_runs(*clean_runs(), groups=(group,), pending=("mb16_nw2_r3", "mb16_nw2_rest_r1", "mb8_r1")), left_out=("mb8_nw2_r1",)
    )
    assert names(facts.runs_of(facts.groups[0])) == ["mb16_nw2_r1", "mb16_nw2_r2"]
    assert facts.pending_of("mb16_nw2") == facts.pending_of("mb16_nw2~a1b2") == ("mb16_nw2_r3",)
    assert facts.left_out_of("mb8_nw2") == ("mb8_nw2_r1",) and facts.left_out_of("mb8") == ()
    assert facts.group("mb16_nw2") is facts.groups[0] and facts.group("x") is None is facts.group(None)


def test_sentinels_are_no_groups_and_what_the_platform_failed_is_reported() -> None:
    sentinel = factory.summary("mb16_nw2", mode="sentinel")
    failed = factory.summary("mb8_nw2", infrastructure_failures=("mb8_nw2_r2 (io_error)",))
    facts = sorted_runs(groups=(sentinel, failed))
    assert [group.group for group in facts.groups] == ["mb8_nw2"] and facts.platform_failures == ("mb8_nw2_r2 (io_error)",)


def test_whose_fault_an_end_was() -> None:
    assert failed_by_platform(platform_failed("mb8_nw2", 1)) and not failed_by_platform(clean_runs()[0])
    assert fault(factory.measured("mb8_nw2", 1, how=None)) is Fault.UNKNOWN
    assert fault(factory.measured("mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.IO_ERROR)) is Fault.INFRASTRUCTURE


def standing(value: object = 5.0, *, at_least: float | None = None, at_most: float | None = None, **changes: Any) -> BoundStatus:
    criterion = Criterion(metric="m", scope="campaign", at_least=at_least, at_most=at_most)
    return CriterionValue(subject="a", value=value, **changes).status(criterion, needs_bound=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "at_least", "at_most", "how"),
    [
        (5.0, 6.0, 5.0, None, BoundStatus.MET),
        (4.9, 6.0, 5.0, None, BoundStatus.UNDECIDED),
        (3.0, 5.0, 5.0, None, BoundStatus.UNDECIDED),
        (3.0, 4.9, 5.0, None, BoundStatus.VIOLATED),
        (5.0, 6.0, None, 6.0, BoundStatus.MET),
        (5.0, 6.1, None, 6.0, BoundStatus.UNDECIDED),
        (6.0, 7.0, None, 6.0, BoundStatus.UNDECIDED),
        (6.1, 7.0, None, 6.0, BoundStatus.VIOLATED),
        (5.0, 6.0, 5.0, 6.0, BoundStatus.MET),
        (None, None, 5.0, 5.0, BoundStatus.MET),
        (None, None, 5.1, None, BoundStatus.VIOLATED),
        (None, 9.0, 5.0, None, BoundStatus.MET),
        (1.0, None, 5.0, None, BoundStatus.UNDECIDED),
    ],
)
def test_the_whole_span_must_hold_or_be_broken(
    low: float | None, high: float | None, at_least: float | None, at_most: float | None, how: BoundStatus
) -> None:
    assert standing(low=low, high=high, at_least=at_least, at_most=at_most) is how


def test_what_may_still_change_is_never_a_pass_but_may_be_broken() -> None:
    assert standing(at_least=1, unsettled="runs are missing") is BoundStatus.UNDECIDED
    assert standing(at_least=9, unsettled="runs are missing") is BoundStatus.VIOLATED
    assert standing(at_least=1, violation="its loss is worse") is BoundStatus.VIOLATED
    assert standing(None, at_least=1, missing="nothing was told", violation="so") is BoundStatus.UNDECIDED


@pytest.mark.parametrize(
    ("value", "unsettled", "how"),
    [
        (True, "", BoundStatus.MET),
        (False, "", BoundStatus.VIOLATED),
        (True, "why", BoundStatus.UNDECIDED),
        (False, "why", BoundStatus.VIOLATED),
    ],
)
def test_a_truth_needs_no_bound(value: bool, unsettled: str, how: BoundStatus) -> None:
    criterion = Criterion(metric="loss_falls", scope="every_run")
    assert CriterionValue(subject="a", value=value, unsettled=unsettled).status(criterion, needs_bound=False) is how


def test_evidence_of_a_value_has_the_ends_of_its_interval() -> None:
    made = CriterionValue(subject="a", value=5.0, unit="%", file="f.csv", window="w", n=3, low=4.0, high=6.0, confidence=0.975)
    assert [(one.name, one.value, one.unit, one.file, one.window, one.n) for one in made.evidence()] == [
        ("", 5.0, "%", "f.csv", "w", 3),
        ("lower end of the 97.5 % interval", 4.0, "%", "f.csv", "w", 3),
        ("upper end of the 97.5 % interval", 6.0, "%", "f.csv", "w", 3),
    ]
    assert len(CriterionValue(subject="a", value=5, low=4, high=6).evidence()) == 1, "the ends of a count are no interval's"


def test_what_is_missing_has_a_place_too() -> None:
    (gap,) = missing("a", "why", "f.csv").evidence()
    assert (gap.subject, gap.value, gap.file, gap.window, gap.n) == ("a", None, "f.csv", "no value", 0)
    assert missing("a", "why").evidence() == ()


def test_texts_of_counts_windows_and_intervals() -> None:
    assert (
        under_test.without_numbers("took 1,200.5 ms of 3 steps")
        == under_test.without_numbers("took 7 ms of 40 steps")
        == "took # ms of # steps"
    )
    assert (under_test.interval_text(), under_test.interval_text(0.995)) == ("95 % interval", "99.5 % interval")
    assert under_test.window_text(None) == "whole run"
    names = [f"r{at}" for at in range(9)]
    assert (listed(names[:5]), listed(names)) == ("r0, r1, r2, r3, r4", "r0, r1, r2, r3, r4 and 4 more")
    assert under_test.window_text(Window(first_step=2, last_step=9, n=8, warmup_steps=2)) == "steps 2–9"
    assert under_test.debug_text(("A=1", "B=2")) == ["measured with A=1, B=2 on"] and under_test.debug_text(()) == []


def test_what_a_group_lost() -> None:
    group = factory.summary("mb8_nw2", counted=2, failed=1, infrastructure_failures=("mb8_nw2_r4 (io_error)",), set_aside_runs=1)
    assert under_test.failures_text(group) == ["1 of 5 runs failed", "1 of 5 runs failed because of the platform"]
    assert under_test.failures_text(factory.summary("mb16_nw2")) == []


def test_a_run_as_text_and_files() -> None:
    run = clean_runs()[0]
    assert under_test.run_window(run) == ("steps 20–199", 178)
    assert under_test.run_window(changed(run, window=None)) == ("whole run", None)
    assert under_test.how_it_ended(factory.measured("mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.IO_ERROR)) == "failed: io_error"
    assert under_test.how_it_ended(factory.measured("mb8_nw2", 1, how=None)) == "not ended"
    assert under_test.attempt_file(run, "/anywhere/launcher.log") == "mb16_nw2_r1/attempt-1/launcher.log"
    assert under_test.outcome_file(run) == "mb16_nw2_r1/attempt-1/outcome.json"


def suspect(**changes: Any) -> list[MeasuredRun]:
    """The first run, changed, beside three that are clean."""
    first, *others = clean_runs()
    return [dataclasses.replace(first, **changes), *others]


def test_a_run_that_may_have_failed_passes_no_criterion() -> None:
    assert judged().verdict is Verdict.PASS
    first = clean_runs()[0]
    caution = Caution(kind=MAY_HAVE_FAILED, subject=first.attempt.spec.run, text="r1 exited 0 after a traceback: probably failed.")
    found = judged(runs=suspect(attempt=dataclasses.replace(first.attempt, cautions=(caution,))))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "exited 0 after a traceback: probably failed" in found.findings[0].text


@pytest.mark.parametrize(
    ("last_step", "asked", "verdict"),
    [
        (12, None, Verdict.INCONCLUSIVE),
        (12, 1000, Verdict.INCONCLUSIVE),
        (None, 1000, Verdict.PASS),
    ],
)
def test_missing_steps_pass_no_criterion(last_step: int | None, asked: int | None, verdict: Verdict) -> None:
    def with_steps(run: MeasuredRun, step: int | None) -> MeasuredRun:
        run = changed(run, last_step=step, steps_done=step, loss_course=None)
        return dataclasses.replace(run, attempt=dataclasses.replace(run.attempt, spec=dataclasses.replace(run.attempt.spec, steps=asked)))

    first, *others = clean_runs()
    runs = [with_steps(first, last_step), *(with_steps(run, 999) for run in others)]
    assert judged(runs=runs).verdict is verdict
