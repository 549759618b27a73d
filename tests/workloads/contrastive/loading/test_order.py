"""Which utterances a rank is fed at which step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from seatrial_workloads.contrastive.loading.draws import Stream, uniforms  # noqa: E402
from seatrial_workloads.contrastive.loading.order import Buckets, StepOrder, fixed_batches  # noqa: E402

UPPER_ENDS = np.array([1000, 1500, 2000, 2500, 3000])


def order_of(rank: int = 0, **changes) -> StepOrder:
    return StepOrder(**{"num_utterances": 50, "micro_batch": 4, "rank": rank, "world_size": 3, "seed": 1, "steps": 11, **changes})


def buckets_of(num_utterances: int) -> Buckets:
    """Fed lengths from 800 to 3200."""

    def fed_lengths(epoch: int) -> np.ndarray:
        return (800 + 2400 * uniforms(Stream.SLICE_LENGTH, 5, epoch, np.arange(num_utterances))).astype(np.int64)

    return Buckets(upper_ends=UPPER_ENDS, fed_lengths=fed_lengths)


@given(
    num_utterances=st.integers(1, 300),
    micro_batch=st.integers(1, 9),
    world_size=st.integers(1, 5),
    seed=st.integers(0, 2**40),
    with_buckets=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_ranks_share_nothing_and_no_utterance_comes_twice_in_an_epoch(num_utterances, micro_batch, world_size, seed, with_buckets):
    if num_utterances < micro_batch * world_size:
        return
    steps_per_epoch = num_utterances // (micro_batch * world_size)
    made = {
        "num_utterances": num_utterances,
        "micro_batch": micro_batch,
        "world_size": world_size,
        "seed": seed,
        "steps": 2 * steps_per_epoch + 1,
        "buckets": buckets_of(num_utterances) if with_buckets else None,
    }
    steps = list(zip(*(order_of(rank, **made) for rank in range(world_size)), strict=True))
    assert len(steps) == 2 * steps_per_epoch + 1
    for epoch in range(3):
        fed = [rows for step in steps for rows in step if rows.epoch == epoch]
        assert all(len(rows.indices) == micro_batch for rows in fed)
        indices = np.concatenate([rows.indices for rows in fed])
        assert len(set(indices.tolist())) == len(indices)
        assert set(indices.tolist()) <= set(range(num_utterances))
        assert len(fed) == world_size * (steps_per_epoch if epoch < 2 else 1)


@pytest.mark.parametrize("buckets", [None, buckets_of(50)], ids=["plain", "buckets"])
@pytest.mark.parametrize("start_step", [0, 1, 3, 4, 7, 11])
def test_going_on_at_a_step_is_the_tail_of_the_whole(start_step, buckets):
    whole = list(order_of(1, buckets=buckets))
    tail = order_of(1, buckets=buckets, start_step=start_step)
    assert len(tail) == 11 - start_step
    for expected, found in zip(whole[start_step:], tail, strict=True):
        assert found.epoch == expected.epoch
        assert found.indices.tolist() == expected.indices.tolist()


def test_going_on_looks_at_no_epoch_before():
    asked = []
    buckets = Buckets(upper_ends=UPPER_ENDS, fed_lengths=lambda epoch: asked.append(epoch) or buckets_of(50).fed_lengths(epoch))
    list(order_of(steps=4_000_003, start_step=4_000_000, buckets=buckets))
    assert asked == [1_000_000]


def test_epochs_and_seeds_have_orders_of_their_own_and_leave_out_others():
    batches = [order_of().epoch_batches(epoch) for epoch in range(2)] + [order_of(seed=2).epoch_batches(0)]
    left_out = [set(range(50)) - set(found.ravel().tolist()) for found in batches]
    assert [len(found) for found in left_out] == [2, 2, 2]
    assert len({tuple(found.ravel().tolist()) for found in batches}) == 3
    never_fed = set.intersection(*(set(range(50)) - set(order_of().epoch_batches(epoch).ravel().tolist()) for epoch in range(5)))
    assert never_fed == set()


def test_too_few_utterances_name_the_largest_batch_that_would_do():
    with pytest.raises(
        ValueError, match=r"micro_batch \(20\) × 3 ranks is 60 utterances a step, and there are 50 .* micro_batch=16 or less"
    ):
        order_of(micro_batch=20)
    with pytest.raises(ValueError, match="use at most 2 ranks"):
        order_of(num_utterances=2)
    assert order_of(micro_batch=16).steps_per_epoch == 1


def test_a_start_behind_the_last_step_is_refused():
    with pytest.raises(ValueError, match="go on at step 12, and steps is 11: raise steps"):
        order_of(start_step=12)


def test_buckets_bucket():
    """All but the last few batches of an epoch stay within one bucket, and padding falls by far."""
    num_utterances, made = 2000, {"num_utterances": 2000, "micro_batch": 8, "world_size": 2, "steps": 1000}
    buckets = buckets_of(num_utterances)
    lengths = buckets.fed_lengths(1)
    plain = lengths[order_of(**made).epoch_batches(1)]
    bucketed = lengths[order_of(**made, buckets=buckets).epoch_batches(1)]
    assert plain.shape == bucketed.shape == (125, 16)
    bucket_of = np.searchsorted(UPPER_ENDS, bucketed)
    is_mixed = bucket_of.min(axis=1) != bucket_of.max(axis=1)
    first_mixed = int(np.argmax(is_mixed)) if is_mixed.any() else 125
    # Six buckets with less than a batch left each.
    assert first_mixed >= 125 - 5
    whole = bucketed[:first_mixed]
    assert (whole.max(axis=1) - whole.min(axis=1) <= 500).all()
    assert padding_share(plain) > 0.3
    assert padding_share(bucketed) < 0.12


def padding_share(lengths: np.ndarray) -> float:
    widths = lengths.max(axis=1, keepdims=True)
    return float(1 - lengths.sum() / (widths * lengths.shape[1]).sum())


def test_batches_of_buckets_come_shuffled_and_mixed_ones_last():
    num_utterances = 2000
    order = order_of(num_utterances=num_utterances, buckets=buckets_of(num_utterances))
    bucket_of = np.searchsorted(UPPER_ENDS, buckets_of(num_utterances).fed_lengths(0)[order.epoch_batches(0)])
    bucket_of_step = bucket_of[:-5, 0]
    changes = (np.diff(bucket_of_step) != 0).mean()
    assert changes > 0.5


def test_an_end_belongs_to_the_bucket_below_it():
    buckets = Buckets(upper_ends=np.array([10, 20]), fed_lengths=lambda epoch: np.array([10, 11] * 4))
    batches = order_of(num_utterances=8, micro_batch=2, world_size=2, buckets=buckets).epoch_batches(0)
    assert {frozenset(batch.tolist()) for batch in batches % 2} == {frozenset({0}), frozenset({1})}


def test_what_mixed_batches_leave_out_is_not_always_the_longest():
    def fed_lengths(epoch: int) -> np.ndarray:
        return np.arange(50) * 60

    order = order_of(buckets=Buckets(upper_ends=UPPER_ENDS, fed_lengths=fed_lengths))
    left_out = [set(range(50)) - set(order.epoch_batches(epoch).ravel().tolist()) for epoch in range(40)]
    assert len(set.union(*left_out)) > 15


def test_validation_has_the_same_whole_batches_each_time():
    first, again = (fixed_batches(50, 16, None, seed=3) for _ in range(2))
    assert [rows.indices.tolist() for rows in first] == [rows.indices.tolist() for rows in again]
    assert [len(rows.indices) for rows in first] == [16, 16, 16]
    assert len(set(np.concatenate([rows.indices for rows in first]).tolist())) == 48
    assert len(fixed_batches(50, 16, 2, seed=3)) == 2
    assert fixed_batches(50, 16, 2, seed=3)[1].indices.tolist() == first[1].indices.tolist()
    assert [rows.indices.tolist() for rows in fixed_batches(7, 3, None, seed=None)] == [[0, 1, 2], [3, 4, 5]]


def test_a_validation_set_smaller_than_a_batch_is_one_batch():
    assert [rows.indices.tolist() for rows in fixed_batches(5, 128, 16, seed=None)] == [[0, 1, 2, 3, 4]]
