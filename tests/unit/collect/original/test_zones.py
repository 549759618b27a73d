"""How far a machine's clock was ahead of UTC, by whichever file tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.original.launcher_log import Block
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.runs import RunLogs
from seatrial.collect.original.samples import RunSamples, SampleFile
from seatrial.collect.original.zones import first_known, named_zones_s, zone_of

NOTHING = SampleFile(path=Path("gpu_telemetry.csv"))
SILENT = RunSamples(gpu=NOTHING, host=NOTHING, shared_host=NOTHING)


def logs(*stamps: str | None) -> RunLogs:
    """Attempts, oldest first, whose META block has that stamp; None for one without a block."""
    return RunLogs(attempts=tuple(OriginalAttempt(block=None if stamp is None else Block(meta={"timestamp": stamp})) for stamp in stamps))


def sampled(hours: int) -> RunSamples:
    rows = (["2026-02-18 17:00:00", str(1771434000.0 - hours * 3600)],)
    own = SampleFile(path=Path("host_telemetry.csv"), columns=("timestamp", "epoch_sec"), rows=rows)
    return RunSamples(gpu=NOTHING, host=own, shared_host=NOTHING)


def test_samples_count_before_the_logs_and_the_logs_before_what_is_known_elsewhere() -> None:
    named = logs("2026-02-18T17:56:20+02:00")
    assert zone_of(named, sampled(8), 3600.0) == 8 * 3600.0
    assert zone_of(named, SILENT, 3600.0) == 2 * 3600.0
    assert zone_of(logs("2026-02-18T17:56:20", None), SILENT, 3600.0) == 3600.0
    assert zone_of(logs(), SILENT, None) is None


def test_the_newest_attempt_of_each_run_speaks_first() -> None:
    runs = [logs("2026-02-18T17:00:00+01:00", None, "2026-02-19T17:00:00+08:00"), logs("2026-02-18T17:00:00Z")]
    assert list(named_zones_s(runs)) == [8 * 3600.0, 3600.0, 0.0]


@pytest.mark.parametrize(("zones_s", "found"), [((), None), ((None, None), None), ((None, 0.0, 5.0), 0.0)])
def test_the_first_that_is_known(zones_s: tuple[float | None, ...], found: float | None) -> None:
    assert first_known(*zones_s) == found
