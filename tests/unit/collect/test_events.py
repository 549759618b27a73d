"""Event files: single lines, rare events, start-up, stop and halt, reported figures, places and effective settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from seatrial.collect.event_steps import empty_steps
from seatrial.collect.events import (
    LARGEST_FIGURE,
    LAST_BYTES,
    START_EVENT_BYTES,
    events_of_kind,
    is_stopped,
    parse_event,
    read_broken_startup,
    read_reported_figures,
    read_startup,
)
from seatrial.collect.steps import read_steps
from seatrial.records.attempt import Attempt, StartupFacts
from seatrial.records.measure import RankLocation, ReportedFigure
from seatrial.records.outcome import Outcome
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events, write_log


@pytest.mark.parametrize("line", [b"", b"\n", b"{torn", b"[1, 2]", b'"step"', b"17", b"null", b"\x00\xff", b"[" * 100_000])
def test_only_a_json_object_is_an_event(line: bytes) -> None:
    assert parse_event(line) is None


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert parse_event(b'{"host": "a\xffb"}') == {"host": "a\N{REPLACEMENT CHARACTER}b"}


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return write_attempt(tmp_path)


def values(path: Path, attempt: Attempt) -> list[object]:
    return [one["value"] for one in events_of_kind("figure", path, attempt)]


def test_events_of_a_kind_in_file_order(attempt: Attempt) -> None:
    lines = [event(attempt, "figure", value=1), event(attempt, step=1), event(attempt, "figure", value=2)]
    assert values(write_events(attempt, 0, "\n".join(lines)), attempt) == [1, 2], "the last line has no end and is one all the same"


def test_foreign_lines_and_other_kinds_are_skipped(attempt: Attempt, tmp_path: Path) -> None:
    other = write_attempt(tmp_path, number=2)
    lines = [
        event(attempt, "pause", name="figure", step=1),
        event(other, "figure", value=3),
        event(attempt, "figure", rank=1, value=4),
        '{"kind": "figure", "torn',
        event(attempt, "figure", value=5),
    ]
    assert values(write_events(attempt, 0, "".join(f"{line}\n" for line in lines)), attempt) == [5]


def test_an_unreadable_file_has_no_events(attempt: Attempt, tmp_path: Path) -> None:
    assert values(tmp_path / "events_rank0.jsonl", attempt) == []
    (tmp_path / "events_rank0.jsonl").mkdir()
    assert values(tmp_path / "events_rank0.jsonl", attempt) == []


def write_lines(attempt: Attempt, *lines: str, rank: int = 0) -> Path:
    return write_events(attempt, rank, "".join(f"{line}\n" for line in lines))


def test_a_rank_is_stopped_by_its_stop_event(attempt: Attempt) -> None:
    assert not is_stopped(write_lines(attempt, event(attempt, step=1)), attempt)
    assert is_stopped(write_lines(attempt, event(attempt, step=1), event(attempt, "stop", steps=2)), attempt)


def test_stop_events_of_others_do_not_count(attempt: Attempt, tmp_path: Path) -> None:
    other = write_attempt(tmp_path, number=2)
    lines = [event(other, "stop"), event(attempt, "stop", rank=1), event(attempt, "pause", name="stop"), '{"kind":"stop"']
    assert not is_stopped(write_lines(attempt, *lines), attempt)


def test_a_stop_far_before_the_end_does_not_count(attempt: Attempt) -> None:
    later = [event(attempt, step=step, name="x" * 200) for step in range(LAST_BYTES // 200)]
    assert not is_stopped(write_lines(attempt, event(attempt, "stop"), *later), attempt)


def write_figures(attempt: Attempt, *figures: dict[str, Any], rank: int = 0) -> Path:
    return write_events(attempt, rank, "".join(f"{event(attempt, 'figure', rank=rank, **figure)}\n" for figure in figures))


def test_the_last_figure_of_the_lowest_rank_counts(attempt: Attempt) -> None:
    first = write_figures(attempt, {"name": "b", "value": 1}, {"name": "b", "value": 2, "unit": "ms", "n": 5})
    second = write_figures(attempt, {"name": "b", "value": 9}, {"name": "a", "value": 3.5, "n": 0}, rank=1)
    assert read_reported_figures([first, second], attempt) == {
        "a": ReportedFigure(value=3.5, n=0, file="events_rank1.jsonl"),
        "b": ReportedFigure(value=2.0, unit="ms", n=5, file="events_rank0.jsonl"),
    }


@pytest.mark.parametrize("value", [None, True, "3", [], LARGEST_FIGURE, -LARGEST_FIGURE, math.nan])
def test_an_invalid_figure_is_nan(attempt: Attempt, value: object) -> None:
    assert math.isnan(read_reported_figures([write_figures(attempt, {"name": "a", "value": value})], attempt)["a"].value)


@pytest.mark.parametrize("name", [None, "", "two words", "a" * 101, 7])
def test_a_figure_without_a_valid_name_is_skipped(attempt: Attempt, name: object) -> None:
    assert read_reported_figures([write_figures(attempt, {"name": name, "value": 1.0})], attempt) == {}


def test_an_invalid_unit_or_n_is_dropped(attempt: Attempt) -> None:
    odd = write_figures(
        attempt, {"name": "a", "value": 1, "unit": 3, "n": -1}, {"name": "b", "value": 1, "n": True}, {"name": "c", "value": 1, "n": 2.5}
    )
    assert [(one.unit, one.n) for one in read_reported_figures([odd], attempt).values()] == [("", None)] * 3


def write_rank(attempt: Attempt, rank: int, *before: str, after: tuple[str, ...] = (), steps: int = 3) -> None:
    lines = [event(attempt, rank=rank, step=step, iter_ms=50.0, m=2.0 + step) for step in range(steps)]
    write_events(attempt, rank, "".join(f"{line}\n" for line in (*before, *lines, *after)))


def start(attempt: Attempt, rank: int, **fields: Any) -> str:
    return event(attempt, "start", rank=rank, world_size=2, **fields)


def test_places_are_read_from_the_start_events(attempt: Attempt) -> None:
    write_rank(attempt, 0, start(attempt, 0, host="jw1", local_rank=0, gpu="2"))
    write_rank(attempt, 1, start(attempt, 1, host="jw2", local_rank=0, gpu="GPU-3f"))
    assert read_steps(attempt).locations == (
        RankLocation(rank=0, host="jw1", gpu="2"),
        RankLocation(rank=1, host="jw2", gpu="GPU-3f"),
    )


def test_an_older_probe_reports_the_host_only(attempt: Attempt) -> None:
    write_rank(attempt, 0, start(attempt, 0, host="jw1"))
    write_rank(attempt, 1)
    assert read_steps(attempt).locations == (RankLocation(rank=0, host="jw1"),)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"start", "host": "torn',
        '{"kind":"start","host":"of another run","run":"x","attempt":1,"rank":0}',
        '\x00\x01 no event "start"',
    ],
)
def test_a_first_line_of_another_program_is_skipped(attempt: Attempt, line: str) -> None:
    write_rank(attempt, 0, line, start(attempt, 0, host="jw1", local_rank=-1, gpu=["0"]))
    assert read_steps(attempt).locations == (RankLocation(rank=0, host="jw1"),)


def test_a_start_event_far_into_the_file_is_not_searched_for(attempt: Attempt) -> None:
    write_rank(attempt, 0, " " * START_EVENT_BYTES, start(attempt, 0, host="jw1"))
    assert read_steps(attempt).locations == ()


def test_figures_and_places_of_a_job_without_steps(attempt: Attempt) -> None:
    write_events(
        attempt, 0, "\n".join([start(attempt, 0, host="jw1"), event(attempt, "figure", name="tokens_per_s", value=812.0, n=20)]) + "\n"
    )
    write_log(attempt, "done\n")
    tables = read_steps(attempt)
    assert tables.source == "whole"
    assert tables.reported == {"tokens_per_s": ReportedFigure(value=812.0, n=20, file="events_rank0.jsonl")}
    assert tables.locations == (RankLocation(rank=0, host="jw1"),)


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.STALLED])
def test_a_rank_that_was_halted_makes_the_run_halted(tmp_path: Path, outcome: Outcome) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2), outcome=outcome)
    write_rank(attempt, 0)
    write_rank(attempt, 1, after=(event(attempt, "halt", rank=1, step=2, at_step=3), event(attempt, "stop", rank=1, steps=3)))
    health = read_steps(attempt).health
    assert health is not None and health.halted


def test_the_watchdogs_halt_file_makes_the_run_halted(attempt: Attempt) -> None:
    write_rank(attempt, 0)
    (Path(attempt.folder) / ".HALT").write_text("halt: heartbeat_stall\n")
    health = read_steps(attempt).health
    assert health is not None and health.halted


def startup_event(attempt: Attempt, rank: int, **fields: object) -> str:
    return event(attempt, "start", rank=rank, world_size=2, **{"t": 12.5, "process_t": 11.0, **fields})


def step(attempt: Attempt, rank: int, t: float, number: int = 0) -> str:
    return event(attempt, rank=rank, step=number, t=t, m=t + 100, iter_ms=40.0)


def span(attempt: Attempt, rank: int, name: str, span_ms: float) -> str:
    return event(attempt, "span", rank=rank, name=name, span_ms=span_ms, m=150.0)


def facts(attempt: Attempt, *files: list[str]) -> StartupFacts | None:
    for rank, lines in enumerate(files):
        write_events(attempt, rank, "".join(f"{line}\n" for line in lines))
    return read_steps(attempt).startup


def test_startup_of_the_rank_whose_first_step_ended_last(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    fast = [startup_event(attempt, 0), span(attempt, 0, "model", 1.0), step(attempt, 0, 20.0), step(attempt, 0, 99.0, 1)]
    slow = [startup_event(attempt, 1, t=13.0), span(attempt, 1, "model", 2500.0), span(attempt, 1, "data", 10.0), step(attempt, 1, 21.0)]
    found = facts(attempt, fast, slow)
    assert found == StartupFacts(rank=1, start_t=13.0, start_m=2.0, process_t=11.0, spans=(("model", 2.5, 150.0), ("data", 0.01, 150.0)))


def test_startup_ignores_foreign_and_truncated_lines_and_those_after_the_first_step(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    foreign = write_attempt(tmp_path, number=2)
    mine = [startup_event(attempt, 0), "{torn", span(foreign, 0, "model", 7.0), span(attempt, 0, "nonsense", 5.0)]
    found = facts(attempt, [*mine, step(attempt, 0, 20.0), span(attempt, 0, "compile", 9.0), step(attempt, 0, 20.1, 1)])
    assert found == StartupFacts(rank=0, start_t=12.5, start_m=2.0, process_t=11.0)


def test_startup_without_the_start_of_the_process(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    found = facts(attempt, [startup_event(attempt, 0, process_t=None), step(attempt, 0, 20.0)])
    assert found is not None
    assert found.process_t is None


def test_startup_of_a_restarted_rank(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    found = facts(
        attempt,
        [
            startup_event(attempt, 0),
            span(attempt, 0, "model", 7.0),
            startup_event(attempt, 0, t=15.0, process_t=14.0),
            step(attempt, 0, 20.0),
        ],
    )
    assert found == StartupFacts(rank=0, start_t=15.0, start_m=2.0, process_t=14.0)


def test_no_startup_without_a_start_event(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    assert facts(attempt, [step(attempt, 0, 20.0)]) is None


def test_startup_of_a_run_without_steps_is_the_lowest_ranks(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    found = facts(attempt, ["{torn"], [startup_event(attempt, 1, m=142.0), span(attempt, 1, "model", 2500.0)])
    assert found == StartupFacts(rank=1, start_t=12.5, start_m=142.0, process_t=11.0, spans=(("model", 2.5, 150.0),))
    assert read_steps(attempt).steps.is_empty()
    assert facts(attempt, ["{torn"], ["{torn"]) is None


def test_without_a_time_of_a_first_step_no_rank_was_ready_last(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    untimed = factory.steps_of([40.0, 40.0]).with_columns(t=None)
    assert read_startup(attempt, untimed.cast(empty_steps().schema)) is None


def test_files_without_a_rank_in_their_name_are_skipped(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    assert read_broken_startup(attempt, []) is None
    assert read_broken_startup(attempt, [tmp_path / "events_rankx.jsonl"]) is None
