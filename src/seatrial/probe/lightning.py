"""The probe for Lightning. In: the Trainer's own callback hooks. Out: the events and heartbeats of any other loop.

    from seatrial.probe.lightning import SeatrialCallback
    trainer = Trainer(..., callbacks=[SeatrialCallback()])

It serves `lightning.pytorch` and `pytorch_lightning`; where both are installed, the one the script has imported.
A step is one optimiser step, the batches whose gradients it gathers included. `data_wait` is the time from the end of one batch to the
start of the next (with several ranks Lightning asks rank 0 there whether to go on: a wait for it is in it), `fwd` that up to the
backward, `bwd` the backward, `step` clipping, optimiser and scheduler; with several optimisers by hand, the forward behind the first
one's step counts as `step` too. Validation and saving (`trainer.save_checkpoint`, and the removal of older ones) are pauses. Of the
start-up it tells `model`, from `setup` to the start of the fit, and `data`, from there to the first batch, the sanity check left out.
Samples are the loader's `batch_size` for each batch, else the length of the batch where its tensors agree on one.
A halt ends the training as `trainer.should_stop` does, the validation that Lightning then makes included.
Silent unless SEATRIAL_RUN_DIR is set or `run_dir` is given.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from seatrial.probe.batch_samples import samples_of
from seatrial.probe.contexts import NOTHING, Nothing, StepContext
from seatrial.probe.loop import Probe
from seatrial.probe.open_parts import OpenParts

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
WORK = ("fwd", "bwd", "optimizer")


def _callback_class() -> Any:
    """Of the package that the script uses; a Trainer of the one calls hooks that a callback of the other may not have."""
    imported = next((module for name in PACKAGES if (module := sys.modules.get(name))), None)
    if imported is not None:
        return imported.Callback
    for name in PACKAGES:
        try:
            return import_module(name).Callback
        except ModuleNotFoundError as error:
            # One that is installed and lacks a package of its own must say so.
            if error.name not in (name, name.partition(".")[0]):
                raise
    raise ModuleNotFoundError("Lightning is not installed in this Python: pip install lightning (or pytorch-lightning)")


class SeatrialCallback(_callback_class()):  # type: ignore[misc]  # Lightning is not there for the type checker
    """One probe for each call of `trainer.fit()`; an exception in the training leaves it without a stop event."""

    def __init__(self, run_dir: str | Path | None = None) -> None:
        super().__init__()
        self._run_dir = run_dir
        self._probe: Probe | None = None
        self._parts = OpenParts()
        self._step: StepContext | Nothing = NOTHING
        self._samples: int | None = None
        self._losses: list[Any] = []
        self._stepped = 0
        self._timed: list[TimedMethod] = []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        # Lightning may start its ranks itself, and then says to nobody but its Trainer who they are.
        probe = Probe(self._run_dir, rank=trainer.global_rank, world_size=trainer.world_size, local_rank=trainer.local_rank)
        if probe.active:
            self._probe, self._parts = probe, OpenParts()
            self._parts.enter("startup", probe.startup("model"))
            # Lightning tells when a save is about to begin, and never when it is over; an older checkpoint may be removed behind it.
            calls = ((trainer, "save_checkpoint"), (trainer.strategy, "remove_checkpoint"))
            self._timed = [TimedMethod(owner, name, probe) for owner, name in calls]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin_data()

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        self._parts.leave("startup")

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        self._begin_data()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._probe is not None:
            self._stepped = trainer.global_step
            if self._stepped:
                self._probe.resume_at(self._stepped)
            self._parts.enter("wait", self._probe.phase("data_wait"))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._parts.leave("wait", "startup")
        if self._probe is None:
            return
        if "step" not in self._parts:
            self._samples, self._losses = 0, []
            self._step = self._probe.step()
            self._parts.enter("step", self._step)
        samples = samples_of(batch, trainer.train_dataloader)
        self._samples = None if samples is None or self._samples is None else self._samples + samples
        self._parts.enter("fwd", self._probe.phase("fwd"))

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        if self._probe is not None:
            self._parts.leave(*WORK)
            self._parts.enter("bwd", self._probe.phase("bwd"))

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        self._parts.leave("bwd")
        if self._probe is not None and not pl_module.automatic_optimization:
            # By hand, another forward may follow.
            self._parts.enter("fwd", self._probe.phase("fwd"))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self._probe is not None:
            self._parts.leave(*WORK)
            self._parts.enter("optimizer", self._probe.phase("step"))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._probe is None:
            return
        self._parts.leave(*WORK)
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
        self._losses += [] if loss is None else [loss]
        if trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            self._end_step(trainer, self._probe)
        self._parts.enter("wait", self._probe.phase("data_wait"))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._probe is not None and not trainer.sanity_checking:
            self._parts.enter("eval", self._probe.pause("eval"))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._parts.leave("eval")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._parts.leave("eval", "wait")
        self._end(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(exception)
        self._put_back()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._put_back()

    def _begin_data(self) -> None:
        self._parts.leave("startup")
        if self._probe is not None:
            self._parts.enter("startup", self._probe.startup("data"))

    def _end_step(self, trainer: Any, probe: Probe) -> None:
        self._step.samples = self._samples
        if self._losses:
            # Lightning has divided each by the number of batches that were to be gathered; an epoch may end with fewer.
            scale = trainer.accumulate_grad_batches / len(self._losses)
            total = sum(self._losses[1:], start=self._losses[0])
            probe.loss(total if scale == 1 else total * scale)
        self._parts.leave("step")
        if not trainer.should_stop and probe.halted:
            stop(trainer)

    def _put_back(self) -> None:
        for method in self._timed:
            method.put_back()
        self._timed = []

    def _end(self, error: BaseException | None) -> None:
        probe, self._probe = self._probe, None
        self._parts.forget()
        if probe is not None:
            probe.__exit__(type(error) if error else None, error, None)


class TimedMethod:
    """One method of one object whose calls are pauses named `checkpoint`, until it is put back."""

    def __init__(self, owner: Any, name: str, probe: Probe) -> None:
        self._owner, self._name = owner, name
        # None unless somebody else has put a function of their own there.
        self._before = vars(owner).get(name)
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with probe.pause("checkpoint"):
                return method(*args, **kwargs)

        setattr(owner, name, timed)

    def put_back(self) -> None:
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def stop(trainer: Any) -> None:
    """End after this batch, whatever the least number of epochs and steps that was asked for."""
    trainer.should_stop = True
    trainer.fit_loop.min_epochs = 0
    trainer.fit_loop.epoch_loop.min_steps = 0
