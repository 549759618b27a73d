"""The step table from events: which steps are valid, and what is reported about the rest."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from seatrial.collect.event_steps import NAMED_FILES, STEP_SCHEMA, CheckedSteps, check_steps, event_cautions, name_files, read_event_steps
from seatrial.collect.events import SCHEMA, SEARCH_BLOCK_BYTES, SkippedLines, events_of_kind, read_block, read_block_by_line
from seatrial.collect.steps import read_steps
from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.caution import Caution
from seatrial.records.events import PAUSE_TABLE_COLUMNS, STEP_TABLE_COLUMNS
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


def read_tables(attempt: Attempt) -> StepTables:
    found = read_event_steps(attempt)[0]
    assert found is not None
    return found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["[1-2]", "run*", "a?{b}"])
def test_a_folder_whose_name_is_a_pattern_is_read_and_no_other(tmp_path: Path, name: str, ranks: int) -> None:
    """Beside folders that the pattern would match, with other steps."""
    for folder, first in ((name, 1), ("1", 100), ("run1", 100), ("ab{b}", 100)):
        attempt = write_attempt(tmp_path / folder, factory.spec(ranks=ranks))
        for rank in range(ranks):
            lines = [event(attempt, rank=rank, step=first + at, iter_ms=50.0) for at in range(3)]
            write_events(attempt, rank, "".join(f"{line}\n" for line in lines))
        if folder == name:
            wanted = attempt
    assert read_tables(wanted).steps["step"].to_list() == [1, 2, 3] * ranks


def test_tables_of_two_ranks(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    for rank in range(2):
        body = [event(attempt, "start", rank=rank, t=10.0 + rank, world_size=2, pid=7)]
        body += [event(attempt, rank=rank, step=step, iter_ms=50.0, samples=4, loss=2.0) for step in (2, 0, 1)]
        body += [event(attempt, "pause", rank=rank, step=1, name="eval", pause_ms=12.0)]
        write_events(attempt, rank, "\n".join(body + ([event(attempt, "stop", rank=rank, step=2)] if rank else [])) + "\n")
    tables = read_tables(attempt)
    assert tuple(tables.steps.columns) == STEP_TABLE_COLUMNS
    assert tuple(tables.pauses.columns) == PAUSE_TABLE_COLUMNS
    assert tables.steps.select("rank", "step").rows() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert tables.pauses.rows() == [(0, 1, "eval", 12.0), (1, 1, "eval", 12.0)]
    assert (tables.source, tables.world_size) == ("events", 2)
    assert tables.steps["span"].unique().to_list() == [1]


def test_lines_of_another_run_or_attempt_are_skipped(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    foreign = [{"run": "other_r1"}, {"attempt": 2}, {"run": None}, {"rank": None}]
    text = "\n".join(
        [*(json.dumps({**json.loads(event(attempt, step=9, iter_ms=1.0)), **change}) for change in foreign), event(attempt, step=0)]
    )
    write_events(attempt, 0, text + "\n")
    tables = read_tables(attempt)
    assert tables.steps["step"].to_list() == [0]
    assert counts(tables) == {"foreign_lines": 4}


def counts(tables: StepTables) -> dict[str, object]:
    """Kind of each caution and its one number."""
    return {caution.kind: next(iter(caution.numbers.values())) for caution in tables.cautions}


def both_ways(tmp_path: Path, body: list[str]) -> list[StepTables]:
    """The tables as the fast reader gives them, and as the plain one does: the fast one rejects a loss that is text."""
    tables = []
    for name, first in (("fast", 2.0), ("plain", "nan")):
        attempt = write_attempt(tmp_path / name)
        write_events(attempt, 0, "\n".join([event(attempt, step=0, iter_ms=1.0, loss=first), *body]) + "\n")
        tables.append(read_tables(attempt))
    assert_frame_equal(tables[0].steps.drop("loss"), tables[1].steps.drop("loss"))
    assert tables[0].cautions == tables[1].cautions
    return tables


def test_foreign_lines_are_counted_by_both_readers(tmp_path: Path) -> None:
    other = json.dumps({**json.loads(event(ATTEMPT, step=9, iter_ms=1.0)), "run": "other_r1"})
    for tables in both_ways(tmp_path, [other, "{}", "", event(ATTEMPT, step=1, iter_ms=1.0), other]):
        assert counts(tables) == {"foreign_lines": 3}
        assert tables.cautions[0].text.startswith("In events_rank0.jsonl 3 lines were ")


def test_malformed_lines_and_a_truncated_end_are_reported(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_events(
        attempt, 0, f"{event(attempt, step=0)}\nSegmentation fault\n[1]\n   \n{event(attempt, step=1)}\n{event(attempt, step=2)[:40]}"
    )
    tables = read_tables(attempt)
    assert counts(tables) == {"foreign_lines": 2, "torn_line": 1}


def test_steps_written_twice_are_counted_by_both_readers(tmp_path: Path) -> None:
    twice = [event(ATTEMPT, step=step, iter_ms=time) for time in (5.0, 20.0) for step in range(1, 5)]
    for tables in both_ways(tmp_path, twice):
        assert counts(tables) == {"duplicate_steps": 4}
        assert tables.steps["iter_ms"].to_list() == [1.0, 5.0, 5.0, 5.0, 5.0]


def test_a_negative_time_is_cleared_by_both_readers(tmp_path: Path) -> None:
    for tables in both_ways(tmp_path, [event(ATTEMPT, step=step, iter_ms=time) for step, time in enumerate((-4.0, 0.0, None), 1)]):
        assert counts(tables) == {"bad_times": 1}
        assert tables.steps["iter_ms"].to_list() == [1.0, None, 0.0, None]


def test_losses_that_are_words_become_numbers(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_events(
        attempt, 0, "\n".join(event(attempt, step=step, loss=loss) for step, loss in enumerate([2.0, "nan", "inf", "-inf", "word", None]))
    )
    tables = read_tables(attempt)
    losses = tables.steps["loss"].to_list()
    assert math.isnan(losses[1])
    assert [losses[0], *losses[2:]] == [2.0, math.inf, -math.inf, None, None]


def graph_of(attempt: Attempt, rank: int, effective: Any, reason: str = "", requested: Any = True) -> str:
    return event(attempt, "effective", rank=rank, setting="graph", requested=requested, effective=effective, reason=reason)


@pytest.mark.parametrize(
    ("by_rank", "expected"),
    [
        ({0: (True, ""), 1: (True, ""), 2: ("true", "")}, (True, True, "")),
        ({0: (True, ""), 1: (False, "no memory"), 2: (True, "")}, (True, "mixed: True on 2 of 3 ranks", "rank 1 has False: no memory")),
        ({0: (False, "as requested"), 1: (True, ""), 2: (True, "")}, (True, "mixed: True on 2 of 3 ranks", "rank 0 has False")),
        ({1: (False, "fell back")}, (True, False, "fell back")),
        ({0: ("cuda:0", "A100"), 1: ("cuda:1", "A100")}, (True, "cuda:0", "A100")),
        ({0: ("cuda:0", ""), 1: ("cpu", "no GPU"), 2: ("cuda:1", "")}, (True, "mixed: cuda on 2 of 3 ranks", "rank 1 has cpu: no GPU")),
    ],
    ids=["agreed", "a fallback on one rank", "rank 0 fell back", "silent but one", "a device for each rank", "one without a GPU"],
)
def test_effective_settings_are_those_of_all_ranks(tmp_path: Path, by_rank: dict[int, tuple[Any, str]], expected: Any) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=3))
    for rank in range(3):
        lines = [graph_of(attempt, rank, *by_rank[rank])] if rank in by_rank else []
        write_events(attempt, rank, "".join(f"{line}\n" for line in (*lines, event(attempt, rank=rank, step=0))))
    assert read_tables(attempt).effective == factory.effective({"graph": expected})


def test_a_fallback_in_the_middle_of_a_long_file_is_read_and_nothing_after_it(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    steps = [event(attempt, rank=1, step=step) for step in range(3000)]
    write_events(attempt, 0, f"{graph_of(attempt, 0, True)}\n{event(attempt, step=0)}\n")
    late = graph_of(attempt, 1, False, "late")
    text = "\n".join([graph_of(attempt, 1, True), *steps[:1500], late, *steps[1500:], ""])
    assert len(text) > 3 * SEARCH_BLOCK_BYTES, "several blocks"
    write_events(attempt, 1, text)
    assert read_tables(attempt).effective == factory.effective({"graph": (True, "mixed: True on 1 of 2 ranks", "rank 1 has False: late")})
    path = AttemptPaths(Path(attempt.folder)).events(1)
    # What comes after the last of two is not looked at, however it reads.
    path.write_text(text + graph_of(attempt, 1, "never read") + "\n")
    assert [one["effective"] for one in events_of_kind("effective", path, attempt, 2)] == [True, False]


def test_a_rank_that_the_run_does_not_have_reports_nothing(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=1))
    write_events(attempt, 0, f"{event(attempt, 'start', world_size=1)}\n{graph_of(attempt, 0, True)}\n{event(attempt, step=0)}\n")
    write_events(attempt, 5, f"{graph_of(attempt, 5, False)}\n{event(attempt, rank=5, step=0)}\n")
    assert read_tables(attempt).effective == factory.effective({"graph": (True, True, "")})


def test_effective_settings_without_any_step_are_those_of_all_ranks_too(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    for rank, effective in enumerate((True, False)):
        write_events(attempt, rank, f"{graph_of(attempt, rank, effective)}\n")
    assert read_steps(attempt).effective == factory.effective({"graph": (True, "mixed: True on 1 of 2 ranks", "rank 1 has False")})


def test_effective_settings_have_what_was_requested_and_the_reason(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    effective = event(attempt, "effective", setting="precision", requested="auto", effective="bf16", reason="cc 9.0")
    flag = event(attempt, "effective", setting="tf32", requested=True, effective=False, reason="")
    write_events(attempt, 0, f"{effective}\n{flag}\n{event(attempt, step=0)}\n")
    tables = read_tables(attempt)
    assert tables.effective == factory.effective({"precision": ("auto", "bf16", "cc 9.0"), "tf32": (True, False, "")})


def test_what_effective_settings_may_follow_is_read_with_them(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    values = {"requested": True, "effective": False, "reason": ""}
    declared = event(attempt, "effective", setting="graph", follows="attn_impl, precision", **values)
    odd = event(attempt, "effective", setting="tf32", follows=["a"], **values)
    write_events(attempt, 0, f"{declared}\n{odd}\n{event(attempt, step=0)}\n")
    tables = read_tables(attempt)
    assert {name: one.follows for name, one in tables.effective.items()} == {"graph": ("attn_impl", "precision"), "tf32": ()}


def test_effective_settings_of_another_attempt_are_skipped(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    own = event(attempt, "effective", setting="precision", requested="auto", effective="bf16", reason="")
    other = own.replace('"attempt": 1', '"attempt": 7').replace("bf16", "fp8")
    nested = own.replace('"bf16"', '{"a": [1]}')
    write_events(attempt, 0, f"{own}\n{other}\n{nested}\n{event(attempt, step=0)}\n")
    tables = read_tables(attempt)
    assert tables.effective == factory.effective({"precision": ("auto", "bf16", "")})


def test_the_word_effective_elsewhere_is_no_setting(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    pause = event(attempt, "pause", step=0, name="effective", pause_ms=3.0)
    write_events(attempt, 0, f"{event(attempt, step=0)}\n{pause}\n")
    tables = read_tables(attempt)
    assert tables.effective == {}
    assert tables.pauses.rows() == [(0, 0, "effective", 3.0)]


def test_a_step_without_a_number_and_a_line_without_a_kind_are_skipped(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    unkind = event(attempt, step=5, world_size=64).replace('"kind": "step"', '"kind": null')
    write_events(attempt, 0, f"{event(attempt, step=None, iter_ms=3.0)}\n{unkind}\n{event(attempt, step=1, iter_ms=4.0)}\n")
    tables = read_tables(attempt)
    assert tables.steps.select("rank", "step", "span", "iter_ms").rows() == [(0, 1, 1, 4.0)]
    assert tables.world_size == attempt.spec.place.ranks
    assert tables.pauses.is_empty()


def test_events_without_a_step_give_no_tables(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    assert read_event_steps(attempt)[0] is None
    write_events(attempt, 0, event(attempt, "start", world_size=1) + "\n")
    assert read_event_steps(attempt)[0] is None


def test_only_the_beginning_of_a_huge_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.collect.events.LARGEST_FILE_BYTES", 2000)
    monkeypatch.setattr("seatrial.collect.events.BLOCK_BYTES", 500)
    attempt = write_attempt(tmp_path)
    write_events(attempt, 0, "".join(event(attempt, step=step, iter_ms=1.0) + "\n" for step in range(100)))
    tables = read_tables(attempt)
    assert counts(tables).keys() == {"large_events"}
    found = tables.steps["step"].to_list()
    assert found == list(range(len(found))) and 10 < len(found) < 30


def test_blocks_cut_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in blocks of every size, the tables are those of the whole file."""
    attempt = write_attempt(tmp_path)
    lines = [event(attempt, step=step, iter_ms=1.0) for step in range(20)]
    write_events(attempt, 0, "\n".join([*lines[:7], "rubbish", *lines[7:]]) + "\n")
    for size in (1, 7, 100, 131, 1000):
        monkeypatch.setattr("seatrial.collect.events.BLOCK_BYTES", size)
        tables = read_tables(attempt)
        assert tables.steps["step"].to_list() == list(range(20)), size
        assert counts(tables) == {"foreign_lines": 1}


def test_a_ranks_file_counts_for_that_rank_only(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    for rank in range(2):
        own = [event(attempt, rank=rank, step=step, iter_ms=1.0 + rank) for step in range(5)]
        stray = [event(attempt, rank=1 - rank, step=step, iter_ms=900.0) for step in range(5, 8)]
        write_events(attempt, rank, "\n".join([*own, *stray]) + "\n")
    tables = read_tables(attempt)
    assert counts(tables) == {"foreign_lines": 6}
    assert "events_rank0.jsonl and events_rank1.jsonl" in tables.cautions[0].text
    assert tables.steps["iter_ms"].to_list() == [1.0] * 5 + [2.0] * 5


def test_an_unreadable_file_is_named_and_other_ranks_are_read(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=3))
    write_events(attempt, 1, event(attempt, rank=1, step=0, iter_ms=1.0) + "\n")
    (Path(attempt.folder) / "events_rank0.jsonl").mkdir()
    (Path(attempt.folder) / "events_rank2.jsonl").touch()
    tables = read_tables(attempt)
    assert tables.steps["rank"].to_list() == [1]
    assert [caution.text.partition(" ")[0] for caution in tables.cautions] == ["events_rank0.jsonl", "events_rank2.jsonl"]


NONE = pl.Series(dtype=pl.Int64)


def table(rows: list[dict[str, float | None]]) -> pl.DataFrame:
    """Steps of 10 ms, one after another, with changes."""
    full = [
        {"rank": 0, "step": at, "span": 1, "t": 1e9 + at / 100, "m": 50 + at / 100, "iter_ms": 10.0, "samples": 8.0, **row}
        for at, row in enumerate(rows)
    ]
    return pl.DataFrame(full, schema=STEP_SCHEMA)


def check(rows: list[dict[str, float | None]], world_size: int = 1) -> CheckedSteps:
    return check_steps(table(rows), world_size, 60_000.0, NONE)


def test_valid_steps_are_unchanged() -> None:
    found = check([{}] * 5)
    assert found == CheckedSteps(steps=found.steps) and found.steps.equals(table([{}] * 5))


def test_a_step_that_contradicts_the_clock_is_dropped() -> None:
    found = check([{}, {}, {"step": 900}, {}, {}])
    assert found.steps["step"].to_list() == [0, 1, 3, 4] and found.misplaced == {0: 1}


def test_one_clock_that_is_far_ahead_costs_only_its_own_step() -> None:
    found = check([{}, {}, {"m": 1e9}, {}, {}])
    assert found.steps["step"].to_list() == [0, 1, 3, 4] and found.misplaced == {0: 1}


def test_a_time_longer_than_on_the_clock_is_cleared() -> None:
    found = check([{}, {}, {"iter_ms": 5000.0}, {}])
    assert found.steps["iter_ms"].to_list() == [10.0, 10.0, None, 10.0] and found.bad_times == {0: 1}


def test_a_pause_between_two_steps_is_no_contradiction() -> None:
    found = check([{}, {}, {"m": 80.0}, {"m": 80.01}])
    assert found.steps["iter_ms"].to_list() == [10.0] * 4 and found == CheckedSteps(steps=found.steps)


def test_a_clock_that_leaves_the_run_is_cleared_from_there_on() -> None:
    rows = [{}, {}, {"m": 9e6}, {"m": 9e6 + 1}, {"rank": 1, "step": 0, "m": 7.0}, {"rank": 1, "step": 1, "m": 7.1}]
    found = check(rows, world_size=2)
    assert found.steps["m"].to_list() == [50.0, 50.01, None, None, 7.0, 7.1]
    assert found.steps["iter_ms"].null_count() == 0 and found.bad_times == {0: 2}


def test_a_time_longer_than_the_run_is_cleared_and_its_clock_kept() -> None:
    found = check([{}, {}, {"iter_ms": 1e9}, {}])
    assert found.steps["iter_ms"].to_list() == [10.0, 10.0, None, 10.0]
    assert found.steps["m"].null_count() == 0 and found.bad_times == {0: 1}


def test_values_out_of_range_are_cleared() -> None:
    found = check([{}, {"samples": -1.0, "fwd_ms": 1e9}, {"tokens": math.inf}, {"bwd_ms": 3.0}])
    assert found.steps["samples"].to_list() == [8.0, None, 8.0, 8.0]
    assert found.steps["fwd_ms"].null_count() == 4 and found.steps["tokens"].null_count() == 4
    assert found.steps["bwd_ms"].to_list()[3] == 3.0 and found.bad_values == {0: 3}


def test_ranks_beyond_the_world_size_are_dropped() -> None:
    found = check([{}, {"rank": 7}, {"rank": -1}, {}], world_size=2)
    assert found.steps["rank"].unique().to_list() == [0] and found.foreign_ranks == {7: 1, -1: 1}


def test_clocks_of_two_ranks_are_not_compared() -> None:
    found = check([{}, {}, {"rank": 1, "step": 0, "m": 3.0}, {"rank": 1, "step": 1, "m": 3.01}], world_size=2)
    assert len(found.steps) == 4 and not found.misplaced and not found.bad_times


SOUND = CheckedSteps(steps=pl.DataFrame())


def cautions_of(*skipped: SkippedLines, checked: CheckedSteps = SOUND, sizes: tuple[int, ...] = (2, 2)) -> list[Caution]:
    return list(event_cautions(skipped, checked, sizes, 2))


@pytest.mark.parametrize(
    ("skipped", "kind", "numbers"),
    [
        ({"problem": "is empty"}, "unreadable_file", {}),
        ({"left_out_bytes": 5}, "large_events", {"left_out_bytes": 5}),
        ({"is_truncated": True}, "torn_line", {"files": 1}),
        ({"foreign": 3}, "foreign_lines", {"lines": 3}),
    ],
)
def test_cautions_about_a_file(skipped: dict[str, object], kind: str, numbers: dict[str, int]) -> None:
    (caution,) = cautions_of(SkippedLines(file="events_rank0.jsonl", **skipped))  # type: ignore[arg-type]
    assert (caution.kind, caution.numbers) == (kind, numbers) and "events_rank0.jsonl" in caution.text


@pytest.mark.parametrize(
    ("counted", "kind", "number"),
    [
        ("foreign_ranks", "other_ranks", "steps"),
        ("duplicates", "duplicate_steps", "steps"),
        ("unordered", "lines_out_of_order", "steps"),
        ("misplaced", "steps_out_of_place", "steps"),
        ("bad_times", "bad_times", "steps"),
        ("bad_values", "bad_values", "values"),
    ],
)
def test_cautions_about_steps(counted: str, kind: str, number: str) -> None:
    (caution,) = cautions_of(checked=CheckedSteps(steps=pl.DataFrame(), **{counted: {0: 2, 3: 1}}))
    assert (caution.kind, caution.numbers) == (kind, {number: 3})
    assert "In events_rank0.jsonl and events_rank3.jsonl 3 " in caution.text


def test_different_world_sizes_give_a_caution() -> None:
    (caution,) = cautions_of(sizes=(4, 2, 2))
    assert caution.kind == "other_world_size" and caution.numbers == {"taken": 2} and "(2, 4)" in caution.text


def test_files_are_named_up_to_a_number() -> None:
    assert name_files(["a"]) == "a" and name_files(["a", "b"]) == "a and b"
    names = [str(number) for number in range(NAMED_FILES)]
    assert name_files(names) == "0, 1 and 2" and name_files([*names, "3"]) == "0 and 3 other files"
