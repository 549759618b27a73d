"""Any table of a campaign as CSV and Parquet: typed, whole, and one run at a time."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import polars as pl
import pytest

from seatrial.collect import steps
from seatrial.collect.attempts import read_campaign
from seatrial.core.errors import CampaignError, UsageError
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt, StepTables
from seatrial.records.columns import MANIFEST_OURS, MANIFEST_STAGE1
from seatrial.results.export import TABLES, Exporter, read_gpu_telemetry, table_names
from tests.unit.results.campaigns import RANKS, RUNS, STEPS, write_campaign


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignPaths:
    return write_campaign(tmp_path_factory.mktemp("export") / "out")


def written(campaign: CampaignPaths, name: str, folder: Path, form: str = "parquet") -> Path:
    exporter = Exporter(campaign)
    exporter.table(name).write(folder / f"{name}.{form}", form)
    assert exporter.left_out == []
    return folder / f"{name}.{form}"


@pytest.mark.parametrize("name", TABLES)
def test_both_formats_hold_the_same_cells(campaign: CampaignPaths, name: str, tmp_path: Path) -> None:
    frame = pl.read_parquet(written(campaign, name, tmp_path))
    rows = list(csv.reader(io.StringIO(written(campaign, name, tmp_path, "csv").read_text())))
    assert rows[0] == frame.columns
    assert len(rows) - 1 == len(frame)
    assert [[cell != "" for cell in row] for row in rows[1:]] == [[cell is not None for cell in row] for row in frame.rows()]
    assert len(frame) > 0


def test_every_step_of_every_rank_of_every_current_run(campaign: CampaignPaths, tmp_path: Path) -> None:
    steps = pl.read_parquet(written(campaign, "steps", tmp_path))
    assert len(steps) == RUNS * RANKS * STEPS
    assert steps.columns[:6] == ["run", "attempt", "group", "rank", "step", "span"]
    assert steps.schema["step"] == pl.Int64 and steps.schema["iter_ms"] == pl.Float64 and steps.schema["run"] == pl.String
    # The failed first attempt of mb8_r1 is old and has no place here.
    assert steps.filter(pl.col("run") == "mb8_r1")["attempt"].unique().to_list() == [2]
    assert math.isnan(steps.filter((pl.col("step") == 5) & (pl.col("rank") == 0))["loss"][0])
    assert steps["tokens"].null_count() == len(steps)


def test_what_is_a_number_or_a_flag_is_typed_as_one(campaign: CampaignPaths, tmp_path: Path) -> None:
    manifest = pl.read_parquet(written(campaign, "manifest", tmp_path))
    assert manifest.columns == [*MANIFEST_STAGE1, *MANIFEST_OURS, "axis_loader"]
    kinds = {
        name: manifest.schema[name] for name in ("current", "duration_sec", "micro_batch", "run", "wall_samples_per_sec", "tf32_enabled")
    }
    assert kinds == {
        "current": pl.Boolean, "duration_sec": pl.Float64, "micro_batch": pl.Int64, "run": pl.String, "wall_samples_per_sec": pl.Float64,
        "tf32_enabled": pl.String,
    }  # fmt: skip
    assert len(manifest) == RUNS + 1
    assert manifest.filter(~pl.col("current"))["outcome"].to_list() == ["failed"]


def test_telemetry_and_heartbeats_say_whose_they_are(campaign: CampaignPaths, tmp_path: Path) -> None:
    gpu = pl.read_parquet(written(campaign, "gpu_telemetry", tmp_path))
    assert gpu.columns[:3] == ["run", "attempt", "group"] and len(gpu) == RUNS * 2
    assert gpu["power_w"].unique().to_list() == [300.5] and gpu["energy_j"].null_count() == len(gpu)
    beats = pl.read_parquet(written(campaign, "heartbeats", tmp_path))
    # The torn last line of each file is no heartbeat.
    assert len(beats) == RUNS * RANKS and beats["step"].unique().to_list() == [3] and beats.columns.count("attempt") == 1


@pytest.mark.parametrize("text", ["", "epoch_sec\n", "epoch_sec,power_w\n1.5,n/a\n2.5\n3.5,7,8,9\n"])
def test_odd_telemetry_files_give_what_can_be_read(tmp_path: Path, text: str) -> None:
    paths = write_campaign(tmp_path / "out")
    attempt = read_campaign(paths)[0]
    AttemptPaths(Path(attempt.folder)).gpu_telemetry.write_text(text)
    frame = read_gpu_telemetry(attempt)
    assert frame["epoch_sec"].drop_nulls().to_list() == ([1.5, 2.5, 3.5] if "power_w" in text else [])
    assert frame["power_w"].drop_nulls().to_list() == ([7.0] if "power_w" in text else [])


def test_a_run_that_cannot_be_read_is_named_and_the_rest_is_exported(
    campaign: CampaignPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = steps.read_steps

    def broken(attempt: Attempt) -> StepTables:
        if attempt.spec.run == "mb16_r1":
            raise OSError(5, "Input/output error")
        return read(attempt)

    monkeypatch.setattr(steps, "read_steps", broken)
    exporter = Exporter(campaign)
    assert exporter.table("steps").write(tmp_path / "steps.parquet", "parquet") == (RUNS - 1) * RANKS * STEPS
    assert len(exporter.left_out) == 1 and "mb16_r1, attempt 1: OSError" in exporter.left_out[0]


def test_a_write_that_fails_leaves_the_old_file(campaign: CampaignPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "steps.csv"
    target.write_text("old")

    def full(*args: object, **options: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_csv", full)
    with pytest.raises(OSError, match="No space"):
        Exporter(campaign).table("pauses").write(target, "csv")
    assert [path.name for path in tmp_path.iterdir()] == ["steps.csv"] and target.read_text() == "old"


def test_frames_come_one_run_at_a_time(campaign: CampaignPaths) -> None:
    frames = list(Exporter(campaign).table("steps").frames)
    assert [len(frame) for frame in frames] == [RANKS * STEPS] * RUNS


def test_names_of_tables() -> None:
    assert table_names(["steps", "runs", "steps"]) == ["steps", "runs"]
    assert table_names(["all"]) == list(TABLES)
    with pytest.raises(UsageError, match="no table 'step'; did you mean 'steps'"):
        table_names(["step"])


def test_a_folder_without_a_campaign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="holds no campaign"):
        Exporter(CampaignPaths(tmp_path))
