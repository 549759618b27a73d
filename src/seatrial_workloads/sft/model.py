"""Model and tokenizer. In: settings. Out: a causal language model with LoRA where requested, its tokenizer, and how many parameters train.

`tiny`, `tiny-llama` and `mistral-7b` have random weights and a tokenizer trained on the spot; anything else is a local folder or hub id.
Frozen weights take the number format of the computation, trained ones stay fp32: AdamW's small updates are lost in bf16.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerBase,
)

from seatrial_workloads.common.attention import choose_attention
from seatrial_workloads.common.distributed import Ranks, lowest_capability
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.errors import StartupError, first_line
from seatrial_workloads.common.precision import Precision, choose_precision, torch_dtype
from seatrial_workloads.sft.settings import Settings
from seatrial_workloads.sft.shapes import RANDOM_MODELS, Shape
from seatrial_workloads.sft.sources import INSTEAD
from seatrial_workloads.sft.text import generated_examples, prompt_of, response_of, train_tokenizer

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ALL_LINEAR = "all-linear"
# The report shows a reason with this prefix as a caution.
RANDOM = {
    "tiny": "caution: a toy model with random weights; neither its speed nor its loss is realistic",
    "tiny-llama": "caution: a toy model with random weights; neither its speed nor its loss is realistic",
    "mistral-7b": "caution: random weights in the real shape; speed is realistic, loss is not",
}
ADAPTER_WEIGHTS = "adapter_model.safetensors"
TOKENIZER_EXAMPLES = 200
LONGEST_POSITION = 32768


@dataclass(frozen=True, kw_only=True)
class Formats:
    """Number format and attention in effect."""

    precision: Precision
    attention: Choice


def choose_formats(settings: Settings, ranks: Ranks) -> Formats:
    """Collective on GPUs, so that all ranks decide the same."""
    lowest = lowest_capability(ranks)
    precision = choose_precision(settings.precision, lowest)
    if precision.effective == "fp16":
        raise StartupError(f"{precision.reason}, and this workload has no loss scaling: use precision=fp32, or a newer GPU")
    attention = choose_attention(settings.attn_impl, precision.effective, lowest, ranks)
    if settings.attn_impl == "auto" and settings.model not in RANDOM_MODELS and not _has_sdpa(settings.model):
        attention = Choice("auto", "eager", "transformers has no sdpa for this architecture: eager")
    return Formats(precision=precision, attention=attention)


def _has_sdpa(model: str) -> bool:
    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(_loaded(AutoConfig, model)), None)
    return kind is None or kind._supports_sdpa


def build_tokenizer(settings: Settings) -> PreTrainedTokenizerBase:
    """The tokenizer with a padding token: the end-of-text token where it has none."""
    if settings.model in RANDOM_MODELS:
        examples = generated_examples(TOKENIZER_EXAMPLES, seed=0)
        vocab = min(RANDOM_MODELS[settings.model].vocab, RANDOM_MODELS["tiny"].vocab)
        tokenizer = train_tokenizer(vocab, (prompt_of(example) + response_of(example) for example in examples))
    else:
        tokenizer = _loaded(AutoTokenizer, settings.model)
    if tokenizer.eos_token_id is None:
        raise StartupError(f"the tokenizer of {settings.model} has no end-of-text token: use a model whose tokenizer has one")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def build_model(
    settings: Settings, device: torch.device, formats: Formats | None = None, tokenizer: PreTrainedTokenizerBase | None = None
) -> tuple[nn.Module, PreTrainedTokenizerBase]:
    """The model in training form on `device`, with LoRA where requested, and its tokenizer."""
    formats = formats or choose_formats(settings, Ranks(rank=0, local_rank=0, world_size=1, device=device))
    tokenizer = tokenizer or build_tokenizer(settings)
    dtype = torch_dtype(formats.precision.effective) if settings.use_lora else torch.float32
    torch.manual_seed(settings.seed)
    if settings.model in RANDOM_MODELS:
        model = random_model(RANDOM_MODELS[settings.model], tokenizer, dtype, formats.attention.effective, device)
    else:
        model = _loaded(AutoModelForCausalLM, settings.model, dtype=dtype, attn_implementation=formats.attention.effective).to(device)
    # A cache makes packed examples attend to one another: transformers then builds no block mask.
    model.config.use_cache = False
    if settings.use_lora:
        model = add_lora(model, settings)
    return model, tokenizer


def random_model(shape: Shape, tokenizer: Any, dtype: torch.dtype, attention: str, device: torch.device) -> nn.Module:
    """Random weights, created on the device itself: 7B parameters take a minute on a CPU."""
    kind, more = (LlamaConfig, {}) if shape.model_type == "llama" else (MistralConfig, {"sliding_window": shape.window})
    config = kind(
        **more,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=LONGEST_POSITION,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with device:
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)


def add_lora(model: nn.Module, settings: Settings) -> nn.Module:
    """LoRA on every projection; adapters in fp32."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=settings.lora_r,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=lora_targets(model),
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        adapted = get_peft_model(model, config)
    except ValueError as error:
        raise StartupError(
            f"PEFT cannot put adapters on {type(model).__name__} ({first_line(error)}): its linear layers are "
            f"{', '.join(linear_names(model)) or 'none'}; use use_lora=false, or another model"
        ) from error
    if settings.gradient_checkpointing and settings.checkpointing_reentrant:
        # Re-entrant checkpointing gives no gradients to a block whose inputs need none, and the embedding is frozen.
        adapted.enable_input_require_grads()
    return adapted


def lora_targets(model: nn.Module) -> list[str] | str:
    """Llama's projections where the model has all of them; else every linear layer but the head, as PEFT finds them."""
    return list(TARGETS) if set(TARGETS) <= set(linear_names(model)) else ALL_LINEAR


def linear_names(model: nn.Module) -> list[str]:
    """Last names of the linear layers, each once; GPT-2's are Conv1D modules."""
    from transformers.pytorch_utils import Conv1D

    names = (name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, (nn.Linear, Conv1D)))
    return list(dict.fromkeys(names))


def adapted_names(model: nn.Module) -> list[str]:
    """Last names of the layers with adapters, each once."""
    names = (name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "lora_A"))
    return list(dict.fromkeys(names))


def load_trained(model: nn.Module, folder: Path) -> None:
    """The trained weights of a checkpoint: an adapter's, or the whole model's."""
    from safetensors.torch import load_file

    if (folder / ADAPTER_WEIGHTS).is_file():
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(folder / ADAPTER_WEIGHTS))
        return
    state: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        state.update(load_file(file))
    missing, unexpected = model.load_state_dict(state, strict=False)
    # Tied weights are stored once.
    if unexpected or not state or any(name != "lm_head.weight" for name in missing):
        raise StartupError(f"{folder} does not hold the weights of this model ({(*missing, *unexpected)[0]}): use another checkpoint")


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """(trainable, all), whole even where ranks hold shards."""
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return trainable, sum(parameter.numel() for parameter in model.parameters())


def describe_parameters(trainable: int, total: int) -> str:
    """The counts in PEFT's format."""
    return f"trainable params: {trainable:,} || all params: {total:,} || trainable%: {100 * trainable / total:.4f}"


def _loaded(kind: Any, source: str, **options: Any) -> Any:
    is_local = Path(source).is_dir()
    try:
        return kind.from_pretrained(source, local_files_only=is_local, **options)
    except (OSError, ValueError) as error:
        what = "which transformers cannot load from that folder" if is_local else "which transformers cannot load from the hub or its cache"
        raise StartupError(f"model is '{source}', {what} ({first_line(error)}): correct it, or {INSTEAD}") from error
