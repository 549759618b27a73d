"""Cells and table files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.core.fallback import merge_fallback
from seatrial.core.tables import format_cell, read_table, write_table, write_table_durably
from seatrial.records.outcome import Outcome


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (2.0, "2"),
        (-0.0, "0"),
        (0.1234567891, "0.123457"),
        (0.000012345678, "0.0000123457"),
        (123.4567891, "123.456789"),
        (1e20, "100000000000000000000"),
        (1e-300, "0"),
        (float("nan"), ""),
        (float("-inf"), ""),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("no \udcff UTF-8", "no \\udcff UTF-8"),
        (Outcome.OK, "ok"),
    ],
)
def test_a_value_has_one_text(value: object, text: str) -> None:
    assert format_cell(value) == text


@pytest.mark.parametrize(
    ("column", "text"),
    [(name, "1.500000") for name in ("iter_p90_over_p50", "unstable_run_ratio", "ratio_low", "stability_score", "speedup_vs_baseline")]
    + [("duration_sec", "1.5")],
)
def test_ratios_have_six_decimals(column: str, text: str) -> None:
    assert format_cell(1.5, column) == text


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_numbers_keep_their_value_and_have_no_exponent(value: float) -> None:
    text = format_cell(value)
    assert "e" not in text
    assert float(text) == pytest.approx(value, rel=1e-5, abs=1e-14)


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_what_is_written_is_read_back(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "new folder" / "table"
    rows = [{"a": 'he said "x", twice', "b": None, "left out": 1}, {"a": "back\\slash", "b": '"'}]
    write_table(path, ["a", "b", "c"], rows, delimiter)
    assert read_table(path, delimiter) == [{"a": 'he said "x", twice', "b": "", "c": ""}, {"a": "back\\slash", "b": '"', "c": ""}]


def test_a_tsv_has_no_quotes(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    write_table(path, ["a", "b"], [{"a": 'say "x"', "b": "1\t2"}], "\t")
    assert path.read_text() == 'a\tb\nsay "x"\t1 2\n'


def test_nothing_is_left_of_a_table_that_could_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old\n")
    with pytest.raises(RuntimeError):
        write_table(path, ["a"], _breaks())
    assert [child.name for child in tmp_path.iterdir()] == ["table.csv"]
    assert path.read_text() == "old\n"


def _breaks():
    yield {"a": 1}
    raise RuntimeError("the rows broke off")


class _Text(str):
    """Text of a type of its own."""


cells = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.sampled_from(Outcome), st.builds(_Text, st.just("own"))
)
of_one_type = st.sampled_from([st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)])


@pytest.mark.parametrize("column", ["step", "iter_p90_over_p50"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.one_of(st.lists(cells, min_size=1), of_one_type.flatmap(lambda one: st.lists(one, min_size=1))))
def test_a_column_has_the_texts_of_its_cells(tmp_path: Path, column: str, values: list[object]) -> None:
    write_table(tmp_path / "a.csv", ["n", column], [{"n": 1, column: value} for value in values])
    assert [row[column] for row in read_table(tmp_path / "a.csv")] == [format_cell(value, column) for value in values]


def test_a_table_longer_than_what_is_written_at_once_is_whole(tmp_path: Path) -> None:
    path, count = tmp_path / "long.csv", 10_001
    write_table(path, ("step", "word"), ({"step": step} for step in range(count)))
    assert [row["step"] for row in read_table(path)] == [str(step) for step in range(count)]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"", []),
        (b"a,b\n", []),
        (b"a,b\n1,2,3\n\n4\n", [{"a": "1", "b": "2"}, {"a": "4", "b": ""}]),
        (b"a,b\n1,\xff\n2,\x00", [{"a": "1", "b": "\ufffd"}, {"a": "2", "b": "\x00"}]),
        (b"a,b\n1," + b"x" * 200_000 + b"\n2,3\n", [{"a": "2", "b": "3"}]),
    ],
)
def test_a_damaged_table_gives_the_rows_it_still_has(tmp_path: Path, content: bytes, rows: list[dict[str, str]]) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert read_table(tmp_path / "a.csv") == rows
    assert read_table(tmp_path) == [] == read_table(tmp_path / "none")


def test_a_small_table_is_surely_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", str(tmp_path / "fallback"))
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "run" / "a.tsv"
    path.parent.write_text("a file in the folder's place")
    assert write_table_durably(path, ["a", "b"], [{"a": 1}], "\t")
    path.parent.unlink()
    assert [one.merged for one in merge_fallback(tmp_path / "out")] == [True]
    assert path.read_text() == "a\tb\n1\t\n"
