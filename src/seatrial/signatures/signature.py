"""One way in which a run goes wrong or slow: what a person sees, why it is so, and what to do. Plain data; the entries: the TOML files
beside this module, read by signatures.load."""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.outcome import Cause, Fault

# Topics: whose procedures an entry belongs to.
STAGE1 = "stage1"
DEEPSPEED = "deepspeed"
SPARSE_LM = "sparse-lm"
SFT = "sft"
INFERENCE = "inference"
TOPICS = (STAGE1, DEEPSPEED, SPARSE_LM, SFT, INFERENCE)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """An entry of the registry."""

    id: str
    """Stable. An entry named like a cause holds the advice for all that has this cause and no entry of its own."""
    symptom: str
    """What is seen, in Markdown: a line as it is printed, an event, a file."""
    cause: Cause
    """The word in outcome.json; `none` for what is no failure."""
    fault: Fault
    """Whose fault it is; `unknown` where the sign alone does not tell, and for what is no failure."""
    why: str
    action: str
    """What to do, fit for the terminal."""
    patterns: tuple[str, ...] = ()
    """Regular expressions, searched in a line of the log; none where it is no line that tells."""
    exit_codes: tuple[int, ...] = ()
    """Of the launcher, where its log tells nothing."""
    after_effect: bool = False
    """What ranks say when another one has died: it counts only where no other line tells more."""
    echo: bool = False
    """An after-effect that says no more than that another rank is gone: it counts only where no other after-effect is there."""
    outranks: bool = False
    """It counts before every other sign, wherever it stands: a broken GPU lets the ranks on it fail in many ways."""
    caution: str = ""
    """The kind of the report's caution that tells it, where one does."""
    topics: tuple[str, ...] = ()
    slows: bool = False
    """A sign of slowness: advice for a throughput that is too low. The fields below are for these."""
    words: tuple[str, ...] = ()
    """Every line that a pattern finds has one of them: looked for first, which is much faster."""
    effective: tuple[str, ...] = ()
    """Regular expressions for the whole of `setting: asked -> used`, as the workload reported it."""
    env: tuple[str, ...] = ()
    """Regular expressions for the whole of `NAME=value`, of the variables that reached the ranks."""
    unset: str = ""
    """A variable that is as bad where it is not set, for a workload that knows it: one with others of that prefix (`NSA_`) set."""
    kinds: tuple[str, ...] = ()
    """Kinds of what analysis finds (UnevenCause.kind, `debug`) that this is the advice for."""
    at_least: dict[str, float] = field(default_factory=dict)
    """Settings of the run that must be known and at least so large for it to count."""
    needs_infiniband: bool = False
    """It counts only where the host has an InfiniBand port that is active."""
