"""The dataset: audio slices of a prepared tree with token ids and time masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from seatrial_workloads.contrastive.loading.batch import Batch
from seatrial_workloads.contrastive.loading.sampling import (
    MIN_SAMPLES,
    Rows,
    SliceRule,
    Slices,
    Stream,
    cut_text,
    random_words,
    uniforms,
)
from seatrial_workloads.contrastive.loading.tokens import tokenise
from seatrial_workloads.contrastive.loading.utterances import DatasetError, Utterances, header_samples, open_audio, unreadable
from seatrial_workloads.librispeech.audio import trim_bounds

SPAN_FRAMES = 10
MIN_SPANS = 2


def time_mask(
    num_frames: NDArray[np.int64], width: int, *, prob: float, seed: int, epoch: int, indices: NDArray[np.integer]
) -> NDArray[np.bool_]:
    """(rows, width): True for masked frames; padding beyond `num_frames` of a row is never masked."""
    # Randomly rounded; at most as many as fit side by side.
    num_spans = (prob * num_frames / SPAN_FRAMES + uniforms(Stream.NUM_SPANS, seed, epoch, indices)).astype(np.int64)
    num_spans = np.minimum(np.maximum(num_spans, MIN_SPANS), num_frames // SPAN_FRAMES)
    places = np.arange(width)
    keys = random_words(Stream.SPAN_STARTS, seed, epoch, indices[:, None], places)
    # The places with the smallest keys are the starts: a draw without replacement. No full span fits at the last few frames.
    keys[places > (num_frames - SPAN_FRAMES)[:, None]] = np.iinfo(np.uint64).max
    most = int(num_spans.max(initial=0))
    first_keys = np.argsort(keys, axis=1, kind="stable")[:, :most]
    is_start = np.zeros(keys.shape, dtype=bool)
    np.put_along_axis(is_start, first_keys, np.arange(most) < num_spans[:, None], axis=1)
    mask = is_start.copy()
    for offset in range(1, SPAN_FRAMES):
        mask[:, offset:] |= is_start[:, :-offset]
    return mask


# As in wav2vec2's feature extractor: avoids division by zero for silence.
VARIANCE_FLOOR = 1e-7


@dataclass(frozen=True, kw_only=True)
class SpeechTextBatches(Dataset[Batch]):
    """Rows → Batch; a pure function of the rows."""

    utterances: Utterances
    rule: SliceRule
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    trims: bool = False
    """Trim silence at both ends before slicing."""
    mask_time_prob: float = 0.0
    num_frames: Callable[[int], int] | None = None
    """Samples → frames of the speech encoder; needed for a time mask."""

    def __getitem__(self, rows: Rows) -> Batch:
        num_samples, slices, audio = self._audio(rows)
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
        """Utterance lengths, slices and their audio. Only the slices are decoded, unless silence is trimmed before slicing."""
        paths = [self.utterances.path(int(index)) for index in rows.indices]
        trimmed = [read_trimmed(path) for path in paths] if self.trims else None
        if trimmed is not None:
            num_samples = np.array([len(samples) for samples in trimmed], dtype=np.int64)
        elif self.utterances.num_samples is not None:
            num_samples = self.utterances.num_samples[rows.indices]
        else:
            num_samples = np.array([header_samples(path) for path in paths], dtype=np.int64)
        slices = self.rule.cut(rows.epoch, rows.indices, num_samples)
        self._check_lengths(rows, slices.lengths)
        audio = padded(slices.lengths)
        for number, (start, length) in enumerate(zip(slices.starts.tolist(), slices.lengths.tolist(), strict=True)):
            row = audio[number, :length]
            if trimmed is None:
                read_slice(paths[number], int(num_samples[number]), start, row)
            else:
                row[:] = trimmed[number][start : start + length]
            normalise(row)
        return num_samples, slices, audio

    def _check_lengths(self, rows: Rows, lengths: NDArray[np.int64]) -> None:
        for row in np.flatnonzero(lengths < MIN_SAMPLES):
            path = self.utterances.path(int(rows.indices[row]))
            left = "has speech of" if self.trims else "has"
            raise DatasetError(
                f"{path} {left} {lengths[row]} samples, and the speech encoder needs at least {MIN_SAMPLES}: "
                "remove it from the tree and the manifest"
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
    """Uninitialised rows of these lengths with zero padding."""
    audio = np.empty((len(lengths), int(lengths.max())), dtype=np.float32)
    for row, length in zip(audio, lengths, strict=True):
        row[length:] = 0.0
    return audio


def read_slice(path: Path, num_samples: int, start: int, out: NDArray[np.float32]) -> None:
    """Fill `out` with the file's samples from `start` on; `num_samples` is its expected length."""
    with open_audio(path) as file:
        if file.frames != num_samples:
            raise DatasetError(
                f"{path} has {file.frames} samples, and dataset_manifest_path lists {num_samples}: the manifest is outdated or of "
                "another tree; write it again with seatrial prepare librispeech"
            )
        file.seek(start)
        filled = len(file.read(out=out))
    if filled != len(out):
        raise DatasetError(unreadable(path, f"it ends at sample {start + filled} of {num_samples}"))


def read_trimmed(path: Path) -> NDArray[np.float32]:
    """The file's samples, trimmed of silence at both ends."""
    with open_audio(path) as file:
        audio = file.read(dtype="float32")
    start, end = trim_bounds(audio)
    return audio[start:end]


def normalise(row: NDArray[np.float32]) -> None:
    """Mean 0 and variance 1, in place; the same operations as wav2vec2's feature extractor, so that both round the same."""
    row -= row.mean()
    row /= np.sqrt(np.square(row).sum() / len(row) + VARIANCE_FLOOR)
