"""The ready criteria ask for what the procedures ask for, in metrics that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.steps import read_steps
from seatrial.errors import UsageError
from seatrial.plan.criteria_listing import criteria_listing, criterion_line
from seatrial.plan.ready_criteria import READY_CRITERIA
from seatrial.probe import Probe
from seatrial.records.criteria_catalog import METRICS, REPORTED, metric_entry
from seatrial.records.verdict import Baseline, Criterion
from tests.unit.collect.on_disk import write_attempt


@pytest.mark.parametrize("name", READY_CRITERIA)
def test_each_gate_fits_its_metric_and_has_a_reason(name: str) -> None:
    ready = READY_CRITERIA[name]
    assert len({(gate.metric, gate.scope) for gate in ready.criteria}) == len(ready.criteria)
    for gate in ready.criteria:
        entry = metric_entry(gate.metric)
        assert entry is not None
        assert gate.scope in entry.scopes and gate.unit == entry.unit and gate.reason
        assert ((gate.at_most is None) != (gate.at_least is None)) == entry.needs_bound
    assert ready.compares == any(METRICS[gate.metric].compares for gate in ready.criteria if gate.metric in METRICS)


NUMBERS = {
    "stage1_stability": {"counted_runs": 3, "iter_ratio_median": 1.5, "iter_ratio_max": 2.5, "throughput_cv_pct": 5},
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
    "inference_server": {"ttft_p99_ms": 2000, "tpot_p99_ms": 100},
    "inference_interactive": {"ttft_p99_ms": 500, "tpot_p99_ms": 30},
    "inference_accuracy": {"reported.rouge1": 38.391408, "reported.rougeLsum": 35.43507, "reported.gen_len": 7350879.6},
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_are_those_of_the_procedure(name: str) -> None:
    bounds = {gate.metric: gate.at_most if gate.at_most is not None else gate.at_least for gate in READY_CRITERIA[name].criteria}
    assert {metric: bounds[metric] for metric in NUMBERS[name]} == pytest.approx(NUMBERS[name])


def test_every_figure_that_a_set_asks_of_the_workload_can_be_told(tmp_path: Path) -> None:
    gates = {gate.metric for ready in READY_CRITERIA.values() for gate in ready.criteria}
    fields = {entry.run_field for entry in map(metric_entry, gates) if entry is not None and entry.run_field}
    names = {field.removeprefix(REPORTED) for field in fields if field.startswith(REPORTED)}
    assert {"rougeL", "rougeLsum", "gate_max_mean", "ttft_p99_ms"} <= names
    attempt = write_attempt(tmp_path)
    with Probe(attempt.folder, run=attempt.spec.run, attempt=1, rank=0, world_size=1, heartbeat_s=None) as probe:
        for name in names:
            probe.figure(name, 1.0)
    assert set(read_steps(attempt).reported) == names


def test_stability_asks_for_no_samples_of_gpus() -> None:
    """The procedure's own bound on them binds nothing, and a machine without GPUs has none."""
    assert "gpu_telemetry_empty_ratio" not in {gate.metric for gate in READY_CRITERIA["stage1_stability"].criteria}


def test_the_doubtful_numbers_say_so() -> None:
    (throughput,) = [gate for gate in READY_CRITERIA["sparse_lm_throughput"].criteria if gate.metric == "tokens_per_s"]
    (scaling,) = [gate for gate in READY_CRITERIA["sparse_lm_scaling"].criteria if gate.metric == "scaling_efficiency"]
    assert "broken baseline" in throughput.reason
    assert "gives no number; this is ours" in scaling.reason


def test_the_listing_has_all_of_them() -> None:
    text = criteria_listing()
    assert all(f"\n  {name}" in text for name in (*METRICS, *READY_CRITERIA, "reported.NAME"))


def test_the_listing_of_one() -> None:
    assert criteria_listing("stage1_regression").splitlines() == [
        "  stage1_regression [needs a baseline]: stage 1 after a change: nothing has become slower beyond the allowance",
        "      failed_runs at most 0 runs (campaign): a configuration that fails sometimes is not accepted on the runs that survived",
        "      regression_pct at most 3 % (every_group): the procedure allows 3 % against the last accepted result",
        "      loss_comparable holds (winner): a speed-up that costs the training is none",
        "      loss_finite holds (every_run): a loss that is no number ends the training, however fast it goes on",
    ]
    assert criteria_listing("loss_comparable").splitlines()[0] == (
        "  loss_comparable (winner, every_group) [takes no bound, needs a baseline]"
    )
    with pytest.raises(UsageError, match=r"no metric and no ready criteria are called 'speedup'; did you mean 'speedup_pct'\?"):
        criteria_listing("speedup")


def test_a_criterion_in_one_line() -> None:
    baseline = Baseline(campaign="/out", group="mb8")
    gate = Criterion(metric="speedup_pct", scope="winner", at_least=8, at_most=900, unit="%", baseline=baseline, ready="a_set")
    assert criterion_line(gate) == "speedup_pct at least 8 % and at most 900 % (winner) against /out:mb8, from a_set"
    assert criterion_line(Criterion(metric="stable", scope="every_group")) == "stable holds (every_group)"
