"""What deepspeed's launcher said of its ranks, counted in logs that hold everything else too."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from seatrial.collect.rank_endings import num_ended_well, num_started

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


def runner_line(world_info: bytes) -> bytes:
    before = b"[2026-02-18 17:56:27,000] [INFO] [runner.py:610:main] cmd = pdsh -S -f 1024 -w node1,node2 export PYTHONPATH=/code; "
    return (
        before + b"python -u -m deepspeed.launcher.launch --world_info=" + world_info + b" --node_rank=%n --master_addr=10.0.0.1 train.py\n"
    )


def test_the_runner_says_how_many_ranks_it_starts(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    info = base64.urlsafe_b64encode(b'{"node1": [0, 1], "node2": [0, 1]}')
    log.write_bytes(b"some line\n" + runner_line(info))
    assert num_started(log) == 4
    log.write_bytes(b"[rank0]: " + runner_line(info))
    assert num_started(log) is None


@pytest.mark.parametrize("info", [b"rubbish", base64.urlsafe_b64encode(b"[1]"), base64.urlsafe_b64encode(b'{"a": 3}'), b"="])
def test_a_line_that_cannot_be_read_tells_nothing(tmp_path: Path, info: bytes) -> None:
    (tmp_path / "launcher.log").write_bytes(runner_line(info))
    assert num_started(tmp_path / "launcher.log") is None
    assert num_started(tmp_path / "no.log") is None
