"""Loaders of the contrastive trainer. In: Settings, Ranks, a tokenizer. Out: Batches, made ahead by worker processes.

Training: one pass of exactly as many batches as there are steps left, through as many epochs as that takes. The batches are the same, bit
for bit, whatever num_workers is, and those from step k on are the same whether training began there or at 0.
Validation: the same few batches each time and on every rank. Sharing them out would make ranks wait for each other's part; so none does,
and the result does not depend on the number of ranks.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from seatrial.kinship import end_with_parent
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.made_ahead import prefetch_for
from seatrial_workloads.contrastive.batch import Batch
from seatrial_workloads.contrastive.loading.dataset import SpeechTextBatches
from seatrial_workloads.contrastive.loading.order import Buckets, Rows, StepOrder, fixed_batches
from seatrial_workloads.contrastive.loading.slices import SliceRule
from seatrial_workloads.contrastive.loading.tokens import load_tokenizer
from seatrial_workloads.contrastive.loading.utterances import DatasetError, Utterances, find_utterances
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.manifest import SAMPLE_RATE

__all__ = ["BatchLoader", "DatasetError", "load_tokenizer", "train_loader", "validation_loader"]

SHARED_MEMORY = Path("/dev/shm")
BYTES_PER_SAMPLE = 4


def train_loader(
    settings: Settings, ranks: Ranks, tokenizer: PreTrainedTokenizerBase, num_frames: Callable[[int], int], start_step: int = 0
) -> BatchLoader:
    """Exactly steps - start_step batches of this rank, to be gone through once."""
    utterances = find_utterances(settings, "train")
    if settings.length_buckets:
        utterances = utterances.with_lengths()
    dataset = _dataset(settings, utterances, tokenizer, mask_time_prob=settings.mask_time_prob, num_frames=num_frames)
    order = StepOrder(
        num_utterances=len(utterances),
        micro_batch=settings.micro_batch,
        rank=ranks.rank,
        world_size=ranks.world_size,
        seed=settings.seed,
        steps=settings.steps,
        start_step=start_step,
        buckets=_buckets(settings, utterances, dataset.rule) if settings.length_buckets else None,
    )
    _check_shared_memory(settings, len(order), settings.micro_batch)
    return BatchLoader(settings, ranks, dataset, order)


def validation_loader(settings: Settings, ranks: Ranks, tokenizer: PreTrainedTokenizerBase) -> BatchLoader:
    """The batches of a validation, to be gone through as often as there are validations."""
    utterances = find_utterances(settings, "validation")
    seed = None if settings.eval_sequential else settings.seed
    batches = fixed_batches(len(utterances), settings.eval_batch_size, settings.eval_batches, seed)
    _check_shared_memory(settings, len(batches), len(batches[0].indices))
    return BatchLoader(settings, ranks, _dataset(settings, utterances, tokenizer), batches)


class BatchLoader:
    """Batches of these rows. Every pass starts its own workers, which end with it: a training is one pass.

    A pass must be started on the trainer's main thread: workers end with the thread that made them.
    """

    def __init__(self, settings: Settings, ranks: Ranks, dataset: SpeechTextBatches, rows: StepOrder | list[Rows]) -> None:
        self.utterances = dataset.utterances
        self.order = rows
        self._loader: Iterable[Batch] = DataLoader(
            dataset,
            sampler=rows,
            # A worker is given the rows of a whole batch and gives back the batch.
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=settings.num_workers,
            prefetch_factor=prefetch_for(settings.num_workers, settings.prefetch_factor),
            pin_memory=ranks.device.type == "cuda",
            worker_init_fn=_start_worker,
            # Forked: 0.1 s to start, and the list of utterances is shared. A clean process would import torch again.
            multiprocessing_context="fork" if settings.num_workers else None,
            # Its seed is never used, but drawing it from torch's own generator would change what the model draws after it.
            generator=torch.Generator(),
        )

    def choices(self) -> dict[str, Choice]:
        """Length buckets that put nothing apart from anything say so."""
        buckets = self.order.buckets if isinstance(self.order, StepOrder) else None
        if buckets is None or buckets.num_used() > 1:
            return {}
        return {
            "length_buckets": Choice(True, False, "every slice is in one bucket: set bucket_boundaries_s between the lengths that are fed")
        }

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Batch]:
        with warnings.catch_warnings():
            # Python 3.12 warns of forking beside threads: workers use none of the locks that the trainer's threads might hold.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            return _until_ended(iter(self._loader))


def _until_ended(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches; whatever ends the pass ends its workers at once.

    Left to the garbage collector after an error, they are waited for in vain, 5 s each: it closes the queues before it tells them to end.
    """
    try:
        yield from batches
    finally:
        end_workers = getattr(batches, "_shutdown_workers", None)
        if end_workers is not None:
            end_workers()


def _dataset(
    settings: Settings,
    utterances: Utterances,
    tokenizer: PreTrainedTokenizerBase,
    *,
    mask_time_prob: float = 0.0,
    num_frames: Callable[[int], int] | None = None,
) -> SpeechTextBatches:
    return SpeechTextBatches(
        utterances=utterances,
        rule=SliceRule.of(settings),
        tokenizer=tokenizer,
        trims=settings.dataset_use_trim and not settings.dataset_offline_trimmed,
        mask_time_prob=mask_time_prob,
        num_frames=num_frames,
    )


def _buckets(settings: Settings, utterances: Utterances, rule: SliceRule) -> Buckets:
    num_samples = utterances.num_samples
    assert num_samples is not None
    indices = np.arange(len(utterances))

    def fed_lengths(epoch: int) -> NDArray[np.int64]:
        return rule.cut(epoch, indices, num_samples).lengths

    upper_ends = np.array([round(seconds * SAMPLE_RATE) for seconds in settings.boundaries_s], dtype=np.int64)
    return Buckets(upper_ends=upper_ends, fed_lengths=fed_lengths)


def _check_shared_memory(settings: Settings, num_batches: int, rows: int) -> None:
    """Batches wait for the trainer in shared memory; a worker that finds it full dies of a bus error, which names nothing."""
    if not settings.num_workers or not SHARED_MEMORY.is_dir():
        return
    num_ahead = min(num_batches, settings.num_workers * settings.prefetch_factor)
    needed = num_ahead * rows * round(settings.slice_range_s[1] * SAMPLE_RATE) * BYTES_PER_SAMPLE
    state = os.statvfs(SHARED_MEMORY)
    free = state.f_bavail * state.f_frsize
    if needed > free:
        raise DatasetError(
            f"{num_ahead} batches of {rows} utterances made ahead take up to {needed / 2**20:.0f} MiB of {SHARED_MEMORY}, which has "
            f"{free / 2**20:.0f} MiB free: lower num_workers ({settings.num_workers}), prefetch_factor ({settings.prefetch_factor}) or the "
            "batch, or give the container more (--shm-size)"
        )


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _start_worker(worker: int) -> None:
    """One thread a worker, and an end with the trainer: torch's own watch takes seconds, in which an orphan keeps the GPU's memory."""
    torch.set_num_threads(1)
    end_with_parent(signal.SIGKILL)
    trainer = multiprocessing.parent_process()
    if trainer is None or os.getppid() != trainer.pid:
        # It was gone before its end could be asked for.
        os._exit(1)
