"""Utterances of a prepared LibriSpeech tree: audio files and transcripts, packed in memory that forked workers share."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.tree import SAMPLE_RATE, ManifestError, is_inside_tree, read_manifest


class PackedTexts:
    """Texts by index, in one bytes object."""

    def __init__(self, texts: Iterable[str]) -> None:
        encoded = [text.encode() for text in texts]
        self._bytes = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        return self._bytes[self._ends[index] : self._ends[index + 1]].decode()


SPLITS = {
    "train": ("train-clean-100", "train-clean-360", "train-other-500"),
    "validation": ("dev-clean", "dev-other"),
    "test": ("test-clean", "test-other"),
}
REMEDY = "for a small set without a download: seatrial prepare librispeech --synthetic 200 --output-root data/synthetic"


class DatasetError(StartupError):
    """The data on disk does not match the settings."""


@dataclass(frozen=True, kw_only=True)
class Utterances:
    """Files and their transcripts. Compact, since every loader worker holds it."""

    root: Path
    split_set: str
    paths: PackedTexts
    """Relative to `root`."""
    texts: PackedTexts
    num_samples: NDArray[np.int64] | None
    """None where unknown (see `with_lengths`)."""
    num_without_text: int
    """Files skipped for lack of a transcript."""

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, index: int) -> Path:
        return self.root / self.paths[index]

    def summary(self) -> str:
        """One line for the log."""
        left_out = f"; {self.num_without_text:,} files without a transcript skipped" if self.num_without_text else ""
        return f"{self.split_set}: {len(self):,} utterances in {self.root}{left_out}"

    def with_lengths(self) -> Utterances:
        """The same with every length known, read from the files' headers."""
        if self.num_samples is not None:
            return self
        lengths = (header_samples(self.path(index)) for index in range(len(self)))
        return dataclasses.replace(self, num_samples=np.fromiter(lengths, dtype=np.int64, count=len(self)))


def find_utterances(settings: Settings, split_set: str) -> Utterances:
    """The utterances of `train`, `validation` or `test`."""
    root = Path(settings.dataset_root)
    if not root.is_dir():
        raise DatasetError(
            f"dataset_root {root} does not exist; expected a folder with SPLIT/SPEAKER/CHAPTER/*.flac and transcripts; {REMEDY}"
        )
    if settings.dataset_manifest_path is None:
        found: Iterable[tuple[str, int | None]] = ((path, None) for path in sorted(_scan_tree(root, split_set)))
    else:
        found = sorted(_read_listed(Path(settings.dataset_manifest_path), split_set))
    return _with_texts(settings, split_set, found)


def header_samples(path: Path) -> int:
    """Number of samples by the file's header."""
    with open_audio(path) as file:
        return int(file.frames)


@contextlib.contextmanager
def open_audio(path: Path) -> Iterator[soundfile.SoundFile]:
    """The open file, one channel at the sample rate of the encoder; a DatasetError where it cannot be read."""
    try:
        with soundfile.SoundFile(path) as file:
            if (file.channels, file.samplerate) != (1, SAMPLE_RATE):
                raise DatasetError(
                    f"{path} has {file.channels} channels at {file.samplerate} Hz; expected one at {SAMPLE_RATE} Hz: "
                    "prepare the tree with seatrial prepare librispeech --input-root … --output-root …"
                )
            yield file
    except (soundfile.SoundFileError, OSError) as error:
        raise DatasetError(unreadable(path, error)) from error


def unreadable(path: Path, error: object) -> str:
    return (
        f"{path} cannot be read ({error}); training skips no data silently: prepare the tree again (seatrial prepare librispeech "
        "--overwrite), which lists bad files in rejected.tsv, and check it with --verify"
    )


def _scan_tree(root: Path, split_set: str) -> Iterator[str]:
    """Relative paths of all FLAC files in the splits."""
    for split in SPLITS[split_set]:
        for folder, _, names in os.walk(root / split):
            relative = Path(folder).relative_to(root).as_posix()
            yield from (f"{relative}/{name}" for name in names if name.endswith(".flac") and not name.startswith("."))


def _read_listed(manifest: Path, split_set: str) -> Iterator[tuple[str, int]]:
    """Relative path and length of each row in the splits."""
    if not manifest.is_file():
        raise DatasetError(
            f"dataset_manifest_path {manifest} does not exist; expected the manifest.tsv that seatrial prepare librispeech writes, "
            f"or null to scan dataset_root; {REMEDY}"
        )
    try:
        rows = read_manifest(manifest)
    except ManifestError as error:
        raise DatasetError(f"dataset_manifest_path cannot be used: {error}; write it again with seatrial prepare librispeech") from error
    seen: set[str] = set()
    for number, row in enumerate(rows, start=2):
        if row.num_samples < 1 or row.rel_path in seen or not is_inside_tree(row.rel_path):
            raise DatasetError(
                f"{manifest}:{number}: '{row.rel_path}' with {row.num_samples} samples; expected a unique path below dataset_root "
                "and at least one sample; write it again with seatrial prepare librispeech"
            )
        seen.add(row.rel_path)
        if row.rel_path.partition("/")[0] in SPLITS[split_set]:
            yield row.rel_path, row.num_samples


def _with_texts(settings: Settings, split_set: str, found: Iterable[tuple[str, int | None]]) -> Utterances:
    root = Path(settings.dataset_root)
    # Sorted files of one chapter follow each other.
    read_transcripts = functools.lru_cache(maxsize=1)(_read_transcripts)
    paths, texts, lengths, num_without_text = [], [], [], 0
    for path, num_samples in found:
        folder, _, name = path.rpartition("/")
        file_id = name.removesuffix(".flac")
        text = read_transcripts(root / folder / f"{file_id.rpartition('-')[0]}.trans.txt").get(file_id)
        if text is None:
            num_without_text += 1
            continue
        paths.append(path)
        texts.append(text)
        lengths.append(num_samples)
    if not paths:
        raise DatasetError(_describe_empty(settings, split_set, num_without_text))
    if not (root / paths[0]).is_file():
        raise DatasetError(
            f"{settings.dataset_manifest_path} lists {paths[0]}, which is not below dataset_root {root}: they belong to different trees; "
            "set dataset_root to the folder that was prepared"
        )
    return Utterances(
        root=root,
        split_set=split_set,
        paths=PackedTexts(paths),
        texts=PackedTexts(texts),
        num_samples=None if settings.dataset_manifest_path is None else np.array(lengths, dtype=np.int64),
        num_without_text=num_without_text,
    )


def _describe_empty(settings: Settings, split_set: str, num_without_text: int) -> str:
    """Why there are no utterances, and a nearby folder that has some."""
    root = Path(settings.dataset_root)
    expected = " ".join(SPLITS[split_set])
    where = f"dataset_root {root}"
    if settings.dataset_manifest_path is not None:
        where = f"dataset_manifest_path {settings.dataset_manifest_path} with {where}"
    if num_without_text:
        return (
            f"{where}: none of the {num_without_text:,} {split_set} files has a transcript; expected SPEAKER-CHAPTER.trans.txt beside the "
            f"FLAC files, with a line for each; {REMEDY}"
        )
    below = root / "LibriSpeech"
    near = f"; {below} has them: set dataset_root to it" if any((below / split).is_dir() for split in SPLITS[split_set]) else ""
    return f"{where} has no {split_set} utterance; expected FLAC files below {expected}{near}; {REMEDY}"


def _read_transcripts(path: Path) -> dict[str, str]:
    """File id → text; empty if the file does not exist."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"the transcript {path} cannot be read ({error}): copy it again from the original tree") from error
    return {file_id: text.strip() for file_id, _, text in (line.partition(" ") for line in lines)}
