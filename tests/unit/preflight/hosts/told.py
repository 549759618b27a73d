"""What hosts told, made by hand: for tests of one module of checks, without exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.records.check import Check
from seatrial.records.host_facts import HostFacts
from seatrial.records.line import ClockOffset
from seatrial.records.reply import Reply
from seatrial.records.run_spec import PlaceSpec
from tests.unit.preflight.hosts.fake_hosts import specs

Parts = Mapping[str, Mapping[str, Any]]


def make_wanted(*names: str, head: str = "", kind: str = "hostfile", place: Mapping[str, Any] | None = None, **more: Any) -> Wanted:
    hosts = specs(*names)
    where = PlaceSpec(kind=kind, hostfile="hosts", hosts=hosts, **(place or {}))
    return Wanted(hosts=hosts, head=head or names[0], place=where, **{"planned": True, "folder": "/out", **more})


def reply(parts: Parts | None = None, trouble: str = "", clock: ClockOffset | None = None) -> Reply:
    return Reply(told={} if trouble else {"parts": dict(parts or {})}, trouble=trouble, took_s=0.4, clock=clock)


def make_answers(
    first: Mapping[str, Parts] | None = None,
    *,
    second: Mapping[str, Parts] | None = None,
    third: Mapping[str, Parts] | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Answers:
    """Parts by host for each exchange; a host of which only facts are given has answered the first."""
    told = {host: HostFacts(name=host, **{"host": host, **one}) for host, one in (facts or {}).items()}
    exchanges = [{host: reply(parts) for host, parts in (exchange or {}).items()} for exchange in (first, second, third)]
    began = {**{host: reply() for host in told}, **exchanges[0]}
    return Answers(first=began, second=exchanges[1], third=exchanges[2], facts=told, **more)


def found(checks: Iterable[HostCheck]) -> dict[tuple[str, str], Check]:
    """(name, host) → the check."""
    return {(one.check.name, one.host): one.check for one in checks}
