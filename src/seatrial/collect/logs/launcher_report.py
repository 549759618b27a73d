"""What launchers print about a job that failed, and how a process ended by its exit code.

In: the text of a line without its prefixes; an exit code. Out: whether only a failed job has such a line, the rank or task that ended first
and how (`ReportedEnd`), whether the job was started again after it (`LauncherReport`), and the name of the signal behind an exit code.

torchrun, srun and mpirun name the rank that ended first. The command that deepspeed prints beside an exit code is that of its last rank,
whichever ended.
"""

from __future__ import annotations

import contextlib
import re
import signal
from dataclasses import dataclass, field

from seatrial.collect.logs.line_relevance import STEPS_WITHOUT_RANK, LogEvidence

# Exit code of a rank that raised.
RAISED = 1
# A shell, or a launcher that passes on a negative code, exits with this plus the signal that ended its child.
SHELL_SIGNALS = 128
# Signals of a fault in native code; an abort (6) is also how torch ends after an error it has printed.
NATIVE_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
CRASH_SIGNALS = tuple(one.name for one in (*NATIVE_SIGNALS, signal.SIGABRT))

# Lines of torchrun's, deepspeed's and mpirun's own report of a failed run.
LAUNCHER_REPORT = re.compile(
    r"^a non-zero exit code\. Per user-direction, the job has been aborted\.|^Primary job +terminated normally, but"
    r"|^(?:mpirun|mpiexec|prterun|prte) detected that |^the job to be terminated\. The first|^\s+(?:Process name|Exit code): "
    r"|^\S+ FAILED$|^Root Cause|^Failures:|^Traceback \(most|\[launch\.py:\d+:\w+\]|^[=-]{8,}$"
    r"|^\s+(?:time|host|rank|exitcode|error_file|traceback)\s*: |^\[\d+\]:$|^\s+<NO_OTHER_FAILURES>"
)
# What a launcher prints only about a run that failed.
FAILED_BY_LAUNCHER = re.compile(
    r"^Root Cause \(first observed failure\)|\bmultiprocessing\.errors\.ChildFailedError\b"
    r"|\[launch\.py:\d+:\w+\] .* exits with return code = -?[1-9]"
    r"|^srun: error: \S+: tasks? [\d,-]+: (?:Exited with exit code [1-9]|Killed|Out Of Memory"
    r"|Segmentation|Bus error|Aborted|Illegal|Floating)"
    r"|^(?:mpirun|mpiexec|prterun|prte) (?:noticed|detected) that .*(?:exited on signal|non-zero)"
    r"|^subprocess\.CalledProcessError: Command '\[?'?\S*\bpython[\d.]*'.* (?:non-zero exit status|died with)"
    r"|^command terminated with exit code [1-9]"
    r"|^ERROR:composer\.cli\.launcher:Rank \d+ crashed|^\[rank: \d+\] Child process with PID \d+ terminated with code -?[1-9]"
)
# Reports of several lines, which name the rank that ended first: torchrun's and mpirun's.
REPORT_BEGINS = re.compile(r"^Root Cause \(first observed failure\)|^(?:mpirun|mpiexec|prterun|prte) detected that ")
REPORT_LINES = 8
QUOTED_LINES = 200
REPORTED_RANK = re.compile(r"^\s+rank\s*: (\d{1,9})|^\s+Process name: \[(?:\[\d+,\d+\]|\S{1,200}@\d+),(\d{1,9})\]\s*$")
REPORTED_CODE = re.compile(r"^\s+exitcode\s*: (-?\d{1,9})|^\s+Exit code:\s+(-?\d{1,9})\s*$")
DEEPSPEED_REPORT = re.compile(r"\[launch\.py:\d+:\w+\] .* exits with return code = (-?\d{1,9})$")
# One line, which has it all: srun's about a task, kubectl's about the command it ran.
SRUN_TASKS = re.compile(
    r"^srun: error: (?P<host>\S+): (?P<tasks>tasks? [\d,-]+): (?:Exited with exit code (?P<code>\d{1,9})|(?P<how>[A-Z].*))"
)
KUBECTL_COMMAND = re.compile(r"^command terminated with exit code (\d{1,9})")
# As the C library, and with it srun, words them.
SIGNAL_TEXTS = {signal.strsignal(one): one for one in signal.Signals}


@dataclass(kw_only=True)
class ReportedEnd:
    """The process that ended first, by the launcher's report."""

    rank: int | None = None
    code: int | None = None
    """Negative for a signal."""
    name: str = ""
    """The launcher's name for it, if not a rank: `task 3 (rank 3) on node07`."""

    @property
    def who(self) -> str:
        return self.name or ("a rank" if self.rank is None else f"rank {self.rank}")

    def take(self, text: str) -> None:
        """One line of a longer report; the first value of each field counts."""
        if self.rank is None and (found := REPORTED_RANK.match(text)):
            self.rank = int(found[1] or found[2])
        elif self.code is None and (found := REPORTED_CODE.match(text)):
            self.code = without_shell(int(found[1] or found[2]))


def end_in_one_line(text: str, *, is_rank: bool = True) -> ReportedEnd | None:
    """The end that one line of srun or kubectl reports; `is_rank`: each srun task is one rank."""
    if found := KUBECTL_COMMAND.match(text):
        return ReportedEnd(code=without_shell(int(found[1])), name="the command")
    if not (found := SRUN_TASKS.match(text)):
        return None
    number = found["tasks"].removeprefix("task ")
    rank = int(number) if is_rank and number.isdecimal() else None
    name = f"{found['tasks']}{'' if rank is None else f' (rank {rank})'} on {found['host']}"
    how = SIGNAL_TEXTS.get((found["how"] or "").removesuffix(" (core dumped)"))
    code = -how if how is not None else without_shell(int(found["code"])) if found["code"] else None
    return ReportedEnd(rank=rank, code=code, name=name)


@dataclass(kw_only=True)
class LauncherReport:
    """What a launcher printed into one file about a job that failed."""

    first: LogEvidence
    step_before: int | None
    """The highest of the last steps before the report."""
    last_at: int
    """Last line of the report so far."""
    numbers: set[int] = field(default_factory=set)
    """Steps after the report."""
    num_unnumbered: int = 0

    def take_step(self, number: int | None) -> None:
        if number is None:
            self.num_unnumbered += 1
        else:
            self.numbers.add(number)

    @property
    def has_new_steps(self) -> bool:
        """Whether a restarted or another program took steps after the report. Steps that continue those before it may be late lines of
        other ranks."""
        is_new = self.step_before is None or self.has_restarted or not self.numbers
        return is_new and max(len(self.numbers), self.num_unnumbered) >= STEPS_WITHOUT_RANK

    @property
    def is_passed(self) -> bool:
        """Whether these steps got as far as those before the report: a second attempt, or the next training."""
        return self.has_new_steps and max(self.numbers, default=self.step_before or 0) >= (self.step_before or 0)

    @property
    def has_restarted(self) -> bool:
        return self.step_before is not None and min(self.numbers, default=self.step_before) < self.step_before


def without_shell(code: int) -> int:
    """The exit code, as a negative signal number where a shell reported a signal."""
    return SHELL_SIGNALS - code if code > SHELL_SIGNALS and signal_name(SHELL_SIGNALS - code) else code


def signal_name(exit_code: int) -> str:
    """Name of the signal that ended the process, as Python, a shell (128 + n) or deepspeed (256 - n) reports it; else empty. 255 and 254
    are not signals: `exit(-1)`, ssh and others return them."""
    for number in (-exit_code, exit_code - SHELL_SIGNALS, 256 - exit_code if exit_code < 254 else 0):
        if 0 < number <= signal.SIGTERM or number == signal.SIGXCPU:
            with contextlib.suppress(ValueError):
                return signal.Signals(number).name
    return ""


def how_it_ended(exit_code: int) -> str:
    """`by signal 9 (SIGKILL)`, `with exit code 143 (SIGTERM)`."""
    name = signal_name(exit_code)
    return (f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}") + (f" ({name})" if name else "")
