"""What was found in a run, as cells of the per-run table."""

from __future__ import annotations

from seatrial.records.columns import FOUND_COLUMNS
from seatrial.records.health import (
    DebugSetting,
    LastSteps,
    MemoryCourse,
    MemoryVerdict,
    SlowSign,
    SlowSteps,
    Straggler,
    StragglerVerdict,
    UnevenCause,
)
from seatrial.records.measure import RunMeasure
from seatrial.run_table.found_cells import found_cells, steepest


def course(kind: str, slope: float | None, verdict: MemoryVerdict = MemoryVerdict.PLATEAU) -> MemoryCourse:
    return MemoryCourse(kind=kind, subject=kind, verdict=verdict, reason="", slope_mib_per_min=slope)


def test_every_cell_has_a_column() -> None:
    cells = found_cells(
        RunMeasure(
            source="events",
            slow_steps=SlowSteps(count=3, time_share=0.1),
            last_steps=LastSteps(n=50, mean_ms=10.0, stdev_ms=1.0, per_s=800.0),
            memory=(course("host", 5.0, MemoryVerdict.LEAK), course("gpu", 0.0)),
            straggler=Straggler(verdict=StragglerVerdict.NAMED, reason="", rank=3, score=0.25, phase="fwd", n=100),
            uneven=(UnevenCause(kind="thermal", text=""), UnevenCause(kind="slow_rank", text="")),
            debug=(DebugSetting(name="NCCL_DEBUG", value="INFO", source="environment.json", why=""),),
            slow_signs=(SlowSign(id="flash_off", action="", detail=""),),
        )
    )
    assert set(cells) == set(FOUND_COLUMNS)
    assert cells["host_memory"] == "leak"
    assert cells["straggler_rank"] == 3
    assert cells["uneven_causes"] == "thermal+slow_rank"
    assert cells["debug_settings"] == "NCCL_DEBUG=INFO"


def test_nothing_found_leaves_cells_empty() -> None:
    assert set(found_cells(RunMeasure(source="whole")).values()) == {None}


def test_of_several_gpus_the_one_that_leaks_is_told() -> None:
    leaking = course("gpu", 2.0, MemoryVerdict.LEAK)
    assert steepest([course("gpu", 9.0), leaking, course("gpu", None)]) is leaking
    assert steepest([]) is None
