"""Attention implementation of an encoder. In: the requested one, the effective precision, the ranks' GPUs. Out: the effective one and why,
the same on all ranks.

auto               fp16 → eager; bf16, fp32, and without a GPU → sdpa
flash_attention_2  needs CUDA of compute capability 8 or more, bf16 or fp16, and the flash_attn package; else sdpa
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seatrial_workloads.common.effective_settings import Choice, as_requested
from seatrial_workloads.common.errors import first_line
from seatrial_workloads.common.precision import AMPERE, FLASH, Capability

if TYPE_CHECKING:
    from seatrial_workloads.common.distributed import Ranks

CHOICES = ("auto", "eager", "sdpa", FLASH)


def choose_attention(requested: str, precision: str, lowest: Capability | None, ranks: Ranks) -> Choice:
    """The policy; `lowest` is the lowest compute capability of all ranks, None on a CPU. A collective call where flash attention is
    requested: a node without its package must not train beside others that have it."""
    if requested == "auto":
        effective = "eager" if precision == "fp16" and lowest is not None else "sdpa"
        return Choice(requested, effective, f"{'no GPU' if lowest is None else precision}: {effective}")
    problem = None
    if requested == FLASH:
        problem = ranks.agreed_problem(_flash_problem(precision, lowest), f"another rank cannot use {FLASH}")
    return Choice(requested, "sdpa", f"{problem}: sdpa") if problem else as_requested(requested)


def _flash_problem(precision: str, lowest: Capability | None) -> str | None:
    if lowest is None:
        return f"{FLASH} needs a GPU"
    if lowest[0] < AMPERE:
        return f"{FLASH} needs compute capability {AMPERE}.0, this is {lowest[0]}.{lowest[1]}"
    if precision == "fp32":
        return f"{FLASH} does not support fp32"
    return flash_attn_problem()


def flash_attn_problem() -> str | None:
    """Why flash_attn cannot be used here; None when it can. Only an import shows it: a package built for another torch fails."""
    try:
        __import__("flash_attn")
    except ModuleNotFoundError as error:
        return "the flash_attn package is not installed" if error.name == "flash_attn" else f"flash_attn does not import ({error})"
    except Exception as error:
        return f"flash_attn does not import ({first_line(error)})"
    return None
