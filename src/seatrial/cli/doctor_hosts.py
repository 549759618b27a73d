"""What was found on many hosts, as a table: a row for each check, a column for each host, and below it what is amiss.

    hosts                     node1  node2
      sessions
        ssh                     ✓      ✗
        Python and Seatrial     ✓      ·

Where the columns do not fit, as for 64 hosts, a row gives counts and names the odd ones: `✓ 62  ! node7  ✗ node12`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.preflight.hosts.rows import OK, REFUSED, WARNING, HostRow, HostSection, HostsExamined, folded, hosts_text, status
from seatrial.preflight.question import Section
from seatrial.records.run_spec import PERNODE, PlaceSpec

if TYPE_CHECKING:
    from seatrial.preflight.need import Need

NOT_LOOKED_AT = "·"
GAP = 2
WIDEST_HOST = 14
TITLE = "hosts"


def place_of(need: Need, hostfile: Path | None, interface: str | None) -> PlaceSpec | None:
    """Where the runs are to be made on many hosts: the plan's own place, or that of a hostfile; None for one host."""
    from seatrial.campaign.host_check import hostfile_place
    from seatrial.hostfile import chosen, read_hostfile

    place = hostfile_place(need)
    if hostfile is not None:
        hosts = chosen(read_hostfile(hostfile))
        place = replace(place or PlaceSpec(kind="hostfile"), hostfile=str(hostfile), hosts=hosts, include="", exclude="")
    return replace(place, interface=interface) if place and interface else place


def looked_at_later(need: Need) -> str:
    """What is said of nodes that nobody can enter from here; empty where there are none."""
    nodes = max((spec.place.nodes for spec in need.runs if spec.place.kind == PERNODE), default=0)
    return f"nodes: all {nodes} are looked at when the campaign starts, by the command that runs on each of them" if nodes else ""


def columns_of(examined: HostsExamined) -> list[str]:
    """Every host, and the head where it is none of them and something was looked at there."""
    return list(dict.fromkeys([*examined.hosts, *(host for row in examined.rows for host in row.checks)]))


def table(examined: HostsExamined, marks: Mapping[str, str], width: int) -> Iterator[tuple[str, str]]:
    """(line, status of what it shows), no line wider than `width` where columns are shown."""
    hosts = columns_of(examined)
    names = max((len(row.name) for row in examined.rows), default=0) + 4
    cell = min(WIDEST_HOST, max(map(len, hosts), default=0)) + GAP
    wide = names + GAP + cell * len(hosts) <= width and max(map(len, hosts), default=0) <= WIDEST_HOST
    head = "".join(f"{host:^{cell}}" for host in hosts) if wide else f"{len(hosts)}"
    yield f"{TITLE:<{names}}{' ' * GAP}{head}".rstrip(), ""
    for section in examined.sections:
        yield from _section(section, hosts, marks, names, cell if wide else 0)


def _section(section: HostSection, hosts: Sequence[str], marks: Mapping[str, str], names: int, cell: int) -> Iterator[tuple[str, str]]:
    yield f"  {section.subject}", "subject"
    for row in section.rows:
        cells = _columns(row, hosts, marks, cell) if cell else _counted(row, hosts, marks)
        yield f"    {row.name:<{names - 4}}{' ' * GAP}{cells}".rstrip(), worst(row)


def _columns(row: HostRow, hosts: Sequence[str], marks: Mapping[str, str], cell: int) -> str:
    shown = [marks[status(row.checks[host])] if host in row.checks else NOT_LOOKED_AT for host in hosts]
    return "".join(f"{mark:^{cell}}" for mark in shown)


def _counted(row: HostRow, hosts: Sequence[str], marks: Mapping[str, str]) -> str:
    by_status = {
        name: [host for host in hosts if host in row.checks and status(row.checks[host]) == name] for name in (OK, WARNING, REFUSED)
    }
    parts = [f"{marks[OK]} {len(by_status[OK])}"] if by_status[OK] else []
    parts += [f"{marks[name]} {hosts_text(by_status[name])}" for name in (WARNING, REFUSED) if by_status[name]]
    return "  ".join(parts)


def worst(row: HostRow) -> str:
    """The worst of a row's answers."""
    found = {status(check) for check in row.checks.values()}
    return next((name for name in (REFUSED, WARNING) if name in found), OK)


def findings(examined: HostsExamined) -> tuple[Section, ...]:
    """What is amiss, by subject: one check for all hosts on which the same was found, with their names in its name."""
    sections = [
        Section(
            subject=section.subject, checks=tuple(check for row in section.rows for check in folded(row, examined.labels) if not check.ok)
        )
        for section in examined.sections
    ]
    return tuple(section for section in sections if section.checks)


def document(examined: HostsExamined) -> dict[str, Any]:
    """All of it: every host's every answer, and its facts."""
    from seatrial.records.codec import to_json

    rows = [
        {
            "subject": section.subject,
            "name": row.name,
            "hosts": {host: {"status": status(check), **to_json(check)} for host, check in row.checks.items()},
        }
        for section in examined.sections
        for row in section.rows
    ]
    return {"names": list(examined.hosts), "rows": rows, "facts": {host: to_json(facts) for host, facts in examined.facts.items()}}
