"""Puts the fast parts into a model of transformers with LoRA of PEFT (Llama's and Mistral's shape), and takes them out again.

    effective = apply_fast_paths(model, ("lora", "attention"), settings)      part → (in effect, how or why not)
    remove_fast_paths(model)

Only training changes: evaluation and generation run the modules as they were. Weights, their names and what is saved stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from seatrial_workloads.common.effective_settings import Choice, as_requested
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.fast_paths import summarize_parts
from seatrial_workloads.sft.fast import (
    ATTENTION,
    CROSS_ENTROPY,
    LORA,
    PARTS,
    RMS_NORM,
    ROPE,
    SWIGLU,
    Settings,
    excluded_by_model,
    excluded_parts,
)
from seatrial_workloads.sft.fast.attention import Bounds, bounds_of, causal_attention, has_varlen_kernel
from seatrial_workloads.sft.fast.cross_entropy import IGNORED, linear_cross_entropy
from seatrial_workloads.sft.fast.elementwise import add_rms_norm, rope, rope_reference, swiglu, swiglu_reference
from seatrial_workloads.sft.fast.lora import Stack, why_not_stackable

PATCHED = "has_fast_forward"
LEFT_OUT = "left out: not every group of the plan can have it"


class Rows(Protocol):
    """The settings that the parts themselves need."""

    @property
    def packing(self) -> bool: ...
    @property
    def seq_len(self) -> int: ...


def choose_fast_paths(model: nn.Module, settings: Settings, device: torch.device, *, is_sharded: bool) -> dict[str, Choice]:
    """Apply what `fast_paths` requests; returns every part and the setting itself, requested and effective. StartupError for a part of the
    user's own list that is not available here."""
    excluded = excluded_parts(settings, device=device.type, is_sharded=is_sharded)
    effective = apply_fast_paths(model, [part for part in settings.fast_parts if part not in excluded], settings)
    choices = {}
    for part in PARTS:
        is_effective, reason = effective[part]
        reason = excluded.get(part, reason)
        if part not in settings.fast_parts:
            choices[part] = Choice(True, False, LEFT_OUT) if settings.has_equal_parts else as_requested(False)
        elif not is_effective and settings.requires_fast_parts:
            raise StartupError(f"fast_paths names {part}, which is not available here: {reason}; leave it out, or use fast_paths=all")
        else:
            choices[part] = Choice(True, is_effective, reason)
    return {**choices, "fast_paths": summarize_parts(str(settings.fast_paths), PARTS, choices)}


@dataclass(frozen=True, kw_only=True)
class LayerParts:
    """How one decoder layer computes each part."""

    parts: frozenset[str]
    qkv: Stack | None = None
    out: Stack | None = None
    gate_up: Stack | None = None
    down: Stack | None = None

    @property
    def stacks(self) -> list[Stack]:
        return [stack for stack in (self.qkv, self.out, self.gate_up, self.down) if stack]


def apply_fast_paths(model: nn.Module, parts: Collection[str], settings: Rows) -> dict[str, tuple[bool, str]]:
    """Change the model in place; returns every part, requested or not, with whether it is in effect, and how or why not."""
    causal = causal_lm(model)
    reasons = {**dict.fromkeys(PARTS, ""), **_why_not(causal, settings)}
    for part in (ROPE, SWIGLU):
        if not reasons[part] and (reasons[LORA] or LORA not in parts):
            reasons[part] = f"it works on the stacked projections of {LORA}, which is not in effect"
    wanted = frozenset(part for part in PARTS if part in parts and not reasons[part])
    if wanted - {CROSS_ENTROPY}:
        for layer in causal.model.layers:
            _patch(layer, _layer_forward(layer, _layer_parts(layer, wanted)))
    if wanted & {ATTENTION, LORA, RMS_NORM}:
        _patch(causal.model, _model_forward(causal.model, wanted, packing=settings.packing))
    if CROSS_ENTROPY in wanted:
        _patch(causal, _causal_forward(causal))
    how = _how(causal, settings) if wanted else {}
    return {part: (part in wanted, how[part] if part in wanted else reasons[part] or "not requested") for part in PARTS}


def remove_fast_paths(model: nn.Module) -> None:
    """Restore the modules, each frozen weight in its own memory."""
    for module in causal_lm(model).modules():
        if module.__dict__.pop(PATCHED, False):
            del module.__dict__["forward"]
        for stack in getattr(module.__dict__.pop("fast_parts", None), "stacks", ()):
            stack.restore()


def causal_lm(model: nn.Module) -> Any:
    """The causal language model itself, without PEFT's wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _projections(layer: Any) -> dict[str, list[Any]]:
    attention, mlp = layer.self_attn, layer.mlp
    return {
        "qkv": [attention.q_proj, attention.k_proj, attention.v_proj],
        "out": [attention.o_proj],
        "gate_up": [mlp.gate_proj, mlp.up_proj],
        "down": [mlp.down_proj],
    }


def _why_not(causal: Any, settings: Rows) -> dict[str, str]:
    """Part → why this model cannot have it. For another architecture only its config is read."""
    config = causal.config
    reasons = excluded_by_model(
        model_type=config.model_type,
        activation=getattr(config, "hidden_act", ""),
        window=getattr(config, "sliding_window", None),
        seq_len=settings.seq_len,
    )
    if len(reasons) == len(PARTS):
        return reasons
    layers = causal.model.layers
    found = {LORA: next((why for layer in layers for group in _projections(layer).values() if (why := why_not_stackable(group))), "")}
    if layers[0].input_layernorm.weight.requires_grad:
        found[RMS_NORM] = "the norms' weights are trained"
    if causal.lm_head.weight.requires_grad:
        found[CROSS_ENTROPY] = "the head is trained"
    return {**found, **reasons}


def _how(causal: Any, settings: Rows) -> dict[str, str]:
    weight = causal.model.layers[0].self_attn.q_proj.weight
    kernels = "one kernel each way by torch.compile" if weight.is_cuda else "the same formulas as on a GPU, not compiled: no GPU"
    packed = (
        "torch's flash kernel for several lengths" if has_varlen_kernel(weight) else "scaled_dot_product_attention with a mask of sequences"
    )
    return {
        LORA: "q, k, v and gate, up stacked; adapters' products in the model's format",
        **dict.fromkeys((RMS_NORM, ROPE, SWIGLU), kernels),
        ATTENTION: packed if settings.packing else "scaled_dot_product_attention, causal, no mask tensor",
        CROSS_ENTROPY: "from hidden states in chunks",
    }


def _layer_parts(layer: Any, wanted: frozenset[str]) -> LayerParts:
    stacks = {name: Stack(group) for name, group in _projections(layer).items()} if LORA in wanted else {}
    return LayerParts(parts=wanted, **stacks)


def _patch(module: nn.Module, forward: Callable[..., Any]) -> None:
    plain = module.forward
    # The signature stays: the Trainer reads it.
    module.forward = MethodType(wraps(plain)(forward), module)
    module.__dict__[PATCHED] = True


def _layer_forward(layer: Any, fast: LayerParts) -> Callable[..., Any]:
    plain = layer.forward
    layer.__dict__["fast_parts"] = fast

    def forward(self: Any, hidden_states: Tensor, **inputs: Any) -> Any:
        if not self.training:
            return plain(hidden_states, **inputs)
        hidden, normed = _normed(self.input_layernorm, hidden_states, None, fast)
        mixed = _attend(self.self_attn, normed, fast, **inputs)
        hidden, normed = _normed(self.post_attention_layernorm, hidden, mixed, fast)
        return hidden + _feed_forward(self.mlp, normed, fast)

    return forward


def _normed(norm: Any, hidden: Tensor, delta: Tensor | None, fast: LayerParts) -> tuple[Tensor, Tensor]:
    if RMS_NORM in fast.parts:
        return add_rms_norm(hidden, delta, norm.weight, norm.variance_epsilon)
    hidden = hidden if delta is None else hidden + delta
    return hidden, norm(hidden)


def _attend(attention: Any, normed: Tensor, fast: LayerParts, **inputs: Any) -> Tensor:
    config = attention.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    stock = (attention.q_proj, attention.k_proj, attention.v_proj)
    qkv = fast.qkv(normed) if fast.qkv else torch.cat([projection(normed) for projection in stock], dim=-1)
    split = rope if ROPE in fast.parts else rope_reference
    query, key, value = split(qkv, *inputs["position_embeddings"], heads, kv_heads)
    if ATTENTION in fast.parts:
        mixed = causal_attention(query, key, value, inputs.get("bounds"), attention.scaling)
    else:
        mixed = _stock_attention(attention, query, key, value, inputs)
    flat = mixed.flatten(-2)
    return fast.out(flat) if fast.out else attention.o_proj(flat)


def _stock_attention(attention: Any, query: Tensor, key: Tensor, value: Tensor, inputs: dict[str, Any]) -> Tensor:
    """The attention that transformers would have called, with the mask that it built."""
    from transformers.models.llama.modeling_llama import ALL_ATTENTION_FUNCTIONS, eager_attention_forward

    config = attention.config
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(config._attn_implementation, eager_attention_forward)
    q, k, v = (part.transpose(1, 2) for part in (query, key, value))
    rest = {
        name: given for name, given in inputs.items() if name not in ("position_embeddings", "attention_mask", "past_key_values", "bounds")
    }
    window = getattr(config, "sliding_window", None)
    mixed: Tensor = attend(attention, q, k, v, inputs.get("attention_mask"), scaling=attention.scaling, sliding_window=window, **rest)[0]
    return mixed


def _feed_forward(mlp: Any, normed: Tensor, fast: LayerParts) -> Tensor:
    gate_up = fast.gate_up(normed) if fast.gate_up else torch.cat((mlp.gate_proj(normed), mlp.up_proj(normed)), dim=-1)
    activated = swiglu(gate_up) if SWIGLU in fast.parts else swiglu_reference(gate_up)
    return fast.down(activated) if fast.down else mlp.down_proj(activated)


def _model_forward(model: Any, wanted: frozenset[str], *, packing: bool) -> Callable[..., Any]:
    plain = model.forward

    def forward(self: Any, input_ids: Tensor | None = None, **inputs: Any) -> Any:
        if self.training:
            for stack in (stack for layer in self.layers for stack in layer.fast_parts.stacks):
                stack.refresh()
        if not self.training or ATTENTION not in wanted or inputs.get("past_key_values") is not None:
            return plain(input_ids, **inputs)
        embeds = inputs.get("inputs_embeds")
        hidden = self.embed_tokens(input_ids) if embeds is None else embeds
        positions = inputs.get("position_ids")
        bounds = _bounds(positions, inputs) if packing else None
        if positions is None:
            positions = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        rotation = self.rotary_emb(hidden, position_ids=positions)
        for layer in self.layers:
            hidden = layer(hidden, position_embeddings=rotation, bounds=bounds)
        return BaseModelOutputWithPast(last_hidden_state=_last_norm(self.norm, hidden, wanted))

    return forward


def _bounds(position_ids: Tensor | None, inputs: dict[str, Any]) -> Bounds:
    """Bounds from the collator, under transformers' names, else from the positions."""
    if inputs.get("cu_seq_lens_q") is not None:
        return Bounds(inputs["cu_seq_lens_q"], int(inputs["max_length_q"]))
    if position_ids is None:
        raise ValueError("packing needs position_ids that start at 0 with each example")
    return bounds_of(position_ids)


def _last_norm(norm: Any, hidden: Tensor, wanted: frozenset[str]) -> Tensor:
    return add_rms_norm(hidden, None, norm.weight, norm.variance_epsilon)[1] if RMS_NORM in wanted else norm(hidden)


def _causal_forward(causal: Any) -> Callable[..., Any]:
    plain = causal.forward

    def forward(self: Any, input_ids: Tensor | None = None, **inputs: Any) -> Any:
        labels = inputs.get("labels")
        if not self.training or labels is None or inputs.get("shift_labels") is not None:
            return plain(input_ids, **inputs)
        given = {
            name: value for name, value in inputs.items() if name not in ("labels", "num_items_in_batch", "logits_to_keep", "return_dict")
        }
        hidden = self.model(input_ids, **given).last_hidden_state
        # The token after each, as transformers shifts them.
        targets = functional.pad(labels, (0, 1), value=IGNORED)[..., 1:]
        loss = linear_cross_entropy(hidden.flatten(0, 1), self.lm_head.weight, targets.flatten(), inputs.get("num_items_in_batch"))
        return CausalLMOutputWithPast(loss=loss, logits=None)

    return forward
