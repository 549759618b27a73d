"""LoRA fine-tuning's fast parts on a GPU in bf16: as close to fp32 as the stock modules are, packed and padded, and as one CUDA graph; and
packed examples stay apart in the kernels that only a GPU has. Where flash_attn cannot be installed, torch's own FlashAttention 2 takes its
place: PYTHONPATH=tests/stubs/flash_of_torch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM

from seatrial.probe import Probe
from seatrial_workloads.sft.fast import PARTS
from seatrial_workloads.sft.fast.apply import apply_fast_paths
from seatrial_workloads.sft.fast.graph import WARM_UP_STEPS, GraphedStep
from seatrial_workloads.sft.model import build_model
from seatrial_workloads.sft.settings import Settings as TrainerSettings
from seatrial_workloads.sft.train import Training

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU found")]

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TOKENS = 77


@dataclass(frozen=True)
class Settings:
    packing: bool = False
    seq_len: int = TOKENS


def model_of(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 488, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3}
    causal = MistralForCausalLM(MistralConfig(vocab_size=1003, attn_implementation="sdpa", **shape))
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=PROJECTIONS, init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(causal, lora)
    # bf16 weights in both, so that only the arithmetic differs.
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().to(torch.float32 if weight.requires_grad else dtype)
    return model.cuda().train()


def batch_of(*, packing: bool) -> dict[str, Tensor]:
    ids = torch.randint(0, 1003, (2, TOKENS), generator=torch.Generator().manual_seed(1)).cuda()
    if not packing:
        return {"input_ids": ids, "labels": ids.clone()}
    positions = torch.cat([torch.arange(length) for length in (1, 40, 36, 64, 13)]).view(2, TOKENS).cuda()
    return {"input_ids": ids, "labels": ids.masked_fill(positions == 0, -100), "position_ids": positions}


def loss_and_gradients(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    loss = model(**batch, use_cache=False).loss
    loss.backward()
    found = {name: weight.grad.float() for name, weight in model.named_parameters() if weight.requires_grad}
    return {"loss": loss.detach().float()} | found


def errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    return {name: float((found[name] - exact[name]).norm() / exact[name].norm()) for name in exact}


@pytest.mark.parametrize("packing", [False, True])
def test_as_close_to_fp32_as_the_stock_modules(packing: bool) -> None:
    batch = batch_of(packing=packing)
    exact = loss_and_gradients(model_of(torch.float32), batch)
    model = model_of(torch.bfloat16)
    stock = errors(loss_and_gradients(model, batch), exact)
    effective = apply_fast_paths(model, PARTS, Settings(packing=packing))
    assert all(is_effective for is_effective, _ in effective.values()), effective
    fast = errors(loss_and_gradients(model, batch), exact)
    # Adapters' products in bf16 round once more than stock's in fp32.
    assert {name: (error, stock[name]) for name, error in fast.items() if error > 2 * stock[name] + 0.01} == {}


def losses(*, graphed: bool) -> list[float]:
    model, batch = model_of(torch.bfloat16), batch_of(packing=False)
    apply_fast_paths(model, PARTS, Settings())
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=torch.tensor(1e-3), fused=True, capturable=True)

    def train_on(given: Any) -> Tensor:
        loss: Tensor = model(**given, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()

    step = GraphedStep(train_on) if graphed else train_on
    # Every step has other tokens, so that a graph that copied no batch in would show.
    return [float(step({name: part.roll(index, 1) for name, part in batch.items()})) for index in range(WARM_UP_STEPS + 4)]


def test_a_captured_step_trains_as_a_plain_one() -> None:
    plain, graphed = losses(graphed=False), losses(graphed=True)
    assert graphed == pytest.approx(plain, rel=2e-2)
    assert graphed[-1] < graphed[0]


@pytest.fixture
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SEATRIAL_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)


def trained(folder: Path, name: str, **more: Any) -> tuple[dict[str, Any], Any]:
    """A run of the trainer itself, whose losses are summed over four steps between two lines of the log; its metrics and its trainer."""
    settings = TrainerSettings(
        steps=WARM_UP_STEPS + 5,
        log_every=4,
        micro_batch=2,
        seq_len=128,
        subset_size=64,
        lora_dropout=0.0,
        lr=1e-2,
        device="cuda",
        tok_cache_dir=str(folder / "tokenized"),
        **more,
    )
    with Probe(folder / name) as probe:
        training = Training(settings, folder / name, probe, time.monotonic())
        return training.train(), training.trainer


@pytest.mark.usefixtures("no_launcher")
def test_the_trainers_captured_steps_have_the_losses_of_plain_ones(tmp_path: Path) -> None:
    (plain, _), (graphed, trainer) = trained(tmp_path, "plain", cuda_graph=False), trained(tmp_path, "graphed", cuda_graph=True)
    assert trainer.graphed is not None and trainer.graphed.is_captured
    assert len(graphed["losses"]) == 2 and graphed["losses"][-1] < graphed["losses"][0]
    assert graphed["losses"] == pytest.approx(plain["losses"], rel=2e-2)


def assert_apart(states: list[Tensor], positions: Tensor) -> None:
    """`states` differ by one changed token of the second sequence, and nowhere but from it on within that sequence."""
    differs = (states[0] != states[1]).any(-1).flatten()
    sequence = (positions.flatten() == 0).cumsum(0)
    assert differs.any() and set(sequence[differs].tolist()) == {2}


def test_the_varlen_kernel_keeps_packed_examples_apart() -> None:
    model, batch = model_of(torch.bfloat16), batch_of(packing=True)
    _, how = apply_fast_paths(model, PARTS, Settings(packing=True))["attention"]
    assert "flash kernel for several lengths" in how
    inner, states = model.get_base_model().model, []
    for token in (3, 4):
        batch["input_ids"][0, 5] = token
        states.append(inner(batch["input_ids"], position_ids=batch["position_ids"], use_cache=True).last_hidden_state)
    assert_apart(states, batch["position_ids"])


def test_flash_attention_2_keeps_packed_examples_apart() -> None:
    pytest.importorskip("flash_attn")
    settings = TrainerSettings(attn_impl="flash_attention_2", packing=True, lora_dropout=0.0, fast_paths="none")
    model = build_model(settings, torch.device("cuda"))[0].train()
    assert model.config._attn_implementation == "flash_attention_2"
    # One row, as the collator gives flash attention its batches.
    positions = torch.cat([torch.arange(length) for length in (9, 40, 15)])[None].cuda()
    ids, states = torch.randint(3, 500, positions.shape, generator=torch.Generator().manual_seed(1)).cuda(), []
    for token in (3, 4):
        ids[0, 12] = token
        with torch.autocast("cuda", torch.bfloat16):
            states.append(model(input_ids=ids, position_ids=positions).logits)
    assert_apart(states, positions)


@pytest.mark.usefixtures("no_launcher")
def test_flash_attention_2_trains_on_packed_examples_as_sdpa_does(tmp_path: Path) -> None:
    pytest.importorskip("flash_attn")
    found = {}
    for name in ("sdpa", "flash_attention_2"):
        metrics, trainer = trained(tmp_path, name, attn_impl=name, packing=True, fast_paths="none")
        assert trainer.model.config._attn_implementation == name
        found[name] = metrics["losses"]
    assert found["flash_attention_2"] == pytest.approx(found["sdpa"], rel=2e-2)
