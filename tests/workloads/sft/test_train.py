"""Real trainings on one and two CPU ranks: DDP, FSDP and one process agree, and leave their files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.facts import states

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from seatrial.collect.logs.diagnosis import diagnose  # noqa: E402
from seatrial.core.checkpoints import find_checkpoints  # noqa: E402
from seatrial.records.outcome import Cause  # noqa: E402
from seatrial_workloads.common.errors import NotFinite, StartupError  # noqa: E402
from seatrial_workloads.sft import train as sft  # noqa: E402
from seatrial_workloads.sft.settings import Settings  # noqa: E402
from seatrial_workloads.sft.shapes import TINY  # noqa: E402
from tests.workloads.ranks import column, events, rank_environment  # noqa: E402
from tests.workloads.sft.trainings import FAILING, SHORT, TRAININGS, train  # noqa: E402

SEED_FIELDS = {
    "wall_time_s", "approx_tokens_per_rank", "approx_tokens_per_s_per_rank", "world_size", "gpu0", "torch", "model", "dataset",
    "use_lora", "bf16", "gradient_checkpointing",
}  # fmt: skip
ON_TWO_RANKS = tuple(name for name in TRAININGS if name != "alone")
LONGEST_S = 280


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of the trainings, and their results on each rank."""
    out = tmp_path_factory.mktemp("two_ranks")
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "tests.workloads.sft.trainings"]
    env = {**rank_environment(0, 1), "HF_HOME": str(out / "hf")}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        env.pop(name, None)
    done = subprocess.run([*argv, str(out), *ON_TWO_RANKS], env=env, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (out / "stdout").write_text(done.stdout)
    return out, [json.loads((out / f"results_rank{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SEATRIAL_RUN_DIR"):
            patch.delenv(name, raising=False)
        return out / "alone", train("alone", out)


def test_one_process_ddp_and_fsdp_have_the_same_losses(two_ranks, alone):
    _, (first, second) = two_ranks
    expected = alone[1]["losses"]
    assert len(expected) == SHORT["steps"] and expected[-1] < expected[0]
    for name in ("ddp", "fsdp", "checkpointed", "fsdp_checkpointed", "reentrant_static", "reentrant"):
        assert first[name]["losses"] == pytest.approx(expected, rel=1e-5), name
        assert second[name]["losses"] == first[name]["losses"], name
    assert first["fsdp_full"]["losses"] == pytest.approx(first["ddp_full"]["losses"], rel=1e-5)
    assert first["fsdp_bf16"]["losses"] == pytest.approx(expected, rel=5e-3)


def test_fsdp_shards_every_parameter_and_a_rank_holds_half_of_the_bytes(two_ranks):
    _, by_rank = two_ranks
    for results in by_rank:
        for name in ("fsdp", "fsdp_full", "fsdp_bf16"):
            placed = results[name]
            assert placed["all_sharded"] and placed["held_bytes"] * 2 == placed["whole_bytes"], name
        assert not results["ddp"]["all_sharded"] and results["ddp"]["held_bytes"] == results["ddp"]["whole_bytes"]


def test_the_strategy_in_effect_is_recorded_and_the_ranks_have_other_examples(two_ranks):
    out, _ = two_ranks
    for name in ("ddp", "fsdp"):
        (event,) = [event for event in events(out / name, "effective") if event["setting"] == "strategy"]
        assert (event["requested"], event["effective"]) == (name, name)
        ids = json.loads((out / name / "sample_ids.json").read_text())
        first, second = ({number for step in ids[rank] for number in step} for rank in "01")
        assert len(first) == len(second) == SHORT["steps"] * SHORT["micro_batch"] and not first & second
        metrics = json.loads((out / name / "metrics.json").read_text())
        assert metrics["samples_disjoint"] is True and metrics["strategy"] == name
        assert set(metrics) >= SEED_FIELDS and ("fsdp" in metrics) == (name == "fsdp")
    stdout = (out / "stdout").read_text()
    assert stdout.index("trainable params: 16,384 || all params: 155,968 || trainable%: 10.5047") < stdout.index("'loss'")
    assert stdout.count("METRICS: {") == len(ON_TWO_RANKS) - len(FAILING), "rank 0 alone prints"


def test_events_count_real_tokens_and_packing_pads_less(two_ranks):
    out, (results, _) = two_ranks
    for name in ("ddp", "packed"):
        assert column(out / name, "step", 1) == list(range(SHORT["steps"]))
        tokens = sum(sum(column(out / name, "tokens", rank)[results[name]["steps"] - results[name]["steady_steps"] :]) for rank in (0, 1))
        assert tokens == results[name]["steady_real_tokens"] <= results[name]["steady_padded_tokens"]
    assert results["packed"]["real_token_share"] > results["ddp"]["real_token_share"]
    assert sum(column(out / "packed", "samples")) > sum(column(out / "ddp", "samples"))


def test_a_stopped_training_goes_on_under_either_strategy_as_if_it_had_not_stopped(two_ranks):
    out, (results, _) = two_ranks
    for name in ("ddp_resumed", "fsdp_resumed"):
        assert results[name]["losses"] == pytest.approx(results["ddp"]["losses"][2:], rel=1e-5), name
        assert column(out / name, "step") == [2, 3]
        resumed = results[name]
        # Figures are of this attempt.
        assert (resumed["first_step"], resumed["steps"], resumed["steady_steps"]) == (2, 2, 1)
        assert resumed["approx_tokens_per_rank"] == 2 * SHORT["micro_batch"] * SHORT["seq_len"]
    (whole,) = find_checkpoints(out / "fsdp_stopped" / "checkpoints").whole
    assert (whole.step, whole.world_size) == (1, 2)


def test_all_ranks_end_at_a_loss_that_is_not_finite(two_ranks):
    out, by_rank = two_ranks
    first, second = (results["not_finite"]["error"] for results in by_rank)
    assert first == second and re.match(r"loss is not finite \(nan\) at step [23], nan_loss: ", first)
    assert not (out / "not_finite" / "metrics.json").exists() and not (out / "not_finite" / "checkpoints").exists()
    found = diagnose(1, [f"sft: {first}"])
    assert found.cause is Cause.NAN


def test_a_loss_that_is_not_finite_leaves_no_checkpoint_though_it_is_read_seldom(by_hand, tmp_path):
    with pytest.raises(NotFinite, match="at step 4"):
        by_hand("run", lr=1e20, steps=4, log_every=100)
    assert not (tmp_path / "run" / "checkpoints").exists() and not (tmp_path / "run" / "metrics.json").exists()


def test_a_line_says_that_the_first_step_compiles(by_hand, monkeypatch, capsys):
    monkeypatch.setattr(sft.Training, "compiles", True)
    by_hand("run")
    said = capsys.readouterr().out
    assert said.index(sft.COMPILING) < said.index("'loss'")


def test_ddp_marks_a_weight_ready_twice_exactly_where_preflight_says_so(two_ranks):
    _, (results, _) = two_ranks
    assert "Expected to mark a variable ready only once" in results["ready_twice"]["error"]
    assert Settings(**TRAININGS["ready_twice"]).rank_problem(2)


def test_adapters_of_both_strategies_load_and_merge(two_ranks):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    out, _ = two_ranks
    merged = [AutoModelForCausalLM.from_pretrained(out / name / "merged") for name in ("ddp_resumed", "fsdp_resumed")]
    for ours, theirs in zip(merged[0].state_dict().values(), merged[1].state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    base = sft.build_model(Settings(use_lora=False), torch.device("cpu"))[0]
    ids = torch.arange(3, 40)[None]
    plain = base(ids).logits
    adapted = PeftModel.from_pretrained(base, out / "fsdp_resumed" / "adapter").eval()(ids).logits
    torch.testing.assert_close(adapted, merged[1].eval()(ids).logits, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(adapted, plain, atol=1e-3)


def test_one_rank_leaves_the_seeds_files_and_honest_figures(alone):
    folder, results = alone
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["approx_tokens_per_rank"] == metrics["approx_tokens"] == 4 * 2 * 96, "the seed leaves out gradient accumulation"
    assert metrics["steps"] == 4 and metrics["steady_padded_tokens"] == 3 * 2 * 2 * 96
    assert 0 < metrics["steady_real_tokens"] < metrics["steady_padded_tokens"]
    assert (metrics["mfu"], metrics["peak_tflops_per_gpu"]) == (None, None) and "CPU" in metrics["mfu_reason"]
    lora = TINY.lora_parameters(8)
    assert (metrics["trainable_parameters"], metrics["all_parameters"]) == (lora, TINY.base_parameters + lora) == (16_384, 155_968)
    assert metrics["peak_rss_mib"] > 50 and metrics["peak_memory_mib"] is None
    assert metrics["losses"] == results["losses"] == pytest.approx(column(folder, "loss"))
    assert [span["name"] for span in events(folder, "span")][:3] == ["tokenise", "process_group", "model"]
    (strategy,) = [event for event in events(folder, "effective") if event["setting"] == "strategy"]
    assert (strategy["effective"], strategy["reason"]) == ("none", "one rank: nothing is shared")


@pytest.fixture
def by_hand(tmp_path, monkeypatch):
    """Runs in this process, one after another, into folders below tmp_path."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SEATRIAL_RUN_DIR", "SEATRIAL_RESUME_FROM"):
        monkeypatch.delenv(name, raising=False)
    common = {**SHORT, "steps": 2, "micro_batch": 1, "tok_cache_dir": str(tmp_path / "tokenized")}

    def run(folder: str, **changes: Any) -> dict[str, Any]:
        return sft.run(Settings(**{**common, **changes}), tmp_path / folder, run_args=changes)

    return run


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_an_earlier_run_in_the_folder_stays_until_the_new_one_starts_and_is_then_set_aside(by_hand, tmp_path, capsys):
    by_hand("run", lr=1e-3)
    before = _files(tmp_path / "run")
    assert {"metrics.json", "run_args.json", "sample_ids.json", "events_rank0.jsonl"} <= set(before)
    for refused in ({"model": "tinny"}, {"subset_size": 1, "micro_batch": 2}, {"loss_on": "response", "seq_len": 16}):
        with pytest.raises(StartupError):
            by_hand("run", **refused)
        assert _files(tmp_path / "run") == before, refused
    (tmp_path / "run" / "notes.txt").write_text("mine")
    capsys.readouterr()
    by_hand("run", lr=2e-3)
    assert "now in" in capsys.readouterr().out
    assert _files(tmp_path / "run" / "earlier" / "1") == before and (tmp_path / "run" / "notes.txt").exists()
    assert column(tmp_path / "run", "step") == [0, 1] and json.loads((tmp_path / "run" / "run_args.json").read_text()) == {"lr": 2e-3}
    # A run that fails after its start leaves no figures of the one before.
    with pytest.raises(NotFinite):
        by_hand("run", lr=1e20, steps=4)
    assert not (tmp_path / "run" / "metrics.json").exists() and (tmp_path / "run" / "earlier" / "2" / "metrics.json").exists()


def test_resuming_a_finished_run_trains_no_further_step(by_hand, tmp_path, capsys):
    by_hand("run")
    before = _files(tmp_path / "run")
    for folder in ("run", "other"):
        assert by_hand(folder, resume_from=str(tmp_path / "run")) == {}
        assert "nothing left to train" in capsys.readouterr().out
    assert _files(tmp_path / "run") == before
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["adapter"], "only its end was missing"


@pytest.mark.parametrize(
    "change",
    [{"lora_alpha": 8}, {"lora_dropout": 0.1}, {"recipe": "seed"}, {"append_eos": False}, {"lr": 1.0}, {"precision": "bf16"}],
)
def test_what_changes_the_mathematics_is_no_resumption(change, finished, by_hand):
    with pytest.raises(StartupError, match=f"was saved with {next(iter(change))} "):
        by_hand("resumed", resume_from=str(finished), **change)


def test_a_training_goes_on_to_more_steps_and_says_what_that_changes(finished, by_hand, tmp_path, capsys):
    assert by_hand("longer", resume_from=str(finished), steps=4)["first_step"] == 2
    assert states(capsys.readouterr().out, "step 4", 2, "learning rate")
    assert column(tmp_path / "longer", "step") == [2, 3]


def test_fewer_steps_than_are_done_are_refused(finished, by_hand):
    with pytest.raises(StartupError, match="has 2 steps done, and steps is 1: raise steps, or start over"):
        by_hand("shorter", resume_from=str(finished), steps=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run by hand."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SEATRIAL_RUN_DIR"):
            patch.delenv(name, raising=False)
        settings = Settings(**{**SHORT, "steps": 2, "micro_batch": 1, "tok_cache_dir": str(folder / "tokenized")})
        sft.run(settings, folder / "run", run_args={})
    return folder / "run"


def test_every_step_has_the_same_number_of_sequences_over_epochs(by_hand, tmp_path):
    """Ten sequences: the Trainer by itself makes the fourth step of each epoch of one."""
    metrics = by_hand("run", steps=7, subset_size=10, grad_accum=3)
    ids = json.loads((tmp_path / "run" / "sample_ids.json").read_text())["0"]
    assert [len(step) for step in ids] == [3] * 7
    epochs = [[number for step in ids[first : first + 3] for number in step] for first in (0, 3)]
    assert all(len(set(epoch)) == 9 for epoch in epochs) and epochs[0] != epochs[1]
    assert metrics["steady_padded_tokens"] == metrics["steady_steps"] * 3 * SHORT["seq_len"]
    with pytest.raises(StartupError, match="has 2 sequences, and one step of 1 ranks takes 3"):
        by_hand("few", subset_size=2, grad_accum=3)


OTHER_ARCHITECTURES: dict[str, tuple[dict[str, Any], set[str], str]] = {
    "gpt2": ({"n_embd": 32, "n_layer": 1, "n_head": 2}, {"c_attn", "c_proj", "c_fc"}, "sdpa"),
    "phi3": ({"num_key_value_heads": 2}, {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}, "sdpa"),
    "gemma2": ({"num_key_value_heads": 2, "head_dim": 16}, set(sft.TARGETS), "eager"),
}


@pytest.mark.parametrize("model_type", OTHER_ARCHITECTURES)
def test_another_architecture_trains_with_the_linear_layers_it_has(model_type, tmp_path, monkeypatch):
    from transformers import AutoConfig, AutoModelForCausalLM

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SEATRIAL_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    sizes, adapted, attention = OTHER_ARCHITECTURES[model_type]
    common = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2} if "n_embd" not in sizes else {}
    config = AutoConfig.for_model(model_type, vocab_size=512, bos_token_id=1, eos_token_id=2, pad_token_id=2, **common, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    sft.build_tokenizer(Settings()).save_pretrained(tmp_path / "model")
    chosen = {**SHORT, "steps": 2, "model": str(tmp_path / "model"), "tok_cache_dir": str(tmp_path / "tokenized")}
    metrics = sft.run(Settings(**chosen, merge_adapter=True), tmp_path / "run", run_args={})
    assert len(metrics["losses"]) == 2 and metrics["model_tflops"] is None and f"model_type is '{model_type}'" in metrics["mfu_reason"]
    effective = {event["setting"]: event for event in events(tmp_path / "run", "effective")}
    assert effective["attn_impl"]["effective"] == attention
    assert "written for Llama's and Mistral's layers" in effective["fast_paths"]["reason"]
    if adapted != set(sft.TARGETS):
        assert set(effective["use_lora"]["reason"].removeprefix("adapters on ").split(", ")) == adapted


def test_a_model_without_linear_layers_is_refused_with_those_it_has():
    from seatrial_workloads.sft.model import add_lora

    with pytest.raises(StartupError, match="its linear layers are none; use use_lora=false"):
        add_lora(torch.nn.Sequential(torch.nn.Embedding(4, 4)), Settings())


def test_what_cannot_start_is_refused_before_a_file_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(StartupError, match="MASTER_PORT is not set"):
        sft.run(Settings(), tmp_path / "run", run_args={})
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(StartupError, match="ready only once"):
        sft.run(Settings(**TRAININGS["ready_twice"]), tmp_path / "run", run_args={})
    assert not (tmp_path / "run").exists() and "MASTER_ADDR" not in os.environ
