"""Reports for a harness that does not read: they wait, in order, and never hold up the agent."""

from __future__ import annotations

import os

from seatrial.agent.harness_pipe import Outbox

LINE = b"x" * 99 + b"\n"


def test_what_the_pipe_does_not_take_waits_and_comes_whole() -> None:
    read_end, write_end = os.pipe()
    outbox = Outbox(write_end)
    for _ in range(2000):
        outbox.put(LINE)
    assert not outbox.is_empty
    taken = b""
    while not outbox.is_empty:
        taken += os.read(read_end, 65536)
        outbox.flush()
    os.close(write_end)
    while data := os.read(read_end, 65536):
        taken += data
    os.close(read_end)
    assert taken == LINE * 2000


def test_a_reader_that_never_reads_is_not_waited_for_beyond_patience() -> None:
    read_end, write_end = os.pipe()
    outbox = Outbox(write_end)
    outbox.put(LINE * 2000)
    assert outbox.flush_within(0.05) is False
    os.read(read_end, 65536)
    assert outbox.flush_within(0.05) is False, "room for a part of it is not room for all"
    for handle in (read_end, write_end):
        os.close(handle)


def test_a_reader_that_went_away_is_passed_over() -> None:
    read_end, write_end = os.pipe()
    outbox = Outbox(write_end)
    os.close(read_end)
    outbox.put(LINE)
    assert outbox.is_empty
    os.close(write_end)
