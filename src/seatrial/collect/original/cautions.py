"""What a reader must know of a campaign that was made from a folder of the original scripts.

In: the folder, its runs as they were read. Out: cautions: the first says of what it was made, the others what could not be used. What is
said of many runs is said in the same words, so that a report says it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seatrial.collect.original.run_specs import world_size
from seatrial.collect.original.runs import OriginalRun
from seatrial.collect.original.text_lines import TextLines
from seatrial.paths import ATTEMPT_FILES
from seatrial.records.caution import Caution
from seatrial.records.original_names import MADE_FROM
from seatrial.units import format_bytes
from seatrial.wording import named

NAMED_STRAYS = 4


def made_from(source: Path, target: Path) -> Caution:
    """What stands at the head of the report."""
    return Caution(
        kind=MADE_FROM,
        text=f"Made from the folder that the original stage-1 scripts wrote, {source}: nothing in it was changed, and all that was made of "
        f"it lies in {target}. Times are those between the stamps of train.log; there are no events of single steps.",
    )


def stray_cautions(strays: Sequence[str]) -> Iterator[Caution]:
    """Folders with logs of which nobody can tell the run."""
    if strays:
        yield Caution(
            kind="original_stray",
            numbers={"folders": len(strays)},
            text=f"{named(strays, NAMED_STRAYS)}: passed over, as no row names the folder, and its launcher.log names no run "
            "that has none.",
        )


def run_cautions(run: OriginalRun, zone_s: float | None) -> Iterator[Caution]:
    """What is amiss with the files of one run."""
    for kind, text in (
        *_missing(run),
        *_unreadable(ATTEMPT_FILES.launcher_log.name, run.launcher),
        *_unreadable(ATTEMPT_FILES.train_log.name, run.train),
        *_odd(run, zone_s),
    ):
        yield Caution(kind=kind, subject=run.name, text=text)


def _missing(run: OriginalRun) -> Iterator[tuple[str, str]]:
    if run.folder is None:
        yield "original_log_missing", "The run's folder is not there: only what its row in run_manifest.tsv says of it is known."
        return
    if not run.launcher.lines and not run.launcher.problem:
        yield "original_log_missing", "launcher.log is not there, so when the run began, and why it failed if it did, is not known."
    if not run.train.lines and not run.train.problem and run.newest.row is not None and run.newest.row.is_success:
        yield "original_log_missing", "train.log is not there, so nothing is known of the run's steps but what its launcher.log tells."


def _unreadable(name: str, text: TextLines) -> Iterator[tuple[str, str]]:
    if text.problem:
        yield "unreadable_file", f"{name} cannot be read ({text.problem}) and was passed over."
    if text.left_out_bytes:
        yield "large_log", f"{name} is so large that {format_bytes(text.left_out_bytes)} in its middle were not read."


def _odd(run: OriginalRun, zone_s: float | None) -> Iterator[tuple[str, str]]:
    row = run.newest.row
    if sum(attempt.segment is not None for attempt in run.attempts) > 1:
        yield "original_appended", "train.log holds the lines of several attempts, one after another: only those of the newest count."
    if row is None:
        yield (
            "original_no_row",
            "run_manifest.tsv has no row of the newest attempt, so that one counts as interrupted; an older row of the run still counts.",
        )
    elif row.says_success and not row.is_success:
        yield "original_status", "Its row says success beside an exit code that says otherwise: it counts as failed."
    if world_size(run.newest) is None:
        yield "original_world_size", "Neither row nor command says how many ranks it had: figures are of one rank."
    if zone_s is None and any(attempt.segment for attempt in run.attempts):
        yield "original_zone", "No file says how far its machine's clock was from UTC: its times of day were taken for UTC."
