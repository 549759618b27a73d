"""A folder that somebody sent: files too large to be read, and cells that a spreadsheet would run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from seatrial.cli.main import run_command
from seatrial.core.errors import CampaignError
from seatrial.core.tables import format_cell, quote_formula, read_table, unquote_formula, write_table
from tests.facts import states
from tests.unit.results.campaigns import write_campaign

FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "'=x", "''-y", "=1", "-", "-O2")
ORDINARY = ("-1", "+0.5", "-1.5e-3", "-.5", "mb8", "'quoted'", "a=b", "", "-12%")


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def make_huge(path: Path, size_bytes: int) -> None:
    with path.open("wb") as sparse:
        sparse.truncate(size_bytes)


@pytest.mark.parametrize("name", ["outcome", "spec", "provenance"])
def test_a_huge_file_is_named_and_the_report_goes_on(tmp_path: Path, name: str) -> None:
    paths = write_campaign(tmp_path / "out", steps=5)
    make_huge(getattr(paths.run("mb8_r2").attempt(1), name), 240 << 20)
    assert run_command(["report", str(paths.folder)]) in (2, 3)
    summary = paths.summary_md.read_text()
    assert states(summary, f"{name}.json", "240 MiB", "64 MiB")


@pytest.mark.parametrize(
    "name", ["plan.json", "plans/factory.json", "run_manifest.tsv", ".campaign.json", "preflight.json", "progress.json"]
)
def test_huge_files_of_a_campaign_are_not_read_into_memory(tmp_path: Path, name: str) -> None:
    paths = write_campaign(tmp_path / "out", steps=5)
    make_huge(paths.folder / name, 1 << 40)
    for verb in (["report"], ["why"], ["watch", "--once"]):
        assert run_command([*verb, str(paths.folder)]) in (0, 1, 2, 3)


def test_a_table_too_large_to_be_read_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    # Every row would get every column.
    path.write_text("a," * 10_000 + "\n" + "1\n" * 10_000)
    with pytest.raises(CampaignError, match="above the limit of 10,000,000"):
        read_table(path)
    make_huge(path, 1 << 40)
    with pytest.raises(CampaignError, match="above the limit of 64 MiB"):
        read_table(path)


@pytest.mark.parametrize("text", [*FORMULAS, *ORDINARY])
def test_cells_come_back_as_they_were_and_formulas_are_quoted(tmp_path: Path, text: str) -> None:
    for name, delimiter in (("table.csv", ","), ("table.tsv", "\t")):
        path = tmp_path / name
        write_table(path, ["=name", "value"], [{"=name": text, "value": -1.5}], delimiter)
        assert path.read_text().startswith(f"'=name{delimiter}value\n")
        ((written, number),) = list(csv.reader(path.read_text().splitlines()[1:], delimiter=delimiter))
        assert number == "-1.5", "a number stays one"
        assert (written != text) == (text in FORMULAS) and written == quote_formula(text)
        assert read_table(path, delimiter) == [{"=name": format_cell(text), "value": "-1.5"}]
    assert unquote_formula(quote_formula(text)) == text


def test_an_export_and_the_tables_hold_no_formula(tmp_path: Path) -> None:
    formula = "=HYPERLINK(1)"
    paths = write_campaign(tmp_path / "out", steps=5)
    axes = {"axes": {"flavour": formula}}
    for attempt in (attempt for run in paths.runs() for attempt in run.attempts()):
        rewrite(attempt.spec, **axes)
        rewrite(attempt.outcome, detail=formula)
    for path in (paths.plan, *paths.plans.iterdir()):
        runs = [{**run, **axes} for run in json.loads(path.read_text())["runs"]]
        rewrite(path, runs=runs, axes={"flavour": [formula]})
    assert run_command(["report", str(paths.folder)]) != 1
    assert run_command(["export", str(paths.folder), "all", "-o", str(tmp_path / "tables")]) == 0
    tables = [*paths.folder.rglob("*.csv"), *paths.folder.glob("*.tsv"), *(tmp_path / "tables").iterdir()]
    cells = [
        cell
        for path in tables
        for row in csv.reader(path.read_text().splitlines(), delimiter="\t" if path.suffix == ".tsv" else ",")
        for cell in row
    ]
    assert f"'{formula}" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "@"))]
