"""One attempt as a row of tables."""

from __future__ import annotations

import math

import pytest

from seatrial.records.attempt import Provenance
from seatrial.records.columns import FOUND_COLUMNS, GROUP_STAGE1, MANIFEST_OURS, MANIFEST_STAGE1
from seatrial.records.measure import (
    DebugSetting,
    JitterCause,
    LastSteps,
    MemoryTrend,
    MemoryVerdict,
    RunMeasure,
    SlowSign,
    SlowSteps,
    Straggler,
    StragglerVerdict,
    exceeds,
)
from seatrial.records.run_table import (
    axis_cells,
    config_cells,
    fallback_reasons,
    found_cells,
    global_batch,
    qualified_name,
    steepest,
)
from seatrial.records.telemetry import SamplerAccount, TelemetryAccount
from tests.unit.analyse import factory


def test_effective_settings_count_before_requested_ones() -> None:
    run = factory.spec(settings={"micro_batch": 32, "precision": "auto", "compile": True, "attention": "flash"})
    effective = factory.effective({"micro_batch": (32, 16, "does not fit"), "precision": ("auto", "bf16", "cc 9.0")})
    cells = config_cells(run, Provenance(), effective, world_size=4)
    assert (cells["micro_batch"], cells["global_batch"], cells["world_size"]) == (16, 64, 4)
    assert (cells["precision_mode_req"], cells["precision_mode_effective"]) == ("auto", "bf16")
    assert (cells["attn_impl_req"], cells["attn_impl_effective"]) == ("flash", None), "not reported, so not effective"
    assert cells["torch_compile_enabled"] is True


def test_every_column_is_one_of_the_tables() -> None:
    known = {*MANIFEST_STAGE1, *MANIFEST_OURS, *GROUP_STAGE1}
    names = set(config_cells(factory.spec(), Provenance(), {}))
    assert names - known == {"speech_attn_impl_req", "text_attn_impl_req"}


def test_an_axis_has_the_seeds_column_or_one_of_its_own() -> None:
    assert axis_cells({"micro_batch": 8, "opt": "adam"}) == {"axis_opt": "adam"}
    assert config_cells(factory.spec(axes={"micro_batch": 8}), Provenance(), {})["micro_batch"] == 8


def test_global_batch_falls_back_to_samples_per_step() -> None:
    assert global_batch(factory.spec(workload={"samples_per_step": 4.0}), {}, 2) == 8.0
    assert global_batch(factory.spec(axes={"micro_batch": "eight"}), {}, 2) is None
    assert global_batch(factory.spec(), {}, 2) is None


def test_reasons_name_only_what_differs_from_the_request() -> None:
    effective = factory.effective({"attention": ("flash", "sdpa", "not installed"), "precision": ("bf16", "bf16", "asked for")})
    assert fallback_reasons(effective) == "attention: flash → sdpa (not installed)"


def test_rows_of_telemetry_and_the_flag_that_there_are_none() -> None:
    account = TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, empty=True, expected=True), host=SamplerAccount(interval_s=2.0, rows=30))
    cells = config_cells(factory.spec(), Provenance(), {}, telemetry=account)
    assert (cells["gpu_telemetry_rows"], cells["gpu_telemetry_empty_flag"]) == (0, True)
    assert (cells["host_telemetry_rows"], cells["host_telemetry_empty_flag"]) == (30, False)
    without = config_cells(factory.spec(), Provenance(), {})
    assert (without["host_telemetry_rows"], without["host_telemetry_empty_flag"]) == (0, True)


def trend(kind: str, slope: float | None, verdict: MemoryVerdict = MemoryVerdict.PLATEAU) -> MemoryTrend:
    return MemoryTrend(kind=kind, subject=kind, verdict=verdict, reason="", slope_mib_per_min=slope)


def test_every_cell_has_a_column() -> None:
    cells = found_cells(
        RunMeasure(
            source="events",
            slow_steps=SlowSteps(count=3, time_share=0.1),
            last_steps=LastSteps(n=50, mean_ms=10.0, stdev_ms=1.0, per_s=800.0),
            memory=(trend("host", 5.0, MemoryVerdict.LEAK), trend("gpu", 0.0)),
            straggler=Straggler(verdict=StragglerVerdict.NAMED, reason="", rank=3, score=0.25, phase="fwd", n=100),
            jitter_causes=(JitterCause(kind="thermal", text=""), JitterCause(kind="slow_rank", text="")),
            debug=(DebugSetting(name="NCCL_DEBUG", value="INFO", source="environment.json", why=""),),
            slow_signs=(SlowSign(id="flash_off", action="", detail=""),),
        )
    )
    assert set(cells) == set(FOUND_COLUMNS)
    assert (cells["host_memory"], cells["straggler_rank"]) == ("leak", 3)
    assert (cells["uneven_causes"], cells["debug_settings"]) == ("thermal+slow_rank", "NCCL_DEBUG=INFO")
    assert set(found_cells(RunMeasure(source="whole")).values()) == {None}


def test_of_several_gpus_the_one_that_leaks_counts() -> None:
    leaking = trend("gpu", 2.0, MemoryVerdict.LEAK)
    assert steepest([trend("gpu", 9.0), leaking, trend("gpu", None)]) is leaking
    assert steepest([]) is None


def test_digits_of_the_key_follow_the_name() -> None:
    assert qualified_name("mb16", "427bc0ffee") == "mb16~427b" and qualified_name("mb16", "4") == "mb16~4"


@pytest.mark.parametrize(
    ("value", "limit", "beyond"),
    [
        (0.1 + 0.2, 0.3, False),
        (0.050001, 0.05, True),
        (0.049999, 0.05, False),
        (1e-6, 0.0, True),
        (math.inf, 10.0, True),
        (math.nan, 1.0, False),
    ],
)
def test_above_a_limit_beyond_rounding(value: float, limit: float, beyond: bool) -> None:
    assert exceeds(value, limit) is beyond
