"""Command line of `prepare`, and checks before anything is written. In: arguments. Out: checked options."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from seatrial.core.errors import WRONG_USE
from seatrial_workloads.librispeech.tree import HEADER, MIN_UTTERANCES, PrepareError, TreePaths

# Sample rates that FLAC supports and that are in use.
LOWEST_SR, HIGHEST_SR = 1_000, 192_000
INSTALL = "pip install 'seatrial[stage1]'"


class Parser(argparse.ArgumentParser):
    """Exits with 1 for wrong use, as everywhere in Seatrial."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(WRONG_USE, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    options = Parser(
        prog="prepare librispeech", description="Prepare LibriSpeech for training: one sample rate, mono, trimmed, a manifest."
    )
    options.add_argument("--input-root", type=folder, metavar="FOLDER", help="the tree to prepare; every .flac and .txt under it is used")
    options.add_argument("--output-root", type=folder, metavar="FOLDER", required=True, help="folder of the prepared tree")
    options.add_argument("--target-sr", type=int, default=16_000, metavar="HZ", help="sample rate of the prepared files (default 16000)")
    options.add_argument("--trim", action="store_true", help="trim silence at both ends")
    options.add_argument("--trim-top-db", type=float, default=60.0, metavar="DB", help="level of silence below the loudest (default 60)")
    options.add_argument("--manifest-path", type=folder, metavar="FILE", help="the manifest (default OUTPUT_ROOT/manifest.tsv)")
    options.add_argument("--workers", type=int, default=1, metavar="N", help="worker processes (default 1)")
    options.add_argument("--overwrite", action="store_true", help="prepare every file again, also with other settings")
    options.add_argument("--log-every", type=int, default=500, metavar="N", help="files between two lines; 0 for none (default 500)")
    options.add_argument("--quiet", action="store_true", help="no progress, only the summary")
    options.add_argument("--verify", action="store_true", help="check a prepared tree against its manifest; writes nothing")
    options.add_argument("--synthetic", type=int, metavar="N", help="create a small learnable tree of N utterances")
    options.add_argument("--seed", type=int, metavar="N", help="seed of the synthetic tree (default 0)")
    return options


def folder(text: str) -> Path:
    if not text:
        # Probably an unset variable; as `.` it would scatter files over this folder.
        raise argparse.ArgumentTypeError("it is empty; give a path, or omit the option")
    return Path(text)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser().parse_args(argv)
    options.manifest_path = options.manifest_path or TreePaths(options.output_root).manifest
    return options


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot work before anything is written."""
    if options.workers < 1:
        raise PrepareError(f"--workers is {options.workers}; expected 1 or more")
    if options.log_every < 0:
        raise PrepareError(f"--log-every is {options.log_every}; expected a number of files, or 0 for no lines")
    if not LOWEST_SR <= options.target_sr <= HIGHEST_SR:
        raise PrepareError(f"--target-sr is {options.target_sr}; expected {LOWEST_SR} to {HIGHEST_SR} Hz, for speech models 16000")
    # Written so that NaN is refused as well.
    if not 0 < options.trim_top_db < float("inf"):
        raise PrepareError(f"--trim-top-db is {options.trim_top_db}; expected decibels above 0")
    if options.seed is not None and options.synthetic is None:
        raise PrepareError("--seed needs --synthetic N: add that, or omit --seed")
    check_libraries()
    (check_synthetic if options.synthetic is not None else check_prepared if options.verify else check_roots)(options)
    check_manifest(options)


def check_libraries() -> None:
    # Found but not imported: only workers need them, and the import takes as long as preparing fifty files.
    missing = [name for name in ("numpy", "soundfile", "soxr") if importlib.util.find_spec(name) is None]
    if missing:
        raise PrepareError(f"{' and '.join(missing)} must be installed for this: {INSTALL}")


def check_synthetic(options: argparse.Namespace) -> None:
    for name in ("input_root", "trim", "verify", "overwrite"):
        if getattr(options, name):
            raise PrepareError(f"--{name.replace('_', '-')} cannot be combined with --synthetic: omit one of them")
    if options.target_sr != 16_000:
        raise PrepareError(f"--target-sr is {options.target_sr}; a synthetic tree has 16000: create it, then prepare it with --input-root")
    if options.synthetic < MIN_UTTERANCES:
        raise PrepareError(f"--synthetic is {options.synthetic}; expected {MIN_UTTERANCES} or more, one for each split")
    if options.seed is not None and options.seed < 0:
        raise PrepareError(f"--seed is {options.seed}; expected 0 or more")


def check_prepared(options: argparse.Namespace) -> None:
    if not options.output_root.is_dir():
        raise PrepareError(f"--output-root {options.output_root} is not a folder: give the prepared tree")


def check_roots(options: argparse.Namespace) -> None:
    if options.input_root is None:
        raise PrepareError("--input-root is missing: give the tree to prepare, --verify or --synthetic N")
    if not options.input_root.is_dir():
        raise PrepareError(f"--input-root {options.input_root} is not a folder: give the tree to prepare")
    source, target = options.input_root.resolve(), options.output_root.resolve()
    if source == target or source.is_relative_to(target) or target.is_relative_to(source):
        raise PrepareError(
            f"--output-root {options.output_root} and --input-root {options.input_root} are nested: "
            "choose an --output-root outside the input"
        )


def check_manifest(options: argparse.Namespace) -> None:
    """Do not overwrite a file that is not a manifest."""
    path = options.manifest_path
    if options.verify or not path.exists():
        return
    if not path.is_file() or path.read_bytes()[: len(HEADER)] not in (HEADER.encode(), b""):
        raise PrepareError(f"--manifest-path {path} exists and is not a manifest: choose another name")
