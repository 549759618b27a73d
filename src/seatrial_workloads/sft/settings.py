"""Settings of supervised fine-tuning, checked on construction. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seatrial_workloads.common.attention import CHOICES as ATTENTIONS
from seatrial_workloads.common.fast_paths import ALL, EQUAL, check_own_list, is_own_list, read_fast_paths, requested_parts
from seatrial_workloads.common.settings import check_at_least, check_one_of, check_types
from seatrial_workloads.sft.fast import PARTS, equalize_settings, excluded_parts
from seatrial_workloads.sft.shapes import hugging_face_home
from seatrial_workloads.sft.sources import IsSeen, source_problems

NEEDS_TORCH = True
# Settings that change how much work one sample is, and what that is counted in.
SAMPLE_SIZE = {"seq_len": "tokens"}
# Settings that are comma-separated lists; a plan may write them as lists too.
LISTS = ("fast_paths",)
# What a plan calls to give all its groups the same fast paths.
EQUALIZE_SETTINGS = equalize_settings
# What equalizes an effective setting of two groups, {common} being the parts that both have.
ALIKE_BY = dict.fromkeys(PARTS, "fast_paths=equal|{common}")
# Effective settings that may follow others: two groups that differ in one of those may differ in these too, and are still compared.
FOLLOWS = {
    # One rank shares nothing: strategy is none in effect.
    "strategy": ("world_size",),
    "precision": ("device=cpu",),
    "append_eos": ("recipe=seed",),
    "checkpointing_reentrant": ("gradient_checkpointing",),
    "ddp_static_graph": ("strategy",),
    "ddp_find_unused_parameters": ("strategy",),
    # The sum of its parts, which are reported one by one.
    "fast_paths": PARTS,
}
STRATEGIES, RECIPES = ("auto", "ddp", "fsdp"), ("ours", "seed")
LOSS_ON = ("all", "response")
READY_TWICE = (
    'DDP with checkpointing_reentrant=true and ddp_find_unused_parameters=true ends with "Expected to mark a variable ready only once": '
    "use ddp_find_unused_parameters=false or checkpointing_reentrant=false, or ddp_static_graph=true beside them"
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Supervised fine-tuning of a causal language model on instructions, full or LoRA, DDP or FSDP."""

    steps: int = 10
    """Number of optimiser steps."""
    micro_batch: int = 1
    """Sequences per rank and forward pass (the scripts' --bsz)."""
    grad_accum: int = 1
    """Forward passes per optimiser step."""
    seq_len: int = 512
    """Tokens per sequence; longer examples are cut."""
    model: str = "tiny"
    """`tiny` or `tiny-llama` (two layers, random weights, tokenizer trained on the spot), `mistral-7b` (that shape with random weights), \
a local folder, or a hub id."""
    dataset: str = "generated"
    """`generated` (Alpaca-shaped, created on the spot), a local folder or .json, .jsonl or .parquet file, or a hub id."""
    subset_size: int = 2048
    """Examples used, from the first."""
    run_name: str = "sft"
    """Folder of the results below runs_root."""
    runs_root: str | None = None
    """Where results go (default: $RUNS_ROOT, else results/training)."""
    tok_cache_dir: str | None = None
    """Where tokenised datasets are kept (default: $HF_HOME/tokenized, else ~/.cache/huggingface/tokenized)."""
    strategy: str = "auto"
    """How ranks share the work: ddp, fsdp (full shard), or auto: ddp with more than one rank."""
    use_lora: bool = True
    """Train LoRA adapters on every projection, not the model itself."""
    lora_r: int = 8
    """Rank of the adapters."""
    lora_alpha: int = 16
    """Scale of the adapters, divided by lora_r."""
    lora_dropout: float = 0.05
    """Dropout before the adapters."""
    precision: str = "auto"
    """Number format of the computation: auto (bf16 on GPUs that have it, fp32 on a CPU), bf16 or fp32."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    checkpointing_reentrant: bool = False
    """Re-entrant gradient checkpointing, as older scripts have it."""
    ddp_static_graph: bool = False
    """Promise DDP that every step uses the same parameters."""
    ddp_find_unused_parameters: bool = False
    """Let DDP look for parameters that a step does not use, as the Trainer by itself does for LoRA."""
    packing: bool = False
    """Fill sequences with several examples, each attending to itself only, instead of padding."""
    loss_on: str = "all"
    """Tokens that are learnt: all, or those of the response."""
    append_eos: bool = True
    """End every example that was not cut with the end-of-text token, and learn it."""
    recipe: str = "ours"
    """`seed`: labels copy the inputs, no end-of-text token, padding to seq_len."""
    lr: float = 2e-5
    """Peak learning rate of AdamW; falls linearly to 0."""
    seed: int = 42
    """Seed of weights, generated data, order and dropout."""
    attn_impl: str = "auto"
    """Attention: auto, eager, sdpa or flash_attention_2; an unavailable one is replaced, with the reason."""
    fast_paths: bool | str = ALL
    """Parts that are computed faster than by the plain modules: all (where possible), none, a list such as lora,rms_norm (of lora, \
rms_norm, rope, swiglu, attention, cross_entropy; the run fails where one is not available), or equal: those that every group of a plan \
can have, which is the default where a plan has axes or a baseline."""
    torch_compile: bool = False
    """Compile the plain modules with torch.compile, instead of the fast paths; compiling counts as start-up."""
    cuda_graph: bool = False
    """Capture forward and backward as one CUDA graph: one rank, padded rows, no accumulation, no checkpointing; else false, with the \
reason."""
    save_steps: int = 0
    """Steps between two checkpoints; 0: at the end only."""
    save_adapter: bool = True
    """Save the adapter (or the full model) at the end."""
    merge_adapter: bool = False
    """Save the model with the adapter merged into it, too."""
    resume_from: str | None = None
    """A checkpoint folder of an earlier run, or a run folder (its newest checkpoint)."""
    device: str = "auto"
    """Where to train: auto (CUDA if available), cpu or cuda."""
    log_every: int = 1
    """Steps between two log lines. Reading the loss synchronises with the GPU."""
    baseline_tokens_per_s: float | None = None
    """Tokens per second of a run to compare with, for the scaling efficiency."""
    baseline_world_size: int | None = None
    """Ranks of that run."""

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "fast_paths", read_fast_paths(self.fast_paths, PARTS))
        check_own_list(str(self.fast_paths), PARTS, excluded_parts(self))
        check_at_least(self, steps=1, micro_batch=1, grad_accum=1, seq_len=8, subset_size=1, lora_r=1, lora_alpha=1, save_steps=0)
        check_at_least(self, seed=0, log_every=1, baseline_world_size=1)
        check_one_of(self, strategy=STRATEGIES, precision=("auto", "bf16", "fp32"), loss_on=LOSS_ON, recipe=RECIPES)
        check_one_of(self, attn_impl=ATTENTIONS, device=("auto", "cpu", "cuda"))
        if not 0 <= self.lora_dropout < 1:
            raise ValueError(f"lora_dropout is {self.lora_dropout}; it must be at least 0 and below 1")
        if self.lr <= 0:
            raise ValueError(f"lr is {self.lr}; it must be above 0")
        self._check_checkpointing()
        self._check_recipe()
        self._check_names()

    def _check_checkpointing(self) -> None:
        if self.strategy == "ddp" and self._marks_ready_twice:
            raise ValueError(READY_TWICE)
        if self.gradient_checkpointing and self.checkpointing_reentrant and self.strategy == "fsdp":
            raise ValueError("checkpointing_reentrant does not work with strategy=fsdp: use checkpointing_reentrant=false")
        for name in ("ddp_static_graph", "ddp_find_unused_parameters"):
            if getattr(self, name) and self.strategy == "fsdp":
                raise ValueError(f"{name} is DDP's, and strategy is fsdp: leave one of them out")

    @property
    def _marks_ready_twice(self) -> bool:
        """Looking for unused parameters, DDP marks those of a re-entrantly checkpointed block ready in the forward pass, and again in the
        block's own backward pass."""
        reentrant = self.gradient_checkpointing and self.checkpointing_reentrant
        return reentrant and self.ddp_find_unused_parameters and not self.ddp_static_graph

    def _check_recipe(self) -> None:
        if self.recipe == "seed" and self.packing:
            raise ValueError("recipe=seed pads every example to seq_len, and packing is on: use recipe=ours, or packing=false")
        if self.recipe == "seed" and self.loss_on != "all":
            raise ValueError("recipe=seed learns every token, and loss_on is 'response': use recipe=ours, or loss_on=all")
        if self.merge_adapter and not self.use_lora:
            raise ValueError("merge_adapter is on, and without use_lora there is no adapter: leave one of them out")
        if (self.baseline_tokens_per_s is None) != (self.baseline_world_size is None):
            raise ValueError("baseline_tokens_per_s and baseline_world_size are given together, or neither")
        if self.baseline_tokens_per_s is not None and self.baseline_tokens_per_s <= 0:
            raise ValueError(f"baseline_tokens_per_s is {self.baseline_tokens_per_s}; it must be above 0")

    def _check_names(self) -> None:
        for name in ("model", "dataset", "run_name"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty")
        if Path(self.run_name).name != self.run_name:
            raise ValueError(f"run_name is '{self.run_name}'; expected the name of one folder, without /")

    def host_problems(self, *, num_gpus: int, cwd: Path) -> list[tuple[str, str]]:
        """(setting, problem) for each that cannot work on this host; called before anything is started."""
        problems = []
        if not num_gpus and self.device == "cuda":
            problems.append(("device", "device is cuda, but no usable GPU was found: use device=auto or cpu"))
        if self.resume_from is not None and not (cwd / self.resume_from).is_dir():
            problems.append(
                ("resume_from", f"there is no folder {self.resume_from}: give a checkpoint folder, or a run folder that has one")
            )
        return problems

    def source_problems(self, *, cwd: Path, env: Mapping[str, str], is_seen: IsSeen) -> list[tuple[str, str]]:
        """(setting, problem) for model and dataset where ranks cannot read them; called before anything is started."""
        return list(source_problems(self.model, self.dataset, cwd=cwd, env=env, is_seen=is_seen))

    def rank_problem(self, world_size: int) -> str | None:
        """Why so many ranks cannot train with these settings, where that depends on their number."""
        return READY_TWICE if world_size > 1 and self.strategy == "auto" and self._marks_ready_twice else None

    @property
    def fast_parts(self) -> tuple[str, ...]:
        """Parts that `fast_paths` requests."""
        return requested_parts(str(self.fast_paths), PARTS)

    @property
    def has_equal_parts(self) -> bool:
        """Whether a plan left out parts that one of its groups cannot have."""
        return str(self.fast_paths).startswith(EQUAL)

    @property
    def requires_fast_parts(self) -> bool:
        """Whether a part that is not available is an error."""
        return is_own_list(str(self.fast_paths), PARTS)

    @property
    def learns_eos(self) -> bool:
        return self.append_eos and self.recipe != "seed"


def results_dir(settings: Settings, env: Mapping[str, str] = os.environ) -> Path:
    """Where a run's files go when nothing else names a folder."""
    return Path(settings.runs_root or env.get("RUNS_ROOT") or "results/training") / settings.run_name


def token_cache_dir(settings: Settings, env: Mapping[str, str] = os.environ) -> Path:
    """Where tokenised datasets are kept."""
    if settings.tok_cache_dir:
        return Path(settings.tok_cache_dir).expanduser()
    return hugging_face_home(env) / "tokenized"
