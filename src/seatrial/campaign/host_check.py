"""The doctor on every host of a plan at once: sessions are opened by ssh, the hosts are examined, the sessions are closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.launch.ask_commands import ask_commands, head_of
from seatrial.launch.asking import Sessions
from seatrial.launch.gate import Gate
from seatrial.launch.transports.choose import users_args
from seatrial.preflight.checks import fast_checks
from seatrial.preflight.hosts.examine import examine_hosts, no_hosts
from seatrial.preflight.hosts.hostfiles import nobody
from seatrial.preflight.hosts.rows import HostsExamined
from seatrial.preflight.hosts.wanted import Gathered, hosts_of, need_of_head
from seatrial.preflight.need import Need
from seatrial.records.check import Check
from seatrial.records.run_spec import HOSTFILE, HostSpec, PlaceSpec


def hostfile_place(need: Need) -> PlaceSpec | None:
    """The place of the plan's runs on many hosts; None where there are none."""
    return next((spec.place for spec in need.runs if spec.place.kind == HOSTFILE), None)


def examine_by_ssh(need: Need, place: PlaceSpec, *, fast: bool) -> HostsExamined:
    """Every host of `place`, or of the plan's runs where those name more."""
    hosts = hosts_of(need) or place.hosts
    head = head_of(hosts)
    if not hosts:
        return no_hosts(need, place, head)
    # Entered as agents will be, so that nothing is refused which would work.
    place = replace(place, ssh_args=users_args(place, [host.name for host in hosts if host.name != head], need.caller))
    commands = ask_commands(hosts, head, python=place.python, ssh_args=place.ssh_args, env=need.caller)
    with Sessions(commands) as sessions:
        return examine_hosts(sessions.ask, need, hosts, head=head, fast=fast, place=place)


def examine_by_gate(need: Need, gate: Gate, *, fast: bool) -> HostsExamined:
    """Every node of place `pernode`, asked through the command that runs there: no ssh is needed, and none is looked at. Nodes are known
    by their ranks; ranks meet where the user typed it, unless the plan names another address."""
    given = need.runs[0].place
    place = replace(given, master_addr=given.master_addr or gate.master_addr)
    share = place.ranks // max(1, place.nodes)
    hosts = [HostSpec(name=node, ranks=share, devices=place.devices) for node in gate.nodes]
    gathered = Gathered(addresses=tuple(gate.addresses), host_names={node: gate.host_of(node) for node in gate.nodes})
    return examine_hosts(gate.ask, need, hosts, head=gate.nodes[0], fast=fast, place=place, gathered=gathered)


def own_need(need: Need, hosts: Sequence[HostSpec]) -> Need:
    """What the plan asks of this machine, for the checks of one host."""
    return need_of_head(need, head_of(hosts))


def checks_without_asking(need: Need) -> list[Check]:
    """What can be said of a plan here and at once: of this machine's part in it, and of a hostfile that gives no hosts."""
    place, hosts = hostfile_place(need), hosts_of(need)
    unknown = [nobody(place, Path(need.runs[0].cwd))] if place is not None and not hosts else []
    return [*unknown, *fast_checks(own_need(need, hosts))]
