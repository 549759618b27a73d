"""What the checks of many hosts give: for each question one row, with every host's own check in it.

    ssh          node1 ✓   node2 ✗                HostRow(name="ssh", checks={"node1": Check(…), "node2": Check(…)})

A row may leave hosts out: those that were not asked, or could not answer anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from seatrial.errors import printable
from seatrial.records.check import Check
from seatrial.records.host_facts import HostFacts

OK, WARNING, REFUSED = "ok", "warning", "refused"
MOST_NAMED = 4
NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class HostCheck:
    """One host's answer to one question."""

    host: str
    check: Check


@dataclass(frozen=True, kw_only=True)
class HostRow:
    """One question, and the answer of each host that has one."""

    name: str
    checks: Mapping[str, Check]


@dataclass(frozen=True, kw_only=True)
class HostSection:
    """The rows of one subject."""

    subject: str
    rows: tuple[HostRow, ...]


@dataclass(frozen=True, kw_only=True)
class HostsExamined:
    """All that was found on the hosts of a run."""

    hosts: tuple[str, ...]
    sections: tuple[HostSection, ...]
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    """Host → what it told of itself; those that did not answer are left out."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Host → how texts call it, where that is more than its name: `node1 (gpu-b)`."""

    @property
    def rows(self) -> tuple[HostRow, ...]:
        return tuple(row for section in self.sections for row in section.rows)

    @property
    def checks(self) -> tuple[Check, ...]:
        """For who lists checks without a table, such as preflight.json: of each row one check for each thing found, with its hosts in
        its name."""
        return tuple(check for row in self.rows for check in folded(row, self.labels))


def status(check: Check) -> str:
    return OK if check.ok else REFUSED if check.refuses else WARNING


def row_of(name: str, checks: Iterable[HostCheck]) -> HostRow:
    return HostRow(name=name, checks={found.host: found.check for found in checks})


def rows_of(found: Iterable[HostCheck]) -> tuple[HostRow, ...]:
    """By the checks' names, in the order they first appear. What hosts told is made printable: it goes to a terminal."""
    rows: dict[str, list[HostCheck]] = {}
    for one in found:
        clean = replace(one, check=replace(one.check, found=printable(one.check.found)))
        rows.setdefault(one.check.name, []).append(clean)
    return tuple(row_of(name, checks) for name, checks in rows.items())


def folded(row: HostRow, labels: Mapping[str, str] = NO_LABELS) -> list[Check]:
    """One check for all hosts that found the same; those that are in order count as the same whatever they found."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for host, check in row.checks.items():
        key = (OK, "", "", "") if check.ok else (status(check), check.found, check.prevents, check.fix)
        groups.setdefault(key, []).append(host)
    return [_named(row, hosts, labels) for hosts in groups.values()]


def _named(row: HostRow, hosts: list[str], labels: Mapping[str, str]) -> Check:
    check = row.checks[hosts[0]]
    return replace(check, name=f"{row.name} on {hosts_text(hosts, labels)}", hosts=tuple(hosts))


def hosts_text(hosts: list[str], labels: Mapping[str, str] = NO_LABELS) -> str:
    """`node1, node2 and 3 more`."""
    more = len(hosts) - MOST_NAMED
    shown = ", ".join(labels.get(host, host) for host in (hosts if more <= 1 else hosts[:MOST_NAMED]))
    return f"{shown} and {more} more" if more > 1 else shown
