from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from seatrial.launch import ports
from seatrial.launch.places.local import allocate
from seatrial.launch.ports import reserve_port
from tests.unit.launch.factory import make_spec


def test_second_reserver_gets_another_port() -> None:
    with reserve_port() as first, reserve_port(first.port) as second:
        assert second.port > first.port >= ports.FIRST_PORT


def test_runs_own_server_can_use_the_held_port() -> None:
    with (
        reserve_port() as reserved,
        socket.create_server(("127.0.0.1", reserved.port)) as server,
        socket.create_connection(("127.0.0.1", reserved.port)) as client,
    ):
        accepted, _ = server.accept()
        client.sendall(b"hello")
        assert accepted.recv(5) == b"hello"
        accepted.close()


def test_port_with_a_listener_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with reserve_port(taken) as reserved:
            assert reserved.port != taken


def test_port_is_free_again_after_the_block() -> None:
    with reserve_port() as reserved:
        pass
    with reserve_port(reserved.port) as again:
        assert again.port == reserved.port


def test_any_port_when_the_range_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "MAX_TRIES", 1)
    with reserve_port() as first, reserve_port(first.port) as second:
        assert second.port not in (0, first.port)


def test_allocation_holds_its_port() -> None:
    spec = make_spec("/w", ranks=2, devices=("0", "1"))
    with allocate(spec) as allocation, reserve_port(allocation.master_port) as other:
        assert (allocation.ranks, allocation.devices, allocation.master_addr) == (2, ("0", "1"), "127.0.0.1")
        assert other.port != allocation.master_port


@pytest.mark.torch
@pytest.mark.slow
def test_torch_store_serves_on_a_held_port() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    text = (
        "import sys; from torch.distributed import TCPStore; p = int(sys.argv[1]);"
        "s = TCPStore('127.0.0.1', p, 1, True); s.set('k', 'v'); assert s.get('k') == b'v'"
    )
    with reserve_port() as reserved:
        done = subprocess.run([sys.executable, "-c", text, str(reserved.port)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
