"""Numbers that are looked up."""

from __future__ import annotations

import numpy as np

from seatrial_workloads.contrastive.loading.draws import Stream, uniforms, words

GOLDEN_ROW_ORDER = [11453583737727826051, 10015772965960114402, 996623982347663492]
GOLDEN_SPAN_STARTS = [[16891145171295701374, 17497403312946084210]]


def test_the_same_question_has_the_same_answer_in_any_company():
    together = words(Stream.SLICE_START, 7, 3, np.arange(100))
    for index in (0, 41, 99):
        assert words(Stream.SLICE_START, 7, 3, np.array([index])) == together[index]
    assert words(Stream.SLICE_START, 7, 3, np.int64(41)) == together[41]


def test_these_words_are_kept_for_ever():
    """Another hash would make every training another one: resumed runs would see other data than they began with."""
    assert words(Stream.ROW_ORDER, 123456, 0, np.arange(3)).tolist() == GOLDEN_ROW_ORDER
    assert words(Stream.SPAN_STARTS, 0, 2, np.array([[5]]), np.arange(2)).tolist() == GOLDEN_SPAN_STARTS


def test_seed_stream_epoch_and_index_each_change_everything():
    asked = [
        (Stream.ROW_ORDER, 1, 1),
        (Stream.BATCH_ORDER, 1, 1),
        (Stream.ROW_ORDER, 2, 1),
        (Stream.ROW_ORDER, 1, 2),
        (Stream.ROW_ORDER, 0, 0),
    ]
    found = np.concatenate([words(*question, np.arange(1000)) for question in asked])
    assert len(np.unique(found)) == len(found)


def test_no_two_indices_of_an_epoch_share_a_word():
    found = words(Stream.ROW_ORDER, 123456, 4, np.arange(300_000))
    assert len(np.unique(found)) == len(found)


def test_uniforms_fill_the_whole_range_evenly_and_neighbours_are_strangers():
    drawn = uniforms(Stream.SLICE_LENGTH, 5, 0, np.arange(100_000))
    assert drawn.min() >= 0 and drawn.max() < 1
    assert np.abs(np.histogram(drawn, bins=20, range=(0, 1))[0] / 5_000 - 1).max() < 0.06
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02
    again = uniforms(Stream.SLICE_LENGTH, 5, 1, np.arange(100_000))
    assert abs(np.corrcoef(drawn, again)[0, 1]) < 0.02


def test_large_seeds_are_welcome():
    assert (
        words(Stream.ROW_ORDER, 2**70 + 1, 0, np.arange(2)).tolist()
        == words(Stream.ROW_ORDER, (2**70 + 1) % 2**64, 0, np.arange(2)).tolist()
    )
