"""The sparse-LM watchdog over a folder, with the clock passed in: which run it watches, what it judges, what it writes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.core.errors import UsageError
from seatrial.core.paths import AttemptPaths
from seatrial.machine.processes import read_start_ticks
from seatrial.probe.identity import process_t
from seatrial.records.sparse_lm_halt import Halt, read_halt, write_halt
from seatrial_runbooks.sparse_lm import rank_processes
from seatrial_runbooks.sparse_lm.rank_processes import dump_stacks, signal_ranks
from seatrial_runbooks.sparse_lm.training_csv import last_window, main, read_table
from seatrial_runbooks.sparse_lm.watchdog import Watchdog, WatchdogSettings, read_settings
from seatrial_runbooks.sparse_lm.watched_run import RankProcess, WatchedRun
from tests.facts import states
from tests.waiting import wait_until

DEAD_PID = 2**22 + 1


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A folder whose only rank is a real process, and a watchdog over it."""

    def __init__(self, folder: Path, pid: int, **settings: object) -> None:
        self.folder, self.pid, self.clock, self.said = folder, pid, Clock(), []
        chosen = WatchdogSettings(folder=folder, **{"halt": False, "interval_s": 0.0, **settings})
        self.run = WatchedRun(folder, monotonic=self.clock)
        self.watchdog = Watchdog(chosen, self.run, monotonic=self.clock, wall=time.time, log=self.said.append)

    def beat(self, step: int | None, phase: str = "fwd", pid: int | None = None, rank: int = 0, **fields: object) -> None:
        line = {"ts": time.time(), "pid": pid or self.pid, "rank": rank, "step": step, "msg": "beat", "phase": phase, "attempt": 1}
        line |= {"host": socket.gethostname(), "step_t": time.time(), "iter_ms_p50": 100.0, "run_id": "now", **fields}
        with open(self.folder / f"heartbeat_rank{rank}.jsonl", "a") as out:
            out.write(json.dumps(line) + "\n")

    def row(self, name: str, step: int, values: dict[str, float]) -> None:
        path = self.folder / name
        named = {"step": step, **{key: value for key, value in values.items() if name != "training.csv" or not key.startswith("gate_")}}
        header = "" if path.exists() else ",".join([*named, "run_id"]) + "\n"
        with open(path, "a") as out:
            out.write(header + ",".join(map(str, [*named.values(), "now"])) + "\n")

    def check(self, after_s: float = 1.0) -> int | None:
        self.clock.now += after_s
        return self.watchdog.check()

    @property
    def anomaly(self) -> str:
        path = self.folder / ".anomaly_type"
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    # A heartbeat is written by a process that has begun.
    while process_t(Path(f"/proc/{child.pid}/stat")) is None:
        pass
    yield child
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()


@pytest.fixture
def watched(tmp_path: Path, process: subprocess.Popen[bytes]) -> Watched:
    return Watched(tmp_path, process.pid)


def test_a_rank_that_stands_still_is_a_stall_against_its_own_step_time(watched: Watched) -> None:
    watched.beat(3)
    for _ in range(60):
        watched.beat(3)
        watched.check(after_s=3.0)
    assert watched.anomaly == ""
    for _ in range(4):
        watched.beat(3)
        watched.check(after_s=3.0)
    assert watched.anomaly == "heartbeat_stall"
    assert "NSA_WATCH_HEARTBEAT_STALL_S" in watched.said[-1]


def test_slow_steps_are_no_stall(watched: Watched) -> None:
    """105 s a step, of which the original's watchdog made a halt."""
    for step in range(8):
        for _ in range(35):
            watched.beat(step, iter_ms_p50=105_000.0)
            watched.check(after_s=3.0)
    assert watched.anomaly == ""


def test_a_loader_that_never_yields_is_no_first_step(watched: Watched) -> None:
    for _ in range(310):
        watched.beat(None, phase="data_wait")
        watched.check(after_s=3.0)
    assert watched.anomaly == "no_first_step"


def test_files_of_an_earlier_run_are_not_watched(watched: Watched) -> None:
    watched.beat(9, pid=DEAD_PID)
    (watched.folder / "training.csv").write_text("step,loss,lr,toks_per_s,run_id\n9,nan,1e-4,10,before\n")
    assert watched.check() is None
    watched.beat(0)
    watched.beat(0, rank=1, pid=DEAD_PID)
    assert watched.check() is None
    assert list(watched.run.ranks) == [0]
    assert watched.anomaly == ""


@pytest.mark.parametrize(
    ("fields", "anomaly"),
    [
        ({"loss": float("nan")}, "nan_loss"),
        ({"grad_norm": 0.0}, "zero_grad"),
        ({"toks_per_s": 0.0, "loss": 2.0}, "throughput_flatline"),
        ({"gate_entropy_mean": 0.01, "gate_max_mean": 1.0}, "gate_collapse"),
        ({"gate_entropy_mean": 1.05, "gate_max_mean": 0.4, "gate_max_max": 0.99, "loss": 2.0, "grad_norm": 0.4, "toks_per_s": 9.0}, ""),
    ],
)
def test_figures_of_the_tables_are_judged(watched: Watched, fields: dict[str, float], anomaly: str) -> None:
    watched.beat(None)
    watched.check()
    gates = [name for name in fields if name.startswith("gate_")]
    for step in range(1, 6):
        watched.row("training.csv", step, {"loss": 2.0, "lr": 1e-4, "toks_per_s": 9.0, "grad_norm": 0.4, **fields})
        if gates:
            watched.row("k_stats.csv", step, {"k_mean": 9.0, "k_max": 9.0, "rows": 4, **{name: fields[name] for name in gates}})
        watched.check()
    assert watched.anomaly == anomaly
    assert (watched.folder / "gate_collapse_details.json").exists() == (anomaly == "gate_collapse")


@pytest.mark.parametrize(
    ("fields", "anomaly"),
    [
        ({"loss": "nan"}, "nan_loss"),
        ({"grad_norm": 0.0}, "zero_grad"),
        ({"gate_entropy_mean": 0.01, "gate_max_mean": 1.0}, "gate_collapse"),
        ({"gate_entropy_mean": 1.05, "gate_max_mean": 0.4}, ""),
    ],
)
def test_without_tables_the_figures_of_heartbeats_are_judged(watched: Watched, fields: dict[str, object], anomaly: str) -> None:
    """As with NSA_DISABLE_CSV_LOGS=1. The step of a line is not that of its figures; a remark follows its message."""
    for step in range(6):
        figures = {"loss": 2.0, "toks_per_s": 9.0, "grad_norm": 0.4, "gate_step": step, **fields}
        watched.beat(step + 1, msg="progress; loss is not finite since step 0", figures_step=step, **figures)
        watched.check()
    assert watched.anomaly == anomaly


def test_what_was_not_reported_is_not_called_healthy(watched: Watched, process: subprocess.Popen[bytes]) -> None:
    watched.beat(3, msg="progress", loss=2.0, toks_per_s=9.0)
    watched.check()
    watched.beat(4, phase="done")
    process.kill()
    process.wait()
    assert watched.check() == 0
    assert "no anomaly" not in watched.said[-1]
    assert states(watched.said[-1], "healthy", "steps, loss, throughput", "gradient norm, gates", "not watched")
    assert "NSA_DISABLE_AUX_STATS" in watched.said[-1]


def test_it_ends_with_its_run(watched: Watched, process: subprocess.Popen[bytes]) -> None:
    watched.beat(3, msg="progress", loss=2.0, toks_per_s=9.0, grad_norm=0.4, gate_entropy_mean=1.0)
    assert watched.check() is None
    watched.beat(4, phase="done")
    process.kill()
    process.wait()
    assert watched.check() == 0
    assert "every rank is done; no anomaly" in watched.said[-1]


@pytest.mark.parametrize("mode", [None, "r", "a"])
def test_a_pid_in_a_file_is_signalled_only_if_it_writes_there(tmp_path: Path, mode: str | None) -> None:
    """A folder of a stranger may name any process of the user's."""
    rank_file = tmp_path / "heartbeat_rank0.jsonl"
    rank_file.touch()
    program = "import sys; held = open(*sys.argv[1:]) if sys.argv[1:] else None; print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", program, *([str(rank_file), mode] if mode else [])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        ticks = read_start_ticks(child.pid)
        assert ticks is not None
        rank = RankProcess(rank=0, pid=child.pid, start_ticks=ticks)
        assert signal_ranks(AttemptPaths(tmp_path), [rank], "TERM") == ([child.pid] if mode == "a" else [])
        child.kill()


def test_a_rank_that_answers_its_signal_at_once_has_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dump may be complete before the sender's next line."""
    rank = RankProcess(rank=0, pid=1, start_ticks=1, signal="USR2")
    paths = AttemptPaths(tmp_path)

    def answer(signalled: RankProcess) -> bool:
        paths.stacks.mkdir()
        paths.rank_stack(0).write_text("Thread 0x1 (most recent call first):\n")
        return True

    monkeypatch.setattr(rank_processes, "writes_here", lambda paths, rank: True)
    monkeypatch.setattr(rank_processes, "request_stack", answer)
    assert dump_stacks(paths, [rank]) == "by signal: rank 0 (pid 1)"


def test_without_a_run_it_ends(watched: Watched) -> None:
    with pytest.raises(UsageError, match="NSA_WATCH_WAIT_S"):
        watched.check(after_s=601.0)


def test_told_to_end_it_takes_a_last_look(watched: Watched, process: subprocess.Popen[bytes]) -> None:
    """The trainer was refused, still runs, or has just ended."""
    with pytest.raises(UsageError, match="before a run appeared"):
        watched.watchdog.leave()
    watched.beat(3)
    assert watched.watchdog.leave() == 130 and "the run continues unwatched" in watched.said[-1]
    process.kill()
    process.wait()
    assert watched.watchdog.leave() == 2 and "ended before being done" in watched.said[-1]


def test_term_ends_a_watchdog_that_waits_for_a_run(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "seatrial_runbooks.sparse_lm.watchdog", "--dir", str(tmp_path)]
    status = "SigCgt:\t"
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as child:
        term = 1 << (signal.SIGTERM - 1)
        wait_until(lambda: int(Path(f"/proc/{child.pid}/status").read_text().partition(status)[2].split()[0], 16) & term, "its handler")
        child.terminate()
        assert child.wait(60) == 1 and child.stderr is not None
        assert "received TERM before a run appeared" in child.stderr.read()


def test_an_unknown_variable_or_flag_is_refused() -> None:
    with pytest.raises(UsageError, match="NSA_WATCH_HALTS"):
        read_settings(["--dir", "x"], {"NSA_WATCH_HALTS": "1"})
    with pytest.raises(UsageError, match="--interval"):
        read_settings(["--dir", "x", "--intervall", "3"], {})
    assert read_settings(["--dir", "x", "--halt", "0"], {"NSA_WATCH_INTERVAL_S": "5"}).interval_s == 5.0


def test_a_halt_file_names_its_run(tmp_path: Path) -> None:
    halt = Halt(anomaly="zero_grad", run="now", attempt=2, at_step=118, reason="the gradient norm is 0")
    write_halt(tmp_path / ".HALT", halt)

    assert (tmp_path / ".HALT").read_text().startswith("halt: zero_grad\n")
    assert read_halt(tmp_path / ".HALT") == halt
    assert halt.concerns("now", 2)
    assert not halt.concerns("before", 2)
    assert not halt.concerns("now", 1)


def test_one_written_by_hand_concerns_any_run(tmp_path: Path) -> None:
    (tmp_path / ".HALT").write_text("halt: by hand")
    found = read_halt(tmp_path / ".HALT")
    assert found is not None
    assert found.concerns("any", 7)
    for text in ("", "stop, the disk is full"):
        (tmp_path / ".HALT").write_text(text)
        found = read_halt(tmp_path / ".HALT")
        assert found == Halt(anomaly="by_hand", reason=text) and found.written_t == (tmp_path / ".HALT").stat().st_mtime
    assert read_halt(tmp_path / "none") is None


ROWS = "".join(f"{step},2.5,1e-4,{100 + step},run\n" for step in range(1, 101))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"step,loss,lr,toks_per_s,run_id\n{ROWS}", (50, 175.5, 51, 100)),
        # Two runs in one file: the last one counts, and says how short it is.
        (f"step,loss,lr,toks_per_s,run_id\n{ROWS}1,2.5,1e-4,7,other\n2,2.5,1e-4,9,other\n", (2, 8.0, 1, 2)),
        # The original's: no header, a row every 20 steps, so that the last 50 steps are three rows.
        ("".join(f"{step},2.5,1e-4,{step}\n" for step in (1, 20, 40, 60, 80, 100)), (3, 80.0, 60, 100)),
    ],
)
def test_the_window_is_the_last_steps_of_the_last_run(tmp_path: Path, text: str, expected: tuple[int, float, int, int]) -> None:
    (tmp_path / "training.csv").write_text(text)
    window = last_window(tmp_path / "training.csv", 50)

    assert (window.n, window.mean, window.first_step, window.last_step) == expected
    assert str(tmp_path) in window.text


@pytest.mark.parametrize(
    ("last", "warning"),
    [
        ("101,2.5,1e-4,300,run", "it is used, and may be truncated (101,2.5,1e-4,300,run)"),
        # Cut within a column, a number or the run's id.
        ("101,2.5,1e-4", "is incomplete: it is left out"),
        ("101,2.5,1e-,300,run", "is incomplete: it is left out"),
        ("101,2.5,1e-4,300,ru", "is incomplete: it is left out"),
        ("", ""),
    ],
)
def test_a_last_line_without_a_line_end_is_used_if_it_is_a_row_and_never_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: str, warning: str
) -> None:
    (tmp_path / "training.csv").write_text(f"step,loss,lr,toks_per_s,run_id\n{ROWS}{last}")

    assert main([str(tmp_path / "training.csv"), "--steps", "50"]) == 0
    printed = capsys.readouterr()
    assert f"window=steps {'52-101' if 'used' in warning else '51-100'}" in printed.out
    assert (warning in printed.err) if warning else not printed.err
    # A watchdog reads beside the writer: such a line is for its next look.
    assert len(read_table(tmp_path / "training.csv").rows) == 100


def test_a_short_window_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "training.csv").write_text("step,loss,lr,toks_per_s\n1,2.5,1e-4,100\n")

    assert main([str(tmp_path / "training.csv"), "--steps", "50"]) == 0
    assert "1 values, not 50" in capsys.readouterr().err
    assert main([os.devnull]) == 1
