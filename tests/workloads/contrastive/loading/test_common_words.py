"""The words that the tokenizer made here knows whole."""

from __future__ import annotations

from seatrial_workloads.contrastive.loading.common_words import COMMON_WORDS


def test_they_are_plain_words_of_letters_each_of_them_once() -> None:
    assert len(COMMON_WORDS) > 100
    assert len(set(COMMON_WORDS)) == len(COMMON_WORDS)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in COMMON_WORDS)
    assert {"the", "and", "of"} <= set(COMMON_WORDS)
