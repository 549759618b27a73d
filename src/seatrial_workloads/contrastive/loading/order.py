"""Which utterances a rank is fed at which step. In: number of utterances, batch size, ranks, seed. Out: the rows of each step, one by one.

Every epoch is a permutation of its own, looked up by (seed, epoch): any step can be reached without those before it. A step takes
micro_batch × world_size utterances, the global batch, and every rank a stretch of it. What an epoch has left beyond its last whole global
batch is left out, other utterances each time: a step with fewer rows would be another problem, since a row is compared with the others of
its batch, and ranks would have batches of different size.

With length buckets a global batch has slices of one bucket only, so that no rank pads much or waits for one with longer rows. What a bucket
has left beyond its whole batches is merged with what others have left into mixed batches at the end of the epoch. So an epoch has as many
steps as without buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial_workloads.common.startup_error import StartupError
from seatrial_workloads.contrastive.loading.draws import Stream, words


class Rows(NamedTuple):
    """What one batch is made of; the epoch decides which slices are cut."""

    epoch: int
    indices: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """What the order must know to put slices of like length together."""

    upper_ends: NDArray[np.int64]
    """Longest slice of each bucket, in samples; one more bucket holds what is longer than all of them."""
    fed_lengths: Callable[[int], NDArray[np.int64]]
    """Epoch → length of the slice of every utterance, in samples."""

    def num_used(self) -> int:
        """Buckets that hold anything in the first epoch."""
        return len(np.unique(np.searchsorted(self.upper_ends, self.fed_lengths(0))))


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """Rows of one rank for the steps from `start_step` up to `steps`."""

    num_utterances: int
    micro_batch: int
    rank: int
    world_size: int
    seed: int
    steps: int
    start_step: int = 0
    buckets: Buckets | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.start_step <= self.steps:
            raise StartupError(f"training would go on at step {self.start_step}, and steps is {self.steps}: raise steps")
        if self.num_utterances >= self.global_batch:
            return
        largest = self.num_utterances // self.world_size
        remedy = f"use micro_batch={largest} or less" if largest else f"use at most {self.num_utterances} ranks"
        raise StartupError(
            f"micro_batch ({self.micro_batch}) × {self.world_size} ranks is {self.global_batch} utterances a step, and there are "
            f"{self.num_utterances} to train on: {remedy}, or a larger set"
        )

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.world_size

    @property
    def steps_per_epoch(self) -> int:
        return self.num_utterances // self.global_batch

    def __len__(self) -> int:
        return self.steps - self.start_step

    def __iter__(self) -> Iterator[Rows]:
        first_row = self.rank * self.micro_batch
        epoch, batches = -1, np.empty((0, 0), dtype=np.int64)
        for step in range(self.start_step, self.steps):
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                batches = self.epoch_batches(epoch)
            yield Rows(epoch, batches[step % self.steps_per_epoch, first_row : first_row + self.micro_batch])

    def epoch_batches(self, epoch: int) -> NDArray[np.int64]:
        """(steps_per_epoch, global_batch): what all ranks together are fed in this epoch."""
        order = shuffled(Stream.ROW_ORDER, self.seed, epoch, self.num_utterances)
        if self.buckets is None:
            return order[: self.steps_per_epoch * self.global_batch].reshape(self.steps_per_epoch, self.global_batch)
        lengths = self.buckets.fed_lengths(epoch)[order]
        bucket_of = np.searchsorted(self.buckets.upper_ends, lengths, side="left")
        whole, left = self._split_by_bucket(bucket_of)
        mixed = self._mixed(left, lengths)
        batches = order[whole[shuffled(Stream.BATCH_ORDER, self.seed, epoch, len(whole))]]
        return np.concatenate([batches, order[mixed]])

    def _split_by_bucket(self, bucket_of: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places in the epoch's order: whole batches of one bucket each, and those that fill none."""
        whole, left = [], []
        for bucket in range(int(bucket_of.max()) + 1):
            places = np.flatnonzero(bucket_of == bucket)
            num_whole = len(places) // self.global_batch * self.global_batch
            whole.append(places[:num_whole].reshape(-1, self.global_batch))
            left.append(places[num_whole:])
        return np.concatenate(whole), np.concatenate(left)

    def _mixed(self, left: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Batches of what the buckets had left; the epoch's order says which are kept, so that no length is left out more than others."""
        kept = np.sort(left)[: len(left) // self.global_batch * self.global_batch]
        by_length = kept[np.argsort(lengths[kept], kind="stable")]
        return by_length.reshape(-1, self.global_batch)


def shuffled(stream: Stream, seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """0 to `count` - 1 in the order of their words, which are all different. numpy's own shuffle may change between its versions."""
    return np.argsort(words(stream, seed, epoch, np.arange(count)))


def fixed_batches(num_utterances: int, batch_size: int, most_batches: int | None, seed: int | None) -> list[Rows]:
    """The batches of a validation, the same each time: in the order of the files, or shuffled by a seed.

    Whole batches only, since the loss of a smaller one is lower by nature; a set smaller than one batch is one batch.
    """
    order = np.arange(num_utterances) if seed is None else shuffled(Stream.ROW_ORDER, seed, 0, num_utterances)
    size = min(batch_size, num_utterances)
    num_batches = num_utterances // size
    if most_batches is not None:
        num_batches = min(num_batches, most_batches)
    return [Rows(0, order[first : first + size]) for first in range(0, num_batches * size, size)]
