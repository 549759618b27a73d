"""Loaders of a training, and manifest paths that are wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from seatrial_workloads.contrastive import data
from seatrial_workloads.contrastive.data import DatasetError, train_loader, validation_loader
from seatrial_workloads.contrastive.hydra_config import train as hydra_train
from seatrial_workloads.contrastive.loading.batch import Batch
from seatrial_workloads.contrastive.manifests import suggest_manifests
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.tree import HEADER, write_manifest
from tests.facts import states
from tests.workloads.contrastive.speech import num_frames
from tests.workloads.cpu_ranks import cpu_ranks

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


@pytest.fixture
def train(speech_settings, tokenizer):
    """Batches of a training."""

    def make(*where: Path, rank: int = 0, world_size: int = 1, start_step: int = 0, **changes) -> list[Batch]:
        settings = speech_settings(*where, **changes)
        return list(train_loader(settings, cpu_ranks(rank, world_size), tokenizer, num_frames, start_step))

    return make


def assert_same(first: list[Batch], second: list[Batch]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        for field in dataclasses.fields(Batch):
            part, counterpart = getattr(one, field.name), getattr(other, field.name)
            assert torch.equal(part, counterpart) if isinstance(part, torch.Tensor) else part == counterpart, field.name


@pytest.mark.parametrize("options", [{}, {"length_buckets": True}, {"fixed_slice_s": 1.5, "dataset_manifest_path": None}])
def test_the_same_batches_for_any_number_of_workers(train, options):
    """Seven steps of eight of 32 utterances: almost two epochs."""
    alone = train(steps=7, micro_batch=8, **options)
    assert len(alone) == 7
    assert_same(alone, train(steps=7, micro_batch=8, num_workers=2, **options))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resuming_at_a_step_gives_the_tail_of_the_whole(train, num_workers):
    whole = train(steps=9, micro_batch=8)
    for start_step in (2, 9):
        assert_same(whole[start_step:], train(steps=9, micro_batch=8, start_step=start_step, num_workers=num_workers))


def test_buckets_without_a_manifest_read_the_headers_and_give_the_same(train):
    options = {"steps": 5, "micro_batch": 4, "length_buckets": True}
    assert_same(train(**options), train(**options, dataset_manifest_path=None))


def test_ranks_have_different_rows(train):
    batches = [train(steps=3, micro_batch=4, rank=rank, world_size=2) for rank in range(2)]
    rows = {row.numpy().tobytes() for own in batches for batch in own for row in batch.audio}
    assert len(rows) == 24


def test_the_order_knows_the_lengths_of_the_slices(speech_settings, tokenizer):
    settings = speech_settings(steps=12, micro_batch=4, length_buckets=True)
    loader = train_loader(settings, cpu_ranks(), tokenizer, num_frames)
    order = loader.order
    for rows, batch in zip(order, loader, strict=True):
        assert batch.num_samples.tolist() == order.buckets.slice_lengths(rows.epoch)[rows.indices].tolist()


def test_shapes_and_types_of_a_batch(train):
    batch = train(steps=1, micro_batch=6, fixed_slice_s=1.0)[0]
    assert batch.audio.shape == (6, 16_000)
    assert batch.same_length
    assert batch.time_mask.shape == (6, 49)
    assert batch.token_ids.shape == batch.token_mask.shape == (6, 8)
    assert all(part.dtype == torch.int64 for part in (batch.num_samples, batch.token_ids, batch.token_mask))


def test_loading_uses_no_random_numbers_of_the_model(train):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    train(steps=2, micro_batch=4)
    train(steps=2, micro_batch=4, num_workers=1)
    assert torch.equal(torch.rand(3), expected)


def test_trimming_while_loading(train):
    options = {"steps": 2, "micro_batch": 8, "max_slice_s": 60.0}
    plain = train(**options)
    trimmed = train(**options, dataset_use_trim=True, dataset_offline_trimmed=False)
    assert all((one.num_samples < other.num_samples).all() for one, other in zip(trimmed, plain, strict=True))
    assert_same(plain, train(**options, dataset_use_trim=True, dataset_offline_trimmed=True))


def started_since(before: set[psutil.Process]) -> set[psutil.Process]:
    """New children of this process."""
    return set(psutil.Process().children()) - before


def test_a_worker_names_the_file_it_cannot_read(train, own_tree):
    before = started_since(set())
    path = sorted(own_tree.glob("train-clean-100/*/*/*.flac"))[5]
    path.write_bytes(b"rubbish")
    with pytest.raises(DatasetError, match=f"{path} cannot be read"):
        train(own_tree, steps=8, micro_batch=8, num_workers=2)
    # At once, not when the garbage collector runs.
    assert not started_since(before)


def test_workers_end_with_the_pass_also_when_closed_early(speech_settings, tokenizer):
    before = started_since(set())
    batches = iter(train_loader(speech_settings(steps=20, micro_batch=4, num_workers=2), cpu_ranks(), tokenizer, num_frames))
    next(batches)
    assert len(started_since(before)) == 2
    batches.close()
    assert not started_since(before)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_validation_is_the_same_each_time_on_every_rank_and_unmasked(speech_settings, tokenizer, num_workers):
    settings = speech_settings(eval_batch_size=2, eval_batches=2, num_workers=num_workers)
    loader = validation_loader(settings, cpu_ranks(), tokenizer)
    first = list(loader)
    assert len(first) == len(loader) == 2
    assert_same(first, list(loader))
    assert_same(first, list(validation_loader(settings, cpu_ranks(1, 2), tokenizer)))
    assert all(batch.time_mask is None for batch in first)


def test_validation_in_file_order(speech_settings, tokenizer):
    settings = speech_settings(eval_batch_size=2, eval_batches=None, eval_sequential=True, max_slice_s=60.0)
    loader = validation_loader(settings, cpu_ranks(), tokenizer)
    found = torch.cat([batch.num_samples for batch in loader]).tolist()
    assert found == loader.utterances.num_samples.tolist()


def test_too_little_shared_memory_is_refused(train, monkeypatch):
    monkeypatch.setattr(data.os, "statvfs", lambda path: SimpleNamespace(f_bavail=64, f_frsize=2**20))
    assert len(train(steps=2, micro_batch=8, num_workers=2)) == 2
    with pytest.raises(DatasetError, match=r"6 .*batches of 8 .*117 MiB of /dev/shm.*64 MiB"):
        train(steps=6, micro_batch=8, num_workers=2, prefetch_factor=8, max_slice_s=40.0)


TRAINER = """
import json, os, sys
import torch
from seatrial_workloads.contrastive.data import load_tokenizer, train_loader
from seatrial_workloads.contrastive.settings import Settings
from tests.workloads.contrastive.speech import num_frames
from tests.workloads.cpu_ranks import cpu_ranks

settings = Settings(**json.loads(sys.argv[1]))
batches = iter(train_loader(settings, cpu_ranks(), load_tokenizer("tiny"), num_frames))
next(batches)
print("loaded", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def trainer(tree):
    """A process that has loaded one batch and waits."""
    settings = {"steps": 50, "micro_batch": 4, "num_workers": 2, "dataset_root": str(tree)}
    argv = [sys.executable, "-W", "error", "-c", TRAINER, json.dumps(settings)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line == "loaded\n", process.stderr.read()
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_workers_of_a_killed_trainer_die(trainer):
    workers = psutil.Process(trainer.pid).children()
    assert len(workers) == 2
    os.kill(trainer.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


@pytest.mark.slow
def test_a_trainer_that_exits_early_leaves_no_message_and_no_worker(trainer):
    workers = psutil.Process(trainer.pid).children()
    _, stderr = trainer.communicate("", timeout=60)
    assert (trainer.returncode, stderr) == (0, "")
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


WRONG = "data/16k_trim/LibriSpeech/manifest_16k_trim.tsv"
TREE = "data/LibriSpeech/16k_trim"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder with a prepared tree and its manifest."""
    tree = tmp_path / TREE
    tree.mkdir(parents=True)
    write_manifest(tree / "manifest_16k_trim.tsv", {"dev-clean/1/2/a.flac": 16000}, 16000)
    (tree / "notes.tsv").write_text("a\tb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LIBRISPEECH_MANIFEST_PATH", raising=False)
    return tmp_path


def test_all_manifests_of_a_tree_are_suggested(folder: Path) -> None:
    assert suggest_manifests(TREE, folder, "KEY") == f"; {TREE} has one: use KEY={TREE}/manifest_16k_trim.tsv"
    write_manifest(folder / TREE / "all.tsv", {}, 16000)
    assert suggest_manifests(TREE, folder, "KEY") == f"; {TREE} has 2 (all.tsv, manifest_16k_trim.tsv): use KEY={TREE}/all.tsv"
    assert suggest_manifests("nowhere", folder, "KEY") == ""


@pytest.mark.parametrize(
    ("has_manifest", "remedy"), [(True, f"{TREE} has one: use dataset_manifest_path="), (False, "correct dataset_manifest_path")]
)
def test_a_missing_manifest_is_a_problem_of_the_host(folder: Path, has_manifest: bool, remedy: str) -> None:
    if not has_manifest:
        (folder / TREE / "manifest_16k_trim.tsv").unlink()
    ((setting, problem),) = Settings(dataset_root=TREE, dataset_manifest_path=WRONG).host_problems(num_gpus=1, cwd=folder)
    assert setting == "dataset_manifest_path" and remedy in problem


def test_train_py_suggests_the_manifest_of_the_tree(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        hydra_train.main([f"++dataset.root_dir={TREE}", f"++dataset.manifest_path={WRONG}"])
    error = capsys.readouterr().err
    assert ended.value.code == 1
    assert f"dataset.manifest_path is {WRONG}, and there is no such file" in error
    assert f"use dataset.manifest_path={TREE}/manifest_16k_trim.tsv" in error


def test_files_that_do_not_belong_to_the_tree_are_problems_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "tree" / "train-clean-100").mkdir(parents=True)
    (tmp_path / "passwd").write_text("root:x:0:0\n")
    (tmp_path / "other.tsv").write_text(f"{HEADER}\ntrain-clean-100/1/2/1-2-0000.flac\t16000\t1.000000\n")
    (tmp_path / "weights").mkdir()

    def problems(**settings: str) -> dict[str, str]:
        return dict(Settings(dataset_root="tree", **settings).host_problems(num_gpus=0, cwd=tmp_path))

    assert "its first line is 'root:x:0:0'" in problems(dataset_manifest_path="passwd")["dataset_manifest_path"]
    assert "they belong to different trees" in problems(dataset_manifest_path="other.tsv")["dataset_manifest_path"]
    found = problems(speech_model="weights")
    assert list(found) == ["speech_model"] and states(found["speech_model"], "weights", "config.json")
    (tmp_path / "tree" / "train-clean-100" / "1" / "2").mkdir(parents=True)
    (tmp_path / "tree" / "train-clean-100" / "1" / "2" / "1-2-0000.flac").touch()
    assert problems(dataset_manifest_path="other.tsv") == {}
