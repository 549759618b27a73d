"""How much each line of a failed run's log counts as evidence of the cause.

In: the text of a line without its prefixes. Out: whether it ends a traceback, reports a step, warns, or begins a block that Python ignores;
the entry of the registry that it matches (`LineSearch`), the rank it names; the most relevant lines where no signature matches; and what a
source has shown so far (`LogSource`).

Python prints tracebacks of exceptions it ignores (`Exception ignored in …`, `--- Logging error ---`), a thread may die while the run
goes on, a warning reports what was handled, and a rank that takes further steps has recovered from what it printed before.

Most lines of a log differ only in numbers: relevance is decided once per shape, and only lines with one of a few words are matched with the
registry's patterns, so a gigabyte takes seconds.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from seatrial.collect.logs.launcher_log import PrefixedLine, without_host
from seatrial.records.outcome import Cause
from seatrial.records.signatures.registry import Signature, signatures

STEPS_WITHOUT_RANK = 2
"""Without prefixes, a rank that has not noticed another's failure may print the step it was in."""
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


def error_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """The first lines that mention an error, since what comes later mostly follows from them; at most MAX_LINES, none twice, shortened."""
    found: dict[str, None] = {}
    for line in lines:
        if is_error_line(line):
            found[line.strip()] = None
    return tuple(_short(text) for text in list(found)[:MAX_LINES])


def is_error_line(text: str) -> bool:
    return not is_indented(text) and bool(EXCEPTION.match(text) or ERROR_WORDS.search(text)) and not NO_ERROR.search(text)


def final_lines(lines: Sequence[PrefixedLine], ended_first: str = "") -> tuple[str, ...]:
    """The last lines of the source that ended first, if it printed any; else of all."""
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
    WEAK = 1
    """An exception of a thread, which may have died without harm."""
    FULL = 2


IGNORED = re.compile(r"^Exception ignored (?:in|on)\b|^--- Logging error ---")
# Exceptions of a thread, of an asyncio task or callback that is never awaited, or of an atexit function.
IN_THREAD = re.compile(
    r"^Exception in thread |^(?:\S{0,80}[: ])?(?:(?:Task|Future) exception was never retrieved$|Exception in callback )"
    r"|^Error in atexit\._run_exitfuncs:"
)
# A logger's line directly before a traceback: that of an exception that was caught, as by logging.exception.
LOGGED_ERROR = re.compile(r"^.{0,80}?\b(?:ERROR|CRITICAL)\b|^E\d{4} \d\d:\d\d:\d\d\S* .{0,80}\] ")
# What logging prints after the traceback of its own error.
LOGGING_DETAILS = re.compile(r"^(?:Call stack:|Message: |Arguments: |future: <|handle: <)")
# NCCL calls everything a warning, what ends a run included.
WARNING = re.compile(r"^.{0,80}?(?<!NCCL )\b(?:WARN|WARNING)\b|^\[?W\d{4} \d\d:")
# A bar does not count: it is drawn once more when the run is over. Nor does wandb's summary of a finished run.
STEP = re.compile(r"\b(?:step|iter|iteration|epoch)s?\b\W{0,4}\d|\bTiming(?:ETA|Rank)\b|^\{'loss': ", re.IGNORECASE)
SUMMARY = "wandb: "
# Steps of an evaluation, which may follow the end of the training or its failure.
EVALUATION = re.compile(
    r"\b(?:eval(?:uat\w+)?|val(?:idat\w+)?|test(?:ing)?|inference|predict\w*|sampling|generat\w+|bench\w*)\b[^\w,]{0,4}(?:step|iter|epoch|batch)",
    re.IGNORECASE,
)
STEP_NUMBER = re.compile(r"\b(?:step|iter|iteration)\b[^\w,]{0,12}(\d[\d,]{0,15})", re.IGNORECASE)


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
    return Block(Weight.WEAK) if IN_THREAD.match(text) else None


def is_warning(prefix: str, text: str) -> bool:
    return "WARNING" in prefix or WARNING.match(text) is not None


def is_step(text: str) -> bool:
    """Whether it reports a training step. Megatron's lines begin with a blank."""
    if is_indented(text[1:2] if text[:1] == " " else text) or text.startswith(SUMMARY) or not STEP.search(text) or EVALUATION.search(text):
        return False
    return not (EXCEPTION.match(text) or ERROR_WORDS.search(text) or WARNING.match(text))


def step_number(text: str) -> int | None:
    match = STEP_NUMBER.search(text)
    return int(match.group(1).replace(",", "")) if match else None


@dataclass(kw_only=True)
class LogEvidence:
    """One relevant line."""

    at: int
    """Number of lines before it."""
    source: str
    number: int
    prefix: str
    text: str
    sign: Signature | None
    rank: int | None
    excerpt: tuple[str, ...]
    num_before: int
    """Errors seen before it."""
    step: int | None = None
    """The last step reported before it, by any rank."""
    is_uncaught: bool = False
    """Whether it ends a traceback from the top of a program, where nothing caught it."""
    is_logged: bool = False
    """Whether it ends a traceback that a logger printed."""
    is_bare: bool = False
    """Whether it names an exception without a traceback before it."""


@dataclass(kw_only=True)
class ExceptionChain:
    """An exception, and the last of those raised while it was handled."""

    first: LogEvidence
    last: LogEvidence

    @property
    def decisive(self) -> LogEvidence:
        """The last exception of the chain, unless only the first has a signature."""
        return self.first if is_root(self.first.sign) and not is_root(self.last.sign) else self.last


@dataclass(kw_only=True)
class FoundSigns:
    """The first of each kind that one source printed between two of its steps."""

    higher_priority: LogEvidence | None = None
    sign: LogEvidence | None = None
    chain: ExceptionChain | None = None
    weak_sign: LogEvidence | None = None
    weak_chain: ExceptionChain | None = None
    after_effect: LogEvidence | None = None
    echo: LogEvidence | None = None
    raised_effect: LogEvidence | None = None
    """The last after-effect that ended a traceback."""
    errors: list[str] = field(default_factory=list)

    @property
    def waited_for_peer(self) -> bool:
        shown = self.chain.decisive if self.chain else self.sign
        return shown is not None and shown.sign is not None and shown.sign.cause is Cause.RENDEZVOUS_TIMEOUT


@dataclass(kw_only=True)
class LogSource:
    """One rank, host or file, as far as the prefixes distinguish them."""

    steps_to_recover: int
    recent: list[FoundSigns] = field(default_factory=lambda: [FoundSigns()])
    """Signs since its last steps, oldest first; it recovered from older ones."""
    is_empty: bool = True
    block: Block | None = None
    frames: deque[str] | None = None
    """Frames of the traceback that is being read."""
    first_frame: str = ""
    logged_error_at: int = -1
    is_logged: bool = False
    """Whether a logger printed its traceback."""
    chained: bool = False
    chain: ExceptionChain | None = None
    frames_at: int = 0
    awaits_last_error: bool = False
    """NCCL's own reason is the next line."""
    unfinished: LogEvidence | None = None
    """An exception whose message goes on in indented lines, of which `message_left` are kept."""
    message_left: int = 0
    stack_left: int = 0
    """Frames of a stack of faulthandler's that are still kept."""
    report_left: int = 0
    """Lines of torchrun's report that are still to come."""
    usage_at: int | None = None
    """The last line that began a program's usage."""

    @property
    def is_open(self) -> bool:
        is_followed = self.awaits_last_error or self.unfinished is not None or self.report_left > 0 or self.stack_left > 0
        return self.block is not None or self.frames is not None or is_followed

    def step(self) -> tuple[FoundSigns, ...]:
        """The source took a step; returns the signs that it recovered from."""
        if self.is_empty:
            return ()
        self.recent.append(FoundSigns())
        gone = tuple(self.recent[: -self.steps_to_recover])
        self.recent = self.recent[-self.steps_to_recover :]
        self.is_empty = all(found == FoundSigns() for found in self.recent)
        return gone


@dataclass(frozen=True, kw_only=True)
class LastStep:
    at: int
    step: int | None
    interval: int
    """Steps between two lines that report one."""

    def may_be(self, requested_steps: int) -> bool:
        """Whether all may have been taken: steps count from 0 or 1, and not each is reported."""
        return self.step is not None and self.step + self.interval >= requested_steps


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


MAX_SHAPES = 20_000
MAX_SIGNS = 2000
LONGEST_SHAPE = 1000
"""Longer lines are mostly unique."""

# Every line that matters contains one of these, in small letters: a test derives that from the registry's patterns.
FRAGMENTS = (
    *("rror", "fail", "xception", "traceback", "cannot", "can't", "could n", "unable", "nvalid", "kill", "abort", "fatal", "panic"),
    *("refused", "denied", "not found", "no such", "missing", "memory", "timed out", "timeout", "not installed", "not exist", "not set"),
    *("required", "supported", "implemented", "available", "no module", "no slot", "hostfile", "reachable", "cancelled", "term_"),
    *("reempt", "nterruption", "low on ", "shutdown", "evicted", "onnect", "specified", "permitted", "oom", "too many", "ancdata"),
    *(
        "fallen off",
        "gpu is lost",
        "xid (",
        "nsufficient",
        "kv cache",
        "too old",
        "mismatch",
        "nvidia driver",
        "cuda-capable",
        "initialized",
        "illegal",
    ),
    *("device-side", "in use", "eaddrinuse", "interface", "neither", "wrong ", "truncated", "undefined", "async event"),
    *("completion from", "duplicate", "waiting for", "watchdog", "by peer", "by remote", "broken pipe", "peerlost", "no space"),
    *("quota", "unexpected", "errno", "eio", "stale", "read-only", "xpected to", "ready twice", "only support", "oss is ", "oss became"),
    *(
        "oss was ",
        "oss has ",
        "nan_loss",
        "at minimum",
        "halt: ",
        "halted by ",
        "terminate",
        "segmentation",
        "free",
        "signal",
        "return code",
    ),
    *("no working", "exit", "root cause", "last error", "rate limit", "offline", "disabled", "training ", "train_runtime", "trainer.fit"),
    *("call first", "+-+--", "restart", "resum", "retry", "relaunch", "attempt ", "usage: ", "loader_timeout"),
)
STEP_FRAGMENTS = ("step", "iter", "epoch", "timing", "'loss'")
# Patterns with certain digits in them: two lines of one shape may differ.
DIGITS_MATTER = (
    *("xid", "inet", "onnect", "return code", "signal", "errno", "client error", "support", "exit", "outofmemory", "ancdata"),
    *("plus", "collect"),
)
SAME_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)

# Messages of torchrun, srun, pdsh and the interpreter about the end of other processes (only a -9 in them matters), and warnings of
# Python's: the run went on after them.
NOISE = re.compile(
    r"ChildFailedError|SignalException|closing signal SIG|failed \(exitcode: -?(?!9\b)\d|KeyboardInterrupt|resource_tracker"
    r"|^srun: (?:error: \S+: tasks? \S+: (?:Exited with exit code|Terminated)|Job step aborted|Terminating)"
    r"|^pdsh@|ssh exited with exit code|^\S{1,400}:\d+: \w*Warning: "
)
# What a shell prints about a program that ran beside the training and was ended with it.
HELPER_ENDED = re.compile(
    r"^\S{1,400}: line \d+: +\d+ (?:Killed|Terminated|Aborted|Segmentation fault) +(?:\(core dumped\) +)?(?:\w+=\S+ +|nohup +)*(?:\S*/)?"
    r"(?:nvidia-smi|dcgmi|nvtop|gpustat|rocm-smi|tensorboard|h?top|sar|iostat|vmstat|mpstat|pidstat|dstat|node_exporter|watch|sleep|tail|ping"
    r"|tcpdump|rsync|inotifywait)(?: |$)"
)
PREFIX_RANK = re.compile(r"\[rank(\d{1,9})\]|\[(?:default|trainer|worker)(\d{1,9})|\[\d+,(\d{1,9})\]<std|\brank=(\d{1,6})\b")
TASK_LABEL = re.compile(r"^\s*(\d{1,6}):$")
TEXT_RANK = re.compile(
    r"^srun: error: \S+: task (\d{1,6}): |\bprocess rank (\d{1,6}) with PID|\bRanks (\d{1,6}) failed to pass|^\[[Rr]ank (\d{1,6})\]"
    r"|\blauncher:Rank (\d{1,6}) crashed|^\[rank: (\d{1,6})\] Child process"
)


USAGE = re.compile(r"^usage: ", re.IGNORECASE)
USAGE_LINES = 500
"""Lines that a program's usage, and other ranks between, take before the error that it is printed for."""


class Relevance(enum.IntEnum):
    """How much a line may show about the cause."""

    IRRELEVANT = 0
    STEP = 1
    ERROR = 2
    """It mentions an error, and nothing more."""
    CHECK = 3


class LineSearch:
    """Decides by shape, with a cache of some thousands."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Relevance] = {}
        self._signs: dict[tuple[str | bytes, bool], Signature | None] = {}

    def relevance(self, line: str) -> Relevance:
        """The highest relevance that the line can have."""
        key = shape(line)
        found = self._shapes.get(key)
        if found is None:
            found = _relevance(line)
            self._remember(key, found)
        return found

    def is_irrelevant(self, key: bytes) -> bool:
        """Whether lines of this shape are known to show nothing."""
        return self._shapes.get(key) is Relevance.IRRELEVANT

    def downgrade(self, line: str, relevance: Relevance) -> None:
        """The line is less relevant than assumed, as are lines that differ in digits only."""
        if not _digits_matter(line):
            self._remember(shape(line), relevance)

    def forget_shapes(self) -> None:
        self._shapes.clear()

    def sign(self, text: str, *, after_usage: bool = False) -> Signature | None:
        """The entry that the text of a line, without its prefixes, matches; `after_usage` where the program has just printed its usage."""
        key = text if _digits_matter(text) else shape(text), after_usage
        if key not in self._signs:
            if len(self._signs) >= MAX_SIGNS:
                self._signs.clear()
            self._signs[key] = _sign(text, after_usage)
        return self._signs[key]

    def _remember(self, key: bytes, relevance: Relevance) -> None:
        if len(key) <= LONGEST_SHAPE:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[key] = relevance


def _relevance(line: str) -> Relevance:
    low = line.lower()
    if _any_fragment().search(low):
        return Relevance.CHECK
    is_step = any(fragment in low for fragment in STEP_FRAGMENTS) and not EVALUATION.search(low)
    return Relevance.STEP if is_step else Relevance.IRRELEVANT


def rank_of(prefix: str, text: str, given: int | None) -> int | None:
    """The rank by the caller, the prefixes or the text; else by the number that `srun --label` puts before a line."""
    if given is not None:
        return given
    match = PREFIX_RANK.search(prefix) or TEXT_RANK.search(text) or TASK_LABEL.match(without_host(prefix))
    return None if match is None else int(next(group for group in match.groups() if group is not None))


def shape(line: str) -> bytes:
    """The same for lines that differ in digits only."""
    return line.encode("utf-8", errors="replace").translate(SAME_DIGIT)


def shapes(text: bytes) -> list[bytes]:
    """The shape of every line; one of invalid UTF-8 equals no result of `shape`."""
    return text.translate(SAME_DIGIT).split(b"\n")


def _digits_matter(text: str) -> bool:
    low = text.lower()
    return any(word in low for word in DIGITS_MATTER)


@cache
def _any_fragment() -> re.Pattern[str]:
    """Finds any of FRAGMENTS; as a tree of letters, in half the time of separate searches."""
    tree: dict[str, Any] = {}
    for fragment in FRAGMENTS:
        node = tree
        for letter in fragment:
            node = node.setdefault(letter, {})
        node[""] = {}
    return re.compile(_expression(tree))


def _expression(tree: dict[str, Any]) -> str:
    """The expression of a node; continuations of a complete fragment add nothing."""
    if "" in tree:
        return ""
    return "(?:" + "|".join(re.escape(letter) + _expression(node) for letter, node in tree.items()) + ")"


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], Signature], ...]:
    return tuple((re.compile(pattern), entry) for entry in signatures() if not entry.slows for pattern in entry.patterns)


def _sign(text: str, after_usage: bool) -> Signature | None:
    if is_indented(text) or NOISE.search(text) or HELPER_ENDED.search(text):
        return None
    return next((sign for pattern, sign in _compiled() if (after_usage or not sign.after_usage) and pattern.search(text)), None)
