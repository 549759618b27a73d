"""The processes of one order: started with their variables, read without waiting, and words for those that cannot be."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.agent.merge import Lines, Verbatim
from seatrial.agent.processes import Started, start_all, start_failure
from seatrial.records.command import AgentOrder
from seatrial.records.line import Call
from tests.unit.agent.runs import attempt_of, order_for

CALL = Call(addresses=(), port=1, token="t", node="node2")
LONG_S = 60.0


def _shell(order: AgentOrder, text: str) -> AgentOrder:
    return replace(order, command=replace(order.command, argv=("sh", "-c", text)))


def _num_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _all_output(started: Started) -> bytes:
    taken: list[bytes] = []
    started.process.wait(LONG_S)
    while started.pipe is not None:
        taken.append(started.take())
    return b"".join(taken)


def test_each_rank_has_its_variables_on_top_of_the_orders_on_top_of_the_callers(tmp_path: Path) -> None:
    order = _shell(order_for(tmp_path, "", ranks=2, env={"A": "order"}), 'echo "$A $B $RANK"')
    told = [_all_output(started) for started in start_all(order, {**os.environ, "A": "caller", "B": "beneath", "RANK": "9"})]
    assert told == [b"[rank0]: order beneath 0\n", b"[rank1]: order beneath 1\n"]
    assert [(attempt_of(order).rank_logs / f"rank{rank}.log").read_bytes() for rank in (0, 1)] == [
        b"order beneath 0\n",
        b"order beneath 1\n",
    ]


def test_one_process_is_passed_on_as_it_prints(tmp_path: Path) -> None:
    order = _shell(order_for(tmp_path, ""), "printf 'a\\rb'; printf c >&2")
    order = replace(order, command=replace(order.command, ranks=({},)))
    (started,) = start_all(order, os.environ)
    assert isinstance(started.lines, Verbatim) and started.own_log is None
    assert _all_output(started) == b"a\rbc"


def test_a_launcher_whose_ranks_write_files_has_its_lines_whole(tmp_path: Path) -> None:
    order = replace(_shell(order_for(tmp_path, ""), "true"), rank_logs="/somewhere")
    (started,) = start_all(replace(order, command=replace(order.command, ranks=({},))), os.environ)
    assert isinstance(started.lines, Lines) and _all_output(started) == b""


def test_a_rank_alone_on_its_host_is_still_one_of_several(tmp_path: Path) -> None:
    own = tmp_path / "own"
    order = replace(_shell(order_for(tmp_path, ""), "echo hello"), call=CALL, own_folder=str(own))
    order = replace(order, command=replace(order.command, ranks=({"RANK": "5"},)))
    (started,) = start_all(order, os.environ)
    assert _all_output(started) == b"[rank5]: hello\n" and (own / "ranks" / "rank5.log").read_bytes() == b"hello\n"


def test_nothing_is_waited_for_and_an_unfinished_line_comes_at_the_end(tmp_path: Path) -> None:
    started, other = start_all(_shell(order_for(tmp_path, "", ranks=2), "printf half"), os.environ)
    assert started.take() == b"", "nothing yet, or half a line"
    for one in (started, other):
        one.process.wait(LONG_S)
    taken: list[bytes] = []
    started.drain(taken.append, LONG_S)
    assert b"".join(taken) == b"[rank0]: half\n" and started.pipe is None and started.close() == b"" and started.take() == b""
    other.close()


def test_draining_ends_with_its_time(tmp_path: Path) -> None:
    order = _shell(order_for(tmp_path, "", ranks=2), "yes")
    started, other = start_all(order, os.environ)
    times = iter([0.0, 1.0, 2.0, 3.0])
    os.set_blocking(started.pipe or 0, True)
    taken: list[bytes] = []
    taken.append(started.take())
    started.drain(taken.append, 2.0, lambda: next(times))
    assert len(taken) == 2
    for one in (started, other):
        one.process.kill()
        one.process.wait(LONG_S)
        one.close()


def test_an_exit_code_that_somebody_else_collected_is_the_processes_own(tmp_path: Path) -> None:
    (started, other) = start_all(_shell(order_for(tmp_path, "", ranks=2), "true"), os.environ)
    for one in (started, other):
        os.waitpid(one.pid, 0)
        one.ended(-9)
        assert (one.returncode, one.process.poll()) == (-9, -9)
        one.close()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"argv": ("/no/such/program",)}, 127, "'/no/such/program' could not be started: No such file or directory"),
        ({"argv": ("/etc/passwd",)}, 126, "'/etc/passwd' could not be started: Permission denied"),
        ({"cwd": "/no/such/folder"}, 127, "'/no/such/folder' could not be started"),
    ],
)
def test_what_cannot_be_started_has_a_shells_code_and_a_sentence(tmp_path: Path, change: dict[str, Any], code: int, words: str) -> None:
    order = order_for(tmp_path, "")
    order = replace(order, command=replace(order.command, **change))
    handles = _num_handles()
    with pytest.raises(OSError) as raised:
        list(start_all(order, os.environ))
    assert start_failure(order, raised.value)[0] == code and start_failure(order, raised.value)[1].startswith(words)
    assert _num_handles() == handles, "no pipe is left open"


def test_on_one_host_of_many_the_sentence_says_on_which(tmp_path: Path) -> None:
    order = replace(order_for(tmp_path, ""), call=CALL)
    words = start_failure(order, OSError(errno.ENOENT, "No such file or directory"))[1]
    assert "could not be started on node2" in words and "that it is there on every host" in words
