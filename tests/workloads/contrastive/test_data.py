"""The loaders: the same batches however they are made, and workers that come and go with the trainer."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial_workloads.contrastive import data  # noqa: E402
from seatrial_workloads.contrastive.batch import Batch  # noqa: E402
from seatrial_workloads.contrastive.data import DatasetError, train_loader, validation_loader  # noqa: E402
from tests.workloads.contrastive.speech import num_frames  # noqa: E402
from tests.workloads.cpu_ranks import cpu_ranks  # noqa: E402


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
    """Seven steps of eight, out of 32 utterances: almost two epochs."""
    alone = train(steps=7, micro_batch=8, **options)
    assert len(alone) == 7
    for num_workers in (1, 2):
        assert_same(alone, train(steps=7, micro_batch=8, num_workers=num_workers, **options))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_going_on_at_a_step_gives_the_tail_of_the_whole(train, num_workers):
    whole = train(steps=9, micro_batch=8)
    for start_step in (2, 4, 9):
        assert_same(whole[start_step:], train(steps=9, micro_batch=8, start_step=start_step, num_workers=num_workers))


def test_buckets_without_a_manifest_read_the_headers_and_give_the_same(train):
    options = {"steps": 5, "micro_batch": 4, "length_buckets": True}
    assert_same(train(**options), train(**options, dataset_manifest_path=None))


def test_ranks_are_fed_different_rows(train):
    batches = [train(steps=3, micro_batch=4, rank=rank, world_size=2) for rank in range(2)]
    rows = {row.numpy().tobytes() for own in batches for batch in own for row in batch.audio}
    assert len(rows) == 24


def test_the_lengths_that_the_order_went_by_are_those_that_are_fed(speech_settings, tokenizer):
    settings = speech_settings(steps=12, micro_batch=4, length_buckets=True)
    loader = train_loader(settings, cpu_ranks(), tokenizer, num_frames)
    order = loader.order
    for rows, batch in zip(order, loader, strict=True):
        assert batch.num_samples.tolist() == order.buckets.fed_lengths(rows.epoch)[rows.indices].tolist()


def test_buckets_make_for_less_padding(train):
    def padding_share(**options) -> float:
        batches = train(steps=16, micro_batch=4, **options)
        return 1 - sum(int(batch.num_samples.sum()) for batch in batches) / sum(batch.audio.numel() for batch in batches)

    assert padding_share(length_buckets=True) < 0.6 * padding_share()


def test_a_batch_is_what_the_model_expects(train):
    batch = train(steps=1, micro_batch=6, fixed_slice_s=1.0)[0]
    assert batch.audio.shape == (6, 16_000)
    assert batch.same_length
    assert batch.time_mask.shape == (6, 49)
    assert batch.token_ids.shape == batch.token_mask.shape == (6, 8)
    assert all(part.dtype == torch.int64 for part in (batch.num_samples, batch.token_ids, batch.token_mask))


def test_one_row_a_batch_is_allowed(train):
    assert [len(batch.audio) for batch in train(steps=2, micro_batch=1, gather_negatives=True)] == [1, 1]


def test_no_mask_when_none_is_wanted(train):
    assert train(steps=1, micro_batch=4, mask_time_prob=0.0)[0].time_mask is None


def test_loading_draws_nothing_from_the_generator_of_the_model(train):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    train(steps=2, micro_batch=4)
    train(steps=2, micro_batch=4, num_workers=1)
    assert torch.equal(torch.rand(3), expected)


def test_trimming_while_loading_feeds_what_is_left(train):
    options = {"steps": 2, "micro_batch": 8, "max_slice_s": 60.0}
    plain = train(**options)
    trimmed = train(**options, dataset_use_trim=True, dataset_offline_trimmed=False)
    assert all((one.num_samples < other.num_samples).all() for one, other in zip(trimmed, plain, strict=True))
    assert_same(plain, train(**options, dataset_use_trim=True, dataset_offline_trimmed=True))


def started_since(before: set[psutil.Process]) -> set[psutil.Process]:
    """Children of this process; whoever was there before belongs to another test."""
    return set(psutil.Process().children()) - before


def test_a_worker_names_the_file_it_cannot_read(train, own_tree):
    before = started_since(set())
    path = sorted(own_tree.glob("train-clean-100/*/*/*.flac"))[5]
    path.write_bytes(b"rubbish")
    with pytest.raises(DatasetError, match=f"{path} cannot be read"):
        train(own_tree, steps=8, micro_batch=8, num_workers=2)
    # Ended by the error itself, not by whoever collects garbage later.
    assert not started_since(before)


def test_workers_end_with_the_pass_also_when_it_is_left_early(speech_settings, tokenizer):
    before = started_since(set())
    batches = iter(train_loader(speech_settings(steps=20, micro_batch=4, num_workers=2), cpu_ranks(), tokenizer, num_frames))
    next(batches)
    assert len(started_since(before)) == 2
    batches.close()
    assert not started_since(before)


def test_too_few_utterances_are_refused_before_anything_is_loaded(train):
    with pytest.raises(
        ValueError, match=r"micro_batch \(20\) × 2 ranks is 40 utterances a step, and there are 32 .* micro_batch=16 or less"
    ):
        train(steps=1, micro_batch=20, world_size=2)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_validation_is_the_same_each_time_on_every_rank_and_hides_nothing(speech_settings, tokenizer, num_workers):
    settings = speech_settings(eval_batch_size=2, eval_batches=2, num_workers=num_workers)
    loader = validation_loader(settings, cpu_ranks(), tokenizer)
    first = list(loader)
    assert len(first) == len(loader) == 2
    assert_same(first, list(loader))
    assert_same(first, list(validation_loader(settings, cpu_ranks(1, 2), tokenizer)))
    assert all(batch.time_mask is None for batch in first)


def test_validation_in_the_order_of_the_files(speech_settings, tokenizer):
    settings = speech_settings(eval_batch_size=2, eval_batches=None, eval_sequential=True, max_slice_s=60.0)
    loader = validation_loader(settings, cpu_ranks(), tokenizer)
    found = torch.cat([batch.num_samples for batch in loader]).tolist()
    assert found == loader.utterances.num_samples.tolist()


def test_what_was_found_can_be_told(speech_settings, tokenizer, tree):
    loader = train_loader(speech_settings(steps=1), cpu_ranks(), tokenizer, num_frames)
    assert loader.utterances.described() == f"train: 32 utterances in {tree}"


def test_too_little_shared_memory_is_refused_with_the_numbers(train, monkeypatch):
    monkeypatch.setattr(data.os, "statvfs", lambda path: SimpleNamespace(f_bavail=64, f_frsize=2**20))
    assert len(train(steps=2, micro_batch=8, num_workers=2)) == 2
    match = r"6 batches of 8 utterances made ahead take up to 117 MiB of /dev/shm, which has 64 MiB free: lower num_workers \(2\)"
    with pytest.raises(DatasetError, match=match):
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
print("fed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def trainer(tree):
    """A process that has been fed one batch and waits."""
    settings = {"steps": 50, "micro_batch": 4, "num_workers": 2, "dataset_root": str(tree)}
    argv = [sys.executable, "-W", "error", "-c", TRAINER, json.dumps(settings)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line == "fed\n", process.stderr.read()
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_workers_die_with_a_trainer_that_is_killed(trainer):
    workers = psutil.Process(trainer.pid).children()
    assert len(workers) == 2
    os.kill(trainer.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


@pytest.mark.slow
def test_a_trainer_that_leaves_early_ends_quietly_and_takes_its_workers_along(trainer):
    workers = psutil.Process(trainer.pid).children()
    _, stderr = trainer.communicate("", timeout=60)
    assert (trainer.returncode, stderr) == (0, "")
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


def test_the_frames_of_the_tests_are_those_of_wav2vec2():
    transformers = pytest.importorskip("transformers")
    config = transformers.Wav2Vec2Config()
    for num_samples in np.random.default_rng(0).integers(400, 100_000, 50).tolist():
        expected = num_samples
        for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
            expected = (expected - kernel) // stride + 1
        assert num_frames(num_samples) == expected
