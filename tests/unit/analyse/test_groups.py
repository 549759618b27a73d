"""Groups: which runs count, their figures and stage 1's columns."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from seatrial.analyse.groups import MIXED, stage1_group_cells, summarise_groups
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Scalar
from seatrial.records.columns import GROUP_STAGE1
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import MeasuredRun
from tests.unit.analyse import factory
from tests.unit.analyse.factory import measured, spec


def ok_run(group: str, repeat: int, rate: float = 100.0, *, stage1: dict[str, Any] | None = None, **changes: Any) -> MeasuredRun:
    values = {"samples_per_s": rate, "steps_per_s": rate / 8, "stage1": stage1 or {}}
    return factory.measured(factory.spec(group, repeat), measure=values, **changes)


def test_runs_of_a_key_are_one_group_with_geometric_means() -> None:
    assert summarise_groups([], "old_like") == ()
    (found,) = summarise_groups([ok_run("a", 1, 50.0), ok_run("a", 2, 200.0)], "old_like")
    assert (found.group, found.runs, found.failed_runs, found.window_n) == ("a", 2, 0, 200)
    assert found.figures["samples_per_s"].mean == pytest.approx(100.0)
    assert found.figures["samples_per_s"].n == 2
    assert set(found.stage1) == set(GROUP_STAGE1)


def test_failed_runs_are_counted_and_interrupted_ones_are_not() -> None:
    runs = [
        ok_run("a", 1),
        ok_run("a", 2, outcome=Outcome.FAILED),
        ok_run("a", 3, outcome=Outcome.TIMEOUT),
        ok_run("a", 4, outcome=Outcome.INTERRUPTED),
    ]
    (found,) = summarise_groups([*runs, ok_run("a", 5, outcome=None), ok_run("a", 6, outcome=Outcome.SKIPPED)], "old_like")
    assert (found.runs, found.failed_runs) == (1, 2)


def test_old_attempts_do_not_count() -> None:
    (found,) = summarise_groups([ok_run("a", 1, 10.0, current=False), ok_run("a", 1, 100.0)], "old_like")
    assert found.runs == 1
    assert found.figures["samples_per_s"].mean == pytest.approx(100.0)


def test_two_configurations_of_one_name_are_distinguished() -> None:
    one = factory.measured(factory.spec("a", 1, group_key="1234567", settings={"lr": 1}))
    other = factory.measured(factory.spec("a", 1, group_key="89abcde", settings={"lr": 2}))
    assert [group.group for group in summarise_groups([one, other], "old_like")] == ["a~1234", "a~89ab"]


def test_different_runs_are_set_aside_and_the_difference_is_named() -> None:
    old, new = Provenance(fingerprint="f1", driver_version="550.54"), Provenance(fingerprint="f2", driver_version="560.28")
    runs = [ok_run("a", 1, 10.0, provenance=old, started_t=1.0), ok_run("a", 2, 100.0, provenance=new, started_t=2.0)]
    (found,) = summarise_groups(runs, "old_like")
    assert (found.runs, found.set_aside_runs) == (1, 1)
    assert found.figures["samples_per_s"].mean == pytest.approx(100.0)
    assert found.cautions[0].kind == "unlike_runs"
    assert "driver_version (550.54 → 560.28)" in found.cautions[0].text


def test_a_figure_that_one_run_lacks_is_not_given() -> None:
    lacking = factory.measured(factory.spec("a", 2), measure={"steps_per_s": 10.0})
    (found,) = summarise_groups([ok_run("a", 1), lacking], "old_like")
    assert "samples_per_s" not in found.figures
    assert "steps_per_s" in found.figures


def test_failures_before_a_success_are_reported() -> None:
    ok = factory.measured(factory.spec("a", 1))
    failed = factory.measured(factory.spec("a", 1), outcome=Outcome.FAILED, current=False)
    (found,) = summarise_groups([failed, ok], "old_like")
    assert (found.runs, found.failed_runs, found.failed_attempts) == (1, 0, 1)
    assert "retried" in {caution.kind for caution in found.cautions}


def test_speedup_is_over_the_baseline() -> None:
    slow, fast = {"tail_mean_iter_p50_ms": 200.0}, {"tail_mean_iter_p50_ms": 100.0}
    groups = summarise_groups([ok_run("old_like", 1, stage1=slow), ok_run("tuned", 1, stage1=fast)], "old_like")
    assert [group.stage1["speedup_vs_baseline"] for group in groups] == [1.0, 2.0]
    assert [group.stage1["speedup_vs_baseline"] for group in summarise_groups([ok_run("tuned", 1, stage1=fast)], "old_like")] == [None]


def test_a_group_without_a_good_run_keeps_its_configuration() -> None:
    failed = factory.measured(factory.spec("a", 1, settings={"micro_batch": 8}), outcome=Outcome.FAILED)
    (found,) = summarise_groups([failed], "old_like")
    assert (found.runs, found.failed_runs, found.stage1["micro_batch"]) == (0, 1, 8)
    assert found.figures == {}


def test_what_the_platform_failed_weighs_on_no_group() -> None:
    again = factory.spec("a", 1)
    runs = [
        factory.measured(again, number=1, outcome=Outcome.FAILED, cause=Cause.IO_ERROR, current=False),
        factory.measured(again, number=2),
        factory.measured(factory.spec("a", 2), outcome=Outcome.FAILED, cause=Cause.IO_ERROR),
        factory.measured(factory.spec("a", 3), outcome=Outcome.FAILED, cause=Cause.EXCEPTION),
    ]
    (found,) = summarise_groups(runs, "old_like")
    assert (found.runs, found.failed_runs, found.failed_attempts) == (1, 1, 0)
    assert found.infrastructure_failures == ("a_r2 (io_error)",)


@pytest.mark.parametrize(
    ("other", "started_t", "words"),
    [({}, 1.0, "precision (bf16 → none)"), ({}, 3.0, "precision (none → bf16)"), ({"precision": ("auto", "fp16", "")}, 3.0, "fp16 → bf16")],
)
def test_a_run_with_another_effective_setting_than_the_newest_is_set_aside(other: dict[str, Any], started_t: float, words: str) -> None:
    bf16 = {"effective": factory.effective({"precision": ("auto", "bf16", "")})}
    runs = [
        factory.measured(factory.spec("a", 1, axes={"mb": 8}), measure=bf16, started_t=started_t),
        factory.measured(factory.spec("a", 2, axes={"mb": 8}), measure={"effective": factory.effective(other)}, started_t=2.0),
    ]
    (found,) = summarise_groups(runs, "old_like")
    assert (found.runs, found.set_aside_runs, found.axes) == (1, 1, {"mb": 8})
    assert words in next(caution.text for caution in found.cautions if caution.kind == "unlike_runs")


def run(repeat: int = 1, micro_batch: int = 8, **stage1: Scalar) -> MeasuredRun:
    return measured(spec("a", repeat, settings={"micro_batch": micro_batch}), measure={"stage1": stage1})


def cells(*runs: MeasuredRun, counted: tuple[MeasuredRun, ...] | None = None) -> dict[str, Any]:
    return stage1_group_cells(runs, runs if counted is None else counted)


def test_every_column_but_those_that_others_fill() -> None:
    assert list(cells(run())) == [name for name in GROUP_STAGE1 if name not in ("group", "mode", "runs")]


def test_stage1_configuration_is_one_value_or_mixed() -> None:
    columns = [name for name, value in cells(run(micro_batch=8), run(2, micro_batch=16)).items() if value == MIXED]
    assert columns == ["micro_batch"]
    assert cells(run(), run(2))["micro_batch"] == 8 and cells(run())["zero_stage"] is None


def test_configuration_is_of_all_runs_and_numbers_are_of_those_that_count() -> None:
    good, bad = run(tail_mean_iter_p50_ms=10.0), run(2, micro_batch=16, tail_mean_iter_p50_ms=90.0)
    found = cells(good, bad, counted=(good,))
    assert found["micro_batch"] == MIXED and found["tail_mean_iter_p50_ms_mean"] == 10.0


def test_mean_and_deviation_of_the_runs_columns() -> None:
    found = cells(*(run(at, tail_mean_iter_p50_ms=value) for at, value in enumerate((10.0, 20.0, 60.0), start=1)))
    assert found["tail_mean_iter_p50_ms_mean"] == 30.0
    assert found["tail_mean_iter_p50_ms_std"] == pytest.approx(statistics.stdev([10.0, 20.0, 60.0]))
    assert (found["tail_mean_iter_p50_ms_min"], found["tail_mean_iter_p50_ms_max"]) == (10.0, 60.0)
    assert (found["gpu_telemetry_rows_mean"], found["gpu_telemetry_empty_count"]) == (0.0, 3)


@pytest.mark.parametrize(
    ("values", "mean", "std"),
    [((10.0,), 10.0, 0.0), ((None, float("nan"), float("inf"), True, "x"), None, None), ((4, None), 4.0, 0.0)],
)
def test_what_is_no_number_does_not_count(values: tuple[Scalar, ...], mean: float | None, std: float | None) -> None:
    found = cells(*(run(at, tail_mean_iter_p50_ms=value) for at, value in enumerate(values, start=1)))
    assert (found["tail_mean_iter_p50_ms_mean"], found["tail_mean_iter_p50_ms_std"]) == (mean, std)


def test_unstable_runs_are_a_share_of_those_with_the_flag() -> None:
    found = cells(run(unstable_run_flag=True), run(2, unstable_run_flag=False), run(3))
    assert (found["unstable_run_count"], found["unstable_run_ratio"]) == (1, 0.5)
    none = cells(run(), run(2))
    assert (none["unstable_run_count"], none["unstable_run_ratio"]) == (None, None)


def test_the_stability_score_is_made_worse_by_unstable_runs() -> None:
    tail = {"tail_mean_iter_p50_ms": 10.0, "tail_mean_iter_p90_ms": 15.0}
    assert cells(run(**tail))["stability_score"] == 1.5
    assert cells(run(**tail, unstable_run_flag=True), run(2, **tail, unstable_run_flag=False))["stability_score"] == 1.5 * 1.5
    assert cells(run(tail_mean_iter_p50_ms=0.0, tail_mean_iter_p90_ms=1.0))["stability_score"] is None
    assert cells(run(tail_mean_iter_p50_ms=10.0))["stability_score"] is None


def test_a_run_of_which_nothing_was_measured_has_its_configuration() -> None:
    bare = MeasuredRun(attempt=run().attempt, measure=None)
    assert cells(bare)["micro_batch"] == 8 and cells(bare)["tail_mean_iter_p50_ms_mean"] is None
