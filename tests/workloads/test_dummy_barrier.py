"""Where the ranks of the dummy workload meet."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from seatrial_workloads.dummy.barrier import Barrier, meeting_host


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, "127.0.0.1"),
        ({"MASTER_ADDR": "node1"}, "127.0.0.1"),
        ({"MASTER_ADDR": "node1", "LOCAL_WORLD_SIZE": "4"}, "127.0.0.1"),
        ({"MASTER_ADDR": "node1", "LOCAL_WORLD_SIZE": "2"}, "node1"),
        ({"MASTER_ADDR": "node1", "LOCAL_SIZE": "2"}, "node1"),
        ({"LOCAL_WORLD_SIZE": "2"}, "127.0.0.1"),
    ],
)
def test_ranks_of_one_host_meet_on_loopback_and_others_at_the_master(variables: dict[str, str], host: str) -> None:
    assert meeting_host(4, variables) == host


def assert_they_meet(run_dir: Path, before_rank_0: threading.Event) -> None:
    """Rank 1 looks for rank 0 from the beginning, rank 0 comes when it is let; both must get through one step."""
    came: list[int] = []

    def come(rank: int) -> None:
        with Barrier(run_dir, rank, world_size=2) as barrier:
            barrier.join()
            barrier.wait(3)
            came.append(rank)

    other = threading.Thread(target=come, args=(1,), daemon=True)
    other.start()
    before_rank_0.wait(timeout=0.2)
    come(0)
    other.join(timeout=60)
    assert sorted(came) == [0, 1]


STALE = [
    "",
    "{",
    "[]",
    "{}",
    '{"port": 1, "secret": "00"}',
    '{"host": "127.0.0.1", "port": 1, "secret": "zz"}',
    '{"host": 7, "port": "x", "secret": "00"}',
]


@pytest.mark.parametrize("text", STALE)
def test_a_file_of_an_earlier_run_is_passed_over_however_it_looks(tmp_path: Path, text: str) -> None:
    (tmp_path / "barrier.json").write_text(text)
    assert_they_meet(tmp_path, threading.Event())


def test_a_file_that_names_somebody_else_s_port_is_passed_over(tmp_path: Path) -> None:
    asked = threading.Event()

    def answer(server: socket.socket) -> None:
        while True:
            try:
                stranger, _ = server.accept()
            except OSError:
                return
            stranger.sendall(b"220 this is no barrier at all\r\n")
            stranger.close()
            asked.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        stale = {"host": "127.0.0.1", "port": server.getsockname()[1], "secret": "00" * 16}
        (tmp_path / "barrier.json").write_text(json.dumps(stale))
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        assert_they_meet(tmp_path, asked)
    assert asked.is_set()


def test_a_stranger_that_connects_and_leaves_does_not_end_the_run(tmp_path: Path) -> None:
    came: list[int] = []

    def come(rank: int) -> None:
        with Barrier(tmp_path, rank, world_size=2) as barrier:
            barrier.join()
            barrier.wait(0)
            came.append(rank)

    first = threading.Thread(target=come, args=(0,), daemon=True)
    first.start()
    while not (tmp_path / "barrier.json").exists():
        threading.Event().wait(0.005)
    port = json.loads((tmp_path / "barrier.json").read_text())["port"]
    socket.create_connection(("127.0.0.1", port)).close()
    with socket.create_connection(("127.0.0.1", port)) as impostor:
        impostor.sendall(bytes(20))
    come(1)
    first.join(timeout=60)
    assert sorted(came) == [0, 1]
