"""Whether a name is this machine's."""

from __future__ import annotations

import pytest

from seatrial.machine.this_host import is_this_host, resolved

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


def test_what_the_resolver_does_not_know_has_no_address() -> None:
    assert "127.0.0.1" in resolved("localhost") and len({*resolved("localhost")}) == len(resolved("localhost"))
    assert resolved("no-such-host.invalid") == ()
    # Longer than a label may be: an error of the encoding, not of the resolver.
    assert resolved(f"{'a' * 64}.example") == ()
