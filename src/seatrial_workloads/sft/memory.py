"""Memory of fine-tuning a causal language model on a GPU, from its settings. Standard library only.

Kept of a layer for the backward pass, in elements of a token; h is the hidden width, a that of all query heads, k that of the key heads,
m that of the MLP. LoRA with 16-bit frozen weights and fp32 adapters under autocast, stock modules of transformers and PEFT:

    norms               2 h in fp32 (each casts its input), 2 statistics; with trained weights the normalised input too
    LoRA inputs         q, k, v, gate, up: h each, o: a, down: m: autocast casts the input once for each adapter; their dropout masks
    LoRA products       r for each of the seven adapters
    query, key, value   a + 2 k after the rotary embedding; a + 2 a where there is a mask, since key heads are then repeated
    attention           its output a, a statistic for each head; scores are never kept (flash), a mask is, for each layer
    MLP                 the gate before and after SiLU and what it multiplies: 3 m

A frozen matrix keeps no input: only its own weights are needed. In full fine-tuning every matrix keeps its input, in place of LoRA's.
The embedding is frozen under LoRA, so that the first layer's first norm keeps nothing.
Logits: in the format of the computation, their log-softmax in fp32, and the fp32 gradients of both.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

from seatrial.records.caution import Scalar
from seatrial.records.memory import ForecastUnknown, MemoryForecast, Remedy
from seatrial_workloads.common.memory import (
    FORMAT_BYTES,
    Activations,
    Counted,
    Formats,
    ModelState,
    Parameters,
    fsdp_state,
    highest,
    logits_bytes,
    replicated_state,
)
from seatrial_workloads.sft.settings import Settings
from seatrial_workloads.sft.shapes import Shape, UnknownShape, model_shape

MOST_RANKS = 64


def forecast(settings: Settings, *, world_size: int, cwd: Path) -> MemoryForecast:
    try:
        shape = model_shape(settings.model, cwd)
    except UnknownShape as error:
        raise ForecastUnknown(str(error)) from error
    formats = Formats(compute=FORMAT_BYTES["fp32" if settings.precision == "fp32" else "bf16"])
    # Padding and packing both need a mask, and transformers then repeats the key heads; flash attention needs none.
    masked, sharded = settings.attn_impl != "flash_attention_2", settings.strategy == "fsdp" and world_size > 1
    held = activations(settings, shape, formats, masked=masked, gathered=sharded)
    return highest(model_state(settings, shape, formats, world_size), held, world_size=world_size, notes=_notes(settings))


def _notes(settings: Settings) -> tuple[str, ...]:
    fast = [name for name in ("torch_compile", "cuda_graph") if getattr(settings, name)]
    fast += ["fast_paths"] if settings.fast_paths != "none" else []
    return (f"counted for the stock modules: {' and '.join(fast)} may need less",) if fast else ()


def remedies(settings: Settings, *, world_size: int) -> Iterator[Remedy]:
    """Changes of one setting, then of several at once, then more ranks."""
    size = settings.micro_batch
    while size > 1:
        size //= 2
        yield Remedy(settings={"micro_batch": size})
    changes: list[dict[str, Scalar]] = []
    changes += [] if settings.use_lora else [{"use_lora": True}]
    changes += [] if settings.gradient_checkpointing else [{"gradient_checkpointing": True}]
    changes += [{"strategy": "fsdp"}] if settings.strategy != "fsdp" and world_size > 1 else []
    changes += [{"micro_batch": 1}] if settings.micro_batch > 1 else []
    for number in range(1, len(changes) + 1):
        for chosen in itertools.combinations(changes, number):
            yield Remedy(settings={key: value for change in chosen for key, value in change.items()})
    ranks = 2 * world_size
    while ranks <= MOST_RANKS:
        yield Remedy(settings={"strategy": "fsdp"}, world_size=ranks)
        ranks *= 2


def model_state(settings: Settings, shape: Shape, formats: Formats, world_size: int) -> ModelState:
    """Frozen weights have the format of the computation, trained ones are fp32."""
    outer = shape.base_parameters - shape.layers * shape.layer_parameters
    parameters = Parameters(trained=shape.base_parameters, layer=shape.layer_parameters, outer=outer)
    if settings.use_lora:
        lora = shape.lora_parameters(settings.lora_r)
        parameters = dataclasses.replace(parameters, trained=lora, frozen=shape.base_parameters, frozen_bytes=formats.compute)
    accumulates = settings.grad_accum > 1
    # The Trainer's `adamw_torch` is the foreach implementation, and its DDP keeps buckets apart from gradients.
    if settings.strategy == "fsdp" and world_size > 1:
        return fsdp_state(parameters, world_size, compute=formats.compute, foreach=True, stay=accumulates)
    return replicated_state(parameters, world_size, bucket_view=False, foreach=True, stay=accumulates)


def activations(settings: Settings, shape: Shape, formats: Formats, *, masked: bool, gathered: bool = False) -> Activations:
    """`masked`: attention has a mask; `gathered`: weights arrive in the format of the computation, as FSDP gathers them."""
    tokens = settings.micro_batch * settings.seq_len
    # Bytes of the residual stream: that of the weights.
    stream = formats.compute if settings.use_lora or gathered else 4
    layer, once = _layer(settings, shape, formats, stream, masked=masked), _outside(settings, shape, formats, stream)
    saved, recomputed = Counted(), 0
    if settings.gradient_checkpointing:
        saved.add("layer inputs", tokens * stream * shape.hidden, shape.layers)
        recomputed = round(tokens * sum(layer.values()))
    else:
        for name, size in layer.items():
            saved.add(name, tokens * size, shape.layers)
        if settings.use_lora:
            saved.add("norms", -tokens * (4 * shape.hidden + 4))
    for name, size in once.items():
        saved.add(name, size)
    # Nothing before the first layer is trained, so that its q, k and v need no weights for gradients of their inputs.
    copied = shape.lora_parameters(settings.lora_r) - 3 * settings.lora_r * shape.hidden if settings.use_lora else _matrices(shape)
    return Activations(
        saved=saved.tensors,
        logits=logits_bytes(tokens, shape.vocab, formats.compute),
        layer_backward=recomputed + tokens * (stream * shape.hidden + 3 * formats.compute * shape.intermediate),
        weight_copies=formats.compute * copied if formats.autocast and not gathered else 0,
        inputs=3 * 8 * tokens,
    )


def _layer(settings: Settings, shape: Shape, formats: Formats, stream: int, *, masked: bool) -> dict[str, float]:
    """Tensor → bytes of one token in one layer."""
    compute = formats.compute
    attention, keys = shape.heads * shape.dim_per_head, shape.kv_heads * shape.dim_per_head
    eager = settings.attn_impl == "eager"
    key_width = attention if masked or eager else keys
    sizes: dict[str, float] = {
        "norms": 2 * (4 * shape.hidden + 4) + (0 if settings.use_lora else 2 * stream * shape.hidden),
        "query, key, value": compute * (attention + 2 * key_width),
        "attention outputs": compute * attention,
        "MLP": 3 * compute * shape.intermediate,
    }
    if eager:
        # The softmax in fp32, and cast.
        sizes["attention scores"] = (4 + compute) * shape.heads * settings.seq_len
    else:
        sizes["attention statistics"] = 4 * shape.heads
        sizes["attention masks"] = compute * settings.seq_len if masked else 0
    return sizes | (_lora_inputs(settings, shape, formats) if settings.use_lora else _matrix_inputs(shape, formats, stream))


def _lora_inputs(settings: Settings, shape: Shape, formats: Formats) -> dict[str, float]:
    inputs = {name: size for name, (size, _) in shape.projections.items()}
    drops = settings.lora_dropout > 0
    # Without a cast and without dropout, adapters share the tensor that they read; o_proj's is the attention's output.
    kept = sum(inputs.values()) if drops or formats.autocast else inputs["q_proj"] + inputs["gate_proj"] + inputs["down_proj"]
    return {
        "LoRA inputs": formats.compute * kept,
        "LoRA dropout masks": formats.mask * sum(inputs.values()) if drops else 0,
        "LoRA products": formats.compute * settings.lora_r * len(inputs),
    }


def _matrix_inputs(shape: Shape, formats: Formats, stream: int) -> dict[str, float]:
    """Where norms return fp32, autocast casts that for each matrix."""
    readers = 5 if stream != formats.compute else 2
    return {"matrix inputs": formats.compute * (readers * shape.hidden + shape.intermediate)}


def _outside(settings: Settings, shape: Shape, formats: Formats, stream: int) -> dict[str, int]:
    """Tensor → bytes outside the layers: the last norm, the output layer's input, rotary angles and labels."""
    tokens, trained = settings.micro_batch * settings.seq_len, not settings.use_lora
    return {
        "norms": tokens * (4 * shape.hidden + 4) + (tokens * stream * shape.hidden if trained else 0),
        "matrix inputs": tokens * formats.compute * shape.hidden if trained else 0,
        "other": 2 * settings.seq_len * shape.dim_per_head * stream + 8 * tokens + 4,
    }


def _matrices(shape: Shape) -> int:
    """Parameters that autocast casts: neither norms nor the embedding."""
    return shape.layers * (shape.layer_parameters - 2 * shape.hidden) + shape.embedding_parameters
