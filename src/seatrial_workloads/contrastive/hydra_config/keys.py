"""Every key that train.py knows, and what becomes of its value. Out: KEYS, dotted name → Key, in the order in which they are shown.

A key fills fields of the flat Settings, sets a variable that the probe and the timing lines read, is read by the start itself, or is
taken without effect, for a stated reason. Defaults stand in configs/; a test holds that both know the same keys.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any

from seatrial.records import events
from seatrial_workloads.contrastive.settings import Settings

NUMBERS = list[float]
"""Kind of a key that takes a list, as in [1.0,1.5]."""
FIELD_KINDS = typing.get_type_hints(Settings)
TRAIN, DATASET, SPEECH, TEXT = "train", "dataset", "model.speech_encoder", "model.text_encoder"
DEEPSPEED = "deepspeed_config_yaml"
ZERO, OPTIMIZER, SCHEDULER = f"{DEEPSPEED}.zero_optimization", f"{DEEPSPEED}.optimizer", f"{DEEPSPEED}.scheduler"
OUTPUT_DIR = "experiment_output_dir"
PRECISION, BF16, FP16 = f"{TRAIN}.precision", f"{DEEPSPEED}.bf16.enabled", f"{DEEPSPEED}.fp16.enabled"
BOUNDARIES, USE_BUCKETS = f"{TRAIN}.data.bucket_boundaries_second", f"{TRAIN}.data.use_length_bucket"
ETA_ON, ETA_MODE = f"{TRAIN}.enable_eta_logging", f"{TRAIN}.eta_distributed_mode"
SAVE_LATEST, STEPS_PER_PRINT = f"{TRAIN}.checkpoint_save_latest", f"{DEEPSPEED}.steps_per_print"
METADATA = f"{TRAIN}.startup_metadata"
ATTENTION = "Attention: auto, eager, sdpa or flash_attention_2; what cannot be had is replaced, with the reason."
DTYPE = "Number format of the frozen weights: auto (as the computation), bf16, fp16 or fp32; the same for both encoders."


@dataclass(frozen=True, kw_only=True)
class Key:
    """What one key takes and where it goes."""

    kind: Any
    fields: tuple[str, ...] = ()
    """Fields of Settings that its value, or each item of its list, fills."""
    variable: str = ""
    """Variable of the environment that is set from it."""
    only: Any = None
    """The one value it may have: what this trainer does is fixed."""
    choices: tuple[str, ...] = ()
    text: str = ""
    """One line for people; keys that fill a single field have the field's own."""


def to(*fields: str, kind: Any = None, text: str = "") -> Key:
    """A key that fills fields of Settings."""
    return Key(kind=FIELD_KINDS[fields[0]] if kind is None else kind, fields=fields, text=text)


def sets(variable: str, kind: Any, text: str, *choices: str) -> Key:
    return Key(kind=kind, variable=variable, text=text, choices=choices)


def fixed(value: Any, text: str) -> Key:
    return Key(kind=type(value), only=value, text=text)


def read(kind: Any, text: str) -> Key:
    """A key that the start itself reads."""
    return Key(kind=kind, text=text)


KEYS: dict[str, Key] = {
    OUTPUT_DIR: read(str | None, "The run folder; null takes hydra.run.dir where that was given, else outputs/train/TIME."),
    f"{SPEECH}.pretrained_path": to("speech_model"),
    f"{SPEECH}.attn_implementation": to("speech_attn_impl", text=ATTENTION),
    f"{SPEECH}.torch_dtype": to("model_load_dtype", text=DTYPE),
    f"{SPEECH}.mask_time_prob": to("mask_time_prob"),
    f"{TEXT}.pretrained_path": to("text_model"),
    f"{TEXT}.attn_implementation": to("text_attn_impl", text=ATTENTION),
    f"{TEXT}.torch_dtype": to("model_load_dtype", text=DTYPE),
    "model.gather_negatives": to("gather_negatives"),
    "model.fast_paths": to("fast_paths"),
    f"{DATASET}.root_dir": to("dataset_root"),
    f"{DATASET}.manifest_path": to(
        "dataset_manifest_path",
        text="Manifest of the tree; by default that of LIBRISPEECH_MANIFEST_PATH. Without one the tree is scanned.",
    ),
    f"{DATASET}.use_trim": to("dataset_use_trim"),
    f"{DATASET}.offline_trimmed": to("dataset_offline_trimmed"),
    f"{TRAIN}.engine": to("engine"),
    f"{TRAIN}.device": to("device"),
    PRECISION: Key(
        kind=str | None,
        fields=("precision",),
        text="Number format: auto, bf16, fp16 or fp32; stands over the two `enabled` of deepspeed_config_yaml; null lets those decide.",
    ),
    f"{TRAIN}.seed": to("seed"),
    f"{TRAIN}.deterministic": to("deterministic"),
    f"{TRAIN}.cudnn_benchmark": to("cudnn_benchmark"),
    f"{TRAIN}.max_step_iterations": to("steps", text="Number of optimiser steps: N means N, steps 0 to N-1."),
    f"{TRAIN}.log_every_steps": to("log_every"),
    f"{TRAIN}.validation_every_steps": to("validation_every_steps"),
    f"{TRAIN}.checkpoint_every_steps": to("checkpoint_every_steps"),
    f"{TRAIN}.checkpoint_keep": to("checkpoint_keep"),
    SAVE_LATEST: read(bool, "No effect when false: the newest checkpoint is always marked, since resuming needs the mark."),
    f"{TRAIN}.checkpoint_exclude_frozen_parameters": to("checkpoint_exclude_frozen"),
    f"{TRAIN}.checkpoint_tag_style": to("checkpoint_tag_style"),
    f"{TRAIN}.pretrained_model_checkpoint": to("pretrained_checkpoint"),
    f"{TRAIN}.resume_from": to("resume_from"),
    f"{TRAIN}.min_max_audio_second": to("min_slice_s", "max_slice_s", kind=NUMBERS, text="Shortest and longest random slice, in seconds."),
    f"{TRAIN}.fixed_slice_seconds": to("fixed_slice_s"),
    f"{TRAIN}.data.num_workers": to("num_workers"),
    f"{TRAIN}.data.prefetch_factor": to("prefetch_factor"),
    USE_BUCKETS: to("length_buckets"),
    BOUNDARIES: Key(kind=NUMBERS, fields=("bucket_boundaries_s",), text="Upper ends of the length buckets, in seconds, rising."),
    f"{TRAIN}.evaluation.eval_batch_size": to("eval_batch_size"),
    f"{TRAIN}.evaluation.eval_batches": to("eval_batches"),
    f"{TRAIN}.evaluation.sequential": to("eval_sequential"),
    f"{TRAIN}.enable_tf32": to("tf32"),
    f"{TRAIN}.matmul_precision": to("matmul_precision"),
    f"{TRAIN}.enable_torch_compile": to("torch_compile"),
    f"{TRAIN}.torch_compile_mode": to("torch_compile_mode"),
    f"{TRAIN}.torch_compile_dynamic": to("torch_compile_dynamic"),
    f"{TRAIN}.timing_window": sets(events.ENV_TIMING_WINDOW, int, "Steps in the rolling window of a Timing line."),
    f"{TRAIN}.timing_rank_scope": sets(events.ENV_RANK_SCOPE, str, "Who writes steps and TimingRank lines: rank0 or all.", "rank0", "all"),
    f"{TRAIN}.enable_cuda_sync_timing": sets(
        events.ENV_SYNC_TIMING, bool, "Wait for the GPU at the end of every phase: exact phases, slower steps."
    ),
    ETA_ON: read(bool, "Say TimingETA lines."),
    ETA_MODE: sets(
        events.ENV_ETA_MODE, str, "Whose pace the time to go is told by: rank0, or global_max for the slowest rank.", "rank0", "global_max"
    ),
    f"{TRAIN}.eta_min_samples": sets(events.ENV_ETA_MIN_SAMPLES, int, "Steps that must have been timed before a time to go is said."),
    f"{METADATA}_resolved_config": read(bool, "Write resolved_config.yaml."),
    f"{METADATA}_run_context": read(bool, "Write run_context.json."),
    f"{METADATA}_git": read(bool, "Ask git about the code for run_context.json."),
    f"{DEEPSPEED}.train_micro_batch_size_per_gpu": to("micro_batch"),
    f"{DEEPSPEED}.gradient_accumulation_steps": fixed(1, "Only 1: every micro-batch is a step."),
    f"{DEEPSPEED}.gradient_clipping": to("gradient_clipping"),
    STEPS_PER_PRINT: read(int | None, "No effect: lines are said every train.log_every_steps steps."),
    f"{DEEPSPEED}.wall_clock_breakdown": to("wall_clock_breakdown"),
    BF16: read(bool | None, "Compute in bf16; null: not said. See train.precision."),
    FP16: read(bool | None, "Compute in fp16; null: not said. See train.precision."),
    f"{ZERO}.stage": to("zero_stage"),
    f"{ZERO}.overlap_comm": to("overlap_comm"),
    f"{ZERO}.allgather_bucket_size": to("bucket_size", text="Elements in one communication of ZeRO; must equal reduce_bucket_size."),
    f"{ZERO}.reduce_bucket_size": to("bucket_size", text="Elements in one communication of ZeRO; must equal allgather_bucket_size."),
    f"{OPTIMIZER}.type": fixed("Adam", "Only Adam."),
    f"{OPTIMIZER}.params.lr": to("lr"),
    f"{OPTIMIZER}.params.betas": to("beta1", "beta2", kind=NUMBERS, text="The two betas of Adam."),
    f"{OPTIMIZER}.params.eps": to("eps", text="The epsilon of Adam."),
    f"{OPTIMIZER}.params.weight_decay": to("weight_decay", text="The weight decay of Adam."),
    f"{OPTIMIZER}.params.torch_adam": to("torch_adam"),
    f"{SCHEDULER}.type": fixed("WarmupCosineLR", "Only WarmupCosineLR."),
    f"{SCHEDULER}.params.total_num_steps": to("schedule_steps"),
    f"{SCHEDULER}.params.warmup_num_steps": to("warmup_steps"),
    f"{SCHEDULER}.params.cos_min_ratio": to("min_lr_ratio"),
}
GROUPS = frozenset(name.rsplit(".", depth)[0] for name in KEYS for depth in range(1, name.count(".") + 1))
"""Names that hold keys, as `train.data` does."""


def source_of(field: str) -> str:
    """The key that fills a field of Settings, as a person would type it: `train.min_max_audio_second[0]`."""
    name, key = next((name, key) for name, key in KEYS.items() if field in key.fields)
    return name if len(key.fields) == 1 else f"{name}[{key.fields.index(field)}]"
