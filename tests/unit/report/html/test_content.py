"""What the page says, section by section, of whole summaries and of poor ones."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.records.charts import Columns
from seatrial.report.html import failures, findings, machine, ranking
from seatrial.report.html.content import NO_TABLES, NOTHING, content
from seatrial.report.html.page_data import PageData
from seatrial.report.html.picks import default_picks
from seatrial.report.html.shown_text import coded
from seatrial.report.summary import summary_json
from tests.unit.report import factory

Row = dict[str, Any]


@pytest.fixture(scope="module")
def summary() -> Row:
    return summary_json(factory.results())


def test_the_ranking_has_figures_as_every_report_has_them(summary: Row) -> None:
    main, aside = ranking.ranking_tables(summary)
    assert main["columns"][:5] == ["#", "group", "micro_batch", "loader", "samples/s"]
    first = main["rows"][0]
    assert first["cells"][:5] == ["1", "mb16_nw2", "16", "fork", "1,266"] or first["cells"][4].startswith("1,2")
    assert first["won"] and first["class"] == "good"
    assert aside["title"].startswith("Off the main lane") and aside["rows"][0]["cells"][1] == factory.ODD
    assert all(len(row["cells"]) == len(main["columns"]) for row in main["rows"])


def test_groups_with_one_reason_stand_in_one_sentence() -> None:
    told = {"standings": [{"group": f"g{at}", "note": "tied", "reason": "not told apart", "lane": True} for at in range(9)]}
    assert ranking.reasons(told) == ["g0, g1, g2, g3, g4, g5 and 3 more: tied, not told apart"]


def test_key_figures_are_those_of_the_winner(summary: Row) -> None:
    tiles = {name: value for name, value, _ in ranking.key_figures(summary)}
    assert tiles["Winner"] == "mb16_nw2" and tiles["Its figure"].endswith("samples/s")
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


def test_the_winner_stands_beside_the_baseline_or_the_last() -> None:
    names = [f"{group}_r{repeat}" for group in ("a", "b", "c") for repeat in (1, 2, 3)]
    table: Columns = {"run": [*names], "group": [name[0] for name in names], "repeat": [int(name[-1]) for name in names]}
    told = {"ranking": {"winner": "b"}, "standings": [{"group": group} for group in "bac"]}
    tables = {"steps": table, "telemetry": table}
    assert default_picks(PageData(summary=told, tables=tables)) == {"runs": ["b_r1", "b_r2", "c_r1", "c_r2"], "timeline": "b_r1"}
    baseline = {**told, "baseline_group": "a"}
    assert default_picks(PageData(summary=baseline, tables=tables))["runs"] == ["b_r1", "b_r2", "a_r1", "a_r2"]
    assert default_picks(PageData(summary={}, tables=tables))["runs"] == names[:4]


def test_our_own_texts_have_code_and_nobody_elses_markup() -> None:
    assert coded("run `a <b>` & <i>c</i>") == "run <code>a &lt;b&gt;</code> &amp; &lt;i&gt;c&lt;/i&gt;"
