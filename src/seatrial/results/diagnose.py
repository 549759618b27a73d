"""What the logs of any job show: how it ended, the first cause, steps, rate, losses, the script's own summary.

In: files and folders as named by the user; the exit code and the requested steps, where known. Out: a `LogReport`. No campaign is needed
and nothing is written.

Lines of several files are read in the order of their timestamps where every file has some of one kind, else file after file, errors
(`.err`, `stderr`) last.
"""

from __future__ import annotations

import codecs
import heapq
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.collect.logs.diagnosis import LogReader
from seatrial.collect.logs.launcher_log import read_lines
from seatrial.core.errors import UsageError
from seatrial.core.files import open_file
from seatrial.core.log_lines import time_of_line
from seatrial.core.paths import ATTEMPT_FILES
from seatrial.core.text import join_names
from seatrial.records.outcome import Cause, Diagnosis, Outcome
from seatrial.records.signatures.registry import advice_without_plan, general
from seatrial.results.step_summary import StepSummary, summarise_steps

LOG_ENDINGS = (".log", ".out", ".err", ".txt")
LOG_NAMES = ("stdout", "stderr", "log")
OWN_LOG = ATTEMPT_FILES.launcher_log.name
MAX_FILES = 4096
COMPRESSED = (".gz", ".xz", ".bz2", ".zst", ".zip")
# `rank5`, `rank_5`, `rank-05`; and `attempt_0/5/stderr.log` of torchrun's --log-dir.
NAMED_RANK = re.compile(r"(?:^|[^a-z])rank[_.-]?(?P<rank>\d{1,6})(?!\d)", re.IGNORECASE)
TORCHRUN_FOLDER = re.compile(r"(?:^|/)attempt_(?P<attempt>\d{1,6})/(?P<rank>\d{1,4})/std(?:out|err)\.log$")
ERRORS_FILE = re.compile(r"\.err$|\.e\d+$|stderr", re.IGNORECASE)
# `slurm-4711.out`, `slurm-4711_3.out` of an array, `train-4711.err` (%x-%j), `train.o4711` of PBS. A short number after another name may be
# that of a rank or a node.
JOB_NUMBER = re.compile(r"^slurm-(\d+(?:_\d+)?)\.\w+$|(?<!rank)(?<!node)(?<!task)[-_.](\d{3,})\.(?:out|err)$|\.[eo](\d+)$", re.IGNORECASE)
MAX_JOBS_NAMED = 3
# Parts of a name that distinguish the files of one job: the stream, and a rank, node or host with all that follows it.
STREAM = re.compile(r"(?<![a-z])(?:std)?(?:out|err)(?:put|ors?)?(?![a-z])")
MEMBER = re.compile(r"(?<![a-z])(?:local_?|global_?)?(?:rank|node|host|task|worker|master|launcher|pod|replica|proc|gpu)s?(?![a-z]{2}).*")
# Parts with a number that distinguish jobs: a date, a time, a trial. Other numbers are those of ranks and hosts.
OF_A_JOB = re.compile(r"\d{4}-\d\d-\d\d|(?<![a-z\d])\d{6,}|(?<![a-z])(?:run|exp|experiment|trial|seed|lr|bs|v)[_-]?\d+")

PRESCAN_LINES = 2000
PRESCAN_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """One file of a job's output."""

    path: Path
    name: str
    """The name that is shown."""
    rank: int | None = None
    """The rank in its name."""
    job: str = ""
    """The name of a file found in a folder, without rank, node and stream: it differs between jobs."""


@dataclass(frozen=True, kw_only=True)
class LogReport:
    """What `seatrial diagnose` shows."""

    files: tuple[str, ...]
    num_lines: int
    num_bytes: int
    exit_code: int | None
    diagnosis: Diagnosis
    steps: StepSummary | None = None
    reported: dict[str, float] = field(default_factory=dict)
    """Figures of the script's own summary, by its names."""


def diagnose_logs(files: Sequence[LogFile], exit_code: int | None = None, requested_steps: int | None = None) -> LogReport:
    reader = LogReader()
    num_lines, is_empty = 0, True
    for file, line in _in_order(files):
        reader.feed(line, source=file.name if len(files) > 1 else "", rank=file.rank)
        num_lines += 1
        is_empty = is_empty and not line.strip()
    _refuse_unnumbered_jobs([file for file in files if file.name in reader.files_with_steps()])
    steps, reported = summarise_steps([file.path for file in files])
    diagnosis = _with_losses(reader.result(exit_code=exit_code, requested_steps=requested_steps), steps)
    diagnosis = _with_short_files(diagnosis, files, reader)
    diagnosis = _with_progress(diagnosis, reader.unfinished())
    diagnosis = _with_unread(diagnosis, "the log is empty" if is_empty else _not_text(files))
    if requested_steps is not None:
        diagnosis = _with_requested_steps(diagnosis, steps, reader.reached(requested_steps), requested_steps)
    return LogReport(
        files=tuple(file.name for file in files),
        num_lines=num_lines,
        num_bytes=sum(file.path.stat().st_size for file in files),
        exit_code=exit_code,
        diagnosis=replace(diagnosis, action=advice_without_plan(diagnosis.signature) if diagnosis.signature else ""),
        steps=steps,
        reported=reported,
    )


def _with_unread(found: Diagnosis, why: str) -> Diagnosis:
    """Undetermined where no failure was found because nothing could be read; `why` is empty where the lines could be read."""
    is_open = found.outcome is Outcome.OK or (found.outcome is None and found.cause is Cause.UNKNOWN)
    return _undetermined(found, why) if why and is_open else found


def _not_text(files: Sequence[LogFile]) -> str:
    """Which file has an encoding that cannot be read, such as PowerShell's redirects, and what to do; empty for text."""
    for file in files:
        with open_file(file.path) as source:
            begin = source.read(PRESCAN_BYTES)
        if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or begin.count(0) * 4 > len(begin):
            return f"{file.name} is not text that can be read (UTF-16?): convert it with iconv"
    return ""


def _with_losses(found: Diagnosis, steps: StepSummary | None) -> Diagnosis:
    """Unknown outcome for a job that ended well by its log or exit code, with losses that are nan or inf to the end."""
    if found.outcome is not Outcome.OK or steps is None or steps.nan_from is None:
        return found
    entry = general(Cause.NAN)
    detail = f"loss is nan or inf from step {steps.nan_from} to the end"
    return replace(
        found, outcome=None, cause=entry.cause, detail=detail, action=entry.action, signature=entry.id, fault=entry.fault, good_end=True
    )


def _with_short_files(found: Diagnosis, files: Sequence[LogFile], reader: LogReader) -> Diagnosis:
    """Undetermined where the file of one rank ends well and that of another in the middle of the training."""
    if found.outcome is not Outcome.OK or len(files) == 1:
        return found
    # stderr need not have the steps of stdout.
    errors = {file.name for file in files if ERRORS_FILE.search(file.path.name)}
    short = reader.short_files(errors) | reader.short_files({file.name for file in files} - errors)
    ends = [
        f"{file.name if file.rank is None else f'rank {file.rank}'} ends at step {short[file.name]:,}"
        for file in files
        if file.name in short
    ]
    return _undetermined(found, join_names(ends, MAX_JOBS_NAMED)) if ends else found


def _with_progress(found: Diagnosis, unfinished: tuple[int, int] | None) -> Diagnosis:
    """Undetermined where the log ends in the middle of a training: an exit code of 0 may be that of a pipe's last command."""
    if found.outcome is not Outcome.OK or found.good_end or unfinished is None:
        return found
    return _undetermined(found, f"the log ends at {unfinished[0]:,} of {unfinished[1]:,}")


def _with_requested_steps(found: Diagnosis, steps: StepSummary | None, reached: bool | None, requested_steps: int) -> Diagnosis:
    """Undetermined unless the requested steps were taken: neither an exit code of 0 nor a line about the end of training shows that.
    `reached`: by the log's last lines; None where they show no step."""
    if found.outcome is not Outcome.OK or reached or (steps is not None and steps.may_be(requested_steps)):
        return found
    shown = [last for last in (found.last_step, steps.last if steps else None) if last is not None]
    if not shown:
        return found if found.good_end else _undetermined(found, f"the log shows no step; {requested_steps:,} were requested")
    over = "; the step numbers start over, and no line names an epoch" if steps is not None and steps.num_started_over else ""
    return _undetermined(found, f"the last step in the log is {max(shown):,}; {requested_steps:,} were requested{over}")


def _undetermined(found: Diagnosis, detail: str) -> Diagnosis:
    entry = general(Cause.UNKNOWN)
    return replace(found, outcome=None, cause=entry.cause, detail=detail, action=entry.action, signature=entry.id)


def find_logs(paths: Sequence[Path]) -> list[LogFile]:
    """The named files, and files in folders that are named like a log; errors last."""
    found: dict[Path, LogFile] = {}
    for path in paths:
        if path.is_dir():
            for file in _of_last_attempts(_logs_in(path)):
                name = str(file.relative_to(path))
                found.setdefault(file, replace(_log_file(file, name), job=_job_in(name)))
        elif path.exists():
            if path.suffix in COMPRESSED:
                raise UsageError(
                    f"{path} is compressed: decompress it into a pipe and read that, as in `zcat {path} | seatrial diagnose -`"
                )
            found.setdefault(path, _log_file(path, str(path)))
        else:
            raise UsageError(f"{path}: no such file or folder")
    files = sorted(found.values(), key=lambda file: ERRORS_FILE.search(file.path.name) is not None)
    _refuse_several_jobs(files)
    # Local ranks of several nodes repeat, so they identify no rank.
    numbered = [file.rank for file in files if file.rank is not None and TORCHRUN_FOLDER.search(file.path.as_posix())]
    if len(set(numbered)) * 2 < len(numbered):
        return [replace(file, rank=None) for file in files]
    return files


def _refuse_several_jobs(files: Sequence[LogFile]) -> None:
    """A UsageError where the names belong to several jobs: steps of one and the cause of another would be mixed."""
    jobs: dict[str, str] = {}
    for file in files:
        if match := JOB_NUMBER.search(file.path.name):
            jobs.setdefault(next(number for number in match.groups() if number), file.name)
    if len(jobs) > 1:
        named = join_names([f"{job} ({name})" for job, name in jobs.items()], MAX_JOBS_NAMED)
        raise UsageError(f"these are the logs of {len(jobs)} jobs, {named}: name the files of one")


def _refuse_unnumbered_jobs(trained: Sequence[LogFile]) -> None:
    """The same where names of files with steps differ in more than rank, node or stream."""
    jobs = {file.job: file.name for file in reversed(trained) if file.job}
    if len(jobs) > 1:
        named = join_names(sorted(jobs.values()), MAX_JOBS_NAMED)
        raise UsageError(f"these may be the logs of {len(jobs)} jobs, {named}: name the files of one")


def _job_in(name: str) -> str:
    if TORCHRUN_FOLDER.search(name):
        return ""
    stem = re.sub(r"\.(?:log|out|err|txt|[eo]\d+)$", "", name.lower())
    rest = MEMBER.sub("", STREAM.sub("", stem))
    return " ".join([*re.findall(r"[a-z]+", OF_A_JOB.sub("", rest)), *OF_A_JOB.findall(rest)])


def _of_last_attempts(paths: Sequence[Path]) -> list[Path]:
    """The paths without files of attempts that torchrun restarted."""
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
    """Kind of the first timestamp in its first lines; empty without one."""
    kinds = (time_of_line(line)[1] for line in itertools.islice(read_lines(file.path), PRESCAN_LINES))
    return next((kind for kind in kinds if kind), "")


def _stamped(file: LogFile, place: int) -> Iterator[tuple[float, int, str]]:
    """Lines with their time, which never decreases; a line without one has that of the line before."""
    first = next(
        (time_s for line in itertools.islice(read_lines(file.path), PRESCAN_LINES) if (time_s := time_of_line(line)[0]) is not None), 0.0
    )
    newest_s = first
    for line in read_lines(file.path):
        newest_s = max(newest_s, time_of_line(line)[0] or newest_s)
        yield newest_s, place, line
