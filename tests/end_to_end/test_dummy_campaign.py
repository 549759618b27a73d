"""Whole campaigns of the dummy workload through the real command line: clean, failing, interrupted, resumed, changed, extended."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from seatrial.paths import AttemptPaths
from seatrial.records import columns
from tests.csv_files import rows_of
from tests.harness import Harness
from tests.waiting import wait_until

CLEAN = """
name: smoke
workload: dummy
settings: {step_ms: 4, log_every: 10}
launcher: python
place: {kind: local, ranks: 2}
axes:
  micro_batch: [4, 8]
  num_workers: [0, 2]
repeats: 2
steps: 40
timing: {log_every: 10}
criteria:
  - {metric: failed_runs, at_most: 0}
  - {metric: loss_falls, scope: every_run}
output: out
"""
SLOW = CLEAN.replace("steps: 40", "steps: 4000").replace("repeats: 2", "repeats: 1")


def header(path: Path, delimiter: str) -> list[str]:
    return path.read_text().splitlines()[0].split(delimiter)


def test_clean_campaign_leaves_every_file_with_every_column(harness: Harness) -> None:
    text = harness.run("run", str(harness.plan(CLEAN)))
    out = harness.out
    assert "PASS" in text and "summary.md" in text
    for path in (
        out.plan, out.preflight, out.manifest, out.timing_points, out.per_run_metrics, out.group_summary, out.ranked_groups,
        out.verdict, out.summary_json, out.summary_md, out.best_config_json, out.best_config_env, out.best_overrides, out.progress,
    ):  # fmt: skip
        assert path.stat().st_size > 0, path
    assert header(out.manifest, "\t") == [*columns.MANIFEST_SEED, *columns.MANIFEST_OURS]
    assert header(out.timing_points, ",") == list(columns.TIMING_POINTS)
    assert header(out.per_run_metrics, ",") == [*columns.PER_RUN_SEED, *columns.PER_RUN_OURS]
    assert header(out.group_summary, ",") == [*columns.GROUP_SEED, *columns.GROUP_OURS]
    assert header(out.ranked_groups, ",") == [*columns.GROUP_SEED, *columns.GROUP_OURS]
    best = json.loads(out.best_config_json.read_text())
    assert list(best)[: len(columns.BEST_CONFIG)] == list(columns.BEST_CONFIG)
    assert [line.split("=")[0] for line in out.best_config_env.read_text().splitlines()][: len(columns.BEST_ENV)] == list(columns.BEST_ENV)

    rows = harness.manifest()
    assert len(rows) == 8
    assert {row["status"] for row in rows} == {"success"} and {row["outcome"] for row in rows} == {"ok"}
    assert {row["world_size"] for row in rows} == {"2"}
    for row in rows:
        assert int(row["window_n"]) > 10 and float(row["wall_samples_per_sec"]) > 0 and float(row["startup_sec"]) > 0
        assert int(row["last_step"]) == 39
    for run in out.runs():
        attempt = run.attempt(1)
        for path in (
            attempt.spec,
            attempt.settings,
            attempt.command,
            attempt.environment,
            attempt.provenance,
            attempt.launcher_log,
            attempt.outcome,
        ):
            assert path.exists(), path
        assert (run.folder / "launcher.log").resolve() == attempt.launcher_log.resolve()
        assert len(attempt.all_events()) == 2 and len(attempt.all_heartbeats()) == 2
    ranked = rows_of(out.ranked_groups)
    assert sorted(int(row["rank"]) for row in ranked) == [1, 2, 3, 4]
    assert not out.skipped_runs.exists()


def test_the_same_command_again_runs_nothing(harness: Harness) -> None:
    plan = harness.plan(CLEAN)
    harness.run("run", str(plan))
    before = {run.folder.name: len(run.attempts()) for run in harness.out.runs()}
    text = harness.run("run", str(plan))
    assert text.count("not run again") == 8
    assert {run.folder.name: len(run.attempts()) for run in harness.out.runs()} == before


def test_report_remakes_everything_from_disk(harness: Harness) -> None:
    harness.run("run", str(harness.plan(CLEAN)))
    made = [
        harness.out.manifest,
        harness.out.per_run_metrics,
        harness.out.ranked_groups,
        harness.out.best_config_json,
        harness.out.timing_points,
    ]
    before = {path: path.read_text() for path in made}
    for path in [*made, harness.out.summary_md, harness.out.summary_json, harness.out.verdict]:
        path.unlink()
    harness.run("report", str(harness.out.folder))
    assert {path: path.read_text() for path in made} == before
    assert harness.verdict() == "PASS"


def test_a_copied_campaign_can_be_reported_elsewhere(harness: Harness) -> None:
    harness.run("run", str(harness.plan(CLEAN.replace("repeats: 2", "repeats: 1"))))
    moved = harness.folder / "elsewhere"
    subprocess.run(["cp", "-a", str(harness.out.folder), str(moved)], check=True)
    subprocess.run(["rm", "-r", str(harness.out.folder)], check=True)
    assert "PASS" in harness.run("report", str(moved))


def test_more_repeats_extend_and_a_changed_setting_is_run_again(harness: Harness) -> None:
    plan = harness.plan(CLEAN)
    harness.run("run", str(plan), "--only", "mb4_nw0")
    assert len(harness.manifest()) == 2
    harness.run("run", str(plan), "--only", "mb4_nw0", "--set", "repeats=3")
    assert len(harness.manifest()) == 3
    harness.run("run", str(plan), "--only", "mb4_nw0", "--set", "settings.step_ms=5")
    rows = harness.manifest()
    assert len(rows) == 5, "old rows stay"
    assert sorted(row["current"] for row in rows) == ["false"] * 3 + ["true"] * 2
    assert len({row["group_key"] for row in rows}) == 2
    assert [row["runs"] for row in rows_of(harness.out.group_summary)] == ["2"]


def test_a_second_plan_adds_to_the_folder(harness: Harness) -> None:
    harness.run("run", str(harness.plan(CLEAN.replace("repeats: 2", "repeats: 1"))))
    second = CLEAN.replace("name: smoke", "name: more").replace("[4, 8]", "[16]").replace("repeats: 2", "repeats: 1")
    harness.run("run", str(harness.plan(second, "second.yaml")))
    assert {row["group"] for row in harness.manifest()} == {"mb4_nw0", "mb4_nw2", "mb8_nw0", "mb8_nw2", "mb16_nw0", "mb16_nw2"}
    assert len(rows_of(harness.out.ranked_groups)) == 6


def test_two_plans_with_one_name_for_two_configurations_are_never_averaged(harness: Harness) -> None:
    one = CLEAN.replace("[4, 8]", "[4]").replace("[0, 2]", "[0]")
    harness.run("run", str(harness.plan(one)))
    harness.run("run", str(harness.plan(one.replace("name: smoke", "name: other").replace("step_ms: 4", "step_ms: 6"), "other.yaml")))
    groups = rows_of(harness.out.group_summary)
    assert [row["runs"] for row in groups] == ["2", "2"]
    assert len({row["group"] for row in groups}) == 2


def test_a_crash_is_data_and_the_sweep_goes_on(harness: Harness) -> None:
    crashing = CLEAN.replace("settings: {", "settings: {crash_rank: 1, ").replace("  num_workers: [0, 2]", "  crash_at_step: [null, 5]")
    text = harness.run("run", str(harness.plan(crashing)), code=2)
    rows = harness.manifest()
    assert sorted(row["outcome"] for row in rows) == ["failed"] * 4 + ["ok"] * 4
    assert {row["cause"] for row in rows if row["outcome"] == "failed"} == {"exception"}
    assert harness.verdict() == "FAIL" and "FAIL" in text
    skipped = rows_of(harness.out.skipped_runs)
    assert {row["reason"] for row in skipped} == {"run_failed"} and len(skipped) == 4
    best = json.loads(harness.out.best_config_json.read_text())
    assert "None" in best["group"] or "null" in best["group"]
    again = harness.run("run", str(harness.plan(crashing)), code=2)
    assert again.count("not run again") == 4 and again.count("attempt 2") == 4


def test_stop_on_error_ends_at_the_first_failure_and_resumes(harness: Harness) -> None:
    plan = harness.plan(CLEAN.replace("settings: {", "settings: {crash_at_step: 3, ") + "stop_on_error: true\n")
    text = harness.run("run", str(plan), code=2)
    assert len(harness.manifest()) == 1 and "7 of 8 runs are still to be run" in text


def test_run_limit_ends_a_run_and_says_so(harness: Harness) -> None:
    plan = harness.plan(SLOW.replace("[4, 8]", "[4]").replace("[0, 2]", "[0]") + "limits: {run_s: 2, term_s: 3}\n")
    text = harness.run("run", str(plan), code=2)
    (row,) = harness.manifest()
    assert (row["outcome"], row["cause"], row["status"]) == ("timeout", "run_limit", "failed")
    assert "limits.run_s" in text


def test_start_limit_ends_a_run_that_never_steps(harness: Harness) -> None:
    script = harness.folder / "silent.py"
    script.write_text("import time\ntime.sleep(600)\n")
    text = harness.run("sweep", "--repeats", "1", "--start-limit", "2s", "--out", "out", "--", "python", "silent.py", code=2)
    (row,) = harness.manifest()
    assert (row["outcome"], row["cause"]) == ("timeout", "start_limit")
    assert "no first step" in text


def test_interrupt_writes_partial_results_and_the_same_command_resumes(harness: Harness) -> None:
    plan = harness.plan(SLOW.replace("steps: 4000", "steps: 300"))
    process = harness.start("run", str(plan))
    wait_until(lambda: harness.out.manifest.exists() and len(harness.out.runs()) >= 2, "the second run starts")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert harness.left_behind() == []
    rows = harness.manifest()
    assert [row["outcome"] for row in rows].count("interrupted") == 1
    assert "the same command resumes" in output and harness.out.summary_md.exists()
    assert harness.verdict() == "INCONCLUSIVE"
    text = harness.run("run", str(plan))
    assert "attempt 2" in text and "not run again" in text
    assert harness.verdict() == "PASS"
    assert len([row for row in harness.manifest() if row["current"] == "true"]) == 4


def test_interrupt_twice_is_at_once(harness: Harness) -> None:
    process = harness.start("run", str(harness.plan(SLOW)))
    wait_until(lambda: list(harness.out.folder.glob("*/attempt-1/events_rank1.jsonl")), "a run starts")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_stop_from_another_terminal(harness: Harness) -> None:
    process = harness.start("run", str(harness.plan(SLOW)))
    wait_until(lambda: list(harness.out.folder.glob("*/attempt-1/heartbeat_rank1.jsonl")), "a run starts")
    assert "mb" in harness.run("watch", str(harness.out.folder), "--once")
    busy = harness.run("run", str(harness.plan(SLOW)), code=1)
    assert "in use by process" in busy
    assert "asked process" in harness.run("stop", str(harness.out.folder))
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert "no campaign is running" in harness.run("stop", str(harness.out.folder), code=1)


def test_harness_killed_leaves_nothing_running_and_resumes(harness: Harness) -> None:
    plan = harness.plan(SLOW.replace("steps: 4000", "steps: 200"))
    process = harness.start("run", str(plan))
    wait_until(lambda: list(harness.out.folder.glob("*/attempt-1/events_rank1.jsonl")), "a run starts")
    process.kill()
    process.communicate()
    wait_until(lambda: not harness.left_behind(), "every process is gone", patience_s=60)
    harness.run("run", str(plan))
    outcomes = [row["outcome"] for row in harness.manifest()]
    assert outcomes.count("ok") == 4 and outcomes.count("interrupted") == 1


def test_budget_leaves_the_rest_for_later(harness: Harness) -> None:
    plan = harness.plan(CLEAN)
    text = harness.run("run", str(plan), "--budget", "100ms", code=3)
    assert "the budget is used up" in text
    assert harness.verdict() == "INCONCLUSIVE"
    harness.run("run", str(plan))
    assert harness.verdict() == "PASS"


def test_logs_of_all_ranks_and_of_one(harness: Harness) -> None:
    harness.run("run", str(harness.plan(CLEAN)), "--only", "mb4_nw0_r1")
    run = str(harness.out.folder / "mb4_nw0_r1")
    everything = harness.run("logs", run)
    assert "[rank0]: " in everything and "Step 0: Loss" in everything
    alone = harness.run("logs", run, "--rank", "0", "--follow")
    assert "Step 0: Loss" in alone and "[rank" not in alone
    assert "did you mean 'mb4_nw0_r1'" in harness.run("logs", str(harness.out.folder / "mb4_nw0_r2"), code=1)


def test_command_file_run_by_hand_does_the_same(harness: Harness) -> None:
    harness.run("run", str(harness.plan(CLEAN)), "--only", "mb4_nw0_r1")
    attempt = harness.out.run("mb4_nw0_r1").attempt(1)
    before = {path: path.read_bytes() for path in attempt.all_events()}
    done = subprocess.run(["bash", str(attempt.command)], capture_output=True, text=True, check=False, cwd=harness.folder)
    assert done.returncode == 0, done.stderr
    by_hand = AttemptPaths(attempt.folder / "by-hand")
    assert [path.name for path in by_hand.all_events()] == [path.name for path in before]
    assert {path: path.read_bytes() for path in before} == before, "what the campaign measured stays as it was"


def test_json_line_is_the_last_and_only_thing_on_stdout(harness: Harness) -> None:
    plan = harness.plan(CLEAN.replace("repeats: 2", "repeats: 1"))
    process = harness.start("run", str(plan), "--json")
    output, _ = process.communicate(timeout=120)
    last = json.loads(output.strip().splitlines()[-1])
    assert last["verdict"] == "PASS" and last["winner"] and len(last["ranking"]) == 4


def test_a_reader_that_goes_away_does_not_end_the_campaign(harness: Harness) -> None:
    plan = harness.plan(CLEAN.replace("repeats: 2", "repeats: 1"))
    process = harness.start("run", str(plan))
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert harness.verdict() == "PASS" and len(harness.manifest()) == 4


def test_a_run_that_stops_early_with_exit_code_0_is_no_success(harness: Harness) -> None:
    early = CLEAN.replace("settings: {", "settings: {crash_at_step: 7, crash_rank: 0, crash_with: exit, exit_code: 0, ").replace(
        "ranks: 2", "ranks: 1"
    )
    harness.run("run", str(harness.plan(early)), "--only", "mb4_nw0_r1", code=2)
    (row,) = harness.manifest()
    assert row["outcome"] == "failed" and row["cause"] in ("ended_early", "ranks_missing")


def test_a_script_whose_output_cannot_be_read_does_not_end_the_sweep(harness: Harness) -> None:
    (harness.folder / "odd.py").write_text("for step in (1, 2**80, 3):\n    print(f'iter {step}: loss 1e999, time 1e999ms')\n")
    harness.run("sweep", "-P", "x=1,2", "--repeats", "1", "--out", "out", "--", "python", "odd.py", "{x}")
    rows = harness.manifest()
    assert {row["outcome"] for row in rows} == {"ok"}
    assert rows_of(harness.out.ranked_groups)[0]["duration_sec"], "its length is known all the same"


def test_a_finished_run_of_other_conditions_is_said_when_it_is_not_run_again(harness: Harness) -> None:
    plan = harness.plan(CLEAN)
    harness.run("run", str(plan), "--only", "mb4_nw0_r1", env={"NCCL_ALGO": "Ring"})
    text = harness.run("run", str(plan), "--only", "mb4_nw0_r1", env={"NCCL_ALGO": "Tree"})
    assert "not run again" in text and "NCCL_ALGO Ring → Tree" in text
