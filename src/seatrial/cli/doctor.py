"""`seatrial doctor [PLAN]`: what of this host, and of every host of a plan, would spoil a campaign, before it does.

seatrial doctor plans/tiny-lm-demo.yaml

output
  ✓ output folder  outputs/tiny-lm-demo can be written to
disks
  ! disk space     900.0 MiB free in /data
      would end in: OSError: [Errno 28] No space left on device
      fix:          free at least 200.0 MiB or choose another disk with --out
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seatrial.cli.options import AsJson, Out, Overrides
from seatrial.cli.say import people, print_json
from seatrial.records.exit_codes import DONE, FAILED

if TYPE_CHECKING:
    from rich.console import Console

    from seatrial.preflight.hosts.rows import HostsExamined
    from seatrial.preflight.need import Need
    from seatrial.preflight.question import Section
    from seatrial.records.check import Check
    from seatrial.records.run_spec import PlaceSpec

EXAMPLES = "seatrial doctor plans/tiny-lm-demo.yaml --json\n\nseatrial doctor --hostfile hostfile --interface eth0"
NARROWEST = 40
WIDEST_NAME = 30
MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "refused": ("✗", "red")}
# For a terminal that has no such characters.
PLAIN_MARKS = {"ok": "ok", "warning": "!", "refused": "X"}

PlanToCheck = Annotated[
    Path | None, typer.Argument(metavar="[PLAN]", help="A plan, whose needs are checked too; without one, this host in general.")
]
Fast = Annotated[bool, typer.Option("--fast", help="Only what is checked before every campaign, in a fraction of a second.")]
Hostfile = Annotated[
    Path | None,
    typer.Option(
        "--hostfile",
        metavar="FILE",
        help="Look at every host of this hostfile too (lines `node1 slots=2`), by ssh and all at once. Default: those of the plan.",
        show_default=False,
    ),
]
Interface = Annotated[
    str | None,
    typer.Option(
        "--interface",
        metavar="NAME",
        help="The network interface that joins the hosts, as NCCL_SOCKET_IFNAME has it (eth0; eth,ib; ^lo,docker). Default: the plan's.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor", epilog=EXAMPLES)(doctor)


def doctor(
    plan: PlanToCheck = None,
    set: Overrides = None,
    out: Out = None,
    hostfile: Hostfile = None,
    interface: Interface = None,
    fast: Fast = False,
    json: AsJson = False,
) -> int:
    """Look at this host, and at every host of the plan, for what would spoil a campaign: each finding names the later error and the fix.

    Nothing is started and nothing is changed. Exit code 0 when a campaign may start (warnings included), 2 when it would be refused.
    """
    from seatrial.cli.doctor_hosts import findings, looked_at_later, place_of

    began_m = time.monotonic()
    need = _need(plan, set, out)
    place = place_of(need, hostfile, interface)
    sections = _of_this_host(need, place, fast)
    examined = _of_all_hosts(need, place, fast) if place else None
    took_s = time.monotonic() - began_m
    console = people(as_json=json, plain=True)
    _print_sections(console, sections)
    if examined is not None:
        _print_hosts(console, examined)
    elif later := looked_at_later(need):
        console.print(later, soft_wrap=True)
    counted = (*sections, *(findings(examined) if examined else ()))
    total = sum(len(section.checks) for section in sections) + (sum(len(row.checks) for row in examined.rows) if examined else 0)
    console.print(_ending(counted, took_s, total), soft_wrap=True)
    if json:
        print_json(_document(sections, counted, took_s, plan, examined), ensure_ascii=False)
    return FAILED if _count(counted, "refused") else DONE


def _of_this_host(need: Need, place: PlaceSpec | None, fast: bool) -> tuple[Section, ...]:
    from seatrial.campaign.host_check import own_need
    from seatrial.observe.trial import empty_columns
    from seatrial.preflight.checks import examine

    own = own_need(need, place.hosts if place else ())
    return examine(own, fast=fast, empty_columns=None if fast else empty_columns)


def _of_all_hosts(need: Need, place: PlaceSpec, fast: bool) -> HostsExamined:
    from seatrial.campaign.host_check import examine_by_ssh

    return examine_by_ssh(need, place, fast=fast)


def _need(plan: Path | None, set: Overrides, out: Path | None) -> Need:
    from seatrial.cli.read_plan import read_plan
    from seatrial.preflight.need import Need, need_of

    if plan is None:
        return Need(output=out or Path.cwd())
    return need_of(read_plan(plan, set, None, None, out))


def _print_sections(console: Console, sections: Sequence[Section]) -> None:
    """Sections with one line a check; of those that are not ok also the later error and the fix."""
    from rich.text import Text

    width = max(NARROWEST, console.width)
    marks = _marks(console)
    names = [check.name for section in sections for check in section.checks if len(check.name) <= WIDEST_NAME]
    column = min(max(map(len, names), default=0), width // 3)
    for section in sections:
        console.print(Text(section.subject, style="bold"))
        for check in section.checks:
            status = _status(check)
            for line in _lines(check, marks[status], column, width):
                console.print(Text(line, style="" if status == "ok" else MARKS[status][1]), soft_wrap=True)


def _print_hosts(console: Console, examined: HostsExamined) -> None:
    """The table, and below it what is amiss."""
    from rich.text import Text

    from seatrial.cli.doctor_hosts import findings, table

    for line, status in table(examined, _marks(console), max(NARROWEST, console.width)):
        style = MARKS[status][1] if status in ("warning", "refused") else "bold" if status in ("", "subject") else ""
        console.print(Text(line if _shows(console, line) else line.replace("·", "."), style=style), soft_wrap=True)
    _print_sections(console, findings(examined))


def _marks(console: Console) -> dict[str, str]:
    return {status: mark for status, (mark, _) in MARKS.items()} if _shows(console, "✓✗") else PLAIN_MARKS


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


def _ending(sections: Sequence[Section], took_s: float, total: int | None = None) -> str:
    """`total` where `sections` has only what is amiss of some."""
    total = sum(len(section.checks) for section in sections) if total is None else total
    refused, warnings = _count(sections, "refused"), _count(sections, "warning")
    verdict = f"{refused} would refuse a campaign" if refused else "a campaign may start"
    warned = f", {warnings} {'warning' if warnings == 1 else 'warnings'}" if warnings else ""
    return f"{total} checks in {took_s:.1f} s: {verdict}{warned}"


def _document(
    sections: Sequence[Section], counted: Sequence[Section], took_s: float, plan: Path | None, examined: HostsExamined | None
) -> dict[str, Any]:
    from seatrial.cli.doctor_hosts import document
    from seatrial.machine.host import host
    from seatrial.records.codec import to_json

    checks = [{"subject": section.subject, "status": _status(check), **to_json(check)} for section in sections for check in section.checks]
    return {
        "host": host().name,
        "plan": None if plan is None else str(plan),
        "refused": _count(counted, "refused"),
        "warnings": _count(counted, "warning"),
        "took_s": round(took_s, 3),
        "checks": checks,
        "hosts": None if examined is None else document(examined),
    }
