"""Which samples the leak diagnosis counts: those of the training, of one GPU, that can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.original_campaign import OriginalAttempt, sweep_run, write_original_campaign
from tests.unit.runbooks.leak_inputs import T0, Diagnose, diagnosed, figures, host_file


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Diagnose:
    return diagnosed(capsys)


def test_only_the_time_with_ten_processes_counts(tmp_path: Path, said: Diagnose) -> None:
    idle = [(at * 5.0, 2, 50) for at in range(40)]
    busy = [(200 + at * 5.0, 12, 4000 + at) for at in range(100)]
    host_file(tmp_path / "run" / "host_telemetry.csv", [*idle, *busy, *((700 + at * 5.0, 9, 10) for at in range(40))])
    rows, notes = said(tmp_path / "run")
    assert (rows[0]["host_rss_tail_slope_mib_min"], rows[0]["host_rss_tail_drift_mib"]) == ("12", "72")
    which = "from the first to the last sample with 10 or more processes, 80 samples after the warm-up"
    assert f"the hand-made sampler's layout (train_rss_kib): {which}" in notes


def test_moments_with_fewer_processes_between_the_first_and_the_last_with_ten_count(tmp_path: Path, said: Diagnose) -> None:
    idle = [(at * 5.0, 2, 50) for at in range(20)]
    busy = [(100 + at * 5.0, 9 if at % 2 else 12, 4000 + at) for at in range(101)]
    host_file(tmp_path / "run" / "host_telemetry.csv", [*idle, *busy, (605.0, 9, 10)])
    rows, notes = said(tmp_path / "run")
    # Of 101 samples, 5 s apart and a MiB more each, 81 are left: 73 steps between the middles of head and tail.
    assert (rows[0]["host_rss_tail_slope_mib_min"], rows[0]["host_rss_tail_drift_mib"]) == ("12", "73")
    assert "10 or more processes, 81 samples after the warm-up\n" in notes


def test_a_small_job_is_judged_at_its_usual_number_of_processes(tmp_path: Path, said: Diagnose) -> None:
    start = [(at * 5.0, 1, 50) for at in range(10)]
    busy = [(50 + at * 5.0, 3, 1000 + 10 * at) for at in range(50)]
    host_file(tmp_path / "run" / "host_telemetry.csv", [*start, *busy, (300.0, 4, 1490), (305.0, 0, 0), (310.0, 1, 20)])
    rows, notes = said(tmp_path / "run")
    assert float(rows[0]["host_rss_tail_slope_mib_min"]) == pytest.approx(120, abs=1)
    assert rows[0]["verdict"] == "suspected_leak_or_contention(host_tail_slope)"
    assert "never 10 processes, so from the first to the last sample with the usual 3" in notes


def test_a_sampler_that_saw_no_training_gives_no_figure(tmp_path: Path, said: Diagnose) -> None:
    host_file(tmp_path / "run" / "host_telemetry.csv", [(at * 5.0, 0, 0) for at in range(100)])
    rows, notes = said(tmp_path / "run")
    assert rows[0]["verdict"] == "not_enough_data" and "no sample saw a process of the training" in notes


def test_values_that_cannot_be_are_dropped_and_counted(tmp_path: Path, said: Diagnose) -> None:
    busy: list[tuple[float, object, object]] = [(at * 5.0, 12, 4000) for at in range(60)]
    busy[20:40:5] = [(100.0, 12, -5), (125.0, 12, "[N/A]"), (150.0, 12, 20_000_000), (175.0, 12, "nan")]
    host_file(tmp_path / "run" / "host_telemetry.csv", busy)
    gpu = ["epoch_sec,gpu_index,mem_used_mib,mem_total_mib", *(f"{T0 + at},0,18000,24564" for at in range(100))]
    gpu[30:60:10] = [f"{T0 + 30},0,-1,24564", f"{T0 + 40},0,65535,24564", f"{T0 + 50},0,,24564"]
    (tmp_path / "run" / "gpu_telemetry.csv").write_text("\n".join([*gpu, "1771408", ""]))
    rows, notes = said(tmp_path / "run")
    assert figures(rows[0]) == ["0", "0", "0", "0", "", "no_obvious_leak"]
    assert "dropped: 4 rows with values that cannot be\n" in notes
    assert "dropped: 3 rows with values that cannot be and 1 torn rows" in notes


def test_of_several_gpus_the_one_that_grows_counts(tmp_path: Path, said: Diagnose) -> None:
    rows = [f"{T0 + at},{gpu},{18000 + at * growth},24564" for at in range(200) for gpu, growth in ((0, 0), (1, 1))]
    few = [f"{T0 + at},2,100,24564" for at in range(5)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gpu_telemetry.csv").write_text("\n".join(["epoch_sec, gpu_index, mem_used_mib, mem_total_mib", *rows, *few, ""]))
    found, notes = said(tmp_path / "run")
    assert found[0]["gpu_mem_tail_slope_max_mib_min"] == "60" and found[0]["gpu_mem_tail_drift_max_mib"] == "144"
    assert "2 GPUs, 160 samples or more of each after the warm-up; GPU 2 has too few samples" in notes


def test_a_file_begun_anew_counts_from_there(tmp_path: Path, said: Diagnose) -> None:
    header = "epoch_sec,gpu_index,mem_used_mib,mem_total_mib"
    before = [f"{T0 + at},0,{at * 100},24564" for at in range(100)]
    after = [f"{T0 + 1000 + at},0,18000,24564" for at in range(100)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gpu_telemetry.csv").write_text("\n".join([header, *before, header, *after, ""]))
    rows, _ = said(tmp_path / "run")
    assert rows[0]["gpu_mem_tail_slope_max_mib_min"] == "0" and rows[0]["verdict"] == "no_obvious_leak"


def test_too_little_of_everything_is_no_verdict(tmp_path: Path, said: Diagnose) -> None:
    short = OriginalAttempt(max_steps=20, log_every=10, startup_s=5)
    rows, notes = said(write_original_campaign(tmp_path / "bench", sweep_run(0, 128, attempts=(short,))))
    assert figures(rows[0]) == ["", "", "", "", "", "not_enough_data"] and rows[0]["tail_iter_ms"] == "400"
    assert "gpu: no figures: gpu_telemetry.csv: 9 samples are left after the warm-up, at least 10 are needed" in notes
    assert "no drift: 3 timing points are left" in notes
