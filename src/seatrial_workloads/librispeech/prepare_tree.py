"""Preparation of a whole tree: resampled and trimmed copies, transcripts, manifest. After an interruption it resumes and writes the same
bytes as an uninterrupted run.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from seatrial.core.files import BY_UMASK, atomic_write, remove_partial_files, size_bytes, write_text
from seatrial_workloads.librispeech.pool import CrashedTask, Pool
from seatrial_workloads.librispeech.progress import progress
from seatrial_workloads.librispeech.tree import (
    Conversion,
    PrepareError,
    Rejected,
    RejectedError,
    TreeFiles,
    TreePaths,
    WriteFailed,
    Written,
    describe_differences,
    locked_folder,
    read_record,
    scan_tree,
    write_error,
    write_manifest,
    write_record,
)

HEADER = "rel_path\tnum_samples\tsize_bytes\tsource_size_bytes\tsource_mtime_ns"
FLUSH_EVERY_S = 2.0


class Source(NamedTuple):
    """Size and mtime, to detect a changed source."""

    size_bytes: int
    mtime_ns: int


class Output(NamedTuple):
    num_samples: int
    size_bytes: int
    source: Source


def stat_source(path: Path) -> Source:
    """Raises OSError for a missing file or one that could block, such as a pipe."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return Source(found.st_size, found.st_mtime_ns)


def read_outputs(path: Path) -> dict[str, Output]:
    """Outputs by path; truncated lines are ignored."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return {}
    outputs = {}
    for line in lines[1:]:
        fields = line.split("\t")
        if len(fields) == 5 and all(number.isdecimal() for number in fields[1:]):
            num_samples, size_bytes, *source = map(int, fields[1:])
            outputs[fields[0]] = Output(num_samples, size_bytes, Source(*source))
    return outputs


def write_outputs(path: Path, outputs: Mapping[str, Output]) -> None:
    """Write all of them, sorted, atomically."""
    lines = (HEADER, *(_line(name, output) for name, output in sorted(outputs.items())))
    write_text(path, "".join(f"{line}\n" for line in lines), BY_UMASK)


def _line(rel_path: str, output: Output) -> str:
    return "\t".join(map(str, (rel_path, output.num_samples, output.size_bytes, *output.source)))


class Appender:
    """Appends lines from its own thread, since syncing may take seconds."""

    def __init__(self, path: Path, flush_every_s: float = FLUSH_EVERY_S) -> None:
        self._path, self._flush_every_s = path, flush_every_s
        # Filled by the main thread, emptied by the appender's.
        self._lines: deque[str] = deque()
        self._is_closed = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="prepared.tsv", daemon=True)

    def __enter__(self) -> Appender:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_closed.set()
        self._thread.join()
        if self._error and kind is None:
            raise self._error

    def add(self, rel_path: str, output: Output) -> None:
        """Queue its line; raises the OSError of an earlier one."""
        if self._error:
            raise self._error
        self._lines.append(_line(rel_path, output))

    def _run(self) -> None:
        try:
            while not self._is_closed.wait(self._flush_every_s):
                self._flush()
            self._flush()
        except OSError as error:
            self._error = error

    def _flush(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if not lines:
            return
        with open(self._path, "a+b") as file:
            sync_filesystem(file.fileno())
            end = file.seek(0, os.SEEK_END)
            # After a truncated line, a line break keeps the next one separate.
            head = f"{HEADER}\n" if end == 0 else "" if os.pread(file.fileno(), 1, end - 1) == b"\n" else "\n"
            file.write("".join((head, *(f"{line}\n" for line in lines))).encode())


def sync_filesystem(handle: int) -> None:
    """syncfs the file system of this open file: one call for all files instead of an fsync for each."""
    syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
    if syncfs is None or syncfs(handle) != 0:
        os.sync()


REJECTED_HEADER = "rel_path\treason"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Arguments of `prepare_tree`."""

    input_root: Path
    output_root: Path
    manifest_path: Path
    conversion: Conversion
    num_workers: int = 1
    overwrite: bool = False
    log_every: int = 500
    quiet: bool = False


@dataclass(kw_only=True)
class PrepareProgress:
    """Progress: every file is in `outputs`, in `rejected`, or still to do."""

    num_files: int = 0
    outputs: dict[str, Output] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    num_converted: int = 0
    num_strays: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True)
class ConvertOne:
    """A worker's task: convert one file. Only workers import the decoder."""

    input_root: Path
    output_root: Path
    conversion: Conversion

    def __call__(self, rel_path: str) -> Written | Rejected | WriteFailed:
        from seatrial_workloads.librispeech.audio import convert

        try:
            return convert(self.input_root / rel_path, self.output_root / rel_path, self.conversion)
        except RejectedError as error:
            return Rejected(str(error))
        except OSError as error:
            return WriteFailed(error.errno, str(error))


def prepare_tree(request: Request, done: PrepareProgress) -> None:
    """Prepare what is left, updating `done`; raises PrepareError."""
    began_m = time.monotonic()
    paths = TreePaths(request.output_root)
    with locked_folder(request.output_root):
        found = scan_tree(request.input_root)
        if not found.flacs:
            reasons = "".join(f"; {name}: {reason}" for name, reason in list(found.refused.items())[:1])
            raise PrepareError(f"--input-root {request.input_root} has no usable .flac file{reasons}; expected a LibriSpeech tree")
        done.num_files = len(found.flacs) + len(found.refused)
        done.rejected.update(found.refused)
        _check_record(request, paths)
        remove_partial_files(request.output_root, foreign=False)
        _create_folders(request, found)
        _copy_texts(request, found, done)
        to_do = _to_do(request, found, paths, done)
        if to_do:
            # The manifest marks a complete tree, so it is removed until the end.
            request.manifest_path.unlink(missing_ok=True)
        convert_all(request, to_do, paths, done)
        _write_tables(request, paths, done)
    done.duration_s = time.monotonic() - began_m


def _check_record(request: Request, paths: TreePaths) -> None:
    """Compare with the settings of the files in prepared.tsv: with other settings all of them are prepared again."""
    wanted, existing = request.conversion.record, read_record(paths.record)
    if existing is not None and existing.get("made_by") != "prepare":
        raise PrepareError(f"{paths.root} is a synthetic tree: choose another --output-root")
    if existing is not None and existing != wanted and not request.overwrite:
        raise PrepareError(
            f"{paths.root} was prepared with other settings ({describe_differences(existing, wanted)}): "
            "use --overwrite to prepare every file again, or choose another --output-root"
        )
    if existing != wanted or request.overwrite:
        paths.prepared.unlink(missing_ok=True)
        write_record(paths.record, wanted)


def _create_folders(request: Request, found: TreeFiles) -> None:
    inside = request.input_root.resolve()
    for folder in sorted({rel_path.rpartition("/")[0] for rel_path in (*found.flacs, *found.texts)}):
        target = request.output_root / folder
        target.mkdir(parents=True, exist_ok=True)
        if target.resolve().is_relative_to(inside):
            raise PrepareError(f"{target} is a link into --input-root, whose files would be overwritten: remove it")


def _copy_texts(request: Request, found: TreeFiles, done: PrepareProgress) -> None:
    for rel_path in found.texts:
        try:
            stat_source(request.input_root / rel_path)
            text = (request.input_root / rel_path).read_bytes()
        except OSError as error:
            done.rejected[rel_path] = f"cannot be read: {error.strerror}"
            continue
        with atomic_write(request.output_root / rel_path, BY_UMASK, fsync=False) as part:
            part.write_bytes(text)


def _to_do(request: Request, found: TreeFiles, paths: TreePaths, done: PrepareProgress) -> dict[str, Source]:
    """Sources without a complete output; the others go to `done`."""
    known = read_outputs(paths.prepared)
    to_do = {}
    for rel_path in found.flacs:
        try:
            source = stat_source(request.input_root / rel_path)
        except OSError as error:
            done.rejected[rel_path] = f"cannot be read: {error.strerror}"
            continue
        output = known.get(rel_path)
        if output is not None and output.source == source and size_bytes(request.output_root / rel_path) == output.size_bytes:
            done.outputs[rel_path] = output
        else:
            to_do[rel_path] = source
    return to_do


def convert_all(request: Request, to_do: Mapping[str, Source], paths: TreePaths, done: PrepareProgress) -> None:
    act = ConvertOne(request.input_root, request.output_root, request.conversion)
    with (
        progress("preparing", len(to_do), request.log_every, quiet=request.quiet) as advance,
        Appender(paths.prepared) as lines,
        Pool(act, request.num_workers) as pool,
    ):
        for rel_path, outcome in pool.results(list(to_do)):
            match outcome:
                case Written():
                    done.outputs[rel_path] = Output(*outcome, to_do[rel_path])
                    done.num_converted += 1
                    lines.add(rel_path, done.outputs[rel_path])
                case Rejected(reason):
                    done.rejected[rel_path] = reason
                case CrashedTask(how):
                    done.rejected[rel_path] = f"the process preparing it {how}, twice"
                case WriteFailed(error_number, what):
                    raise write_error(request.output_root, error_number, what)
            advance(f"{len(done.rejected)} rejected" if done.rejected else "")


def _write_tables(request: Request, paths: TreePaths, done: PrepareProgress) -> None:
    """Remove outputs of rejected files and partial files of dead workers, then write the tables, the manifest last."""
    remove_partial_files(request.output_root, foreign=False)
    for rel_path in done.rejected:
        with contextlib.suppress(IsADirectoryError, NotADirectoryError, FileNotFoundError):
            (request.output_root / rel_path).unlink()
    write_outputs(paths.prepared, done.outputs)
    rows = (f"{_escape(rel_path)}\t{_escape(reason)}" for rel_path, reason in sorted(done.rejected.items()))
    write_text(paths.rejected, "".join(f"{row}\n" for row in (REJECTED_HEADER, *rows)), BY_UMASK)
    with open(paths.prepared, "rb") as file:
        sync_filesystem(file.fileno())
    num_samples = {rel_path: output.num_samples for rel_path, output in done.outputs.items()}
    request.manifest_path.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(request.manifest_path, num_samples, request.conversion.target_sr)
    done.num_strays = len(set(scan_tree(request.output_root).flacs) - done.outputs.keys())


def _escape(text: str) -> str:
    """Without tabs and line breaks, which would end a field."""
    escaped = text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return escaped.encode("utf-8", errors="backslashreplace").decode()
