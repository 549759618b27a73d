"""What is shown before anybody picks: the evidence, not runs that have none."""

from __future__ import annotations

from typing import Any

from seatrial.records.charts import Columns
from seatrial.report.html.page_data import PageData
from seatrial.report.html.picks import MOST_PICKED, default_picks

Row = dict[str, Any]


def table(*runs: str) -> Columns:
    """Runs `a_r1` of the group `a`, each with two rows."""
    twice = [run for run in runs for _ in range(2)]
    return {"run": [*twice], "group": [run.split("_")[0] for run in twice]}


def runs_of(*groups: str, repeats: int = 3) -> list[str]:
    return [f"{group}_r{repeat}" for group in groups for repeat in range(1, repeats + 1)]


def ranked(*groups: str, **more: Any) -> Row:
    return {"ranking": {"winner": groups[0]}, "standings": [{"group": group} for group in groups], **more}


def bad(id: str, *subjects: str, scope: str = "", verdict: str = "FAIL") -> Row:
    criterion = {"metric": "m", "scope": scope} if scope else None
    return {"id": id, "verdict": verdict, "criterion": criterion, "evidence": [{"subject": subject} for subject in subjects]}


def test_the_winner_stands_beside_the_baseline_or_the_last() -> None:
    tables = {"steps": table(*runs_of("a", "b", "c")), "telemetry": table(*runs_of("a", "b", "c"))}
    told = ranked("b", "a", "c")
    assert default_picks(PageData(summary=told, tables=tables)) == {"runs": ["b_r1", "b_r2", "c_r1", "c_r2"], "timeline": "b_r1"}
    baseline = {**told, "baseline_group": "a"}
    assert default_picks(PageData(summary=baseline, tables=tables))["runs"] == ["b_r1", "b_r2", "a_r1", "a_r2"]
    assert default_picks(PageData(summary={}, tables=tables))["runs"] == ["a_r1", "a_r2", "c_r1", "c_r2"]


def test_few_runs_are_all_shown_the_best_group_first() -> None:
    steps = table(*runs_of("a", "b", repeats=4))
    picks = default_picks(PageData(summary=ranked("b", "a"), tables={"steps": steps}))
    assert len(picks["runs"]) == MOST_PICKED and picks["runs"] == runs_of("b", "a", repeats=4)


def test_a_run_that_only_one_table_has_is_shown_too() -> None:
    tables = {"steps": table("a_r1"), "phases": table("a_r1", "b_r1")}
    assert default_picks(PageData(summary=ranked("b", "a"), tables=tables))["runs"] == ["b_r1", "a_r1"]


def test_groups_without_a_run_that_ended_well_are_not_compared() -> None:
    """`d` has no run at all, and the runs of `c` and the first of `a` crashed after some steps."""
    names = runs_of("a", "b", "c")
    runs: Columns = {"run": [*names], "outcome": ["failed" if name[0] == "c" or name == "a_r1" else "ok" for name in names]}
    picks = default_picks(PageData(summary=ranked("d", "c", "a", "b"), tables={"steps": table(*names), "runs": runs}))
    assert picks == {"runs": ["a_r2", "a_r3", "b_r1", "b_r2"], "timeline": "a_r2"}


def test_the_timeline_is_of_the_run_that_a_finding_names() -> None:
    tables = {"steps": table(*runs_of("a", "b", "c")), "telemetry": table(*runs_of("a", "b"))}

    def timeline(statements: list[Row], findings: list[Row] | None = None) -> str:
        verdict = {"statements": statements, "findings": findings or []}
        return str(default_picks(PageData(summary=ranked("a", "b", "c", verdict=verdict), tables=tables))["timeline"])

    assert timeline([bad("leak-none", "c_r1", verdict="PASS"), bad("slow_steps", "c_r2"), bad("leak:b_r2:host", "b_r2")]) == "b_r2"
    assert timeline([bad("straggler:b_r3:rank2", "b_r3", "a_r1")]) == "b_r3"
    assert timeline([bad("stability:b", "b", "b")]) == "b_r1"
    assert timeline([bad("leak:gone", "gone_r1")]) == "a_r1"
    # Where two configurations gave one name, charts have digits behind it and evidence has not.
    tables = {"steps": table("a_r1~1f2e", "b_r1", "a_r2~9c0d")}
    assert timeline([bad("leak:a_r2:host", "a_r2")]) == "a_r2~9c0d"
    tables = {"steps": table(*runs_of("a", "b", "c"))}
    # Over the campaign the first number is of the first run, which need not be at fault.
    assert timeline([], [bad("1", "campaign", "b_r1", scope="campaign"), bad("2", "c_r2", "a_r1", scope="every_run")]) == "c_r2"


def test_of_many_runs_those_at_fault_are_shown_after_the_compared() -> None:
    verdict = {"statements": [bad("leak:b_r3:host", "b_r3")]}
    picks = default_picks(PageData(summary=ranked("a", "b", "c", verdict=verdict), tables={"steps": table(*runs_of("a", "b", "c"))}))
    assert picks["runs"] == ["a_r1", "a_r2", "c_r1", "c_r2", "b_r3"]


def test_nothing_to_pick_from_is_nothing_picked() -> None:
    assert default_picks(PageData(summary=ranked("a"), tables={})) == {"runs": [], "timeline": ""}
