"""Which lines of a log can matter at all, which entry of the registry they match, and whose they are. Quick.

In: lines. Out: what a line may be worth, the signature that matches it, the rank that it names.

Most lines of a log are alike but for their numbers: what a line is worth is decided once for each shape, and only lines with one of a few
words are matched with the registry's patterns, which makes a gigabyte a matter of seconds.
"""

from __future__ import annotations

import enum
import re
from functools import cache
from typing import Any

from seatrial.collect.launcher_log import without_host
from seatrial.collect.log_evidence import is_indented
from seatrial.records.signatures.registry import Signature, signatures

MAX_SHAPES = 20_000
MAX_SIGNS = 2000
LONGEST_SHAPE = 1000
"""Longer lines are mostly unlike any other."""

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
    *("oss was ", "oss has ", "nan_loss", "at minimum", "halt: ", "terminate", "segmentation", "free", "signal", "return code"),
    *("no working", "exit", "root cause", "last error", "rate limit", "offline", "disabled", "training ", "train_runtime", "trainer.fit"),
    "+-+--",
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
PREFIX_RANK = re.compile(r"\[rank(\d{1,9})\]|\[(?:default|trainer|worker)(\d{1,9})|\[\d+,(\d{1,9})\]<std|\brank=(\d{1,6})\b")
TASK_LABEL = re.compile(r"^\s*(\d{1,6}):$")
TEXT_RANK = re.compile(
    r"^srun: error: \S+: task (\d{1,6}): |\bprocess rank (\d{1,6}) with PID|\bRanks (\d{1,6}) failed to pass|^\[[Rr]ank (\d{1,6})\]"
    r"|\blauncher:Rank (\d{1,6}) crashed|^\[rank: (\d{1,6})\] Child process"
)


class Worth(enum.IntEnum):
    """What a line may show."""

    BORING = 0
    STEP = 1
    ERROR = 2
    """It mentions an error, and nothing more."""
    CHECK = 3


class LineSearch:
    """Decides by shape, and remembers some thousands of them."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Worth] = {}
        self._signs: dict[str | bytes, Signature | None] = {}

    def worth(self, line: str) -> Worth:
        """The most that the line can be worth."""
        shape = _shape(line)
        found = self._shapes.get(shape)
        if found is None:
            found = _worth(line)
            self._remember(shape, found)
        return found

    def lower_worth(self, line: str, worth: Worth) -> None:
        """The line turned out to be worth less, and so are those that differ in digits only."""
        if not _digits_matter(line):
            self._remember(_shape(line), worth)

    def forget_shapes(self) -> None:
        self._shapes.clear()

    def sign(self, text: str) -> Signature | None:
        """The entry that the text of a line, without its prefixes, matches."""
        key = text if _digits_matter(text) else _shape(text)
        if key not in self._signs:
            if len(self._signs) >= MAX_SIGNS:
                self._signs.clear()
            self._signs[key] = _sign(text)
        return self._signs[key]

    def _remember(self, shape: bytes, worth: Worth) -> None:
        if len(shape) <= LONGEST_SHAPE:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = worth


def _worth(line: str) -> Worth:
    low = line.lower()
    if _any_fragment().search(low):
        return Worth.CHECK
    return Worth.STEP if any(fragment in low for fragment in STEP_FRAGMENTS) else Worth.BORING


def rank_of(prefix: str, text: str, given: int | None) -> int | None:
    """By the caller, the prefixes, or the text itself; the number that `srun --label` puts before a line where nothing else names it."""
    if given is not None:
        return given
    match = PREFIX_RANK.search(prefix) or TEXT_RANK.search(text) or TASK_LABEL.match(without_host(prefix))
    return None if match is None else int(next(group for group in match.groups() if group is not None))


def _shape(line: str) -> bytes:
    """Lines that differ in digits only have the same."""
    return line.encode("utf-8", errors="replace").translate(SAME_DIGIT)


def _digits_matter(text: str) -> bool:
    low = text.lower()
    return any(word in low for word in DIGITS_MATTER)


@cache
def _any_fragment() -> re.Pattern[str]:
    """Finds any of FRAGMENTS. As a tree of letters it takes half the time of one search after the other."""
    tree: dict[str, Any] = {}
    for fragment in FRAGMENTS:
        node = tree
        for letter in fragment:
            node = node.setdefault(letter, {})
        node[""] = {}
    return re.compile(_expression(tree))


def _expression(tree: dict[str, Any]) -> str:
    """Of all that begins at this node; what continues a shorter one adds nothing."""
    if "" in tree:
        return ""
    return "(?:" + "|".join(re.escape(letter) + _expression(node) for letter, node in tree.items()) + ")"


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], Signature], ...]:
    return tuple((re.compile(pattern), entry) for entry in signatures() if not entry.slows for pattern in entry.patterns)


def _sign(text: str) -> Signature | None:
    if is_indented(text) or NOISE.search(text):
        return None
    return next((sign for pattern, sign in _compiled() if pattern.search(text)), None)
