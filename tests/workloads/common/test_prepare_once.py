"""A dataset that many processes prepare: built once, never loaded broken, whoever is killed and whenever."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial_workloads.common import prepare_once as module
from seatrial_workloads.common.prepare_once import PrepareError, Timing, content_key, damage_of, prepare_once

RACERS, RACES, KILLS = 8, 20, 30
QUICK = Timing(heartbeat_s=0.05, stale_s=0.4, poll_s=0.005, timeout_s=20)

# Each racer is started once and takes part in every race: starting Python costs more than all of them.
PROGRAM = """
import random, sys, time
from pathlib import Path
from seatrial_workloads.common.prepare_once import Timing, prepare_once

def build(aside):
    (aside / "part").mkdir()
    for number in range(4):
        (aside / "part" / f"{number}.bin").write_bytes(random.Random(number).randbytes(50_000))
        time.sleep(0.002)
    with open(root / "builds", "a") as log:
        log.write("x")

root = Path(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    folder = prepare_once(root / line.strip(), build, Timing(heartbeat_s=0.05, stale_s=30, poll_s=0.005, timeout_s=60))
    whole = all((folder / "part" / f"{n}.bin").read_bytes() == random.Random(n).randbytes(50_000) for n in range(4))
    print("whole" if whole else "broken", flush=True)
"""


def _racer(root: Path) -> subprocess.Popen[str]:
    racer = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    return racer


def _go(racer: subprocess.Popen[str], name: str) -> None:
    assert racer.stdin is not None
    racer.stdin.write(f"{name}\n")
    racer.stdin.flush()


def _answer(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


def test_eight_processes_race_twenty_times_and_one_builds(tmp_path):
    racers = [_racer(tmp_path) for _ in range(RACERS)]
    try:
        for race in range(RACES):
            for racer in racers:
                _go(racer, f"race{race}")
            assert [_answer(racer) for racer in racers] == ["whole"] * RACERS
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    assert (tmp_path / "builds").read_text() == "x" * RACES, "each built by one process"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["builds", *(f"race{race}" for race in range(RACES))])


def test_builders_killed_at_any_moment_leave_nothing_that_loads_broken(tmp_path):
    moments = random.Random(7)
    survivor, victim = _racer(tmp_path), _racer(tmp_path)
    try:
        for kill in range(KILLS):
            _go(victim, f"kill{kill}")
            time.sleep(moments.uniform(0, 0.03))
            victim.send_signal(signal.SIGKILL)
            _go(survivor, f"kill{kill}")
            assert _answer(survivor) == "whole"
            victim.communicate()
            victim = _racer(tmp_path)
    finally:
        for racer in (survivor, victim):
            racer.kill()
            racer.communicate()


def _write(text: str):
    return lambda aside: (aside / "data").write_text(text) and None


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "data").write_text("dat"),
        lambda folder: (folder / "data").write_text("toto"),
        lambda folder: (folder / "data").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: (folder / "manifest.json").unlink(),
    ],
    ids=["cut", "changed", "gone", "manifest cut", "no manifest"],
)
def test_a_damaged_folder_is_built_again(tmp_path, harm):
    folder = prepare_once(tmp_path / "set", _write("tata"), QUICK)
    harm(folder)
    assert damage_of(folder) is not None
    assert (prepare_once(folder, _write("tata"), QUICK) / "data").read_text() == "tata"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


ELSEWHERE = json.dumps({"token": "t", "host": "elsewhere", "machine": "another boot", "pid": 1, "started": "1"})


def test_an_owner_without_a_heartbeat_whose_lock_cannot_be_removed_is_named_at_the_timeout(tmp_path):
    lock = tmp_path / ".set.lock"
    lock.write_text(ELSEWHERE)
    # Another process, which lives, has claimed the removal of the lock, and does not end it.
    (tmp_path / ".set.lock.t").write_text(json.dumps(dataclasses.asdict(module.this_process())))
    with pytest.raises(PrepareError, match=r"process 1 on elsewhere.*no heartbeat for 1 s"):
        prepare_once(tmp_path / "set", _write("x"), Timing(heartbeat_s=1, stale_s=0.01, poll_s=0.001, timeout_s=1.0))
    assert lock.exists() and not (tmp_path / "set").exists()


def test_an_owner_that_sends_heartbeats_is_waited_for_however_long_it_builds(tmp_path, monkeypatch):
    lock, hours = tmp_path / ".set.lock", iter(range(1000))
    lock.write_text(ELSEWHERE)

    def sleep(_: float) -> None:
        """Half an hour, in which a heartbeat came; after a day the builder ends."""
        hour = next(hours)
        if hour < 48:
            os.utime(lock, ns=(hour, hour))
        else:
            lock.unlink(missing_ok=True)

    monkeypatch.setattr(module.time, "sleep", sleep)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(hours) * 1800.0)
    assert prepare_once(tmp_path / "set", _write("x")).is_dir()


@pytest.mark.parametrize("content", ["", ELSEWHERE])
def test_a_dead_owner_on_another_host_or_one_that_never_wrote_its_name_is_replaced(tmp_path, content):
    (tmp_path / ".set.lock").write_text(content)
    assert prepare_once(tmp_path / "set", _write("x"), QUICK).is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_builder_that_was_taken_for_dead_leaves_what_the_next_one_built(tmp_path):
    def build(aside: Path) -> None:
        (aside / "data").write_text("late")
        # As after a long sleep: another process has removed the lock, built the folder and gone.
        (tmp_path / ".set.lock").unlink()
        prepare_once(tmp_path / "set", _write("next"), QUICK)

    assert (prepare_once(tmp_path / "set", build, QUICK) / "data").read_text() == "next"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize("moment", ["lock", "rename"])
def test_a_whole_folder_is_not_moved_by_a_builder_that_was_stopped_in_between(tmp_path, monkeypatch, moment):
    """Stopped after its last look at the lock, or before it removes what it found damaged: meanwhile another one has built it."""
    folder, stopped = tmp_path / "set", []

    def meanwhile() -> None:
        if not stopped:
            stopped.append(True)
            (tmp_path / ".set.lock").unlink()
            prepare_once(folder, _write("next"), QUICK)

    name = {"lock": "_publish", "rename": "_remove_damaged"}[moment]
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: (meanwhile(), real(*given))[1])
    if moment == "rename":
        folder.mkdir()
    assert (prepare_once(folder, _write("late"), QUICK) / "data").read_text() == "next"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_full_disk_is_one_sentence_and_leaves_neither_lock_nor_half_a_folder(tmp_path):
    def build(aside: Path) -> None:
        (aside / "half").write_text("x")
        with open("/dev/full", "w") as full:
            full.write("x")

    with pytest.raises(PrepareError, match=r"could not be written, and nothing of it is left \(No space left on device\): free some space"):
        prepare_once(tmp_path / "set", build, QUICK)
    assert list(tmp_path.iterdir()) == []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow: the lock can be created, and not be written.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(PrepareError, match="cannot be written"):
            prepare_once(tmp_path / "set", _write("x"), QUICK)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_builder_that_fails_leaves_no_lock_and_nothing_half_built(tmp_path):
    def fail(aside: Path) -> None:
        (aside / "half").write_text("x")
        raise ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        prepare_once(tmp_path / "set", fail, QUICK)
    assert list(tmp_path.iterdir()) == []


def test_the_key_follows_every_part_and_not_their_order():
    key = content_key({"dataset": "a", "length": 512})
    assert key == content_key({"length": 512, "dataset": "a"})
    assert key != content_key({"dataset": "a", "length": 256})
