"""The fast parts in a whole model with LoRA: same loss and gradients as transformers' and PEFT's modules, and back again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from seatrial_workloads.sft.fast import PARTS
from seatrial_workloads.sft.fast.apply import apply_fast_paths, remove_fast_paths

SHAPE: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 61,
}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class Settings:
    packing: bool = False
    seq_len: int = 9


def model_of(kind: str = "mistral", **lora: Any) -> Any:
    torch.manual_seed(0)
    causal = MistralForCausalLM(MistralConfig(**SHAPE)) if kind == "mistral" else LlamaForCausalLM(LlamaConfig(**SHAPE))
    lora = {"r": 3, "lora_alpha": 6, "target_modules": PROJECTIONS, "init_lora_weights": False, "task_type": "CAUSAL_LM"} | lora
    return get_peft_model(causal, LoraConfig(**lora)).train()


def batch_of(*, packing: bool = False) -> dict[str, Tensor]:
    ids = torch.randint(0, 61, (2, 9), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    if not packing:
        mask = torch.ones_like(ids)
        mask[0, 6:] = 0
        return {"input_ids": ids, "labels": labels.masked_fill(mask == 0, -100), "attention_mask": mask}
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1], [0, 1, 0, 1, 2, 3, 4, 5, 6]])
    return {"input_ids": ids, "labels": labels.masked_fill(positions == 0, -100), "position_ids": positions}


def loss_and_gradients(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    loss = model(**batch, use_cache=False).loss
    loss.backward()
    return {"loss": loss.detach()} | {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize(
    ("kind", "parts"),
    [("mistral", PARTS), ("llama", PARTS), *(("mistral", (part,)) for part in PARTS)],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_loss_and_gradients_are_those_of_the_stock_modules(kind: str, packing: bool, parts: tuple[str, ...]) -> None:
    model, batch = model_of(kind), batch_of(packing=packing)
    names = set(model.state_dict())
    plain = loss_and_gradients(model, batch)
    effective = apply_fast_paths(model, parts, Settings(packing=packing))
    in_effect = {part for part, (is_effective, _) in effective.items() if is_effective}
    assert in_effect == set(parts) - ({"rope", "swiglu"} if "lora" not in parts else set())
    assert all(reason for _, reason in effective.values())
    torch.testing.assert_close(loss_and_gradients(model, batch), plain, rtol=1e-4, atol=1e-6)
    assert set(model.state_dict()) == names
    remove_fast_paths(model)
    torch.testing.assert_close(loss_and_gradients(model, batch), plain, rtol=0, atol=0)


def test_a_token_of_one_example_does_not_reach_another() -> None:
    model, batch = model_of(), batch_of(packing=True)
    apply_fast_paths(model, PARTS, Settings(packing=True))
    inner = model.get_base_model().model
    states = []
    for token in (3, 4):
        batch["input_ids"][0, 2] = token
        # As the Trainer may call it: the cache asked for must not bring the causal mask over all examples back.
        states.append(inner(batch["input_ids"], position_ids=batch["position_ids"], use_cache=True).last_hidden_state)
    differs = (states[0] != states[1]).any(-1)
    assert differs.tolist() == [[False, False, True, True, *[False] * 5], [False] * 9]


def test_gradient_checkpointing_and_accumulation_change_nothing() -> None:
    model, batch = model_of(), batch_of()
    plain = loss_and_gradients(model, batch)
    apply_fast_paths(model, PARTS, Settings())
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    torch.testing.assert_close(loss_and_gradients(model, batch), plain, rtol=1e-4, atol=1e-6)
    for _ in range(2):
        (model(**batch, num_items_in_batch=10).loss / 2).backward()
    counted = (batch["labels"][:, 1:] != -100).sum()
    weight = model.base_model.model.model.layers[0].mlp.up_proj.lora_B.default.weight
    name = "base_model.model.model.layers.0.mlp.up_proj.lora_B.default.weight"
    torch.testing.assert_close(weight.grad, plain[name] * (1 + counted / 10), rtol=1e-4, atol=1e-6)


def test_evaluation_has_logits_and_follows_training() -> None:
    model, batch = model_of(), batch_of()
    apply_fast_paths(model, PARTS, Settings())
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.mul_(1.5)
    trained = model(**batch).loss
    stock = model.eval()(**batch)
    assert stock.logits.shape == (2, 9, 61)
    torch.testing.assert_close(trained, stock.loss, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("lora", "part", "said"),
    [
        ({"use_dora": True}, "lora", "variant"),
        ({"target_modules": ["q_proj"]}, "lora", "no adapter"),
        ({"modules_to_save": ["lm_head"]}, "cross_entropy", "head is trained"),
    ],
)
def test_what_is_excluded_says_why(lora: dict[str, Any], part: str, said: str) -> None:
    model, batch = model_of(**lora), batch_of()
    plain = loss_and_gradients(model, batch)
    is_effective, reason = apply_fast_paths(model, PARTS, Settings())[part]
    assert not is_effective
    assert said in reason
    torch.testing.assert_close(loss_and_gradients(model, batch), plain, rtol=1e-4, atol=1e-6)


def test_sequences_longer_than_the_window_keep_the_stock_attention() -> None:
    model, batch = model_of(), batch_of()
    model.config.sliding_window = 4
    plain = loss_and_gradients(model, batch)
    effective = apply_fast_paths(model, PARTS, Settings())
    assert "window of 4" in effective["attention"][1]
    torch.testing.assert_close(loss_and_gradients(model, batch), plain, rtol=1e-4, atol=1e-6)
