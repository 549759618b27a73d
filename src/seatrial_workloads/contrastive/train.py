"""Train speech and text encoders to agree. In: settings. Out: events, heartbeats, train.log, checkpoints.

torchrun --standalone --nproc_per_node 2 -m seatrial_workloads.contrastive.train --dataset_root data/synthetic --steps 50

2026-11-15 13:02:11,402 - seatrial - INFO - contrastive: 105,281 trained of 228,129 parameters, speech tiny (random weights), …
2026-11-15 13:02:11,911 - seatrial - INFO - Step 0: Loss 2.0793
2026-11-15 13:02:12,004 - seatrial - INFO - Timing(window=100): data_wait_ms:p50=0.95 p90=0.95 | … | iter_ms:p50=38.20 p90=38.20

Order: effective settings (precision, attention, …) → model → weights → engine → resume → fast paths → compile → CUDA graphs → steps.
`hydra_config.train` is the entry point with Hydra keys; both end in `train`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from seatrial.probe.identity import rank_and_world_size
from seatrial_workloads.common.compile import RecompileWatch
from seatrial_workloads.common.distributed import RankContext, rank_context
from seatrial_workloads.common.effective_settings import Choice, as_requested, record
from seatrial_workloads.common.engines import create_engine
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.fast_paths import summarize_parts
from seatrial_workloads.common.math_backend import prepare_determinism
from seatrial_workloads.common.precision import check_fp16_has_gpu
from seatrial_workloads.common.run_folder import check_folder_unused
from seatrial_workloads.common.settings import load_settings
from seatrial_workloads.common.train_log import is_due, is_logged
from seatrial_workloads.contrastive.checkpointing import (
    is_checkpoint_due,
    load_pretrained_weights,
    resumable_options,
    resume_from_checkpoint,
    save_training,
)
from seatrial_workloads.contrastive.data import load_tokenizer, train_loader, validation_loader
from seatrial_workloads.contrastive.effective_settings import math_options, resolve_settings
from seatrial_workloads.contrastive.equal_settings import PARTS
from seatrial_workloads.contrastive.loading.batch import Batch
from seatrial_workloads.contrastive.model.encoders import describe_source, random_weight_cautions, revision_choices
from seatrial_workloads.contrastive.model.fast_paths import (
    apply_fast_paths,
    capture_tower,
    compile_details,
    compile_tower,
    dynamic_shapes,
    longest_samples,
    pad_inputs,
)
from seatrial_workloads.contrastive.model.speech_text import new_model, num_parameters
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.librispeech.tree import SAMPLE_RATE


def main(argv: list[str] | None = None) -> None:
    start = load_settings(Settings, argv)
    try:
        if rank_and_world_size(os.environ)[0] == 0:
            check_folder_unused(start.run_dir)
        train(start.settings, start.run_dir)
    except StartupError as error:
        sys.exit(f"contrastive: error: {error}")


def train(settings: Settings, run_dir: Path, no_effect: Mapping[str, Choice] | None = None) -> None:
    """One rank's training; `no_effect` are the caller's settings without effect, logged with the others."""
    check_fp16_has_gpu(settings.precision, settings.device)
    prepare_determinism(math_options(settings))
    with rank_context(run_dir, settings.device, settings.steps) as context:
        trainer = Trainer(settings, context)
        try:
            trainer.train(no_effect or {})
        finally:
            trainer.close()


class Trainer:
    """Model, engine and loop of one rank."""

    def __init__(self, settings: Settings, context: RankContext) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.context = settings, context
        self.probe, self.ranks, self.log = probe, ranks, log = context.probe, context.ranks, context.log
        self.num_rows, self.audio_s = 0, 0.0
        self.recompiles: RecompileWatch | None = None
        self.effective = resolve_settings(settings, ranks)
        self.choices: dict[str, Choice] = {**self.effective.choices, **random_weight_cautions(settings)}
        with probe.startup("model"):
            self.tokenizer = load_tokenizer(settings.text_model, settings.text_revision)
            self.model = new_model(settings, self.effective, len(self.tokenizer))
            self.choices |= revision_choices(settings, self.model.tower.speech, self.model.text)
            self.num_parameters = num_parameters(self.model)
            load_pretrained_weights(self.model, settings, log)
            options = resumable_options(settings)
            self.engine = create_engine(settings.engine, self.model, ranks, self.effective.precision, options, probe.startup)
            self.start_step = resume_from_checkpoint(self.engine, settings, context)
            self.choices |= self.engine.choices
            self.choices["model_load_dtype"] = self._load_dtype()
            self.choices |= apply_fast_paths(self.model, settings, ranks.device, self.choices["model_load_dtype"].effective)
        with probe.startup("data"):
            self._load_data()

    def _load_data(self) -> None:
        settings, ranks = self.settings, self.ranks
        self.loader = train_loader(settings, ranks, self.tokenizer, self.model.tower.num_frames, self.start_step)
        self.choices |= self.loader.choices()
        # Created now, so that a missing validation set fails before the training, not during it.
        self.validation = validation_loader(settings, ranks, self.tokenizer) if settings.validation_every_steps else None

    def train(self, no_effect: Mapping[str, Choice]) -> None:
        settings, probe = self.settings, self.probe
        self.model.train()
        self.compile_and_capture()
        self._log_effective(self.choices | dict(no_effect))
        probe.resume_at(self.start_step)
        for step, batch in enumerate(probe.data(self.loader), start=self.start_step):
            with probe.step(samples=settings.micro_batch):
                loss = self._train_step(batch)
            probe.loss(loss)
            # The lengths are still on the CPU: the sum does not wait for the GPU.
            self.num_rows += len(batch.num_samples)
            self.audio_s += int(batch.num_samples.sum()) / SAMPLE_RATE
            self._after_step(step, loss)

    def close(self) -> None:
        if self.recompiles is not None:
            self.recompiles.close()
        self.engine.close()

    def _load_dtype(self) -> Choice:
        """Dtype of the frozen weights after the engine may have cast them."""
        choice, mixed = self.choices["model_load_dtype"], self.choices.get("mixed_precision")
        effective = self.effective.precision.effective
        if mixed is None or mixed.effective != "weights" or choice.effective == effective:
            return choice
        return Choice(choice.requested, effective, f"16-bit weights: DeepSpeed casts the whole model to {effective}")

    def compile_and_capture(self) -> None:
        """One-time work before the first step, as a named pause."""
        is_idle = not self.settings.torch_compile and self.ranks.device.type != "cuda"
        self.choices["torch_compile"] = as_requested(self.settings.torch_compile)
        with contextlib.nullcontext() if is_idle else self.probe.pause("compile"):
            if self.settings.torch_compile:
                self.choices["torch_compile"] = compile_tower(self.model, self.engine, self.settings, self.ranks, self._inputs)
            self.choices["tower_graph"] = capture_tower(self.model, self.settings, self.ranks, self.effective.precision)
        self.choices |= self._compile_details(self.choices["torch_compile"])
        if self.settings.torch_compile and self.choices["torch_compile"].effective:
            self.recompiles = RecompileWatch(self.choices["torch_compile"])
        self.choices["fast_paths"] = summarize_parts(str(self.settings.fast_paths), PARTS, self.choices)

    def _compile_details(self, compiled: Choice) -> dict[str, Choice]:
        return compile_details(self.settings, compiled, dynamic_shapes(self.model, self.settings, self.ranks))

    def _train_step(self, batch: Batch) -> Tensor:
        probe = self.probe
        with probe.phase("preprocess"):
            inputs = self._inputs(batch)
        with probe.phase("fwd"):
            loss = self.engine.forward(**inputs)
        with probe.phase("bwd"):
            self.engine.backward(loss)
        with probe.phase("step"):
            self.engine.step()
        return loss.detach()

    def _inputs(self, batch: Batch) -> dict[str, Tensor | None]:
        """The model's inputs, on its device."""
        batch = batch.to(self.ranks.device)
        inputs = {
            "audio": batch.audio,
            "token_ids": batch.token_ids,
            "token_mask": batch.token_mask,
            "num_samples": None if batch.same_length else batch.num_samples,
            "time_mask": batch.time_mask,
        }
        graphed = self.choices.get("tower_graph")
        if graphed is not None and graphed.effective and self.model.training:
            samples = longest_samples(self.settings)
            return pad_inputs(inputs, samples, self.model.tower.num_frames(samples))
        return inputs

    def _after_step(self, step: int, loss: Tensor) -> None:
        """Log, validate and checkpoint where due."""
        settings = self.settings
        if is_logged(step, settings.log_every, settings.steps):
            self.log.step(step, loss.item())
            self.probe.memory()
            # Slices of different lengths are compared by seconds of audio.
            self.probe.figure("audio_s_per_sample", self.audio_s / self.num_rows, "s", self.num_rows)
            if self.recompiles is not None and (changed := self.recompiles.report(step, self.probe)):
                self.log.info(f"torch_compile: {changed.requested} -> {changed.effective} ({changed.reason})")
                record(self._compile_details(changed), self.probe)
        if is_due(step, settings.validation_every_steps):
            with self.probe.pause("eval"):
                self._validate(step)
        if is_checkpoint_due(step, settings):
            with self.probe.pause("checkpoint"):
                save_training(self.engine, settings, self.context, step)

    @torch.no_grad()
    def _validate(self, step: int) -> None:
        """Every rank runs the same validation, so that none waits for another outside a timed phase."""
        assert self.validation is not None
        self.model.eval()
        losses = []
        for number, batch in enumerate(self.validation, start=1):
            losses.append(self.engine.forward(**self._inputs(batch)).float())
            self.log.info(f"Val Step {number}/{len(self.validation)} Loss {losses[-1].item():.4f}")
        self.model.train()
        self.log.info(f"Validation Finished for Step {step}. Avg Loss: {torch.stack(losses).mean().item():.4f}")

    def _log_effective(self, choices: Mapping[str, Choice]) -> None:
        """Record and log the effective settings."""
        settings, ranks = self.settings, self.ranks
        record(choices, self.probe)
        trained, everything = self.num_parameters
        self.log.info(
            f"contrastive: {trained:,} trained of {everything:,} parameters, speech {describe_source(settings.speech_model)}, "
            f"text {describe_source(settings.text_model)}, batch {settings.micro_batch} x {ranks.world_size} ranks, "
            f"{settings.engine}, {ranks.device_name}"
        )
        self.log.info(f"Training set: {self.loader.utterances.summary()}")
        for name, choice in choices.items():
            # Of unused settings, log only those that the user may have set.
            is_unset = choice.effective is None and choice.requested == getattr(Settings, name, None)
            if choice.requested != choice.effective and not is_unset:
                self.log.info(f"{name}: {choice.requested} -> {choice.effective} ({choice.reason})")


if __name__ == "__main__":
    main()
