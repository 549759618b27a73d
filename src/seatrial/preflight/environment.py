"""Ports, the host's own name, and environment variables.

In: a `Need`. Out: checks of ports that can be bound, a host name that resolves, and variables left over from another job or that slow a
run.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seatrial.core import launcher_options
from seatrial.core.paths import PREFIX, SET_BY_USERS
from seatrial.machine.network import LOOPBACK
from seatrial.machine.secrets import mask
from seatrial.preflight.check_definition import CheckDefinition, Need, information, refusal, warning
from seatrial.records.caution import Check
from seatrial.records.plan import RunSpec
from seatrial.records.signatures.debug_settings import enabled_variables

EVERYWHERE = "0.0.0.0"
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# The default of torchrun and deepspeed.
USUAL_PORT = 29500

BIND = refusal(
    name="ports",
    what="that a port can be bound on this host, on loopback and on all addresses",
    prevents="RuntimeError: The server socket has failed to bind; or ranks that hang in the rendezvous",
    fix="bring loopback up (`ip link set lo up`), or run where sockets are allowed",
)
NAMED_PORT = refusal(
    name="port {port}",
    what="that a port which the plan itself names (--master-port, --master_port, --rdzv-endpoint, MASTER_PORT) is free",
    prevents="RuntimeError: The server socket has failed to listen on any local network address. EADDRINUSE: address already in use",
    fix="end what listens there (`ss -ltnp 'sport = :{port}'`), or leave the option out: Seatrial holds a free port for each run",
)
PLACE_PORT = warning(
    name="port {port} of the place",
    what="that the port of `place.port` is free now; it is bound again for each run",
    prevents="a run that ends as port_in_use before it starts",
    fix="end what listens there (`ss -ltnp 'sport = :{port}'`), or leave place.port out: Seatrial holds a free port for each run",
)
EPHEMERAL = information(
    name="ephemeral ports",
    what="which ports the kernel gives to outgoing connections",
    prevents="EADDRINUSE: address already in use, now and then, on a fixed port within that range",
    fix="choose fixed ports outside of it",
)
PORT_CHECKS = (BIND, NAMED_PORT, PLACE_PORT, EPHEMERAL)


def check_ports(need: Need) -> Iterator[Check]:
    refused = [f"{address}: {problem}" for address in (LOOPBACK, EVERYWHERE) if (problem := cannot_bind(address, 0))]
    yield BIND.result(not refused, "; ".join(refused) or "can be bound")
    named_ports = {port for spec in need.runs for port in _ports(spec)}
    place_ports = {spec.place.port for spec in need.runs if spec.place.port is not None}
    for definition, ports in ((NAMED_PORT, named_ports), (PLACE_PORT, place_ports)):
        for port in sorted(ports):
            problem = cannot_bind(EVERYWHERE, port)
            yield definition.result(not problem, problem or "free", port=port)
    yield EPHEMERAL.result(True, _range())


def cannot_bind(address: str, port: int) -> str:
    """Why a server could not listen there; empty if it could."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as tried:
        # As torch's own server does: connections in TIME_WAIT from the previous run do not matter.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port))
            tried.listen(1)
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
    return ""


def _ports(spec: RunSpec) -> Iterator[int]:
    named = (
        [(spec.env.get("MASTER_ADDR", ""), spec.env.get("MASTER_PORT", ""))]
        if spec.launcher.kind == "python" and spec.place.ranks > 1
        else []
    )
    if spec.launcher.kind == "torchrun":
        typed = launcher_options.TORCHRUN.values(spec.launcher.args)
        host, _, port = typed.get("rdzv_endpoint", "").rpartition(":")
        named = [] if "standalone" in typed else [(typed.get("master_addr", ""), typed.get("master_port", "")), (host, port)]
    if spec.launcher.kind == "deepspeed":
        named = [("", launcher_options.DEEPSPEED.values(spec.launcher.args).get("master_port", ""))]
    here = ("", "localhost", "0.0.0.0", socket.gethostname())
    for host, port in named:
        # Port 0 is any free one; a port of another host is not bound here.
        if port.isdigit() and 0 < int(port) < 65536 and (host in here or host.startswith("127.")):
            yield int(port)


def _range() -> str:
    with contextlib.suppress(OSError, ValueError):
        low, high = RANGE.read_text(encoding="ascii").split()
        inside = f"; the usual {USUAL_PORT} of torchrun and deepspeed is one of them" if int(low) <= USUAL_PORT <= int(high) else ""
        return f"{low} to {high}{inside}"
    return "unknown"


RESOLVER_TIMEOUT_S = 2.0

RESOLVES = warning(
    name="host name",
    what="that the host's own name resolves, quickly, and that a port can be bound on the address",
    prevents="socket.gaierror: [Errno -2] Name or service not known; or a start-up that hangs for as long as DNS takes",
    fix="add the name to /etc/hosts ({name} and this host's address), or set GLOO_SOCKET_IFNAME and MASTER_ADDR",
)
REACHABLE = information(
    name="host address",
    what="whether the name gives an address that other nodes can reach",
    prevents="Connection refused on every other node, when this one is the master of several",
    fix="put the address of a network interface before 127.0.1.1 in /etc/hosts",
)
NAME_CHECKS = (RESOLVES, REACHABLE)


@dataclass(frozen=True, kw_only=True)
class NameFacts:
    name: str
    addresses: tuple[str, ...] = ()
    problem: str = ""
    not_bindable: tuple[str, ...] = ()


def check_names(need: Need) -> Iterator[Check]:
    yield from judge_name(resolve_name(socket.gethostname()))


def resolve_name(name: str, timeout_s: float = RESOLVER_TIMEOUT_S) -> NameFacts:
    """Resolve in a thread, which is abandoned when the resolver does not answer in time."""
    # Not by `core.timeouts`: a thread that hangs there counts as a hung driver.
    answers: list[NameFacts] = []
    asking = threading.Thread(target=lambda: answers.append(_resolved(name)), daemon=True)
    asking.start()
    asking.join(timeout_s)
    return answers[0] if answers else NameFacts(name=name, problem=f"no answer in {timeout_s:g} s")


def _resolved(name: str) -> NameFacts:
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        return NameFacts(name=name, problem=error.strerror or str(error))
    addresses = tuple(sorted({str(entry[4][0]) for entry in found}))
    return NameFacts(name=name, addresses=addresses, not_bindable=tuple(address for address in addresses if cannot_bind(address, 0)))


def judge_name(facts: NameFacts) -> Iterator[Check]:
    unbound = f", where no port can be bound: {', '.join(facts.not_bindable)}" if facts.not_bindable else ""
    found = facts.problem or f"{facts.name} is {', '.join(facts.addresses)}{unbound}"
    yield RESOLVES.result(not facts.problem and not unbound, found, name=facts.name)
    if facts.addresses:
        local = all(ipaddress.ip_address(address).is_loopback for address in facts.addresses)
        yield REACHABLE.result(True, "loopback only: enough on one node" if local else "not loopback")


RENDEZVOUS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
)  # fmt: skip
# Those that deepspeed's launcher does not set for its ranks.
LEFT_BY_DEEPSPEED = ("LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
# torchrun reads each option from PET_OPTION too.
TORCHRUN_PREFIX = "PET_"

LEFT_OVER = warning(
    name="left-over variables",
    what="RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, PET_… and their like in the shell's environment, where a run would take them",
    prevents="EADDRINUSE: address already in use; or ranks that hang in the rendezvous: Timed out after 601 seconds waiting for clients",
    fix="unset {names}",
)
OWN = warning(
    name="SEATRIAL_ variables",
    what="variables of Seatrial's own in the shell's environment, as within a run of another campaign",
    prevents="events that land in another run's folder",
    fix="unset {names}; do not start a campaign from within a run",
)
SLOW = warning(
    name="debug variables",
    what="NCCL_DEBUG=INFO, TORCH_DISTRIBUTED_DEBUG, CUDA_LAUNCH_BLOCKING and other variables for finding faults or tracing, unless an "
    "axis of the plan sets them",
    prevents="steps slower than they are without, and no error is shown; a run measured with one on is only compared with others that "
    "have it on",
    fix="unset {names} in the shell or the plan's env, unless they are meant",
)
VARIABLE_CHECKS = (LEFT_OVER, OWN, SLOW)


def check_variables(need: Need) -> Iterator[Check]:
    yield _variables_check(LEFT_OVER, misleading(need), need.base_env)
    yield _variables_check(
        OWN, sorted(name for name in need.base_env if name.startswith(PREFIX) and name not in SET_BY_USERS), need.base_env
    )
    slow = slowing(need)
    found = "; ".join(f"{name}={mask(name, value)}: {why}" for name, (value, why) in slow.items())
    yield SLOW.result(not slow, found or "none", names=" ".join(slow))


def misleading(need: Need) -> list[str]:
    """Variables of the base environment that at least one run would take for its own."""
    if not need.planned:
        return sorted(name for name in need.base_env if name in RENDEZVOUS or name.startswith(TORCHRUN_PREFIX))
    return sorted({name for spec in need.runs for name in need.base_env if name not in spec.env and _taken_by(spec, name)})


def _taken_by(spec: RunSpec, name: str) -> bool:
    """Launchers set each rank's variables, and so does `python` for several ranks; a single process takes what it finds."""
    if spec.launcher.kind == "torchrun":
        return name.startswith(TORCHRUN_PREFIX)
    if spec.launcher.kind == "deepspeed":
        return name in LEFT_BY_DEEPSPEED
    if spec.launcher.kind == "python" and spec.place.ranks > 1:
        return False
    return name in RENDEZVOUS


def slowing(need: Need) -> dict[str, tuple[str, str]]:
    """Debug variables of the runs: name → (value, effect). The table is the one by which compare refuses to mix runs; variables
    that an axis sets are intended."""
    unlike = {(tuple(sorted(spec.env.items())), spec.varied): need.environment(spec) for spec in need.runs} or {
        ((), ()): dict(need.base_env)
    }
    found: dict[str, tuple[str, str]] = {}
    for (_, varied), env in unlike.items():
        for name, switch in enabled_variables(env).items():
            # Seatrial's own variables have a separate check.
            if name not in varied and switch.only_with not in varied and not name.startswith(PREFIX):
                found.setdefault(name, (env[name], switch.why))
    return dict(sorted(found.items()))


def _variables_check(definition: CheckDefinition, names: list[str], base_env: Mapping[str, str]) -> Check:
    found = ", ".join(f"{name}={mask(name, base_env[name])}" for name in names)
    return definition.result(not names, found or "none", names=" ".join(names))
