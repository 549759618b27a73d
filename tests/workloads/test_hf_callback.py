"""The callback of the Hugging Face Trainer, in a real Trainer on CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workloads.ranks import events

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from seatrial.probe import Probe  # noqa: E402
from seatrial.probe.hf import SeatrialCallback, can_have_hooks  # noqa: E402


class Line(torch.nn.Module):
    """The smallest model a Trainer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


def _rows(count: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(4, generator=generator) for _ in range(count)]
    return [{"x": row, "labels": row.sum().reshape(1)} for row in rows]


def _trainer(folder: Path, callback: Any, **options: Any) -> Any:
    args = transformers.TrainingArguments(
        output_dir=str(folder / "hf"),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=6,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        save_steps=6,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    return transformers.Trainer(model=Line(), args=args, train_dataset=_rows(64), eval_dataset=_rows(8), callbacks=[callback])


def test_every_step_is_recorded(tmp_path):
    trainer = _trainer(tmp_path, SeatrialCallback(tmp_path / "run"))
    trainer.train()
    assert not trainer.model._forward_hooks and not trainer.model._forward_pre_hooks, "none of ours is left"
    steps = events(tmp_path / "run", "step")
    assert [step["step"] for step in steps] == [0, 1, 2, 3, 4, 5]
    assert {step["samples"] for step in steps} == {8}
    assert [step["loss"] is not None for step in steps] == [False, True] * 3
    assert all(step["iter_ms"] > 0 and step["data_wait_ms"] >= 0 and step["step_ms"] > 0 for step in steps)
    assert all(step["preprocess_ms"] > 0 and step["fwd_ms"] > 0 and step["bwd_ms"] > 0 for step in steps)
    parts = ("preprocess_ms", "fwd_ms", "bwd_ms", "step_ms")
    assert all(sum(step[part] for part in parts) <= step["iter_ms"] for step in steps)
    pauses = [(pause["name"], pause["step"]) for pause in events(tmp_path / "run", "pause")]
    assert pauses == [("eval", 3), ("eval", 6), ("checkpoint", 6)]
    assert len(events(tmp_path / "run", "stop")) == 1
    (span,) = events(tmp_path / "run", "span")
    assert (span["name"], span["span_ms"]) == ("data", pytest.approx(steps[0]["data_wait_ms"], abs=50)), "until the first batch"


def test_a_training_that_fails_writes_no_stop(tmp_path, monkeypatch):
    class Bomb(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3:
                raise RuntimeError("boom")

    opened: list[Probe] = []
    monkeypatch.setattr("seatrial.probe.hf.Probe", lambda *given: opened.append(Probe(*given)) or opened[-1])
    trainer = _trainer(tmp_path, SeatrialCallback(tmp_path / "run"))
    trainer.add_callback(Bomb())
    with pytest.raises(RuntimeError, match="boom"):
        trainer.train()
    (probe,) = opened
    with pytest.raises(RuntimeError, match="boom"), probe:
        raise RuntimeError("boom")
    assert len(events(tmp_path / "run", "step")) == 3
    assert events(tmp_path / "run", "stop") == []


def test_without_a_folder_it_is_silent(tmp_path, monkeypatch):
    monkeypatch.delenv("SEATRIAL_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    result = _trainer(tmp_path, SeatrialCallback()).train()
    assert result.global_step == 6
    assert list(tmp_path.rglob("events_rank*")) == []


def test_a_compiled_model_gets_no_hooks_and_one_time_for_forward_and_backward(tmp_path):
    trainer = _trainer(tmp_path, SeatrialCallback(tmp_path / "run"))
    assert can_have_hooks(trainer.model, trainer.args)
    # As `model.compile()` leaves it; to compile for real takes a minute.
    trainer.model._compiled_call_impl = trainer.model._call_impl
    assert not can_have_hooks(trainer.model, trainer.args)
    trainer.train()
    steps = events(tmp_path / "run", "step")
    assert len(steps) == 6 and all(step["bwd_ms"] > 0 and step["fwd_ms"] is None for step in steps)


def test_a_resumed_training_continues_the_step_numbers(tmp_path):
    _trainer(tmp_path, SeatrialCallback(tmp_path / "first"), save_strategy="steps").train()
    trainer = _trainer(tmp_path, SeatrialCallback(tmp_path / "second"), save_strategy="steps")
    trainer.args.max_steps = 8
    trainer.train(resume_from_checkpoint=True)
    assert [step["step"] for step in events(tmp_path / "second", "step")] == [6, 7]


def test_a_loss_computed_past_the_models_forward_is_not_counted_as_preprocessing(tmp_path):
    trainer = _trainer(tmp_path, SeatrialCallback(tmp_path / "run"))
    trainer.compute_loss = lambda model, inputs, **_: torch.nn.functional.mse_loss(model.layer(inputs["x"]), inputs["labels"])
    trainer.args.eval_strategy = "no"
    trainer.train()
    steps = events(tmp_path / "run", "step")
    assert {(step["preprocess_ms"], step["fwd_ms"]) for step in steps} == {(None, None)}
    assert all(step["bwd_ms"] > 0 for step in steps[1:])
