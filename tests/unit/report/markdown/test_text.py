"""Markdown that names and log lines cannot break."""

from __future__ import annotations

import pytest

from seatrial.report.markdown.text import bounded_table, code_block, escape, folded, table


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
    assert bounded_table(["a"], rows[:25]).count("\n") == 26
    assert bounded_table(["a"], rows, where="x.csv").endswith("| 24 |\n\n5 more rows are left out here: `x.csv` has them.")


def test_what_is_folded_is_still_markdown() -> None:
    assert "\n\n".join(folded("Rest", ["## A", "text"])) == "<details>\n<summary>Rest</summary>\n\n## A\n\ntext\n\n</details>"
    assert folded("Rest", [], is_open=True)[0].startswith("<details open>")
