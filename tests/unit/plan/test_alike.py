"""Settings that a plan makes the same in all its groups: the contrastive trainer's fast paths and mixed precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign.loop import save_plan
from seatrial.campaign.resume import uncounted_runs
from seatrial.core.errors import PlanError
from seatrial.core.paths import CampaignPaths
from seatrial.records.plan import CampaignPlan
from seatrial_workloads.contrastive.settings import Settings, equal_settings
from tests.unit.collect import on_disk

ENGINES = {"variant": {"bundles": {"a": {"engine": "ddp", "zero_stage": 0}, "b": {"engine": "deepspeed", "zero_stage": 1}}}}
Resolved = Callable[..., CampaignPlan]
PARTS = "front_end,positions,text_graph,tower_graph"


def plan_of(settings: dict[str, Any] | None = None, axes: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    engine = {} if axes == ENGINES else {"engine": "deepspeed"}
    return {"name": "p", "workload": "contrastive", "settings": {**engine, **(settings or {})}, "axes": axes or {}, **keys}


def values(plan: CampaignPlan, setting: str) -> dict[str, Any]:
    return {run.group: run.settings[setting] for run in plan.runs}


FLASH = {"bundles": {"fa2": {"attn_impl": "flash_attention_2"}, "sdpa": {"attn_impl": "sdpa"}}}


@pytest.mark.parametrize(
    ("settings", "axes", "left", "named"),
    [
        ({}, {"zero_stage": [0, 1, 2]}, PARTS, ()),
        ({}, {"zero_stage": [0, 3]}, "none", ("z3", "ZeRO 3")),
        ({}, {"variant": FLASH}, "front_end,positions", ("fa2", "flash_attention_2", "text_graph", "tower_graph")),
        ({}, {"length_buckets": [False, True]}, "front_end,positions,text_graph", ("length_buckets", "tower_graph")),
        (
            {"torch_compile_mode": "max-autotune"},
            {"torch_compile": [False, True]},
            "front_end,positions,text_graph",
            ("torch.compile captures", "max-autotune"),
        ),
        ({"torch_compile_mode": "default"}, {"torch_compile": [False, True]}, PARTS, ()),
        ({"precision": "fp16"}, {"micro_batch": [8, 16]}, "front_end,positions,tower_graph", ("eager",)),
        ({"device": "cpu"}, {"micro_batch": [8, 16]}, "front_end,positions", ("cpu",)),
    ],
)
def test_a_plan_with_axes_gives_all_groups_the_parts_that_each_can_have(
    settings: dict[str, Any], axes: dict[str, Any], left: str, named: tuple[str, ...], resolved: Resolved
) -> None:
    plan = resolved(plan_of(settings, axes))
    found = values(plan, "fast_paths")
    assert len(found) >= 2 and set(found.values()) == {f"equal:{left}"}
    note = next(line for line in plan.alike if line.startswith("fast_paths"))
    assert all(word in note for word in named), note
    assert plan == resolved(plan_of(settings, axes)), "the same every time"


def test_without_axes_or_baseline_all_parts_are_used_and_a_baseline_asks_for_equal_ones(resolved: Resolved) -> None:
    assert set(values(resolved(plan_of({"zero_stage": 1})), "fast_paths").values()) == {"all"}
    assert set(values(resolved(plan_of({"zero_stage": 1})), "mixed_precision").values()) == {"auto"}
    with_baseline = plan_of({"zero_stage": 3}, criteria=[{"ready": "stage1_speedup_4090", "baseline": {"campaign": "outputs/old"}}])
    assert set(values(resolved(with_baseline), "fast_paths").values()) == {"equal:none"}


def test_what_the_plan_sets_itself_stays(resolved: Resolved) -> None:
    assert set(values(resolved(plan_of({"fast_paths": "all"}, {"zero_stage": [0, 3]})), "fast_paths").values()) == {"all"}
    as_axis = values(resolved(plan_of({}, {"fast_paths": ["equal", "none"], "zero_stage": [0, 1]})), "fast_paths")
    assert sorted(set(as_axis.values())) == [f"equal:{PARTS}", "none"]
    assert sorted(set(values(resolved(plan_of({}, {"fast_paths": [True, False]})), "fast_paths").values())) == ["all", "none"]


def test_an_own_list_with_a_part_that_a_group_excludes_is_refused(resolved: Resolved) -> None:
    assert set(values(resolved(plan_of({"fast_paths": "positions, front_end"}, {"zero_stage": [0, 1]})), "fast_paths").values()) == {
        "front_end,positions"
    }
    with pytest.raises(PlanError, match="fast_paths names front_end, which is not available: ZeRO 3"):
        resolved(plan_of({"fast_paths": "front_end,positions"}, {"zero_stage": [0, 3]}))


@pytest.mark.parametrize(
    ("value", "form"),
    [(True, "all"), (False, "none"), ("true", "all"), ("All", "all"), ("equal", "equal"), ("equal:none", "equal:none")],
)
def test_every_form_of_fast_paths_is_read(value: bool | str, form: str) -> None:
    assert Settings(fast_paths=value).fast_paths == form


@pytest.mark.parametrize("value", ["fast", "front_end,tower", "", "all,positions", "some:positions", "equal:fast"])
def test_other_values_of_fast_paths_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="fast_paths is "):
        Settings(fast_paths=value)


@pytest.mark.parametrize(
    ("settings", "axes", "mixed"),
    [
        # With ZeRO 0 alone too: a stage that is added later must not make its runs others.
        ({"precision": "bf16"}, {"micro_batch": [8, 16]}, "by_precision"),
        ({"precision": "bf16", "device": "cpu"}, {"micro_batch": [8, 16]}, "autocast"),
        ({"precision": "fp16"}, {"micro_batch": [8, 16]}, "autocast"),
        ({"engine": "ddp"}, {"micro_batch": [8, 16]}, "autocast"),
        # A GPU without bf16 computes in fp16, which above ZeRO 0 has weights only.
        ({"precision": "auto"}, {"zero_stage": [0, 1]}, "by_precision"),
        ({"precision": "bf16"}, {"zero_stage": [0, 1]}, "by_precision"),
        ({"precision": "fp16"}, {"zero_stage": [0, 1]}, "weights"),
        ({"zero_stage": 1}, {"precision": ["bf16", "fp16"]}, "weights"),
        (
            {},
            {"variant": {"bundles": {"a": {"engine": "ddp", "zero_stage": 0}, "b": {"engine": "deepspeed", "zero_stage": 1}}}},
            "autocast",
        ),
        ({"precision": "fp32"}, {"zero_stage": [0, 1]}, "auto"),
    ],
)
def test_all_groups_have_one_mixed_precision(settings: dict[str, Any], axes: dict[str, Any], mixed: str, resolved: Resolved) -> None:
    assert set(values(resolved(plan_of(settings, axes)), "mixed_precision").values()) == {mixed}


@pytest.mark.parametrize("precision", ["auto", "bf16"])
def test_a_zero_stage_that_is_added_keeps_the_runs_that_are_there(precision: str, resolved: Resolved) -> None:
    alone, both = (resolved(plan_of({"precision": precision}, {"zero_stage": stages})) for stages in ([0], [0, 1]))
    assert {run.hash for run in alone.runs} < {run.hash for run in both.runs}


def test_a_mixed_precision_that_no_setting_makes_alike_is_refused(resolved: Resolved) -> None:
    with pytest.raises(PlanError, match=r"mixed_precision.*fp16.*ZeRO 1 .*b.*ddp.*autocast"):
        resolved(plan_of({"precision": "fp16"}, ENGINES))
    assert values(resolved(plan_of({"zero_stage": 1}, {"mixed_precision": ["autocast", "weights"]})), "mixed_precision") == {
        "mixed-precision-autocast": "autocast",
        "mixed-precision-weights": "weights",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "ddp", "mixed_precision": "weights"}, "mixed_precision is 'weights', and 16-bit weights are DeepSpeed's"),
        ({"zero_stage": 1, "precision": "fp16", "mixed_precision": "autocast"}, "fp16 under ZeRO 1 has 16-bit weights only"),
        ({"mixed_precision": "amp"}, "expected one of auto, autocast, weights, by_precision"),
    ],
)
def test_a_mixed_precision_that_an_engine_does_not_have_is_refused(settings: dict[str, Any], message: str, resolved: Resolved) -> None:
    with pytest.raises(PlanError, match=message):
        resolved(plan_of(settings))


def test_a_plan_that_starts_the_trainer_as_a_script_gets_the_same_values() -> None:
    stages = {f"z{stage}": {"engine": "deepspeed", "zero_stage": stage} for stage in (0, 1, 3)}
    values, notes = equal_settings(stages)
    assert values == {"fast_paths": "equal:none", "mixed_precision": "by_precision"} and len(notes) == 2
    del stages["z3"]
    assert equal_settings(stages, given=["fast_paths"])[0] == {"mixed_precision": "by_precision"}
    assert equal_settings(stages)[0]["fast_paths"] == f"equal:{PARTS}"


def test_a_new_group_that_narrows_the_parts_says_which_runs_no_longer_count(resolved: Resolved, tmp_path: Path) -> None:
    before = resolved(plan_of({}, {"zero_stage": [0, 1]}))
    paths = CampaignPaths(Path(before.output))
    for run in before.runs:
        on_disk.write_attempt(paths.folder, run)
    save_plan(before, paths)
    same = resolved(plan_of({}, {"zero_stage": [0, 1, 2]}))
    assert uncounted_runs(paths, same) == ()
    narrowed = resolved(plan_of({}, {"zero_stage": [0, 1, 3]}))
    (check,) = uncounted_runs(paths, narrowed)
    assert "z0_r1" in check.found and "z1_r1" in check.found
    assert f"fast_paths equal:{PARTS} → equal:none" in check.found
    assert uncounted_runs(paths) == (), "nothing is written until the plan is run"


def test_runs_of_earlier_versions_still_count_where_they_computed_the_same(resolved: Resolved) -> None:
    """A final training recorded `fast_paths: true` and no mixed precision."""
    (run,) = resolved(plan_of({"zero_stage": 1})).runs
    from seatrial.plan.run_hash import run_hash

    earlier = {name: value for name, value in run.settings.items() if name != "mixed_precision"} | {"fast_paths": True}
    assert run_hash(replace(run, settings=earlier)) == run.hash
    assert run_hash(replace(run, settings={**earlier, "fast_paths": False})) != run.hash
    assert run_hash(replace(run, settings={**run.settings, "mixed_precision": "autocast"})) != run.hash
