"""Which folder was written by the original scripts, and which of its files the translation rests on.

In: a folder. Out: whether it is one; its run folders; and a mark of every file that is read, so that a second look costs no more than
asking for their sizes and times.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from seatrial.collect.original.launcher_log import META
from seatrial.collect.original.manifest_rows import is_original_manifest
from seatrial.collect.original.manifests import manifests_of
from seatrial.collect.original.text_lines import BYTE_ORDER_MARK
from seatrial.files import open_file
from seatrial.paths import AttemptPaths, CampaignPaths, OriginalPaths, RunPaths

HEAD_BYTES = 64


def is_original(folder: Path) -> bool:
    """Whether the original driver wrote it: its manifest, or run folders as it leaves them, and no plan or attempt of ours."""
    ours = CampaignPaths(folder)
    if not folder.is_dir() or ours.plan.exists() or any(ours.plans.glob("*.json")) or ours.runs() or RunPaths(folder).attempts():
        return False
    return any(map(is_original_manifest, manifests_of(folder))) or any(map(_begins_with_meta, run_folders(folder)))


def run_folders(folder: Path) -> list[Path]:
    """Every folder in which a run left a log or samples, by name."""
    translated = OriginalPaths(folder).translated
    children = sorted(child for child in folder.iterdir() if child.is_dir() and child != translated)
    return [child for child in children if any(path.is_file() for path in _logs(AttemptPaths(child)))]


def source_marks(folder: Path) -> dict[str, str]:
    """Size and time of change of every file that is read, by its path in the folder."""
    paths = OriginalPaths(folder)
    files = [*manifests_of(folder), paths.summary_json, paths.host_telemetry]
    files += [path for run in run_folders(folder) for path in read_of_run(AttemptPaths(run))]
    marks = {}
    for path in files:
        with contextlib.suppress(OSError):
            found = path.stat()
            marks[str(path.relative_to(folder))] = f"{found.st_size}:{found.st_mtime_ns}"
    return marks


def read_of_run(run: AttemptPaths) -> Iterator[Path]:
    """The files of one run that are read."""
    yield from _logs(run)
    yield from (run.gpu_telemetry, run.host_telemetry, run.run_context)


def _logs(run: AttemptPaths) -> Iterator[Path]:
    yield from (run.launcher_log, run.train_log)


def _begins_with_meta(run: Path) -> bool:
    try:
        with open_file(AttemptPaths(run).launcher_log) as source:
            head = source.read(HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return False
    return head.removeprefix(BYTE_ORDER_MARK).startswith(META)
