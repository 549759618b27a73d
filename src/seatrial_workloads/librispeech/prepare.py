"""Prepare LibriSpeech for training. In: a tree of FLAC files and transcripts. Out: another at one sample rate, trimmed, with a manifest.

python -m seatrial_workloads.librispeech.prepare --input-root data/LibriSpeech --output-root data/LibriSpeech_16k_trim --trim --workers 2

1500 files prepared: 1500 now, 0 before; 5.1 hours of audio; none rejected; 4.4 s, 341.0 files/s
manifest: data/LibriSpeech_16k_trim/manifest.tsv

`--verify` checks a prepared tree instead, and `--synthetic N` creates a small one. Exit codes: 0 done (rejected files are counted and
listed), 1 wrong use, an error, nothing prepared or problems found, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence

from seatrial.core.errors import DONE, INTERRUPTED, STOP_SIGNALS, WRONG_USE
from seatrial_workloads.librispeech.options import check, parse
from seatrial_workloads.librispeech.pool import PoolError
from seatrial_workloads.librispeech.prepare_tree import PrepareProgress, Request, prepare_tree
from seatrial_workloads.librispeech.progress import print_line
from seatrial_workloads.librispeech.tree import Conversion, PrepareError, SyntheticSpec, TreePaths, read_record
from seatrial_workloads.librispeech.verify import verify_tree

MAX_PROBLEMS_SHOWN = 1_000
SECONDS_PER_HOUR = 3_600


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    options = parse(argv)
    with stop_signals_as_interrupt():
        try:
            check(options)
            if options.verify:
                return verify(options)
            if options.synthetic is not None:
                return synthesize(options)
            return prepare(options)
        except (PrepareError, PoolError) as error:
            return fail(str(error))
        except KeyboardInterrupt:
            return fail("interrupted", INTERRUPTED)


def prepare(options: argparse.Namespace) -> int:
    request = Request(
        input_root=options.input_root,
        output_root=options.output_root,
        manifest_path=options.manifest_path,
        conversion=Conversion(target_sr=options.target_sr, trim_top_db=options.trim_top_db if options.trim else None),
        num_workers=options.workers,
        overwrite=options.overwrite,
        log_every=options.log_every,
        quiet=options.quiet,
    )
    progress = PrepareProgress()
    try:
        prepare_tree(request, progress)
    except KeyboardInterrupt:
        done = f"{len(progress.outputs)} of {progress.num_files} files done"
        return fail(f"interrupted: {done}; run the same command to resume", INTERRUPTED)
    print_summary(request, progress)
    return DONE if progress.outputs else fail(f"no file could be prepared; see {TreePaths(options.output_root).rejected}")


def print_summary(request: Request, progress: PrepareProgress) -> None:
    """Print the result in a few lines."""
    hours = sum(output.num_samples for output in progress.outputs.values()) / request.conversion.target_sr / SECONDS_PER_HOUR
    converted, before = progress.num_converted, len(progress.outputs) - progress.num_converted
    rejected = f"{len(progress.rejected)} rejected, see {TreePaths(request.output_root).rejected}" if progress.rejected else "none rejected"
    pace = f"{progress.duration_s:.1f} s, {converted / max(progress.duration_s, 1e-9):.1f} files/s"
    print_line(f"{len(progress.outputs)} files prepared: {converted} now, {before} before; {hours:.1f} hours of audio; {rejected}; {pace}")
    if progress.num_strays:
        print_line(f"{progress.num_strays} more .flac files in {request.output_root} are not in the manifest; --verify lists them")
    print_line(f"manifest: {request.manifest_path}")


def verify(options: argparse.Namespace) -> int:
    recorded_sr = (read_record(TreePaths(options.output_root).record) or {}).get("target_sr")
    problems, num_rows = verify_tree(
        options.output_root,
        options.manifest_path,
        recorded_sr if isinstance(recorded_sr, int) else options.target_sr,
        num_workers=options.workers,
        log_every=options.log_every,
        quiet=options.quiet,
    )
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        print_line(problem)
    if len(problems) > MAX_PROBLEMS_SHOWN:
        print_line(f"… and {len(problems) - MAX_PROBLEMS_SHOWN} more")
    if problems:
        return fail(f"{len(problems)} problems in {num_rows} rows of {options.manifest_path}")
    print_line(f"{num_rows} files match {options.manifest_path}")
    return DONE


def synthesize(options: argparse.Namespace) -> int:
    # Imports numpy, which the other commands leave to their workers.
    from seatrial_workloads.librispeech.synthetic import create_synthetic_tree

    count = create_synthetic_tree(
        options.output_root,
        options.manifest_path,
        SyntheticSpec(num_utterances=options.synthetic, seed=options.seed or 0),
        num_workers=options.workers,
        log_every=options.log_every,
        quiet=options.quiet,
    )
    print_line(f"{count} utterances created\nmanifest: {options.manifest_path}")
    return DONE


def fail(message: str, code: int = WRONG_USE) -> int:
    print_line(f"prepare librispeech: {message}", sys.stderr)
    return code


@contextlib.contextmanager
def stop_signals_as_interrupt() -> Iterator[None]:
    """The first stop signal raises KeyboardInterrupt; later ones are ignored, since shutting down takes no longer than one file."""

    def on_signal(number: int, frame: object) -> None:
        for stop_signal in STOP_SIGNALS:
            signal.signal(stop_signal, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number, handler in before.items():
        # Under nohup, HUP stays ignored.
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
