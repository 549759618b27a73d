"""summary.md whole, its escaping and its limits."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from seatrial.core.paths import CampaignPaths
from seatrial.records.caution import Caution
from seatrial.records.measure import Estimate
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding, Verdict
from seatrial.report.markdown import MAX_CHARACTERS, summary_md
from seatrial.report.markdown_sections import code_block, escape, limited_table, stage1_sections, step_time_section, table
from seatrial.report.text import NONE
from tests.facts import states
from tests.unit.judge.campaigns import changed
from tests.unit.report import charted_factory, factory

GOLDEN = Path(__file__).parent / "golden"
GITHUB_TAKES = 65_536
OUT = CampaignPaths(Path("out"))


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_with_charts_it_is_as_it_was() -> None:
    assert summary_md(charted_factory.results(), OUT) == (GOLDEN / "summary_charts.md").read_text(encoding="utf-8")


def test_pictures_are_shown_where_they_are(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    assert "](charts/" not in summary_md(factory.results(), paths)
    paths.charts.mkdir()
    for name in ("ranking.png", "steps.png", "notes.png", "eta.csv"):
        (paths.charts / name).write_bytes(b"")
    text = summary_md(factory.results(), paths)
    assert re.findall(r"!\[[^]]+\]\((.*)\)", text) == ["charts/ranking.png", "charts/steps.png"]
    assert text.index("charts/ranking.png") < text.index("<details")
    assert text.index("<details") < text.index("charts/steps.png")


def test_a_thousand_runs_fit_a_comment() -> None:
    text = summary_md(charted_factory.many_groups(1000), OUT)
    assert len(text) < MAX_CHARACTERS < GITHUB_TAKES
    assert states(text, "960 more rows", "`ranked_groups.csv`")
    assert states(text, "975 more rows", "`per_run_metrics.csv`")
    assert "Left out for length" not in text


def worst() -> CampaignResults:
    """A thousand runs that all failed for reasons of their own, with a caution and a statement each, and names as long as names get."""
    found = charted_factory.many_groups(300)
    failed = [
        factory.measured("mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.EXCEPTION, detail=f"{at} " + "x" * 500, log_tail=("y" * 500,) * 20)
        for at in range(300)
    ]
    said = tuple(Finding(id=f"leak:{at}", kind="leak", verdict=Verdict.FAIL, text=f"{at} " + "z" * 900) for at in range(300))
    cautions = tuple(Caution(kind="drift", text=f"{at} " + "w" * 900) for at in range(300))
    verdict = dataclasses.replace(found.verdict, statements=said)
    return dataclasses.replace(found, runs=(*found.runs, *failed), cautions=cautions, verdict=verdict)


def test_what_is_too_long_all_the_same_is_left_out_and_named() -> None:
    text = summary_md(worst(), OUT)
    assert len(text) <= MAX_CHARACTERS
    assert re.search(r"^Left out for length: .*(Failures|Cautions|Other findings)", text, re.MULTILINE)
    assert text.count("<details") == text.count("</details>")
    assert text.index("## FAIL") < text.index("## Ranking") < text.index("Left out for length")


def test_a_verdict_of_endless_text_is_cut_at_a_line() -> None:
    found = factory.results()
    endless = tuple(dataclasses.replace(found.verdict.findings[0], text=f"{at} " + "v" * 5000) for at in range(50))
    text = summary_md(dataclasses.replace(found, verdict=dataclasses.replace(found.verdict, findings=endless)), OUT)
    assert len(text) <= MAX_CHARACTERS and "Cut here for length" in text
    assert text.count("<details") == text.count("</details>")


def test_hostile_names_stay_text() -> None:
    name = "</details><script>x\u2028# a\u202e|`b"
    text = summary_md(factory.renamed(charted_factory.results(), "mb16_nw2", name), OUT)
    assert "\u202e" not in text and "\u2028" not in text
    unescaped = re.sub(r"\\.", "", text)
    assert unescaped.count("</details>") == 4 and "<script>x" not in unescaped


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("mb16_nw2_r1", "mb16_nw2_r1"),
        ("_start_ end_", "\\_start\\_ end\\_"),
        ("a|b", "a\\|b"),
        ("`code`", "\\`code\\`"),
        ("<script>alert(1)</script>", "\\<script\\>alert(1)\\</script\\>"),
        ("&lt;b&gt;", "&amp;lt;b&amp;gt;"),
        ("[link](http://x)", "\\[link\\](http://x)"),
        ("**bold** ~~gone~~ $x$", "\\*\\*bold\\*\\* \\~\\~gone\\~\\~ \\$x\\$"),
        ("# heading", "\\# heading"),
        ("two\nlines\tand tabs", "two lines and tabs"),
        ("\x1b[31mred\x1b[0m\x07", "red"),
        ("\u202egnp.exe\u2066 \u200fx\u061c", "gnp.exe x"),
        ("two\u2028lines\u2029and \x85 more", "two lines and more"),
        (16, "16"),
    ],
)
def test_text_is_shown_as_it_is(text: object, escaped: str) -> None:
    assert escape(text) == escaped


def test_a_cell_cannot_leave_its_column() -> None:
    assert table(["a", "b"], [["x|y\n| z", 1]], right=[1]) == "| a | b |\n| --- | ---: |\n| x\\|y \\| z | 1 |"


def test_a_log_line_cannot_close_its_block() -> None:
    assert code_block(["one", "````", "  indented"]) == "`````text\none\n````\n  indented\n`````"


def test_a_log_line_cannot_end_its_own_line() -> None:
    assert code_block(["one\u2028# two\x1b]0;x\x07\u202e"]) == "```text\none # two]0;x\n```"


def test_a_long_table_says_what_it_left_out() -> None:
    rows = [[number] for number in range(30)]
    assert limited_table(["a"], rows[:25]).count("\n") == 26
    assert limited_table(["a"], rows, where="x.csv").endswith("| 24 |\n\n5 more rows are left out here: `x.csv` has them.")


PATHS = CampaignPaths(Path("out"))


def sections(results: CampaignResults) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for block in stage1_sections(results, PATHS):
        found.setdefault(block, []) if block.startswith("## ") else found[list(found)[-1]].append(block)
    return found


def test_a_spread_is_shown_of_the_groups_that_tell_it() -> None:
    assert sections(factory.results())["## Rank Imbalance"][0].startswith("Not measured")
    groups = list(factory.groups())
    told = dataclasses.replace(groups[2], stage1={**groups[2].stage1, "rank_iter_spread_p90_ms_mean": 1.5})
    (table,) = sections(factory.results(groups=(*groups[:2], told, groups[3])))["## Rank Imbalance"]
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == ["| mb16_nw2"] and "1.500" in table


def test_every_report_takes_the_same_mean_of_a_group() -> None:
    """Runs of 100 and 400 ms: 200 ms, as in the ranking, and not 250."""
    group = dataclasses.replace(
        factory.summary("mb16_nw2"), counted=("mb16_nw2_r1", "mb16_nw2_r2"), figures={"wall_p50_ms": Estimate(mean=200.0, n=2)}
    )
    runs = tuple(
        changed(run, wall_p50_ms=ms, wall_p90_ms=2 * ms, wall_p99_ms=None)
        for run, ms in zip((factory.measured("mb16_nw2", repeat) for repeat in (1, 2)), (100.0, 400.0), strict=True)
    )
    results = factory.results(groups=(group,), runs=runs)
    (row,) = [line for line in step_time_section(results) for line in line.splitlines() if line.startswith("| mb16")]
    assert [cell.strip() for cell in row.split("|")[2:5]] == ["200.0", "400.0", NONE]
