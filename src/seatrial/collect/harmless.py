"""Lines that look bad and are not: they end no run, explain no failure, and nothing needs doing about them.

In: text of a log. Out: the text without them (for collect.failure.cause), or how often each stands in it (for collect.health).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from seatrial.signatures.signature import DEEPSPEED, STAGE1


@dataclass(frozen=True, kw_only=True)
class HarmlessLine:
    """An entry of the table. Patterns are searched in text and in bytes: what they match without a bound must be ASCII."""

    id: str
    symptom: str
    """The line as it is printed, in Markdown."""
    patterns: tuple[str, ...]
    telling: tuple[bytes, ...]
    """One word for each pattern that every such line has: looked for first, which is much faster."""
    meaning: str
    """Why it is there, and why it does no harm."""
    topics: tuple[str, ...] = ()


HARMLESS: tuple[HarmlessLine, ...] = (
    HarmlessLine(
        id="triton_autotune",
        symptom="`df: /root/.triton/autotune: No such file or directory`",
        patterns=(r"\bdf: \S{0,300}triton\S{0,300}: No such file or directory",),
        telling=(b"triton",),
        meaning="DeepSpeed asks which disk Triton's cache lies on before the folder is made.",
        topics=(STAGE1, DEEPSPEED),
    ),
    HarmlessLine(
        id="lr_scheduler_early",
        symptom="`Attempting to get learning rate from scheduler before it has started`, ``Detected call of `lr_scheduler.step()` before "
        "`optimizer.step()` ``",
        patterns=(
            r"Attempting to get learning rate from scheduler before it has started",
            r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",
        ),
        telling=(b"scheduler before it has started", b"`lr_scheduler.step()` before"),
        meaning="The learning rate was asked for before the first step, or the loss scale of fp16 left that step out; at most the "
        "schedule is one step ahead, and no time is touched.",
        topics=(STAGE1, DEEPSPEED),
    ),
    HarmlessLine(
        id="no_hostfile",
        symptom="`Unable to find hostfile, will proceed with training with local resources only`",
        patterns=(r"Unable to find hostfile, will proceed with training with local resources only",),
        telling=(b"Unable to find hostfile",),
        meaning="`deepspeed` says so of every run on one machine, where there is none to find. On several machines it is the sign of a "
        "hostfile that is not where the command looks.",
        topics=(STAGE1, DEEPSPEED),
    ),
    HarmlessLine(
        id="destroy_process_group",
        symptom="`destroy_process_group() was not called before program exit`, `process group has NOT been destroyed before we destruct "
        "ProcessGroupNCCL`",
        patterns=(
            r"destroy_process_group\(\) was not called before program exit",
            r"process group has NOT been destroyed before we destruct ProcessGroupNCCL",
        ),
        telling=(b"destroy_process_group() was not", b"group has NOT been destroyed"),
        meaning="The script left it to the end of its process to end the process group; no step is touched by it.",
        topics=(STAGE1, DEEPSPEED),
    ),
)
_ANY = re.compile("|".join(pattern for entry in HARMLESS for pattern in entry.patterns))
_IN_BYTES = tuple(
    (entry.id, word, re.compile(pattern.encode()))
    for entry in HARMLESS
    for word, pattern in zip(entry.telling, entry.patterns, strict=True)
)


def without_harmless(text: str) -> str:
    """The line without what is harmless in it; ranks that share a line may have put something else there too."""
    rest = _ANY.sub("", text)
    # What stood after it must not look like a line that is indented.
    return rest.lstrip() if len(rest) < len(text) and not text[:1].isspace() else rest


def count_harmless(block: bytes) -> dict[str, int]:
    """How often each stands in a piece of a log, by id; those that do not are not in it."""
    counts: dict[str, int] = {}
    for id, word, pattern in _IN_BYTES:
        found = len(pattern.findall(block)) if word in block else 0
        if found:
            counts[id] = counts.get(id, 0) + found
    return counts
