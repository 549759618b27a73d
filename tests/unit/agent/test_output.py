"""Pipes and rank files in one log, and in words what it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seatrial.agent.output import Output
from tests.unit.agent.runs import attempt_of, order_for


class FakeStarted:
    """A process whose pipe holds these pieces."""

    def __init__(self, *pieces: bytes, last: bytes = b"") -> None:
        self._pieces, self._last = list(pieces), last

    def take(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def drain(self, sink: object, longest_s: float) -> None:
        while self._pieces:
            sink(self._pieces.pop(0))  # type: ignore[operator]

    def close(self) -> bytes:
        last, self._last = self._last, b""
        return last


def test_pipes_go_to_the_log_with_what_was_never_finished(tmp_path: Path) -> None:
    order = order_for(tmp_path, "")
    output = Output(order)
    one, two = FakeStarted(b"one\n", b"more\n", last=b"half"), FakeStarted(b"two\n")
    output.take(one)  # type: ignore[arg-type]
    output.take(two)  # type: ignore[arg-type]
    output.look()
    output.drain([one, two], 1.0)  # type: ignore[list-item]
    output.finish([one, two])  # type: ignore[list-item]
    assert attempt_of(order).launcher_log.read_bytes() == b"one\ntwo\nmore\nhalf"
    assert attempt_of(order).arrivals.exists() and output.lacks() == []


def test_without_rank_files_there_is_nothing_to_watch(tmp_path: Path) -> None:
    output = Output(order_for(tmp_path, ""))
    output.on_events()
    assert output.events is None and not output.by_clock
    output.finish([])


def test_a_ranks_last_words_stand_before_the_launchers_summary(tmp_path: Path) -> None:
    logs = tmp_path / "ranks" / "id" / "attempt_0" / "1"
    order = replace(order_for(tmp_path, ""), rank_logs=str(tmp_path / "ranks"))
    output = Output(order)
    logs.mkdir(parents=True)
    (logs / "stderr.log").write_bytes(b"it broke\n")
    launcher = FakeStarted(b"summary\n")
    output.look()
    output.drain([launcher], 60.0)  # type: ignore[list-item]
    output.finish([launcher])  # type: ignore[list-item]
    assert attempt_of(order).launcher_log.read_bytes() == b"[rank1]: it broke\nsummary\n"


def test_a_node_of_many_writes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    order = replace(order_for(tmp_path, ""), own_folder=str(tmp_path / "own"))
    output = Output(order)
    output.take(FakeStarted(b"here\n"))  # type: ignore[arg-type]
    output.finish([])
    assert (tmp_path / "own" / "launcher.log").read_bytes() == b"here\n" and not attempt_of(order).launcher_log.exists()
