"""What a reader must know to weigh a ranking."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.analyse.rank_cautions import BATCH_NAME, ranking_cautions, varying_batch_axes
from seatrial.analyse.rank_metric import METRICS
from seatrial.records.caution import Caution
from seatrial.records.measure import GroupSummary
from tests.unit.analyse.factory import group


def cautions(*groups: GroupSummary, metric: str = "samples_per_s") -> dict[str, Caution]:
    return {caution.kind: caution for caution in ranking_cautions(groups, METRICS[metric])}


def pair(first: dict[str, Any], second: dict[str, Any]) -> tuple[GroupSummary, GroupSummary]:
    return group("a", **first), group("b", **second)


def test_two_groups_alike_with_repeats_have_none() -> None:
    assert cautions(*pair({}, {})) == {}


@pytest.mark.parametrize("name", ["mb", "bs", "mbs", "batch", "batch_size", "batchsize", "per_device_batch_size", "seq_len", "accum_steps"])
def test_names_that_say_how_much_a_step_does(name: str) -> None:
    assert BATCH_NAME.search(name)


@pytest.mark.parametrize("name", ["lr", "batches", "mbx", "num_workers", "absolute"])
def test_names_that_do_not(name: str) -> None:
    assert not BATCH_NAME.search(name)


def test_only_an_axis_with_several_values_varies() -> None:
    assert varying_batch_axes(pair({"axes": {"bs": 8, "mb": 1, "lr": 1}}, {"axes": {"bs": 16, "mb": 1, "lr": 2}})) == ["bs"]
    assert varying_batch_axes([]) == []


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("steps_per_s", "Steps are compared by steps/s while 'bs' varies"),
        ("wall_p50_ms", 'Give samples_per_step (for example samples_per_step: "{bs}")'),
        ("iter_p50", "Steps are compared by ms iter p50"),
        ("duration_s", "Whole runs are compared while 'bs' varies"),
    ],
)
def test_steps_of_unlike_size_compared(metric: str, words: str) -> None:
    found = cautions(*pair({"axes": {"bs": 8}}, {"axes": {"bs": 16}}), metric=metric)["steps_compared"]
    assert words in found.text and found.numbers == {"axis": "bs"}


def test_a_rate_of_samples_is_not_about_steps() -> None:
    assert cautions(*pair({"axes": {"bs": 8}}, {"axes": {"bs": 16}})) == {}


def test_single_repeats() -> None:
    assert cautions(*pair({"runs": 1}, {"runs": 1}))["one_repeat"].text.startswith("Every group has one run only")
    some = cautions(*pair({"runs": 1}, {"runs": 2}))["one_repeat"]
    assert some.text.startswith("1 of 2 groups have one run only") and some.numbers == {"groups": 1}
    assert cautions(group("a", runs=1)) == {}, "a group alone is in no order"
    assert cautions(*pair({"runs": 0}, {"runs": 1})) == {}


def test_groups_on_unlike_machines_are_told_by_what_differs() -> None:
    named = pair({"fingerprint": "x", "seed": {"gpu_name": "A"}}, {"fingerprint": "y", "seed": {"gpu_name": "B"}})
    assert "under unlike conditions (gpu_name), so" in cautions(*named)["unlike_groups"].text
    unnamed = pair({"fingerprint": "x"}, {"fingerprint": "y"})
    assert "(host, Python, torch, or variables of the caller)" in cautions(*unnamed)["unlike_groups"].text


def test_what_the_platform_failed_weighs_on_no_group_and_is_told_also_of_groups_without_runs() -> None:
    one = cautions(group("a", runs=0, infrastructure_failures=("a_r1 (io_error)",)))["failed_by_platform"]
    assert one.text.startswith("1 run was failed by the platform and not by the settings (a_r1 (io_error))") and one.numbers == {"runs": 1}
    many = cautions(group("a", infrastructure_failures=tuple(f"r{at}" for at in range(6))))["failed_by_platform"]
    assert many.text.startswith("6 runs were failed") and "(r0, r1, r2, r3 and 2 more):" in many.text


def test_debug_in_some_groups_and_not_in_others() -> None:
    found = cautions(*pair({"debug": ("NCCL_DEBUG=INFO",)}, {}))["mixed_debug"]
    assert found.text.endswith("some without (a (NCCL_DEBUG=INFO)): they must not be compared; switch it off and run them again.")
    assert found.numbers == {"groups": 1}
    assert cautions(*pair({"debug": ("NCCL_DEBUG=INFO",)}, {"debug": ("NCCL_DEBUG=info",)})) == {}
