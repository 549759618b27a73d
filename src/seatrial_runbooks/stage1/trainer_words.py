"""The words after train.py. In: the driver's variables. Out: Hydra's overrides, and the settings that fill the placeholders in them.

    ++train.data.num_workers={num_workers}        num_workers: 6

Values go through `settings` under the trainer's own flat names, so that tables have them by column. Precision and attention stay as they
were asked for: `auto` is resolved by the trainer, on the machine it runs on. Where a run writes is told to it by the harness.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from seatrial.errors import UsageError
from seatrial.plan.placeholders import escape, value_text
from seatrial.records.original_names import TRAINER_KEYS
from seatrial.records.run_spec import Scalar
from seatrial_runbooks.stage1.place import is_on_cpu
from seatrial_runbooks.stage1.variables import NO_CHECKPOINT, Variables

# Of a group of MODE=ab and of the whole sweep: ending of the variable's name → setting.
OF_A_GROUP = {
    "LOG_EVERY": "log_every",
    "VALIDATION_EVERY": "validation_every_steps",
    "CHECKPOINT_EVERY": "checkpoint_every_steps",
    "DETERMINISTIC": "deterministic",
    "CUDNN_BENCHMARK": "cudnn_benchmark",
    "WALL_CLOCK_BREAKDOWN": "wall_clock_breakdown",
}
OF_AN_AB_GROUP = {**OF_A_GROUP, "ZERO_STAGE": "zero_stage", "NUM_WORKERS": "num_workers", "PREFETCH_FACTOR": "prefetch_factor"}
# Setting → variable, of what is one value for all runs.
FROM_VARIABLE = {
    "length_buckets": "ENABLE_LENGTH_BUCKET",
    "torch_compile": "ENABLE_TORCH_COMPILE",
    "torch_compile_mode": "TORCH_COMPILE_MODE",
    "torch_compile_dynamic": "TORCH_COMPILE_DYNAMIC",
    "tf32": "ENABLE_TF32",
    "matmul_precision": "MATMUL_PRECISION",
    "dataset_root": "DATASET_ROOT",
    "dataset_manifest_path": "DATASET_MANIFEST_PATH",
    "dataset_use_trim": "DATASET_USE_TRIM",
    "dataset_offline_trimmed": "DATASET_OFFLINE_TRIMMED",
    "speech_model": "SPEECH_MODEL_PATH",
    "text_model": "TEXT_MODEL_PATH",
    "model_load_dtype": "MODEL_LOAD_DTYPE",
    "precision": "PRECISION_MODE",
}
KEYS = TRAINER_KEYS
BOUNDARIES = "bucket_boundaries_s"
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
_WORDS_OF_YAML = ("null", "none", "true", "false", "yes", "no", "on", "off")


def fixed_settings(variables: Variables) -> dict[str, Scalar]:
    """What all runs of a plan share, whatever its mode."""
    settings = {setting: variables[name] for setting, name in FROM_VARIABLE.items()}
    checkpoint = variables["PRETRAINED_CKPT"]
    settings["pretrained_checkpoint"] = None if checkpoint == NO_CHECKPOINT else checkpoint
    settings["fixed_slice_s"] = variables["FIXED_SLICE_SECONDS"] if variables["ENABLE_LENGTH_FIXED_SLICE"] else None
    settings[BOUNDARIES] = ",".join(map(str, variables["LENGTH_BUCKET_BOUNDARIES_SEC"]))
    for encoder in ("speech", "text"):
        settings[f"{encoder}_attn_impl"] = variables[f"{encoder.upper()}_ATTN_IMPL"] or variables["ATTN_IMPL"]
    if is_on_cpu(variables):
        settings["device"] = "cpu"
    return settings


def group_settings(variables: Variables, prefix: str, names: dict[str, str]) -> dict[str, Scalar]:
    """What one group of MODE=ab, or every group of the sweep, is told of its own."""
    return {setting: variables[f"{prefix}{ending}"] for ending, setting in names.items()}


def words(variables: Variables, settings: dict[str, Scalar]) -> list[str]:
    """The overrides, a word each; `settings` are those whose values are known already, which says whether they need quotes."""
    named = {**KEYS, **({"++train.device": "device"} if "device" in settings else {})}
    return [
        f"+experiment={escape(variables['EXPERIMENT'])}",
        "++train.max_step_iterations={steps}",
        *(f"{key}={_placeholder(setting, settings.get(setting))}" for key, setting in named.items()),
        *_switches(variables["PRECISION_MODE"]),
        *(f"++train.{key}={value_text(value)}" for key, value in timing_keys(variables).items()),
    ]


def timing_keys(variables: Variables) -> dict[str, Scalar]:
    """What the harness tells the ranks too; said here so that resolved_config.yaml has it."""
    return {
        "enable_cuda_sync_timing": variables["ENABLE_CUDA_SYNC_TIMING"],
        "timing_rank_scope": variables["TIMING_RANK_SCOPE"],
        "enable_eta_logging": variables["ENABLE_ETA_LOGGING"],
        "eta_distributed_mode": variables["ETA_DISTRIBUTED_MODE"],
        "eta_min_samples": eta_min_samples(variables),
    }


def eta_min_samples(variables: Variables) -> int:
    """One step is no pace: the harness takes two at least."""
    return max(2, int(variables["ETA_MIN_SAMPLES"]))


def sources(prefix: str) -> dict[str, str]:
    """Setting → the variable that gives it, for messages; `prefix` is that of the mode or of the group of MODE=ab."""
    of_a_group = {setting: f"{prefix}{ending}" for ending, setting in OF_AN_AB_GROUP.items()}
    axes = {
        "zero_stage": "SWEEP_ZERO_STAGES",
        "micro_batch": "SWEEP_MICRO_BATCHES",
        "num_workers": "SWEEP_NUM_WORKERS_LIST",
        "prefetch_factor": "SWEEP_PREFETCH_LIST",
    }
    return {
        **of_a_group,
        **(axes if prefix == "SWEEP_" else {"micro_batch": "AB_MICRO_BATCH"}),
        **FROM_VARIABLE,
        "pretrained_checkpoint": "PRETRAINED_CKPT",
        "fixed_slice_s": "FIXED_SLICE_SECONDS",
        BOUNDARIES: "LENGTH_BUCKET_BOUNDARIES_SEC",
        "speech_attn_impl": "SPEECH_ATTN_IMPL",
        "text_attn_impl": "TEXT_ATTN_IMPL",
        "steps": "MAX_STEPS",
        "device": "INCLUDE",
    }


def _placeholder(setting: str, value: Any) -> str:
    if setting == BOUNDARIES:
        return f"[{{{setting}}}]"
    return f"'{{{setting}}}'" if isinstance(value, str) and _needs_quotes(setting, value) else f"{{{setting}}}"


def _needs_quotes(setting: str, value: str) -> bool:
    """Whether Hydra would take the text for something else. Within quotes only these three are not what they look like."""
    if "'" in value or "\\" in value or "${" in value:
        name = sources("")[setting]
        raise UsageError(f"{name} is '{value}': a quote, a backslash or ${{ cannot be passed on to train.py; use a link of another name")
    with contextlib.suppress(ValueError):
        float(value)
        return True
    return not _PLAIN.fullmatch(value) or value.lower() in _WORDS_OF_YAML


def _switches(precision: str) -> list[str]:
    """DeepSpeed's two: what the experiment says of them must not stand against what was asked for."""
    enabled = (
        {"bf16": "null", "fp16": "null"} if precision == "auto" else {kind: value_text(kind == precision) for kind in ("bf16", "fp16")}
    )
    return [f"deepspeed_config_yaml.{kind}.enabled={word}" for kind, word in enabled.items()]
