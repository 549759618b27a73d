"""Settings of fine-tuning, where its model and data come from, the shapes of models: everything that is known without torch."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest

from seatrial.records.memory import ForecastUnknown
from seatrial_workloads.sft.memory import forecast
from seatrial_workloads.sft.settings import Settings, results_dir, token_cache_dir
from seatrial_workloads.sft.shapes import MISTRAL_7B, UnknownShape, model_shape, shape_of
from seatrial_workloads.sft.sources import dataset_problem, hub_problem, model_problem

REENTRANT = {"gradient_checkpointing": True, "checkpointing_reentrant": True}
LOOKS = {"ddp_find_unused_parameters": True}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({**REENTRANT, "strategy": "ddp", **LOOKS}, "ready only once.*ddp_find_unused_parameters=false or checkpointing_reentrant=false"),
        ({**REENTRANT, "strategy": "fsdp", "use_lora": False}, "checkpointing_reentrant=false"),
        ({"strategy": "fsdp", "ddp_static_graph": True}, "ddp_static_graph is DDP's"),
        ({"strategy": "fsdp", **LOOKS}, "ddp_find_unused_parameters is DDP's"),
        ({"recipe": "seed", "packing": True}, "recipe=ours, or packing=false"),
        ({"recipe": "seed", "loss_on": "response"}, "recipe=ours, or loss_on=all"),
        ({"merge_adapter": True, "use_lora": False}, "there is no adapter"),
        ({"baseline_tokens_per_s": 100.0}, "given together"),
        ({"run_name": "a/b"}, "the name of one folder"),
        ({"strategy": "zero3"}, "expected one of auto, ddp, fsdp"),
        ({"precision": "fp16"}, "expected one of auto, bf16, fp32"),
        ({"lora_dropout": 1.0}, "below 1"),
        ({"seq_len": 4}, "8 or more"),
    ],
)
def test_what_cannot_work_is_refused_with_the_remedy(values, problem):
    with pytest.raises(ValueError, match=problem):
        Settings(**values)


@pytest.mark.parametrize("use_lora", [True, False])
def test_re_entrant_checkpointing_is_refused_only_where_ddp_looks_for_unused_parameters(use_lora):
    """What fails and what trains was tried on two ranks; tests/workloads/sft/test_train.py has both sides."""
    settings = Settings(**REENTRANT, **LOOKS, use_lora=use_lora)
    assert settings.rank_problem(1) is None
    assert "ready only once" in str(settings.rank_problem(2))
    for works in ({"ddp_static_graph": True}, {"ddp_find_unused_parameters": False}, {"checkpointing_reentrant": False}):
        assert Settings(**{**REENTRANT, **LOOKS, **works, "use_lora": use_lora}).rank_problem(2) is None


@pytest.fixture
def offline(monkeypatch, tmp_path):
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HTTPS_PROXY", "https_proxy", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(socket, "create_connection", refuse)


def _problems(settings: Settings, cwd: Path, is_seen=lambda path: True) -> list[tuple[str, str]]:
    return settings.source_problems(cwd=cwd, env=os.environ, is_seen=is_seen)


def test_a_hub_id_without_the_hub_stops_before_launch_and_names_the_tiny_model(offline, tmp_path):
    settings = Settings(model="mistralai/Mistral-7B-v0.1", dataset="yahma/alpaca-cleaned")
    [(name, sentence)] = _problems(settings, tmp_path)
    assert name == "model" and "\n" not in sentence
    assert sentence.startswith("model 'mistralai/Mistral-7B-v0.1' and dataset 'yahma/alpaca-cleaned' must be downloaded")
    assert "model=tiny" in sentence and "dataset=generated" in sentence
    assert _problems(Settings(), tmp_path) == []


def test_a_login_node_judges_only_what_nodes_see_too(offline, tmp_path):
    settings = Settings(model="mistralai/Mistral-7B-v0.1", dataset="yahma/alpaca-cleaned")
    cache = tmp_path / "hf" / "hub"
    assert _problems(settings, tmp_path, lambda path: path != cache) == []
    # Its working folder is not shared: there the name may be a folder.
    assert _problems(settings, tmp_path / "work", lambda path: path == cache) == []
    assert len(_problems(settings, tmp_path, lambda path: path.is_relative_to(tmp_path))) == 1
    assert _problems(Settings(model="tinny"), tmp_path, lambda path: False) == []


WHOLE = ("config.json", "model.safetensors", "tokenizer.json")


def _model_folder(folder: Path, *names: str, shards: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("{}")
    if shards:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {name: name for name in shards}}))
    return folder


@pytest.mark.parametrize(
    ("names", "shards", "missing"),
    [
        (WHOLE, (), None),
        (("config.json", "pytorch_model.bin", "tokenizer.model"), (), None),
        (("config.json", "a.safetensors", "b.safetensors", "vocab.json"), ("a.safetensors", "b.safetensors"), None),
        ((), (), "no config.json"),
        (("config.json", "tokenizer.json"), (), "no weights \\(model.safetensors, its index with every shard, or pytorch_model.bin\\)"),
        (("config.json", "a.safetensors", "tokenizer.json"), ("a.safetensors", "b.safetensors"), "no b.safetensors, which"),
        (("config.json", "model.safetensors"), (), "no tokenizer"),
        (("config.json", "model.safetensors.index.json", "tokenizer.json"), (), "no readable model.safetensors.index.json"),
    ],
)
def test_a_local_model_has_config_weights_and_tokenizer(offline, tmp_path, names, shards, missing):
    _model_folder(tmp_path / "model", *names, shards=shards)
    problem = model_problem("model", tmp_path)
    assert problem is None if missing is None else re.search(missing, str(problem))


def test_what_the_cache_or_a_folder_has_needs_no_hub(offline, tmp_path):
    repository = tmp_path / "hf/hub/models--org--small"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    snapshot = _model_folder(repository / "snapshots/abc", *WHOLE)
    (tmp_path / "data.jsonl").write_text("")
    assert hub_problem("org/small", "data.jsonl", cwd=tmp_path) is None
    (snapshot / "model.safetensors").unlink()
    assert "model 'org/small' (the cache has no weights (" in str(hub_problem("org/small", "data.jsonl", cwd=tmp_path))


@pytest.mark.parametrize(
    ("check", "name", "problem"),
    [
        (model_problem, "tinny", "did you mean 'tiny'"),
        (model_problem, "./nowhere/at all", "no such path"),
        (model_problem, "empty", "no config.json"),
        (dataset_problem, "generate", "did you mean 'generated'"),
        (dataset_problem, "gone.jsonl", "no such path"),
        (dataset_problem, "empty", "neither a saved dataset nor"),
        (dataset_problem, "notes.txt", "is not a .json, .jsonl, .parquet file"),
    ],
)
def test_wrong_names_are_refused_with_what_is_near(tmp_path, check, name, problem):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    assert problem in str(check(name, tmp_path))


def test_folders_follow_the_seeds_variables():
    assert results_dir(Settings(run_name="r"), {}) == Path("results/training/r")
    assert results_dir(Settings(run_name="r"), {"RUNS_ROOT": "/shared"}) == Path("/shared/r")
    assert results_dir(Settings(run_name="r", runs_root="here"), {"RUNS_ROOT": "/shared"}) == Path("here/r")
    assert token_cache_dir(Settings(), {"HF_HOME": "/hf"}) == Path("/hf/tokenized")
    assert token_cache_dir(Settings(tok_cache_dir="/tok"), {"HF_HOME": "/hf"}) == Path("/tok")


def test_mistrals_parameters_are_those_the_seed_printed():
    lora = MISTRAL_7B.lora_parameters(8)
    assert (lora, MISTRAL_7B.base_parameters + lora) == (20_971_520, 7_262_703_616)
    assert f"{100 * lora / (MISTRAL_7B.base_parameters + lora):.4f}" == "0.2888"


def test_flops_are_four_for_a_frozen_parameter_six_for_a_trained_one_and_causal_attention():
    shape = model_shape("mistral-7b")
    # The table of embeddings is looked up, not multiplied.
    frozen = shape.base_parameters - shape.embedding_parameters
    attention = 12 * 32 * 4096 * 256.5
    assert shape.flops_per_token(lora_rank=8, context=256.5) == pytest.approx(4 * frozen + 6 * shape.lora_parameters(8) + attention)
    assert shape.flops_per_token(lora_rank=None, context=256.5) == pytest.approx(6 * frozen + attention)


CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512,
}  # fmt: skip


def test_a_shape_is_read_from_a_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "tie_word_embeddings": True}))
    shape = model_shape(str(tmp_path))
    assert (shape.kv_heads, shape.tied, shape.window) == (4, True, None)
    assert shape_of({**CONFIG, "model_type": "mistral", "num_key_value_heads": 2}).window == 4096


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model_type": "mixtral"}, "model_type is 'mixtral', and only llama and mistral"),
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"model_type": None}, "model_type is None"),
        ({"model_type": "mistral"}, "it has no num_key_value_heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; expected a whole number of at least 1"),
        ({"hidden_size": -64}, "hidden_size is -64"),
        ({"vocab_size": "512"}, "vocab_size is '512'"),
        ({"num_key_value_heads": 3}, "do not divide evenly"),
        ({"attention_bias": True}, "attention_bias is set"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is set"),
    ],
)
def test_another_architecture_is_unknown_whatever_its_keys(tmp_path, changes, problem):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    with pytest.raises(UnknownShape, match=problem):
        model_shape(str(tmp_path))
    with pytest.raises(ForecastUnknown, match=problem):
        forecast(Settings(model=str(tmp_path)), world_size=1, cwd=tmp_path)


def test_a_model_that_is_not_here_or_has_no_config_is_unknown(tmp_path):
    for text in ('{"model_type": "llama"}', "[]", "{"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UnknownShape, match=str(tmp_path)):
            model_shape(str(tmp_path))
    with pytest.raises(UnknownShape, match="not known here"):
        model_shape("org/unheard-of")
