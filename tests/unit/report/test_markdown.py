"""Markdown that names and log lines cannot break."""

from __future__ import annotations

import pytest

from seatrial.report.markdown import code_block, escape, table


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
        (16, "16"),
    ],
)
def test_text_is_shown_as_it_is(text: object, escaped: str) -> None:
    assert escape(text) == escaped


def test_a_cell_cannot_leave_its_column() -> None:
    assert table(["a", "b"], [["x|y\n| z", 1]], right=[1]) == "| a | b |\n| --- | ---: |\n| x\\|y \\| z | 1 |"


def test_a_log_line_cannot_close_its_block() -> None:
    assert code_block(["one", "````", "  indented"]) == "`````text\none\n````\n  indented\n`````"
