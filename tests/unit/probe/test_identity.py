"""Who a process is, and what importing the probe brings along."""

from __future__ import annotations

import ast
import inspect
import multiprocessing
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import seatrial.probe
from seatrial.probe import Probe, StepRecord
from seatrial.probe.identity import identify, process_group


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
def test_the_gpu_is_the_ranks_entry_of_the_visible_ones(tmp_path, monkeypatch, shown, local_rank, expected):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    env = {"RANK": "4", "WORLD_SIZE": "8", "LOCAL_RANK": local_rank} | ({} if shown is None else {"CUDA_VISIBLE_DEVICES": shown})
    assert identify(tmp_path, env=env).gpu == expected


@pytest.mark.parametrize(("is_up", "expected"), [(True, "1"), (False, None)])
def test_without_visible_devices_the_gpu_is_known_once_cuda_is_initialised(tmp_path, monkeypatch, is_up, expected):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: is_up)))
    assert identify(tmp_path, env={"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}).gpu == expected


def test_arguments_override_the_environment(tmp_path):
    env = {"SEATRIAL_RUN_DIR": "/elsewhere", "SEATRIAL_RUN": "a", "SEATRIAL_ATTEMPT": "7", "RANK": "1", "SEATRIAL_PHASE_EVERY": "5"}
    found = identify(tmp_path, run="b", attempt=2, rank=4, world_size=9, phase_every=1, sync=True, env=env)
    assert (found.run_dir, found.run, found.attempt, found.rank, found.world_size) == (tmp_path, "b", 2, 4, 9)
    assert (found.phase_every, found.sync) == (1, True)


def test_without_a_folder_there_is_no_identity():
    assert identify(None, env={"RANK": "0"}) is None


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"RANK": "first"}, "RANK is 'first'; expected an integer"),
        ({"SEATRIAL_SYNC_TIMING": "maybe"}, "SEATRIAL_SYNC_TIMING is 'maybe'; expected 1 or 0"),
        ({"SEATRIAL_RANK_SCOPE": "some"}, "rank_scope is 'some'; expected one of all, rank0"),
        ({"SEATRIAL_PHASE_EVERY": "0"}, "phase_every is 0; expected 1"),
        ({"SEATRIAL_TIMING_WINDOW": "0"}, "the timing window is 0"),
    ],
)
def test_invalid_variables_are_refused(tmp_path, env, message):
    with pytest.raises(ValueError, match=message):
        identify(tmp_path, env=env)


@pytest.mark.parametrize(("text", "sync"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_sync_is_read_from_the_environment(tmp_path, text, sync):
    assert identify(tmp_path, env={"SEATRIAL_SYNC_TIMING": text}).sync is sync


def test_ranks_spawned_by_torch_are_known_by_their_process_group(tmp_path, monkeypatch):
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


ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "probe.md"

CONSTRUCTOR = (
    "(run_dir: 'str | Path | None' = None, *, run: 'str | None' = None, attempt: 'int | None' = None, rank: 'int | None' = None, "
    "world_size: 'int | None' = None, local_rank: 'int | None' = None, rank_scope: 'str | None' = None, sync: 'bool | None' = None, "
    "phase_every: 'int | None' = None, heartbeat_s: 'float | None' = 5.0, "
    "monotonic: 'Callable[[], float]' = <built-in function monotonic>, wall: 'Callable[[], float]' = <built-in function time>) -> 'None'"
)
CALLS = {
    "data": "(self, loader: 'Iterable[Batch]') -> 'Iterable[Batch]'",
    "resume_at": "(self, step: 'int') -> 'None'",
    "step": "(self, *, samples: 'float | None' = None, tokens: 'float | None' = None) -> 'StepContext | NullContext'",
    "phase": "(self, name: 'str') -> 'PhaseContext | UntimedPhase | NullContext'",
    "pause": "(self, name: 'str') -> 'PauseContext | NullContext'",
    "startup": "(self, name: 'str') -> 'SpanContext | NullContext'",
    "recent": "(self) -> 'tuple[StepRecord, ...]'",
    "effective": "(self, setting: 'str', *, requested: 'Any', effective: 'Any', reason: 'str' = '', "
    "follows: 'Iterable[str]' = ()) -> 'None'",
    "figure": "(self, name: 'str', value: 'float', unit: 'str' = '', n: 'int | None' = None) -> 'None'",
    "progress": "(self, **fields: 'Any') -> 'None'",
    "memory": "(self) -> 'None'",
    "loss": "(self, value: 'Any') -> 'None'",
    "close": "(self) -> 'None'",
}
PROPERTIES = ("active", "halted")
STEP_RECORD = ("iter_ms", "loss", "m", "paused_s", "phases_ms", "samples", "step", "t", "tokens")
CALLBACKS = {
    "hf": "self, run_dir: str | Path | None=None, *, probe: Probe | None=None",
    "lightning": "self, run_dir: str | Path | None=None",
}


def test_the_package_offers_two_names() -> None:
    assert seatrial.probe.__all__ == ["Probe", "StepRecord"]


def test_the_constructor_of_a_probe() -> None:
    assert str(inspect.signature(Probe)).replace(" -> None", " -> 'None'") == CONSTRUCTOR


def test_a_probe_has_these_calls_and_no_others() -> None:
    public = {name: value for name, value in vars(Probe).items() if not name.startswith("_")}
    assert {name: str(inspect.signature(value)) for name, value in public.items() if callable(value)} == CALLS
    assert sorted(name for name, value in public.items() if isinstance(value, property)) == sorted(PROPERTIES)
    assert hasattr(Probe, "__enter__") and hasattr(Probe, "__exit__")


def test_the_fields_of_a_step_record() -> None:
    # The other two are internal: what the device has yet to deliver.
    assert sorted(set(StepRecord.__slots__) - {"loss_read", "marks"}) == sorted(STEP_RECORD)


@pytest.mark.parametrize("module", CALLBACKS)
def test_each_trainer_has_one_callback_with_the_promised_options(module: str) -> None:
    """Read, not imported: the Trainers are not installed everywhere."""
    tree = ast.parse((ROOT / "src" / "seatrial" / "probe" / f"{module}.py").read_text())
    callback = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SeatrialCallback")
    made = next(node for node in callback.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert ast.get_docstring(callback)
    assert ast.unparse(made.args) == CALLBACKS[module]


@pytest.mark.parametrize("name", [*CALLS, *PROPERTIES, "Probe", "StepRecord", *STEP_RECORD])
def test_the_page_names_it(name: str) -> None:
    page = PAGE.read_text()
    assert f"`{name}`" in page or f"`{name}(" in page


@pytest.mark.parametrize("module", CALLBACKS)
def test_the_page_names_each_callback(module: str) -> None:
    assert f"from seatrial.probe.{module} import SeatrialCallback" in PAGE.read_text()


class FakeDistributed:
    """What the probe asks of torch.distributed."""

    def __init__(self, backend: str = "gloo") -> None:
        self.backend, self.initialized = backend, False

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.initialized

    def get_backend(self) -> str:
        return self.backend

    def get_backend_config(self) -> str:
        return "cpu:gloo,cuda:nccl"

    def get_world_size(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("backend", "env", "group"),
    [
        ("gloo", {"GLOO_SOCKET_IFNAME": "eth0"}, {"backend": "gloo", "size": 2, "transport": "TCP", "interface": "eth0"}),
        ("nccl", {"NCCL_SOCKET_IFNAME": "^lo"}, {"backend": "nccl", "size": 2, "transport": None, "interface": "^lo"}),
        ("undefined", {}, {"backend": "cpu:gloo,cuda:nccl", "size": 2, "transport": None, "interface": None}),
    ],
)
def test_the_process_group_once_it_is_initialised(
    monkeypatch: pytest.MonkeyPatch, backend: str, env: dict[str, str], group: dict[str, object]
) -> None:
    distributed = FakeDistributed(backend)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert process_group(env) is None
    distributed.initialized = True
    assert process_group(env) == group
