"""Stacks as Python and py-spy write them, and damaged ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.collect.stacks import Frame, RankStack, Thread, main_frame, read_stacks
from seatrial.core.paths import AttemptPaths

SITE = "/venv/lib/python3.11/site-packages"
OWN = """\
Thread 0x00007f53516666c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/home/me/data.py", line 7 in fill

Current thread 0x00007f5352bcdb80 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2501 in all_reduce
  File "/home/me/train.py", line 41 in step
  File "/home/me/train.py", line 60 in <module>
"""
SPIED = """\
# rank 3 pid 77
# state T: stopped (SIGSTOP)
Python v3.11.7 (/usr/bin/python3.11)

Thread 90 (idle): "loader (worker)"
    wait (/usr/lib/python3.11/threading.py:320)
Thread 77 (active+gil): "MainThread"
    clock_nanosleep (/usr/lib/x86_64-linux-gnu/libc.so.6)
    0x7f32a0bccf7a (/usr/lib/x86_64-linux-gnu/libffi.so.8.1.2)
    _call_function_pointer (/build/Modules/_ctypes/callproc.c:943)
    Model.forward (/home/me/train (old).py:12)
    <module> (/home/me/train.py:60)
"""


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    paths = AttemptPaths(tmp_path / "attempt-1")
    paths.stacks.mkdir(parents=True)
    return paths


def test_pythons_dump_has_the_main_thread_last(attempt: AttemptPaths) -> None:
    attempt.rank_stack(3).write_text(OWN)
    attempt.events(3).write_text("rubbish\n" + json.dumps({"kind": "start", "pid": 77}) + "\n")
    (stack,) = read_stacks(attempt)
    assert (stack.rank, stack.pid, stack.source, stack.state) == (3, 77, "signal", "")
    assert [len(thread.frames) for thread in stack.threads] == [3, 2]
    assert stack.threads[1].frames[1] == Frame(file="/home/me/data.py", line=7, function="fill")
    assert main_frame(stack) == "train.py:41 in step"


def test_the_newest_of_several_dumps_counts(attempt: AttemptPaths) -> None:
    other_thread = OWN.replace("0x00007f53516666c0", "0x00007f5300000000").replace("line 41", "line 42")
    attempt.rank_stack(0).write_text(OWN + other_thread)
    (stack,) = read_stacks(attempt)
    assert (len(stack.threads), main_frame(stack)) == (2, "train.py:42 in step")


def test_a_dump_cut_at_a_hundred_threads_has_its_signalled_thread_first(attempt: AttemptPaths) -> None:
    first, _, main = OWN.partition("\n\n")
    attempt.rank_stack(0).write_text(f"{main}\n{first}\n...\n")
    assert main_frame(read_stacks(attempt)[0]) == "train.py:41 in step"


def test_a_real_dump_of_faulthandler_is_read(attempt: AttemptPaths) -> None:
    text = "import faulthandler, threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
    text += "def stand():\n    faulthandler.dump_traceback(open(__import__('sys').argv[1], 'w'))\nstand()\n"
    subprocess.run([sys.executable, "-c", text, str(attempt.rank_stack(0))], check=True, timeout=60)
    (stack,) = read_stacks(attempt)
    assert (len(stack.threads), main_frame(stack)) == (2, "<string>:4 in stand")


def test_a_py_spy_dump(attempt: AttemptPaths) -> None:
    attempt.process_stack(77).write_text(SPIED)
    (stack,) = read_stacks(attempt)
    assert (stack.rank, stack.of_rank, stack.pid, stack.source, stack.state) == (3, None, 77, "py-spy", "T")
    assert [thread.name for thread in stack.threads] == ["MainThread", "loader (worker)"]
    assert stack.threads[0].frames[:2] == (
        Frame(file="/usr/lib/x86_64-linux-gnu/libc.so.6", line=None, function="clock_nanosleep"),
        Frame(file="/usr/lib/x86_64-linux-gnu/libffi.so.8.1.2", line=None, function="0x7f32a0bccf7a"),
    )
    assert main_frame(stack) == "train (old).py:12 in Model.forward"


def test_ranks_come_first_and_their_own_dumps_before_py_spys(attempt: AttemptPaths) -> None:
    thread = 'Thread 1 (idle): "MainThread"\n    f (x.py:1)\n'
    for pid, heading in ((5, "# pid 5"), (6, "# worker of rank 1 pid 6"), (7, "# rank 1 pid 7"), (8, "# rank 0 pid 8"), (9, "")):
        attempt.process_stack(pid).write_text(f"{heading}\n{thread}")
    attempt.rank_stack(1).write_text(OWN)
    found = [(stack.rank, stack.of_rank, stack.source) for stack in read_stacks(attempt)]
    assert found == [
        (0, None, "py-spy"),
        (1, None, "signal"),
        (1, None, "py-spy"),
        (None, None, "py-spy"),
        (None, 1, "py-spy"),
        (None, None, "py-spy"),
    ]


@pytest.mark.parametrize(
    ("files", "frame"),
    [
        ((f"{SITE}/torch/nn/modules/linear.py", "/home/me/seatrial/train.py"), "train.py:2 in f"),
        (("/opt/pytorch/torch/autograd/graph.py", "/home/me/torch/train.py"), "train.py:2 in f"),
        (("/src/seatrial/probe/contexts.py", "/src/seatrial_workloads/dummy/train.py"), "train.py:2 in f"),
        (("<frozen importlib._bootstrap>", "<string>"), "<string>:2 in f"),
        (("/usr/lib64/python3.11/socket.py", "/usr/lib/python3/dist-packages/x.py"), "socket.py:1 in f"),
        (("callproc.c", "libc.so.6"), "callproc.c:1 in f"),
        (("C:\\me\\train.py",), "train.py:1 in f"),
        ((), ""),
    ],
)
def test_the_frame_in_the_users_code_is_named(files: tuple[str, ...], frame: str) -> None:
    frames = tuple(Frame(file=file, line=number, function="f") for number, file in enumerate(files, 1))
    assert main_frame(RankStack(rank=0, pid=1, source="signal", threads=(Thread(frames=frames),))) == frame


def test_no_folder_and_foreign_files_give_nothing(tmp_path: Path, attempt: AttemptPaths) -> None:
    assert read_stacks(AttemptPaths(tmp_path / "attempt-9")) == ()
    (attempt.stacks / "notes.md").write_text(OWN)
    (attempt.stacks / "rank0.txt").mkdir()
    attempt.rank_stack(1).write_text("")
    assert read_stacks(attempt) == ()
