"""The manifest: one row for each FLAC file of a tree. In and out: `manifest.tsv`.

    rel_path	num_samples	duration_sec
    dev-clean/84/121123/84-121123-0000.flac	83840	5.240000

Sorted by path, with `/` between folders; written last, so a tree that has one is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from seatrial.files import BY_UMASK, write_text

SAMPLE_RATE = 16_000
"""Of every file of LibriSpeech, in Hz."""
HEADER = "rel_path\tnum_samples\tduration_sec"


class ManifestError(ValueError):
    """The file is there and is no manifest."""


class Row(NamedTuple):
    rel_path: str
    num_samples: int
    duration_s: float


def write_manifest(path: Path, num_samples: Mapping[str, int], sample_rate: int) -> None:
    """Write the manifest of these files (path → number of samples), atomically."""
    rows = [f"{rel_path}\t{count}\t{count / sample_rate:.6f}" for rel_path, count in sorted(num_samples.items())]
    write_text(path, "".join(f"{line}\n" for line in (HEADER, *rows)), BY_UMASK)


def read_manifest(path: Path) -> list[Row]:
    """Its rows; a ManifestError that names the line when one cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is no manifest: {error}") from error
    if not lines or lines[0] != HEADER:
        found = repr(lines[0][:80]) if lines else "nothing"
        raise ManifestError(f"{path} is no manifest: its first line is {found}; expected {HEADER!r}")
    return [_row(path, number, line) for number, line in enumerate(lines[1:], start=2)]


def _row(path: Path, number: int, line: str) -> Row:
    try:
        rel_path, num_samples, duration_s = line.split("\t")
        return Row(rel_path, int(num_samples), float(duration_s))
    except ValueError as error:
        raise ManifestError(f"{path}:{number}: {line[:80]!r} is no row; expected a path, a number of samples and seconds") from error
