"""Marks of launchers before a rank's lines, and words that only look like one."""

from __future__ import annotations

import pytest

from seatrial.collect.failure.cause import diagnose
from seatrial.collect.logs.line_marks import marked_lines


@pytest.mark.parametrize(
    ("line", "source", "text"),
    [
        ("[rank3]: step 1", "[rank3]:", "step 1"),
        ("[rank3]: [rank3]:[E1115 14:30] x", "[rank3]: [rank3]:", "[E1115 14:30] x"),
        ("[default3]:step 1", "[default3]:", "step 1"),
        ("[trainer0|3]:step 1", "[trainer0|3]:", "step 1"),
        ("[1,3]<stderr>:step 1", "[1,3]<stderr>:", "step 1"),
        ("17: step 1", "17:", "step 1"),
        ("3: [rank3]:   File", "3: [rank3]:", "  File"),
        ("(EngineCore_0 pid=51) ERROR 11-15 14:02:36 [core.py:708] ValueError: x", "(EngineCore_0 pid=51)", "ValueError: x"),
        ("(VllmWorker rank=1 pid=51) INFO 11-15 14:02:36 [core.py:708] x", "(VllmWorker rank=1 pid=51)", "x"),
        ("ERROR 11-15 14:02:36 [core.py:708] ValueError: x", "", "ValueError: x"),
        ("(Worker_TP1 pid=51) WARNING 11-15 14:02:36 [core.py:708] x", "(Worker_TP1 pid=51) WARNING", "x"),
        ("ValueError: bad", "", "ValueError: bad"),
        ("INFO: KeyError: x was handled", "", "INFO: KeyError: x was handled"),
        ("train.py: error: no", "", "train.py: error: no"),
        ("2026-11-15 14:02:31,880 - train - INFO - step", "", "2026-11-15 14:02:31,880 - train - INFO - step"),
        ("", "", ""),
    ],
)
def test_one_line(line: str, source: str, text: str) -> None:
    assert marked_lines([line]) == [(source, text)]


@pytest.mark.parametrize(
    "shows",
    [
        "worker-1: Traceback (most recent call last):",
        'worker-1:   File "train.py", line 3, in <module>',
        "worker-1: [rank1]: step 1",
        "worker-1: [2026-11-15 14:02:14,771] [INFO] [launch.py:158:main] nnodes=2",
        "pdsh@head: worker-1: ssh exited with exit code 1",
    ],
)
def test_a_host_is_one_where_it_stands_before_what_begins_a_line(shows: str) -> None:
    lines = [shows, "worker-1: ValueError: bad", "worker-2: ValueError: bad"]
    assert marked_lines(lines)[1:] == [("worker-1:", "ValueError: bad"), ("", "worker-2: ValueError: bad")]


def test_task_numbers_set_with_blanks_are_marks_too() -> None:
    lines = [" 3: Traceback (most recent call last):", ' 3:   File "train.py", line 3', " 3: ValueError: bad"]
    assert diagnose(1, lines).detail == "ValueError: bad"


def test_a_chain_is_followed_within_one_host() -> None:
    lines = [
        "w1: Traceback (most recent call last):",
        "w1: KeyError: 'lr'",
        "w2: Traceback (most recent call last):",
        "w2: KeyError: 'lr'",
        "w1: During handling of the above exception, another exception occurred:",
        "w1: Traceback (most recent call last):",
        "w1: RuntimeError: no learning rate in the config",
    ]
    assert diagnose(1, lines).detail == "RuntimeError: no learning rate in the config"
    # The same with srun's numbers.
    assert (
        diagnose(1, [line.replace("w1", "1").replace("w2", "2") for line in lines]).detail == "RuntimeError: no learning rate in the config"
    )
