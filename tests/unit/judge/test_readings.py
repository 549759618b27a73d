"""From a criterion to the values it is judged on."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.judge.facts import Facts, sort_runs
from seatrial.judge.reading import Reading
from seatrial.judge.readings import read
from seatrial.records.health import DebugSetting, StragglerVerdict
from seatrial.records.measure import Estimate, GroupSummary, Window
from seatrial.records.results import MeasuredRun
from seatrial.records.stability import GroupStability, StabilityVerdict
from seatrial.records.verdict import Baseline, Criterion
from tests.unit.judge.campaigns import changed, clean_runs, spoilt, straggler
from tests.unit.report import factory


def facts(*runs: MeasuredRun, groups: tuple[GroupSummary, ...] | None = None, **changes: Any) -> Facts:
    made = sort_runs(runs or clean_runs(), factory.groups() if groups is None else groups, factory.ranking(), ())
    return dataclasses.replace(made, **changes)


def values(metric: str, scope: str, of: Facts | None = None, **changes: Any) -> list[Reading]:
    return read(Criterion(metric=metric, scope=scope, **changes), of or facts())


def one(metric: str, scope: str, of: Facts | None = None, **changes: Any) -> Reading:
    (found,) = values(metric, scope, of, **changes)
    return found


def of_run(metric: str, **measure: Any) -> Reading:
    return one(metric, "every_run", facts(changed(clean_runs()[0], **measure)))


def of_group(metric: str, **group: Any) -> Reading:
    return one(metric, "every_group", facts(groups=(factory.summary("mb16_nw2", **group),)))


def test_names_and_scopes_that_are_not_in_the_catalogue() -> None:
    assert one("sample_per_s", "every_run").missing.startswith("the metric 'sample_per_s' is not measured; did you mean 'samples_per_s'")
    assert (
        one("scaling_efficiency", "every_run").missing == "scaling_efficiency cannot be looked at with the scope 'every_run'; use campaign"
    )


def test_a_run_s_figure_with_its_window() -> None:
    found = of_run("samples_per_s")
    assert (found.subject, found.value, found.unit, found.file, found.window, found.n) == (
        "mb16_nw2_r1",
        1270.0,
        "samples/s",
        "per_run_metrics.csv",
        "steps 20–199",
        178,
    )
    assert of_run("samples_per_s_per_gpu").value == 635.0
    assert of_run("wall_p90_over_p50").unit == ""


def test_a_figure_that_is_not_there_says_how_to_get_it() -> None:
    assert of_run("tokens_per_s", tokens_per_s=None).missing.startswith("mb16_nw2_r1 has no tokens_per_s; report tokens in each step")
    restless = Window(first_step=0, last_step=9, n=10, warmup_steps=0, steady=False, reason="it rose")
    assert of_run("samples_per_s", window=restless).missing == "mb16_nw2_r1 found no steady state (it rose)"
    assert of_run("startup_s", window=restless).value == 4.25
    assert of_run("samples_per_s", window=None).value == 1270.0
    bare = one("startup_s", "every_run", facts(dataclasses.replace(clean_runs()[0], measure=None)))
    assert bare.missing.startswith("nothing was measured of mb16_nw2_r1; let it report steps")


def test_runs_that_failed_have_no_figure_that_could_pass() -> None:
    found = values("samples_per_s", "every_run", facts(factory.oom("mb8_nw2", 2), spoilt("mb8_nw2", 1)))
    assert [reading.missing for reading in found] == [
        "mb8_nw2_r2 has no samples_per_s to go by (failed: cuda_oom); mend it and run it again",
        "mb8_nw2_r1 has no samples_per_s to go by (failed: io_error); the platform failed it: run it again on a healthy one",
    ]


@pytest.mark.parametrize(
    ("metric", "ranks", "beside", "unsettled"),
    [
        ("loss_falls", 1, "1 of 2 ranks told", False),
        ("loss_falls", 2, "", False),
        ("loss_falls", None, "", False),
        ("loss_finite", 1, "1 of 2 ranks told", False),
        ("loss_finite", 2, "", False),
        ("startup_s", 1, "", False),
    ],
)
def test_losses_that_not_every_rank_tells(metric: str, ranks: int | None, beside: str, unsettled: bool) -> None:
    found = of_run(metric, loss_ranks=ranks, loss_finite=True)
    assert (found.beside, bool(found.unsettled)) == (beside, unsettled)


def test_of_several_ranks_a_silent_one_may_have_a_loss_that_is_no_number() -> None:
    found = of_run("loss_finite", loss_ranks=2, world_size=4, loss_finite=True)
    assert (found.beside, found.unsettled) == ("2 of 4 ranks told", "let every rank tell its loss (`rank_scope: all`)")
    assert of_run("loss_falls", loss_ranks=2, world_size=4).unsettled == ""


def test_details_beside_a_value() -> None:
    assert of_run("loss_falls", last_loss=None).detail == "5.5 → ?"
    assert of_run("straggler_score", straggler=straggler(StragglerVerdict.NAMED)).detail == "rank 1"
    none = of_run("straggler_score", straggler=straggler(StragglerVerdict.NONE))
    assert (none.value, none.detail) == (0.0, "")
    debug = DebugSetting(name="NCCL_DEBUG", value="INFO", source="launcher.log", why="It logs.")
    assert of_run("samples_per_s", debug=(debug, debug)).detail == "measured with NCCL_DEBUG=INFO on"
    assert of_run("startup_s", debug=(debug,)).detail == ""


def test_a_group_s_figure_and_its_interval() -> None:
    figures = {"samples_per_s": Estimate(mean=1000.0, low=900.0, high=1100.0, n=3)}
    found = of_group("samples_per_s", figures=figures, window_n=30, failed=1)
    assert (found.value, found.low, found.high, found.confidence, found.repeats, found.n) == (1000.0, 900.0, 1100.0, 0.95, 3, 2)
    assert found.window == "30 steps in the windows of 2 runs"
    assert found.detail == "95 % interval 900 to 1,100, 3 runs, 1 of 3 runs failed"
    shared = of_group("samples_per_s_per_gpu", figures=figures)
    assert (shared.value, shared.low, shared.high) == (500.0, 450.0, 550.0)
    bare = of_group("samples_per_s", figures={"samples_per_s": Estimate(mean=1000.0, n=1)}, window_n=0, debug=("A=1",))
    assert (bare.low, bare.confidence, bare.window) == (None, None, "2 runs, whole")
    assert bare.detail == "one run, no interval, measured with A=1 on"
    assert of_group("samples_per_s", figures={"samples_per_s": Estimate(mean=1.0, n=2)}).detail == "2 runs, no interval"


def test_groups_without_a_figure() -> None:
    assert of_group("samples_per_s", counted=0).missing == "no run of mb16_nw2 ended ok; mend it and run it again"
    assert of_group("samples_per_s", unsteady_runs=1).missing == "1 of 2 runs of mb16_nw2 found no steady state; run more steps"
    assert of_group("samples_per_s", figures={}).missing.startswith("mb16_nw2 has no samples_per_s; report samples in each step")
    assert of_group("stable").missing.startswith("mb16_nw2: set repeats to 3 or more")


def test_steadiness_is_told_by_what_it_rests_on() -> None:
    stability = GroupStability(
        verdict=StabilityVerdict.STABLE, reason="Stable: it is. Why: so; and so.", runs=2, ratio_median=1.2, ratio_max=1.5, cv_pct=3.0
    )
    assert of_group("iter_ratio_max", stability=stability).detail == "p90/p50 of 2 runs: median 1.2, highest 1.5"
    assert of_group("stable", stability=stability).detail == "Stable: it is"
    assert of_group("throughput_cv_pct", stability=stability).detail == "over 2 runs"


def test_only_groups_beside_the_baseline_are_compared() -> None:
    criterion = {"at_least": 1, "baseline": Baseline(group="mb16_nw2")}
    alone = one("speedup_pct", "every_group", facts(groups=(factory.summary("mb16_nw2"),)), **criterion)
    assert alone.missing == "there is no group but the baseline itself; add one to compare with it"
    assert values("speedup_pct", "every_group", facts(groups=()), **criterion) == []


def test_without_a_winner_there_is_none_to_look_at() -> None:
    nobody = facts(ranking=factory.ranking(winner=None, reason=""))
    assert one("samples_per_s", "winner", nobody).missing == "there is no winner to look at: no group could be ranked"
    assert values("samples_per_s", "winner", dataclasses.replace(nobody, ok=(), failed=(), spoilt=())) == []


def test_a_count_that_is_to_reach_a_bound_may_still_do_so() -> None:
    waiting = facts(pending=("mb16_nw2_r3", "mb16_nw2_r4", "x_r1"), groups=(factory.summary("mb16_nw2"),))
    found = one("counted_runs", "every_group", waiting, at_least=3)
    assert (found.value, found.high, found.unsettled) == (2, 4, "2 runs of mb16_nw2 still to be run")
    assert one("counted_runs", "every_group", waiting, at_most=3).high is None
    campaign = one("failed_runs", "campaign", waiting, at_least=1)
    assert (campaign.value, campaign.high, campaign.unsettled) == (0, 3, "3 runs of it still to be run")
    assert one("failed_runs", "campaign", at_least=1).unsettled == ""
