"""What is said to fit where a group ran out of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seatrial.analyse.what_fits import what_fits
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import MeasuredRun
from tests.unit.analyse.factory import measured, spec


def ok(mb: float, repeat: int = 1, *, peak: Any = None, host: Any = None, **axes: Any) -> MeasuredRun:
    telemetry = {"gpu_mem_peak_mib": peak, "host_rss_peak_mib": host}
    return measured(_spec(mb, repeat, axes), measure={"telemetry": telemetry})


def bad(mb: float, repeat: int = 1, cause: Cause = Cause.CUDA_OOM, **axes: Any) -> MeasuredRun:
    return measured(_spec(mb, repeat, axes), outcome=Outcome.FAILED, cause=cause)


def _spec(mb: float, repeat: int, axes: dict[str, Any]) -> Any:
    name = "_".join([f"mb{mb}", *(f"{key}{value}" for key, value in axes.items())])
    return spec(name, repeat, axes={"micro_batch": mb, **axes})


def test_the_largest_that_fits_is_told_with_its_peak_and_what_lies_between() -> None:
    runs = [ok(64), ok(128, 1, peak=20_100.0), ok(128, 2, peak=21_480.0), bad(192)]
    [caution] = what_fits(runs)
    assert (caution.kind, caution.subject) == ("what_fits", "mb192")
    assert caution.text == (
        "It ran out of GPU memory. What fits, all else equal: micro_batch 128 ended ok (mb128, 2 runs, GPU memory at most 21,480 MiB), and "
        "160 lies between it and 192, untried."
    )
    assert caution.numbers == {"micro_batch": 128, "micro_batch_n": 2, "micro_batch_peak_mib": 21_480.0, "micro_batch_to_try": 160}


def test_of_several_that_failed_the_smallest_bounds_what_to_try() -> None:
    cautions = what_fits([ok(128), bad(192), bad(256)])
    assert [(one.subject, one.numbers["micro_batch_to_try"]) for one in cautions] == [("mb192", 160), ("mb256", 160)]


def test_each_axis_is_looked_at_with_the_others_equal() -> None:
    runs = [ok(64, zero=0), bad(128, zero=0), ok(128, zero=1), ok(512, zero=2)]
    [caution] = what_fits(runs)
    assert caution.numbers["micro_batch"] == 64 and caution.numbers["zero"] == 1
    # Above, more sharing takes less memory: nothing lies between that could be tried.
    assert "zero_to_try" not in caution.numbers


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [ok(64), ok(128)],
        [bad(64), bad(128)],
        [bad(128), ok(64, zero=0)],
        [bad(128, zero=0), ok(64, zero=1)],
        [bad(128, cause=Cause.NAN), ok(64)],
        # A neighbour that fits once and fails once does not fit.
        [bad(128), ok(64, 1), bad(64, 2)],
    ],
)
def test_nothing_where_nothing_is_known_to_fit(runs: list[MeasuredRun]) -> None:
    assert [one for one in what_fits(runs) if one.subject == "mb128" or not runs] == []


def test_words_and_switches_are_no_numbers() -> None:
    assert what_fits([measured(spec("a", axes={"attn": "sdpa", "compile": False})), _oom("b", {"attn": "eager", "compile": True})]) == []


def _oom(name: str, axes: dict[str, Any]) -> MeasuredRun:
    return measured(spec(name, axes=axes), outcome=Outcome.FAILED, cause=Cause.CUDA_OOM)


def test_host_memory_has_the_peak_of_the_host() -> None:
    for cause in (Cause.HOST_OOM, Cause.MEMORY_LIMIT):
        [caution] = what_fits([ok(4, host=9000.4, peak=1), bad(8, cause=cause)])
        assert "host memory at most 9,000 MiB" in caution.text


def test_a_peak_that_nobody_sampled_is_said_to_be_missing() -> None:
    [caution] = what_fits([ok(4), bad(5)])
    assert "its peak memory was not sampled" in caution.text and "micro_batch_to_try" not in caution.numbers


@pytest.mark.parametrize(
    ("fits", "fails", "between"), [(8, 16, 12), (128, 192, 160), (100, 150, 124), (4, 6, 5), (0.5, 1.0, 0.75), (1, 2, None)]
)
def test_a_value_between_is_a_round_one(fits: float, fails: float, between: float | None) -> None:
    [caution] = what_fits([ok(fits), bad(fails)])
    assert caution.numbers.get("micro_batch_to_try") == between


def test_old_attempts_and_other_places_do_not_count() -> None:
    old = measured(_spec(64, 1, {}), current=False)
    elsewhere = measured(spec("mb64", 1, ranks=4, axes={"micro_batch": 64}))
    assert what_fits([old, elsewhere, bad(128)]) == []


def bundle(name: str, outcome: Outcome = Outcome.OK, detail: str = "", env: dict[str, str] | None = None, **settings: Any) -> MeasuredRun:
    run = spec(name, axes={"candidate": name}, labels={"candidate": ""}, settings={"log_every": 50, **settings}, env=env or {})
    found = measured(run, outcome=outcome, cause=Cause.NONE if outcome is Outcome.OK else Cause.CUDA_OOM)
    assert found.attempt.outcome is not None
    return replace(found, attempt=replace(found.attempt, outcome=replace(found.attempt.outcome, detail=detail)))


def test_members_of_bundles_are_settings_too() -> None:
    runs = [bundle("z0_mb192", micro_batch=192, workers=4), bundle("z0_mb128", micro_batch=128, workers=6)]
    [caution] = what_fits([*runs, bundle("z0_mb224", Outcome.FAILED, micro_batch=224, workers=4)])
    assert caution.subject == "z0_mb224"
    assert "micro_batch 192 ended ok (z0_mb192, 1 run" in caution.text and caution.numbers["micro_batch_to_try"] == 208
    assert "workers" not in caution.text and "log_every" not in caution.text


def test_a_bundle_with_other_variables_is_no_neighbour() -> None:
    fits = bundle("a", env={"NSA_DDP_BUCKET_MB": "50"}, micro_batch=8)
    assert what_fits([fits, bundle("b", Outcome.FAILED, micro_batch=16)]) == []


def test_without_a_neighbour_the_message_says_how_far_it_is() -> None:
    detail = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.34 GiB. GPU 0 has a total capacity of 23.65 GiB of which "
        "801.81 MiB is free. Including non-PyTorch memory, this process has 22.86 GiB memory in use. Of the allocated memory 21.40 GiB "
        "is allocated by PyTorch, and 301.00 MiB is reserved by PyTorch but unallocated."
    )
    [caution] = what_fits([bundle("a", micro_batch=8, workers=2), bundle("b", Outcome.FAILED, detail, micro_batch=16, workers=4)])
    assert caution.text == (
        "It ran out of GPU memory. No group that differs in one number alone ended ok. By its own message it tried to allocate 2.34 GiB "
        "with 802 MiB free of 23.65 GiB, and held 21.40 GiB: its demand up to there was 1.06 times what it can have, and more may follow."
    )
    assert caution.numbers["demand_ratio"] == pytest.approx(1.0564, abs=1e-3)
    assert caution.numbers["tried_mib"] == pytest.approx(2396.16)
