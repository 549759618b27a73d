"""The hash of a run: steady under everything that does not change the result, different under everything that does."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.run_spec import RunSpec

Resolved = Callable[..., CampaignPlan]

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
    {"limits": {"run_s": 5, "start_s": None, "term_s": 1}},
    {"limits": {"stall": None, "soft_s": 3, "memory_gib": 60, "disk_gib": None, "stack_signal": None}},
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
    run = resolve(plan, source="test", cwd=Path("/")).runs[0]
    return run.hash, run.settings


@given(SETTINGS, st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_the_order_of_keys_does_not_count(chosen: dict[str, Any], shuffler: random.Random) -> None:
    keys = list(chosen)
    shuffler.shuffle(keys)
    assert _hash_of(chosen) == _hash_of({key: chosen[key] for key in keys})


@given(SETTINGS, SETTINGS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_two_hashes_are_equal_exactly_when_all_settings_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    (one_hash, one_settings), (other_hash, other_settings) = _hash_of(one), _hash_of(other)
    assert (one_hash == other_hash) == (one_settings == other_settings)
