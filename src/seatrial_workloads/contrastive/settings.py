"""Settings of the contrastive speech–text trainer, checked on construction. Standard library only.

Flat, so that a plan's axes can set each; the nested keys of `train.py` are mapped onto them in `hydra_config`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial_workloads.common.attention import CHOICES as ATTENTIONS
from seatrial_workloads.common.fast_paths import ALL, EQUAL, NONE, check_own_list
from seatrial_workloads.common.precision import CHOICES as DTYPES
from seatrial_workloads.common.precision import FLASH, FP16_ON_CPU, MIXED_CHOICES, WEIGHTS, mixed_precision_problem
from seatrial_workloads.common.settings import check_at_least, check_one_of, check_types
from seatrial_workloads.contrastive.equal_settings import (
    CAPTURING_MODES,
    PARTS,
    equalize_settings,
    excluded_parts,
    is_own_list,
    read_fast_paths,
    requested_parts,
)
from seatrial_workloads.contrastive.manifests import manifest_problem, suggest_manifests

NEEDS_TORCH = True
# Module that fills caches before a run (`seatrial doctor PLAN --warm`).
WARM_UP = "seatrial_workloads.contrastive.cache_warmup"
# What a plan calls to give all its groups the same fast paths and mixed precision.
EQUALIZE_SETTINGS = equalize_settings
# Settings that are comma-separated lists; a plan may write them as lists too.
LISTS = ("fast_paths", "bucket_boundaries_s")
# Settings that change how much work one sample is, and what that is counted in.
SAMPLE_SIZE = dict.fromkeys(("min_slice_s", "max_slice_s", "fixed_slice_s"), "audio_s")
# Effective settings that may follow others: two groups that differ in one of those may differ in these too, and are still compared; with
# `=VALUE|VALUE` only where one of the two has such a value. What a fast path or "auto" became because of another setting is not among them:
# that confounds.
_CPU, _CAPTURING = "device=cpu", f"torch_compile_mode={'|'.join(CAPTURING_MODES)}"
FOLLOWS = {
    # flash_attention_2 takes no fp32 weights, and mixed_precision=weights casts all of them.
    "model_load_dtype": (
        *(f"{name}={FLASH}" for name in ("attn_impl", "speech_attn_impl", "text_attn_impl")),
        "precision",
        f"mixed_precision={WEIGHTS}",
    ),
    "attn_impl": ("speech_attn_impl", "text_attn_impl"),
    # Modes in which torch.compile captures graphs itself. Length buckets take the graph too, and that confounds.
    "tower_graph": (_CAPTURING, _CPU),
    "text_graph": (_CPU,),
    "optimizer": ("torch_adam", "engine", _CPU),
    "torch_adam": ("engine", _CPU),
    # In fp32 nothing is mixed; by_precision, which is autocast in bf16 and weights in fp16, confounds.
    "mixed_precision": ("precision=fp32",),
    "torch_compile_mode": ("torch_compile",),
    "torch_compile_dynamic": ("torch_compile", _CAPTURING, "fixed_slice_s"),
    # The sum of its parts, which are reported one by one.
    "fast_paths": PARTS,
    "overlap_comm": ("engine=ddp", "zero_stage=0"),
    "bucket_size": ("engine=ddp", "zero_stage=0"),
    "wall_clock_breakdown": ("engine=ddp",),
    "prefetch_factor": ("num_workers=0",),
    "dataset_use_trim": ("dataset_offline_trimmed",),
    "length_buckets": ("bucket_boundaries_s", "min_slice_s", "max_slice_s", "fixed_slice_s"),
    "bucket_boundaries_s": ("length_buckets",),
    "min_slice_s": ("fixed_slice_s",),
    "max_slice_s": ("fixed_slice_s",),
    "tf32": (_CPU,),
    "matmul_precision": ("tf32", _CPU),
    "cudnn_benchmark": ("deterministic", _CPU),
    "precision": (_CPU,),
    "parameter_alignment": ("resume_from",),
}
# What equalizes an effective setting of two groups, where that is not the setting itself: values in the order in which to try them,
# {common} being the parts that both groups have.
ALIKE_BY = {
    **dict.fromkeys(PARTS, "fast_paths=equal|{common}"),
    "torch_adam": "torch_adam=true",
}
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
CONFIG_NAMES = ("base", "tiny")
DEFAULT_REVISION = "main"
"""The hub's."""
# 400 samples at 16 kHz: what wav2vec2's CNN needs for one frame.
SHORTEST_SLICE_S = 0.025


@dataclass(frozen=True, kw_only=True)
class Settings:
    """wav2vec2 with attention pooling against a frozen BERT, on slices of LibriSpeech."""

    steps: int = 100
    """Number of optimiser steps."""
    micro_batch: int = 8
    """Utterances per rank and step; the loss compares each with the others of its rank."""
    seed: int = 123456
    """Seed of weights, order, slices and masks."""
    device: str = "auto"
    """Where to train: auto (CUDA if available), cpu or cuda."""
    engine: str = "ddp"
    """Training engine: ddp (torch) or deepspeed."""
    zero_stage: int = 0
    """DeepSpeed ZeRO stage, 0 to 3; must be 0 for ddp."""

    speech_model: str = "tiny"
    """wav2vec2 from a folder or hub id, or `base` or `tiny` for that shape with random weights."""
    text_model: str = "tiny"
    """BERT from a folder or hub id, or `base` or `tiny` for that shape with random weights and a built-in tokenizer."""
    speech_revision: str | None = None
    """Commit, tag or branch of `speech_model` where that is a hub id; a commit never changes. Default: what the hub has now, which is \
recorded."""
    text_revision: str | None = None
    """The same for `text_model` and its tokenizer."""
    pretrained_checkpoint: str | None = None
    """A .pth with weights of the full model to start from."""
    resume_from: str | None = None
    """A checkpoint folder of an earlier run, or a run folder (its newest checkpoint); training resumes after its step."""
    gather_negatives: bool = False
    """Use the utterances of all ranks as negatives, not only this rank's."""
    mask_time_prob: float = 0.05
    """Share of audio frames masked in training (SpecAugment)."""
    fast_paths: bool | str = ALL
    """Parts that are computed faster than by the plain modules: all (where possible), none, a list such as front_end,positions (of \
front_end, positions, text_graph, tower_graph; the run fails where one is not available), or equal: those that every group of a plan \
can have, which is the default where a plan has axes or a baseline."""

    dataset_root: str = "data/LibriSpeech/LibriSpeech"
    """A LibriSpeech tree: SPLIT/SPEAKER/CHAPTER/*.flac with transcripts."""
    dataset_manifest_path: str | None = None
    """Manifest of the tree as `seatrial prepare librispeech` writes it; without one the tree is scanned."""
    dataset_use_trim: bool = False
    """Trim silence while loading, for a tree that was not trimmed offline."""
    dataset_offline_trimmed: bool = True
    """The tree was trimmed offline, so loading does not trim."""
    min_slice_s: float = 1.0
    """Shortest random slice."""
    max_slice_s: float = 3.0
    """Longest random slice; a shorter utterance is used in full."""
    fixed_slice_s: float | None = None
    """Fixed length of every slice, instead of the two above."""
    length_buckets: bool = False
    """Batch slices of similar length."""
    bucket_boundaries_s: str = "1.0,1.5,2.0,2.5,3.0"
    """Upper bounds of the buckets, comma-separated."""
    num_workers: int = 2
    """Loader workers per rank; 0 loads in the training process."""
    prefetch_factor: int = 2
    """Batches each worker prefetches; no effect without workers."""

    precision: str = "auto"
    """Number format of the computation: auto, bf16, fp16 or fp32; auto is resolved on the node and reported."""
    mixed_precision: str = "auto"
    """How bf16 and fp16 are used: autocast (fp32 weights), weights (16-bit weights, DeepSpeed's own bf16 and fp16), by_precision \
(autocast in bf16, weights in fp16), or auto: autocast for ddp and ZeRO 0, else weights. A plan that compares gives all groups the same."""
    model_load_dtype: str = "auto"
    """Number format of the frozen weights: auto follows precision."""
    attn_impl: str = "auto"
    """Attention of both encoders: auto, eager, sdpa or flash_attention_2; an unavailable one is replaced, with the reason."""
    speech_attn_impl: str | None = None
    """Attention of the speech encoder, where it differs."""
    text_attn_impl: str | None = None
    """Attention of the text encoder, where it differs."""
    tf32: bool = True
    """Allow TF32 for fp32 matmuls on CUDA."""
    matmul_precision: str = "high"
    """torch's float32 matmul precision: highest, high or medium."""
    torch_compile: bool = False
    """Use torch.compile; compiling is a named pause before the first step. If it fails, training continues without, with the reason."""
    torch_compile_mode: str = "default"
    """Mode of torch.compile."""
    torch_compile_dynamic: bool | None = None
    """Compile for any number of frames; else every batch is padded to the longest slice. Null: only with length buckets."""
    deterministic: bool = False
    """Only deterministic algorithms."""
    cudnn_benchmark: bool = False
    """Let cuDNN time its algorithms and keep the fastest."""

    lr: float = 1e-4
    """Learning rate of Adam at the end of the warm-up."""
    beta1: float = 0.8
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 3e-7
    warmup_steps: int = 10_000
    """Warm-up steps of the learning rate, logarithmic as in DeepSpeed's WarmupCosineLR."""
    schedule_steps: int = 100_000
    """Steps until the learning rate reaches its minimum."""
    min_lr_ratio: float = 1e-4
    """Minimum learning rate as a share of lr."""
    gradient_clipping: float = 1.0
    """Maximum gradient norm."""
    torch_adam: bool | None = None
    """True uses torch's Adam under deepspeed, false requires FusedAdam; null uses FusedAdam where it can be built, else torch's."""
    overlap_comm: bool = True
    """Overlap ZeRO communication with the backward pass."""
    bucket_size: int = 200_000_000
    """Elements per ZeRO collective."""
    wall_clock_breakdown: bool = False
    """Let DeepSpeed time its own phases, which synchronises with the GPU."""

    log_every: int = 10
    """Steps between two log lines; step 0 and the last step always have one. Reading the loss synchronises with the GPU."""
    validation_every_steps: int | None = None
    """Steps between two validations, which are named pauses; none comes after step 0."""
    eval_batch_size: int = 128
    """Utterances per validation batch, at most the validation set."""
    eval_batches: int | None = 16
    """Maximum number of batches per validation; null for the whole set."""
    eval_sequential: bool = False
    """Validate in file order instead of a fixed shuffle."""
    checkpoint_every_steps: int | None = None
    """Steps between two checkpoints, which are named pauses; none comes after step 0."""
    checkpoint_keep: int = 1
    """Number of checkpoints kept; older ones are removed once a newer one is complete."""
    checkpoint_exclude_frozen: bool = True
    """Leave the frozen encoders out of checkpoints."""
    checkpoint_tag_style: str = "iter"
    """Name of a checkpoint folder: iter (ckpt_iter_120) or global_step (global_step120)."""

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "fast_paths", read_fast_paths(self.fast_paths))
        check_at_least(self, steps=1, micro_batch=1, seed=0, zero_stage=0, num_workers=0, prefetch_factor=1, log_every=1)
        check_at_least(self, validation_every_steps=1, checkpoint_every_steps=1, checkpoint_keep=1, eval_batch_size=2, eval_batches=1)
        check_at_least(self, warmup_steps=0, schedule_steps=1, gradient_clipping=0, weight_decay=0, bucket_size=1, mask_time_prob=0)
        check_one_of(self, device=("auto", "cpu", "cuda"), engine=("ddp", "deepspeed"), precision=DTYPES, model_load_dtype=DTYPES)
        check_one_of(self, attn_impl=ATTENTIONS, matmul_precision=("highest", "high", "medium"), torch_compile_mode=COMPILE_MODES)
        check_one_of(self, checkpoint_tag_style=("iter", "global_step"), speech_attn_impl=ATTENTIONS, text_attn_impl=ATTENTIONS)
        check_one_of(self, mixed_precision=MIXED_CHOICES)
        self._check_engine()
        self._check_revisions()
        self._check_fast_paths()
        self._check_slices()
        self._check_optimiser()
        if self.micro_batch == 1 and not self.gather_negatives:
            raise ValueError("micro_batch is 1: the contrastive loss needs negatives; use 2 or more, or gather_negatives")
        if self.device == "cpu" and self.precision == "fp16":
            raise ValueError(FP16_ON_CPU)

    def host_problems(self, *, num_gpus: int, cwd: Path) -> list[tuple[str, str]]:
        """(setting, problem) for each that cannot work on this host; called before anything is started."""
        found = (*self._missing_files(cwd), *self._folders_without_weights(cwd))
        problems = [(name, sentence) for name, sentence in found if sentence]
        if not num_gpus and self.precision == "fp16" and self.device != "cpu":
            problems.append(("precision", f"no usable GPU found, and {FP16_ON_CPU}"))
        if not num_gpus and self.device == "cuda":
            problems.append(("device", "device is cuda, but no usable GPU was found: use device=auto or cpu"))
        return problems

    def _missing_files(self, cwd: Path) -> Iterator[tuple[str, str]]:
        if not (cwd / self.dataset_root).is_dir():
            yield (
                "dataset_root",
                f"there is no folder {self.dataset_root}: run seatrial prepare librispeech --input-root …, "
                f"or create a small synthetic one (seatrial prepare librispeech --synthetic 200 --output-root {self.dataset_root})",
            )
        manifest, checkpoint = self.dataset_manifest_path, self.pretrained_checkpoint
        if manifest is not None and not (cwd / manifest).is_file():
            others = suggest_manifests(self.dataset_root, cwd, "dataset_manifest_path")
            yield "dataset_manifest_path", f"there is no manifest {manifest}{others or ': correct dataset_manifest_path, or leave it out'}"
        if manifest is not None and (cwd / manifest).is_file():
            yield "dataset_manifest_path", manifest_problem(cwd / manifest, cwd / self.dataset_root)
        if checkpoint is not None and not (cwd / checkpoint).is_file():
            yield "pretrained_checkpoint", f"there is no file {checkpoint}: correct pretrained_checkpoint, or leave it out"
        if self.resume_from is not None and not (cwd / self.resume_from).is_dir():
            yield "resume_from", f"there is no folder {self.resume_from}: give a checkpoint folder, or a run folder that has one"

    def _folders_without_weights(self, cwd: Path) -> Iterator[tuple[str, str]]:
        for name in ("speech_model", "text_model"):
            source = str(getattr(self, name))
            if source not in CONFIG_NAMES and (cwd / source).is_dir() and not (cwd / source / "config.json").is_file():
                yield name, f"the folder {source} has no config.json: use the folder with the model's files"

    @property
    def slice_range_s(self) -> tuple[float, float]:
        """Shortest and longest slice."""
        return (self.min_slice_s, self.max_slice_s) if self.fixed_slice_s is None else (self.fixed_slice_s, self.fixed_slice_s)

    @property
    def boundaries_s(self) -> tuple[float, ...]:
        """Upper bounds of the length buckets; empty where buckets are off."""
        return tuple(map(float, self.bucket_boundaries_s.split(","))) if self.length_buckets else ()

    @property
    def fast_parts(self) -> tuple[str, ...]:
        """Parts that `fast_paths` requests."""
        return requested_parts(str(self.fast_paths))

    @property
    def has_equal_parts(self) -> bool:
        """Whether a plan left out parts that one of its groups cannot have."""
        return str(self.fast_paths).startswith(EQUAL)

    @property
    def requires_fast_parts(self) -> bool:
        """Whether a part that is not available is an error."""
        return is_own_list(str(self.fast_paths))

    @property
    def speech_attention(self) -> str:
        return self.speech_attn_impl or self.attn_impl

    @property
    def text_attention(self) -> str:
        return self.text_attn_impl or self.attn_impl

    def _check_engine(self) -> None:
        if self.zero_stage > 3:
            raise ValueError(f"zero_stage is {self.zero_stage}; expected 0, 1, 2 or 3")
        if self.engine == "ddp" and self.zero_stage:
            raise ValueError(f"zero_stage is {self.zero_stage}, and ddp has no ZeRO: use engine=deepspeed, or zero_stage=0")
        problem = mixed_precision_problem(self.mixed_precision, self.engine, self.zero_stage, self.precision)
        if problem:
            raise ValueError(f"mixed_precision is '{self.mixed_precision}', and {problem}")

    def _check_revisions(self) -> None:
        for name in ("speech", "text"):
            source, revision = getattr(self, f"{name}_model"), getattr(self, f"{name}_revision")
            if revision is not None and (not revision or source in CONFIG_NAMES):
                what = f"{name}_model '{source}' has random weights" if revision else "it is empty"
                raise ValueError(f"{name}_revision is '{revision}', and {what}: leave it out, or give {name}_model a hub id")

    def _check_fast_paths(self) -> None:
        check_own_list(str(self.fast_paths), PARTS, excluded_parts(self))

    def _check_slices(self) -> None:
        if self.fixed_slice_s is not None and self.fixed_slice_s <= 0:
            raise ValueError(f"fixed_slice_s is {self.fixed_slice_s}; it must be above 0, or null for slices of random length")
        if self.slice_range_s[0] < SHORTEST_SLICE_S:
            name = "min_slice_s" if self.fixed_slice_s is None else "fixed_slice_s"
            raise ValueError(f"{name} is {self.slice_range_s[0]}: the speech encoder needs at least {SHORTEST_SLICE_S} s")
        if not 0 < self.min_slice_s <= self.max_slice_s:
            raise ValueError(f"min_slice_s ({self.min_slice_s}) must be above 0 and at most max_slice_s ({self.max_slice_s})")
        try:
            bounds = [float(part) for part in self.bucket_boundaries_s.split(",")]
        except ValueError:
            bounds = []
        if not bounds or not all(map(math.isfinite, bounds)) or bounds != sorted(set(bounds)) or bounds[0] <= 0:
            raise ValueError(
                f"bucket_boundaries_s is '{self.bucket_boundaries_s}'; expected increasing seconds, comma-separated, as in 1.0,1.5,2.0"
            )
        if self.length_buckets and self.dataset_use_trim and not self.dataset_offline_trimmed:
            raise ValueError(
                "length_buckets need the final length, and dataset_use_trim changes it while loading: "
                "trim offline (seatrial prepare librispeech --trim) and set dataset_offline_trimmed"
            )

    def _check_optimiser(self) -> None:
        for name in ("lr", "eps"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        for name in ("beta1", "beta2", "min_lr_ratio", "mask_time_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if self.warmup_steps >= self.schedule_steps:
            raise ValueError(f"warmup_steps ({self.warmup_steps}) must be below schedule_steps ({self.schedule_steps})")


def equal_settings(groups: Mapping[str, Mapping[str, Any]], given: Collection[str] = ()) -> tuple[dict[str, str], tuple[str, ...]]:
    """`fast_paths` and `mixed_precision` for all of these groups (name → settings), where a plan starts the trainer as a script and does
    not expand its settings; and one line on each. `given` are settings that the user set. A ValueError where a setting is wrong, or the
    groups cannot be equalized."""
    equal = equalize_settings({name: Settings(**values) for name, values in groups.items()}, given=given, compared=True)
    return {setting: value for changes in equal.changes.values() for setting, value in changes.items()}, equal.notes


def hashed_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they enter the hash of a run: what earlier versions computed too keeps their form, so that their runs still count."""
    fast_paths, mixed = settings.get("fast_paths"), settings.get("mixed_precision")
    unset = {name for name in ("speech_revision", "text_revision") if settings.get(name) is None}
    kept = {name: value for name, value in settings.items() if name not in unset and not (name == "mixed_precision" and mixed == "auto")}
    return {**kept, **({"fast_paths": fast_paths == ALL} if fast_paths in (ALL, NONE) else {})}
