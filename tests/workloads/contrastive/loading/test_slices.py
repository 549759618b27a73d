"""Which piece is fed, and the words that go with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from seatrial_workloads.contrastive.loading.slices import SliceRule, cut_text  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402

RULE = SliceRule(seed=9, shortest_samples=16_000, longest_samples=48_000)
lengths = st.lists(st.integers(400, 600_000), min_size=1, max_size=50).map(lambda found: np.array(found, dtype=np.int64))


@given(num_samples=lengths, epoch=st.integers(0, 1000), seed=st.integers(0, 2**64))
def test_a_slice_lies_in_its_utterance_and_is_as_long_as_the_rule_says(num_samples, epoch, seed):
    rule = SliceRule(seed=seed, shortest_samples=16_000, longest_samples=48_000)
    slices = rule.cut(epoch, np.arange(len(num_samples)), num_samples)
    assert (slices.starts >= 0).all()
    assert (slices.starts + slices.lengths <= num_samples).all()
    is_long = num_samples >= 48_000
    assert ((slices.lengths[is_long] >= 16_000) & (slices.lengths[is_long] <= 48_000)).all()
    assert (slices.starts[~is_long] == 0).all()
    assert (slices.lengths[~is_long] == num_samples[~is_long]).all()


@given(num_samples=lengths, epoch=st.integers(0, 1000))
def test_one_alone_is_cut_as_among_all(num_samples, epoch):
    indices = np.arange(len(num_samples))
    together = RULE.cut(epoch, indices, num_samples)
    for index in indices:
        alone = RULE.cut(epoch, indices[index : index + 1], num_samples[index : index + 1])
        assert (alone.starts[0], alone.lengths[0]) == (together.starts[index], together.lengths[index])


def test_lengths_and_starts_are_spread_over_their_range_and_change_with_the_epoch():
    num_samples = np.full(20_000, 160_000)
    first, second = (RULE.cut(epoch, np.arange(20_000), num_samples) for epoch in (0, 1))
    assert abs(first.lengths.mean() - 32_000) < 300
    assert first.lengths.min() < 16_050 and first.lengths.max() > 47_950
    assert abs((first.starts / (num_samples - first.lengths)).mean() - 0.5) < 0.01
    assert (first.starts != second.starts).mean() > 0.99


def test_a_fixed_slice_is_always_as_long():
    rule = SliceRule.of(Settings(fixed_slice_s=2.0))
    assert (rule.shortest_samples, rule.longest_samples) == (32_000, 32_000)
    slices = rule.cut(0, np.arange(1000), np.full(1000, 100_000))
    assert set(slices.lengths.tolist()) == {32_000}
    assert len(set(slices.starts.tolist())) > 900


def test_the_range_comes_from_the_settings():
    rule = SliceRule.of(Settings(seed=4))
    assert rule == SliceRule(seed=4, shortest_samples=16_000, longest_samples=48_000)


@pytest.mark.parametrize(("changes", "name"), [({"min_slice_s": 0.01}, "min_slice_s"), ({"fixed_slice_s": 0.02}, "fixed_slice_s")])
def test_a_slice_too_short_for_a_frame_is_refused_by_its_key(changes, name):
    with pytest.raises(ValueError, match=f"{name} is 0.0[12]: the speech encoder makes no frame of less than 0.025 s"):
        SliceRule.of(Settings(**changes))


@given(text=st.text(min_size=1, max_size=300), num_samples=st.integers(1, 600_000), data=st.data())
def test_text_is_cut_by_the_ratio_of_the_audio(text, num_samples, data):
    start = data.draw(st.integers(0, num_samples - 1))
    length = data.draw(st.integers(1, num_samples - start))
    piece = cut_text(text, start, length, num_samples)
    assert piece and piece in text
    assert abs(len(piece) - len(text) * length / num_samples) <= 1
    assert text.startswith(piece, start * len(text) // num_samples)


@given(text=st.text(max_size=300), num_samples=st.integers(300, 600_000), data=st.data())
def test_slices_that_touch_share_no_character_and_leave_none_out(text, num_samples, data):
    middle = data.draw(st.integers(1, num_samples - 1))
    before, after = cut_text(text, 0, middle, num_samples), cut_text(text, middle, num_samples - middle, num_samples)
    if middle * len(text) // num_samples:
        assert before + after == text


def test_the_whole_audio_has_the_whole_text_and_no_text_stays_none():
    assert cut_text("A LONG WAY", 0, 100, 100) == "A LONG WAY"
    assert cut_text("A LONG WAY", 20, 40, 100) == "LONG"
    assert cut_text("AB", 99, 1, 100) == "B"
    assert cut_text("", 10, 20, 100) == ""
