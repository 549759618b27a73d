"""Interfaces, their addresses, which of them NCCL and Gloo use, and whether a name is this host."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from seatrial.machine.network import (
    describe_ethernet,
    describe_infiniband,
    describe_interfaces,
    interface_addresses,
    interface_variables,
    ip_addresses,
    is_link_local,
    is_loopback,
    is_this_host,
    list_interfaces,
    listening_addresses,
    local_addresses,
    match_gloo_interfaces,
    match_nccl_interfaces,
    network_stack,
    own_address_test,
    parse_gloo_interfaces,
    resolve_addresses,
    single_interface,
)


def _entry(address: str | None, family: int = socket.AF_INET) -> SimpleNamespace:
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
    assert dict(describe_ethernet(addresses, stats)) == {"eth0": "up, 10000 Mb/s, 10.0.0.5, fd00::2", "ib0": "down"}


def test_infiniband_ports(tmp_path: Path) -> None:
    for adapter, state, rate in (("mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)"), ("mlx5_1", "1: DOWN", "")):
        port = tmp_path / adapter / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text("InfiniBand\n")
        if rate:
            (port / "rate").write_text(f"{rate}\n")
    assert dict(describe_infiniband(tmp_path)) == {
        "mlx5_0 port 1": "ACTIVE, 400 Gb/sec (4X NDR), InfiniBand",
        "mlx5_1 port 1": "DOWN, InfiniBand",
    }
    assert list(describe_infiniband(tmp_path / "none")) == []


def test_only_interfaces_that_are_up_are_listed_or_all_where_that_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"up": [_entry("10.0.0.1")], "down": [_entry("10.0.0.2")], "bare": [], "unknown": [_entry("10.0.0.3")]}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"up": _stat(), "down": _stat(isup=False), "bare": _stat()})
    assert list_interfaces() == {"up": ("10.0.0.1",), "bare": (), "unknown": ("10.0.0.3",)}
    assert local_addresses() == {"10.0.0.1", "10.0.0.3"}

    def refuse() -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(psutil, "net_if_stats", refuse)
    assert set(list_interfaces()) == set(addresses)


def test_interfaces_of_this_host() -> None:
    assert any(is_loopback(address) for address in list_interfaces()["lo"]) and "lo" not in describe_interfaces()


def test_addresses_of_one_interface_without_scope_or_invalid_ones() -> None:
    entries = [
        _entry("10.0.0.5"),
        _entry("fe80::1%eth0", socket.AF_INET6),
        _entry("02:00:00:00:00:01", psutil.AF_LINK),
        _entry("not an address"),
        _entry(None),
        _entry("fd00::2", socket.AF_INET6),
    ]
    assert ip_addresses(entries) == ("10.0.0.5", "fe80::1", "fd00::2")
    assert ip_addresses([]) == ()


@pytest.mark.parametrize(
    ("address", "loopback", "link_local"),
    [
        ("127.0.0.1", True, False),
        ("::1", True, False),
        ("10.0.0.1", False, False),
        ("FE80::1", False, True),
        ("fe80::1%eth0", False, True),
        ("febf::1", False, True),
        ("fec0::1", False, False),
        # A link-local address of IPv4 can be used.
        ("169.254.1.1", False, False),
        ("no address", False, False),
    ],
)
def test_loopback_and_link_local_addresses(address: str, loopback: bool, link_local: bool) -> None:
    assert (is_loopback(address), is_link_local(address)) == (loopback, link_local)


HERE = ("lo", "docker0", "eth0", "eth1", "eth10", "ib0")


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("ib,eth0", ["eth0", "ib0"]),
        ("^lo,docker", ["eth0", "eth1", "eth10", "ib0"]),
        ("^=eth1", ["lo", "docker0", "eth0", "eth10", "ib0"]),
        ("ib0:1", ["ib0"]),
        ("", list(HERE)),
        ("^", list(HERE)),
        (" eth0 , ib ", ["eth0", "ib0"]),
        ("wlan", []),
    ],
)
def test_nccl_patterns(pattern: str, matched: list[str]) -> None:
    assert match_nccl_interfaces(pattern, HERE) == matched


def test_gloo_takes_whole_names_only() -> None:
    assert match_gloo_interfaces("eth0,ib0", HERE) == ["eth0", "ib0"]
    assert match_gloo_interfaces("eth", HERE) == [] == match_gloo_interfaces("^lo", HERE)
    assert parse_gloo_interfaces("eth0, ib0,") == ["eth0", "ib0"]


@pytest.mark.parametrize(
    ("pattern", "gloo"), [("eth0", "eth0"), ("=eth0", "eth0"), ("ib0:1", "ib0"), ("eth,ib", ""), ("^lo", ""), ("^=lo", "")]
)
def test_gloo_gets_a_single_name_only(pattern: str, gloo: str) -> None:
    assert single_interface(pattern) == gloo
    assert interface_variables(pattern) == {"NCCL_SOCKET_IFNAME": pattern, **({"GLOO_SOCKET_IFNAME": gloo} if gloo else {})}
    assert interface_variables("") == {} and single_interface("") == ""


ADDRESSES = {"alias": ("10.0.0.1",), "other": ("10.0.0.2",), "wrong": ("127.0.0.1",), "node1.lan": ("10.0.0.9",)}


@pytest.mark.parametrize(
    ("name", "own", "here"),
    [
        ("node1", "node1", True),
        ("node1", "node1.example.org", True),
        ("node1.example.org", "node1", True),
        ("localhost", "node1", True),
        ("alias", "node1", True),
        ("other", "node1", False),
        ("unknown", "node1", False),
        # An /etc/hosts that is wrong must not start another host's ranks here.
        ("wrong", "node1", False),
        ("node1.lan", "node1.example.org", False),
    ],
)
def test_is_this_host(name: str, own: str, here: bool) -> None:
    assert is_this_host(name, own, ("127.0.0.1", "10.0.0.1"), lambda name: ADDRESSES.get(name, ())) is here


def test_an_unknown_name_has_no_address() -> None:
    assert "127.0.0.1" in resolve_addresses("localhost") and len({*resolve_addresses("localhost")}) == len(resolve_addresses("localhost"))
    assert resolve_addresses("no-such-host.invalid") == ()
    # Longer than a label may be: an error of the encoding, not of the resolver.
    assert resolve_addresses(f"{'a' * 64}.example") == ()


NICS = {"lo": ("127.0.0.1", "::1"), "docker0": ("172.17.0.1",), "eth0": ("10.0.0.1", "fe80::1"), "ib0": ("10.9.0.1", "10.9.0.2")}


@pytest.mark.parametrize(
    ("pattern", "addresses", "listening"),
    [
        ("", (), ("",)),
        ("ib", ("10.9.0.1", "10.9.0.2"), ("127.0.0.1", "10.9.0.1", "10.9.0.2")),
        ("=lo", (), ("",)),
        ("bond0", (), ("",)),
    ],
)
def test_where_a_server_listens(
    monkeypatch: pytest.MonkeyPatch, pattern: str, addresses: tuple[str, ...], listening: tuple[str, ...]
) -> None:
    monkeypatch.setattr("seatrial.machine.network.list_interfaces", lambda: NICS)
    assert interface_addresses(pattern, NICS) == addresses
    assert listening_addresses(pattern) == listening
    # With the address that the user typed, which may be of another interface or lead here by a translation of addresses.
    assert listening_addresses(pattern, "10.0.0.1") == (("127.0.0.1", "10.0.0.1", *addresses) if addresses else ("",))
    assert listening_addresses(pattern, "192.0.2.1") == ("",)


def test_an_address_of_this_host_is_not_a_harness_that_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.machine.network.list_interfaces", lambda: NICS)
    is_own = own_address_test("another boot/1")
    assert [is_own(address) for address in ("172.17.0.1", "127.0.1.1", "10.9.0.1", "10.0.0.7", "head")] == [True, True, True, False, False]
    for same_or_unknown in (network_stack(), ""):
        assert not own_address_test(same_or_unknown)("172.17.0.1")


def test_containers_of_one_machine_have_network_stacks_of_their_own(tmp_path: Path) -> None:
    assert network_stack() and network_stack() == network_stack()
    assert network_stack(tmp_path) == ""
