"""Frames hidden from the speech encoder (SpecAugment). In: frames of each row and its place in the training. Out: a mask of the batch.

As wav2vec2-base does it: spans of ten frames, as many as cover the wanted share, two at least, from starts that differ and anywhere in the
row; spans may overlap. Each row has its own draws, so its mask does not depend on the rows beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seatrial_workloads.contrastive.loading.draws import Stream, uniforms, words

SPAN_FRAMES = 10
FEWEST_SPANS = 2


def time_mask(
    num_frames: NDArray[np.int64], width: int, *, prob: float, seed: int, epoch: int, indices: NDArray[np.integer]
) -> NDArray[np.bool_]:
    """(rows, width): True for hidden frames; `num_frames` is the length of each row, and nothing behind it is ever hidden."""
    num_spans = _num_spans(num_frames, prob, uniforms(Stream.NUM_SPANS, seed, epoch, indices))
    places = np.arange(width)
    keys = words(Stream.SPAN_STARTS, seed, epoch, indices[:, None], places)
    # The places with the smallest keys are the starts: a draw without putting back. From the last few frames no whole span fits.
    keys[places > (num_frames - SPAN_FRAMES)[:, None]] = np.iinfo(np.uint64).max
    most = int(num_spans.max(initial=0))
    first_keys = np.argsort(keys, axis=1, kind="stable")[:, :most]
    is_start = np.zeros(keys.shape, dtype=bool)
    np.put_along_axis(is_start, first_keys, np.arange(most) < num_spans[:, None], axis=1)
    return _spread(is_start)


def _num_spans(num_frames: NDArray[np.int64], prob: float, drawn: NDArray[np.float64]) -> NDArray[np.int64]:
    """Spans of each row; the draw rounds up or down. Never more than fit side by side, so none where the row is shorter than a span."""
    wanted = np.maximum((prob * num_frames / SPAN_FRAMES + drawn).astype(np.int64), FEWEST_SPANS)
    return np.minimum(wanted, num_frames // SPAN_FRAMES)


def _spread(is_start: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Every start and the frames of its span."""
    mask = is_start.copy()
    for offset in range(1, SPAN_FRAMES):
        mask[:, offset:] |= is_start[:, :-offset]
    return mask
