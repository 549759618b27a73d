"""Why a run failed: the first cause in its whole log, read line by line in bounded memory.

In: lines as they come, of one log or of several files, then the exit code and the steps asked for, where known. Out: a `Diagnosis`: how it
ended, cause, rank, line, excerpt, and what to do.

Signs come from the registry of failure signatures. When one rank dies the others complain too, and the launcher reports all of it again:
so signs of a lost peer count only where no other sign is found, and among equals the earliest line is the cause; but a broken GPU comes
before what the ranks on it print. Lines that the run survived (log_evidence.py) are no cause. An exit code that a script chose itself
counts before what the other ranks print about losing it. Without any sign the cause is unknown and the most relevant lines are kept.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from seatrial.collect.launcher_log import PrefixedLine, PrefixSplitter, host_in, without_host
from seatrial.collect.log_evidence import (
    CHAINED,
    EXCEPTION,
    HEAD,
    MAX_LINES,
    STEPS_WITHOUT_RANK,
    Block,
    ExceptionChain,
    FoundSigns,
    LastStep,
    LauncherReport,
    LogEvidence,
    LogSource,
    Weight,
    block_begun_by,
    earliest,
    error_lines,
    final_lines,
    is_error_line,
    is_indented,
    is_root,
    is_step,
    is_warning,
    names_exception,
    weight_by_block,
    without_harmless,
)
from seatrial.collect.log_search import NOISE, LineSearch, Worth, rank_of
from seatrial.core.log_lines import strip_colours
from seatrial.records.outcome import Cause, Diagnosis, Outcome
from seatrial.records.signatures.registry import Signature, general, of_exit_code

LONGEST_DETAIL = 500
LONGEST_LINE = 8192
"""Of a line, as much is searched."""
TAIL_LINES = 2000
"""The last lines are kept as they are: for the lines to show where there is no cause, and to see what came after a traceback."""
TAIL_BYTES = 400_000
MAX_SOURCES = 5000
"""Ranks and files that are told apart; further ones count as one."""
LONGEST_EVIDENCE = 1000
OPEN_LINES = 5000
"""A traceback that is still not over after as many lines is torn."""
EXCERPT_LINES = 6
LONGEST_EXCERPT = 240
STEPS_OF_OTHERS = 3
"""So many steps that others take after a rank's traceback are more than what was under way: the job went on, or was restarted."""
SHORTLY_BEFORE = 5000
"""Lines between a traceback and the launcher's report of it: other ranks may print many steps before the launcher ends them."""
RECENT_EVIDENCE = 20_000
SAMPLED_STEPS = 17
"""A prime, so that every rank's turn comes."""
RECENT_STEPS = 64
"""Of so many lines that may report one, the last step is read: each of many ranks may print it."""
LINES_AFTER = 3
"""A shell script may print so many lines after a program that failed."""

# Lines of torchrun's and deepspeed's own report of a failed run.
LAUNCHER_REPORT = re.compile(
    r"^\S+ FAILED$|^Root Cause|^Failures:|^Traceback \(most|\[launch\.py:\d+:\w+\]|^[=-]{8,}$"
    r"|^\s+(?:time|host|rank|exitcode|error_file|traceback)\s*: |^\[\d+\]:$|^\s+<NO_OTHER_FAILURES>"
)
# torchrun's report of the rank that ended first.
ROOT_CAUSE = "Root Cause (first observed failure)"
REPORT_FIELD = re.compile(r"^\s+(rank|exitcode)\s*: (-?\d+)")
REPORT_LINES = 8
QUOTED_LINES = 200
# The report of deepspeed's launcher.
DEEPSPEED_REPORT = re.compile(r"\[launch\.py:\d+:\w+\] .* exits with return code = (-?\d{1,9})$")
# What a launcher prints only about a run that failed.
FAILED_BY_LAUNCHER = re.compile(
    r"^Root Cause \(first observed failure\)|\bmultiprocessing\.errors\.ChildFailedError\b"
    r"|\[launch\.py:\d+:\w+\] .* exits with return code = -?[1-9]"
    r"|^srun: error: \S+: tasks? [\d,-]+: (?:Exited with exit code [1-9]|Killed|Out Of Memory|Segmentation|Bus error|Aborted)"
    r"|^(?:mpirun|mpiexec|prterun|prte) (?:noticed|detected) that .*(?:exited on signal|non-zero)"
    r"|^subprocess\.CalledProcessError: Command '\[?'?\S*\bpython[\d.]*'.* (?:non-zero exit status|died with)"
    r"|^command terminated with exit code [1-9]"
    r"|^ERROR:composer\.cli\.launcher:Rank \d+ crashed|^\[rank: \d+\] Child process with PID \d+ terminated with code -?[1-9]"
)
# After NCCL's error of a rank comes the address it could not reach.
LAST_ERROR = "Last error:"
# What is printed when training is over and all went well: a sentence of its own, behind a logger's prefix at most, and not about an epoch.
GOOD_END = re.compile(
    r"'train_runtime': |\btrain_runtime\s+=|exits successfully\.$|^`Trainer\.fit` stopped: `max_\w+=\S+` reached"
    r"|(?:^\W{0,5}|[\]:|>] *|- +)[Tt]raining (?:has |is )?(?:completed|finished|complete|done)\b(?!.*\b(?:[Ee]poch|valid|val\b))"
)
# Steps of an evaluation, which may follow the end of the training.
EVALUATION = re.compile(r"\b(?:eval\w*|val(?:id\w*)?|test\w*)\b.{0,20}?\b(?:step|iter)", re.IGNORECASE)
# Exit codes of a rank that raised, aborted or was sent TERM: its own lines show more.
RAISED = 1
UNINFORMATIVE_CODES = (RAISED, -6, -15)
# Signals of a fault in native code; an abort (6) is also how torch ends after an error it has printed.
NATIVE_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
CRASH_SIGNALS = tuple(one.name for one in (*NATIVE_SIGNALS, signal.SIGABRT))
# A shell, or a launcher that passes on a negative code, exits with this plus the signal that ended its child.
SHELL_SIGNALS = 128
# Causes that an exit code shows by itself.
EXIT_CODE_DETAILS = {
    Cause.KILLED: "a process of the run was killed by signal 9",
    Cause.PROGRAM_MISSING: "the program was not found (exit code 127)",
}
# Lines after a traceback that are no sign of life: what is printed at exit, and by libraries that log everything.
AT_EXIT = re.compile(r"^wandb: |\bNCCL INFO\b|^\[?[IWE]\d{4} \d\d:|^\+{1,4} |^(?:real|user|sys)\s|^Exception ignored|^\S*: line \d+: +\d+ ")
STEP_NUMBER = re.compile(r"\b(?:step|iter|iteration)\b[^\w,]{0,12}(\d[\d,]{0,15})", re.IGNORECASE)
# Where a line begins within a line: at a carriage return, or with another rank's prefix behind a line that was not ended. Not behind
# other prefixes, nor quoted.
LINE_BEGINS = re.compile(r"""\r|(?<=[^\s:'"(`])(?=\[rank\d{1,9}\]:)""")
# What Python draws before the lines of a group of exceptions.
GROUP_BARS = re.compile(r"^ {2,20}[|+] (?=\S|  )")
# Causes of which a shell or a scheduler prints that a process is gone: no noise, though other ranks may have made it end.
PROCESS_ENDED = (Cause.KILLED, Cause.NATIVE_CRASH, Cause.SCHEDULER, Cause.HOST_LOST, Cause.HOST_OOM)
CLOSED_PIPE = "BrokenPipeError"
INTERRUPT = "KeyboardInterrupt"
# torchrun's own exception when it is sent TERM, as by a scheduler.
TERMINATED = "SignalException"
INTERRUPTED = "interrupted by Ctrl-C (SIGINT)"
# Of a process that SIGINT ended, as Python and shells pass it on; Python itself may also exit with 1.
INTERRUPTED_CODES = (None, RAISED, -signal.SIGINT, SHELL_SIGNALS + signal.SIGINT)
NO_FAILURE = Diagnosis(cause=Cause.NONE, detail="", action="", signature="")


class LogReader:
    """Reads a log as it comes; `result` may be asked at any time, and more lines may follow."""

    def __init__(self) -> None:
        self._at = 0
        self._numbers: dict[str, int] = {}
        self._search = LineSearch()
        self._splitter = PrefixSplitter()
        self._sources: dict[tuple[str, str], LogSource] = {}
        self._open: dict[int, LogSource] = {}
        self._slow_until = 0
        self._tail: deque[tuple[int, str, int | None, str]] = deque(maxlen=TAIL_LINES)
        self._tail_bytes = 0
        self._survived: ExceptionChain | None = None
        self._survived_errors: list[str] = []
        self._num_errors = 0
        self._has_evidence, self._evidence_at = False, 0
        """Whether something may still be survived, and the last of it."""
        self._report: dict[str, str] = {}
        self._deepspeed_code: int | None = None
        self._reports: dict[str, LauncherReport] = {}
        """Of each file, where no steps came after."""
        self._earlier: list[FoundSigns] = []
        """From before a report that was followed by steps of which nobody knows whether they began anew."""
        self._fell_back_at: dict[str, int] = {}
        """The last line of a file at which the step numbers began anew, after something was found."""
        self._interrupt: LogEvidence | None = None
        self._terminated: LogEvidence | None = None
        self._good_end: LogEvidence | None = None
        self._steps: deque[tuple[int, str, str]] = deque(maxlen=RECENT_STEPS)

    def feed(self, line: str, *, source: str = "", rank: int | None = None) -> None:
        """One line. `source` names its file, `rank` the rank it belongs to, where the caller knows it."""
        self._numbers[source] = self._numbers.get(source, 0) + 1
        if "\r" in line or line.rfind("[rank") > 0:
            # A progress bar rewrites its line; what is printed next begins right behind it.
            for part in LINE_BEGINS.split(line):
                if part.strip():
                    self._feed(part, source, rank)
        else:
            self._feed(line, source, rank)

    def _feed(self, line: str, source: str, rank: int | None) -> None:
        self._at += 1
        if len(line) > LONGEST_LINE:
            line = line[:LONGEST_LINE]
        self._keep(line, source, rank)
        if self._open and self._at < self._slow_until:
            self._examine(line, source, rank)
            return
        kind = self._search.worth(line)
        if kind == Worth.BORING:
            return
        if kind == Worth.STEP and not self._may_be_survival():
            self._steps.append((self._at, source, line))
            return
        self._open = {} if self._open and self._at >= self._slow_until else self._open
        worth = self._examine(line, source, rank)
        if worth < kind:
            self._search.lower_worth(line, worth)

    def _may_be_survival(self) -> bool:
        """Whether a step may matter for what was found. Long after it, one of many is enough: not each rank's steps show anything."""
        return self._has_evidence and (self._at - self._evidence_at < RECENT_EVIDENCE or self._at % SAMPLED_STEPS == 0)

    def _keep(self, line: str, source: str, rank: int | None) -> None:
        if len(self._tail) == TAIL_LINES:
            self._tail_bytes -= len(self._tail[0][3])
        self._tail.append((self._at, source, rank, line))
        self._tail_bytes += len(line)
        while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.popleft()[3])

    def _examine(self, line: str, source: str, given_rank: int | None) -> Worth:
        """What the line is worth."""
        prefix, text = self._split(line)
        own = self._source(source, prefix, given_rank)
        was_open = own.is_open
        worth = self._judge(own, source, prefix, text, given_rank)
        if own.is_open:
            self._slow_until = self._at + OPEN_LINES
            self._open[id(own)] = own
        elif was_open:
            self._open.pop(id(own), None)
        return max(worth, Worth.CHECK if was_open or own.is_open else Worth.BORING)

    def _split(self, line: str) -> PrefixedLine:
        known = len(self._splitter.hosts)
        text = without_harmless(strip_colours(line)) if "\x1b" in line else without_harmless(line)
        split = self._splitter.split(text)
        if len(self._splitter.hosts) > known:
            # What looked like text may be a prefix.
            self._search.forget_shapes()
        if (bars := GROUP_BARS.match(split.text)) is not None:
            split = PrefixedLine(split.source, split.text[bars.end() :])
        begins = split.text.find(HEAD)
        # Behind a progress bar that was not ended.
        if begins > 0 and not CHAINED.search(split.text) and not is_indented(split.text) and split.text[begins - 1] not in "'\"`":
            return PrefixedLine(split.source, split.text[begins:])
        return split

    def _source(self, source: str, prefix: str, rank: int | None) -> LogSource:
        key = (source, " ".join(dict.fromkeys(prefix.split())))
        found = self._sources.get(key)
        if found is None:
            key = key if len(self._sources) < MAX_SOURCES else ("", "")
            alone = rank is not None or bool(without_host(prefix))
            found = self._sources.setdefault(key, LogSource(steps_to_survive=1 if alone else STEPS_WITHOUT_RANK))
        return found

    def _judge(self, own: LogSource, source: str, prefix: str, text: str, given_rank: int | None) -> Worth:
        if own.report_left > 0:
            text = self._read_report(own, text)
        weight = weight_by_block(own, text)
        raised = self._follow_traceback(own, text)
        if CHAINED.search(text):
            own.chained = True
            return Worth.CHECK
        if GOOD_END.search(text) and not is_error_line(text):
            self._good_end = self._evidence(source, prefix, text, None, given_rank)
            return Worth.CHECK
        if raised is None and is_step(text) and self._search.sign(text) is None:
            self._step(own, source, text)
            return Worth.STEP
        if is_indented(text):
            return Worth.BORING
        if weight is Weight.IGNORED or is_warning(prefix, text):
            own.frames = None
            return Worth.BORING
        if own.awaits_last_error:
            own.awaits_last_error = False
            if self._add_last_error(own, text):
                return Worth.CHECK
        own.awaits_last_error = text.startswith(LAST_ERROR)
        is_report = self._note_report(own, source, prefix, text, given_rank)
        sign = self._search.sign(text)
        noise = NOISE.search(text) is not None
        excerpt = (*(raised or ()), text)
        if raised is not None and noise:
            if text.startswith(INTERRUPT):
                self._interrupt = self._evidence(source, prefix, text, None, given_rank, excerpt)
            elif TERMINATED in text:
                self._terminated = self._evidence(source, prefix, text, None, given_rank, excerpt)
            raised = None
        if sign is None and raised is None:
            return self._note_error(own, text) if not noise and not is_report else Worth.CHECK
        evidence = self._evidence(source, prefix, text, sign, given_rank, excerpt)
        self._num_errors += 1
        self._store(own, evidence, raised is not None, weight)
        return Worth.CHECK

    def _evidence(
        self, source: str, prefix: str, text: str, sign: Signature | None, given_rank: int | None, excerpt: tuple[str, ...] = ()
    ) -> LogEvidence:
        return LogEvidence(
            at=self._at,
            source=source,
            number=self._numbers.get(source, 0),
            prefix=prefix,
            text=text[:LONGEST_EVIDENCE],
            sign=sign,
            rank=rank_of(prefix, text, given_rank),
            excerpt=tuple(_short(line) for line in excerpt),
            num_before=self._num_errors,
        )

    def _add_last_error(self, own: LogSource, text: str) -> bool:
        """NCCL's reason to what the rank just printed about NCCL; False where it is a cause by itself, or there is nothing to add to."""
        found, sign = own.recent[-1], self._search.sign(text)
        complaint = found.after_effect or found.echo
        if complaint is None or is_root(sign):
            return False
        complaint.excerpt = (*complaint.excerpt, _short(text))
        if sign is None or sign.echo:
            complaint.text += f"; last error: {text}"
        else:
            complaint.text, complaint.sign = text, sign
        return True

    def _follow_traceback(self, own: LogSource, text: str) -> tuple[str, ...] | None:
        """The frames before it, where the line is what a traceback ends with, or looks like that by itself."""
        if text.startswith(HEAD) or text.endswith(HEAD):
            own.frames, own.frames_at = deque(maxlen=EXCERPT_LINES), self._at
            return None
        if is_indented(text):
            if own.frames is not None and text.strip():
                own.frames.append(text)
            return None
        frames, own.frames = own.frames, None
        return tuple(frames or ()) if names_exception(text, is_first=frames is not None) else None

    def _store(self, own: LogSource, evidence: LogEvidence, raised: bool, weight: Weight) -> None:
        own.is_empty, self._has_evidence, self._evidence_at = False, True, self._at
        found, sign = own.recent[-1], evidence.sign
        if sign is not None and sign.after_effect:
            if sign.echo:
                found.echo = found.echo or evidence
            else:
                found.after_effect = found.after_effect or evidence
            # A pipe that is closed at the end of a script is no failure.
            if raised and weight is Weight.FULL and len(evidence.excerpt) > 1 and not evidence.text.startswith(CLOSED_PIPE):
                found.raised_effect = evidence
            return
        doubtful = weight is Weight.DOUBTFUL
        if sign is not None and sign.outranks and not doubtful:
            found.outranking = found.outranking or evidence
        if sign is not None:
            if doubtful:
                found.doubtful_sign = found.doubtful_sign or evidence
            else:
                found.sign = found.sign or evidence
        if raised:
            self._store_exception(own, found, evidence, doubtful)

    @staticmethod
    def _store_exception(own: LogSource, found: FoundSigns, evidence: LogEvidence, doubtful: bool) -> None:
        chained, own.chained = own.chained, False
        if chained and own.chain is not None:
            own.chain.last = evidence
            return
        own.chain = None
        if (found.doubtful_chain if doubtful else found.chain) is None:
            own.chain = ExceptionChain(first=evidence, last=evidence)
            if doubtful:
                found.doubtful_chain = own.chain
            else:
                found.chain = own.chain

    def _step(self, own: LogSource, source: str, text: str) -> None:
        number = _step_number(text)
        before = _step_number(self._steps[-1][2]) if self._steps and self._steps[-1][1] == source else None
        if number is not None and before is not None and 2 * number <= before:
            self._fell_back_at[source] = self._at
        self._steps.append((self._at, source, text))
        if (report := self._reports.get(source)) is not None:
            report.take_step(number)
            if report.is_survived:
                self._drop_report(source, report)
        for gone in own.step():
            self._survive(gone)
        self._has_evidence = bool(self._reports) or not all(one.is_empty for one in self._sources.values())

    def _survive(self, gone: FoundSigns) -> None:
        self._survived = gone.chain or self._survived
        self._survived_errors = [*self._survived_errors, *gone.errors][:MAX_LINES]

    def _drop_report(self, source: str, report: LauncherReport) -> None:
        """The job was started again: what its ranks printed before belongs to an attempt that does not count."""
        del self._reports[source]
        if not self._reports:
            self._report, self._deepspeed_code = {}, None
        for (file, _), own in self._sources.items():
            if file == source and not own.is_empty:
                for gone in own.recent:
                    self._survive(gone)
                    if not report.began_anew:
                        self._earlier.append(gone)
                own.recent, own.is_empty = [FoundSigns()], True

    def _note_error(self, own: LogSource, text: str) -> Worth:
        if not is_error_line(text) or LAUNCHER_REPORT.search(text):
            return Worth.BORING
        own.is_empty = False
        errors = own.recent[-1].errors
        if len(errors) < MAX_LINES and text.strip() not in errors:
            errors.append(text.strip())
        return Worth.ERROR

    def _note_report(self, own: LogSource, source: str, prefix: str, text: str, given_rank: int | None) -> bool:
        if text.startswith(ROOT_CAUSE) and not self._report:
            own.report_left = REPORT_LINES
        match = DEEPSPEED_REPORT.search(text)
        if match and self._deepspeed_code is None and int(match.group(1)) != 0:
            self._deepspeed_code = int(match.group(1))
        if not FAILED_BY_LAUNCHER.search(text):
            return False
        self._has_evidence, self._evidence_at = True, self._at
        if source in self._reports:
            self._reports[source].numbers, self._reports[source].num_unnumbered = set(), 0
        else:
            first = self._evidence(source, prefix, text, None, given_rank)
            self._reports[source] = LauncherReport(first=first, step_before=self._last_step().step)
        return True

    def _read_report(self, own: LogSource, text: str) -> str:
        """The line; one of a traceback that the report quotes (of a script under `@record`) as the rank would have printed it."""
        own.report_left -= 1
        if match := REPORT_FIELD.match(text):
            self._report.setdefault(match.group(1), match.group(2))
        if text.endswith(HEAD):
            own.report_left = QUOTED_LINES
            return text
        return text.removeprefix("  ") if own.frames is not None else text

    def result(self, exit_code: int | None = None, asked_steps: int | None = None) -> Diagnosis:
        """What the lines so far show. `asked_steps` are the steps that the run was to take, where known."""
        at_end = self._traceback_at_end()
        outcome, last = self._outcome(exit_code, asked_steps, at_end), self._last_step()
        return replace(
            NO_FAILURE if outcome is Outcome.OK else self.failure(exit_code),
            outcome=outcome,
            launcher_report=bool(self._reports),
            traceback_at_end=at_end or self._is_cut() or (self._good_end_at is None and self._lost_peer_at_end()),
            good_end=self._good_end_at is not None or (asked_steps is not None and last.may_be(asked_steps)),
            last_step=last.step,
        )

    def failure(self, exit_code: int | None = None) -> Diagnosis:
        """The cause that the lines show, else the one that the exit code shows, of a run that is known to have failed."""
        return self._cause(exit_code) or self._unexplained_end(exit_code)

    @property
    def _good_end_at(self) -> int | None:
        """The line that says that training is over; None where more steps came: that was a stage of several."""
        end = self._good_end
        if end is None or self._num_steps_after(end) >= STEPS_OF_OTHERS:
            return None
        # The Trainer prints losses without step numbers.
        losses = sum(at > end.at and source == end.source and "'loss'" in text for at, source, text in self._steps)
        return None if losses >= STEPS_OF_OTHERS else end.at

    @property
    def _report_at(self) -> LogEvidence | None:
        """The first line of a launcher about a failure after which no steps came."""
        return earliest(report.first for report in self._reports.values())

    def _found(self) -> Iterator[FoundSigns]:
        return (found for own in self._sources.values() for found in own.recent)

    def _cause(self, exit_code: int | None) -> Diagnosis | None:
        """The cause that the log shows; None where it shows none."""
        found = self._root_cause(list(self._found())) or self._launcher_cause() or self._doubtful_cause()
        if found is None and (self._reports or exit_code):
            # Steps of another host may have come late.
            found = self._root_cause(self._earlier)
        if found is not None:
            return found
        after_effect = self._after_effect()
        if self._survived and self._survived_counts(exit_code, after_effect):
            return self._from_evidence(self._survived.decisive)
        if after_effect is None:
            return None
        # Neither the code of an exception, nor of a signal as Python or a shell reports it: the script itself chose it.
        if exit_code is not None and 1 < exit_code < SHELL_SIGNALS:
            detail = f"ended with exit code {exit_code}; the log shows only the consequence: {after_effect.text}"
            return _diagnosis(_exit_code_entry(exit_code), detail)
        # A signal that no process sends itself in good order: the others only complain about the process it ended.
        if exit_code is not None and -exit_code in (signal.SIGKILL, *NATIVE_SIGNALS):
            return None
        diagnosis = self._from_evidence(after_effect)
        # That a peer is gone explains nothing: other lines of the log may.
        return replace(diagnosis, telling=self._error_lines()) if after_effect.sign and after_effect.sign.echo else diagnosis

    def _root_cause(self, found: Sequence[FoundSigns]) -> Diagnosis | None:
        outranking = earliest(one.outranking for one in found)
        if outranking is not None:
            return self._from_evidence(outranking)
        # Ranks that wait in vain for one to join: its own error, in another file or behind another prefix, is the cause.
        for some in ([one for one in found if not one.waited_to_join], found):
            first = self._first_of(earliest(one.sign for one in some), [one.chain for one in some if one.chain])
            if first is not None:
                return first
        return None

    def _doubtful_cause(self) -> Diagnosis | None:
        found = list(self._found())
        return self._first_of(earliest(one.doubtful_sign for one in found), [one.doubtful_chain for one in found if one.doubtful_chain])

    def _first_of(self, sign: LogEvidence | None, chains: Sequence[ExceptionChain]) -> Diagnosis | None:
        chain = min(chains, key=lambda one: one.first.at, default=None)
        if chain is not None and (sign is None or chain.first.at <= sign.at):
            return self._from_evidence(chain.decisive)
        return None if sign is None else self._from_evidence(sign)

    def _launcher_cause(self) -> Diagnosis | None:
        """What the launcher reports about the rank that ended first, where that is more than the other ranks' complaints."""
        if "exitcode" in self._report:
            rank, code = self._reported_rank(), int(self._report["exitcode"])
            who = f"rank {self._report.get('rank', '?')}"
        else:
            # The command that deepspeed prints beside the code is that of its last rank, whichever ended: the rank is unknown.
            rank, code, who = None, self._deepspeed_code or RAISED, "a rank"
        if code in UNINFORMATIVE_CODES:
            return None
        if code == -9:
            found = _diagnosis(general(Cause.KILLED), f"{who} was killed by signal 9")
        elif -code in NATIVE_SIGNALS:
            found = _diagnosis(general(Cause.NATIVE_CRASH), f"{who} crashed: {signal.Signals(-code).name}")
        else:
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            found = self._unexplained(general(Cause.EXIT_CODE), f"{who} ended first, {how}, and printed no reason", who)
        return replace(found, rank=rank)

    def _reported_rank(self) -> int | None:
        """By torchrun's report, else by the first line of another launcher about a rank that failed."""
        if "rank" in self._report:
            return int(self._report["rank"])
        return self._report_at.rank if self._report_at else None

    def _after_effect(self) -> LogEvidence | None:
        """The earliest after-effect that is more than the loss of a peer, else the earliest."""
        found = list(self._found())
        return earliest(one.after_effect for one in found) or earliest(one.echo for one in found)

    def _survived_counts(self, exit_code: int | None, after_effect: LogEvidence | None) -> bool:
        """Python exits with 1 after an exception, and there is no other; or the launcher names that very rank; or it reports soon after the
        traceback that a rank raised: the steps between them were those of ranks that did not know yet."""
        rank, report = self._survived.decisive.rank if self._survived else None, self._report_at
        if self._survived and report is not None and self._report.get("exitcode", str(RAISED)) == str(RAISED):
            if rank is not None and rank == self._reported_rank():
                return True
            if rank is None and 0 <= report.at - self._survived.decisive.at <= SHORTLY_BEFORE:
                return True
        return after_effect is None and exit_code == RAISED

    def _from_evidence(self, evidence: LogEvidence) -> Diagnosis:
        entry = evidence.sign or general(Cause.EXCEPTION)
        rank = evidence.rank
        if rank is None and not entry.after_effect and self._report.get("exitcode") in ("1", None):
            # Without prefixes: the launcher knows who ended first.
            rank = self._reported_rank()
        if entry.after_effect and entry.id != "monitored_barrier" and not FAILED_BY_LAUNCHER.search(evidence.text):
            # Whoever prints it only waited for another one.
            rank = None
        return replace(
            _diagnosis(entry, evidence.text),
            host=host_in(evidence.prefix),
            rank=rank,
            source=evidence.source,
            line=evidence.number or None,
            excerpt=evidence.excerpt,
            num_consequences=max(self._num_errors - evidence.num_before - 1, 0),
        )

    def _traceback_at_end(self) -> bool:
        """Whether the process of an exception printed nothing after it that shows it alive."""
        return any(self._is_last(one.chain.last) and not self._began_anew_after(one.chain.last) for one in self._found() if one.chain)

    def _is_terminated(self) -> bool:
        return self._terminated is not None and self._is_last(self._terminated) and not self._began_anew_after(self._terminated)

    def _open_traceback(self) -> LogEvidence | None:
        """The traceback that the log ends in, without its last line."""
        for (source, prefix), own in self._sources.items():
            if own.frames is None or id(own) not in self._open or (own.block and own.block.weight is not Weight.FULL):
                continue
            found = self._evidence(source, prefix, "the log ends within a traceback", None, None, tuple(own.frames))
            found = replace(found, at=own.frames_at, number=0)
            if self._num_steps_after(found) < STEPS_OF_OTHERS:
                return found
        return None

    def _num_steps_after(self, evidence: LogEvidence) -> int:
        """Of the last steps in its file, different ones."""
        texts = (text for at, source, text in self._steps if at > evidence.at and source == evidence.source)
        return len({number for text in texts if not EVALUATION.search(text) and (number := _step_number(text)) is not None})

    def _began_anew_after(self, evidence: LogEvidence) -> bool:
        """Whether the job was started again after it: others took steps that are counted from the beginning."""
        return self._fell_back_at.get(evidence.source, 0) > evidence.at and self._num_steps_after(evidence) >= STEPS_OF_OTHERS

    def _sign_at_end(self) -> bool:
        """Whether the log ends with the sign of a failure that is no exception: a usage message, a scheduler's or the kernel's line."""
        shown = [sign for one in self._found() for sign in (one.sign, one.after_effect) if sign and not self._began_anew_after(sign)]
        signs = [one for one in shown if one.sign and (not one.sign.after_effect or one.sign.cause in PROCESS_ENDED)]
        return any(self._good_end_at is None and self._is_last(sign) for sign in signs)

    def _is_last(self, evidence: LogEvidence) -> bool:
        """Whether its process printed nothing after it that shows it alive."""
        own = [line for line in self._tail_after(evidence) if self._shows_life(line)]
        return len(own) <= (0 if without_host(evidence.prefix) else LINES_AFTER)

    def _tail_after(self, evidence: LogEvidence) -> Iterator[str]:
        for at, source, _, line in self._tail:
            if at > evidence.at and source == evidence.source:
                split = self._splitter.split(strip_colours(line))
                if split.source == evidence.prefix:
                    yield split.text

    def _shows_life(self, text: str) -> bool:
        if is_indented(text) or AT_EXIT.search(text) or LAUNCHER_REPORT.search(text) or NOISE.search(text):
            return False
        return not (EXCEPTION.match(text) or is_error_line(text) or self._search.sign(text) or is_warning("", text))

    def _outcome(self, exit_code: int | None, asked_steps: int | None, at_end: bool) -> Outcome | None:
        if self._is_interrupted() and exit_code in INTERRUPTED_CODES and not self._reports:
            return Outcome.INTERRUPTED
        if exit_code or self._reports:
            return Outcome.FAILED
        last = self._last_step()
        reached = None if asked_steps is None else last.may_be(asked_steps)
        if at_end:
            # After an exit code of 0 it is sure only where steps are missing; without one, where nothing says that the job went on.
            is_sure = exit_code is None and reached is None and not self._went_on()
            return Outcome.FAILED if reached is False or is_sure else None
        is_cut, is_over = self._is_cut(), reached or self._good_end_at is not None
        if exit_code == 0:
            if is_cut or (not is_over and self._lost_peer_at_end()):
                return Outcome.FAILED if reached is False else None
            is_doubtful = self._sign_at_end() or (asked_steps is not None and last.step is None and self._error_at_end())
            return None if self._process_ended() or (not is_over and is_doubtful) else Outcome.OK
        serious = earliest(self._serious(one) for one in self._found())
        good_at = last.at if reached else self._good_end_at
        if good_at is not None:
            return None if is_cut or self._process_ended() or (serious is not None and serious.at > good_at) else Outcome.OK
        return Outcome.FAILED if serious is not None or self._lost_peer_at_end() else None

    def _process_ended(self) -> bool:
        """Whether a process was killed or crashed and took no steps after: a script around it may go on and say that all is done."""
        shown = (sign for one in self._found() for sign in (one.sign, one.after_effect) if sign and sign.sign)
        return any(sign.sign.cause in PROCESS_ENDED and not self._began_anew_after(sign) for sign in shown if sign.sign)

    def _is_cut(self) -> bool:
        return self._is_interrupted() or self._is_terminated() or self._open_traceback() is not None

    def _error_at_end(self) -> bool:
        lines = (self._splitter.split(strip_colours(line)).text for _, _, _, line in reversed(self._tail))
        return is_error_line(next((line for line in lines if line.strip()), ""))

    def _lost_peer_at_end(self) -> bool:
        return any(
            one.raised_effect and self._is_last(one.raised_effect) and not self._began_anew_after(one.raised_effect)
            for one in self._found()
        )

    def _serious(self, found: FoundSigns) -> LogEvidence | None:
        serious = found.sign or found.outranking or found.after_effect
        return None if serious is None or self._began_anew_after(serious) else serious

    def _went_on(self) -> bool:
        """Whether, after each traceback at the end of its process, a line says that training is over, or others took more steps."""
        ends = [one.chain.last for one in self._found() if one.chain and self._is_last(one.chain.last)]
        return all((self._good_end_at or 0) > end.at or self._num_steps_after(end) >= STEPS_OF_OTHERS for end in ends)

    def _is_interrupted(self) -> bool:
        return self._interrupt is not None and self._is_last(self._interrupt) and self._num_steps_after(self._interrupt) < STEPS_OF_OTHERS

    def _last_step(self) -> LastStep:
        found = [(number, at) for at, _, text in self._steps if (number := _step_number(text)) is not None]
        numbers = sorted({number for number, _ in found})
        step, at = max(found, default=(None, 0))
        return LastStep(at=at, step=step, interval=max((later - one for one, later in itertools.pairwise(numbers)), default=1))

    def _unexplained_end(self, exit_code: int | None) -> Diagnosis:
        if self._interrupt is not None and exit_code in (0, *INTERRUPTED_CODES) and self._is_interrupted():
            found = self._from_evidence(self._interrupt)
            user = general(Cause.USER)
            return replace(found, cause=user.cause, signature=user.id, fault=user.fault, action=user.action, detail=INTERRUPTED)
        if exit_code in (None, 0, RAISED):
            if (cut := self._open_traceback()) is not None:
                return self._from_evidence(cut)
            if (reported := self._reported_end()) is not None:
                return reported
        if exit_code is None:
            return self._unexplained(general(Cause.UNKNOWN), "no exit code is known and the log shows no cause")
        entry = of_exit_code(exit_code)
        if entry is not None and entry.cause in EXIT_CODE_DETAILS:
            return _diagnosis(entry, EXIT_CODE_DETAILS[entry.cause])
        name = signal_name(exit_code)
        if name in CRASH_SIGNALS:
            crashed = entry if entry is not None and entry.cause is Cause.NATIVE_CRASH else general(Cause.NATIVE_CRASH)
            return _diagnosis(crashed, f"the process crashed: {name}" + (f" (exit code {exit_code})" if exit_code > 0 else ""))
        how = f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
        how += f" ({name})" if name else ""
        return self._unexplained(_exit_code_entry(exit_code), f"the launcher ended {how} and the log shows no cause")

    def _reported_end(self) -> Diagnosis | None:
        """What the launcher reports about a rank that printed no reason."""
        if self._report_at is None:
            return None
        rank = self._reported_rank()
        if "exitcode" not in self._report:
            found = self._unexplained(general(Cause.EXIT_CODE), f"the launcher reports a failure: {self._report_at.text.strip()}")
            return replace(found, rank=rank, source=self._report_at.source, line=self._report_at.number or None)
        code = int(self._report["exitcode"])
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        how += f" ({name})" if (name := signal_name(code)) else ""
        who = f"rank {self._report.get('rank', '?')}"
        return replace(self._unexplained(general(Cause.EXIT_CODE), f"{who} ended first, {how}, and printed no reason", who), rank=rank)

    def _unexplained(self, entry: Signature, detail: str, ended_first: str = "") -> Diagnosis:
        errors = self._error_lines()
        more = f"; most relevant line: {errors[0]}" if errors else ""
        own = errors or final_lines(self._informative_lines(), f"[{ended_first.replace(' ', '')}]:")
        return replace(_diagnosis(entry, detail + more), telling=own)

    def _error_lines(self) -> tuple[str, ...]:
        recent = [text for found in self._found() for text in found.errors]
        return error_lines([PrefixedLine("", text) for text in (recent or self._survived_errors)])

    def _informative_lines(self) -> list[PrefixedLine]:
        """The last lines but those about lost peers, the launcher's own and what Python ignores."""
        blocks: dict[str, Block | None] = {}
        kept = []
        for _, _, _, line in self._tail:
            split = self._splitter.split(without_harmless(strip_colours(line)))
            block = blocks.get(split.source)
            blocks[split.source] = block = block_begun_by(split.text) or (block if block and block.takes(split.text) else None)
            if block is not None and block.weight is Weight.IGNORED:
                continue
            sign = self._search.sign(split.text)
            if (sign is None or not sign.after_effect) and not NOISE.search(split.text) and not LAUNCHER_REPORT.search(split.text):
                kept.append(split)
        return kept


def diagnose(exit_code: int | None, lines: Sequence[str]) -> Diagnosis:
    """The cause that the lines show, else the one that the exit code of a failed run shows."""
    reader = LogReader()
    for line in lines:
        reader.feed(line)
    return reader.failure(exit_code)


def _step_number(text: str) -> int | None:
    match = STEP_NUMBER.search(text)
    return int(match.group(1).replace(",", "")) if match else None


def signal_name(exit_code: int) -> str:
    """Of the signal that ended the process, as Python, a shell (128 + n) or deepspeed (256 - n) passes it on; empty for none. 255 and 254
    are what `exit(-1)`, ssh and others return: no signal."""
    for number in (-exit_code, exit_code - SHELL_SIGNALS, 256 - exit_code if exit_code < 254 else 0):
        if 0 < number <= signal.SIGTERM or number == signal.SIGXCPU:
            with contextlib.suppress(ValueError):
                return signal.Signals(number).name
    return ""


def _exit_code_entry(exit_code: int | None) -> Signature:
    """The entry of an exit code that does not show the cause alone."""
    entry = of_exit_code(exit_code)
    return entry if entry is not None and entry.cause is Cause.EXIT_CODE else general(Cause.EXIT_CODE)


def _short(text: str) -> str:
    text = text.rstrip()
    return text if len(text) <= LONGEST_EXCERPT else text[: LONGEST_EXCERPT - 1] + "…"


def _diagnosis(entry: Signature, detail: str) -> Diagnosis:
    detail = " ".join(detail.split())
    shortened = detail if len(detail) <= LONGEST_DETAIL else detail[: LONGEST_DETAIL - 1] + "…"
    return Diagnosis(cause=entry.cause, detail=shortened, action=entry.action, signature=entry.id, fault=entry.fault)
