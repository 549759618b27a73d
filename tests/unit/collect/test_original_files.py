"""Files of the original scripts: manifests, logs, stamps and telemetry, intact and damaged."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from seatrial.collect.original.attempt_records import (
    RunSamples,
    SampleFile,
    account_of,
    named_zones_s,
    read_run_samples,
    read_sample_rows,
    zone_of_run,
)
from seatrial.collect.original.manifests import (
    Row,
    by_run,
    current_rows,
    flag,
    is_original_manifest,
    newest,
    number,
    read_lines,
    read_manifest,
    read_manifests,
    whole,
)
from seatrial.collect.original.runs import (
    LauncherBlock,
    RunLogs,
    Span,
    local_s,
    read_blocks,
    split_attempts,
    written_zone_s,
)
from seatrial.collect.original.runs import OriginalAttempt as MatchedAttempt
from tests.original_campaign import (
    FIRST_START,
    MANIFEST_COLUMNS,
    OLD_COLUMNS,
    OriginalAttempt,
    OriginalRun,
    epoch_s,
    sweep_run,
    train_lines,
    write_original_campaign,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def test_byte_order_marks_and_carriage_returns_are_removed(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo \xff\r\n")
    assert read_lines(path).lines == ("one", "two \N{REPLACEMENT CHARACTER}")


def test_an_unfinished_last_line_is_not_trusted(path: Path) -> None:
    path.write_text("loss 1.25\nloss 1.2")
    found = read_lines(path)
    assert found.lines == ("loss 1.25", "loss 1.2") and not found.ends_whole and found.whole_lines == ("loss 1.25",)
    path.write_text("loss 1.25\n")
    assert read_lines(path).whole_lines == ("loss 1.25",)


def test_head_and_end_of_a_large_file_are_read(path: Path) -> None:
    path.write_text("".join(f"line {number:03}\n" for number in range(100)))
    found = read_lines(path, max_bytes=90)
    assert found.lines[0] == "line 000" and found.lines[-1] == "line 099" and len(found.lines) < 15
    assert found.left_out_bytes == 900 - 90


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), (" 2 ", 2.0), ("", None), (None, None), ("nan", None), ("inf", None), ("[N/A]", None), ("1e300", None), ("-3", -3.0)],
)
def test_numbers(text: str | None, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(("text", "value"), [("01", 1), ("2.0", 2), ("2.5", None), ("first", None), (None, None), ("1e99", None)])
def test_integers(text: str | None, value: int | None) -> None:
    assert whole(text) == value


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("1", True), ("0", False), ("", None), ("maybe", None)])
def test_flags(text: str, value: bool | None) -> None:
    assert flag(text) is value


RUNS = (sweep_run(0, 128), sweep_run(0, 160, attempts=(OriginalAttempt(status="failed", exit_code=1), OriginalAttempt())))
NAMES = [("sweep_z0_mb128_nw6_pf4_r1", True), ("sweep_z0_mb160_nw6_pf4_r1", False), ("sweep_z0_mb160_nw6_pf4_r1", True)]


def run_outcomes(folder: Path) -> list[tuple[str, bool]]:
    return [(row.run, row.is_success) for row in read_manifests(folder).rows]


@pytest.mark.parametrize("odd", [{}, {"crlf": True, "bom": True}])
def test_every_row_in_the_order_of_the_file(tmp_path: Path, odd: dict[str, bool]) -> None:
    found = read_manifests(write_original_campaign(tmp_path, *RUNS, **odd))
    assert [(row.run, row.is_success) for row in found.rows] == NAMES and found.cautions == ()
    first = found.rows[0]
    assert (first.exit_code, first.duration_s, first.cells["mode"], first.cells["host_telemetry_empty_flag"]) == (
        0,
        185.0,
        "sweep",
        "false",
    )


def test_a_row_appended_to_a_truncated_one_is_read(tmp_path: Path) -> None:
    manifest = write_original_campaign(tmp_path, *RUNS, torn_line=True) / "run_manifest.tsv"
    whole = manifest.read_text().splitlines()[1]
    manifest.write_text(manifest.read_text() + whole + "\n")
    assert run_outcomes(tmp_path) == [*NAMES, NAMES[0]]
    found = read_manifests(tmp_path)
    assert found.rows[-1].cells["mode"] == "sweep" and found.cautions[0].numbers == {"rows": 1}, "the torn one is counted all the same"


def test_fewer_columns_in_another_order(tmp_path: Path) -> None:
    found = read_manifests(write_original_campaign(tmp_path, *RUNS, columns=OLD_COLUMNS))
    assert [(row.run, row.is_success) for row in found.rows] == NAMES
    assert set(found.rows[0].cells) == set(OLD_COLUMNS)
    assert "47 of 60 columns" in found.cautions[0].text


def test_a_second_header_applies_from_there_on(tmp_path: Path) -> None:
    write_original_campaign(tmp_path / "new", RUNS[0])
    old = (write_original_campaign(tmp_path / "old", RUNS[1], columns=OLD_COLUMNS) / "run_manifest.tsv").read_text()
    manifest = tmp_path / "new" / "run_manifest.tsv"
    manifest.write_text(manifest.read_text() + old)
    assert run_outcomes(tmp_path / "new") == NAMES


def test_without_a_header_rows_are_read_by_position(tmp_path: Path) -> None:
    manifest = write_original_campaign(tmp_path, *RUNS) / "run_manifest.tsv"
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[1:]))
    assert run_outcomes(tmp_path) == NAMES and "lost its header" in read_manifests(tmp_path).cautions[0].text


@pytest.mark.parametrize("group", ["../../etc", "a/b", "", ".hidden", "x" * 300])
def test_a_group_that_is_no_folder_name_is_skipped(tmp_path: Path, group: str) -> None:
    (tmp_path / "run_manifest.tsv").write_text(f"group\trepeat\tstatus\n{group}\t1\tsuccess\ngood\t2\tfailed\n")
    assert run_outcomes(tmp_path) == [("good_r2", False)]


@pytest.mark.parametrize("repeat", ["0", "-1", "x", "nan", "1e99", ""])
def test_an_invalid_repeat_is_skipped(tmp_path: Path, repeat: str) -> None:
    (tmp_path / "run_manifest.tsv").write_text(f"group\trepeat\tstatus\ngood\t{repeat}\tsuccess\n")
    assert run_outcomes(tmp_path) == []


def test_a_file_that_is_no_manifest_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.tsv").write_bytes(b"\x00\xff\x00 not a table\n")
    found = read_manifests(tmp_path)
    assert found.rows == () and "cannot be used" in found.cautions[0].text
    assert not is_original_manifest(tmp_path / "run_manifest.tsv") and not is_original_manifest(tmp_path / "none.tsv")


def test_our_own_manifest_is_not_the_originals(tmp_path: Path) -> None:
    (tmp_path / "run_manifest.tsv").write_text("\t".join([*MANIFEST_COLUMNS, "run", "hash"]) + "\n")
    assert not is_original_manifest(tmp_path / "run_manifest.tsv")


def row(**cells: str) -> Row:
    return Row(cells={"group": "z0", "repeat": "1", "status": "success", **cells})


def manifest(folder: Path, text: str | bytes) -> Path:
    path = folder / "run_manifest.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("tail", "repeats"),
    [
        ("sweep\tz0", [1]),
        ("sweep\tz0\t2\tsucsweep\tz0\t2\tsuccess\n", [1, 2]),
        ("sweep\tz0\t2\tsuccess\textra\n", [1]),
    ],
    ids=["torn at the end", "glued to the next row", "more cells than names"],
)
def test_a_row_that_does_not_fit_its_header_is_counted(tmp_path: Path, tail: str, repeats: list[int]) -> None:
    read = read_manifest(manifest(tmp_path, f"mode\tgroup\trepeat\tstatus\nsweep\tz0\t1\tsuccess\n{tail}"))
    assert ([row.repeat for row in read.rows], read.num_torn) == (repeats, 1)


def test_a_glued_row_whose_own_name_is_glued_too_is_passed_over(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "group\trepeat\tstatus\nz0\t1z1\t2\tsuccess\nz0\t3\tsuccess\n"))
    assert ([row.run for row in read.rows], read.num_torn) == (["z0_r3"], 1)


def test_of_a_last_line_without_its_end_the_last_cell_is_not_trusted(tmp_path: Path) -> None:
    (found,) = read_manifest(manifest(tmp_path, "group\trepeat\tstatus\tlast_iter_ms_p50\nz0\t1\tsuccess\t34")).rows
    assert "last_iter_ms_p50" not in found.cells and found.is_success


def test_rows_under_an_incomplete_header_are_counted(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "mode\tgroup\nab\ttuned\nmode\tgroup\trepeat\tstatus\nab\ttuned\t1\tsuccess\n"))
    assert (len(read.rows), read.num_torn) == (1, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("mode\tgroup\trepeat\nsweep\tz0\t1\n", "its header has no column 'status'"),
        ("1\t2\n", "it has no header with the column names"),
    ],
)
def test_an_unusable_manifest_has_a_reason(tmp_path: Path, text: str, problem: str) -> None:
    assert read_manifest(manifest(tmp_path, text)).problem == problem


def test_a_manifest_set_aside_replaces_a_missing_one(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, RUNS[0], backup_rows=[sweep_run(1, 192)])
    (tmp_path / "run_manifest.tsv").unlink()
    found = read_manifests(tmp_path)
    assert (len(found.rows), found.problem, len(found.set_aside)) == (1, "", 1)
    assert found.has_column("micro_batch") and not found.has_column("iter_p90_over_p50")


@pytest.mark.parametrize(
    ("cells", "is_success"),
    [({}, True), ({"status": "SUCCESS"}, True), ({"exit_code": "0"}, True), ({"exit_code": "1"}, False), ({"status": "failed"}, False)],
)
def test_what_counts_as_success(cells: dict[str, str], is_success: bool) -> None:
    assert row(**cells).is_success is is_success and row(**cells).status == ("success" if is_success else "failed")


def test_which_row_of_a_run_counts() -> None:
    rows = [row(attempt="2"), row(attempt="10"), row(attempt="1")]
    assert newest(rows) is rows[1] and newest([]) is None
    assert newest(plain := [row(n="a"), row(n="b")]) is plain[1], "without attempts the last in the file"
    marked = [row(current="false"), row(current="true"), row()]
    assert current_rows(marked) == marked[1:]


def test_a_repeat_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    read = read_manifest(manifest(tmp_path, "group\trepeat\tstatus\nz0\t01\tfailed\nz0\t1\tsuccess\nz0\t1.0\tsuccess\n"))
    assert [len(rows) for rows in by_run(read.rows).values()] == [3]


AT_S = 1771437380.0
"""2026-02-18 17:56:20 by a clock that shows UTC."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-02-18 17:56:20,250 - train - INFO - Step 0: Loss 1.0", AT_S + 0.25),
        ("2026-02-18T17:56:20+08:00", AT_S),
        ("2026/02/18 17:56:20.5", AT_S + 0.5),
        (" 2026-02-18 17:56:20", AT_S),
        ("[2026-02-18 17:56:20,123] [INFO]", None),
        ("2026-02-30 17:56:20", None),
        ("Step 0: Loss 1.0", None),
        ("", None),
    ],
)
def test_timestamps(text: str, found: float | None) -> None:
    assert local_s(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-02-18T17:56:20+08:00", 28800.0),
        ("2026-02-18T17:56:20-0330", -12600.0),
        ("2026-02-18T17:56:20Z", 0.0),
        ("2026-02-18 17:56:20", None),
        ("never", None),
    ],
)
def test_zones_in_timestamps(text: str, found: float | None) -> None:
    assert written_zone_s(text) == found


def test_zones_by_samples() -> None:
    def zone_s(*rows: list[str]) -> float | None:
        return SampleFile(path=Path("gpu_telemetry.csv"), columns=("timestamp", "epoch_sec"), rows=rows).zone_s()

    epoch = str(int(AT_S) - 28800)
    assert zone_s(["2026/02/18 17:56:21.100", epoch]) == 28800.0
    assert zone_s(["bad", epoch], ["2026-02-18 17:56:20", "none"], ["2026-02-18 17:56:20", epoch]) == 28800.0
    assert zone_s(["2026-02-18 17:56:20", str(int(AT_S) - 5 * 86400)]) is None
    assert zone_s() is None


META = ["=== META ===", "timestamp=2026-02-18T17:56:20+08:00", "mode=sweep", "group=g", "repeat=2", "fixed_slice_seconds=", "gpu_name=NaN"]
OVERRIDES = "+experiment=x '++train.max_step_iterations=300' ++train.data.num_workers=6"
CMD = f"deepspeed --include localhost:0,4 --master_port 29650 train.py {OVERRIDES}"
LINES = [*META, "=== CMD ===", CMD, "", "cmd = python", "Traceback"]


def test_a_launcher_block() -> None:
    (block,) = read_blocks(LINES)
    assert block.meta == {"timestamp": "2026-02-18T17:56:20+08:00", "mode": "sweep", "group": "g", "repeat": "2"}
    assert (block.zone_s, block.start_local_s) == (8 * 3600.0, 1771437380.0)
    assert block.devices == ("0", "4") and block.launcher_args == ("--include", "localhost:0,4", "--master_port", "29650")
    assert block.script_args == ("+experiment=x", "++train.max_step_iterations=300", "++train.data.num_workers=6")
    assert block.cells["max_steps"] == "300" and block.cells["num_workers"] == "6" and block.cells["mode"] == "sweep"
    assert block.output == ("", "cmd = python", "Traceback") and block.head == (*META, "=== CMD ===", CMD)


def test_meta_counts_before_the_command() -> None:
    (block,) = read_blocks(
        [*META, "micro_batch=160", "=== CMD ===", "deepspeed train.py deepspeed_config_yaml.train_micro_batch_size_per_gpu=128"]
    )
    assert block.cells["micro_batch"] == "160"


def test_one_block_for_each_start() -> None:
    first, second = read_blocks([*LINES, *LINES[:3], "=== CMD ===", "conda run -n x deepspeed train.py a=b"])
    assert first.output[-1] == "Traceback" and second.output == () and second.script_args == ("a=b",) and second.launcher_args == ()


def test_a_log_without_blocks_is_output() -> None:
    (block,) = read_blocks(["hello"])
    assert block.output == ("hello",) and block.cells == {} and block.start_local_s is None and block.devices == ()
    assert read_blocks([]) == []


def test_a_block_truncated_at_any_line_is_read() -> None:
    for cut in range(1, len(LINES) + 1):
        (block,) = read_blocks(LINES[:cut])
        assert set(block.meta) <= {"timestamp", "mode", "group", "repeat"}
    (torn,) = read_blocks([*META, "=== CMD ===", "deepspeed train.py 'a=b"])
    assert torn.command == ("deepspeed", "train.py", "'a=b")


RUN = sweep_run()
FAILED = list(train_lines(RUN, OriginalAttempt(last_step=100), FIRST_START))
WHOLE = list(train_lines(RUN, OriginalAttempt(), FIRST_START + timedelta(minutes=10)))


def test_steps_that_restart_are_a_new_attempt() -> None:
    first, second = split_attempts([*FAILED, *WHOLE])
    assert list(first.lines) == FAILED and list(second.lines) == WHOLE
    assert (first.last_step, second.last_step, second.max_steps) == (100, 300, 300)
    assert second.steps == (0, 50, 100, 150, 200, 250, 300) and second.span_s == 165.0


def test_an_attempt_without_steps_is_found_by_its_start() -> None:
    began = WHOLE[:1]
    start_local_s = (FIRST_START + timedelta(minutes=10)).replace(tzinfo=None).timestamp()
    segments = split_attempts([*FAILED, *began])
    assert len(segments) == 1
    local = split_attempts(began)[0].first_local_s
    assert local is not None and abs(local - start_local_s) < 86400
    assert [list(segment.lines) for segment in split_attempts([*FAILED, *began], [local - 15])] == [FAILED, began]


def test_lines_of_the_end_stay_with_their_attempt() -> None:
    ending = ["2026-02-18 17:57:41,000 - train - ERROR - CUDA out of memory", "Traceback (most recent call last):"]
    first, second = split_attempts([*FAILED, *ending, *WHOLE])
    assert list(first.lines) == [*FAILED, *ending] and list(second.lines) == WHOLE


def test_validation_is_no_step_and_a_start_before_all_lines_is_no_border() -> None:
    lines = [*WHOLE[:8], "2026-02-18 18:08:00,000 - train - INFO - Val Step 1/9: Loss 3.0", *WHOLE[8:]]
    assert len(split_attempts(lines)) == 1
    assert len(split_attempts(WHOLE, [0.0, 1e12])) == 1
    assert split_attempts([]) == []


def test_three_attempts_and_numbers_out_of_range() -> None:
    third = list(train_lines(RUN, OriginalAttempt(last_step=0), FIRST_START + timedelta(minutes=30)))
    assert [segment.last_step for segment in split_attempts([*FAILED, *WHOLE, *third])] == [100, 300, 0]
    (odd,) = split_attempts([f"Step {'9' * 400}: Loss 1.0", f"TimingETA step=1 remain_steps={'9' * 400} eta_sec=1.0"])
    assert odd.last_step is None and odd.max_steps is None and odd.span_s == 0.0


START_T = epoch_s(FIRST_START)
NAME = "sweep_z0_mb128_nw6_pf4_r1"


def write_run(tmp_path: Path, run: OriginalRun, **odd: bool) -> Path:
    return write_original_campaign(tmp_path, run, **odd) / NAME  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [{}, {"crlf": True, "bom": True}])
def test_rows_columns_and_zone(tmp_path: Path, odd: dict[str, bool]) -> None:
    gpu = read_sample_rows(write_run(tmp_path, sweep_run(), **odd) / "gpu_telemetry.csv")
    # 185 s, every 2 s, two GPUs.
    assert len(gpu.rows) == 2 * 93 and gpu.columns[:2] == ("timestamp", "epoch_sec") and gpu.zone_s() == 8 * 3600.0
    assert gpu.text().splitlines()[1].endswith(",18000,24564")
    account = account_of(gpu, 2.0)
    assert account is not None and (account.rows, account.samples, account.gaps, account.empty, account.note) == (186, 93, 0, False, "")


def test_telemetry_without_rows_is_reported(tmp_path: Path) -> None:
    folder = write_run(tmp_path, sweep_run(gpu_telemetry="header", host_telemetry="none"))
    account = account_of(read_sample_rows(folder / "gpu_telemetry.csv"), 2.0)
    assert account is not None and account.empty and "header and no rows" in account.note
    gpu, host = read_run_samples(folder, SampleFile(path=tmp_path)).of_attempt(Span(), alone=True, is_newest=True)
    assert gpu is not None and host is None and account_of(host, 2.0) is None


def test_utilisation_out_of_range_is_dropped_and_counted(tmp_path: Path) -> None:
    gpu = read_sample_rows(write_run(tmp_path, sweep_run(gpu_telemetry="absurd")) / "gpu_telemetry.csv")
    account = account_of(gpu, 2.0)
    assert account is not None and (account.invalid, account.rows) == (36, 150)
    assert not any(",6553," in line for line in gpu.text().splitlines())


def test_truncated_and_repeated_telemetry_lines(tmp_path: Path) -> None:
    path = tmp_path / "host_telemetry.csv"
    path.write_text("timestamp,epoch_sec,rss_kib\na,10,1\na,10\ntimestamp,epoch_sec,rss_kib\na,40,2,9\na,42,3\na,4")
    found = read_sample_rows(path)
    assert [row[1:] for row in found.rows] == [["10", "1"], ["42", "3"]] and found.zone_s() is None
    account = account_of(found, 2.0)
    assert account is not None and (account.gaps, account.longest_gap_s) == (1, 32.0)


@pytest.mark.parametrize("text", ["", "nothing,of,use\n1,2,3\n", "epoch_sec,epoch_sec\n1,2\n"])
def test_a_file_that_is_no_telemetry(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpu_telemetry.csv"
    path.write_text(text)
    found = read_sample_rows(path)
    assert found.rows == () and bool(found.problem) == bool(text)
    assert not read_sample_rows(tmp_path / "none.csv").exists


def test_the_root_sampler_replaces_missing_host_samples(tmp_path: Path) -> None:
    run = sweep_run(host_telemetry="none", rss_growth_mib_per_min=60.0)
    write_original_campaign(tmp_path, run, sweep_run(0, 160), root_host_telemetry=True)
    shared = read_sample_rows(tmp_path / "host_telemetry.csv")
    span = Span(first_t=START_T, last_t=START_T + 185, duration_s=185)
    _, host = read_run_samples(tmp_path / run.name, shared).of_attempt(span, alone=True, is_newest=True)
    assert host is not None and 37 <= len(host.rows) <= 40
    first, last = host.text().splitlines()[1].split(","), host.text().splitlines()[-2].split(",")
    # Our readers take rss_kib: it is the sampler's train_rss_kib.
    assert host.text().splitlines()[0].endswith("train_vsz_kib,rss_kib") and first[-1] == first[-3] and int(last[-1]) > int(first[-1])
    own = read_run_samples(tmp_path / "sweep_z0_mb160_nw6_pf4_r1", shared).of_attempt(span, alone=True, is_newest=True)[1]
    assert own is not None and "rss_kib" in own.columns and "train_rss_kib" not in own.columns


def test_samples_of_several_attempts_are_split_by_time(tmp_path: Path) -> None:
    folder = write_run(tmp_path, sweep_run())
    samples = read_run_samples(folder, SampleFile(path=tmp_path))
    half = Span(first_t=START_T, last_t=START_T + 60, duration_s=60)
    gpu, _ = samples.of_attempt(half, alone=False, is_newest=True)
    assert gpu is not None and len(gpu.rows) == 2 * 33
    # An older attempt's samples were write_run over; the newest one's are its own even where the clocks do not meet.
    before = Span(first_t=START_T - 900, last_t=START_T - 600, duration_s=300)
    assert samples.of_attempt(before, alone=False, is_newest=False)[0] is None
    newest, _ = samples.of_attempt(before, alone=False, is_newest=True)
    assert newest is not None and len(newest.rows) == 186


NOTHING = SampleFile(path=Path("gpu_telemetry.csv"))
SILENT = RunSamples(gpu=NOTHING, host=NOTHING, shared_host=NOTHING)


def logs(*stamps: str | None) -> RunLogs:
    """Attempts, oldest first, whose META block has that stamp; None for one without a block."""
    return RunLogs(
        attempts=tuple(MatchedAttempt(block=None if stamp is None else LauncherBlock(meta={"timestamp": stamp})) for stamp in stamps)
    )


def sampled(hours: int) -> RunSamples:
    rows = (["2026-02-18 17:00:00", str(1771434000.0 - hours * 3600)],)
    own = SampleFile(path=Path("host_telemetry.csv"), columns=("timestamp", "epoch_sec"), rows=rows)
    return RunSamples(gpu=NOTHING, host=own, shared_host=NOTHING)


def test_the_zone_by_samples_then_logs_then_elsewhere() -> None:
    named = logs("2026-02-18T17:56:20+02:00")
    assert zone_of_run(named, sampled(8), 3600.0) == 8 * 3600.0
    assert zone_of_run(named, SILENT, 3600.0) == 2 * 3600.0
    assert zone_of_run(logs("2026-02-18T17:56:20", None), SILENT, 3600.0) == 3600.0
    assert zone_of_run(logs(), SILENT, None) is None


def test_zones_of_newest_attempts_come_first() -> None:
    runs = [logs("2026-02-18T17:00:00+01:00", None, "2026-02-19T17:00:00+08:00"), logs("2026-02-18T17:00:00Z")]
    assert list(named_zones_s(runs)) == [8 * 3600.0, 3600.0, 0.0]
