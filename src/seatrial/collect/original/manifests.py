"""All manifests of one folder.

In: the folder. Out: `Manifests`: their rows, oldest first, and what to say of them. A manifest that the driver set aside because its
header had changed (`run_manifest.tsv.bak_<time>`) is read first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.collect.original.manifest_rows import NO_FILE, Manifest, Row, read_manifest
from seatrial.paths import OriginalPaths
from seatrial.records.caution import Caution
from seatrial.records.columns import MANIFEST_SEED
from seatrial.wording import MOST_NAMED, were


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """What a folder's manifests hold, or one that was named by itself."""

    path: Path
    """Of the one that is written now."""
    files: tuple[Manifest, ...] = ()
    """Oldest first; those that are not there are not among them."""

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for file in self.files for row in file.rows)

    @property
    def num_torn(self) -> int:
        return sum(file.num_torn for file in self.files)

    @property
    def problem(self) -> str:
        """Why the one that is written now is of no use; empty where it is, and where others stand in for it."""
        return self.files[-1].problem if self.files else NO_FILE

    @property
    def set_aside(self) -> tuple[Manifest, ...]:
        return tuple(file for file in self.files if file.path != self.path)

    def has_column(self, name: str) -> bool:
        return any(name in columns for file in self.files for columns in file.headers or (MANIFEST_SEED,))

    @property
    def cautions(self) -> tuple[Caution, ...]:
        return tuple(caution for file in self.files for caution in _cautions(file))


def manifests_of(folder: Path) -> list[Path]:
    """Every manifest there is, those that were set aside first, by the time in their names."""
    paths = OriginalPaths(folder)
    return [path for path in (*paths.set_aside_manifests(), paths.manifest) if path.is_file()]


def read_manifests(folder: Path) -> Manifests:
    """All of a folder."""
    return Manifests(path=OriginalPaths(folder).manifest, files=tuple(map(read_manifest, manifests_of(folder))))


def read_one_manifest(path: Path) -> Manifests:
    """The one that was named, and no other."""
    return Manifests(path=path, files=(read_manifest(path),))


def _cautions(file: Manifest) -> Iterator[Caution]:
    name = file.path.name
    if file.problem:
        yield _caution(f"{name} cannot be used ({file.problem}): runs are known by their folders alone")
        return
    if file.num_torn:
        why = "torn, as when a driver is killed or a disk fails, or without the name of a run"
        yield _caution(f"In {name} {were(file.num_torn, 'row')} passed over, of {len(file.rows) + file.num_torn}: {why}", file.num_torn)
    if not file.headers:
        yield _caution(f"{name} has lost its header; its rows were read by the order of the columns that the driver writes")
        return
    lacking = [column for column in MANIFEST_SEED if not all(column in columns for columns in file.headers)]
    if lacking:
        named = f"{', '.join(lacking[:MOST_NAMED])}{' …' if len(lacking) > MOST_NAMED else ''}"
        yield _caution(
            f"{name} is of another version of the driver: {len(lacking)} of its {len(MANIFEST_SEED)} columns are not there ({named}); "
            "what the logs say of them was taken instead"
        )


def _caution(text: str, count: int | None = None) -> Caution:
    return Caution(kind="original_manifest", text=f"{text}.", numbers={} if count is None else {"rows": count})
