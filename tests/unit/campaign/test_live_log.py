"""A log that is searched while it grows gives what one pass over it gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seatrial.campaign import live_log
from seatrial.campaign.live_log import LiveLog
from seatrial.collect import run_health
from seatrial.collect.logs import bounded_lines, launcher_log
from seatrial.collect.logs.bounded_lines import LineIndex
from seatrial.collect.logs.diagnosis import LogReader
from seatrial.collect.logs.launcher_log import BLOCK_BYTES, read_log
from seatrial.collect.logs.line_relevance import shapes
from seatrial.collect.logs.script_header import HEADER_KEYWORDS
from seatrial.collect.run_health import read_health
from seatrial.core.files import write_json
from seatrial.core.log_header import header_text
from seatrial.core.log_lines import KEYWORDS
from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.codec import to_json
from seatrial.records.launch import NodeRecord, NodesRecord
from seatrial.records.outcome import Cause, Diagnosis
from tests.recorded.labelled_logs import failing_logs, healthy_logs, recorded_logs
from tests.unit.results.campaigns import spec

RECORDED = {log.name: log for log in recorded_logs()}
BLOCK = (b"step 1".ljust(1023, b".") + b"\n") * (BLOCK_BYTES // 1024)
LONG_LINE = b"x" * (BLOCK_BYTES + 70_000) + b"\n"


def long_log(own: bytes) -> bytes:
    """A head, then blocks of steps around a line longer than a block, then a recorded log without the newline at its end."""
    steps = "".join(f"[rank{number % 8}]: step {number} loss 1.{number} \u2588\u2589\n" for number in range(30_000)).encode()
    head = header_text({"note": "torch.OutOfMemoryError: CUDA out of memory"}, "python train.py").encode()
    return head + steps[: len(steps) // 2] + b"\n" + LONG_LINE + steps[len(steps) // 2 :] + b"\n" + own.rstrip(b"\n")


def write(attempt: AttemptPaths, data: bytes) -> None:
    attempt.launcher_log.parent.mkdir(parents=True, exist_ok=True)
    with open(attempt.launcher_log, "ab") as out:
        out.write(data)


def grow(attempt: AttemptPaths, data: bytes, chooser: random.Random) -> LiveLog:
    log, at = LiveLog(attempt), 0
    while at < len(data):
        size = chooser.choice((1, 1000, 300_000, BLOCK_BYTES, 3 * BLOCK_BYTES))
        write(attempt, data[at : at + size])
        at += size
        if chooser.random() < 0.8:
            log.read()
    return log


def one_pass(attempt: AttemptPaths) -> Diagnosis:
    return LiveLog(attempt).diagnose(1, 30_000)


@pytest.mark.parametrize("name", ["recorded/cuda_oom_optimizer", "recorded/deepspeed_collective_timeout"])
def test_it_makes_no_difference_when_a_log_is_read(tmp_path: Path, name: str) -> None:
    data = long_log(RECORDED[name].files["job.log"])
    found = [grow(AttemptPaths(tmp_path / str(seed)), data, random.Random(seed)).diagnose(1, 30_000) for seed in range(3)]
    assert found == [one_pass(AttemptPaths(tmp_path / "0"))] * 3
    assert found[0].signature == RECORDED[name].signature


@pytest.mark.parametrize(("seed", "is_forgetful"), [(0, False), (1, False), (2, True)])
def test_blocks_of_lines_are_read_like_single_lines(monkeypatch: pytest.MonkeyPatch, seed: int, is_forgetful: bool) -> None:
    if is_forgetful:
        for name, least in {
            "line_relevance.MAX_SHAPES": 6,
            "line_relevance.LONGEST_SHAPE": 60,
            "scan.TAIL_LINES": 5,
            "scan.OPEN_LINES": 4,
        }.items():
            monkeypatch.setattr(f"seatrial.collect.logs.{name}", least)
    chooser = random.Random(seed)
    for log in (*recorded_logs()[seed::3], *failing_logs(seed)[seed::20], *healthy_logs(seed)[seed::20]):
        own = b"\n".join(log.files.values())
        # Each line again, when its shape is known, and with more of one kind than are kept.
        data = own + b"\n" + noise(60, chooser) + own + b"\n" + b"NCCL INFO 1\n" * chooser.choice((1, 2500)) + own + b"\xe2\x82\nlast"
        lines, plain, fast = data.split(b"\n"), LogReader(), LogReader()
        while lines:
            block = b"\n".join(lines[: chooser.choice((1, 2, 50, 3000))])
            for line in lines[: block.count(b"\n") + 1]:
                plain.feed(line.decode("utf-8", errors="replace"), source="a.log")
            lines = lines[block.count(b"\n") + 1 :]
            fast.feed_block(block, shapes(block), source="a.log")
            if not lines or chooser.random() < 0.1:
                assert shown(fast) == shown(plain), log.name


def shown(reader: LogReader) -> tuple[object, ...]:
    """All that it makes of the lines so far."""
    diagnoses = [reader.result(exit_code, 30_000) for exit_code in (None, 0, 3)]
    files = reader.files_with_steps()
    return (*diagnoses, reader.failure(), reader.reached(30_000), files, reader.short_files(files), reader.unfinished())


def noise(lines: int, chooser: random.Random) -> bytes:
    """As a job with NCCL_DEBUG=INFO prints between its steps, with what the health of a run counts, bars and longer and shorter lines."""
    told = (
        b"[rank1]: step 3: loss 1.25\n",
        b"Traceback (most recent call last):\n",
        b"df: /root/.triton/autotune: No such file or directory\n",
        b" 10%|#   | 1/10 [00:01<00:09]\r 20%|##  | 2/10 [00:02<00:08]\n",
        b"tokens per iteration will be: 4,096\n",
        b"\n",
        b"oss" * 900 + b"\n",
    )
    quiet = b"gpu-01:41:42 [0] NCCL INFO Channel 02/0 : 3[3] -> 4[4] via P2P/CUMEM\n"
    return b"".join(chooser.choice(told) if chooser.random() < 0.1 else quiet * chooser.choice((1, 3, 40)) for _ in range(lines))


def measured_lines(attempt: AttemptPaths, index: LineIndex | None) -> tuple[object, ...]:
    log = attempt.launcher_log
    read = [[repr(line) for line in read_log(log, attempt.arrivals, words, index).lines] for words in (KEYWORDS, HEADER_KEYWORDS)]
    stored = Attempt(folder=str(attempt.folder), number=1, spec=spec("mb8", 1), outcome=None, provenance=Provenance())
    return (*read, read_health(stored, 1, index))


def test_no_indexed_keyword_has_digits() -> None:
    """Lines are looked up by their shape, in which all digits are alike."""
    assert [keyword for keyword in live_log.INDEXED_KEYWORDS if any(48 <= byte < 58 for byte in keyword)] == []


@pytest.mark.parametrize("largest_mib", [64, 1])
def test_a_run_is_measured_by_the_same_lines_whether_they_were_indexed_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest_mib: int
) -> None:
    for module in (live_log, launcher_log, run_health):
        monkeypatch.setattr(module, "LARGEST_LOG_BYTES", largest_mib << 20)
    monkeypatch.setattr(bounded_lines, "PRUNED_RANGES", 20)
    for seed in range(4):
        attempt, chooser = AttemptPaths(tmp_path / str(seed) / "attempt-1"), random.Random(seed)
        log = grow(attempt, noise(4000, chooser) + b"step 9: loss 1.0", chooser)
        log.read()
        assert log.line_index() is None
        log.diagnose(0, None)
        index = log.line_index()
        assert index is not None and sum(end - start for start, end in index.ranges) < index.size_bytes / 2
        assert len(index.ranges) > 10
        assert measured_lines(attempt, index) == measured_lines(attempt, None)
        write(attempt, b"step 10: loss 0.9\n")
        assert measured_lines(attempt, index) == measured_lines(attempt, None), "an index of a shorter log"


def test_a_log_with_lines_longer_than_a_reader_takes_at_once_has_no_index(tmp_path: Path) -> None:
    for name, line in (("long", LONG_LINE), ("keyword", b"loss" * 20_000 + b"\n")):
        log = grow(AttemptPaths(tmp_path / name / "attempt-1"), BLOCK + line + BLOCK, random.Random(0))
        log.diagnose(0, None)
        assert log.line_index() is None


class Clock:
    """Every reading of it is a hundredth of a second later."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.01
        return self.now_s


def test_a_turn_is_short_and_the_rest_is_read_at_the_end(tmp_path: Path) -> None:
    attempt, clock = AttemptPaths(tmp_path / "attempt-1"), Clock()
    log = LiveLog(attempt, clock)
    log.read()
    write(attempt, 8 * BLOCK + b"ValueError: bad\n")
    log.read()
    assert clock.now_s < 0.1
    assert log.diagnose(1, None).detail == "ValueError: bad" and clock.now_s < 0.1
    assert not log.may_name_ranks()


@pytest.mark.parametrize("change", ["truncated", "replaced", "copied and truncated"])
def test_another_log_under_its_name_is_read_in_one_pass(tmp_path: Path, change: str) -> None:
    attempt = AttemptPaths(tmp_path / "attempt-1")
    write(attempt, b"ValueError: of the first\n" + 2 * BLOCK)
    log = LiveLog(attempt)
    log.read()
    if change == "replaced":
        attempt.launcher_log.rename(tmp_path / "old")
    else:
        attempt.launcher_log.write_bytes(b"")
    write(attempt, (b"" if change == "truncated" else 3 * BLOCK) + b"ValueError: of the second\n")
    log.read()
    assert log.diagnose(1, None) == one_pass(attempt)
    assert log.diagnose(1, None).detail == "ValueError: of the second"


def test_logs_of_several_hosts_are_read_in_one_pass_once_all_are_there(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path / "attempt-1")
    write(attempt, 2 * BLOCK)
    nodes = NodesRecord(nodes=(NodeRecord(name="node0"), NodeRecord(name="node1", node_rank=1)))
    write_json(attempt.nodes_record, to_json(nodes))
    log = LiveLog(attempt)
    log.read()
    write(attempt.node("node1"), b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert (log.diagnose(1, None).cause, log.diagnose(1, None).host) == (Cause.CUDA_OOM, "node1")


def test_a_line_of_deepspeeds_runner_is_seen_wherever_it_is(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path / "attempt-1")
    line = (
        b"[2026-11-17 10:44:17,121] [INFO] [runner.py:568:main] cmd = python -u -m deepspeed.launcher.launch --world_info=eyJsb2NhbGhvc3Q\n"
    )
    log = grow(attempt, 2 * BLOCK + line + 3 * BLOCK, random.Random(0))
    assert log.may_name_ranks()
