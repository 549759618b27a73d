"""Tables for other programs."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from seatrial.records.measure import Cell
from seatrial.report.frames import FORMATS, csv_parts, typed_frame, write_frames


@pytest.mark.parametrize(
    ("values", "kind", "told"),
    [
        ([1, 2, None], pl.Int64, [1, 2, None]),
        ([1, 2.5], pl.Float64, [1.0, 2.5]),
        ([True, None], pl.Boolean, [True, None]),
        (["a", ""], pl.String, ["a", None]),
        ([1, "a", True], pl.String, ["1", "a", "true"]),
        ([1.0, math.nan, math.inf], pl.Float64, [1.0, None, None]),
    ],
)
def test_a_column_has_the_type_of_its_values(values: list[Cell], kind: pl.DataType, told: list[Cell]) -> None:
    frame = typed_frame([{"a": value} for value in values], ["a"])
    assert frame.schema == {"a": kind} and frame["a"].to_list() == told


@pytest.mark.parametrize(("name", "kind"), [("duration_s", pl.Float64), ("rank", pl.Float64), ("cause", pl.String)])
def test_a_column_without_a_value_has_the_type_of_its_name(name: str, kind: pl.DataType) -> None:
    assert typed_frame([{name: None}, {}], [name]).schema == {name: kind}
    assert typed_frame([], [name]).schema == {name: kind}


FRAMES = [pl.DataFrame({"a": [1, 2], "b": [1e-9, None]}), pl.DataFrame({"a": [3], "b": [2.0]})]


def test_text_has_one_header_and_no_exponents() -> None:
    text = "".join(csv_parts(iter(FRAMES), FRAMES[0].schema))
    assert text.splitlines() == ["a,b", "1,0.000000001", "2,", "3,2"]
    assert "".join(csv_parts([], FRAMES[0].schema)) == "a,b\n"


@pytest.mark.parametrize("form", FORMATS)
def test_frames_that_come_one_by_one_are_one_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"steps.{form}"
    assert write_frames(path, iter(FRAMES), FRAMES[0].schema, form) == 3
    read = pl.read_parquet(path) if form == "parquet" else pl.read_csv(path)
    assert read["a"].to_list() == [1, 2, 3] and [one.name for one in tmp_path.iterdir()] == [path.name]


def test_what_breaks_on_the_way_leaves_no_half_file(tmp_path: Path) -> None:
    def frames() -> object:
        yield FRAMES[0]
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_frames(tmp_path / "steps.csv", frames(), FRAMES[0].schema, "csv")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
