"""What a reader must know of times that were read from a script's own lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from seatrial.records.caution import Caution

# Beyond this share of untimed lines the script's output is buffered, and single steps cannot be seen.
BUFFERED_SHARE = 0.5


def log_cautions(rows: Sequence[Mapping[str, float | int | None]], run: str, *, pauses_count: bool = False) -> Iterator[Caution]:
    """In: rows of the step table as they were printed. Out: what their times are not."""
    timed = [row for row in rows if row["iter_ms"] is not None]
    spans = sorted(int(row["span"] or 1) for row in timed)
    untimed = len(rows) - 1 - len(timed)
    if rows[0]["m"] is None:
        yield Caution(
            kind="times_from_text",
            subject=run,
            text="No arrival times were kept for this output, so step times are those the script printed, where it printed any.",
        )
    elif untimed > BUFFERED_SHARE * (len(rows) - 1):
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
