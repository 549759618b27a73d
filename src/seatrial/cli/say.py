"""Words for people and a line for machines: with `--json` the last line of stdout is one JSON document, and all else goes to stderr.

rich is loaded when a console is asked for, so that help and errors come at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def people(*, as_json: bool = False, plain: bool = False, soft_wrap: bool = False) -> Console:
    """Where people read; `plain` where nothing that is printed has markup, `soft_wrap` where lines are not to be broken."""
    from rich.console import Console

    return Console(stderr=as_json, emoji=False, markup=not plain, highlight=not plain, soft_wrap=soft_wrap)


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Lines that are laid out already, as they are: names in them are other people's, and no markup."""
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def write_lines(lines: Sequence[str], *, as_json: bool = False) -> None:
    """Likewise, and not even a tab in them is touched."""
    (sys.stderr if as_json else sys.stdout).write("\n".join(lines) + "\n")


def print_json(document: object, *, ensure_ascii: bool = True) -> None:
    """The machine's line."""
    sys.stdout.write(json.dumps(document, ensure_ascii=ensure_ascii) + "\n")
