"""Which implementation computes each part of the attention. In: the requested paths, the device, the sequence. Out: the effective ones and
why. Standard library only.

selected  auto    flex on CUDA; elsewhere mask up to 4,096 tokens, gather beyond
          flex    FlexAttention: dense tiles with a bitmask of blocks per query; CUDA only
          mask    scaled_dot_product_attention with an explicit mask
          gather  copies the selected blocks of each query
window    auto    flex on CUDA, mask elsewhere
prefill   batched, or sequential: the reference, a Python loop over tokens
ranges    v2 (vectorised) or v1 (loops, the reference)
sdpa      any, flash or no_flash: backends that scaled_dot_product_attention may take
fla       auto or off: flash-linear-attention's kernels, which no path calls; `choose_fla` has the reason
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial_workloads.common.effective_settings import Choice, as_requested
from seatrial_workloads.common.settings import check_one_of, check_types

# An explicit mask has S² entries for every head. Tiles on CUDA have none: on an H200, at 4 × 8,192 tokens, a whole layer with them took
# 39 ms, and gathered blocks alone 175.
DENSE_UP_TO = 4096
# Query heads that share keys and values in flash-linear-attention's kernels: a multiple of this.
FLA_GROUP = 16


# Why a request for flash attention alone has no effect.
FLASH_ONLY = {
    "cuda": "cuda: its flash kernels take no mask, and every SDPA call here has one",
    "cpu": "cpu: its flash kernel takes the mask, and is what any takes; where it cannot, nothing else is excluded",
}


@dataclass(frozen=True, kw_only=True)
class AttentionPaths:
    """Requested paths."""

    prefill: str = "batched"
    """How a sequence is computed: batched, or sequential (the reference, token by token)."""
    selected: str = "auto"
    """Selected branch: auto, flex, mask or gather."""
    window: str = "auto"
    """Sliding-window branch: auto, flex or mask."""
    ranges: str = "v2"
    """Conversion of block ids to token ranges: v2, vectorised, or v1, the reference."""
    sdpa: str = "any"
    """Backends of scaled_dot_product_attention: any, flash or no_flash."""
    fla: str = "auto"
    """flash-linear-attention's kernels: auto or off."""

    def __post_init__(self) -> None:
        check_types(self)
        check_one_of(self, prefill=("batched", "sequential"), selected=("auto", "flex", "mask", "gather"), ranges=("v1", "v2"))
        check_one_of(self, window=("auto", "flex", "mask"), sdpa=("any", "flash", "no_flash"), fla=("auto", "off"))


@dataclass(frozen=True)
class EffectivePaths:
    """The choice for each part of one layer."""

    prefill: Choice
    selected: Choice
    window: Choice
    ranges: Choice
    sdpa: Choice


def choose_paths(paths: AttentionPaths, *, device: str, seq_len: int) -> EffectivePaths:
    """The policy; `device` is torch's device type."""
    if paths.prefill == "sequential":
        reference = "prefill is sequential: one query at a time, plain attention"
        selected, window = (Choice(requested, "naive", reference) for requested in (paths.selected, paths.window))
        return EffectivePaths(
            as_requested(paths.prefill),
            selected,
            window,
            as_requested(paths.ranges),
            Choice(paths.sdpa, "any", f"{reference}, no SDPA call"),
        )
    selected, window = _selected(paths.selected, device, seq_len), _window(paths.window, device)
    return EffectivePaths(
        as_requested(paths.prefill),
        selected,
        window,
        as_requested(paths.ranges),
        _sdpa(paths.sdpa, device, {selected.effective, window.effective}),
    )


def _selected(requested: str, device: str, seq_len: int) -> Choice:
    if requested == "flex" and device != "cuda":
        return Choice(requested, "mask", f"FlexAttention has no backward on {device}: mask")
    if requested != "auto":
        return as_requested(requested)
    if device == "cuda":
        return Choice(requested, "flex", "CUDA: dense tiles with a bitmask of blocks")
    if seq_len > DENSE_UP_TO:
        return Choice(requested, "gather", f"{device}, {seq_len} tokens, more than {DENSE_UP_TO}: gathered blocks")
    return Choice(requested, "mask", f"{device}, {seq_len} tokens, at most {DENSE_UP_TO}: an explicit mask")


def _window(requested: str, device: str) -> Choice:
    if requested == "flex" and device != "cuda":
        return Choice(requested, "mask", f"FlexAttention has no backward on {device}: mask")
    if requested != "auto":
        return as_requested(requested)
    effective = "flex" if device == "cuda" else "mask"
    return Choice(requested, effective, f"{device}: {effective}")


def _sdpa(requested: str, device: str, used: set[str]) -> Choice:
    if requested == "any":
        return as_requested(requested)
    if "mask" not in used:
        return Choice(requested, "any", "no branch calls scaled_dot_product_attention; request selected=mask or window=mask")
    if requested == "flash":
        return Choice(requested, "any", FLASH_ONLY.get(device, f"{device}: flash attention is not known to take the mask of these calls"))
    return as_requested(requested)


def choose_fla(requested: str, *, device: str, heads_per_group: int) -> Choice:
    """Why flash-linear-attention's kernels are not taken: the first reason that excludes them."""
    if requested == "off":
        return as_requested(requested)
    reason = "no path calls its kernels: they pool compressed blocks by the selection block and share one set of keys and values"
    if device != "cuda":
        reason = f"{device}: its kernels are Triton's, for GPUs"
    elif heads_per_group % FLA_GROUP:
        reason = f"its kernels take groups of {FLA_GROUP} query heads or a multiple, and this model has {heads_per_group} in a group"
    return Choice(requested, "off", reason)
