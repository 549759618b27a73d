"""The network of this host: interfaces and addresses, which of them NCCL and Gloo use, and whether a name means this host.

In: psutil, /sys/class/infiniband, the resolver, and the texts of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME. Out: names and addresses.

NCCL_SOCKET_IFNAME: `eth,ib` are prefixes of names, `=eth0,eth1` whole names; a leading `^` selects all others: `^lo,docker`, `^=eth0`. A
port after a colon belongs to adapters and is ignored. GLOO_SOCKET_IFNAME takes whole names only, separated by commas.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from seatrial.machine.processes import PROC, read_boot_id, read_text

LOOPBACK = "127.0.0.1"
LOCALHOST = "localhost"
LOCAL_NAMES = (LOCALHOST, LOOPBACK, "::1")
# Stands for the harness's machine where the hostfile does not name it: no hostfile can contain a name with a space.
THIS_MACHINE = "this machine"
INFINIBAND = Path("/sys/class/infiniband")
# The host's ends of containers' and virtual machines' interfaces.
VIRTUAL_PREFIXES = ("veth", "cali", "lxc", "tap", "vnet")
NCCL_VARIABLE, GLOO_VARIABLE = INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
# Only the route matters: nothing is sent to it.
_ANY_PORT = 9
_FAMILIES = (socket.AF_INET, socket.AF_INET6)

Resolve = Callable[[str], Collection[str]]


def list_interfaces() -> dict[str, tuple[str, ...]]:
    """Every interface that is up → its IP addresses (possibly none), in the kernel's order; all interfaces where the kernel does not report
    which are up."""
    stats = {}
    with contextlib.suppress(OSError, psutil.Error):
        stats = psutil.net_if_stats()
    return {name: ip_addresses(entries) for name, entries in psutil.net_if_addrs().items() if name not in stats or stats[name].isup}


def ip_addresses(entries: Iterable[Any]) -> tuple[str, ...]:
    """The IP addresses among psutil's entries of one interface, without the scope (`%eth0`) of link-local ones."""
    texts = (str(entry.address).partition("%")[0] for entry in entries if entry.family in _FAMILIES)
    return tuple(text for text in texts if _parse_address(text) is not None)


def local_addresses() -> frozenset[str]:
    """The addresses of all interfaces."""
    return frozenset(address for addresses in list_interfaces().values() for address in addresses)


def network_stack(proc: Path = PROC) -> str:
    """What distinguishes this host's addresses from equal ones elsewhere: the kernel's boot and the network namespace; empty if unknown."""
    try:
        boot_id, namespace = read_boot_id(proc), (proc / "self" / "ns" / "net").stat().st_ino
    except OSError:
        return ""
    return f"{boot_id}/{namespace}" if boot_id else ""


def own_address_test(harness_stack: str) -> Callable[[str], bool]:
    """Whether an address can only lead back to this host, and not to the harness that lists it as one of its own.

    docker0 has 172.17.0.1 on every host: any local user may listen there. Where both share a network stack, or that is unknown, none is
    ruled out.
    """
    if not harness_stack or harness_stack == network_stack():
        return lambda address: False
    own = local_addresses()
    return lambda address: address in own or is_loopback(address)


# Each of a thousand hosts resolves a thousand names: the same addresses each time.
@functools.lru_cache(maxsize=4096)
def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_loopback(address: str) -> bool:
    """Whether it leads back to the caller; False for what is not an address."""
    parsed = _parse_address(address)
    return parsed is not None and parsed.is_loopback


def is_link_local(address: str) -> bool:
    """Whether it is link-local (IPv6): every interface has such an address, useless without the interface."""
    parsed = _parse_address(address)
    return parsed is not None and parsed.version == 6 and parsed.is_link_local


def describe_interfaces() -> dict[str, str]:
    """Name → `up, 10000 Mb/s, 10.0.0.5`, and `mlx5_0 port 1` → `ACTIVE, 400 Gb/sec (4X NDR), InfiniBand`; without loopback and virtual
    interfaces."""
    return {**dict(describe_ethernet(psutil.net_if_addrs(), psutil.net_if_stats())), **dict(describe_infiniband(INFINIBAND))}


def describe_ethernet(addresses: Mapping[str, Sequence[Any]], stats: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(interface, description), by name, from psutil's addresses and stats."""
    for name in sorted({*addresses, *stats}):
        known = [address for address in ip_addresses(addresses.get(name, ())) if not is_link_local(address)]
        is_loopback_interface = name == "lo" or (bool(known) and all(map(is_loopback, known)))
        if name.startswith(VIRTUAL_PREFIXES) or is_loopback_interface:
            continue
        found = stats.get(name)
        state = [] if found is None else ["up" if found.isup else "down"]
        speed = [f"{found.speed} Mb/s"] if found is not None and found.speed else []
        yield name, ", ".join([*state, *speed, *known])


def describe_infiniband(folder: Path) -> Iterator[tuple[str, str]]:
    """(adapter and port, description), by name; none where there is no adapter."""
    for port in sorted(folder.glob("*/ports/*")):
        state, rate, layer = (read_text(port / name).strip().partition("\n")[0] for name in ("state", "rate", "link_layer"))
        # The kernel writes `4: ACTIVE`.
        yield f"{port.parts[-3]} port {port.name}", ", ".join(filter(None, (state.rpartition(": ")[2], rate, layer)))


def match_nccl_interfaces(pattern: str, interfaces: Iterable[str]) -> list[str]:
    """The interfaces that NCCL_SOCKET_IFNAME=`pattern` selects, in order; NCCL's bootstrap uses the first; all
    for an empty pattern."""
    rest = pattern.strip()
    inverted, rest = rest.startswith("^"), rest.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    parts = [name for part in rest.split(",") if (name := part.partition(":")[0].strip())]
    if not parts:
        return list(interfaces)
    return [name for name in interfaces if any(name == part if exact else name.startswith(part) for part in parts) != inverted]


def is_reachable_address(address: str) -> bool:
    """IPv4, which is what the control server listens on, and not loopback."""
    parsed = _parse_address(address)
    return parsed is not None and parsed.version == 4 and not parsed.is_loopback


def interface_addresses(pattern: str, interfaces: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The reachable addresses of the interfaces that `place.interface` names; none without a pattern, or where this host has no such
    interface: the machine of the harness may be in another network than its nodes."""
    names = match_nccl_interfaces(pattern, interfaces) if pattern else ()
    return tuple(dict.fromkeys(address for name in names for address in interfaces[name] if is_reachable_address(address)))


def listening_addresses(pattern: str, named: str = "") -> tuple[str, ...]:
    """Where a server of ours listens: at the interfaces of `place.interface`, at `named`, the address that the user gave for this host,
    and at loopback for what runs here; ("",), all addresses, without such an interface or where `named` is another host's address."""
    addresses = interface_addresses(pattern, list_interfaces())
    found = [address for address in resolve_addresses(named) if address in local_addresses() and ":" not in address] if named else []
    return tuple(dict.fromkeys((LOOPBACK, *found, *addresses))) if addresses and (found or not named) else ("",)


def match_gloo_interfaces(text: str, interfaces: Iterable[str]) -> list[str]:
    """The interfaces that Gloo uses."""
    known = set(interfaces)
    return [name for name in parse_gloo_interfaces(text) if name in known]


def parse_gloo_interfaces(text: str) -> list[str]:
    """The names in GLOO_SOCKET_IFNAME."""
    return [name for part in text.split(",") if (name := part.strip())]


def single_interface(pattern: str) -> str:
    """The one plain name in NCCL's pattern, which means the same to Gloo; empty where it is several, a rule, or none."""
    rest = pattern.strip().removeprefix("=").partition(":")[0].strip()
    return "" if not rest or rest.startswith("^") or "," in rest else rest


def interface_variables(pattern: str) -> dict[str, str]:
    """The variables that `place.interface` sets. Gloo has no patterns: its variable is set only for a single name."""
    if not pattern:
        return {}
    name = single_interface(pattern)
    return {NCCL_VARIABLE: pattern, **({GLOO_VARIABLE: name} if name else {})}


def is_this_host(
    name: str, own_name: str | None = None, own_addresses: Collection[str] | None = None, resolve: Resolve | None = None
) -> bool:
    """Whether `name` of a hostfile means this host: by its own name, or by an address of one of its interfaces.

    A name that resolves to a loopback address and is not this host's own counts as another host: where /etc/hosts is wrong, ranks meant
    for that host must not start here unnoticed.
    """
    own = socket.gethostname() if own_name is None else own_name
    if name in LOCAL_NAMES or name == own or name == own.partition(".")[0] or (name.partition(".")[0] == own and "." not in own):
        return True
    addresses = local_addresses() if own_addresses is None else own_addresses
    found = (resolve_addresses if resolve is None else resolve)(name)
    return any(address in addresses and not is_loopback(address) for address in found)


def resolve_addresses(name: str) -> tuple[str, ...]:
    """Addresses of a name, each once, in the resolver's order; none for an unknown name."""
    try:
        found = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def route_to(host: str) -> str | None:
    """This machine's own address on the route to `host`; None where there is no route or no such name."""
    with contextlib.suppress(OSError, UnicodeError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        # "Connecting" a datagram socket asks the routing table and sends nothing.
        unconnected.connect((host, _ANY_PORT))
        return str(unconnected.getsockname()[0])
    return None
