"""Values of runs and groups that criteria look at."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge.criteria import HOW_TO_GET, evaluate, how_to_get, look_up
from seatrial.judge.evidence import CriterionValue, JudgedCampaign, judged_campaign
from seatrial.records.measure import (
    DebugSetting,
    Estimate,
    GroupStability,
    GroupSummary,
    ReportedFigure,
    RunMeasure,
    StabilityVerdict,
    StragglerVerdict,
    Window,
)
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import METRICS, Baseline, Criterion, Finding, Verdict
from tests.facts import states
from tests.unit.analyse.factory import golden
from tests.unit.judge.campaigns import changed, clean_runs, finding, platform_failed, straggler
from tests.unit.report import factory

SENTENCES = golden("criteria", Path(__file__).parent)


def facts(*runs: MeasuredRun, groups: tuple[GroupSummary, ...] | None = None, **changes: Any) -> JudgedCampaign:
    made = judged_campaign(runs or clean_runs(), factory.groups() if groups is None else groups, factory.ranking(), ())
    return dataclasses.replace(made, **changes)


def values(metric: str, scope: str, of: JudgedCampaign | None = None, **changes: Any) -> list[CriterionValue]:
    return evaluate(Criterion(metric=metric, scope=scope, **changes), of or facts())


def one(metric: str, scope: str, of: JudgedCampaign | None = None, **changes: Any) -> CriterionValue:
    (found,) = values(metric, scope, of, **changes)
    return found


def of_run(metric: str, **measure: Any) -> CriterionValue:
    return one(metric, "every_run", facts(changed(clean_runs()[0], **measure)))


def of_group(metric: str, **group: Any) -> CriterionValue:
    return one(metric, "every_group", facts(groups=(factory.summary("mb16_nw2", **group),)))


def test_names_and_scopes_that_are_not_in_the_catalogue() -> None:
    assert one("sample_per_s", "every_run").missing in SENTENCES
    assert one("scaling_efficiency", "every_run").missing in SENTENCES


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
    assert "number of ranks is unknown" in of_run("samples_per_s_per_gpu", ranks_known=False).missing


def test_a_figure_that_is_not_there_comes_with_how_to_get_it() -> None:
    assert of_run("tokens_per_s", tokens_per_s=None).missing in SENTENCES
    restless = Window(first_step=0, last_step=9, n=10, warmup_steps=0, steady=False, reason="it rose")
    assert of_run("samples_per_s", window=restless).missing in SENTENCES
    assert of_run("startup_s", window=restless).value == 4.25
    assert of_run("samples_per_s", window=None).value == 1270.0
    bare = one("startup_s", "every_run", facts(dataclasses.replace(clean_runs()[0], measure=None)))
    assert bare.missing in SENTENCES


def test_runs_that_failed_have_no_figure_that_could_pass() -> None:
    found = values("samples_per_s", "every_run", facts(factory.oom("mb8_nw2", 2), platform_failed("mb8_nw2", 1)))
    ours, platforms = (reading.missing for reading in found)
    assert states(ours, "mb8_nw2_r2", "samples_per_s", "cuda_oom", "fix it")
    assert states(platforms, "mb8_nw2_r1", "samples_per_s", "io_error", "platform") and "fix it" not in platforms


@pytest.mark.parametrize(
    ("metric", "ranks", "note"),
    [
        ("loss_falls", 1, "1 of 2 ranks reported"),
        ("loss_falls", None, ""),
        ("loss_finite", 1, "1 of 2 ranks reported"),
        ("loss_finite", 2, ""),
        ("startup_s", 1, ""),
    ],
)
def test_losses_that_not_every_rank_reports(metric: str, ranks: int | None, note: str) -> None:
    found = of_run(metric, loss_ranks=ranks, loss_finite=True)
    assert (found.note, found.unsettled) == (note, "")


def test_of_several_ranks_a_silent_one_may_have_a_loss_that_is_no_number() -> None:
    found = of_run("loss_finite", loss_ranks=2, world_size=4, loss_finite=True)
    assert (found.note, found.unsettled) == ("2 of 4 ranks reported", "let every rank report its loss (`rank_scope: all`)")
    assert of_run("loss_falls", loss_ranks=2, world_size=4).unsettled == ""


def test_details_beside_a_value() -> None:
    assert of_run("loss_falls", last_loss=None).detail in SENTENCES
    assert of_run("straggler_score", straggler=straggler(StragglerVerdict.NAMED)).detail in SENTENCES
    none = of_run("straggler_score", straggler=straggler(StragglerVerdict.NONE))
    assert (none.value, none.detail) == (0.0, "")
    debug = DebugSetting(name="NCCL_DEBUG", value="INFO", source="launcher.log", why="It logs.")
    assert of_run("samples_per_s", debug=(debug, debug)).detail in SENTENCES
    assert of_run("startup_s", debug=(debug,)).detail == ""


def test_a_group_s_figure_and_its_interval() -> None:
    figures = {"samples_per_s": Estimate(mean=1000.0, low=900.0, high=1100.0, n=3)}
    found = of_group("samples_per_s", figures=figures, window_n=30, failed=1)
    assert (found.value, found.low, found.high, found.confidence, found.repeats, found.n) == (1000.0, 900.0, 1100.0, 0.95, 3, 2)
    assert found.window == "30 steps in the windows of 2 runs"
    assert found.detail in SENTENCES
    shared = of_group("samples_per_s_per_gpu", figures=figures)
    assert (shared.value, shared.low, shared.high) == (500.0, 450.0, 550.0)
    bare = of_group("samples_per_s", figures={"samples_per_s": Estimate(mean=1000.0, n=1)}, window_n=0, debug=("A=1",))
    assert (bare.low, bare.confidence, bare.window) == (None, None, "2 runs, whole")
    assert bare.detail in SENTENCES
    assert of_group("samples_per_s", figures={"samples_per_s": Estimate(mean=1.0, n=2)}).detail in SENTENCES


def test_groups_without_a_figure() -> None:
    assert of_group("samples_per_s", counted=0).missing in SENTENCES
    assert of_group("samples_per_s", unsteady_runs=1).missing in SENTENCES
    assert of_group("samples_per_s", figures={}).missing in SENTENCES
    assert of_group("stable").missing in SENTENCES


def test_steadiness_is_reported_by_what_it_rests_on() -> None:
    stability = GroupStability(
        verdict=StabilityVerdict.STABLE, reason="Stable: it is. Why: so; and so.", runs=2, ratio_median=1.2, ratio_max=1.5, cv_pct=3.0
    )
    assert of_group("iter_ratio_max", stability=stability).detail in SENTENCES
    assert of_group("stable", stability=stability).detail in SENTENCES
    assert of_group("throughput_cv_pct", stability=stability).detail in SENTENCES


def test_only_groups_beside_the_baseline_are_compared() -> None:
    criterion = {"at_least": 1, "baseline": Baseline(group="mb16_nw2")}
    alone = one("speedup_pct", "every_group", facts(groups=(factory.summary("mb16_nw2"),)), **criterion)
    assert alone.missing in SENTENCES
    assert values("speedup_pct", "every_group", facts(groups=()), **criterion) == []


def test_without_a_winner_there_is_none_to_look_at() -> None:
    nobody = facts(ranking=factory.ranking(recommended=None, reason=""))
    assert one("samples_per_s", "winner", nobody).missing in SENTENCES
    assert values("samples_per_s", "winner", dataclasses.replace(nobody, ok=(), failed=(), platform_failed=())) == []


def test_a_count_that_is_to_reach_a_bound_may_still_do_so() -> None:
    waiting = facts(pending=("mb16_nw2_r3", "mb16_nw2_r4", "x_r1"), groups=(factory.summary("mb16_nw2"),))
    found = one("counted_runs", "every_group", waiting, at_least=3)
    assert (found.value, found.high, found.unsettled) == (2, 4, "2 pending runs of mb16_nw2")
    assert one("counted_runs", "every_group", waiting, at_most=3).high is None
    campaign = one("failed_runs", "campaign", waiting, at_least=1)
    assert (campaign.value, campaign.high, campaign.unsettled) == (0, 3, "3 pending runs")
    assert one("failed_runs", "campaign", at_least=1).unsettled == ""


GROUP = factory.summary(
    "mb16_nw2", stability=GroupStability(verdict=StabilityVerdict.UNSTABLE, reason="p90/p50 is 2.6 in mb16_nw2_r1.", runs=2, cv_pct=1.5)
)
RUN = factory.measure(1000.0)


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (GROUP, "figures.samples_per_s", 1270.0),
        (GROUP, "stage1.unstable_run_ratio", 0.0),
        (GROUP, "stability.cv_pct", 1.5),
        (GROUP, "stability.verdict", False),
        (GROUP, "stability.ratio_max", None),
        (GROUP, "figures.nothing", None),
        (RUN, "samples_per_s", 1000.0),
        (RUN, "straggler.score", None),
        (RUN, "stage1.rank_iter_spread_p90_ms", None),
        (RUN, "source", None),
        (RUN, None, None),
    ],
)
def test_fields(record: GroupSummary | RunMeasure, field: str | None, value: object) -> None:
    assert look_up(record, field).value == value


def test_every_field_of_the_catalogue_is_one_that_records_have() -> None:
    for name, entry in METRICS.items():
        for record, field in ((RunMeasure, entry.run_field), (GroupSummary, entry.group_field)):
            assert field is None or field.split(".")[0] in record.__dataclass_fields__, name


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        (StabilityVerdict.STABLE, Verdict.PASS),
        (StabilityVerdict.UNSTABLE, Verdict.FAIL),
        (StabilityVerdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
    ],
)
def test_stability_as_a_criterion(how: StabilityVerdict, verdict: Verdict) -> None:
    group = factory.summary("mb16_nw2", stability=GroupStability(verdict=how, reason="Because of this.", runs=2))
    found = finding(Criterion(metric="stable", scope="every_group"), groups=[group])
    assert found.verdict is verdict and found.text in SENTENCES


ROUGE = Criterion(metric="reported.rouge1", scope="every_run", at_least=43)
LATENCY = Criterion(metric="reported.wait", scope="every_run", at_most=20, unit="ms")


def reported_finding(criterion: Criterion, value: float, **changes: Any) -> Finding:
    figure = ReportedFigure(value=value, **{"n": 13, "file": "events_rank0.jsonl", **changes})
    run = changed(clean_runs()[0], reported={criterion.metric.removeprefix("reported."): figure})
    return finding(criterion, runs=[run])


def test_a_figure_that_the_run_reported() -> None:
    found = reported_finding(ROUGE, 44.0)
    assert (found.verdict, found.evidence[0].n, found.evidence[0].file) == (Verdict.PASS, 13, "mb16_nw2_r1/attempt-1/events_rank0.jsonl")
    assert found.text in SENTENCES
    assert reported_finding(ROUGE, 44.0, unit="points").text in SENTENCES
    absent = finding(ROUGE)
    assert absent.verdict is Verdict.INCONCLUSIVE and absent.text in SENTENCES


@pytest.mark.parametrize(
    ("value", "unit", "verdict"),
    [
        (1.5, "s", Verdict.FAIL),
        (0.015, "s", Verdict.PASS),
        (15.0, "ms", Verdict.PASS),
        (15.0, "widgets", Verdict.INCONCLUSIVE),
        (15.0, "", Verdict.INCONCLUSIVE),
        (math.nan, "ms", Verdict.INCONCLUSIVE),
    ],
)
def test_units_are_converted_or_refused(value: float, unit: str, verdict: Verdict) -> None:
    found = reported_finding(LATENCY, value, unit=unit)
    assert found.verdict is verdict and found.text in SENTENCES


def test_a_name_of_the_catalogue_has_its_unit() -> None:
    criterion = Criterion(metric="ttft_p99_ms", scope="every_run", at_most=20, unit="ms")
    assert reported_finding(criterion, 15.0).verdict is Verdict.PASS
    assert reported_finding(criterion, 15.0, unit="s").verdict is Verdict.FAIL


def test_a_rank_is_named_where_there_are_several_and_a_figure_without_a_file_has_the_table_s() -> None:
    for ranks, detail in ((2, "rank 3's"), (1, "")):
        figure = ReportedFigure(value=44.0, n=1, file="events_rank3.jsonl")
        assert of_run("reported.rouge1", reported={"rouge1": figure}, world_size=ranks).detail == detail
    found = of_run("reported.rouge1", reported={"rouge1": ReportedFigure(value=44.0, n=7, file="", unit="ratio")})
    assert (found.file, found.unit, found.window, found.n) == ("per_run_metrics.csv", "", "as the run reported it", 7)


def test_every_metric_has_a_way_and_the_table_knows_no_other_names() -> None:
    assert set(HOW_TO_GET) <= set(METRICS)
    assert how_to_get("gpu_mem_peak_mib") in SENTENCES
    assert how_to_get("steps_per_s") in SENTENCES
