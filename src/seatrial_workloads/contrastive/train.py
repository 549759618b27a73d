"""Train speech and text encoders to agree. In: settings. Out: events, heartbeats, train.log, checkpoints where they were asked for.

torchrun --standalone --nproc_per_node 2 -m seatrial_workloads.contrastive.train --dataset_root data/synthetic --steps 50

2026-11-15 13:02:11,402 - seatrial - INFO - contrastive: 105,281 trained of 228,129 parameters, speech tiny (random weights), …
2026-11-15 13:02:11,911 - seatrial - INFO - Step 0: Loss 2.0793
2026-11-15 13:02:12,004 - seatrial - INFO - Timing(window=100): data_wait_ms:p50=0.95 p90=0.95 | … | iter_ms:p50=38.20 p90=38.20

The order of things: policies (precision, attention, …) → model → weights → engine → checkpoint to go on from → fast parts → compile →
CUDA graphs → steps. People who type Hydra's keys come in through `hydra_config.train`; both ways end in `train`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from seatrial.probe import Probe
from seatrial.probe.identity import rank_and_world_size
from seatrial_workloads.common.checkpoints import (
    Facts,
    find_checkpoint,
    load_weights,
    refuse_misfit,
    refuse_other_settings,
    save_checkpoint,
    tag_of,
)
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.compiling import compile_or_fall_back
from seatrial_workloads.common.distributed import Ranks, joined_ranks
from seatrial_workloads.common.engines import EngineOptions, make_engine
from seatrial_workloads.common.human_lines import HumanLines
from seatrial_workloads.common.math_backend import prepare_determinism
from seatrial_workloads.common.precision import refuse_fp16_without_gpu, torch_dtype
from seatrial_workloads.common.settings_file import load_settings
from seatrial_workloads.common.startup_error import StartupError
from seatrial_workloads.common.timing_lines import TimingLines
from seatrial_workloads.common.used_folder import refuse_used_folder
from seatrial_workloads.contrastive.batch import Batch
from seatrial_workloads.contrastive.data import load_tokenizer, train_loader, validation_loader
from seatrial_workloads.contrastive.fast.choose import capture_tower, longest_samples, padded, take_fast_parts
from seatrial_workloads.contrastive.model import SpeechEncoder, SpeechTextModel
from seatrial_workloads.contrastive.policies import Policies, math_options, resolve_policies
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.contrastive.sources import described, speech_model, text_model, told_of_sources

# What a checkpoint was made with and a training that goes on after it must have too: the frozen encoders come from models and seed, and
# which utterances were seen already follows from seed and batch.
SAME_ON_RESUME = ("seed", "speech_model", "text_model", "micro_batch", "length_buckets", "gather_negatives")
# What may well be other, and is not worth a word.
FREE_ON_RESUME = ("steps", "resume_from", "log_every", "num_workers", "prefetch_factor", "pretrained_checkpoint")


def main(argv: list[str] | None = None) -> None:
    start = load_settings(Settings, argv)
    try:
        if rank_and_world_size(os.environ)[0] == 0:
            refuse_used_folder(start.run_dir)
        train(start.settings, start.run_dir)
    except StartupError as error:
        sys.exit(f"contrastive: error: {error}")


def train(settings: Settings, run_dir: Path, no_effect: Mapping[str, Choice] | None = None) -> None:
    """One rank's training; `no_effect` are settings of the caller's that do nothing here, to be told with the others."""
    refuse_fp16_without_gpu(settings.precision, settings.device)
    prepare_determinism(math_options(settings))
    with Probe(run_dir) as probe, joined_ranks(settings.device, probe) as ranks:
        timing = TimingLines(ranks.rank, settings.steps, probe.recent, ranks.largest)
        with HumanLines(run_dir, ranks.rank, timing) as lines:
            trainer = Trainer(settings, run_dir, ranks, probe, lines)
            try:
                trainer.train(no_effect or {})
            finally:
                trainer.close()


class Trainer:
    """Model, engine and loop of one rank."""

    def __init__(self, settings: Settings, run_dir: Path, ranks: Ranks, probe: Probe, lines: HumanLines) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.run_dir, self.ranks, self.probe, self.lines = settings, run_dir, ranks, probe, lines
        self.policies = resolve_policies(settings, ranks)
        self.choices: dict[str, Choice] = {**self.policies.choices, **told_of_sources(settings)}
        with probe.startup("model"):
            self.tokenizer = load_tokenizer(settings.text_model)
            self.model = new_model(settings, self.policies, len(self.tokenizer))
            self.num_parameters = num_parameters(self.model)
            self._start_from_weights()
            self.engine = make_engine(settings.engine, self.model, ranks, self.policies.precision, engine_options(settings))
            self.start_step = self._resume()
            self.choices |= self.engine.choices
            self.choices["model_load_dtype"] = self._load_dtype()
            self.choices |= take_fast_parts(self.model, settings, ranks.device, self.choices["model_load_dtype"].effective)
        with probe.startup("data"):
            self.loader = train_loader(settings, ranks, self.tokenizer, self.model.tower.num_frames, self.start_step)
            # Made now: a validation set that is not there is told before the training, not in the middle of it.
            self.choices |= self.loader.choices()
            self.validation = validation_loader(settings, ranks, self.tokenizer) if settings.validation_every_steps else None

    def train(self, no_effect: Mapping[str, Choice]) -> None:
        settings, probe = self.settings, self.probe
        self.model.train()
        self._compile_and_capture()
        self._tell(self.choices | dict(no_effect))
        probe.resume_at(self.start_step)
        for step, batch in enumerate(probe.data(self.loader), start=self.start_step):
            with probe.step(samples=settings.micro_batch):
                loss = self._train_step(batch)
            probe.loss(loss)
            self._after_step(step, loss)

    def close(self) -> None:
        self.engine.close()

    def _start_from_weights(self) -> None:
        if self.settings.pretrained_checkpoint is None:
            return
        loaded = load_weights(self.model, Path(self.settings.pretrained_checkpoint))
        self.lines.say(f"Weights from {self.settings.pretrained_checkpoint}")
        frozen = {name for name, parameter in self.model.named_parameters() if not parameter.requires_grad}
        for what, keys in (("missing in it", loaded.missing), ("unexpected in it", loaded.unexpected)):
            named = [key for key in keys if key not in frozen]
            if named:
                self.lines.say(f"{len(named)} keys {what}: {', '.join(named)}")
            if len(named) < len(keys):
                places = Counter(key.rsplit(".layer", 1)[0].rsplit(".conv_layers", 1)[0] for key in keys if key in frozen)
                told = ", ".join(f"{place}.* ({count})" for place, count in places.items())
                self.lines.say(f"keys of the frozen encoders {what}, which stay as they are: {told}")

    def _resume(self) -> int:
        """The step to begin with."""
        settings = self.settings
        if settings.resume_from is None:
            return 0
        checkpoint = find_checkpoint(Path(settings.resume_from))
        refuse_misfit(checkpoint, engine=settings.engine, zero_stage=settings.zero_stage, world_size=self.ranks.world_size)
        refuse_other_settings(checkpoint, dataclasses.asdict(settings), SAME_ON_RESUME)
        self.engine.load(checkpoint.folder)
        done = checkpoint.facts.step
        if done + 1 >= settings.steps:
            raise StartupError(f"{checkpoint.folder} is of step {done}, and steps is {settings.steps}: nothing is left to do")
        self.lines.say(f"Going on after step {done} from {checkpoint.folder}")
        for name, value in dataclasses.asdict(settings).items():
            saved = checkpoint.facts.settings.get(name, value)
            if saved != value and name not in FREE_ON_RESUME:
                self.lines.say(f"{name} was {saved} and is {value} from here on")
        return done + 1

    def _load_dtype(self) -> Choice:
        """What the frozen weights are in, once the engine has had its way with them."""
        choice, mixed = self.choices["model_load_dtype"], self.choices.get("mixed_precision")
        effective = self.policies.precision.effective
        if mixed is None or mixed.effective != "weights" or choice.effective == effective:
            return choice
        return Choice(choice.requested, effective, f"ZeRO {self.settings.zero_stage} casts the whole model to {effective}")

    def _compile_and_capture(self) -> None:
        """What takes long once, before the first step and outside of its time."""
        if not self.settings.torch_compile and self.ranks.device.type != "cuda":
            return
        with self.probe.pause("compile"):
            if self.settings.torch_compile:
                self._compile()
            self.choices["tower_graph"] = capture_tower(self.model, self.settings, self.ranks.device, self.policies.precision)

    def _compile(self) -> None:
        settings = self.settings
        plain = self.model.paths.speech

        def warm_up(compiled: SpeechEncoder) -> None:
            self.model.paths.speech = compiled
            try:
                self.engine.warm_up(**self._inputs(self._still_batch()))
            finally:
                self.model.paths.speech = plain

        self.model.paths.speech, self.choices["torch_compile"] = compile_or_fall_back(
            self.model.tower,
            warm_up,
            ranks=self.ranks,
            mode=settings.torch_compile_mode,
            dynamic=self._compiles_dynamic(),
            cannot_compile=self.engine.cannot_compile,
        )

    def _compiles_dynamic(self) -> bool | None:
        settings = self.settings
        if settings.torch_compile_dynamic is not None:
            return settings.torch_compile_dynamic
        return False if settings.fixed_slice_s is not None else None

    def _still_batch(self) -> Batch:
        """A batch of the longest slices with nothing in it."""
        rows, samples = self.settings.micro_batch, longest_samples(self.settings)
        return Batch(
            audio=torch.zeros(rows, samples),
            num_samples=torch.full((rows,), samples),
            token_ids=torch.zeros(rows, 8, dtype=torch.long),
            token_mask=torch.ones(rows, 8, dtype=torch.long),
            time_mask=torch.zeros(rows, self.model.tower.num_frames(samples), dtype=torch.bool) if self.settings.mask_time_prob else None,
            same_length=True,
        )

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
        """What the model is given, on its device."""
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
            return padded(inputs, samples, self.model.tower.num_frames(samples))
        return inputs

    def _after_step(self, step: int, loss: Tensor) -> None:
        """What is due after this step: lines, a validation, a checkpoint."""
        settings = self.settings
        if step % settings.log_every == 0 or step == settings.steps - 1:
            self.lines.step(step, loss.item())
            self.probe.memory()
        if is_due(step, settings.validation_every_steps):
            with self.probe.pause("eval"):
                self._validate(step)
        if is_due(step, settings.checkpoint_every_steps) or self._is_last_to_be_saved(step):
            with self.probe.pause("checkpoint"):
                self._save(step)

    def _is_last_to_be_saved(self, step: int) -> bool:
        """The last step has a checkpoint too, unless they are farther apart than the run is long: that is how never is said of old."""
        every = self.settings.checkpoint_every_steps
        return every is not None and every <= self.settings.steps and step == self.settings.steps - 1

    @torch.no_grad()
    def _validate(self, step: int) -> None:
        """Every rank does the same validation: none waits for another in a place that is not timed."""
        assert self.validation is not None
        self.model.eval()
        losses = []
        for number, batch in enumerate(self.validation, start=1):
            losses.append(self.engine.forward(**self._inputs(batch)).float())
            self.lines.say(f"Val Step {number}/{len(self.validation)} Loss {losses[-1].item():.4f}")
        self.model.train()
        self.lines.say(f"Validation Finished for Step {step}. Avg Loss: {torch.stack(losses).mean().item():.4f}")

    def _save(self, step: int) -> None:
        settings = self.settings
        facts = Facts(
            engine=settings.engine,
            zero_stage=settings.zero_stage,
            world_size=self.ranks.world_size,
            step=step,
            seed=settings.seed,
            settings=dataclasses.asdict(settings),
        )
        tag = tag_of(step, settings.checkpoint_tag_style)
        folder = save_checkpoint(
            self.run_dir, tag, facts, lambda part: self.engine.save(part, {"step": step}), self.ranks, keep=settings.checkpoint_keep
        )
        self.lines.say(f"Checkpoint of step {step}: {folder}")

    def _tell(self, choices: Mapping[str, Choice]) -> None:
        """What the settings came to on this machine, for the record and for people."""
        settings, ranks = self.settings, self.ranks
        for name, choice in choices.items():
            self.probe.effective(name, requested=choice.requested, effective=choice.effective, reason=choice.reason)
        trained, everything = self.num_parameters
        self.lines.say(
            f"contrastive: {trained:,} trained of {everything:,} parameters, speech {described(settings.speech_model)}, "
            f"text {described(settings.text_model)}, batch {settings.micro_batch} x {ranks.world_size} ranks, "
            f"{settings.engine}, {ranks.device_name}"
        )
        self.lines.say(f"Training set: {self.loader.utterances.described()}")
        for name, choice in choices.items():
            if choice.requested != choice.effective:
                self.lines.say(f"{name}: {choice.requested} -> {choice.effective} ({choice.reason})")


def new_model(settings: Settings, policies: Policies, vocab_size: int) -> SpeechTextModel:
    """On the CPU, so that the same seed gives the same weights everywhere; the frozen parts in their own number format."""
    model = SpeechTextModel(
        speech_model(settings.speech_model, policies.speech_attention),
        text_model(settings.text_model, policies.text_attention, vocab_size),
        gather_negatives=settings.gather_negatives,
    )
    frozen = torch_dtype(policies.load_dtype)
    model.text.to(frozen)
    model.tower.speech.feature_extractor.to(frozen)
    if not settings.mask_time_prob:
        # Nothing is masked, so what stands for masked frames has no gradient, and ranks would wait for one.
        model.tower.speech.masked_spec_embed.requires_grad_(False)
    return model


def num_parameters(model: torch.nn.Module) -> tuple[int, int]:
    """Trained ones, and all; asked before ZeRO 3 shares them out."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes)


def engine_options(settings: Settings) -> EngineOptions:
    return EngineOptions(
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_steps,
        schedule_steps=settings.schedule_steps,
        min_lr_ratio=settings.min_lr_ratio,
        gradient_clipping=settings.gradient_clipping,
        exclude_frozen=settings.checkpoint_exclude_frozen,
        micro_batch=settings.micro_batch,
        zero_stage=settings.zero_stage,
        torch_adam=settings.torch_adam,
        overlap_comm=settings.overlap_comm,
        bucket_size=settings.bucket_size,
        wall_clock_breakdown=settings.wall_clock_breakdown,
    )


def is_due(step: int, every: int | None) -> bool:
    return every is not None and step > 0 and step % every == 0


if __name__ == "__main__":
    main()
