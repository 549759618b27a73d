from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from seatrial.launch.command_file import command_text
from seatrial.launch.launchers.registry import command_for
from seatrial.launch.prepare import prepare
from seatrial.paths import AttemptPaths
from seatrial.records.command import Command
from tests.unit.launch.factory import allocation_for, attempt_in, make_spec
from tests.waiting import wait_until

ATTEMPT = AttemptPaths(Path("/out/mb8_r1/attempt-1"))
WRITES_A_FILE = """\
import os, pathlib, sys
folder = pathlib.Path(os.environ["SEATRIAL_RUN_DIR"])
rank = os.environ.get("RANK", "0")
(folder / f"events_rank{rank}.jsonl").write_text(os.environ["EXTRA"] + " " + " ".join(sys.argv[1:]))
"""

ONE_PROCESS = """\
#!/usr/bin/env bash
# mb8_r1, attempt 1, as the harness started it. What it writes now goes to by-hand/ beside this file.
set -euo pipefail
mkdir -p /out/mb8_r1/attempt-1/by-hand
cd '/my code'
export EXTRA='two words'
export PYTHONFAULTHANDLER=1
export PYTHONUNBUFFERED=1
export SEATRIAL_ATTEMPT=1
export SEATRIAL_ETA_MIN_SAMPLES=10
export SEATRIAL_ETA_MODE=rank0
export SEATRIAL_PHASE_EVERY=10
export SEATRIAL_RANK_SCOPE=all
export SEATRIAL_RUN=mb8_r1
export SEATRIAL_RUN_DIR=/out/mb8_r1/attempt-1/by-hand
export SEATRIAL_STACK_SIGNAL=USR2
export SEATRIAL_SYNC_TIMING=0
export SEATRIAL_TIMING_WINDOW=100
echo 'each rank writes its output below /out/mb8_r1/attempt-1/by-hand/ranks' >&2
exec torchrun --nnodes 1 --nproc-per-node 1 --master-addr 127.0.0.1 --master-port 29650 \
--log-dir /out/mb8_r1/attempt-1/by-hand/ranks --redirects 3 train.py --name 'it'"'"'s $HOME'
"""

TWO_RANKS = """\
#!/usr/bin/env bash
# mb8_r1, attempt 1, as the harness started it. What it writes now goes to by-hand/ beside this file.
set -euo pipefail
mkdir -p /out/mb8_r1/attempt-1/by-hand
cd /w
export A=1
pids=()
stop() {
  trap - TERM INT
  kill -TERM "${pids[@]}" 2>/dev/null || true
  wait || true
  exit "$1"
}
trap 'stop 143' TERM
trap 'stop 130' INT
env RANK=0 python train.py &
pids+=($!)
env RANK=1 python train.py &
pids+=($!)
for _ in "${pids[@]}"; do wait -n || stop "$?"; done
"""


def test_one_process_whole_text() -> None:
    spec = make_spec("/my code", kind="torchrun", program=("torchrun",), args=("--name", "it's $HOME"), env={"EXTRA": "two words"})
    assert command_text(command_for(spec, allocation_for(spec), ATTEMPT), ATTEMPT) == ONE_PROCESS


def test_two_ranks_whole_text() -> None:
    command = Command(argv=("python", "train.py"), env={"A": "1"}, cwd="/w", ranks=({"RANK": "0"}, {"RANK": "1"}))
    assert command_text(command, ATTEMPT) == TWO_RANKS


def test_what_the_caller_had_set_stands_in_it_as_a_default(tmp_path: Path) -> None:
    command = Command(argv=("printenv", "NCCL_ALGO"), env={}, cwd=str(tmp_path))
    attempt = AttemptPaths(tmp_path / "attempt-1")
    script = tmp_path / "command.sh"
    script.write_text(command_text(command, attempt, {"NCCL_ALGO": "Tree of 'two'"}))
    bare = {"PATH": os.environ["PATH"]}
    assert subprocess.run(["bash", script], env=bare, capture_output=True, text=True, check=True).stdout == "Tree of 'two'\n"
    assert (
        subprocess.run(["bash", script], env={**bare, "NCCL_ALGO": "Ring"}, capture_output=True, text=True, check=True).stdout == "Ring\n"
    )


def _prepared(tmp_path: Path, text: str, ranks: int) -> AttemptPaths:
    (tmp_path / "train.py").write_text(text)
    spec = make_spec(tmp_path, ranks=ranks, args=("a b",), env={"EXTRA": "it's"})
    attempt = attempt_in(tmp_path)
    prepare(spec, attempt, allocation_for(spec), os.environ)
    return attempt


def test_by_hand_writes_the_same_files_and_leaves_the_record_alone(tmp_path: Path) -> None:
    attempt = _prepared(tmp_path, WRITES_A_FILE, ranks=2)
    subprocess.run(["bash", str(attempt.command)], check=True, timeout=60)
    by_hand = AttemptPaths(attempt.folder / "by-hand")
    assert [path.read_text() for path in by_hand.all_events()] == ["it's a b", "it's a b"]
    assert attempt.all_events() == []


def test_by_hand_the_exit_code_passes_and_one_failed_rank_ends_the_others(tmp_path: Path) -> None:
    text = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(600)\n"
    attempt = _prepared(tmp_path, text, ranks=2)
    assert subprocess.run([str(attempt.command)], timeout=60).returncode == 7


def test_by_hand_interrupt_ends_every_rank(tmp_path: Path) -> None:
    text = "import os, pathlib, time\npathlib.Path('up' + os.environ['RANK']).touch()\ntime.sleep(600)\n"
    attempt = _prepared(tmp_path, text, ranks=2)
    # Tests that run in the background have INT ignored, and a shell that is started so can never catch it.
    command = ["env", "--default-signal=INT", "bash", str(attempt.command)]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    wait_until(lambda: (tmp_path / "up0").exists() and (tmp_path / "up1").exists(), "both ranks are up")
    script.send_signal(signal.SIGINT)
    # The pipe is at its end only when every rank that held it is gone.
    script.communicate(timeout=60)
    assert script.returncode == 130


def test_interpreter_is_named_so_that_it_runs_from_any_shell(tmp_path: Path) -> None:
    attempt = _prepared(tmp_path, WRITES_A_FILE, ranks=1)
    subprocess.run(["bash", str(attempt.command)], check=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
    assert f"exec {sys.executable} train.py 'a b'" in attempt.command.read_text()
