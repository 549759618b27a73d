"""Audio of one utterance: FLAC in and out, resampling, and trimming of silence with the bounds of `librosa.effects.trim`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import soundfile
import soxr

from seatrial.core.files import BY_UMASK, atomic_write
from seatrial_workloads.librispeech.tree import Conversion, RejectedError, Written

FRAME, HOP = 2048, 512
HOPS_PER_FRAME = FRAME // HOP
# Amplitudes below 1e-5 all count as silence.
MIN_POWER = 1e-10
# More than the rounding error of a float32 sum of 2048 squares, and small enough to be rare.
ROUNDING_RATIO = 2e-4


def trim_bounds(audio: np.ndarray, top_db: float = 60.0) -> tuple[int, int]:
    """Start and end of the audio without silence; full scale is 1 for floats and the type's range for integers."""
    if audio.ndim != 1:
        raise ValueError(f"audio has the shape {audio.shape}; expected one channel")
    loud = np.flatnonzero(_loud_frames(audio, top_db))
    if not len(loud):
        return 0, 0
    return int(loud[0]) * HOP, min(len(audio), (int(loud[-1]) + 1) * HOP)


def _loud_frames(audio: np.ndarray, top_db: float) -> np.ndarray:
    full_scale = 2.0 ** (8 * audio.dtype.itemsize - 1) if audio.dtype.kind == "i" else 1.0
    floats = audio.astype(np.float32, copy=False)
    power = np.maximum(_frame_powers(floats) / full_scale**2, MIN_POWER)
    threshold = power.max() * 10.0 ** (-top_db / 10.0)
    if (np.abs(power - threshold) < threshold * ROUNDING_RATIO).any():
        return _loud_frames_as_librosa(floats / np.float32(full_scale), top_db)
    loud: np.ndarray = power > threshold
    return loud


def _frame_powers(audio: np.ndarray) -> np.ndarray:
    """Mean square of every frame, from the energies of its hops."""
    num_hops = len(audio) // HOP
    # The first frame begins two hops before the first sample, and the last one ends two hops after the last.
    energies = np.zeros(num_hops + HOPS_PER_FRAME)
    whole, rest = audio[: num_hops * HOP].reshape(num_hops, HOP), audio[num_hops * HOP :]
    energies[2 : 2 + num_hops] = np.einsum("ij,ij->i", whole, whole)
    energies[2 + num_hops] = rest @ rest
    return (energies[:-3] + energies[1:-2] + energies[2:-1] + energies[3:]) / FRAME


def _loud_frames_as_librosa(audio: np.ndarray, top_db: float) -> np.ndarray:
    """The same with librosa's operations in librosa's order, so that both round the same."""
    padded = np.pad(audio, FRAME // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    amplitude = np.sqrt(np.mean(np.square(frames), axis=-1))
    level_db = 10.0 * np.log10(np.maximum(MIN_POWER, np.square(amplitude)))
    level_db -= 10.0 * np.log10(np.maximum(MIN_POWER, np.max(amplitude) ** 2))
    loud: np.ndarray = level_db > -top_db
    return loud


# libsndfile's length of a stream whose header has none.
UNKNOWN_LENGTH = 2**63 - 1


def read_flac(path: Path) -> tuple[np.ndarray, int]:
    """Samples and sample rate: 1-D int16 for 16-bit mono, else float32 (frames, channels)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RejectedError(f"cannot be read: {error.strerror}") from error
    if not data:
        raise RejectedError("the file is empty (0 bytes)")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            audio = _all_samples(file)
            sample_rate = int(file.samplerate)
    except (soundfile.SoundFileError, OSError, MemoryError, ValueError) as error:
        raise RejectedError(f"cannot be decoded: {summarize_error(error)}") from error
    if audio.dtype != np.int16 and not np.isfinite(audio).all():
        raise RejectedError("contains samples that are not finite")
    return audio, sample_rate


def write_flac(path: Path, samples: np.ndarray, sample_rate: int) -> int:
    """Write int16 samples atomically, without fsync; returns the file's size. An OSError is about the disk."""
    flac = io.BytesIO()
    soundfile.write(flac, samples, sample_rate, subtype="PCM_16", format="FLAC")
    with atomic_write(path, BY_UMASK, fsync=False) as part, open(part, "wb") as file:
        return file.write(flac.getbuffer())


def summarize_error(error: BaseException) -> str:
    # libsndfile's own text: the exception's names the buffer, whose address differs each time.
    return " ".join(str(getattr(error, "error_string", error)).split()) or type(error).__name__


def _all_samples(file: soundfile.SoundFile) -> np.ndarray:
    if file.frames == UNKNOWN_LENGTH:
        raise RejectedError("its header has no length; encode it again")
    is_plain = file.channels == 1 and file.subtype == "PCM_16"
    audio: np.ndarray = file.read(dtype="int16" if is_plain else "float32")
    if len(audio) != file.frames:
        raise RejectedError(f"truncated: {len(audio)} of {file.frames} samples could be decoded")
    return audio


def convert(source: Path, target: Path, conversion: Conversion) -> Written:
    """Write `target` from `source`. OSError for the target, RejectedError for the source."""
    samples = prepared_samples(source, conversion)
    return Written(len(samples), write_flac(target, samples, conversion.target_sr))


def prepared_samples(source: Path, conversion: Conversion) -> np.ndarray:
    """The file's samples, resampled, trimmed, as int16."""
    audio, sample_rate = read_flac(source)
    try:
        samples = _converted(audio, sample_rate, conversion)
    except (MemoryError, ValueError, RuntimeError) as error:
        raise RejectedError(f"cannot be converted: {summarize_error(error)}") from error
    if not samples.any():
        raise RejectedError("silence only" if len(samples) else "no samples")
    return samples


def _converted(audio: np.ndarray, sample_rate: int, conversion: Conversion) -> np.ndarray:
    if audio.ndim == 2:
        audio = audio.mean(axis=1)
    if sample_rate != conversion.target_sr and len(audio):
        audio = soxr.resample(_as_float(audio), sample_rate, conversion.target_sr, quality="HQ")
    if conversion.trim_top_db is not None:
        start, end = trim_bounds(audio, conversion.trim_top_db)
        audio = audio[start:end]
    return _as_int16(audio)


def _as_float(audio: np.ndarray) -> np.ndarray:
    return audio if audio.dtype == np.float32 else audio * np.float32(2**-15)


def _as_int16(audio: np.ndarray) -> np.ndarray:
    if audio.dtype == np.int16:
        return audio
    return np.clip(np.rint(audio * np.float32(2**15)), -(2**15), 2**15 - 1).astype(np.int16)
