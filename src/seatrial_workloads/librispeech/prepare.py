"""Prepare LibriSpeech for training. In: a tree of FLAC files and transcripts. Out: another at one sample rate, trimmed, with a manifest.

python -m seatrial_workloads.librispeech.prepare --input-root data/LibriSpeech --output-root data/LibriSpeech_16k_trim --trim --workers 2

1500 files prepared: 1500 now, 0 before; 5.1 hours of audio; none rejected; 4.4 s, 341.0 files/s
manifest: data/LibriSpeech_16k_trim/manifest.tsv

With `--verify` it checks a prepared tree instead, and with `--synthetic N` it makes a small one. Exit codes: 0 done (files may have been
rejected, and are counted and listed), 1 wrong use, trouble, nothing prepared or problems found, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence

from seatrial.records.exit_codes import DONE, INTERRUPTED, STOP_SIGNALS, WRONG_USE
from seatrial_workloads.librispeech.options import check, manifest_path, parser
from seatrial_workloads.librispeech.pool import PoolError
from seatrial_workloads.librispeech.prepare_tree import Account, Request, prepare_tree
from seatrial_workloads.librispeech.record import Conversion, Making, PrepareError, read_record
from seatrial_workloads.librispeech.spoken_lines import say, warn
from seatrial_workloads.librispeech.tree import TreePaths
from seatrial_workloads.librispeech.verify import problems_of_tree

MOST_PROBLEMS_SHOWN = 1_000
SECONDS_PER_HOUR = 3_600


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the words ask for and return the exit code."""
    options = parser().parse_args(argv)
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
        manifest_path=manifest_path(options),
        conversion=Conversion(target_sr=options.target_sr, trim_top_db=options.trim_top_db if options.trim else None),
        num_workers=options.workers,
        overwrite=options.overwrite,
        log_every=options.log_every,
        quiet=options.quiet,
    )
    account = Account()
    try:
        prepare_tree(request, account)
    except KeyboardInterrupt:
        done = f"{len(account.outputs)} of {account.num_files} files are done"
        return fail(f"interrupted: {done}, and the same command goes on from there", INTERRUPTED)
    tell(request, account)
    return DONE if account.outputs else fail(f"no file could be prepared; why stands in {TreePaths(options.output_root).rejected}")


def tell(request: Request, account: Account) -> None:
    """How it ended, in a few lines."""
    hours = sum(output.num_samples for output in account.outputs.values()) / request.conversion.target_sr / SECONDS_PER_HOUR
    made, before = account.num_made, len(account.outputs) - account.num_made
    rejected = f"{len(account.rejected)} rejected, see {TreePaths(request.output_root).rejected}" if account.rejected else "none rejected"
    pace = f"{account.took_s:.1f} s, {made / max(account.took_s, 1e-9):.1f} files/s"
    say(f"{len(account.outputs)} files prepared: {made} now, {before} before; {hours:.1f} hours of audio; {rejected}; {pace}")
    if account.num_strays:
        say(
            f"{account.num_strays} more .flac files in {request.output_root} are not of this input nor in the manifest; --verify names them"
        )
    say(f"manifest: {request.manifest_path}")


def verify(options: argparse.Namespace) -> int:
    recorded_sr = (read_record(TreePaths(options.output_root).record) or {}).get("target_sr")
    problems, num_rows = problems_of_tree(
        options.output_root,
        manifest_path(options),
        recorded_sr if isinstance(recorded_sr, int) else options.target_sr,
        num_workers=options.workers,
        log_every=options.log_every,
        quiet=options.quiet,
    )
    for problem in problems[:MOST_PROBLEMS_SHOWN]:
        say(problem)
    if len(problems) > MOST_PROBLEMS_SHOWN:
        say(f"… and {len(problems) - MOST_PROBLEMS_SHOWN} more")
    if problems:
        return fail(f"{len(problems)} problems in {num_rows} rows of {manifest_path(options)}")
    say(f"{num_rows} files are what {manifest_path(options)} says")
    return DONE


def synthesize(options: argparse.Namespace) -> int:
    # Imports what it makes sounds with, which the others leave to their workers.
    from seatrial_workloads.librispeech.make_synthetic import make_synthetic_tree

    count = make_synthetic_tree(
        options.output_root,
        manifest_path(options),
        Making(num_utterances=options.synthetic, seed=options.seed or 0),
        num_workers=options.workers,
        log_every=options.log_every,
        quiet=options.quiet,
    )
    say(f"{count} utterances made\nmanifest: {manifest_path(options)}")
    return DONE


def fail(message: str, code: int = WRONG_USE) -> int:
    warn(f"prepare librispeech: {message}")
    return code


@contextlib.contextmanager
def stop_signals_as_interrupt() -> Iterator[None]:
    """The first of them raises KeyboardInterrupt; while that is acted on, which is a matter of one file, no other breaks it off."""

    def on_signal(number: int, frame: object) -> None:
        for stop_signal in STOP_SIGNALS:
            signal.signal(stop_signal, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number, handler in before.items():
        # Under nohup, HUP is ignored and stays so.
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
