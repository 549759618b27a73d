"""Which ranks a run really has, by the variables of its processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from seatrial.agent.processes import RankObserver
from seatrial.collect.communicators import are_connected
from seatrial.core.files import read_json
from seatrial.records.codec import from_json
from seatrial.records.launch import ObservedRanks, RankListener
from tests.unit.agent.running import agent_on, attempt_of, hear, order_for

RANK = """\
import os, pathlib, time
seen = pathlib.Path(os.environ["SEATRIAL_RUN_DIR"]) / "observed_ranks.json"
until = time.monotonic() + 50
while time.monotonic() < until and not (seen.exists() and '"ranks": []' not in seen.read_text()):
    time.sleep(0.02)
"""
# Two ranks behind a shell and a pipe; each lives until the agent has seen one.
BEHIND_A_SHELL = f"""\
import subprocess, sys
command = 'for rank in 0 1; do RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank "$0" -c "$1" & done; wait'
subprocess.run(["bash", "-c", "( " + command + " ) | cat", sys.executable, {RANK!r}], check=True)
"""
# Two ranks that listen, as gloo's do, with one connection between them, until the agent has seen it.
CONNECTED = """\
import os, pathlib, socket, time
seen = pathlib.Path(os.environ["SEATRIAL_RUN_DIR"]) / "observed_ranks.json"
port = pathlib.Path(os.environ["SEATRIAL_RUN_DIR"]) / "port"
server = socket.create_server(("127.0.0.1", 0))
if os.environ["RANK"] == "0":
    port.with_name("aside").write_text(str(server.getsockname()[1]))
    port.with_name("aside").rename(port)
    connection, _ = server.accept()
else:
    while not port.exists():
        time.sleep(0.02)
    connection = socket.create_connection(("127.0.0.1", int(port.read_text())))
until = time.monotonic() + 50
while time.monotonic() < until and not (seen.exists() and seen.read_text().count('"local"') > 1 and seen.read_text().count('"at"') > 1):
    time.sleep(0.02)
"""
ROOT = 100


def add_process(
    proc: Path,
    pid: int,
    parent: int = ROOT,
    argv: tuple[str, ...] = ("python",),
    *,
    cpu_s: float = 0.0,
    wchan: str = "0",
    name: str = "python",
    **env: str,
) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    ticks = round(cpu_s * os.sysconf("SC_CLK_TCK"))
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} " + " ".join(["0"] * 9 + [str(ticks)] + ["0"] * 7 + [str(pid)] + ["0"] * 10))
    (folder / "wchan").write_text(wchan)
    (folder / "cmdline").write_bytes("\0".join(argv).encode() + b"\0")
    (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in env.items()))


def observe(tmp_path: Path, base_env: Mapping[str, str] | None = None, looks: int = 1) -> ObservedRanks:
    order = order_for(tmp_path, "")
    observer = RankObserver(order, base_env or {}, root=ROOT, proc=tmp_path / "proc")
    for number in range(looks):
        observer.look(number * 100.0)
    return from_json(ObservedRanks, read_json(attempt_of(order).observed_ranks))


def test_ranks_behind_a_shell_are_seen_while_they_run(tmp_path: Path) -> None:
    order = order_for(tmp_path, BEHIND_A_SHELL)
    with agent_on(order) as agent:
        assert hear(agent, "exited").returncode == 0
    seen = from_json(ObservedRanks, read_json(attempt_of(order).observed_ranks))
    assert seen.world_sizes == (2,) and set(seen.ranks) <= {0, 1} and seen.ranks


def test_ranks_of_a_launcher_and_their_workers(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 101, argv=("bash", "-c", "torchrun train.py | tee log"))
    add_process(proc, 102, 101, argv=("/venv/bin/python", "/venv/bin/torchrun", "train.py"))
    for rank in (0, 1):
        add_process(proc, 110 + rank, 102, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
        add_process(proc, 120 + rank, 110 + rank, RANK=str(rank), WORLD_SIZE="2")
    add_process(proc, 200, 1, RANK="7", WORLD_SIZE="8")
    assert observe(tmp_path) == ObservedRanks(world_sizes=(2,), ranks=(0, 1), launchers=("torchrun",), looks=1)


def add_sockets(proc: Path, pid: int, inodes: tuple[int, ...]) -> None:
    (proc / str(pid) / "fd").mkdir()
    for inode in inodes:
        (proc / str(pid) / "fd" / str(inode)).symlink_to(f"socket:[{inode}]")
    (proc / str(pid) / "net").mkdir()
    (proc / str(pid) / "net" / "tcp").write_text(TCP)
    (proc / str(pid) / "net" / "tcp6").write_text(TCP6)


# As the kernel writes them. 11: 10.0.0.1:40000 → 10.0.0.2:50000; 12 listens; 13 ended; 14: to the rendezvous at 29500; 15: of IPv4 in IPv6.
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100000A:9C40 0200000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0 20 4 27 14 -1
   1: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   2: 0100000A:9C41 0200000A:C351 06 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 27 14 -1
   3: 0100000A:9C42 0200000A:733C 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0 20 4 27 14 -1
"""
TCP6 = """  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:9C43 0000000000000000FFFF00000100007F:C352 01 00000000:00000000 00:00000000 0 0 0 15 1 0 20 4 27 14
"""


def test_connections_of_ranks_without_those_to_the_rendezvous(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 101, RANK="1", WORLD_SIZE="2", MASTER_PORT="29500")
    add_sockets(proc, 101, (11, 12, 13, 14, 15))
    # Not a rank: a launcher that holds a connection to another one.
    add_process(proc, 102)
    add_sockets(proc, 102, (11,))
    found = [(one.rank, one.local, one.remote) for one in observe(tmp_path).connections]
    little = [(1, "10.0.0.1:40000", "10.0.0.2:50000"), (1, "127.0.0.1:40003", "127.0.0.1:50002")]
    assert sys.byteorder != "little" or found == little
    assert observe(tmp_path).listening == (RankListener(rank=1, at="0.0.0.0:2024"),)


def test_the_connection_of_two_ranks_is_seen_from_both_ends(tmp_path: Path) -> None:
    """In the real /proc."""
    order = order_for(tmp_path, CONNECTED, ranks=2, env={"WORLD_SIZE": "2"})
    with agent_on(order) as agent:
        assert hear(agent, "exited").returncode == 0
    assert are_connected(attempt_of(order), 2)


@pytest.mark.parametrize(
    ("env", "sizes"),
    [
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, (4,)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "16"}, (16,)),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "1"}, (2,)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (2,)),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (2,)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, ()),
        ({"RANK": "0"}, ()),
        ({"RANK": "0", "WORLD_SIZE": "many"}, ()),
        ({"RANK": "0", "WORLD_SIZE": "99999999999999999999"}, ()),
    ],
)
def test_variables_that_make_a_rank(tmp_path: Path, env: dict[str, str], sizes: tuple[int, ...]) -> None:
    add_process(tmp_path / "proc", 101, **env)
    # The campaign itself runs in a batch job of eight tasks.
    assert observe(tmp_path, {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}).world_sizes == sizes


def test_what_starts_ranks_without_variables_is_seen(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 101, argv=("docker", "run", "image"))
    add_process(proc, 102, argv=("python", "-m", "torch.distributed.run", "t.py"))
    for pid in (103, 104):
        add_process(
            proc, pid, argv=("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(5)", "--multiprocessing-fork")
        )
    seen = observe(tmp_path, looks=3)
    assert seen.launchers == ("docker", "torch.distributed.run") and seen.spawned == 2 and not seen.world_sizes


def observe_forks(
    tmp_path: Path, parent_s: tuple[float, ...], worker_s: tuple[float, ...], *, wchan: str = "0", name: str = "python"
) -> int:
    """What is seen of a script with two forks, each used so much CPU time at each look; the second a little less."""
    proc, order = tmp_path / "proc", order_for(tmp_path, "")
    observer = RankObserver(order, {}, root=ROOT, proc=proc)
    for number, (own_s, fork_s) in enumerate(zip(parent_s, worker_s, strict=True)):
        add_process(proc, 101, argv=("python", "sp.py"), cpu_s=own_s, wchan=wchan)
        for pid, share in ((102, 1.0), (103, 0.8)):
            add_process(proc, pid, 101, argv=("python", "sp.py"), cpu_s=share * fork_s, name=name)
        observer.look(number * 100.0)
    return from_json(ObservedRanks, read_json(attempt_of(order).observed_ranks)).forked


@pytest.mark.parametrize(
    ("parent_s", "worker_s", "wchan", "forked"),
    [
        pytest.param((9.0, 9.0, 9.0), (0.0, 3.0, 6.0), "0", 2, id="ranks that compute"),
        pytest.param((9.0, 9.0, 9.0), (0.0, 0.0, 0.1), "do_wait", 2, id="ranks that wait for a GPU"),
        pytest.param((9.0, 12.0, 15.0), (0.0, 3.0, 6.0), "0", 0, id="a data loader's workers"),
        pytest.param((9.0, 9.0, 9.5), (0.0, 5.0, 8.0), "0", 0, id="workers that a training waited for first"),
        pytest.param((9.0, 9.0, 9.0), (0.0, 0.0, 0.0), "0", 0, id="idle workers of an idle script"),
    ],
)
def test_processes_that_a_script_forks_and_waits_for(
    tmp_path: Path, parent_s: tuple[float, ...], worker_s: tuple[float, ...], wchan: str, forked: int
) -> None:
    assert observe_forks(tmp_path, parent_s, worker_s, wchan=wchan) == forked


def test_named_workers_of_a_data_loader_are_no_ranks(tmp_path: Path) -> None:
    assert observe_forks(tmp_path, (9.0, 9.0), (0.0, 3.0), name="pt_data_worker") == 0
