"""Names of the original stage-1 scripts that several stages need: labels of a sweep's axes, keys of the trainer, kinds of cautions.

Plain data. Columns of their tables: records.columns.
"""

from __future__ import annotations

SWEEP_LABELS = {"zero_stage": "z", "micro_batch": "mb", "num_workers": "nw", "prefetch_factor": "pf"}
"""Axes of a sweep, in the driver's order, and the short words of its group names."""

TRAINER_KEYS = {
    "++train.log_every_steps": "log_every",
    "++train.validation_every_steps": "validation_every_steps",
    "++train.checkpoint_every_steps": "checkpoint_every_steps",
    "++train.deterministic": "deterministic",
    "++train.cudnn_benchmark": "cudnn_benchmark",
    "++train.data.num_workers": "num_workers",
    "++train.data.prefetch_factor": "prefetch_factor",
    "++train.data.use_length_bucket": "length_buckets",
    "++train.data.bucket_boundaries_second": "bucket_boundaries_s",
    "++train.enable_torch_compile": "torch_compile",
    "++train.torch_compile_mode": "torch_compile_mode",
    "++train.torch_compile_dynamic": "torch_compile_dynamic",
    "++train.enable_tf32": "tf32",
    "++train.matmul_precision": "matmul_precision",
    "++train.pretrained_model_checkpoint": "pretrained_checkpoint",
    "++train.fixed_slice_seconds": "fixed_slice_s",
    "++dataset.root_dir": "dataset_root",
    "++dataset.manifest_path": "dataset_manifest_path",
    "++dataset.use_trim": "dataset_use_trim",
    "++dataset.offline_trimmed": "dataset_offline_trimmed",
    "++model.speech_encoder.pretrained_path": "speech_model",
    "++model.text_encoder.pretrained_path": "text_model",
    "++model.speech_encoder.attn_implementation": "speech_attn_impl",
    "++model.text_encoder.attn_implementation": "text_attn_impl",
    "++model.speech_encoder.torch_dtype": "model_load_dtype",
    "++model.text_encoder.torch_dtype": "model_load_dtype",
    "deepspeed_config_yaml.train_micro_batch_size_per_gpu": "micro_batch",
    "deepspeed_config_yaml.zero_optimization.stage": "zero_stage",
    "deepspeed_config_yaml.wall_clock_breakdown": "wall_clock_breakdown",
    "++train.precision": "precision",
}
"""Key of train.py → setting, in the order of the command."""

MADE_FROM = "original_scripts"
"""Kind of the caution that says at the head of a report what it was made from."""
