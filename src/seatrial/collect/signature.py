"""One way in which a run goes wrong: what a person sees, why it is so, and what to do. Plain data; the entries: collect.signatures."""

from __future__ import annotations

from dataclasses import dataclass

from seatrial.records.outcome import Cause

# Topics: whose procedures an entry belongs to.
STAGE1 = "stage1"
DEEPSPEED = "deepspeed"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """An entry of the registry."""

    id: str
    """Stable. An entry named like a cause holds the advice for all that has this cause and no entry of its own."""
    symptom: str
    """What is seen, in Markdown: a line as it is printed, an event, a file."""
    cause: Cause
    """The word in outcome.json; `none` for what is no failure."""
    why: str
    action: str
    """What to do, fit for the terminal."""
    patterns: tuple[str, ...] = ()
    """Regular expressions, searched in a line of the log; none where it is no line that tells."""
    exit_codes: tuple[int, ...] = ()
    """Of the launcher, where its log tells nothing."""
    after_effect: bool = False
    """What ranks say when another one has died: it counts only where no other line tells more."""
    caution: str = ""
    """The kind of the report's caution that tells it, where one does."""
    topics: tuple[str, ...] = ()
