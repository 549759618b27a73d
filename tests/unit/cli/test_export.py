"""`seatrial export`: where tables go, in which format, and what is refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from seatrial.cli.export import chosen_format, chosen_targets
from seatrial.cli.main import run_command
from seatrial.core.errors import UsageError
from seatrial.core.paths import CampaignPaths
from seatrial.results.export import TABLES
from tests.unit.results.campaigns import RANKS, RUNS, STEPS, write_campaign


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> CampaignPaths:
    return write_campaign(tmp_path_factory.mktemp("export") / "out")


def test_without_a_table_they_are_listed(out: CampaignPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", str(out.folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:] if line[0] != " "] == list(TABLES)
    steps = next(line for line in lines if line.startswith("steps"))
    assert steps.split()[1:3] == [str(RUNS * RANKS * STEPS), "17"]


def test_one_table_to_stdout_is_csv(out: CampaignPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", str(out.folder), "pauses"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run,attempt,group,rank,step,name,pause_ms" and lines[1].startswith("mb16_r1,1,mb16,0,3,eval,250")
    assert len(lines) == 1 + RUNS * RANKS


def test_parquet_into_a_pipe(out: CampaignPaths, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    assert run_command(["export", str(out.folder), "pauses", "--format", "parquet"]) == 0
    (tmp_path / "piped.parquet").write_bytes(capfdbinary.readouterr().out)
    assert len(pl.read_parquet(tmp_path / "piped.parquet")) == RUNS * RANKS


def test_several_tables_into_a_folder(out: CampaignPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", str(out.folder), "runs", "steps", "-o", str(tmp_path / "new"), "--format", "parquet"]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["runs.parquet", "steps.parquet"]
    assert f"steps: {RUNS * RANKS * STEPS} rows, 17 columns" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "output", "asked", "targets"),
    [
        (["steps"], None, None, {}),
        (["steps"], "a.csv", None, {"steps": "a.csv"}),
        (["steps"], "a.parquet", None, {"steps": "a.parquet"}),
        (["steps"], "a.PARQUET", "parquet", {"steps": "a.PARQUET"}),
        (["steps"], "tables", "parquet", {"steps": "tables/steps.parquet"}),
        (["steps", "runs"], "tables.v2", None, {"steps": "tables.v2/steps.csv", "runs": "tables.v2/runs.csv"}),
    ],
)
def test_where_tables_go(names: list[str], output: str | None, asked: str | None, targets: dict[str, str]) -> None:
    path = Path(output) if output else None
    assert {name: str(target) for name, target in chosen_targets(names, path, chosen_format(asked, path)).items()} == targets


@pytest.mark.parametrize(
    ("names", "output", "asked", "says"),
    [
        (["steps", "runs"], None, None, "-o FOLDER"),
        (["steps", "runs"], "a.csv", None, "give a folder"),
        (["steps"], "a.csv", "parquet", "leave --format out"),
        (["steps"], "a.xlsx", None, ".csv or .parquet"),
        (["steps"], None, "parqet", "did you mean 'parquet'"),
        ([], "tables", None, "needs a table"),
    ],
)
def test_what_cannot_be_meant_is_refused(names: list[str], output: str | None, asked: str | None, says: str) -> None:
    path = Path(output) if output else None
    with pytest.raises(UsageError, match=says):
        chosen_targets(names, path, chosen_format(asked, path))


def test_parquet_is_not_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(UsageError, match="Parquet is binary"):
        chosen_targets(["steps"], None, "parquet")


def test_an_unknown_table_names_the_nearest(out: CampaignPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["export", str(out.folder), "timing_point"]) == 1
    assert "did you mean 'timing_points'" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_reported(out: CampaignPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run_command(["export", str(out.folder), "pauses", "-o", str(tmp_path / "file" / "a.csv")]) == 1
    assert "cannot be written" in capsys.readouterr().err
