"""Progress from heartbeats, else from the script's own lines, read as they grow."""

from __future__ import annotations

import json
from pathlib import Path

from seatrial.observe.progress import ProgressReader
from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import WorkloadSpec
from tests.unit.records.test_codec import spec


def attempt(tmp_path: Path) -> AttemptPaths:
    folder = tmp_path / "run_r1" / "attempt-1"
    folder.mkdir(parents=True)
    return AttemptPaths(folder)


def beat(paths: AttemptPaths, rank: int, step: int | None) -> None:
    with open(paths.heartbeat(rank), "a") as lines:
        lines.write(json.dumps({"rank": rank, "step": step, "phase": "step"}) + "\n")


def test_nothing_yet(tmp_path: Path) -> None:
    look = ProgressReader(spec(), attempt(tmp_path)).look()
    assert (look.step, look.alive) == (None, False)


def test_slowest_rank_counts(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    beat(paths, 0, 7)
    beat(paths, 1, None)
    reader = ProgressReader(spec(steps=20), paths)
    assert (reader.look().step, reader.look().alive) == (None, False)
    beat(paths, 1, 5)
    look = reader.look()
    assert (look.step, look.total, look.alive, look.phase) == (5, 20, True, "step")


def test_lines_of_a_script_are_read_on_from_where_the_last_look_ended(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    paths.launcher_log.write_text("[rank0]: loading\n[rank0]: iter 1: loss 2.0, time 5.0ms\n[rank0]: iter 2: lo")
    assert reader.look().step == 1
    with open(paths.launcher_log, "a") as log:
        log.write("ss 1.9, time 5.0ms\n")
    assert reader.look().step == 2


def test_a_script_that_prints_no_step_is_alive_once_it_prints(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    reader = ProgressReader(spec(), paths)
    paths.launcher_log.write_text("hello\n")
    look = reader.look()
    assert (look.step, look.alive) == (None, True)


def test_own_pattern(tmp_path: Path) -> None:
    paths = attempt(tmp_path)
    mine = WorkloadSpec(name="x", script="x.py", patterns=(r"tick (?P<step>\d+)",))
    reader = ProgressReader(spec(workload=mine), paths)
    paths.launcher_log.write_text("tick 4\niter 9: loss 1.0, time 1.0ms\n")
    assert reader.look().step == 4
