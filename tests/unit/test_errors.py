"""Messages that any terminal can show."""

from __future__ import annotations

from seatrial.errors import printable


def test_what_a_terminal_would_obey_or_not_show_is_spelled_out() -> None:
    assert printable("a\x1b[31m b\x00 c\udce9 d\te é ✓\nnext") == "a\\x1b[31m b\\x00 c\\udce9 d\\te é ✓\nnext"


def test_a_word_without_end_is_cut_in_its_middle() -> None:
    text = printable(f"{'a' * 500}{'b' * 500}: File name too long")
    assert text == f"{'a' * 200}…{'b' * 99}:: File name too long".replace("::", ":")
    assert printable("x" * 399) == "x" * 399
