"""Real trainings on CPU with tiny models: the loss falls, goes on after a checkpoint to the bit, and is the same whoever trains."""

from __future__ import annotations

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

from seatrial.ports import reserve_port  # noqa: E402
from seatrial_workloads.common.startup_error import StartupError  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402
from seatrial_workloads.contrastive.train import main, train  # noqa: E402
from tests.workloads.ranks import Finished, column, events, run_module  # noqa: E402

QUICK = {"device": "cpu", "num_workers": 0, "micro_batch": 8, "lr": 2e-3, "warmup_steps": 2, "eval_batch_size": 4, "log_every": 1}
GOLDEN = Path(__file__).parent / "golden_loss.json"
MODULE = "seatrial_workloads.contrastive.train"


def data_settings(tree: Path) -> dict[str, Any]:
    return {"dataset_root": str(tree), "dataset_manifest_path": str(tree / "manifest.tsv")}


def run(run_dir: Path, tree: Path, *, world_size: int = 1, module: list[str] | None = None, **settings: Any) -> Finished:
    """Ranks with a rendezvous of their own; `module` stands in for the trainer."""
    file = run_dir.with_suffix(".json")
    file.write_text(json.dumps({**QUICK, **data_settings(tree), **settings}))
    words = module or [MODULE, "--settings", str(file), "--run-dir", str(run_dir)]
    with reserve_port() as reserved:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserved.port), "LOCAL_WORLD_SIZE": str(world_size)}
        return run_module(words, world_size, **place, DS_ACCELERATOR="cpu")


def train_here(run_dir: Path, tree: Path, **settings: Any) -> None:
    """One rank in this process: torch is imported already."""
    train(Settings(**{**QUICK, **data_settings(tree), **settings}), run_dir)


def losses(run_dir: Path, rank: int = 0) -> list[float]:
    return column(run_dir, "loss", rank)


def effective(run_dir: Path) -> dict[str, tuple[Any, Any, str]]:
    return {event["setting"]: (event["requested"], event["effective"], event["reason"]) for event in events(run_dir, "effective")}


def test_lines_checkpoints_and_validation_are_there(tree, tmp_path):
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
    told = effective(tmp_path / "run")
    assert told["precision"] == ("auto", "fp32", "CPU: fp32")
    assert told["attn_impl"][:2] == ("auto", "sdpa")
    assert told["tf32"] == (True, False, "no GPU")
    assert told["front_end"][1] is True
    assert {event["name"] for event in events(tmp_path / "run", "pause")} == {"eval", "checkpoint"}


def test_loss_falls_well_below_that_of_a_guess(tree, tmp_path):
    train_here(tmp_path / "run", tree, steps=250, lr=1e-3, warmup_steps=10, fixed_slice_s=2.0, log_every=50)
    found = losses(tmp_path / "run")
    assert all(map(math.isfinite, found))
    assert statistics.fmean(found[-25:]) < 0.9 * math.log(QUICK["micro_batch"])


def test_curve_is_the_golden_one(tree, tmp_path):
    """fp32 on a CPU. The figures are kept to four digits: another CPU may round the last ones otherwise."""
    train_here(tmp_path / "run", tree, steps=12)
    golden = json.loads(GOLDEN.read_text())
    assert losses(tmp_path / "run") == pytest.approx(golden["loss"], abs=golden["tolerance"])


WHOLE = {"steps": 10, "checkpoint_every_steps": 5, "checkpoint_keep": 2}


def test_training_goes_on_after_a_checkpoint_to_the_bit(tree, tmp_path, capsys):
    train_here(tmp_path / "whole", tree, **WHOLE)
    train_here(tmp_path / "rest", tree, **WHOLE, resume_from=str(tmp_path / "whole/checkpoints/ckpt_iter_5"))
    assert "Going on after step 5" in capsys.readouterr().out
    assert column(tmp_path / "rest", "step") == [6, 7, 8, 9]
    assert events(tmp_path / "rest", "stop")[0]["steps"] == 10
    assert losses(tmp_path / "rest") == losses(tmp_path / "whole")[6:]


@pytest.mark.parametrize("changed", [{"seed": 7}, {"micro_batch": 4}, {"text_model": "base"}])
def test_another_training_does_not_go_on_after_a_checkpoint(changed, tree, tmp_path):
    train_here(tmp_path / "whole", tree, steps=3, checkpoint_every_steps=2)
    (name,) = changed
    with pytest.raises(ValueError, match=f"was saved with {name} .*resume with {name}"):
        train_here(tmp_path / "rest", tree, steps=5, resume_from=str(tmp_path / "whole"), **changed)


def test_a_changed_setting_is_told_when_training_goes_on(tree, tmp_path, capsys):
    train_here(tmp_path / "whole", tree, steps=3, checkpoint_every_steps=2)
    train_here(tmp_path / "rest", tree, steps=5, resume_from=str(tmp_path / "whole"), gradient_clipping=0.5)
    assert "gradient_clipping was 1.0 and is 0.5 from here on" in capsys.readouterr().out


def test_audio_and_text_are_made_ready_by_the_workers(tree, tmp_path, monkeypatch):
    from seatrial_workloads.contrastive.loading.dataset import SpeechTextBatches

    made_by = []
    plain = SpeechTextBatches.__getitem__
    monkeypatch.setattr(SpeechTextBatches, "__getitem__", lambda self, rows: made_by.append(os.getpid()) or plain(self, rows))
    train_here(tmp_path / "run", tree, steps=4, num_workers=2)
    assert made_by == [], "workers keep their own list"
    assert all(step["preprocess_ms"] < step["iter_ms"] for step in events(tmp_path / "run", "step"))


@pytest.mark.usefixtures("one_at_a_time")
def test_deepspeed_goes_on_after_a_checkpoint_to_the_bit(tree, tmp_path):
    settings = {**WHOLE, "engine": "deepspeed", "zero_stage": 1}
    assert run(tmp_path / "whole", tree, **settings).returncodes == [0]
    finished = run(tmp_path / "rest", tree, **settings, resume_from=str(tmp_path / "whole/checkpoints/ckpt_iter_5"))
    assert finished.returncodes == [0], finished.stderr
    assert losses(tmp_path / "rest") == losses(tmp_path / "whole")[6:]


@pytest.mark.usefixtures("one_at_a_time")
def test_every_engine_and_stage_gives_the_same_losses(tree, tmp_path):
    engines = ["ddp:0", "deepspeed:0", "deepspeed:1", "deepspeed:2", "deepspeed:3"]
    settings = {**QUICK, **data_settings(tree), "steps": 5, "micro_batch": 4}
    program = ["tests.workloads.contrastive.engines_in_turn", str(tmp_path), json.dumps(settings), *engines]
    finished = run(tmp_path / "unused", tree, world_size=2, module=program)
    assert finished.returncodes == [0, 0], finished.stderr
    assert finished.stderr == ["", ""]
    expected = losses(tmp_path / "ddp-0")
    assert len(expected) == 5
    for word in engines[1:]:
        folder = tmp_path / word.replace(":", "-")
        assert losses(folder) == pytest.approx(expected, rel=1e-4), word
        assert losses(folder, rank=1) == pytest.approx(losses(tmp_path / "ddp-0", rank=1), rel=1e-4), word
        assert len(events(folder, "stop")) == 1
    assert effective(tmp_path / "deepspeed-3")["front_end"][1] is False
    assert "AdamW" in effective(tmp_path / "deepspeed-0")["optimizer"][1]


def test_negatives_of_all_ranks_make_two_ranks_one(tree, tmp_path):
    """Two ranks of four rows that see each other's rows train as one rank of eight; dropout and masks off, which differ by rank."""
    shared = {
        "steps": 4,
        "validation_every_steps": 3,
        "mask_time_prob": 0.0,
        "speech_model": str(undropped(tmp_path)),
        "fixed_slice_s": 1.0,
    }
    train_here(tmp_path / "one", tree, **shared)
    finished = run(tmp_path / "two", tree, world_size=2, micro_batch=4, gather_negatives=True, **shared)
    assert finished.returncodes == [0, 0], finished.stderr
    means = [sum(pair) / 2 for pair in zip(losses(tmp_path / "two"), losses(tmp_path / "two", rank=1), strict=True)]
    assert means == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    validated = [(tmp_path / name / "train.log").read_text().split("Avg Loss: ")[1][:6] for name in ("one", "two")]
    assert float(validated[0]) == pytest.approx(float(validated[1]), abs=2e-3), "the same batches, whatever the number of ranks"


def undropped(folder: Path) -> Path:
    """A tiny wav2vec2 without dropout, in a folder as the hub has them."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    from seatrial_workloads.contrastive.sources import SPEECH_CONFIGS

    none = dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout"), 0.0)
    torch.manual_seed(5)
    Wav2Vec2Model(Wav2Vec2Config(**SPEECH_CONFIGS["tiny"], **none)).save_pretrained(folder / "speech")
    return folder / "speech"


def test_plain_modules_and_fast_parts_train_alike(tree, tmp_path):
    train_here(tmp_path / "fast", tree, steps=5)
    train_here(tmp_path / "plain", tree, steps=5, fast_paths=False)
    assert losses(tmp_path / "fast") == pytest.approx(losses(tmp_path / "plain"), rel=1e-3)
    assert effective(tmp_path / "plain")["front_end"] == (False, False, "as requested")


def test_weights_of_a_checkpoint_start_another_training(tree, tmp_path, capsys):
    train_here(tmp_path / "first", tree, steps=7, checkpoint_every_steps=6)
    weights = tmp_path / "first" / "checkpoints" / "ckpt_iter_6" / "model.pt"
    train_here(tmp_path / "second", tree, steps=2, pretrained_checkpoint=str(weights))
    assert "keys of the frozen encoders missing in it, which stay as they are: text.embeddings" in capsys.readouterr().out
    assert losses(tmp_path / "second")[0] != losses(tmp_path / "first")[0]


def test_keys_that_were_to_be_trained_are_listed_by_name(tree, tmp_path, capsys):
    train_here(tmp_path / "first", tree, steps=3, checkpoint_every_steps=2)
    saved = torch.load(tmp_path / "first" / "checkpoints" / "ckpt_iter_2" / "model.pt", weights_only=True)["model"]
    saved["odd.weight"] = saved.pop("tower.pooling.project.bias")
    torch.save(saved, tmp_path / "other.pth")
    train_here(tmp_path / "second", tree, steps=1, pretrained_checkpoint=str(tmp_path / "other.pth"))
    said = capsys.readouterr().out
    assert "1 keys missing in it: tower.pooling.project.bias" in said
    assert "1 keys unexpected in it: odd.weight" in said


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
def test_what_is_missing_is_said_with_the_setting(settings, problem, tree, tmp_path):
    with pytest.raises(StartupError, match=problem):
        train_here(tmp_path / "run", tree, steps=2, **settings)
    assert events(tmp_path / "run", "step") == events(tmp_path / "run", "stop") == []


def test_such_a_mistake_is_one_line_and_a_second_run_into_one_folder_is_another(tree, tmp_path, capsys):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({**QUICK, **data_settings(tree), "steps": 2}))
    words = ["--settings", str(file), "--run-dir", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match=r"^contrastive: error: micro_batch .* use micro_batch=32"):
        main([*words, "--micro_batch", "5000"])
    main(words)
    with pytest.raises(SystemExit, match="holds an earlier run"):
        main(words)


def test_no_checkpoint_where_they_are_farther_apart_than_the_run_is_long(tree, tmp_path):
    train_here(tmp_path / "run", tree, steps=3, checkpoint_every_steps=1_000_000)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_buckets_that_put_nothing_apart_say_so(tree, tmp_path):
    train_here(tmp_path / "run", tree, steps=2, length_buckets=True, bucket_boundaries_s="10,20")
    assert effective(tmp_path / "run")["length_buckets"][:2] == (True, False)


def test_a_toy_says_that_it_is_one(tree, tmp_path):
    train_here(tmp_path / "run", tree, steps=2)
    assert effective(tmp_path / "run")["speech_model"][2].startswith("caution: a toy with random weights")
