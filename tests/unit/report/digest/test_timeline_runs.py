"""Of very many runs, samples and spans of some are kept, by a rule that is said; the page stays small enough to be sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seatrial.analyse.charts.detail import detail_for
from seatrial.analyse.charts.telemetry import SHORTEST, WHOLE_SERIES
from seatrial.records.charts import SPANS, STEPS, TELEMETRY, RunCharts
from seatrial.records.results import CampaignResults
from seatrial.report.chart_tables import chart_frames
from seatrial.report.digest import timeline_runs as module
from seatrial.report.digest.timeline_runs import room_for, timeline_runs
from seatrial.report.html.document import document
from seatrial.report.html.page_data import PageData
from seatrial.report.summary import summary_json
from tests.unit.analyse import factory as runs
from tests.unit.report import factory
from tests.unit.report.html.made_page import made_page

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
    monkeypatch.setattr(module, "room_for", lambda _: 66)
    few = results(4, 2, 10)
    assert len(kept(few)) == 8
    # Six runs of eleven rows have room: the first repeats of all four groups, and every other one of the second.
    campaign = results(4, 3, 10)
    assert kept(campaign) == [("g0", 1), ("g0", 2), ("g1", 1), ("g2", 1), ("g2", 2), ("g3", 1)]
    won = replace(campaign, ranking=replace(campaign.ranking, winner="g3"))
    assert [run for run in kept(won) if run[0] == "g3"] == [("g3", 1), ("g3", 2), ("g3", 3)]


def test_what_is_left_out_is_said_and_only_the_timeline_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_RUNS", 3)
    monkeypatch.setattr(module, "room_for", lambda _: 44)
    campaign = results(4, 3, 10)
    frames = dict(chart_frames(campaign))
    assert frames[STEPS]["run"].n_unique() == 12
    assert frames[TELEMETRY]["run"].n_unique() == frames[SPANS]["run"].n_unique() == 4
    told = summary_json(campaign)
    assert told["charts"] == {"runs": 12, "runs_with_telemetry": 4}
    assert [(row["gpus"], row["gpus_drawn"]) for row in told["current_runs"][:2]] == [(8, 3), (8, None)]


def test_findings_keep_the_runs_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_RUNS", 3)
    monkeypatch.setattr(module, "room_for", lambda _: 33)
    monkeypatch.setattr(module, "_named", lambda _: {"g2_r3"})
    assert ("g2", 3) in kept(results(4, 3, 10))


@pytest.mark.parametrize("runs_made", [1000, 3000, 5000])
def test_the_page_of_very_many_runs_of_eight_gpus_is_small_enough_to_be_sent(runs_made: int) -> None:
    detail = detail_for(runs_made)
    rows = WHOLE_SERIES * detail.telemetry
    chosen = len(kept(results(runs_made // 4, 4, rows)))
    assert chosen * (rows + 1) <= room_for(runs_made)
    assert chosen == runs_made or chosen < 1000
    page = document(many(runs_made, chosen, rows, detail.steps))
    assert len(page.encode()) < LARGEST_BYTES


def many(runs_made: int, chosen: int, rows: int, steps: int) -> PageData:
    """As the tables come from so many runs, every sample another number."""
    data = made_page(groups=runs_made // 4, repeats=4, ranks=8, gpus=8, steps=steps, telemetry=False)
    whose = list(zip(data.tables["runs"]["run"], data.tables["runs"]["group"], data.tables["runs"]["repeat"], strict=True))[:chosen]
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
    spans = data.tables["spans"]
    of_chosen = [at for at, run in enumerate(spans["run"]) if run in in_time]
    kept_spans = {name: [cells[at] for at in of_chosen] for name, cells in spans.items()}
    return replace(data, tables={**data.tables, "telemetry": table, "spans": kept_spans})
