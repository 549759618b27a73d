"""Text of users as the page shows it: in one line, without what a terminal or a browser would act on.

Angle brackets and quotes are the template's to escape; this takes out what escaping does not reach: colours and control characters of log
lines, and marks that turn the direction of what follows them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from seatrial.report.one_line import one_line

if TYPE_CHECKING:
    from markupsafe import Markup

_CODE = re.compile("`([^`]+)`")


def plain(text: str) -> str:
    """`text` in one line."""
    return text if text.isascii() and text.isprintable() else one_line(text)


def finalize(value: Any) -> Any:
    """For the template: every text that it puts in, save what is markup already."""
    return plain(value) if type(value) is str else value


def coded(text: str) -> Markup:
    """A text of our own: what stands between backticks is set as code, everything in it escaped."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(plain(text)))))
