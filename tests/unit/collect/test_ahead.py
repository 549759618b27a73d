"""Small files of several attempts, read together, against each by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import polars as pl
import pytest

from seatrial.collect import ahead
from seatrial.collect.ahead import read_ahead
from seatrial.collect.steps import read_steps
from seatrial.collect.telemetry import read_telemetry
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.steps import StepTables
from seatrial.records.telemetry import GPU_COLUMNS, HOST_COLUMNS, SamplerAccount, TelemetryAccount, TelemetryTables
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events

ACCOUNT = TelemetryAccount(gpu=SamplerAccount(interval_s=2.0, rows=5), host=SamplerAccount(interval_s=2.0, rows=5))
Change = Callable[[str], str]


def write_run(out: Path, repeat: int, *, ranks: int = 1) -> Attempt:
    attempt = replace(write_attempt(out, factory.spec(repeat=repeat, ranks=ranks)), telemetry=ACCOUNT)
    for rank in range(ranks):
        lines = [event(attempt, "start", rank=rank, world_size=ranks)]
        lines += [event(attempt, rank=rank, step=step, m=2.0 + step, t=1.0 + step, iter_ms=50.0 + repeat, loss=3.5) for step in range(9)]
        write_events(attempt, rank, "\n".join(lines) + "\n")
    paths = AttemptPaths(Path(attempt.folder))
    paths.gpu_telemetry.write_text(samples(GPU_COLUMNS, repeat))
    paths.host_telemetry.write_text(samples(HOST_COLUMNS, repeat))
    return attempt


def samples(columns: tuple[str, ...], power_w: float) -> str:
    told = [{"epoch_sec": 10.0 + 2 * row, "gpu_index": 0, "power_w": power_w, "load1": 0.5, "gpu_name": "H"} for row in range(5)]
    return "\n".join([",".join(columns), *(",".join(str(row.get(name, "")) for name in columns) for row in told)]) + "\n"


def same_as_alone(attempts: list[Attempt]) -> ahead.Ahead:
    """What was read together, after each attempt was found to come to the same by it."""
    together = read_ahead(attempts)
    for attempt in attempts:
        assert spelled(read_steps(attempt, together.events)) == spelled(read_steps(attempt))
        assert spelled(read_telemetry(attempt, together.samples)) == spelled(read_telemetry(attempt))
    return together


def spelled(tables: StepTables | TelemetryTables) -> list[str]:
    """Every field, and every row of a table."""
    values = (getattr(tables, field.name) for field in fields(tables))
    return [f"{value.schema} {value.rows()}" if isinstance(value, pl.DataFrame) else repr(value) for value in values]


def test_clean_files_come_to_the_same(tmp_path: Path) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2, 3)]
    together = same_as_alone(attempts)
    assert len(together.events) == 3
    assert len(together.samples) == 6


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-20],
        lambda text: text.replace("\n", "\n\n", 3),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("3.5", '"nan"', 1).replace("0.5", "nan", 1),
        lambda text: text.replace('"attempt": 1', '"attempt": 2', 1).replace(",H,", ",H\N{LATIN SMALL LETTER E WITH ACUTE},", 1),
        lambda text: text + text.splitlines()[-1] + "\n",
        lambda text: text + "rubbish\n",
        lambda text: text.splitlines()[0] + "\n",
        lambda text: "x" + text,
        lambda text: "",
    ],
)
def test_an_odd_file_spoils_no_other(tmp_path: Path, change: Change) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2, 3)]
    paths = AttemptPaths(Path(attempts[1].folder))
    for path in (paths.events(0), paths.gpu_telemetry, paths.host_telemetry):
        path.write_text(change(path.read_text()), newline="")
    same_as_alone(attempts)


def test_files_that_are_missing_and_files_of_other_columns(tmp_path: Path) -> None:
    attempts = [write_run(tmp_path, repeat) for repeat in (1, 2, 3)]
    AttemptPaths(Path(attempts[0].folder)).events(0).unlink()
    AttemptPaths(Path(attempts[1].folder)).gpu_telemetry.write_text(samples(("epoch_sec", "power_w"), 7.0))
    AttemptPaths(Path(attempts[2].folder)).host_telemetry.unlink()
    together = same_as_alone(attempts)
    assert len(together.events) == 2
    assert len(together.samples) == 5


def test_large_files_several_ranks_and_what_still_runs_are_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = [write_run(tmp_path, 1, ranks=2), write_attempt(tmp_path, factory.spec(repeat=2), outcome=None)]
    assert not same_as_alone(attempts[:1]).events
    assert read_ahead(attempts[1:]) == ahead.NOTHING
    monkeypatch.setattr(ahead, "LARGEST_BYTES", 100)
    assert same_as_alone([write_run(tmp_path, 3)]) == ahead.NOTHING
