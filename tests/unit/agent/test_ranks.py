"""Which ranks a run really has, by the variables of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from seatrial.agent.processes import RankObserver
from seatrial.core.files import read_json
from seatrial.records.codec import from_json
from seatrial.records.launch import ObservedRanks
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
ROOT = 100


def add_process(proc: Path, pid: int, parent: int = ROOT, argv: tuple[str, ...] = ("python",), **env: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"{pid} (python) S {parent} " + " ".join(["0"] * 17 + [str(pid)] + ["0"] * 10))
    (folder / "cmdline").write_bytes("\0".join(argv).encode() + b"\0")
    (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in env.items()))


def observe(tmp_path: Path, caller: Mapping[str, str] | None = None, looks: int = 1) -> ObservedRanks:
    order = order_for(tmp_path, "")
    observer = RankObserver(order, caller or {}, root=ROOT, proc=tmp_path / "proc")
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
