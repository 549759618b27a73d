"""Verdicts over criteria: what passes, what fails, and what cannot be said."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.judge.verdict import DEFAULT_CRITERIA, judge
from seatrial.records.criteria_catalog import METRICS
from seatrial.records.measure import Ranking
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.stability import GroupStability, StabilityVerdict
from seatrial.records.verdict import Criterion, Verdict
from tests.unit.judge.campaigns import changed, clean_runs, finding, judged
from tests.unit.report import factory

NO_FAILURES = Criterion(metric="failed_runs", scope="campaign", at_most=0)
LOSS_FALLS = Criterion(metric="loss_falls", scope="every_run")


def test_a_clean_campaign_passes() -> None:
    verdict = judged(NO_FAILURES, LOSS_FALLS)
    assert verdict.verdict is Verdict.PASS
    assert not verdict.partial
    assert [found.text for found in verdict.findings] == [
        "failed_runs at most 0: 0 of 4 runs failed.",
        "loss_falls in every run: so in all 4.",
    ]
    assert verdict.notes == {"runs": "4 ended ok, 0 failed, 0 still to be run"}


def test_a_plan_without_criteria_is_asked_for_no_failed_runs() -> None:
    verdict = judge((), clean_runs(), factory.groups()[1:3], factory.ranking(), ())
    assert [found.criterion for found in verdict.findings] == list(DEFAULT_CRITERIA) == [NO_FAILURES]
    assert verdict.verdict is Verdict.PASS


def test_evidence_names_file_window_and_n() -> None:
    evidence = finding(LOSS_FALLS).evidence
    assert len(evidence) == 4
    assert (evidence[0].subject, evidence[0].value, evidence[0].file, evidence[0].window, evidence[0].n) == (
        "mb16_nw2_r1",
        True,
        "per_run_metrics.csv",
        "steps 20–199",
        178,
    )


def test_no_criteria_means_no_failed_runs() -> None:
    verdict = judged(runs=[*clean_runs(), factory.oom("mb8_nw2", 2)])
    assert verdict.verdict is Verdict.FAIL
    assert verdict.findings[0].text == "failed_runs at most 0: 1 of 5 runs failed: mb8_nw2_r2 (failed: cuda_oom)."


@pytest.mark.parametrize("how", [Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED])
def test_every_bad_end_is_a_failed_run(how: Outcome) -> None:
    bad = factory.measured("mb8_nw2", 1, how=how, cause=Cause.UNKNOWN)
    assert finding(NO_FAILURES, runs=[*clean_runs(), bad]).verdict is Verdict.FAIL


@pytest.mark.parametrize("how", [Outcome.INTERRUPTED, Outcome.SKIPPED, None])
def test_a_run_without_its_own_end_is_still_to_be_run(how: Outcome | None) -> None:
    verdict = judged(NO_FAILURES, runs=[*clean_runs(), factory.measured("mb8_nw2", 1, how=how)])
    assert (verdict.verdict, verdict.partial) == (Verdict.INCONCLUSIVE, True)
    assert verdict.findings[0].text == "failed_runs at most 0: 0 of 4 runs failed, but 1 run is still to be run."
    assert verdict.notes["pending"].startswith("1 run is still to be run: mb8_nw2_r1.")


def test_a_run_named_pending_and_seen_interrupted_counts_once() -> None:
    verdict = judged(NO_FAILURES, runs=[factory.measured("mb8_nw2", 1, how=Outcome.INTERRUPTED)], pending=["mb8_nw2_r1"])
    assert verdict.notes["runs"] == "0 ended ok, 0 failed, 1 still to be run"


def test_old_attempts_do_not_count() -> None:
    old = factory.measured("mb16_nw2", 1, how=Outcome.FAILED, current=False)
    assert judged(NO_FAILURES, runs=[old, *clean_runs()]).verdict is Verdict.PASS


def test_a_campaign_of_which_nothing_ran_never_passes() -> None:
    everything = [Criterion(metric=name, scope=scope, at_most=1e9) for name, entry in METRICS.items() for scope in entry.scopes]
    none = Ranking(metric="samples_per_s", unit="samples/s", higher_is_better=True, groups=())
    verdict = judged(*everything, runs=[], groups=[], ranking=none)
    assert {found.verdict for found in verdict.findings} == {Verdict.INCONCLUSIVE}
    assert verdict.notes["nothing_ran"]


def test_a_failure_outweighs_what_cannot_be_said() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2)]
    verdict = judged(LOSS_FALLS, NO_FAILURES, runs=runs, pending=["x_r1"])
    assert [found.verdict for found in verdict.findings] == [Verdict.INCONCLUSIVE, Verdict.FAIL]
    assert verdict.verdict is Verdict.FAIL


def test_a_rising_loss_is_named_with_its_ends() -> None:
    runs = clean_runs()
    runs[2] = changed(runs[2], loss_falls=False, first_loss=3.0, last_loss=3.5)
    found = finding(LOSS_FALLS, runs=runs)
    assert (found.verdict, found.text) == (Verdict.FAIL, "loss_falls in every run: not so in 1 of 4: mb16_nw0_r1 (3 → 3.5).")


def test_too_few_losses_is_inconclusive_and_says_what_to_do() -> None:
    found = finding(LOSS_FALLS, runs=[changed(clean_runs()[0], loss_falls=None)])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "mb16_nw2_r1 has no loss_falls; its losses are missing, too few, or do not move beyond their noise" in found.text


def test_a_failed_run_cannot_pass_a_criterion_on_every_run() -> None:
    found = finding(LOSS_FALLS, runs=[*clean_runs(), factory.oom("mb8_nw2", 2)])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "mb8_nw2_r2 has no loss_falls to go by (failed: cuda_oom); mend it and run it again" in found.text


def test_a_run_that_was_not_measured_is_missing_data() -> None:
    run = dataclasses.replace(clean_runs()[0], measure=None)
    found = finding(Criterion(metric="startup_s", scope="every_run", at_most=10), runs=[run])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "nothing was measured of mb16_nw2_r1" in found.text


@pytest.mark.parametrize(
    ("criterion", "verdict", "text"),
    [
        (
            Criterion(metric="samples_per_s", scope="winner", at_least=1300),
            Verdict.FAIL,
            "samples_per_s of the winner at least 1,300 samples/s: 1,270 samples/s in mb16_nw2 (95 % interval 1,257 to 1,283, 2 runs).",
        ),
        (
            Criterion(metric="samples_per_s", scope="every_group", at_least=100),
            Verdict.PASS,
            "samples_per_s in every group at least 100 samples/s: so in all 2, the nearest being 1,251 samples/s in mb16_nw0 "
            "(95 % interval 1,226 to 1,276, 2 runs).",
        ),
        (
            Criterion(metric="samples_per_s", scope="every_run", at_least=1260, at_most=1268, reason="the contract"),
            Verdict.FAIL,
            "samples_per_s in every run at least 1,260 samples/s and at most 1,268 samples/s: not so in 2 of 4: "
            "1,270 samples/s in mb16_nw2_r1, 1,251 samples/s in mb16_nw0_r1 (asked for because: the contract).",
        ),
        (
            Criterion(metric="iter_p90_over_p50", scope="every_run", at_most=1.5),
            Verdict.PASS,
            "iter_p90_over_p50 in every run at most 1.5: so in all 4, the nearest being 1.1 in mb16_nw2_r1.",
        ),
        (
            Criterion(metric="unstable_run_ratio", scope="winner", at_most=0),
            Verdict.PASS,
            "unstable_run_ratio of the winner at most 0: 0 in mb16_nw2 (over 2 runs).",
        ),
        (
            Criterion(metric="failed_runs", scope="every_group", at_most=0),
            Verdict.PASS,
            "failed_runs in every group at most 0: so in all 2, the nearest being 0 of 2 runs failed in mb16_nw0.",
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
    group = factory.summary("mb16_nw2", seed={"unstable_run_ratio": value})
    found = finding(Criterion(metric="unstable_run_ratio", scope="every_group", at_most=1), groups=[group])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "timing points" in found.text


def test_a_group_of_which_no_run_ended_ok_cannot_be_judged() -> None:
    group = factory.summary("mb8_nw2", counted=0, failed=2, figures={})
    found = finding(Criterion(metric="samples_per_s", scope="every_group", at_least=1), groups=[group])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "no run of mb8_nw2 ended ok" in found.text


def test_a_metric_a_workload_does_not_report_says_how_to_get_it() -> None:
    run = changed(clean_runs()[0], tokens_per_s=None)
    found = finding(Criterion(metric="tokens_per_s", scope="every_run", at_least=1), runs=[run])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "report tokens in each step, or set `tokens_per_step`" in found.text


def test_no_winner_is_inconclusive_with_the_reason() -> None:
    ranking = factory.ranking(winner=None, reason="Every group has a failed run.")
    found = finding(Criterion(metric="samples_per_s", scope="winner", at_least=1), ranking=ranking)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.text.endswith("there is no winner to look at: Every group has a failed run.")


@pytest.mark.parametrize(
    ("criterion", "words"),
    [
        (Criterion(metric="startup_s", scope="every_run"), "give the criterion `at_most` or `at_least`"),
        (Criterion(metric="sample_per_s", scope="winner", at_least=1), "did you mean 'samples_per_s'"),
        (Criterion(metric="startup_s", scope="campaign", at_most=1), "use every_run, every_group, winner"),
    ],
)
def test_a_criterion_that_cannot_be_judged_says_why(criterion: Criterion, words: str) -> None:
    found = finding(criterion)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert words in found.text


def test_long_lists_are_cut_and_evidence_is_not() -> None:
    run = changed(clean_runs()[0], loss_falls=False)
    found = finding(LOSS_FALLS, runs=[run] * 12)
    assert found.text.endswith("and 7 more.")
    assert len(found.evidence) == 12


def test_findings_of_one_metric_have_ids_of_their_own() -> None:
    ids = [found.id for found in judged(LOSS_FALLS, NO_FAILURES, NO_FAILURES).findings]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("at_least", "verdict"), [(1250, Verdict.PASS), (1257, Verdict.PASS), (1265, Verdict.INCONCLUSIVE), (1283, Verdict.FAIL)]
)
def test_the_interval_of_a_figure_decides(at_least: float, verdict: Verdict) -> None:
    """1,257.3 to 1,282.7."""
    found = finding(Criterion(metric="samples_per_s", scope="winner", at_least=at_least))
    assert found.verdict is verdict
    assert [one.name for one in found.evidence] == ["", "lower end of the 95 % interval", "upper end of the 95 % interval"]
    # 12.7 to either side, 5 from the bound: (12.7 / 5)² × 2 runs are 12.9, so 11 more.
    assert verdict is not Verdict.INCONCLUSIVE or "reaches over the bound; about 11 more repeats would tell" in found.text


def test_one_run_is_judged_by_itself_and_says_so() -> None:
    found = finding(Criterion(metric="samples_per_s", scope="winner", at_least=1265), groups=[factory.summary("mb16_nw2", counted=1)])
    assert found.verdict is Verdict.PASS and "(one run, no interval)" in found.text


@pytest.mark.parametrize(
    ("waiting", "verdict"),
    [([], Verdict.FAIL), (["mb16_nw2_r3"], Verdict.INCONCLUSIVE), (["mb16_nw0_r3"], Verdict.FAIL)],
)
def test_a_count_is_not_too_low_while_runs_are_to_come(waiting: list[str], verdict: Verdict) -> None:
    asked = Criterion(metric="counted_runs", scope="every_group", at_least=3)
    found = finding(asked, groups=[factory.summary("mb16_nw2")], pending=waiting)
    assert found.verdict is verdict
    assert verdict is Verdict.FAIL or "1 run of mb16_nw2 still to be run" in found.text


def test_a_count_that_cannot_be_reached_any_more_is_broken() -> None:
    asked = Criterion(metric="counted_runs", scope="every_group", at_least=5)
    assert finding(asked, groups=[factory.summary("mb16_nw2")], pending=["mb16_nw2_r3"]).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("told", "finite", "verdict"),
    [
        (1, True, Verdict.PASS),
        (2, True, Verdict.INCONCLUSIVE),
        (4, True, Verdict.PASS),
        (None, True, Verdict.PASS),
        (2, False, Verdict.FAIL),
    ],
)
def test_of_several_ranks_that_tell_a_loss_all_must(told: int | None, finite: bool, verdict: Verdict) -> None:
    run = changed(clean_runs()[0], loss_finite=finite, loss_ranks=told, world_size=4)
    found = finding(Criterion(metric="loss_finite", scope="every_run"), runs=[run])
    assert found.verdict is verdict
    assert (f"{told} of 4 ranks told" in found.text) == (told in (1, 2))


def test_a_loss_that_falls_says_how_many_ranks_told() -> None:
    runs = [changed(run, loss_ranks=1) for run in clean_runs()]
    assert finding(LOSS_FALLS, runs=runs).text == "loss_falls in every run: so in all 4 (1 of 2 ranks told)."


def test_runs_that_were_not_chosen_are_told() -> None:
    verdict = judged(NO_FAILURES, left_out=["mb8_nw2_r1", "mb8_nw2_r2", "mb16_nw2_r1"])
    assert verdict.verdict is Verdict.PASS
    assert verdict.notes["left_out"] == "4 of the plan's 6 runs were asked for; left out: mb8_nw2_r1, mb8_nw2_r2."


def test_failures_and_debug_settings_stand_beside_figures() -> None:
    group = factory.summary("mb16_nw2", failed=1, infrastructure_failures=("mb16_nw2_r4 (io_error)",), debug=("CUDA_LAUNCH_BLOCKING=1",))
    text = finding(Criterion(metric="samples_per_s", scope="winner", at_least=1), groups=[group]).text
    assert "1 of 4 runs failed, the platform failed 1 of 4 runs, measured with CUDA_LAUNCH_BLOCKING=1 on" in text
    assert "CUDA_LAUNCH_BLOCKING" not in finding(Criterion(metric="startup_s", scope="winner", at_most=9), groups=[group]).text


def test_ratios_of_a_group_are_told_by_its_numbers() -> None:
    stability = GroupStability(
        verdict=StabilityVerdict.UNSTABLE, reason="Not stable: it varies by 9 % (CV).", runs=3, ratio_median=1.2345678, ratio_max=1.4
    )
    group = factory.summary("mb16_nw2", stability=stability)
    found = finding(Criterion(metric="iter_ratio_median", scope="winner", at_most=1.5), groups=[group])
    assert found.text == "iter_ratio_median of the winner at most 1.5: 1.235 in mb16_nw2 (p90/p50 of 3 runs: median 1.235, highest 1.4)."
