"""Which ranks a run really has, by the variables of its processes."""

from __future__ import annotations

import os
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
