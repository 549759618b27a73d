"""launcher.log: the output of processes and rank files, merged and stamped."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.agent import output
from seatrial.agent.output import MAX_PENDING_BYTES, LineMarker, LogFile, MergedLog, Output, PassThrough, RankFiles
from seatrial.agent.processes import StartedProcess, describe_start_failure, start_processes
from seatrial.core.control_connection.protocol import ControlEndpoint
from seatrial.core.linux import Inotify
from seatrial.core.log_lines import split_rank
from seatrial.records.launch import AgentOrder
from tests.unit.agent.running import attempt_of, order_for
from tests.waiting import wait_until


class FakeStarted:
    """A process whose pipe holds these pieces."""

    def __init__(self, *pieces: bytes, last: bytes = b"") -> None:
        self._pieces, self._last = list(pieces), last

    def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def drain(self, sink: object, timeout_s: float) -> None:
        while self._pieces:
            sink(self._pieces.pop(0))  # type: ignore[operator]

    def close(self) -> bytes:
        last, self._last = self._last, b""
        return last


def test_pipes_go_to_the_log_with_unfinished_lines(tmp_path: Path) -> None:
    order = order_for(tmp_path, "")
    output = Output(order)
    one, two = FakeStarted(b"one\n", b"more\n", last=b"half"), FakeStarted(b"two\n")
    output.read(one)  # type: ignore[arg-type]
    output.read(two)  # type: ignore[arg-type]
    output.poll()
    output.drain([one, two], 1.0)  # type: ignore[list-item]
    output.finish([one, two])  # type: ignore[list-item]
    assert attempt_of(order).launcher_log.read_bytes() == b"one\ntwo\nmore\nhalf"
    assert attempt_of(order).arrivals.exists() and output.describe_losses() == []


def test_without_rank_files_there_is_nothing_to_watch(tmp_path: Path) -> None:
    output = Output(order_for(tmp_path, ""))
    output.on_events()
    assert output.events_fd is None and not output.needs_polling
    output.finish([])


def test_a_ranks_last_lines_come_before_the_launchers_summary(tmp_path: Path) -> None:
    logs = tmp_path / "ranks" / "id" / "attempt_0" / "1"
    order = replace(order_for(tmp_path, ""), rank_logs=str(tmp_path / "ranks"))
    output = Output(order)
    logs.mkdir(parents=True)
    (logs / "stderr.log").write_bytes(b"it broke\n")
    launcher = FakeStarted(b"summary\n")
    output.poll()
    output.drain([launcher], 60.0)  # type: ignore[list-item]
    output.finish([launcher])  # type: ignore[list-item]
    assert attempt_of(order).launcher_log.read_bytes() == b"[rank1]: it broke\nsummary\n"


def _fed(lines: LineMarker, *chunks: bytes) -> bytes:
    return b"".join(lines.feed(chunk) for chunk in chunks) + lines.finish()


@pytest.mark.parametrize(
    ("chunks", "merged"),
    [
        ((b"a\nb\n",), b"[rank3]: a\n[rank3]: b\n"),
        ((b"step ", b"1", b"\n"), b"[rank3]: step 1\n"),
        ((b"no end",), b"[rank3]: no end\n"),
        ((b"\n",), b"[rank3]: \n"),
        ((b"a\r\nb\r\n",), b"[rank3]: a\r\n[rank3]: b\r\n"),
        ((b"a\r", b"\nb\n"), b"[rank3]: a\r\n[rank3]: b\n"),
        ((b"\r 10%", b"\r 20%", b"\n"), b"\r[rank3]:  10%\r[rank3]:  20%\n"),
        ((b"",), b""),
    ],
)
def test_lines_are_marked(chunks: tuple[bytes, ...], merged: bytes) -> None:
    assert _fed(LineMarker(3), *chunks) == merged
    assert _fed(LineMarker(), *chunks) == merged.replace(b"[rank3]: ", b""), "a launcher's own lines are not"


def test_a_line_without_end_is_split() -> None:
    lines = LineMarker(0)
    out = b"".join(lines.feed(b"y" * 65536) for _ in range(40))
    assert all(len(line) <= 2 * MAX_PENDING_BYTES + 20 for line in out.split(b"\n"))
    assert out.replace(b"[rank0]: ", b"").replace(b"\n", b"") + lines.finish()[len(b"[rank0]: ") : -1] == b"y" * 65536 * 40


@given(st.lists(st.text(alphabet="ab \n", max_size=20)))
def test_any_chunks_give_the_same_lines(chunks: list[str]) -> None:
    text = "".join(chunks)
    merged = _fed(LineMarker(12), *(chunk.encode() for chunk in chunks)).decode()
    ended = text if text.endswith("\n") or not text else text + "\n"
    assert [split_rank(line) for line in merged.splitlines()] == [(12, line) for line in ended.splitlines()]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _merged(tmp_path: Path, clock: Clock) -> MergedLog:
    return MergedLog(tmp_path / "launcher.log", tmp_path / "arrivals.csv", wall=lambda: 1000.0 + clock.now_s, monotonic=clock)


def _rows(tmp_path: Path) -> list[str]:
    return (tmp_path / "arrivals.csv").read_text().splitlines()


def test_each_arrival_has_its_time(tmp_path: Path) -> None:
    clock = Clock()
    log = _merged(tmp_path, clock)
    for text in (b"one\n", b"three\n"):
        log.append(text)
        clock.now_s += 1.0
    assert _rows(tmp_path) == ["offset_bytes,t,m", "4,1000.000000,0.000000", "10,1001.000000,1.000000"]


def test_a_burst_shares_rows_and_its_end_keeps_its_time(tmp_path: Path) -> None:
    clock = Clock()
    log = _merged(tmp_path, clock)
    for _ in range(10):
        log.append(b"x\n")
        clock.now_s += 0.0005
    clock.now_s = 9.0
    log.append(b"y\n")
    log.close()
    offsets = [int(row.split(",")[0]) for row in _rows(tmp_path)[1:]]
    times_s = [float(row.split(",")[2]) for row in _rows(tmp_path)[1:]]
    assert offsets[-2:] == [20, 22]
    assert times_s[-2:] == [0.0045, 9.0], "bytes before a pause are not stamped after it"
    assert len(offsets) <= 5


def test_output_on_a_full_disk_goes_to_the_fallback_and_is_noted_once(fallback_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = LogFile(Path("/dev/full"))
    log.append(b"12345")
    log.append(b"678")
    log.close()
    assert (log.offset_bytes, log.lost_bytes) == (8, 0)
    expected = "/dev/full cannot be written (No space left on device); the run continues and its output is written to the fallback folder"
    assert capfd.readouterr().err.count(expected) == 1
    assert b"".join(path.read_bytes() for path in fallback_folder.iterdir() if path.is_file()).endswith(b"12345678")


def test_lost_output_is_counted_and_noted_once(tmp_path: Path, fallback_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fallback_folder.touch()
    log = LogFile(tmp_path)
    log.append(b"12345")
    log.append(b"678")
    log.close()
    assert log.lost_bytes == 8
    assert capfd.readouterr().err.count("the run continues and its output is dropped until there is room") == 1


def test_arrivals_have_offsets_of_the_whole_log_while_a_part_is_in_the_fallback(
    tmp_path: Path, fallback_folder: Path, full_disk: Callable[[Path], None]
) -> None:
    full_disk(tmp_path / "launcher.log")
    clock = Clock()
    log = _merged(tmp_path, clock)
    for text in (b"one\n", b"three\n"):
        log.append(text)
        clock.now_s += 1.0
    log.close()
    assert [row.split(",")[0] for row in _rows(tmp_path)[1:]] == ["4", "10"]
    assert log.lost_bytes == 0


class Follower:
    """RankFiles with what it gave."""

    def __init__(self, folder: Path) -> None:
        self.text = b""
        self.files = RankFiles(folder, self._take)

    def _take(self, data: bytes) -> None:
        self.text += data

    def read_events(self) -> None:
        """Act on pending inotify events, as the agent's loop does."""
        assert self.files.inotify is not None
        while select.select([self.files.inotify.fileno()], [], [], 0)[0]:
            self.files.on_change()


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[[], Follower]]:
    followers: list[Follower] = []

    def make() -> Follower:
        followers.append(Follower(tmp_path))
        return followers[-1]

    yield make
    for follower in followers:
        follower.files.finish()


def _stream(folder: Path, rank: int, name: str = "stdout.log", job: str = "none_abc", attempt: int = 0) -> Path:
    path = folder / job / f"attempt_{attempt}" / str(rank) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def _print(path: Path, text: str) -> None:
    with open(path, "a") as stream:
        stream.write(text)


def test_new_files_and_growth_are_followed(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    follower = follow()
    first, second = _stream(tmp_path, 0), _stream(tmp_path, 11, "stderr.log")
    follower.read_events()
    _print(first, "one\ntw")
    follower.read_events()
    _print(second, "warned\n")
    follower.read_events()
    _print(first, "o\n")
    follower.read_events()
    assert follower.text == b"[rank0]: one\n[rank11]: warned\n[rank0]: two\n"


def test_files_of_deepspeed_are_followed(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    _print(tmp_path / "20261114090000_rank0.log", "yesterday\n")
    follower = follow()
    first, second = tmp_path / "20261115124634_rank0.log", tmp_path / "20261115124634_rank11.log"
    first.touch()
    second.touch()
    follower.read_events()
    _print(second, "warned\n")
    _print(first, "one\ntw")
    follower.read_events()
    _print(first, "o\n")
    follower.read_events()
    assert sorted(follower.text.splitlines()) == [b"[rank0]: one", b"[rank0]: two", b"[rank11]: warned"]


def test_without_inotify_polling_is_enough(tmp_path: Path, follow: Callable[[], Follower], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "inotify_or_none", lambda: None)
    follower = follow()
    assert follower.files.needs_polling
    _print(_stream(tmp_path, 1), "seen\n")
    follower.files.poll()
    assert follower.text == b"[rank1]: seen\n"


def test_too_few_watches_fall_back_to_polling(tmp_path: Path, follow: Callable[[], Follower], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Inotify, path: Path, mask: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Inotify, "watch", refuse)
    assert follow().files.needs_polling


def test_older_jobs_in_the_same_folder_are_ignored(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    _print(_stream(tmp_path, 0, job="old"), "yesterday\n")
    follower = follow()
    _print(_stream(tmp_path, 0, job="new"), "today\n")
    follower.files.poll()
    assert follower.text == b"[rank0]: today\n"


def test_foreign_files_are_not_taken_for_ranks(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    follower = follow()
    (tmp_path / "20261115124634_rank1.log").mkdir()
    for path in (
        tmp_path / "rank0.log",
        tmp_path / "2026_rank0.log",
        tmp_path / "a" / "b" / "0" / "stdout.log",
        tmp_path / "a" / "attempt_0" / "x" / "stdout.log",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not a rank\n")
    follower.files.poll()
    assert follower.text == b""


def test_much_output_of_one_rank_is_read_in_portions(tmp_path: Path, follow: Callable[[], Follower]) -> None:
    follower = follow()
    _print(_stream(tmp_path, 0), "y\n" * output.MAX_BYTES_PER_TURN)
    follower.files.poll()
    assert follower.text.count(b"y") == output.MAX_BYTES_PER_TURN // 2
    follower.files.poll(max_bytes=2**62)
    assert follower.text.count(b"y") == output.MAX_BYTES_PER_TURN


def test_an_unfinished_line_comes_at_the_end(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    _print(_stream(tmp_path, 2), "last words")
    follower.files.poll()
    assert follower.text == b""
    follower.files.finish()
    assert follower.text == b"[rank2]: last words\n"


def test_a_file_that_grows_as_fast_as_it_is_read_is_left_in_time(tmp_path: Path) -> None:
    stream, now_s = _stream(tmp_path / "logs", 0), [0.0]

    def clock() -> float:
        now_s[0] += 0.1
        return now_s[0]

    _print(stream, "y\n" * 1000)
    (tmp_path / "logs" / "none_abc").rename(tmp_path / "later")
    files = RankFiles(tmp_path / "logs", lambda _: _print(stream, "y" * 65535 + "\n"))
    (tmp_path / "later").rename(tmp_path / "logs" / "none_abc")
    files.drain(2.0, clock)
    assert now_s[0] < 3.0
    assert files.finish() >= 2000


def test_torchrun_names_local_ranks_and_deepspeed_global_ones(tmp_path: Path) -> None:
    merged: list[bytes] = []
    files = RankFiles(tmp_path, merged.append, first_rank=4)
    _print(_stream(tmp_path, 1), "of torchrun\n")
    _print(tmp_path / "20261116023000_rank6.log", "of deepspeed\n")
    files.poll()
    files.finish()
    assert sorted(filter(None, merged)) == [b"[rank5]: of torchrun\n", b"[rank6]: of deepspeed\n"]


CALL = ControlEndpoint(addresses=(), port=1, token="t", node="node2")
LONG_S = 60.0


def _shell(order: AgentOrder, text: str) -> AgentOrder:
    return replace(order, command=replace(order.command, argv=("sh", "-c", text)))


def _count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _all_output(started: StartedProcess) -> bytes:
    taken: list[bytes] = []
    started.process.wait(LONG_S)
    while started.pipe is not None:
        taken.append(started.read())
    return b"".join(taken)


def test_variables_of_rank_order_and_caller_in_this_order(tmp_path: Path) -> None:
    order = _shell(order_for(tmp_path, "", ranks=2, env={"A": "order"}), 'echo "$A $B $RANK"')
    outputs = [_all_output(started) for started in start_processes(order, {**os.environ, "A": "caller", "B": "beneath", "RANK": "9"})]
    assert outputs == [b"[rank0]: order beneath 0\n", b"[rank1]: order beneath 1\n"]
    assert [(attempt_of(order).rank_logs / f"rank{rank}.log").read_bytes() for rank in (0, 1)] == [
        b"order beneath 0\n",
        b"order beneath 1\n",
    ]


def test_a_single_process_is_passed_through(tmp_path: Path) -> None:
    order = _shell(order_for(tmp_path, ""), "printf 'a\\rb'; printf c >&2")
    order = replace(order, command=replace(order.command, ranks=({},)))
    (started,) = start_processes(order, os.environ)
    assert isinstance(started.lines, PassThrough) and started.own_log is None
    assert _all_output(started) == b"a\rbc"


def test_a_launcher_with_rank_files_is_read_by_lines(tmp_path: Path) -> None:
    order = replace(_shell(order_for(tmp_path, ""), "true"), rank_logs="/somewhere")
    (started,) = start_processes(replace(order, command=replace(order.command, ranks=({},))), os.environ)
    assert isinstance(started.lines, LineMarker) and _all_output(started) == b""


def test_a_rank_alone_on_its_host_is_still_one_of_several(tmp_path: Path) -> None:
    own = tmp_path / "own"
    order = replace(_shell(order_for(tmp_path, ""), "echo hello"), call=CALL, own_folder=str(own))
    order = replace(order, command=replace(order.command, ranks=({"RANK": "5"},)))
    (started,) = start_processes(order, os.environ)
    assert _all_output(started) == b"[rank5]: hello\n" and (own / "ranks" / "rank5.log").read_bytes() == b"hello\n"


def test_reading_never_blocks(tmp_path: Path) -> None:
    started, other = start_processes(_shell(order_for(tmp_path, "", ranks=2), "printf half"), os.environ)
    assert started.read() == b"", "nothing yet, or half a line"
    for one in (started, other):
        one.process.wait(LONG_S)
    taken: list[bytes] = []
    started.drain(taken.append, LONG_S)
    assert b"".join(taken) == b"[rank0]: half\n" and started.pipe is None and started.close() == b"" and started.read() == b""
    other.close()


def test_draining_ends_at_its_timeout(tmp_path: Path) -> None:
    order = _shell(order_for(tmp_path, "", ranks=2), "yes")
    started, other = start_processes(order, os.environ)
    times = iter([0.0, 1.0, 2.0, 3.0])
    taken: list[bytes] = []

    def take(data: bytes) -> None:
        """There is always more to read, however seldom a busy machine lets the process print."""
        taken.append(data)
        wait_until(lambda: select.select([started.pipe], [], [], 0)[0], "more is printed")

    try:
        take(b"")
        started.drain(take, 2.0, lambda: next(times))
        assert len(taken) == 2
    finally:
        for one in (started, other):
            one.process.kill()
            one.process.wait(LONG_S)
            one.close()


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        ({"argv": ("/no/such/program",)}, 127, "'/no/such/program' could not be started: No such file or directory"),
        ({"argv": ("/etc/passwd",)}, 126, "'/etc/passwd' could not be started: Permission denied"),
        ({"cwd": "/no/such/folder"}, 127, "'/no/such/folder' could not be started"),
    ],
)
def test_a_failed_start_has_a_shells_exit_code_and_a_reason(tmp_path: Path, change: dict[str, Any], code: int, reason: str) -> None:
    order = order_for(tmp_path, "")
    order = replace(order, command=replace(order.command, **change))
    before = _count_descriptors()
    with pytest.raises(OSError) as raised:
        list(start_processes(order, os.environ))
    assert describe_start_failure(order, raised.value)[0] == code and describe_start_failure(order, raised.value)[1].startswith(reason)
    assert _count_descriptors() == before, "no pipe is left open"


def test_a_failed_start_on_one_host_of_many_names_the_host(tmp_path: Path) -> None:
    order = replace(order_for(tmp_path, ""), call=CALL)
    reason = describe_start_failure(order, OSError(errno.ENOENT, "No such file or directory"))[1]
    assert "could not be started on node2" in reason and "that it exists on every host" in reason
