"""Bounds of speech: the same as librosa's, whatever the signal."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from seatrial_workloads.librispeech import trim
from seatrial_workloads.librispeech.trim import trim_bounds

librosa = pytest.importorskip("librosa")

LENGTHS = (0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 5000, 16_000, 51_200)


def by_librosa(audio: np.ndarray, top_db: float = 60.0) -> tuple[int, int]:
    start, end = librosa.effects.trim(audio, top_db=top_db)[1]
    return int(start), int(end)


def noise(length: int, loudness: float = 0.1, seed: int = 0) -> np.ndarray:
    return (loudness * np.random.default_rng(seed).standard_normal(length)).astype(np.float32)


def words_between_silence(length: int, before: int, after: int) -> np.ndarray:
    audio = noise(length)
    audio[:before] *= 1e-5
    audio[length - after :] *= 1e-5
    return audio


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("value", [0.0, 1e-9, 1e-5, 1.1e-5, 0.5, -1.0])
def test_constant_signals(length: int, value: float) -> None:
    audio = np.full(length, value, dtype=np.float32)
    assert trim_bounds(audio) == by_librosa(audio)


@pytest.mark.parametrize("length", LENGTHS)
def test_noise_of_every_length(length: int) -> None:
    assert trim_bounds(noise(length)) == by_librosa(noise(length))


@pytest.mark.parametrize("length", [length for length in LENGTHS if length])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.999])
def test_one_click_in_silence(length: int, place: float) -> None:
    audio = np.zeros(length, dtype=np.float32)
    audio[int(place * length)] = -0.7
    assert trim_bounds(audio) == by_librosa(audio)


def test_clicks_at_both_ends() -> None:
    audio = np.zeros(20_000, dtype=np.float32)
    audio[0] = audio[-1] = 0.9
    assert trim_bounds(audio) == by_librosa(audio) == (0, 20_000)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1_000, 0), (0, 1_000), (7_000, 3_333), (20_000, 19_000)])
def test_words_between_silence(before: int, after: int) -> None:
    audio = words_between_silence(40_000, before, after)
    start, end = trim_bounds(audio)
    assert (start, end) == by_librosa(audio)
    assert before - trim.FRAME <= start <= before and end - trim.FRAME <= 40_000 - after <= end


def test_sixteen_bits_are_as_their_floats() -> None:
    samples = (words_between_silence(40_000, 9_000, 5_000) * 32_767).astype(np.int16)
    assert trim_bounds(samples) == by_librosa(samples.astype(np.float32) / 32_768)
    assert trim_bounds(samples.astype(np.int32) << 16) == trim_bounds(samples)


def test_the_faintest_16_bits_are_one_silence() -> None:
    samples = np.zeros(9_000, dtype=np.int16)
    samples[5_000] = 1
    assert trim_bounds(samples) == by_librosa(samples.astype(np.float32) / 32_768) == (0, 9_000)


def test_double_precision_and_every_other_sample() -> None:
    audio = words_between_silence(40_000, 9_000, 5_000)
    assert trim_bounds(audio.astype(np.float64)) == by_librosa(audio.astype(np.float64))
    assert trim_bounds(audio[::2]) == by_librosa(np.ascontiguousarray(audio[::2]))


@pytest.mark.parametrize("top_db", [0.0, 1.0, 20.0, 30.0, 59.999, 60.0, 90.0, 200.0])
def test_levels_that_lie_on_the_threshold(top_db: float) -> None:
    audio = np.ones(30_000, dtype=np.float32)
    audio[:15_000] *= np.float32(10 ** (-top_db / 20))
    assert trim_bounds(audio, top_db) == by_librosa(audio, top_db)


def test_where_the_last_bits_decide_frames_are_summed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    slowly = trim._loud_frames_one_by_one
    monkeypatch.setattr(trim, "_loud_frames_one_by_one", lambda *words: asked.append(words) or slowly(*words))
    trim_bounds(words_between_silence(40_000, 9_000, 5_000))
    assert not asked
    audio = np.ones(30_000, dtype=np.float32)
    audio[:15_000] = 1e-3
    trim_bounds(audio)
    assert asked


@settings(deadline=None, max_examples=300)
@given(
    parts=st.lists(st.tuples(st.integers(0, 3_000), st.floats(-9.0, 2.0)), min_size=1, max_size=8),
    top_db=st.floats(0.5, 120.0),
    seed=st.integers(0, 2**32 - 1),
    bits=st.booleans(),
)
def test_any_loudness_in_any_order(parts: list[tuple[int, float]], top_db: float, seed: int, bits: bool) -> None:
    random = np.random.default_rng(seed)
    audio = np.concatenate([10**gain * random.standard_normal(length) for length, gain in parts]).astype(np.float32)
    if bits:
        samples = np.clip(audio * 32_768, -32_768, 32_767).astype(np.int16)
        assert trim_bounds(samples, top_db) == by_librosa(samples.astype(np.float32) / 32_768, top_db)
    else:
        assert trim_bounds(audio, top_db) == by_librosa(audio, top_db)


def test_more_than_one_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="one channel"):
        trim_bounds(np.zeros((100, 2), dtype=np.float32))
