"""Frames hidden from the speech encoder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial_workloads.contrastive.loading.time_masks import SPAN_FRAMES, time_mask


def mask_of(num_frames: list[int], width: int | None = None, prob: float = 0.05, **changes) -> np.ndarray:
    place = {"seed": 1, "epoch": 0, "indices": np.arange(len(num_frames)), **changes}
    return time_mask(np.array(num_frames), width or max(num_frames), prob=prob, **place)


def spans_of(row: np.ndarray) -> list[int]:
    """Lengths of the stretches that are hidden."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return (edges[1::2] - edges[::2]).tolist()


@given(
    num_frames=st.lists(st.integers(1, 400), min_size=1, max_size=20),
    extra=st.integers(0, 50),
    prob=st.floats(0.001, 0.99),
    seed=st.integers(0, 2**32),
)
def test_nothing_behind_the_end_is_hidden_and_spans_are_whole(num_frames, extra, prob, seed):
    mask = mask_of(num_frames, max(num_frames) + extra, prob, seed=seed)
    assert mask.shape == (len(num_frames), max(num_frames) + extra)
    for row, length in zip(mask, num_frames, strict=True):
        assert not row[length:].any()
        assert all(span >= SPAN_FRAMES for span in spans_of(row))
        fits = length // SPAN_FRAMES
        assert row.any() == (fits > 0)
        if fits > 1:
            # Two different starts at least, so more than one span's worth.
            assert row.sum() > SPAN_FRAMES


def test_a_row_is_masked_alike_whatever_stands_beside_it():
    together = mask_of([99, 149, 30, 60])
    for row, length in enumerate([99, 149, 30, 60]):
        alone = mask_of([length], indices=np.array([row]))
        assert (together[row, :length] == alone[0]).all()


def test_every_epoch_and_item_has_its_own_mask():
    masks = [mask_of([99] * 50), mask_of([99] * 50, epoch=1), mask_of([99] * 50, seed=2)]
    assert len({row.tobytes() for mask in masks for row in mask}) > 145


@pytest.mark.parametrize("prob", [0.2, 0.5])
def test_as_many_spans_as_the_share_asks_for(prob):
    """Spans overlap by chance, so less is hidden than the share: 1 - e^-share."""
    hidden = mask_of([1000] * 200, prob=prob).mean()
    assert hidden == pytest.approx(1 - np.exp(-prob), abs=0.02)


def test_starts_are_spread_over_the_row():
    hidden = mask_of([100] * 4000).mean(axis=0)
    assert hidden[20:80].min() > 0.15 and hidden[20:80].max() < 0.27
    assert hidden[0] == pytest.approx(2 / 91, abs=0.01)


def test_like_transformers_in_how_much_is_hidden():
    pytest.importorskip("torch")
    compute = pytest.importorskip("transformers.models.wav2vec2.modeling_wav2vec2")._compute_mask_indices
    np.random.seed(0)
    for length, prob in [(99, 0.05), (149, 0.05), (300, 0.3), (15, 0.05)]:
        theirs = compute((2000, length), prob, SPAN_FRAMES, min_masks=2).mean()
        assert mask_of([length] * 2000, prob=prob).mean() == pytest.approx(theirs, abs=0.01)
