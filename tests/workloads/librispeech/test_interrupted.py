"""Preparing that is broken off at any moment and started again leaves the same bytes. Real processes, real signals."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from seatrial_workloads.librispeech.finished_outputs import HEADER, Appender, Output, Source, read_outputs
from seatrial_workloads.librispeech.synthetic import make_tree
from tests.waiting import wait_until
from tests.workloads.librispeech.trees import COMMAND, PATIENCE_S, bytes_of, prepare

NUM_FILES = 150


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("source"), NUM_FILES, mean_s=2.0).parent


@pytest.fixture(scope="module")
def uninterrupted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    target = tmp_path_factory.mktemp("target")
    prepare("--input-root", source, "--output-root", target, "--trim")
    return bytes_of(target)


def words(source: Path, target: Path) -> list[str]:
    return ["--input-root", str(source), "--output-root", str(target), "--trim", "--workers", "2", "--quiet"]


def started(source: Path, target: Path, num_done: int) -> subprocess.Popen[str]:
    """A preparation that has come `num_done` files further, or is over."""
    wanted = num_files(target) + num_done
    process = subprocess.Popen([*COMMAND, *words(source, target)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: process.poll() is not None or num_files(target) >= wanted, f"{wanted} files are done")
    return process


def num_files(target: Path) -> int:
    return len(list(target.rglob("[!.]*.flac")))


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    workers = []
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.Error):
            workers += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return workers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_whole_is_the_same_after_two_interruptions(
    number: signal.Signals, source: Path, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    target = tmp_path / "target"
    moments = random.Random(int(number))
    for _ in range(2):
        process = started(source, target, moments.randrange(1, NUM_FILES // 2))
        process.send_signal(number)
        said, _ = process.communicate(timeout=PATIENCE_S)
        # It may have been over before the signal came.
        assert process.returncode in (0, -number if number == signal.SIGKILL else 130), said
        assert "Traceback" not in said
        assert all(uninterrupted[name] == data for name, data in bytes_of(target).items() if name.endswith(".flac") and "/." not in name)
    prepare(*words(source, target))
    assert bytes_of(target) == uninterrupted


def test_an_asked_for_end_leaves_nothing_half_written(source: Path, tmp_path: Path) -> None:
    codes = []
    while 130 not in codes:
        # On a busy machine it may be over before the signal comes; not every time.
        assert len(codes) < 10
        process = started(source, tmp_path / str(len(codes)), 10)
        workers = workers_of(process)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_S)
        codes.append(process.returncode)
        assert "the same command goes on from there" in said or codes[-1] == 0
        assert not list(tmp_path.rglob("*.part")) and not any(worker.is_running() for worker in workers)


@pytest.mark.parametrize("moment", [0, 40, 90])
def test_workers_that_are_killed_are_replaced(moment: int, source: Path, tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    process = started(source, tmp_path / "target", moment)
    for worker in workers_of(process)[:1]:
        with contextlib.suppress(psutil.Error):
            worker.kill()
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert bytes_of(tmp_path / "target") == uninterrupted


def test_workers_do_not_outlive_a_parent_that_is_killed(source: Path, tmp_path: Path) -> None:
    process = started(source, tmp_path / "target", 10)
    workers = workers_of(process)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    wait_until(lambda: not any(worker.is_running() for worker in workers), "its workers are gone")
    assert workers, "there were some"


def output(number: int) -> Output:
    return Output(number, 2 * number, Source(3 * number, 4 * number))


def test_a_torn_line_counts_for_nothing_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "prepared.tsv"
    with Appender(path) as lines:
        lines.add("a.flac", output(1))
        lines.add("b.flac", output(2))
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with Appender(path) as lines:
            lines.add("c.flac", output(3))
        known = read_outputs(path)
        assert known["c.flac"] == output(3)
        assert known.get("a.flac") in (None, output(1)) and known.get("b.flac", output(2))[:2] == output(2)[:2]
    assert path.read_text().startswith(HEADER[:-1])


def test_a_file_that_is_there_in_part_only_of_its_line_is_not_believed(tmp_path: Path) -> None:
    """The last number of a line is the source's time: cut short it is another time, and the file is made again."""
    path = tmp_path / "prepared.tsv"
    path.write_text(f"{HEADER}\na.flac\t1\t2\t3\t1731628800\n")
    assert read_outputs(path)["a.flac"].source.mtime_ns == 1731628800
    path.write_text(f"{HEADER}\na.flac\t1\t2\t3\nb.flac\tone\t2\t3\t4\n\n")
    assert read_outputs(path) == {}
