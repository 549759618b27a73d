"""A port is reserved for a run, and its own server can use it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from seatrial.core import ports
from seatrial.core.errors import PortTakenError
from seatrial.core.ports import reserve_port
from seatrial.launch.places.allocation import allocate_local
from tests.unit.launch.factory import make_spec


def test_each_process_begins_at_a_place_of_its_own_and_tries_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 4398)
    tried = ports.candidate_ports()
    assert (tried[0], tried[1], tried[2], tried[-1]) == (29848, 29849, 29650, 29847)
    assert sorted(tried) == list(range(29650, 29850))
    monkeypatch.setattr(os, "getpid", lambda: 4399)
    assert ports.candidate_ports()[0] == 29849


def test_processes_reserve_without_meeting() -> None:
    text = "from seatrial.core.ports import reserve_port\nwith reserve_port() as held:\n    print(held.port, flush=True)\n    input()"
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


def test_a_port_in_use_is_skipped_and_free_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, reserve_port() as first:
        taken = [server.getsockname()[1], first.port]
        monkeypatch.setattr(ports, "candidate_ports", lambda: taken)
        with reserve_port() as any_free:
            assert any_free.port not in (0, *taken)
    with reserve_port() as again:
        assert again.port in taken


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
        with pytest.raises(PortTakenError, match=rf"port {taken} is in use, or needs root; the next free one is \d+"):
            reserve_port(taken)
    with reserve_port(taken) as reserved:
        assert reserved.port == taken


def test_from_a_base_ports_are_tried_one_after_the_other() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        taken = server.getsockname()[1]
        with reserve_port(base=taken) as reserved:
            assert taken < reserved.port < taken + ports.NUM_PORTS


def test_a_base_near_the_end_stays_below_it() -> None:
    assert ports.ports_from(65530) == list(range(65530, 65536))


def test_a_local_run_reserves_its_port_or_the_one_its_place_sets() -> None:
    spec = make_spec("/w", ranks=2, devices=("0", "1"))
    with allocate_local(spec) as allocation, socket.socket() as other:
        assert (allocation.ranks, allocation.devices, allocation.master_addr) == (2, ("0", "1"), "127.0.0.1")
        with pytest.raises(OSError, match="in use"):
            other.bind(("0.0.0.0", allocation.master_port))
    with allocate_local(replace(spec, place=replace(spec.place, port=allocation.master_port))) as again:
        assert again.master_port == allocation.master_port
