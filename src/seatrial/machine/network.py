"""The network interfaces of this host, one line each.

In: what psutil tells of interfaces and /sys/class/infiniband of adapters. Out: name → `up, 10000 Mb/s, 10.0.0.5`, and
`mlx5_0 port 1` → `ACTIVE, 400 Gb/sec (4X NDR), InfiniBand`. Loopback and the host's ends of other containers' cables are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from seatrial.machine.interfaces import ip_addresses, is_link_local, is_loopback

INFINIBAND = Path("/sys/class/infiniband")
OTHERS_CABLES = ("veth", "cali", "lxc", "tap", "vnet")


def network_interfaces(infiniband: Path = INFINIBAND) -> dict[str, str]:
    """Every interface as it is now."""
    return {**dict(ethernet_lines(psutil.net_if_addrs(), psutil.net_if_stats())), **dict(infiniband_lines(infiniband))}


def ethernet_lines(addresses: Mapping[str, Sequence[Any]], stats: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(interface, line), by name, from psutil's two answers."""
    for name in sorted({*addresses, *stats}):
        # Every interface has a link-local one, and it tells nothing.
        known = [address for address in ip_addresses(addresses.get(name, ())) if not is_link_local(address)]
        if name.startswith(OTHERS_CABLES) or _is_loopback(name, known):
            continue
        told = stats.get(name)
        state = [] if told is None else ["up" if told.isup else "down"]
        speed = [f"{told.speed} Mb/s"] if told is not None and told.speed else []
        yield name, ", ".join([*state, *speed, *known])


def infiniband_lines(folder: Path) -> Iterator[tuple[str, str]]:
    """(adapter and port, line), by name; none where there is no such adapter."""
    for port in sorted(folder.glob("*/ports/*")):
        # The kernel writes `4: ACTIVE`.
        state = _first_line(port / "state").rpartition(": ")[2]
        told = [state, _first_line(port / "rate"), _first_line(port / "link_layer")]
        yield f"{port.parts[-3]} port {port.name}", ", ".join(filter(None, told))


def _is_loopback(name: str, addresses: Sequence[str]) -> bool:
    return name == "lo" or (bool(addresses) and all(map(is_loopback, addresses)))


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0]
    except OSError:
        return ""
