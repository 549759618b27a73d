"""Order and slices of an epoch, from counter-based random numbers: a hash of (seed, stream, epoch, index), never a sequence.

So a batch does not depend on the number of workers, training resumes at any step without replay, and length buckets know in advance the
slices that the workers will cut.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.tree import SAMPLE_RATE

WORD = (1 << 64) - 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


class Stream(enum.IntEnum):
    """Independent streams of random numbers. Changing a value changes every training."""

    ROW_ORDER = 1
    BATCH_ORDER = 2
    SLICE_LENGTH = 3
    SLICE_START = 4
    NUM_SPANS = 5
    SPAN_STARTS = 6


def random_words(stream: Stream, seed: int, epoch: int, *indices: NDArray[np.integer]) -> NDArray[np.uint64]:
    """64 random bits per index; several index arrays are broadcast. No two indices of an epoch get the same word."""
    state = np.zeros(1, dtype=np.uint64)
    for part in (seed, int(stream), epoch):
        state = _mix(state + _word(part))
    for index in indices:
        state = _mix(state + np.atleast_1d(index).astype(np.uint64))
    return state


def uniforms(stream: Stream, seed: int, epoch: int, *indices: NDArray[np.integer]) -> NDArray[np.float64]:
    """Numbers in [0, 1). `int(u * n)` is below n for every n below 2^53."""
    return (random_words(stream, seed, epoch, *indices) >> np.uint64(11)) * 2.0**-53


def _word(part: int) -> NDArray[np.uint64]:
    # An array of one: numpy warns of the intended overflow only for scalars.
    return np.array([part & WORD], dtype=np.uint64)


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # The addition keeps a state of zeros from hashing to zero.
    state = state * GOLDEN + GOLDEN
    state = (state ^ (state >> np.uint64(30))) * FIRST_FACTOR
    state = (state ^ (state >> np.uint64(27))) * SECOND_FACTOR
    return state ^ (state >> np.uint64(31))


# wav2vec2's front end needs 25 ms for one frame.
MIN_SAMPLES = 400


class Slices(NamedTuple):
    """One slice per utterance, in samples."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SliceRule:
    """How a training cuts slices."""

    seed: int
    shortest_samples: int
    longest_samples: int

    @classmethod
    def of(cls, settings: Settings) -> SliceRule:
        shortest, longest = (round(seconds * SAMPLE_RATE) for seconds in settings.slice_range_s)
        return cls(seed=settings.seed, shortest_samples=shortest, longest_samples=longest)

    def cut(self, epoch: int, indices: NDArray[np.integer], num_samples: NDArray[np.int64]) -> Slices:
        """The slices of these utterances in this epoch; `num_samples` are their lengths."""
        lengths_drawn = uniforms(Stream.SLICE_LENGTH, self.seed, epoch, indices)
        starts_drawn = uniforms(Stream.SLICE_START, self.seed, epoch, indices)
        choices = self.longest_samples - self.shortest_samples + 1
        lengths = self.shortest_samples + (lengths_drawn * choices).astype(np.int64)
        is_whole = num_samples < self.longest_samples
        lengths = np.where(is_whole, num_samples, lengths)
        # An utterance used in full has one possible start, 0.
        starts = (starts_drawn * (num_samples - lengths + 1)).astype(np.int64)
        return Slices(starts, lengths)


def cut_text(text: str, start: int, length: int, num_samples: int) -> str:
    """The part of `text` proportional to the slice's part of `num_samples`.

    Both ends are rounded down, so adjacent slices share no character and skip none. At least one character, if there is one.
    """
    first = start * len(text) // num_samples
    end = (start + length) * len(text) // num_samples
    return text[first : max(end, first + 1)]


class Rows(NamedTuple):
    """Utterances of one batch; the epoch decides their slices."""

    epoch: int
    indices: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """What the order needs to batch slices of similar length."""

    upper_ends: NDArray[np.int64]
    """Longest slice of each bucket, in samples; a further bucket takes longer ones."""
    slice_lengths: Callable[[int], NDArray[np.int64]]
    """Epoch → length of the slice of every utterance, in samples."""

    def num_used(self) -> int:
        """Non-empty buckets in the first epoch."""
        return len(np.unique(np.searchsorted(self.upper_ends, self.slice_lengths(0))))


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
            raise StartupError(f"training would resume at step {self.start_step}, and steps is {self.steps}: raise steps")
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
        """(steps_per_epoch, global_batch): the utterances of all ranks in this epoch."""
        order = shuffled(Stream.ROW_ORDER, self.seed, epoch, self.num_utterances)
        if self.buckets is None:
            return order[: self.steps_per_epoch * self.global_batch].reshape(self.steps_per_epoch, self.global_batch)
        lengths = self.buckets.slice_lengths(epoch)[order]
        bucket_of = np.searchsorted(self.buckets.upper_ends, lengths, side="left")
        whole, left = self._split_by_bucket(bucket_of)
        mixed = self._remainder_batches(left, lengths)
        batches = order[whole[shuffled(Stream.BATCH_ORDER, self.seed, epoch, len(whole))]]
        return np.concatenate([batches, order[mixed]])

    def _split_by_bucket(self, bucket_of: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions in the epoch's order: full batches of one bucket each, and the remainder."""
        whole, left = [], []
        for bucket in range(int(bucket_of.max()) + 1):
            places = np.flatnonzero(bucket_of == bucket)
            num_whole = len(places) // self.global_batch * self.global_batch
            whole.append(places[:num_whole].reshape(-1, self.global_batch))
            left.append(places[num_whole:])
        return np.concatenate(whole), np.concatenate(left)

    def _remainder_batches(self, left: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Batches of the buckets' remainders; the epoch's order decides which are kept, so that no length is dropped more often."""
        kept = np.sort(left)[: len(left) // self.global_batch * self.global_batch]
        by_length = kept[np.argsort(lengths[kept], kind="stable")]
        return by_length.reshape(-1, self.global_batch)


def shuffled(stream: Stream, seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """0 to `count` - 1, sorted by their random words, which are all different. numpy's shuffle may change between versions."""
    return np.argsort(random_words(stream, seed, epoch, np.arange(count)))


def fixed_batches(num_utterances: int, batch_size: int, max_batches: int | None, seed: int | None) -> list[Rows]:
    """The batches of a validation, the same each time: in file order, or shuffled by a seed.

    Full batches only, since a smaller one has a lower loss; a set smaller than one batch is one batch.
    """
    order = np.arange(num_utterances) if seed is None else shuffled(Stream.ROW_ORDER, seed, 0, num_utterances)
    size = min(batch_size, num_utterances)
    num_batches = num_utterances // size
    if max_batches is not None:
        num_batches = min(num_batches, max_batches)
    return [Rows(0, order[first : first + size]) for first in range(0, num_batches * size, size)]
