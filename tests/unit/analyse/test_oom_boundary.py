"""What fits where a group ran out of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seatrial.analyse.oom_boundary import oom_boundaries, oom_sizes
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import MeasuredRun
from tests.unit.analyse.factory import golden, measured, spec

SENTENCES = golden("oom_boundary")


def ok(mb: float, repeat: int = 1, *, peak: Any = None, host: Any = None, **axes: Any) -> MeasuredRun:
    telemetry = {"gpu_mem_peak_mib": peak, "host_rss_peak_mib": host}
    return measured(_spec(mb, repeat, axes), measure={"telemetry": telemetry})


def bad(mb: float, repeat: int = 1, cause: Cause = Cause.CUDA_OOM, **axes: Any) -> MeasuredRun:
    return measured(_spec(mb, repeat, axes), outcome=Outcome.FAILED, cause=cause)


def _spec(mb: float, repeat: int, axes: dict[str, Any]) -> Any:
    name = "_".join([f"mb{mb}", *(f"{key}{value}" for key, value in axes.items())])
    return spec(name, repeat, axes={"micro_batch": mb, **axes})


def test_the_largest_that_fits_is_reported_with_its_peak_and_what_is_between() -> None:
    runs = [ok(64), ok(128, 1, peak=20_100.0), ok(128, 2, peak=21_480.0), bad(192)]
    [caution] = oom_boundaries(runs)
    assert (caution.kind, caution.subject) == ("what_fits", "mb192")
    assert caution.text in SENTENCES
    assert caution.numbers == {"micro_batch": 128, "micro_batch_n": 2, "micro_batch_peak_mib": 21_480.0, "micro_batch_to_try": 160}


def test_of_several_that_failed_the_smallest_bounds_what_to_try() -> None:
    cautions = oom_boundaries([ok(128), bad(192), bad(256)])
    assert [(one.subject, one.numbers["micro_batch_to_try"]) for one in cautions] == [("mb192", 160), ("mb256", 160)]


def test_each_axis_is_examined_with_the_others_equal() -> None:
    runs = [ok(64, zero=0), bad(128, zero=0), ok(128, zero=1), ok(512, zero=2)]
    [caution] = oom_boundaries(runs)
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
    assert [one for one in oom_boundaries(runs) if one.subject == "mb128" or not runs] == []


def test_text_and_booleans_are_no_numbers() -> None:
    assert (
        oom_boundaries([measured(spec("a", axes={"attn": "sdpa", "compile": False})), _oom("b", {"attn": "eager", "compile": True})]) == []
    )


def _oom(name: str, axes: dict[str, Any]) -> MeasuredRun:
    return measured(spec(name, axes=axes), outcome=Outcome.FAILED, cause=Cause.CUDA_OOM)


def test_host_memory_has_the_peak_of_the_host() -> None:
    for cause in (Cause.HOST_OOM, Cause.MEMORY_LIMIT):
        [caution] = oom_boundaries([ok(4, host=9000.4, peak=1), bad(8, cause=cause)])
        assert caution.text in SENTENCES


def test_a_peak_that_nobody_sampled_is_reported_as_missing() -> None:
    [caution] = oom_boundaries([ok(4), bad(5)])
    assert caution.text in SENTENCES and "micro_batch_to_try" not in caution.numbers


@pytest.mark.parametrize(
    ("fits", "fails", "between"), [(8, 16, 12), (128, 192, 160), (100, 150, 124), (4, 6, 5), (0.5, 1.0, 0.75), (1, 2, None)]
)
def test_a_value_between_is_a_round_one(fits: float, fails: float, between: float | None) -> None:
    [caution] = oom_boundaries([ok(fits), bad(fails)])
    assert caution.numbers.get("micro_batch_to_try") == between


def test_old_attempts_and_other_places_do_not_count() -> None:
    old = measured(_spec(64, 1, {}), current=False)
    elsewhere = measured(spec("mb64", 1, ranks=4, axes={"micro_batch": 64}))
    assert oom_boundaries([old, elsewhere, bad(128)]) == []


def bundle(name: str, outcome: Outcome = Outcome.OK, detail: str = "", env: dict[str, str] | None = None, **settings: Any) -> MeasuredRun:
    run = spec(name, axes={"candidate": name}, labels={"candidate": ""}, settings={"log_every": 50, **settings}, env=env or {})
    found = measured(run, outcome=outcome, cause=Cause.NONE if outcome is Outcome.OK else Cause.CUDA_OOM)
    assert found.attempt.outcome is not None
    return replace(found, attempt=replace(found.attempt, outcome=replace(found.attempt.outcome, detail=detail)))


def test_members_of_bundles_are_settings_too() -> None:
    runs = [bundle("z0_mb192", micro_batch=192, workers=4), bundle("z0_mb128", micro_batch=128, workers=6)]
    [caution] = oom_boundaries([*runs, bundle("z0_mb224", Outcome.FAILED, micro_batch=224, workers=4)])
    assert caution.subject == "z0_mb224"
    assert caution.text in SENTENCES and caution.numbers["micro_batch_to_try"] == 208
    assert "workers" not in caution.text and "log_every" not in caution.text


def test_a_bundle_with_other_variables_is_no_neighbour() -> None:
    fits = bundle("a", env={"NSA_DDP_BUCKET_MB": "50"}, micro_batch=8)
    assert oom_boundaries([fits, bundle("b", Outcome.FAILED, micro_batch=16)]) == []


def test_without_a_neighbour_the_message_shows_how_far_it_is() -> None:
    detail = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.34 GiB. GPU 0 has a total capacity of 23.65 GiB of which "
        "801.81 MiB is free. Including non-PyTorch memory, this process has 22.86 GiB memory in use. Of the allocated memory 21.40 GiB "
        "is allocated by PyTorch, and 301.00 MiB is reserved by PyTorch but unallocated."
    )
    [caution] = oom_boundaries([bundle("a", micro_batch=8, workers=2), bundle("b", Outcome.FAILED, detail, micro_batch=16, workers=4)])
    assert caution.text in SENTENCES
    assert caution.numbers["demand_ratio"] == pytest.approx(1.0564, abs=1e-3)
    assert caution.numbers["tried_mib"] == pytest.approx(2396.16)


OLDER = (
    "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.78 GiB total capacity; 14.10 GiB already allocated; "
    "312.00 MiB free; 14.30 GiB reserved in total by PyTorch)"
)


def test_the_older_wording_is_read_too() -> None:
    found = oom_sizes(OLDER)
    assert found is not None
    assert (found.tried_mib, found.free_mib, found.held_mib, found.others_mib) == (512, 312, pytest.approx(14438.4), 0)
    assert found.factor == pytest.approx(1.0136, abs=1e-4)


def test_fragmented_memory_is_distinguished_from_missing_memory() -> None:
    found = oom_sizes(
        "CUDA out of memory. Tried to allocate 1.19 GiB. GPU 1 has a total capacity of 23.65 GiB of which 801.81 MiB is free. 21.40 GiB is "
        "allocated by PyTorch, and 1.01 GiB is reserved by PyTorch but unallocated."
    )
    assert found is not None and found.factor < 1
    assert found.text in SENTENCES


def test_what_other_processes_hold_is_reported() -> None:
    found = oom_sizes(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Including "
        "non-PyTorch memory, this process has 11.00 GiB memory in use. Of the allocated memory 10.00 GiB is allocated by PyTorch"
    )
    assert found is not None and found.text.endswith("Other processes hold 12.00 GiB of this GPU.")


@pytest.mark.parametrize("line", ["", "CUDA error: out of memory", "Cuda failure 2 'out of memory'", "Tried to allocate 2.00 GiB."])
def test_a_line_without_sizes_shows_nothing(line: str) -> None:
    assert oom_sizes(line) is None
