"""The leak diagnosis as a command."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.collect.original.runs import Span
from seatrial.core.files import link_relative, write_json
from seatrial.core.paths import AttemptPaths
from seatrial.core.tables import write_table
from seatrial.records.codec import to_json
from seatrial.records.columns import MANIFEST_OURS, MANIFEST_STAGE1, TIMING_POINTS
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.telemetry import HOST_COLUMNS
from seatrial_runbooks.stage1.leak_check import COLUMNS, diagnose, main
from seatrial_runbooks.stage1.leak_inputs import LeakRun, RunFinder, run_span
from tests.facts import states
from tests.original_campaign import OriginalAttempt, sweep_run, write_original_campaign

SCRIPT = Path(__file__).parents[3] / "runbooks" / "stage1" / "scripts" / "quick_leak_diagnose.py"
T0 = 1_771_408_580.0
ENDED = RunOutcome(run="mb8_r1", attempt=1, hash="", outcome=Outcome.OK)
LONG = OriginalAttempt(max_steps=1000, log_every=50)
"""535 s: 268 samples of telemetry, 215 after the warm-up, 21 in head and tail each; 21 timing points."""
FAILED = OriginalAttempt(status="failed", exit_code=1, max_steps=1000, last_step=400, iter_p50_ms=9000.0)
SEED_COLUMNS = (
    "output_root,group,status,duration_sec,attn_impl,speech_attn_impl,text_attn_impl,model_load_dtype,tf32_enabled,zero_stage,"
    "tail_iter_ms,gpu_mem_tail_slope_max_mib_min,gpu_mem_tail_drift_max_mib,host_rss_tail_slope_mib_min,host_rss_tail_drift_mib,"
    "iter_tail_vs_head_pct,verdict,decided_by"
)
Output = tuple[list[dict[str, str]], str]
Command = Callable[..., Output]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command: its rows, and its notes."""

    def run(*argv: object, code: int = 0) -> Output:
        assert main([str(argument) for argument in argv]) == code
        output = capsys.readouterr()
        assert output.out.partition("\n")[0] == SEED_COLUMNS
        return list(csv.DictReader(io.StringIO(output.out))), output.err

    return run


def figures(row: dict[str, str]) -> list[str]:
    return [row[name] for name in COLUMNS[-7:-1]]


def host_file(path: Path, rows: Iterable[tuple[float, int, int]]) -> None:
    """Rows of seconds since T0, number of processes and memory in MiB."""
    lines = [f"{T0 + at:.0f},16777216,{count},{rss_mib * 1024}\n" for at, count, rss_mib in rows]
    path.write_text("".join(["epoch_sec,mem_total_kib,train_proc_count,train_rss_kib\n", *lines]))


def test_a_manifest_without_rows_gives_a_header_and_a_note(tmp_path: Path, command: Command) -> None:
    write_table(tmp_path / "run_manifest.tsv", MANIFEST_STAGE1, [], "\t")
    rows, notes = command(tmp_path)
    assert rows == [] and "its manifest has no rows" in notes


def test_thresholds_of_the_command_line_count(tmp_path: Path, command: Command) -> None:
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(LONG,), gpu_mem_growth_mib_per_min=30))
    rows, _ = command("--gpu-tail-slope-thr", 40, "--gpu-tail-drift-thr=100", root)
    assert {row["verdict"] for row in rows} == {"suspected_leak_or_contention(gpu_tail_drift)"}


def test_an_original_campaign_that_grows(tmp_path: Path, command: Command) -> None:
    growing = OriginalAttempt(max_steps=1000, log_every=50, iter_p50_growth_ms=10.0)
    runs = [
        sweep_run(0, 128, repeat=1, attempts=(LONG,)),
        sweep_run(1, 160, attempts=(growing,), gpu_mem_growth_mib_per_min=30, rss_growth_mib_per_min=120, attn_impl="eager"),
        sweep_run(0, 128, repeat=2, attempts=(FAILED, LONG)),
    ]
    rows, notes = command(write_original_campaign(tmp_path / "bench", *runs, torn_line=True))
    assert [(row["group"], row["status"], row["zero_stage"]) for row in rows] == [
        ("sweep_z0_mb128_nw6_pf4", "success", "0"), ("sweep_z0_mb128_nw6_pf4", "success", "0"), ("sweep_z1_mb160_nw6_pf4", "success", "1"),
    ]  # fmt: skip
    assert {row["output_root"] for row in rows} == {str(tmp_path / "bench")}
    still = ["0", "0", "0", "0", "0", "no_obvious_leak"]
    assert figures(rows[0]) == still and figures(rows[1]) == still, "points of a failed first attempt and of other groups do not count"
    # 194 samples lie between the middles of head and tail, 2 s each: 6.4667 min. 17 points after the warm-up: 440 to 600 ms.
    assert figures(rows[2]) == [
        "30",
        "194",
        "120",
        "776",
        "36.364",
        "suspected_leak_or_contention(gpu_tail_slope,host_tail_slope,iter_drift)",
    ]
    assert (rows[2]["tail_iter_ms"], rows[2]["duration_sec"], rows[2]["attn_impl"], rows[2]["text_attn_impl"]) == (
        "600",
        "535",
        "eager",
        "eager",
    )
    assert (rows[2]["model_load_dtype"], rows[2]["tf32_enabled"]) == ("bf16", "true")
    assert states(notes, "_r2: host: host_telemetry.csv", "driver's layout", "rss_kib", "215 samples")
    assert "_r2: iter: train.log of the run: 17 timing points" in notes


def test_a_run_that_slowed_down_without_any_memory_figure_says_nothing_about_a_leak(tmp_path: Path, command: Command) -> None:
    slower = OriginalAttempt(max_steps=1000, log_every=50, iter_p50_growth_ms=10.0)
    run = sweep_run(0, 128, attempts=(slower,), gpu_telemetry="header", host_telemetry="header")
    rows, notes = command(write_original_campaign(tmp_path / "bench", run))
    assert figures(rows[0]) == ["", "", "", "", "36.364", "not_enough_data"] and rows[0]["decided_by"] == ""
    assert states(notes, "slower: ", "36.4 %", "20 %", "unknown")
    assert "slower:" not in command("--iter-drift-thr-pct", 40, tmp_path / "bench")[1]


def test_a_run_folder_finds_its_campaign(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(LONG,)), sweep_run(0, 160, attempts=(LONG,)))
    whole, _ = command(root)
    monkeypatch.chdir(tmp_path)
    rows, _ = command("bench/sweep_z0_mb128_nw6_pf4_r1", "bench/sweep_z0_mb160_nw6_pf4_r1/")
    assert rows == [{**row, "output_root": "bench"} for row in whole]
    mixed, _ = command(root, "bench/sweep_z0_mb128_nw6_pf4_r1")
    assert len(mixed) == 3
    (tmp_path / "newest").symlink_to(root / "sweep_z0_mb128_nw6_pf4_r1")
    assert command(tmp_path / "newest")[0] == whole[:1], "the campaign is where the run is"
    monkeypatch.chdir("bench/sweep_z0_mb128_nw6_pf4_r1")
    assert command(".")[0] == [{**whole[0], "output_root": ".."}]


def test_a_run_folder_alone_has_no_cells_of_the_manifest(tmp_path: Path, command: Command) -> None:
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(FAILED, LONG)), manifest=False)
    rows, notes = command(root / "sweep_z0_mb128_nw6_pf4_r1")
    assert rows[0]["group"] == "sweep_z0_mb128_nw6_pf4_r1" and rows[0]["status"] == rows[0]["duration_sec"] == rows[0]["zero_stage"] == ""
    assert figures(rows[0]) == ["0", "0", "0", "0", "0", "no_obvious_leak"]
    assert "no run_manifest.tsv above it" in notes


def test_a_run_without_a_row_stands_alone(tmp_path: Path, command: Command) -> None:
    cut_short = OriginalAttempt(max_steps=1000, has_row=False)
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(LONG,)), sweep_run(0, 160, attempts=(cut_short,)))
    rows, notes = command(root / "sweep_z0_mb160_nw6_pf4_r1")
    assert (rows[0]["output_root"], rows[0]["status"], rows[0]["verdict"]) == (str(root), "", "no_obvious_leak")
    assert "it has no row of this run" in notes


@pytest.mark.parametrize(
    ("left", "source"),
    [
        ({}, "launcher.log"),
        ({"gpu_telemetry": "none", "train_log": False}, "launcher.log"),
        ({"gpu_telemetry": "none", "launcher_log": False}, "train.log"),
        ({"train_log": False, "launcher_log": False}, "gpu_telemetry.csv"),
    ],
)
def test_a_root_file_of_the_hand_made_sampler_is_cut_to_the_run(
    tmp_path: Path, command: Command, left: dict[str, object], source: str
) -> None:
    runs = [
        sweep_run(0, 128, attempts=(LONG,), host_telemetry="none", rss_growth_mib_per_min=120, **left),
        sweep_run(0, 160, attempts=(LONG,), host_telemetry="header", **left),
    ]
    rows, notes = command(write_original_campaign(tmp_path / "bench", *runs, root_host_telemetry=True))
    slopes = [float(row["host_rss_tail_slope_mib_min"]) for row in rows]
    assert slopes == pytest.approx([120, 0], abs=0.01), "times of both logs are eight hours ahead of UTC"
    assert (
        notes.count(
            f"host_telemetry.csv of the campaign, the hand-made sampler's layout (train_rss_kib), cut to the time of the run by {source}"
        )
        == 2
    )
    assert "from the first to the last sample with 10 or more processes" in notes


def test_a_root_file_is_not_used_for_a_run_of_unknown_time(tmp_path: Path, command: Command) -> None:
    without = {"attempts": (LONG,), "host_telemetry": "none", "gpu_telemetry": "none", "train_log": False, "launcher_log": False}
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, **without), sweep_run(0, 160, **without), root_host_telemetry=True)
    rows, notes = command(root)
    assert [figures(row) for row in rows] == [["", "", "", "", "", "not_enough_data"]] * 2
    assert notes.count("no outcome.json, log or gpu_telemetry.csv has the time of this one") == 2
    alone, _ = command(write_original_campaign(tmp_path / "one", sweep_run(0, 128, **without), root_host_telemetry=True))
    assert alone[0]["host_rss_tail_slope_mib_min"] == "0", "the only run of a campaign is all that its file can be of"


def ours(root: Path) -> Path:
    """A campaign of ours: a run of two attempts, the first of which failed, and one that was never measured."""
    good = {
        "status": "success",
        "duration_sec": 400.0,
        "zero_stage": 0,
        "attn_impl_effective": "sdpa",
        "current": True,
        "startup_sec": 100.0,
    }
    rows = [
        our_row(root, attempt=1) | {"status": "failed", "current": False},
        our_row(root, attempt=2) | good,
        our_row(root, attempt=1, repeat=2) | {"status": "failed", "current": True},
    ]
    write_table(root / "run_manifest.tsv", [*MANIFEST_STAGE1, *MANIFEST_OURS], rows, "\t")
    points = [(attempt, at, ms * (1.5 if at == 19 else 1.0)) for attempt, ms in ((1, 9000.0), (2, 100.0)) for at in range(20)]
    message = [our_row(root, attempt=attempt) | {"index": at, "step": at * 10, "iter_ms_p50": ms} for attempt, at, ms in points]
    write_table(root / "timing_points.csv", TIMING_POINTS, message)
    attempt = root / "mb8_r1" / "attempt-2"
    memory_kib = [2**20 + at * 1024 for at in range(200)]
    same = {"mem_total_kib": 2**24, "train_proc_count": 12}
    samples = [{**same, "epoch_sec": T0 + at * 2, "rss_kib": kib, "train_rss_kib": kib} for at, kib in enumerate(memory_kib)]
    write_table(attempt / "host_telemetry.csv", HOST_COLUMNS, samples)
    write_json(attempt / "outcome.json", to_json(replace(ENDED, attempt=2, started_t=T0, ended_t=T0 + 400)))
    write_json(root / "mb8_r1" / "attempt-1" / "outcome.json", to_json(ENDED))
    for name in ("host_telemetry.csv", "outcome.json"):
        link_relative(root / "mb8_r1" / name, attempt / name)
    return root


def our_row(root: Path, attempt: int, repeat: int = 1) -> dict[str, object]:
    run = f"mb8_r{repeat}"
    return {"mode": "sweep", "group": "mb8", "repeat": repeat, "run": run, "run_dir": str(root / run), "attempt": attempt}


def test_our_campaign_is_read_by_the_attempt_that_counts(tmp_path: Path, command: Command) -> None:
    root = ours(tmp_path / "out")
    rows, notes = command(root)
    assert [(row["group"], row["status"], row["verdict"]) for row in rows] == [
        ("mb8", "success", "suspected_leak_or_contention(iter_drift)"), ("mb8", "failed", "not_enough_data"),
    ]  # fmt: skip
    # Of 16 points left the last is the tail, 1.5 times the first; 160 samples left, 144 of 2 s between the middles of head and tail.
    assert figures(rows[0])[2:5] == ["30", "144", "50"] and rows[0]["tail_iter_ms"] == "150"
    assert states(notes, "mb8_r1/attempt-2: host: host_telemetry.csv", "our layout (rss_kib, train_proc_count)")
    assert states(notes, "iter: timing_points.csv", "16 timing points")
    assert "gpu: no figures: gpu_telemetry.csv: there is no such file" in notes
    assert notes.count("100 of 400 s") == 1
    assert f"its folder {root / 'mb8_r2'} does not exist" in notes


def test_our_run_folder_and_one_of_its_attempts(tmp_path: Path, command: Command) -> None:
    root = ours(tmp_path / "out")
    whole, _ = command(root)
    by_run, _ = command(root / "mb8_r1")
    by_attempt, _ = command(root / "mb8_r1" / "attempt-2", root / "mb8_r1" / "attempt-1")
    assert by_run == whole[:1] and by_attempt[:1] == whole[:1]
    assert (by_attempt[1]["status"], by_attempt[1]["iter_tail_vs_head_pct"]) == ("failed", "50"), "of the attempt that was named"
    (root / "run_manifest.tsv").unlink()
    alone, _ = command(root / "mb8_r1")
    assert alone[0]["host_rss_tail_slope_mib_min"] == "30" and alone[0]["status"] == ""
    for name in ("host_telemetry.csv", "outcome.json"):
        (root / "mb8_r1" / name).unlink()
    assert command(root / "mb8_r1")[0] == alone, "links get lost when a folder is copied"


def test_a_root_file_beside_our_own_runs_is_cut_by_the_outcome(tmp_path: Path, command: Command) -> None:
    root = ours(tmp_path / "out")
    (root / "mb8_r1" / "attempt-2" / "host_telemetry.csv").unlink()
    other = [(at * 5.0 - 1000, 14, 9000 - at) for at in range(200)]
    host_file(root / "host_telemetry.csv", [*other, *((at * 5.0, 14, 1000 + at) for at in range(81))])
    rows, notes = command(root / "mb8_r1")
    assert rows[0]["host_rss_tail_slope_mib_min"] == "12"
    assert states(notes, "host_telemetry.csv of the campaign", "hand-made", "(train_rss_kib)", "outcome.json")


def test_timing_points_of_the_original_s_own_table_are_those_of_one_run(tmp_path: Path, command: Command) -> None:
    root = write_original_campaign(
        tmp_path / "bench", sweep_run(0, 128, attempts=(LONG,), train_log=False), sweep_run(0, 160, attempts=(LONG,))
    )
    lines = ["mode,group,repeat,index,step,iter_ms_p50,train_log"]
    # An attempt that failed at step 150 stands before the one that counts.
    lines += [f"sweep,sweep_z0_mb128_nw6_pf4,1,{at},{at * 50},9000,x" for at in range(4)]
    lines += [f"sweep,sweep_z0_mb128_nw6_pf4,1,{at + 4},{at * 50},{100 if at < 15 else 130},x" for at in range(20)]
    lines += [f"sweep,sweep_z0_mb160_nw6_pf4,1,{at},{at * 50},700,x" for at in range(20)]
    (root / "timing_points.csv").write_text("\n".join([*lines, ""]))
    rows, notes = command(root)
    assert [row["iter_tail_vs_head_pct"] for row in rows] == ["30", "0"] and rows[0][
        "verdict"
    ] == "suspected_leak_or_contention(iter_drift)"
    assert notes.count("iter: timing_points.csv of the campaign: 16 timing points") == 2


def test_half_a_line_at_the_end_of_a_log_is_no_timing(tmp_path: Path, command: Command) -> None:
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(LONG,)))
    log = root / "sweep_z0_mb128_nw6_pf4_r1" / "train.log"
    with open(log, "a") as more:
        more.write("2026-02-18 18:05:30,000 - train - INFO - Step 1050: Loss 3.5\n")
        more.write("2026-02-18 18:05:30,000 - train - INFO - Timing(window=100): iter_ms:p50=40.00 p90=4")
    assert command(root)[0][0]["tail_iter_ms"] == "400"


def test_a_campaign_that_never_got_a_manifest_is_no_run(tmp_path: Path, command: Command) -> None:
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(LONG,)), manifest=False, root_host_telemetry=True)
    rows, notes = command(root, code=1)
    assert rows == [] and "runs in it: sweep_z0_mb128_nw6_pf4_r1" in notes


def test_a_folder_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    found = diagnose([tmp_path / ("x" * 300)])
    assert found.rows == () and "File name too long" in found.problems[0]


def test_one_bad_path_does_not_hide_the_others(tmp_path: Path, command: Command) -> None:
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(LONG,)))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run_manifest.tsv").write_text("")
    rows, notes = command(tmp_path / "benck", root, tmp_path / "empty", tmp_path, root / "run_manifest.tsv", tmp_path / "broken", code=1)
    assert len(rows) == 1
    problems = [line for line in notes.splitlines() if line.startswith("quick_leak_diagnose.py: ")]
    assert len(problems) == 5
    assert f"it does not exist; did you mean {root}?" in problems[0]
    assert "give the OUTPUT_ROOT folder" in problems[1] and "campaigns in it: bench, broken" in problems[2]
    assert "it is a file; give its folder" in problems[3] and "run_manifest.tsv cannot be used: it is empty" in problems[4]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: PATH"),
        (["x", "--gpu-slope-thr", "3"], "did you mean '--gpu-tail-slope-thr'?"),
        (["x", "--iter-drift-thr-pct", "20%"], "argument --iter-drift-thr-pct: '20%' is not a limit"),
        (["x", "--host-tail-drift-thr", "inf"], "argument --host-tail-drift-thr: 'inf' is not a limit"),
    ],
)
def test_wrong_use_is_1(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    output = capsys.readouterr()
    assert message in output.err and output.out == ""


def test_names_that_are_no_text_do_not_break_it(tmp_path: Path) -> None:
    root = write_original_campaign(Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff,\n")), sweep_run(0, 128, attempts=(LONG,)))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), os.fsencode(root)], capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    assert done.returncode == 0, done.stderr
    assert b"no_obvious_leak" in done.stdout


def test_the_script_writes_csv_to_stdout_and_notes_to_stderr_with_the_standard_library_only(tmp_path: Path) -> None:
    root = write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(LONG,)))
    run = root / "sweep_z0_mb128_nw6_pf4_r1"
    # -S: without any installed package.
    done = subprocess.run([sys.executable, "-S", str(SCRIPT), str(run)], capture_output=True, text=True, check=False)
    assert SCRIPT.stat().st_mode & 0o111 and SCRIPT.read_text().startswith("#!/usr/bin/env python3\n")
    assert done.returncode == 0, done.stderr
    assert [row["verdict"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["no_obvious_leak"]
    assert len(done.stderr.splitlines()) == 3


HEADERS = {
    "gpu_telemetry.csv": b"timestamp,epoch_sec,gpu_index,mem_used_mib,mem_total_mib\n",
    "host_telemetry.csv": b"timestamp,epoch_sec,mem_total_kib,train_proc_count,train_rss_kib\n",
    "train.log": b"2026-02-18 18:05:30,000 - train - INFO - Step 10: Loss 3.5\n",
    "outcome.json": b"",
}


@settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.lists(st.binary(max_size=300), min_size=len(HEADERS), max_size=len(HEADERS)))
def test_arbitrary_bytes_are_taken(tmp_path: Path, data: list[bytes]) -> None:
    for (name, header), tail in zip(HEADERS.items(), data, strict=True):
        (tmp_path / name).write_bytes(header + tail)
    assert [row["verdict"] for row in diagnose([tmp_path]).rows] == ["not_enough_data"]


def test_too_little_of_everything_is_no_verdict(tmp_path: Path, command: Command) -> None:
    short = OriginalAttempt(max_steps=20, log_every=10, startup_s=5)
    rows, notes = command(write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(short,))))
    assert figures(rows[0]) == ["", "", "", "", "", "not_enough_data"] and rows[0]["tail_iter_ms"] == "400"
    assert states(notes, "gpu: no figures: gpu_telemetry.csv: ", "9 samples", "10")
    assert "no drift: 3 timing points after the warm-up" in notes


SHORT = OriginalAttempt(max_steps=20, log_every=10)
GROUP = "sweep_z0_mb128_nw6_pf4"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    runs = (sweep_run(0, 160, attempts=(SHORT,)), sweep_run(0, 128, repeat=2, attempts=(SHORT,)), sweep_run(0, 128, attempts=(SHORT,)))
    return write_original_campaign(tmp_path / "bench", *runs)


def test_of_a_campaign_each_run_comes_once_groups_as_written_and_repeats_in_order(bench: Path) -> None:
    runs = RunFinder().runs(bench)
    assert [run.name for run in runs] == ["sweep_z0_mb160_nw6_pf4_r1", f"{GROUP}_r1", f"{GROUP}_r2"]
    assert {(run.output_root, run.notes) for run in runs} == {(str(bench), ())}
    assert all(run.cells["status"] == "success" and not run.is_numbered for run in runs)


@pytest.fixture
def run(tmp_path: Path) -> LeakRun:
    root = write_original_campaign(tmp_path / "bench", sweep_run(attempts=(OriginalAttempt(max_steps=100, log_every=50),)))
    (one,) = RunFinder().runs(root)
    return one


def span_of(run: LeakRun) -> Span | None:
    assert run.campaign is not None
    return run_span(run, run.campaign)


@pytest.mark.parametrize(
    "outcome", [[], {**to_json(ENDED), "started_t": 9.0, "ended_t": 8.0}, {**to_json(ENDED), "started_t": "1", "ended_t": 2.0}]
)
def test_an_outcome_that_has_no_time_leaves_it_to_the_logs(run: LeakRun, outcome: object) -> None:
    by_logs = span_of(run)
    assert by_logs is not None and by_logs.source == "launcher.log"
    write_json(AttemptPaths(run.folder).outcome, outcome)
    assert span_of(run) == by_logs
