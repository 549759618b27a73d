"""What the head of the slowest rank's events tells of its start-up."""

from __future__ import annotations

from pathlib import Path

from seatrial.collect.events.startup import read_broken_startup, read_startup
from seatrial.collect.step_schema import empty_steps
from seatrial.collect.steps import read_steps
from seatrial.records.attempt import Attempt
from seatrial.records.steps import StartupFacts
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events


def start(attempt: Attempt, rank: int, **fields: object) -> str:
    return event(attempt, "start", rank=rank, world_size=2, **{"t": 12.5, "process_t": 11.0, **fields})


def step(attempt: Attempt, rank: int, t: float, number: int = 0) -> str:
    return event(attempt, rank=rank, step=number, t=t, m=t + 100, iter_ms=40.0)


def span(attempt: Attempt, rank: int, name: str, span_ms: float) -> str:
    return event(attempt, "span", rank=rank, name=name, span_ms=span_ms, m=150.0)


def facts(attempt: Attempt, *files: list[str]) -> StartupFacts | None:
    for rank, lines in enumerate(files):
        write_events(attempt, rank, "".join(f"{line}\n" for line in lines))
    return read_steps(attempt).startup


def test_those_of_the_rank_whose_first_step_ended_last(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    fast = [start(attempt, 0), span(attempt, 0, "model", 1.0), step(attempt, 0, 20.0), step(attempt, 0, 99.0, 1)]
    slow = [start(attempt, 1, t=13.0), span(attempt, 1, "model", 2500.0), span(attempt, 1, "data", 10.0), step(attempt, 1, 21.0)]
    found = facts(attempt, fast, slow)
    assert found == StartupFacts(rank=1, start_t=13.0, start_m=2.0, process_t=11.0, spans=(("model", 2.5, 150.0), ("data", 0.01, 150.0)))


def test_lines_of_another_attempt_torn_ones_and_those_after_the_first_step_do_not_count(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    foreign = write_attempt(tmp_path, number=2)
    mine = [start(attempt, 0), "{torn", span(foreign, 0, "model", 7.0), span(attempt, 0, "nonsense", 5.0)]
    found = facts(attempt, [*mine, step(attempt, 0, 20.0), span(attempt, 0, "compile", 9.0), step(attempt, 0, 20.1, 1)])
    assert found == StartupFacts(rank=0, start_t=12.5, start_m=2.0, process_t=11.0)


def test_a_probe_that_does_not_say_when_its_process_began(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    found = facts(attempt, [start(attempt, 0, process_t=None), step(attempt, 0, 20.0)])
    assert found is not None
    assert found.process_t is None


def test_a_rank_started_anew_speaks_for_itself_alone(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    found = facts(
        attempt, [start(attempt, 0), span(attempt, 0, "model", 7.0), start(attempt, 0, t=15.0, process_t=14.0), step(attempt, 0, 20.0)]
    )
    assert found == StartupFacts(rank=0, start_t=15.0, start_m=2.0, process_t=14.0)


def test_nothing_where_there_is_no_start_event(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    assert facts(attempt, [step(attempt, 0, 20.0)]) is None


def test_of_a_run_that_ended_before_any_step_the_lowest_rank_that_began(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    found = facts(attempt, ["{torn"], [start(attempt, 1, m=142.0), span(attempt, 1, "model", 2500.0)])
    assert found == StartupFacts(rank=1, start_t=12.5, start_m=142.0, process_t=11.0, spans=(("model", 2.5, 150.0),))
    assert read_steps(attempt).steps.is_empty()
    assert facts(attempt, ["{torn"], ["{torn"]) is None


def test_without_a_time_of_a_first_step_no_rank_was_ready_last(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    untimed = factory.steps_of([40.0, 40.0]).with_columns(t=None)
    assert read_startup(attempt, untimed.cast(empty_steps().schema)) is None


def test_files_whose_names_tell_no_rank_are_no_ranks(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    assert read_broken_startup(attempt, []) is None
    assert read_broken_startup(attempt, [tmp_path / "events_rankx.jsonl"]) is None
