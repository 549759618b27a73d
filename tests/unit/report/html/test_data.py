"""What the page is drawn from: tables, picks and their compact JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.records.columns import STEPS, Columns, RunCharts
from seatrial.records.verdict import CampaignVerdict, Criterion, Evidence, Finding, Verdict
from seatrial.report.html.data import (
    MAX_PICKED,
    RUN_COLUMNS,
    Picks,
    decoded_cells,
    default_picks,
    encode_column,
    encode_tables,
    page_data,
    script_safe_json,
)
from tests.unit.report import charted_factory, factory


def test_groups_and_runs_have_a_row_each() -> None:
    tables = page_data(factory.results()).drawn.tables
    groups, runs = tables["groups"], tables["runs"]
    figures = ["value", "low", "high", "ratio", "ratio_low", "ratio_high"]
    others = ["note", "runs", "failed", "p90_over_p50", "startup_s", "window", "n", "unit"]
    assert list(groups) == ["rank", "group", "mode", "lane", *figures, *others, "axis_micro_batch", "axis_loader"]
    assert list(runs) == list(RUN_COLUMNS)
    assert groups["group"][0] == "mb16_nw2" and groups["note"][0] == "recommended"
    assert groups["unit"][0] == "samples/s" and groups["window"][0] == "steps 20–199"
    assert groups["lane"][-1] is False and groups["group"][-1] == factory.ODD
    at = runs["run"].index("mb8_nw2_r2")
    assert (runs["outcome"][at], runs["value"][at], runs["window"][at]) == ("failed", None, "")
    assert (runs["value"][runs["run"].index("mb16_nw2_r1")], runs["n"][runs["run"].index("mb16_nw2_r1")]) == (1270.0, 178)
    assert {len(values) for values in runs.values()} == {len(runs["run"])}
    assert page_data(factory.empty_results()).drawn.tables == {}


def test_a_loss_that_is_not_finite_stays_and_other_numbers_become_empty() -> None:
    steps = charted_factory.steps([16.0, math.inf])
    charts = RunCharts(tables={STEPS: {**steps, "loss": [math.nan, -math.inf]}})
    run = dataclasses.replace(factory.measured("mb16_nw2", 1), charts=charts)
    drawn = page_data(factory.results(runs=(run,))).drawn.tables[STEPS]
    assert isinstance(drawn["loss"][0], float) and math.isnan(drawn["loss"][0]) and drawn["loss"][1] == -math.inf
    assert drawn["iter_ms"] == [16.0, None] and drawn["run"] == ["mb16_nw2_r1"] * 2


def test_text_is_categories_and_codes() -> None:
    column = encode_column("run", ["a", "b", None, "a"])
    assert column == {"categories": ["a", "b"], "values": [0, 1, None, 0]}


def test_what_is_reported_again_is_reported_once() -> None:
    column = encode_column("run", ["a"] * 500 + ["b"] * 700)
    assert column == {"categories": ["a", "b"], "runs": [0, 500, 1, 700]}


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("iter_ms", [123.456789, 0.000123456, 98765.4], [123.46, 0.00012346, 98765]),
        ("t_s", [1.23456, 98765.4321, 2.0], [1.235, 98765.432, 2.0]),
        ("step", [123456, 7, None], [123456, 7, None]),
        ("value", [4.0, 5.0, None], [4, 5, None]),
        ("loss", [1.5, float("nan"), float("-inf"), None], [1.5, "NaN", "-Infinity", None]),
        ("loss", [float("nan"), 3.0, 4.0], ["NaN", 3.0, 4.0]),
        ("loss", [3.0, float("inf"), None], [3.0, "Infinity", None]),
        ("counted", [True, False, True], [True, False, True]),
        ("axis_told", [None, True, False], [None, True, False]),
        ("axis_odd", [False, 1, 2], ["false", "1", "2"]),
        ("axis_odd", [True, 0.5, None], ["true", "0.5", None]),
        ("axis_rate", [0.000123456789, 1.0], [0.000123456789, 1.0]),
        ("axis_wait_s", [0.0001, 0.5], [0.0001, 0.5]),
        ("mib_per_s", [0.000123, 12.0], [0.000123, 12.0]),
        ("axis_mixed", [1, "1", True, None], ["1", "1", "true", None]),
        ("nothing", [None, None], [None, None]),
    ],
)
def test_numbers_keep_what_says_something(name: str, values: list[Any], expected: list[Any]) -> None:
    assert decoded_cells(name, values) == expected


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=40))
def test_texts_come_back(values: list[str | None]) -> None:
    came = decoded_cells("run", values)
    assert len(came) == len(values)
    assert [(value is None) for value in came] == [(value is None) for value in values]


@given(st.lists(st.one_of(st.none(), st.integers(-(10**9), 10**9)), min_size=1, max_size=60))
def test_whole_numbers_come_back(values: list[int | None]) -> None:
    assert decoded_cells("n", values) == values


@given(st.text())
def test_no_text_leaves_the_script(text: str) -> None:
    safe = script_safe_json({"a": text, text: 1})
    assert "<" not in safe and "\u2028" not in safe and "\u2029" not in safe
    assert json.loads(safe) == {"a": text, text: 1}


def test_marks_that_turn_text_around_are_taken_out() -> None:
    table = encode_tables({"runs": {"run": ["a\u202eb\x1b[31m"], "n": [1]}})["runs"]
    assert table == {"rows": 1, "columns": {"run": {"categories": ["ab"], "values": [0]}, "n": {"values": [1]}}}


def test_figures_keep_what_four_digits_are_made_of() -> None:
    tables = encode_tables({"groups": {"value": [148.148148148]}, "steps": {"iter_ms": [148.148148148]}})
    # Of 148.15 four digits are 148.2, where the table of the page tells 148.1.
    assert tables["groups"]["columns"]["value"] == {"values": [148.148148]}
    assert tables["steps"]["columns"]["iter_ms"] == {"values": [148.15]}


def table(*runs: str) -> Columns:
    """Runs `a_r1` of the group `a`, each with two rows."""
    twice = [run for run in runs for _ in range(2)]
    return {"run": [*twice], "group": [run.split("_")[0] for run in twice]}


def runs_of(*groups: str, repeats: int = 3) -> list[str]:
    return [f"{group}_r{repeat}" for group in groups for repeat in range(1, repeats + 1)]


def bad(id: str, *subjects: str, scope: str = "", verdict: Verdict = Verdict.FAIL) -> Finding:
    criterion = Criterion(metric="m", scope=scope) if scope else None
    evidence = tuple(Evidence(subject=subject, value=1, file="") for subject in subjects)
    return Finding(id=id, kind=id.partition(":")[0], criterion=criterion, verdict=verdict, text="", evidence=evidence)


def picks_of(tables: dict[str, Columns], *groups: str, baseline: str = "", statements: Any = (), findings: Any = ()) -> Picks:
    verdict = CampaignVerdict(verdict=Verdict.FAIL, findings=tuple(findings), statements=tuple(statements))
    return default_picks(tables, groups=groups, baseline=baseline, verdict=verdict)


def test_the_winner_is_beside_the_baseline_or_the_last() -> None:
    tables = {"steps": table(*runs_of("a", "b", "c")), "telemetry": table(*runs_of("a", "b", "c"))}
    assert picks_of(tables, "b", "a", "c") == Picks(runs=("b_r1", "b_r2", "c_r1", "c_r2"), timeline="b_r1")
    assert picks_of(tables, "b", "a", "c", baseline="a").runs == ("b_r1", "b_r2", "a_r1", "a_r2")
    assert picks_of(tables).runs == ("a_r1", "a_r2", "c_r1", "c_r2")


def test_few_runs_are_all_shown_the_best_group_first() -> None:
    picks = picks_of({"steps": table(*runs_of("a", "b", repeats=4))}, "b", "a")
    assert len(picks.runs) == MAX_PICKED and picks.runs == tuple(runs_of("b", "a", repeats=4))


def test_a_run_that_only_one_table_has_is_shown_too() -> None:
    assert picks_of({"steps": table("a_r1"), "phases": table("a_r1", "b_r1")}, "b", "a").runs == ("b_r1", "a_r1")


def test_groups_without_a_run_that_ended_ok_are_not_compared() -> None:
    """`d` has no run at all, and the runs of `c` and the first of `a` crashed after some steps."""
    names = runs_of("a", "b", "c")
    runs: Columns = {"run": [*names], "outcome": ["failed" if name[0] == "c" or name == "a_r1" else "ok" for name in names]}
    picks = picks_of({"steps": table(*names), "runs": runs}, "d", "c", "a", "b")
    assert picks == Picks(runs=("a_r2", "a_r3", "b_r1", "b_r2"), timeline="a_r2")


def test_the_timeline_is_of_the_run_that_a_finding_names() -> None:
    tables = {"steps": table(*runs_of("a", "b", "c")), "telemetry": table(*runs_of("a", "b"))}

    def timeline(statements: list[Finding], findings: Any = ()) -> str:
        return picks_of(tables, "a", "b", "c", statements=statements, findings=findings).timeline

    passed = bad("leak-none", "c_r1", verdict=Verdict.PASS)
    assert timeline([passed, bad("slow_steps", "c_r2"), bad("leak:b_r2:host", "b_r2")]) == "b_r2"
    assert timeline([bad("straggler:b_r3:rank2", "b_r3", "a_r1")]) == "b_r3"
    assert timeline([bad("stability:b", "b", "b")]) == "b_r1"
    assert timeline([bad("leak:gone", "gone_r1")]) == "a_r1"
    # Where two configurations use one name, charts have digits behind it and evidence has not.
    tables = {"steps": table("a_r1~1f2e", "b_r1", "a_r2~9c0d")}
    assert timeline([bad("leak:a_r2:host", "a_r2")]) == "a_r2~9c0d"
    tables = {"steps": table(*runs_of("a", "b", "c"))}
    # Over the campaign the first number is of the first run, which need not be at fault.
    assert timeline([], [bad("1", "campaign", "b_r1", scope="campaign"), bad("2", "c_r2", "a_r1", scope="every_run")]) == "c_r2"


def test_of_many_runs_those_at_fault_are_shown_after_the_compared() -> None:
    picks = picks_of({"steps": table(*runs_of("a", "b", "c"))}, "a", "b", "c", statements=[bad("leak:b_r3:host", "b_r3")])
    assert picks.runs == ("a_r1", "a_r2", "c_r1", "c_r2", "b_r3")


def test_nothing_to_pick_from_is_nothing_picked() -> None:
    assert picks_of({}, "a") == Picks()
