"""Ports: whether one can be bound at all, and whether one that the plan itself names is free."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from seatrial.machine.interfaces import LOOPBACK
from seatrial.options import deepspeed as deepspeed_options
from seatrial.options import torchrun as torchrun_options
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec

EVERYWHERE = "0.0.0.0"
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# torchrun's and deepspeed's own when nobody names one.
USUAL_PORT = 29500

BIND = Question(
    name="ports",
    looks_at="that a port can be bound on this host, on loopback and on all addresses",
    prevents="RuntimeError: The server socket has failed to bind; or ranks that wait for each other for ever",
    fix="bring loopback up (`ip link set lo up`), or run where sockets are allowed",
    refuses=True,
)
NAMED = Question(
    name="port {port}",
    looks_at="that a port which the plan itself names (--master-port, --master_port, --rdzv-endpoint, MASTER_PORT) is free",
    prevents="RuntimeError: The server socket has failed to listen on any local network address. EADDRINUSE: address already in use",
    fix="end what listens there (`ss -ltnp 'sport = :{port}'`), or leave the option out: Seatrial holds a free port for each run",
    refuses=True,
)
OF_PLACE = Question(
    name="port {port} of the place",
    looks_at="that the port of `place.port` is free now; it is taken anew for each run",
    prevents="a run that ends as port_in_use before it starts",
    fix="end what listens there (`ss -ltnp 'sport = :{port}'`), or leave place.port out: Seatrial holds a free port for each run",
)
EPHEMERAL = Question(
    name="ephemeral ports",
    looks_at="which ports the kernel gives to outgoing connections",
    prevents="EADDRINUSE: address already in use, now and then, on a fixed port within that range",
    fix="choose fixed ports outside of it",
    only_tells=True,
)
QUESTIONS = (BIND, NAMED, OF_PLACE, EPHEMERAL)


def checks(need: Need) -> Iterator[Check]:
    yield bind()
    for port in sorted(named_ports(need)):
        refused = cannot_bind(EVERYWHERE, port)
        yield NAMED.answer(not refused, refused or "free", port=port)
    for port in sorted({spec.place.port for spec in need.runs if spec.place.port is not None}):
        refused = cannot_bind(EVERYWHERE, port)
        yield OF_PLACE.answer(not refused, refused or "free", port=port)
    yield EPHEMERAL.answer(True, _range())


def bind() -> Check:
    refused = [f"{address}: {trouble}" for address in (LOOPBACK, EVERYWHERE) if (trouble := cannot_bind(address, 0))]
    return BIND.answer(not refused, "; ".join(refused) or "can be bound")


def cannot_bind(address: str, port: int) -> str:
    """Why a server could not listen there; empty when it could. The socket is closed at once."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as tried:
        # As torch's own server does: connections that linger from the run before are no hindrance.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port))
            tried.listen(1)
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
    return ""


def named_ports(need: Need) -> set[int]:
    """Ports that runs of the plan will listen on because the plan says so."""
    return {port for spec in need.runs for port in _ports(spec)}


def _ports(spec: RunSpec) -> Iterator[int]:
    named = (
        [(spec.env.get("MASTER_ADDR", ""), spec.env.get("MASTER_PORT", ""))]
        if spec.launcher.kind == "python" and spec.place.ranks > 1
        else []
    )
    if spec.launcher.kind == "torchrun":
        typed = torchrun_options.values_in(spec.launcher.args)
        host, _, port = typed.get("rdzv_endpoint", "").rpartition(":")
        named = [] if "standalone" in typed else [(typed.get("master_addr", ""), typed.get("master_port", "")), (host, port)]
    if spec.launcher.kind == "deepspeed":
        named = [("", deepspeed_options.values_in(spec.launcher.args).get("master_port", ""))]
    # Port 0 asks for any free one; on another host somebody else listens.
    yield from (int(port) for host, port in named if port.isdigit() and 0 < int(port) < 65536 and _is_here(host))


def _is_here(host: str) -> bool:
    return host in ("", "localhost", "0.0.0.0", socket.gethostname()) or host.startswith("127.")


def _range() -> str:
    with contextlib.suppress(OSError, ValueError):
        low, high = RANGE.read_text(encoding="ascii").split()
        inside = f"; the usual {USUAL_PORT} of torchrun and deepspeed is one of them" if int(low) <= USUAL_PORT <= int(high) else ""
        return f"{low} to {high}{inside}"
    return "not told by the kernel"
