"""Steps, rates and losses in the logs of any job, and the figures that its script reported.

In: the files of a job. Out: a `StepSummary` of the file with the most steps, and the figures of a Hugging Face Trainer's own summary.

The first and the last 8 MiB of a file decide which log format fits. A larger file is then read once more from end to end with that format
alone (`StepTally`), in bounded memory: lines that differ only in digits have their numbers at the same positions, which takes a microsecond
a line. Steps of progress bars and of Trainers without one need several lines at once: of a large file only those at both ends are read, and
the summary says so.
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.collect.logs.bounded_lines import bounded_lines
from seatrial.collect.logs.launcher_log import LONGEST_TEXT_BYTES, StampedLine
from seatrial.collect.logs.steps import LOSS, PrintedStep, Reading, best_reading
from seatrial.collect.step_tally import ATTEMPT_ENDS, StepTally, tally_steps
from seatrial.core.log_lines import KEYWORDS, NUMBER, STEP_AND_LOSS, split_rank, strip_colours, time_of_line
from seatrial.core.text import MIB
from seatrial.records.plan import WorkloadSpec

STEPS_BYTES = 16 * MIB
"""The first and the last half of this decide the format of a larger file: it takes seconds and suffices for a rate."""
BAR_RATE = re.compile(rf"[\s,](?P<rate>{NUMBER})(?P<unit>it/s|s/it)\b")
SUMMARY = re.compile(rf"'(?P<name>train_\w+|eval_loss|epoch)': '?(?P<value>{NUMBER})'?[,}}]")
SUMMARY_TABLE = re.compile(r"^\s*(?P<name>train_(?:runtime|loss|\w+_per_second))\s+=\s+(?P<value>[\d:.]+)\s*$")


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """Steps, rates and losses in the script's own lines."""

    first: int | None = None
    last: int | None = None
    """Both None where its lines have losses but no step."""
    total: int | None = None
    """Length of the progress bar."""
    interval: int = 1
    """Steps from one line to the next, the most among the last ones."""
    num_lines: int = 0
    """Lines with a step that were read."""
    format: str = ""
    """The log format that fits; empty for any line with a step and a loss."""
    steps_per_s: float | None = None
    rate_from: str = ""
    """What the rate was computed from."""
    tokens_per_s: float | None = None
    """Median of the values that the script printed."""
    samples_per_s: float | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    lowest_loss: float | None = None
    nan_from: int | None = None
    """The step from which no loss is a finite number, to the end."""
    num_nan: int = 0
    """Lines with such a loss."""
    num_restarts: int = 0
    """How often the job was restarted after it broke off: only the steps of its last attempt are counted."""
    num_started_over: int = 0
    """How often the numbers start over since then without a named epoch: unknown whether the steps add up."""
    rates_of_bytes: int | None = None
    """Size of the parts at the beginning and the end of a large file that rates are from; None where all of it was used."""
    is_whole: bool = True
    """Whether every line with a step was read; else only those in the first and last `rates_of_bytes`."""

    def may_be(self, requested_steps: int) -> bool:
        """Whether the job may have taken that many: steps are counted from 0 or from 1, and not all are printed."""
        return self.last is not None and self.last + self.interval >= requested_steps


@dataclass(frozen=True, kw_only=True)
class _File:
    """The beginning and the end of a file."""

    path: Path
    lines: list[StampedLine]
    broken_off: list[int]
    """Numbers of the lines before which an attempt ended: with a traceback, or a line about another one."""
    reading: Reading | None
    reported: dict[str, float] = field(default_factory=dict)

    @property
    def num_steps(self) -> int:
        return sum(map(len, self.reading.numbered.series)) if self.reading else 0


def summarise_steps(paths: Sequence[Path]) -> tuple[StepSummary | None, dict[str, float]]:
    """Steps of the file with the most of them, else the losses of a file without steps; and the script's summary from any file."""
    reported: dict[str, float] = {}
    best: _File | None = None
    without_steps: StepSummary | None = None
    for path in paths:
        file = _read(path)
        reported |= file.reported
        best = file if file.num_steps and (best is None or file.num_steps > best.num_steps) else best
        without_steps = without_steps or _losses_alone(file)
    return (_summary(best) if best else without_steps), reported


def _read(path: Path) -> _File:
    broken_off: list[int] = []
    lines = list(_step_lines(path, broken_off))
    reading, _ = best_reading(lines, WorkloadSpec(name="log"), None)
    return _File(path=path, lines=lines, broken_off=broken_off, reading=reading, reported=_reported(lines))


def _step_lines(path: Path, broken_off: list[int]) -> Iterator[StampedLine]:
    """Lines that may have a step; a carriage return ends one, too. Their arrival times are unknown."""
    number = 0
    for piece in bounded_lines(path, STEPS_BYTES):
        if ATTEMPT_ENDS.search(piece.text):
            broken_off.append(number)
        if not any(keyword in piece.text for keyword in KEYWORDS):
            continue
        rank: int | None = None
        for text in piece.text.rstrip(b"\n").split(b"\r"):
            prefix_rank, content = split_rank(text[:LONGEST_TEXT_BYTES].decode("utf-8", errors="replace"))
            rank = prefix_rank if prefix_rank is not None else rank
            number += 1
            yield StampedLine(rank, content, math.nan, math.nan, piece.part)


def _losses_alone(file: _File) -> StepSummary | None:
    """Losses of Hugging Face's lines, which have an epoch and no step: without a summary the number of steps is unknown."""
    found = [float(match[1]) for line in file.lines if (match := LOSS.search(line.text))]
    finite = [loss for loss in found if math.isfinite(loss)]
    if not finite:
        return None
    losses = {"first_loss": finite[0], "last_loss": finite[-1], "lowest_loss": min(finite), "num_nan": len(found) - len(finite)}
    return StepSummary(num_lines=len(found), **_sampled(file.path, is_whole=False), **losses)  # type: ignore[arg-type]


def _sampled(path: Path, *, is_whole: bool) -> dict[str, int | bool]:
    """Fields of the summary of a file that was only read at its beginning and end."""
    return {"rates_of_bytes": STEPS_BYTES // 2, "is_whole": is_whole} if path.stat().st_size > STEPS_BYTES else {}


def _summary(file: _File) -> StepSummary:
    reading = file.reading
    assert reading is not None
    series, num_restarts = _last_attempt(reading.numbered.series, file.broken_off)
    printed = [each for one in series for each in one]
    rate, rate_from = _rate(reading, series, file.lines, file.reported)
    numbers = sorted({each.step for each in printed[-50:]})
    summary = StepSummary(
        total=_total(reading),
        interval=max((later - one for one, later in itertools.pairwise(numbers)), default=1),
        format="" if reading.name == STEP_AND_LOSS.name else reading.name,
        steps_per_s=rate,
        rate_from=rate_from,
        tokens_per_s=_median(printed, "tokens_per_s"),
        samples_per_s=_median(printed, "samples_per_s"),
        **_sampled(file.path, is_whole=False),  # type: ignore[arg-type]
    )
    if not summary.is_whole and (whole := tally_steps(file.path, reading)) is not None:
        return replace(summary, is_whole=True, **whole.facts())
    tally = StepTally(interval=None)
    tally.num_restarts, tally.num_started_over = num_restarts, len(series) - 1
    for each in printed:
        tally.add(each.step, each.values.get("loss"))
    return replace(summary, **tally.facts())


def _last_attempt(series: Sequence[list[PrintedStep]], broken_off: Sequence[int]) -> tuple[list[list[PrintedStep]], int]:
    """The series since the last restart, and the number of restarts: where an attempt broke off between two series."""
    begins = [
        at
        for at, (before, after) in enumerate(itertools.pairwise(series), start=1)
        if bisect.bisect_left(broken_off, before[-1].at + 1) < bisect.bisect_right(broken_off, after[0].at)
    ]
    return list(series[begins[-1] if begins else 0 :]), len(begins)


def _total(reading: Reading) -> int | None:
    """Length of the progress bar, unless it is that of one epoch among several."""
    total = reading.bar.total if reading.bar else None
    return total if total and not reading.numbered.restarts else None


def _rate(
    reading: Reading, series: Sequence[Sequence[PrintedStep]], lines: Sequence[StampedLine], reported: dict[str, float]
) -> tuple[float | None, str]:
    """Steps a second by timestamps, else by what the script printed; None where the log has neither."""
    pairs: list[tuple[int, float]] = []
    for one_series in series:
        stamped = [(each, time_s) for each in one_series if (time_s := time_of_line(strip_colours(each.line.text))[0]) is not None]
        # The first step contains the start.
        pairs += [(later.step - one.step, after - before) for (one, before), (later, after) in itertools.pairwise(stamped[1:])]
    steps, seconds = sum(step for step, _ in pairs), sum(span_s for _, span_s in pairs)
    if steps > 0 and seconds >= 1:
        return steps / seconds, "timestamps"
    if (iter_ms := _median([each for one in series for each in one], "iter_ms")) is not None and iter_ms > 0:
        return 1000 / iter_ms, "step times it printed"
    if reported.get("train_steps_per_second"):
        return reported["train_steps_per_second"], "train_steps_per_second"
    if reading.bar is not None:
        drawn = [match for line in lines[-200:] for match in BAR_RATE.finditer(line.text)]
        value = float(drawn[-1]["rate"]) if drawn else 0.0
        if value > 0:
            return (value if drawn[-1]["unit"] == "it/s" else 1 / value), "progress bar"
    return None, ""


def _median(printed: Sequence[PrintedStep], name: str) -> float | None:
    values = [each.values[name] for each in printed if name in each.values]
    if name == "iter_ms":
        values += [1000 * each.values["iter_s"] for each in printed if "iter_s" in each.values]
    return statistics.median(values) if values else None


def _reported(lines: Sequence[StampedLine]) -> dict[str, float]:
    """The last summary of a Hugging Face Trainer, as printed or in its metrics table."""
    found: dict[str, float] = {}
    for line in lines:
        if "train_" not in line.text and "eval_loss" not in line.text:
            continue
        text = strip_colours(line.text)
        if "'train_runtime'" in text:
            found |= {match["name"]: float(match["value"]) for match in SUMMARY.finditer(text)}
        elif match := SUMMARY_TABLE.match(text):
            found[match["name"]] = _seconds(match["value"])
    return found


def _seconds(text: str) -> float:
    """Seconds of `0:02:03.4` and of plain numbers."""
    value = 0.0
    for part in text.split(":"):
        value = value * 60 + float(part or 0)
    return value
