"""What deepspeed's launcher said of its ranks, counted in logs that hold everything else too."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.rank_endings import num_ended_well

WELL = "[2026-11-15 12:46:35,708] [INFO] [launch.py:285:main] Process {} exits successfully.\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("[rank0]: step 1\n" + WELL.format(6472) + "[rank1]: step 9\n" + WELL.format(6474), 2),
        # Of one process twice is once, and a rank does not speak for the launcher.
        (WELL.format(1) + WELL.format(1) + "[rank1]: " + WELL.format(2), 1),
        ("step 3" + WELL.format(1), 1),
        ("Process 1 exits successfully.\n", 0),
        (WELL.format(1).replace("exits successfully", "exits with return code = 1"), 0),
    ],
)
def test_counted(text: str, count: int, tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    log.write_text(text)
    assert num_ended_well(log) == count


def test_bytes_of_any_kind_and_no_file_at_all(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    log.write_bytes(b"\xff\x00\r" * 1000 + b"\n" + WELL.format(7).encode())
    assert num_ended_well(log) == 1
    assert num_ended_well(tmp_path / "none") == num_ended_well(tmp_path) == 0
