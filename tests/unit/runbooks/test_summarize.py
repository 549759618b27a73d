"""The summariser under its own name, on our campaigns and on original folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.campaign.results import remake
from seatrial.paths import CampaignPaths
from seatrial.tables import read_table
from seatrial_runbooks.stage1.summarize import main
from tests.original_campaign import OriginalAttempt, ab_run, sweep_run, write_original_campaign
from tests.unit.campaign.made_campaign import write_campaign

SCRIPT = Path(__file__).parents[3] / "runbooks" / "stage1" / "scripts" / "summarize_stage1_bench.py"


def words(root: Path, *more: str) -> list[str]:
    return ["--manifest", str(root / "run_manifest.tsv"), "--output-root", str(root), *more]


def test_an_original_folder_with_a_tail_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_original_campaign(tmp_path, sweep_run(attempts=(OriginalAttempt(iter_p50_growth_ms=2.0),)))
    own = (tmp_path / "run_manifest.tsv").read_bytes()
    assert main(words(tmp_path, "--tail-points", "3")) == 0
    (row,) = read_table(tmp_path / "seatrial" / "per_run_metrics.csv")
    # 408, 410 and 412.
    assert (row["tail_points_used"], row["tail_mean_iter_p50_ms"], row["tail_std_iter_p50_ms"]) == ("3", "410", "2")
    out = capsys.readouterr().out
    assert "per_run_metrics.csv" in out and str(tmp_path / "seatrial") in out and "Throughput of the only group: " in out
    assert (tmp_path / "run_manifest.tsv").read_bytes() == own
    # The next one takes what the summary of the driver says again: twenty.
    assert main(words(tmp_path)) == 0
    assert read_table(tmp_path / "seatrial" / "per_run_metrics.csv")[0]["tail_points_used"] == "7"


def test_the_baseline_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, ab_run("old_like"), ab_run("tuned"))
    assert main(words(tmp_path, "--baseline-group", "tuned")) == 0
    rows = {row["group"]: row["speedup_vs_baseline"] for row in read_table(tmp_path / "seatrial" / "group_summary.csv")}
    assert rows == {"old_like": "0.833333", "tuned": "1.000000"}


def test_a_campaign_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write_campaign(tmp_path / "out")
    remake(paths.folder)
    assert main(words(paths.folder, "--tail-points", "2", "--baseline-group", "mb8")) == 0
    rows = read_table(paths.per_run_metrics)
    assert {row["tail_points_used"] for row in rows} == {"2"} and "Made from" not in capsys.readouterr().out
    groups = {row["group"]: row["speedup_vs_baseline"] for row in read_table(paths.group_summary)}
    assert groups["mb8"] == "1.000000"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["--manifest", "elsewhere/run_manifest.tsv"], "is not the manifest of --output-root"),
        (["--manifest", "{root}/other.tsv"], "is not the manifest of --output-root"),
        (["--output-root", "{root}/none"], "--output-root {root}/none: there is no such folder"),
        (["--tail-points", "0"], "--tail-points"),
        (["--tail-points", "many"], "--tail-points"),
        (["--tail-point", "3"], "did you mean '--tail-points'"),
        (["--baseline-group", "tunned"], "did you mean 'tuned'"),
    ],
)
def test_wrong_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], change: list[str], told: str) -> None:
    write_original_campaign(tmp_path, ab_run("old_like"), ab_run("tuned"))
    assert main([*words(tmp_path), *(word.format(root=tmp_path) for word in change)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("summarize_stage1_bench.py: ") and told.format(root=tmp_path) in said


def test_a_missing_manifest_and_missing_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_original_campaign(tmp_path, sweep_run(), manifest=False)
    assert main(words(tmp_path)) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert main([]) == 1
    assert "--manifest" in capsys.readouterr().err


def test_a_sweep_has_no_old_like_and_that_is_no_error(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run())
    assert main(words(tmp_path, "--baseline-group", "old_like")) == 0
    assert read_table(tmp_path / "seatrial" / "group_summary.csv")[0]["speedup_vs_baseline"] == ""


def test_the_script_runs_by_hand(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run())
    done = subprocess.run([sys.executable, str(SCRIPT), *words(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "summary.md in" in done.stdout, done.stderr
    assert CampaignPaths(tmp_path / "seatrial").summary_md.is_file()
