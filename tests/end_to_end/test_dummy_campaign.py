"""Whole campaigns of the dummy workload through the real command line: clean, failing, interrupted, resumed, changed, extended."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records import columns
from tests.csv_files import rows_of
from tests.end_to_end.conftest import FINISHED_OUTPUT, FINISHED_PLAN, FINISHED_RUNS
from tests.harness import Harness
from tests.original_campaign import write_original_campaign
from tests.waiting import wait_until

SLOW = FINISHED_PLAN.replace("steps: 40", "steps: 4000").replace("repeats: 2", "repeats: 1")


def header(path: Path, delimiter: str) -> list[str]:
    return path.read_text().splitlines()[0].split(delimiter)


def test_clean_campaign_leaves_every_file_with_every_column(finished_folder: Path) -> None:
    out = Harness(finished_folder).out
    for path in (
        out.plan, out.preflight, out.manifest, out.timing_points, out.per_run_metrics, out.group_summary, out.ranked_groups,
        out.verdict, out.summary_json, out.summary_md, out.best_config_json, out.best_config_env, out.best_overrides, out.progress,
    ):  # fmt: skip
        assert path.stat().st_size > 0, path
    assert header(out.manifest, "\t") == [*columns.MANIFEST_STAGE1, *columns.MANIFEST_OURS]
    assert header(out.timing_points, ",") == list(columns.TIMING_POINTS)
    assert header(out.per_run_metrics, ",") == [*columns.PER_RUN_STAGE1, *columns.PER_RUN_OURS]
    assert header(out.group_summary, ",") == [*columns.GROUP_STAGE1, *columns.GROUP_OURS]
    assert header(out.ranked_groups, ",") == [*columns.GROUP_STAGE1, *columns.GROUP_OURS]
    best = json.loads(out.best_config_json.read_text())
    assert list(best)[: len(columns.BEST_CONFIG)] == list(columns.BEST_CONFIG)
    assert [line.split("=")[0] for line in out.best_config_env.read_text().splitlines()][: len(columns.BEST_ENV)] == list(columns.BEST_ENV)
    assert sorted(int(row["rank"]) for row in rows_of(out.ranked_groups)) == [1, 2]
    assert not out.skipped_runs.exists() and not out.owner.exists()


def test_clean_runs_are_recorded_with_their_files(finished_folder: Path) -> None:
    harness = Harness(finished_folder)
    rows = harness.manifest()
    assert sorted(row["run"] for row in rows) == list(FINISHED_RUNS)
    assert {(row["status"], row["outcome"], row["world_size"], row["last_step"]) for row in rows} == {("success", "ok", "2", "39")}
    for row in rows:
        assert int(row["window_n"]) > 10 and float(row["wall_samples_per_sec"]) > 0 and float(row["startup_sec"]) > 0
    for run in harness.out.runs():
        attempt = run.attempt(1)
        for path in (
            attempt.spec, attempt.settings, attempt.command, attempt.environment, attempt.provenance, attempt.launcher_log, attempt.outcome,
        ):  # fmt: skip
            assert path.exists(), path
        assert (run.folder / "launcher.log").resolve() == attempt.launcher_log.resolve()
        assert len(attempt.all_events()) == 2 and len(attempt.all_heartbeats()) == 2


def test_the_last_line_is_json(finished_folder: Path) -> None:
    text = (finished_folder / FINISHED_OUTPUT).read_text()
    last = json.loads(text.strip().splitlines()[-1])
    assert last["verdict"] == "PASS" and last["recommended"] and len(last["ranking"]) == 2
    assert "summary.md" in text


def test_report_recomputes_everything_from_disk(finished: Harness) -> None:
    out = finished.out
    finished.call("report", "out")
    tables = [out.manifest, out.per_run_metrics, out.ranked_groups, out.best_config_json, out.timing_points]
    before = {path: path.read_text() for path in tables}
    for path in [*tables, out.summary_md, out.summary_json, out.verdict]:
        path.unlink()
    finished.call("report", "out")
    assert {path: path.read_text() for path in tables} == before
    assert finished.verdict() == "PASS"


def test_finished_runs_are_kept_more_repeats_extend_and_changed_settings_run_again(finished: Harness) -> None:
    text = finished.run("run", "plan.yaml", env={"NCCL_ALGO": "Tree"})
    assert text.count("already finished") == 4 and "NCCL_ALGO Ring → Tree" in text
    assert [len(run.attempts()) for run in finished.out.runs()] == [1] * 4

    finished.run("run", "plan.yaml", "--only", "mb4", "--set", "repeats=3")
    assert len(finished.manifest()) == 5
    finished.run("run", "plan.yaml", "--only", "mb4", "--set", "settings.step_ms=5")
    rows = [row for row in finished.manifest() if row["run"].startswith("mb4")]
    assert sorted(row["current"] for row in rows) == ["false"] * 3 + ["true"] * 2
    assert len({row["group_key"] for row in rows}) == 2
    assert {row["group"]: row["runs"] for row in rows_of(finished.out.group_summary)}["mb4"] == "2"


def test_again_runs_finished_runs_anew(finished: Harness) -> None:
    text = finished.run("run", "plan.yaml", "--again", "--only", "mb4_r1")
    assert "already finished" not in text and "attempt 2" in text
    assert [row["attempt"] for row in finished.manifest() if row["run"] == "mb4_r1"] == ["1", "2"]


def test_other_plans_add_to_the_folder_and_unlike_groups_of_one_name_are_never_averaged(finished: Harness) -> None:
    second = FINISHED_PLAN.replace("name: smoke", "name: more").replace("[4, 8]", "[16]").replace("repeats: 2", "repeats: 1")
    finished.run("run", str(finished.plan(second, "second.yaml")))
    assert {row["group"] for row in rows_of(finished.out.ranked_groups)} == {"mb4", "mb8", "mb16"}
    other = FINISHED_PLAN.replace("name: smoke", "name: other").replace("step_ms: 4", "step_ms: 6").replace("[4, 8]", "[4]")
    finished.run("run", str(finished.plan(other, "other.yaml")))
    groups = rows_of(finished.out.group_summary)
    assert sorted(row["runs"] for row in groups) == ["1", "2", "2", "2"]
    assert len({row["group"] for row in groups}) == 4


def test_a_crash_is_data_and_the_sweep_goes_on(harness: Harness) -> None:
    crashing = FINISHED_PLAN.replace("settings: {", "settings: {crash_rank: 1, ").replace("micro_batch: [4, 8]", "crash_at_step: [5, null]")
    plan = str(harness.plan(crashing.replace("repeats: 2", "repeats: 1")))
    text = harness.run("run", plan, code=2)
    rows = harness.manifest()
    assert sorted((row["outcome"], row["cause"]) for row in rows) == [("failed", "exception"), ("ok", "none")]
    assert harness.verdict() == "FAIL" and "FAIL" in text and "ordered crash of rank 1 at step 5" in text
    assert [row["reason"] for row in rows_of(harness.out.skipped_runs)] == ["run_failed"]
    best = json.loads(harness.out.best_config_json.read_text())
    assert "None" in best["group"] or "null" in best["group"]
    again = harness.run("run", plan, code=2)
    assert again.count("already finished") == 1 and again.count("attempt 2") == 1


def test_stop_on_error_ends_at_the_first_failure(harness: Harness) -> None:
    plan = harness.plan(FINISHED_PLAN.replace("settings: {", "settings: {crash_at_step: 3, ") + "stop_on_error: true\n")
    text = harness.run("run", str(plan), code=2)
    assert len(harness.manifest()) == 1 and "3 of 4 runs left" in text


def test_stop_from_another_terminal(harness: Harness) -> None:
    process = harness.start("run", str(harness.plan(SLOW)))
    wait_until(lambda: list(harness.out.folder.glob("*/attempt-1/heartbeat_rank1.jsonl")), "a run starts")
    assert "mb" in harness.call("watch", str(harness.out.folder), "--once")
    refused = harness.run("run", "plan.yaml", code=1)
    assert f"in use by process {process.pid}" in refused and "seatrial stop" in refused
    assert "asked process" in harness.run("stop", str(harness.out.folder))
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert "no campaign is running" in harness.run("stop", str(harness.out.folder), code=1)


def test_budget_leaves_the_rest_for_later(harness: Harness) -> None:
    plan = str(harness.plan(FINISHED_PLAN))
    assert "the budget is used up" in harness.run("run", plan, "--only", "mb4", "--budget", "100ms", code=3)
    assert harness.verdict() == "INCONCLUSIVE"
    harness.run("run", plan, "--only", "mb4")
    assert harness.verdict() == "PASS"


def test_logs_of_all_ranks_and_of_one(finished: Harness) -> None:
    everything = finished.call("logs", "out/mb4_r1")
    assert "[rank0]: " in everything and "Step 0: Loss" in everything
    alone = finished.call("logs", "out/mb4_r1", "--rank", "0", "--follow")
    assert "Step 0: Loss" in alone and "[rank" not in alone
    assert "did you mean 'mb4_r" in finished.call("logs", "out/mb4_r9", code=1)


def test_command_file_run_by_hand_does_the_same_and_a_moved_campaign_is_reported(harness: Harness) -> None:
    harness.run("run", str(harness.plan(FINISHED_PLAN)), "--only", "mb4_r1")
    attempt = harness.out.run("mb4_r1").attempt(1)
    before = {path: path.read_bytes() for path in attempt.all_events()}
    done = subprocess.run(["bash", str(attempt.command)], capture_output=True, text=True, check=False, cwd=harness.folder)
    assert done.returncode == 0, done.stderr
    by_hand = AttemptPaths(attempt.folder / "by-hand")
    assert [path.name for path in by_hand.all_events()] == [path.name for path in before]
    assert {path: path.read_bytes() for path in before} == before, "what the campaign measured stays as it was"

    moved = harness.out.folder.rename(harness.folder / "elsewhere")
    harness.call("report", "elsewhere")
    assert [row["outcome"] for row in rows_of(CampaignPaths(moved).manifest)] == ["ok"]
    assert "The same" in harness.call("why", "elsewhere", "1", "--remake")


def test_a_reader_that_goes_away_does_not_end_the_campaign(finished: Harness) -> None:
    process = finished.start("run", "plan.yaml", "--set", "repeats=3", "--only", "mb4")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert finished.verdict() == "PASS" and len(finished.manifest()) == 5


def test_a_run_that_stops_early_with_exit_code_0_is_no_success(harness: Harness) -> None:
    early = "settings: {crash_at_step: 7, crash_rank: 0, crash_with: exit, exit_code: 0, "
    plan = harness.plan(FINISHED_PLAN.replace("settings: {", early).replace("ranks: 2", "ranks: 1"))
    harness.run("run", str(plan), "--only", "mb4_r1", code=2)
    (row,) = harness.manifest()
    assert row["outcome"] == "failed" and row["cause"] in ("ended_early", "ranks_missing")


def test_a_script_whose_output_cannot_be_read_does_not_end_the_sweep(harness: Harness) -> None:
    (harness.folder / "odd.py").write_text("for step in (1, 2**80, 3):\n    print(f'iter {step}: loss 1e999, time 1e999ms')\n")
    harness.run("sweep", "-P", "x=1,2", "--repeats", "1", "--out", "out", "--", "python", "odd.py", "{x}")
    assert {row["outcome"] for row in harness.manifest()} == {"ok"}
    assert rows_of(harness.out.ranked_groups)[0]["duration_sec"]


def test_an_interrupted_attempt_does_not_hide_the_one_that_counts(harness: Harness) -> None:
    plan = str(harness.plan(FINISHED_PLAN.replace("steps: 40", "steps: 250").replace("step_ms: 4", "step_ms: 10")))
    harness.run("run", plan, "--only", "mb4_r1")
    process = harness.start("run", plan, "--only", "mb4_r1", "--again")
    wait_until(lambda: harness.out.run("mb4_r1").attempt(2).all_heartbeats(), "the second attempt begins")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    linked = (harness.out.run("mb4_r1").folder / "events_rank0.jsonl").resolve()
    assert linked.parent.name == "attempt-1"


def test_a_folder_of_the_original_scripts_is_not_written_into(harness: Harness) -> None:
    write_original_campaign(harness.folder / "out")
    before = {path: path.read_bytes() for path in sorted((harness.folder / "out").rglob("*")) if path.is_file()}
    text = harness.run("run", str(harness.plan(FINISHED_PLAN)), code=1)
    assert "original stage-1 scripts" in text
    assert {path: path.read_bytes() for path in sorted((harness.folder / "out").rglob("*")) if path.is_file()} == before


def test_provenance_and_diff_name_what_differs_between_two_runs(finished: Harness) -> None:
    stored = json.loads(finished.out.run("mb8_r1").attempt(1).provenance.read_text())
    assert stored["environment"]["NCCL_ALGO"] == "Ring" and stored["environment"]["HF_TOKEN"] == "***"
    assert stored["plan_hash"] and stored["fingerprint"] and stored["python"] and stored["nics"] is not None
    document = json.loads(finished.call("diff", "out/mb8_r1", "out/mb4_r1", "--json").splitlines()[-1])
    assert "micro_batch" in json.dumps(document)


def test_any_table_can_be_exported_as_csv_and_parquet(finished: Harness) -> None:
    polars = pytest.importorskip("polars")
    text = finished.call("export", "out", "steps")
    assert len(text.splitlines()) == 1 + 4 * 2 * 40
    finished.call("export", "out", "steps", "host_telemetry", "runs", "--format", "parquet", "-o", "tables")
    assert polars.read_parquet(finished.folder / "tables" / "steps.parquet").height == 4 * 2 * 40
    assert polars.read_parquet(finished.folder / "tables" / "runs.parquet")["micro_batch"].sort().to_list() == [4, 4, 8, 8]
