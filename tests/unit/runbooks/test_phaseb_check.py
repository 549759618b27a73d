"""The stability check: every threshold at, below and above it, damaged manifests, and what it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from seatrial_runbooks.stage1.phaseb_check import SENTINELS, Thresholds, check, main, report_text
from tests.original_campaign import OLD_COLUMNS, OriginalAttempt, sweep_run, write_original_campaign

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


def test_the_figures_are_the_seeds(tmp_path: Path) -> None:
    rows = [row(1, 100, 1.1), row(2, 110, 1.5, gpu_telemetry_empty_flag="true"), row(3, 90, 1.2), row(4, 100, 1.4)]
    found = check(campaign(tmp_path, rows), Thresholds(max_iter_p50_cv=1), groups=[GROUP]).groups[0]
    assert (found.num_repeats, found.ratio_median, found.ratio_max, found.iter_p50_ms) == (4, pytest.approx(1.3), 1.5, 100)
    # Deviations 0, 10, -10, 0: sample variance 200/3.
    assert found.iter_p50_cv == pytest.approx((200 / 3) ** 0.5 / 100)
    assert found.telemetry_empty_ratio == 0.25 and found.reasons == ()


@pytest.mark.parametrize(("repeats", "passes"), [(2, False), (3, True), (4, True)])
def test_repeats_at_below_and_above(tmp_path: Path, repeats: int, passes: bool) -> None:
    found = reasons(campaign(tmp_path, [row(at) for at in range(1, repeats + 1)]))
    assert found == (() if passes else ("successful repeats: 2, at least 3 are needed (--min-repeats)",))


@pytest.mark.parametrize(("median", "passes"), [(1.49, True), (1.5, True), (1.51, False)])
def test_median_ratio_at_below_and_above(tmp_path: Path, median: float, passes: bool) -> None:
    found = reasons(campaign(tmp_path, [row(1, ratio=1.0), row(2, ratio=median), row(3, ratio=2.0)]))
    assert found == (() if passes else ("median iter p90/p50 1.51 is above 1.5 (--max-iter-ratio-median)",))


@pytest.mark.parametrize(("largest", "passes"), [(2.49, True), (2.5, True), (2.51, False)])
def test_largest_ratio_at_below_and_above(tmp_path: Path, largest: float, passes: bool) -> None:
    found = reasons(campaign(tmp_path, [row(1), row(2), row(3, ratio=largest)]))
    assert found == (() if passes else ("largest iter p90/p50 2.51 is above 2.5 (--max-iter-ratio-max)",))


@pytest.mark.parametrize(("spread_ms", "passes"), [(4.9, True), (5.0, True), (5.1, False)])
def test_cv_at_below_and_above(tmp_path: Path, spread_ms: float, passes: bool) -> None:
    # Three values a, a + d, a - d have the sample standard deviation d.
    found = reasons(campaign(tmp_path, [row(1, 100), row(2, 100 + spread_ms), row(3, 100 - spread_ms)]))
    assert found == (() if passes else ("CV of iter p50 0.051 is above 0.05 (--max-iter-p50-cv)",))


def test_a_limit_that_rounding_misses_is_still_the_limit(tmp_path: Path) -> None:
    # 0.1 by any reckoning, and 0.10000000000000009 by that of floating point.
    assert reasons(campaign(tmp_path, [row(1, 1.3), row(2, 1.43), row(3, 1.17)]), max_iter_p50_cv=0.1) == ()


@pytest.mark.parametrize(("limit", "passes"), [(0.3, False), (0.5, True), (0.6, True)])
def test_share_without_telemetry_at_below_and_above(tmp_path: Path, limit: float, passes: bool) -> None:
    rows = [row(at, gpu_telemetry_empty_flag=word) for at, word in enumerate(("true", "true", "false", "false"), 1)]
    found = reasons(campaign(tmp_path, rows), max_telemetry_empty_ratio=limit)
    assert found == (() if passes else ("share without GPU telemetry 0.5 is above 0.3 (--max-telemetry-empty-ratio)",))


def test_without_any_gpu_the_default_does_not_ask_for_telemetry(tmp_path: Path) -> None:
    rows = [row(at, gpu_telemetry_empty_flag="true") for at in (1, 2, 3)]
    assert reasons(campaign(tmp_path, rows)) == ()
    assert len(reasons(tmp_path, max_telemetry_empty_ratio=0.99)) == 1


def test_a_flag_nobody_told_matters_only_where_it_is_asked_for(tmp_path: Path) -> None:
    rows = [row(1), row(2), row(3, gpu_telemetry_empty_flag="")]
    assert reasons(campaign(tmp_path, rows)) == ()
    assert "is not told" in reasons(tmp_path, max_telemetry_empty_ratio=0.5)[0]


@pytest.mark.parametrize("cell", ["", "nan", "NaN", "inf", "none", "0", "-1"])
@pytest.mark.parametrize("column", ["iter_p90_over_p50", "last_iter_ms_p50"])
def test_a_cell_without_a_number_never_passes(tmp_path: Path, column: str, cell: str) -> None:
    found = reasons(campaign(tmp_path, [row(1), row(2), {**row(3), column: cell}]))
    assert found == (f"no usable {column} in r3: a run that printed too few timing lines has none",)


def test_a_manifest_without_the_column_never_passes(tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name != "iter_p90_over_p50")
    found = reasons(campaign(tmp_path, [row(1), row(2), row(3)], columns))
    assert found == ("no usable iter_p90_over_p50 in r1, r2, r3: the manifest has no such column",)


def test_one_repeat_is_not_enough_for_a_cv_even_when_asked_for(tmp_path: Path) -> None:
    found = reasons(campaign(tmp_path, [row(1)]), min_repeats=1)
    assert found == ("a CV of iter p50 needs at least 2 repeats: one says nothing of the spread between them",)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [("z0_mb128_nw6_pf4", f"did you mean '{GROUP}'?"), ("tuned", f"known: {GROUP}")],
)
def test_a_group_without_rows_names_the_nearest(tmp_path: Path, asked: str, hint: str) -> None:
    assert reasons(campaign(tmp_path, [row(1), row(2), row(3)]), asked) == (f"the manifest has no row of this group; {hint}",)


def test_of_one_repeat_only_the_newest_success_counts(tmp_path: Path) -> None:
    rows = [row(1, 900), row(1, 400), row(2, status="failed", ratio=""), row(2), row(3)]
    report = check(campaign(tmp_path, rows), Thresholds(), groups=[GROUP])
    assert report.groups[0].num_repeats == 3 and report.groups[0].iter_p50_ms == 400 and report.passed
    assert report.notes == (f"{GROUP}: 2 other rows were passed over, of repeats that count by their newest success",)


def test_of_our_attempts_the_highest_counts_and_replaced_ones_do_not(tmp_path: Path) -> None:
    rows = [
        row(1, 400, attempt=2, current="true"), row(1, 900, attempt=1, current="true"), row(2, attempt=1, current="false"),
        row(2, status="failed", attempt=2, current="true"), row(3, attempt=1, current="true"),
    ]  # fmt: skip
    report = check(campaign(tmp_path, rows, OUR_COLUMNS), Thresholds(min_repeats=2), groups=[GROUP])
    assert (report.groups[0].num_repeats, report.groups[0].num_failed, report.groups[0].iter_p50_ms) == (2, 1, 400)
    assert [note.removeprefix(f"{GROUP}: ") for note in report.notes] == [
        "1 row was passed over, of attempts that no longer count",
        "1 other row was passed over, of repeats that count by their newest success",
    ]


def test_a_group_of_which_no_attempt_counts_any_more_says_so(tmp_path: Path) -> None:
    rows = [row(at, attempt=1, current="false") for at in (1, 2, 3)]
    assert reasons(campaign(tmp_path, rows, OUR_COLUMNS)) == (
        "all its rows are of attempts that no longer count (column current); run it again",
    )


def test_a_failed_repeat_is_shown_and_not_counted(tmp_path: Path) -> None:
    found = check(campaign(tmp_path, [row(1), row(2), row(3, status="failed")]), Thresholds(), groups=[GROUP]).groups[0]
    assert (found.num_repeats, found.num_failed) == (2, 1) and len(found.reasons) == 1


def original(root: Path, **more: object) -> Path:
    """Both sentinels three times, the first of them after a failed start."""
    failed = OriginalAttempt(status="failed", exit_code=1, last_step=100)
    first = [sweep_run(0, 128, 6, 4, repeat=at, attempts=(failed, OriginalAttempt(iter_p50_ms=400.0 + at))) for at in (1, 2, 3)]
    second = [sweep_run(1, 160, 6, 2, repeat=at) for at in (1, 2, 3)]
    return write_original_campaign(root, *first, *second, **more)  # type: ignore[arg-type]


def test_the_original_s_folder_passes_with_duplicates_and_a_torn_line(tmp_path: Path) -> None:
    report = check(original(tmp_path / "bench", torn_line=True, crlf=True, bom=True), Thresholds())
    assert report.passed, report_text(report)
    assert [(group.group, group.num_repeats) for group in report.groups] == [(name, 3) for name in SENTINELS]
    assert report.groups[0].iter_p50_ms == pytest.approx(402) and report.groups[1].iter_p50_cv == 0
    assert report.notes[0] == "1 torn row was passed over" and "3 other rows were passed over" in report.notes[1]


def test_another_version_s_header_is_read_by_name_and_does_not_pass(tmp_path: Path) -> None:
    report = check(original(tmp_path / "bench", columns=OLD_COLUMNS), Thresholds())
    assert not report.passed and report.groups[0].num_repeats == 3
    assert "the manifest has no such column" in report.groups[0].reasons[0]


def test_the_command_passes_with_0_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output-root", str(original(tmp_path / "bench"))]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[1].split()[:4] == ["group", "repeats", "failed", "ratio_median"]
    assert lines[2].split() == [SENTINELS[0], "3", "0", "1.1", "1.1", "402", "0.00248756", "0"]
    assert lines[4].split() == ["limit", ">=", "3", "-", "<=", "1.5", "<=", "2.5", "-", "<=", "0.05", "<=", "1"]
    assert lines[-2:] == [f"[PASS] {name}: stable over 3 repeats" for name in SENTINELS] and "[FAIL]" not in said


def test_the_command_fails_with_2_and_never_says_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output-root", str(original(tmp_path / "bench")), "--groups", f"{SENTINELS[0]}, nothing_like_it"]) == 2
    said = capsys.readouterr().out
    assert "[PASS]" not in said and "[FAIL] nothing_like_it: the manifest has no row of this group" in said


def test_no_manifest_is_a_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output-root", str(tmp_path)]) == 2
    assert capsys.readouterr().out.startswith(f"[FAIL] {tmp_path}/run_manifest.tsv cannot be used: there is no such file")


def test_a_manifest_by_its_own_name_goes_first(tmp_path: Path) -> None:
    root = campaign(tmp_path, [row(1), row(2), row(3)])
    moved = (root / "run_manifest.tsv").rename(tmp_path / "old.tsv")
    assert main(["--output-root", str(root), "--manifest", str(moved), "--groups", GROUP]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output_root", "x"], "did you mean '--output-root'?"),
        (["--min-repeat", "3", "--output-root", "x"], "did you mean '--min-repeats'?"),
        (["--output-root", "x", "extra"], "unknown word 'extra'"),
        (["--output-root", "x", "--min-repeats", "0"], "argument --min-repeats: '0' is no count"),
        (["--output-root", "x", "--min-repeats", "2.5"], "argument --min-repeats: '2.5' is no count"),
        (["--output-root", "x", "--max-iter-p50-cv", "5%"], "argument --max-iter-p50-cv: '5%' is no limit"),
        (["--output-root", "x", "--max-iter-ratio-max", "nan"], "argument --max-iter-ratio-max: 'nan' is no limit"),
        (["--output-root", "x", "--max-iter-ratio-median", "-1"], "argument --max-iter-ratio-median"),
        (["--output-root", "x", "--groups", " , "], "--groups names no group"),
        (["--output-root"], "argument --output-root: expected one argument"),
        ([], "give its folder by --output-root"),
    ],
)
def test_wrong_use_is_1_and_no_verdict(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    told = capsys.readouterr()
    assert said in told.err and told.out == ""


def test_the_script_needs_the_standard_library_only(tmp_path: Path) -> None:
    root = original(tmp_path / "bench")
    words = [str(SCRIPT), "--output-root", str(root), "--max-iter-p50-cv", "0.001"]
    # -S: without any installed package.
    done = subprocess.run([sys.executable, "-S", *words], capture_output=True, text=True, check=False)
    assert SCRIPT.stat().st_mode & 0o111 and SCRIPT.read_text().startswith("#!/usr/bin/env python3\n")
    assert done.returncode == 2, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"[FAIL] {SENTINELS[0]}: CV of iter p50")
