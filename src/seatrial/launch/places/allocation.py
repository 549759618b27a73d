"""What a run gets: its nodes in order of their ranks, devices, and the rendezvous address and port of the ranks.

In: a run's spec, and for many hosts what their agents reported. Out: `Allocation`. Pure except for the port that `allocate_local` reserves
and the network facts that `harness_addresses` reads. Another host is never given a loopback address, by which it would reach itself. IPv4
only, on which the control server listens.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from seatrial.core.errors import LaunchError
from seatrial.core.hostfile import HostSpec, host_name_problem
from seatrial.core.ports import reserve_port
from seatrial.machine.gpus import Driver, runs_on_cpu
from seatrial.machine.network import (
    LOCAL_NAMES,
    LOOPBACK,
    interface_addresses,
    is_reachable_address,
    list_interfaces,
    match_nccl_interfaces,
    resolve_addresses,
    route_to,
)
from seatrial.records.launch import Allocation, Node
from seatrial.records.plan import PlaceSpec, RunSpec

Resolve = Callable[[str], Sequence[str]]
Route = Callable[[str], str | None]
Interfaces = Mapping[str, Sequence[str]]


def nodes_of(place: PlaceSpec) -> tuple[Node, ...]:
    """Every host's share, by node_rank; () for `local`."""
    if place.traits.is_this_machine:
        return ()
    # Slurm chooses its nodes when the job starts.
    unnamed = place.traits.typed_on_each_node or (place.traits.runs_in_jobs and not place.hosts)
    hosts = _equal_shares(place) if unnamed else place.hosts
    if not hosts:
        # Never fall back to this machine: that is not what the plan measures.
        raise LaunchError(f"no host given for place '{place.kind}' (hostfile '{place.hostfile}'): write one line `host slots=n` for each")
    _check_names(hosts)
    first_ranks = accumulate((host.ranks for host in hosts), initial=0)
    return tuple(
        Node(name=host.name, node_rank=node_rank, ranks=host.ranks, first_rank=first, devices=host.devices)
        for node_rank, (host, first) in enumerate(zip(hosts, first_ranks, strict=False))
    )


def _equal_shares(place: PlaceSpec) -> tuple[HostSpec, ...]:
    ranks, rest = divmod(place.ranks, max(1, place.nodes))
    if rest or not ranks:
        raise LaunchError(f"{place.ranks} ranks do not divide among {place.nodes} nodes: make place.ranks a multiple of place.nodes")
    return tuple(HostSpec(name=f"node{rank}", ranks=ranks, devices=place.devices) for rank in range(place.nodes))


def _check_names(hosts: Sequence[HostSpec]) -> None:
    """A spec may come from a file, and a name becomes a folder and an argument of ssh."""
    for host in hosts:
        if problem := host_name_problem(host.name):
            raise LaunchError(problem)
    names = [host.name for host in hosts]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LaunchError(f"host '{twice}' is named twice: give each host one line with all its slots")


@contextlib.contextmanager
def allocate_local(spec: RunSpec) -> Iterator[Allocation]:
    """This machine: the ranks and devices of the plan, and a port that no other campaign can take until the block ends."""
    with reserve_port(spec.place.port, spec.place.port_base) as reserved:
        yield local_allocation(spec, reserved.port)


def local_allocation(spec: RunSpec, master_port: int, driver: Driver | None = None) -> Allocation:
    """What `spec` gets here, with a port that the caller holds; without `driver` the GPU driver is queried where it matters."""
    # Only DeepSpeed needs to know.
    cpu_only = spec.launcher.kind == "deepspeed" and runs_on_cpu(spec, driver=driver)
    return Allocation(ranks=spec.place.ranks, devices=spec.place.devices, master_port=master_port, cpu_only=cpu_only)


def hosts_allocation(spec: RunSpec, nodes: tuple[Node, ...], master_addr: str, master_port: int) -> Allocation:
    """What the nodes of a run share; `allocation_for_node` gives one node's."""
    ranks = sum(node.ranks for node in nodes)
    return Allocation(ranks=ranks, master_addr=master_addr, master_port=master_port, cpu_only=is_cpu_only(spec), nodes=nodes)


def is_cpu_only(spec: RunSpec) -> bool:
    """Whether DeepSpeed is to leave the GPUs of many hosts alone.

    Only where the plan sets `device: cpu` and no host names GPUs. This machine's GPUs say nothing about the nodes, where DeepSpeed looks by
    itself.
    """
    names_gpus = bool(spec.place.devices) or any(host.devices for host in spec.place.hosts)
    return spec.launcher.kind == "deepspeed" and not names_gpus and spec.settings.get("device") == "cpu"


def likely_allocation(spec: RunSpec, nodes: tuple[Node, ...], master_port: int) -> Allocation:
    """The allocation to expect before any agent is started: unless the plan names an address, the rendezvous is at the first node."""
    return hosts_allocation(spec, nodes, spec.place.master_addr or nodes[0].name, master_port)


def harness_addresses(
    host: str, own_name: str, interface: str = "", route: Route = route_to, own: Interfaces | None = None
) -> tuple[str, ...]:
    """Where `host`, another one, tries to reach this machine, in this order: the address on the route to it, this machine's name, all
    others; where the plan names interfaces that this machine has, theirs alone."""
    nics = list_interfaces() if own is None else own
    on_route = route(host) or ""
    if named := interface_addresses(interface, nics):
        return tuple(sorted(named, key=lambda address: address != on_route))
    others = [address for addresses in nics.values() for address in addresses]
    in_order = (on_route, own_name, *others)
    return tuple(dict.fromkeys(address for address in in_order if is_reachable_address(address) or _is_name(address)))


def master_address(
    place: PlaceSpec,
    first: str,
    interfaces: Mapping[str, Any],
    others: Sequence[str],
    is_here: bool,
    route: Route = route_to,
    resolve: Resolve = resolve_addresses,
) -> str:
    """The rendezvous. `first` is the name of node 0, `interfaces` its addresses by interface as its agent reports them, `others` hosts
    that are not this machine, `is_here` whether node 0 is."""
    if place.master_addr:
        return place.master_addr
    if not others:
        return LOOPBACK
    nics = {str(name): [str(address) for address in found] for name, found in interfaces.items() if isinstance(found, (list, tuple))}
    on_named = [address for name in match_nccl_interfaces(place.interface, nics) for address in nics[name] if is_reachable_address(address)]
    if place.interface and len(on_named) == 1:
        return on_named[0]
    known = {address for addresses in nics.values() for address in addresses}
    # An address means the same on every host, a name only where all resolve it to the same.
    by_name = [address for address in resolve(first) if address in known and is_reachable_address(address)]
    on_route = route(others[0]) if is_here else None
    return (by_name or [on_route or first])[0]


def _is_name(address: str) -> bool:
    """Whether this is a host name, not an address."""
    return bool(address) and address not in LOCAL_NAMES and not re.fullmatch(r"[0-9.]+|.*:.*", address)
