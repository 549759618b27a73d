"""One file: what comes out of it, and why nothing does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from seatrial_workloads.librispeech.convert import convert, prepared_samples
from seatrial_workloads.librispeech.outcomes import RejectedError
from seatrial_workloads.librispeech.record import Conversion
from seatrial_workloads.librispeech.trim import trim_bounds

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


def test_plain_speech_keeps_its_samples_bit_for_bit(tmp_path: Path) -> None:
    source = file_of(tmp_path, speech())
    written = convert(source, tmp_path / "target.flac", PLAIN)
    before, after = (soundfile.read(path, dtype="int16")[0] for path in (source, tmp_path / "target.flac"))
    assert np.array_equal(before, after)
    assert written == (20_000, (tmp_path / "target.flac").stat().st_size)
    info = soundfile.info(tmp_path / "target.flac")
    assert (info.format, info.subtype, info.samplerate, info.channels) == ("FLAC", "PCM_16", 16_000, 1)


def test_silence_goes_and_speech_stays_bit_for_bit(tmp_path: Path) -> None:
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


def test_what_overshoots_is_clipped_and_does_not_wrap_around(tmp_path: Path) -> None:
    square = np.where(np.arange(44_100) % 100 < 50, 32_767, -32_768).astype(np.int16)
    samples = prepared_samples(file_of(tmp_path, square, 44_100), PLAIN)
    assert samples.max() == 32_767 and samples.min() == -32_768
    assert np.abs(np.diff(samples.astype(int))).max() < 65_536


@pytest.mark.parametrize("length", [1, 2, 100])
def test_a_few_samples_are_enough(tmp_path: Path, length: int) -> None:
    assert len(prepared_samples(file_of(tmp_path, np.full(length, 0.5)), TRIMMED)) == length


def damaged(data: bytes) -> dict[str, bytes]:
    """Kind of damage → the file with it."""
    middle = len(data) // 2
    return {
        "nothing": b"",
        "text": b"this is no audio\n" * 100,
        "header": data[:42],
        "half": data[:middle],
        "all but a byte": data[:-1],
        "a bit flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "a piece cut out": data[:middle] + data[middle + 500 :],
        "length unknown": data[:21] + bytes([data[21] & 0xF0]) + bytes(4) + data[26:],
    }


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("nothing", "the file is empty"),
        ("text", "cannot be decoded: Format not recognised"),
        ("header", "cannot be decoded"),
        ("half", "cannot be decoded"),
        ("all but a byte", "cannot be decoded"),
        ("a bit flipped", "cannot be decoded"),
        ("a piece cut out", "cannot be decoded"),
        ("length unknown", "how long it is"),
    ],
)
def test_damage_is_seen(tmp_path: Path, kind: str, says: str) -> None:
    source = file_of(tmp_path, speech(60_000))
    source.write_bytes(damaged(source.read_bytes())[kind])
    with pytest.raises(RejectedError, match=says):
        convert(source, tmp_path / "target.flac", TRIMMED)
    assert [path.name for path in tmp_path.iterdir()] == ["source.flac"]


def test_what_nothing_can_be_learnt_from_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="silence only"):
        prepared_samples(file_of(tmp_path, np.zeros(16_000)), TRIMMED)
    with pytest.raises(RejectedError, match="no samples"):
        prepared_samples(file_of(tmp_path, np.zeros(0), kind="WAV"), TRIMMED)
    with pytest.raises(RejectedError, match="cannot be read: No such file"):
        prepared_samples(tmp_path / "gone.flac", TRIMMED)
    with pytest.raises(RejectedError, match="cannot be read: Is a directory"):
        prepared_samples(tmp_path, TRIMMED)
    with pytest.raises(RejectedError, match="not finite"):
        prepared_samples(file_of(tmp_path, np.array([0.5, np.nan, 0.5]), kind="WAV", subtype="FLOAT"), TRIMMED)


def test_trouble_with_the_target_is_the_disks(tmp_path: Path) -> None:
    source = file_of(tmp_path, speech())
    with pytest.raises(NotADirectoryError):
        convert(source, source / "no" / "folder.flac", PLAIN)
    (tmp_path / "target.flac").mkdir()
    with pytest.raises(IsADirectoryError):
        convert(source, tmp_path / "target.flac", PLAIN)
    assert not list(tmp_path.glob(".*"))
