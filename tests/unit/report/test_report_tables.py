"""per_run_metrics.csv, group_summary.csv, ranked_groups.csv, skipped_runs.tsv."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from seatrial.paths import CampaignPaths
from seatrial.records.columns import GROUP_OURS, GROUP_SEED, PER_RUN_OURS, PER_RUN_SEED, SKIPPED
from seatrial.records.measure import RunMeasure
from seatrial.report.rows import group_rows, ranked_rows
from seatrial.report.tables import write_tables
from seatrial.tables import read_table
from tests.unit.report import factory


def written(tmp_path: Path, results=None) -> CampaignPaths:
    paths = CampaignPaths(tmp_path)
    write_tables(results or factory.results(), paths)
    return paths


def test_per_run_columns_are_the_seeds_then_ours_then_axes(tmp_path: Path) -> None:
    rows = read_table(written(tmp_path).per_run_metrics)
    assert list(rows[0]) == [*PER_RUN_SEED, *PER_RUN_OURS, "axis_loader"]


def test_per_run_has_current_ok_attempts_only(tmp_path: Path) -> None:
    rows = read_table(written(tmp_path).per_run_metrics)
    assert [(row["run"], row["attempt"]) for row in rows] == [
        (f"{factory.ODD}_r1", "1"),
        ("mb16_nw0_r1", "2"),
        ("mb16_nw0_r2", "1"),
        ("mb16_nw2_r1", "1"),
        ("mb16_nw2_r2", "1"),
        ("mb8_nw2_r1", "1"),
    ]


def test_cells_of_a_run(tmp_path: Path) -> None:
    row = next(row for row in read_table(written(tmp_path).per_run_metrics) if row["run"] == "mb16_nw2_r1")
    expected = {
        "mode": "sweep",
        "group": "mb16_nw2",
        "repeat": "1",
        "run_dir": "out/mb16_nw2_r1",
        "launcher_log": "out/mb16_nw2_r1/attempt-1/launcher.log",
        "train_log": "",
        "micro_batch": "16",
        "world_size": "2",
        "global_batch": "32",
        "zero_stage": "",
        "precision_mode_req": "auto",
        "precision_mode_effective": "fp32",
        "git_commit_short": "0123456789ab",
        "timing_rank_scope": "all",
        "enable_cuda_sync_timing": "false",
        "iter_p90_over_p50": "1.100000",
        "rank_iter_spread_p90_ms": "",
        "wall_samples_per_sec": "1270",
        "window_first_step": "20",
        "window_n": "178",
        "steady": "true",
        "duration_sec": "31.5",
        "loss_falls": "true",
        "lane": "true",
        "axis_loader": "fork",
    }
    assert {column: row[column] for column in expected} == expected


def test_a_run_carries_the_unique_name_of_its_group(tmp_path: Path) -> None:
    renamed = tuple(dataclasses.replace(group, group="mb16_nw2~ab12") if group.group == "mb16_nw2" else group for group in factory.groups())
    results = factory.results(groups=renamed)
    rows = read_table(written(tmp_path, results).per_run_metrics)
    assert {row["group"] for row in rows if row["run"].startswith("mb16_nw2")} == {"mb16_nw2~ab12"}


def test_groups_in_campaign_order_and_ranked(tmp_path: Path) -> None:
    paths = written(tmp_path)
    groups, ranked = read_table(paths.group_summary), read_table(paths.ranked_groups)
    assert list(groups[0]) == list(ranked[0]) == [*GROUP_SEED, *GROUP_OURS, "axis_loader"]
    assert [row["group"] for row in groups] == [factory.ODD, "mb16_nw0", "mb16_nw2", "mb8_nw2"]
    assert [(row["rank"], row["group"], row["lane"], row["can_win"]) for row in ranked] == [
        ("1", "mb16_nw2", "true", "true"),
        ("2", "mb16_nw0", "true", "true"),
        ("3", "mb8_nw2", "true", "false"),
        ("1", factory.ODD, "false", "true"),
    ]


def test_cells_of_a_group(tmp_path: Path) -> None:
    row = read_table(written(tmp_path).ranked_groups)[1]
    expected = {
        "runs": "2",
        "failed_runs": "0",
        "micro_batch": "16",
        "window_n": "356",
        "wall_samples_per_sec": "1251",
        "wall_samples_per_sec_low": "1225.98",
        "wall_samples_per_sec_high": "1276.02",
        "startup_sec": "4.25",
        "ratio_to_best": "0.985000",
        "ratio_low": "0.960000",
        "ratio_high": "1.011000",
        "tied_with_best": "true",
        "stability_score": "1.100000",
        "axis_loader": "[bold]none[/bold]",
    }
    assert {column: row[column] for column in expected} == expected


def test_a_group_without_a_place_comes_last_without_a_rank(tmp_path: Path) -> None:
    ranking = factory.ranking(off_lane=())
    rows = read_table(written(tmp_path, factory.results(ranking=ranking)).ranked_groups)
    assert (rows[-1]["group"], rows[-1]["rank"]) == (factory.ODD, "")


def test_a_sentinel_is_summarised_and_not_ranked() -> None:
    sentinel = dataclasses.replace(factory.summary("mb16_nw2"), group="sentinel", mode="sentinel", lane=False)
    results = factory.results(groups=(*factory.groups(), sentinel))
    assert "sentinel" in [row["group"] for row in group_rows(results)]
    assert "sentinel" not in [row["group"] for row in ranked_rows(results)]


def test_no_cell_is_nan(tmp_path: Path) -> None:
    paths = written(tmp_path)
    for path in (paths.per_run_metrics, paths.group_summary, paths.ranked_groups):
        assert "nan" not in {cell.lower() for row in read_table(path) for cell in row.values()}


def without_rate(**changes: Any) -> RunMeasure:
    return dataclasses.replace(factory.measure(1.0), samples_per_s=None, timing_points=(), **changes)


def test_skipped_runs_say_why(tmp_path: Path) -> None:
    odd = factory.measured("mb16_nw2", 1)
    whole = dataclasses.replace(odd, measure=without_rate(source="whole"))
    torn = dataclasses.replace(odd, measure=without_rate())
    unread = dataclasses.replace(odd, measure=None)
    results = factory.results(runs=(*factory.runs(), whole, torn, unread))
    rows = read_table(written(tmp_path, results).skipped_runs, "\t")
    assert list(rows[0]) == list(SKIPPED)
    assert [(row["run"], row["reason"], row["outcome"], row["cause"]) for row in rows] == [
        ("mb8_nw2_r2", "run_failed", "failed", "cuda_oom"),
        ("mb16_nw2_r1", "train_log_missing", "ok", "none"),
        ("mb16_nw2_r1", "no_timing_points", "ok", "none"),
        ("mb16_nw2_r1", "train_log_missing", "ok", "none"),
    ]
    assert rows[0]["action"] == "Lower micro_batch, or raise the ZeRO stage."


def test_a_run_that_is_ranked_by_its_length_is_not_skipped(tmp_path: Path) -> None:
    whole = dataclasses.replace(factory.measured("mb16_nw2", 1), measure=factory.measure(1.0, source="whole", timing_points=()))
    results = factory.results(runs=(whole,), ranking=factory.ranking(metric="duration_s"))
    paths = written(tmp_path, results)
    assert not paths.skipped_runs.exists()
    assert [row["source"] for row in read_table(paths.per_run_metrics)] == ["whole"]


def test_a_table_without_rows_is_not_written_and_an_old_one_goes(tmp_path: Path) -> None:
    paths = written(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
    write_tables(factory.empty_results(), paths)
    assert list(tmp_path.iterdir()) == []
