"""Real trainings on CPU with tiny models: the loss falls, resuming is bit-exact, and every engine gives the same losses."""

from __future__ import annotations

import functools
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from seatrial.core.checkpoints import file_sizes  # noqa: E402
from seatrial.core.ports import reserve_port  # noqa: E402
from seatrial_workloads.common.checkpoints import save_tensors  # noqa: E402
from seatrial_workloads.common.errors import StartupError  # noqa: E402
from seatrial_workloads.contrastive.checkpointing import resumable_options  # noqa: E402
from seatrial_workloads.contrastive.model import fast_paths  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402
from seatrial_workloads.contrastive.train import main, train  # noqa: E402
from tests.workloads.ranks import Finished, column, events, run_module  # noqa: E402

QUICK = {"device": "cpu", "num_workers": 0, "micro_batch": 8, "lr": 2e-3, "warmup_steps": 2, "eval_batch_size": 4, "log_every": 1}
GOLDEN = Path(__file__).parent / "golden_loss.json"
MODULE = "seatrial_workloads.contrastive.train"


def data_settings(tree: Path) -> dict[str, Any]:
    return {"dataset_root": str(tree), "dataset_manifest_path": str(tree / "manifest.tsv")}


def run(run_dir: Path, tree: Path, *, world_size: int = 1, module: list[str] | None = None, **settings: Any) -> Finished:
    """Ranks with their own rendezvous; `module` replaces the trainer."""
    file = run_dir.with_suffix(".json")
    file.write_text(json.dumps({**QUICK, **data_settings(tree), **settings}))
    arguments = module or [MODULE, "--settings", str(file), "--run-dir", str(run_dir)]
    with reserve_port() as reserved:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserved.port), "LOCAL_WORLD_SIZE": str(world_size)}
        return run_module(arguments, world_size, **place, DS_ACCELERATOR="cpu")


def train_here(run_dir: Path, tree: Path, **settings: Any) -> None:
    """One rank in this process: torch is imported already."""
    train(Settings(**{**QUICK, **data_settings(tree), **settings}), run_dir)


def losses(run_dir: Path, rank: int = 0) -> list[float]:
    return column(run_dir, "loss", rank)


def effective(run_dir: Path) -> dict[str, tuple[Any, Any, str]]:
    return {event["setting"]: (event["requested"], event["effective"], event["reason"]) for event in events(run_dir, "effective")}


def test_a_training_leaves_log_checkpoints_and_events(tree, tmp_path):
    finished = run(tmp_path / "run", tree, steps=60, validation_every_steps=30, checkpoint_every_steps=25, num_workers=2)
    assert finished.returncodes == [0], finished.stderr
    assert finished.stderr == [""]
    assert all(map(math.isfinite, losses(tmp_path / "run")))
    log = (tmp_path / "run" / "train.log").read_text()
    assert "Step 59: Loss" in log
    assert "Validation Finished for Step 30. Avg Loss: " in log
    assert "Timing(window=100): data_wait_ms:p50=" in log
    assert "speech tiny (random weights)" in log
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == "ckpt_iter_59", "the last step has one too"
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["ckpt_iter_59", "latest"]
    found = effective(tmp_path / "run")
    assert found["precision"] == ("auto", "fp32", "CPU: fp32")
    assert found["attn_impl"][:2] == ("auto", "sdpa")
    assert found["tf32"] == (True, False, "no GPU")
    assert found["front_end"][1] is True
    assert found["torch_adam"][:2] == (None, True)
    unused = {"torch_compile_mode": "default", "torch_compile_dynamic": None, "bucket_size": 200_000_000}
    assert {name: found[name][:2] for name in unused} == {name: (value, None) for name, value in unused.items()}
    assert not any(name in log for name in unused), "the log names those that somebody set"
    assert found["speech_model"][2].startswith("caution: a toy model with random weights")
    assert {event["name"] for event in events(tmp_path / "run", "pause")} == {"eval", "checkpoint"}
    audio = events(tmp_path / "run", "figure")[-1]
    assert audio["name"] == "audio_s_per_sample" and 0.025 <= audio["value"] <= 3.0 and audio["n"] > 0


def test_the_loss_falls_below_that_of_a_guess(tree, tmp_path):
    train_here(tmp_path / "run", tree, steps=140, warmup_steps=10, fixed_slice_s=2.0, log_every=50)
    found = losses(tmp_path / "run")
    assert all(map(math.isfinite, found))
    assert statistics.fmean(found[-25:]) < 0.9 * math.log(QUICK["micro_batch"])


def test_the_loss_curve_is_the_golden_one(tree, tmp_path):
    """fp32 on a CPU, to four digits: another CPU may round the last ones differently."""
    train_here(tmp_path / "run", tree, steps=12)
    golden = json.loads(GOLDEN.read_text())
    assert losses(tmp_path / "run") == pytest.approx(golden["loss"], abs=golden["tolerance"])


WHOLE = {"steps": 10, "checkpoint_every_steps": 5, "checkpoint_keep": 2}


def test_resuming_is_bit_exact(tree, tmp_path, capsys):
    train_here(tmp_path / "whole", tree, **WHOLE)
    train_here(tmp_path / "rest", tree, **WHOLE, resume_from=str(tmp_path / "whole/checkpoints/ckpt_iter_5"))
    assert "Resuming after step 5" in capsys.readouterr().out
    assert column(tmp_path / "rest", "step") == [6, 7, 8, 9]
    assert events(tmp_path / "rest", "stop")[0]["steps"] == 10
    assert losses(tmp_path / "rest") == losses(tmp_path / "whole")[6:]


def test_an_attempt_that_goes_on_after_the_last_step_only_ends(tree, tmp_path, monkeypatch):
    """Killed between its last checkpoint and its end."""
    train_here(tmp_path / "whole", tree, **WHOLE)
    monkeypatch.setenv("SEATRIAL_RESUME_FROM", str(tmp_path / "whole"))
    train_here(tmp_path / "rest", tree, **WHOLE)
    assert events(tmp_path / "rest", "step") == [] and events(tmp_path / "rest", "stop")[0]["steps"] == 10


@pytest.mark.parametrize("changed", [{"seed": 7}, {"micro_batch": 4}])
def test_another_training_cannot_resume_from_a_checkpoint(changed, tree, tmp_path):
    train_here(tmp_path / "whole", tree, steps=3, checkpoint_every_steps=2)
    (name,) = changed
    with pytest.raises(ValueError, match=f"was saved with {name} .*resume with {name}"):
        train_here(tmp_path / "rest", tree, steps=5, resume_from=str(tmp_path / "whole"), **changed)


def test_a_changed_setting_is_logged_on_resume(tree, tmp_path, capsys):
    train_here(tmp_path / "whole", tree, steps=3, checkpoint_every_steps=2)
    train_here(tmp_path / "rest", tree, steps=5, resume_from=str(tmp_path / "whole"), gradient_clipping=0.5)
    assert "gradient_clipping was 1.0 and is now 0.5" in capsys.readouterr().out


def test_batches_are_created_by_the_workers(tree, tmp_path, monkeypatch):
    from seatrial_workloads.contrastive.loading.dataset import SpeechTextBatches

    created_by = []
    plain = SpeechTextBatches.__getitem__
    monkeypatch.setattr(SpeechTextBatches, "__getitem__", lambda self, rows: created_by.append(os.getpid()) or plain(self, rows))
    train_here(tmp_path / "run", tree, steps=4, num_workers=2)
    assert created_by == [], "workers keep their own list"
    assert all(step["preprocess_ms"] < step["iter_ms"] for step in events(tmp_path / "run", "step"))


ENGINES = ("ddp:0", "deepspeed:0", "deepspeed:1", "deepspeed:2", "deepspeed:3")


@pytest.fixture(scope="module")
def like_one(tmp_path_factory) -> dict[str, Any]:
    """Settings with which two ranks train like one: without dropout and masks, which differ by rank."""
    speech_model = str(without_dropout(tmp_path_factory.mktemp("speech")))
    more = {"mask_time_prob": 0.0, "speech_model": speech_model, "fixed_slice_s": 1.0}
    return {**QUICK, "steps": 4, "validation_every_steps": 3, **more}


@pytest.fixture(scope="module")
def two_ranks(tree, like_one, tmp_path_factory, one_at_a_time) -> Path:
    """Trainings of two ranks, all in one start."""
    folder = tmp_path_factory.mktemp("two_ranks")
    gathered = folder / "gathered.json"
    gathered.write_text(json.dumps({**like_one, "micro_batch": 4, "gather_negatives": True}))
    settings = {**QUICK, **data_settings(tree), "steps": 5, "micro_batch": 4}
    program = ["tests.workloads.contrastive.engines_in_turn", str(folder), json.dumps(settings), f"ddp:0@{gathered}", *ENGINES]
    with one_at_a_time:
        finished = run(folder / "unused", tree, world_size=2, module=program)
    assert finished.returncodes == [0, 0], finished.stderr
    # transformers' own bar where it reads weights from a folder.
    lines = [line for text in finished.stderr for line in text.splitlines() if line.strip() and "Loading weights" not in line]
    assert lines == []
    return folder


def test_every_engine_and_stage_has_the_same_losses(two_ranks):
    expected = losses(two_ranks / "ddp-0")
    assert len(expected) == 5
    for engine in ENGINES[1:]:
        folder = two_ranks / engine.replace(":", "-")
        assert losses(folder) == pytest.approx(expected, rel=1e-4), engine
        assert losses(folder, rank=1) == pytest.approx(losses(two_ranks / "ddp-0", rank=1), rel=1e-4), engine
        assert len(events(folder, "stop")) == 1
    assert effective(two_ranks / "deepspeed-3")["front_end"][1] is False
    assert "AdamW" in effective(two_ranks / "deepspeed-0")["optimizer"][1]


def test_two_ranks_with_gathered_negatives_train_like_one(two_ranks, like_one, tree, tmp_path):
    """Two ranks of four rows train like one rank of eight."""
    train_here(tmp_path / "one", tree, **like_one)
    two = two_ranks / "gathered"
    means = [sum(pair) / 2 for pair in zip(losses(two), losses(two, rank=1), strict=True)]
    assert means == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    validated = [(folder / "train.log").read_text().split("Avg Loss: ")[1][:6] for folder in (tmp_path / "one", two)]
    assert float(validated[0]) == pytest.approx(float(validated[1]), abs=2e-3), "the same batches, whatever the number of ranks"


def without_dropout(folder: Path) -> Path:
    """A tiny wav2vec2 without dropout, in a folder as the hub has them."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    from seatrial_workloads.contrastive.model.shapes import SPEECH_CONFIGS

    none = dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout"), 0.0)
    torch.manual_seed(5)
    Wav2Vec2Model(Wav2Vec2Config(**SPEECH_CONFIGS["tiny"], **none)).save_pretrained(folder / "speech")
    return folder / "speech"


def test_plain_modules_and_fast_paths_have_the_same_losses(tree, tmp_path):
    train_here(tmp_path / "fast", tree, steps=5)
    train_here(tmp_path / "plain", tree, steps=5, fast_paths=False)
    assert losses(tmp_path / "fast") == pytest.approx(losses(tmp_path / "plain"), rel=1e-3)
    assert effective(tmp_path / "plain")["front_end"] == (False, False, "as requested")
    found = effective(tmp_path / "fast")
    assert found["fast_paths"][:2] == ("all", "front_end,positions")
    assert found["tower_graph"] == found["text_graph"] == (True, False, "no GPU: device is cpu")
    # What is not asked for is recorded too: a group that has it can be told from one that has not.
    assert {"torch_compile", "mixed_precision", "precision", "model_load_dtype", "optimizer"} <= found.keys()


@pytest.mark.parametrize("settings", [{}, {"torch_compile_dynamic": True}, {"torch_compile_dynamic": True, "fast_paths": False}])
def test_a_compiled_training_compiles_nothing_in_its_steps_and_computes_the_same(settings, tree, tmp_path, monkeypatch):
    """Batches of random slices differ in length. aot_eager traces forward and backward as inductor does, in seconds."""
    monkeypatch.setattr(fast_paths, "compile_or_fall_back", functools.partial(fast_paths.compile_or_fall_back, backend="aot_eager"))
    torch._dynamo.reset()
    common = {"steps": 10, "micro_batch": 2, "speech_model": str(without_dropout(tmp_path)), "fast_paths": settings.get("fast_paths", True)}
    train_here(tmp_path / "plain", tree, **common)
    train_here(tmp_path / "compiled", tree, torch_compile=True, **{**common, **settings})
    found = effective(tmp_path / "compiled")
    assert found["torch_compile"][:2] == (True, True) and found["torch_compile_mode"][1] == "default"
    # Without the fast path for positions a CPU has one shape for all batches.
    assert found["torch_compile_dynamic"][1] is (settings.get("torch_compile_dynamic", False) and "fast_paths" not in settings)
    assert [event["value"] for event in events(tmp_path / "compiled", "figure") if event["name"] == "recompiles"] == [0.0] * 10
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), rel=1e-3)


@pytest.mark.parametrize("by", ["setting", "harness"])
def test_a_checkpoint_from_before_aligned_weights_is_resumed_without(by, tmp_path, monkeypatch):
    folder = tmp_path / "old" / "checkpoints" / "ckpt_iter_5"
    folder.mkdir(parents=True)
    save_tensors(folder / "training.pt", {"updates": 6})
    info = {"engine": "deepspeed", "zero_stage": 1, "world_size": 1, "step": 5, "seed": 0, "settings": {}}
    (folder / "checkpoint.json").write_text(json.dumps({**info, "files": file_sizes(folder)}))
    settings = Settings(engine="deepspeed", zero_stage=1, resume_from=str(tmp_path / "old") if by == "setting" else None)
    if by == "harness":
        monkeypatch.setenv("SEATRIAL_RESUME_FROM", str(tmp_path / "old"))
    assert resumable_options(settings).parameter_alignment is False


def test_a_training_starts_from_pretrained_weights(tree, tmp_path, capsys):
    train_here(tmp_path / "first", tree, steps=7, checkpoint_every_steps=6)
    weights = tmp_path / "first" / "checkpoints" / "ckpt_iter_6" / "model.pt"
    train_here(tmp_path / "second", tree, steps=2, pretrained_checkpoint=str(weights))
    assert "missing keys of the frozen encoders, which stay unchanged: text.embeddings" in capsys.readouterr().out
    assert losses(tmp_path / "second")[0] != losses(tmp_path / "first")[0]


def test_missing_and_unexpected_trainable_keys_are_logged(tree, tmp_path, capsys):
    train_here(tmp_path / "first", tree, steps=3, checkpoint_every_steps=2)
    saved = torch.load(tmp_path / "first" / "checkpoints" / "ckpt_iter_2" / "model.pt", weights_only=True)["model"]
    saved["odd.weight"] = saved.pop("tower.pooling.project.bias")
    torch.save(saved, tmp_path / "other.pth")
    train_here(tmp_path / "second", tree, steps=1, pretrained_checkpoint=str(tmp_path / "other.pth"))
    log = capsys.readouterr().out
    assert "1 missing keys: tower.pooling.project.bias" in log
    assert "1 unexpected keys: odd.weight" in log


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"pretrained_checkpoint": "nowhere.pth"}, "pretrained_checkpoint"),
        ({"resume_from": "nowhere"}, "resume_from"),
        ({"dataset_root": "nowhere"}, "dataset_root"),
        ({"micro_batch": 5000}, "micro_batch"),
        ({"speech_model": "no/where/at/all"}, "speech_model"),
    ],
)
def test_a_startup_error_names_the_setting(settings, problem, tree, tmp_path):
    with pytest.raises(StartupError, match=problem):
        train_here(tmp_path / "run", tree, steps=2, **settings)
    assert events(tmp_path / "run", "step") == events(tmp_path / "run", "stop") == []


def test_a_startup_error_is_one_line_and_a_used_folder_is_refused(tree, tmp_path, capsys):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({**QUICK, **data_settings(tree), "steps": 2}))
    argv = ["--settings", str(file), "--run-dir", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match=r"^contrastive: error: micro_batch .* use micro_batch=32"):
        main([*argv, "--micro_batch", "5000"])
    main(argv)
    with pytest.raises(SystemExit, match="holds an earlier run"):
        main(argv)


def test_no_checkpoint_if_the_interval_exceeds_the_run(tree, tmp_path):
    train_here(tmp_path / "run", tree, steps=3, checkpoint_every_steps=1_000_000)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_single_bucket_is_recorded_as_without_effect(tree, tmp_path):
    train_here(tmp_path / "run", tree, steps=2, length_buckets=True, bucket_boundaries_s="10,20")
    assert effective(tmp_path / "run")["length_buckets"][:2] == (True, False)
