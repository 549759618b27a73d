"""Every Hydra key of train.py: its type, the setting or variable it sets, its help line; and DeepSpeed's keys that are not supported."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any

from seatrial.records import events
from seatrial_workloads.contrastive.settings import Settings

NUMBERS = list[float]
"""Type of a key that takes a list, as in [1.0,1.5]."""
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
ATTENTION = "Attention: auto, eager, sdpa or flash_attention_2; an unavailable one is replaced, with the reason."
DTYPE = "Number format of the frozen weights: auto (as the computation), bf16, fp16 or fp32; the same for both encoders."


@dataclass(frozen=True, kw_only=True)
class Key:
    """What one key takes and what it sets."""

    kind: Any
    fields: tuple[str, ...] = ()
    """Fields of Settings set by its value, or by each item of its list."""
    variable: str = ""
    """Environment variable set from it."""
    only: Any = None
    """The only value this trainer supports."""
    choices: tuple[str, ...] = ()
    help: str = ""
    """Help line; empty for that of its field."""


def to(*fields: str, kind: Any = None, text: str = "") -> Key:
    """A key that sets fields of Settings."""
    return Key(kind=FIELD_KINDS[fields[0]] if kind is None else kind, fields=fields, help=text)


def to_variable(variable: str, kind: Any, text: str, *choices: str) -> Key:
    return Key(kind=kind, variable=variable, help=text, choices=choices)


def fixed(value: Any, text: str) -> Key:
    return Key(kind=type(value), only=value, help=text)


def other(kind: Any, text: str) -> Key:
    """A key that `compose` and `to_settings` interpret."""
    return Key(kind=kind, help=text)


KEYS: dict[str, Key] = {
    OUTPUT_DIR: other(str | None, "The run folder; null uses hydra.run.dir if given, else outputs/train/TIME."),
    f"{SPEECH}.pretrained_path": to("speech_model"),
    f"{SPEECH}.revision": to("speech_revision"),
    f"{SPEECH}.attn_implementation": to("speech_attn_impl", text=ATTENTION),
    f"{SPEECH}.torch_dtype": to("model_load_dtype", text=DTYPE),
    f"{SPEECH}.mask_time_prob": to("mask_time_prob"),
    f"{TEXT}.pretrained_path": to("text_model"),
    f"{TEXT}.revision": to("text_revision"),
    f"{TEXT}.attn_implementation": to("text_attn_impl", text=ATTENTION),
    f"{TEXT}.torch_dtype": to("model_load_dtype", text=DTYPE),
    "model.attn_implementation": to("attn_impl"),
    "model.gather_negatives": to("gather_negatives"),
    "model.fast_paths": to("fast_paths"),
    f"{DATASET}.root_dir": to("dataset_root"),
    f"{DATASET}.manifest_path": to(
        "dataset_manifest_path",
        text="Manifest of the tree; default $LIBRISPEECH_MANIFEST_PATH. Without one the tree is scanned.",
    ),
    f"{DATASET}.use_trim": to("dataset_use_trim"),
    f"{DATASET}.offline_trimmed": to("dataset_offline_trimmed"),
    f"{TRAIN}.engine": to("engine"),
    f"{TRAIN}.device": to("device"),
    PRECISION: Key(
        kind=str | None,
        fields=("precision",),
        help="Number format: auto, bf16, fp16 or fp32; overrides the two `enabled` keys of deepspeed_config_yaml; null lets those decide.",
    ),
    f"{TRAIN}.mixed_precision": to("mixed_precision"),
    f"{TRAIN}.seed": to("seed"),
    f"{TRAIN}.deterministic": to("deterministic"),
    f"{TRAIN}.cudnn_benchmark": to("cudnn_benchmark"),
    f"{TRAIN}.max_step_iterations": to("steps", text="Number of optimiser steps: N means N, steps 0 to N-1."),
    f"{TRAIN}.log_every_steps": to("log_every"),
    f"{TRAIN}.validation_every_steps": to("validation_every_steps"),
    f"{TRAIN}.checkpoint_every_steps": to("checkpoint_every_steps"),
    f"{TRAIN}.checkpoint_keep": to("checkpoint_keep"),
    SAVE_LATEST: other(bool, "No effect: the newest checkpoint is always marked, since resuming needs it."),
    f"{TRAIN}.checkpoint_exclude_frozen_parameters": to("checkpoint_exclude_frozen"),
    f"{TRAIN}.checkpoint_tag_style": to("checkpoint_tag_style"),
    f"{TRAIN}.pretrained_model_checkpoint": to("pretrained_checkpoint"),
    f"{TRAIN}.resume_from": to("resume_from"),
    f"{TRAIN}.min_max_audio_second": to("min_slice_s", "max_slice_s", kind=NUMBERS, text="Shortest and longest random slice, in seconds."),
    f"{TRAIN}.fixed_slice_seconds": to("fixed_slice_s"),
    f"{TRAIN}.data.num_workers": to("num_workers"),
    f"{TRAIN}.data.prefetch_factor": to("prefetch_factor"),
    USE_BUCKETS: to("length_buckets"),
    BOUNDARIES: Key(kind=NUMBERS, fields=("bucket_boundaries_s",), help="Upper bounds of the length buckets in seconds, increasing."),
    f"{TRAIN}.evaluation.eval_batch_size": to("eval_batch_size"),
    f"{TRAIN}.evaluation.eval_batches": to("eval_batches"),
    f"{TRAIN}.evaluation.sequential": to("eval_sequential"),
    f"{TRAIN}.enable_tf32": to("tf32"),
    f"{TRAIN}.matmul_precision": to("matmul_precision"),
    f"{TRAIN}.enable_torch_compile": to("torch_compile"),
    f"{TRAIN}.torch_compile_mode": to("torch_compile_mode"),
    f"{TRAIN}.torch_compile_dynamic": to("torch_compile_dynamic"),
    f"{TRAIN}.timing_window": to_variable(events.ENV_TIMING_WINDOW, int, "Steps in the rolling window of a Timing line."),
    f"{TRAIN}.timing_rank_scope": to_variable(
        events.ENV_RANK_SCOPE, str, "Who writes steps and TimingRank lines: rank0 or all.", "rank0", "all"
    ),
    f"{TRAIN}.enable_cuda_sync_timing": to_variable(
        events.ENV_SYNC_TIMING, bool, "Synchronise with the GPU after every phase: exact phases, slower steps."
    ),
    ETA_ON: other(bool, "Log TimingETA lines."),
    ETA_MODE: to_variable(
        events.ENV_ETA_MODE, str, "Rank whose speed the ETA uses: rank0, or global_max for the slowest.", "rank0", "global_max"
    ),
    f"{TRAIN}.eta_min_samples": to_variable(events.ENV_ETA_MIN_SAMPLES, int, "Timed steps before the first ETA."),
    f"{METADATA}_resolved_config": other(bool, "Write resolved_config.yaml."),
    f"{METADATA}_run_context": other(bool, "Write run_context.json."),
    f"{METADATA}_git": other(bool, "Record the git state in run_context.json."),
    f"{DEEPSPEED}.train_micro_batch_size_per_gpu": to("micro_batch"),
    f"{DEEPSPEED}.gradient_accumulation_steps": fixed(1, "Only 1: every micro-batch is a step."),
    f"{DEEPSPEED}.gradient_clipping": to("gradient_clipping"),
    STEPS_PER_PRINT: other(int | None, "No effect: use train.log_every_steps."),
    f"{DEEPSPEED}.wall_clock_breakdown": to("wall_clock_breakdown"),
    BF16: other(bool | None, "Compute in bf16; null for not given. See train.precision."),
    FP16: other(bool | None, "Compute in fp16; null for not given. See train.precision."),
    f"{ZERO}.stage": to("zero_stage"),
    f"{ZERO}.overlap_comm": to("overlap_comm"),
    f"{ZERO}.allgather_bucket_size": to("bucket_size", text="Elements per ZeRO collective; must equal reduce_bucket_size."),
    f"{ZERO}.reduce_bucket_size": to("bucket_size", text="Elements per ZeRO collective; must equal allgather_bucket_size."),
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
"""Names of groups of keys, such as `train.data`."""


def source_of(field: str) -> str:
    """The key that sets a field of Settings, as typed: `train.min_max_audio_second[0]`."""
    name, key = next((name, key) for name, key in KEYS.items() if field in key.fields)
    return name if len(key.fields) == 1 else f"{name}[{key.fields.index(field)}]"


# DeepSpeed's keys that this trainer does not support: group → names.
_UNSUPPORTED = {
    "": """
        train_batch_size managed_gradient_accumulation dump_state disable_python_gc disable_allgather communication_data_type
        seq_parallel_communication_data_type prescale_gradients gradient_predivide_factor gradient_allreduce_op sparse_gradients
        activation_checkpointing comms_logger tensorboard wandb csv_monitor comet torch_autocast amp zero_allow_untested_optimizer
        zero_force_ds_cpu_optimizer flops_profiler memory_breakdown autotuning use_data_before_expert_parallelism hybrid_engine pipeline
        data_efficiency curriculum_learning checkpoint data_types aio dataloader_drop_last log_level datastates weight_quantization
        compile timers tensor_parallel expert_parallel elasticity compression_training sparse_attention progressive_layer_drop
        eigenvalue nebula
    """,
    "optimizer.": "legacy_fusion",
    "optimizer.params.": "adam_w_mode bias_correction amsgrad",
    "scheduler.params.": "warmup_min_ratio warmup_type last_batch_iteration",
    "fp16.": """
        auto_cast loss_scale initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale
        fp16_master_weights_and_grads
    """,
    "bf16.": "immediate_grad_update check_grad_overflow bf16_master_weights_and_grads bf16_optimizer_states",
    "zero_optimization.": """
        contiguous_gradients reduce_scatter use_multi_rank_bucket_allreduce allgather_partitions compute_grad_norm
        load_from_fp32_weights elastic_checkpoint offload_param offload_optimizer zenflow sub_group_size cpu_offload_param
        cpu_offload_use_pin_memory cpu_offload stage3_prefetch_bucket_size stage3_param_persistence_threshold
        stage3_model_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance
        stage3_gather_16bit_weights_on_model_save stage3_module_granularity_threshold stage3_use_all_reduce_for_fetch_params
        stage3_allgather_sequential stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1
        round_robin_gradients parameter_alignment zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights
        zero_quantized_gradients memory_efficient_linear pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings
        enable_sanity_checks save_muon_momentum_buffer_in_memory leaf_module
    """,
}
UNSUPPORTED = frozenset(f"{group}{name}" for group, names in _UNSUPPORTED.items() for name in names.split())


def is_unsupported(name: str) -> bool:
    """Whether a name below deepspeed_config_yaml is a DeepSpeed key that this trainer does not support."""
    parts = name.split(".")
    return any(".".join(parts[:end]) in UNSUPPORTED for end in range(1, len(parts) + 1))
