"""Whether a name is this machine's."""

from __future__ import annotations

import pytest

from seatrial.machine.this_host import interfaces, is_loopback, is_this_host

MEANINGS = {"alias": ("10.0.0.1",), "other": ("10.0.0.2",), "wrong": ("127.0.0.1",), "node1.lan": ("10.0.0.9",)}


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
    assert is_this_host(name, own, ("127.0.0.1", "10.0.0.1"), lambda asked: MEANINGS.get(asked, ())) is here


def test_interfaces_have_loopback() -> None:
    assert any(is_loopback(address) for address in interfaces()["lo"])
    assert not is_loopback("10.0.0.1") and not is_loopback("no address") and is_loopback("::1")
