"""Figures that a training reports: which of them are an anomaly, and that a sample counts once."""

from __future__ import annotations

import json
import math

import pytest

from seatrial.observe.heartbeats import parse_heartbeat
from seatrial.observe.training_health import HealthJudge, HealthLimits, HealthSample

COLLAPSED = {"entropy_mean": 0.05, "max_gate_mean": 0.99}
HEALTHY = {"entropy_mean": 1.09, "max_gate_mean": 0.35, "max_gate_max": 0.99, "collapse_frac": 0.0}


def kinds(samples: list[HealthSample], limits: HealthLimits | None = None) -> list[tuple[int, str]]:
    judge = HealthJudge(limits)
    return [(sample.step, found.kind) for sample in samples if (found := judge.check(sample)) is not None]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("loss", [2.0, math.nan, 2.0], [(1, "nan_loss")]),
        ("grad_norm", [1.0, math.inf], [(1, "nan_loss")]),
        ("grad_norm", [0.0, 1.0, 0.0, 0.0, 0.0], [(3, "zero_grad")]),
        # A loss scaler that finds its scale has skipped a few; one that never does is an anomaly.
        ("skipped_in_a_row", [1, 2, 3, 24, 0], []),
        ("skipped_in_a_row", [24, 25], [(1, "nan_loss")]),
        ("tokens_per_s", [0.0, 0.0, 0.0, 0.0, 0.0], [(3, "throughput_flatline")]),
        ("tokens_per_s", [100.0] * 5 + [4.0] * 3 + [100.0], []),
        ("tokens_per_s", [100.0] * 5 + [4.0] * 4, [(8, "throughput_flatline")]),
        # Against the last two hundred: a phase that was much quicker is long over.
        ("tokens_per_s", [1000.0] * 300 + [120.0] * 200 + [90.0] * 4, []),
        # A run that is merely slower is not stuck.
        ("tokens_per_s", [100.0] * 5 + [30.0] * 9, []),
        ("gates", [COLLAPSED, COLLAPSED, HEALTHY, COLLAPSED], []),
        ("gates", [COLLAPSED, COLLAPSED, COLLAPSED], [(2, "gate_collapse")]),
        ("gates", [{"collapse_frac": 0.7}] * 3, [(2, "gate_collapse")]),
    ],
)
def test_only_what_lasts_is_an_anomaly(name: str, values: list[object], expected: list[tuple[int, str]]) -> None:
    samples = [HealthSample(step=step, **{name: value}) for step, value in enumerate(values)]

    assert kinds(samples) == expected


def test_a_sample_that_is_read_again_counts_once() -> None:
    assert kinds([HealthSample(step=7, gates=COLLAPSED)] * 10 + [HealthSample(step=8, gates=COLLAPSED)]) == []


def test_the_samples_of_a_collapse_are_kept() -> None:
    judge = HealthJudge(HealthLimits(gate_collapse_n=1))
    found = judge.check(HealthSample(step=4, gates=COLLAPSED))

    assert found is not None
    assert found.details["samples"] == [{"step": 4, **COLLAPSED}]


def test_a_heartbeat_with_a_remark_still_has_figures_and_they_are_those_of_their_own_step() -> None:
    line = {"rank": 0, "step": 9, "msg": "progress; 3 event lines lost: disk full", "figures_step": 8, "grad_norm": 0.0, "loss": "nan"}
    found = parse_heartbeat(json.dumps(line).encode(), 0, 0)

    assert found is not None and found.health is not None
    assert (found.step, found.health.step, found.health.grad_norm) == (9, 8, 0.0)
    assert math.isnan(found.health.loss or 0.0)
    assert (found := parse_heartbeat(json.dumps({**line, "msg": "beat; progress"}).encode(), 0, 0)) and found.health is None


def test_figures_that_no_sample_has_are_unseen() -> None:
    judge = HealthJudge()
    judge.check(HealthSample(step=1, loss=2.0))
    judge.check(HealthSample(step=2, tokens_per_s=9.0))

    assert judge.unseen == ["gradient norm", "gates"]
