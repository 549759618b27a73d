"""Checkpoints: written by all ranks, also when interrupted; found, checked and loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import resource
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial_workloads.common import checkpoints as saving
from seatrial_workloads.common.checkpoints import (
    CheckpointError,
    CheckpointInfo,
    check_same,
    find_checkpoint,
    load_tensors,
    load_weights,
    random_states,
    random_states_path,
    restore_random_states,
    save_checkpoint,
    save_tensors,
    tag_name,
)
from seatrial_workloads.common.distributed import Ranks
from tests.workloads.cpu_ranks import ALONE, OtherFailed, cpu_ranks

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")


def drawn() -> list[float]:
    return [random.random(), random.gauss(0.0, 1.0), float(numpy.random.rand()), float(torch.rand(1))]


def test_random_states_survive_a_safe_load(tmp_path):
    random.gauss(0.0, 1.0)
    torch.save(random_states(), tmp_path / "states.pt")
    expected = drawn()
    assert drawn() != expected
    restore_random_states(torch.load(tmp_path / "states.pt", weights_only=True))
    assert drawn() == expected


def test_numpy_is_saved_only_if_imported(monkeypatch):
    assert {"python", "torch", "numpy"} <= random_states().keys()
    monkeypatch.delitem(sys.modules, "numpy")
    states = random_states()
    assert "numpy" not in states
    restore_random_states(states)


def info(step: int, **changed: object) -> CheckpointInfo:
    return CheckpointInfo(
        **{"engine": "ddp", "zero_stage": 0, "world_size": 1, "step": step, "seed": 1, "settings": {"lr": 0.1}, **changed}
    )


def write(folder: Path) -> None:
    save_tensors(random_states_path(folder, 0), {"state": torch.arange(1000)})


def save(run_dir: Path, step: int, *, keep: int = 1, style: str = "iter", content=write) -> Path:
    return save_checkpoint(run_dir, tag_name(step, style), info(step), content, ALONE, keep=keep)


def names(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_the_newest_is_found_from_checkpoint_folder_or_run_folder(tmp_path):
    whole = save(tmp_path, 120)
    assert whole == tmp_path / "checkpoints" / "ckpt_iter_120"
    for path in (whole, tmp_path / "checkpoints", tmp_path):
        found = find_checkpoint(path)
        assert (found.folder, dataclasses.replace(found.info, files={})) == (whole, info(120))
    sizes = {path.name: path.stat().st_size for path in whole.iterdir() if path.name != "checkpoint.json"}
    assert json.loads((whole / "checkpoint.json").read_text()) == {**dataclasses.asdict(info(120)), "files": sizes}
    assert (tmp_path / "checkpoints" / "latest").read_text() == "ckpt_iter_120"
    assert names(tmp_path) == ["ckpt_iter_120", "latest"]
    assert save(tmp_path, 130, style="global_step").name == "global_step130"


def test_older_ones_are_removed_down_to_the_number_kept(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path, step, keep=5)
    assert names(tmp_path) == ["ckpt_iter_10", "ckpt_iter_20", "ckpt_iter_30", "latest"]
    save(tmp_path, 40, keep=2)
    assert names(tmp_path) == ["ckpt_iter_30", "ckpt_iter_40", "latest"]
    # One of a later step belongs to another history.
    save(tmp_path, 35)
    assert names(tmp_path) == ["ckpt_iter_35", "ckpt_iter_40", "latest"]
    assert find_checkpoint(tmp_path).info.step == 35


def test_a_checkpoint_can_be_overwritten(tmp_path):
    save(tmp_path, 10)
    save(tmp_path, 10, content=lambda folder: save_tensors(random_states_path(folder, 0), {"state": torch.zeros(1)}))
    assert names(tmp_path) == ["ckpt_iter_10", "latest"]
    assert load_tensors(random_states_path(find_checkpoint(tmp_path).folder, 0))["state"].tolist() == [0.0]


class Killed(BaseException):
    """Not caught by anything, like SIGKILL."""


@contextlib.contextmanager
def killed_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Die at the disk operation after the first `moment` ones."""
    left = iter(range(moment))

    def dying(function):
        def operate(*args, **kwargs):
            if next(left, None) is None:
                raise Killed
            return function(*args, **kwargs)

        return operate

    with monkeypatch.context() as patched:
        for owner, name in ((saving.os, "replace"), (saving.shutil, "rmtree"), (saving, "flush_to_disk")):
            patched.setattr(owner, name, dying(getattr(owner, name)))
        for name in ("mkdir", "write_text", "unlink"):
            patched.setattr(Path, name, dying(getattr(Path, name)))
        yield


@pytest.mark.parametrize("step", [10, 20])
def test_killed_at_any_moment_a_complete_one_is_left_and_the_next_save_cleans_up(tmp_path, monkeypatch, step):
    """Step 20 is a newer one, step 10 the same again."""
    finished = False
    for moment in range(40):
        run_dir = tmp_path / str(moment)
        save(run_dir, 10)
        with killed_at(moment, monkeypatch), contextlib.suppress(Killed):
            save(run_dir, step)
            finished = True
        found = find_checkpoint(run_dir)
        assert found.info.step in (10, step)
        assert load_tensors(random_states_path(found.folder, 0))["state"].numel() == 1000
        save(run_dir, 30)
        assert names(run_dir) == ["ckpt_iter_30", "latest"]
        if finished:
            break
    assert finished
    assert moment > 8


@pytest.fixture
def full_disk():
    """No file may grow beyond 4 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    @contextlib.contextmanager
    def full() -> Iterator[None]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return full


def test_a_full_disk_is_an_error_and_keeps_the_older_one(tmp_path, full_disk):
    save(tmp_path, 10)
    with full_disk(), pytest.raises(CheckpointError) as error:
        save(tmp_path, 20)
    assert f"{tmp_path}/checkpoints/ckpt_iter_20" in str(error.value)
    assert "MiB free" in str(error.value)
    assert names(tmp_path) == ["ckpt_iter_10", "latest"]
    assert find_checkpoint(tmp_path).info.step == 10
    save(tmp_path, 30)
    assert names(tmp_path) == ["ckpt_iter_30", "latest"]


def test_a_write_error_of_one_rank_is_an_error_on_the_others(tmp_path):
    ranks = cpu_ranks(1, 2, OtherFailed)
    with pytest.raises(CheckpointError, match="another rank failed to write"):
        save_checkpoint(tmp_path, "ckpt_iter_1", info(1, world_size=2), write, ranks, keep=1)


class Counted(Ranks):
    """Counts its collective calls."""

    num_calls = 0

    def all_reduce_max(self, values):
        type(self).num_calls += 1
        return super().all_reduce_max(values)


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (ValueError("no such\ndtype"), "ValueError: no such"),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_any_exception_is_reported_to_all_ranks(tmp_path, monkeypatch, failure, why):
    def fail(folder: Path) -> None:
        raise failure

    monkeypatch.setattr(Counted, "num_calls", 0)
    with pytest.raises(CheckpointError) as error:
        save_checkpoint(tmp_path, "ckpt_iter_1", info(1), fail, cpu_ranks(kind=Counted), keep=1)
    assert f"could not be written ({why}; " in str(error.value) and error.value.__cause__ is failure
    # Before and after writing, where the other ranks wait.
    assert Counted.num_calls == 2 and names(tmp_path) == []


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_not_a_write_error(tmp_path, end):
    def ended(folder: Path) -> None:
        raise end

    with pytest.raises(end):
        save(tmp_path, 1, content=ended)


def test_file_modes_follow_the_umask(tmp_path):
    before = os.umask(0o002)
    try:
        whole = save(tmp_path, 10)
    finally:
        os.umask(before)
    for path in (whole / "checkpoint.json", whole.with_name("latest")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o664, path


def test_nodes_must_share_the_folder(tmp_path):
    with pytest.raises(CheckpointError, match=r"rank 1 .*shared by all nodes"):
        save_checkpoint(tmp_path, "ckpt_iter_1", info(1, world_size=2), write, ALONE, keep=1)
    assert names(tmp_path) == []


def test_missing_and_incomplete_checkpoints_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"resume_from is .*nowhere, which is not a folder"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"checkpoint\.json"):
        find_checkpoint(tmp_path)
    whole = save(tmp_path, 10)
    for torn in ("", "[1]", '{"engine": "ddp"}'):
        (whole / "checkpoint.json").write_text(torn)
        for path in (whole, tmp_path):
            with pytest.raises(CheckpointError, match=r"checkpoint\.json cannot be read"):
                find_checkpoint(path)


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(tmp_path):
    older, newer = save(tmp_path, 10, keep=2), save(tmp_path, 20, keep=2)
    assert find_checkpoint(tmp_path).folder == newer
    states = random_states_path(newer, 0)
    os.truncate(states, 100)
    found = find_checkpoint(tmp_path)
    assert found.folder == older and found.skipped[0].startswith("ckpt_iter_20: random_states_rank0.pt has 100 of ")
    states.unlink()
    assert find_checkpoint(tmp_path).skipped == ("ckpt_iter_20: random_states_rank0.pt is missing",)
    with pytest.raises(CheckpointError, match="ckpt_iter_20 is damaged"):
        find_checkpoint(newer)
    # The same where `latest` names one that is gone, and for checkpoints without sizes, as earlier versions wrote them.
    (tmp_path / "checkpoints" / "latest").write_text("ckpt_iter_99\n")
    (older / "checkpoint.json").write_text(json.dumps({**dataclasses.asdict(info(10)), "files": {}}))
    assert find_checkpoint(tmp_path).folder == older


@pytest.mark.parametrize("other", [{"engine": "deepspeed"}, {"zero_stage": 1}, {"world_size": 4}, {"lr": 0.2}])
def test_a_checkpoint_of_another_training_is_refused(tmp_path, other):
    save(tmp_path, 10)
    found, same = find_checkpoint(tmp_path), {"engine": "ddp", "zero_stage": 0, "world_size": 1, "lr": 0.1, "a_newer_setting": 3}
    check_same(found, same)
    ((name, value),) = other.items()
    with pytest.raises(CheckpointError, match=f"{name} {same[name]}.* {value}.*resume with {name}"):
        check_same(found, {**same, **other})


def test_a_file_that_could_run_code_is_refused(tmp_path):
    path = tmp_path / "evil.pt"
    torch.save({"state": ALONE}, path)
    with pytest.raises(CheckpointError, match=r"seatrial_workloads\.common\.distributed\.Ranks.*run code"):
        load_tensors(path)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 no more"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "torn.pt"
    path.write_bytes(damage)
    with pytest.raises(CheckpointError, match=r"torn\.pt cannot be read"):
        load_weights(torch.nn.Linear(2, 2), path)


@pytest.fixture
def layers():
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))


@pytest.mark.parametrize(("key", "prefix"), [(None, ""), ("model", "module."), ("module", ""), ("state_dict", "")])
def test_weights_are_loaded_from_every_usual_layout(layers, tmp_path, key, prefix):
    state = {f"{prefix}{name}": torch.ones_like(value) for name, value in layers.state_dict().items()}
    torch.save(state if key is None else {key: state, "step": 3}, tmp_path / "m.pth")
    assert load_weights(layers, tmp_path / "m.pth") == ([], [])
    assert all(bool((value == 1).all()) for value in layers.state_dict().values())


def test_missing_and_unexpected_weights_are_listed(layers, tmp_path):
    torch.save({"0.weight": torch.zeros(3, 2), "head.bias": torch.zeros(1)}, tmp_path / "m.pth")
    missing, unexpected = load_weights(layers, tmp_path / "m.pth")
    assert (sorted(missing), unexpected) == (["0.bias", "1.bias", "1.weight"], ["head.bias"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "which is not a file"),
        ({"0.weight": torch.zeros(5, 2)}, r"size mismatch for 0\.weight"),
        ({"0.weight": torch.zeros(0)}, "ZeRO 3 shards weights"),
        ({"other": torch.zeros(1)}, "has no weight of this model"),
        ({"step": 3}, "has no named weights"),
        ([1, 2], "has no named weights"),
    ],
)
def test_unusable_weights_are_refused(layers, tmp_path, content, message):
    before = [value.clone() for value in layers.state_dict().values()]
    if content is not None:
        torch.save(content, tmp_path / "m.pth")
    with pytest.raises(CheckpointError, match=message):
        load_weights(layers, tmp_path / "m.pth")
    assert all(torch.equal(now, then) for now, then in zip(layers.state_dict().values(), before, strict=True))
