"""The port at which ranks meet: held by node 0 alone, told in hello, taken again when leftovers are gone."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from seatrial.agent import rendezvous as module
from seatrial.agent.rendezvous import Rendezvous
from seatrial.records.line import NodeCall


def _call(folder: Path, *, holds: bool = True, port: int | None = None, base: int | None = None) -> NodeCall:
    told = {"holds_port": holds, "rendezvous_port": port, "port_base": base}
    attempt = str(folder / "run" / "attempt-2")
    return NodeCall(addresses=(), port=1, token="t", node="node0", campaign=str(folder), attempt=attempt, **told)  # type: ignore[arg-type]


@pytest.fixture
def taken() -> socket.socket:
    return socket.create_server(("0.0.0.0", 0))


def test_a_node_that_holds_none_has_nothing_to_tell(tmp_path: Path) -> None:
    with Rendezvous(_call(tmp_path, holds=False)) as rendezvous:
        rendezvous.reserve()
        assert rendezvous.to_tell() is None and rendezvous.trouble == ""


def test_a_port_is_held_until_the_end_of_the_block(tmp_path: Path) -> None:
    with Rendezvous(_call(tmp_path)) as rendezvous:
        rendezvous.reserve()
        port = rendezvous.to_tell()
        rendezvous.reserve()
        assert port and rendezvous.to_tell() == port, "once is enough"
        with socket.socket() as other, pytest.raises(OSError):
            other.bind(("0.0.0.0", port))
    socket.create_server(("0.0.0.0", port)).close()


def test_a_named_port_that_another_holds_is_a_trouble_with_the_nodes_name(tmp_path: Path, taken: socket.socket) -> None:
    port = taken.getsockname()[1]
    with taken, Rendezvous(_call(tmp_path, port=port)) as rendezvous:
        rendezvous.reserve()
        assert rendezvous.to_tell() is None and rendezvous.trouble.startswith(f"on node0: port {port} is in use")


def test_a_named_port_that_leftovers_hold_is_told_and_reserved_when_they_are_gone(
    tmp_path: Path, taken: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_leftovers", lambda campaign, attempt: [4711])
    port = taken.getsockname()[1]
    with Rendezvous(_call(tmp_path, port=port)) as rendezvous:
        with taken:
            rendezvous.reserve()
            assert rendezvous.to_tell() == port and rendezvous.trouble
        rendezvous.reserve()
        assert rendezvous.to_tell() == port and rendezvous.trouble == ""
