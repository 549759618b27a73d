"""Steps in the lines a script prints.

In: lines of launcher.log, the run's workload and planned steps. Out: `best_reading`: the steps by the log format that fits best, or None
where no format finds two consecutive steps. Handles progress bars (which of several is the training's), step numbers that restart with an
epoch or for an unknown reason, lines of several ranks, and a Hugging Face Trainer without its bar.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from seatrial.collect.logs.launcher_log import StampedLine
from seatrial.core.errors import UsageError
from seatrial.core.log_lines import (
    BARS,
    LARGEST_STEP,
    LOG_FORMATS,
    NUMBER,
    STEP_AND_LOSS,
    LinePattern,
    LogPatterns,
    compile_patterns,
    parse_line,
    strip_colours,
    timed_out_patterns,
    timed_patterns,
)
from seatrial.records.caution import Caution
from seatrial.records.plan import WorkloadSpec

# `Epoch 3: 40%|`, `epoch [2/10]`, `| epoch 002:`, `'epoch': 1.25`; not the number of all epochs.
NAMED_EPOCH = re.compile(r"\bepoch\b\W{0,4}(\d{1,9})", re.IGNORECASE)
# Beyond this share of late lines a lower number does not mean a new epoch.
MAX_LATE_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class LineValues:
    """Values that a format's patterns found in one line."""

    line: StampedLine
    at: int
    """Number of the line."""
    values: dict[str, float]
    pattern: int | None = None
    """Index of the pattern that found the step."""
    epoch: int | None = None
    """The last epoch named so far."""

    @property
    def number(self) -> int | None:
        """The step as printed; None for a line without one."""
        step = self.values.get("step", math.nan)
        return int(step) if 0 <= step <= LARGEST_STEP else None

    @property
    def total(self) -> int | None:
        """Length of the bar; None where it is not shown."""
        total = self.values.get("total", math.nan)
        return int(total) if 0 <= total <= LARGEST_STEP else None

    @property
    def extras(self) -> dict[str, float]:
        return {name: value for name, value in self.values.items() if name not in ("step", "total")}


@dataclass
class PrintedStep:
    """One step as its lines show it."""

    step: int
    number: int
    """The step as printed: numbers restart with each epoch, `step` does not."""
    line: StampedLine
    at: int
    """Number of its first line."""
    values: dict[str, float]
    restarts: bool = False
    """Whether it is the first of a new epoch."""


@dataclass(kw_only=True)
class NumberedSteps:
    """Steps in order, and what was odd about their numbers."""

    series: list[list[PrintedStep]] = field(default_factory=list)
    """A new series where numbers restart without a sign of an epoch."""
    lines: int = 0
    """Lines with a step."""
    num_late: int = 0
    """Lines with an earlier number than the line before, which were skipped."""
    interval: int | None = None
    """The usual steps from one line to the next; None where so many were late that only increasing numbers were kept."""

    @property
    def increasing_only(self) -> bool:
        return self.interval is None and self.lines > 0

    @property
    def printed(self) -> list[PrintedStep]:
        """The steps that count: the longest series, and among equals the first, where the loss falls."""
        return max(self.series, key=len, default=[])

    @property
    def restarts(self) -> int:
        return sum(each.restarts for each in self.printed)

    @property
    def num_started_over(self) -> int:
        return max(len(self.series) - 1, 0)


def number_steps(found: Sequence[LineValues], *, is_bar: bool = False) -> NumberedSteps:
    """Steps in order, numbered on over epochs. A bar is drawn repeatedly and shows completed steps, so step k is at k+1.

    A number may go back for three reasons. At the start of the numbering it is a new epoch where a line names one, or where a bar was
    full: how many steps lie between its first line and the line before is unknown. Without such a sign it may be an epoch, another training
    or a restart: whether its steps add to those before is unknown, and a new series begins. Anywhere else it is a late line of another
    process and is skipped. Where many lines are late, a new beginning cannot be recognised, and only increasing numbers are kept."""
    steps = _follow(found, interval=usual_interval(found), is_bar=is_bar)
    if steps.num_late > MAX_LATE_SHARE * steps.lines:
        steps = _follow(found, interval=None, is_bar=is_bar)
    if is_bar:
        steps.series = [_steps_done(each) for each in steps.series]
    return steps


def usual_interval(found: Iterable[LineValues]) -> int:
    """Median of the steps from one line to the next; 0 for numbers that never grow."""
    numbers = [each.number for each in found if each.number is not None]
    grown = [later - one for one, later in itertools.pairwise(numbers) if later > one]
    return statistics.median_low(grown) if grown else 0


def _follow(found: Sequence[LineValues], *, interval: int | None, is_bar: bool) -> NumberedSteps:
    counter = _StepCounter(interval=interval, is_bar=is_bar, steps=NumberedSteps(interval=interval))
    for each in found:
        counter.take(each)
    return counter.steps


@dataclass(kw_only=True)
class _StepCounter:
    """Follows the numbers line by line."""

    interval: int | None
    """None where numbers may not restart."""
    is_bar: bool
    steps: NumberedSteps
    number: int = 0
    """The newest number as printed."""
    first: int = 0
    """The first number of this epoch."""
    before: int = 0
    """Steps of the epochs before."""
    epoch: int | None = None
    """The last epoch named before the newest number."""
    total: int | None = None
    patterns: set[int | None] = field(default_factory=set)
    """Patterns that found the newest number."""

    def take(self, each: LineValues) -> None:
        number = each.number
        if number is None:
            self._add_values(each)
            return
        self.steps.lines += 1
        if not self.steps.series:
            self._start_over(each, number)
        elif number > self.number:
            self._add_step(each, number)
        elif each.line.part != self.steps.series[-1][-1].line.part:
            # The middle of a large log was not read.
            self._start_over(each, number)
        elif number == self.number and (self.is_bar or each.pattern not in self.patterns):
            self.patterns.add(each.pattern)
            self._add_values(each)
        elif number < self.number and self.interval is not None and number <= self.first + self.interval:
            if self._is_epoch(each):
                self._begin_epoch(number)
                self._add_step(each, number, restarts=True)
            else:
                self._start_over(each, number)
        else:
            self.steps.num_late += 1

    def _is_epoch(self, each: LineValues) -> bool:
        """Whether a line names a later epoch than before, or the bar was full."""
        is_full = self.is_bar and self.total is not None and self.number >= self.total
        return is_full or (each.epoch is not None and (self.epoch is None or each.epoch > self.epoch))

    def _add_values(self, each: LineValues) -> None:
        if self.steps.series:
            self.steps.series[-1][-1].values.update(each.extras)

    def _add_step(self, each: LineValues, number: int, *, restarts: bool = False) -> None:
        self.number, self.total, self.patterns, self.epoch = number, each.total, {each.pattern}, each.epoch
        self.steps.series[-1].append(PrintedStep(self.before + number, number, each.line, each.at, each.extras, restarts))

    def _start_over(self, each: LineValues, number: int) -> None:
        self.first, self.before = number, 0
        self.steps.series.append([])
        self._add_step(each, number)

    def _begin_epoch(self, number: int) -> None:
        """A bar shows how long the epoch was; else its next line would have come one interval later."""
        if self.is_bar:
            self.before += self.number if self.total is None else max(self.total, self.number)
        else:
            self.before += self.number + max(self.interval or 0, 1) - number
        self.first = number


def _steps_done(printed: Sequence[PrintedStep]) -> list[PrintedStep]:
    """Steps by a bar's numbers, which count completed steps: 0 is not a step."""
    steps: list[PrintedStep] = []
    restarts = False
    for each in printed:
        restarts = restarts or each.restarts
        if each.number > 0:
            steps.append(replace(each, step=each.step - 1, restarts=restarts and bool(steps)))
            restarts = False
    return steps


@dataclass
class ProgressBar:
    """One bar from its first drawing to its last."""

    total: int | None
    drawn: list[LineValues] = field(default_factory=list)
    losses: list[LineValues] = field(default_factory=list)
    """Lines with a loss, in the bar itself or between two drawings of it."""

    @property
    def is_empty(self) -> bool:
        """Whether it never got beyond its start."""
        return not any(each.number for each in self.drawn)

    @property
    def wall_s(self) -> float:
        wall_s = self.drawn[-1].line.m - self.drawn[0].line.m
        return wall_s if math.isfinite(wall_s) else 0.0


@dataclass(frozen=True, kw_only=True)
class TrainingBar:
    """Lines of the training's bar and the losses between them, in order."""

    found: list[LineValues]
    total: int | None = None
    left_out: tuple[int | None, ...] = ()
    """Lengths of the other bars; None for one that showed no length."""


def training_bar(found: Sequence[LineValues], steps: int | None) -> TrainingBar:
    """The training's bar among others: tokenising and evaluation draw bars of the same kind.

    Bars are distinguished by their length. The one as long as the plan's `steps` is the training's, else the one during which losses
    were printed, else the one that took longest. Of several bars of that length (an evaluation as long as the training) only those with
    losses count, if any has them."""
    bars = [bar for bar in _bars(found) if not bar.is_empty]
    if not bars:
        return TrainingBar(found=[])
    by_total: dict[int | None, list[ProgressBar]] = {}
    for bar in bars:
        by_total.setdefault(bar.total, []).append(bar)
    total = max(by_total, key=lambda total: _evidence(by_total[total], is_planned=total is not None and total == steps))
    kept = [bar for bar in by_total[total] if bar.losses] or by_total[total]
    lines = {each.at: each for bar in kept for each in (*bar.drawn, *bar.losses)}
    others = {bar.total for bar in bars if not any(bar is one for one in kept)}
    left_out = tuple(sorted(others, key=lambda total: (total is None, total)))
    return TrainingBar(found=[lines[at] for at in sorted(lines)], total=total, left_out=left_out)


def _evidence(bars: Sequence[ProgressBar], *, is_planned: bool) -> tuple[bool, int, float, int]:
    """Evidence that bars of one length are the training's."""
    return is_planned, sum(len(bar.losses) for bar in bars), sum(bar.wall_s for bar in bars), sum(len(bar.drawn) for bar in bars)


def _bars(found: Sequence[LineValues]) -> list[ProgressBar]:
    """Every bar, with the losses printed while it was drawn."""
    drawn: dict[int | None, list[LineValues]] = {}
    for each in found:
        if each.number is not None:
            drawn.setdefault(each.total, []).append(each)
    bars = [bar for total, lines in drawn.items() for bar in _split_bars(total, lines)]
    _assign_losses(found, {each.at: bar for bar in bars for each in bar.drawn})
    return bars


def _split_bars(total: int | None, lines: Sequence[LineValues]) -> Iterator[ProgressBar]:
    """Consecutive bars of one length: each begins near where the one before it began."""
    interval = usual_interval(lines)
    bar = ProgressBar(total)
    for each in lines:
        number = each.number or 0
        first = (bar.drawn[0].number or 0) if bar.drawn else 0
        if bar.drawn and number < (bar.drawn[-1].number or 0) and number <= first + interval:
            yield bar
            bar = ProgressBar(total)
        bar.drawn.append(each)
    yield bar


def _assign_losses(found: Sequence[LineValues], bar_of: dict[int, ProgressBar]) -> None:
    """A loss is a bar's when the bar is drawn before it and again after it: one that has ended has none.

    Only the last of its losses need not be followed by a drawing."""
    last: ProgressBar | None = None
    waiting: list[LineValues] = []
    for each in found:
        bar = bar_of.get(each.at)
        if bar is None:
            waiting += [each] if "loss" in each.values else []
            continue
        if last is not None and (bar is last or last.losses):
            last.losses += waiting
        bar.losses += [each] if "loss" in each.values else []
        last, waiting = bar, []
    if last is not None and last.losses:
        last.losses += waiting


LOSS = re.compile(rf"\{{'loss': '?({NUMBER}|nan|inf)'?[,}}]")
SUMMARY = re.compile(r"\{'train_runtime':")
FIELD = re.compile(rf"'(\w+)': '?({NUMBER})'?[,}}]")
LINES_OF_RESUMED = 10
"""Enough lines to show whether epochs begin at 0."""
EPOCH = re.compile(r"'epoch': ('?)\d+\.?(\d*)")
TOTAL_STEPS = re.compile(r"\bTotal optimization steps = ([\d,]+)")
# Of train_steps_per_second, which has three decimals, or four digits in newer versions.
SPEED_ERROR_PER_S = SPEED_ERROR_SHARE = 0.0005
# Older versions of the Trainer round epochs to so many decimals (and Python prints 1.00 as 1.0), newer ones print so many digits as text.
EPOCH_DECIMALS = 2
EPOCH_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class TrainerSteps:
    """Lines of a Hugging Face Trainer without its progress bar, with their steps."""

    found: list[LineValues] = field(default_factory=list)
    total: int = 0
    """Steps of the training."""
    is_even: bool = False
    """Whether no logging interval fits the epochs and steps were spread evenly over the lines."""


def steps_by_epoch(lines: Sequence[StampedLine], planned: int | None = None) -> TrainerSteps:
    """Step and loss of each `{'loss': …, 'epoch': …}` line of a Hugging Face Trainer without its progress bar; none when the run did not
    come to its summary.

    Those lines have an epoch and no step; header and last line give the number of steps and of epochs, from which the step of every line
    follows. Where rounded epochs are coarser than steps, the Trainer's logging interval gives the steps. Steps count from 0, while the
    Trainer counts completed steps."""
    logged = [(number, strip_colours(line.text)) for number, line in enumerate(lines) if "{'" in line.text]
    summary = next((_fields(text) for _, text in reversed(logged) if SUMMARY.search(text)), {})
    epochs, total = summary.get("epoch", 0.0), _trainer_total(lines, summary, planned)
    if total is None or epochs <= 0:
        return TrainerSteps()
    # A loss without an epoch, or with one beyond the last (both were rounded), has no step.
    losses = [
        (number, match[1], epoch, text)
        for number, text in logged
        if (match := LOSS.search(text)) and 0 <= (epoch := _fields(text).get("epoch", -1.0)) <= 1.01 * epochs
    ]
    half = _epoch_error([text for *_, text in losses], epochs)
    steps, is_even = _steps_of_epochs([epoch for _, _, epoch, _ in losses], epochs, total, half)
    found = [
        LineValues(line=lines[number], at=number, values={"step": step - 1, "loss": float(loss)}, pattern=0)
        for (number, loss, _, _), step in zip(losses, steps, strict=False)
    ]
    return TrainerSteps(found=found, total=total, is_even=is_even)


def _epoch_error(texts: Iterable[str], last_epoch: float) -> float:
    """Rounding error of a printed epoch."""
    printed = [match for text in texts if (match := EPOCH.search(text))]
    if any(match[1] for match in printed):
        return 0.5 * 10.0 ** (math.floor(math.log10(last_epoch)) + 1 - EPOCH_DIGITS)
    return 0.5 * 10.0 ** -max([EPOCH_DECIMALS, *(len(match[2]) for match in printed)])


def _trainer_total(lines: Sequence[StampedLine], summary: dict[str, float], planned: int | None) -> int | None:
    """Steps of the training by its header, else the plan's if they fit the summary, else by the summary; None without one."""
    run_s = summary.get("train_runtime", 0.0)
    computed = run_s * summary.get("train_steps_per_second", 0.0)
    if not 1 <= computed <= LARGEST_STEP:
        return None
    error = 0.5 + run_s * SPEED_ERROR_PER_S + computed * SPEED_ERROR_SHARE
    headers = (match for line in lines if "optimization steps" in line.text and (match := TOTAL_STEPS.search(line.text)))
    known = [int(match[1].replace(",", "")) for match in headers] + ([planned] if planned else [])
    # A training that ended early did fewer than announced.
    return next((total for total in known if abs(total - computed) <= error), round(computed))


def _steps_of_epochs(epochs: Sequence[float], last_epoch: float, total: int, half: float) -> tuple[list[int], bool]:
    """Completed steps at each line, whose epochs may be off by `half`; and whether they were only spread evenly."""
    if half / last_epoch * total <= 0.5:
        return [round(epoch / last_epoch * total) for epoch in epochs], False
    if len(epochs) > total:
        return [], False
    for with_first in (False, True):
        # Of intervals that rounding makes indistinguishable, the one whose last line is the end of the training, as its epoch says.
        fitting = [
            (steps[-1] != total or epochs[-1] != last_epoch, error, steps)
            for steps in _regular_steps(epochs, last_epoch / total, total, with_first=with_first)
            if (error := _rounding_error(epochs, steps, last_epoch / total, total, half)) is not None
        ]
        if fitting:
            return min(fitting)[2], False
    begun, interval = _checkpoint(epochs, last_epoch / total)
    resumed = [interval * (round(begun / interval) + number) for number in range(1, len(epochs) + 1)] if begun and interval else []
    if resumed and resumed[-1] <= total and _rounding_error(epochs, resumed, last_epoch / total, total, half) is not None:
        return resumed, False
    return [begun + round(number * (total - begun) / len(epochs)) for number in range(1, len(epochs) + 1)], True


def _checkpoint(epochs: Sequence[float], per_step: float) -> tuple[int, int]:
    """The step from which a training was resumed, 0 where it began at the first, and the steps between two lines."""
    if len(epochs) < LINES_OF_RESUMED:
        return 0, 0
    slope, begun = statistics.linear_regression(range(1, len(epochs) + 1), epochs)
    interval = max(round(slope / per_step), 1)
    # The line of a training that began at the first step goes through the origin.
    return (round(begun / per_step), interval) if begun > 2 * slope > 0 else (0, interval)


def _regular_steps(epochs: Sequence[float], per_step: float, total: int, *, with_first: bool) -> Iterator[list[int]]:
    """Steps for the logging intervals nearest to the epochs that give so many lines; `with_first`: the first step is logged too."""
    regular = epochs[1:] if with_first else epochs
    if not regular:
        return
    count = len(regular)
    # Least squares of a line through the origin.
    slope = sum(number * epoch for number, epoch in enumerate(regular, 1)) / sum(number**2 for number in range(1, count + 1)) / per_step
    shortest, longest = total // (count + 1) + 1, total // count
    near = {min(max(round(slope) + offset, shortest), longest) for offset in (-1, 0, 1)}
    for interval in sorted(near) if shortest <= longest else ():
        yield [*([1] if with_first else []), *(interval * number for number in range(1, count + 1))]


def _rounding_error(epochs: Sequence[float], steps: Sequence[int], per_step: float, total: int, half: float) -> float | None:
    """Mean distance of the printed epochs from those of `steps`; None where rounding does not explain one. The last epoch, and with it
    `per_step`, is rounded too."""
    distances = [abs(step * per_step - epoch) for epoch, step in zip(epochs, steps, strict=True)]
    if any(distance > half * (1 + step / total) + 1e-9 for distance, step in zip(distances, steps, strict=True)):
        return None
    return statistics.fmean(distances)


def count_losses(lines: Sequence[StampedLine]) -> int:
    """Lines with a loss as the Trainer prints it, whether or not their steps can be found."""
    return sum(LOSS.search(strip_colours(line.text)) is not None for line in lines if "{'loss'" in line.text)


def _fields(text: str) -> dict[str, float]:
    """Numbers by name, without those of too large an exponent."""
    return {name: number for name, value in FIELD.findall(text) if math.isfinite(number := float(value))}


MIN_STEPS = 2
OWN = "plan"
SEED = "seed"
# Rank 0's line of a step for which there are TimingRank lines.
RANK_LINES = LogPatterns(name=SEED, lines=(rf"\bTimingRank step=(?P<step>\d+) rank=0(?: loss=(?P<loss>{NUMBER}|-?nan|-?inf))?\b",))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one format finds in the lines."""

    name: str
    numbered: NumberedSteps = field(default_factory=NumberedSteps)
    bar: TrainingBar | None = None
    """The bar that was read, if there were bars."""
    timed_out: tuple[str, ...] = ()
    """Patterns of the plan that took too long for a line: their earlier results are not used."""
    rank: int | None = None
    """Rank whose lines were read; None for lines without a rank."""
    spread_over: int | None = None
    """The number of steps that were spread evenly over lines without a step; None where every line has its own."""

    @property
    def printed(self) -> list[PrintedStep]:
        return self.numbered.printed

    @property
    def is_enough(self) -> bool:
        """Whether a step follows another in one epoch: numbers that only go back give no time."""
        return not self.timed_out and len(self.printed) >= MIN_STEPS and any(not each.restarts for each in self.printed[1:])

    @property
    def has_loss(self) -> bool:
        return any("loss" in each.values for each in self.printed)


def best_reading(lines: Sequence[StampedLine], workload: WorkloadSpec, steps: int | None) -> tuple[Reading | None, list[Caution]]:
    """The reading to use, and what is wrong with the plan's own patterns.

    The plan's own patterns come first, then the format the plan names. Among the built-in formats one that finds losses comes before
    one that finds only steps, then a mere bar; then the one with the most steps. If none finds any, `TimingRank` lines alone give
    the steps, else any lines with a step and a loss."""
    formats, cautions = _candidates(workload)
    readings = [read_format(lines, fmt, steps) for fmt in formats]
    cautions += [_slow_pattern_caution(pattern) for reading in readings for pattern in reading.timed_out]
    fallbacks = {"auto": (RANK_LINES, STEP_AND_LOSS), SEED: (RANK_LINES,)}.get(workload.reads, ())
    for fallback in fallbacks:
        # A bar without losses may not be the training's.
        if not any(reading.is_enough and (reading.has_loss or reading.name not in BARS) for reading in readings):
            readings.append(read_format(lines, fallback, steps))
    return max((reading for reading in readings if reading.is_enough), key=_preference, default=None), cautions


def _preference(reading: Reading) -> tuple[bool, bool, bool, int]:
    return reading.name == OWN, reading.has_loss, reading.name not in BARS, len(reading.printed)


def _slow_pattern_caution(pattern: str) -> Caution:
    return Caution(
        kind="slow_pattern",
        text=f"The plan's pattern {pattern!r} took too long for a line of launcher.log and was not used; write it without a repeat inside "
        "a repeat, such as (a+)+.",
    )


def _candidates(workload: WorkloadSpec) -> tuple[list[LogPatterns], list[Caution]]:
    """Formats to try, and what is wrong with the plan's own patterns."""
    own, cautions = [], []
    if workload.patterns:
        try:
            timed_patterns(workload.patterns)
            own = [LogPatterns(name=OWN, lines=workload.patterns)]
        except UsageError as error:
            cautions = [Caution(kind="bad_pattern", text=f"The plan's own patterns were not used: {error}.")]
    if workload.reads == "auto":
        return [*own, *LOG_FORMATS.values()], cautions
    return [*own, *([LOG_FORMATS[workload.reads]] if workload.reads in LOG_FORMATS else [])], cautions


def read_format(lines: Sequence[StampedLine], fmt: LogPatterns, steps: int | None = None) -> Reading:
    """Steps by one format, from the lines without a rank, else from the lowest rank whose lines hold two."""
    patterns: Sequence[LinePattern] = timed_patterns(fmt.lines) if fmt.name == OWN else compile_patterns(fmt.lines)
    by_rank = _values_by_rank(lines, patterns)
    if timed_out := timed_out_patterns(patterns):
        return Reading(name=fmt.name, timed_out=timed_out)
    readings = [replace(_read_values(by_rank[rank], fmt.name, steps), rank=None if rank < 0 else rank) for rank in sorted(by_rank)]
    found = next((reading for reading in readings if reading.is_enough), Reading(name=fmt.name))
    if found.has_loss or fmt.name != "hf_trainer":
        return found
    # A bar without losses is not the training's: the Trainer's own may be switched off.
    by_epoch = steps_by_epoch(lines, steps)
    without_bar = Reading(name=fmt.name, numbered=number_steps(by_epoch.found), spread_over=by_epoch.total if by_epoch.is_even else None)
    return without_bar if without_bar.is_enough else found


def _values_by_rank(lines: Sequence[StampedLine], patterns: Sequence[LinePattern]) -> dict[int, list[LineValues]]:
    """Values in the lines of each rank; -1 for lines without one."""
    found: dict[int, list[LineValues]] = {}
    epochs: dict[int, int] = {}
    for number, line in enumerate(lines):
        rank = -1 if line.rank is None else line.rank
        if "poch" in line.text and (named := NAMED_EPOCH.search(line.text)):
            epochs[rank] = int(named[1])
        values, pattern = parse_line(line.text, patterns)
        if values:
            # Often only one process prints it, without a prefix.
            epoch = epochs.get(rank, epochs.get(-1))
            found.setdefault(rank, []).append(LineValues(line=line, at=number, values=values, pattern=pattern, epoch=epoch))
    return found


def _read_values(found: list[LineValues], name: str, steps: int | None) -> Reading:
    is_bar = name in BARS
    if not is_bar and not any(each.total for each in found):
        return Reading(name=name, numbered=number_steps(found))
    bar = training_bar(found, steps)
    return Reading(name=name, numbered=number_steps(bar.found, is_bar=is_bar), bar=bar)
