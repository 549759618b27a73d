"""Heartbeats are read cheaply and tolerantly, and their times are converted to the harness's clock."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.core import fallback
from seatrial.core.fallback import FALLBACK_DIR
from seatrial.core.paths import AttemptPaths
from seatrial.observe.eta import RunEtaTracker
from seatrial.observe.heartbeats import Heartbeat, HeartbeatReader, HostClocks, unknown_offset
from seatrial.observe.progress import Progress, ProgressReader
from seatrial.observe.spike import SpikeDetector
from seatrial.observe.stall import StallDetector
from seatrial.observe.watchdog import halt_step
from seatrial.records.plan import LimitsSpec, PlaceSpec, StallSpec
from seatrial.records.telemetry import HOST_COLUMNS
from tests.unit.analyse import factory
from tests.unit.observe.simulated_run import spec
from tests.unit.observe.test_progress import nano
from tests.unit.results.campaigns import write_samples

GOOD: dict[str, Any] = {
    "ts": 105.0,
    "iso": "1970-01-01T00:01:45.000+00:00",
    "pid": 77,
    "rank": 2,
    "step": 41,
    "msg": "heartbeat",
    "phase": "bwd",
    "attempt": 3,
    "host": "node1",
    "step_t": 104.5,
    "iter_ms_p50": 52.1,
    "paused_s": 1.5,
}


def line(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode() + b"\n"


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    folder = tmp_path / "mb8_r1" / "attempt-3"
    folder.mkdir(parents=True)
    return AttemptPaths(folder)


def newest(attempt: AttemptPaths, data: bytes) -> Heartbeat | None:
    attempt.heartbeat(2).write_bytes(data)
    heartbeats = HeartbeatReader(attempt).read()
    return heartbeats[0] if heartbeats else None


def test_a_whole_line_is_a_heartbeat(attempt: AttemptPaths) -> None:
    assert newest(attempt, line()) == Heartbeat(
        rank=2,
        step=41,
        phase="bwd",
        pid=77,
        host="node1",
        ts=105.0,
        step_t=104.5,
        iter_ms_p50=52.1,
        paused_s=1.5,
        file_bytes=len(line()),
    )


@pytest.mark.parametrize(
    "after",
    [
        line(step=42)[:-20],
        line(step=42, attempt=2),
        line(step=42, rank=1),
        line(step=-1),
        line(step=10**30),
        line(step="42"),
        line(step=True),
        b'{"rank": 2, "step": ' + b"9" * 5000 + b"}\n",
        b"[" * 3000 + b"\n",
        b"\xff\xfe\x00\x00\n",
        b"null\n[]\n7\n",
    ],
    ids=["torn", "attempt", "rank", "negative", "huge", "text", "truth", "digits", "nested", "bytes", "no-object"],
)
def test_what_is_no_heartbeat_of_this_rank_leaves_the_one_before(attempt: AttemptPaths, after: bytes) -> None:
    heartbeat = newest(attempt, line() + after)
    assert heartbeat is not None
    assert heartbeat.step == 41


def test_a_restarted_rank_is_before_its_first_step_again(attempt: AttemptPaths) -> None:
    heartbeat = newest(attempt, line() + line(pid=99, step=None, step_t=None, iter_ms_p50=None, paused_s=None, phase="start"))
    assert heartbeat is not None
    assert (heartbeat.step, heartbeat.pid, heartbeat.iter_ms_p50, heartbeat.paused_s) == (None, 99, None, 0.0)


@pytest.mark.parametrize("pace", [-1.0, 0, 1e12, float("nan"), float("inf"), 10**400, "5", True, []])
def test_a_pace_that_cannot_be_is_none(attempt: AttemptPaths, pace: Any) -> None:
    heartbeat = newest(attempt, line(iter_ms_p50=pace, ts=pace, step_t=pace, paused_s=pace, phase=pace, host=7, pid="x"))
    assert heartbeat is not None
    assert (heartbeat.step, heartbeat.iter_ms_p50, heartbeat.pid, heartbeat.host) == (41, None, None, "") or heartbeat.iter_ms_p50 == 5


def test_a_line_longer_than_the_first_look_is_found(attempt: AttemptPaths) -> None:
    heartbeat = newest(attempt, line(step=1) + line(msg="m" * 20_000))
    assert heartbeat is not None
    assert heartbeat.step == 41


def test_names_that_are_no_rank_s_and_files_that_cannot_be_read_are_skipped(attempt: AttemptPaths) -> None:
    for name in ("heartbeat_rankx.jsonl", "heartbeat_rank.jsonl", "heartbeat_rank2.jsonl.bak", f"heartbeat_rank{'9' * 30}.jsonl"):
        (attempt.folder / name).write_bytes(line())
    attempt.heartbeat(2).mkdir()
    attempt.heartbeat(1).symlink_to(attempt.folder / "nowhere")
    assert HeartbeatReader(attempt).read() == []
    assert HeartbeatReader(AttemptPaths(attempt.folder / "missing")).read() == []


def test_a_file_that_has_not_changed_is_not_read_again(attempt: AttemptPaths) -> None:
    attempt.heartbeat(2).write_bytes(line())
    heartbeats = HeartbeatReader(attempt, monotonic=lambda: 0.0)
    before = heartbeats.read()
    written = attempt.heartbeat(2).stat()
    # As long, and as old: only who opens it again sees the difference.
    attempt.heartbeat(2).write_bytes(line(step=42))
    os.utime(attempt.heartbeat(2), ns=(written.st_atime_ns, written.st_mtime_ns))
    assert heartbeats.read() == before


def test_a_file_that_went_away_leaves_the_rank_where_it_was(attempt: AttemptPaths) -> None:
    attempt.heartbeat(2).write_bytes(line())
    heartbeats = HeartbeatReader(attempt)
    before = heartbeats.read()
    attempt.heartbeat(2).unlink()
    assert heartbeats.read() == before


def test_ranks_come_by_number(attempt: AttemptPaths) -> None:
    for rank in (10, 2, 0):
        attempt.heartbeat(rank).write_bytes(line(rank=rank))
    assert [heartbeat.rank for heartbeat in HeartbeatReader(attempt).read()] == [0, 2, 10]


def test_heartbeats_that_a_failing_disk_sent_elsewhere_are_found(
    attempt: AttemptPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FALLBACK_DIR, str(tmp_path / "elsewhere"))
    now = [0.0]
    attempt.heartbeat(2).write_bytes(line())
    heartbeats = HeartbeatReader(attempt, monotonic=lambda: now[0])
    heartbeats.read()
    assert fallback.spill_bytes(fallback.real(attempt.heartbeat(2)), line(step=50), "No space left on device", 0o644)
    steps = []
    for now[0] in (1.0, 9.0, 10.0):
        (heartbeat,) = heartbeats.read()
        steps.append(heartbeat.step)
    assert steps == [41, 50, 50]
    before = heartbeat.file_bytes
    assert fallback.spill_bytes(fallback.real(attempt.heartbeat(2)), line(step=50), "No space left on device", 0o644)
    (heartbeat,) = heartbeats.read()
    assert heartbeat.file_bytes > before


HOUR_S = 3600.0
WALL_T = 1_794_700_000.0
ITER_S = 0.25
EVERY_S = 5.0
"""Between two heartbeats."""


class Watched:
    """Two ranks on two hosts, the second with a clock of its own; heartbeats come every five seconds and are seen a second later."""

    def __init__(self, folder: Path, skew_s: float, offset_of: Callable[[int], float | None] = unknown_offset) -> None:
        self.now_s = 0.0
        self._paths, self._skew_s = AttemptPaths(folder / "attempt-1"), skew_s
        self._paths.folder.mkdir(parents=True)
        planned = replace(spec(steps=1000), place=PlaceSpec(kind="hostfile", ranks=2))
        self._reader = ProgressReader(
            planned, self._paths, monotonic=lambda: self.now_s, offset_of=offset_of, wall=lambda: WALL_T + self.now_s
        )

    def at(self, second: float, *, is_stalled: bool = False) -> Progress:
        """What is seen a second after the heartbeat of that second."""
        for rank, ahead_s in ((0, 0.0), (1, self._skew_s)):
            ended = int(second / ITER_S) - 1 if not (is_stalled and rank) else 3
            heartbeat = {
                "ts": WALL_T + second + ahead_s,
                "rank": rank,
                "attempt": 1,
                "step": ended,
                "phase": "bwd",
                "pid": 7,
                "iter_ms_p50": 250.0,
            }
            heartbeat["step_t"] = WALL_T + (ended + 1) * ITER_S + ahead_s
            with open(self._paths.heartbeat(rank), "a") as target:
                target.write(json.dumps(heartbeat) + "\n")
        self.now_s = second + 1.0
        return self._reader.read()

    @property
    def now_t(self) -> float:
        return WALL_T + self.now_s


SKEWS = pytest.mark.parametrize("skew_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])


@SKEWS
@pytest.mark.parametrize("measured", [True, False], ids=["measured", "learned"])
def test_estimates_and_halts_are_those_of_a_right_clock(tmp_path: Path, skew_s: float, measured: bool) -> None:
    right = Watched(tmp_path / "right", 0.0)
    wrong = Watched(tmp_path / "wrong", skew_s, (lambda rank: skew_s if rank else 0.0) if measured else unknown_offset)
    etas = [RunEtaTracker(1000, mode="global_max", least_samples=2) for _ in range(2)]
    for second in range(5, 60, 5):
        one, other = right.at(float(second)), wrong.at(float(second))
        left = [eta.update(progress.last_steps, right.now_t) for eta, progress in zip(etas, (one, other), strict=True)]
    # What is learned of a clock is off by as long as a heartbeat takes to be seen.
    slack_s = 0.0 if measured else 1.0
    assert left[0].left is not None and left[1].left is not None and left[0].mode == left[1].mode == "global_max"
    assert left[1].left.eta_s == pytest.approx(left[0].left.eta_s, abs=slack_s + 0.01)
    assert abs(halt_step(other, wrong.now_t) - halt_step(one, right.now_t)) <= slack_s / ITER_S
    # The halt step is beyond every step that has ended.
    assert halt_step(other, wrong.now_t) > wrong.now_s / ITER_S


@SKEWS
def test_a_stall_and_its_culprit_are_found_by_our_own_clock(tmp_path: Path, skew_s: float) -> None:
    watched, stalls = Watched(tmp_path, skew_s), StallDetector(LimitsSpec(start_s=1.0, stall=StallSpec(factor=2.0, floor_s=20.0)))
    found = [stalls.check(watched.at(float(second), is_stalled=True), watched.now_s) for second in range(5, 60, 4)]
    seen = next(stall for stall in found if stall is not None)
    assert seen.culprit is not None and seen.culprit.rank == 1
    assert not any(found[:4])


@SKEWS
def test_no_spike_comes_of_a_clock(tmp_path: Path, skew_s: float) -> None:
    watched, spikes = Watched(tmp_path, skew_s), SpikeDetector(2.0)
    assert not [alarm for second in range(5, 120, 5) if (alarm := spikes.check(watched.at(float(second)), watched.now_t, watched.now_s))]


def test_a_shared_folder_that_shows_heartbeats_late_is_no_clock() -> None:
    clocks = HostClocks(wall=lambda: WALL_T)
    late = Heartbeat(rank=0, step=3, ts=WALL_T - 12.0, step_t=WALL_T - 13.0)
    assert clocks.convert([late]) == [late]


def test_lines_of_a_script_come_by_the_clock_of_node_0(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "attempt-1")
    paths.folder.mkdir()
    planned = replace(factory.spec(), place=PlaceSpec(kind="hostfile", ranks=2))
    reader = ProgressReader(planned, paths, offset_of=lambda rank: HOUR_S, wall=lambda: WALL_T + 20.0)
    paths.launcher_log.write_text(nano(1, 2))
    first, both = len(nano(1)), len(nano(1, 2))
    paths.arrivals.write_text(f"offset_bytes,t,m\n{first},{WALL_T + HOUR_S + 10},1\n{both},{WALL_T + HOUR_S + 15},6\n")
    (mark,) = reader.read().last_steps
    assert mark.step_t == pytest.approx(WALL_T + 15)
    paths.launcher_log.write_text(nano(1, 2, 3))
    # Its stamp is not there yet: then it came now.
    assert reader.read().last_steps[0].step_t == pytest.approx(WALL_T + 20)


def test_the_host_that_holds_most_memory_counts_and_all_output_does(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "attempt-1")
    for host, gib in ((paths, 1), (paths.node("node1"), 3), (paths.node("node2"), 2)):
        host.folder.mkdir(parents=True, exist_ok=True)
        write_samples(host.host_telemetry, HOST_COLUMNS, [{"epoch_sec": 1.0, "rss_kib": gib * 2**20}])
        host.launcher_log.write_text("12345\n")
    look = ProgressReader(factory.spec(), paths).read()
    assert look.memory_bytes == 3 * 2**30
    assert look.output_bytes == 18
    assert look.disk.bytes > 18
