"""Random numbers that are looked up instead of drawn in turn. In: a stream, the seed, an epoch, indices. Out: the numbers of these.

The same numbers for the same question, whoever asks, in whatever order and however many at once. That is why a batch does not depend on
how many workers make it, why training goes on at any step without replaying those before it, and why the order of an epoch can know the
slices that the workers will cut later. Every number is a hash: the finaliser of splitmix64, applied once for each part of the question.
"""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

WORD = (1 << 64) - 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


class Stream(enum.IntEnum):
    """What a number is for; numbers of two streams have nothing to do with each other. Changing one of these changes every training."""

    ROW_ORDER = 1
    BATCH_ORDER = 2
    SLICE_LENGTH = 3
    SLICE_START = 4
    NUM_SPANS = 5
    SPAN_STARTS = 6


def words(stream: Stream, seed: int, epoch: int, *indices: NDArray[np.integer]) -> NDArray[np.uint64]:
    """64 random bits for each place; several index arrays are broadcast together. No two indices of one epoch get the same word."""
    state = np.zeros(1, dtype=np.uint64)
    for part in (seed, int(stream), epoch):
        state = _mixed(state + _word(part))
    for index in indices:
        state = _mixed(state + np.atleast_1d(index).astype(np.uint64))
    return state


def uniforms(stream: Stream, seed: int, epoch: int, *indices: NDArray[np.integer]) -> NDArray[np.float64]:
    """Numbers in [0, 1). Times a whole number below 2^53 and cut to a whole number, they never reach that number."""
    return (words(stream, seed, epoch, *indices) >> np.uint64(11)) * 2.0**-53


def _word(part: int) -> NDArray[np.uint64]:
    # An array of one: numpy warns of the overflow that is meant here only for scalars.
    return np.array([part & WORD], dtype=np.uint64)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # Added first, or the hash of nothing but zeros would be zero.
    state = state * GOLDEN + GOLDEN
    state = (state ^ (state >> np.uint64(30))) * FIRST_FACTOR
    state = (state ^ (state >> np.uint64(27))) * SECOND_FACTOR
    return state ^ (state >> np.uint64(31))
