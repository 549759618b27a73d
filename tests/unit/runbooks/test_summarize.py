"""Tables recomputed with another tail or baseline, and their agreement with the report."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.core.paths import CampaignPaths
from seatrial.core.tables import read_table
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.records.verdict import Verdict
from seatrial.results.folders import find_campaign
from seatrial.results.recompute import gather_results, recompute
from seatrial_runbooks.stage1.leak_check import diagnose
from seatrial_runbooks.stage1.phaseb_check import GroupCheck, Thresholds, check
from seatrial_runbooks.stage1.summarize import main
from tests.facts import states
from tests.original_campaign import OriginalAttempt, ab_run, sweep_run, write_original_campaign
from tests.unit.results.campaigns import write_campaign

SCRIPT = Path(__file__).parents[3] / "runbooks" / "stage1" / "scripts" / "summarize_stage1_bench.py"


def argv(root: Path, *more: str) -> list[str]:
    return ["--manifest", str(root / "run_manifest.tsv"), "--output-root", str(root), *more]


def test_an_original_folder_with_a_tail_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_original_campaign(tmp_path, sweep_run(attempts=(OriginalAttempt(iter_p50_growth_ms=2.0),)))
    own = (tmp_path / "run_manifest.tsv").read_bytes()
    assert main(argv(tmp_path, "--tail-points", "2")) == 0
    (row,) = read_table(tmp_path / "seatrial" / "per_run_metrics.csv")
    # 410 and 412.
    assert (row["tail_points_used"], row["tail_mean_iter_p50_ms"], row["tail_std_iter_p50_ms"]) == ("2", "411", "1.414214")
    out = capsys.readouterr().out
    assert "per_run_metrics.csv" in out and str(tmp_path / "seatrial") in out and "Throughput of the only group: " in out
    assert (tmp_path / "run_manifest.tsv").read_bytes() == own
    # The next one takes what the summary of the driver says again, twenty: half of the seven.
    assert main(argv(tmp_path)) == 0
    assert read_table(tmp_path / "seatrial" / "per_run_metrics.csv")[0]["tail_points_used"] == "3"


def test_the_baseline_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, ab_run("old_like"), ab_run("tuned"))
    assert main(argv(tmp_path, "--baseline-group", "tuned")) == 0
    rows = {row["group"]: row["speedup_vs_baseline"] for row in read_table(tmp_path / "seatrial" / "group_summary.csv")}
    assert rows == {"old_like": "0.833333", "tuned": "1.000000"}


def test_a_campaign_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write_campaign(tmp_path / "out", steps=240)
    recompute(paths.folder)
    assert main(argv(paths.folder, "--tail-points", "2", "--baseline-group", "mb8")) == 0
    rows = read_table(paths.per_run_metrics)
    assert {row["tail_points_used"] for row in rows} == {"2"} and "Made from" not in capsys.readouterr().out
    groups = {row["group"]: row["speedup_vs_baseline"] for row in read_table(paths.group_summary)}
    assert groups["mb8"] == "1.000000"


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_wrong_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], change: list[str], message: str) -> None:
    write_original_campaign(tmp_path, ab_run("old_like"), ab_run("tuned"))
    assert main([*argv(tmp_path), *(word.format(root=tmp_path) for word in change)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("summarize_stage1_bench.py: ") and message.format(root=tmp_path) in error


def test_a_missing_manifest_and_missing_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_original_campaign(tmp_path, sweep_run(), manifest=False)
    assert main(argv(tmp_path)) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert main([]) == 1
    assert "--manifest" in capsys.readouterr().err


def test_a_sweep_has_no_old_like_and_that_is_no_error(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run())
    assert main(argv(tmp_path, "--baseline-group", "old_like")) == 0
    assert read_table(tmp_path / "seatrial" / "group_summary.csv")[0]["speedup_vs_baseline"] == ""


def test_the_script_runs_by_hand(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run())
    done = subprocess.run([sys.executable, str(SCRIPT), *argv(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "summary.md in" in done.stdout, done.stderr
    assert CampaignPaths(tmp_path / "seatrial").summary_md.is_file()


GROUP = "sweep_z0_mb128_nw6_pf4"
LONG = OriginalAttempt(max_steps=1000, log_every=50)
SLOW = OriginalAttempt(status="failed", exit_code=1, max_steps=1000, log_every=50, last_step=400, iter_p50_ms=9000.0)


def thrice(folder: Path, attempt: OriginalAttempt = LONG) -> Path:
    """Three repeats of one group; gives its manifest."""
    return write_original_campaign(folder, *(sweep_run(repeat=at, attempts=(attempt,)) for at in (1, 2, 3))) / "run_manifest.tsv"


def reported(folder: Path) -> CampaignResults:
    return gather_results(CampaignPaths(find_campaign(folder)))


def runs(folder: Path) -> dict[str, MeasuredRun]:
    return {run.attempt.spec.run: run for run in reported(folder).runs if run.attempt.current}


def num_ok(folder: Path) -> int:
    return sum(run.outcome is Outcome.OK for run in runs(folder).values())


def checked(folder: Path) -> GroupCheck:
    return check(folder, Thresholds(), groups=[GROUP]).groups[0]


def leaks(folder: Path) -> tuple[list[dict[str, str]], str]:
    """Rows of the diagnosis, and all its notes."""
    found = diagnose([folder])
    return [dict(row) for row in found.rows], "\n".join(found.notes)


def test_success_beside_an_exit_code_that_says_otherwise_is_none(tmp_path: Path) -> None:
    thrice(tmp_path, OriginalAttempt(max_steps=1000, exit_code=1))
    found = check(tmp_path, Thresholds(), groups=[GROUP])
    assert (num_ok(tmp_path), found.groups[0].num_repeats, found.groups[0].num_failed) == (0, 0, 3) and found.verdict is Verdict.FAIL
    (note,) = found.notes
    assert states(note, GROUP, "3 rows", "failed", "success", "exit code")
    assert [row["status"] for row in leaks(tmp_path)[0]] == ["failed"] * 3


@pytest.mark.parametrize(
    ("change", "notes"),
    [
        (lambda lines: [*lines[:3], lines[1][:40] + lines[3]], ("1 truncated row was skipped",)),
        (lambda lines: lines[1:], ()),
        (lambda lines: [line.replace("\tsuccess\t", "\tSUCCESS\t") for line in lines], ()),
    ],
    ids=["a row glued to a torn one", "no header", "status in capitals"],
)
def test_a_damaged_manifest_is_read_alike(tmp_path: Path, change: Callable[[list[str]], list[str]], notes: tuple[str, ...]) -> None:
    manifest = thrice(tmp_path)
    manifest.write_text("".join(f"{line}\n" for line in change(manifest.read_text().splitlines())))
    report = check(tmp_path, Thresholds(), groups=[GROUP])
    assert (num_ok(tmp_path), report.groups[0].num_repeats, report.groups[0].reasons, report.notes) == (3, 3, (), notes)
    assert [row["status"] for row in leaks(tmp_path)[0]] == ["success"] * 3


def test_a_manifest_that_was_set_aside_is_read_first(tmp_path: Path) -> None:
    manifest = thrice(tmp_path)
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.with_name("run_manifest.tsv.bak_20260217_120000").write_text("".join(lines[:3]))
    manifest.write_text("".join([lines[0], lines[3]]))
    assert (num_ok(tmp_path), checked(tmp_path).num_repeats, len(leaks(tmp_path)[0])) == (3, 3, 3)
    notes = check(tmp_path, Thresholds(), groups=[GROUP]).notes
    (note,) = notes
    assert states(note, "run_manifest.tsv.bak_20260217_120000", "first")
    assert check(tmp_path, Thresholds(), groups=[GROUP], manifest=manifest).groups[0].num_repeats == 1, "the one that was named alone"


@pytest.mark.parametrize("last_step", [0, 50, 400])
def test_only_the_last_of_appended_attempts_is_timed(tmp_path: Path, last_step: int) -> None:
    """Also where it began with the very step that the one before it ended at."""
    failed = OriginalAttempt(status="failed", exit_code=1, max_steps=1000, log_every=50, last_step=last_step, iter_p50_ms=9000.0)
    write_original_campaign(tmp_path, sweep_run(attempts=(failed, LONG), launcher_log=False))
    measure = runs(tmp_path)[f"{GROUP}_r1"].measure
    assert measure is not None and [point.values["iter_ms_p50"] for point in measure.timing_points] == [400.0] * 21
    (row,), notes = leaks(tmp_path)
    assert (row["tail_iter_ms"], row["iter_tail_vs_head_pct"]) == ("400", "0") and "17 timing points after the warm-up" in notes


@pytest.mark.parametrize("has_table", [False, True])
def test_an_attempt_that_died_before_its_first_step_has_no_timing_of_another(tmp_path: Path, has_table: bool) -> None:
    died = OriginalAttempt(status="failed", exit_code=1, max_steps=1000, last_step=-1)
    write_original_campaign(tmp_path, sweep_run(attempts=(SLOW, died)))
    if has_table:
        points = [f"sweep,{GROUP},1,{at},{at * 50},9000,x\n" for at in range(9)]
        (tmp_path / "timing_points.csv").write_text("".join(["mode,group,repeat,index,step,iter_ms_p50,train_log\n", *points]))
    current = runs(tmp_path)[f"{GROUP}_r1"]
    assert current.attempt.number == 2 and (current.measure is None or not current.measure.timing_points)
    (row,), notes = leaks(tmp_path)
    assert (row["tail_iter_ms"], row["iter_tail_vs_head_pct"], row["status"]) == ("", "", "failed")
    assert "the current attempt ended before its first step" in notes


def test_an_attempt_that_was_cut_short_does_not_hide_an_older_one(tmp_path: Path) -> None:
    cut_short = OriginalAttempt(max_steps=1000, log_every=50, last_step=200, iter_p50_ms=9000.0, has_row=False)
    write_original_campaign(tmp_path, sweep_run(attempts=(LONG, cut_short)))
    current = runs(tmp_path)[f"{GROUP}_r1"]
    assert current.attempt.number == 1 and current.outcome is Outcome.OK
    (row,), notes = leaks(tmp_path)
    assert (row["status"], row["tail_iter_ms"]) == ("success", "400") and "its newest attempt has no row" in notes


def host_peaks_mib(folder: Path) -> list[object]:
    return [run.measure.telemetry["host_rss_peak_mib"] for run in runs(folder).values() if run.measure]


def test_a_run_is_timed_by_the_driver_s_own_start(tmp_path: Path) -> None:
    """There is no train.log and no file of GPU samples: META and row tell when it ran."""
    left = {"attempts": (LONG,), "host_telemetry": "none", "gpu_telemetry": "none", "train_log": False}
    grown = sweep_run(0, 128, rss_growth_mib_per_min=120, **left)
    write_original_campaign(tmp_path, grown, sweep_run(0, 160, **left), root_host_telemetry=True)
    accounts = [run.attempt.telemetry for run in runs(tmp_path).values()]
    rows, notes = leaks(tmp_path)
    # 535 s each, a sample every 5 s, at both ends too.
    assert [account.host.rows for account in accounts if account and account.host] == [108, 108]
    assert [row["host_rss_tail_slope_mib_min"] for row in rows] == ["120", "0"] and notes.count("by launcher.log") == 2


def test_a_clock_that_cannot_be_gives_no_zone(tmp_path: Path) -> None:
    """Stamps of the root's samples are five days from its seconds since the epoch, which no zone is."""
    left = {"attempts": (LONG,), "host_telemetry": "none", "gpu_telemetry": "none", "launcher_log": False}
    write_original_campaign(tmp_path, sweep_run(0, 128, **left), sweep_run(0, 160, **left), root_host_telemetry=True)
    sampled = tmp_path / "host_telemetry.csv"
    sampled.write_text(sampled.read_text().replace("2026-02-18T", "2026-02-23T"))
    rows, notes = leaks(tmp_path)
    assert [row["host_rss_tail_slope_mib_min"] for row in rows] == ["", ""] and notes.count("has the time of this one") == 2
    assert host_peaks_mib(tmp_path) == [None, None]
    assert "original_zone" in {caution.kind for caution in reported(tmp_path).cautions}


def test_the_stalled_runs_of_the_seeds_are_time_outs(tmp_path: Path) -> None:
    """Exit code 125, step 1850 after 1800 s; of one only the row is left."""
    stood = OriginalAttempt(status="failed", exit_code=125, max_steps=5000, last_step=1850, duration_s=1800)
    write_original_campaign(tmp_path, sweep_run(repeat=1, attempts=(stood,)), sweep_run(repeat=2, attempts=(stood,)))
    shutil.rmtree(tmp_path / f"{GROUP}_r2")
    ends = [run.attempt.outcome for run in runs(tmp_path).values()]
    assert [(end.outcome.value, end.cause.value) for end in ends if end] == [("timeout", "run_limit")] * 2
    assert ends[1] is not None and ends[1].detail.startswith("it was ended at step 1850 of 5000 (exit code 125)")


def test_a_report_of_an_original_folder_names_no_command_of_ours(tmp_path: Path) -> None:
    failed = OriginalAttempt(status="failed", exit_code=1, last_step=100, launcher_lines=("ValueError: no such key",))
    write_original_campaign(tmp_path, sweep_run(attempts=(failed,)), sweep_run(0, 160, attempts=(OriginalAttempt(has_row=False),)))
    results = reported(tmp_path)
    actions = [run.attempt.outcome.action for run in results.runs if run.attempt.outcome]
    assert results.pending and actions and not any("command.sh" in action for action in actions)
