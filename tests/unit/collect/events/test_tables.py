"""Event files into tables: the fast reader against the plain one, and what counts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from seatrial.collect.events.files import SCHEMA, read_block, read_block_by_line
from seatrial.collect.events.tables import read_events
from seatrial.records.events import PAUSE_TABLE_COLUMNS, STEP_TABLE_COLUMNS
from seatrial.records.steps import StepTables
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events

ATTEMPT = factory.attempt()
STEP = event(ATTEMPT, step=1, iter_ms=52.1, samples=16, tokens=2048, fwd_ms=17.9, loss=3.271)

ODD_FILES = {
    "empty": "",
    "clean": f"{STEP}\n{event(ATTEMPT, 'stop', step=1, steps=2)}\n",
    "torn last line": f"{STEP}\n{STEP[:60]}",
    "no last line end": f"{STEP}\n{STEP}",
    "rubbish": f"{STEP}\nSegmentation fault\n\n{STEP}\n",
    "empty lines": f"{STEP}\n\n\n{STEP}\n",
    "array and number": f"[1, 2]\n{STEP}\n17\n",
    "loss as a word": f"{event(ATTEMPT, step=1, loss='nan')}\n{event(ATTEMPT, step=2, loss='-inf')}\n{STEP}\n",
    "bare NaN": STEP.replace("3.271", "NaN") + "\n",
    "wrong types": f"{event(ATTEMPT, step='four', iter_ms=[1])}\n{event(ATTEMPT, step=True)}\n{event(ATTEMPT, step=2.5)}\n{STEP}\n",
    "two on a line": f"{STEP}{STEP}\n{STEP}\n",
    "unknown fields": f"{event(ATTEMPT, 'memory', step=3, rss_mib=12.5, nested={'a': 1})}\n{STEP}\n",
    "nulls": event(ATTEMPT, step=1, iter_ms=None, loss=None) + "\n",
    "binary": "\x00\x01\n" + STEP + "\n",
    "a name twice": STEP[:-1] + ', "iter_ms": 7.0}\n',
    "numbers for words": event(ATTEMPT, "KIND").replace('"KIND"', "3") + "\n" + event(ATTEMPT, "pause", step=1, name=5) + "\n",
    "impossible times": "".join(f"{event(ATTEMPT, step=1, iter_ms=time)}\n" for time in ("nan", math.inf, -3.0, 1e999)) + STEP + "\n",
    "huge number": f"{event(ATTEMPT, step=10**30)}\n{STEP}\n",
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_both_readers_give_equal_tables(name: str) -> None:
    block = ODD_FILES[name].encode()
    fast, plain = read_block(block), read_block_by_line(block)
    assert_frame_equal(fast, plain)
    assert dict(fast.schema) == SCHEMA
    assert name == "empty" or fast["kind"].null_count() < len(fast)


number = st.one_of(
    st.none(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["nan", "inf"])
)
lines = st.one_of(
    st.builds(lambda step, iter_ms, loss: event(ATTEMPT, step=step, iter_ms=iter_ms, loss=loss), st.integers(0, 9), number, number),
    st.sampled_from(["", "{}", "rubbish", "[]", '{"kind": "step"', "null"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(lines, max_size=8))
def test_both_readers_agree_on_any_file(drawn: list[str]) -> None:
    block = "\n".join(drawn).encode()
    assert_frame_equal(read_block(block), read_block_by_line(block))


def test_tables_of_two_ranks(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    for rank in range(2):
        body = [event(attempt, "start", rank=rank, t=10.0 + rank, world_size=2, pid=7)]
        body += [event(attempt, rank=rank, step=step, iter_ms=50.0, samples=4, loss=2.0) for step in (2, 0, 1)]
        body += [event(attempt, "pause", rank=rank, step=1, name="eval", pause_ms=12.0)]
        write_events(attempt, rank, "\n".join(body + ([event(attempt, "stop", rank=rank, step=2)] if rank else [])) + "\n")
    tables = read_events(attempt)[0]
    assert tables is not None
    assert tuple(tables.steps.columns) == STEP_TABLE_COLUMNS
    assert tuple(tables.pauses.columns) == PAUSE_TABLE_COLUMNS
    assert tables.steps.select("rank", "step").rows() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert tables.pauses.rows() == [(0, 1, "eval", 12.0), (1, 1, "eval", 12.0)]
    assert (tables.source, tables.world_size) == ("events", 2)
    assert tables.steps["span"].unique().to_list() == [1]


def test_ten_ranks_are_read_in_their_order(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    for rank in range(11):
        write_events(attempt, rank, event(attempt, rank=rank, step=0, iter_ms=1.0) + "\n")
    tables = read_events(attempt)[0]
    assert tables is not None
    assert tables.steps["rank"].to_list() == list(range(11))


def test_lines_of_another_run_or_attempt_are_not_this_one_s(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    foreign = [{"run": "other_r1"}, {"attempt": 2}, {"run": None}, {"rank": None}]
    text = "\n".join(
        [*(json.dumps({**json.loads(event(attempt, step=9, iter_ms=1.0)), **change}) for change in foreign), event(attempt, step=0)]
    )
    write_events(attempt, 0, text + "\n")
    tables = read_events(attempt)[0]
    assert tables is not None
    assert tables.steps["step"].to_list() == [0]
    assert counts(tables) == {"foreign_lines": 4}


def counts(tables: StepTables) -> dict[str, object]:
    """Kind of each caution and its one number."""
    return {caution.kind: next(iter(caution.numbers.values())) for caution in tables.cautions}


def both_ways(tmp_path: Path, body: list[str]) -> list[StepTables]:
    """The tables as the fast reader gives them, and as the plain one does: a loss that is a word is what the fast one refuses."""
    tables = []
    for name, first in (("fast", 2.0), ("plain", "nan")):
        attempt = write_attempt(tmp_path / name)
        write_events(attempt, 0, "\n".join([event(attempt, step=0, iter_ms=1.0, loss=first), *body]) + "\n")
        found = read_events(attempt)[0]
        assert found is not None
        tables.append(found)
    assert_frame_equal(tables[0].steps.drop("loss"), tables[1].steps.drop("loss"))
    assert tables[0].cautions == tables[1].cautions
    return tables


def test_foreign_lines_are_counted_by_both_readers(tmp_path: Path) -> None:
    other = json.dumps({**json.loads(event(ATTEMPT, step=9, iter_ms=1.0)), "run": "other_r1"})
    for tables in both_ways(tmp_path, [other, "{}", "", event(ATTEMPT, step=1, iter_ms=1.0), other]):
        assert counts(tables) == {"foreign_lines": 3}
        assert tables.cautions[0].text.startswith("In events_rank0.jsonl 3 lines were passed over: ")


def test_rubbish_is_counted_and_a_torn_end_is_said(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_events(
        attempt, 0, f"{event(attempt, step=0)}\nSegmentation fault\n[1]\n   \n{event(attempt, step=1)}\n{event(attempt, step=2)[:40]}"
    )
    tables = read_events(attempt)[0]
    assert tables is not None
    assert counts(tables) == {"foreign_lines": 2, "torn_line": 1}


def test_steps_written_twice_are_counted_by_both_readers(tmp_path: Path) -> None:
    twice = [event(ATTEMPT, step=step, iter_ms=time) for time in (5.0, 20.0) for step in range(1, 5)]
    for tables in both_ways(tmp_path, twice):
        assert counts(tables) == {"duplicate_steps": 4}
        assert tables.steps["iter_ms"].to_list() == [1.0, 5.0, 5.0, 5.0, 5.0]


def test_a_negative_time_is_no_time_for_both_readers(tmp_path: Path) -> None:
    for tables in both_ways(tmp_path, [event(ATTEMPT, step=step, iter_ms=time) for step, time in enumerate((-4.0, 0.0, None), 1)]):
        assert counts(tables) == {"bad_times": 1}
        assert tables.steps["iter_ms"].to_list() == [1.0, None, 0.0, None]


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-Infinity", "1e400", '"nan"', "-0.5"])
def test_a_time_that_is_no_number_is_none(tmp_path: Path, time: str) -> None:
    attempt = write_attempt(tmp_path)
    bad = event(attempt, step=1, iter_ms=77.5).replace("77.5", time)
    write_events(attempt, 0, f"{event(attempt, step=0, iter_ms=1.0)}\n{bad}\n")
    tables = read_events(attempt)[0]
    assert tables is not None
    assert tables.steps["iter_ms"].to_list() == [1.0, None]
    assert counts(tables) == {"bad_times": 1}


def test_clean_events_have_no_cautions(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_events(attempt, 0, "\n".join(event(attempt, step=step, iter_ms=1.0) for step in range(3)))
    tables = read_events(attempt)[0]
    assert tables is not None and tables.cautions == ()


def test_a_step_written_twice_counts_once_as_first_written(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_events(attempt, 0, "\n".join(event(attempt, step=step, iter_ms=time) for step, time in ((0, 1.0), (1, 2.0), (1, 99.0))))
    tables = read_events(attempt)[0]
    assert tables is not None
    assert tables.steps["iter_ms"].to_list() == [1.0, 2.0]


def test_words_for_losses_become_numbers(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_events(
        attempt, 0, "\n".join(event(attempt, step=step, loss=loss) for step, loss in enumerate([2.0, "nan", "inf", "-inf", "word", None]))
    )
    tables = read_events(attempt)[0]
    assert tables is not None
    losses = tables.steps["loss"].to_list()
    assert math.isnan(losses[1])
    assert [losses[0], *losses[2:]] == [2.0, math.inf, -math.inf, None, None]


def test_effective_settings_are_rank_0_s(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    effective = event(attempt, "effective", setting="precision", requested="auto", effective="bf16", reason="cc 9.0")
    flag = event(attempt, "effective", setting="tf32", requested=True, effective=False, reason="")
    write_events(attempt, 0, f"{effective}\n{flag}\n{event(attempt, step=0)}\n")
    tables = read_events(attempt)[0]
    assert tables is not None
    assert tables.effective == {"precision": ("auto", "bf16", "cc 9.0"), "tf32": (True, False, "")}


def test_effective_settings_of_another_attempt_are_not_this_one_s(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    own = event(attempt, "effective", setting="precision", requested="auto", effective="bf16", reason="")
    other = own.replace('"attempt": 1', '"attempt": 7').replace("bf16", "fp8")
    nested = own.replace('"bf16"', '{"a": [1]}')
    write_events(attempt, 0, f"{own}\n{other}\n{nested}\n{event(attempt, step=0)}\n")
    tables = read_events(attempt)[0]
    assert tables
    assert tables.effective == {"precision": ("auto", "bf16", "")}


def test_a_word_that_is_no_kind_is_no_setting(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    pause = event(attempt, "pause", step=0, name="effective", pause_ms=3.0)
    write_events(attempt, 0, f"{event(attempt, step=0)}\n{pause}\n")
    tables = read_events(attempt)[0]
    assert tables
    assert tables.effective == {}
    assert tables.pauses.rows() == [(0, 0, "effective", 3.0)]


def test_a_step_without_a_number_and_a_line_without_a_kind_are_passed_over(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    unkind = event(attempt, step=5, world_size=64).replace('"kind": "step"', '"kind": null')
    write_events(attempt, 0, f"{event(attempt, step=None, iter_ms=3.0)}\n{unkind}\n{event(attempt, step=1, iter_ms=4.0)}\n")
    tables = read_events(attempt)[0]
    assert tables
    assert tables.steps.select("rank", "step", "span", "iter_ms").rows() == [(0, 1, 1, 4.0)]
    assert tables.world_size == attempt.spec.place.ranks
    assert tables.pauses.is_empty()


def test_events_without_a_step_are_no_tables(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    assert read_events(attempt)[0] is None
    write_events(attempt, 0, event(attempt, "start", world_size=1) + "\n")
    assert read_events(attempt)[0] is None


def test_of_a_file_without_end_only_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.collect.events.files.LARGEST_FILE_BYTES", 2000)
    monkeypatch.setattr("seatrial.collect.events.files.BLOCK_BYTES", 500)
    attempt = write_attempt(tmp_path)
    write_events(attempt, 0, "".join(event(attempt, step=step, iter_ms=1.0) + "\n" for step in range(100)))
    tables = read_events(attempt)[0]
    assert tables is not None and counts(tables).keys() == {"large_events"}
    found = tables.steps["step"].to_list()
    assert found == list(range(len(found))) and 10 < len(found) < 30


def test_blocks_cut_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in blocks of every size, the tables are those of the whole file."""
    attempt = write_attempt(tmp_path)
    lines = [event(attempt, step=step, iter_ms=1.0) for step in range(20)]
    write_events(attempt, 0, "\n".join([*lines[:7], "rubbish", *lines[7:]]) + "\n")
    for size in (1, 7, 100, 131, 1000):
        monkeypatch.setattr("seatrial.collect.events.files.BLOCK_BYTES", size)
        tables = read_events(attempt)[0]
        assert tables is not None and tables.steps["step"].to_list() == list(range(20)), size
        assert counts(tables) == {"foreign_lines": 1}


def test_each_rank_s_file_is_believed_for_that_rank_only(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    for rank in range(2):
        own = [event(attempt, rank=rank, step=step, iter_ms=1.0 + rank) for step in range(5)]
        stray = [event(attempt, rank=1 - rank, step=step, iter_ms=900.0) for step in range(5, 8)]
        write_events(attempt, rank, "\n".join([*own, *stray]) + "\n")
    tables = read_events(attempt)[0]
    assert tables is not None and counts(tables) == {"foreign_lines": 6}
    assert "events_rank0.jsonl and events_rank1.jsonl" in tables.cautions[0].text
    assert tables.steps["iter_ms"].to_list() == [1.0] * 5 + [2.0] * 5


def test_what_is_no_file_is_named_and_the_other_ranks_are_read(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=3))
    write_events(attempt, 1, event(attempt, rank=1, step=0, iter_ms=1.0) + "\n")
    (Path(attempt.folder) / "events_rank0.jsonl").mkdir()
    (Path(attempt.folder) / "events_rank2.jsonl").touch()
    tables = read_events(attempt)[0]
    assert tables is not None and tables.steps["rank"].to_list() == [1]
    assert [caution.text.partition(" ")[0] for caution in tables.cautions] == ["events_rank0.jsonl", "events_rank2.jsonl"]
