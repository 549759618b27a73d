"""The frame of the report as a picture."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from seatrial.report.picture import COLOURS, GROUND, SVG_FORMAT, TEXT

FILLED = {
    "width": 10, "height": 10, "unique_id": "u", "char_height": 20, "line_height": 24.4, "styles": "", "terminal_width": 9,
    "terminal_height": 9, "lines": "", "chrome": "", "terminal_x": 1, "terminal_y": 1, "backgrounds": "", "matrix": "<text>a</text>",
}  # fmt: skip


def test_filled_it_is_a_picture_that_asks_nobody_for_a_font() -> None:
    text = SVG_FORMAT.format(**FILLED)
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "@font-face" not in text and re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]


def test_every_colour_is_one_and_text_can_be_read_on_its_ground() -> None:
    assert len(COLOURS) == 8 and all(0 <= part <= 255 for shade in (GROUND, TEXT, *COLOURS) for part in shade)
    assert min(TEXT) - max(GROUND) > 128
