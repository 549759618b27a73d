"""Batches made from files. In: the Rows of one step. Out: its Batch, ready for the model; this is what a loader worker does.

Only the slice is decoded: of a 12 s file, seeking to 2 s and decoding those takes a quarter of the time of the whole. Where silence is
trimmed while loading, the whole file has to be heard first, and the slice is cut from what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from seatrial_workloads.contrastive.batch import Batch
from seatrial_workloads.contrastive.loading.order import Rows
from seatrial_workloads.contrastive.loading.slices import FEWEST_SAMPLES, SliceRule, Slices, cut_text
from seatrial_workloads.contrastive.loading.time_masks import time_mask
from seatrial_workloads.contrastive.loading.tokens import tokenise
from seatrial_workloads.contrastive.loading.utterances import DatasetError, Utterances, header_samples, unreadable
from seatrial_workloads.librispeech.manifest import SAMPLE_RATE
from seatrial_workloads.librispeech.trim import trim_bounds

# As wav2vec2's feature extractor has it: a row of silence is not divided by zero.
VARIANCE_FLOOR = 1e-7


@dataclass(frozen=True, kw_only=True)
class SpeechTextBatches(Dataset[Batch]):
    """Rows → Batch. The same for the same rows, whoever asks."""

    utterances: Utterances
    rule: SliceRule
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    trims: bool = False
    """Cut silence off both ends before the slice is chosen."""
    mask_time_prob: float = 0.0
    num_frames: Callable[[int], int] | None = None
    """Samples → frames that the speech encoder makes of them; needed for a time mask."""

    def __getitem__(self, rows: Rows) -> Batch:
        num_samples, slices, audio = self._trimmed_audio(rows) if self.trims else self._audio(rows)
        token_ids, token_mask = tokenise(self.tokenizer, self._texts(rows, num_samples, slices))
        mask = self._time_mask(rows, slices.lengths, audio.shape[1])
        return Batch(
            audio=torch.from_numpy(audio),
            num_samples=torch.from_numpy(slices.lengths),
            token_ids=token_ids,
            token_mask=token_mask,
            time_mask=None if mask is None else torch.from_numpy(mask),
            same_length=bool((slices.lengths == audio.shape[1]).all()),
        )

    def _audio(self, rows: Rows) -> tuple[NDArray[np.int64], Slices, NDArray[np.float32]]:
        """Length of each utterance, the slices, and their audio, of which nothing else is decoded."""
        num_samples = self._lengths(rows)
        slices = self.rule.cut(rows.epoch, rows.indices, num_samples)
        self._check_lengths(rows, slices.lengths)
        audio = padded(slices.lengths)
        for row, index, whole, start, length in zip(audio, rows.indices, num_samples, slices.starts, slices.lengths, strict=True):
            read_slice(self.utterances.path(int(index)), int(whole), int(start), row[:length])
            normalise(row[:length])
        return num_samples, slices, audio

    def _trimmed_audio(self, rows: Rows) -> tuple[NDArray[np.int64], Slices, NDArray[np.float32]]:
        """The same, with slices of what is left without silence."""
        spoken = [read_trimmed(self.utterances.path(int(index))) for index in rows.indices]
        num_samples = np.array([len(one) for one in spoken], dtype=np.int64)
        slices = self.rule.cut(rows.epoch, rows.indices, num_samples)
        self._check_lengths(rows, slices.lengths)
        audio = padded(slices.lengths)
        for row, one, start, length in zip(audio, spoken, slices.starts, slices.lengths, strict=True):
            row[:length] = one[start : start + length]
            normalise(row[:length])
        return num_samples, slices, audio

    def _lengths(self, rows: Rows) -> NDArray[np.int64]:
        known = self.utterances.num_samples
        if known is not None:
            return known[rows.indices]
        return np.array([header_samples(self.utterances.path(int(index))) for index in rows.indices], dtype=np.int64)

    def _check_lengths(self, rows: Rows, lengths: NDArray[np.int64]) -> None:
        for row in np.flatnonzero(lengths < FEWEST_SAMPLES):
            path = self.utterances.path(int(rows.indices[row]))
            left = "has speech of" if self.trims else "has"
            raise DatasetError(
                f"{path} {left} {lengths[row]} samples, and the speech encoder makes no frame of less than {FEWEST_SAMPLES}: "
                "take it out of the tree and the manifest"
            )

    def _texts(self, rows: Rows, num_samples: NDArray[np.int64], slices: Slices) -> list[str]:
        texts = self.utterances.texts
        bounds = zip(rows.indices.tolist(), slices.starts.tolist(), slices.lengths.tolist(), num_samples.tolist(), strict=True)
        return [cut_text(texts[index], start, length, whole) for index, start, length, whole in bounds]

    def _time_mask(self, rows: Rows, lengths: NDArray[np.int64], width: int) -> NDArray[np.bool_] | None:
        if not self.mask_time_prob or self.num_frames is None:
            return None
        frames = np.array([self.num_frames(length) for length in lengths.tolist()], dtype=np.int64)
        return time_mask(
            frames,
            self.num_frames(width),
            prob=self.mask_time_prob,
            seed=self.rule.seed,
            epoch=rows.epoch,
            indices=rows.indices,
        )


def padded(lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """Room for rows of these lengths, zeros behind the end of each."""
    audio = np.empty((len(lengths), int(lengths.max())), dtype=np.float32)
    for row, length in zip(audio, lengths, strict=True):
        row[length:] = 0.0
    return audio


def read_slice(path: Path, num_samples: int, start: int, out: NDArray[np.float32]) -> None:
    """Fill `out` with the file's samples from `start` on; `num_samples` is what the file is believed to hold."""
    try:
        with soundfile.SoundFile(path) as file:
            _check_format(path, file)
            if file.frames != num_samples:
                raise DatasetError(
                    f"{path} has {file.frames} samples, and dataset_manifest_path says {num_samples}: the manifest belongs to another tree "
                    "or an older one; write it again with seatrial prepare librispeech"
                )
            file.seek(start)
            filled = len(file.read(out=out))
    except (soundfile.SoundFileError, OSError) as error:
        raise DatasetError(unreadable(path, error)) from error
    if filled != len(out):
        raise DatasetError(unreadable(path, f"it ends at sample {start + filled} of {num_samples}"))


def read_trimmed(path: Path) -> NDArray[np.float32]:
    """The file's samples without the silence at both ends."""
    try:
        with soundfile.SoundFile(path) as file:
            _check_format(path, file)
            audio = file.read(dtype="float32")
    except (soundfile.SoundFileError, OSError) as error:
        raise DatasetError(unreadable(path, error)) from error
    first, behind = trim_bounds(audio)
    return audio[first:behind]


def _check_format(path: Path, file: soundfile.SoundFile) -> None:
    if file.samplerate == SAMPLE_RATE and file.channels == 1:
        return
    raise DatasetError(
        f"{path} has {file.channels} channels at {file.samplerate} Hz; expected one at {SAMPLE_RATE} Hz: "
        "prepare the tree with seatrial prepare librispeech --input-root … --output-root …"
    )


def normalise(row: NDArray[np.float32]) -> None:
    """Mean 0 and variance 1, in place; operation for operation what wav2vec2's feature extractor does, so that both round alike."""
    row -= row.mean()
    row /= np.sqrt(np.square(row).sum() / len(row) + VARIANCE_FLOOR)
