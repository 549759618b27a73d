"""Checkpoint folders: whole or not there, found again, refused where they do not fit; and weights to start from."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial_workloads.common.checkpoints import save as saving  # noqa: E402
from seatrial_workloads.common.checkpoints.find import find_checkpoint, refuse_misfit  # noqa: E402
from seatrial_workloads.common.checkpoints.folder import Facts, rank_file, tag_of  # noqa: E402
from seatrial_workloads.common.checkpoints.pretrained import load_weights  # noqa: E402
from seatrial_workloads.common.checkpoints.save import save_checkpoint  # noqa: E402
from seatrial_workloads.common.checkpoints.saved_tensors import CheckpointError, load_tensors, save_tensors  # noqa: E402
from seatrial_workloads.common.distributed import Ranks  # noqa: E402
from tests.workloads.cpu_ranks import ALONE, OtherFailed, cpu_ranks  # noqa: E402


def facts(step: int, **changed: object) -> Facts:
    return Facts(**{"engine": "ddp", "zero_stage": 0, "world_size": 1, "step": step, "seed": 1, "settings": {"lr": 0.1}, **changed})


def write(folder: Path) -> None:
    save_tensors(rank_file(folder, 0), {"state": torch.arange(1000)})


def save(run_dir: Path, step: int, *, keep: int = 1, style: str = "iter", content=write) -> Path:
    return save_checkpoint(run_dir, tag_of(step, style), facts(step), content, ALONE, keep=keep)


def names(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_the_newest_is_found_from_every_folder_that_may_be_meant(tmp_path):
    whole = save(tmp_path, 120)
    assert whole == tmp_path / "checkpoints" / "ckpt_iter_120"
    for path in (whole, tmp_path / "checkpoints", tmp_path):
        found = find_checkpoint(path)
        assert (found.folder, found.facts) == (whole, facts(120))
    assert (tmp_path / "checkpoints" / "latest").read_text() == "ckpt_iter_120"
    assert names(tmp_path) == ["ckpt_iter_120", "latest"]
    assert save(tmp_path, 130, style="global_step").name == "global_step130"


def test_older_ones_go_when_a_newer_one_is_whole_down_to_the_number_kept(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path, step, keep=5)
    assert names(tmp_path) == ["ckpt_iter_10", "ckpt_iter_20", "ckpt_iter_30", "latest"]
    save(tmp_path, 40, keep=2)
    assert names(tmp_path) == ["ckpt_iter_30", "ckpt_iter_40", "latest"]
    # One of a later step belongs to another history.
    save(tmp_path, 35)
    assert names(tmp_path) == ["ckpt_iter_35", "ckpt_iter_40", "latest"]
    assert find_checkpoint(tmp_path).facts.step == 35


def test_one_is_written_again_under_its_own_name(tmp_path):
    save(tmp_path, 10)
    save(tmp_path, 10, content=lambda folder: save_tensors(rank_file(folder, 0), {"state": torch.zeros(1)}))
    assert names(tmp_path) == ["ckpt_iter_10", "latest"]
    assert load_tensors(rank_file(find_checkpoint(tmp_path).folder, 0))["state"].tolist() == [0.0]


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


@contextlib.contextmanager
def killed_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `moment` touches of the disk through, and die at the next."""
    left = iter(range(moment))

    def mortal(function):
        def touch(*args, **kwargs):
            if next(left, None) is None:
                raise Killed
            return function(*args, **kwargs)

        return touch

    with monkeypatch.context() as patched:
        for owner, name in ((saving.os, "replace"), (saving.shutil, "rmtree"), (saving, "flush_to_disk")):
            patched.setattr(owner, name, mortal(getattr(owner, name)))
        for name in ("mkdir", "write_text", "unlink"):
            patched.setattr(Path, name, mortal(getattr(Path, name)))
        yield


@pytest.mark.parametrize("step", [10, 20])
def test_killed_at_any_moment_a_whole_one_can_be_loaded_and_the_next_save_cleans_up(tmp_path, monkeypatch, step):
    """Step 20 is a newer one, step 10 the same again."""
    finished = False
    for moment in range(40):
        run_dir = tmp_path / str(moment)
        save(run_dir, 10)
        with killed_at(moment, monkeypatch), contextlib.suppress(Killed):
            save(run_dir, step)
            finished = True
        found = find_checkpoint(run_dir)
        assert found.facts.step in (10, step)
        assert load_tensors(rank_file(found.folder, 0))["state"].numel() == 1000
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


def test_a_full_disk_is_said_with_the_folder_and_the_older_one_stays(tmp_path, full_disk):
    save(tmp_path, 10)
    with full_disk(), pytest.raises(CheckpointError) as told:
        save(tmp_path, 20)
    assert f"the checkpoint {tmp_path}/checkpoints/ckpt_iter_20 could not be written" in str(told.value)
    assert "MiB free there" in str(told.value)
    assert names(tmp_path) == ["ckpt_iter_10", "latest"]
    assert find_checkpoint(tmp_path).facts.step == 10
    save(tmp_path, 30)
    assert names(tmp_path) == ["ckpt_iter_30", "latest"]


def test_a_rank_that_could_not_write_is_an_error_on_the_others(tmp_path):
    ranks = cpu_ranks(1, 2, OtherFailed)
    with pytest.raises(CheckpointError, match="another rank could not write"):
        save_checkpoint(tmp_path, "ckpt_iter_1", facts(1, world_size=2), write, ranks, keep=1)


class Counted(Ranks):
    """Counts how often all ranks are asked."""

    asked = 0

    def largest(self, values):
        type(self).asked += 1
        return super().largest(values)


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (ValueError("no such\ndtype"), "ValueError: no such"),
        (KeyError("state"), "KeyError: 'state'"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_whatever_fails_on_one_rank_the_others_are_told(tmp_path, monkeypatch, failure, why):
    def fail(folder: Path) -> None:
        raise failure

    monkeypatch.setattr(Counted, "asked", 0)
    with pytest.raises(CheckpointError) as told:
        save_checkpoint(tmp_path, "ckpt_iter_1", facts(1), fail, cpu_ranks(kind=Counted), keep=1)
    assert f"could not be written ({why}; " in str(told.value) and told.value.__cause__ is failure
    # Once to begin, and once after the writing: whoever waits there hears of it.
    assert Counted.asked == 2 and names(tmp_path) == []


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_end_that_was_asked_for_is_no_failed_writing(tmp_path, end):
    def ended(folder: Path) -> None:
        raise end

    with pytest.raises(end):
        save(tmp_path, 1, content=ended)


def test_who_may_read_a_checkpoint_is_the_umasks_to_say(tmp_path):
    before = os.umask(0o002)
    try:
        whole = save(tmp_path, 10)
    finally:
        os.umask(before)
    for path in (whole / "checkpoint.json", whole.with_name("latest")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o664, path


def test_nodes_that_do_not_share_the_folder_are_told(tmp_path):
    with pytest.raises(CheckpointError, match="nothing of rank 1 is in it: the run folder must be one that all nodes share"):
        save_checkpoint(tmp_path, "ckpt_iter_1", facts(1, world_size=2), write, ALONE, keep=1)
    assert names(tmp_path) == []


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(CheckpointError, match=r"resume_from is .*nowhere, and there is no such folder"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"there is no whole checkpoint: expected checkpoint\.json in it"):
        find_checkpoint(tmp_path)
    whole = save(tmp_path, 10)
    (tmp_path / "checkpoints" / "latest").write_text("ckpt_iter_99\n")
    with pytest.raises(
        CheckpointError, match="names 'ckpt_iter_99', which is no whole checkpoint: give one of these instead: ckpt_iter_10"
    ):
        find_checkpoint(tmp_path)
    for torn in ("", "[1]", '{"engine": "ddp"}'):
        (whole / "checkpoint.json").write_text(torn)
        with pytest.raises(CheckpointError, match=r"checkpoint\.json cannot be read"):
            find_checkpoint(whole)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"engine": "deepspeed"}, "was saved with engine ddp, and this run has deepspeed: resume with engine ddp"),
        ({"zero_stage": 1}, "was saved with zero_stage 0, and this run has 1"),
        ({"world_size": 4}, "was saved with world_size 1, and this run has 4"),
    ],
)
def test_one_of_another_engine_or_size_is_refused(tmp_path, wanted, message):
    save(tmp_path, 10)
    found = find_checkpoint(tmp_path)
    refuse_misfit(found, engine="ddp", zero_stage=0, world_size=1)
    with pytest.raises(CheckpointError, match=message):
        refuse_misfit(found, **{"engine": "ddp", "zero_stage": 0, "world_size": 1, **wanted})


def test_facts_are_plain_json_for_people(tmp_path):
    text = (save(tmp_path, 10) / "checkpoint.json").read_text()
    assert json.loads(text) == {"engine": "ddp", "zero_stage": 0, "world_size": 1, "step": 10, "seed": 1, "settings": {"lr": 0.1}}


def test_a_file_that_could_run_code_is_not_loaded(tmp_path):
    path = tmp_path / "evil.pt"
    torch.save({"state": ALONE}, path)
    with pytest.raises(CheckpointError, match=r"it holds seatrial_workloads\.common\.distributed\.Ranks, and loading that could run code"):
        load_tensors(path)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 no more", b"\x80\x02]q\x00."])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "torn.pt"
    path.write_bytes(damage)
    with pytest.raises(CheckpointError, match=r"torn\.pt cannot be read"):
        load_weights(torch.nn.Linear(2, 2), path)


@pytest.fixture
def layers():
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))


@pytest.mark.parametrize("inside", [None, "model", "module", "state_dict"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_weights_are_taken_from_every_usual_shape_of_file(layers, tmp_path, inside, prefix):
    state = {f"{prefix}{name}": torch.ones_like(value) for name, value in layers.state_dict().items()}
    torch.save(state if inside is None else {inside: state, "step": 3}, tmp_path / "m.pth")
    loaded = load_weights(layers, tmp_path / "m.pth")
    assert (loaded.missing, loaded.unexpected) == ([], [])
    assert all(bool((value == 1).all()) for value in layers.state_dict().values())


def test_missing_and_unexpected_weights_are_listed(layers, tmp_path):
    torch.save({"0.weight": torch.zeros(3, 2), "head.bias": torch.zeros(1)}, tmp_path / "m.pth")
    loaded = load_weights(layers, tmp_path / "m.pth")
    assert (loaded.missing, loaded.unexpected) == (["0.bias", "1.bias", "1.weight"], ["head.bias"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"pretrained_checkpoint \(train\.pretrained_model_checkpoint\) is .*m\.pth, and there is no such file"),
        ({"0.weight": torch.zeros(5, 2)}, r"has 0\.weight of shape \[5, 2\], and the model wants \[3, 2\]"),
        ({"other": torch.zeros(1)}, r"has no weight of this model: its first is 'other', the model's is '0\.weight'"),
        ({"step": 3}, "holds no weights by name: expected a state dict, or one under model, module, state_dict"),
        ([1, 2], "holds no weights by name"),
    ],
)
def test_what_cannot_be_started_from_is_refused(layers, tmp_path, content, message):
    before = [value.clone() for value in layers.state_dict().values()]
    if content is not None:
        torch.save(content, tmp_path / "m.pth")
    with pytest.raises(CheckpointError, match=message):
        load_weights(layers, tmp_path / "m.pth")
    assert all(torch.equal(now, then) for now, then in zip(layers.state_dict().values(), before, strict=True))
