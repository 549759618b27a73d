"""Settings of the tiny language model, checked on construction. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from seatrial_workloads.common.precision import FP16_ON_CPU
from seatrial_workloads.common.settings import check_at_least, check_one_of, check_types

NEEDS_TORCH = True
# Settings that change how much work one sample is, and what that is counted in.
SAMPLE_SIZE = {"seq_len": "tokens"}
# Effective settings that may follow others: two groups that differ in one of those may differ in these too, and are still compared.
FOLLOWS = {"prefetch_factor": ("num_workers=0",), "precision": ("device=cpu",)}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A small GPT on synthetic text, trained with DDP."""

    steps: int = 100
    """Number of optimiser steps."""
    micro_batch: int = 8
    """Sequences per rank and step."""
    seq_len: int = 128
    """Tokens per sequence."""
    d_model: int = 128
    """Width of the model; a multiple of n_heads."""
    n_layers: int = 2
    """Number of transformer blocks."""
    n_heads: int = 4
    """Attention heads per block."""
    vocab_size: int = 256
    """Vocabulary size."""
    num_workers: int = 0
    """Loader workers per rank; 0 loads in the training process."""
    prefetch_factor: int = 2
    """Batches each worker prefetches; no effect without workers."""
    lr: float = 3e-3
    """Learning rate of AdamW."""
    seed: int = 0
    """Seed of the weights and of the text."""
    precision: str = "auto"
    """Number format: auto, bf16, fp16 or fp32; auto is resolved on the node and reported."""
    compile: bool = False
    """Use torch.compile, falling back to the plain model with the reason; compiling is a named pause before the first step."""
    log_every: int = 10
    """Steps between two log lines; step 0 and the last step always have one. Reading the loss synchronises with the GPU."""
    eval_every: int | None = None
    """Steps between two evaluations, which are named pauses; none after step 0."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints, which are named pauses; none after step 0, and only the newest is kept."""
    device: str = "auto"
    """Where to train: auto (CUDA if available), cpu or cuda."""

    def __post_init__(self) -> None:
        check_types(self)
        check_at_least(self, steps=1, micro_batch=1, seq_len=2, d_model=1, n_layers=1, n_heads=1, vocab_size=8, num_workers=0)
        check_at_least(self, prefetch_factor=1, log_every=1, eval_every=1, checkpoint_every=1, seed=0)
        check_one_of(self, precision=("auto", "bf16", "fp16", "fp32"), device=("auto", "cpu", "cuda"))
        if self.device == "cpu" and self.precision == "fp16":
            raise ValueError(FP16_ON_CPU)
        if self.d_model % self.n_heads:
            near = self.n_heads * max(1, round(self.d_model / self.n_heads))
            raise ValueError(f"d_model ({self.d_model}) is not a multiple of n_heads ({self.n_heads}): use for example d_model={near}")
        if self.lr <= 0:
            raise ValueError(f"lr is {self.lr}; it must be above 0")
