"""Interfaces and InfiniBand ports as one line each, from what the system tells of them."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import psutil

from seatrial.machine.network import ethernet_lines, infiniband_lines, network_interfaces


def _entry(address: str, family: int = socket.AF_INET) -> SimpleNamespace:
    return SimpleNamespace(family=family, address=address)


def _stat(isup: bool = True, speed: int = 0) -> SimpleNamespace:
    return SimpleNamespace(isup=isup, speed=speed)


def test_addresses_speed_and_state_in_one_line() -> None:
    addresses = {
        "eth0": [_entry("10.0.0.5"), _entry("fe80::1%eth0", socket.AF_INET6), _entry("fd00::2", socket.AF_INET6), _entry("02:00:00", -1)],
        "lo": [_entry("127.0.0.1")],
        "dummy0": [_entry("127.0.0.9")],
        "veth12ab": [_entry("fe80::2", socket.AF_INET6)],
    }
    stats = {"eth0": _stat(speed=10000), "lo": _stat(), "ib0": _stat(isup=False), "veth12ab": _stat()}
    assert dict(ethernet_lines(addresses, stats)) == {"eth0": "up, 10000 Mb/s, 10.0.0.5, fd00::2", "ib0": "down"}


def test_rubbish_instead_of_an_address_is_passed_over() -> None:
    assert dict(ethernet_lines({"tun0": [_entry("not an address")]}, {})) == {"tun0": ""}


def test_infiniband_ports(tmp_path: Path) -> None:
    for adapter, state, rate in (("mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)"), ("mlx5_1", "1: DOWN", "")):
        port = tmp_path / adapter / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text("InfiniBand\n")
        if rate:
            (port / "rate").write_text(f"{rate}\n")
    assert dict(infiniband_lines(tmp_path)) == {
        "mlx5_0 port 1": "ACTIVE, 400 Gb/sec (4X NDR), InfiniBand",
        "mlx5_1 port 1": "DOWN, InfiniBand",
    }
    assert list(infiniband_lines(tmp_path / "none")) == []


def test_interfaces_of_this_host() -> None:
    found = network_interfaces()
    assert "lo" not in found
    assert set(found) <= {*psutil.net_if_addrs(), *psutil.net_if_stats(), *(name for name in found if " port " in name)}
