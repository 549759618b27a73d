"""Every key of train.py: known to the table and to the config files, filling the right field, refused with its nearest when misspelled."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

pytest.importorskip("hydra")

from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError, check_name, checked_values
from seatrial_workloads.contrastive.hydra_config.compose import composed_tree, nested, settings_from
from seatrial_workloads.contrastive.hydra_config.deepspeed_keys import NOT_ACTED_ON
from seatrial_workloads.contrastive.hydra_config.help_text import text_of
from seatrial_workloads.contrastive.hydra_config.keys import KEYS, source_of
from seatrial_workloads.contrastive.hydra_config.to_settings import in_typed_words, settings_of
from seatrial_workloads.contrastive.settings import Settings

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
    ("train.device", "cpu", "device", "cpu"),
    ("dataset.root_dir", "data/LibriSpeech_16k_trim", "dataset_root", "data/LibriSpeech_16k_trim"),
    ("dataset.manifest_path", "data/m.tsv", "dataset_manifest_path", "data/m.tsv"),
    ("dataset.use_trim", "true", "dataset_use_trim", True),
    ("dataset.offline_trimmed", "false", "dataset_offline_trimmed", False),
    ("model.gather_negatives", "true", "gather_negatives", True),
    ("model.fast_paths", "false", "fast_paths", False),
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
    tree, _ = composed_tree((), {})
    return checked_values(tree)


@pytest.mark.parametrize(("key", "typed", "field", "value"), FILLED, ids=[row[0] for row in FILLED])
def test_a_key_fills_its_field(key, typed, field, value):
    assert getattr(settings_from([f"++{key}={typed}"], {}).settings, field) == value


def test_every_key_can_be_given_without_its_plus_signs():
    one_format = [row for row in FILLED if row[0] not in (f"{DS}.fp16.enabled", "dataset.use_trim", "train.fixed_slice_seconds")]
    settings = settings_from([f"{key}={typed}" for key, typed, _, _ in one_format], {}).settings
    assert [(field, getattr(settings, field)) for _, _, field, _ in one_format] == [(field, value) for _, _, field, value in one_format]


def test_keys_that_must_agree_fill_their_field_together():
    dtypes = [f"model.{encoder}_encoder.torch_dtype=bf16" for encoder in ("speech", "text")]
    buckets = [f"{DS}.zero_optimization.{name}_bucket_size=5e8" for name in ("allgather", "reduce")]
    settings = settings_from([*dtypes, *buckets, "train.engine=ddp", f"{DS}.zero_optimization.stage=0"], {}).settings
    assert (settings.model_load_dtype, settings.bucket_size, settings.engine) == ("bf16", 500_000_000, "ddp")


def test_every_field_but_the_common_attention_can_be_reached():
    reached = {field for key in KEYS.values() for field in key.fields}
    assert {field.name for field in dataclasses.fields(Settings)} - reached == {"attn_impl"}


def test_every_key_has_one_line_of_help():
    assert all(text_of(key).endswith(".") and "\n" not in text_of(key) for key in KEYS.values())


def test_the_defaults_are_those_of_the_seeds(defaults):
    settings = settings_of(defaults)
    assert (settings.lr, settings.beta1, settings.beta2, settings.eps, settings.weight_decay) == (1e-4, 0.8, 0.999, 1e-8, 3e-7)
    assert (settings.schedule_steps, settings.warmup_steps, settings.min_lr_ratio) == (100_000, 10_000, 1e-4)
    assert (settings.gradient_clipping, settings.zero_stage, settings.bucket_size, settings.overlap_comm) == (1.0, 1, 200_000_000, True)
    assert (settings.seed, settings.slice_range_s, settings.eval_batch_size, settings.eval_sequential) == (123_456, (1.0, 3.0), 128, False)
    assert (settings.checkpoint_tag_style, settings.checkpoint_exclude_frozen, settings.engine) == ("iter", True, "deepspeed")
    assert (defaults[f"{DS}.steps_per_print"], defaults["train.checkpoint_save_latest"], defaults["train.timing_window"]) == (20, True, 100)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("experiment_output_dirr", "experiment_output_dir"),
        ("train.log_evry_steps", "train.log_every_steps"),
        ("train.data.num_wokers", "train.data.num_workers"),
        ("train.evaluation.eval_batchsize", "train.evaluation.eval_batch_size"),
        ("dataset.manifest", "dataset.manifest_path"),
        ("model.speech_encoder.attn_impl", "model.speech_encoder.attn_implementation"),
        ("model.speach_encoder.pretrained_path", "model.speech_encoder.pretrained_path"),
        (f"{DS}.zero_optimisation.stage", f"{DS}.zero_optimization.stage"),
        (f"{DS}.zero_optimization.stag", f"{DS}.zero_optimization.stage"),
        ("model.txt_encoder.pretrained_path", "model.text_encoder.pretrained_path"),
        ("trian.seed", "train.seed"),
        # Right in itself, in the wrong place.
        ("train.num_workers", "train.data.num_workers"),
        ("train_micro_batch_size_per_gpu", f"{DS}.train_micro_batch_size_per_gpu"),
    ],
)
def test_a_misspelled_key_is_named_with_the_nearest(typed, meant):
    with pytest.raises(ConfigurationError) as refused:
        check_name(typed)
    assert str(refused.value) == f"unknown key '{typed}': did you mean '{meant}'?"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("dataset.foo", "unknown key 'dataset.foo': known in dataset: root_dir, manifest_path, use_trim, offline_trimmed"),
        (f"{DS}.optimizer.params.learning_rate", f"known in {DS}.optimizer.params: lr, betas, eps"),
        ("foo", "unknown key 'foo': `--help` lists all keys"),
    ],
)
def test_a_key_like_none_is_told_what_there_is(typed, told):
    with pytest.raises(ConfigurationError) as refused:
        check_name(typed)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "name", ["zero_optimization.offload_optimizer.device", "flops_profiler.enabled", "train_batch_size", "fp16.loss_scale"]
)
def test_a_key_of_deepspeed_that_is_not_acted_on_is_told_from_a_misspelled_one(name):
    with pytest.raises(ConfigurationError, match="is a key of DeepSpeed that this trainer does not act on: leave it out"):
        check_name(f"{DS}.{name}")


def test_no_key_is_both_acted_on_and_not():
    assert not NOT_ACTED_ON & {name.removeprefix(f"{DS}.") for name in KEYS}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("train.seed", "x", "train.seed is 'x'; expected a whole number"),
        ("train.seed", 1.5, "train.seed is 1.5; expected a whole number"),
        ("train.seed", True, "train.seed is true; expected a whole number"),
        ("train.seed", None, "train.seed is null; expected a whole number"),
        ("train.seed", math.inf, "train.seed is inf; expected a whole number"),
        ("train.seed", {"a": 1}, "train.seed is {'a': 1}; expected a whole number"),
        ("train.deterministic", 1, "train.deterministic is 1; expected true or false"),
        ("train.deterministic", "yes", "train.deterministic is 'yes'; expected true or false"),
        ("dataset.root_dir", "", "dataset.root_dir is empty; expected a word"),
        ("dataset.root_dir", 7, "dataset.root_dir is 7; expected a word"),
        ("train.min_max_audio_second", [1.0], "train.min_max_audio_second is [1.0]; expected a list of 2 numbers"),
        ("train.min_max_audio_second", 3, "train.min_max_audio_second is 3; expected a list of 2 numbers"),
        ("train.timing_rank_scope", "rank1", "train.timing_rank_scope is 'rank1'; expected one of rank0, all"),
        (f"{DS}.optimizer.type", "AdamW", f"{DS}.optimizer.type is 'AdamW'; expected Adam, which is all that this trainer does"),
        (f"{DS}.gradient_accumulation_steps", 2, f"{DS}.gradient_accumulation_steps is 2; expected 1, which is all that this trainer does"),
        ("train.data", 5, "train.data holds keys and takes no value itself: train.data.num_workers, "),
        ("train.pretrained_model_checkpoint", "???", "train.pretrained_model_checkpoint has no value, and this experiment needs one"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_with_its_key(defaults, name, value, told):
    kept = {key: old for key, old in defaults.items() if not key.startswith(f"{name}.")}
    with pytest.raises(ConfigurationError) as refused:
        checked_values(nested({**kept, name: value}))
    assert str(refused.value).startswith(told)


def test_a_key_that_was_taken_out_is_missed(defaults):
    with pytest.raises(ConfigurationError, match=r"train\.seed was taken out, and the trainer reads it"):
        checked_values(nested({name: value for name, value in defaults.items() if name != "train.seed"}))


@pytest.mark.parametrize(
    ("changed", "told"),
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
        ({"train.device": "cpu", f"{DS}.fp16.enabled": True}, f"or a GPU ({DS}.fp16.enabled is true)"),
        (
            {"model.text_encoder.torch_dtype": "bf16"},
            "model.speech_encoder.torch_dtype is auto and model.text_encoder.torch_dtype is bf16;",
        ),
        ({f"{DS}.zero_optimization.reduce_bucket_size": 5}, f"{DS}.zero_optimization.reduce_bucket_size is 5; this trainer has one value"),
        ({"train.data.use_length_bucket": True, "train.data.bucket_boundaries_second": []}, "train.data.bucket_boundaries_second is ''"),
        ({f"{DS}.scheduler.params.warmup_num_steps": 10**6}, f"must be below {DS}.scheduler.params.total_num_steps (100000)"),
    ],
)
def test_what_settings_refuse_is_told_in_the_words_that_were_typed(defaults, changed, told):
    with pytest.raises(ConfigurationError) as refused:
        settings_of({**defaults, **changed})
    assert told in str(refused.value)


def test_words_that_are_no_fields_stay():
    assert in_typed_words("steps is 0; the seed of all steps") == "train.max_step_iterations is 0; the seed of all steps"


def test_an_empty_list_of_boundaries_is_nothing_while_buckets_are_off(defaults):
    assert settings_of({**defaults, "train.data.bucket_boundaries_second": []}).boundaries_s == ()


def test_a_field_knows_its_key():
    assert source_of("beta2") == f"{DS}.optimizer.params.betas[1]"
    assert source_of("model_load_dtype") == "model.speech_encoder.torch_dtype"
