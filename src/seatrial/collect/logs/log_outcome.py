"""How a job ended, by its log and its exit code: ok, failed, interrupted or unknown.

In: a `LogScan`, then the exit code and the requested steps, where known. Out: an `Outcome`, or None if neither shows it.

An exit code of 0 proves little behind a pipe, and a line about the end of training may come from one stage or from a script around a
crashed program: what follows it counts too.
"""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from seatrial.collect.logs.launcher_log import without_host
from seatrial.collect.logs.launcher_report import LAUNCHER_REPORT, RAISED, SHELL_SIGNALS
from seatrial.collect.logs.line_relevance import (
    EXCEPTION,
    HELPER_ENDED,
    NOISE,
    FoundSigns,
    LastStep,
    LogEvidence,
    Weight,
    earliest,
    is_error_line,
    is_indented,
    is_step,
    is_warning,
    shape,
    step_number,
)
from seatrial.collect.logs.patterns import BAD_STATUS, progress
from seatrial.collect.logs.scan import LogScan
from seatrial.core.log_lines import strip_colours
from seatrial.records.outcome import Cause, Outcome

STEPS_OF_OTHERS = 3
"""So many steps of others after a rank's traceback are more than those under way: the job went on or restarted."""
STEPS_TOGETHER = 10
"""So many steps need all ranks, since each waits for the others."""
LINES_AFTER = 3
"""Lines that a shell script may print after a failed program."""
# Of a process that SIGINT ended, as Python and shells pass it on; Python itself may also exit with 1.
INTERRUPTED_CODES = (None, RAISED, -signal.SIGINT, SHELL_SIGNALS + signal.SIGINT)
# Lines after a traceback that do not show that the run went on: what is printed at exit, and by libraries that log everything.
AT_EXIT = re.compile(r"^wandb: |\bNCCL INFO\b|^\[?[IWE]\d{4} \d\d:|^\+{1,4} |^(?:real|user|sys)\s|^Exception ignored|^\S*: line \d+: +\d+ ")
# Causes for which a shell or scheduler reports a lost process: not noise, though other ranks may have ended it.
PROCESS_ENDED = (Cause.KILLED, Cause.NATIVE_CRASH, Cause.SCHEDULER, Cause.HOST_LOST, Cause.HOST_OOM)
# No training continues after these, even if the script catches them, prints that training is over and exits with 0.
TRAINING_STOPPED = (*PROCESS_ENDED, Cause.COLLECTIVE_TIMEOUT, Cause.NAN, Cause.GPU_FAULT, Cause.CUDA_OOM, Cause.DISK_FULL, Cause.EXCEPTION)


# Causes of a program that did not begin to run: a later stage's, where training is over.
NOT_STARTED = (Cause.PROGRAM_MISSING, Cause.FILE_MISSING, Cause.BAD_ARGUMENT, Cause.PERMISSION)
ENDED_BY_SIGNAL = re.compile(r": line \d+: +\d+ (?:Terminated|Hangup|Aborted)\b")
# A program that prints this went on: the exit code is another program's.
WITHOUT_HARM = re.compile(r"\b(?:ignor(?:ed|ing)|harmless|non-fatal)\b", re.IGNORECASE)
EPOCH = re.compile(r"\bepoch\b[^\w,]{0,6}(\d{1,9})\b.{0,40}\bloss\b", re.IGNORECASE)
# Bars of unknown length that come after a training.
AFTER_TRAINING = re.compile(r"^\W{0,3}(?:eval|valid|test|predict|generat|sampl|upload|download|sav|map|filter|tokeniz)", re.IGNORECASE)
# `step 12/100`, `Iter [12/100]`, and Megatron's `iteration  12/  100 |`.
STEP_OF = re.compile(r"\b(?:step|iter|iteration)s?\b[^\w,]{0,12}?(\d{1,12})\s{0,6}/\s{0,12}(\d{1,12})\b(?![./]\d)", re.IGNORECASE)
EARLY_STOP = re.compile(r"\bearly[ _-]?stop", re.IGNORECASE)
# Steps that restarted, instead of the length of a bar.
BEGUN = "steps"
STEPS_BEGUN = 2


def _progress_of_training(text: str, step_before: int | None) -> tuple[str, str] | None:
    """Progress that a line reports, and of what: the length of a bar, epochs, or steps that restarted."""
    if (bar := progress(text)) is not None:
        return bar if bar[1] or not AFTER_TRAINING.search(text) else None
    if (epoch := EPOCH.search(text)) and is_step(text):
        return epoch.group(1), "epochs"
    number = step_number(text) if is_step(text) else None
    return (str(number), BEGUN) if number is not None and step_before is not None and 2 * number <= step_before else None


def _step_of(text: str) -> tuple[str, str] | None:
    """The step and the total that a training line reports."""
    match = STEP_OF.search(text) if is_step(text) else None
    return (match[1], match[2]) if match else None


def _unless_full(drawn: Sequence[tuple[int, int]], *, is_bar: bool) -> tuple[int, int] | None:
    """The latest pair of completed and total steps, if steps were missing; `drawn` has the latest first."""
    if not drawn:
        return None
    done, total = drawn[0]
    numbers = sorted({number for number, of in drawn if of == total})
    # A bar is drawn at its end too. Lines count from 0 or from 1, and not each step has one.
    unseen = 0 if is_bar else max((later - one for one, later in itertools.pairwise(numbers)), default=1)
    return drawn[0] if len(numbers) >= STEPS_OF_OTHERS and done + unseen < total else None


class LogEnd:
    """The end of a log; more lines may follow between two calls."""

    def __init__(self, scan: LogScan) -> None:
        self._scan = scan
        self._good_end: tuple[int, int | None] = (-1, None)
        """Number of lines when it was searched, and where it is."""

    def outcome(self, exit_code: int | None, requested_steps: int | None) -> Outcome | None:
        interrupted = self.is_interrupted() if exit_code else self._is_cut_by_interrupt()
        if interrupted and exit_code in INTERRUPTED_CODES and not self._scan.reports and not self._failed_before_interrupt():
            return Outcome.INTERRUPTED
        if exit_code or not all(report.is_passed for report in self._scan.reports.values()):
            return Outcome.FAILED
        last = self.last_step()
        reached = None if requested_steps is None else last.may_be(requested_steps)
        found = self._without_report(exit_code, reached, last)
        # What came after a failure may be another training, as in a loop over seeds, or a second attempt. One that began after a good end
        # and has none of its own was not shown to end.
        is_doubtful = not reached and bool(self._scan.reports or self._scan.reran or self.begun_after_end())
        return None if found is Outcome.OK and is_doubtful else found

    def last_step(self) -> LastStep:
        """The last step of the last training; steps of earlier ones do not count."""
        return self.begun_after_end() or self._scan.last_step()

    def begun_after_end(self) -> LastStep | None:
        """How far a training got that began after a line about the end of training; None without one."""
        end = self._scan.good_end
        if end is None or end.step is None:
            return None
        numbers = {number for text in self._scan.steps_after_end if (number := step_number(text)) is not None}
        # Late lines of other ranks go on where the training ended.
        is_begun = sum(2 * number <= end.step for number in numbers) >= STEPS_BEGUN
        return self._scan.last_step(end.source, after=end.at) if is_begun else None

    def _without_report(self, exit_code: int | None, reached: bool | None, last: LastStep) -> Outcome | None:
        """The outcome without launchers' reports; `reached`: whether all requested steps were taken, if known."""
        if self._exception_at_end(last.at if reached else None):
            # After an exit code of 0 it is sure only where steps are missing; without one, where there is a traceback, nothing says that
            # the job went on, and what came after a good end ended the program.
            ended_it = self.good_end_at is None or any(end.is_uncaught or end.rank is not None for end in self._raised_at_end())
            is_sure = exit_code is None and reached is None and not self._went_on() and ended_it and self.traceback_at_end()
            return Outcome.FAILED if reached is False or is_sure else None
        is_bad = self._not_started_at_end() or bool(self.bad_end())
        is_cut, is_over = self.is_cut(), (reached or self.good_end_at is not None) and not is_bad
        if exit_code == 0:
            if is_cut or (not is_over and self.lost_peer_at_end()):
                return Outcome.FAILED if reached is False else None
            is_doubtful = is_bad or self._sign_at_end() or self._ended_uncaught()
            is_doubtful = is_doubtful or (reached is not None and last.step is None and self._error_at_end())
            is_doubtful = is_doubtful or (reached is False and any(end.is_logged and self._ends_with(end) for end in self._last_raised()))
            return None if self._training_stopped() or (not is_over and is_doubtful) else Outcome.OK
        serious = earliest(self._serious(one) for one in self._scan.found())
        good_at = last.at if reached else None if self.bad_end() else self.good_end_at
        if good_at is not None:
            return None if is_cut or self._training_stopped() or (serious is not None and serious.at > good_at) else Outcome.OK
        return Outcome.FAILED if serious is not None or self.lost_peer_at_end() else None

    @property
    def good_end_at(self) -> int | None:
        """The line that reports the end of training; None if more steps followed, as after one of several stages."""
        if self._good_end[0] != self._scan.at:
            self._good_end = (self._scan.at, self._find_good_end())
        return self._good_end[1]

    def _find_good_end(self) -> int | None:
        end = self._scan.good_end
        return None if end is None or self._num_steps_after(end) >= STEPS_OF_OTHERS or self._stage_is_cut(end) else end.at

    def traceback_at_end(self) -> bool:
        """Whether a process printed a traceback last and the job did not reach a good end."""
        return any(not end.is_bare for end in self._raised_at_end())

    def _exception_at_end(self, reached_at: int | None) -> bool:
        """The same for any exception, except a line without a traceback after a good end, such as an uploader's caught error. `reached_at`:
        the line of the last requested step."""
        over_at = min((at for at in (reached_at, self.good_end_at) if at is not None), default=None)
        return any(not (end.is_bare and over_at is not None and over_at < end.at) for end in self._raised_at_end())

    def _raised_at_end(self) -> Iterator[LogEvidence]:
        """Exceptions after which their process shows no sign of life, if the job did not reach a good end."""
        ends = [end for end in self._last_raised() if not end.is_logged and self._ends_with(end)]
        return (end for end in ends if (self.good_end_at or 0) < end.at or not self._went_on_after(end))

    def _stage_is_cut(self, end: LogEvidence) -> bool:
        """Whether the log ends, after `end`, in a progress bar that moved and is not full, in epochs, or in steps that restarted."""
        drawn: dict[str, set[str]] = {}
        last: tuple[str, str] | None = None
        for at, source, _, line in self._scan.tail:
            if at <= end.at or source != end.source:
                continue
            text = self._scan.splitter.split(strip_colours(line)).text
            if (found := _progress_of_training(text, end.step)) is not None:
                last = found
                drawn.setdefault(last[1], set()).add(last[0])
            elif progress(text) or self._shows_life(text):
                last = None
        if last is None or (last[1].isdecimal() and int(last[0]) >= int(last[1])):
            return False
        return len(drawn[last[1]]) >= (STEPS_BEGUN if last[1] == BEGUN else STEPS_OF_OTHERS)

    def unfinished(self) -> tuple[int, int] | None:
        """Position and length of the progress bar, or the like, that the log ends with; None for a full one, or if other lines follow."""
        drawn: list[tuple[int, int]] = []
        is_bar = False
        for _, source, _, line in reversed(self._scan.tail):
            if source != self._scan.tail[-1][1]:
                continue
            text = self._scan.splitter.split(strip_colours(line)).text
            bar = progress(text)
            shown = bar or _step_of(text)
            if shown is not None and shown[1]:
                is_bar = bool(bar) if not drawn else is_bar
                drawn.append((int(shown[0]), int(shown[1])))
                continue
            is_announced = len(drawn) < STEPS_OF_OTHERS and EARLY_STOP.search(text)
            if is_announced or (not drawn and self._shows_life(text) and not is_step(text)):
                return None
        return _unless_full(drawn, is_bar=is_bar)

    def _ends_with(self, evidence: LogEvidence | None) -> bool:
        """Whether its process printed nothing after it and the job was not restarted."""
        return evidence is not None and self._is_last(evidence) and not self._restarted_after(evidence)

    def open_traceback(self) -> LogEvidence | None:
        """The unfinished traceback at the end of the log."""
        for (source, prefix), own in self._scan.sources.items():
            if own.frames is None or id(own) not in self._scan.open or (own.block and own.block.weight is not Weight.FULL):
                continue
            found = self._scan.evidence(source, prefix, "the log ends within a traceback", None, None, tuple(own.frames))
            found = replace(found, at=own.frames_at, number=0)
            if self._num_steps_after(found) < STEPS_OF_OTHERS:
                return found
        return None

    def _num_steps_after(self, evidence: LogEvidence) -> int:
        """Number of different steps in its file after it. Hugging Face's Trainer prints losses without numbers."""
        texts = [text for at, source, text in self._scan.steps if at > evidence.at and source == evidence.source]
        numbers = {number for text in texts if (number := step_number(text)) is not None}
        return max(len(numbers), sum("'loss'" in text for text in texts))

    def _restarted_after(self, evidence: LogEvidence) -> bool:
        """Whether the job restarted after it: steps count from the beginning, or from a checkpoint and exceed those before, unlike late
        lines of others."""
        if self._num_steps_after(evidence) < STEPS_OF_OTHERS:
            return False
        last = self._scan.last_step().step or 0
        resumed = self._scan.resumed_at.get(evidence.source, 0) > evidence.at and last >= (evidence.step or 0) + STEPS_OF_OTHERS
        return resumed or self._scan.fell_back_at.get(evidence.source, 0) > evidence.at

    def _sign_at_end(self) -> bool:
        """Whether the log ends with the sign of a failure that is not an exception: a usage message, a scheduler's or the kernel's line."""
        shown = [sign for one in self._scan.found() for sign in (one.sign, one.after_effect) if sign and not self._restarted_after(sign)]
        signs = [one for one in shown if one.sign and (not one.sign.after_effect or one.sign.cause in PROCESS_ENDED)]
        return any(self.good_end_at is None and self._is_last(sign) for sign in signs)

    def _ended_uncaught(self) -> bool:
        """Whether a traceback ended the only program that took steps; other programs printed what follows."""
        ends = (end for end in self._last_raised() if end.is_uncaught and end.rank is None)
        return any(self._num_steps_after(end) < STEPS_OF_OTHERS for end in ends)

    def _last_raised(self) -> Iterator[LogEvidence]:
        """The last exception of each chain since the last steps."""
        return (one.chain.last for one in self._scan.found() if one.chain)

    def _not_started_at_end(self) -> bool:
        """Whether the log ends with a program that could not be started."""
        shown = (one.sign for one in self._scan.found() if one.sign and one.sign.sign and one.sign.sign.cause in NOT_STARTED)
        return any(not any(self._shows_life(line) for line in self._tail_after(sign)) and self._is_last(sign) for sign in shown)

    def bad_end(self) -> str:
        """The last line, if a shell or script reports a bad end there; else empty."""
        lines = (self._scan.splitter.split(strip_colours(line)).text for _, _, _, line in reversed(self._scan.tail))
        last = next((line for line in lines if line.strip()), "")
        is_bad = BAD_STATUS.search(last) or (ENDED_BY_SIGNAL.search(last) and not HELPER_ENDED.search(last))
        return last if is_bad and not WITHOUT_HARM.search(last) else ""

    def _is_last(self, evidence: LogEvidence) -> bool:
        """Whether its process shows no sign of life after it."""
        own = [line for line in self._tail_after(evidence) if self._shows_life(line)]
        return len(own) <= (0 if without_host(evidence.prefix) else LINES_AFTER)

    def _tail_after(self, evidence: LogEvidence) -> Iterator[str]:
        for at, source, _, line in self._scan.tail:
            if at > evidence.at and source == evidence.source:
                split = self._scan.splitter.split(strip_colours(line))
                if split.source == evidence.prefix:
                    yield split.text

    def _shows_life(self, text: str) -> bool:
        if is_indented(text) or AT_EXIT.search(text) or LAUNCHER_REPORT.search(text) or NOISE.search(text):
            return False
        return not (EXCEPTION.match(text) or is_error_line(text) or self._scan.search.sign(text) or is_warning("", text))

    def _training_stopped(self) -> bool:
        """Whether something ended the training and no steps followed, even if a script reports success. Errors that the run recovered from
        do not count."""
        shown = [sign for one in self._scan.found() for sign in (one.sign, one.after_effect) if sign and sign.sign]
        ended = [sign for sign in shown if sign.sign and sign.sign.cause in PROCESS_ENDED]
        fatal = [sign for sign in shown if sign.sign and sign.sign.cause in TRAINING_STOPPED and not self._went_on_after(sign)]
        return any(not self._restarted_after(sign) and shape(sign.text) not in self._scan.recovered_shapes for sign in (*ended, *fatal))

    def _went_on_after(self, evidence: LogEvidence) -> bool:
        """Whether the job took more steps than it can without the rank that printed it (often only one rank prints steps). Steps in other
        files do not count against what ended a program."""
        last = self._scan.last_step(evidence.source if evidence.is_uncaught else None)
        progress = 0 if last.step is None else (last.step - (evidence.step or 0)) // last.interval
        return max(progress, self._num_steps_after(evidence)) >= STEPS_TOGETHER

    def is_cut(self) -> bool:
        return self._is_cut_by_interrupt() or self._ends_with(self._scan.terminated) or self.open_traceback() is not None

    def _error_at_end(self) -> bool:
        lines = (self._scan.splitter.split(strip_colours(line)).text for _, _, _, line in reversed(self._scan.tail))
        return is_error_line(next((line for line in lines if line.strip()), ""))

    def lost_peer_at_end(self) -> bool:
        return any(self._ends_with(one.raised_effect) for one in self._scan.found())

    def found_at_end(self) -> list[FoundSigns]:
        """Signs after which the job neither went on nor restarted."""
        return [
            one for one in self._scan.found() if not any(self._is_past(sign) for sign in (one.sign, one.chain.last if one.chain else None))
        ]

    def _is_past(self, evidence: LogEvidence | None) -> bool:
        return evidence is not None and (self._went_on_after(evidence) or self._restarted_after(evidence))

    def _serious(self, found: FoundSigns) -> LogEvidence | None:
        shown = (one for one in (found.sign, found.higher_priority, found.after_effect) if one is not None and not one.is_logged)
        serious = next(shown, None)
        return None if serious is None or self._num_steps_after(serious) >= STEPS_OF_OTHERS else serious

    def _went_on(self) -> bool:
        """Whether a good end or further steps of others follow every traceback that ended a process."""
        ends = [end for end in self._last_raised() if not end.is_logged and self._is_last(end)]
        return all(self._may_end_well_after(end) or self._num_steps_after(end) >= STEPS_OF_OTHERS for end in ends)

    def _may_end_well_after(self, end: LogEvidence) -> bool:
        """Whether a line about the end of training came after it. The order of two files is unknown, and another rank's
        file says nothing about this one."""
        good_at, good = self.good_end_at, self._scan.good_end
        if good_at is None or good is None:
            return False
        return good_at > end.at if good.source == end.source else end.rank is None or not end.is_uncaught

    def _failed_before_interrupt(self) -> bool:
        """Whether a rank had failed already: the others, which were waiting for it, were ended."""
        shown = ((one.chain.first if one.chain else None, one.sign) for one in self._scan.found())
        before = [one for pair in shown for one in pair if one is not None and one.at < self._scan.interrupted_at]
        return any(not self._went_on_after(one) for one in before)

    def is_interrupted(self) -> bool:
        interrupt = self._scan.interrupt
        return interrupt is not None and self._is_last(interrupt) and self._num_steps_after(interrupt) < STEPS_OF_OTHERS

    def _is_cut_by_interrupt(self) -> bool:
        """Whether an interrupt cut the training; not that of a worker (of a data loader, say) after a good end."""
        interrupt, good_at = self._scan.interrupt, self.good_end_at
        was_over = interrupt is not None and good_at is not None and good_at < interrupt.at and not interrupt.is_uncaught
        return self.is_interrupted() and not was_over
