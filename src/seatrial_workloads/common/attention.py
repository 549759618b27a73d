"""Which attention an encoder uses. In: the word asked for, the effective precision, the GPUs. Out: the one that is used, and why.

auto               fp16 → eager; bf16, fp32, and without a GPU → sdpa
flash_attention_2  needs CUDA of compute capability 8 or more, bf16 or fp16, and the flash_attn package; else sdpa

One call for each encoder; `common_word` says in one word what several came to.
"""

from __future__ import annotations

from collections.abc import Iterable

from seatrial_workloads.common.choice import AS_REQUESTED, Choice
from seatrial_workloads.common.precision import AMPERE, FLASH, Capability

CHOICES = ("auto", "eager", "sdpa", FLASH)


def resolve_attention(requested: str, precision: str, lowest: Capability | None) -> Choice:
    """The policy on this machine; the package is looked for only when it is asked for."""
    problem = flash_attn_problem() if requested == FLASH and lowest is not None else None
    return choose_attention(requested, precision, lowest, problem)


def choose_attention(requested: str, precision: str, lowest: Capability | None, flash_attn_problem: str | None) -> Choice:
    """The policy itself; no compute capability means CPU."""
    if requested not in CHOICES:
        raise ValueError(f"attention is '{requested}'; expected one of {', '.join(CHOICES)}")
    if requested == "auto":
        return _auto(precision, lowest)
    if requested == FLASH:
        missing = _why_no_flash(precision, lowest, flash_attn_problem)
        if missing:
            return Choice(requested, "sdpa", f"{missing}: sdpa")
    return Choice(requested, requested, AS_REQUESTED)


def _auto(precision: str, lowest: Capability | None) -> Choice:
    if lowest is None:
        return Choice("auto", "sdpa", "no GPU: sdpa")
    if precision == "fp16":
        return Choice("auto", "eager", "fp16: eager")
    return Choice("auto", "sdpa", f"{precision}: sdpa")


def _why_no_flash(precision: str, lowest: Capability | None, flash_attn_problem: str | None) -> str | None:
    if lowest is None:
        return f"{FLASH} needs a GPU"
    if lowest[0] < AMPERE:
        return f"{FLASH} needs compute capability {AMPERE}.0, this is {lowest[0]}.{lowest[1]}"
    if precision == "fp32":
        return f"{FLASH} computes nothing in fp32"
    return flash_attn_problem


def flash_attn_problem() -> str | None:
    """Why the package cannot be used here; None when it can. It is imported: one built for another torch is installed and fails."""
    try:
        __import__("flash_attn")
    except ModuleNotFoundError as error:
        return "the flash_attn package is not installed" if error.name == "flash_attn" else f"flash_attn does not import ({error})"
    except Exception as error:
        return f"flash_attn does not import ({(str(error).splitlines() or [type(error).__name__])[0]})"
    return None


def common_word(choices: Iterable[Choice]) -> str:
    """What the encoders came to: one word, or `split` where they differ."""
    words = {choice.effective for choice in choices}
    return words.pop() if len(words) == 1 else "split"
