"""One file: FLAC, resampling, and trimming with the bounds of librosa."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings

from seatrial_workloads.librispeech import audio as trim
from seatrial_workloads.librispeech.audio import convert, prepared_samples, trim_bounds
from seatrial_workloads.librispeech.tree import Conversion, RejectedError


def as_it_is(*arguments: Any, **options: Any) -> Any:
    """A decorator of numba that compiles nothing."""
    return arguments[0] if arguments and callable(arguments[0]) else lambda function: function


@functools.cache
def librosa_trim() -> Callable[..., Any]:
    """librosa compiles some twenty functions when it is imported, half a minute of CPU; trimming calls none of them."""
    with mock.patch.multiple("numba", guvectorize=as_it_is, stencil=as_it_is, jit=as_it_is, vectorize=as_it_is):
        trim: Callable[..., Any] = pytest.importorskip("librosa").effects.trim
        trim(np.zeros(1))
    return trim


LENGTHS = (0, 1, 511, 512, 513, 1024, 2047, 2048, 2049, 5000, 16_000)


def by_librosa(audio: np.ndarray, top_db: float = 60.0) -> tuple[int, int]:
    start, end = librosa_trim()(audio, top_db=top_db)[1]
    return int(start), int(end)


def noise(length: int, loudness: float = 0.1, seed: int = 0) -> np.ndarray:
    return (loudness * np.random.default_rng(seed).standard_normal(length)).astype(np.float32)


def words_between_silence(length: int, before: int, after: int) -> np.ndarray:
    audio = noise(length)
    audio[:before] *= 1e-5
    audio[length - after :] *= 1e-5
    return audio


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("value", [0.0, 1e-5, 1.1e-5, -1.0])
def test_constant_signals(length: int, value: float) -> None:
    audio = np.full(length, value, dtype=np.float32)
    assert trim_bounds(audio) == by_librosa(audio)


@pytest.mark.parametrize("length", LENGTHS)
def test_noise_of_every_length(length: int) -> None:
    assert trim_bounds(noise(length)) == by_librosa(noise(length))


@pytest.mark.parametrize("length", [length for length in LENGTHS if length])
@pytest.mark.parametrize("place", [0.0, 0.999])
def test_one_click_in_silence(length: int, place: float) -> None:
    audio = np.zeros(length, dtype=np.float32)
    audio[int(place * length)] = -0.7
    assert trim_bounds(audio) == by_librosa(audio)


@pytest.mark.parametrize(("before", "after"), [(1_000, 0), (0, 1_000), (7_000, 3_333), (20_000, 19_000)])
def test_words_between_silence(before: int, after: int) -> None:
    audio = words_between_silence(40_000, before, after)
    start, end = trim_bounds(audio)
    assert (start, end) == by_librosa(audio)
    assert before - trim.FRAME <= start <= before and end - trim.FRAME <= 40_000 - after <= end


def test_integers_have_the_bounds_of_their_floats() -> None:
    samples = (words_between_silence(40_000, 9_000, 5_000) * 32_767).astype(np.int16)
    assert trim_bounds(samples) == by_librosa(samples.astype(np.float32) / 32_768)
    assert trim_bounds(samples.astype(np.int32) << 16) == trim_bounds(samples)


def test_the_faintest_16_bits_are_silence() -> None:
    samples = np.zeros(9_000, dtype=np.int16)
    samples[5_000] = 1
    assert trim_bounds(samples) == by_librosa(samples.astype(np.float32) / 32_768) == (0, 9_000)


def test_double_precision_and_every_other_sample() -> None:
    audio = words_between_silence(40_000, 9_000, 5_000)
    assert trim_bounds(audio.astype(np.float64)) == by_librosa(audio.astype(np.float64))
    assert trim_bounds(audio[::2]) == by_librosa(np.ascontiguousarray(audio[::2]))


@pytest.mark.parametrize("top_db", [0.0, 20.0, 59.999, 60.0, 200.0])
def test_levels_at_the_threshold(top_db: float) -> None:
    audio = np.ones(30_000, dtype=np.float32)
    audio[:15_000] *= np.float32(10 ** (-top_db / 20))
    assert trim_bounds(audio, top_db) == by_librosa(audio, top_db)


@settings(deadline=None, max_examples=300)
@given(
    parts=st.lists(st.tuples(st.integers(0, 3_000), st.floats(-9.0, 2.0)), min_size=1, max_size=8),
    top_db=st.floats(0.5, 120.0),
    seed=st.integers(0, 2**32 - 1),
    bits=st.booleans(),
)
def test_random_loudness(parts: list[tuple[int, float]], top_db: float, seed: int, bits: bool) -> None:
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


PLAIN = Conversion(target_sr=16_000, trim_top_db=None)
TRIMMED = Conversion(target_sr=16_000, trim_top_db=60.0)


def speech(length: int = 20_000, channels: int = 1) -> np.ndarray:
    audio = 0.1 * np.random.default_rng(1).standard_normal((length, channels))
    audio[: length // 4] = audio[-length // 4 :] = 0.0
    return audio[:, 0] if channels == 1 else audio


def file_of(folder: Path, audio: np.ndarray, rate: int = 16_000, subtype: str = "PCM_16", kind: str = "FLAC") -> Path:
    path = folder / "source.flac"
    soundfile.write(path, audio, rate, subtype=subtype, format=kind)
    return path


def test_mono_16_bit_at_the_target_rate_is_unchanged(tmp_path: Path) -> None:
    source = file_of(tmp_path, speech())
    written = convert(source, tmp_path / "target.flac", PLAIN)
    before, after = (soundfile.read(path, dtype="int16")[0] for path in (source, tmp_path / "target.flac"))
    assert np.array_equal(before, after)
    assert written == (20_000, (tmp_path / "target.flac").stat().st_size)
    info = soundfile.info(tmp_path / "target.flac")
    assert (info.format, info.subtype, info.samplerate, info.channels) == ("FLAC", "PCM_16", 16_000, 1)


def test_silence_is_trimmed_and_speech_is_unchanged(tmp_path: Path) -> None:
    source = file_of(tmp_path, speech())
    before = soundfile.read(source, dtype="int16")[0]
    start, end = trim_bounds(before)
    assert 0 < start < end < 20_000
    assert np.array_equal(prepared_samples(source, TRIMMED), before[start:end])


def test_channels_are_averaged(tmp_path: Path) -> None:
    source = file_of(tmp_path, speech(channels=2))
    both = soundfile.read(source, dtype="float32")[0]
    assert np.array_equal(prepared_samples(source, PLAIN), np.rint(both.mean(axis=1) * 32_768).astype(np.int16))


@pytest.mark.parametrize(("rate", "subtype"), [(44_100, "PCM_16"), (8_000, "PCM_16"), (48_000, "PCM_24"), (22_050, "PCM_S8")])
def test_other_rates_are_resampled(tmp_path: Path, rate: int, subtype: str) -> None:
    source = file_of(tmp_path, speech(rate), rate, subtype)
    expected = soxr.resample(soundfile.read(source, dtype="float32")[0], rate, 16_000, quality="HQ")
    samples = prepared_samples(source, PLAIN)
    assert len(samples) == 16_000 and np.abs(samples - expected * 32_768).max() <= 0.5


def test_overshoot_is_clipped(tmp_path: Path) -> None:
    square = np.where(np.arange(44_100) % 100 < 50, 32_767, -32_768).astype(np.int16)
    samples = prepared_samples(file_of(tmp_path, square, 44_100), PLAIN)
    assert samples.max() == 32_767 and samples.min() == -32_768
    assert np.abs(np.diff(samples.astype(int))).max() < 65_536


def test_one_sample_is_enough(tmp_path: Path) -> None:
    assert len(prepared_samples(file_of(tmp_path, np.full(1, 0.5)), TRIMMED)) == 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "the file is empty"),
        (lambda data: b"not audio\n" * 100, "cannot be decoded: Format not recognised"),
        (lambda data: data[: len(data) // 2], "cannot be decoded"),
        (lambda data: data[:-1], "cannot be decoded"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "cannot be decoded"),
        (lambda data: data[:21] + bytes([data[21] & 0xF0]) + bytes(4) + data[26:], "has no length"),
    ],
    ids=["empty", "text", "half", "all but a byte", "a flipped bit", "length unknown"],
)
def test_a_damaged_file_is_rejected(tmp_path: Path, damage: Callable[[bytes], bytes], reason: str) -> None:
    source = file_of(tmp_path, speech(60_000))
    source.write_bytes(damage(source.read_bytes()))
    with pytest.raises(RejectedError, match=reason):
        convert(source, tmp_path / "target.flac", TRIMMED)
    assert [path.name for path in tmp_path.iterdir()] == ["source.flac"]


def test_unusable_audio_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="silence only"):
        prepared_samples(file_of(tmp_path, np.zeros(16_000)), TRIMMED)
    with pytest.raises(RejectedError, match="no samples"):
        prepared_samples(file_of(tmp_path, np.zeros(0), kind="WAV"), TRIMMED)
    with pytest.raises(RejectedError, match="cannot be read: No such file"):
        prepared_samples(tmp_path / "gone.flac", TRIMMED)
    with pytest.raises(RejectedError, match="not finite"):
        prepared_samples(file_of(tmp_path, np.array([0.5, np.nan, 0.5]), kind="WAV", subtype="FLOAT"), TRIMMED)


def test_an_unwritable_target_is_an_os_error(tmp_path: Path) -> None:
    source = file_of(tmp_path, speech())
    (tmp_path / "target.flac").mkdir()
    with pytest.raises(IsADirectoryError):
        convert(source, tmp_path / "target.flac", PLAIN)
    assert not list(tmp_path.glob(".*"))
