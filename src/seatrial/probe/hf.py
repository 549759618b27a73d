"""The probe for the Hugging Face Trainer. In: the Trainer's own callbacks. Out: the events and heartbeats of any other loop.

    from seatrial.probe.hf import SeatrialCallback
    trainer = Trainer(..., callbacks=[SeatrialCallback()])

A step is one optimiser step, gradient accumulation included. Evaluation and saving are pauses. `data_wait` is the time from the end of
one step to the start of the next; where the Trainer counts tokens across ranks before a step, a wait for a rank that is late with its
data is in it. The Trainer does not tell forward from backward, so the model's own hooks do: `preprocess` lasts until its forward
begins, `fwd` is that, `bwd` all from there to the optimiser, clipping included, `step` the optimiser. A model that is compiled, or
copied over several GPUs in one process, gets no hooks: then `fwd` stays null, and `bwd` is both; so it is where a loss is computed past
the model's own forward. Of the start-up it can tell `data` alone, from the begin of `train()` to the first batch: the model is there
before the callback is heard.
A halt ends the training in the way the Trainer stops early, so never before its first step.
Silent unless SEATRIAL_RUN_DIR is set or `run_dir` is given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from seatrial.probe.loop import Probe
from seatrial.probe.open_parts import OpenParts


class SeatrialCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there for the type checker
    """One probe for each call of `trainer.train()`; an exception in the training leaves it without a stop event."""

    def __init__(self, run_dir: str | Path | None = None) -> None:
        self._run_dir = run_dir
        self._probe: Probe | None = None
        self._open = OpenParts()
        self._hooks: tuple[Any, ...] = ()

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._open.forget()
        self._remove_hooks()
        self._probe = probe = Probe(self._run_dir)
        if not probe.active:
            return
        if state.global_step:
            probe.resume_at(state.global_step)
        if can_have_hooks(model, args):
            self._hooks = hook_forward(model, probe, self._open)
        self._open.enter("startup", probe.startup("data"))
        self._open.enter("wait", probe.phase("data_wait"))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.leave("eval", "checkpoint", "wait", "startup")
        if self._probe is not None:
            samples = args.train_batch_size * args.gradient_accumulation_steps
            self._open.enter("step", self._probe.step(samples=samples))
            self._begin_work()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end_work()
        self._begin_work()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end_work()
        if self._probe is not None:
            self._open.enter("optimizer", self._probe.phase("step"))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.leave("optimizer")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end_work()
        self._open.leave("optimizer", "step")
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
        self._open.leave("eval")
        if control.should_save:
            self._pause("checkpoint")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.leave("eval", "checkpoint")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.leave("eval", "checkpoint", "wait")
        self._remove_hooks()
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _begin_work(self) -> None:
        """What comes before the forward, where that is told; else all work up to the optimiser."""
        if self._probe is not None:
            name = "preprocess" if self._hooks else "bwd"
            self._open.enter(name, self._probe.phase(name))

    def _end_work(self) -> None:
        if "preprocess" in self._open:
            # The model's forward was never called as such: its hooks tell nothing, and what was taken for preparation was everything.
            self._open.forget("preprocess")
            self._remove_hooks()
        self._open.leave("fwd", "bwd")

    def _wait_anew(self, control: Any) -> None:
        """Forget what was begun too early: the pause and the wait start now."""
        self._open.forget("eval", "checkpoint", "wait")
        if self._probe is not None:
            self._open.enter("wait", self._probe.phase("data_wait"))
        self._pause_for(control)

    def _pause_for(self, control: Any) -> None:
        """The Trainer says when an evaluation or a save is over, and before it only that one is due."""
        if control.should_evaluate:
            self._pause("eval")
        elif control.should_save:
            self._pause("checkpoint")

    def _pause(self, name: str) -> None:
        if self._probe is not None and name not in self._open:
            self._open.enter(name, self._probe.pause(name))

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()


def can_have_hooks(model: Any, args: Any) -> bool:
    """Not a compiled model, whose graph a hook would break, nor one copied over GPUs, whose copies run in threads."""
    if not hasattr(model, "register_forward_pre_hook"):
        return False
    is_compiled = args.torch_compile or hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None
    return not is_compiled and args.n_gpu <= 1


def hook_forward(model: Any, probe: Probe, parts: OpenParts) -> tuple[Any, ...]:
    """Tell when the model's forward begins and ends inside a step. Plain functions, which a copy of the model may share."""

    def begins(*_: Any) -> None:
        # An evaluation calls it too, and a model may call itself.
        if "step" in parts and "fwd" not in parts:
            parts.leave("preprocess", "bwd")
            parts.enter("fwd", probe.phase("fwd"))

    def ends(*_: Any) -> None:
        if "fwd" in parts:
            parts.leave("fwd")
            parts.enter("bwd", probe.phase("bwd"))

    return model.register_forward_pre_hook(begins), model.register_forward_hook(ends)
