"""What the lines of a log show, read as they come in bounded memory.

In: lines of one log or of several files. Out: a `LogScan`: what each rank, host or file printed since its last steps, the launchers'
reports, the last lines and steps. diagnosis.py finds the cause in it, log_outcome.py how the job ended.

Signs that the run recovered from (line_relevance.py) are dropped as soon as steps follow them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seatrial.collect.logs.launcher_log import TIME_BEFORE, PrefixedLine, PrefixSplitter, without_host
from seatrial.collect.logs.launcher_report import (
    DEEPSPEED_REPORT,
    FAILED_BY_LAUNCHER,
    LAUNCHER_REPORT,
    QUOTED_LINES,
    REPORT_BEGINS,
    REPORT_LINES,
    SRUN_TASKS,
    LauncherReport,
    ReportedEnd,
    end_in_one_line,
)
from seatrial.collect.logs.line_relevance import (
    CHAINED,
    HEAD,
    LOGGED_ERROR,
    MAX_LINES,
    NOISE,
    STEPS_WITHOUT_RANK,
    USAGE,
    USAGE_LINES,
    ExceptionChain,
    FoundSigns,
    LastStep,
    LineSearch,
    LogEvidence,
    LogSource,
    Relevance,
    Weight,
    earliest,
    is_error_line,
    is_indented,
    is_root,
    is_step,
    is_warning,
    names_exception,
    rank_of,
    shape,
    step_number,
    weight_by_block,
)
from seatrial.collect.logs.patterns import (
    BAD_STATUS,
    BOX_SIDES,
    BOXED_HEAD,
    CAUGHT_INTERRUPT,
    CLOSED_PIPE,
    ELASTIC,
    GOOD_END,
    GROUP_BARS,
    INTERRUPT,
    LAST_ERROR,
    LINE_BEGINS,
    RESTART,
    STACK_HEAD,
    TERMINATED,
    TOP_OF_PROGRAM,
    progress,
)
from seatrial.core.log_lines import strip_colours
from seatrial.records.signatures.harmless import without_harmless
from seatrial.records.signatures.registry import Signature

LONGEST_LINE = 8192
"""As much of a line is searched."""
TAIL_LINES = 2000
"""The last lines are kept, to be shown where there is no cause and to see what followed a traceback."""
TAIL_BYTES = 400_000
MAX_RECOVERED = 1000
MAX_SOURCES = 5000
"""Ranks and files tracked separately; any beyond count as one."""
LONGEST_EVIDENCE = 1000
OPEN_LINES = 5000
"""A traceback that has not ended after so many lines is torn."""
EXCERPT_LINES = 6
LONGEST_EXCERPT = 240
RECENT_EVIDENCE = 20_000
LAST_OF_FILE = 4
"""The last step lines of a file show how far its training is, and the interval."""
SAMPLED_STEPS = 17
"""A prime, so that every rank is sampled."""
RECENT_STEPS = 64
"""The last step is read from so many step lines, since each of many ranks may print it."""
MESSAGE_LINES = 4
"""Indented lines of an exception whose first line ends with a colon: `Error(s) in loading state_dict for GPT:`."""


@dataclass
class FileSteps:
    """Lines with a step in one file."""

    first: str
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_OF_FILE))
    has_good_end: bool = False

    @property
    def numbers(self) -> list[int]:
        """Numbers of the last step lines, sorted."""
        return sorted({number for text in self.last if (number := step_number(text)) is not None})

    @property
    def interval(self) -> int:
        return max((later - one for one, later in itertools.pairwise(self.numbers)), default=0)

    @property
    def is_training(self) -> bool:
        """A single line may merely mention a step. Hugging Face's Trainer prints losses without numbers."""
        return len(self.numbers) > 1 or sum("'loss'" in text for text in self.last) > 1

    def ends_before(self, furthest: FileSteps) -> bool:
        """Whether it ends, without a good end, before a step that it would have shown. A file that begins later is another attempt's."""
        interval, begin, other = self.interval, step_number(self.first), step_number(furthest.first)
        if not interval or self.has_good_end or begin is None or other is None or other > begin + max(interval, furthest.interval):
            return False
        return self.numbers[-1] + interval < furthest.numbers[-1]


class LogScan:
    """Reads a log as it comes, and keeps what may show how it ended and why."""

    def __init__(self) -> None:
        self.at = 0
        self._numbers: dict[str, int] = {}
        self.search = LineSearch()
        self.splitter = PrefixSplitter()
        self.sources: dict[tuple[str, str], LogSource] = {}
        self.open: dict[int, LogSource] = {}
        self._slow_until = 0
        self.tail: deque[tuple[int, str, int | None, str]] = deque(maxlen=TAIL_LINES)
        self._tail_bytes = 0
        self.recovered_from: ExceptionChain | None = None
        self.recovered_errors: list[str] = []
        self.recovered_shapes: set[bytes] = set()
        """Shapes of lines with a sign."""
        self.num_errors = 0
        self._has_evidence, self._evidence_at = False, 0
        """Whether there are signs that the run may recover from, and the line of the last."""
        self.reported_end: ReportedEnd | None = None
        """The process that ended first."""
        self.python_stack: list[str] = []
        """Innermost frames of the first thread, for the last native crash."""
        self.under_torchrun = False
        """An srun task may then be torchrun itself, so its number is not a rank."""
        self.deepspeed_code: int | None = None
        self.reports: dict[str, LauncherReport] = {}
        """By file; dropped when steps follow."""
        self.earlier: list[FoundSigns] = []
        """Signs before a report that was followed by steps of a possible restart."""
        self.fell_back_at: dict[str, int] = {}
        """The last line of a file at which the step numbers restarted, after something was found."""
        self.resumed_at: dict[str, int] = {}
        """The last line of a file at which they went back a little after a line about a restart."""
        self.restart_at: dict[str, int] = {}
        """The last line of a file about a restart, after something was found."""
        self.relaunched_at: dict[str, int] = {}
        """The last line of a file at which a launcher's report was followed by steps from the beginning."""
        self.reran: LogEvidence | None = None
        """A traceback that ended a program before steps began at 0 again without a line about a restart: possibly another training."""
        self.interrupt: LogEvidence | None = None
        self.interrupted_at = 0
        """The first interrupt since the last step."""
        self.terminated: LogEvidence | None = None
        self.good_end: LogEvidence | None = None
        self.steps_after_end: list[str] = []
        """The first steps after it in its file."""
        self.steps: deque[tuple[int, str, str]] = deque(maxlen=RECENT_STEPS)
        self.file_steps: dict[str, FileSteps] = {}

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

    def feed_block(self, text: bytes, shapes: Sequence[bytes], *, source: str = "") -> None:
        """Many lines of one file, given with the shape of each, as `feed` would read them one by one. In most logs most lines have a shape
        that is known to show nothing: of those only the last are kept."""
        lines, first = text.split(b"\n"), 0
        for number, line_shape in enumerate(shapes):
            if self.search.is_irrelevant(line_shape) and (not self.open or self.at + number - first + 1 >= self._slow_until):
                continue
            self._pass_over(lines[first:number], source)
            self.feed(lines[number].decode("utf-8", errors="replace"), source=source)
            first = number + 1
        self._pass_over(lines[first:], source)

    def _pass_over(self, lines: Sequence[bytes], source: str) -> None:
        """Irrelevant lines."""
        if lines:
            kept = lines[-TAIL_LINES:]
            self._numbers[source] = self._numbers.get(source, 0) + len(lines)
            self.at += len(lines) - len(kept)
            for line in kept:
                self.at += 1
                self._keep(line.decode("utf-8", errors="replace"), source, None)

    def _feed(self, line: str, source: str, rank: int | None) -> None:
        self.at += 1
        if len(line) > LONGEST_LINE:
            line = line[:LONGEST_LINE]
        self._keep(line, source, rank)
        if self.open and self.at < self._slow_until:
            self._examine(line, source, rank)
            return
        kind = self.search.relevance(line)
        if kind == Relevance.IRRELEVANT:
            return
        if kind == Relevance.STEP and not self._may_have_recovered():
            self._add_step(source, line)
            return
        self.open = {} if self.open and self.at >= self._slow_until else self.open
        relevance = self._examine(line, source, rank)
        if relevance < kind:
            self.search.downgrade(line, relevance)

    def _add_step(self, source: str, text: str) -> None:
        self.steps.append((self.at, source, text))
        if (own := self.file_steps.get(source)) is None:
            own = self.file_steps.setdefault(source, FileSteps(text))
        own.last.append(text)
        if self.good_end is not None and source == self.good_end.source and len(self.steps_after_end) < RECENT_STEPS:
            self.steps_after_end.append(text)

    def _may_have_recovered(self) -> bool:
        """Whether a step may matter for the signs so far; long after the last one, a sample of the steps is enough."""
        return self._has_evidence and (self.at - self._evidence_at < RECENT_EVIDENCE or self.at % SAMPLED_STEPS == 0)

    def _keep(self, line: str, source: str, rank: int | None) -> None:
        if len(self.tail) == TAIL_LINES:
            self._tail_bytes -= len(self.tail[0][3])
        self.tail.append((self.at, source, rank, line))
        self._tail_bytes += len(line)
        while self._tail_bytes > TAIL_BYTES and len(self.tail) > 1:
            self._tail_bytes -= len(self.tail.popleft()[3])

    def _examine(self, line: str, source: str, given_rank: int | None) -> Relevance:
        """Evaluate the line; returns its relevance."""
        prefix, text = self._split(line)
        own = self._source(source, prefix, given_rank)
        was_open = own.is_open
        relevance = self._judge(own, source, prefix, text, given_rank)
        if own.is_open:
            self._slow_until = self.at + OPEN_LINES
            self.open[id(own)] = own
        elif was_open:
            self.open.pop(id(own), None)
        return max(relevance, Relevance.CHECK if was_open or own.is_open else Relevance.IRRELEVANT)

    def _split(self, line: str) -> PrefixedLine:
        known = self.splitter.num_learned
        text = without_harmless(strip_colours(line)) if "\x1b" in line else without_harmless(line)
        split = self.splitter.split(text)
        if self.splitter.num_learned > known:
            # What looked like text may be a prefix.
            self.search.forget_shapes()
        if (bars := GROUP_BARS.match(split.text)) is not None:
            split = PrefixedLine(split.source, split.text[bars.end() :])
        begins = split.text.find(HEAD)
        # Behind an unfinished progress bar.
        if begins > 0 and not CHAINED.search(split.text) and not is_indented(split.text) and split.text[begins - 1] not in "'\"`":
            return PrefixedLine(split.source, split.text[begins:])
        return split

    def _source(self, source: str, prefix: str, rank: int | None) -> LogSource:
        key = (source, " ".join(dict.fromkeys(prefix.split())))
        found = self.sources.get(key)
        if found is None:
            key = key if len(self.sources) < MAX_SOURCES else ("", "")
            alone = rank is not None or bool(without_host(prefix))
            found = self.sources.setdefault(key, LogSource(steps_to_recover=1 if alone else STEPS_WITHOUT_RANK))
        return found

    def _judge(self, own: LogSource, source: str, prefix: str, text: str, given_rank: int | None) -> Relevance:
        text = _unboxed(own, text)
        if own.report_left > 0:
            text = self._read_report(own, text)
        self._add_to_message(own, text)
        self._add_to_stack(own, text)
        self.under_torchrun = self.under_torchrun or ELASTIC in text
        if self._has_evidence and RESTART.search(text):
            self.restart_at[source] = self.at
        weight = weight_by_block(own, text)
        raised = self._follow_traceback(own, text)
        if CHAINED.search(text):
            own.chained = True
            return Relevance.CHECK
        time = TIME_BEFORE.match(text)
        if GOOD_END.search(text[time.end() :] if time else text) and not is_error_line(text) and not BAD_STATUS.search(text):
            self._note_good_end(source, self.evidence(source, prefix, text, None, given_rank))
            return Relevance.CHECK
        if raised is None and is_step(text) and self.search.sign(text) is None:
            self._step(own, source, text)
            return Relevance.STEP
        if is_indented(text):
            return Relevance.IRRELEVANT
        if weight is Weight.IGNORED or is_warning(prefix, text):
            own.frames = None
            return Relevance.IRRELEVANT
        if own.awaits_last_error:
            own.awaits_last_error = False
            if self._add_last_error(own, text):
                return Relevance.CHECK
        own.awaits_last_error = text.startswith(LAST_ERROR)
        if USAGE.match(text):
            own.usage_at = self.at
            return Relevance.CHECK
        is_report = self._note_report(own, source, prefix, text, given_rank)
        sign = self.search.sign(text, after_usage=own.usage_at is not None and self.at - own.usage_at <= USAGE_LINES)
        noise = NOISE.search(text) is not None
        excerpt = (*(raised or ()), text)
        if noise and CAUGHT_INTERRUPT.search(text):
            self._note_interrupt(self.evidence(source, prefix, text, None, given_rank, excerpt), of_program=True)
        if raised is not None and noise:
            if text.startswith(INTERRUPT):
                found = self.evidence(source, prefix, text, None, given_rank, excerpt)
                self._note_interrupt(found, of_program=TOP_OF_PROGRAM.search(own.first_frame) is not None)
            elif TERMINATED in text:
                self.terminated = self.evidence(source, prefix, text, None, given_rank, excerpt)
            raised = None
        if sign is None and raised is None:
            return self._note_error(own, text) if not noise and not is_report else Relevance.CHECK
        evidence = self.evidence(source, prefix, text, sign, given_rank, excerpt)
        evidence.is_uncaught = bool(raised) and TOP_OF_PROGRAM.search(own.first_frame) is not None
        evidence.is_logged = bool(raised) and own.is_logged
        evidence.is_bare = raised == ()
        self.num_errors += 1
        if raised is not None and text.endswith(":"):
            own.unfinished, own.message_left = evidence, MESSAGE_LINES
        self._store(own, evidence, raised is not None, weight)
        return Relevance.CHECK

    def _note_good_end(self, source: str, found: LogEvidence) -> None:
        self.good_end, self.steps_after_end = found, []
        if source in self.file_steps:
            self.file_steps[source].has_good_end = True
        report = self.reports.get(source)
        if report is not None and self._is_restarted_after(report) and self._drew_full_bar_since(report.last_at, source):
            self._drop_report(source, report)

    def _note_interrupt(self, found: LogEvidence, *, of_program: bool) -> None:
        """`of_program`: not only a worker, whose traceback may also follow the program's."""
        if self.interrupt is None or (self.steps and self.steps[-1][0] > self.interrupt.at):
            self.interrupted_at = self.at
        elif self.interrupt.is_uncaught:
            of_program = True
        found.is_uncaught, self.interrupt = of_program, found

    def evidence(
        self, source: str, prefix: str, text: str, sign: Signature | None, given_rank: int | None, excerpt: tuple[str, ...] = ()
    ) -> LogEvidence:
        return LogEvidence(
            at=self.at,
            source=source,
            number=self._numbers.get(source, 0),
            prefix=prefix,
            text=text[:LONGEST_EVIDENCE],
            sign=sign,
            rank=None if self.under_torchrun and SRUN_TASKS.match(text) else rank_of(prefix, text, given_rank),
            excerpt=tuple(_short(line) for line in excerpt),
            num_before=self.num_errors,
            step=step_number(self.steps[-1][2]) if self.steps else None,
        )

    @staticmethod
    def _add_to_message(own: LogSource, text: str) -> None:
        """Further lines of an exception: the first goes to the message, all to the excerpt."""
        if own.unfinished is None:
            return
        if not (text.strip() and is_indented(text)):
            own.unfinished = None
            return
        if own.message_left == MESSAGE_LINES:
            own.unfinished.text = f"{own.unfinished.text} {text.strip()}"[:LONGEST_EVIDENCE]
        own.unfinished.excerpt = (*own.unfinished.excerpt, _short(text))
        own.message_left -= 1
        own.unfinished = own.unfinished if own.message_left else None

    def _add_to_stack(self, own: LogSource, text: str) -> None:
        if own.stack_left and is_indented(text):
            own.stack_left -= 1
            self.python_stack += [_short(text)] if text.strip() else []
        else:
            own.stack_left = 0
        if STACK_HEAD.match(text) and not (self.python_stack and text.startswith("Thread")):
            own.stack_left, self.python_stack = EXCERPT_LINES, []

    def _add_last_error(self, own: LogSource, text: str) -> bool:
        """Add NCCL's reason to the NCCL error before it; False if it is a cause by itself or there is no such error."""
        found, sign = own.recent[-1], self.search.sign(text)
        error = found.after_effect or found.echo
        if error is None or is_root(sign):
            return False
        error.excerpt = (*error.excerpt, _short(text))
        if sign is None or sign.echo:
            error.text += f"; last error: {text}"
        else:
            error.text, error.sign = text, sign
        return True

    def _follow_traceback(self, own: LogSource, text: str) -> tuple[str, ...] | None:
        """The frames before the line, if it ends a traceback or looks like it."""
        if text.startswith(HEAD) or text.endswith(HEAD):
            own.frames, own.frames_at = deque(maxlen=EXCERPT_LINES), self.at
            own.is_logged = own.logged_error_at == self.at - 1
            return None
        if LOGGED_ERROR.match(text):
            own.logged_error_at = self.at
        if is_indented(text):
            if own.frames is not None and text.strip():
                own.first_frame = own.first_frame if own.frames else text
                own.frames.append(text)
            return None
        frames, own.frames = own.frames, None
        return tuple(frames or ()) if names_exception(text, is_first=frames is not None) else None

    def _store(self, own: LogSource, evidence: LogEvidence, raised: bool, weight: Weight) -> None:
        own.is_empty, self._has_evidence, self._evidence_at = False, True, self.at
        found, sign = own.recent[-1], evidence.sign
        if sign is not None and sign.after_effect:
            if sign.echo:
                found.echo = found.echo or evidence
            else:
                found.after_effect = found.after_effect or evidence
            # A pipe that is closed at the end of a script is not a failure.
            if (
                raised
                and weight is Weight.FULL
                and not evidence.is_logged
                and len(evidence.excerpt) > 1
                and not evidence.text.startswith(CLOSED_PIPE)
            ):
                found.raised_effect = evidence
            return
        is_weak = weight is Weight.WEAK
        if sign is not None and sign.takes_precedence and not is_weak:
            found.higher_priority = found.higher_priority or evidence
        if sign is not None:
            if is_weak:
                found.weak_sign = found.weak_sign or evidence
            else:
                found.sign = found.sign or evidence
        if raised:
            self._store_exception(own, found, evidence, is_weak)

    @staticmethod
    def _store_exception(own: LogSource, found: FoundSigns, evidence: LogEvidence, is_weak: bool) -> None:
        chained, own.chained = own.chained, False
        if chained and own.chain is not None:
            own.chain.last = evidence
            return
        own.chain = None
        if (found.weak_chain if is_weak else found.chain) is None:
            own.chain = ExceptionChain(first=evidence, last=evidence)
            if is_weak:
                found.weak_chain = own.chain
            else:
                found.chain = own.chain

    def _step(self, own: LogSource, source: str, text: str) -> None:
        number = step_number(text)
        before = step_number(self.steps[-1][2]) if self.steps and self.steps[-1][1] == source else None
        if number is not None and before is not None and 2 * number <= before:
            self.fell_back_at[source] = self.at
        elif number is not None and before is not None and number < before and self.restart_at.get(source, 0) > self._evidence_at:
            self.resumed_at[source] = self.at
        self._add_step(source, text)
        if (report := self.reports.get(source)) is not None:
            report.take_step(number)
            if report.has_new_steps and self._is_restarted_after(report):
                self._drop_report(source, report)
        for gone in own.step():
            self._mark_recovered(gone)
        self._has_evidence = bool(self.reports) or not all(one.is_empty for one in self.sources.values())

    def _is_restarted_after(self, report: LauncherReport) -> bool:
        """Whether a line after it reports a restart: steps of another program would look the same."""
        return self.restart_at.get(report.first.source, 0) > report.last_at

    def _drew_full_bar_since(self, begin_at: int, source: str) -> bool:
        bars = (progress(line) for at, file, _, line in self.tail if at > begin_at and file == source)
        return any(bar[0] == bar[1] for bar in bars if bar)

    def _mark_recovered(self, gone: FoundSigns) -> None:
        self.recovered_from = gone.chain or self.recovered_from
        ended = gone.chain.last if gone.chain else None
        if ended is not None and ended.is_uncaught and ended.rank is None:
            begun_at, restart_at = self.fell_back_at.get(ended.source, 0), self.restart_at.get(ended.source, 0)
            self.reran = ended if begun_at > ended.at > restart_at else self.reran
        if gone.sign is not None and len(self.recovered_shapes) < MAX_RECOVERED:
            self.recovered_shapes.add(shape(gone.sign.text))
        self.recovered_errors = [*self.recovered_errors, *gone.errors][:MAX_LINES]

    def _drop_report(self, source: str, report: LauncherReport) -> None:
        """The job restarted: earlier output belongs to an attempt that does not count."""
        del self.reports[source]
        if report.has_restarted:
            self.relaunched_at[source] = self.at
        if not self.reports:
            self.reported_end, self.deepspeed_code = None, None
        for (file, _), own in self.sources.items():
            if file == source and not own.is_empty:
                for gone in own.recent:
                    self._mark_recovered(gone)
                    if not report.has_restarted:
                        self.earlier.append(gone)
                own.recent, own.is_empty = [FoundSigns()], True

    def _note_error(self, own: LogSource, text: str) -> Relevance:
        if not is_error_line(text) or LAUNCHER_REPORT.search(text):
            return Relevance.IRRELEVANT
        own.is_empty = False
        errors = own.recent[-1].errors
        if len(errors) < MAX_LINES and text.strip() not in errors:
            errors.append(text.strip())
        return Relevance.ERROR

    def _note_report(self, own: LogSource, source: str, prefix: str, text: str, given_rank: int | None) -> bool:
        if REPORT_BEGINS.search(text) and self.reported_end is None:
            own.report_left, self.reported_end = REPORT_LINES, ReportedEnd()
        match = DEEPSPEED_REPORT.search(text)
        if match and self.deepspeed_code is None and int(match.group(1)) != 0:
            self.deepspeed_code = int(match.group(1))
        if not FAILED_BY_LAUNCHER.search(text):
            return False
        self._has_evidence, self._evidence_at = True, self.at
        self.reported_end = self.reported_end or end_in_one_line(text, is_rank=not self.under_torchrun)
        if source in self.reports:
            report = self.reports[source]
            report.numbers, report.num_unnumbered, report.last_at = set(), 0, self.at
        else:
            first = self.evidence(source, prefix, text, None, given_rank)
            self.reports[source] = LauncherReport(first=first, step_before=self.last_step().step, last_at=self.at)
        return True

    def _read_report(self, own: LogSource, text: str) -> str:
        """The line; a traceback that the report quotes (of a script under `@record`) is unquoted."""
        own.report_left -= 1
        if self.reported_end is not None:
            self.reported_end.take(text)
        if text.endswith(HEAD):
            own.report_left = QUOTED_LINES
            return text
        return text.removeprefix("  ") if own.frames is not None else text

    @property
    def report_at(self) -> LogEvidence | None:
        """The first launcher report without steps after it."""
        return earliest(report.first for report in self.reports.values())

    def found(self) -> Iterator[FoundSigns]:
        return (found for own in self.sources.values() for found in own.recent)

    def last_step(self, source: str | None = None, after: int = 0) -> LastStep:
        """The last step of all files or of one, after a given line."""
        own = [(at, text) for at, file, text in self.steps if source in (None, file) and at > after]
        found = [(number, at) for at, text in own if (number := step_number(text)) is not None]
        numbers = sorted({number for number, _ in found})
        step, at = max(found, default=(None, 0))
        return LastStep(at=at, step=step, interval=max((later - one for one, later in itertools.pairwise(numbers)), default=1))


def _unboxed(own: LogSource, text: str) -> str:
    """A line of a traceback that rich drew, as Python would have printed it."""
    if text.startswith("╭") and BOXED_HEAD.match(text):
        return HEAD
    if own.frames is not None and text.startswith(BOX_SIDES):
        return f"  {text[1:].strip(' │─╯')}"
    return text


def _short(text: str) -> str:
    text = text.rstrip()
    return text if len(text) <= LONGEST_EXCERPT else text[: LONGEST_EXCERPT - 1] + "…"
