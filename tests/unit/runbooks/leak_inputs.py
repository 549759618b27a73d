"""Inputs of the leak diagnosis that several of its tests share, and what it says of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from seatrial_runbooks.stage1.leak_check import COLUMNS, main
from tests.original_campaign import OriginalAttempt

T0 = 1_771_408_580.0
LONG = OriginalAttempt(max_steps=1000, log_every=50)
"""535 s: 268 samples of telemetry, 215 after the warm-up, 21 in head and tail each; 21 timing points."""
Said = tuple[list[dict[str, str]], str]
Diagnose = Callable[..., Said]


def diagnosed(capsys: pytest.CaptureFixture[str]) -> Diagnose:
    """Runs the command: its rows, and what it said beside them."""

    def run(*words: object, code: int = 0) -> Said:
        assert main([str(word) for word in words]) == code
        told = capsys.readouterr()
        return list(csv.DictReader(io.StringIO(told.out))), told.err

    return run


def figures(row: dict[str, str]) -> list[str]:
    return [row[name] for name in COLUMNS[-6:]]


def host_file(
    path: Path, rows: Iterable[tuple[float, object, object]], columns: str = "epoch_sec,mem_total_kib,train_proc_count,train_rss_kib"
) -> None:
    """Rows of seconds since T0, number of processes and memory in MiB."""
    lines = [columns, *(f"{T0 + at:.0f},16777216,{count},{rss if isinstance(rss, str) else rss * 1024}" for at, count, rss in rows)]  # type: ignore[operator]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
