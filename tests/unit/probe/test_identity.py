"""Who a process is, from arguments and environment."""

from __future__ import annotations

import multiprocessing
import sys
from types import SimpleNamespace

import pytest

from seatrial.paths import AttemptPaths
from seatrial.probe.identity import identify


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (0, 1, "python")),
        ({"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none"}, (3, 8, "torchrun")),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2, "environment")),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}, (1, 2, "deepspeed")),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, (5, 6, "slurm")),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, (1, 4, "mpi")),
        ({"RANK": "2", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "TORCHELASTIC_RUN_ID": "x"}, (2, 4, "torchrun")),
    ],
)
def test_rank_and_world_size_come_from_one_launcher(tmp_path, env, expected):
    found = identify(tmp_path, env=env)
    assert (found.rank, found.world_size, found.launched_by) == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, 0),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, 1),
        ({"RANK": "5", "WORLD_SIZE": "8"}, None),
        ({"RANK": "5", "LOCAL_RANK": "first"}, None),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "3"}, 3),
        ({"RANK": "2", "LOCAL_RANK": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}, 0),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, 1),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, 1),
    ],
)
def test_the_local_rank_comes_from_the_launcher_of_the_rank(tmp_path, env, expected):
    assert identify(tmp_path, env=env).local_rank == expected
    assert identify(tmp_path, local_rank=7, env=env).local_rank == 7


@pytest.mark.parametrize(
    ("shown", "local_rank", "expected"),
    [
        ("0,1,2,3", "2", "2"),
        ("6, 7", "1", "7"),
        ("GPU-3f,GPU-4a", "0", "GPU-3f"),
        ("5", "3", "5"),
        ("0,1", "2", None),
        ("0,-1,1", "1", "0"),
        ("", "0", None),
        ("-1", "0", None),
        (None, "1", None),
    ],
)
def test_the_gpu_is_the_ranks_entry_of_those_that_are_visible(tmp_path, monkeypatch, shown, local_rank, expected):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    env = {"RANK": "4", "WORLD_SIZE": "8", "LOCAL_RANK": local_rank} | ({} if shown is None else {"CUDA_VISIBLE_DEVICES": shown})
    assert identify(tmp_path, env=env).gpu == expected


@pytest.mark.parametrize(("is_up", "expected"), [(True, "1"), (False, None)])
def test_without_a_list_the_gpu_is_known_once_cuda_is_up(tmp_path, monkeypatch, is_up, expected):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: is_up)))
    assert identify(tmp_path, env={"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}).gpu == expected


def test_arguments_stand_over_the_environment(tmp_path):
    env = {"SEATRIAL_RUN_DIR": "/elsewhere", "SEATRIAL_RUN": "a", "SEATRIAL_ATTEMPT": "7", "RANK": "1", "SEATRIAL_PHASE_EVERY": "5"}
    found = identify(tmp_path, run="b", attempt=2, rank=4, world_size=9, phase_every=1, sync=True, env=env)
    assert (found.run_dir, found.run, found.attempt, found.rank, found.world_size) == (tmp_path, "b", 2, 4, 9)
    assert (found.phase_every, found.sync) == (1, True)


def test_files_have_the_names_every_reader_looks_for(tmp_path):
    found, paths = identify(tmp_path, rank=3, env={}), AttemptPaths(tmp_path)
    assert (found.events_path, found.heartbeat_path) == (paths.events(3), paths.heartbeat(3))
    assert (found.halt_path, found.stack_path) == (paths.halt, paths.rank_stack(3))


def test_nobody_asked_means_none():
    assert identify(None, env={"RANK": "0"}) is None


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"RANK": "first"}, "RANK is 'first'; a whole number is expected"),
        ({"SEATRIAL_SYNC_TIMING": "maybe"}, "SEATRIAL_SYNC_TIMING is 'maybe'; expected 1 or 0"),
        ({"SEATRIAL_RANK_SCOPE": "some"}, "rank_scope is 'some'; expected one of all, rank0"),
        ({"SEATRIAL_PHASE_EVERY": "0"}, "phase_every is 0; expected 1"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, env, message):
    with pytest.raises(ValueError, match=message):
        identify(tmp_path, env=env)


@pytest.mark.parametrize(("text", "sync"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_sync_is_read_from_the_environment(tmp_path, text, sync):
    assert identify(tmp_path, env={"SEATRIAL_SYNC_TIMING": text}).sync is sync


def test_ranks_that_torch_spawned_are_known_by_their_process_group(tmp_path, monkeypatch):
    group = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 2)
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    found = identify(tmp_path, env={})
    assert (found.rank, found.world_size) == (1, 2)


def test_a_loader_worker_that_imports_the_script_again_stays_silent(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    found = {}
    for daemon in (True, False):
        receive, send = spawn.Pipe(duplex=False)
        child = spawn.Process(target=_send_whether_identified, args=(send, tmp_path), daemon=daemon)
        child.start()
        found[daemon] = receive.recv()
        child.join()
    assert found == {True: False, False: True}


def _send_whether_identified(send, folder) -> None:
    send.send(identify(folder, env={}) is not None)
