"""Criteria of a plan: units, baselines, ready sets, and one whole message for each that cannot be judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.errors import PlanError
from seatrial.plan.criteria import NO_CRITERIA, criteria_of
from seatrial.plan.load import load_plan, plan_from_mapping
from seatrial.plan.ready_criteria import READY_CRITERIA
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import from_json, to_json
from seatrial.records.verdict import Baseline, Criterion

Resolved = Callable[..., CampaignPlan]
MATRIX: dict[str, Any] = {"name": "x", "workload": "dummy", "axes": {"micro_batch": [8, 16]}}
HEAD = "name: x\nworkload: dummy\naxes: {micro_batch: [8, 16]}\n"


def of(resolved: Resolved, *criteria: dict[str, Any], **more: Any) -> tuple[Criterion, ...]:
    return resolved({**MATRIX, "criteria": list(criteria), **more}).criteria


@pytest.mark.parametrize(
    ("metric", "unit", "bound", "own", "expected"),
    [
        ("startup_s", None, 60, "s", 60.0),
        ("startup_s", "s", 60, "s", 60.0),
        ("startup_s", "ms", 500, "s", 0.5),
        ("startup_s", "min", 2, "s", 120.0),
        ("duration_s", "h", 0.5, "s", 1800.0),
        ("ttft_p99_ms", "s", 2, "ms", 2000.0),
        ("gpu_mem_peak_mib", "GiB", 80, "MiB", 81920.0),
        ("leak_mib_per_min", "MiB/h", 30, "MiB/min", 0.5),
        ("unstable_run_ratio", "%", 5, "ratio", 0.05),
        ("scaling_efficiency", "pct", 90, "ratio", 0.9),
        ("throughput_cv_pct", "ratio", 0.05, "%", 5.0),
        ("sentinel_drift_pct", "pct", 3, "%", 3.0),
        ("failed_runs", "runs", 0, "runs", 0.0),
    ],
)
def test_bounds_are_carried_in_the_metric_s_own_unit(
    metric: str, unit: str | None, bound: float, own: str, expected: float, resolved: Resolved
) -> None:
    asked = {"metric": metric, "at_most": bound, "at_least": bound, **({"unit": unit} if unit else {})}
    (criterion,) = of(resolved, asked)
    assert (criterion.at_most, criterion.at_least, criterion.unit) == (expected, expected, own)


def test_the_unit_of_a_reported_figure_is_kept_as_written(resolved: Resolved) -> None:
    first, second = of(resolved, {"metric": "reported.bleu", "at_least": 20, "unit": "points"}, {"metric": "reported.a.b", "at_most": 1})
    assert (first.metric, first.scope, first.at_least, first.unit) == ("reported.bleu", "every_run", 20.0, "points")
    assert (second.metric, second.unit) == ("reported.a.b", "")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("mb8", Baseline(group="mb8")),
        ({"group": "mb16"}, Baseline(group="mb16")),
        ({"history": "v100-bf16"}, Baseline(history="v100-bf16")),
        ({"campaign": "/data/last", "group": "old"}, Baseline(campaign="/data/last", group="old")),
        ({"campaign": "/data/last"}, Baseline(campaign="/data/last")),
    ],
)
def test_a_baseline_in_each_of_its_forms(written: Any, expected: Baseline, resolved: Resolved) -> None:
    (criterion,) = of(resolved, {"metric": "speedup_pct", "at_least": 8, "baseline": written})
    assert criterion.baseline == expected


def test_another_campaign_s_folder_is_found_from_where_seatrial_is_started(resolved: Resolved, tmp_path: Path) -> None:
    (criterion,) = of(resolved, {"metric": "regression_pct", "at_most": 3, "baseline": {"campaign": "outputs/last"}})
    assert criterion.baseline == Baseline(campaign=str(tmp_path / "outputs/last"))


def test_the_plan_s_baseline_serves_where_it_is_a_group(resolved: Resolved) -> None:
    asked = {"metric": "speedup_pct", "at_least": 8}
    assert of(resolved, asked, baseline="mb8")[0].baseline == Baseline(group="mb8")
    assert of(resolved, asked, baseline="mb9")[0].baseline is None
    assert of(resolved, asked)[0].baseline is None
    assert of(resolved, {"metric": "failed_runs", "at_most": 0}, baseline="mb8")[0].baseline is None


@pytest.mark.parametrize("name", READY_CRITERIA)
def test_a_ready_set_stands_where_it_is_named(name: str, resolved: Resolved) -> None:
    first, *others, last = of(resolved, {"metric": "failed_runs", "at_most": 1}, {"ready": name}, {"metric": "loss_falls"})
    assert (first.ready, last.ready) == ("", "")
    assert [(one.metric, one.at_most, one.at_least, one.reason) for one in others] == [
        (one.metric, one.at_most, one.at_least, one.reason) for one in READY_CRITERIA[name].criteria
    ]
    assert {one.ready for one in others} == {name}


def test_the_baseline_of_a_ready_set_is_for_those_that_compare(resolved: Resolved) -> None:
    criteria = of(resolved, {"ready": "stage1_speedup_4090", "baseline": "mb8"})
    assert {one.metric: one.baseline for one in criteria} == {
        "failed_runs": None,
        "speedup_pct": Baseline(group="mb8"),
        "loss_comparable": Baseline(group="mb8"),
        "loss_finite": None,
    }


def test_criteria_survive_the_plan_s_file(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "criteria": [{"ready": "stage1_regression", "baseline": {"history": "h"}}]})
    assert from_json(CampaignPlan, to_json(plan)) == plan


def test_a_line_is_known_inside_a_short_form(plan_file: Callable[..., Path], complaint: Callable[..., str]) -> None:
    text = f"{HEAD}criteria:\n  - metric: speedup_pct\n    at_least: 8\n    baseline: mb9\n"
    assert complaint(text) == "p.yaml:7: criteria[0].baseline.group: no group of this plan is called 'mb9'; did you mean 'mb8'?"
    assert load_plan(plan_file(text)).criteria is not None


WRONG = {
    "{metric: speedup_pct, at_least: 8, baseline: {group: mb9}}": (
        "criteria[0].baseline.group: no group of this plan is called 'mb9'; did you mean 'mb8'?"
    ),
    "{metric: speedup_pct, at_least: 8, baseline: {campain: x}}": "criteria[0].baseline.campain: unknown key; did you mean 'campaign'?",
    "{metric: speedup_pct, at_least: 8, baseline: {}}": (
        "criteria[0].baseline: names nothing; give a group, a campaign's folder or a pinned row of history"
    ),
    "{metric: speedup_pct, at_least: 8, baseline: ''}": "criteria[0].baseline.group: is empty; name one, or leave the key out",
    "{metric: speedup_pct, at_least: 8, baseline: 3}": (
        "criteria[0].baseline: must be a mapping of keys to values, not 3 (a whole number)"
    ),
    "{metric: speedup_pct, at_least: 8, baseline: {history: a, group: mb8}}": (
        "criteria[0].baseline.history: is a baseline by itself; keep it, or group and campaign"
    ),
    "{metric: startup_s, at_most: 8, baseline: mb8}": (
        "criteria[0].baseline: startup_s is held against a bound, not against a baseline; leave it out "
        "(loss_comparable, speedup_pct, regression_pct compare)"
    ),
    "{metric: startup_s, at_most: 8, unit: samples/s}": (
        "criteria[0].unit: startup_s is in s, not in 'samples/s'; write s (ms, min, h would be converted)"
    ),
    "{metric: samples_per_s, at_least: 8, unit: 1/s}": "criteria[0].unit: samples_per_s is in samples/s, not in '1/s'; write samples/s",
    "{metric: loss_falls, unit: s}": "criteria[0].unit: loss_falls holds or does not, and has no unit; leave it out",
    "{metric: startup_s, at_most: 8, units: s}": "criteria[0].units: unknown key; did you mean 'unit'?",
    "{metric: reported., at_least: 8}": "criteria[0].metric: unknown metric 'reported.'; a figure of your own is reported.NAME",
    "{metric: speedup, at_least: 8}": "criteria[0].metric: unknown metric 'speedup'; did you mean 'speedup_pct'?",
    "{metric: speedup_pct}": "criteria[0]: speedup_pct needs a bound: add at_most or at_least",
    "{at_least: 8}": "criteria[0]: names neither `metric` nor `ready`; `seatrial plan criteria` lists both",
    "{metric: stable, ready: sft_smoke}": "criteria[0]: names both `metric` and `ready`; make two criteria of them",
    "{ready: stage1_stabilty}": "criteria[0].ready: no ready criteria are called 'stage1_stabilty'; did you mean 'stage1_stability'?",
    "{ready: stage1_stability, baseline: mb8}": (
        "criteria[0].baseline: stage1_stability is held against a bound, not against a baseline; leave it out "
        "(loss_comparable, speedup_pct, regression_pct compare)"
    ),
    "{metric: speedup_pct, at_least: 8, baseline: {campaign: ~nobody-of-that-name/x}}": (
        "criteria[0].baseline.campaign: ~nobody-of-that-name/x cannot be found: nobody's home folder is known by that name; "
        "write the whole path"
    ),
    "{ready: sft_smoke, at_most: 0}": (
        "criteria[0].at_most: belongs to the criteria of sft_smoke themselves; leave it out, or write the one you mean with `metric`"
    ),
}


@pytest.mark.parametrize("criterion", WRONG)
def test_a_criterion_that_cannot_be_judged_is_refused(criterion: str, complaint: Callable[..., str]) -> None:
    assert complaint(f"{HEAD}criteria: [{criterion}]\n") == f"p.yaml:4: {WRONG[criterion]}"


def test_a_plan_that_says_nothing_is_held_to_no_failed_runs_and_one_that_says_none_to_nothing(tmp_path: Path) -> None:
    assert criteria_of(plan_from_mapping(MATRIX, "test"), ["mb8"], tmp_path) == NO_CRITERIA
    assert [(one.metric, one.at_most) for one in NO_CRITERIA] == [("failed_runs", 0)]
    assert criteria_of(plan_from_mapping({**MATRIX, "criteria": []}, "test"), ["mb8"], tmp_path) == ()


def test_the_folder_of_another_campaign_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")

    def campaign(written: str) -> str:
        asked = {"metric": "regression_pct", "at_most": 5, "baseline": {"campaign": written}}
        (one,) = criteria_of(plan_from_mapping({**MATRIX, "criteria": [asked]}, "test"), ["mb8"], tmp_path)
        assert one.baseline is not None
        return one.baseline.campaign

    assert campaign("outputs/old") == str(tmp_path / "outputs/old")
    assert campaign("~/old") == "/home/ada/old"
    assert campaign("/data/old") == "/data/old"
    with pytest.raises(PlanError, match=r"baseline.campaign: ~nobody-here/x cannot be found"):
        campaign("~nobody-here/x")
