"""What each log format finds in a script's lines, and which of them is to be believed.

In: stamped lines and the run's spec. Out: the best `Reading`, or None where no format finds two steps that follow one another.

The plan's own patterns come first, then the format the plan names. Among the ready formats one that brings losses with its steps
comes before one that brings steps alone, and that before a mere bar; then the one that finds the most steps. Where none finds any,
`TimingRank` lines alone tell the steps too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from seatrial.collect.logs.bars import TrainingBar, training_bar
from seatrial.collect.logs.hf_lines import steps_by_epoch
from seatrial.collect.logs.source import StampedLine
from seatrial.collect.logs.step_numbers import Numbered, PrintedStep, Told, number_steps
from seatrial.errors import UsageError
from seatrial.log_lines import LinePattern, compile_patterns, given_up, own_patterns, told_in
from seatrial.records.caution import Caution
from seatrial.records.log_formats import BARS, NUMBER, READY
from seatrial.records.run_spec import LogPatterns, RunSpec, WorkloadSpec

LEAST_STEPS = 2
OWN = "plan"
SEED = "seed"
# Rank 0's line of a step that its TimingRank lines tell of.
RANK_LINES = LogPatterns(name=SEED, lines=(rf"\bTimingRank step=(?P<step>\d+) rank=0(?: loss=(?P<loss>{NUMBER}|-?nan|-?inf))?\b",))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one format finds in the lines."""

    name: str
    numbered: Numbered
    bar: TrainingBar | None = field(default=None)
    """Which bar was read, where there were bars."""
    gave_up: tuple[str, ...] = ()
    """Patterns of the plan that took too long for a line: what they told up to there is not taken."""

    @property
    def printed(self) -> list[PrintedStep]:
        return self.numbered.printed

    @property
    def is_enough(self) -> bool:
        """Whether some step follows another in one epoch: numbers that only go back tell no time."""
        return not self.gave_up and len(self.printed) >= LEAST_STEPS and any(not each.restarts for each in self.printed[1:])

    @property
    def has_loss(self) -> bool:
        return any("loss" in each.values for each in self.printed)


def best_reading(lines: Sequence[StampedLine], spec: RunSpec) -> tuple[Reading | None, list[Caution]]:
    """The reading to believe, and what is wrong with the plan's own patterns."""
    formats, cautions = _candidates(spec.workload, spec.run)
    readings = [read_format(lines, fmt, spec.steps) for fmt in formats]
    cautions += [_gave_up(pattern, spec.run) for reading in readings for pattern in reading.gave_up]
    if not any(reading.is_enough for reading in readings) and spec.workload.reads in ("auto", SEED):
        readings.append(read_format(lines, RANK_LINES, spec.steps))
    return max((reading for reading in readings if reading.is_enough), key=_worth, default=None), cautions


def _gave_up(pattern: str, run: str) -> Caution:
    return Caution(
        kind="slow_pattern",
        subject=run,
        text=f"The plan's pattern {pattern!r} took too long for a line of launcher.log and was not used; write it without a repeat inside "
        "a repeat, such as (a+)+.",
    )


def _worth(reading: Reading) -> tuple[bool, bool, bool, int]:
    return reading.name == OWN, reading.has_loss, reading.name not in BARS, len(reading.printed)


def _candidates(workload: WorkloadSpec, run: str) -> tuple[list[LogPatterns], list[Caution]]:
    """Formats to try, and what is wrong with the plan's own patterns."""
    own, cautions = [], []
    if workload.patterns:
        try:
            compile_patterns(workload.patterns)
            own = [LogPatterns(name=OWN, lines=workload.patterns)]
        except UsageError as error:
            cautions = [Caution(kind="bad_pattern", subject=run, text=f"The plan's own patterns were not used: {error}.")]
    if workload.reads == "auto":
        return [*own, *READY.values()], cautions
    return [*own, *([READY[workload.reads]] if workload.reads in READY else [])], cautions


def read_format(lines: Sequence[StampedLine], fmt: LogPatterns, steps: int | None = None) -> Reading:
    """Steps by one format, from the unmarked lines or else from the lowest rank whose lines tell of two."""
    patterns: Sequence[LinePattern] = own_patterns(fmt.lines) if fmt.name == OWN else compile_patterns(fmt.lines)
    told = _told(lines, patterns)
    if gave_up := given_up(patterns):
        return Reading(name=fmt.name, numbered=Numbered(), gave_up=gave_up)
    readings = [_reading(told[rank], fmt.name, steps) for rank in sorted(told)]
    found = next((reading for reading in readings if reading.is_enough), Reading(name=fmt.name, numbered=Numbered()))
    return found if found.has_loss or fmt.name != "hf_trainer" else _without_bar(lines) or found


def _told(lines: Sequence[StampedLine], patterns: Sequence[LinePattern]) -> dict[int, list[Told]]:
    """What the lines of each rank tell, -1 for unmarked ones."""
    told: dict[int, list[Told]] = {}
    for at, line in enumerate(lines):
        values, teller = told_in(line.text, patterns)
        if values:
            told.setdefault(-1 if line.rank is None else line.rank, []).append(Told(line=line, at=at, values=values, teller=teller))
    return told


def _reading(told: list[Told], name: str, steps: int | None) -> Reading:
    is_bar = name in BARS
    if not is_bar and not any(each.total for each in told):
        return Reading(name=name, numbered=number_steps(told))
    bar = training_bar(told, steps)
    return Reading(name=name, numbered=number_steps(bar.told, is_bar=is_bar), bar=bar)


def _without_bar(lines: Sequence[StampedLine]) -> Reading | None:
    """Steps of a Trainer whose bar is switched off; a bar without losses is then one of something else."""
    told = [
        Told(line=lines[each.at], at=each.at, values={"step": each.step, "loss": each.loss}, teller=0) for each in steps_by_epoch(lines)
    ]
    reading = Reading(name="hf_trainer", numbered=number_steps(told))
    return reading if reading.is_enough else None
