"""The probe for Lightning. In: the Trainer's callback hooks. Out: the same events and heartbeats as from any other loop.

    from seatrial.probe.lightning import SeatrialCallback
    trainer = Trainer(..., callbacks=[SeatrialCallback()])

It serves `lightning.pytorch` and `pytorch_lightning`; where both are installed, the one the script has imported.
docs/probe.md has what a step and each phase contain. With several ranks `data_wait` includes waiting for rank 0, which Lightning asks there
whether to go on. Parts of the start-up are `model`, from `setup` to the start of the fit, and `data`, from there to the first batch
without the sanity check. A halt ends the training as `trainer.should_stop` does, including the validation that Lightning then runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from seatrial.probe.contexts import NULL_CONTEXT, NullContext, OpenContexts, StepContext, count_samples
from seatrial.probe.loop import Probe

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
WORK = ("fwd", "bwd", "optimizer")


def _callback_class() -> Any:
    """The callback class of the package that the script uses: a Trainer of one calls hooks that a callback of the other may not have."""
    imported = next((module for name in PACKAGES if (module := sys.modules.get(name))), None)
    if imported is not None:
        return imported.Callback
    for name in PACKAGES:
        try:
            return import_module(name).Callback
        except ModuleNotFoundError as error:
            # A missing dependency of an installed package is reported as such.
            if error.name not in (name, name.partition(".")[0]):
                raise
    raise ModuleNotFoundError("Lightning is not installed in this Python: pip install lightning (or pytorch-lightning)")


class SeatrialCallback(_callback_class()):  # type: ignore[misc]  # Lightning is not there for the type checker
    """One probe for each call of `trainer.fit()`; an exception in the training leaves it without a stop event."""

    def __init__(self, run_dir: str | Path | None = None) -> None:
        super().__init__()
        self._run_dir = run_dir
        self._probe: Probe | None = None
        self._open = OpenContexts()
        self._step: StepContext | NullContext = NULL_CONTEXT
        self._samples: int | None = None
        self._losses: list[Any] = []
        self._stepped = 0
        self._timed: list[TimedMethod] = []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        # Lightning may start its ranks itself; then only its Trainer knows who they are.
        probe = Probe(self._run_dir, rank=trainer.global_rank, world_size=trainer.world_size, local_rank=trainer.local_rank)
        if probe.active:
            self._probe, self._open = probe, OpenContexts()
            self._open.enter("startup", probe.startup("model"))
            # Lightning has a hook before a save, and none after it; an older checkpoint may be removed after that.
            calls = ((trainer, "save_checkpoint"), (trainer.strategy, "remove_checkpoint"))
            self._timed = [TimedMethod(owner, name, probe) for owner, name in calls]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin_data()

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        self._open.leave("startup")

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        self._begin_data()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._probe is not None:
            self._stepped = trainer.global_step
            if self._stepped:
                self._probe.resume_at(self._stepped)
            self._open.enter("wait", self._probe.phase("data_wait"))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._open.leave("wait", "startup")
        if self._probe is None:
            return
        if "step" not in self._open:
            self._samples, self._losses = 0, []
            self._step = self._probe.step()
            self._open.enter("step", self._step)
        samples = count_samples(batch, trainer.train_dataloader)
        self._samples = None if samples is None or self._samples is None else self._samples + samples
        self._open.enter("fwd", self._probe.phase("fwd"))

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        if self._probe is not None:
            self._open.leave(*WORK)
            self._open.enter("bwd", self._probe.phase("bwd"))

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        self._open.leave("bwd")
        if self._probe is not None and not pl_module.automatic_optimization:
            # With manual optimisation another forward may follow.
            self._open.enter("fwd", self._probe.phase("fwd"))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self._probe is not None:
            self._open.leave(*WORK)
            self._open.enter("optimizer", self._probe.phase("step"))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._probe is None:
            return
        self._open.leave(*WORK)
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
        self._losses += [] if loss is None else [loss]
        if trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            self._end_step(trainer, self._probe)
        self._open.enter("wait", self._probe.phase("data_wait"))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._probe is not None and not trainer.sanity_checking:
            self._open.enter("eval", self._probe.pause("eval"))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._open.leave("eval")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._open.leave("eval", "wait")
        self._end(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(exception)
        self._restore()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._restore()

    def _begin_data(self) -> None:
        self._open.leave("startup")
        if self._probe is not None:
            self._open.enter("startup", self._probe.startup("data"))

    def _end_step(self, trainer: Any, probe: Probe) -> None:
        self._step.samples = self._samples
        if self._losses:
            # Lightning has divided each by the number of batches to accumulate; an epoch may end with fewer.
            scale = trainer.accumulate_grad_batches / len(self._losses)
            total = sum(self._losses[1:], start=self._losses[0])
            probe.loss(total if scale == 1 else total * scale)
        self._open.leave("step")
        if not trainer.should_stop and probe.halted:
            stop(trainer)

    def _restore(self) -> None:
        for method in self._timed:
            method.restore()
        self._timed = []

    def _end(self, error: BaseException | None) -> None:
        probe, self._probe = self._probe, None
        self._open.forget()
        if probe is not None:
            probe.__exit__(type(error) if error else None, error, None)


class TimedMethod:
    """One method of one object whose calls are pauses named `checkpoint`, until it is restored."""

    def __init__(self, owner: Any, name: str, probe: Probe) -> None:
        self._owner, self._name = owner, name
        # None unless other code has replaced the method too.
        self._before = vars(owner).get(name)
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with probe.pause("checkpoint"):
                return method(*args, **kwargs)

        setattr(owner, name, timed)

    def restore(self) -> None:
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def stop(trainer: Any) -> None:
    """End after this batch, even before the requested minimum of epochs and steps."""
    trainer.should_stop = True
    trainer.fit_loop.min_epochs = 0
    trainer.fit_loop.epoch_loop.min_steps = 0
