"""Whether an entry of the registry says what it must. In: an entry. Out: what is wrong with it, a sentence each; the tests want none.

Apart from the loader, since it compiles every expression, and a run that does not fail needs none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.records.outcome import Cause, Fault
from seatrial.records.signatures.registry import DEEPSPEED, STAGE1, Signature

TOPICS = (STAGE1, DEEPSPEED, "sparse-lm", "sft", "inference")

_EXPRESSIONS = ("patterns", "effective", "env")
_OF_SLOW = ("keywords", "effective", "env", "unset", "kinds", "at_least", "needs_infiniband")
# Lines that every script prints: a pattern that finds one of them would find a cause in any run.
_ORDINARY = ("", "step 3: loss 1.25", "[rank0]: step 3", "Traceback (most recent call last):")


def problems(entry: Signature) -> list[str]:
    """Everything that is wrong with it."""
    return [*_wrong_words(entry), *_wrong_expressions(entry), *_wrong_combinations(entry)]


def _wrong_words(entry: Signature) -> Iterator[str]:
    if not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", entry.id):
        yield f"the id {entry.id!r} is not made of small letters, digits and single underscores"
    for topic in sorted(set(entry.topics) - set(TOPICS)):
        yield f"the topic '{topic}' is none of {', '.join(TOPICS)}"
    for key in ("symptom", "why", "action", "action_without_plan"):
        text = getattr(entry, key)
        if any(character in text for character in "\n\r\t") or "  " in text or text.count("`") % 2:
            yield f"'{key}' is not one line with paired backticks"
    for key in ("why", "action", *(["action_without_plan"] if entry.action_without_plan else [])):
        text = getattr(entry, key)
        if not text.endswith(".") or not (text[0].isupper() or text[0] == "`"):
            yield f"'{key}' is not a sentence"


def _wrong_expressions(entry: Signature) -> Iterator[str]:
    for key in _EXPRESSIONS:
        for pattern in getattr(entry, key):
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                yield f"'{key}' has {pattern!r}, which is not a regular expression: {error}"
                continue
            if key == "env" and not re.match(r"[A-Z_]{4}", pattern):
                yield f"'{pattern}' does not begin with four letters of a variable's name, by which most variables are told apart"
            if key == "patterns" and any(compiled.search(line) for line in _ORDINARY):
                yield f"'{pattern}' finds lines that every script prints"


def _wrong_combinations(entry: Signature) -> Iterator[str]:
    if entry.cause is Cause.NONE and entry.fault is not Fault.UNKNOWN:
        yield "what is no failure is nobody's fault"
    if entry.slows and entry.cause is not Cause.NONE:
        yield f"a sign of slowness has the cause `none`, not `{entry.cause.value}`"
    if entry.patterns and entry.cause is Cause.NONE and not entry.slows:
        yield "patterns are for failures and for signs of slowness"
    if entry.slows and bool(entry.patterns) != bool(entry.keywords):
        yield "a sign of slowness with patterns needs keywords, and keywords need patterns"
    if entry.slows and not (entry.patterns or entry.effective or entry.env or entry.kinds):
        yield "nothing tells this sign of slowness"
    for key in _OF_SLOW:
        if getattr(entry, key) and not entry.slows:
            yield f"'{key}' is for signs of slowness (slows = true)"
    if entry.unset and not any(re.fullmatch(pattern, f"{entry.unset}=") for pattern in entry.env):
        yield f"'{entry.unset}' is told where it is not set, and not where it is empty: no expression of 'env' finds that"
    if entry.takes_precedence and entry.after_effect:
        yield "what takes precedence over the other signs is not an after-effect"
    if entry.echo and not entry.after_effect:
        yield "an echo is an after-effect too"
