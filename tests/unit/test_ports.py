from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from seatrial import ports
from seatrial.errors import PortTakenError
from seatrial.launch.places.local import allocate
from seatrial.ports import reserve_port
from tests.unit.launch.factory import make_spec


def test_second_reserver_gets_another_port() -> None:
    with reserve_port() as first, reserve_port() as second:
        assert second.port != first.port


def test_each_process_begins_at_a_place_of_its_own_and_tries_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 4398)
    tried = ports.candidates()
    assert (tried[0], tried[1], tried[2], tried[-1]) == (29848, 29849, 29650, 29847)
    assert sorted(tried) == list(range(29650, 29850))
    monkeypatch.setattr(os, "getpid", lambda: 4399)
    assert ports.candidates()[0] == 29849


def test_processes_reserve_without_meeting() -> None:
    text = "from seatrial.ports import reserve_port\nwith reserve_port() as held:\n    print(held.port, flush=True)\n    input()"
    ours = [subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    held = [process.stdout.readline() for process in ours if process.stdout]
    for process in ours:
        process.communicate("\n", timeout=60)
    assert len(set(held)) == 2 and all(int(port) for port in held)


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


def test_port_with_a_listener_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(ports, "candidates", lambda: [taken])
        with reserve_port() as reserved:
            assert reserved.port not in (0, taken)


def test_port_is_free_again_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserve_port() as reserved:
        pass
    monkeypatch.setattr(ports, "candidates", lambda: [reserved.port])
    with reserve_port() as again:
        assert again.port == reserved.port


def test_any_port_when_the_range_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserve_port() as first:
        monkeypatch.setattr(ports, "candidates", lambda: [first.port])
        with reserve_port() as second:
            assert second.port not in (0, first.port)


def test_allocation_holds_its_port() -> None:
    spec = make_spec("/w", ranks=2, devices=("0", "1"))
    with allocate(spec) as allocation, socket.socket() as other:
        assert (allocation.ranks, allocation.devices, allocation.master_addr) == (2, ("0", "1"), "127.0.0.1")
        with pytest.raises(OSError, match="in use"):
            other.bind(("0.0.0.0", allocation.master_port))


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


def test_a_named_port_is_held_or_the_next_free_one_is_named() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(PortTakenError, match=rf"port {taken} is in use, or not ours to take; the next free one is \d+"):
            reserve_port(taken)
    with reserve_port(taken) as reserved:
        assert reserved.port == taken


def test_from_a_base_ports_are_tried_one_after_the_other() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        taken = server.getsockname()[1]
        with reserve_port(base=taken) as reserved:
            assert taken < reserved.port < taken + ports.NUM_PORTS


def test_a_base_near_the_end_stays_below_it() -> None:
    assert ports.in_order(65530) == list(range(65530, 65536))


def test_the_place_says_which_port() -> None:
    with reserve_port() as free:
        port = free.port
    spec = make_spec(".")
    with allocate(replace(spec, place=replace(spec.place, port=port))) as allocation:
        assert allocation.master_port == port
