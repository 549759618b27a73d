"""Check a tree against its manifest. In: a tree with a manifest. Out: problems by file; nothing is written.

Every row's file is decoded fully. Checked are existence, length, sample rate and channels; the row's seconds; a transcript for its id in
its folder; and that no FLAC file lacks a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from seatrial_workloads.librispeech.pool import CrashedTask, Pool
from seatrial_workloads.librispeech.progress import progress
from seatrial_workloads.librispeech.tree import ManifestError, PrepareError, RejectedError, Row, is_inside_tree, read_manifest, scan_tree

TRANSCRIPTS = ".trans.txt"
# The manifest has six decimals.
SAME_S = 1e-6


@dataclass(frozen=True)
class CheckOne:
    """A worker's task: the problem of a row's file, or None."""

    root: Path
    sample_rate: int

    def __call__(self, row: Row) -> str | None:
        from seatrial_workloads.librispeech.audio import read_flac

        if not (self.root / row.rel_path).exists():
            return "is in the manifest but not on disk"
        try:
            audio, sample_rate = read_flac(self.root / row.rel_path)
        except RejectedError as error:
            return str(error)
        if sample_rate != self.sample_rate:
            return f"has {sample_rate} Hz; expected {self.sample_rate}"
        if audio.ndim != 1:
            return f"has {audio.shape[1]} channels; expected one"
        if len(audio) != row.num_samples:
            return f"has {len(audio)} samples; the manifest has {row.num_samples}"
        return None


def verify_tree(
    root: Path, manifest_path: Path, sample_rate: int, *, num_workers: int = 1, log_every: int = 500, quiet: bool = False
) -> tuple[list[str], int]:
    """Sorted problems as `path: problem`, and the number of rows."""
    rows = _rows(manifest_path)
    problems = [*_row_problems(rows, sample_rate), *_tree_problems(root, rows)]
    inside = [row for row in rows if is_inside_tree(row.rel_path)]
    with progress("checking", len(inside), log_every, quiet=quiet) as advance, Pool(CheckOne(root, sample_rate), num_workers) as pool:
        for row, outcome in pool.results(inside):
            problem = f"the process decoding it {outcome.reason}, twice" if isinstance(outcome, CrashedTask) else outcome
            if problem:
                problems.append(f"{row.rel_path}: {problem}")
            advance(f"{len(problems)} problems" if problems else "")
    return sorted(problems), len(rows)


def _rows(manifest_path: Path) -> list[Row]:
    try:
        rows = read_manifest(manifest_path)
    except ManifestError as error:
        raise PrepareError(str(error)) from error
    except OSError as error:
        raise PrepareError(f"the manifest {manifest_path} cannot be read ({error.strerror}): give --manifest-path") from error
    if not rows:
        raise PrepareError(f"the manifest {manifest_path} has no rows")
    return rows


def _row_problems(rows: list[Row], sample_rate: int) -> Iterator[str]:
    for rel_path, count in Counter(row.rel_path for row in rows).items():
        if count > 1:
            yield f"{rel_path}: has {count} rows in the manifest"
    for row in rows:
        if not is_inside_tree(row.rel_path):
            yield f"{row.rel_path}: is outside the tree"
        if abs(row.duration_s - row.num_samples / sample_rate) > SAME_S:
            yield f"{row.rel_path}: {row.num_samples} samples and {row.duration_s} s in the manifest do not agree"


def _tree_problems(root: Path, rows: list[Row]) -> Iterator[str]:
    """Missing transcripts, and files without a row."""
    found = scan_tree(root)
    listed = {row.rel_path for row in rows}
    ids_by_folder = _ids_by_folder(root, found.texts)
    for rel_path in listed:
        path = PurePosixPath(rel_path)
        if path.stem not in ids_by_folder.get(str(path.parent), set()):
            yield f"{rel_path}: no transcript for {path.stem} in its folder's {TRANSCRIPTS} files"
    for rel_path in found.flacs:
        if rel_path not in listed:
            yield f"{rel_path}: is on disk but not in the manifest"
    for rel_path, reason in found.refused.items():
        yield f"{rel_path!r}: {reason}"


def _ids_by_folder(root: Path, texts: list[str]) -> dict[str, set[str]]:
    """Folder → ids with a transcript."""
    ids: dict[str, set[str]] = {}
    for rel_path in texts:
        if rel_path.lower().endswith(TRANSCRIPTS):
            try:
                lines = (root / rel_path).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            split_lines = (line.split() for line in lines)
            ids.setdefault(str(PurePosixPath(rel_path).parent), set()).update(parts[0] for parts in split_lines if len(parts) > 1)
    return ids
