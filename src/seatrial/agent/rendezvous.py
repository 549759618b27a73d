"""The rendezvous as this node sees it, and the interface used: queried by the harness before any rank starts.

In: the master's address and port, the interface variables that the plan or the site sets, this node's own environment and network. Out: a
`RendezvousView`. Interfaces are chosen by NCCL's rules where NCCL_SOCKET_IFNAME is set, by Gloo's where only GLOO_SOCKET_IFNAME is, else by
the route to the master.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from seatrial.core.control_connection.protocol import Message
from seatrial.machine.network import (
    GLOO_VARIABLE,
    INTERFACE_VARIABLES,
    NCCL_VARIABLE,
    is_link_local,
    list_interfaces,
    match_gloo_interfaces,
    match_nccl_interfaces,
    parse_gloo_interfaces,
    resolve_addresses,
    route_to,
)
from seatrial.records.launch import RendezvousView

Interfaces = Mapping[str, Sequence[str]]


def resolve_rendezvous(
    query: Message,
    environ: Mapping[str, str],
    interfaces: Interfaces | None = None,
    resolve: Callable[[str], Sequence[str]] = resolve_addresses,
    route: Callable[[str], str | None] = route_to,
) -> RendezvousView:
    named = query.get("env")
    named = {str(name): str(value) for name, value in named.items()} if isinstance(named, dict) else {}
    found = list_interfaces() if interfaces is None else interfaces
    usable = {name: tuple(one for one in addresses if not is_link_local(one)) for name, addresses in found.items()}
    usable = {name: addresses for name, addresses in usable.items() if addresses}
    resolved = tuple(resolve(str(query.get("master_addr"))))
    variables = {**{name: environ[name] for name in INTERFACE_VARIABLES if environ.get(name)}, **named}
    chosen = _chosen(variables, usable) or _on_route(resolved, usable, route)
    return RendezvousView(
        resolved=resolved,
        interface=chosen,
        address=_first_ipv4(usable[chosen]) if chosen else "",
        interfaces=usable,
        missing_interface=_missing(named, usable),
    )


def _chosen(variables: Mapping[str, str], usable: Interfaces) -> str:
    if NCCL_VARIABLE in variables:
        taken = match_nccl_interfaces(variables[NCCL_VARIABLE], usable)
    else:
        taken = match_gloo_interfaces(variables.get(GLOO_VARIABLE, ""), usable)
    return taken[0] if taken else ""


def _on_route(resolved: Sequence[str], usable: Interfaces, route: Callable[[str], str | None]) -> str:
    own = route(resolved[0]) if resolved else None
    return next((name for name, addresses in usable.items() if own in addresses), "")


def _missing(named: Mapping[str, str], usable: Interfaces) -> str:
    """An interface that the plan or the site names and this node lacks. Names inherited from a shell may not be in use."""
    if NCCL_VARIABLE in named and not match_nccl_interfaces(named[NCCL_VARIABLE], usable):
        return named[NCCL_VARIABLE]
    return next((name for name in parse_gloo_interfaces(named.get(GLOO_VARIABLE, "")) if name not in usable), "")


def _first_ipv4(addresses: Sequence[str]) -> str:
    return next((address for address in addresses if ":" not in address), addresses[0])
