"""Hosts that answer as they are told to: sound ones, each with what a test changes. Counts exchanges, and adds up a clock of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seatrial.preflight.hosts.examine import examine_hosts
from seatrial.preflight.hosts.rows import HostsExamined
from seatrial.preflight.need import Need
from seatrial.records.check import Check
from seatrial.records.line import ClockOffset
from seatrial.records.reply import Reply
from seatrial.records.run_spec import HostSpec, PlaceSpec
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
        self.asked: list[Mapping[str, Mapping[str, Any]]] = []
        self.clocks: dict[str, ClockOffset] = {}
        self.speeds: dict[str, float] = {}
        self.between: dict[frozenset[str], float] = {}
        self._slow_s = slow_s or {}
        self._changed: dict[tuple[str, str], dict[str, Any]] = {}
        self._troubles: dict[str, str] = {}

    def change(self, host: str, part: str, /, **told: Any) -> None:
        self._changed.setdefault((host, part), {}).update(told)

    def trouble(self, host: str, why: str) -> None:
        self._troubles[host] = why

    def address(self, name: str) -> str:
        return ADDRESS.format(self.names.index(name) + 1)

    def __call__(self, questions: Mapping[str, Mapping[str, Any]], patience_s: float, /) -> dict[str, Reply]:
        self.exchanges += 1
        self.asked.append(questions)
        self.time_s += max((self._slow_s.get(host, 0.0) for host in questions), default=0.0)
        return {host: self._reply(host, question) for host, question in questions.items()}

    def _reply(self, host: str, question: Mapping[str, Any]) -> Reply:
        if host in self._troubles:
            return Reply(trouble=self._troubles[host])
        parts = {name: self._part(host, name, asked) for name, asked in question.get("parts", {}).items()}
        clock = self.clocks.get(host, ClockOffset(offset_s=0.001, round_trip_s=0.002))
        return Reply(told={"parts": parts}, took_s=0.4, clock=clock)

    def _part(self, host: str, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        sound: dict[str, Any] = getattr(self, f"_{asked['ask']}", lambda host, asked: {})(host, asked)
        return {**sound, **self._changed.get((host, name), {})}

    def _facts(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        own = self.address(host) if host in self.names else "10.0.0.250"
        return {
            "host": host, "boot_id": f"boot of {host}", "cpu": "EPYC", "cpu_count": 64, "memory_bytes": 512 << 30, "seatrial": "0.1.0",
            "python": "3.11.7", "packages": {"torch": "2.13.0", "deepspeed": "0.19.8", "numpy": "2.4.6"}, "user": "ann", "uid": 1000,
            "interfaces": {"lo": ["127.0.0.1", "::1"], "eth0": [own]},
        }  # fmt: skip

    def _gpus(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"gpus": ["H100"] * 8, "driver_version": "570.1", "driver_cuda": "12.8"}

    def _names(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"own": host, "addresses": {name: [self.address(name)] for name in self.names}, "troubles": {}}

    def _programs(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"where": {name: f"/usr/bin/{name}" for name in [*asked["programs"], *asked["found_beside"]]}}

    def _space(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"folders": {folder: {"free_bytes": 9 << 30, "total_bytes": 99 << 30, "writable": True} for folder in asked["folders"]}}

    def _listen(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"port": asked.get("port") or PORT}

    def _speed(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """As fast as the slower of the two, by `speeds`, and as what lies between them."""
        called = asked["target"]["token"].split(" ", 2)[2]
        told = min(self.speeds.get(host, SOUND), self.speeds.get(called, SOUND), self.between.get(frozenset((host, called)), SOUND))
        return {"to": told, "from": told}

    def _is_held(self, host: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"held": True}


def examined(hosts: FakeHosts, need: Need | None = None, *, fast: bool = True, head: str = "", **place: Any) -> HostsExamined:
    where = PlaceSpec(kind="hostfile", hostfile="hostfile", hosts=specs(*hosts.names), **place)
    return examine_hosts(hosts, need or make_need(), where.hosts, head=head or hosts.names[0], fast=fast, place=where)


def amiss(found: HostsExamined) -> dict[tuple[str, str], Check]:
    """(row, host) → what is not in order."""
    return {(row.name, host): check for row in found.rows for host, check in row.checks.items() if not check.ok}
