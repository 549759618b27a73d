"""Forecasts of memory of fine-tuning: against autograd, to the byte, and against peaks of a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from seatrial_workloads.common.memory import Formats
from tests.workloads.saved_bytes import autocast, saved_bytes
from tests.workloads.test_memory_forecast import BOTH, gib, kept


@BOTH
@pytest.mark.parametrize("kind", ["LoRA", "full", "full, gathered"])
def test_sft(formats: Formats, kind: str) -> None:
    pytest.importorskip("peft")
    from peft import LoraConfig, get_peft_model
    from transformers import MistralConfig, MistralForCausalLM

    from seatrial_workloads.sft import memory
    from seatrial_workloads.sft.settings import Settings
    from seatrial_workloads.sft.shapes import Shape

    use_lora, gathered = kind == "LoRA", kind == "full, gathered"
    settings = Settings(micro_batch=2, seq_len=16, use_lora=use_lora, lora_dropout=0.0)
    shape = Shape(hidden=64, intermediate=192, layers=3, heads=4, kv_heads=2, vocab=320)
    config = MistralConfig(
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=320,
        attn_implementation="sdpa",
        use_cache=False,
    )
    model: Any = MistralForCausalLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == shape.base_parameters
    if use_lora:
        lora = LoraConfig(r=8, lora_dropout=0.0, target_modules=list(shape.projections), task_type="CAUSAL_LM")
        model = get_peft_model(model.to(torch.bfloat16 if formats.compute == 2 else torch.float32), lora)
    if gathered and formats.compute == 2:
        model = model.to(torch.bfloat16)
    ids = torch.randint(0, 320, (2, 16))

    def loss() -> torch.Tensor:
        with autocast(4 if gathered else formats.compute):
            found: torch.Tensor = model.train()(input_ids=ids, labels=ids).loss
            return found

    # No token is padding, so that there is no mask.
    counted = memory.activations(settings, shape, formats, masked=False, gathered=gathered)
    assert saved_bytes(loss, [*model.parameters(), *model.buffers(), ids]) == kept(counted, log_softmax=2 * 16 * 320 * 4)


# Peaks of torch.cuda.max_memory_allocated on an H200, stock loops: docs/memory-forecast.md.
@pytest.mark.parametrize(
    ("micro_batch", "checkpointing", "peak_gib"),
    [(1, False, 18.0), (4, False, 30.2), (8, False, 46.6), (16, False, 79.3), (16, True, 19.2)],
)
def test_lora_peaks_of_a_gpu(micro_batch: int, checkpointing: bool, peak_gib: float) -> None:
    from seatrial_workloads.sft.memory import forecast
    from seatrial_workloads.sft.settings import Settings

    settings = Settings(model="mistral-7b", micro_batch=micro_batch, gradient_checkpointing=checkpointing, precision="bf16")
    assert gib(forecast(settings, world_size=1, cwd=Path()).allocated_bytes) == pytest.approx(peak_gib, rel=0.1)
