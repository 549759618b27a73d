"""The rendezvous as each node sees it, before any rank starts: all nodes must agree.

In: the connected agents, the allocation and the orders. Out: each node's `RendezvousView` for nodes.json; HostError where a
node resolves the master to another address than the others, or lacks the interface that the plan or the site names. Otherwise ranks would
wait at two rendezvous until a timeout of many minutes, or NCCL would fail on the one node after the model was loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from seatrial.core.control_connection.server import ControlServer
from seatrial.core.errors import HostError, StoppedError
from seatrial.machine.network import INTERFACE_VARIABLES, is_loopback
from seatrial.records.codec import from_json_or_none
from seatrial.records.launch import AgentOrder, Allocation, RendezvousView

# A resolver may wait this long for an unreachable name server.
ANSWER_TIMEOUT_S = 30.0
POLL_S = 0.2
UNLIKE, MISSING_INTERFACE, UNKNOWN_NAME = "rendezvous_unlike", "nccl_interface", "name_unknown"


def agree_on_rendezvous(
    server: ControlServer,
    allocation: Allocation,
    orders: Sequence[AgentOrder],
    should_stop: Callable[[], bool] = lambda: False,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> dict[str, RendezvousView]:
    """Ask every node, in the order of the allocation's; HostError where they disagree."""
    for node, order in zip(allocation.nodes, orders, strict=True):
        named = {name: order.command.env[name] for name in INTERFACE_VARIABLES if order.command.env.get(name)}
        question = {"master_addr": allocation.master_addr, "master_port": allocation.master_port, "env": named}
        server.send(node.name, {"kind": "rendezvous", **question})
    views = _answers(server, [node.name for node in allocation.nodes], should_stop, timeout_s)
    check_agreement(allocation, views)
    return views


def _answers(server: ControlServer, names: Sequence[str], should_stop: Callable[[], bool], timeout_s: float) -> dict[str, RendezvousView]:
    found: dict[str, RendezvousView] = {}
    until_m = time.monotonic() + timeout_s
    while missing := [name for name in names if name not in found]:
        for name, message in server.wait(POLL_S):
            if message["kind"] == "lost":
                raise HostError(f"{name} was lost before its ranks started: {message.get('why')}", host=name, cause="node_not_started")
            if message["kind"] == "rendezvous" and (view := from_json_or_none(RendezvousView, message.get("view"))):
                found[name] = view
        if should_stop():
            raise StoppedError("stopped before any rank was started")
        late = [name for name in missing if name not in found]
        if late and time.monotonic() >= until_m:
            problem = (
                f"no rendezvous address reported by {late[0]} within {timeout_s:.0f} s. Run `getent hosts` with the master's name there"
            )
            raise HostError(problem, host=late[0], cause=UNKNOWN_NAME)
    return found


def check_agreement(allocation: Allocation, views: Mapping[str, RendezvousView]) -> None:
    """HostError naming the first node that differs: the node, its interface and the addresses seen."""
    for name, view in views.items():
        if view.missing_interface:
            problem = (
                f"{name} has no interface {view.missing_interface} with an address; it has {view.interfaces_text}: no rank was started"
            )
            raise HostError(problem, host=name, cause=MISSING_INTERFACE)
    master, first = allocation.master_addr, allocation.nodes[0].name
    for name, view in views.items():
        if not view.resolved:
            raise HostError(f"{name} cannot resolve {master}, the rendezvous address: no rank was started", host=name, cause=UNKNOWN_NAME)
        if not _meets(views[first], view):
            seen = "; ".join(f"{one} resolves it to {views[one].resolved[0]}, its {views[one].nic}" for one in (first, name))
            problem = f"{name} resolves the rendezvous {master}:{allocation.master_port} to a different address than {first}: {seen}"
            raise HostError(f"{problem}: no rank was started", host=name, cause=UNLIKE)


def _meets(first: RendezvousView, other: RendezvousView) -> bool:
    """Whether `other` reaches node 0. Node 0 may resolve its own name to loopback: it listens on all addresses."""
    if other.addresses == first.addresses:
        return True
    shared = {address for address in first.resolved if not is_loopback(address)} & set(other.resolved)
    is_itself = any(is_loopback(address) or address in first.addresses for address in first.resolved)
    return bool(shared) or (is_itself and any(address in first.addresses and not is_loopback(address) for address in other.resolved))
