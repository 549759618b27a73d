"""Drawings and signs in encodings that have none of them."""

from __future__ import annotations

import pytest

from seatrial.report.characters import can_show, in_encoding


def test_what_can_be_shown_is_left_alone() -> None:
    assert in_encoding("├─●─┤ ±2 % ▁█ 火", "utf-8") == "├─●─┤ ±2 % ▁█ 火"


def test_ascii_gets_one_character_for_one() -> None:
    assert in_encoding("├──●──┤  ◂─●─▸", "ascii") == "|--o--|  <-o->"
    assert in_encoding("▁▂▃▄▅▆▇█", "ascii") == "12345678"
    assert in_encoding("±2.1 %, 3 × 4 – 5…", "ascii") == "~2.1 %, 3 x 4 - 5."


def test_a_wide_character_leaves_as_many_columns() -> None:
    assert in_encoding("火a", "ascii") == "??a"


def test_a_drawing_is_changed_whole_or_not_at_all() -> None:
    # This encoding has two of the eight blocks, and lines but no dot.
    assert in_encoding("▁▄█", "cp437") == "148"
    assert in_encoding("├─●─┤", "cp437") == "|-o-|"
    assert in_encoding("±2 %", "latin-1") == "±2 %"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "no-such-encoding"])
def test_the_answer_can_always_be_shown(encoding: str) -> None:
    shown = in_encoding("▁█├●┤±→火\u202e é", encoding)
    assert can_show(shown, encoding if encoding != "no-such-encoding" else "ascii")
