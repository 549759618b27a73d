"""What the logs of a job show, whoever started it: how it ended, the first cause, steps, rate, losses, the script's own summary.

In: files and folders, as they were named; the exit code and the number of steps asked for, where known. Out: a `LogReport`. No campaign is
needed and nothing is written.

Lines of several files are read in the order of their timestamps where every file has some of one kind, else file after file, errors
(`.err`, `stderr`) last.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.collect.bounded_lines import bounded_lines
from seatrial.collect.diagnosis import LogReader
from seatrial.collect.launcher_log import LONGEST_TEXT_BYTES, StampedLine, read_lines
from seatrial.collect.log_steps import LOSS, STEP_AND_LOSS, PrintedStep, Reading, best_reading
from seatrial.core.errors import UsageError
from seatrial.core.log_lines import KEYWORDS, NUMBER, split_rank, strip_colours
from seatrial.core.paths import ATTEMPT_FILES
from seatrial.core.text import MIB
from seatrial.records.outcome import Cause, Diagnosis, Outcome
from seatrial.records.plan import LOCAL, LauncherSpec, PlaceSpec, RunSpec, WorkloadSpec
from seatrial.records.signatures.registry import advice_without_plan, general

LOG_ENDINGS = (".log", ".out", ".err", ".txt")
LOG_NAMES = ("stdout", "stderr", "log")
OWN_LOG = ATTEMPT_FILES.launcher_log.name
MAX_FILES = 4096
COMPRESSED = (".gz", ".xz", ".bz2", ".zst", ".zip")
# `rank5`, `rank_5`, `rank-05`; and `attempt_0/5/stderr.log` of torchrun's --log-dir.
NAMED_RANK = re.compile(r"(?:^|[^a-z])rank[_.-]?(?P<rank>\d{1,6})(?!\d)", re.IGNORECASE)
TORCHRUN_FOLDER = re.compile(r"(?:^|/)attempt_(?P<attempt>\d{1,6})/(?P<rank>\d{1,4})/std(?:out|err)\.log$")
ERRORS_FILE = re.compile(r"\.err$|\.e\d+$|stderr", re.IGNORECASE)

# Timestamps at the beginning of a line, behind prefixes at most: ISO with or without a zone, and those of torch's own logging.
STAMP = re.compile(
    r"(?P<iso>\d{4}-(?P<month>\d\d)-(?P<day>\d\d)[T _](?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:[.,]\d{1,9})?)(?P<zone>Z|[+-]\d\d:?\d\d)?)"
    r"|\b[IWEF](?P<month2>\d\d)(?P<day2>\d\d) (?P<h2>\d\d):(?P<m2>\d\d):(?P<s2>\d\d(?:\.\d{1,9})?)"
)
STAMP_WITHIN = 60
"""Characters in which a timestamp must begin."""
PRESCAN_LINES = 2000
STEPS_BYTES = 16 * MIB
"""Of a larger file the first and the last half of this are searched for steps: seconds, and enough for a rate and a loss."""
DAYS_BEFORE_MONTH = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)

# The end of an attempt, where the step numbers begin anew after it.
ATTEMPT_ENDS = re.compile(rb"Traceback \(most recent call last\):|\b(?:[Rr]estarting|[Rr]etrying|[Rr]esuming)\b")
BAR_RATE = re.compile(rf"[\s,](?P<rate>{NUMBER})(?P<unit>it/s|s/it)\b")
SUMMARY = re.compile(rf"'(?P<name>train_\w+|eval_loss|epoch)': '?(?P<value>{NUMBER})'?[,}}]")
SUMMARY_TABLE = re.compile(r"^\s*(?P<name>train_(?:runtime|loss|\w+_per_second))\s+=\s+(?P<value>[\d:.]+)\s*$")


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """One file of a job's output."""

    path: Path
    name: str
    """As it is shown."""
    rank: int | None = None
    """By its name."""


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """What the script's own lines say about its steps."""

    first: int
    last: int
    total: int | None = None
    """Length of the progress bar."""
    num_lines: int = 0
    format: str = ""
    """The log format that fits; empty for any line with a step and a loss."""
    steps_per_s: float | None = None
    rate_from: str = ""
    """What the rate was computed from."""
    tokens_per_s: float | None = None
    """As the script printed it: the median."""
    samples_per_s: float | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    lowest_loss: float | None = None
    nan_from: int | None = None
    """The step from which no loss is a finite number, to the end."""
    num_nan: int = 0
    """Lines with such a loss."""
    num_restarts: int = 0
    """How often the job began anew: only the steps of its last attempt are counted."""


@dataclass(frozen=True, kw_only=True)
class LogReport:
    """Everything `seatrial diagnose` shows."""

    files: tuple[str, ...]
    num_lines: int
    num_bytes: int
    exit_code: int | None
    diagnosis: Diagnosis
    steps: StepSummary | None = None
    reported: dict[str, float] = field(default_factory=dict)
    """Figures of the script's own summary, by its names."""
    losses: tuple[float, ...] = ()
    """First, last and lowest loss of a log whose steps are unknown."""


def diagnose_logs(files: Sequence[LogFile], exit_code: int | None = None, asked_steps: int | None = None) -> LogReport:
    reader = LogReader()
    num_lines = 0
    for file, line in _in_order(files):
        reader.feed(line, source=file.name if len(files) > 1 else "", rank=file.rank)
        num_lines += 1
    steps, reported = _steps_and_summary(files)
    diagnosis = _with_progress(_with_losses(reader.result(exit_code=exit_code, asked_steps=asked_steps), steps), reader.unfinished())
    return LogReport(
        files=tuple(file.name for file in files),
        num_lines=num_lines,
        num_bytes=sum(file.path.stat().st_size for file in files),
        exit_code=exit_code,
        diagnosis=replace(diagnosis, action=advice_without_plan(diagnosis.signature) if diagnosis.signature else ""),
        steps=steps,
        reported=reported,
        losses=() if steps is not None else _losses_without_steps(files),
    )


def _with_losses(found: Diagnosis, steps: StepSummary | None) -> Diagnosis:
    """A job that ended well by its log or exit code, and trained nothing: whether that was meant, nobody can tell."""
    if found.outcome is not Outcome.OK or steps is None or steps.nan_from is None:
        return found
    entry = general(Cause.NAN)
    detail = f"loss is nan or inf from step {steps.nan_from} to the end"
    return replace(
        found, outcome=None, cause=entry.cause, detail=detail, action=entry.action, signature=entry.id, fault=entry.fault, good_end=True
    )


def _with_progress(found: Diagnosis, unfinished: tuple[int, int] | None) -> Diagnosis:
    """An exit code of 0 may be that of a pipe's last command: a log that ends in the middle of a training does not confirm it."""
    if found.outcome is not Outcome.OK or found.good_end or unfinished is None:
        return found
    entry = general(Cause.UNKNOWN)
    detail = f"the log ends at {unfinished[0]:,} of {unfinished[1]:,}"
    return replace(found, outcome=None, cause=entry.cause, detail=detail, action=entry.action, signature=entry.id)


def find_logs(paths: Sequence[Path]) -> list[LogFile]:
    """The files that are named, and those with a log's name in folders; errors last."""
    found: dict[Path, LogFile] = {}
    for path in paths:
        if path.is_dir():
            for file in _of_last_attempts(_logs_in(path)):
                found.setdefault(file, _log_file(file, str(file.relative_to(path))))
        elif path.exists():
            if path.suffix in COMPRESSED:
                raise UsageError(
                    f"{path} is compressed: decompress it into a pipe and read that, as in `zcat {path} | seatrial diagnose -`"
                )
            found.setdefault(path, _log_file(path, str(path)))
        else:
            raise UsageError(f"{path}: no such file or folder")
    files = sorted(found.values(), key=lambda file: ERRORS_FILE.search(file.path.name) is not None)
    # Numbers of several nodes' local ranks repeat: they name no rank then.
    numbered = [file.rank for file in files if file.rank is not None and TORCHRUN_FOLDER.search(file.path.as_posix())]
    if len(set(numbered)) * 2 < len(numbered):
        return [LogFile(path=file.path, name=file.name) for file in files]
    return files


def _of_last_attempts(paths: Sequence[Path]) -> list[Path]:
    """Without what ranks printed in attempts after which torchrun started them again."""
    last: dict[Path, int] = {}
    for path in paths:
        if (match := TORCHRUN_FOLDER.search(path.as_posix())) and path.stat().st_size:
            last[path.parents[2]] = max(last.get(path.parents[2], 0), int(match["attempt"]))
    matches = ((path, TORCHRUN_FOLDER.search(path.as_posix())) for path in paths)
    return [path for path, match in matches if match is None or int(match["attempt"]) >= last.get(path.parents[2], 0)]


def _logs_in(folder: Path) -> list[Path]:
    candidates = (path for path in sorted(folder.rglob("*")) if not path.is_symlink() and path.is_file())
    found = [path for path in candidates if _is_log(path) and not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    own = [path for path in found if path.name == OWN_LOG]
    if own:
        attempts = {next((parent for parent in path.parents if parent.name.startswith("attempt-")), path.parent) for path in own}
        if len(attempts) > 1:
            raise UsageError(
                f"{folder} holds {len(attempts)} attempts of a campaign: name the folder of one, or use `seatrial report {folder}`"
            )
        return own
    if not found:
        raise UsageError(f"{folder} holds no log: a file's name must end in {', '.join(LOG_ENDINGS)}, or be named on the command line")
    if len(found) > MAX_FILES:
        raise UsageError(f"{folder} holds {len(found):,} logs; name a subfolder, or at most {MAX_FILES:,} files")
    return found


def _is_log(path: Path) -> bool:
    return path.suffix.lower() in LOG_ENDINGS or path.name in LOG_NAMES or re.search(r"\.[eo]\d+$", path.name) is not None


def _log_file(path: Path, name: str) -> LogFile:
    found = TORCHRUN_FOLDER.search(path.as_posix()) or NAMED_RANK.search(path.name)
    return LogFile(path=path, name=name, rank=int(found["rank"]) if found else None)


def _in_order(files: Sequence[LogFile]) -> Iterator[tuple[LogFile, str]]:
    if len(files) > 1 and len({_kind_of_stamps(file) for file in files}) == 1 and _kind_of_stamps(files[0]):
        merged = heapq.merge(*(_stamped(file, place) for place, file in enumerate(files)), key=lambda line: line[0])
        return ((files[place], line) for _, place, line in merged)
    return ((file, line) for file in files for line in read_lines(file.path))


def _kind_of_stamps(file: LogFile) -> str:
    """Of the first timestamp in its first lines; empty without one."""
    kinds = (_stamp(line)[1] for line in itertools.islice(read_lines(file.path), PRESCAN_LINES))
    return next((kind for kind in kinds if kind), "")


def _stamped(file: LogFile, place: int) -> Iterator[tuple[float, int, str]]:
    """Lines with their time, which is that of the line before where they have none, and never goes back."""
    first = next(
        (time_s for line in itertools.islice(read_lines(file.path), PRESCAN_LINES) if (time_s := _stamp(line)[0]) is not None), 0.0
    )
    newest_s = first
    for line in read_lines(file.path):
        newest_s = max(newest_s, _stamp(line)[0] or newest_s)
        yield newest_s, place, line


def _stamp(line: str) -> tuple[float | None, str]:
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


def _steps_and_summary(files: Iterable[LogFile]) -> tuple[StepSummary | None, dict[str, float]]:
    """Of the file that shows the most steps; the summary of whichever file has one."""
    best: StepSummary | None = None
    reported: dict[str, float] = {}
    for file in files:
        broken_off: list[int] = []
        lines = list(_step_lines(file, broken_off))
        figures = _reported(lines)
        reported |= figures
        summary = _summary(lines, figures, broken_off)
        if summary is not None and (best is None or summary.num_lines > best.num_lines):
            best = summary
    return best, reported


def _losses_without_steps(files: Iterable[LogFile]) -> tuple[float, ...]:
    """Of Hugging Face's lines, which have an epoch and no step: without a summary nobody knows how many steps there were."""
    for file in files:
        found = [float(match[1]) for line in _step_lines(file, []) if (match := LOSS.search(line.text))]
        finite = [loss for loss in found if math.isfinite(loss)]
        if finite:
            return found[0], found[-1], min(finite)
    return ()


def _step_lines(file: LogFile, broken_off: list[int]) -> Iterator[StampedLine]:
    """Lines that a format may read; a carriage return ends one too. Nobody kept the times at which they arrived. `broken_off` gets the
    numbers of those before which an attempt ended: with a traceback, or a line about another one."""
    number = 0
    for piece in bounded_lines(file.path, STEPS_BYTES):
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


def _summary(lines: Sequence[StampedLine], reported: dict[str, float], broken_off: Sequence[int]) -> StepSummary | None:
    reading = best_reading(lines, _any_spec())[0]
    if reading is None:
        return None
    printed, num_restarts = _last_attempt(reading.printed, broken_off)
    rate, rate_from = _rate(reading, printed, lines, reported)
    all_losses = [(each.step, each.values["loss"]) for each in printed if "loss" in each.values]
    losses = [loss for _, loss in all_losses if math.isfinite(loss)]
    at_end = list(itertools.takewhile(lambda each: not math.isfinite(each[1]), reversed(all_losses)))
    return StepSummary(
        first=printed[0].step,
        last=max(each.step for each in printed),
        total=_total(reading),
        num_lines=len(printed),
        format="" if reading.name == STEP_AND_LOSS.name else reading.name,
        steps_per_s=rate,
        rate_from=rate_from,
        tokens_per_s=_median(printed, "tokens_per_s"),
        samples_per_s=_median(printed, "samples_per_s"),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        lowest_loss=min(losses, default=None),
        nan_from=at_end[-1][0] if at_end else None,
        num_nan=len(all_losses) - len(losses),
        num_restarts=num_restarts,
    )


def _last_attempt(printed: Sequence[PrintedStep], broken_off: Sequence[int]) -> tuple[Sequence[PrintedStep], int]:
    """The steps since the job began anew, and how often it did: where an attempt was broken off between two series of numbers. Epochs are
    about as long as one another: where a later series goes further than one before, that one was cut off too."""
    begins = [0, *(at for at, each in enumerate(printed) if each.restarts)]
    series = [printed[begin:end] for begin, end in zip(begins, [*begins[1:], len(printed)], strict=True)]
    highest = [max(each.number for each in one) for one in series if one]
    cut_off = [
        at
        for at, end in enumerate(highest[:-1])
        if (highest[at + 1] > end + max(1, end // 10) and series[at + 1][0].number <= 1)
        or bisect.bisect_left(broken_off, series[at][-1].at + 1) < bisect.bisect_right(broken_off, series[at + 1][0].at)
    ]
    if not cut_off:
        return printed, 0
    kept = list(itertools.chain.from_iterable(series[cut_off[-1] + 1 :]))
    before = kept[0].step - kept[0].number
    return [replace(each, step=each.step - before) for each in kept], len(cut_off)


def _total(reading: Reading) -> int | None:
    """Length of the bar, where it is not that of one epoch among several."""
    total = reading.bar.total if reading.bar else None
    return total if total and not reading.numbered.restarts else None


def _any_spec() -> RunSpec:
    """A run about which nothing is known."""
    workload = WorkloadSpec(name="log")
    launcher, place = LauncherSpec(kind="command"), PlaceSpec(kind=LOCAL, ranks=1)
    return RunSpec(run="log", group="log", repeat=1, plan="log", workload=workload, launcher=launcher, place=place, cwd=".")


def _rate(
    reading: Reading, printed: Sequence[PrintedStep], lines: Sequence[StampedLine], reported: dict[str, float]
) -> tuple[float | None, str]:
    """Steps a second by timestamps, else by what the script printed; None where the log has neither."""
    stamped = [(each, time_s) for each in printed if (time_s := _stamp(strip_colours(each.line.text))[0]) is not None]
    # The first step contains the start.
    pairs = [(later.step - one.step, after - before) for (one, before), (later, after) in itertools.pairwise(stamped[1:])]
    steps, seconds = sum(step for step, _ in pairs), sum(span_s for _, span_s in pairs)
    if steps > 0 and seconds >= 1:
        return steps / seconds, "timestamps"
    if (iter_ms := _median(printed, "iter_ms")) is not None and iter_ms > 0:
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
    """The last summary of a Hugging Face Trainer, as it prints it or as its metrics table shows it."""
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
    """`0:02:03.4` and plain numbers."""
    value = 0.0
    for part in text.split(":"):
        value = value * 60 + float(part or 0)
    return value
