"""Lightning's callback in a real Trainer on CPU, under both names of the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.probe.writer import HeartbeatThread
from tests.harness import skip_without
from tests.workloads.ranks import events

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
skip_without("lightning")


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A training of six optimiser steps over two batches of four each, validated and saved after the third and the sixth."""
    monkeypatch.chdir(tmp_path)
    from lightning.pytorch.callbacks import ModelCheckpoint

    from seatrial.probe.lightning import SeatrialCallback
    from tests.workloads.lightning_job import Line, trainer_for

    def train(*more: Any, run_dir: Path | None = tmp_path / "run", module: Any = None, **options: Any) -> Any:
        save = ModelCheckpoint(dirpath=tmp_path / "saved", every_n_train_steps=3, save_top_k=-1)
        options = {"accumulate_grad_batches": 2, "max_steps": 6, "val_check_interval": 6, "enable_checkpointing": True, **options}
        trainer = trainer_for("lightning.pytorch", [SeatrialCallback(run_dir), save, *more], **options)
        trainer.fit(module or Line())
        return trainer

    return train


def test_every_step_is_recorded(fit: Any, tmp_path: Path) -> None:
    trainer = fit()
    steps = events(tmp_path / "run", "step")
    assert [step["step"] for step in steps] == [0, 1, 2, 3, 4, 5]
    assert {step["samples"] for step in steps} == {8}
    assert all(step[name] > 0 for step in steps for name in ("iter_ms", "data_wait_ms", "fwd_ms", "bwd_ms", "step_ms", "loss"))
    assert all(step["fwd_ms"] + step["bwd_ms"] + step["step_ms"] <= step["iter_ms"] for step in steps[1:])
    pauses = [(pause["name"], pause["step"]) for pause in events(tmp_path / "run", "pause")]
    assert sorted(pauses) == [("checkpoint", 3), ("checkpoint", 6), ("eval", 3), ("eval", 6)]
    assert len(events(tmp_path / "run", "stop")) == 1
    assert {span["name"] for span in events(tmp_path / "run", "span")} == {"model", "data"}
    assert "save_checkpoint" not in vars(trainer) and "remove_checkpoint" not in vars(trainer.strategy), "Lightning's own are restored"


def test_the_loss_of_accumulated_batches_is_their_mean(fit: Any, tmp_path: Path) -> None:
    from tests.workloads.lightning_job import Line

    class Counting(Line):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.error(batch) * 0 + batch_idx + 1

    # Seven batches an epoch: the last step has only one.
    fit(module=Counting(), max_steps=4, limit_train_batches=7, val_check_interval=7)
    assert [step["loss"] for step in events(tmp_path / "run", "step")] == [1.5, 3.5, 5.5, 7.0]


def test_manual_optimization_is_recorded_too(fit: Any, tmp_path: Path) -> None:
    from tests.workloads.lightning_job import Line

    class ByHand(Line):
        automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.error(batch))
            optimizer.step()

    fit(module=ByHand(), accumulate_grad_batches=1, max_steps=4)
    steps = events(tmp_path / "run", "step")
    assert len(steps) == 4 and all(step[name] > 0 for step in steps for name in ("fwd_ms", "bwd_ms", "step_ms"))
    assert {step["loss"] for step in steps} == {None}


def test_a_halt_ends_the_training_cleanly(fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.pytorch.callbacks import Callback

    run, threads = tmp_path / "run", list[HeartbeatThread]()

    class Recorded(HeartbeatThread):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            threads.append(self)

    monkeypatch.setattr("seatrial.probe.writer.HeartbeatThread", Recorded)

    class Harness(Callback):  # type: ignore[misc]
        """Requests a halt during the second step, and makes the probe read it."""

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            if trainer.global_step == 1:
                (run / "halt.json").write_text(json.dumps({"attempt": 1, "at_step": 3, "reason": "enough"}))
                threads[0].tick()

    trainer = fit(Harness(), min_epochs=5, min_steps=50, max_steps=60, val_check_interval=8)
    assert trainer.global_step == 3
    assert len(events(run, "step")) == 3 and len(events(run, "stop")) == 1
    (halt,) = events(run, "halt")
    assert (halt["step"], halt["at_step"]) == (2, 3)


def test_a_training_that_fails_writes_no_stop(fit: Any, tmp_path: Path) -> None:
    from tests.workloads.lightning_job import Line

    class Bomb(Line):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 5:
                raise RuntimeError("boom")
            return super().training_step(batch, batch_idx)

    with pytest.raises(RuntimeError, match="boom"):
        fit(module=Bomb())
    assert len(events(tmp_path / "run", "step")) == 2
    assert events(tmp_path / "run", "stop") == []


def test_a_resumed_training_continues_the_step_numbers(fit: Any, tmp_path: Path) -> None:
    from seatrial.probe.lightning import SeatrialCallback
    from tests.workloads.lightning_job import Line, trainer_for

    fit(max_steps=3)
    (saved,) = (tmp_path / "saved").iterdir()
    again = trainer_for("lightning.pytorch", [SeatrialCallback(tmp_path / "again")], accumulate_grad_batches=2, max_steps=5)
    again.fit(Line(), ckpt_path=saved, weights_only=False)
    assert [step["step"] for step in events(tmp_path / "again", "step")] == [3, 4]


def test_without_a_folder_it_is_silent(fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEATRIAL_RUN_DIR", raising=False)
    assert fit(run_dir=None).global_step == 6
    assert list(tmp_path.rglob("events_rank*")) == []
