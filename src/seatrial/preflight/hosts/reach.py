"""Who reaches whom, tried with real connections: the rendezvous on node 0, ranks among each other both ways, and agents to the head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from seatrial.preflight.hosts.answers import Answers, part, texts, trouble
from seatrial.preflight.hosts.ring import CALL, PEER, RENDEZVOUS, Ring
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question
from seatrial.wording import named

_OPEN = "open it between the hosts (firewall, security group), or name ports that are open: place.port, place.port_base"
BIND = Question(
    name="a port to meet at",
    looks_at="that each host can listen on a port of the plan's range, node 0 on place.port where one is given",
    prevents="RuntimeError: The server socket has failed to listen on any local network address. EADDRINUSE: address already in use",
    fix="end what listens there (`ss -ltnp` on the host), or name another place.port",
    refuses=True,
)
MEET = Question(
    name="reaches the rendezvous",
    looks_at="that each host reaches node 0 on a port like the one where ranks meet",
    prevents="torch.distributed.DistNetworkError: The client socket has timed out after … while trying to connect to ({address}, {port})",
    fix="{way}",
    in_docs={"address": "node1", "port": "29500", "way": _OPEN},
    refuses=True,
)
PEERS = Question(
    name="reaches other hosts",
    looks_at="that node 0 reaches every host, and each host the next one (every other one in the long form), at the address that NCCL and "
    "Gloo will use, on a port of the plan's range",
    prevents="NCCL WARN socketStartConnect: Connect to … failed : {reason}; or: Gloo connectFullMesh failed",
    fix="{way}; or name the interface that joins the hosts: place.interface",
    in_docs={"reason": "No route to host", "way": _OPEN},
    refuses=True,
)
CALLS = Question(
    name="reaches the head",
    looks_at="that each host reaches the head on a port the kernel chooses: agents call the harness there",
    prevents="a run that ends before it starts: the harness could not be reached from {host}",
    fix="open the ports of /proc/sys/net/ipv4/ip_local_port_range on the head to the hosts, or start seatrial on one of them",
    refuses=True,
)
QUESTIONS = (BIND, MEET, PEERS, CALLS)
MOST_SHOWN = 3


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    for host in wanted.names:
        if answers.answered(host):
            yield _bound(wanted, answers, host)
    ring = Ring(wanted, answers)
    for host in wanted.names:
        told = part(answers.second, host, "reach")
        if host not in answers.second:
            continue
        if trouble(told):
            yield HostCheck(host=host, check=PEERS.answer(False, trouble(told), reason=trouble(told), way=_OPEN))
            continue
        yield from _reached(wanted, answers, host, ring.peers(host), texts(told, "troubles"))


def _bound(wanted: Wanted, answers: Answers, host: str) -> HostCheck:
    told = part(answers.first, host, RENDEZVOUS)
    complaint = trouble(told)
    # The port of a plan may be busy for a moment only: it is taken anew for each run.
    mine = host == wanted.master and wanted.place.port is not None
    found = f"port {wanted.place.port}: {complaint}" if complaint and mine else complaint or f"port {told.get('port')}"
    return HostCheck(host=host, check=BIND.answer(not complaint, found))


def _reached(wanted: Wanted, answers: Answers, host: str, tried: Sequence[str], troubles: Mapping[str, str]) -> Iterator[HostCheck]:
    port = part(answers.first, wanted.master, RENDEZVOUS).get("port")
    if host != wanted.master and port is not None:
        complaint = troubles.get(RENDEZVOUS, "")
        found = f"port {port}: {complaint}" if complaint else f"{wanted.master_addr} port {port}"
        yield HostCheck(host=host, check=MEET.answer(not complaint, found, address=wanted.master_addr, port=port, way=way_out(complaint)))
    missed = {name.removeprefix(f"{PEER} "): complaint for name, complaint in troubles.items() if name.startswith(f"{PEER} ")}
    if tried:
        not_reached = [f"{answers.label(name)} ({complaint})" for name, complaint in missed.items()]
        found = f"not {named(not_reached, MOST_SHOWN)}" if missed else named(list(map(answers.label, tried)), MOST_SHOWN)
        reason = next(iter(missed.values()), "").rpartition(": ")[2] or "No route to host"
        yield HostCheck(host=host, check=PEERS.answer(not missed, found, reason=reason, way=way_out(found)))
    if host != wanted.head and answers.answered(wanted.head):
        complaint = troubles.get(CALL, "")
        yield HostCheck(host=host, check=CALLS.answer(not complaint, complaint or "reached", host=answers.label(host)))


def way_out(complaint: str) -> str:
    return "mend the name there first (the names of the others)" if "not known" in complaint or "resol" in complaint else _OPEN
