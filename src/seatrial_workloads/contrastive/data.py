"""Loaders of the contrastive trainer. In: Settings, Ranks, a tokenizer. Out: Batches, prefetched by worker processes.

Training: one pass of exactly as many batches as steps are left, over as many epochs as that takes. Batches are bit-identical for any
num_workers, and those from step k on are the same whether training started there or at 0.
Validation: the same few batches each time and on every rank, so that no rank waits for another and the result does not depend on the
number of ranks.
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

from seatrial.core.linux import set_parent_death_signal
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import Choice, prefetch_for
from seatrial_workloads.contrastive.loading.batch import Batch
from seatrial_workloads.contrastive.loading.dataset import SpeechTextBatches
from seatrial_workloads.contrastive.loading.sampling import Buckets, Rows, SliceRule, StepOrder, fixed_batches
from seatrial_workloads.contrastive.loading.tokens import load_tokenizer
from seatrial_workloads.contrastive.loading.utterances import DatasetError, Utterances, find_utterances
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.tree import SAMPLE_RATE

__all__ = ["BatchLoader", "DatasetError", "load_tokenizer", "train_loader", "validation_loader"]

SHARED_MEMORY = Path("/dev/shm")
BYTES_PER_SAMPLE = 4


def train_loader(
    settings: Settings, ranks: Ranks, tokenizer: PreTrainedTokenizerBase, num_frames: Callable[[int], int], start_step: int = 0
) -> BatchLoader:
    """Exactly steps - start_step batches of this rank, for one pass."""
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
    """The batches of a validation, for any number of passes."""
    utterances = find_utterances(settings, "validation")
    seed = None if settings.eval_sequential else settings.seed
    batches = fixed_batches(len(utterances), settings.eval_batch_size, settings.eval_batches, seed)
    _check_shared_memory(settings, len(batches), len(batches[0].indices))
    return BatchLoader(settings, ranks, _dataset(settings, utterances, tokenizer), batches)


class BatchLoader:
    """Batches of these rows. Every pass starts its own workers, which end with it.

    Start a pass on the trainer's main thread: workers get the parent-death signal of the thread that forked them.
    """

    def __init__(self, settings: Settings, ranks: Ranks, dataset: SpeechTextBatches, rows: StepOrder | list[Rows]) -> None:
        self.utterances = dataset.utterances
        self.order = rows
        self._loader: Iterable[Batch] = DataLoader(
            dataset,
            sampler=rows,
            # The sampler yields the rows of a whole batch, and a worker returns the batch.
            batch_size=None,
            collate_fn=_identity,
            num_workers=settings.num_workers,
            prefetch_factor=prefetch_for(settings.num_workers, settings.prefetch_factor),
            pin_memory=ranks.device.type == "cuda",
            worker_init_fn=_start_worker,
            # Forked: 0.1 s to start, and the utterances are shared. A spawned process would import torch again.
            multiprocessing_context="fork" if settings.num_workers else None,
            # Its seed is never used, but drawing one from the default generator would change the model's random numbers.
            generator=torch.Generator(),
        )

    def choices(self) -> dict[str, Choice]:
        """Report length buckets that all fall into one as having no effect."""
        buckets = self.order.buckets if isinstance(self.order, StepOrder) else None
        if buckets is None or buckets.num_used() > 1:
            return {}
        return {
            "length_buckets": Choice(True, False, "every slice is in one bucket: set bucket_boundaries_s within the range of slice lengths")
        }

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Batch]:
        with warnings.catch_warnings():
            # Python 3.12 warns about forking with threads: workers use none of the locks that the trainer's threads might hold.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            return _closing_workers(iter(self._loader))


def _closing_workers(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches; the workers are shut down as soon as the pass ends.

    After an error the garbage collector would close the queues before telling the workers to exit, and then wait 5 s for each in vain.
    """
    try:
        yield from batches
    finally:
        shut_down = getattr(batches, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()


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

    def slice_lengths(epoch: int) -> NDArray[np.int64]:
        return rule.cut(epoch, indices, num_samples).lengths

    upper_ends = np.array([round(seconds * SAMPLE_RATE) for seconds in settings.boundaries_s], dtype=np.int64)
    return Buckets(upper_ends=upper_ends, slice_lengths=slice_lengths)


def _check_shared_memory(settings: Settings, num_batches: int, rows: int) -> None:
    """Prefetched batches wait in shared memory; a worker that fills it up dies of a bus error without a message."""
    if not settings.num_workers or not SHARED_MEMORY.is_dir():
        return
    num_ahead = min(num_batches, settings.num_workers * settings.prefetch_factor)
    needed = num_ahead * rows * round(settings.slice_range_s[1] * SAMPLE_RATE) * BYTES_PER_SAMPLE
    state = os.statvfs(SHARED_MEMORY)
    free = state.f_bavail * state.f_frsize
    if needed > free:
        raise DatasetError(
            f"{num_ahead} prefetched batches of {rows} utterances take up to {needed / 2**20:.0f} MiB of {SHARED_MEMORY}, which has "
            f"{free / 2**20:.0f} MiB free: lower num_workers ({settings.num_workers}), prefetch_factor ({settings.prefetch_factor}) or the "
            "batch, or give the container more (--shm-size)"
        )


def _identity(batch: Batch) -> Batch:
    return batch


def _start_worker(worker: int) -> None:
    """One thread per worker, killed with the trainer: torch's own check takes seconds, in which an orphan holds GPU memory."""
    torch.set_num_threads(1)
    set_parent_death_signal(signal.SIGKILL)
    trainer = multiprocessing.parent_process()
    if trainer is None or os.getppid() != trainer.pid:
        # The trainer died before the signal was set.
        os._exit(1)
