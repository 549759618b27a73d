"""Host memory of a run: three layouts, a run's own time, and the samples taken while the training ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.original.spans import Span
from seatrial_runbooks.stage1.leak_host import DRIVER, HAND_MADE, OURS, HostFile, HostSample, host_growth, read_host_file


def table(folder: Path, *lines: str) -> Path:
    path = folder / "host_telemetry.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def samples(*counts: float | None, mib_per_sample: float = 1.0) -> tuple[HostSample, ...]:
    """One every 10 s, from second 1000 on."""
    return tuple(HostSample(1000.0 + 10 * at, 500 + mib_per_sample * at, count) for at, count in enumerate(counts))


@pytest.mark.parametrize(
    ("header", "row", "layout", "sample"),
    [
        ("epoch_sec,rss_kib", "10,2048", DRIVER, HostSample(10.0, 2.0, None)),
        ("epoch_sec,train_proc_count,train_rss_kib", "10,4,2048", HAND_MADE, HostSample(10.0, 2.0, 4.0)),
        ("epoch_sec,rss_kib,train_proc_count,train_rss_kib", "10,1024,4,9999", OURS, HostSample(10.0, 1.0, 4.0)),
        ("epoch_sec,rss_kib,mem_total_kib", "10,2048,1024", DRIVER, HostSample(10.0, None, None)),
        ("epoch_sec,rss_kib", "10,0", DRIVER, HostSample(10.0, None, None)),
        ("epoch_sec,rss_kib", "10,much", DRIVER, HostSample(10.0, None, None)),
    ],
)
def test_each_layout_is_known_by_its_columns(tmp_path: Path, header: str, row: str, layout: str, sample: HostSample) -> None:
    found = read_host_file(table(tmp_path, header, row), "run", restarts=True)
    assert (found.name, found.layout, found.samples, found.problem) == ("host_telemetry.csv of the run", layout, (sample,), "")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "it is empty"),
        (["epoch_sec,load"], "its header has neither rss_kib nor train_rss_kib"),
        (["epoch_sec,rss_kib"], "it has no rows"),
        (["epoch_sec,rss_kib", "never,5"], "it has no rows"),
    ],
)
def test_a_file_without_samples_says_why(tmp_path: Path, lines: list[str], problem: str) -> None:
    found = read_host_file(table(tmp_path, *lines), "campaign", restarts=False)
    assert found.problem == problem
    assert host_growth(found, None).note == f"host: no figures: host_telemetry.csv of the campaign: {problem}"


@pytest.mark.parametrize(("restarts", "times"), [(True, [20.0]), (False, [10.0, 20.0])])
def test_a_header_that_comes_again_begins_a_runs_file_anew_and_not_a_campaigns(tmp_path: Path, restarts: bool, times: list[float]) -> None:
    path = table(tmp_path, "epoch_sec,rss_kib", "10,1024", "epoch_sec,rss_kib", "20,1024")
    assert [sample.t for sample in read_host_file(path, "run", restarts=restarts).samples] == times


def test_growth_within_the_time_of_the_run() -> None:
    file = HostFile(name="f", samples=samples(*[None] * 60), layout=DRIVER)
    found = host_growth(file, Span(first_t=1200.0, last_t=1500.0, source="outcome.json"))
    assert found.slope_mib_per_min == pytest.approx(6)
    assert "cut to the time of the run by outcome.json: 25 samples after the warm-up" in found.note
    assert "no sample is of that time" in host_growth(file, Span(first_t=1.0, last_t=2.0)).note


@pytest.mark.parametrize(
    ("counts", "words", "num_samples"),
    [
        ([0] * 10 + [12] * 30 + [2] * 10, "with 10 or more processes, ", 24),
        ([0] * 10 + [4] * 30 + [1] * 5, "never 10 processes, so from the first to the last sample with the usual 4, ", 24),
    ],
)
def test_only_samples_of_the_training_count(counts: list[float], words: str, num_samples: int) -> None:
    found = host_growth(HostFile(name="f", samples=samples(*counts), layout=OURS), None)
    assert f"{words}{num_samples} samples after the warm-up" in found.note
    assert found.slope_mib_per_min == pytest.approx(6)


def test_no_process_seen_and_too_few_samples_have_no_figures() -> None:
    nobody = host_growth(HostFile(name="f", samples=samples(*[0] * 40), layout=OURS), None)
    few = host_growth(HostFile(name="f", samples=samples(*[None] * 5), layout=DRIVER), None)
    assert nobody.slope_mib_per_min is few.slope_mib_per_min is None
    assert "no sample saw a process of the training" in nobody.note and "4 samples are left after the warm-up" in few.note
