"""What a reader must know of times that were read from a script's own lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from seatrial.collect.logs.bars import TrainingBar
from seatrial.collect.logs.readings import Reading
from seatrial.collect.logs.source import LARGEST_LOG_BYTES, LogText
from seatrial.records.caution import Caution
from seatrial.units import format_bytes
from seatrial.wording import were

# Beyond this share of untimed lines the script's output is buffered, and single steps cannot be seen.
BUFFERED_SHARE = 0.5


def log_cautions(
    rows: Sequence[Mapping[str, float | int | None]], run: str, *, restarts: int = 0, pauses_count: bool = False
) -> Iterator[Caution]:
    """In: rows of the step table as they were printed. Out: what their times are not."""
    timed = [row for row in rows if row["iter_ms"] is not None]
    spans = sorted(int(row["span"] or 1) for row in timed)
    may_be_timed = len(rows) - 1 - restarts
    if rows[0]["m"] is None:
        yield Caution(
            kind="times_from_text",
            subject=run,
            text="No arrival times were kept for this output, so step times are those the script printed, where it printed any.",
        )
    elif may_be_timed - len(timed) > BUFFERED_SHARE * may_be_timed:
        yield Caution(
            kind="buffered_output",
            subject=run,
            numbers={"lines": len(rows), "timed": len(timed)},
            text="Most step lines came together with later ones, so the script's output is buffered and single steps cannot be seen; "
            "print with flush=True.",
        )
    if spans and spans[-1] > 1:
        yield Caution(
            kind="steps_between_lines",
            subject=run,
            numbers={"median_span": spans[len(spans) // 2], "longest_span": spans[-1]},
            text="The script does not print every step, so each time is an average over the steps between two lines and p90 is that of "
            "averages; print every step or use the probe to see single steps.",
        )
    if pauses_count:
        yield Caution(
            kind="pauses_counted",
            subject=run,
            text="The script evaluates or saves between most of its step lines, so that time is in the step times; print more often than "
            "it evaluates, or name the pauses with the probe.",
        )


def unplaced_losses(count: int, run: str) -> Iterator[Caution]:
    """Losses of a Trainer without its bar that did not come to its last line: to number them by hand would make up steps."""
    if count:
        lines = "1 line tells a loss" if count == 1 else f"{count} lines tell a loss"
        yield Caution(
            kind="losses_without_steps",
            subject=run,
            numbers={"lines": count},
            text=f"{lines} but no step, and the Trainer's last line ('train_runtime') is not there to count them by: neither steps nor "
            "losses were taken. Leave its progress bar on (disable_tqdm=False), or add the probe's callback for it.",
        )


def source_cautions(text: LogText, run: str) -> Iterator[Caution]:
    """What of the output itself, or of the times of its arrival, could not be read."""
    if text.problem:
        yield Caution(kind="unreadable_file", subject=run, text=f"launcher.log could not be read ({text.problem}) and was passed over.")
    if text.arrivals.problem:
        yield Caution(
            kind="unreadable_file",
            subject=run,
            text=f"launcher_arrivals.csv could not be read ({text.arrivals.problem}), so when the output came is not known.",
        )
    if text.arrivals.passed_over:
        yield Caution(
            kind="bad_rows",
            subject=run,
            numbers={"rows": text.arrivals.passed_over},
            text=f"In launcher_arrivals.csv {were(text.arrivals.passed_over, 'row')} passed over: damaged, written twice, or with offsets "
            "and times that contradict the others.",
        )
    if text.left_out_bytes:
        size = format_bytes(LARGEST_LOG_BYTES + text.left_out_bytes)
        yield Caution(
            kind="large_log",
            subject=run,
            numbers={"left_out_bytes": text.left_out_bytes},
            text=f"launcher.log has {size}, of which the first and the last {format_bytes(LARGEST_LOG_BYTES // 2)} were read; steps "
            "printed between them are not counted. Print less, or use the probe.",
        )


def reading_cautions(reading: Reading, run: str) -> Iterator[Caution]:
    """What was left out of the lines, and what their numbers do not tell."""
    numbered = reading.numbered
    if reading.bar is not None and reading.bar.left_out:
        yield _other_bars(reading.bar, run)
    if numbered.passed_over:
        late = (
            "1 line with an earlier step number was"
            if numbered.passed_over == 1
            else f"{numbered.passed_over} lines with an earlier step number were"
        )
        kept = " As they are many, only growing numbers were kept: later epochs, if there are any, are not read." * numbered.grown_only
        yield Caution(
            kind="steps_out_of_order",
            subject=run,
            numbers={"passed_over": numbered.passed_over, "lines": numbered.lines},
            text=f"{late} passed over; several processes seem to print without a rank mark: print from rank 0 only, or start through "
            f"torchrun.{kept}",
        )
    if numbered.restarts:
        times = "once" if numbered.restarts == 1 else f"{numbered.restarts} times"
        yield Caution(
            kind="steps_restart",
            subject=run,
            numbers={"restarts": numbered.restarts},
            text=f"The script's step numbers start again {times}, as with a new epoch: steps are counted on, and the first line of each "
            "new epoch has no time, since the steps before it are not known.",
        )


def _other_bars(bar: TrainingBar, run: str) -> Caution:
    left_out = ", ".join("?" if total is None else str(total) for total in bar.left_out)
    read = "?" if bar.total is None else str(bar.total)
    return Caution(
        kind="other_bars",
        subject=run,
        numbers={"read": read, "left_out": left_out},
        text=f"The output holds several progress bars: the one of {read} was read as the training, others (of {left_out}) were left out; "
        "if that is the wrong one, give a pattern that matches the training's lines only (workload.patterns).",
    )
