"""Hosts for tests: `FakeHosts` answers every exchange as sound hosts would but for what a test changes; `make_answers` builds answers by
hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seatrial.core.control_connection.protocol import ClockOffset
from seatrial.core.hostfile import HostSpec
from seatrial.preflight.check_definition import HostCheck, HostsExamined, Need
from seatrial.preflight.hosts.queries import Answers, HostsNeed
from seatrial.preflight.hosts.run_checks import examine_hosts
from seatrial.records.attempt import HostFacts
from seatrial.records.caution import Check
from seatrial.records.launch import Reply
from seatrial.records.plan import PlaceSpec
from tests.unit.preflight.needs import make_need

ADDRESS = "10.0.0.{}"
PORT = 29650
SOUND = 1000.0 * (1 << 20)


def specs(*names: str, ranks: int = 1) -> tuple[HostSpec, ...]:
    return tuple(HostSpec(name=name, ranks=ranks) for name in names)


class FakeHosts:
    """An `Ask`. `change(host, part, told)` puts other words into an answer; `trouble(host, why)` makes a host give none."""

    def __init__(self, *names: str, slow_s: Mapping[str, float] | None = None) -> None:
        self.names, self.exchanges, self.time_s = names, 0, 0.0
        self.requests: list[Mapping[str, Mapping[str, Any]]] = []
        self.clocks: dict[str, ClockOffset] = {}
        self.speeds: dict[str, float] = {}
        self.between: dict[frozenset[str], float] = {}
        self._slow_s = slow_s or {}
        self._changed: dict[tuple[str, str], dict[str, Any]] = {}
        self._troubles: dict[str, str] = {}

    def change(self, host: str, part: str, /, **values: Any) -> None:
        self._changed.setdefault((host, part), {}).update(values)

    def trouble(self, host: str, why: str) -> None:
        self._troubles[host] = why

    def address(self, name: str) -> str:
        return ADDRESS.format(self.names.index(name) + 1)

    def __call__(self, definitions: Mapping[str, Mapping[str, Any]], timeout_s: float, /) -> dict[str, Reply]:
        self.exchanges += 1
        self.requests.append(definitions)
        self.time_s += max((self._slow_s.get(host, 0.0) for host in definitions), default=0.0)
        return {host: self._reply(host, definition) for host, definition in definitions.items()}

    def _reply(self, host: str, definition: Mapping[str, Any]) -> Reply:
        if host in self._troubles:
            return Reply(trouble=self._troubles[host])
        parts = {name: self._part(host, name, request) for name, request in definition.get("parts", {}).items()}
        clock = self.clocks.get(host, ClockOffset(offset_s=0.001, round_trip_s=0.002))
        return Reply(answer={"parts": parts}, took_s=0.4, clock=clock)

    def _part(self, host: str, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        sound: dict[str, Any] = getattr(self, f"_{request['ask']}", lambda host, request: {})(host, request)
        return {**sound, **self._changed.get((host, name), {})}

    def _facts(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        own = self.address(host) if host in self.names else "10.0.0.250"
        return {
            "host": host, "boot_id": f"boot of {host}", "cpu": "EPYC", "cpu_count": 64, "memory_bytes": 512 << 30, "seatrial": "0.1.0",
            "python": "3.11.7", "packages": {"torch": "2.13.0", "deepspeed": "0.19.8", "numpy": "2.4.6"}, "user": "ann", "uid": 1000,
            "interfaces": {"lo": ["127.0.0.1", "::1"], "eth0": [own]},
        }  # fmt: skip

    def _gpus(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"gpus": ["H100"] * 8, "driver_version": "570.1", "driver_cuda": "12.8"}

    def _names(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"own": host, "addresses": {name: [self.address(name)] for name in self.names}, "troubles": {}}

    def _programs(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"where": {name: f"/usr/bin/{name}" for name in [*request["programs"], *request["found_beside"]]}}

    def _space(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"folders": {folder: {"free_bytes": 9 << 30, "total_bytes": 99 << 30, "writable": True} for folder in request["folders"]}}

    def _listen(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"port": request.get("port") or PORT}

    def _speed(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """As fast as the slower of the two, by `speeds`, and as what lies between them."""
        called = request["target"]["token"].split(" ", 2)[2]
        values = min(self.speeds.get(host, SOUND), self.speeds.get(called, SOUND), self.between.get(frozenset((host, called)), SOUND))
        return {"to": values, "from": values}

    def _is_held(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"held": True}


def examined(hosts: FakeHosts, need: Need | None = None, *, fast: bool = True, head: str = "", **place: Any) -> HostsExamined:
    where = PlaceSpec(kind="hostfile", hostfile="hostfile", hosts=specs(*hosts.names), **place)
    return examine_hosts(hosts, need or make_need(), where.hosts, head=head or hosts.names[0], fast=fast, place=where)


def failed(found: HostsExamined) -> dict[tuple[str, str], Check]:
    """(row, host) → what is not in order."""
    return {(row.name, host): check for row in found.rows for host, check in row.checks.items() if not check.ok}


Parts = Mapping[str, Mapping[str, Any]]


def make_hosts_need(*names: str, head: str = "", kind: str = "hostfile", place: Mapping[str, Any] | None = None, **more: Any) -> HostsNeed:
    hosts = specs(*names)
    where = PlaceSpec(kind=kind, hostfile="hosts", hosts=hosts, **(place or {}))
    return HostsNeed(hosts=hosts, head=head or names[0], place=where, **{"planned": True, "folder": "/out", **more})


def reply(parts: Parts | None = None, trouble: str = "", clock: ClockOffset | None = None) -> Reply:
    return Reply(answer={} if trouble else {"parts": dict(parts or {})}, trouble=trouble, took_s=0.4, clock=clock)


def make_answers(
    first: Mapping[str, Parts] | None = None,
    *,
    second: Mapping[str, Parts] | None = None,
    third: Mapping[str, Parts] | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Answers:
    """Parts by host for each exchange; a host of which only facts are given has answered the first."""
    values = {host: HostFacts(name=host, **{"host": host, **one}) for host, one in (facts or {}).items()}
    exchanges = [{host: reply(parts) for host, parts in (exchange or {}).items()} for exchange in (first, second, third)]
    began = {**{host: reply() for host in values}, **exchanges[0]}
    return Answers(first=began, second=exchanges[1], third=exchanges[2], facts=values, **more)


def found(checks: Iterable[HostCheck]) -> dict[tuple[str, str], Check]:
    """(name, host) → the check."""
    return {(one.check.name, one.host): one.check for one in checks}
