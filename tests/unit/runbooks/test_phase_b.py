"""Phase B, run and checked."""

from __future__ import annotations

import csv
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from seatrial.analyse.gpu_throttling import gpu_causes
from seatrial.analyse.telemetry_summary import WindowSpan
from seatrial.cli import run as harness
from seatrial.cli.run import RunOptions
from seatrial.core.paths import RunPaths
from seatrial.records.measure import ANTI_CORRELATED_GPUS
from seatrial.records.plan import CampaignPlan
from seatrial.records.verdict import Verdict
from seatrial_runbooks.stage1 import driver, phaseb
from seatrial_runbooks.stage1.phaseb_check import SENTINELS, Thresholds, check, main, report_text
from seatrial_runbooks.stage1.platform_jitter import most_opposed, platform_jitter, simultaneous, utilisation
from tests.facts import states
from tests.original_campaign import OLD_COLUMNS, OriginalAttempt, sweep_run, write_original_campaign

# What the two single commands of the procedure say.
FIRST = {"SWEEP_ZERO_STAGES": "0", "SWEEP_MICRO_BATCHES": "128", "SWEEP_NUM_WORKERS_LIST": "6", "SWEEP_PREFETCH_LIST": "4"}
SECOND = {"SWEEP_ZERO_STAGES": "1", "SWEEP_MICRO_BATCHES": "160", "SWEEP_NUM_WORKERS_LIST": "6", "SWEEP_PREFETCH_LIST": "2"}
SINGLE = {"MODE": "sweep", "REPEATS": "3", "MAX_STEPS": "1000", "TIMING_RANK_SCOPE": "all"}


class HarnessCalls:
    """Stands in for the harness and the check."""

    def __init__(self) -> None:
        self.plans: list[CampaignPlan] = []
        self.checked: list[list[str]] = []
        self.code, self.verdict = 0, 0

    def execute(self, plan: CampaignPlan, how: RunOptions) -> int:
        self.plans.append(plan)
        return self.code

    def check(self, argv: list[str], *, remedy: str) -> int:
        self.checked.append(argv)
        return self.verdict


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> HarnessCalls:
    made = HarnessCalls()
    monkeypatch.setattr(harness, "execute", made.execute)
    monkeypatch.setattr(phaseb, "check", made.check)
    return made


@pytest.fixture
def exported(folder: Path, small: dict[str, str]) -> dict[str, str]:
    """What the procedure exports beforehand: nothing of the matrix, no number of steps or repeats."""
    return {name: value for name, value in small.items() if not name.startswith("SWEEP_") and name not in SINGLE}


@pytest.fixture
def run(exported: dict[str, str]) -> Callable[..., int]:
    return lambda *argv, **environ: phaseb.main({**exported, **environ}, argv)


def hashes(plans: list[CampaignPlan]) -> dict[str, str]:
    return {run.run: run.hash for plan in plans for run in plan.runs}


def test_the_sentinels_three_times_each(run: Callable[..., int], calls: HarnessCalls, folder: Path) -> None:
    assert run() == 0
    assert [spec.run for plan in calls.plans for spec in plan.runs] == [f"{group}_r{n}" for group in SENTINELS for n in (1, 2, 3)]
    assert {(spec.steps, spec.rank_scope) for plan in calls.plans for spec in plan.runs} == {(1001, "all")}
    # What a phase C that needs it looks for.
    assert {criterion.ready for plan in calls.plans for criterion in plan.criteria} == {"stage1_stability"}
    assert calls.checked == [["--output-root", str(folder / "out"), "--groups", ",".join(SENTINELS)]]


def test_they_are_the_runs_of_the_two_single_commands(run: Callable[..., int], calls: HarnessCalls, exported: dict[str, str]) -> None:
    run()
    in_one = list(calls.plans)
    calls.plans.clear()
    for sentinel in (FIRST, SECOND):
        assert driver.main({**exported, **SINGLE, **sentinel}, []) == 0
    assert hashes(in_one) == hashes(calls.plans)
    assert [plan.name for plan in in_one] == [plan.name for plan in calls.plans]


def test_steps_and_repeats_can_be_changed_and_the_matrix_cannot(
    run: Callable[..., int], calls: HarnessCalls, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last two are what the table has by itself: the page that exports them for all commands has wished for nothing.
    given = {"SWEEP_MICRO_BATCHES": "4", "SWEEP_NUM_WORKERS": "1", "MODE": "ab", "TIMING_RANK_SCOPE": "rank0"}
    run(MAX_STEPS="5", REPEATS="1", SWEEP_LOG_EVERY="1", SWEEP_ZERO_STAGES="0", **given)
    assert [spec.group for plan in calls.plans for spec in plan.runs] == list(SENTINELS)
    assert (calls.plans[0].runs[0].steps, calls.plans[0].runs[0].rank_scope) == (6, "all")
    warned = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "has no effect: phase B runs" in line]
    assert sorted(warned) == ["SWEEP_MICRO_BATCHES", "SWEEP_NUM_WORKERS"]


@pytest.mark.parametrize(("code", "verdict", "ended", "num_checks"), [(0, 2, 2, 1), (2, 2, 2, 1), (3, 0, 0, 1), (130, 0, 130, 0)])
def test_the_check_has_the_last_word_unless_interrupted(
    run: Callable[..., int], calls: HarnessCalls, code: int, verdict: int, ended: int, num_checks: int
) -> None:
    calls.code, calls.verdict = code, verdict
    assert (run(), len(calls.checked)) == (ended, num_checks)


def test_wrong_use_is_reported_and_nothing_is_checked(
    run: Callable[..., int], calls: HarnessCalls, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(REPEATS="x") == 1
    assert (calls.plans, calls.checked) == ([], [])
    assert "[ERROR] REPEATS is 'x'" in capsys.readouterr().err


def test_a_dry_run_shows_both(run: Callable[..., int], calls: HarnessCalls, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dry-run") == 0
    text = capsys.readouterr().out
    assert all(f"{group}_r3\n" in text for group in SENTINELS)
    assert (calls.plans, calls.checked) == ([], [])


def test_without_output_root_the_folder_is_the_procedures_own(run: Callable[..., int], calls: HarnessCalls, folder: Path) -> None:
    run(OUTPUT_ROOT="")
    assert calls.plans[0].output == str(folder / "outputs" / "bench_4090_phaseB_diag")


def test_help_has_the_procedures_own_defaults(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert "run_phaseb_4090_stability.sh" in text and "0 stable" in text
    flat = " ".join(text.split())
    assert "default 1000. Becomes: steps" in flat and "default 5000. Becomes: steps" not in flat


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"ZERO_STAGE": "1"}, "ZERO_STAGE is not a variable of this driver: phase B sets it itself; IGNORE_UNKNOWN=1"),
        ({"TRAIN_ENGINE": "ddp"}, "ddp has no ZeRO: use TRAIN_ENGINE=deepspeed\n"),
        ({"REPEATS": "2000"}, "add --yes to confirm, or lower REPEATS\n"),
    ],
)
def test_no_hint_names_what_phase_b_sets_itself(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], environ: dict[str, str], text: str
) -> None:
    assert run(**environ) == 1
    assert text in capsys.readouterr().err


def test_too_few_repeats_and_nonsense_are_reported_before_the_start(
    run: Callable[..., int], calls: HarnessCalls, capsys: pytest.CaptureFixture[str]
) -> None:
    run(REPEATS="1")
    assert "[WARN] REPEATS is 1, but the check needs 3: it cannot pass" in capsys.readouterr().out
    calls.plans.clear()
    assert run(SWEEP_MICRO_BATCHES="abc") == 1
    assert calls.plans == [] and "[ERROR] SWEEP_MICRO_BATCHES is 'abc'" in capsys.readouterr().err


SCRIPT = Path(__file__).parents[3] / "runbooks" / "stage1" / "scripts" / "check_phaseb_stability.py"
COLUMNS = ("mode", "group", "repeat", "status", "last_iter_ms_p50", "iter_p90_over_p50", "gpu_telemetry_empty_flag")
OUR_COLUMNS = (*COLUMNS, "attempt", "current")
GROUP = "sweep_z0_mb128_nw6_pf4"
CELLS = {"mode": "sweep", "group": GROUP, "status": "success", "gpu_telemetry_empty_flag": "false"}


def row(repeat: int, iter_ms: object = 400.0, ratio: object = 1.1, **more: object) -> dict[str, str]:
    cells = {**CELLS, "repeat": repeat, "last_iter_ms_p50": iter_ms, "iter_p90_over_p50": ratio, **more}
    return {name: str(value) for name, value in cells.items()}


def campaign(root: Path, rows: Iterable[Mapping[str, str]], columns: tuple[str, ...] = COLUMNS) -> Path:
    lines = ["\t".join(columns), *("\t".join(cells.get(name, "") for name in columns) for cells in rows)]
    (root / "run_manifest.tsv").write_text("".join(f"{line}\n" for line in lines))
    return root


def reasons(root: Path, group: str = GROUP, **thresholds: float) -> tuple[str, ...]:
    return check(root, Thresholds(**thresholds), groups=[group]).groups[0].reasons  # type: ignore[arg-type]


HALF_WITHOUT = [row(at, gpu_telemetry_empty_flag=flag) for at, flag in enumerate(("true", "true", "false", "false"), 1)]


def test_the_figures_are_the_seeds(tmp_path: Path) -> None:
    rows = [row(1, 100, 1.1), row(2, 110, 1.5, gpu_telemetry_empty_flag="true"), row(3, 90, 1.2), row(4, 100, 1.4)]
    found = check(campaign(tmp_path, rows), Thresholds(max_iter_p50_cv=1), groups=[GROUP]).groups[0]
    assert (found.num_repeats, found.ratio_median, found.ratio_max, found.iter_p50_ms) == (4, pytest.approx(1.3), 1.5, 100)
    # Deviations 0, 10, -10, 0: sample variance 200/3.
    assert found.iter_p50_cv == pytest.approx((200 / 3) ** 0.5 / 100)
    assert found.telemetry_empty_ratio == 0.25 and found.reasons == ()


@pytest.mark.parametrize(
    ("rows", "thresholds", "reason"),
    [
        ([row(1), row(2)], {}, "successful repeats: 2, at least 3 are needed (--min-repeats)"),
        ([row(at) for at in (1, 2, 3)], {}, None),
        ([row(1, ratio=1.0), row(2, ratio=1.5), row(3, ratio=2.0)], {}, None),
        ([row(1, ratio=1.0), row(2, ratio=1.51), row(3, ratio=2.0)], {}, "median iter p90/p50 1.51 is above 1.5 (--max-iter-ratio-median)"),
        ([row(1), row(2), row(3, ratio=2.5)], {}, None),
        ([row(1), row(2), row(3, ratio=2.51)], {}, "largest iter p90/p50 2.51 is above 2.5 (--max-iter-ratio-max)"),
        # Three values a, a + d, a - d have the sample standard deviation d.
        ([row(1, 100), row(2, 105), row(3, 95)], {}, None),
        ([row(1, 100), row(2, 105.1), row(3, 94.9)], {}, "CV of iter p50 0.051 is above 0.05 (--max-iter-p50-cv)"),
        # 0.1 on paper, and 0.10000000000000009 in floating point.
        ([row(1, 1.3), row(2, 1.43), row(3, 1.17)], {"max_iter_p50_cv": 0.1}, None),
        (HALF_WITHOUT, {"max_telemetry_empty_ratio": 0.5}, None),
        (
            HALF_WITHOUT,
            {"max_telemetry_empty_ratio": 0.3},
            "share without GPU telemetry 0.5 is above 0.3 (--max-telemetry-empty-ratio)",
        ),
        ([row(1)], {"min_repeats": 1}, "the CV of iter p50 needs at least 2 repeats"),
    ],
)
def test_each_limit_at_and_above(tmp_path: Path, rows: list[dict[str, str]], thresholds: dict[str, float], reason: str | None) -> None:
    assert reasons(campaign(tmp_path, rows), **thresholds) == (() if reason is None else (reason,))


def test_without_any_gpu_the_default_does_not_ask_for_telemetry(tmp_path: Path) -> None:
    rows = [row(at, gpu_telemetry_empty_flag="true") for at in (1, 2, 3)]
    assert reasons(campaign(tmp_path, rows)) == ()
    assert len(reasons(tmp_path, max_telemetry_empty_ratio=0.99)) == 1


def test_a_flag_without_a_value_matters_only_with_a_limit(tmp_path: Path) -> None:
    rows = [row(1), row(2), row(3, gpu_telemetry_empty_flag="")]
    assert reasons(campaign(tmp_path, rows)) == ()
    assert "GPU telemetry is unknown" in reasons(tmp_path, max_telemetry_empty_ratio=0.5)[0]


@pytest.mark.parametrize("cell", ["", "nan", "inf", "0", "-1"])
@pytest.mark.parametrize("column", ["iter_p90_over_p50", "last_iter_ms_p50"])
def test_a_cell_without_a_number_never_passes(tmp_path: Path, column: str, cell: str) -> None:
    found = reasons(campaign(tmp_path, [row(1), row(2), {**row(3), column: cell}]))
    assert found == (f"no usable {column} in r3: the run printed too few timing lines",)


def test_a_manifest_without_the_column_never_passes(tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name != "iter_p90_over_p50")
    found = reasons(campaign(tmp_path, [row(1), row(2), row(3)], columns))
    (reason,) = found
    assert states(reason, "iter_p90_over_p50", "r1, r2, r3", "no such column")


@pytest.mark.parametrize(
    ("calls", "hint"),
    [("z0_mb128_nw6_pf4", f"did you mean '{GROUP}'?"), ("tuned", f"known: {GROUP}")],
)
def test_a_group_without_rows_names_the_nearest(tmp_path: Path, calls: str, hint: str) -> None:
    assert reasons(campaign(tmp_path, [row(1), row(2), row(3)]), calls) == (f"the manifest has no rows of this group; {hint}",)


def test_of_one_repeat_only_the_newest_success_counts(tmp_path: Path) -> None:
    rows = [row(1, 900), row(1, 400), row(2, status="failed", ratio=""), row(2), row(3)]
    report = check(campaign(tmp_path, rows), Thresholds(), groups=[GROUP])
    assert report.groups[0].num_repeats == 3 and report.groups[0].iter_p50_ms == 400 and not report.groups[0].reasons
    (note,) = report.notes
    assert states(note, GROUP, "2 other rows", "older attempts")


def test_of_our_attempts_the_highest_counts_and_replaced_ones_do_not(tmp_path: Path) -> None:
    rows = [
        row(1, 400, attempt=2, current="true"), row(1, 900, attempt=1, current="true"), row(2, attempt=1, current="false"),
        row(2, status="failed", attempt=2, current="true"), row(3, attempt=1, current="true"),
    ]  # fmt: skip
    report = check(campaign(tmp_path, rows, OUR_COLUMNS), Thresholds(min_repeats=2), groups=[GROUP])
    assert (report.groups[0].num_repeats, report.groups[0].num_failed, report.groups[0].iter_p50_ms) == (2, 1, 400)
    superseded, older = report.notes
    assert states(superseded, GROUP, "1 row", "superseded") and states(older, GROUP, "1 other row", "older attempts")


def test_a_group_of_which_no_attempt_counts_any_more_says_so(tmp_path: Path) -> None:
    rows = [row(at, attempt=1, current="false") for at in (1, 2, 3)]
    (reason,) = reasons(campaign(tmp_path, rows, OUR_COLUMNS))
    assert states(reason, "superseded", "current", "run it again")


def original(root: Path, **more: object) -> Path:
    """Both sentinels three times, the first of them after a failed start."""
    failed = OriginalAttempt(status="failed", exit_code=1, last_step=100)
    first = [sweep_run(0, 128, 6, 4, repeat=at, attempts=(failed, OriginalAttempt(iter_p50_ms=400.0 + at))) for at in (1, 2, 3)]
    second = [sweep_run(1, 160, 6, 2, repeat=at) for at in (1, 2, 3)]
    return write_original_campaign(root, *first, *second, **more)  # type: ignore[arg-type]


def test_the_original_s_folder_passes_with_duplicates_and_a_torn_line(tmp_path: Path) -> None:
    report = check(original(tmp_path / "bench", torn_line=True, crlf=True, bom=True), Thresholds())
    assert report.verdict is Verdict.PASS, report_text(report)
    assert [(group.group, group.num_repeats) for group in report.groups] == [(name, 3) for name in SENTINELS]
    assert report.groups[0].iter_p50_ms == pytest.approx(402) and report.groups[1].iter_p50_cv == 0
    assert report.notes[0] == "1 truncated row was skipped" and "3 other rows were skipped" in report.notes[1]


def test_another_version_s_header_is_read_by_name_and_does_not_pass(tmp_path: Path) -> None:
    report = check(original(tmp_path / "bench", columns=OLD_COLUMNS), Thresholds())
    assert report.verdict is Verdict.FAIL and report.groups[0].num_repeats == 3
    assert "the manifest has no such column" in report.groups[0].reasons[0]


def test_the_command_passes_with_0_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output-root", str(original(tmp_path / "bench"))]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[1].split()[:4] == ["group", "repeats", "failed", "ratio_median"]
    assert lines[2].split() == [SENTINELS[0], "3", "0", "1.1", "1.1", "402", "0.00248756", "0"]
    assert lines[4].split() == ["limit", ">=", "3", "-", "<=", "1.5", "<=", "2.5", "-", "<=", "0.05", "<=", "1"]
    assert lines[-2:] == [f"[PASS] {name}: stable over 3 repeats" for name in SENTINELS] and "[FAIL]" not in text


def test_the_command_fails_with_2_and_never_says_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output-root", str(original(tmp_path / "bench")), "--groups", f"{SENTINELS[0]}, nothing_like_it"]) == 2
    text = capsys.readouterr().out
    assert "[PASS]" not in text and states(text, "[FAIL] nothing_like_it:", "no rows")


def test_no_manifest_is_a_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output-root", str(tmp_path)]) == 2
    assert capsys.readouterr().out.startswith(f"[FAIL] {tmp_path}/run_manifest.tsv cannot be used: there is no such file")


def test_a_manifest_by_its_own_name_goes_first(tmp_path: Path) -> None:
    root = campaign(tmp_path, [row(1), row(2), row(3)])
    moved = (root / "run_manifest.tsv").rename(tmp_path / "old.tsv")
    assert main(["--output-root", str(root), "--manifest", str(moved), "--groups", GROUP]) == 3, "it has no runs beside it"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--output_root", "x"], "did you mean '--output-root'?"),
        (["--output-root", "x", "extra"], "unknown argument 'extra'"),
        (["--output-root", "x", "--min-repeats", "0"], "argument --min-repeats: '0' is not a count"),
        (["--output-root", "x", "--max-iter-p50-cv", "5%"], "argument --max-iter-p50-cv: '5%' is not a limit"),
        (["--output-root", "x", "--max-iter-ratio-max", "nan"], "argument --max-iter-ratio-max: 'nan' is not a limit"),
        (["--output-root", "x", "--max-iter-ratio-median", "-1"], "argument --max-iter-ratio-median"),
        (["--output-root", "x", "--groups", " , "], "--groups is empty"),
        (["--output-root"], "argument --output-root: expected one argument"),
        ([], "folder by --output-root"),
    ],
)
def test_wrong_use_is_1_and_no_verdict(argv: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    output = capsys.readouterr()
    assert text in output.err and output.out == ""


TELEMETRY = Path(__file__).parents[2] / "recorded" / "telemetry"


def with_telemetry(root: Path, name: str) -> Path:
    """A campaign whose figures pass, the second repeat of the first sentinel with recorded samples of its two GPUs."""
    shutil.copy(TELEMETRY / f"{name}.csv", original(root) / f"{SENTINELS[0]}_r2" / "gpu_telemetry.csv")
    return root


def test_gpus_that_take_turns_stop_phase_b_whatever_the_step_times_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output-root", str(with_telemetry(tmp_path / "turns", "gpus_in_turns"))]) == 2
    text = capsys.readouterr().out
    assert states(text, f"[FAIL] {SENTINELS[0]}: ", "GPU 0 and GPU 1", "anti-correlated", "-0.")
    assert text.count("[FAIL]") == 1 and text.rstrip().endswith(" in r2")
    assert main(["--output-root", str(with_telemetry(tmp_path / "together", "gpus_together"))]) == 0


def test_a_ratio_persistently_above_2_stops_phase_b_even_where_the_last_window_is_steady(tmp_path: Path) -> None:
    def runs(ratio: float) -> list[Any]:
        attempt = OriginalAttempt(max_steps=1000, iter_p90_over_p50=ratio)
        return [sweep_run(0, 128, 6, 4, repeat=at, attempts=(attempt,)) for at in (1, 2, 3)]

    root = write_original_campaign(tmp_path / "jitter", *runs(2.1))
    # The manifest has the last window alone.
    shutil.copy(write_original_campaign(tmp_path / "steady", *runs(1.1)) / "run_manifest.tsv", root / "run_manifest.tsv")
    (reason,) = reasons(root)
    assert states(reason, "p90/p50", 2, "19 of 19", "r1, r2, r3")
    assert reasons(tmp_path / "steady") == ()


def test_what_could_not_be_looked_at_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_original_campaign(tmp_path, *(sweep_run(0, 128, 6, 4, repeat=at, gpu_telemetry="header") for at in (1, 2, 3)))
    assert check(root, Thresholds(), groups=[GROUP]).verdict is Verdict.INCONCLUSIVE
    assert main(["--output-root", str(root), "--groups", GROUP]) == 3
    text = capsys.readouterr().out
    assert states(text, f"[INCONCLUSIVE] {GROUP}: ", "anti-correlated GPU utilisation", "gpu_telemetry.csv", "r1, r2, r3")
    assert "[PASS]" not in text and "[FAIL]" not in text
    # A failure is one whatever else is unknown.
    assert main(["--output-root", str(root), "--groups", GROUP, "--max-iter-ratio-max", "1.01"]) == 2


@pytest.mark.parametrize(
    ("devices", "uuids", "device", "is_known"),
    [
        ((), "", "auto", True),
        (("0",), "a", "auto", True),
        ((), "a;b", "cpu", True),
        (("0", "1"), "", "auto", False),
        ((), "a", "auto", False),
    ],
)
def test_ranks_without_two_gpus_take_no_turns(tmp_path: Path, devices: tuple[str, ...], uuids: str, device: str, is_known: bool) -> None:
    attempt = RunPaths(tmp_path / "z0_r1").attempt(1)
    attempt.folder.mkdir(parents=True)
    attempt.train_log.write_text("")
    place = {"hosts": [], "devices": list(devices), "nodes": 1}
    attempt.spec.write_text(json.dumps({"place": place, "settings": {"device": device}}))
    attempt.provenance.write_text(json.dumps({"gpu_uuid_list": uuids}))
    unknown = platform_jitter(tmp_path, "z0_r1", 1).unknown
    assert any("anti-correlated GPU utilisation" in text for text in unknown) is not is_known


@pytest.mark.parametrize("name", ["gpus_in_turns", "gpus_together"])
@pytest.mark.parametrize("noise", [0, 20, 60])
def test_the_check_finds_turns_where_the_report_does(name: str, noise: int) -> None:
    rng = random.Random(noise)
    rows = [
        {**row, "util_gpu_pct": str(min(100, max(0, int(row["util_gpu_pct"]) + rng.randint(-noise, noise))))}
        for row in csv.DictReader((TELEMETRY / f"{name}.csv").read_text().splitlines())
    ]
    by_gpu = utilisation(rows)
    samples = simultaneous(by_gpu)
    opposed = most_opposed(list(by_gpu), samples)
    # The same samples: the report has them of the run's steady window.
    columns = [(2.0 * at, float(gpu), util) for at, row in enumerate(samples) for gpu, util in enumerate(row)]
    table = pl.DataFrame(columns, schema=["epoch_sec", "gpu_index", "util_gpu_pct"], orient="row")
    found = [cause for cause in gpu_causes(table, WindowSpan(), 2) if cause.kind == ANTI_CORRELATED_GPUS]
    assert bool(opposed) == bool(found)
    if opposed:
        assert opposed[2] == pytest.approx(found[0].numbers["rank_correlation"])


def test_the_script_needs_the_standard_library_only(tmp_path: Path) -> None:
    root = original(tmp_path / "bench")
    argv = [str(SCRIPT), "--output-root", str(root), "--max-iter-p50-cv", "0.001"]
    # -S: without any installed package.
    done = subprocess.run([sys.executable, "-S", *argv], capture_output=True, text=True, check=False)
    assert SCRIPT.stat().st_mode & 0o111 and SCRIPT.read_text().startswith("#!/usr/bin/env python3\n")
    assert done.returncode == 2, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"[FAIL] {SENTINELS[0]}: CV of iter p50")
