"""`seatrial prepare librispeech`: the data of the contrastive workload, prepared, verified or generated.

seatrial prepare librispeech --input-root data/LibriSpeech --output-root data/LibriSpeech_16k_trim --trim --workers 2

1500 files prepared: 1500 now, 0 before; 5.1 hours of audio; none rejected; 4.4 s, 341.0 files/s
manifest: data/LibriSpeech_16k_trim/manifest.tsv

`python -m seatrial_workloads.librispeech.prepare` does the work, in its own process on this terminal. Its options are repeated here:
the harness imports no workload, and `--help` must work without one.
"""

from __future__ import annotations

import subprocess
from typing import Annotated, Any

import typer

from seatrial.core.errors import DONE, INTERRUPTED, WRONG_USE, SeatrialError, UsageError, did_you_mean
from seatrial.core.shell import module_argv

EXAMPLES = {
    "prepare": (
        "seatrial prepare librispeech --input-root data/LibriSpeech --output-root data/LibriSpeech_16k_trim --trim --workers 8\n\n"
        "seatrial prepare librispeech --synthetic 200 --output-root data/synthetic"
    )
}
MODULES = {"librispeech": "seatrial_workloads.librispeech.prepare"}
SAME_EXIT_CODES = (DONE, WRONG_USE, INTERRUPTED)
WHAT, CONVERSION, WORK, INSTEAD = "Trees", "Conversion", "Processing", "Instead of preparing"

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="What to prepare: librispeech.", show_default=False)]
InputRoot = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="The tree to prepare; every .flac and .txt under it is taken.", rich_help_panel=WHAT),
]
OutputRoot = Annotated[
    str,
    typer.Option(metavar="FOLDER", help="Where the prepared tree is, or will be.", rich_help_panel=WHAT, show_default=False),
]
ManifestPath = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The table of all prepared files, for the trainer. Default: manifest.tsv in the output tree.",
        rich_help_panel=WHAT,
    ),
]
TargetSr = Annotated[
    int, typer.Option(metavar="HZ", help="Resample to this rate; speech models want 16000 Hz.", rich_help_panel=CONVERSION)
]
Trim = Annotated[bool, typer.Option("--trim", help="Trim silence from both ends, so that slices hold speech.", rich_help_panel=CONVERSION)]
TrimTopDb = Annotated[
    float,
    typer.Option(metavar="DB", help="Silence is this many decibels below the loudest.", rich_help_panel=CONVERSION),
]
Workers = Annotated[int, typer.Option(metavar="N", help="Number of processes; one per core is fastest.", rich_help_panel=WORK)]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Write every file again, even if the tree was prepared with other options.", rich_help_panel=WORK),
]
LogEvery = Annotated[
    int,
    typer.Option(metavar="N", help="Print a line every so many files without a terminal; 0 for none.", rich_help_panel=WORK),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar and no lines, only how it ended.", rich_help_panel=WORK)]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify", help="Check the output tree against its manifest, decoding every file; write nothing.", rich_help_panel=INSTEAD
    ),
]
Synthetic = Annotated[
    int | None,
    typer.Option(metavar="N", help="Generate a small learnable tree of N utterances, without a download.", rich_help_panel=INSTEAD),
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of the synthetic tree. Default: 0.", rich_help_panel=INSTEAD)]


def prepare(
    dataset: Dataset,
    output_root: OutputRoot,
    input_root: InputRoot = None,
    manifest_path: ManifestPath = None,
    target_sr: TargetSr = 16_000,
    trim: Trim = False,
    trim_top_db: TrimTopDb = 60.0,
    workers: Workers = 1,
    overwrite: Overwrite = False,
    log_every: LogEvery = 500,
    quiet: Quiet = False,
    verify: Verify = False,
    synthetic: Synthetic = None,
    seed: Seed = None,
) -> int:
    """Prepare a dataset for training: one sample rate, mono, silence trimmed, transcripts copied, a manifest of all files.

    The same command resumes where it was interrupted and leaves the same files. What cannot be decoded is listed in rejected.tsv and does
    not stop the rest. Exit code 0 when files were prepared, 1 when none were, on an error, or when --verify found one.
    """
    if dataset not in MODULES:
        raise UsageError(f"there is no dataset '{dataset}': {did_you_mean(dataset, MODULES)}")
    options = {
        "--input-root": input_root,
        "--output-root": output_root,
        "--manifest-path": manifest_path,
        "--target-sr": target_sr,
        "--trim": trim,
        "--trim-top-db": trim_top_db,
        "--workers": workers,
        "--overwrite": overwrite,
        "--log-every": log_every,
        "--quiet": quiet,
        "--verify": verify,
        "--synthetic": synthetic,
        "--seed": seed,
    }
    return exit_code_of([*module_argv(MODULES[dataset]), *option_argv(options)])


def option_argv(options: dict[str, Any]) -> list[str]:
    """With `=`, so that a value that begins with a dash stays one."""
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    return [name if value is True else f"{name}={value}" for name, value in given.items()]


def exit_code_of(command: list[str]) -> int:
    """Run the command on this terminal and wait until it ends, also when interrupted: it then ends with whole files."""
    process = subprocess.Popen(command)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        # Ctrl-C also reached it; a signal to this process alone did not.
        process.terminate()
        process.wait()
        raise
    if code < 0:
        raise SeatrialError(f"preparing was killed by signal {-code}: what is done stays; run the same command to resume")
    return code if code in SAME_EXIT_CODES else WRONG_USE
