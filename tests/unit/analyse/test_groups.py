"""Groups: what is put together, what is set aside, what is said."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.analyse.groups import summarise
from seatrial.records.columns import GROUP_SEED
from seatrial.records.command import Provenance
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import MeasuredRun
from tests.unit.analyse import factory


def run(group: str, repeat: int, rate: float = 100.0, *, seed: dict[str, Any] | None = None, **changes: Any) -> MeasuredRun:
    values = {"samples_per_s": rate, "steps_per_s": rate / 8, "seed": seed or {}}
    return factory.measured(factory.spec(group, repeat), measure=values, **changes)


def test_runs_of_a_key_are_one_group_with_geometric_means() -> None:
    (found,) = summarise([run("a", 1, 50.0), run("a", 2, 200.0)], "old_like")
    assert (found.group, found.runs, found.failed_runs, found.window_n) == ("a", 2, 0, 200)
    assert found.figures["samples_per_s"].mean == pytest.approx(100.0)
    assert found.figures["samples_per_s"].n == 2
    assert set(found.seed) == set(GROUP_SEED)


def test_failed_runs_are_counted_and_interrupted_ones_are_not() -> None:
    runs = [
        run("a", 1),
        run("a", 2, outcome=Outcome.FAILED),
        run("a", 3, outcome=Outcome.TIMEOUT),
        run("a", 4, outcome=Outcome.INTERRUPTED),
    ]
    (found,) = summarise([*runs, run("a", 5, outcome=None), run("a", 6, outcome=Outcome.SKIPPED)], "old_like")
    assert (found.runs, found.failed_runs) == (1, 2)


def test_old_attempts_do_not_count() -> None:
    (found,) = summarise([run("a", 1, 10.0, current=False), run("a", 1, 100.0)], "old_like")
    assert found.runs == 1
    assert found.figures["samples_per_s"].mean == pytest.approx(100.0)


def test_two_configurations_of_one_name_are_told_apart() -> None:
    one = factory.measured(factory.spec("a", 1, group_key="1234567", settings={"lr": 1}))
    other = factory.measured(factory.spec("a", 1, group_key="89abcde", settings={"lr": 2}))
    assert [group.group for group in summarise([one, other], "old_like")] == ["a~1234", "a~89ab"]


def test_unlike_runs_are_set_aside_and_the_difference_is_named() -> None:
    old, new = Provenance(fingerprint="f1", driver_version="550.54"), Provenance(fingerprint="f2", driver_version="560.28")
    runs = [run("a", 1, 10.0, provenance=old, started_t=1.0), run("a", 2, 100.0, provenance=new, started_t=2.0)]
    (found,) = summarise(runs, "old_like")
    assert (found.runs, found.set_aside_runs) == (1, 1)
    assert found.figures["samples_per_s"].mean == pytest.approx(100.0)
    assert found.cautions[0].kind == "unlike_runs"
    assert "driver_version (550.54 → 560.28)" in found.cautions[0].text


def test_a_figure_that_one_run_lacks_is_not_given() -> None:
    lacking = factory.measured(factory.spec("a", 2), measure={"steps_per_s": 10.0})
    (found,) = summarise([run("a", 1), lacking], "old_like")
    assert "samples_per_s" not in found.figures
    assert "steps_per_s" in found.figures


def test_seed_columns_are_means_deviations_and_the_score() -> None:
    seeds = [
        {"tail_mean_iter_p50_ms": 100.0, "tail_mean_iter_p90_ms": 150.0, "unstable_run_flag": False},
        {"tail_mean_iter_p50_ms": 120.0, "tail_mean_iter_p90_ms": 180.0, "unstable_run_flag": True},
    ]
    (found,) = summarise([run("a", number + 1, seed=seed) for number, seed in enumerate(seeds)], "old_like")
    assert found.seed["tail_mean_iter_p50_ms_mean"] == pytest.approx(110.0)
    assert found.seed["tail_mean_iter_p50_ms_std"] == pytest.approx(14.142136)
    assert (found.seed["tail_mean_iter_p50_ms_min"], found.seed["tail_mean_iter_p50_ms_max"]) == (100.0, 120.0)
    assert (found.seed["unstable_run_count"], found.seed["unstable_run_ratio"]) == (1, 0.5)
    assert found.seed["stability_score"] == pytest.approx(1.5 * 1.5)
    assert (found.seed["gpu_telemetry_rows_mean"], found.seed["gpu_telemetry_empty_count"]) == (0.0, 2)


def test_configuration_is_one_value_or_mixed() -> None:
    runs = [
        factory.measured(factory.spec("a", repeat, settings={"micro_batch": 8, "num_workers": repeat}, group_key="same"))
        for repeat in (1, 2)
    ]
    (found,) = summarise(runs, "old_like")
    assert found.seed["micro_batch"] == 8
    assert found.seed["num_workers"] == "mixed"
    assert found.seed["zero_stage"] is None


def test_runs_whose_settings_came_to_something_else_are_not_averaged() -> None:
    bf16, fp16 = ({"effective": {"precision": ("auto", value, "")}} for value in ("bf16", "fp16"))
    runs = [factory.measured(factory.spec("a", repeat), measure=how) for repeat, how in ((1, bf16), (2, fp16), (3, fp16))]
    (found,) = summarise(runs, "old_like")
    assert (found.runs + found.set_aside_runs, found.set_aside_runs) in ((3, 1), (3, 2))
    assert found.seed["precision_mode_effective"] in ("bf16", "fp16")
    assert "precision (" in next(caution.text for caution in found.cautions if caution.kind == "unlike_runs")


def test_failures_before_a_success_are_told() -> None:
    ok = factory.measured(factory.spec("a", 1))
    failed = factory.measured(factory.spec("a", 1), outcome=Outcome.FAILED, current=False)
    (found,) = summarise([failed, ok], "old_like")
    assert (found.runs, found.failed_runs, found.failed_attempts) == (1, 0, 1)
    assert "retried" in {caution.kind for caution in found.cautions}


def test_speedup_is_over_the_baseline() -> None:
    slow, fast = {"tail_mean_iter_p50_ms": 200.0}, {"tail_mean_iter_p50_ms": 100.0}
    groups = summarise([run("old_like", 1, seed=slow), run("tuned", 1, seed=fast)], "old_like")
    assert [group.seed["speedup_vs_baseline"] for group in groups] == [1.0, 2.0]
    assert [group.seed["speedup_vs_baseline"] for group in summarise([run("tuned", 1, seed=fast)], "old_like")] == [None]


def test_a_group_without_a_good_run_keeps_its_configuration() -> None:
    failed = factory.measured(factory.spec("a", 1, settings={"micro_batch": 8}), outcome=Outcome.FAILED)
    (found,) = summarise([failed], "old_like")
    assert (found.runs, found.failed_runs, found.seed["micro_batch"]) == (0, 1, 8)
    assert found.figures == {}


def test_no_runs_no_groups() -> None:
    assert summarise([], "old_like") == ()


def test_what_the_platform_failed_weighs_on_no_group() -> None:
    again = factory.spec("a", 1)
    runs = [
        factory.measured(again, number=1, outcome=Outcome.FAILED, cause=Cause.IO_ERROR, current=False),
        factory.measured(again, number=2),
        factory.measured(factory.spec("a", 2), outcome=Outcome.FAILED, cause=Cause.IO_ERROR),
        factory.measured(factory.spec("a", 3), outcome=Outcome.FAILED, cause=Cause.EXCEPTION),
    ]
    (found,) = summarise(runs, "old_like")
    assert (found.runs, found.failed_runs, found.failed_attempts) == (1, 1, 0)
    assert found.infrastructure_failures == ("a_r2 (io_error)",)


def test_a_group_has_the_axes_of_its_runs() -> None:
    (found,) = summarise([factory.measured(factory.spec("a", 1, axes={"mb": 8}))], "old_like")
    assert found.axes == {"mb": 8}


@pytest.mark.parametrize(("told_at", "words"), [(1.0, "precision (bf16 → none)"), (3.0, "precision (none → bf16)")])
def test_a_setting_that_only_some_runs_tell_is_a_difference_from_the_newest(told_at: float, words: str) -> None:
    telling = {"effective": {"precision": ("auto", "bf16", "")}}
    runs = [
        factory.measured(factory.spec("a", 1), measure=telling, started_t=told_at),
        factory.measured(factory.spec("a", 2), measure={"effective": {}}, started_t=2.0),
    ]
    (found,) = summarise(runs, "old_like")
    assert words in next(caution.text for caution in found.cautions if caution.kind == "unlike_runs")
