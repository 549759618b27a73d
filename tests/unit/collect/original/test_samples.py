"""Telemetry of the original scripts in both layouts, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.original.samples import SampleFile, account_of, read_run_samples, read_sample_rows
from seatrial.collect.original.spans import Span
from tests.original_campaign import FIRST_START, OriginalRun, epoch_s, sweep_run, write_original_campaign

START_T = epoch_s(FIRST_START)
NAME = "sweep_z0_mb128_nw6_pf4_r1"


def written(tmp_path: Path, run: OriginalRun, **odd: bool) -> Path:
    return write_original_campaign(tmp_path, run, **odd) / NAME  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [{}, {"crlf": True, "bom": True}])
def test_rows_columns_and_zone(tmp_path: Path, odd: dict[str, bool]) -> None:
    gpu = read_sample_rows(written(tmp_path, sweep_run(), **odd) / "gpu_telemetry.csv")
    # 185 s, every 2 s, two GPUs.
    assert len(gpu.rows) == 2 * 93 and gpu.columns[:2] == ("timestamp", "epoch_sec") and gpu.zone_s() == 8 * 3600.0
    assert gpu.text().splitlines()[1].endswith(",18000,24564")
    account = account_of(gpu, 2.0)
    assert account is not None and (account.rows, account.samples, account.gaps, account.empty, account.note) == (186, 93, 0, False, "")


def test_a_header_alone_is_empty_and_says_so(tmp_path: Path) -> None:
    folder = written(tmp_path, sweep_run(gpu_telemetry="header", host_telemetry="none"))
    account = account_of(read_sample_rows(folder / "gpu_telemetry.csv"), 2.0)
    assert account is not None and account.empty and "header and no rows" in account.note
    gpu, host = read_run_samples(folder, SampleFile(path=tmp_path)).of_attempt(Span(), alone=True, is_newest=True)
    assert gpu is not None and host is None and account_of(host, 2.0) is None


def test_utilisation_that_cannot_be_is_left_out_and_counted(tmp_path: Path) -> None:
    gpu = read_sample_rows(written(tmp_path, sweep_run(gpu_telemetry="absurd")) / "gpu_telemetry.csv")
    account = account_of(gpu, 2.0)
    assert account is not None and (account.invalid, account.rows) == (36, 150)
    assert not any(",6553," in line for line in gpu.text().splitlines())


def test_torn_glued_and_repeated_lines(tmp_path: Path) -> None:
    path = tmp_path / "host_telemetry.csv"
    path.write_text("timestamp,epoch_sec,rss_kib\na,10,1\na,10\ntimestamp,epoch_sec,rss_kib\na,40,2,9\na,42,3\na,4")
    found = read_sample_rows(path)
    assert [row[1:] for row in found.rows] == [["10", "1"], ["42", "3"]] and found.zone_s() is None
    account = account_of(found, 2.0)
    assert account is not None and (account.gaps, account.longest_gap_s) == (1, 32.0)


@pytest.mark.parametrize("text", ["", "nothing,of,use\n1,2,3\n", "epoch_sec,epoch_sec\n1,2\n"])
def test_what_is_no_telemetry(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpu_telemetry.csv"
    path.write_text(text)
    found = read_sample_rows(path)
    assert found.rows == () and bool(found.problem) == bool(text)
    assert not read_sample_rows(tmp_path / "none.csv").exists


def test_the_root_sampler_gives_what_a_run_lacks(tmp_path: Path) -> None:
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


def test_rows_of_several_attempts_are_parted_by_time(tmp_path: Path) -> None:
    folder = written(tmp_path, sweep_run())
    samples = read_run_samples(folder, SampleFile(path=tmp_path))
    half = Span(first_t=START_T, last_t=START_T + 60, duration_s=60)
    gpu, _ = samples.of_attempt(half, alone=False, is_newest=True)
    assert gpu is not None and len(gpu.rows) == 2 * 33
    # An older attempt's samples were written over; the newest one's are its own even where the clocks do not meet.
    before = Span(first_t=START_T - 900, last_t=START_T - 600, duration_s=300)
    assert samples.of_attempt(before, alone=False, is_newest=False)[0] is None
    newest, _ = samples.of_attempt(before, alone=False, is_newest=True)
    assert newest is not None and len(newest.rows) == 186
