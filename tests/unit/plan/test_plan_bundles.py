"""Settings that change together (`bundles`), fixed values of a script, the order `rounds`, and the keys of a place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seatrial.plan.load import load_plan
from seatrial.plan.order import ordered
from seatrial.records.campaign_plan import CampaignPlan

Resolved = Callable[..., CampaignPlan]

BUNDLES = {"old_like": {"micro_batch": 4, "seed": 1}, "tuned": {"micro_batch": 8, "seed": 2}}
AB: dict[str, Any] = {"name": "x", "workload": "dummy", "axes": {"variant": {"bundles": BUNDLES}}, "repeats": 2, "order": "rounds"}
SCRIPT: dict[str, Any] = {
    "name": "x",
    "workload": {"script": "train.py", "args": ["--bs={micro_batch}", "--lr={lr}", "--det={deterministic}", "--v={variant}"]},
    "settings": {"deterministic": True},
    "axes": {"variant": {"bundles": {"a": {"micro_batch": 4}, "b": {"micro_batch": 8}}}, "lr": [0.1]},
    "order": "nested",
}


def test_a_bundle_names_its_group_and_sets_its_settings(resolved: Resolved) -> None:
    plan = resolved(AB)

    assert [run.run for run in plan.runs] == ["old_like_r1", "tuned_r1", "old_like_r2", "tuned_r2"]
    assert plan.axes == {"variant": ("old_like", "tuned")}
    assert plan.runs[1].axes == {"variant": "tuned"}
    assert (plan.runs[1].settings["micro_batch"], plan.runs[1].settings["seed"]) == (8, 2)
    assert plan.runs[1].labels == {"variant": ""}


def test_two_bundles_with_the_same_settings_are_two_groups(resolved: Resolved) -> None:
    plan = resolved({**AB, "axes": {"variant": {"bundles": {"a": {"seed": 1}, "b": {"seed": 1}}}}})

    assert len({run.group_key for run in plan.runs}) == 2


def test_bundles_stand_beside_axes_and_prefix(resolved: Resolved) -> None:
    plan = resolved({**AB, "axes": {**AB["axes"], "num_workers": [0, 2]}, "prefix": "ab", "repeats": 1})

    assert [run.group for run in plan.runs] == ["ab_old_like_nw0", "ab_old_like_nw2", "ab_tuned_nw0", "ab_tuned_nw2"]


def test_whole_numbers_of_a_bundle_get_the_type_of_their_setting(resolved: Resolved) -> None:
    plan = resolved({**AB, "axes": {"variant": {"bundles": {"a": {"step_ms": 20}}}}})

    assert isinstance(plan.runs[0].settings["step_ms"], float)


def test_a_scripts_fixed_values_and_bundles_fill_its_arguments(resolved: Resolved) -> None:
    plan = resolved(SCRIPT)

    assert plan.runs[0].workload.args == ("--bs=4", "--lr=0.1", "--det=true", "--v=a")
    assert plan.runs[0].settings == {"deterministic": True, "micro_batch": 4}
    assert plan.runs[0].axes == {"variant": "a", "lr": 0.1}


def test_a_changed_fixed_value_is_another_run(resolved: Resolved) -> None:
    other = {**SCRIPT, "settings": {"deterministic": False}}

    assert resolved(SCRIPT).runs[0].hash != resolved(other).runs[0].hash


def test_a_bundle_may_be_on_the_lane(resolved: Resolved) -> None:
    plan = resolved({**AB, "lane": {"micro_batch": 8}})

    assert {run.group: run.lane for run in plan.runs} == {"old_like": False, "tuned": True}


def test_bundles_are_replaced_by_an_override(plan_file: Callable[..., Any]) -> None:
    path = plan_file("name: x\nworkload: dummy\naxes: {v: {bundles: {a: {seed: 1}}}}\n")

    assert load_plan(path, ["axes.v.bundles={b: {seed: 2}}"]).axes["v"].bundles == {"b": {"seed": 2}}


def test_rounds_keep_the_written_order() -> None:
    assert ordered(["a", "b"], 2, "rounds", 0) == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_a_port_changes_no_hash_and_a_hostfile_does(resolved: Resolved) -> None:
    local = resolved({**AB, "launcher": "deepspeed", "place": {"ranks": 4}}).runs[0]
    at_port = resolved({**AB, "launcher": "deepspeed", "place": {"ranks": 4, "port": 29500}}).runs[0]
    hosts = resolved({**AB, "launcher": "deepspeed", "place": {"kind": "hostfile", "hostfile": "/etc/hosts4", "ranks": 4}}).runs[0]

    assert at_port.place.port == 29500 and at_port.hash == local.hash
    assert hosts.place.hostfile == "/etc/hosts4" and hosts.hash != local.hash


def test_the_baseline_is_recorded(resolved: Resolved) -> None:
    assert resolved(AB).baseline == "old_like"
    assert resolved({**AB, "baseline": "tuned"}).baseline == "tuned"
