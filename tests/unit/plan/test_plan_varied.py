"""What a plan tries out, by the names a run will know it under."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.plan.identity import group_key, run_hash
from seatrial.plan.load import plan_from_mapping
from seatrial.plan.resolve import resolve
from seatrial.plan.varied import varied_names


def varied(mapping: dict[str, Any]) -> tuple[str, ...]:
    return varied_names(plan_from_mapping({"name": "p", **mapping}, "here"))


def of_script(*args: str, **more: Any) -> tuple[str, ...]:
    return varied({"workload": {"script": "train.py", "args": list(args)}, **more})


def test_axes_and_the_settings_of_bundles_are_varied() -> None:
    bundles = {"old": {"step_ms": 5, "data_wait_ms": 1}, "new": {"step_ms": 4, "data_wait_ms": 0}}
    axes = {"variant": {"bundles": bundles}, "micro_batch": [8], "place.ranks": [1, 2], "env.NCCL_DEBUG": ["WARN", "INFO"]}
    assert varied({"workload": "dummy", "axes": axes}) == ("NCCL_DEBUG", "data_wait_ms", "micro_batch", "step_ms")
    assert varied({"workload": "dummy", "settings": {"micro_batch": 8}}) == ()


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("--trainer.detect-anomaly", "{x}"), "detect_anomaly"),
        (("--detect_anomaly={x}", "--lr", "1"), "detect_anomaly"),
        (("train.nvtx={x}",), "nvtx"),
        (("--lr=1", "{x}"), None),
    ],
)
def test_an_option_that_an_axis_fills_in_is_varied(args: tuple[str, ...], option: str | None) -> None:
    assert of_script(*args, axes={"x": [0, 1]}) == tuple(sorted({"x", *([option] if option else [])}))


def test_options_and_variables_that_come_of_an_axis_are_varied() -> None:
    assert of_script("{flag}", axes={"flag": ["--nvtx=1", "--quiet"]}) == ("flag", "nvtx", "quiet")
    assert of_script("{a}", axes={"v": {"bundles": {"x": {"a": "--nvtx"}, "y": {"a": ""}}}}) == ("a", "nvtx")
    assert of_script(env={"NCCL_DEBUG": "{said}", "OTHER": "1"}, axes={"said": ["WARN", "INFO"]}) == ("NCCL_DEBUG", "said")


def test_what_is_varied_reaches_the_run_and_no_hash() -> None:
    plan = plan_from_mapping({"name": "p", "workload": "dummy", "axes": {"micro_batch": [8, 16]}}, "here")
    run = resolve(plan, source="here", cwd=Path("/")).runs[0]
    plain = replace(run, varied=())
    assert run.varied == ("micro_batch",) and (run_hash(run), group_key(run)) == (run_hash(plain), group_key(plain))
