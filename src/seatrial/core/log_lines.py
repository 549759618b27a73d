"""Reads one line of a script's output: the step it reports, and other values.

Used on finished logs by collect/ and on growing ones by observe/. A format is a list of regular expressions with named groups. Each line is
searched (not matched) with every expression; the groups of several lines form one row, until a line has a new `step`. Group names:

    step               step or iteration number               required somewhere in a format
    total              length of the progress bar: lines with another total belong to another bar (tokenising, evaluation)
    iter_ms iter_s     time of a step as the script itself printed it; used only where no arrival times were kept
    samples tokens     work of one rank in one step
    global_samples global_tokens    work of all ranks in one step
    samples_per_s tokens_per_s      the script's own rate, shown beside ours
    loss
    pause              no number: something other than training took place, and the next row contains it

Wall-clock times are those at which the output arrived, not those in the text. Colours are removed before a line is searched; numbers may
have thousands separators.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from seatrial.core.errors import UsageError

LONGEST_SEARCH_S = 1.0
"""Limit for one line; a sound expression takes microseconds."""
SLOW_TOTAL_S = 30.0
SLOW_MEAN_S = 0.002
"""Longest mean time per line of an expression that has taken SLOW_TOTAL_S in all."""


@dataclass(frozen=True, kw_only=True)
class LogPatterns:
    """A log format: regular expressions with named groups."""

    name: str
    lines: tuple[str, ...]


NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
PAUSE = "pause"
GROUP_NAMES = (
    *("step", "total", "iter_ms", "iter_s", "samples", "tokens", "samples_per_s", "tokens_per_s", "loss", PAUSE),
    *("global_samples", "global_tokens"),
)

_LOSS = rf"(?P<loss>{NUMBER}|-?[nN]a[nN]|-?inf)"
_MEGATRON = r"\biteration\s+\d+/\s*\d+ \|.*"
_BAR = r"\|[^|]*\|\s*(?P<step>\d+)/(?P<total>\d+|\?) \[[^\]]*"

LOG_FORMATS: dict[str, LogPatterns] = {
    "seed": LogPatterns(name="seed", lines=(rf"(?<!Val )\bStep (?P<step>\d+): Loss {_LOSS}",)),
    # The bar of an evaluation is nested under that of the training, and tqdm ends it with "cursor up": it must not count.
    "hf_trainer": LogPatterns(name="hf_trainer", lines=(rf"^\s*\d+%{_BAR}\](?!\x1b\[A)", rf"\{{'loss': '?{_LOSS}'?[,}}]")),
    "deepspeed": LogPatterns(
        name="deepspeed",
        lines=(
            r"\[Rank 0\] step=(?P<step>\d+), skipped=\d+",
            r"(?:global_step=|\] \d+/)(?P<step>\d+), (?:RunningAvg)?SamplesPerSec=",
            rf"CurrSamplesPerSec=(?P<samples_per_s>{NUMBER})",
        ),
    ),
    "torchtitan": LogPatterns(
        name="torchtitan",
        lines=(rf"(?<!validate )\bstep:\s*(?P<step>[\d,]+)\s+loss:\s*{_LOSS}", r"(?<!validate )\bstep:.*\btps: (?P<tokens_per_s>[\d,]+)"),
    ),
    "lightning": LogPatterns(
        name="lightning",
        lines=(rf"^\s*Epoch \d+:\s+(?:\d+%)?{_BAR}", rf"^\s*Epoch \d+:.*[\s,](?:train[_/])?loss(?:_step)?={_LOSS}"),
    ),
    "nanogpt": LogPatterns(
        name="nanogpt",
        lines=(rf"\biter (?P<step>\d+): loss {_LOSS}, time:? (?P<iter_ms>{NUMBER})\s*ms",),
    ),
    "megatron": LogPatterns(
        name="megatron",
        lines=(
            r"\biteration\s+(?P<step>\d+)/\s*\d+ \|",
            rf"{_MEGATRON}\belapsed time per iteration \(ms\): (?P<iter_ms>{NUMBER})",
            rf"{_MEGATRON}\bglobal batch size:\s+(?P<global_samples>\d+)",
            rf"{_MEGATRON}\| (?:lm )?loss: {_LOSS}",
        ),
    ),
}

# Any line with a step and a loss, for scripts of unknown format; not those of an evaluation.
STEP_AND_LOSS = LogPatterns(
    name="step_and_loss",
    lines=(
        r"(?i)(?<!eval )(?<!val )(?<!validation )(?<!test )\b(?:step|iter|iteration)s?\W{0,4}(?P<step>\d[\d,]*)\b.{0,200}?"
        rf"(?<!eval )(?<!val )(?<!validation )(?<!test )\bloss\W{{0,4}}(?P<loss>{NUMBER}|nan|inf)",
    ),
)

# Every line that a built-in format reads, pauses and headers included, contains one of these: they skip a hundred megabytes of other
# output.
KEYWORDS = tuple(
    word.encode()
    for word in (
        *("tep", "iter ", "oss", "|", "poch", "SamplesPerSec", "Timing", "aving", "aved", "alid", "eval"),
        *("per iteration", "batch size", "batch_size", "seq_length", "world size", "distributed processes"),
    )
)

# Formats whose step is that of a progress bar, which counts finished steps: the first one is 1/N.
BARS = ("hf_trainer", "lightning")

# Lines of something other than training before the next step: name of the pause → expression. The row of that step is left out of the
# window, as after a named pause.
PAUSE_LINES: dict[str, dict[str, str]] = {
    "seed": {"eval": r"Validation Finished for Step", "checkpoint": r"\bSaving .*checkpoint|Saved checkpoint"},
    "hf_trainer": {"eval": r"'eval_(?:loss|runtime)':", "checkpoint": r"Saving model checkpoint"},
    "deepspeed": {"checkpoint": r"Saving model checkpoint|\[Torch\] Saved "},
    "torchtitan": {"eval": r"validate step:", "checkpoint": r"Saving the checkpoint|Finished saving the checkpoint"},
    "lightning": {"eval": r"^\s*Validat(?:ion|ing)\b.*\|\s*\d+/"},
    "nanogpt": {"eval": r"\bstep \d+: train loss .*val loss", "checkpoint": r"saving checkpoint to"},
    "megatron": {"eval": r"\bvalidation loss at iteration", "checkpoint": r"\bsaving checkpoint at iteration"},
}


# Lines of torchrun's ranks carry this mark in launcher.log; the agent puts it there.
RANK_MARK = re.compile(r"^\[rank(\d{1,9})\]: ?")
# Colours. Cursor movements stay: they distinguish a nested progress bar from an outer one.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Regular expressions must not search megabytes of a progress bar or a dumped tensor.
LONGEST_LINE = 4000
# A larger number is a hash, a time in nanoseconds or an address.
LARGEST_STEP = 10**12
COUNTS = ("step", "total")
LONGEST_SHOWN = 300
# Lines of deepspeed's launcher about its processes, each with the whole command.
_LAUNCHER_LINE = re.compile(r"\[launch\.py:\d+:\w+\]|\[runner\.py:\d+:\w+\]")


class TimedPattern:
    """An expression of a plan; once a search takes too long, it finds nothing more.

    With nested repeats one line can take longer than the run did. `regex` has a timeout that works in any thread; `re` has none.
    """

    def __init__(self, pattern: re.Pattern[str], longest_s: float = LONGEST_SEARCH_S) -> None:
        import regex

        try:
            self._pattern = regex.compile(pattern.pattern)
        except (regex.error, OverflowError, RecursionError) as error:
            raise _bad_pattern(pattern.pattern, error) from error
        self.text, self.groupindex = pattern.pattern, pattern.groupindex
        self._longest_s = longest_s
        self._searches, self._spent_s = 0, 0.0
        self.timed_out = False

    def search(self, text: str, /) -> re.Match[str] | None:
        if self.timed_out:
            return None
        began_s = time.perf_counter()
        try:
            found: re.Match[str] | None = self._pattern.search(text, timeout=self._longest_s)
        except TimeoutError:
            self.timed_out = True
            return None
        self._searches += 1
        self._spent_s += time.perf_counter() - began_s
        self.timed_out = self._spent_s > max(SLOW_TOTAL_S, SLOW_MEAN_S * self._searches)
        return found


class LinePattern(Protocol):
    """A compiled expression, or a `TimedPattern`."""

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def search(self, text: str, /) -> re.Match[str] | None: ...


def compile_patterns(patterns: Iterable[str]) -> list[re.Pattern[str]]:
    """Compiled expressions, or a UsageError that names the wrong one and the reason."""
    compiled = []
    for text in patterns:
        try:
            pattern = re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise _bad_pattern(text, error) from error
        unknown = set(pattern.groupindex) - set(GROUP_NAMES)
        if unknown or not pattern.groupindex:
            named = f"has the group '{sorted(unknown)[0]}'" if unknown else "has no named group"
            raise UsageError(f"pattern {text!r} {named}; groups that are read: {', '.join(GROUP_NAMES)}")
        compiled.append(pattern)
    return compiled


def _bad_pattern(text: str, error: Exception) -> UsageError:
    return UsageError(f"pattern {text!r} is not a regular expression: {error}")


def timed_patterns(patterns: Iterable[str]) -> list[TimedPattern]:
    """A plan's own expressions, each with a bound on its time."""
    return [TimedPattern(pattern) for pattern in compile_patterns(patterns)]


def timed_out_patterns(patterns: Iterable[LinePattern]) -> tuple[str, ...]:
    """Expressions that took too long, as written in the plan."""
    return tuple(pattern.text for pattern in patterns if isinstance(pattern, TimedPattern) and pattern.timed_out)


def split_rank(line: str) -> tuple[int | None, str]:
    """The rank that wrote a merged line (None when it has no mark) and the line without the mark."""
    mark = RANK_MARK.match(line)
    return (int(mark.group(1)), line[mark.end() :]) if mark else (None, line)


def strip_colours(line: str) -> str:
    """The line without colours, cut to LONGEST_LINE."""
    line = line[:LONGEST_LINE]
    return COLOUR.sub("", line) if "\x1b" in line else line


def line_values(line: str, patterns: Sequence[LinePattern]) -> dict[str, float]:
    """Every number the patterns find in one line, by group name."""
    return parse_line(line, patterns)[0]


def parse_line(line: str, patterns: Sequence[LinePattern]) -> tuple[dict[str, float], int | None]:
    """The values, and which pattern found the step, since two may report the same one."""
    found: dict[str, float] = {}
    found_by: int | None = None
    text = strip_colours(line)
    for place, pattern in enumerate(patterns):
        match = pattern.search(text)
        if match:
            numbers = _numbers(match)
            found.update(numbers)
            found_by = place if "step" in numbers else found_by
    return found, found_by


def _numbers(match: re.Match[str]) -> dict[str, float]:
    numbers = {}
    for name, text in match.groupdict().items():
        # A plan's own pattern may catch text that is not a number.
        with contextlib.suppress(ValueError):
            if text is not None and name != PAUSE:
                numbers[name] = float(text.replace(",", ""))
    return {name: value for name, value in numbers.items() if name not in COUNTS or 0 <= value <= LARGEST_STEP}


def lines_to_show(lines: Sequence[str]) -> list[str]:
    """The last lines of a log for people: shortened, and without the launcher's own where there are others."""
    kept = [line for line in lines if not _LAUNCHER_LINE.search(line)]
    return [shorten_line(line) for line in kept or lines]


def shorten_line(line: str) -> str:
    """The line, without its middle where it is too long to read."""
    return line if len(line) <= LONGEST_SHOWN else f"{line[: LONGEST_SHOWN * 2 // 3]} … {line[-LONGEST_SHOWN // 3 :]}"


# Timestamps at the beginning of a line, behind prefixes at most: ISO with or without a zone, and those of torch's own logging.
STAMP = re.compile(
    r"(?P<iso>\d{4}-(?P<month>\d\d)-(?P<day>\d\d)[T _](?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:[.,]\d{1,9})?)(?P<zone>Z|[+-]\d\d:?\d\d)?)"
    r"|\b[IWEF](?P<month2>\d\d)(?P<day2>\d\d) (?P<h2>\d\d):(?P<m2>\d\d):(?P<s2>\d\d(?:\.\d{1,9})?)"
)
STAMP_WITHIN = 60
"""Characters in which a timestamp must begin."""
DAYS_BEFORE_MONTH = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)


def time_of_line(line: str) -> tuple[float | None, str]:
    """Seconds since the year began, and which kind of timestamp it is: kinds of one log are on one clock."""
    match = STAMP.search(line, 0, STAMP_WITHIN + 40)
    if match is None or match.start() > STAMP_WITHIN:
        return None, ""
    number = "" if match["iso"] else "2"
    month, day, hours, minutes = (int(match[f"{name}{number}"]) for name in ("month", "day", "h", "m"))
    if not 1 <= month <= len(DAYS_BEFORE_MONTH):
        return None, ""
    days = DAYS_BEFORE_MONTH[month - 1] + day
    seconds = float(match[f"s{number}"].replace(",", "."))
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds, f"iso{match['zone'] or ''}" if match["iso"] else "torch"
