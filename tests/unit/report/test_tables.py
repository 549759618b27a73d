"""Tables of a report: rows, CSV and TSV, chart tables, frames for export, and which runs keep their timeline."""

from __future__ import annotations

import csv
import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from seatrial.analyse.charts.run_charts import detail_for
from seatrial.analyse.charts.timeline import SHORTEST, WHOLE_SERIES
from seatrial.core.paths import CampaignPaths
from seatrial.core.tables import read_table
from seatrial.records.caution import Scalar
from seatrial.records.columns import (
    CHART_TABLES,
    GROUP_OURS,
    GROUP_STAGE1,
    PER_RUN_OURS,
    PER_RUN_STAGE1,
    RUN_KEY_COLUMNS,
    SKIPPED,
    SPANS,
    STEPS,
    TELEMETRY,
    RunCharts,
)
from seatrial.records.measure import RunMeasure
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report import tables as module
from seatrial.report.html.data import PageData
from seatrial.report.html.page import summary_page
from seatrial.report.tables import (
    FORMATS,
    chart_frames,
    csv_parts,
    group_rows,
    ranked_rows,
    timeline_row_budget,
    timeline_runs,
    typed_frame,
    write_chart_tables,
    write_frames,
    write_tables,
)
from seatrial.report.write import summary_json
from tests.unit.analyse import factory as runs
from tests.unit.report import factory
from tests.unit.report.html.made_page import made_page


def written(tmp_path: Path, results=None) -> CampaignPaths:
    paths = CampaignPaths(tmp_path)
    write_tables(results or factory.results(), paths)
    return paths


def test_per_run_has_current_ok_attempts_only(tmp_path: Path) -> None:
    rows = read_table(written(tmp_path).per_run_metrics)
    assert list(rows[0]) == [*PER_RUN_STAGE1, *PER_RUN_OURS, "axis_loader"]
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


def test_groups_in_campaign_order_and_ranked(tmp_path: Path) -> None:
    paths = written(tmp_path)
    groups, ranked = read_table(paths.group_summary), read_table(paths.ranked_groups)
    assert list(groups[0]) == list(ranked[0]) == [*GROUP_STAGE1, *GROUP_OURS, "axis_loader"]
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


@pytest.mark.parametrize(
    ("values", "kind", "told"),
    [
        ([1, 2, None], pl.Int64, [1, 2, None]),
        ([1, 2.5], pl.Float64, [1.0, 2.5]),
        ([True, None], pl.Boolean, [True, None]),
        (["a", ""], pl.String, ["a", None]),
        ([1, "a", True], pl.String, ["1", "a", "true"]),
        ([1.0, math.nan, math.inf], pl.Float64, [1.0, None, None]),
    ],
)
def test_a_column_has_the_type_of_its_values(values: list[Scalar], kind: pl.DataType, told: list[Scalar]) -> None:
    frame = typed_frame([{"a": value} for value in values], ["a"])
    assert frame.schema == {"a": kind} and frame["a"].to_list() == told


@pytest.mark.parametrize(("name", "kind"), [("duration_s", pl.Float64), ("rank", pl.Float64), ("cause", pl.String)])
def test_a_column_without_a_value_has_the_type_of_its_name(name: str, kind: pl.DataType) -> None:
    assert typed_frame([{name: None}, {}], [name]).schema == {name: kind}
    assert typed_frame([], [name]).schema == {name: kind}


FRAMES = [pl.DataFrame({"a": [1, 2], "b": [1e-9, None]}), pl.DataFrame({"a": [3], "b": [2.0]})]


def test_text_has_one_header_and_no_exponents() -> None:
    text = "".join(csv_parts(iter(FRAMES), FRAMES[0].schema))
    assert text.splitlines() == ["a,b", "1,0.000000001", "2,", "3,2"]
    assert "".join(csv_parts([], FRAMES[0].schema)) == "a,b\n"


@pytest.mark.parametrize("form", FORMATS)
def test_frames_that_come_one_by_one_are_one_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"steps.{form}"
    assert write_frames(path, iter(FRAMES), FRAMES[0].schema, form) == 3
    read = pl.read_parquet(path) if form == "parquet" else pl.read_csv(path)
    assert read["a"].to_list() == [1, 2, 3] and [one.name for one in tmp_path.iterdir()] == [path.name]


def test_what_breaks_on_the_way_leaves_no_half_file(tmp_path: Path) -> None:
    def frames() -> object:
        yield FRAMES[0]
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_frames(tmp_path / "steps.csv", frames(), FRAMES[0].schema, "csv")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


STEP_COLUMNS: dict[str, list[Any]] = {
    "rank": [0, 0, 0],
    "step": [0, 1, 2],
    "begin_s": [4.0, None, 6.5],
    "t_s": [5.12345678, None, 7.0],
    "iter_ms": [1234.56789, 0.0000123456789, None],
    "loss": [math.nan, -math.inf, None],
    "counted": [False, True, True],
}


@pytest.fixture
def empty() -> CampaignResults:
    return replace(factory.results(), runs=())


def run(group: str, tables: dict[str, Any], **changes: Any) -> MeasuredRun:
    return replace(runs.measured(runs.spec(group), **changes), charts=RunCharts(tables=tables))


def written_chart_tables(paths: CampaignPaths, name: str) -> list[dict[str, str]]:
    with paths.chart_table(name).open(newline="", encoding="utf-8") as source:
        return list(csv.DictReader(source))


def test_all_current_attempts_in_their_order(tmp_path: Path, empty: CampaignResults) -> None:
    paths = CampaignPaths(tmp_path)
    old = run("b", {STEPS: STEP_COLUMNS}, current=False)
    results = replace(empty, runs=(run("b", {STEPS: STEP_COLUMNS}), old, run("a", {}), run("a", {STEPS: STEP_COLUMNS}), runs.measured()))
    write_chart_tables(dict(chart_frames(results)), paths)
    rows = written_chart_tables(paths, STEPS)
    assert tuple(rows[0]) == (*RUN_KEY_COLUMNS, *CHART_TABLES[STEPS])
    assert [(row["run"], row["group"], row["repeat"], row["step"]) for row in rows] == [
        (f"{group}_r1", group, "1", step) for group in "ba" for step in "012"
    ]
    assert [path.name for path in paths.charts.iterdir()] == ["steps.csv"]


def test_cells_are_short_and_tell_a_broken_loss_from_none(tmp_path: Path, empty: CampaignResults) -> None:
    paths = CampaignPaths(tmp_path)
    write_chart_tables(dict(chart_frames(replace(empty, runs=(run("a", {STEPS: STEP_COLUMNS}),)))), paths)
    cells = [(row["t_s"], row["iter_ms"], row["loss"], row["counted"]) for row in written_chart_tables(paths, STEPS)]
    assert cells == [("5.123", "1234.57", "NaN", "false"), ("", "0.0000123457", "-inf", "true"), ("7", "", "", "true")]


def test_what_users_name_stays_one_line_of_text(tmp_path: Path, empty: CampaignResults) -> None:
    paths = CampaignPaths(tmp_path)
    hostile = ["</script><script>alert(1)</script>", 'a "quote", a comma', "line\nbreak\u2028here", "\x1b[31mred\u202e", "torn \udcff", ""]
    spans = {"source": ["rank 0"] * 6, "span": hostile, "begin_s": [0.0] * 6, "end_s": [1.0] * 6}
    write_chart_tables(dict(chart_frames(replace(empty, runs=(run("<b>", {SPANS: spans}),)))), paths)
    assert paths.chart_table(SPANS).read_bytes().count(b"\n") == 7
    assert [row["span"] for row in written_chart_tables(paths, SPANS)] == [
        hostile[0],
        hostile[1],
        "line break\u2028here",
        hostile[3],
        "torn \\udcff",
        "",
    ]


def test_a_table_without_rows_is_removed_and_an_empty_folder_too(tmp_path: Path, empty: CampaignResults) -> None:
    paths = CampaignPaths(tmp_path)
    write_chart_tables(dict(chart_frames(replace(empty, runs=(run("a", {STEPS: STEP_COLUMNS}),)))), paths)
    write_chart_tables(dict(chart_frames(replace(empty, runs=(run("a", {}),)))), paths)
    assert not paths.charts.exists()
    write_chart_tables(dict(chart_frames(replace(empty, runs=(run("a", {STEPS: STEP_COLUMNS}),)))), paths)
    picture = paths.charts / "steps.png"
    picture.write_bytes(b"")
    write_chart_tables(dict(chart_frames(empty)), paths)
    assert list(paths.charts.iterdir()) == [picture]


def test_every_table_and_column_is_described() -> None:
    page = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
    for name, columns in CHART_TABLES.items():
        assert f"`charts/{name}.csv`" in page
        assert [column for column in columns if f"`{column}`" not in page] == []


LARGEST_BYTES = 10_000_000
STEP: dict[str, list[Any]] = {
    "rank": [0], "step": [0], "begin_s": [0.0], "t_s": [1.0], "iter_ms": [1.0], "loss": [None], "counted": [True],
}  # fmt: skip


def results(groups: int, repeats: int, rows: int, **changes: Any) -> CampaignResults:
    samples = {"source": ["gpu 0"] * rows, "metric": ["power_w"] * rows, "t_s": [1.0] * rows, "value": [float(row) for row in range(rows)]}
    spans = {"source": ["rank 0"], "span": ["train"], "begin_s": [0.0], "end_s": [1.0]}
    charts = RunCharts(tables={STEPS: STEP, TELEMETRY: samples, SPANS: spans}, gpus=8, gpus_drawn=3)
    made = [
        replace(runs.measured(runs.spec(f"g{group}", repeat=repeat)), charts=charts)
        for group in range(groups)
        for repeat in range(1, repeats + 1)
    ]
    return replace(factory.empty_results(), runs=tuple(made), **changes)


def kept(campaign: CampaignResults) -> list[tuple[str, int]]:
    folders = timeline_runs(campaign)
    return [(run.attempt.spec.group, run.attempt.spec.repeat) for run in campaign.runs if run.attempt.folder in folders]


def test_all_of_a_few_runs_and_then_the_first_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_RUNS", 11)
    monkeypatch.setattr(module, "timeline_row_budget", lambda _: 66)
    few = results(4, 2, 10)
    assert len(kept(few)) == 8
    # Six runs of eleven rows have room: the first repeats of all four groups, and every other one of the second.
    campaign = results(4, 3, 10)
    assert kept(campaign) == [("g0", 1), ("g0", 2), ("g1", 1), ("g2", 1), ("g2", 2), ("g3", 1)]
    won = replace(campaign, ranking=replace(campaign.ranking, recommended="g3"))
    assert [run for run in kept(won) if run[0] == "g3"] == [("g3", 1), ("g3", 2), ("g3", 3)]


def test_what_is_left_out_is_reported_and_only_the_timeline_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_RUNS", 3)
    monkeypatch.setattr(module, "timeline_row_budget", lambda _: 44)
    campaign = results(4, 3, 10)
    frames = dict(chart_frames(campaign))
    assert frames[STEPS]["run"].n_unique() == 12
    assert frames[TELEMETRY]["run"].n_unique() == frames[SPANS]["run"].n_unique() == 4
    told = summary_json(campaign)
    assert told["charts"] == {"runs": 12, "runs_with_telemetry": 4}
    assert [(row["gpus"], row["gpus_drawn"]) for row in told["current_runs"][:2]] == [(8, 3), (8, None)]


def test_findings_keep_the_runs_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_RUNS", 3)
    monkeypatch.setattr(module, "timeline_row_budget", lambda _: 33)
    monkeypatch.setattr(module, "named_in_findings", lambda _: {"g2_r3"})
    assert ("g2", 3) in kept(results(4, 3, 10))


@pytest.mark.parametrize("runs_made", [1000, 5000])
def test_the_page_of_very_many_runs_of_eight_gpus_is_small_enough_to_be_sent(runs_made: int) -> None:
    detail = detail_for(runs_made)
    rows = WHOLE_SERIES * detail.telemetry
    chosen = len(kept(results(runs_made // 4, 4, rows)))
    assert chosen * (rows + 1) <= timeline_row_budget(runs_made)
    assert chosen == runs_made or chosen < 1000
    page = summary_page(many(runs_made, chosen, rows, detail.steps))
    assert len(page.encode()) < LARGEST_BYTES


def many(runs_made: int, chosen: int, rows: int, steps: int) -> PageData:
    """As the tables come from so many runs, every sample another number."""
    data = made_page(groups=runs_made // 4, repeats=4, ranks=8, gpus=8, steps=steps, telemetry=False)
    runs = data.drawn.tables["runs"]
    whose = list(zip(runs["run"], runs["group"], runs["repeat"], strict=True))[:chosen]
    places = [(at, row) for at in range(chosen) for row in range(rows)]
    table: dict[str, list[Any]] = {
        name: [cells[column] for cells in whose for _ in range(rows)] for column, name in enumerate(("run", "group", "repeat"))
    }
    table |= {
        "source": [f"gpu {row % 8}" for _, row in places],
        "metric": [f"metric_{row // SHORTEST % 8}" for _, row in places],
        "t_s": [round((at * 7919 + row * 104_729) % 600_011 / 1000, 3) for at, row in places],
        "value": [round((at * 15_485_863 + row * 32_452_843) % 999_983 / 1000, 2) for at, row in places],
    }
    in_time = {run for run, *_ in whose}
    spans = data.drawn.tables["spans"]
    of_chosen = [at for at, run in enumerate(spans["run"]) if run in in_time]
    kept_spans = {name: [cells[at] for at in of_chosen] for name, cells in spans.items()}
    return replace(data, drawn=replace(data.drawn, tables={**data.drawn.tables, "telemetry": table, "spans": kept_spans}))
