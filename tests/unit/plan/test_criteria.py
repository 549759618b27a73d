"""Criteria of a plan: presets, checks, units, baselines, and those that cannot pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.main import run_command
from seatrial.collect.steps import read_steps
from seatrial.core.errors import PlanError, UsageError
from seatrial.core.text import UNIT_KINDS
from seatrial.history import rows
from seatrial.plan.criteria import (
    CRITERIA_PRESETS,
    DEFAULT_CRITERIA,
    converted_bound,
    criteria_of,
    impossible_criteria,
    units_for,
)
from seatrial.plan.load import load_plan, plan_from_mapping
from seatrial.plan.reference import criteria_listing, criterion_line
from seatrial.plan.resolve import resolve_plan
from seatrial.probe import Probe
from seatrial.records.columns import GROUP_STAGE1, PER_RUN_STAGE1, TELEMETRY_FIGURES
from seatrial.records.measure import GroupStability, GroupSummary, RunMeasure
from seatrial.records.plan import CampaignPlan
from seatrial.records.verdict import CAMPAIGN, EVERY_RUN, METRICS, REPORTED, SCOPES, Baseline, Criterion, metric_entry
from tests.facts import states
from tests.unit.analyse.factory import side
from tests.unit.collect.on_disk import write_attempt

Resolved = Callable[..., CampaignPlan]
MATRIX: dict[str, Any] = {"name": "x", "workload": "dummy", "axes": {"micro_batch": [8, 16]}}
HEAD = "name: x\nworkload: dummy\naxes: {micro_batch: [8, 16]}\n"


def of(resolved: Resolved, *criteria: dict[str, Any], **more: Any) -> tuple[Criterion, ...]:
    return resolved({**MATRIX, "criteria": list(criteria), **more}).criteria


@pytest.mark.parametrize(
    ("metric", "unit", "bound", "own", "expected"),
    [
        ("startup_s", None, 60, "s", 60.0),
        ("startup_s", "ms", 500, "s", 0.5),
        ("startup_s", "min", 2, "s", 120.0),
        ("ttft_p99_ms", "s", 2, "ms", 2000.0),
        ("gpu_mem_peak_mib", "GiB", 80, "MiB", 81920.0),
        ("leak_mib_per_min", "MiB/h", 30, "MiB/min", 0.5),
        ("unstable_run_ratio", "%", 5, "ratio", 0.05),
        ("scaling_efficiency", "pct", 90, "ratio", 0.9),
        ("throughput_cv_pct", "ratio", 0.05, "%", 5.0),
    ],
)
def test_bounds_are_carried_in_the_metric_s_own_unit(
    metric: str, unit: str | None, bound: float, own: str, expected: float, resolved: Resolved
) -> None:
    criterion_keys = {"metric": metric, "at_most": bound, "at_least": bound, **({"unit": unit} if unit else {})}
    (criterion,) = of(resolved, criterion_keys)
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


def test_the_plan_s_baseline_serves_where_it_is_a_group(resolved: Resolved) -> None:
    criterion_keys = {"metric": "speedup_pct", "at_least": 8}
    assert of(resolved, criterion_keys, baseline="mb8")[0].baseline == Baseline(group="mb8")
    assert of(resolved, criterion_keys, baseline="mb9")[0].baseline is None
    assert of(resolved, criterion_keys)[0].baseline is None
    assert of(resolved, {"metric": "failed_runs", "at_most": 0}, baseline="mb8")[0].baseline is None


@pytest.mark.parametrize("name", CRITERIA_PRESETS)
def test_a_ready_set_is_expanded_in_place(name: str, resolved: Resolved) -> None:
    first, *others, last = of(resolved, {"metric": "failed_runs", "at_most": 1}, {"ready": name}, {"metric": "loss_falls"})
    assert (first.ready, last.ready) == ("", "")
    assert [(one.metric, one.at_most, one.at_least, one.reason) for one in others] == [
        (one.metric, one.at_most, one.at_least, one.reason) for one in CRITERIA_PRESETS[name].criteria
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


def test_a_named_group_stands_for_the_recommended_one_and_for_no_other_scope(resolved: Resolved) -> None:
    criteria = of(resolved, {"ready": "stage1_speedup_4090", "group": "mb16", "baseline": "mb8"}, {"metric": "stable", "group": "mb8"})
    assert [(one.metric, one.scope, one.group) for one in criteria] == [
        ("failed_runs", "campaign", ""),
        ("speedup_pct", "winner", "mb16"),
        ("loss_comparable", "winner", "mb16"),
        ("loss_finite", "every_run", ""),
        ("stable", "winner", "mb8"),
    ]


def test_a_line_is_known_inside_a_short_form(plan_file: Callable[..., Path], message_of: Callable[..., str]) -> None:
    text = f"{HEAD}criteria:\n  - metric: speedup_pct\n    at_least: 8\n    baseline: mb9\n"
    assert states(message_of(text), "p.yaml:7:", "criteria[0].baseline.group", "'mb9'", "'mb8'")
    assert load_plan(plan_file(text)).criteria is not None


WRONG = {
    "{metric: speedup_pct, at_least: 8, baseline: {group: mb9}}": "criteria[0].baseline.group: no group of this plan is called 'mb9'; did",
    "{metric: speedup_pct, at_least: 8, baseline: {}}": "criteria[0].baseline: names nothing",
    "{metric: speedup_pct, at_least: 8, baseline: ''}": "criteria[0].baseline.group: is empty",
    "{metric: speedup_pct, at_least: 8, baseline: {history: a, group: mb8}}": "criteria[0].baseline.history: is a baseline by itself",
    "{metric: speedup_pct, at_least: 8, group: mb9, baseline: mb8}": "criteria[0].group: no group of this plan is called 'mb9'; did you",
    "{metric: speedup_pct, at_least: 8, group: mb8, baseline: mb8}": "criteria[0].group: is 'mb8', which is the baseline too",
    "{metric: speedup_pct, at_least: 8, group: mb8, scope: every_group}": "criteria[0].group: goes with scope winner only; leave scope out",
    "{metric: steps_done, at_least: 8, group: mb8}": "criteria[0].group: steps_done is not of a single group; leave it out",
    "{ready: stage1_stability, group: mb8}": "criteria[0].group: no criterion of stage1_stability judges a single group; leave it out",
    "{metric: startup_s, at_most: 8, baseline: mb8}": "criteria[0].baseline: startup_s is compared with a bound, not with a baseline",
    "{metric: startup_s, at_most: 8, unit: samples/s}": "criteria[0].unit: startup_s is in s, not in 'samples/s'",
    "{metric: samples_per_s, at_least: 8, unit: 1/s}": "criteria[0].unit: samples_per_s is in samples/s, not in '1/s'",
    "{metric: loss_falls, unit: s}": "criteria[0].unit: loss_falls has no unit",
    "{metric: reported., at_least: 8}": "criteria[0].metric: unknown metric 'reported.'",
    "{metric: speedup, at_least: 8}": "criteria[0].metric: unknown metric 'speedup'; did you mean 'speedup_pct'?",
    "{metric: speedup_pct}": "criteria[0]: speedup_pct needs a bound: add at_most or at_least",
    "{at_least: 8}": "criteria[0]: names neither `metric` nor `ready`",
    "{metric: stable, ready: sft_smoke}": "criteria[0]: names both `metric` and `ready`",
    "{ready: stage1_stabilty}": "criteria[0].ready: no criteria preset is called 'stage1_stabilty'; did you mean 'stage1_stability'?",
    "{ready: stage1_stability, baseline: mb8}": "criteria[0].baseline: stage1_stability is compared with a bound, not with a baseline",
    "{ready: sft_smoke, at_most: 0}": "criteria[0].at_most: belongs to the criteria of sft_smoke themselves",
}


@pytest.mark.parametrize("criterion", WRONG)
def test_a_criterion_that_cannot_be_judged_is_refused(criterion: str, message_of: Callable[..., str]) -> None:
    assert message_of(f"{HEAD}criteria: [{criterion}]\n").startswith(f"p.yaml:4: {WRONG[criterion]}")


def test_a_plan_that_says_nothing_is_held_to_no_failed_runs_and_one_that_says_none_to_nothing(tmp_path: Path) -> None:
    assert criteria_of(plan_from_mapping(MATRIX, "test"), ["mb8"], tmp_path) == DEFAULT_CRITERIA
    assert [(one.metric, one.at_most) for one in DEFAULT_CRITERIA] == [("failed_runs", 0)]
    assert criteria_of(plan_from_mapping({**MATRIX, "criteria": []}, "test"), ["mb8"], tmp_path) == ()


def test_the_folder_of_another_campaign_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")

    def campaign(written: str) -> str:
        criterion_keys = {"metric": "regression_pct", "at_most": 5, "baseline": {"campaign": written}}
        (one,) = criteria_of(plan_from_mapping({**MATRIX, "criteria": [criterion_keys]}, "test"), ["mb8"], tmp_path)
        assert one.baseline is not None
        return one.baseline.campaign

    assert campaign("outputs/old") == str(tmp_path / "outputs/old")
    assert campaign("~/old") == "/home/ada/old"
    assert campaign("/data/old") == "/data/old"
    with pytest.raises(PlanError, match=r"baseline.campaign: ~nobody-here/x cannot be found"):
        campaign("~nobody-here/x")


def test_units_of_one_kind_convert_and_others_are_their_own() -> None:
    assert units_for("s") == ("s", "ms", "min", "h")
    assert units_for("runs") == ("runs",)
    assert converted_bound(2.0, "min", "s") == 120.0
    assert converted_bound(2.0, None, "s") == 2.0
    assert converted_bound(None, "min", "s") is None


@pytest.mark.parametrize("name", CRITERIA_PRESETS)
def test_each_gate_fits_its_metric_and_has_a_reason(name: str) -> None:
    ready = CRITERIA_PRESETS[name]
    assert len({(gate.metric, gate.scope) for gate in ready.criteria}) == len(ready.criteria)
    for gate in ready.criteria:
        entry = metric_entry(gate.metric)
        assert entry is not None
        assert gate.scope in entry.scopes and gate.unit == entry.unit and gate.reason
        assert ((gate.at_most is None) != (gate.at_least is None)) == entry.needs_bound
    assert ready.compares == any(METRICS[gate.metric].compares for gate in ready.criteria if gate.metric in METRICS)


NUMBERS = {
    "stage1_stability": {
        "counted_runs": 3,
        "iter_ratio_median": 1.5,
        "iter_ratio_max": 2.5,
        "jittering_runs": 0,
        "turn_taking_runs": 0,
        "throughput_cv_pct": 5,
    },
    "stage1_speedup_v100": {"speedup_pct": 20, "loss_comparable": None, "loss_finite": None},
    "stage1_speedup_4090": {"speedup_pct": 8, "loss_comparable": None, "loss_finite": None},
    "stage1_speedup_h100": {"speedup_pct": 8, "loss_comparable": None, "loss_finite": None},
    "stage1_stable_4090": {"speedup_pct": 15, "stable": None},
    "stage1_flash": {"speedup_pct": 3, "loss_comparable": None},
    "stage1_z0_over_z1": {"speedup_pct": 30, "loss_comparable": None},
    "stage1_regression": {"regression_pct": 3},
    "sparse_lm_throughput": {"tokens_per_s": 39},
    "sparse_lm_no_halt": {
        "halted_runs": 0,
        "leaking_runs": 0,
        "steps_done": 1200,
        "reported.gate_entropy_mean": 0.5,
        "reported.gate_max_mean": 0.9,
    },
    "sparse_lm_smoke": {"loss_fall_pct": 1, "tokens_per_s": 10, "loss_finite": None},
    "sft_smoke": {"failed_runs": 0, "steps_done": 10, "loss_finite": None},
    "sft_scaling": {"failed_runs": 0, "scaling_efficiency": 0.8, "startup_s": 300, "loss_finite": None},
    "inference_server": {"ttft_p99_ms": 2000, "tpot_p99_ms": 100},
    "inference_interactive": {"ttft_p99_ms": 500, "tpot_p99_ms": 30},
    "inference_accuracy": {"reported.rouge1": 38.391408, "reported.rougeLsum": 35.43507, "reported.gen_len": 7350879.6},
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_are_those_of_the_procedure(name: str) -> None:
    bounds = {gate.metric: gate.at_most if gate.at_most is not None else gate.at_least for gate in CRITERIA_PRESETS[name].criteria}
    assert {metric: bounds[metric] for metric in NUMBERS[name]} == pytest.approx(NUMBERS[name])


def test_every_figure_that_a_set_asks_of_the_workload_can_be_reported(tmp_path: Path) -> None:
    gates = {gate.metric for ready in CRITERIA_PRESETS.values() for gate in ready.criteria}
    fields = {entry.run_field for entry in map(metric_entry, gates) if entry is not None and entry.run_field}
    names = {field.removeprefix(REPORTED) for field in fields if field.startswith(REPORTED)}
    assert {"rougeL", "rougeLsum", "gate_max_mean", "ttft_p99_ms"} <= names
    attempt = write_attempt(tmp_path)
    with Probe(attempt.folder, run=attempt.spec.run, attempt=1, rank=0, world_size=1, heartbeat_s=None) as probe:
        for name in names:
            probe.figure(name, 1.0)
    assert set(read_steps(attempt).reported) == names


def test_the_listing_has_all_of_them() -> None:
    text = criteria_listing()
    assert all(f"\n  {name}" in text for name in (*METRICS, *CRITERIA_PRESETS, "reported.NAME"))


def test_the_listing_of_one() -> None:
    named, *criteria = criteria_listing("stage1_regression").splitlines()
    assert states(named, "stage1_regression", "[needs a baseline]") and all(line.startswith("      ") for line in criteria)
    assert [line.strip().partition(":")[0] for line in criteria] == [
        "failed_runs at most 0 runs (campaign)",
        "regression_pct at most 3 % (every_group)",
        "loss_comparable holds (winner)",
        "loss_finite holds (every_run)",
    ]
    # Each has its reason.
    assert all(line.partition(": ")[2] for line in (named, *criteria))
    first, *_ = criteria_listing("loss_comparable").splitlines()
    assert states(first, "loss_comparable", "(winner, every_group)", "no bound", "baseline")
    with pytest.raises(UsageError, match=r"'speedup'.*'speedup_pct'"):
        criteria_listing("speedup")


def test_a_criterion_in_one_line() -> None:
    baseline = Baseline(campaign="/out", group="mb8")
    gate = Criterion(metric="speedup_pct", scope="winner", at_least=8, at_most=900, unit="%", baseline=baseline, ready="a_set")
    assert states(criterion_line(gate), "speedup_pct", "at least 8 %", "at most 900 %", "(winner)", "/out:mb8", "a_set")
    assert criterion_line(Criterion(metric="stable", scope="every_group")) == "stable holds (every_group)"
    assert criterion_line(Criterion(metric="stable", scope="winner", group="mb8")) == "stable holds (mb8)"


RUN_FIELDS = {field.name for field in dataclasses.fields(RunMeasure)}
GROUP_FIELDS = {field.name for field in dataclasses.fields(GroupSummary)}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_reads_fields_that_are_there(name: str) -> None:
    entry = METRICS[name]
    assert entry.default_scope in entry.scopes
    assert set(entry.scopes) <= set(SCOPES)
    assert (EVERY_RUN in entry.scopes) == (entry.run_field is not None)
    # What is compared, or counted over a campaign, is no field of a group.
    assert entry.group_field is not None or entry.compares or CAMPAIGN in entry.scopes or entry.scopes == (EVERY_RUN,)
    assert entry.run_field is None or entry.run_field.split(".")[0] in RUN_FIELDS
    assert entry.group_field is None or entry.group_field.split(".")[0] in GROUP_FIELDS


KEYS = {
    "stage1": {*PER_RUN_STAGE1, *GROUP_STAGE1},
    "telemetry": set(TELEMETRY_FIGURES),
    "figures": {
        "samples_per_s",
        "tokens_per_s",
        "steps_per_s",
        "wall_p50_ms",
        "wall_p90_over_p50",
        "startup_s",
        "duration_s",
    },
    "stability": {field.name for field in dataclasses.fields(GroupStability)},
    "straggler": {"score"},
    "reported": set(METRICS),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_dotted_field_names_a_key_that_is_written(name: str) -> None:
    for dotted in (METRICS[name].run_field, METRICS[name].group_field):
        field, dot, key = (dotted or "").partition(".")
        assert not dot or key in KEYS[field], dotted


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_has_a_unit_unless_it_is_true_or_false(name: str) -> None:
    entry = METRICS[name]
    assert bool(entry.unit) == entry.needs_bound
    # A name that ends in its unit is in it.
    ending = {"ms": "ms", "s": "s", "pct": "%", "mib": "MiB", "min": "MiB/min"}.get(name.rpartition("_")[2])
    assert ending is None or entry.unit in (ending, "samples/s", "tokens/s", "steps/s")
    assert name.rpartition("_")[2] != "ratio" or entry.unit == "ratio"


def test_a_figure_of_the_workload_s_own_is_a_metric_too() -> None:
    entry = metric_entry("reported.rouge1")
    assert entry is not None and (entry.run_field, entry.scopes, entry.unit) == ("reported.rouge1", (EVERY_RUN,), "")
    assert metric_entry("reported.") is None and metric_entry("rouge1") is None
    assert metric_entry("failed_runs") is METRICS["failed_runs"]


def test_no_unit_is_of_two_kinds() -> None:
    units = [unit for kind in UNIT_KINDS for unit in kind]
    assert len(units) == len(set(units))


TWO_GROUPS: dict[str, Any] = {"name": "p", "workload": "dummy", "axes": {"micro_batch": [8, 16]}, "repeats": 2}


def problems(tmp_path: Path, *criteria: dict[str, Any], pinned: tuple[str, ...] = (), **more: Any) -> list[str]:
    plan = plan_from_mapping({**TWO_GROUPS, **more, "criteria": list(criteria)}, "here")
    return list(impossible_criteria(resolve_plan(plan, source="here", cwd=tmp_path), pinned))


GAIN = {"metric": "speedup_pct", "at_least": 3}
HOPELESS = [
    (GAIN, "it compares, and has no baseline; give the criterion one of `baseline: {group: NAME}`"),
    ({**GAIN, "baseline": {"history": "v10"}}, "no row of history is pinned as 'v10'; did you mean 'v100'?"),
    ({**GAIN, "baseline": {"campaign": "gone"}}, "/gone, is missing; run it first"),
    ({"metric": "sentinel_drift_pct", "at_most": 3}, "the plan has no sentinel; add one"),
    ({"metric": "scaling_efficiency", "at_least": 0.9}, "every run has the same number of ranks (1); add an axis"),
    ({"metric": "counted_runs", "at_least": 3}, "it needs 3 runs per group, and repeats is 2; raise repeats"),
    ({"metric": "stable"}, "it needs 3 runs per group, and repeats is 2; raise repeats"),
    ({"metric": "leaking_runs", "at_most": 0}, "memory is not sampled: telemetry.gpu_s and telemetry.host_s are null"),
]


@pytest.mark.parametrize(("criterion", "why"), HOPELESS, ids=[why[:20] for _, why in HOPELESS])
def test_a_criterion_that_cannot_pass_says_why(tmp_path: Path, criterion: dict[str, Any], why: str) -> None:
    (line,) = problems(tmp_path, criterion, pinned=("v100",), telemetry={"gpu_s": None, "host_s": None})
    assert line.startswith(f"{criterion['metric']} cannot pass: ") and why in line


def test_what_can_be_decided_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    criteria = [
        {**GAIN, "baseline": "mb8_r1"},
        {**GAIN, "baseline": {"history": "v100"}},
        {**GAIN, "baseline": {"campaign": "there"}},
        *(criterion for criterion, _ in HOPELESS[3:]),
    ]
    axes = {"micro_batch": [8], "place.ranks": {"label": "r", "values": [1, 2]}}
    assert problems(tmp_path, *criteria, axes=axes, repeats=3, sentinel=2, pinned=("v100",)) == []


def test_a_baseline_of_the_plan_that_is_no_group_is_reported(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, baseline="mb9")
    assert states(problem, "'mb9'", "baseline", "'mb8'")
    assert problems(tmp_path) == problems(tmp_path, baseline="mb8") == []
    (tmp_path / "outputs/p/mb9_r1").mkdir(parents=True)
    assert problems(tmp_path, baseline="mb9") == [], "an earlier plan left it in the folder"


def test_a_ready_set_is_named(tmp_path: Path) -> None:
    assert [line.partition(":")[0] for line in problems(tmp_path, {"ready": "stage1_speedup_4090"})] == [
        "speedup_pct (of stage1_speedup_4090) cannot pass",
        "loss_comparable (of stage1_speedup_4090) cannot pass",
    ]


def test_plan_show_looks_into_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, without_refusals: None
) -> None:
    monkeypatch.setenv("SEATRIAL_HISTORY", str(tmp_path / "history.jsonl"))
    monkeypatch.chdir(tmp_path)
    criteria = "criteria: [{ready: stage1_regression, baseline: {history: last-good}}]\n"
    (tmp_path / "p.yaml").write_text("name: p\nworkload: dummy\naxes: {micro_batch: [8, 16]}\n" + criteria)
    assert run_command(["plan", "show", "p.yaml"]) == 0
    assert states(capsys.readouterr().out, "regression_pct", "stage1_regression", "cannot pass", "'last-good'")
    rows.pin(tmp_path / "history.jsonl", rows.add(tmp_path / "history.jsonl", side("a", [100.0])).number, "last-good")
    assert run_command(["plan", "show", "p.yaml"]) == 0
    assert "cannot pass" not in capsys.readouterr().out
