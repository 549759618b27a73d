"""What there is to train on. In: a LibriSpeech tree, with or without its manifest. Out: Utterances of a split set, sorted by path.

    train        train-clean-100 train-clean-360 train-other-500       those of them that are there
    validation   dev-clean dev-other
    test         test-clean test-other

With a manifest nothing is looked for on disk but the transcripts, and the lengths are known. Without one the tree is scanned, and a length
is read from a file's header where somebody needs it. Both ways give the same utterances in the same order.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import soundfile
from numpy.typing import NDArray

from seatrial_workloads.common.startup_error import StartupError
from seatrial_workloads.contrastive.loading.packed import PackedTexts
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.manifest import ManifestError, read_manifest

SPLITS = {
    "train": ("train-clean-100", "train-clean-360", "train-other-500"),
    "validation": ("dev-clean", "dev-other"),
    "test": ("test-clean", "test-other"),
}
REMEDY = "for a small set without a download: seatrial prepare librispeech --synthetic 200 --output-root data/synthetic"


class DatasetError(StartupError):
    """The data on disk is not what the settings say."""


@dataclass(frozen=True, kw_only=True)
class Utterances:
    """Files and what is said in them. Compact: every loader worker has this in its memory."""

    root: Path
    split_set: str
    paths: PackedTexts
    """Relative to `root`."""
    texts: PackedTexts
    num_samples: NDArray[np.int64] | None
    """None where they were not needed so far (see `with_lengths`)."""
    num_without_text: int
    """Files left out since no transcript has them."""

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, index: int) -> Path:
        return self.root / self.paths[index]

    def described(self) -> str:
        """For people: how many there are, and what was left out."""
        left_out = f"; {self.num_without_text:,} files without a transcript left out" if self.num_without_text else ""
        return f"{self.split_set}: {len(self):,} utterances in {self.root}{left_out}"

    def with_lengths(self) -> Utterances:
        """The same with every length known; reads the header of each file, and no more of it."""
        if self.num_samples is not None:
            return self
        lengths = (header_samples(self.path(index)) for index in range(len(self)))
        return dataclasses.replace(self, num_samples=np.fromiter(lengths, dtype=np.int64, count=len(self)))


def find_utterances(settings: Settings, split_set: str) -> Utterances:
    """The utterances of `train`, `validation` or `test`."""
    root = Path(settings.dataset_root)
    _check_root(root)
    if settings.dataset_manifest_path is None:
        found: Iterable[tuple[str, int | None]] = ((path, None) for path in sorted(_scanned(root, split_set)))
    else:
        found = sorted(_listed(root, Path(settings.dataset_manifest_path), split_set))
    return _with_texts(settings, split_set, found)


def header_samples(path: Path) -> int:
    """Length of a file by its header."""
    try:
        with soundfile.SoundFile(path) as file:
            return int(file.frames)
    except (soundfile.SoundFileError, OSError) as error:
        raise DatasetError(unreadable(path, error)) from error


def unreadable(path: Path, error: object) -> str:
    return (
        f"{path} cannot be read ({error}); training leaves no data out by itself: make it again (seatrial prepare librispeech "
        "--overwrite), which lists what cannot be made in rejected.tsv, and check the tree with --verify"
    )


def _check_root(root: Path) -> None:
    if root.is_dir():
        return
    raise DatasetError(
        f"dataset_root {root} is not there; expected a folder with SPLIT/SPEAKER/CHAPTER/*.flac and transcripts; {REMEDY.format(root=root)}"
    )


def _scanned(root: Path, split_set: str) -> Iterator[str]:
    """Relative paths of all FLAC files of the splits."""
    for split in SPLITS[split_set]:
        for folder, _, names in os.walk(root / split):
            relative = Path(folder).relative_to(root).as_posix()
            yield from (f"{relative}/{name}" for name in names if name.endswith(".flac") and not name.startswith("."))


def _listed(root: Path, manifest: Path, split_set: str) -> Iterator[tuple[str, int]]:
    """Relative path and length of each row of the splits."""
    if not manifest.is_file():
        raise DatasetError(
            f"dataset_manifest_path {manifest} is not there; expected the manifest.tsv that seatrial prepare librispeech writes, "
            f"or null to scan dataset_root; {REMEDY.format(root=root)}"
        )
    try:
        rows = read_manifest(manifest)
    except ManifestError as error:
        raise DatasetError(f"dataset_manifest_path cannot be used: {error}; write it again with seatrial prepare librispeech") from error
    seen: set[str] = set()
    for number, row in enumerate(rows, start=2):
        if row.num_samples < 1 or row.rel_path in seen or not _is_below_root(row.rel_path):
            raise DatasetError(
                f"{manifest}:{number}: '{row.rel_path}' with {row.num_samples} samples; expected a path below dataset_root that no row "
                "before has, and at least one sample; write it again with seatrial prepare librispeech"
            )
        seen.add(row.rel_path)
        if row.rel_path.partition("/")[0] in SPLITS[split_set]:
            yield row.rel_path, row.num_samples


def _is_below_root(rel_path: str) -> bool:
    path = PurePosixPath(rel_path)
    return bool(path.name) and not path.is_absolute() and ".." not in path.parts


def _with_texts(settings: Settings, split_set: str, found: Iterable[tuple[str, int | None]]) -> Utterances:
    root = Path(settings.dataset_root)
    transcripts = _Transcripts(root)
    paths, texts, lengths, num_without_text = [], [], [], 0
    for path, num_samples in found:
        text = transcripts.of(path)
        if text is None:
            num_without_text += 1
            continue
        paths.append(path)
        texts.append(text)
        lengths.append(num_samples)
    if not paths:
        raise DatasetError(_nothing_found(settings, split_set, num_without_text))
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


def _nothing_found(settings: Settings, split_set: str, num_without_text: int) -> str:
    """Why there is nothing to train on, and the nearest folder that has something."""
    root = Path(settings.dataset_root)
    expected = " ".join(SPLITS[split_set])
    where = f"dataset_root {root}"
    if settings.dataset_manifest_path is not None:
        where = f"dataset_manifest_path {settings.dataset_manifest_path} with {where}"
    if num_without_text:
        return (
            f"{where}: none of the {num_without_text:,} {split_set} files has a transcript; expected SPEAKER-CHAPTER.trans.txt beside the "
            f"FLAC files, with a line for each; {REMEDY.format(root=root)}"
        )
    below = root / "LibriSpeech"
    near = f"; {below} has them: set dataset_root to it" if any((below / split).is_dir() for split in SPLITS[split_set]) else ""
    return f"{where} has no {split_set} utterance; expected FLAC files below {expected}{near}; {REMEDY.format(root=root)}"


class _Transcripts:
    """Texts by file; keeps one chapter at a time, which is enough for files that come sorted."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._chapter: str | None = None
        self._texts: dict[str, str] = {}

    def of(self, rel_path: str) -> str | None:
        folder, _, name = rel_path.rpartition("/")
        file_id = name.removesuffix(".flac")
        chapter = f"{folder}/{file_id.rpartition('-')[0]}.trans.txt"
        if chapter != self._chapter:
            self._chapter, self._texts = chapter, _read_transcripts(self._root / chapter)
        return self._texts.get(file_id)


def _read_transcripts(path: Path) -> dict[str, str]:
    """File id → text; nothing where there is no such file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"the transcript {path} cannot be read ({error}): copy it again from the original tree") from error
    return {file_id: text.strip() for file_id, _, text in (line.partition(" ") for line in lines)}
