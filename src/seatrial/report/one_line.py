"""Text that users had a hand in, as one line that no terminal and no page takes for more than text."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A terminal takes U+009B for the beginning of a sequence too.
# And marks of direction would turn what stands after them around: a name that reads backwards, a figure in another's column.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LINE_END = re.compile(r"[\r\n\t\u2028\u2029]")


def without_colours(text: str) -> str:
    """Taken out: colours, weights and movements of the cursor."""
    return _COLOUR.sub("", text)


def one_line(text: str) -> str:
    """Terminal colours, control characters and marks of direction taken out, line breaks made spaces."""
    return _LINE_END.sub(" ", _CONTROL.sub("", without_colours(text)))
