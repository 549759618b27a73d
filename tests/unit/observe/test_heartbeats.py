"""Heartbeats are read cheaply, lies and rubbish are passed over, and a failing disk does not silence a rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.disk import fallback
from seatrial.observe.heartbeats import Beat, Heartbeats, parse_beat
from seatrial.paths import AttemptPaths

GOOD: dict[str, Any] = {
    "ts": 105.0,
    "iso": "1970-01-01T00:01:45.000+00:00",
    "pid": 77,
    "rank": 2,
    "step": 41,
    "msg": "beat",
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


def newest(attempt: AttemptPaths, data: bytes) -> Beat | None:
    attempt.heartbeat(2).write_bytes(data)
    beats = Heartbeats(attempt).look()
    return beats[0] if beats else None


def test_a_whole_line_is_a_beat(attempt: AttemptPaths) -> None:
    assert newest(attempt, line()) == Beat(
        rank=2,
        step=41,
        phase="bwd",
        pid=77,
        host="node1",
        ts=105.0,
        step_t=104.5,
        iter_ms_p50=52.1,
        paused_s=1.5,
        read_bytes=len(line()),
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
def test_what_is_no_beat_of_this_rank_leaves_the_one_before(attempt: AttemptPaths, after: bytes) -> None:
    beat = newest(attempt, line() + after)
    assert beat is not None
    assert beat.step == 41


def test_a_restarted_rank_is_before_its_first_step_again(attempt: AttemptPaths) -> None:
    beat = newest(attempt, line() + line(pid=99, step=None, step_t=None, iter_ms_p50=None, paused_s=None, phase="start"))
    assert beat is not None
    assert (beat.step, beat.pid, beat.iter_ms_p50, beat.paused_s) == (None, 99, None, 0.0)


@pytest.mark.parametrize("pace", [-1.0, 0, 1e12, float("nan"), float("inf"), 10**400, "5", True, []])
def test_a_pace_that_cannot_be_is_none(attempt: AttemptPaths, pace: Any) -> None:
    beat = newest(attempt, line(iter_ms_p50=pace, ts=pace, step_t=pace, paused_s=pace, phase=pace, host=7, pid="x"))
    assert beat is not None
    assert (beat.step, beat.iter_ms_p50, beat.pid, beat.host) == (41, None, None, "") or beat.iter_ms_p50 == 5


def test_a_line_longer_than_the_first_look_is_found(attempt: AttemptPaths) -> None:
    beat = newest(attempt, line(step=1) + line(msg="m" * 20_000))
    assert beat is not None
    assert beat.step == 41


def test_names_that_are_no_rank_s_and_files_that_cannot_be_read_are_passed_over(attempt: AttemptPaths) -> None:
    for name in ("heartbeat_rankx.jsonl", "heartbeat_rank.jsonl", "heartbeat_rank2.jsonl.bak", f"heartbeat_rank{'9' * 30}.jsonl"):
        (attempt.folder / name).write_bytes(line())
    attempt.heartbeat(2).mkdir()
    attempt.heartbeat(1).symlink_to(attempt.folder / "nowhere")
    assert Heartbeats(attempt).look() == []
    assert Heartbeats(AttemptPaths(attempt.folder / "missing")).look() == []


def test_a_file_that_has_not_grown_is_not_read_again(attempt: AttemptPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt.heartbeat(2).write_bytes(line())
    heartbeats = Heartbeats(attempt, monotonic=lambda: 0.0)
    before = heartbeats.look()
    monkeypatch.setattr("seatrial.observe.heartbeats._last_lines", lambda path, most: pytest.fail("read again"))
    assert heartbeats.look() == before


def test_a_file_that_went_away_leaves_the_rank_where_it_was(attempt: AttemptPaths) -> None:
    attempt.heartbeat(2).write_bytes(line())
    heartbeats = Heartbeats(attempt)
    before = heartbeats.look()
    attempt.heartbeat(2).unlink()
    assert heartbeats.look() == before


def test_ranks_come_by_number(attempt: AttemptPaths) -> None:
    for rank in (10, 2, 0):
        attempt.heartbeat(rank).write_bytes(line(rank=rank))
    assert [beat.rank for beat in Heartbeats(attempt).look()] == [0, 2, 10]


def test_beats_that_a_failing_disk_sent_elsewhere_are_found(attempt: AttemptPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fallback.VARIABLE, str(tmp_path / "elsewhere"))
    now = [0.0]
    attempt.heartbeat(2).write_bytes(line())
    heartbeats = Heartbeats(attempt, monotonic=lambda: now[0])
    heartbeats.look()
    assert fallback.keep(fallback.real(attempt.heartbeat(2)), line(step=50), "No space left on device", 0o644)
    steps = []
    for now[0] in (1.0, 9.0, 10.0):
        (beat,) = heartbeats.look()
        steps.append(beat.step)
    assert steps == [41, 50, 50]
    before = beat.read_bytes
    assert fallback.keep(fallback.real(attempt.heartbeat(2)), line(step=50), "No space left on device", 0o644)
    (beat,) = heartbeats.look()
    assert beat.read_bytes > before


@given(st.binary(max_size=400))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_read_without_a_word(attempt: AttemptPaths, data: bytes) -> None:
    newest(attempt, data)
    newest(attempt, line() + data)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=3))
def test_any_value_of_any_field_is_taken_or_left(value: Any) -> None:
    for field in GOOD:
        beat = parse_beat(line(**{field: value}), 2, 3)
        assert beat is None or beat.rank == 2
