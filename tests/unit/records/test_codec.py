"""Records survive the way to JSON and back."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import from_json, to_json
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import LauncherSpec, PlaceSpec, RunSpec, WorkloadSpec
from seatrial.records.verdict import Criterion


def spec(**changes: object) -> RunSpec:
    values: dict[str, object] = {
        "run": "mb8_r1",
        "group": "mb8",
        "repeat": 1,
        "plan": "p",
        "workload": WorkloadSpec(name="train.py", script="train.py", args=("--bs", "8")),
        "launcher": LauncherSpec(kind="torchrun", args=("--standalone",)),
        "place": PlaceSpec(ranks=2, devices=("0", "1")),
        "axes": {"micro_batch": 8, "lr": 1e-3, "fused": True, "note": None},
        "cwd": "/somewhere",
    }
    return RunSpec(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "record",
    [
        spec(),
        RunOutcome(run="r", attempt=2, hash="ab", outcome=Outcome.FAILED, cause=Cause.CUDA_OOM, log_tail=("a", "b")),
        CampaignPlan(
            name="p", output="o", runs=(spec(),), axes={"mb": (8, 16)}, criteria=(Criterion(metric="failed_runs", scope="campaign"),)
        ),
    ],
    ids=lambda record: type(record).__name__,
)
def test_round_trip(record: object) -> None:
    assert from_json(type(record), json.loads(json.dumps(to_json(record)))) == record


def test_unknown_keys_of_a_later_version_are_passed_over() -> None:
    stored = to_json(spec()) | {"invented_later": 1}
    assert from_json(RunSpec, stored) == spec()


def test_nan_becomes_null() -> None:
    @dataclass(frozen=True)
    class Holder:
        values: list[float] = field(default_factory=list)

    assert to_json(Holder([1.0, float("nan"), float("inf")])) == {"values": [1.0, None, None]}


def test_values_of_every_kind_as_a_plain_walk_through_them_gives() -> None:
    class Held(NamedTuple):
        value: object

    outcome = RunOutcome(run="r", attempt=1, hash="", outcome=Outcome.OK, duration_s=float("inf"))
    values = [
        1,
        True,
        None,
        "a",
        2.5,
        -math.inf,
        np.float64(3.5),
        np.float64("nan"),
        Outcome.OK,
        {1: (2, {"x": Cause.NONE})},
        Held([outcome]),
    ]
    for value in (*values, values, {"all": values}):
        assert to_json(value) == walked(value)


def walked(value: Any) -> Any:
    """`to_json` without looking anything up."""
    if dataclasses.is_dataclass(value):
        return {field.name: walked(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): walked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [walked(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
