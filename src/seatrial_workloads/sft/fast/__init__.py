"""What LoRA fine-tuning computes faster than the stock modules do, part by part. Standard library only: a plan is expanded without torch.

    lora           q, k, v and gate, up each as one product with the frozen weights; no gradient for what is frozen
    rms_norm       RMSNorm and the residual sum in one kernel each way
    rope           rotary positions on the stacked projection, in one kernel each way; needs lora
    swiglu         SwiGLU on the stacked projection, in one kernel each way; needs lora
    attention      causal attention without a mask tensor; packed rows by sequence bounds
    cross_entropy  the loss from hidden states in chunks; all logits never exist at once

Each has its plain reference beside it. `apply.apply_fast_paths` puts them into a model. `graph` captures the step as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from seatrial_workloads.common.fast_paths import EqualSettings, equal_parts, equal_settings_from, open_groups

# Architectures whose parts are replaced and whose parameters `sft.shapes` counts; tests compare both with transformers.
MODEL_TYPES = ("llama", "mistral")
LORA, RMS_NORM, ROPE, SWIGLU, ATTENTION, CROSS_ENTROPY = PARTS = ("lora", "rms_norm", "rope", "swiglu", "attention", "cross_entropy")
# Tokens whose logits `cross_entropy` holds at once: 125 MiB in bf16 with 32,000 of vocabulary, and a product large enough to fill a GPU.
CHUNK = 2048
# Columns or rows beside the frozen weights for the adapters of `lora`: a multiple of what matrix products are tiled by.
PADDING = 64
NO_GPU = "no GPU: only there torch.compile fuses it"


class Settings(Protocol):
    """The settings read here; the trainer's own class imports this module."""

    @property
    def fast_paths(self) -> bool | str: ...
    @property
    def strategy(self) -> str: ...
    @property
    def use_lora(self) -> bool: ...
    @property
    def torch_compile(self) -> bool: ...
    @property
    def attn_impl(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def packing(self) -> bool: ...
    @property
    def grad_accum(self) -> int: ...
    @property
    def gradient_checkpointing(self) -> bool: ...
    @property
    def seq_len(self) -> int: ...
    @property
    def fast_parts(self) -> tuple[str, ...]: ...
    @property
    def has_equal_parts(self) -> bool: ...
    @property
    def requires_fast_parts(self) -> bool: ...


def excluded_parts(settings: Settings, *, device: str | None = None, is_sharded: bool | None = None) -> dict[str, str]:
    """Part → why these settings exclude it: on any machine, or with what `auto` became on this one."""
    if settings.strategy == "fsdp" if is_sharded is None else is_sharded:
        return dict.fromkeys(PARTS, "FSDP gathers a module's weights only while that module itself is called")
    if settings.torch_compile:
        return dict.fromkeys(PARTS, "torch_compile compiles the modules as they are")
    reasons: dict[str, str] = {}
    if not settings.use_lora:
        reasons |= dict.fromkeys((LORA, ROPE, SWIGLU), "use_lora is false")
        reasons |= dict.fromkeys((RMS_NORM, CROSS_ENTROPY), "use_lora is false: norms and head are trained")
    if settings.attn_impl not in ("auto", "sdpa"):
        reasons[ATTENTION] = f"attn_impl is {settings.attn_impl}"
    if (device or settings.device) == "cpu":
        reasons |= dict.fromkeys((RMS_NORM, ROPE, SWIGLU), NO_GPU)
    return reasons


def excluded_by_model(*, model_type: str, activation: str, window: int | None, seq_len: int) -> dict[str, str]:
    """Part → why a model excludes it, by its config."""
    if model_type not in MODEL_TYPES:
        return dict.fromkeys(PARTS, f"written for Llama's and Mistral's layers, not {model_type}'s")
    reasons = {SWIGLU: f"the activation is {activation}"} if activation != "silu" else {}
    if window and seq_len > window:
        reasons[ATTENTION] = f"sequences of {seq_len} are longer than the model's window of {window}"
    return reasons


def padding_of_stack(outputs: int, inputs: int, rank: int) -> tuple[int, int]:
    """(rows, columns) added to a stack's frozen weights for its adapters, `rank` in all: rows where the input is much wider than the
    output, columns where the output is."""
    room = -(-rank // PADDING) * PADDING
    return room * (inputs >= 2 * outputs), room * (outputs >= 2 * inputs)


def why_no_graph(settings: Settings, *, world_size: int, has_gpu: bool, has_attention: bool) -> str:
    """Why a step is not captured as a CUDA graph; empty where it is."""
    reasons = {
        "no GPU": not has_gpu,
        f"{world_size} ranks: collectives are not captured": world_size > 1,
        "torch_compile: its code is not captured here": settings.torch_compile,
        "packing: the bounds of examples differ in each batch": settings.packing,
        "grad_accum: gradients of several passes are summed": settings.grad_accum > 1,
        "gradient_checkpointing reads random states back": settings.gradient_checkpointing,
        f"the part {ATTENTION} of fast_paths is not in effect, and masks are built on the host": not has_attention,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def equalize_settings(groups: Mapping[str, Settings], *, given: Collection[str], compared: bool) -> EqualSettings:
    """The same fast paths for all groups that leave them open; `given` are the settings that the plan sets, `compared`: it has axes or
    a baseline."""
    equal = open_groups(groups, given=given, compared=compared)
    return equal_settings_from(list(equal_parts(equal, PARTS, excluded_parts)))
