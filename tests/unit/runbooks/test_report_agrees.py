"""One folder of the original scripts, however odd: `seatrial report` and the two small checks say the same of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.campaign.original import campaign_of
from seatrial.campaign.results import gather_results
from seatrial.collect.original.launcher_log import OVERRIDES
from seatrial.paths import CampaignPaths
from seatrial.records.original_names import SWEEP_LABELS, TRAINER_KEYS
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial_runbooks.stage1 import to_plan
from seatrial_runbooks.stage1.leak_check import diagnose
from seatrial_runbooks.stage1.leak_verdict import LeakThresholds
from seatrial_runbooks.stage1.phaseb_check import Thresholds, check
from seatrial_runbooks.stage1.phaseb_groups import GroupCheck
from seatrial_runbooks.stage1.trainer_words import timing_keys
from seatrial_runbooks.stage1.variables import read
from tests.original_campaign import OriginalAttempt, sweep_run, write_original_campaign

GROUP = "sweep_z0_mb128_nw6_pf4"
LONG = OriginalAttempt(max_steps=1000, log_every=50)
SLOW = OriginalAttempt(status="failed", exit_code=1, max_steps=1000, log_every=50, last_step=400, iter_p50_ms=9000.0)


def thrice(folder: Path, attempt: OriginalAttempt = LONG) -> Path:
    """Three repeats of one group; gives its manifest."""
    return write_original_campaign(folder, *(sweep_run(repeat=at, attempts=(attempt,)) for at in (1, 2, 3))) / "run_manifest.tsv"


def reported(folder: Path) -> CampaignResults:
    return gather_results(CampaignPaths(campaign_of(folder)))


def runs(folder: Path) -> dict[str, MeasuredRun]:
    return {run.attempt.spec.run: run for run in reported(folder).runs if run.attempt.current}


def num_ok(folder: Path) -> int:
    return sum(run.outcome is Outcome.OK for run in runs(folder).values())


def checked(folder: Path) -> GroupCheck:
    return check(folder, Thresholds(), groups=[GROUP]).groups[0]


def leaks(folder: Path) -> tuple[list[dict[str, str]], str]:
    """Rows of the diagnosis, and all its notes."""
    found = diagnose([folder], LeakThresholds())
    return [dict(row) for row in found.rows], "\n".join(found.notes)


def edited(manifest: Path, change: Callable[[list[str]], list[str]]) -> None:
    manifest.write_text("".join(f"{line}\n" for line in change(manifest.read_text().splitlines())))


def test_success_beside_an_exit_code_that_says_otherwise_is_none(tmp_path: Path) -> None:
    thrice(tmp_path, OriginalAttempt(max_steps=1000, exit_code=1))
    found = check(tmp_path, Thresholds(), groups=[GROUP])
    assert (num_ok(tmp_path), found.groups[0].num_repeats, found.groups[0].num_failed) == (0, 0, 3) and not found.passed
    assert found.notes == (f"{GROUP}: 3 rows were taken for failed, which said success beside an exit code that says otherwise",)
    assert [row["status"] for row in leaks(tmp_path)[0]] == ["failed"] * 3


def test_a_row_glued_to_a_torn_one_counts(tmp_path: Path) -> None:
    edited(thrice(tmp_path), lambda lines: [*lines[:3], lines[1][:40] + lines[3]])
    assert (num_ok(tmp_path), checked(tmp_path).num_repeats, len(leaks(tmp_path)[0])) == (3, 3, 3)
    assert check(tmp_path, Thresholds(), groups=[GROUP]).notes == ("1 torn row was passed over",)


def test_a_lost_header_is_that_of_the_driver(tmp_path: Path) -> None:
    edited(thrice(tmp_path), lambda lines: lines[1:])
    assert (num_ok(tmp_path), checked(tmp_path).num_repeats, len(leaks(tmp_path)[0])) == (3, 3, 3)
    assert checked(tmp_path).reasons == ()


def test_the_status_in_capitals_is_the_same_word(tmp_path: Path) -> None:
    edited(thrice(tmp_path), lambda lines: [line.replace("\tsuccess\t", "\tSUCCESS\t") for line in lines])
    assert (num_ok(tmp_path), checked(tmp_path).num_repeats) == (3, 3)
    assert [row["status"] for row in leaks(tmp_path)[0]] == ["success"] * 3


def test_a_manifest_that_was_set_aside_is_read_first(tmp_path: Path) -> None:
    manifest = thrice(tmp_path)
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.with_name("run_manifest.tsv.bak_20260217_120000").write_text("".join(lines[:3]))
    manifest.write_text("".join([lines[0], lines[3]]))
    assert (num_ok(tmp_path), checked(tmp_path).num_repeats, len(leaks(tmp_path)[0])) == (3, 3, 3)
    notes = check(tmp_path, Thresholds(), groups=[GROUP]).notes
    assert notes == ("run_manifest.tsv.bak_20260217_120000, which the driver set aside, was read first",)
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
    assert "the attempt that counts ended before its first step" in notes


def test_an_attempt_that_was_cut_short_does_not_hide_an_older_one(tmp_path: Path) -> None:
    cut_short = OriginalAttempt(max_steps=1000, log_every=50, last_step=200, iter_p50_ms=9000.0, has_row=False)
    write_original_campaign(tmp_path, sweep_run(attempts=(LONG, cut_short)))
    current = runs(tmp_path)[f"{GROUP}_r1"]
    assert current.attempt.number == 1 and current.outcome is Outcome.OK
    (row,), notes = leaks(tmp_path)
    assert (row["status"], row["tail_iter_ms"]) == ("success", "400") and "its newest attempt left no row" in notes


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


def test_a_clock_that_cannot_be_tells_no_zone(tmp_path: Path) -> None:
    """Stamps of the root's samples are five days from its seconds since the epoch, which no zone is."""
    left = {"attempts": (LONG,), "host_telemetry": "none", "gpu_telemetry": "none", "launcher_log": False}
    write_original_campaign(tmp_path, sweep_run(0, 128, **left), sweep_run(0, 160, **left), root_host_telemetry=True)
    sampled = tmp_path / "host_telemetry.csv"
    sampled.write_text(sampled.read_text().replace("2026-02-18T", "2026-02-23T"))
    rows, notes = leaks(tmp_path)
    assert [row["host_rss_tail_slope_mib_min"] for row in rows] == ["", ""] and notes.count("tells when this one ran") == 2
    assert host_peaks_mib(tmp_path) == [None, None]
    assert "original_zone" in {caution.kind for caution in reported(tmp_path).cautions}


def test_the_stalled_runs_of_the_seeds_are_time_outs(tmp_path: Path) -> None:
    """Exit code 125, step 1850 after 1800 s; of one only the row is left."""
    stood = OriginalAttempt(status="failed", exit_code=125, max_steps=5000, last_step=1850, duration_s=1800)
    write_original_campaign(tmp_path, sweep_run(repeat=1, attempts=(stood,)), sweep_run(repeat=2, attempts=(stood,)))
    shutil.rmtree(tmp_path / f"{GROUP}_r2")
    ends = [run.attempt.outcome for run in runs(tmp_path).values()]
    assert [(end.outcome.value, end.cause.value) for end in ends if end] == [("timeout", "run_limit")] * 2
    assert ends[1] is not None and ends[1].detail.startswith("it was ended at step 1850, the last being 5000 (exit code 125)")


def test_a_report_of_an_original_folder_names_no_command_of_ours(tmp_path: Path) -> None:
    failed = OriginalAttempt(status="failed", exit_code=1, last_step=100, launcher_lines=("ValueError: no such key",))
    write_original_campaign(tmp_path, sweep_run(attempts=(failed,)), sweep_run(0, 160, attempts=(OriginalAttempt(has_row=False),)))
    results = reported(tmp_path)
    actions = [run.attempt.outcome.action for run in results.runs if run.attempt.outcome]
    assert results.pending and actions and not any("command.sh" in action for action in actions)


def test_constants_are_said_once() -> None:
    assert to_plan.LABELS is SWEEP_LABELS
    told = {f"train.{name}" for name in timing_keys(read({}))}
    assert set(OVERRIDES) <= {key.lstrip("+") for key in TRAINER_KEYS} | told | {"train.max_step_iterations"}
