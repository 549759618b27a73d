"""Hydra keys of train.py: composed, checked and mapped onto Settings."""

from __future__ import annotations

import dataclasses
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from seatrial_workloads.common import run_folder
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.contrastive.hydra_config.command_line import HELP, SHOW, TRAIN, read_command_line
from seatrial_workloads.contrastive.hydra_config.compose import CONFIGS, compose_tree, help_text, nested, settings_from
from seatrial_workloads.contrastive.hydra_config.keys import KEYS, UNSUPPORTED
from seatrial_workloads.contrastive.hydra_config.to_settings import (
    ConfigurationError,
    check_name,
    checked_values,
    settings_of,
    with_key_names,
)
from seatrial_workloads.contrastive.settings import Settings

pytest.importorskip("hydra")

from hydra.core.override_parser.overrides_parser import OverridesParser

DS = "deepspeed_config_yaml"
# Key, a value other than its default, the field it reaches and the value there.
FILLED: list[tuple[str, str, str, Any]] = [
    ("train.max_step_iterations", "1200", "steps", 1200),
    ("train.log_every_steps", "50", "log_every", 50),
    ("train.validation_every_steps", "1000000", "validation_every_steps", 1_000_000),
    ("train.checkpoint_every_steps", "null", "checkpoint_every_steps", None),
    ("train.checkpoint_keep", "3", "checkpoint_keep", 3),
    ("train.checkpoint_exclude_frozen_parameters", "false", "checkpoint_exclude_frozen", False),
    ("train.checkpoint_tag_style", "global_step", "checkpoint_tag_style", "global_step"),
    ("train.seed", "7", "seed", 7),
    ("train.deterministic", "true", "deterministic", True),
    ("train.cudnn_benchmark", "true", "cudnn_benchmark", True),
    ("train.data.num_workers", "8", "num_workers", 8),
    ("train.data.prefetch_factor", "4", "prefetch_factor", 4),
    ("train.data.use_length_bucket", "true", "length_buckets", True),
    ("train.data.bucket_boundaries_second", "[1,2.5]", "bucket_boundaries_s", "1.0,2.5"),
    ("train.evaluation.eval_batch_size", "64", "eval_batch_size", 64),
    ("train.evaluation.eval_batches", "null", "eval_batches", None),
    ("train.evaluation.sequential", "true", "eval_sequential", True),
    ("train.enable_torch_compile", "true", "torch_compile", True),
    ("train.torch_compile_mode", "max-autotune", "torch_compile_mode", "max-autotune"),
    ("train.torch_compile_dynamic", "true", "torch_compile_dynamic", True),
    ("train.enable_tf32", "false", "tf32", False),
    ("train.matmul_precision", "medium", "matmul_precision", "medium"),
    (
        "train.pretrained_model_checkpoint",
        "data/weights/csa/ckpt_epoch_8.pth",
        "pretrained_checkpoint",
        "data/weights/csa/ckpt_epoch_8.pth",
    ),
    ("train.resume_from", "outputs/old", "resume_from", "outputs/old"),
    ("train.fixed_slice_seconds", "2.0", "fixed_slice_s", 2.0),
    ("train.min_max_audio_second", "[1.5,3]", "slice_range_s", (1.5, 3.0)),
    ("train.precision", "bf16", "precision", "bf16"),
    ("train.mixed_precision", "autocast", "mixed_precision", "autocast"),
    ("train.device", "cpu", "device", "cpu"),
    ("dataset.root_dir", "data/LibriSpeech_16k_trim", "dataset_root", "data/LibriSpeech_16k_trim"),
    ("dataset.manifest_path", "data/m.tsv", "dataset_manifest_path", "data/m.tsv"),
    ("dataset.use_trim", "true", "dataset_use_trim", True),
    ("dataset.offline_trimmed", "false", "dataset_offline_trimmed", False),
    ("model.gather_negatives", "true", "gather_negatives", True),
    ("model.fast_paths", "[positions,front_end]", "fast_paths", "front_end,positions"),
    ("model.speech_encoder.pretrained_path", "tiny", "speech_model", "tiny"),
    ("model.speech_encoder.attn_implementation", "eager", "speech_attn_impl", "eager"),
    ("model.speech_encoder.mask_time_prob", "0", "mask_time_prob", 0),
    ("model.text_encoder.pretrained_path", "base", "text_model", "base"),
    ("model.text_encoder.attn_implementation", "flash_attention_2", "text_attn_impl", "flash_attention_2"),
    (f"{DS}.train_micro_batch_size_per_gpu", "160", "micro_batch", 160),
    (f"{DS}.gradient_clipping", "0.5", "gradient_clipping", 0.5),
    (f"{DS}.wall_clock_breakdown", "true", "wall_clock_breakdown", True),
    (f"{DS}.zero_optimization.stage", "0", "zero_stage", 0),
    (f"{DS}.zero_optimization.overlap_comm", "false", "overlap_comm", False),
    (f"{DS}.bf16.enabled", "true", "precision", "bf16"),
    (f"{DS}.fp16.enabled", "true", "precision", "fp16"),
    (f"{DS}.optimizer.params.lr", "3e-4", "lr", 3e-4),
    (f"{DS}.optimizer.params.betas", "[0.9,0.95]", "beta2", 0.95),
    (f"{DS}.optimizer.params.eps", "1e-6", "eps", 1e-6),
    (f"{DS}.optimizer.params.weight_decay", "0.01", "weight_decay", 0.01),
    (f"{DS}.optimizer.params.torch_adam", "true", "torch_adam", True),
    (f"{DS}.scheduler.params.total_num_steps", "20000", "schedule_steps", 20_000),
    (f"{DS}.scheduler.params.warmup_num_steps", "1e3", "warmup_steps", 1000),
    (f"{DS}.scheduler.params.cos_min_ratio", "0.01", "min_lr_ratio", 0.01),
]


@pytest.fixture(scope="module")
def defaults() -> dict[str, Any]:
    tree, _ = compose_tree((), {})
    return checked_values(tree)


@pytest.mark.parametrize(("key", "typed", "field", "value"), FILLED, ids=[row[0] for row in FILLED])
def test_a_key_sets_its_field(defaults, key, typed, field, value):
    # Parsed, not composed: composing takes a tenth of a second.
    parsed = OverridesParser.create().parse_override(f"{key}={typed}").value()
    assert getattr(settings_of(checked_values(nested({**defaults, key: parsed}))), field) == value


@pytest.mark.parametrize("sign", ["++", ""])
def test_keys_need_no_plus_signs(sign):
    one_format = [row for row in FILLED if row[0] not in (f"{DS}.fp16.enabled", "dataset.use_trim", "train.fixed_slice_seconds")]
    settings = settings_from([f"{sign}{key}={typed}" for key, typed, _, _ in one_format], {}).settings
    assert [(field, getattr(settings, field)) for _, _, field, _ in one_format] == [(field, value) for _, _, field, value in one_format]


def test_two_keys_of_one_field_must_agree():
    dtypes = [f"model.{encoder}_encoder.torch_dtype=bf16" for encoder in ("speech", "text")]
    buckets = [f"{DS}.zero_optimization.{name}_bucket_size=5e8" for name in ("allgather", "reduce")]
    settings = settings_from([*dtypes, *buckets, "train.engine=ddp", f"{DS}.zero_optimization.stage=0"], {}).settings
    assert (settings.model_load_dtype, settings.bucket_size, settings.engine) == ("bf16", 500_000_000, "ddp")


def test_every_field_has_a_key():
    reached = {field for key in KEYS.values() for field in key.fields}
    assert {field.name for field in dataclasses.fields(Settings)} == reached


def test_the_common_attention_is_overridden_by_an_encoders_own():
    settings = settings_from(["model.attn_implementation=sdpa", "model.text_encoder.attn_implementation=eager"], {}).settings
    assert (settings.speech_attention, settings.text_attention) == ("sdpa", "eager")
    assert settings_from([], {}).settings.speech_attention == "auto"


def test_every_key_has_one_line_of_help():
    lines = help_text().partition("keys and their defaults:\n")[2].splitlines()
    assert len(lines) == 2 * len(KEYS) and all(line.endswith(".") for line in lines[1::2])


def test_defaults_are_those_of_the_seeds(defaults):
    settings = settings_of(defaults)
    assert (settings.lr, settings.beta1, settings.beta2, settings.eps, settings.weight_decay) == (1e-4, 0.8, 0.999, 1e-8, 3e-7)
    assert (settings.schedule_steps, settings.warmup_steps, settings.min_lr_ratio) == (100_000, 10_000, 1e-4)
    assert (settings.gradient_clipping, settings.zero_stage, settings.bucket_size, settings.overlap_comm) == (1.0, 1, 200_000_000, True)
    assert (settings.seed, settings.slice_range_s, settings.eval_batch_size, settings.eval_sequential) == (123_456, (1.0, 3.0), 128, False)
    assert (settings.checkpoint_tag_style, settings.checkpoint_exclude_frozen, settings.engine) == ("iter", True, "deepspeed")
    assert (defaults[f"{DS}.steps_per_print"], defaults["train.checkpoint_save_latest"], defaults["train.timing_window"]) == (20, True, 100)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("experiment_output_dirr", "experiment_output_dir"),
        ("train.data.num_wokers", "train.data.num_workers"),
        ("dataset.manifest", "dataset.manifest_path"),
        ("model.speach_encoder.pretrained_path", "model.speech_encoder.pretrained_path"),
        (f"{DS}.zero_optimisation.stage", f"{DS}.zero_optimization.stage"),
        ("trian.seed", "train.seed"),
        # The right name in the wrong group.
        ("train.num_workers", "train.data.num_workers"),
        ("train_micro_batch_size_per_gpu", f"{DS}.train_micro_batch_size_per_gpu"),
    ],
)
def test_a_misspelled_key_is_refused_with_the_nearest(name, suggestion):
    with pytest.raises(ConfigurationError, match=f"unknown key '{name}': did you mean '{suggestion}'"):
        check_name(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dataset.foo", "known in dataset: root_dir, manifest_path, use_trim, offline_trimmed"),
        ("foo", "`--help` lists all keys"),
    ],
)
def test_an_unknown_key_is_refused_with_the_known_ones(name, message):
    with pytest.raises(ConfigurationError, match=f"unknown key '{name}': {message}"):
        check_name(name)


@pytest.mark.parametrize("name", ["zero_optimization.offload_optimizer.device", "train_batch_size", "fp16.loss_scale"])
def test_an_unsupported_key_of_deepspeed_is_refused_as_such(name):
    with pytest.raises(ConfigurationError, match="is a DeepSpeed key that this trainer does not support: remove it"):
        check_name(f"{DS}.{name}")


def test_no_supported_key_is_listed_as_unsupported():
    assert not UNSUPPORTED & {name.removeprefix(f"{DS}.") for name in KEYS}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("train.seed", "x", "train.seed is 'x'; expected a whole number"),
        ("train.seed", 1.5, "train.seed is 1.5; expected a whole number"),
        ("train.seed", True, "train.seed is true; expected a whole number"),
        ("train.seed", None, "train.seed is null; expected a whole number"),
        ("train.seed", math.inf, "train.seed is inf; expected a whole number"),
        ("train.seed", {"a": 1}, "train.seed is {'a': 1}; expected a whole number"),
        ("train.deterministic", 1, "train.deterministic is 1; expected true or false"),
        ("dataset.root_dir", "", "dataset.root_dir is empty; expected a string"),
        ("dataset.root_dir", 7, "dataset.root_dir is 7; expected a string"),
        ("train.min_max_audio_second", [1.0], "train.min_max_audio_second is [1.0]; expected a list of 2 numbers"),
        ("train.min_max_audio_second", 3, "train.min_max_audio_second is 3; expected a list of 2 numbers"),
        ("train.data.bucket_boundaries_second", ["x"], "train.data.bucket_boundaries_second is ['x']; expected a list of numbers"),
        ("train.timing_rank_scope", "rank1", "train.timing_rank_scope is 'rank1'; expected one of rank0, all"),
        (f"{DS}.optimizer.type", "AdamW", f"{DS}.optimizer.type is 'AdamW'; expected Adam, the only value this trainer supports"),
        ("train.data", 5, "train.data is a group of keys and takes no value: train.data.num_workers, "),
        ("train.pretrained_model_checkpoint", "???", "train.pretrained_model_checkpoint needs a value in this experiment"),
    ],
)
def test_a_value_of_another_type_is_refused(defaults, name, value, message):
    kept = {key: old for key, old in defaults.items() if not key.startswith(f"{name}.")}
    with pytest.raises(ConfigurationError) as refused:
        checked_values(nested({**kept, name: value}))
    assert str(refused.value).startswith(message)


def test_a_removed_key_is_refused(defaults):
    with pytest.raises(ConfigurationError, match=r"train\.seed was removed, but the trainer needs it"):
        checked_values(nested({name: value for name, value in defaults.items() if name != "train.seed"}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({f"{DS}.train_micro_batch_size_per_gpu": 0}, f"{DS}.train_micro_batch_size_per_gpu is 0; it must be 1 or more"),
        ({f"{DS}.zero_optimization.stage": 4}, f"{DS}.zero_optimization.stage is 4; expected 0, 1, 2 or 3"),
        ({"train.engine": "ddp"}, f"use train.engine=deepspeed, or {DS}.zero_optimization.stage=0"),
        (
            {"train.min_max_audio_second": [3.0, 1.0]},
            "train.min_max_audio_second[0] (3.0) must be above 0 and at most train.min_max_audio_second[1]",
        ),
        ({f"{DS}.optimizer.params.betas": [0.9, 1.1]}, f"{DS}.optimizer.params.betas[1] is 1.1; it must be at least 0 and below 1"),
        ({f"{DS}.optimizer.params.lr": 0}, f"{DS}.optimizer.params.lr is 0; it must be above 0"),
        ({"train.matmul_precision": "low"}, "train.matmul_precision is 'low'; expected one of highest, high, medium"),
        ({"train.precision": "bf17"}, "train.precision is 'bf17'; expected one of auto"),
        ({"model.text_encoder.attn_implementation": "flash"}, "model.text_encoder.attn_implementation is 'flash'; expected one of auto"),
        ({"train.device": "cpu", f"{DS}.fp16.enabled": True}, f"or a GPU ({DS}.fp16.enabled is true)"),
        (
            {"model.text_encoder.torch_dtype": "bf16"},
            "model.speech_encoder.torch_dtype is auto and model.text_encoder.torch_dtype is bf16;",
        ),
        ({f"{DS}.zero_optimization.reduce_bucket_size": 5}, f"{DS}.zero_optimization.reduce_bucket_size is 5; this trainer uses one value"),
        ({"train.data.use_length_bucket": True, "train.data.bucket_boundaries_second": []}, "train.data.bucket_boundaries_second is ''"),
        ({f"{DS}.scheduler.params.warmup_num_steps": 10**6}, f"must be below {DS}.scheduler.params.total_num_steps (100000)"),
    ],
)
def test_errors_of_settings_name_the_key(defaults, changed, message):
    with pytest.raises(ConfigurationError) as refused:
        settings_of({**defaults, **changed})
    assert message in str(refused.value)


def test_a_plain_word_is_not_replaced_by_a_key():
    assert with_key_names("steps is 0; the seed of all steps") == "train.max_step_iterations is 0; the seed of all steps"


def test_boundaries_may_be_empty_while_buckets_are_off(defaults):
    assert settings_of({**defaults, "train.data.bucket_boundaries_second": []}).boundaries_s == ()


BF16, FP16 = f"{DS}.bf16.enabled", f"{DS}.fp16.enabled"

# As deepspeed passes them: without its own options, --local_rank first.
SEED_000 = """
  --local_rank=1
  +experiment=limit_longest_1-3_stage1_bf16 experiment_output_dir="/tmp/OUT" hydra.run.dir="/tmp/OUT"
  ++train.max_step_iterations=100000 ++train.log_every_steps=20 ++train.validation_every_steps=500 ++train.checkpoint_every_steps=500
  ++train.deterministic=false ++train.cudnn_benchmark=false ++train.enable_cuda_sync_timing=false ++train.timing_rank_scope=rank0
  ++train.enable_eta_logging=true ++train.eta_distributed_mode=rank0 ++train.eta_min_samples=10
  ++train.data.num_workers=8 ++train.data.prefetch_factor=4
  ++dataset.root_dir=data/LibriSpeech/LibriSpeech_16k_trim
  ++dataset.manifest_path=data/LibriSpeech/LibriSpeech_16k_trim/manifest_16k_trim.tsv
  ++dataset.use_trim=false ++dataset.offline_trimmed=true
  ++train.pretrained_model_checkpoint=data/weights/csa/ckpt_epoch_8.pth
  ++model.speech_encoder.pretrained_path=data/weights/wav2vec2-base ++model.text_encoder.pretrained_path=data/weights/bert-base-uncased
  ++model.speech_encoder.attn_implementation=eager ++model.text_encoder.attn_implementation=eager
  ++model.speech_encoder.torch_dtype=bf16 ++model.text_encoder.torch_dtype=bf16
  deepspeed_config_yaml.zero_optimization.stage=0 deepspeed_config_yaml.train_micro_batch_size_per_gpu=128
  deepspeed_config_yaml.wall_clock_breakdown=false deepspeed_config_yaml.bf16.enabled=true deepspeed_config_yaml.fp16.enabled=false
"""
SEED_001 = """
  --local_rank=0
  +experiment=limit_longest_1-3_stage1_bf16
  '++dataset.root_dir=/code/data/LibriSpeech/LibriSpeech_16k_trim'
  '++dataset.manifest_path=/code/data/LibriSpeech_16k_trim/LibriSpeech/manifest_16k_trim.tsv'
  '++dataset.use_trim=false' '++dataset.offline_trimmed=true'
  'deepspeed_config_yaml.zero_optimization.stage=1' 'deepspeed_config_yaml.train_micro_batch_size_per_gpu=160'
  '++train.data.num_workers=6' '++train.data.prefetch_factor=4'
  '++train.enable_cuda_sync_timing=false' '++train.timing_rank_scope=rank0'
"""


def refused(*argv: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as error:
        settings_from(argv, env or {})
    return str(error.value)


def test_the_command_of_the_first_seed():
    start = settings_from(shlex.split(SEED_000), {})
    settings = start.settings
    assert start.run_dir == Path("/tmp/OUT")
    assert (settings.steps, settings.zero_stage, settings.micro_batch, settings.num_workers) == (100_000, 0, 128, 8)
    assert (settings.precision, settings.model_load_dtype, settings.speech_attention, settings.text_attention) == (
        "bf16",
        "bf16",
        "eager",
        "eager",
    )
    assert settings.pretrained_checkpoint == "data/weights/csa/ckpt_epoch_8.pth"
    assert start.environment["LOCAL_RANK"] == "1"
    assert list(start.no_effect) == [f"{DS}.steps_per_print"]


def test_the_command_of_the_second_seed():
    start = settings_from(shlex.split(SEED_001), {})
    settings = start.settings
    assert (settings.precision, settings.zero_stage, settings.micro_batch, settings.prefetch_factor) == ("bf16", 1, 160, 4)
    assert settings.dataset_root == "/code/data/LibriSpeech/LibriSpeech_16k_trim"
    assert (settings.speech_model, settings.text_model) == ("data/weights/wav2vec2-base", "data/weights/bert-base-uncased")
    assert start.run_dir.parent == Path("outputs/train")


@pytest.mark.parametrize("flag", [["--local_rank=1"], ["--local-rank", "1"]])
def test_the_launchers_local_rank_becomes_a_variable(flag):
    start = settings_from([*flag, "train.seed=1", "experiment_output_dir=x"], {})
    assert (start.settings.seed, start.environment["LOCAL_RANK"]) == (1, "1")
    assert "LOCAL_RANK" not in settings_from([*flag], {"LOCAL_RANK": "0"}).environment
    assert "LOCAL_RANK" not in settings_from(["--local_rank=-1"], {}).environment


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--local_rank"], "argument --local_rank/--local-rank: expected one argument"),
        (["--local_rank=x"], "invalid int value: 'x'"),
        (["--config-dir", "x"], "unknown option '--config-dir'"),
        (["-m"], "`seatrial run PLAN`"),
        (["train.seed=1,2"], "train.seed=1,2 has several values: write a list as train.seed=[1,2]"),
        (["garbage"], "cannot read 'garbage' (missing EQUAL at '<EOF>')"),
        (["++train.log_evry_steps=1"], "did you mean 'train.log_every_steps'?"),
        (["++train={log_evry_steps: 1}"], "did you mean 'train.log_every_steps'?"),
        (["+train.seed=1"], "An item is already at 'train.seed'. Either remove + prefix"),
        (["~train.seed"], "train.seed was removed"),
        (["train=5"], "Config group override must be a string"),
        (["+experiment=limit_longest_1-3_stage1_bf61"], "there is no experiment 'limit_longest_1-3_stage1_bf61': did you mean 'limit_"),
        (["experiment=limit_longest_1-3_stage1"], "use +experiment=limit_longest_1-3_stage1"),
        (["model=whisper"], "there is no model 'whisper': known: csa"),
        (["hydra.run.dirr=x"], "unknown key 'hydra.run.dirr': did you mean 'hydra.run.dir'?"),
        (["++hydra.typo=x"], "unknown key 'hydra.typo'"),
        (["hydra.searchpath=[file:///nowhere]"], "path=/nowhere is not available"),
        (["train.resume_from=${nope:1}"], "train.resume_from: Unsupported interpolation type nope"),
        (["train.timing_window=0"], "train.timing_window is 0; it must be 1 or more"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(argv, message):
    error = refused(*argv)
    assert message in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("overrides", "precision"),
    [
        ([], "auto"),
        (["+experiment=limit_longest_1-3_stage1_bf16"], "bf16"),
        (["+experiment=limit_longest_1-3_stage1_bf16", f"{BF16}=false"], "fp32"),
        (["+experiment=limit_longest_1-3_stage1_bf16", f"{BF16}=false", f"{FP16}=true"], "fp16"),
        ([f"{BF16}=false", f"{FP16}=false"], "fp32"),
        ([f"{FP16}=true"], "fp16"),
        ([f"{BF16}=true", "train.precision=fp32"], "fp32"),
        ([f"{BF16}=true", "train.precision=auto"], "auto"),
    ],
)
def test_the_precision_comes_from_its_key_else_deepspeeds_switches(overrides, precision):
    assert settings_from(overrides, {}).settings.precision == precision


def test_both_switches_at_once_are_refused():
    assert "are both true" in refused("+experiment=limit_longest_1-3_stage1_bf16", f"{FP16}=true")


def test_switches_overridden_by_the_precision_are_recorded():
    bf16 = "+experiment=limit_longest_1-3_stage1_bf16"
    assert settings_from([bf16, "train.precision=fp32"], {}).no_effect[BF16] == Choice(True, False, "overridden by train.precision=fp32")
    assert settings_from([bf16, "train.precision=auto"], {}).no_effect[BF16].effective is None
    assert BF16 not in settings_from([bf16, "train.precision=bf16"], {}).no_effect


def test_an_experiment_of_the_user_is_found_and_checked(tmp_path):
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text("# @package _global_\ntrain: {seed: 9}\n")
    overrides = [f"hydra.searchpath=[file://{tmp_path}]", "+experiment=mine"]
    assert settings_from(overrides, {}).settings.seed == 9
    file.write_text("# @package _global_\ntrain: {sed: 9}\n")
    assert refused(*overrides) == "unknown key 'train.sed': did you mean 'train.seed'?"


def test_the_manifest_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("LIBRISPEECH_MANIFEST_PATH", "/data/m.tsv")
    assert settings_from([], {}).settings.dataset_manifest_path == "/data/m.tsv"
    assert settings_from(["dataset.manifest_path=null"], {}).settings.dataset_manifest_path is None
    monkeypatch.setenv("LIBRISPEECH_MANIFEST_PATH", "")
    assert settings_from([], {}).settings.dataset_manifest_path is None


def test_timing_keys_become_variables_of_the_probe():
    overrides = ["train.timing_window=50", "train.timing_rank_scope=all", "train.enable_cuda_sync_timing=true", "train.eta_min_samples=3"]
    assert settings_from([*overrides, "train.eta_distributed_mode=global_max"], {}).environment == {
        "SEATRIAL_TIMING_WINDOW": "50",
        "SEATRIAL_RANK_SCOPE": "all",
        "SEATRIAL_SYNC_TIMING": "1",
        "SEATRIAL_ETA_MIN_SAMPLES": "3",
        "SEATRIAL_ETA_MODE": "global_max",
    }
    assert settings_from(["train.enable_eta_logging=false"], {}).environment["SEATRIAL_ETA_MODE"] == "off"


def test_a_variable_already_set_is_kept_and_recorded():
    env = {"SEATRIAL_TIMING_WINDOW": "20", "SEATRIAL_RANK_SCOPE": "rank0", "SEATRIAL_ETA_MODE": "off"}
    start = settings_from(["train.enable_eta_logging=false"], env)
    assert not set(env) & set(start.environment)
    reason = "SEATRIAL_TIMING_WINDOW was already set in the environment"
    assert start.no_effect["train.timing_window"] == Choice(100, "20", reason)
    # The same value in both.
    assert not {"train.timing_rank_scope", "train.enable_eta_logging"} & set(start.no_effect)
    assert {variable.name: variable.given_by for variable in start.variables}["SEATRIAL_TIMING_WINDOW"] == "environment"


def test_keys_without_effect_are_recorded():
    no_effect = settings_from(["train.checkpoint_save_latest=false", "hydra.job.chdir=true"], {}).no_effect
    assert no_effect["train.checkpoint_save_latest"].effective is True
    assert no_effect[f"{DS}.steps_per_print"].requested == 20
    assert "of Hydra's own settings" in no_effect["hydra.job.chdir"].reason


def test_the_run_folder_is_the_harness_s_else_the_output_dir_else_hydras():
    both = ["experiment_output_dir=/a", "hydra.run.dir=/b"]
    start = settings_from(both, {"SEATRIAL_RUN_DIR": "/h"})
    assert start.run_dir == Path("/h")
    assert start.resolved["experiment_output_dir"] == "/h"
    assert start.no_effect["experiment_output_dir"] == Choice("/a", "/h", "overridden by SEATRIAL_RUN_DIR")
    assert start.no_effect["hydra.run.dir"] == Choice("/b", "/h", "overridden by SEATRIAL_RUN_DIR")
    assert settings_from(both, {}).run_dir == Path("/a")
    assert settings_from(["hydra.run.dir=/b"], {}).run_dir == Path("/b")
    assert "experiment_output_dir" not in settings_from(["experiment_output_dir=/h/"], {"SEATRIAL_RUN_DIR": "/h"}).no_effect


@pytest.fixture
def launcher_started(tmp_path, monkeypatch):
    """A /proc whose launcher started at 2026-11-15 00:00:05 UTC."""
    monkeypatch.setattr(run_folder, "PROC", tmp_path)
    monkeypatch.setattr(run_folder.os, "getppid", lambda: 77)
    monkeypatch.setattr(run_folder.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(run_folder.time, "localtime", run_folder.time.gmtime)
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "stat").write_text("77 (a launcher) S " + " ".join(["0"] * 18) + " 500 0 0\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1794700800\n")


@pytest.mark.parametrize("variable", ["LOCAL_WORLD_SIZE", "LOCAL_SIZE"])
def test_ranks_of_one_launcher_share_a_folder(launcher_started, variable):
    found = {settings_from([], {"RANK": rank, "WORLD_SIZE": "2", variable: "2"}).run_dir for rank in "01"}
    assert found == {Path("outputs/train/20261115-000005")}


def test_a_time_in_the_folders_name_is_the_launchers(launcher_started):
    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
    assert settings_from(["hydra.run.dir=out/${now:%H%M%S}"], env).run_dir == Path("out/000005")
    assert settings_from(["experiment_output_dir=out/${now:%H%M%S}"], env).run_dir == Path("out/000005")


def test_a_launcher_missing_from_proc_has_no_time(launcher_started, tmp_path):
    (tmp_path / "77" / "stat").unlink()
    assert "ranks whose launcher /proc does not show" in refused(env={"RANK": "1", "WORLD_SIZE": "2", "LOCAL_SIZE": "2"})


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "ranks started one by one"),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_SIZE": "2"}, "ranks on several nodes"),
    ],
)
def test_ranks_without_a_common_launcher_need_a_folder(env, message):
    error = refused(env=env)
    assert message in error and "experiment_output_dir=FOLDER" in error
    assert settings_from(["experiment_output_dir=/a"], env).run_dir == Path("/a")


def test_composing_changes_no_folder_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings_from(["+experiment=limit_longest_1-3_stage1_bf16", "hydra.job.chdir=true", f"hydra.run.dir={tmp_path}/out"], {})
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "action"), [([], TRAIN), (["-h"], HELP), (["--help", "++train.typo=1"], HELP), (["--cfg", "job", "--resolve"], SHOW)]
)
def test_the_action(argv, action):
    assert read_command_line(argv).action == action


def test_every_experiment_composes():
    for file in (CONFIGS / "experiment").glob("*.yaml"):
        assert settings_from([f"+experiment={file.stem}", "train.pretrained_model_checkpoint=a.pth"], {}).settings.min_slice_s == 1.0
