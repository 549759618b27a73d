"""The probe for the Hugging Face Trainer. In: the Trainer's own callbacks. Out: the events and heartbeats of any other loop.

    from seatrial.probe.hf import SeatrialCallback
    trainer = Trainer(..., callbacks=[SeatrialCallback()])

A step is one optimiser step, gradient accumulation included. Evaluation and saving are pauses. The Trainer does not tell forward from
backward: those stay null; `data_wait` is the time from the end of one step to the start of the next, `step` that of the optimiser.
Of the start-up it can tell `data` alone, from the begin of `train()` to the first batch: the model is there before the callback is heard.
A halt ends the training in the way the Trainer stops early, so never before its first step.
Silent unless SEATRIAL_RUN_DIR is set or `run_dir` is given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from seatrial.probe.contexts import Nothing, PauseContext, PhaseContext, SpanContext, StepContext, UntimedPhase
from seatrial.probe.loop import Probe

Open = StepContext | PhaseContext | UntimedPhase | PauseContext | SpanContext | Nothing


class SeatrialCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there for the type checker
    """One probe for each call of `trainer.train()`; an exception in the training leaves it without a stop event."""

    def __init__(self, run_dir: str | Path | None = None) -> None:
        self._run_dir = run_dir
        self._probe: Probe | None = None
        self._open: dict[str, Open] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.clear()
        self._probe = Probe(self._run_dir)
        self._enter("startup", self._probe.startup("data"))
        self._enter("wait", self._probe.phase("data_wait"))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._leave("eval", "checkpoint", "wait", "startup")
        if self._probe is not None:
            samples = args.train_batch_size * args.gradient_accumulation_steps
            self._enter("step", self._probe.step(samples=samples))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._probe is not None:
            self._enter("optimizer", self._probe.phase("step"))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._leave("optimizer")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._leave("optimizer", "step")
        # Where the training ends here anyhow, nobody was halted.
        if self._probe is not None and not control.should_training_stop:
            control.should_training_stop = self._probe.halted
        self._wait_anew(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._pause_for(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        loss = (logs or {}).get("loss")
        if self._probe is not None and isinstance(loss, float):
            self._probe.loss(loss)
            # Reading the loss waited for the GPU: neither a wait for data nor a pause.
            self._wait_anew(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._leave("eval")
        if control.should_save:
            self._pause("checkpoint")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._leave("eval", "checkpoint")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._leave("eval", "checkpoint", "wait")
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _wait_anew(self, control: Any) -> None:
        """Forget what was begun too early: the pause and the wait start now."""
        for key in ("eval", "checkpoint", "wait"):
            self._open.pop(key, None)
        if self._probe is not None:
            self._enter("wait", self._probe.phase("data_wait"))
        self._pause_for(control)

    def _pause_for(self, control: Any) -> None:
        """The Trainer says when an evaluation or a save is over, and before it only that one is due."""
        if control.should_evaluate:
            self._pause("eval")
        elif control.should_save:
            self._pause("checkpoint")

    def _pause(self, name: str) -> None:
        if self._probe is not None and name not in self._open:
            self._enter(name, self._probe.pause(name))

    def _enter(self, key: str, context: Open) -> None:
        self._open[key] = context
        context.__enter__()

    def _leave(self, *keys: str) -> None:
        for key in keys:
            context = self._open.pop(key, None)
            if context is not None:
                context.__exit__(None, None, None)
