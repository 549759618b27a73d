"""Lines that look bad and are not: no run ends by them, and they explain no failure.

Diagnosis leaves them out, `health` counts them, and docs/troubleshooting.md lists them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from seatrial.records.signatures.registry import DEEPSPEED, STAGE1


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
HARMLESS_KEYWORDS = tuple(keyword for entry in HARMLESS for keyword in entry.patterns.values())
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
