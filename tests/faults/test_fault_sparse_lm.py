"""The sparse-LM trainer without the harness, two gloo ranks of a real torchrun, and the procedure's watchdog beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from seatrial.records.sparse_lm_halt import Halt, read_halt, write_halt
from tests.faults.campaigns import only_attempt, outcome
from tests.harness import Harness
from tests.waiting import wait_until

pytestmark = [pytest.mark.torch]
SMALL = {"dim": 32, "n_heads": 4, "n_kv_groups": 2, "d_k": 8, "d_v": 8, "cmp_block": 8, "cmp_stride": 4, "sel_block": 16, "n_sel": 4}
SETTINGS = {**SMALL, "window": 16, "seq_len": 32, "batch_size": 2, "log_every": 1, "device": "cpu", "tensorboard": "false"}
# Short limits; KILL follows 15 s after TERM.
WATCH = {"NSA_WATCH_HEARTBEAT_STALL_S": "2", "NSA_WATCH_SOFT_S": "1", "NSA_WATCH_TERM_S": "0", "NSA_WATCH_INTERVAL_S": "0.5"}
ENDED_WITHIN_S = 150
ANOMALY = 2
RUNBOOK = Path(__file__).parents[2] / "runbooks" / "sparse-lm"


@dataclass
class Training:
    """A run by hand and its watchdog."""

    folder: Path
    launcher: subprocess.Popen[str]
    watchdog: subprocess.Popen[str] | None = None

    def watch(self, **variables: str) -> None:
        """Start the watchdog with short limits."""
        argv = [sys.executable, "-m", "seatrial_runbooks.sparse_lm.watchdog", "--dir", str(self.folder), "--halt", "1"]
        self.watchdog = subprocess.Popen(argv, env={**environment(), **WATCH, **variables}, **PIPES)

    def end(self) -> tuple[str, str]:
        """Both outputs, once both have ended by themselves."""
        assert self.watchdog is not None
        return self.launcher.communicate(timeout=ENDED_WITHIN_S)[0], self.watchdog.communicate(timeout=ENDED_WITHIN_S)[0]

    def beats(self, rank: int) -> list[dict[str, object]]:
        path = self.folder / f"heartbeat_rank{rank}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []

    @property
    def anomaly(self) -> str:
        path = self.folder / ".anomaly_type"
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def trainings(tmp_path: Path) -> Iterator[list[Training]]:
    started: list[Training] = []
    yield started
    for training in started:
        for process in (training.launcher, training.watchdog):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("SEATRIAL_", "NSA_"))} | {"OMP_NUM_THREADS": "1"}


def launch(trainings: list[Training], folder: Path, argv: list[str], **env: str) -> Training:
    """Two ranks of torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *argv]
    trainings.append(Training(folder, subprocess.Popen(command, env={**environment(), **env}, **PIPES)))
    return trainings[-1]


def start(trainings: list[Training], folder: Path, watch: dict[str, str] | None = None, **settings: object) -> Training:
    """By settings, with a watchdog."""
    flags = [text for name, value in {**SETTINGS, **settings}.items() for text in (f"--{name}", str(value))]
    training = launch(trainings, folder, ["-m", "seatrial_workloads.sparse_lm.train", "--run-dir", str(folder), *flags, "--yes"])
    training.watch(**(watch or {}))
    return training


def test_a_rank_that_hangs_in_backward_is_stopped_from_outside(trainings: list[Training], tmp_path: Path) -> None:
    """Started as the procedure starts it. USR1 shows where it hangs before any watchdog looks."""
    config = yaml.safe_load((RUNBOOK / "configs" / "cpu_small.yaml").read_text())
    config["train"] |= {"out_dir": str(tmp_path / "run"), "fault": "hang@3"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    argv = [str(RUNBOOK / "scripts" / "train_showcase.py"), "--dataset", "synthetic", "--ddp", "1", "--steps", "1000"]
    training = launch(trainings, tmp_path / "run", argv, CONFIG=str(tmp_path / "config.yaml"), NSA_TB_DISABLE="1")
    hanging = wait_until(lambda: [beat for beat in training.beats(1) if beat["step"] == 2], "rank 1 in its last step")[-1]
    stacks = training.folder / "stacks" / "rank1.txt"

    def dumped() -> bool:
        os.kill(int(str(hanging["pid"])), signal.SIGUSR1)
        return stacks.exists() and "in _train_step" in stacks.read_text() and "in backward" in stacks.read_text()

    wait_until(dumped, "the line that hangs, by USR1")
    by_hand = stacks.stat().st_size
    training.watch()
    log, said = training.end()
    assert training.watchdog is not None
    assert (training.anomaly, training.watchdog.returncode) == ("heartbeat_stall", ANOMALY), said + log
    assert training.launcher.returncode != 0
    assert "by signal: rank 0" in said and stacks.stat().st_size > by_hand, said
    # The hook that hangs, called from C++.
    assert "stopping.py" in stacks.read_text()
    halt = read_halt(training.folder / ".HALT")
    assert halt is not None and halt.run and halt.anomaly == "heartbeat_stall"


def test_a_rank_that_dies_ends_the_run_and_its_watchdog(trainings: list[Training], tmp_path: Path) -> None:
    training = start(trainings, tmp_path / "run", {"NSA_WATCH_HEARTBEAT_STALL_S": "60"}, steps=100_000, fault="die@20")
    log, said = training.end()
    assert training.launcher.returncode != 0
    assert "ended before being done" in said, said + log
    assert training.watchdog.returncode == ANOMALY


def test_a_loss_that_is_not_finite_is_reported_by_both(trainings: list[Training], tmp_path: Path) -> None:
    training = start(trainings, tmp_path / "run", {"NSA_WATCH_HEARTBEAT_STALL_S": "60"}, steps=100_000, fault="nan@40")
    log, said = training.end()
    assert training.launcher.returncode != 0
    assert (training.anomaly, training.watchdog.returncode) == ("nan_loss", ANOMALY), said + log


def test_a_loader_that_never_yields_is_stopped_from_outside(trainings: list[Training], tmp_path: Path) -> None:
    training = start(trainings, tmp_path / "run", {"NSA_WATCH_START_S": "3"}, steps=10, fault="no_batch", loader_timeout_s=600)
    log, said = training.end()
    assert (training.anomaly, training.watchdog.returncode) == ("no_first_step", ANOMALY), said + log
    assert training.launcher.returncode != 0


def test_a_stale_halt_file_stops_nobody(trainings: list[Training], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_halt(folder / ".HALT", Halt(anomaly="heartbeat_stall", run="another", attempt=1, at_step=2))
    training = start(trainings, folder, {"NSA_WATCH_HEARTBEAT_STALL_S": "60"}, steps=40)
    log, said = training.end()
    assert (training.launcher.returncode, training.watchdog.returncode) == (0, 0), said + log
    assert "all steps done" in log


def test_a_run_halted_before_its_last_step_is_no_success(harness: Harness) -> None:
    settings = ", ".join(f"{name}: {value}" for name, value in {**SETTINGS, "checkpoint_every": "null"}.items())
    plan = f"name: halted\nworkload: sparse_lm\nsettings: {{{settings}}}\nsteps: 100000\nenv: {{OMP_NUM_THREADS: '1'}}\noutput: out\n"
    started = harness.start("run", str(harness.plan(plan)))
    wait_until(lambda: list(harness.out.folder.glob("*/attempt-1/training.csv")), "a first step")
    attempt = only_attempt(harness)
    write_halt(attempt.watchdog_halt, Halt(anomaly="gate_collapse", run=attempt.run, attempt=1, reason="entropy 0.05"))
    assert started.wait(ENDED_WITHIN_S) == ANOMALY
    ended = outcome(harness)
    assert (ended["outcome"], ended["cause"], ended["exit_code"]) == ("failed", "halted", 4)
    assert f"of 100000: gate_collapse (run {attempt.run}, attempt 1) entropy 0.05" in ended["detail"]
