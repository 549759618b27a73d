"""What the page says, section by section, of whole summaries and of poor ones."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.records.charts import Columns
from seatrial.report.html import failures, findings, machine, ranking
from seatrial.report.html.content import NO_TABLES, NOTHING, content
from seatrial.report.html.page_data import PageData
from seatrial.report.html.shown_text import coded
from seatrial.report.numbers import NONE
from seatrial.report.summary import summary_json
from tests.unit.report import factory

Row = dict[str, Any]


@pytest.fixture(scope="module")
def summary() -> Row:
    return summary_json(factory.results())


def test_the_ranking_has_figures_as_every_report_has_them(summary: Row) -> None:
    main, aside = ranking.ranking_tables(summary)
    assert main["columns"][:8] == ["#", "group", "note", "samples/s", "95 % interval", "to best", "micro_batch", "loader"]
    assert main["titles"][8:] == ["wall p90/p50", "start-up", "runs", "window", "n"]
    first = main["rows"][0]
    assert first["cells"][:2] == ["1", "mb16_nw2"] and first["cells"][3].startswith("1,2") and first["cells"][6:8] == ["16", "fork"]
    assert aside["title"].startswith("Off the main lane") and aside["rows"][0]["cells"][1] == factory.ODD
    assert all(len(row["cells"]) == len(main["columns"]) for row in main["rows"])


def standing(note: str, **more: Any) -> Row:
    return {"rank": 1, "group": "a", "note": note, "value": 1250.0, "runs": 2, "n": 895, "window": "steps 1–899", "lane": True, **more}


def test_who_won_stands_out_and_who_only_leads_does_not() -> None:
    for note, shown, has_won, shade in (
        ("winner", "winner", True, "good"),
        ("winner, debug on", "winner, debug on", True, "good"),
        ("leads", "leads, not proven", False, "open"),
        ("leads, debug on", "leads, not proven, debug on", False, "open"),
        ("leads, not proven", "leads, not proven", False, "open"),
    ):
        (row,) = ranking.ranking_tables({"standings": [standing(note)]})[0]["rows"]
        assert (row["cells"][2], row["won"], row["class"]) == (shown, has_won, shade)


def test_the_first_tile_says_whether_it_won_by_what_and_over_how_much() -> None:
    told = {"ranking": {"metric": "samples_per_s", "unit": "samples/s"}}
    assert ranking.key_figures({**told, "standings": [standing("winner")]})[0] == ("Winner", "a", "by samples_per_s, n = 895, 2 runs")
    assert ranking.key_figures({**told, "standings": [standing("leads")]})[0][:2] == ("Leads, not proven", "a")


def test_a_group_that_has_not_run_has_no_figures_and_is_not_called_bad() -> None:
    waiting = {**standing("not run yet"), "rank": None, "value": None, "runs": 0, "n": 0, "window": "whole run"}
    (row,) = ranking.ranking_tables({"standings": [waiting]})[0]["rows"]
    assert row["class"] == "quiet" and row["cells"][-2:] == [NONE, NONE] and row["cells"][0] == NONE


def test_an_axis_may_have_the_name_of_a_column() -> None:
    table = ranking.ranking_tables({"standings": [standing("winner", axes={"n": 4, "compile": True})]})[0]
    assert table["columns"][6:8] == ["n (axis)", "compile"] and table["columns"].count("n") == 1
    assert table["rows"][0]["cells"][6:8] == ["4", "true"]


def test_groups_with_one_reason_stand_in_one_sentence() -> None:
    told = {"standings": [{"group": f"g{at}", "note": "tied", "reason": "not told apart", "lane": True} for at in range(9)]}
    assert ranking.reasons(told) == ["g0, g1, g2, g3, g4, g5 and 3 more: tied, not told apart"]


def test_key_figures_are_those_of_the_first(summary: Row) -> None:
    tiles = {name: value for name, value, _ in ranking.key_figures(summary)}
    assert tiles["Leads, not proven"] == "mb16_nw2" and tiles["Its figure"].endswith("samples/s")
    assert ranking.key_figures({}) == []


def test_findings_have_their_id_their_word_and_their_numbers(summary: Row) -> None:
    first = findings.criteria(summary)[0]
    assert (first["id"], first["verdict"], first["mark"]) == ("1-failed_runs-campaign", "FAIL", "✗")
    assert first["criterion"] == "failed_runs, scope campaign, at most 0"
    assert first["evidence"]["rows"] and len(first["evidence"]["rows"][0]) == len(first["evidence"]["columns"])


def test_a_finding_over_many_runs_shows_some_numbers_and_says_how_to_see_all() -> None:
    many = [{"subject": f"r{at}", "value": at, "file": "a.csv"} for at in range(100)]
    finding = findings.criteria({"verdict": {"findings": [{"id": "a", "verdict": "PASS", "text": "t", "evidence": many}]}})[0]
    assert len(finding["evidence"]["rows"]) == findings.MOST_NUMBERS
    assert finding["evidence"]["more"].startswith("and 70 numbers more")
    assert finding["evidence"]["columns"] == ["of", "value", "file"]


def test_statements_stand_by_what_they_say() -> None:
    told = [{"id": word, "verdict": word, "text": word} for word in ("PASS", "INCONCLUSIVE", "FAIL", "PASS")]
    parts = findings.statements({"verdict": {"statements": told}})
    assert [(part["verdict"], len(part["findings"])) for part in parts] == [("FAIL", 1), ("INCONCLUSIVE", 1), ("PASS", 2)]
    # What decides nothing does not say FAIL.
    assert [(part["findings"][0]["word"], part["findings"][0]["class"]) for part in parts] == [
        ("to look at", "look"),
        ("INCONCLUSIVE", "inconclusive"),
        ("PASS", "pass"),
    ]


def test_failures_that_a_criterion_counts_are_not_said_to_change_nothing() -> None:
    failed = {"statements": [{"id": "failure:cuda_oom", "verdict": "FAIL", "text": "t"}], "verdict": "FAIL"}
    assert findings.what_they_decide({"verdict": failed}) == ""
    assert findings.what_they_decide({"verdict": {**failed, "verdict": "PASS"}}) == findings.DECIDES_NOTHING
    assert findings.what_they_decide({"verdict": {"statements": [], "verdict": "FAIL"}}) == findings.DECIDES_NOTHING


def criterion(verdict: str, metric: str) -> Row:
    return {"id": f"1-{metric}", "verdict": verdict, "text": metric, "criterion": {"metric": metric}}


def test_the_head_says_which_criteria_decide() -> None:
    told = [criterion(*one) for one in (("PASS", "a"), ("INCONCLUSIVE", "b"), ("FAIL", "c"), ("INCONCLUSIVE", "d"))]

    def meaning(found: list[Row], word: str, **more: Any) -> str:
        summary = {"verdict": {"verdict": word, "findings": found}, **more}
        return str(content(PageData(summary=summary), [], has_bundle=True)["verdict"]["meaning"])

    assert [one["text"] for one in findings.criteria({"verdict": {"findings": told}})] == ["c", "b", "d", "a"]
    assert meaning(told, "FAIL") == "1 of 4 criteria does not hold: c; 2 cannot be said: b, d."
    assert meaning(told[:2], "INCONCLUSIVE") == "1 of 2 criteria cannot be said: b."
    assert meaning(told[:2], "INCONCLUSIVE", pending=["x", "y"]).endswith("b. 2 runs are missing.")
    assert meaning(told[:1], "PASS") == "Every criterion holds."


def test_while_it_runs_the_head_says_so_and_no_advice_is_given() -> None:
    told = {
        "verdict": {"verdict": "INCONCLUSIVE", "findings": [criterion("INCONCLUSIVE", "a")]},
        "winners": "No winner. a: no run ended ok.",
        "pending": ["x", "y"],
        "sentences": {"pending": "2 runs still to be run: x, y. The same command again runs only what is missing."},
    }
    still = content(PageData(summary=told), [], has_bundle=True)["verdict"]
    assert still["running"] == "" and "same command" in still["partial"][0]
    begun = content(PageData(summary={**told, "running": {"finished": 0, "count": 2}}), [], has_bundle=True)["verdict"]
    assert begun["running"] == "RUNNING, 0 of 2" and begun["winners"] == "No run has ended yet."
    assert begun["partial"] == ["Partial: 2 runs still to be run."] and "missing" not in begun["meaning"]
    later = content(PageData(summary={**told, "winners": "w", "running": {"finished": 1, "count": 2}}), [], has_bundle=True)["verdict"]
    assert (later["running"], later["winners"]) == ("RUNNING, 1 of 2", "w")


def test_the_folder_is_named_and_not_where_it_lies() -> None:
    told = content(PageData(summary={"output_root": "/home/somebody/out/demo"}), [], has_bundle=True)
    assert told["head"]["output"] == "demo" and told["title"] == "demo"


def test_of_several_failed_runs_the_shortest_and_the_longest_time_are_told() -> None:
    failed = {"runs": ["a", "b"], "cause": "stall", "outcome": "stalled", "duration_s": 12.0}
    shown = failures.failures({"failures": [failed]})
    assert shown[0]["ended"] == "Ended stalled after 12.0 s."
    assert failures.failures({"failures": [{**failed, "longest_s": 600.0}]})[0]["ended"] == "Ended stalled after 12.0 s to 10m 00s."
    assert failures.in_short(shown) == "What failed, and what to do: stall" and failures.in_short([]) == ""


def test_tables_by_group_have_the_best_first() -> None:
    runs = [{"group": name, "startup_import_sec": 1.0, "startup_sec": 2.0} for name in ("a", "b", "c")]
    table = machine.startup({"runs": runs, "standings": [standing("", group=name) for name in ("c", "not_run", "a")]})
    assert table is not None and [row[0] for row in table["rows"]] == ["c", "a", "b"]


def test_a_failure_says_what_to_do_and_shows_its_lines(summary: Row) -> None:
    (failure,) = failures.failures(summary)
    assert failure["cause"] == "cuda_oom" and failure["runs"] == "mb8_nw2_r2"
    assert failure["ended"].startswith("Ended failed after")
    assert any("<script>" in line for line in (*failure["telling"], *failure["log_tail"]))


def test_the_platforms_fault_asks_for_a_run_again() -> None:
    told = failures.failures({"failures": [{"runs": ["a"], "cause": "node_lost", "fault": "infrastructure"}]})
    assert "The platform's fault" in told[0]["remarks"][0]


def test_cautions_leave_out_what_stands_elsewhere() -> None:
    told = [
        {"kind": "made_from", "text": "x"},
        {"kind": "what_fits", "text": "x"},
        {"kind": "one_repeat", "text": "t", "subjects": ["a"] * 6},
    ]
    shown = failures.cautions({"cautions": told})
    assert [caution["kind"] for caution in shown if caution["text"] == "t"] == ["one repeat"]
    assert "what fits" not in [caution["kind"] for caution in shown]
    assert shown[-1]["subjects"] == "a, a, a, a and 2 more" and len(shown[-1]["all"]) == 6


def test_start_up_is_a_row_a_group_and_a_column_a_part(summary: Row) -> None:
    table = machine.startup(summary)
    assert table is not None
    assert table["columns"] == ["group", "launch", "import", "model", "first step", "other", "in all", "runs"]
    assert table["rows"][0][1:] == ["0.50", "1.00", "0.75", "1.50", "0.50", "4.25", table["rows"][0][-1]]
    assert machine.startup({"runs": [{"group": "a", "startup_sec": 3.0}]}) is None


def test_machines_are_told_with_their_runs(summary: Row) -> None:
    assert machine.machines(summary)[0].startswith("node-1, no GPU, Example CPU 9000 × 2")


def test_a_sentence_on_a_hundred_groups_can_be_opened() -> None:
    others = "a is not told apart from " + ", ".join(f"group_{at}" for at in range(100)) + "."
    told = {"winners": f"Throughput winner: a (1.5 samples/s). {others}"}
    verdict = content(PageData(summary=told), [], has_bundle=True)["verdict"]
    assert (verdict["winners"], verdict["others"]) == ("Throughput winner: a (1.5 samples/s).", others)
    short = content(PageData(summary={"winners": "Winner: a. So."}), [], has_bundle=True)["verdict"]
    assert (short["winners"], short["others"]) == ("Winner: a. So.", "")


def test_an_empty_section_says_why() -> None:
    steps: Columns = {"run": ["a"], "group": ["a"], "repeat": [1]}
    without = content(PageData(summary={}), [], has_bundle=True)["nothing"]
    beside = content(PageData(summary={}, tables={"steps": steps}), [], has_bundle=True)["nothing"]
    assert without["phases"] == NO_TABLES and beside["phases"] == NOTHING["phases"]
    assert without["heat"].endswith("this campaign has 0 axes.")


def test_our_own_texts_have_code_and_nobody_elses_markup() -> None:
    assert coded("run `a <b>` & <i>c</i>") == "run <code>a &lt;b&gt;</code> &amp; &lt;i&gt;c&lt;/i&gt;"
