"""Memory of the sparse language model on a GPU, from its settings. Standard library only.

What a layer keeps for the backward pass, in elements per token; h is dim, q the width of all query heads, v that of their values, b the
number of compressed blocks (padded to 8):

    norms            2 inputs of h in fp32: the residual stream
    projection       its input h, and its output, which holds the values of all branches
    gate             the mean query of each group, two hidden layers, three probabilities a group
    rotated          q for the queries, a key of each group for each branch
    compressed       q in fp32 (scores are computed in it), b probabilities for each head in fp32 and once more in the computation's format
    branches         v for each of the three outputs, and a statistic for each head of two
    selected         a bitmask of blocks (flex), or a mask of S for each head (mask), or the ids (gather)
    output, MLP      v, then h, 4 h before and 4 h after SiLU
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seatrial.records.memory import ForecastUnknown, MemoryForecast, Remedy
from seatrial_workloads.common.memory import FORMAT_BYTES, Activations, Counted, Formats, Parameters, highest, replicated_state
from seatrial_workloads.sparse_lm.ops.attention_paths import choose_paths
from seatrial_workloads.sparse_lm.ops.shape import ModelShape
from seatrial_workloads.sparse_lm.settings import BYTE_VOCABULARY, Settings, split_batch

VOCABULARIES = {"byte": BYTE_VOCABULARY, "gpt2": 50257, "openai-community/gpt2": 50257}
# Logits that the model holds at once: 64 MiB in fp32.
LOGITS_HELD = 2**24
# Alignment of compressed blocks, and bits in a word of the bitmask, as in `ops`.
ALIGNED = 8
WORD = 64


def forecast(settings: Settings, *, world_size: int, cwd: Path) -> MemoryForecast:
    if settings.tokenizer not in VOCABULARIES:
        raise ForecastUnknown(f"tokenizer is '{settings.tokenizer}', whose vocabulary is not known without loading it")
    if settings.prefill == "sequential":
        raise ForecastUnknown("prefill is sequential: the reference path is not counted")
    shape = settings.shape(VOCABULARIES[settings.tokenizer])
    compute = FORMAT_BYTES["bf16" if settings.precision == "auto" else settings.precision]
    pure = settings.mixed_precision == "pure"
    formats = Formats(compute=compute, norm=compute if pure else 4)
    parameters = Parameters(trained=shape.num_parameters, trained_bytes=formats.norm)
    state = replicated_state(parameters, world_size, bucket_view=settings.ddp_bucket_view, stay=settings.accumulate > 1)
    notes = ("compiled code may keep less",) if settings.compile else ()
    rows = len(split_batch(settings.batch_size, 0, world_size))
    return highest(state, activations(settings, shape, rows, formats, device="cuda"), world_size=world_size, notes=notes)


def remedies(settings: Settings, *, world_size: int) -> Iterator[Remedy]:
    if not settings.gradient_checkpointing:
        yield Remedy(settings={"gradient_checkpointing": True})
    size = settings.batch_size
    while size > world_size:
        size = max(world_size, size // 2)
        yield Remedy(settings={"batch_size": size})
        if not settings.gradient_checkpointing:
            yield Remedy(settings={"batch_size": size, "gradient_checkpointing": True})


def activations(settings: Settings, shape: ModelShape, rows: int, formats: Formats, *, device: str) -> Activations:
    """Activations of `rows` sequences."""
    tokens, compute = rows * settings.seq_len, formats.compute
    layer, shared = _layer(settings, shape, formats, device), _of_a_layer(settings, shape, rows, formats, device)
    saved, recomputed = Counted(), 0
    if settings.gradient_checkpointing:
        saved.add("layer inputs", tokens * formats.norm * shape.dim, shape.n_layers)
        recomputed = tokens * sum(layer.values()) + sum(shared.values())
    else:
        for name, size in layer.items():
            saved.add(name, tokens * size, shape.n_layers)
        for name, size in shared.items():
            saved.add(name, size, shape.n_layers)
    saved.add("norms", tokens * _norm(shape, formats))
    saved.add("head inputs", tokens * compute * shape.dim)
    # Rotary tables, the loss's scalars.
    saved.add("other", 2 * settings.seq_len * shape.d_k // 2 * 4 + 12)
    chunk = settings.loss_chunk or max(1, LOGITS_HELD // shape.vocab_size)
    return Activations(
        saved=saved.tensors,
        logits=min(tokens, chunk) * shape.vocab_size * 3 * 4,
        layer_backward=recomputed + tokens * (formats.norm * shape.dim + 2 * 4 * shape.dim * compute),
        weight_copies=compute * matrices(shape) if formats.norm != compute else 0,
        inputs=3 * 8 * tokens,
    )


def matrices(shape: ModelShape) -> int:
    """Parameters that autocast casts."""
    outside = 2 * shape.vocab_size * shape.dim + shape.dim
    hidden = max(1, shape.d_k // 2)
    not_cast = 2 * shape.dim + hidden + 3 + (shape.cmp_block * (shape.d_k + shape.d_v) if shape.phi == "conv" else 0)
    return shape.num_parameters - outside - shape.n_layers * not_cast + shape.vocab_size * shape.dim


def _norm(shape: ModelShape, formats: Formats) -> int:
    return formats.norm * shape.dim * (1 if formats.fused_rms_norm else 2) + 4


def _padded_blocks(shape: ModelShape, seq_len: int) -> int:
    return max(ALIGNED, -(-shape.num_cmp(seq_len) // ALIGNED) * ALIGNED)


def _layer(settings: Settings, shape: ModelShape, formats: Formats, device: str) -> dict[str, int]:
    """Tensor → bytes of one token in one layer."""
    compute, dim, heads, groups = formats.compute, shape.dim, shape.n_heads, shape.n_kv_groups
    queries, values = heads * shape.d_k, heads * shape.d_v
    projected = queries + 3 * groups * (shape.d_k + shape.d_v)
    hidden = max(1, shape.d_k // 2)
    return {
        "norms": 2 * _norm(shape, formats),
        "projection": compute * (dim + projected),
        "gate": compute * groups * (shape.d_k + 2 * hidden) + 4 * 3 * groups + 3 * compute * heads,
        "rotated": compute * (queries + 2 * groups * shape.d_k),
        "compressed": 4 * queries + (4 + compute) * heads * _padded_blocks(shape, settings.seq_len),
        "branches": 3 * compute * values + 2 * 4 * heads,
        "selected blocks": _selected(settings, shape, compute, device),
        "output, MLP": compute * (values + dim + 8 * dim),
    }


def _selected(settings: Settings, shape: ModelShape, compute: int, device: str) -> int:
    path = choose_paths(settings.attention_paths(), device=device, seq_len=settings.seq_len).selected.effective
    if path == "mask":
        return compute * shape.n_heads * settings.seq_len
    if path == "gather":
        return 8 * shape.n_kv_groups * shape.n_sel
    words = -(-shape.num_sel(settings.seq_len) // WORD)
    return shape.n_kv_groups * words * (8 if words == 1 else 8 + WORD)


def _of_a_layer(settings: Settings, shape: ModelShape, rows: int, formats: Formats, device: str) -> dict[str, int]:
    """Tensor → bytes of one layer that do not grow with its tokens alone: pooled keys and values, masks."""
    blocks, seq_len = _padded_blocks(shape, settings.seq_len), settings.seq_len
    pooled = rows * shape.n_kv_groups * blocks * (4 * shape.d_k + formats.compute * shape.d_v)
    path = choose_paths(settings.attention_paths(), device=device, seq_len=seq_len).window.effective
    return {"compressed": pooled + 2 * seq_len * blocks, "window mask": formats.compute * seq_len**2 if path == "mask" else 0}
