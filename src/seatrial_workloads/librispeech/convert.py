"""One utterance: decode, mix to mono, resample, trim, encode. In: a FLAC file. Out: another, or a RejectedError with the reason.

A mono file of 16 bits at the wanted rate keeps its samples bit for bit; others are worked on as float32 and rounded once, at the end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soxr

from seatrial_workloads.librispeech.flac import in_one_line, read_flac, write_flac
from seatrial_workloads.librispeech.outcomes import RejectedError, Written
from seatrial_workloads.librispeech.record import Conversion
from seatrial_workloads.librispeech.trim import trim_bounds


def convert(source: Path, target: Path, conversion: Conversion) -> Written:
    """Write `target` from `source`. An OSError is about the target; whatever is wrong with the source is a RejectedError."""
    samples = prepared_samples(source, conversion)
    return Written(len(samples), write_flac(target, samples, conversion.target_sr))


def prepared_samples(source: Path, conversion: Conversion) -> np.ndarray:
    """The samples of the file as they will be encoded."""
    audio, sample_rate = read_flac(source)
    try:
        samples = _converted(audio, sample_rate, conversion)
    except (MemoryError, ValueError, RuntimeError) as error:
        raise RejectedError(f"cannot be converted: {in_one_line(error)}") from error
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
