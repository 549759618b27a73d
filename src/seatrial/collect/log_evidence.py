"""How much each line of a failed run's log counts as evidence of the cause.

In: the text of a line without its prefixes. Out: whether it ends a traceback, reports a step, warns, or begins a block that Python ignores;
the most relevant lines where no signature matches, and the table of harmless lines; and what a source has shown so far (`LogSource`).

Python prints tracebacks of exceptions it ignores (`Exception ignored in …`, `--- Logging error ---`), a thread may die while the run
goes on, a warning reports what was handled, and a rank that takes further steps has survived what it printed before.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seatrial.collect.launcher_log import PrefixedLine, without_host
from seatrial.records.outcome import Cause
from seatrial.records.signatures.registry import DEEPSPEED, STAGE1, Signature

STEPS_WITHOUT_RANK = 2
"""Without prefixes a rank that has not yet noticed the failure of another one may print the step it was in."""


@dataclass(frozen=True, kw_only=True)
class HarmlessPattern:
    """A line that looks bad and is not: it ends no run, explains no failure, and nothing needs doing about it.

    Patterns are searched in text and in bytes: what they match without a bound must be ASCII."""

    id: str
    symptom: str
    """The line as it is printed, in Markdown."""
    patterns: dict[str, bytes]
    """Pattern → a keyword that every such line has: searched for first, which is much faster."""
    meaning: str
    """Why it is there, and why it does no harm."""
    topics: tuple[str, ...] = ()


HARMLESS: tuple[HarmlessPattern, ...] = (
    HarmlessPattern(
        id="triton_autotune",
        symptom="`df: /root/.triton/autotune: No such file or directory`",
        patterns={r"\bdf: \S{0,300}triton\S{0,300}: No such file or directory": b"triton"},
        meaning="DeepSpeed asks which disk Triton's cache is on before the folder exists.",
        topics=(STAGE1, DEEPSPEED),
    ),
    HarmlessPattern(
        id="lr_scheduler_early",
        symptom="`Attempting to get learning rate from scheduler before it has started`, ``Detected call of `lr_scheduler.step()` before "
        "`optimizer.step()` ``",
        patterns={
            r"Attempting to get learning rate from scheduler before it has started": b"scheduler before it has started",
            r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`": b"`lr_scheduler.step()` before",
        },
        meaning="The learning rate was read before the first step, or fp16's loss scale skipped that step; at most the schedule is one "
        "step ahead, and no time changes.",
        topics=(STAGE1, DEEPSPEED),
    ),
    HarmlessPattern(
        id="no_hostfile",
        symptom="`Unable to find hostfile, will proceed with training with local resources only`",
        patterns={r"Unable to find hostfile, will proceed with training with local resources only": b"Unable to find hostfile"},
        meaning="`deepspeed` prints it for every run on one machine, where there is no hostfile. On several machines it means that the "
        "hostfile is not where the command looks.",
        topics=(STAGE1, DEEPSPEED),
    ),
    HarmlessPattern(
        id="destroy_process_group",
        symptom="`destroy_process_group() was not called before program exit`, `process group has NOT been destroyed before we destruct "
        "ProcessGroupNCCL`",
        patterns={
            r"destroy_process_group\(\) was not called before program exit": b"destroy_process_group() was not",
            r"process group has NOT been destroyed before we destruct ProcessGroupNCCL": b"group has NOT been destroyed",
        },
        meaning="The script left the process group to the end of its process; no step is affected.",
        topics=(STAGE1, DEEPSPEED),
    ),
)
_ANY = re.compile("|".join(pattern for entry in HARMLESS for pattern in entry.patterns))
_IN_BYTES = tuple((entry.id, keyword, re.compile(pattern.encode())) for entry in HARMLESS for pattern, keyword in entry.patterns.items())


def without_harmless(text: str) -> str:
    """The line without harmless text; ranks that share a line may have printed something else there too."""
    rest = _ANY.sub("", text)
    # What stood after it must not look like an indented line.
    return rest.lstrip() if len(rest) < len(text) and not text[:1].isspace() else rest


def count_harmless(block: bytes) -> dict[str, int]:
    """How often each entry matches in a block of a log, by id."""
    counts: dict[str, int] = {}
    for id, keyword, pattern in _IN_BYTES:
        found = len(pattern.findall(block)) if keyword in block else 0
        if found:
            counts[id] = counts.get(id, 0) + found
    return counts


MAX_LINES = 5
LONGEST_SHOWN = 240
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Iteration)(?:: |$)")
ERROR_WORDS = re.compile(
    r"\b(?:errors?|fatal|fail(?:ed|ure|s)?|abort(?:ed|ing)?|panic|cannot|can't|could not|unable|refused|denied|invalid|killed)\b",
    re.IGNORECASE,
)
# Lines without an error, or that mention one in passing: `0 errors`, `error rate`, a loss of that name, a warning.
NO_ERROR = re.compile(
    r"\b(?:no|0|without) (?:errors?|failures?)\b|\berror[ _]rate\b|\b(?:mean|abs|squared)[ _]\w*error\b|warn", re.IGNORECASE
)


def error_lines(lines: Sequence[PrefixedLine]) -> tuple[str, ...]:
    """The first lines that mention an error, since what comes later mostly follows from them; at most MAX_LINES, none twice, shortened."""
    found: dict[str, None] = {}
    for line in lines:
        if is_error_line(line.text):
            found[line.text.strip()] = None
    return tuple(_short(text) for text in list(found)[:MAX_LINES])


def is_error_line(text: str) -> bool:
    return not is_indented(text) and bool(EXCEPTION.match(text) or ERROR_WORDS.search(text)) and not NO_ERROR.search(text)


def final_lines(lines: Sequence[PrefixedLine], ended_first: str = "") -> tuple[str, ...]:
    """The last lines of the source that ended first, where it printed any; else the last of all."""
    printed = [line for line in lines if line.text.strip()]
    own = [line for line in printed if without_host(line.source) == ended_first] if ended_first else []
    return tuple(_short(line.text) for line in (own or printed)[-MAX_LINES:])


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


HEAD = "Traceback (most recent call last):"
ANY_NAME = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: |:?$)")
CHAINED = re.compile(
    r"During handling of the above exception|direct cause of the following exception"
    r"|^-- Process \d+ terminated with the following error|^Original Traceback \(most recent call last\)|^ {2,20}\+-\+-{8,} 1 -{8,}"
)


def names_exception(text: str, *, is_first: bool) -> bool:
    """Whether the line is what a traceback ends with, or looks like that by itself.

    Exceptions are recognised by how their names end; after the head of a traceback any name counts (`Exception: …`, `socket.gaierror:
    …`), if it is the first line of that source that is not indented."""
    return not is_indented(text) and bool(EXCEPTION.match(text) or (is_first and ANY_NAME.match(text)))


def is_indented(text: str) -> bool:
    """Whether it is blank, source quoted in a traceback, or a row of a report."""
    return not text[:1].strip()


class Weight(enum.IntEnum):
    """How much a line counts as evidence of the cause."""

    IGNORED = 0
    """An exception that Python ignores."""
    DOUBTFUL = 1
    """A thread's: it may have died without harm."""
    FULL = 2


IGNORED = re.compile(r"^Exception ignored (?:in|on)\b|^--- Logging error ---")
# A thread's, or of a task of asyncio that nobody waited for.
IN_THREAD = re.compile(r"^Exception in thread |^(?:\S{0,80}[: ])?(?:Task|Future) exception was never retrieved$")
# What logging prints after the traceback of its own error.
LOGGING_DETAILS = re.compile(r"^(?:Call stack:|Message: |Arguments: |future: <)")
# NCCL calls everything a warning, what ends a run included.
WARNING = re.compile(r"^.{0,80}?(?<!NCCL )\b(?:WARN|WARNING)\b|^\[?W\d{4} \d\d:")
# A bar does not count: it is drawn once more when the run is over. Nor does wandb's summary of a finished run.
STEP = re.compile(r"\b(?:step|iter|iteration|epoch)s?\b\W{0,4}\d|\bTiming(?:ETA|Rank)\b|^\{'loss': ", re.IGNORECASE)
SUMMARY = "wandb: "


@dataclass
class Block:
    """A traceback under a heading that gives its weight."""

    weight: Weight
    has_begun: bool = False
    has_ended: bool = False

    def takes(self, text: str) -> bool:
        if CHAINED.search(text):
            self.has_ended = False
            return True
        if is_indented(text) or LOGGING_DETAILS.match(text):
            return True
        if self.has_ended or not (self.has_begun or text.startswith(HEAD)):
            return False
        self.has_ended = self.has_begun and not text.startswith(HEAD)
        self.has_begun = True
        return True


def block_begun_by(text: str) -> Block | None:
    if IGNORED.match(text):
        return Block(Weight.IGNORED)
    return Block(Weight.DOUBTFUL) if IN_THREAD.match(text) else None


def is_warning(prefix: str, text: str) -> bool:
    return "WARNING" in prefix or WARNING.match(text) is not None


def is_step(text: str) -> bool:
    """Whether it reports a step. Megatron puts one blank before it."""
    if is_indented(text[1:2] if text[:1] == " " else text) or text.startswith(SUMMARY) or not STEP.search(text):
        return False
    return not (EXCEPTION.match(text) or ERROR_WORDS.search(text) or WARNING.match(text))


@dataclass(kw_only=True)
class LogEvidence:
    """One line that shows something."""

    at: int
    """How many lines were fed before."""
    source: str
    number: int
    prefix: str
    text: str
    sign: Signature | None
    rank: int | None
    excerpt: tuple[str, ...]
    num_before: int
    """Errors seen before it."""


@dataclass(kw_only=True)
class ExceptionChain:
    """An exception, and the last of those raised while it was handled."""

    first: LogEvidence
    last: LogEvidence

    @property
    def decisive(self) -> LogEvidence:
        """The last of a chain counts, unless only the first has a signature."""
        return self.first if is_root(self.first.sign) and not is_root(self.last.sign) else self.last


@dataclass(kw_only=True)
class FoundSigns:
    """The first of each kind that one source printed between two of its steps."""

    outranking: LogEvidence | None = None
    sign: LogEvidence | None = None
    chain: ExceptionChain | None = None
    doubtful_sign: LogEvidence | None = None
    doubtful_chain: ExceptionChain | None = None
    after_effect: LogEvidence | None = None
    echo: LogEvidence | None = None
    raised_effect: LogEvidence | None = None
    """The last after-effect that ended a traceback."""
    errors: list[str] = field(default_factory=list)

    @property
    def waited_to_join(self) -> bool:
        shown = self.chain.decisive if self.chain else self.sign
        return shown is not None and shown.sign is not None and shown.sign.cause is Cause.RENDEZVOUS_TIMEOUT


@dataclass(kw_only=True)
class LogSource:
    """One rank, host or file, as far as the prefixes tell them apart."""

    steps_to_survive: int
    recent: list[FoundSigns] = field(default_factory=lambda: [FoundSigns()])
    """Since its last steps, oldest first; what is older was survived."""
    is_empty: bool = True
    block: Block | None = None
    frames: deque[str] | None = None
    """Of a traceback that has begun and not ended."""
    chained: bool = False
    chain: ExceptionChain | None = None
    frames_at: int = 0
    awaits_last_error: bool = False
    """NCCL's own reason is the next line."""
    report_left: int = 0
    """Lines of torchrun's report that are still to come."""

    @property
    def is_open(self) -> bool:
        return self.block is not None or self.frames is not None or self.awaits_last_error or self.report_left > 0

    def step(self) -> tuple[FoundSigns, ...]:
        """It went on: what it survived."""
        if self.is_empty:
            return ()
        self.recent.append(FoundSigns())
        gone = tuple(self.recent[: -self.steps_to_survive])
        self.recent = self.recent[-self.steps_to_survive :]
        self.is_empty = all(found == FoundSigns() for found in self.recent)
        return gone


@dataclass(kw_only=True)
class LauncherReport:
    """What a launcher printed into one file about a job that failed."""

    first: LogEvidence
    step_before: int | None
    """The highest of the last steps before it."""
    numbers: set[int] = field(default_factory=set)
    """Steps after it."""
    num_unnumbered: int = 0

    def take_step(self, number: int | None) -> None:
        if number is None:
            self.num_unnumbered += 1
        else:
            self.numbers.add(number)

    @property
    def is_survived(self) -> bool:
        """A launcher reports when all its processes are gone: who takes steps after that was started again. Steps that only go on from
        those before it may be lines of other ranks that arrive late."""
        is_new = self.step_before is None or self.began_anew or not self.numbers
        return is_new and max(len(self.numbers), self.num_unnumbered) >= STEPS_WITHOUT_RANK

    @property
    def began_anew(self) -> bool:
        return self.step_before is not None and min(self.numbers, default=self.step_before) < self.step_before


@dataclass(frozen=True, kw_only=True)
class LastStep:
    at: int
    step: int | None
    interval: int
    """Steps between two lines that report one."""

    def may_be(self, asked_steps: int) -> bool:
        """Whether the run may have taken them all: steps are counted from 0 or from 1, and not each is reported."""
        return self.step is not None and self.step + self.interval >= asked_steps


def is_root(sign: Signature | None) -> bool:
    return sign is not None and not sign.after_effect


def earliest(found: Iterator[LogEvidence | None]) -> LogEvidence | None:
    return min((one for one in found if one is not None), key=lambda one: one.at, default=None)


def weight_by_block(own: LogSource, text: str) -> Weight:
    begun = block_begun_by(text)
    if begun is not None:
        own.block = begun
    elif own.block is not None and not own.block.takes(text):
        own.block = None
    return own.block.weight if own.block else Weight.FULL
