"""From a plan to its runs: matrix, names, filled placeholders, lanes, choice, order and defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.errors import PlanError
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import from_json, to_json
from seatrial.records.run_spec import LimitsSpec, RunSpec, StallSpec
from seatrial.records.verdict import Criterion

Resolved = Callable[..., CampaignPlan]

DUMMY: dict[str, Any] = {"name": "x", "workload": "dummy"}
MATRIX: dict[str, Any] = {**DUMMY, "axes": {"micro_batch": [8, 16], "num_workers": [0, 2]}, "repeats": 2, "order": "nested"}


def test_the_matrix_in_nested_order(resolved: Resolved) -> None:
    plan = resolved(MATRIX)

    assert [run.run for run in plan.runs] == [f"mb{mb}_nw{nw}_r{repeat}" for mb in (8, 16) for nw in (0, 2) for repeat in (1, 2)]
    assert plan.axes == {"micro_batch": (8, 16), "num_workers": (0, 2)}
    assert plan.runs[0].axes == {"micro_batch": 8, "num_workers": 0}
    assert plan.runs[0].labels == {"micro_batch": "mb", "num_workers": "nw"}


def test_interleaved_is_the_default_and_recorded(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "order": "interleaved"})

    assert (plan.order, plan.seed) == ("interleaved", 0)
    assert [run.repeat for run in plan.runs] == [1, 1, 1, 1, 2, 2, 2, 2]


def test_all_settings_of_a_bundled_workload_are_filled(resolved: Resolved) -> None:
    run = resolved({**DUMMY, "settings": {"step_ms": 5}, "axes": {"micro_batch": [16]}, "steps": 30}).runs[0]

    assert run.workload.module == "seatrial_workloads.dummy.train"
    assert (run.settings["steps"], run.settings["step_ms"], run.settings["micro_batch"]) == (30, 5.0, 16)
    assert run.settings["jitter_ratio"] == 0.05
    assert run.steps == 30


def test_without_axes_there_is_one_group(resolved: Resolved) -> None:
    assert [run.run for run in resolved(DUMMY).runs] == ["base_r1"]
    assert [run.run for run in resolved({**DUMMY, "prefix": "tuned", "repeats": 2}).runs] == ["tuned_r1", "tuned_r2"]


def test_placeholders_of_a_script_are_filled_everywhere(resolved: Resolved) -> None:
    mapping = {
        "name": "x",
        "workload": {
            "script": "train.py",
            "args": ["--bs", "{bs}", "--cfg={{{bs}}}", "--steps={steps}", "--out={group}/{run}", "--seed={seed}"],
            "env": {"BS": "{bs}", "A": "over"},
            "samples_per_step": "{bs}",
            "tokens_per_step": 1024,
        },
        "launcher": {"kind": "torchrun", "args": ["--role", "r{repeat}"]},
        "env": {"A": "under", "N": 4},
        "axes": {"bs": [8]},
        "steps": 30,
        "seed": 7,
    }
    run = resolved(mapping).runs[0]

    assert run.workload.name == "train.py"
    assert run.workload.args == ("--bs", "8", "--cfg={8}", "--steps=30", "--out=bs8/bs8_r1", "--seed=7")
    assert run.env == {"A": "over", "N": "4", "BS": "8"}
    assert (run.workload.samples_per_step, run.workload.tokens_per_step) == (8.0, 1024.0)
    assert run.launcher.args == ("--role", "r1")


def test_an_axis_may_take_the_place_of_seed_and_steps(resolved: Resolved) -> None:
    mapping = {"name": "x", "workload": {"script": "t.py", "args": ["{seed}", "{steps}"]}, "axes": {"seed": [5], "steps": [70]}}
    run = resolved(mapping).runs[0]

    assert run.workload.args == ("5", "70")
    assert run.steps == 70


def test_axes_of_the_harness(resolved: Resolved) -> None:
    runs = resolved({**DUMMY, "axes": {"place.ranks": [1, 2], "env.OMP_NUM_THREADS": [1]}, "order": "nested"}).runs

    assert [run.run for run in runs] == ["ranks1_ont1_r1", "ranks2_ont1_r1"]
    assert [run.place.ranks for run in runs] == [1, 2]
    assert runs[0].env == {"OMP_NUM_THREADS": "1"}
    assert "place.ranks" not in runs[0].settings


def test_include_gives_devices_and_ranks(resolved: Resolved) -> None:
    place = resolved({**DUMMY, "place": {"include": "localhost:0, 3"}}).runs[0].place
    assert (place.ranks, place.devices) == (2, ("0", "3"))

    runs = resolved({**DUMMY, "place": {"include": "localhost:4,5"}, "axes": {"place.ranks": [1, 2]}, "order": "nested"}).runs
    assert [run.place.devices for run in runs] == [("4",), ("4", "5")]


def test_the_main_lane(resolved: Resolved) -> None:
    runs = resolved({**MATRIX, "lane": {"micro_batch": [8, 32], "loss": "falls", "num_workers": 2}, "repeats": 1}).runs
    assert {run.group: run.lane for run in runs} == {"mb8_nw0": False, "mb8_nw2": True, "mb16_nw0": False, "mb16_nw2": False}


def test_the_main_lane_by_ranks(resolved: Resolved) -> None:
    runs = resolved({**DUMMY, "axes": {"place.ranks": [1, 2]}, "lane": {"place.ranks": 2}, "order": "nested"}).runs
    assert [run.lane for run in runs] == [False, True]
    assert resolved({**DUMMY, "lane": {"place.ranks": 1}}).runs[0].lane


def test_only_takes_groups_runs_and_globs(resolved: Resolved) -> None:
    def chosen(*only: str) -> list[str]:
        plan = resolved(MATRIX, only=only)
        assert len(plan.runs) == 8
        return list(plan.selected)

    assert chosen() == []
    assert chosen("mb8_nw0") == ["mb8_nw0_r1", "mb8_nw0_r2"]
    assert chosen("mb16_nw2_r2") == ["mb16_nw2_r2"]
    assert chosen("mb8_*", "*_nw2_r1") == ["mb8_nw0_r1", "mb8_nw0_r2", "mb8_nw2_r1", "mb8_nw2_r2", "mb16_nw2_r1"]
    with pytest.raises(PlanError) as caught:
        chosen("mb8_nw1")
    assert str(caught.value).startswith("--only: no group or run is called 'mb8_nw1'; did you mean 'mb8_nw")


def test_output_and_budget_of_the_command_line_win(resolved: Resolved, tmp_path: Path) -> None:
    now = datetime(2026, 3, 4, 5, 6, 7)
    mapping = {**DUMMY, "output": "out/{time}", "budget": "2h"}

    assert resolved(mapping, now=now).output == str(tmp_path / "out/20260304_050607")
    assert resolved(mapping, now=now, output=Path("mine-{time}")).output == str(tmp_path / "mine-20260304_050607")
    assert resolved(mapping, output=Path("/elsewhere")).output == "/elsewhere"
    assert resolved(DUMMY).output == str(tmp_path / "outputs/x")
    assert resolved({**DUMMY, "output": "~/runs"}).output == str(Path.home() / "runs")
    assert resolved(mapping).budget_s == 7200.0
    assert resolved(mapping, budget_s=5.0).budget_s == 5.0


def test_criteria_get_their_scope(resolved: Resolved) -> None:
    assert resolved(DUMMY).criteria == (Criterion(metric="failed_runs", scope="campaign", at_most=0, unit="runs"),)
    assert resolved({**DUMMY, "criteria": []}).criteria == ()
    asked = [{"metric": "loss_falls"}, {"metric": "startup_s", "scope": "winner", "at_most": 60, "reason": "slow disk"}]
    assert resolved({**DUMMY, "criteria": asked}).criteria == (
        Criterion(metric="loss_falls", scope="every_run"),
        Criterion(metric="startup_s", scope="winner", at_most=60.0, unit="s", reason="slow disk"),
    )


@pytest.mark.parametrize(("steps", "asked", "expected"), [(60, None, 6), (5, None, 1), (5000, None, 50), (60, 20, 20)])
def test_timing_points_follow_the_number_of_steps(steps: int, asked: int | None, expected: int, resolved: Resolved) -> None:
    timing = {} if asked is None else {"log_every": asked}
    assert resolved({**DUMMY, "steps": steps, "timing": timing}).runs[0].timing.log_every == expected


def test_limits_reach_the_run(resolved: Resolved) -> None:
    script = {"name": "x", "workload": {"script": "t.py"}}
    stall = {"factor": 5, "floor_s": 30, "quiet_s": 60}
    limits = {"stall": stall, "soft_s": 3, "memory_gib": 60, "disk_gib": None, "stack_signal": "WINCH", "run_s": 9}

    assert resolved(script).runs[0].limits == LimitsSpec()
    assert resolved({**script, "limits": {"stall": None}}).runs[0].limits.stall is None
    assert resolved({**script, "limits": limits}).runs[0].limits == LimitsSpec(
        stall=StallSpec(factor=5, floor_s=30, quiet_s=60), soft_s=3, memory_gib=60, disk_gib=None, stack_signal="WINCH", run_s=9
    )


def test_a_spec_of_before_these_limits_has_their_defaults(resolved: Resolved) -> None:
    stored = to_json(resolved({"name": "x", "workload": "dummy"}).runs[0])
    for key in ("stall", "soft_s", "memory_gib", "disk_gib", "stack_signal"):
        del stored["limits"][key]
    assert from_json(RunSpec, stored).limits == LimitsSpec()


def test_a_campaign_plan_survives_its_file(resolved: Resolved) -> None:
    plan = resolved({**MATRIX, "criteria": [{"metric": "loss_falls"}], "place": {"include": "localhost:0"}})
    assert from_json(CampaignPlan, to_json(plan)) == plan


AXES = st.dictionaries(
    st.sampled_from(["bs", "nw", "lr", "opt", "data_dir"]),
    st.lists(
        st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.text("ab/ {}-_", max_size=5)),
        min_size=1,
        max_size=4,
        unique_by=lambda value: repr(value) if isinstance(value, float) else str(value),
    ),
    max_size=4,
)


@given(AXES, st.integers(min_value=1, max_value=3), st.integers(0, 2**63 - 1), st.sampled_from(["interleaved", "nested"]))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_matrix_expands_to_its_product_with_unique_names_and_hashes(axes: dict[str, Any], repeats: int, seed: int, order: str) -> None:
    workload = {"script": "t.py", "args": [f"--{name}={{{name}}}" for name in axes]}
    mapping = {"name": "x", "workload": workload, "axes": axes, "repeats": repeats, "seed": seed, "order": order}
    runs = resolve(plan_from_mapping(mapping, "test"), source="test", cwd=Path("/")).runs

    size = math.prod(len(values) for values in axes.values())
    assert len(runs) == size * repeats
    assert len({run.run.lower() for run in runs}) == len({run.hash for run in runs}) == len(runs)
    assert len({run.group_key for run in runs}) == len({run.group for run in runs}) == size
