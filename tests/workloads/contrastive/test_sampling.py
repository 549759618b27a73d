"""Order and slices of an epoch, reproducible from the seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial_workloads.contrastive.loading.sampling import (
    Buckets,
    SliceRule,
    StepOrder,
    Stream,
    cut_text,
    fixed_batches,
    random_words,
    uniforms,
)
from seatrial_workloads.contrastive.settings import Settings

GOLDEN_ROW_ORDER = [11453583737727826051, 10015772965960114402, 996623982347663492]
GOLDEN_SPAN_STARTS = [[16891145171295701374, 17497403312946084210]]


def test_a_word_does_not_depend_on_the_other_indices():
    together = random_words(Stream.SLICE_START, 7, 3, np.arange(100))
    for index in (0, 41, 99):
        assert random_words(Stream.SLICE_START, 7, 3, np.array([index])) == together[index]
    assert random_words(Stream.SLICE_START, 7, 3, np.int64(41)) == together[41]


def test_the_hash_never_changes():
    """With another hash, resumed runs would see other data than they began with."""
    assert random_words(Stream.ROW_ORDER, 123456, 0, np.arange(3)).tolist() == GOLDEN_ROW_ORDER
    assert random_words(Stream.SPAN_STARTS, 0, 2, np.array([[5]]), np.arange(2)).tolist() == GOLDEN_SPAN_STARTS


def test_seed_stream_epoch_and_index_each_change_the_words():
    keys = [
        (Stream.ROW_ORDER, 1, 1),
        (Stream.BATCH_ORDER, 1, 1),
        (Stream.ROW_ORDER, 2, 1),
        (Stream.ROW_ORDER, 1, 2),
        (Stream.ROW_ORDER, 0, 0),
    ]
    found = np.concatenate([random_words(*key, np.arange(1000)) for key in keys])
    assert len(np.unique(found)) == len(found)


def test_no_two_indices_of_an_epoch_share_a_word():
    found = random_words(Stream.ROW_ORDER, 123456, 4, np.arange(300_000))
    assert len(np.unique(found)) == len(found)


def test_uniforms_are_evenly_spread_and_uncorrelated():
    drawn = uniforms(Stream.SLICE_LENGTH, 5, 0, np.arange(100_000))
    assert drawn.min() >= 0 and drawn.max() < 1
    assert np.abs(np.histogram(drawn, bins=20, range=(0, 1))[0] / 5_000 - 1).max() < 0.06
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02
    again = uniforms(Stream.SLICE_LENGTH, 5, 1, np.arange(100_000))
    assert abs(np.corrcoef(drawn, again)[0, 1]) < 0.02


def test_large_seeds_wrap_around():
    assert (
        random_words(Stream.ROW_ORDER, 2**70 + 1, 0, np.arange(2)).tolist()
        == random_words(Stream.ROW_ORDER, (2**70 + 1) % 2**64, 0, np.arange(2)).tolist()
    )


RULE = SliceRule(seed=9, shortest_samples=16_000, longest_samples=48_000)
lengths = st.lists(st.integers(400, 600_000), min_size=1, max_size=50).map(lambda found: np.array(found, dtype=np.int64))


@given(num_samples=lengths, epoch=st.integers(0, 1000), seed=st.integers(0, 2**64))
def test_slices_lie_in_their_utterance_and_have_a_length_of_the_rule(num_samples, epoch, seed):
    rule = SliceRule(seed=seed, shortest_samples=16_000, longest_samples=48_000)
    slices = rule.cut(epoch, np.arange(len(num_samples)), num_samples)
    assert (slices.starts >= 0).all()
    assert (slices.starts + slices.lengths <= num_samples).all()
    is_long = num_samples >= 48_000
    assert ((slices.lengths[is_long] >= 16_000) & (slices.lengths[is_long] <= 48_000)).all()
    assert (slices.starts[~is_long] == 0).all()
    assert (slices.lengths[~is_long] == num_samples[~is_long]).all()


def test_lengths_and_starts_spread_over_their_range_and_change_with_the_epoch():
    num_samples = np.full(20_000, 160_000)
    first, second = (RULE.cut(epoch, np.arange(20_000), num_samples) for epoch in (0, 1))
    assert abs(first.lengths.mean() - 32_000) < 300
    assert first.lengths.min() < 16_050 and first.lengths.max() > 47_950
    assert abs((first.starts / (num_samples - first.lengths)).mean() - 0.5) < 0.01
    assert (first.starts != second.starts).mean() > 0.99


def test_the_rule_comes_from_the_settings():
    assert SliceRule.of(Settings(seed=4)) == SliceRule(seed=4, shortest_samples=16_000, longest_samples=48_000)
    rule = SliceRule.of(Settings(fixed_slice_s=2.0))
    assert (rule.shortest_samples, rule.longest_samples) == (32_000, 32_000)
    slices = rule.cut(0, np.arange(1000), np.full(1000, 100_000))
    assert set(slices.lengths.tolist()) == {32_000}
    assert len(set(slices.starts.tolist())) > 900


@pytest.mark.parametrize(("changes", "name"), [({"min_slice_s": 0.01}, "min_slice_s"), ({"fixed_slice_s": 0.02}, "fixed_slice_s")])
def test_a_slice_shorter_than_a_frame_is_refused(changes, name):
    with pytest.raises(ValueError, match=f"{name} is 0.0[12]"):
        Settings(**changes)


@given(text=st.text(min_size=1, max_size=300), num_samples=st.integers(1, 600_000), data=st.data())
def test_text_is_cut_by_the_ratio_of_the_audio(text, num_samples, data):
    start = data.draw(st.integers(0, num_samples - 1))
    length = data.draw(st.integers(1, num_samples - start))
    piece = cut_text(text, start, length, num_samples)
    assert piece and piece in text
    assert abs(len(piece) - len(text) * length / num_samples) <= 1
    assert text.startswith(piece, start * len(text) // num_samples)


@given(text=st.text(max_size=300), num_samples=st.integers(300, 600_000), data=st.data())
def test_adjacent_slices_share_no_character_and_skip_none(text, num_samples, data):
    middle = data.draw(st.integers(1, num_samples - 1))
    before, after = cut_text(text, 0, middle, num_samples), cut_text(text, middle, num_samples - middle, num_samples)
    if middle * len(text) // num_samples:
        assert before + after == text


def test_texts_of_slices():
    assert cut_text("A LONG WAY", 0, 100, 100) == "A LONG WAY"
    assert cut_text("A LONG WAY", 20, 40, 100) == "LONG"
    assert cut_text("AB", 99, 1, 100) == "B"
    assert cut_text("", 10, 20, 100) == ""


UPPER_ENDS = np.array([1000, 1500, 2000, 2500, 3000])


def order_of(rank: int = 0, **changes) -> StepOrder:
    return StepOrder(**{"num_utterances": 50, "micro_batch": 4, "rank": rank, "world_size": 3, "seed": 1, "steps": 11, **changes})


def buckets_of(num_utterances: int) -> Buckets:
    """Slice lengths from 800 to 3200."""

    def slice_lengths(epoch: int) -> np.ndarray:
        return (800 + 2400 * uniforms(Stream.SLICE_LENGTH, 5, epoch, np.arange(num_utterances))).astype(np.int64)

    return Buckets(upper_ends=UPPER_ENDS, slice_lengths=slice_lengths)


@given(
    num_utterances=st.integers(1, 300),
    micro_batch=st.integers(1, 9),
    world_size=st.integers(1, 5),
    seed=st.integers(0, 2**40),
    with_buckets=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_no_utterance_comes_twice_in_an_epoch_on_any_rank(num_utterances, micro_batch, world_size, seed, with_buckets):
    if num_utterances < micro_batch * world_size:
        return
    steps_per_epoch = num_utterances // (micro_batch * world_size)
    options = {
        "num_utterances": num_utterances,
        "micro_batch": micro_batch,
        "world_size": world_size,
        "seed": seed,
        "steps": 2 * steps_per_epoch + 1,
        "buckets": buckets_of(num_utterances) if with_buckets else None,
    }
    steps = list(zip(*(order_of(rank, **options) for rank in range(world_size)), strict=True))
    assert len(steps) == 2 * steps_per_epoch + 1
    for epoch in range(3):
        fed = [rows for step in steps for rows in step if rows.epoch == epoch]
        assert all(len(rows.indices) == micro_batch for rows in fed)
        indices = np.concatenate([rows.indices for rows in fed])
        assert len(set(indices.tolist())) == len(indices)
        assert set(indices.tolist()) <= set(range(num_utterances))
        assert len(fed) == world_size * (steps_per_epoch if epoch < 2 else 1)


@pytest.mark.parametrize("buckets", [None, buckets_of(50)], ids=["plain", "buckets"])
@pytest.mark.parametrize("start_step", [1, 4, 7, 11])
def test_resuming_at_a_step_gives_the_tail_of_the_whole(start_step, buckets):
    whole = list(order_of(1, buckets=buckets))
    tail = order_of(1, buckets=buckets, start_step=start_step)
    assert len(tail) == 11 - start_step
    for expected, found in zip(whole[start_step:], tail, strict=True):
        assert found.epoch == expected.epoch
        assert found.indices.tolist() == expected.indices.tolist()


def test_resuming_computes_no_earlier_epoch():
    epochs = []
    buckets = Buckets(upper_ends=UPPER_ENDS, slice_lengths=lambda epoch: epochs.append(epoch) or buckets_of(50).slice_lengths(epoch))
    list(order_of(steps=4_000_003, start_step=4_000_000, buckets=buckets))
    assert epochs == [1_000_000]


def test_epochs_and_seeds_have_different_orders_and_remainders():
    batches = [order_of().epoch_batches(epoch) for epoch in range(2)] + [order_of(seed=2).epoch_batches(0)]
    left_out = [set(range(50)) - set(found.ravel().tolist()) for found in batches]
    assert [len(found) for found in left_out] == [2, 2, 2]
    assert len({tuple(found.ravel().tolist()) for found in batches}) == 3
    never_fed = set.intersection(*(set(range(50)) - set(order_of().epoch_batches(epoch).ravel().tolist()) for epoch in range(5)))
    assert never_fed == set()


def test_too_few_utterances_are_refused_with_the_largest_batch():
    with pytest.raises(ValueError, match=r"60 utterances a step, and there are 50 .* micro_batch=16 or less"):
        order_of(micro_batch=20)
    with pytest.raises(ValueError, match="use at most 2 ranks"):
        order_of(num_utterances=2)
    assert order_of(micro_batch=16).steps_per_epoch == 1


def test_a_start_after_the_last_step_is_refused():
    with pytest.raises(ValueError, match="resume at step 12, and steps is 11: raise steps"):
        order_of(start_step=12)


def test_buckets_reduce_padding():
    """All but the last few batches of an epoch have slices of one bucket."""
    num_utterances, options = 2000, {"num_utterances": 2000, "micro_batch": 8, "world_size": 2, "steps": 1000}
    buckets = buckets_of(num_utterances)
    lengths = buckets.slice_lengths(1)
    plain = lengths[order_of(**options).epoch_batches(1)]
    bucketed = lengths[order_of(**options, buckets=buckets).epoch_batches(1)]
    assert plain.shape == bucketed.shape == (125, 16)
    bucket_of = np.searchsorted(UPPER_ENDS, bucketed)
    is_mixed = bucket_of.min(axis=1) != bucket_of.max(axis=1)
    first_mixed = int(np.argmax(is_mixed)) if is_mixed.any() else 125
    # Six buckets with less than a batch left each.
    assert first_mixed >= 125 - 5
    whole = bucketed[:first_mixed]
    assert (whole.max(axis=1) - whole.min(axis=1) <= 500).all()
    assert (np.diff(bucket_of[:first_mixed, 0]) != 0).mean() > 0.5, "batches of all buckets are shuffled"
    assert padding_share(plain) > 0.3
    assert padding_share(bucketed) < 0.12


def padding_share(lengths: np.ndarray) -> float:
    widths = lengths.max(axis=1, keepdims=True)
    return float(1 - lengths.sum() / (widths * lengths.shape[1]).sum())


def test_an_upper_end_belongs_to_its_bucket():
    buckets = Buckets(upper_ends=np.array([10, 20]), slice_lengths=lambda epoch: np.array([10, 11] * 4))
    batches = order_of(num_utterances=8, micro_batch=2, world_size=2, buckets=buckets).epoch_batches(0)
    assert {frozenset(batch.tolist()) for batch in batches % 2} == {frozenset({0}), frozenset({1})}


def test_the_remainder_dropped_is_not_always_the_longest():
    def slice_lengths(epoch: int) -> np.ndarray:
        return np.arange(50) * 60

    order = order_of(buckets=Buckets(upper_ends=UPPER_ENDS, slice_lengths=slice_lengths))
    left_out = [set(range(50)) - set(order.epoch_batches(epoch).ravel().tolist()) for epoch in range(40)]
    assert len(set.union(*left_out)) > 15


def test_validation_has_the_same_full_batches_each_time():
    first, again = (fixed_batches(50, 16, None, seed=3) for _ in range(2))
    assert [rows.indices.tolist() for rows in first] == [rows.indices.tolist() for rows in again]
    assert [len(rows.indices) for rows in first] == [16, 16, 16]
    assert len(set(np.concatenate([rows.indices for rows in first]).tolist())) == 48
    assert len(fixed_batches(50, 16, 2, seed=3)) == 2
    assert fixed_batches(50, 16, 2, seed=3)[1].indices.tolist() == first[1].indices.tolist()
    assert [rows.indices.tolist() for rows in fixed_batches(7, 3, None, seed=None)] == [[0, 1, 2], [3, 4, 5]]
    assert [rows.indices.tolist() for rows in fixed_batches(5, 128, 16, seed=None)] == [[0, 1, 2, 3, 4]]
