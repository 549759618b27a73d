"""Settings of the sparse-attention language model, checked on construction. Standard library only.

The defaults are the toy of `configs/train_showcase.yaml`; the YAML keys of the procedure are `config.py`'s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from seatrial_workloads.common.precision import FP16_ON_CPU
from seatrial_workloads.common.settings import check_at_least, check_one_of, check_types
from seatrial_workloads.sparse_lm.ops.attention_paths import AttentionPaths
from seatrial_workloads.sparse_lm.ops.shape import ModelShape

NEEDS_TORCH = True
SAMPLE_SIZE = {"seq_len": "tokens"}
FOLLOWS = {
    "precision": ("device",),
    "mixed_precision": ("precision",),
    "selected_path": ("seq_len", "device", "prefill"),
    "window_path": ("device", "prefill"),
    "optimizer": ("device", "fused_adam"),
    # Not the number of ranks or accumulation: one GPU with a graph against two without does not compare GPUs.
    "cuda_graph": ("compile", "device"),
    # One rank exchanges nothing, and pure bf16 has bf16 gradients already.
    "ddp_compression": ("world_size", "mixed_precision=pure"),
}

DATASETS = ("synthetic", "fineweb_edu", "fineweb_edu_local")
SCHEDULES = {"cosine": "linear_cosine", "constant": "linear_constant"}
# Fields of ModelShape that a user sets; the vocabulary follows the tokenizer.
SHAPE_FIELDS = tuple(field.name for field in dataclasses.fields(ModelShape) if field.name != "vocab_size")
# Fields that decide how large the model is.
SIZE_FIELDS = ("dim", "n_layers", "n_heads", "n_kv_groups", "d_k", "d_v")
BYTE_VOCABULARY = 256
# A longer run that leaves no weights, or trains the default toy, is probably a mistake.
LONG_STEPS, TOY_STEPS = 2000, 200
TOY_PARAMETERS = 10_000_000
# Timeouts of threads and torch overflow far beyond it.
LONGEST_WAIT_S = 365 * 86_400


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A language model with compressed, selected and sliding-window attention, trained with DDP."""

    steps: int = 200
    """Number of optimiser steps."""
    seq_len: int = 128
    """Tokens per row."""
    batch_size: int = 8
    """Rows of all ranks together in one forward pass; lower ranks take the remainder."""
    accumulate: int = 1
    """Forward and backward passes per optimiser step."""

    dim: int = 128
    """Width of the residual stream."""
    n_layers: int = 1
    """Number of transformer blocks."""
    n_heads: int = 8
    """Query heads per block; a multiple of n_kv_groups."""
    n_kv_groups: int = 2
    """Groups of query heads that share keys, values and selected blocks."""
    d_k: int = 16
    """Width of a query or key head; even."""
    d_v: int = 16
    """Width of a value head."""
    cmp_block: int = 16
    """Tokens pooled into one compressed block (l)."""
    cmp_stride: int = 8
    """Tokens between the starts of two compressed blocks (d)."""
    sel_block: int = 32
    """Tokens in a selection block (l_sel)."""
    n_sel: int = 8
    """Selected blocks per query; the three forced ones count."""
    window: int = 64
    """Tokens of the sliding window (w)."""
    phi: str = "avg"
    """Pooling of a compressed block: avg or conv."""
    gate_temperature: float = 1.0
    """Divides the gate's logits before their softmax."""
    rope_base: float = 10000.0
    """Base of the rotary embedding's wavelengths."""

    prefill: str = "batched"
    """How a sequence is computed: batched, or sequential (the reference, a Python loop over tokens)."""
    selected_path: str = "auto"
    """Selected branch: auto, flex, mask or gather."""
    window_path: str = "auto"
    """Sliding-window branch: auto, flex or mask."""
    ranges: str = "v2"
    """Conversion of block ids to token ranges: v2, vectorised, or v1, the reference."""
    sdpa: str = "any"
    """Backends of scaled_dot_product_attention: any, flash or no_flash."""
    fla: str = "auto"
    """flash-linear-attention's kernels: auto or off. No path calls them; the reason is recorded."""
    loss_chunk: int | None = None
    """Tokens whose logits exist at a time; never (null) holds 64 MiB of them."""
    gradient_checkpointing: bool = False
    """Recompute the blocks in the backward pass instead of keeping their activations."""
    compile: bool = False
    """Compile the blocks with torch.compile, falling back to the plain ones with the reason; a named pause before the first step."""
    cuda_graph: bool | None = None
    """One CUDA graph of the whole step, on one GPU without accumulation; never (null) captures it where the blocks are compiled."""

    dataset: str = "synthetic"
    """Training text: synthetic (learnable), fineweb_edu (streamed from the hub) or fineweb_edu_local (files in local_path)."""
    local_path: str | None = None
    """Folder of .jsonl or .parquet files with a column `text`, or one such file."""
    tokenizer: str = "byte"
    """byte, or a GPT-2-style tokenizer: a local folder or a name on the hub, such as gpt2."""
    loader_timeout_s: float = 60.0
    """Longest wait for the first batch, the tokenizer included; the run ends before step 1 after it."""
    prefetch: int = 4
    """Batches that a thread prepares ahead."""
    synthetic_on_fail: bool = False
    """Train on synthetic text where the dataset gives no first batch; recorded as the effective dataset."""
    report_docs: int | None = None
    """Documents between two lines about the loader."""

    lr: float = 2e-4
    """Learning rate of AdamW at the end of the warm-up."""
    lr_schedule: str = "cosine"
    """After the linear warm-up: cosine, to 0 at the last step, or constant."""
    warmup_steps: int = 20
    """Steps over which the learning rate rises."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    grad_clip: float = 1.0
    """Maximum gradient norm; 0 for no clipping, where the norm is reported all the same."""
    fused_adam: bool | None = None
    """torch's fused AdamW; never (null) decides by the device: fused on a GPU."""
    seed: int = 1337
    """Seed of the weights and of synthetic text."""
    precision: str = "auto"
    """Number format: auto, bf16, fp16 or fp32."""
    mixed_precision: str = "autocast"
    """autocast keeps fp32 weights; pure keeps the weights in the format of precision, without fp32 copies."""

    ddp_bucket_mb: float | None = None
    """MiB of gradients per all-reduce; never (null) is torch's 25."""
    ddp_compression: str = "none"
    """Format in which gradients are exchanged: none, bf16 or fp16."""
    ddp_static_graph: bool = False
    """Tell DDP that every step uses the same weights."""
    ddp_bucket_view: bool = True
    """Gradients are views into DDP's buckets."""
    group_timeout_s: float | None = None
    """Longest wait in a collective, in seconds; never (null) is torch's own (NCCL 10 minutes, gloo 30)."""

    log_every: int = 20
    """Steps between two log lines; the first and the last step always have one."""
    eval_every: int | None = None
    """Steps between two validations, which are named pauses."""
    eval_batches: int = 4
    """Batches of a validation."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints; the last step has one too unless the interval exceeds the run."""
    checkpoint_keep: int = 2
    """Checkpoints to keep."""
    resume_from: str | None = None
    """Checkpoint folder, or a run folder that has one."""
    statistics: bool = True
    """Gate and selection statistics at every logged step."""
    csv: bool = True
    """training.csv, k_stats.csv and val.csv."""
    tensorboard: bool = True
    """Scalars under tb/, where the package is installed."""
    memory_every: int | None = None
    """Steps between two memory dumps; the start and step 1 have one in any case."""
    profile: bool = False
    """NVTX ranges, and a summary of a few profiled steps: host share and top Python frames."""
    sdpa_audit: bool = False
    """Before step 1, profile one step and list the attention backends that its calls took."""
    fault: str | None = None
    """Break the last rank on purpose, to try a watchdog: nan@STEP, hang@STEP, die@STEP (steps from 0) or no_batch."""
    device: str = "auto"
    """Where to train: auto (CUDA if available), cpu or cuda."""

    def __post_init__(self) -> None:
        check_types(self)
        check_at_least(self, steps=1, seq_len=2, batch_size=1, accumulate=1, loss_chunk=1, prefetch=1, report_docs=1)
        check_at_least(self, warmup_steps=0, weight_decay=0, grad_clip=0, seed=0, log_every=1, eval_every=1, eval_batches=1)
        check_at_least(self, checkpoint_every=1, checkpoint_keep=1, memory_every=1)
        check_one_of(self, dataset=DATASETS, lr_schedule=tuple(SCHEDULES), device=("auto", "cpu", "cuda"))
        check_one_of(self, precision=("auto", "bf16", "fp16", "fp32"), mixed_precision=("autocast", "pure"))
        check_one_of(self, ddp_compression=("none", "bf16", "fp16"))
        for name in ("lr", "loader_timeout_s", "ddp_bucket_mb", "group_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
            if name.endswith("_s") and value is not None and value > LONGEST_WAIT_S:
                raise ValueError(f"{name} is {value}; it must be {LONGEST_WAIT_S} or less, a year")
        self._check_together()
        parse_fault(self.fault)
        # Both have their own checks.
        self.shape(BYTE_VOCABULARY)
        self.attention_paths()

    def _check_together(self) -> None:
        if self.device == "cpu" and self.precision == "fp16":
            raise ValueError(FP16_ON_CPU)
        if self.precision == "fp16" and self.mixed_precision == "pure":
            raise ValueError("mixed_precision is 'pure', and fp16 weights cannot be loss-scaled: use mixed_precision=autocast, or bf16")
        if (self.dataset == "fineweb_edu_local") != (self.local_path is not None):
            need = "has no effect: use dataset=fineweb_edu_local" if self.local_path else "is not set: give the folder of the files"
            raise ValueError(f"dataset is '{self.dataset}', and local_path {need}")

    def shape(self, vocab_size: int) -> ModelShape:
        return ModelShape(vocab_size=vocab_size, **{name: getattr(self, name) for name in SHAPE_FIELDS})

    def attention_paths(self) -> AttentionPaths:
        return AttentionPaths(
            prefill=self.prefill,
            selected=self.selected_path,
            window=self.window_path,
            ranges=self.ranges,
            sdpa=self.sdpa,
            fla=self.fla,
        )

    def host_problems(self, *, num_gpus: int, cwd: Path) -> list[tuple[str, str]]:
        """(setting, problem) for each that cannot work on this host; called before anything is started."""
        problems = []
        if self.local_path is not None and not (cwd / self.local_path).exists():
            problems.append(("local_path", f"there is no file or folder {self.local_path}: give one with .jsonl or .parquet files"))
        if not num_gpus and self.precision == "fp16" and self.device != "cpu":
            problems.append(("precision", f"no usable GPU found, and {FP16_ON_CPU}"))
        if not num_gpus and self.device == "cuda":
            problems.append(("device", "device is cuda, but no usable GPU was found: use device=auto or cpu"))
        return problems


def unsaved_problem(settings: Settings) -> str:
    """Empty unless a long run would leave no checkpoint."""
    every = settings.checkpoint_every
    if settings.steps <= LONG_STEPS or (every is not None and every <= settings.steps):
        return ""
    when = "no checkpoint is configured" if every is None else f"the first checkpoint would be after step {every}"
    return f"{settings.steps} steps, and {when}: the training would leave nothing"


def toy_problem(settings: Settings) -> str:
    """Empty unless a run of some length has a toy's size."""
    parameters = settings.shape(BYTE_VOCABULARY).num_parameters
    if settings.steps <= TOY_STEPS or parameters >= TOY_PARAMETERS:
        return ""
    return f"{settings.steps} steps of the default model, a toy of {parameters:,} parameters"


def check_given(settings: Settings, given: Collection[str]) -> None:
    """Check a plan whose settings `given` are named; ValueError for a long run that is probably a mistake. Naming the key confirms it."""
    unsaved, toy = unsaved_problem(settings), toy_problem(settings)
    if unsaved and "checkpoint_every" not in given:
        raise ValueError(f"{unsaved}; set checkpoint_every to {settings.steps} or less, or to null where none is wanted")
    if toy and not set(SIZE_FIELDS) & set(given):
        raise ValueError(f"{toy}; name its size ({', '.join(SIZE_FIELDS[:2])}, …), even where it is the default")


def split_batch(batch_size: int, rank: int, world_size: int) -> range:
    """Rows of a rank within the global batch."""
    size, rest = divmod(batch_size, world_size)
    first = rank * size + min(rank, rest)
    return range(first, first + size + (rank < rest))


@dataclass(frozen=True)
class Fault:
    """What breaks, and in which step."""

    kind: str
    step: int


def parse_fault(text: str | None) -> Fault | None:
    """`nan@5` as a Fault; a ValueError that names the form."""
    if text is None or text == "no_batch":
        return Fault(text, 0) if text else None
    kind, at, step = text.partition("@")
    if kind not in ("nan", "hang", "die") or not at or not (step.isascii() and step.isdigit()):
        raise ValueError(f"fault is '{text}'; expected nan@STEP, hang@STEP, die@STEP or no_batch")
    return Fault(kind, int(step))
