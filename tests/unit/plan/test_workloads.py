"""Bundled workloads, shown on a package made for the test and on the real ones."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.core.errors import PlanError
from seatrial.plan import workloads
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve_plan

SETTINGS = '''
"""Settings of a workload made for a test."""
from __future__ import annotations
from dataclasses import dataclass
from typing import Literal

@dataclass(frozen=True, kw_only=True)
class Settings:
    steps: int = 10
    lr: float = 0.1
    precision: Literal["bf16", "fp32"] = "fp32"
    warm: bool = False
    every: int | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.every > self.steps:
            raise ValueError(f"every ({self.every}) is larger than steps ({self.steps}): lower it")
'''


@pytest.fixture
def made_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`made_workloads` with one workload, whose trainer must never be imported, and a folder that is none."""
    package = tmp_path / "made_workloads"
    for folder in ("alpha", "common"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "alpha/settings.py").write_text(SETTINGS)
    (package / "common/settings.py").touch()
    (package / "alpha/train.py").write_text("raise RuntimeError('the plan imported a trainer')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(workloads, "PACKAGE", "made_workloads")
    for name in [name for name in sys.modules if name.split(".")[0] == "made_workloads"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("made_package")
def test_workloads_are_the_folders_with_settings() -> None:
    assert workloads.available_workloads() == ["alpha"]
    assert workloads.trainer_module("alpha") == "made_workloads.alpha.train"
    assert workloads.short_name("made_workloads.alpha.train") == workloads.short_name("alpha") == "alpha"


@pytest.mark.usefixtures("made_package")
def test_values_are_checked_by_the_types_of_the_dataclass() -> None:
    owner = workloads.settings_class("alpha")

    assert workloads.typed_setting(owner, "lr", 1) == 1.0
    assert isinstance(workloads.typed_setting(owner, "lr", 1), float)
    assert workloads.typed_setting(owner, "every", None) is None
    assert workloads.typed_setting(owner, "precision", "bf16") == "bf16"
    expected = [
        ("steps", True, "must be a whole number, not true (true or false)"),
        ("steps", 1.0, "must be a whole number, not 1.0 (a number)"),
        ("warm", 1, "must be true or false, not 1 (a whole number)"),
        ("every", "x", "must be a whole number or null, not 'x' (text)"),
        ("precision", "fp8", "must be 'bf16' or 'fp32', not 'fp8' (text)"),
        ("lr_rate", 1, "unknown setting; known: every, lr, precision, steps, warm"),
        ("step", 1, "unknown setting; did you mean 'steps'?"),
    ]
    for key, value, message in expected:
        with pytest.raises(workloads.SettingProblem) as caught:
            workloads.typed_setting(owner, key, value)
        assert (caught.value.key, str(caught.value)) == (key, message)


@pytest.mark.usefixtures("made_package")
def test_the_dataclass_itself_has_the_last_word() -> None:
    owner = workloads.settings_class("alpha")

    assert workloads.complete_settings(owner, {"every": 5}) == {"steps": 10, "lr": 0.1, "precision": "fp32", "warm": False, "every": 5}
    with pytest.raises(workloads.SettingProblem) as caught:
        workloads.complete_settings(owner, {"every": 50, "steps": 20})
    assert (caught.value.key, str(caught.value)) == ("every", "every (50) is larger than steps (20): lower it")


def test_an_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(workloads.SettingProblem, match=r"no workload 'dumy'; did you mean 'dummy'\?$"):
        workloads.settings_class("dumy")
    with pytest.raises(workloads.SettingProblem, match=r"for a module of your own write `script: PKG.MODULE`"):
        workloads.settings_class("pkg.train")


def test_the_real_workloads_are_there_and_their_settings_need_no_torch() -> None:
    assert {"dummy", "tiny_lm"} <= set(workloads.available_workloads())
    for name in workloads.available_workloads():
        owner = workloads.settings_class(name)
        assert "steps" in workloads.complete_settings(owner, {})


def test_settings_that_change_the_size_of_a_sample_are_declared() -> None:
    assert workloads.sample_size("tiny_lm") == {"seq_len": "tokens"}
    assert set(workloads.sample_size("contrastive").values()) == {"audio_s"} and workloads.sample_size("dummy") == {}


@pytest.mark.parametrize("name", workloads.available_workloads())
def test_what_a_workload_declares_of_effective_settings(name: str) -> None:
    follows, alike_by = workloads.follows(name), workloads.alike_by(name)
    assert all(isinstance(other, str) and other != setting for setting, others in follows.items() for other in others)
    known = {field.name for field in dataclasses.fields(workloads.settings_class(name))}
    # What can be followed is a setting of the workload, another effective setting, or the number of ranks.
    effective = {*follows, *alike_by}
    assert {other.partition("=")[0] for others in follows.values() for other in others} <= known | effective | {"world_size"}
    assert {remedy.partition("=")[0] for remedy in alike_by.values()} <= known


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"settings": {"fast_paths": ["front_end", "positions"]}}, {"front_end,positions"}),
        ({"settings": {"bucket_boundaries_s": [1.0, 2.5]}}, {"all"}),
        ({"axes": {"fast_paths": [["front_end", "positions"], "none"]}}, {"front_end,positions", "none"}),
        ({"axes": {"variant": {"bundles": {"a": {"fast_paths": ["front_end"]}, "b": {"fast_paths": "all"}}}}}, {"front_end", "all"}),
    ],
)
def test_a_setting_that_is_a_list_may_be_written_as_one(keys: dict[str, Any], found: set[str], tmp_path: Path) -> None:
    plan = plan_from_mapping({"name": "lists", "workload": "contrastive", "output": "out", **keys}, "x")
    runs = resolve_plan(plan, source="x", cwd=tmp_path).runs
    assert {run.settings["fast_paths"] for run in runs} == found
    assert runs[0].settings["bucket_boundaries_s"] in ("1.0,1.5,2.0,2.5,3.0", "1.0,2.5")


@pytest.mark.parametrize("value", [["front_en"], [], [["front_end"]]])
def test_a_list_that_is_wrong_is_refused_by_its_key(value: list[Any]) -> None:
    with pytest.raises(PlanError, match=r"settings\.fast_paths"):
        mapping = {"name": "lists", "workload": "contrastive", "output": "out", "settings": {"fast_paths": value}}
        resolve_plan(plan_from_mapping(mapping, "x"), source="x", cwd=Path.cwd())


SPARSE_LM = {"name": "a", "workload": "sparse_lm", "place": {"kind": "local", "ranks": 1}}


@pytest.mark.parametrize(
    ("steps", "given", "problem"),
    [
        (201, {}, "201 steps of the default model, a toy of .*; name its size"),
        (201, {"phi": "conv", "window": 32, "n_sel": 4}, "name its size"),
        (201, {"dim": 128}, None),
        (200, {}, None),
        (2001, {"dim": 128}, "2001 steps, and no checkpoint is configured: .*; set checkpoint_every to 2001 or less, or to null"),
        (2001, {"dim": 128, "checkpoint_every": None}, None),
        (2001, {"dim": 128, "checkpoint_every": 2001}, None),
    ],
)
def test_a_long_run_that_is_hardly_meant_is_refused_unless_the_plan_names_it(
    tmp_path: Path, steps: int, given: dict[str, Any], problem: str | None
) -> None:
    plan = plan_from_mapping({**SPARSE_LM, "steps": steps, "settings": given}, "test")
    if problem is None:
        assert len(resolve_plan(plan, source="test", cwd=tmp_path).runs) == 1
        return
    with pytest.raises(PlanError, match=problem):
        resolve_plan(plan, source="test", cwd=tmp_path)
