"""The probe for the Hugging Face Trainer. In: the Trainer's callbacks. Out: the same events and heartbeats as from any other loop.

    from seatrial.probe.hf import SeatrialCallback
    trainer = Trainer(..., callbacks=[SeatrialCallback()])

docs/probe.md has what a step and each phase contain. The Trainer does not separate forward from backward, so hooks on the model do; a
model that is compiled, or replicated over several GPUs in one process, gets none: then `fwd` stays null and `bwd` is both, as it is where
a loss is computed without the model's forward. Of the start-up only `data` is known: the model is loaded before any callback is called. A
halt ends the training as the Trainer's early stopping does, so never before its first step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from seatrial.probe.contexts import OpenContexts
from seatrial.probe.loop import Probe


class SeatrialCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there for the type checker
    """One probe for each call of `trainer.train()`, or the caller's, which the caller closes; an exception in the training leaves it
    without a stop event."""

    def __init__(self, run_dir: str | Path | None = None, *, probe: Probe | None = None) -> None:
        self._run_dir, self._given_probe = run_dir, probe
        self._probe: Probe | None = None
        self._open = OpenContexts()
        self._hooks: tuple[Any, ...] = ()

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._open.forget()
        self._remove_hooks()
        self._probe = probe = self._given_probe or Probe(self._run_dir)
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
            samples, tokens = self.work_of_step(args)
            self._open.enter("step", self._probe.step(samples=samples, tokens=tokens))
            self._begin_work()

    def work_of_step(self, args: Any) -> tuple[int, int | None]:
        """(samples, tokens) of the step that begins on this rank; tokens None where they are not known."""
        return args.train_batch_size * args.gradient_accumulation_steps, None

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
        # A training that ends here anyway was not halted.
        if self._probe is not None and not control.should_training_stop:
            control.should_training_stop = self._probe.halted
        self._restart_wait(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._pause_for(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        loss = (logs or {}).get("loss")
        if self._probe is not None and isinstance(loss, float):
            self._probe.loss(loss)
            # Reading the loss waited for the GPU, which is neither a wait for data nor a pause.
            self._restart_wait(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.leave("eval")
        if control.should_save:
            self._pause("checkpoint")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.leave("eval", "checkpoint")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.leave("eval", "checkpoint", "wait")
        self._remove_hooks()
        if self._probe is not None and self._given_probe is None:
            self._probe.close()
        self._probe = None

    def _begin_work(self) -> None:
        """`preprocess` until the forward, where hooks report that; else all work up to the optimiser."""
        if self._probe is not None:
            name = "preprocess" if self._hooks else "bwd"
            self._open.enter(name, self._probe.phase(name))

    def _end_work(self) -> None:
        if "preprocess" in self._open:
            # The model's forward was never called: the hooks report nothing, and this was not preprocessing only.
            self._open.forget("preprocess")
            self._remove_hooks()
        self._open.leave("fwd", "bwd")

    def _restart_wait(self, control: Any) -> None:
        """The pause and the wait start now, and not when they were first opened."""
        self._open.forget("eval", "checkpoint", "wait")
        if self._probe is not None:
            self._open.enter("wait", self._probe.phase("data_wait"))
        self._pause_for(control)

    def _pause_for(self, control: Any) -> None:
        """The Trainer reports the end of an evaluation or a save, but before it only that one is due."""
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
    """False for a compiled model, whose graph a hook would break, and a replicated one, whose replicas run in threads."""
    if not hasattr(model, "register_forward_pre_hook"):
        return False
    is_compiled = args.torch_compile or hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None
    return not is_compiled and args.n_gpu <= 1


def hook_forward(model: Any, probe: Probe, open_contexts: OpenContexts) -> tuple[Any, ...]:
    """Record when the model's forward begins and ends inside a step. Plain functions, which a copy of the model may share."""

    def begins(*_: Any) -> None:
        # An evaluation calls it too, and a model may call itself.
        if "step" in open_contexts and "fwd" not in open_contexts:
            open_contexts.leave("preprocess", "bwd")
            open_contexts.enter("fwd", probe.phase("fwd"))

    def ends(*_: Any) -> None:
        if "fwd" in open_contexts:
            open_contexts.leave("fwd")
            open_contexts.enter("bwd", probe.phase("bwd"))

    return model.register_forward_pre_hook(begins), model.register_forward_hook(ends)
