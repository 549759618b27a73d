"""Memory of a run's GPUs: what counts as a sample, and the fastest growth among them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from seatrial_runbooks.stage1.leak_gpu import gpu_growth, read_gpu_samples

HEADER = "epoch_sec,gpu_index,mem_used_mib,mem_total_mib"


def table(folder: Path, rows: Iterable[str], header: str = HEADER) -> Path:
    path = folder / "gpu_telemetry.csv"
    path.write_text("".join(f"{line}\n" for line in (header, *rows)))
    return path


def growing(gpu: int, mib_per_min: float, num_samples: int = 30) -> list[str]:
    """A sample every 6 s."""
    return [f"{1000 + 6 * at},{gpu},{2000 + mib_per_min * at / 10},80000" for at in range(num_samples)]


def test_values_that_cannot_be_are_dropped_and_counted(tmp_path: Path) -> None:
    rows = ["1000,0,100,200", "1001,0,300,200", "1002,0,-1,200", "1003,0,[N/A],200", ",0,100,200", "0,0,100,200", "1004,0,100,0", "1005,0"]
    samples = read_gpu_samples(table(tmp_path, rows))
    assert samples.by_gpu == {"0": [(1000.0, 100.0), (1004.0, 100.0)]}
    assert (samples.num_dropped, samples.num_torn, samples.problem) == (5, 1, "")


def test_gpus_are_told_apart_by_index_and_else_by_uuid(tmp_path: Path) -> None:
    assert list(read_gpu_samples(table(tmp_path, ["1,0,5,9", "1,1,5,9"])).by_gpu) == ["0", "1"]
    by_uuid = table(tmp_path, ["1,GPU-a,5,9", "1,GPU-b,5,9"], "epoch_sec,gpu_uuid,mem_used_mib,mem_total_mib")
    assert list(read_gpu_samples(by_uuid).by_gpu) == ["GPU-a", "GPU-b"]


def test_a_file_begun_anew_counts_from_there_on(tmp_path: Path) -> None:
    samples = read_gpu_samples(table(tmp_path, ["1,0,5,9", "2,0,bad,9", HEADER, "3,0,6,9"]))
    assert samples.by_gpu == {"0": [(3.0, 6.0)]} and samples.num_dropped == 0


@pytest.mark.parametrize(("rows", "why"), [(None, "there is no such file"), ([], "it has no rows")])
def test_a_file_without_samples_has_no_figures(tmp_path: Path, rows: list[str] | None, why: str) -> None:
    path = tmp_path / "gpu_telemetry.csv" if rows is None else table(tmp_path, rows)
    found = gpu_growth(path)
    assert (found.slope_mib_per_min, found.drift_mib, found.note) == (None, None, f"gpu: no figures: gpu_telemetry.csv: {why}")


def test_the_fastest_gpu_is_the_one_told_of(tmp_path: Path) -> None:
    found = gpu_growth(table(tmp_path, growing(0, 0) + growing(1, 30) + growing(2, -5)))
    assert found.slope_mib_per_min == pytest.approx(30)
    # 24 samples after the warm-up, two in head and tail each: 22 of them, 6 s apart, lie between their middles.
    assert found.drift_mib == pytest.approx(30 * 22 / 10)
    assert found.note == "gpu: gpu_telemetry.csv: 3 GPUs, 24 samples or more of each after the warm-up"


def test_a_gpu_with_too_few_samples_is_left_out_and_named(tmp_path: Path) -> None:
    found = gpu_growth(table(tmp_path, growing(0, 6) + growing(1, 6, num_samples=5)))
    assert found.slope_mib_per_min == pytest.approx(6)
    assert "1 GPU, 24 samples or more of each after the warm-up; GPU 1 has too few samples" in found.note


def test_all_of_one_moment_have_no_slope(tmp_path: Path) -> None:
    found = gpu_growth(table(tmp_path, growing(0, 6, num_samples=5)))
    assert found.slope_mib_per_min is None
    assert "4 samples are left after the warm-up, at least 10 are needed" in found.note
