"""Resolving a plan: specs, hashes, the output folder and the time estimate."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.campaign.resume import finished_attempt
from seatrial.collect.attempts import read_campaign
from seatrial.core.errors import PlanError
from seatrial.core.files import write_json
from seatrial.core.paths import CampaignPaths
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import (
    LONGEST_NAME_BYTES,
    LONGEST_PATH_BYTES,
    ROOM_BYTES,
    TimeEstimate,
    estimate_time,
    output_folder,
    resolve_plan,
)
from seatrial.plan.schema import Plan, Workload
from seatrial.records.codec import from_json, to_json
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, LimitsSpec, RunSpec, StallSpec
from seatrial.records.verdict import Baseline, Criterion
from tests.unit.plan.conftest import ANY_SPEED

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


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{bs}*{block}*{accum}", 8 * 64 * 4),
        ("{bs}", 8),
        (" {bs} * ({block} + 1) + 2 ", 8 * 65 + 2),
        ("2*(3+(4))*{bs}", 112),
        ("12", 12),
        ("{text}*2", 14),
    ],
)
def test_work_is_a_sum_or_product_of_settings(resolved: Resolved, written: str, value: int) -> None:
    mapping = {
        "name": "x",
        "workload": {"script": "t.py", "args": ["{bs} {block} {accum} {text}"], "tokens_per_step": written},
        "settings": {"accum": 4, "text": "007"},
        "axes": {"bs": [8], "block": [64]},
    }
    assert resolved(mapping).runs[0].workload.tokens_per_step == value


BLOCKS: dict[str, Any] = {
    "name": "x",
    "workload": {"script": "t.py", "args": ["--block", "{block_size}"]},
    "axes": {"block_size": [32, 64]},
    "repeats": 2,
    "output": "out",
}


def with_label(label: str, mapping: dict[str, Any] = BLOCKS) -> dict[str, Any]:
    return {**mapping, "axes": {"block_size": {"label": label, "values": [32, 64]}}}


def finish(plan: CampaignPlan) -> CampaignPaths:
    """The folder of a campaign whose runs all ended well."""
    paths = CampaignPaths(Path(plan.output))
    write_json(paths.plan, to_json(plan))
    write_json(paths.plans / f"{plan.name}.json", to_json(plan))
    for spec in plan.runs:
        attempt = paths.run(spec.run).attempt(1)
        write_json(attempt.spec, to_json(spec))
        write_json(attempt.outcome, to_json(RunOutcome(run=spec.run, attempt=1, hash=spec.hash, outcome=Outcome.OK)))
    return paths


@pytest.mark.parametrize("argument", ["", "--out={group}"])
def test_a_folder_of_the_last_version_is_resumed_under_its_names(resolved: Resolved, argument: str) -> None:
    mapping = {**BLOCKS, "workload": {"script": "t.py", "args": ["--block", "{block_size}", argument]}}
    assert {run.group for run in resolved(mapping).runs} == {"block-size32", "block-size64"}
    # As the last version labelled it.
    paths = finish(resolved(with_label("bs", mapping)))
    runs = resolved({**mapping, "repeats": 3}).runs
    assert {run.group for run in runs} == {"bs32", "bs64"} and {run.run for run in runs if run.repeat == 3} == {"bs32_r3", "bs64_r3"}
    assert {run.repeat for run in runs if finished_attempt(paths.run(run.run), run.hash) is None} == {3}
    assert all(attempt.current for attempt in read_campaign(paths, [resolved(mapping)]))


def test_runs_are_found_by_their_hash_when_the_plan_names_them_differently(resolved: Resolved) -> None:
    paths = finish(resolved(BLOCKS))
    renamed = {
        **with_label("block"),
        "prefix": "new",
        "baseline": "new_block32",
        "criteria": [{"metric": "regression_pct", "at_most": 5, "baseline": "new_block32"}],
    }
    plan = resolved(renamed, only=["new_block64"])
    assert all(finished_attempt(paths.run(run.run), run.hash) for run in plan.runs)
    assert {run.group for run in plan.runs} == {"block-size32", "block-size64"} and plan.baseline == "block-size32"
    assert plan.criteria[0].baseline == Baseline(group="block-size32") and set(plan.selected) == {"block-size64_r1", "block-size64_r2"}


def test_other_plans_and_new_groups_keep_their_own_names(resolved: Resolved) -> None:
    finish(resolved(BLOCKS))
    assert {run.group for run in resolved({**with_label("b"), "name": "other"}).runs} == {"b32", "b64"}
    more = {**BLOCKS, "axes": {"block_size": {"label": "b", "values": [32, 128]}}}
    assert {run.group for run in resolved(more).runs} == {"block-size32", "b128"}


def test_names_of_a_damaged_or_hostile_plan_are_not_used(resolved: Resolved, tmp_path: Path) -> None:
    plan = resolved(BLOCKS)
    hostile = [dataclasses.replace(run, run="../../etc", group="../../etc", labels={"block_size": "../x"}) for run in plan.runs]
    write_json(CampaignPaths(Path(plan.output)).plan, to_json(dataclasses.replace(plan, runs=tuple(hostile))))
    assert resolved(BLOCKS).runs == plan.runs
    (tmp_path / "out" / "plan.json").write_text("{")
    assert resolved(BLOCKS).runs == plan.runs


def test_an_axis_may_take_the_place_of_seed_and_steps(resolved: Resolved) -> None:
    mapping = {"name": "x", "workload": {"script": "t.py", "args": ["{seed}", "{steps}"]}, "axes": {"seed": [5], "steps": [70]}}
    run = resolved(mapping).runs[0]

    assert run.workload.args == ("5", "70")
    assert run.steps == 70


def test_axes_of_the_harness(resolved: Resolved) -> None:
    runs = resolved({**DUMMY, "axes": {"place.ranks": [1, 2], "env.OMP_NUM_THREADS": [1]}, "order": "nested"}).runs

    assert [run.run for run in runs] == ["ranks1_OMP-NUM-THREADS1_r1", "ranks2_OMP-NUM-THREADS1_r1"]
    assert [run.place.ranks for run in runs] == [1, 2]
    assert runs[0].env == {"OMP_NUM_THREADS": "1"}
    assert "place.ranks" not in runs[0].settings


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
    mapping = {**DUMMY, "output": "~/runs", "budget": "2h"}
    assert resolved(mapping).output == str(Path.home() / "runs")
    assert resolved(mapping, output=Path("mine")).output == str(tmp_path / "mine")
    assert resolved(mapping).budget_s == 7200.0
    assert resolved(mapping, budget_s=5.0).budget_s == 5.0


def test_criteria_get_their_scope(resolved: Resolved) -> None:
    assert resolved(DUMMY).criteria == (Criterion(metric="failed_runs", scope="campaign", at_most=0, unit="runs"),)
    assert resolved({**DUMMY, "criteria": []}).criteria == ()
    given = [{"metric": "loss_falls"}, {"metric": "startup_s", "scope": "winner", "at_most": 60, "reason": "slow disk"}]
    assert resolved({**DUMMY, "criteria": given}).criteria == (
        Criterion(metric="loss_falls", scope="every_run"),
        Criterion(metric="startup_s", scope="winner", at_most=60.0, unit="s", reason="slow disk"),
    )


@pytest.mark.parametrize(("steps", "given", "expected"), [(60, None, 6), (5, None, 1), (5000, None, 50), (60, 20, 20)])
def test_timing_points_follow_the_number_of_steps(steps: int, given: int | None, expected: int, resolved: Resolved) -> None:
    timing = {} if given is None else {"log_every": given}
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


@ANY_SPEED
@given(AXES, st.integers(min_value=1, max_value=3), st.integers(0, 2**63 - 1), st.sampled_from(["interleaved", "nested"]))
def test_any_matrix_expands_to_its_product_with_unique_names_and_hashes(axes: dict[str, Any], repeats: int, seed: int, order: str) -> None:
    workload = {"script": "t.py", "args": [f"--{name}={{{name}}}" for name in axes]}
    mapping = {"name": "x", "workload": workload, "axes": axes, "repeats": repeats, "seed": seed, "order": order}
    runs = resolve_plan(plan_from_mapping(mapping, "test"), source="test", cwd=Path("/")).runs

    size = math.prod(len(values) for values in axes.values())
    assert len(runs) == size * repeats
    assert len({run.run.lower() for run in runs}) == len({run.hash for run in runs}) == len(runs)
    assert len({run.group_key for run in runs}) == len({run.group for run in runs}) == size


BUNDLED: dict[str, Any] = {"name": "x", "workload": "dummy", "settings": {"step_ms": 5.0}, "axes": {"micro_batch": [8]}, "steps": 10}
SCRIPT: dict[str, Any] = {
    "name": "x",
    "workload": {"script": "t.py", "args": ["--bs", "{bs}"]},
    "axes": {"bs": [8]},
    "steps": 10,
    "launcher": "torchrun",
}

CHANGES_NOTHING: list[dict[str, Any]] = [
    {"name": "y"},
    {"output": "elsewhere"},
    {"limits": {"stall": {"factor": 5, "floor_s": 30}, "stack_signal": "WINCH"}},
    {"criteria": [{"metric": "loss_falls"}]},
    {"timing": {"window": "5:", "log_every": 2, "tail_points": 3, "timing_window": 7}},
    {"order": "nested"},
    {"seed": 9},
    {"prefix": "p"},
    {"mode": "ab"},
    {"rank_by": "duration_s"},
    {"stop_on_error": True},
    {"budget": "1h"},
    {"repeats": 3},
    {"lane": {"micro_batch": 8}},
    {"axes": {"micro_batch": {"label": "b", "values": [8]}}},
    {"axes": {"micro_batch": [8, 16]}},
    {"settings": {"step_ms": 5}},
]
CHANGES_THE_RESULT: list[dict[str, Any]] = [
    {"settings": {"step_ms": 6.0}},
    {"settings": {"step_ms": 5.0, "seed": 1}},
    {"axes": {"micro_batch": [16]}},
    {"axes": {"micro_batch": [8], "num_workers": [0]}},
    {"steps": 11},
    {"launcher": "torchrun"},
    {"launcher": {"kind": "python", "args": ["-O"]}},
    {"launcher": {"kind": "python", "program": ["python3"]}},
    {"place": {"ranks": 2}},
    {"place": {"include": "localhost:0"}},
    {"env": {"A": "1"}},
    {"workload": {"module": "dummy", "env": {"A": "1"}}},
    {"workload": "tiny_lm", "settings": {}},
    {"rank_scope": "rank0"},
    {"timing": {"sync": True}},
    {"timing": {"phase_every": 5}},
]


def _first(plan: CampaignPlan) -> RunSpec:
    """Repeat 1 of the group with the smallest value."""
    return min(plan.runs, key=lambda run: (run.repeat, list(run.axes.values())))


@pytest.mark.parametrize("change", CHANGES_NOTHING, ids=str)
def test_the_hash_stays(change: dict[str, Any], resolved: Resolved) -> None:
    before, after = _first(resolved(BUNDLED)), _first(resolved({**BUNDLED, **change}))
    assert (before.hash, before.group_key) == (after.hash, after.group_key)


@pytest.mark.parametrize("change", CHANGES_THE_RESULT, ids=str)
def test_the_hash_changes(change: dict[str, Any], resolved: Resolved) -> None:
    before, after = _first(resolved(BUNDLED)), _first(resolved({**BUNDLED, **change}))
    assert before.hash != after.hash
    assert before.group_key != after.group_key


def test_the_folder_a_plan_is_run_from_does_not_count(resolved: Resolved, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert _first(resolved(SCRIPT)).hash == _first(resolved(SCRIPT, cwd=other)).hash


def test_the_bytes_of_the_script_count(resolved: Resolved, tmp_path: Path) -> None:
    missing = _first(resolved(SCRIPT))
    script = tmp_path / "t.py"
    script.write_text("print(1)\n")
    one = _first(resolved(SCRIPT))
    script.write_text("print(2)\n")
    other = _first(resolved(SCRIPT))

    assert missing.script_sha256 is None
    assert len({missing.hash, one.hash, other.hash}) == 3
    assert len({missing.group_key, one.group_key, other.group_key}) == 3


def test_a_module_and_a_script_behind_a_program_are_found(resolved: Resolved, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/train.py").write_text("print(1)\n")
    module = {"name": "x", "workload": {"script": "pkg.train"}, "launcher": {"kind": "python", "args": ["-m"]}}
    behind = {"name": "x", "workload": {"script": "accelerate", "args": ["launch", "pkg/train.py"]}, "launcher": "command"}

    digests = {_first(resolved(plan)).script_sha256 for plan in (module, behind)}
    assert len(digests) == 1
    assert None not in digests


def test_each_repeat_has_its_own_hash_and_all_one_group_key(resolved: Resolved) -> None:
    mapping = {**SCRIPT, "repeats": 3, "workload": {"script": "t.py", "args": ["{bs}", "--seed={repeat}", "--log={run}.txt"]}}
    runs = resolved(mapping).runs

    assert len({run.hash for run in runs}) == 3
    assert len({run.group_key for run in runs}) == 1
    assert sorted(run.workload.args for run in runs) == [("8", f"--seed={n}", f"--log=bs8_r{n}.txt") for n in (1, 2, 3)]


def test_equal_numbers_are_one_setting_and_different_text_to_a_script(resolved: Resolved) -> None:
    ints, floats = (_first(resolved({**SCRIPT, "axes": {"bs": [value]}})) for value in (8, 8.0))
    assert ints.workload.args != floats.workload.args
    assert ints.hash != floats.hash

    ints, floats = (_first(resolved({**BUNDLED, "axes": {"step_ms": [value]}, "settings": {}})) for value in (8, 8.0))
    assert ints.hash == floats.hash


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "step_ms": st.floats(min_value=0, max_value=100),
        "warmup_steps": st.integers(min_value=0, max_value=50),
        "num_workers": st.integers(min_value=0, max_value=50),
        "loss": st.sampled_from(["falls", "flat", "nan"]),
        "slow_rank": st.one_of(st.none(), st.integers(min_value=0, max_value=8)),
    },
)


def _hash_of(chosen: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    plan = plan_from_mapping({"name": "x", "workload": "dummy", "settings": chosen}, "test")
    run = resolve_plan(plan, source="test", cwd=Path("/")).runs[0]
    return run.hash, run.settings


@ANY_SPEED
@given(SETTINGS, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_count(chosen: dict[str, Any], shuffler: random.Random) -> None:
    keys = list(chosen)
    shuffler.shuffle(keys)
    assert _hash_of(chosen) == _hash_of({key: chosen[key] for key in keys})


@ANY_SPEED
@given(SETTINGS, SETTINGS)
def test_two_hashes_are_equal_exactly_when_all_settings_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    (one_hash, one_settings), (other_hash, other_settings) = _hash_of(one), _hash_of(other)
    assert (one_hash == other_hash) == (one_settings == other_settings)


CWD = Path("/work")
NOW = datetime(2026, 2, 3, 4, 5, 6)


def plan(**keys: Any) -> Plan:
    return Plan(name="nightly", workload=Workload(module="dummy"), **keys)


@pytest.mark.parametrize(
    ("written", "given", "folder"),
    [
        (None, None, "/work/outputs/nightly"),
        ("here", None, "/work/here"),
        ("here", Path("there"), "/work/there"),
        ("/data/x", None, "/data/x"),
        ("runs/{time}", None, "/work/runs/20260203_040506"),
        (None, Path("runs/{time}"), "/work/runs/20260203_040506"),
        ("a{{b}}", None, "/work/a{b}"),
        (None, Path("a{b}"), "/work/a{b}"),
    ],
)
def test_the_command_line_wins_over_the_plan(written: str | None, given: Path | None, folder: str) -> None:
    assert output_folder(plan(output=written), given, CWD, NOW) == Path(folder)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\nb", "contains a line break or a tab"),
        ("a\x07", "contains the control character 0x07"),
        ("~nobody-of-that-name/out", "no such user"),
        ("x" * (LONGEST_NAME_BYTES + 1), "one of its names has 256 bytes"),
        ("é" * 128, "one of its names has 256 bytes"),
        ("/".join(["x" * 200] * 20), "too long for the files in it"),
    ],
)
def test_what_can_be_no_folder_is_refused_under_the_name_it_was_given_by(text: str, problem: str) -> None:
    with pytest.raises(PlanError, match=f"^output: .*{problem}"):
        output_folder(plan(output=text), None, CWD)
    with pytest.raises(PlanError, match=f"^--out: .*{problem}"):
        output_folder(plan(), Path(text), CWD)


def test_there_is_room_left_for_the_files_in_it() -> None:
    rest = LONGEST_PATH_BYTES - ROOM_BYTES - len("/work/")
    names = "/".join(["x" * 100] * (rest // 101))
    longest = f"{names}/{'y' * (rest - len(names) - 1)}"
    assert output_folder(plan(output=longest), None, CWD) == CWD / longest
    with pytest.raises(PlanError, match="choose a shorter one"):
        output_folder(plan(output=f"{longest}y"), None, CWD)


PLAN = {"name": "x", "workload": "dummy", "axes": {"micro_batch": [8, 16, 32]}, "repeats": 2}


def test_nothing_is_known_before_the_first_run(resolved: Callable[..., CampaignPlan]) -> None:
    known = estimate_time(resolved(PLAN), {"another plan's key": 5.0})
    assert known == TimeEstimate(runs=6, total_s=None, at_most_s=None, measured_groups=0, groups=3)


def test_groups_not_yet_measured_take_the_mean_of_the_others(resolved: Callable[..., CampaignPlan]) -> None:
    plan = resolved(PLAN)
    keys = {run.group: run.group_key for run in plan.runs}
    known = estimate_time(plan, {keys["mb8"]: 10.0, keys["mb16"]: 20.0})
    assert known == TimeEstimate(runs=6, total_s=90.0, at_most_s=None, measured_groups=2, groups=3)


def test_limits_and_budget_bound_it(resolved: Callable[..., CampaignPlan]) -> None:
    assert estimate_time(resolved({**PLAN, "limits": {"run_s": 30}}), {}).at_most_s == 180.0
    assert estimate_time(resolved({**PLAN, "limits": {"run_s": 30}, "budget": "2m"}), {}).at_most_s == 120.0
    assert estimate_time(resolved({**PLAN, "budget": "2m"}), {}).at_most_s == 120.0


def test_only_the_chosen_runs_count(resolved: Callable[..., CampaignPlan]) -> None:
    plan = resolved({**PLAN, "limits": {"run_s": 30}}, only=["mb8"])
    known = estimate_time(plan, {run.group_key: 10.0 for run in plan.runs if run.group == "mb8"})
    assert known == TimeEstimate(runs=2, total_s=20.0, at_most_s=60.0, measured_groups=1, groups=1)
