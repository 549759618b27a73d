"""A whole tree prepared. In: a tree of FLAC files and transcripts. Out: another, with a manifest and what else `TreePaths` names.

Run again after any end, it does what is left and leaves the same bytes as if it had never ended.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.files import BY_UMASK, sweep_parts, write_text, written_aside
from seatrial_workloads.librispeech.finished_outputs import Appender, Output, Source, keep_all, read_outputs, source_of, write_outputs
from seatrial_workloads.librispeech.manifest import write_manifest
from seatrial_workloads.librispeech.outcomes import Rejected, RejectedError, Unwritten, Written
from seatrial_workloads.librispeech.output_folder import owned_folder, unwritten
from seatrial_workloads.librispeech.pool import Died, Pool
from seatrial_workloads.librispeech.progress import progress
from seatrial_workloads.librispeech.record import Conversion, PrepareError, differences, read_record, write_record
from seatrial_workloads.librispeech.tree import Found, TreePaths, look_through

REJECTED_HEADER = "rel_path\treason"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for."""

    input_root: Path
    output_root: Path
    manifest_path: Path
    conversion: Conversion
    num_workers: int = 1
    overwrite: bool = False
    log_every: int = 500
    quiet: bool = False


@dataclass(kw_only=True)
class Account:
    """How far it has come: every file is in one of the two, or still to do."""

    num_files: int = 0
    outputs: dict[str, Output] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    num_made: int = 0
    num_strays: int = 0
    took_s: float = 0.0


@dataclass(frozen=True)
class ConvertOne:
    """What a worker does with a path; it alone imports what decodes."""

    input_root: Path
    output_root: Path
    conversion: Conversion

    def __call__(self, rel_path: str) -> Written | Rejected | Unwritten:
        from seatrial_workloads.librispeech.convert import convert

        try:
            return convert(self.input_root / rel_path, self.output_root / rel_path, self.conversion)
        except RejectedError as error:
            return Rejected(str(error))
        except OSError as error:
            return Unwritten(error.errno, str(error))


def prepare_tree(request: Request, account: Account) -> None:
    """Do all that is left to do, keeping account; a PrepareError when it cannot be done."""
    began_m = time.monotonic()
    paths = TreePaths(request.output_root)
    with owned_folder(request.output_root):
        found = _sources(request)
        account.num_files = len(found.flacs) + len(found.refused)
        account.rejected.update(found.refused)
        _settle_record(request, paths)
        sweep_parts(request.output_root, foreign=False)
        _make_folders(request, found)
        _copy_texts(request, found, account)
        to_do = _to_do(request, found, paths, account)
        if to_do:
            # A tree with a manifest is whole; this one is not until the end.
            request.manifest_path.unlink(missing_ok=True)
        _convert_all(request, to_do, paths, account)
        _write_tables(request, paths, account)
    account.took_s = time.monotonic() - began_m


def _sources(request: Request) -> Found:
    found = look_through(request.input_root)
    if not found.flacs:
        seen = "".join(f"; {name}: {reason}" for name, reason in list(found.refused.items())[:1])
        raise PrepareError(
            f"--input-root {request.input_root} has no .flac file that could be prepared{seen}; expected a tree of LibriSpeech"
        )
    return found


def _settle_record(request: Request, paths: TreePaths) -> None:
    """The record says how the files of prepared.tsv were made: where it would say otherwise now, none of them counts any more."""
    wanted, there = request.conversion.record, read_record(paths.record)
    if there is not None and there.get("made_by") != "prepare":
        raise PrepareError(f"{paths.root} is a synthetic tree: choose another --output-root")
    if there is not None and there != wanted and not request.overwrite:
        raise PrepareError(
            f"{paths.root} was prepared otherwise ({differences(there, wanted)}): "
            "give --overwrite to make every file anew, or choose another --output-root"
        )
    if there != wanted or request.overwrite:
        paths.prepared.unlink(missing_ok=True)
        write_record(paths.record, wanted)


def _make_folders(request: Request, found: Found) -> None:
    inside = request.input_root.resolve()
    for folder in sorted({rel_path.rpartition("/")[0] for rel_path in (*found.flacs, *found.texts)}):
        target = request.output_root / folder
        target.mkdir(parents=True, exist_ok=True)
        if target.resolve().is_relative_to(inside):
            raise PrepareError(f"{target} is a link into --input-root, whose files would be overwritten: remove the link")


def _copy_texts(request: Request, found: Found, account: Account) -> None:
    for rel_path in found.texts:
        try:
            source_of(request.input_root / rel_path)
            text = (request.input_root / rel_path).read_bytes()
        except OSError as error:
            account.rejected[rel_path] = f"cannot be read: {error.strerror}"
            continue
        with written_aside(request.output_root / rel_path, BY_UMASK, to_disk=False) as part:
            part.write_bytes(text)


def _to_do(request: Request, found: Found, paths: TreePaths, account: Account) -> dict[str, Source]:
    """Every source whose output is not known to be whole; what is known goes to the account."""
    known = read_outputs(paths.prepared)
    to_do = {}
    for rel_path in found.flacs:
        try:
            source = source_of(request.input_root / rel_path)
        except OSError as error:
            account.rejected[rel_path] = f"cannot be read: {error.strerror}"
            continue
        output = known.get(rel_path)
        if output is not None and output.source == source and _size(request.output_root / rel_path) == output.size_bytes:
            account.outputs[rel_path] = output
        else:
            to_do[rel_path] = source
    return to_do


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _convert_all(request: Request, to_do: Mapping[str, Source], paths: TreePaths, account: Account) -> None:
    act = ConvertOne(request.input_root, request.output_root, request.conversion)
    with (
        progress("preparing", len(to_do), request.log_every, quiet=request.quiet) as bar,
        Appender(paths.prepared) as lines,
        Pool(act, request.num_workers) as pool,
    ):
        for rel_path, outcome in pool.results(list(to_do)):
            match outcome:
                case Written(num_samples, size_bytes):
                    account.outputs[rel_path] = Output(num_samples, size_bytes, to_do[rel_path])
                    account.num_made += 1
                    lines.add(rel_path, account.outputs[rel_path])
                case Rejected(reason):
                    account.rejected[rel_path] = reason
                case Died(how):
                    account.rejected[rel_path] = f"the process preparing it {how}, twice"
                case Unwritten(error_number, what):
                    raise unwritten(request.output_root, error_number, what)
            bar.advance(f"{len(account.rejected)} rejected" if account.rejected else "")


def _write_tables(request: Request, paths: TreePaths, account: Account) -> None:
    """The tables, the manifest last; and nothing is left of files that were rejected, nor of workers that died."""
    sweep_parts(request.output_root, foreign=False)
    for rel_path in account.rejected:
        with contextlib.suppress(IsADirectoryError, NotADirectoryError, FileNotFoundError):
            (request.output_root / rel_path).unlink()
    write_outputs(paths.prepared, account.outputs)
    write_text(paths.rejected, rejected_text(account.rejected), BY_UMASK)
    handle = os.open(paths.prepared, os.O_RDONLY)
    keep_all(handle)
    os.close(handle)
    num_samples = {rel_path: output.num_samples for rel_path, output in account.outputs.items()}
    request.manifest_path.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(request.manifest_path, num_samples, request.conversion.target_sr)
    account.num_strays = len(set(look_through(request.output_root).flacs) - account.outputs.keys())


def rejected_text(rejected: Mapping[str, str]) -> str:
    """rejected.tsv: a row a file, its name spelled out where it holds what no line can."""
    rows = (f"{_spelled(rel_path)}\t{_spelled(reason)}" for rel_path, reason in sorted(rejected.items()))
    return "".join(f"{row}\n" for row in (REJECTED_HEADER, *rows))


def _spelled(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return escaped.encode("utf-8", errors="backslashreplace").decode()
