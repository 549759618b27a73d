"""FLAC files read whole and written whole. In: a path. Out: samples and sample rate, or a RejectedError that says what is wrong with it.

A file goes through memory in one piece each way: what the disk has to say comes as an OSError with its number, what is wrong with the
stream is libsndfile's to say, and encoding takes a sixth less time than into a file.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import soundfile

from seatrial.files import BY_UMASK, written_aside
from seatrial_workloads.librispeech.outcomes import RejectedError

# What libsndfile says of a stream whose header does not tell its length.
UNKNOWN_LENGTH = 2**63 - 1


def read_flac(path: Path) -> tuple[np.ndarray, int]:
    """Its samples and their rate: int16 of one dimension where there is one channel of 16 bits, else float32, by frame and channel."""
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
        raise RejectedError(f"cannot be decoded: {in_one_line(error)}") from error
    if audio.dtype != np.int16 and not np.isfinite(audio).all():
        raise RejectedError("holds samples that are not finite")
    return audio, sample_rate


def write_flac(path: Path, samples: np.ndarray, sample_rate: int) -> int:
    """Write int16 samples as 16 bits, atomically; the size of the file. An OSError is about the disk, which is not waited for here."""
    flac = io.BytesIO()
    soundfile.write(flac, samples, sample_rate, subtype="PCM_16", format="FLAC")
    with written_aside(path, BY_UMASK, to_disk=False) as part, open(part, "wb") as file:
        return file.write(flac.getbuffer())


def in_one_line(error: BaseException) -> str:
    # libsndfile's own words: those of the exception name the buffer it read from, which has another address each time.
    return " ".join(str(getattr(error, "error_string", error)).split()) or type(error).__name__


def _all_samples(file: soundfile.SoundFile) -> np.ndarray:
    if file.frames == UNKNOWN_LENGTH:
        raise RejectedError("its header does not say how long it is; encode it anew")
    is_plain = file.channels == 1 and file.subtype == "PCM_16"
    audio: np.ndarray = file.read(dtype="int16" if is_plain else "float32")
    if len(audio) != file.frames:
        raise RejectedError(f"truncated: {len(audio)} of {file.frames} samples could be decoded")
    return audio
