"""`seatrial doctor [PLAN]`: what of this host would spoil a campaign, before it does.

seatrial doctor plans/tiny-lm-demo.yaml

output
  ✓ output folder  outputs/tiny-lm-demo can be written to
disks
  ! disk space     900.0 MiB free in /data
      would end in: OSError: [Errno 28] No space left on device
      fix:          free at least 200.0 MiB or choose another disk with --out
"""

from __future__ import annotations

import json as json_text
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import AsJson, Out, Overrides

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.preflight.need import Need
    from seatrial.preflight.question import Section
    from seatrial.records.check import Check

EXAMPLES = "seatrial doctor\n\nseatrial doctor plans/tiny-lm-demo.yaml --json"
REFUSED = 2
NARROWEST = 40
WIDEST_NAME = 30
MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "refused": ("✗", "red")}
# For a terminal that has no such characters.
PLAIN_MARKS = {"ok": "ok", "warning": "!", "refused": "X"}

PlanToCheck = Annotated[
    Path | None, typer.Argument(metavar="[PLAN]", help="A plan, whose needs are checked too; without one, this host in general.")
]
Fast = Annotated[bool, typer.Option("--fast", help="Only what is checked before every campaign, in a fraction of a second.")]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor", epilog=EXAMPLES)(doctor)


def doctor(plan: PlanToCheck = None, set: Overrides = None, out: Out = None, fast: Fast = False, json: AsJson = False) -> int:
    """Look at this host for what would spoil a campaign: each finding names the later error it prevents and the fix.

    Nothing is started and nothing is changed. Exit code 0 when a campaign may start (warnings included), 2 when it would be refused.
    """
    from rich.console import Console

    from seatrial.observe.trial import empty_columns
    from seatrial.preflight.checks import examine

    began = time.monotonic()
    sections = examine(_need(plan, set, out), fast=fast, empty_columns=None if fast else empty_columns)
    took_s = time.monotonic() - began
    console = Console(stderr=json, markup=False, highlight=False, emoji=False)
    _print_sections(console, sections)
    console.print(_ending(sections, took_s), soft_wrap=True)
    if json:
        sys.stdout.write(json_text.dumps(_document(sections, took_s, plan), ensure_ascii=False) + "\n")
    return REFUSED if _count(sections, "refused") else 0


def _need(plan: Path | None, set: Overrides, out: Path | None) -> Need:
    from seatrial.cli.run import resolved
    from seatrial.preflight.need import Need, need_of

    if plan is None:
        return Need(output=out or Path.cwd())
    return need_of(resolved(plan, set, None, None, out))


def _print_sections(console: Console, sections: Sequence[Section]) -> None:
    """Sections with one line a check; of those that are not ok also the later error and the fix."""
    from rich.text import Text

    width = max(NARROWEST, console.width)
    marks = {status: mark for status, (mark, _) in MARKS.items()} if _shows(console, "✓✗") else PLAIN_MARKS
    names = [check.name for section in sections for check in section.checks if len(check.name) <= WIDEST_NAME]
    column = min(max(map(len, names), default=0), width // 3)
    for section in sections:
        console.print(Text(section.subject, style="bold"))
        for check in section.checks:
            status = _status(check)
            for line in _lines(check, marks[status], column, width):
                console.print(Text(line, style="" if status == "ok" else MARKS[status][1]), soft_wrap=True)


def _lines(check: Check, mark: str, column: int, width: int) -> Iterator[str]:
    """The check as lines no wider than `width`, but for words that cannot be broken."""
    head = f"  {mark} {check.name:<{column}}  "
    indent = " " * (len(mark) + column + 5)
    if len(head) > len(indent):
        yield head.rstrip()
        head = indent
    yield from _wrapped(head, check.found, indent, width)
    if not check.ok:
        for label, text in (("would end in: ", check.prevents), ("fix:          ", check.fix)):
            yield from _wrapped(f"      {label}", text, " " * (6 + len(label)), width)


def _wrapped(head: str, text: str, indent: str, width: int) -> list[str]:
    wrapper = textwrap.TextWrapper(width, initial_indent=head, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text) or [head.rstrip()]


def _shows(console: Console, characters: str) -> bool:
    try:
        characters.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _status(check: Check) -> str:
    return "ok" if check.ok else "refused" if check.refuses else "warning"


def _count(sections: Sequence[Section], status: str) -> int:
    return sum(_status(check) == status for section in sections for check in section.checks)


def _ending(sections: Sequence[Section], took_s: float) -> str:
    total = sum(len(section.checks) for section in sections)
    refused, warnings = _count(sections, "refused"), _count(sections, "warning")
    verdict = f"{refused} would refuse a campaign" if refused else "a campaign may start"
    warned = f", {warnings} {'warning' if warnings == 1 else 'warnings'}" if warnings else ""
    return f"{total} checks in {took_s:.1f} s: {verdict}{warned}"


def _document(sections: Sequence[Section], took_s: float, plan: Path | None) -> dict[str, Any]:
    from seatrial.machine.host import host
    from seatrial.records.codec import to_json

    checks = [{"subject": section.subject, "status": _status(check), **to_json(check)} for section in sections for check in section.checks]
    return {
        "host": host().name,
        "plan": None if plan is None else str(plan),
        "refused": _count(sections, "refused"),
        "warnings": _count(sections, "warning"),
        "took_s": round(took_s, 3),
        "checks": checks,
    }
