"""The addresses of this host's interfaces, and what may be done with an address."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import psutil
import pytest

from seatrial.machine.interfaces import interface_addresses, interfaces, ip_addresses, is_link_local, is_loopback


def _entry(address: str | None, family: int = socket.AF_INET) -> SimpleNamespace:
    return SimpleNamespace(family=family, address=address)


def test_loopback_is_up_and_has_an_address() -> None:
    assert any(is_loopback(address) for address in interfaces()["lo"])
    assert interface_addresses() >= {*interfaces()["lo"]}


def test_only_interfaces_that_are_up_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"up": [_entry("10.0.0.1")], "down": [_entry("10.0.0.2")], "bare": [], "untold": [_entry("10.0.0.3")]}
    stats = {"up": SimpleNamespace(isup=True), "down": SimpleNamespace(isup=False), "bare": SimpleNamespace(isup=True)}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: stats)
    assert interfaces() == {"up": ("10.0.0.1",), "bare": (), "untold": ("10.0.0.3",)}
    assert interface_addresses() == {"10.0.0.1", "10.0.0.3"}


@pytest.mark.parametrize("error", [PermissionError(1, "not permitted"), psutil.AccessDenied()])
def test_where_the_kernel_does_not_say_which_are_up_all_are_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"one": [_entry("10.0.0.1")], "other": [_entry("10.0.0.2")]})
    monkeypatch.setattr(psutil, "net_if_stats", refuse)
    assert interfaces() == {"one": ("10.0.0.1",), "other": ("10.0.0.2",)}


def test_addresses_of_one_interface_in_the_kernels_order_without_scope_or_rubbish() -> None:
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
        ("127.9.9.9", True, False),
        ("::1", True, False),
        ("10.0.0.1", False, False),
        ("FE80::1", False, True),
        ("fe80:0:0:0:0:0:0:1", False, True),
        ("fe80::1%eth0", False, True),
        ("febf::1", False, True),
        ("fec0::1", False, False),
        ("fe80:", False, False),
        # Of IPv4 it can be called, if by luck alone.
        ("169.254.1.1", False, False),
        ("no address", False, False),
        ("", False, False),
    ],
)
def test_what_leads_nowhere_else(address: str, loopback: bool, link_local: bool) -> None:
    assert (is_loopback(address), is_link_local(address)) == (loopback, link_local)
