"""Memory of fine-tuning a causal language model on a GPU, from its settings. Standard library only.

What a layer keeps for the backward pass, in elements per token; h is the hidden width, a that of all query heads, k that of the key heads,
m that of the MLP. LoRA with 16-bit frozen weights and fp32 adapters under autocast; first the stock modules of transformers and PEFT, then
what the part of `fast_paths` that replaces them keeps:

    norms               2 h in fp32 (each casts its input), 2 statistics; with trained weights the normalised input too
      rms_norm          2 h as they are, 2 statistics
    LoRA inputs         q, k, v, gate, up: h each, o: a, down: m: autocast casts the input once for each adapter; their dropout masks
      lora              h for q, k, v, h for gate, up, and m; o's is the attention's output; a mask for each of these inputs
    LoRA products       r for each of the seven adapters
    query, key, value   a + 2 k after the rotary embedding; a + 2 a where there is a mask, since key heads are then repeated
      any part          the values are a view of the stacked projection, which stays as a whole: a + k, and a + 2 k
    attention           its output a, a statistic for each head; scores are never kept (flash), a mask is, for each layer
      attention         no mask, so that no key head is repeated
    MLP                 the gate before and after SiLU and what it multiplies: 3 m
      swiglu            gate and up before it: 2 m
    logits              in the format of the computation, their log-softmax in fp32, and the fp32 gradients of both
      cross_entropy     the gradient of the hidden states; of the logits those of one chunk, and their gradients

A frozen matrix keeps no input: only its own weights are needed. In full fine-tuning every matrix keeps its input, in place of LoRA's.
The embedding is frozen under LoRA, so that the first layer's first norm keeps nothing. Beside the frozen weights `lora` holds copies of the
adapters in their format.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.records.caution import Scalar
from seatrial.records.memory import ForecastUnknown, MemoryForecast, Remedy
from seatrial_workloads.common.fast_paths import EQUAL
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
from seatrial_workloads.common.precision import FLASH
from seatrial_workloads.sft.fast import (
    ATTENTION,
    CHUNK,
    CROSS_ENTROPY,
    LORA,
    RMS_NORM,
    ROPE,
    SWIGLU,
    excluded_by_model,
    excluded_parts,
    padding_of_stack,
)
from seatrial_workloads.sft.settings import Settings
from seatrial_workloads.sft.shapes import Shape, UnknownShape, model_shape

MAX_RANKS = 64
# How attention is computed: by a kernel that keeps no scores, without a mask or with one; by matrices, as torch does where no kernel takes
# fp32 with fewer key heads than query heads; by transformers' own matrices.
KERNEL, MASKED, MATRICES, EAGER = "kernel", "masked", "matrices", "eager"


@dataclass(frozen=True, kw_only=True)
class Paths:
    """How a step is computed, where memory depends on it."""

    attention: str
    parts: frozenset[str] = frozenset()
    """The parts of `fast_paths` in effect."""

    @property
    def is_patched(self) -> bool:
        """Whether the layers are ours: queries, keys and values are then one stacked projection, gates and ups another."""
        return bool(self.parts - {CROSS_ENTROPY})


def forecast(settings: Settings, *, world_size: int, cwd: Path) -> MemoryForecast:
    """The largest and the smallest forecast over what may come into effect."""
    try:
        shape = model_shape(settings.model, cwd)
    except UnknownShape as error:
        raise ForecastUnknown(str(error)) from error
    formats = Formats(compute=FORMAT_BYTES["fp32" if settings.precision == "fp32" else "bf16"])
    sharded = settings.strategy == "fsdp" and world_size > 1
    found = []
    for paths in possible_paths(settings, shape, is_sharded=sharded):
        state = model_state(settings, shape, formats, world_size, paths)
        held = activations(settings, shape, formats, paths, gathered=sharded)
        found.append(highest(state, held, world_size=world_size))
    largest, least = max(found, key=_allocated), min(map(_allocated, found))
    uncertain = least < largest.allocated_bytes
    return dataclasses.replace(
        largest, least_allocated_bytes=least if uncertain else None, notes=tuple(_notes(settings, uncertain=uncertain))
    )


def _allocated(forecast: MemoryForecast) -> int:
    return forecast.allocated_bytes


def _notes(settings: Settings, *, uncertain: bool) -> Iterator[str]:
    if settings.torch_compile:
        yield "counted for the modules as they are: torch_compile may need less"
    if uncertain:
        undecided = {
            f"which parts fast_paths={EQUAL} leaves": settings.fast_paths == EQUAL,
            f"whether the node has {FLASH}": settings.attn_impl == FLASH,
            "whether torch's attention kernels take fp32 there": settings.precision == "fp32",
        }
        why = " and ".join(sentence for sentence, holds in undecided.items() if holds)
        yield f"the largest that it may be; the run decides {why}"


def possible_paths(settings: Settings, shape: Shape, *, is_sharded: bool) -> Iterator[Paths]:
    """Every way that these settings may be computed on a GPU; one where the node decides nothing."""
    model = excluded_by_model(model_type=shape.model_type, activation=shape.activation, window=shape.window, seq_len=settings.seq_len)
    excluded = {*excluded_parts(settings, device="cuda", is_sharded=is_sharded), *model}
    parts = frozenset(settings.fast_parts) - excluded
    if LORA not in parts:
        parts -= {ROPE, SWIGLU}
    for chosen in (parts, frozenset[str]()) if settings.fast_paths == EQUAL else (parts,):
        for attention in _attentions(settings, shape, chosen):
            yield Paths(attention=attention, parts=chosen)


def _attentions(settings: Settings, shape: Shape, parts: frozenset[str]) -> tuple[str, ...]:
    if ATTENTION in parts:
        takes_kernel = settings.precision != "fp32" or (shape.heads == shape.kv_heads and not settings.packing)
        return (KERNEL,) if takes_kernel else (KERNEL, MATRICES)
    # Padding and packing both need a mask, and transformers then repeats the key heads; flash attention needs none.
    return {"eager": (EAGER,), FLASH: (KERNEL, MASKED)}.get(settings.attn_impl, (MASKED,))


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
    while ranks <= MAX_RANKS:
        yield Remedy(settings={"strategy": "fsdp"}, world_size=ranks)
        ranks *= 2


def model_state(settings: Settings, shape: Shape, formats: Formats, world_size: int, paths: Paths) -> ModelState:
    """Frozen weights have the format of the computation, trained ones are fp32."""
    outer = shape.base_parameters - shape.layers * shape.layer_parameters
    parameters = Parameters(trained=shape.base_parameters, layer=shape.layer_parameters, outer=outer)
    if settings.use_lora:
        frozen = shape.base_parameters + (_stack_copies(shape, settings.lora_r) if LORA in paths.parts else 0)
        lora = shape.lora_parameters(settings.lora_r)
        parameters = dataclasses.replace(parameters, trained=lora, frozen=frozen, frozen_bytes=formats.compute)
    # A captured graph writes gradients to memory of its own, which it keeps.
    stay = settings.grad_accum > 1 or settings.cuda_graph
    # The Trainer's `adamw_torch` is the foreach implementation, and its DDP keeps buckets apart from gradients.
    if settings.strategy == "fsdp" and world_size > 1:
        return fsdp_state(parameters, world_size, compute=formats.compute, foreach=True, stay=stay)
    return replicated_state(parameters, world_size, bucket_view=False, foreach=True, stay=stay)


def _stack_copies(shape: Shape, rank: int) -> int:
    """Elements beside the frozen weights of all layers: copies of the adapters, stacked as the projections are."""
    total = 0
    for names in (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)):
        inputs, outputs = shape.projections[names[0]][0], sum(shape.projections[name][1] for name in names)
        rows, columns = padding_of_stack(outputs, inputs, len(names) * rank)
        total += (outputs + rows) * (inputs + columns) - outputs * inputs
        total += (0 if rows else len(names) * rank * inputs) + (0 if columns else outputs * len(names) * rank)
    return shape.layers * total


def activations(settings: Settings, shape: Shape, formats: Formats, paths: Paths, *, gathered: bool = False) -> Activations:
    """`gathered`: weights arrive in the format of the computation, as FSDP gathers them."""
    tokens = settings.micro_batch * settings.seq_len
    # The residual stream has the format of the weights.
    stream = formats.compute if settings.use_lora or gathered else 4
    layer, once = _layer(settings, shape, formats, stream, paths), _outside(settings, shape, formats, stream, paths)
    saved, recomputed = Counted(), 0
    if settings.gradient_checkpointing:
        saved.add("layer inputs", tokens * stream * shape.hidden, shape.layers)
        recomputed = round(tokens * sum(layer.values()))
    else:
        for name, size in layer.items():
            saved.add(name, tokens * size, shape.layers)
        for name, size in _not_in_first_layer(settings, shape, formats, stream, paths).items():
            saved.add(name, -tokens * size)
    for name, size in once.items():
        saved.add(name, size)
    return Activations(
        saved=saved.tensors,
        logits=_logits(settings, shape, formats, paths),
        layer_backward=recomputed + tokens * (stream * shape.hidden + 3 * formats.compute * shape.intermediate),
        weight_copies=formats.compute * _cast_weights(settings, shape, paths) if formats.autocast and not gathered else 0,
        inputs=3 * 8 * tokens,
    )


def _cast_weights(settings: Settings, shape: Shape, paths: Paths) -> int:
    """Parameters that autocast casts; `lora` has copies of its own."""
    if not settings.use_lora:
        return _matrices(shape)
    # Nothing before the first layer is trained: its q, k and v need no weights for gradients of their inputs.
    return 0 if LORA in paths.parts else shape.lora_parameters(settings.lora_r) - 3 * settings.lora_r * shape.hidden


def _logits(settings: Settings, shape: Shape, formats: Formats, paths: Paths) -> int:
    tokens = settings.micro_batch * settings.seq_len
    if CROSS_ENTROPY in paths.parts:
        return 2 * min(CHUNK, tokens) * shape.vocab * formats.compute
    return logits_bytes(tokens, shape.vocab, formats.compute)


def _norm(shape: Shape, stream: int, *, fused: bool) -> int:
    """Bytes of one token: the input, which the stock module casts to fp32, and a statistic."""
    return (stream if fused else 4) * shape.hidden + 4


def _not_in_first_layer(settings: Settings, shape: Shape, formats: Formats, stream: int, paths: Paths) -> dict[str, float]:
    """Tensor → bytes of one token that the first layer does not keep: under LoRA its input needs no gradient."""
    if not settings.use_lora:
        return {}
    drops = settings.lora_dropout > 0 and LORA not in paths.parts
    return {
        "norms": _norm(shape, stream, fused=RMS_NORM in paths.parts),
        "LoRA dropout masks": formats.mask * 3 * shape.hidden if drops else 0,
    }


def _layer(settings: Settings, shape: Shape, formats: Formats, stream: int, paths: Paths) -> dict[str, float]:
    """Tensor → bytes of one token in one layer."""
    trained = not settings.use_lora
    sizes: dict[str, float] = {
        "norms": 2 * _norm(shape, stream, fused=RMS_NORM in paths.parts) + (2 * stream * shape.hidden if trained else 0),
        "MLP": (2 if SWIGLU in paths.parts else 3) * formats.compute * shape.intermediate,
        **_attention(settings, shape, formats, paths),
    }
    return sizes | (_matrix_inputs(shape, formats, stream) if trained else _lora_inputs(settings, shape, formats, paths))


def _attention(settings: Settings, shape: Shape, formats: Formats, paths: Paths) -> dict[str, float]:
    compute, attention, keys = formats.compute, shape.heads * shape.dim_per_head, shape.kv_heads * shape.dim_per_head
    # Repeated for the heads that share them.
    repeated = paths.attention != KERNEL and keys != attention
    value_width = attention if repeated else attention + 2 * keys if paths.is_patched else keys
    # Matrices do not keep their output; a projection that reads it as it is does.
    keeps_output = paths.attention in (KERNEL, MASKED) or not _adapters_cast(settings, formats, paths)
    sizes: dict[str, float] = {
        "query, key, value": compute * (attention + (attention if repeated else keys) + value_width),
        "attention outputs": compute * attention if keeps_output else 0,
    }
    if paths.attention == EAGER:
        # The softmax in fp32 and cast.
        return {**sizes, "attention scores": (4 + (compute if formats.autocast else 0)) * shape.heads * settings.seq_len}
    if paths.attention == MATRICES:
        # Packed rows are one row here.
        context = settings.seq_len * (settings.micro_batch if settings.packing else 1)
        return {**sizes, "attention scores": compute * shape.heads * context}
    masks = compute * settings.seq_len if paths.attention == MASKED else 0
    return {**sizes, "attention statistics": 4 * shape.heads, "attention masks": masks}


def _adapters_cast(settings: Settings, formats: Formats, paths: Paths) -> bool:
    """Whether every adapter keeps its own copy of what it reads, as PEFT's do after dropout or a cast."""
    return settings.use_lora and LORA not in paths.parts and (settings.lora_dropout > 0 or formats.autocast)


def _lora_inputs(settings: Settings, shape: Shape, formats: Formats, paths: Paths) -> dict[str, float]:
    inputs = {name: size for name, (size, _) in shape.projections.items()}
    everything, drops = sum(inputs.values()), settings.lora_dropout > 0
    # Projections that read the same input share one, and o_proj's is the attention's output.
    shared = inputs["q_proj"] + inputs["gate_proj"] + inputs["down_proj"]
    kept = everything if _adapters_cast(settings, formats, paths) else shared
    masks = shared + inputs["o_proj"] if LORA in paths.parts else everything * formats.mask
    return {
        "LoRA inputs": formats.compute * kept,
        "LoRA dropout masks": masks if drops else 0,
        "LoRA products": formats.compute * settings.lora_r * len(inputs),
    }


def _matrix_inputs(shape: Shape, formats: Formats, stream: int) -> dict[str, float]:
    """Where norms return fp32, autocast casts it for each matrix."""
    readers = 5 if stream != formats.compute else 2
    return {"matrix inputs": formats.compute * (readers * shape.hidden + shape.intermediate)}


def _outside(settings: Settings, shape: Shape, formats: Formats, stream: int, paths: Paths) -> dict[str, int]:
    """Tensor → bytes outside the layers: the last norm, the output layer's input, rotary angles and what the loss keeps."""
    tokens, trained = settings.micro_batch * settings.seq_len, not settings.use_lora
    # Rows that are packed each have their own positions.
    positions = tokens if settings.packing else settings.seq_len
    # With the stock attention the model's own forward pass calls the last norm.
    fused = {RMS_NORM, ATTENTION} <= paths.parts
    return {
        "norms": tokens * _norm(shape, stream, fused=fused) + (tokens * stream * shape.hidden if trained else 0),
        "matrix inputs": tokens * formats.compute * shape.hidden if trained else 0,
        "loss": tokens * stream * shape.hidden if CROSS_ENTROPY in paths.parts else 8 * tokens + 4,
        "rotary angles": 2 * positions * shape.dim_per_head * stream,
    }


def _matrices(shape: Shape) -> int:
    """Parameters that autocast casts: neither norms nor the embedding."""
    return shape.layers * (shape.layer_parameters - 2 * shape.hidden) + shape.embedding_parameters
