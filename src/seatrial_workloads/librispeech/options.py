"""What can be asked of `prepare`, and what is refused before anything is begun. In: words. Out: options that can be carried out."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import NoReturn

from seatrial.records.exit_codes import WRONG_USE
from seatrial_workloads.librispeech.manifest import HEADER
from seatrial_workloads.librispeech.record import FEWEST_UTTERANCES, PrepareError
from seatrial_workloads.librispeech.tree import TreePaths

# What FLAC can hold and anybody records at.
LOWEST_SR, HIGHEST_SR = 1_000, 192_000
INSTALL = "pip install 'seatrial[stage1]'"


class Parser(argparse.ArgumentParser):
    """Wrong use ends with 1, as everywhere in Seatrial."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(WRONG_USE, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    words = Parser(prog="prepare librispeech", description="Prepare LibriSpeech for training: one sample rate, mono, trimmed, a manifest.")
    words.add_argument("--input-root", type=folder, metavar="FOLDER", help="the tree to prepare; every .flac and .txt under it is taken")
    words.add_argument("--output-root", type=folder, metavar="FOLDER", required=True, help="where the prepared tree is, or will be")
    words.add_argument("--target-sr", type=int, default=16_000, metavar="HZ", help="sample rate of the prepared files (default 16000)")
    words.add_argument("--trim", action="store_true", help="cut silence off both ends")
    words.add_argument("--trim-top-db", type=float, default=60.0, metavar="DB", help="silence is this far below the loudest (default 60)")
    words.add_argument("--manifest-path", type=folder, metavar="FILE", help="the manifest (default OUTPUT_ROOT/manifest.tsv)")
    words.add_argument("--workers", type=int, default=1, metavar="N", help="processes that work at the same time (default 1)")
    words.add_argument("--overwrite", action="store_true", help="make every file anew, also with other settings than those there")
    words.add_argument("--log-every", type=int, default=500, metavar="N", help="files between two lines; 0 for none (default 500)")
    words.add_argument("--quiet", action="store_true", help="no bar and no lines while it works, only how it ended")
    words.add_argument("--verify", action="store_true", help="check a prepared tree against its manifest; nothing is written")
    words.add_argument("--synthetic", type=int, metavar="N", help="make a small tree of N utterances that can be learnt from")
    words.add_argument("--seed", type=int, metavar="N", help="seed of the synthetic tree (default 0)")
    return words


def folder(text: str) -> Path:
    if not text:
        # A variable that was meant to be set: taken for `.` it would strew files over this folder.
        raise argparse.ArgumentTypeError("it is empty; name a path, or leave the option out")
    return Path(text)


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot work before anything is begun."""
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
        raise PrepareError("--seed is the synthetic tree's: give --synthetic N with it, or leave it out")
    check_libraries()
    (check_synthetic if options.synthetic is not None else check_prepared if options.verify else check_roots)(options)
    check_manifest(options)


def check_libraries() -> None:
    # Found and not imported: that is the workers' to do, and takes as long as preparing fifty files.
    missing = [name for name in ("numpy", "soundfile", "soxr") if importlib.util.find_spec(name) is None]
    if missing:
        raise PrepareError(f"{' and '.join(missing)} must be installed for this: {INSTALL}")


def check_synthetic(options: argparse.Namespace) -> None:
    for name in ("input_root", "trim", "verify", "overwrite"):
        if getattr(options, name):
            raise PrepareError(f"--{name.replace('_', '-')} has no meaning with --synthetic: leave one of them out")
    if options.target_sr != 16_000:
        raise PrepareError(f"--target-sr is {options.target_sr}; a synthetic tree has 16000: make it, then prepare it with --input-root")
    if options.synthetic < FEWEST_UTTERANCES:
        raise PrepareError(f"--synthetic is {options.synthetic}; expected {FEWEST_UTTERANCES} or more, one for each split")
    if options.seed is not None and options.seed < 0:
        raise PrepareError(f"--seed is {options.seed}; expected 0 or more")


def check_prepared(options: argparse.Namespace) -> None:
    if not options.output_root.is_dir():
        raise PrepareError(f"--output-root {options.output_root} is no folder: name the prepared tree")


def check_roots(options: argparse.Namespace) -> None:
    if options.input_root is None:
        raise PrepareError("--input-root is missing: name the tree to prepare, or give --verify or --synthetic N")
    if not options.input_root.is_dir():
        raise PrepareError(f"--input-root {options.input_root} is no folder: name the tree to prepare")
    source, target = options.input_root.resolve(), options.output_root.resolve()
    if source == target or source.is_relative_to(target) or target.is_relative_to(source):
        raise PrepareError(
            f"--output-root {options.output_root} and --input-root {options.input_root} lie in each other: "
            "choose an --output-root beside the input"
        )


def check_manifest(options: argparse.Namespace) -> None:
    """A file that is there under the manifest's name is a manifest, and not one somebody needs."""
    path = manifest_path(options)
    if options.verify or not path.exists():
        return
    if not path.is_file() or path.read_bytes()[: len(HEADER)] not in (HEADER.encode(), b""):
        raise PrepareError(f"--manifest-path {path} is there and is no manifest: choose another name")


def manifest_path(options: argparse.Namespace) -> Path:
    chosen: Path | None = options.manifest_path
    return TreePaths(options.output_root).manifest if chosen is None else chosen
