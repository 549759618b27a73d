"""Forecasts of memory of fine-tuning: against autograd, to the byte, and against peaks of a GPU."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from seatrial_workloads.common.memory import Formats
from seatrial_workloads.sft.fast import MODEL_TYPES, PARTS
from seatrial_workloads.sft.settings import Settings
from seatrial_workloads.sft.shapes import Shape, shape_of
from tests.workloads.saved_bytes import autocast, saved_bytes
from tests.workloads.test_memory_forecast import BOTH, FP32, gib, kept

ROWS, TOKENS, VOCABULARY = 2, 16, 320
SHAPE = Shape(hidden=64, intermediate=192, layers=3, heads=4, kv_heads=2, vocab=VOCABULARY)


def built(shape: Shape, *, attention: str = "sdpa", lora: dict[str, Any] | None = None, dtype: torch.dtype = torch.float32) -> Any:
    pytest.importorskip("peft")
    from peft import LoraConfig, get_peft_model
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocab,
        attn_implementation=attention,
        use_cache=False,
    )
    model: Any = MistralForCausalLM(config).to(dtype)
    assert sum(parameter.numel() for parameter in model.parameters()) == shape.base_parameters
    if lora is not None:
        options = {"r": 8, "lora_dropout": 0.0, "target_modules": list(shape.projections), "task_type": "CAUSAL_LM", **lora}
        model = get_peft_model(model, LoraConfig(**options))
    return model.train()


def bytes_of_a_step(model: Any, compute: int, batch: dict[str, torch.Tensor], more: list[torch.Tensor] | None = None) -> int:
    def loss() -> torch.Tensor:
        with autocast(compute):
            found: torch.Tensor = model(**batch).loss
            return found

    return saved_bytes(loss, [*model.parameters(), *model.buffers(), *batch.values(), *(more or [])])


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_shapes_have_the_parameters_that_transformers_builds(model_type: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    for more in ({"tie_word_embeddings": True}, {"head_dim": 20}):
        config = AutoConfig.for_model(model_type, vocab_size=101, **sizes, **more)
        model = AutoModelForCausalLM.from_config(config)
        assert shape_of(config.to_dict()).base_parameters == sum(parameter.numel() for parameter in model.parameters())


LOG_SOFTMAX = ROWS * TOKENS * VOCABULARY * 4
IDS = torch.randint(0, VOCABULARY, (ROWS, TOKENS))
WHOLE = {"input_ids": IDS, "labels": IDS}
PADDED = {**WHOLE, "attention_mask": (torch.arange(TOKENS) < torch.tensor([[10], [TOKENS]])).long()}
PACKED = {**WHOLE, "position_ids": torch.cat([torch.arange(length) for length in (7, 9, 10, 6)]).view(ROWS, TOKENS)}


@BOTH
@pytest.mark.parametrize("kind", ["LoRA", "full", "full, gathered"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_stock_modules(formats: Formats, kind: str, attention: str) -> None:
    from seatrial_workloads.sft import memory

    use_lora, gathered = kind == "LoRA", kind == "full, gathered"
    settings = Settings(micro_batch=ROWS, seq_len=TOKENS, use_lora=use_lora, lora_dropout=0.0)
    narrow = formats.compute == 2 and kind != "full"
    model = built(SHAPE, attention=attention, lora={} if use_lora else None, dtype=torch.bfloat16 if narrow else torch.float32)
    # No token is padding, so that there is no mask.
    paths = memory.Paths(attention=memory.KERNEL if attention == "sdpa" else memory.EAGER)
    counted = memory.activations(settings, SHAPE, formats, paths, gathered=gathered)
    found = bytes_of_a_step(model, 4 if gathered else formats.compute, WHOLE)
    assert found == kept(counted, log_softmax=LOG_SOFTMAX)


def stack_copies(model: Any) -> list[torch.Tensor]:
    """The stacked weights and adapters, which are counted as weights."""
    stacks = [stack for module in model.modules() for stack in getattr(module.__dict__.get("fast_parts"), "stacks", ())]
    return [tensor for stack in stacks for tensor in (stack.joint, stack.a, stack.b)]


FAST = [
    (PARTS, (4, 2), 0.0),
    (PARTS, (4, 2), 0.1),
    (PARTS, (4, 4), 0.1),
    *(((part,), (4, 2), 0.0) for part in PARTS),
    (("attention",), (4, 4), 0.1),
    (("lora",), (4, 2), 0.1),
    (("cross_entropy",), (4, 2), 0.1),
    (("rms_norm", "attention"), (4, 2), 0.1),
]


@BOTH
@pytest.mark.parametrize(
    ("parts", "heads", "dropout"), FAST, ids=[f"{'+'.join(parts)}, {heads}, {dropout}" for parts, heads, dropout in FAST]
)
def test_fast_paths(formats: Formats, parts: tuple[str, ...], heads: tuple[int, int], dropout: float) -> None:
    """Parts that only a GPU has run their autograd functions here as they stand: what they keep is the same."""
    from seatrial_workloads.sft import memory
    from seatrial_workloads.sft.fast.apply import apply_fast_paths

    shape = dataclasses.replace(SHAPE, heads=heads[0], kv_heads=heads[1])
    settings = Settings(micro_batch=ROWS, seq_len=TOKENS, lora_dropout=dropout)
    model = built(shape, lora={"lora_dropout": dropout}, dtype=torch.bfloat16 if formats.compute == 2 else torch.float32)
    effective = apply_fast_paths(model, parts, settings)
    in_effect = frozenset(part for part, (is_effective, _) in effective.items() if is_effective)
    # Stock modules that are left have whole rows, and so no mask.
    paths = memory.Paths(attention=memory.KERNEL, parts=in_effect)
    # A CPU keeps the mask of torch's own dropout as a factor.
    counted = memory.activations(settings, shape, dataclasses.replace(formats, mask=4), paths)
    found = bytes_of_a_step(model, formats.compute, WHOLE, stack_copies(model))
    assert found == kept(counted, log_softmax=0 if "cross_entropy" in parts else LOG_SOFTMAX)
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in (*model.parameters(), *stack_copies(model))}
    weights = sum(storage.nbytes() for storage in storages.values())
    assert weights == memory.model_state(settings, shape, formats, 1, paths).weights


# Settings, parts, the attention that is counted, the batch.
WAYS: dict[str, tuple[dict[str, Any], tuple[str, ...], str, dict[str, torch.Tensor]]] = {
    "a mask": ({}, (), "masked", PADDED),
    "a mask of packed rows": ({"packing": True}, (), "masked", PACKED),
    "a mask beside fast paths": ({}, ("lora", "rms_norm"), "masked", PADDED),
    "matrices": ({}, PARTS, "matrices", WHOLE),
    "matrices, packed": ({"packing": True}, PARTS, "matrices", PACKED),
    "full, attention": ({"use_lora": False}, ("attention",), "kernel", WHOLE),
    "checkpointing": ({"gradient_checkpointing": True}, PARTS, "kernel", WHOLE),
}


@pytest.mark.parametrize("way", WAYS)
def test_masks_kernels_and_checkpointing(way: str) -> None:
    from seatrial_workloads.sft import memory
    from seatrial_workloads.sft.fast.apply import apply_fast_paths

    changes, parts, attention, batch = WAYS[way]
    settings = Settings(micro_batch=ROWS, seq_len=TOKENS, lora_dropout=0.0, **changes)
    model = built(SHAPE, lora={} if settings.use_lora else None)
    apply_fast_paths(model, parts, settings)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    counted = memory.activations(settings, SHAPE, FP32, memory.Paths(attention=attention, parts=frozenset(parts)))
    with sdpa_kernel(SDPBackend.MATH) if attention == memory.MATRICES else nullcontext():
        found = bytes_of_a_step(model, FP32.compute, batch, stack_copies(model))
    # A recomputed layer holds the angles as an argument, not as a tensor of autograd.
    outside_autograd = counted.saved["rotary angles"] if settings.gradient_checkpointing else 0
    assert found + outside_autograd == kept(counted, log_softmax=0 if "cross_entropy" in parts else LOG_SOFTMAX)


SHAPES = ((1, False), (4, False), (8, False), (16, False), (16, True))
# Peaks of torch.cuda.max_memory_allocated on an H200, GiB, dropout 0: docs/memory-forecast.md.
PEAKS_GIB = {
    "fast paths": ("all", (16.51, 23.42, 32.71, 51.37, 18.36), 0.03),
    "stock, autocast": ("none", (17.48, 28.29, 41.98, 69.97, 19.47), 0.06),
    # A stock loop outside of autocast, which keeps fp32 copies that the trainer does not.
    "stock": ("none", (18.0, 30.2, 46.6, 79.3, 19.2), 0.1),
}


@pytest.mark.parametrize("loop", PEAKS_GIB)
def test_lora_peaks_of_a_gpu(loop: str) -> None:
    from seatrial_workloads.sft.memory import forecast

    fast_paths, peaks_gib, tolerance = PEAKS_GIB[loop]
    for (micro_batch, checkpointing), peak_gib in zip(SHAPES, peaks_gib, strict=True):
        settings = Settings(
            model="mistral-7b",
            micro_batch=micro_batch,
            gradient_checkpointing=checkpointing,
            precision="bf16",
            lora_dropout=0.0,
            fast_paths=fast_paths,
        )
        found = forecast(settings, world_size=1, cwd=Path())
        assert gib(found.allocated_bytes) == pytest.approx(peak_gib, rel=tolerance), micro_batch
        assert found.least_allocated_bytes is None and found.notes == ()


@pytest.mark.parametrize(
    ("values", "undecided"),
    [
        ({"fast_paths": "equal"}, "which parts fast_paths=equal leaves"),
        ({"attn_impl": "flash_attention_2"}, "whether the node has flash_attention_2"),
        ({"precision": "fp32"}, "kernels take fp32"),
    ],
)
def test_what_the_run_decides_makes_a_range(values: dict[str, Any], undecided: str) -> None:
    from seatrial_workloads.sft.memory import forecast

    found = forecast(Settings(model="mistral-7b", micro_batch=8, **values), world_size=1, cwd=Path())
    assert found.least_allocated_bytes is not None and found.least_allocated_bytes < found.allocated_bytes
    assert undecided in found.notes[0]
