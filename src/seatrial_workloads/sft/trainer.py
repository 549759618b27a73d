"""The Hugging Face Trainer with what it lacks: tokens and examples of each step, FSDP where it would train DDP, complete checkpoints.

The Trainer sets up the process group, the sampler, autocast, DDP and the loop. Checkpoints are written as every workload's are
(`common.checkpoints`), with the whole state, so that a run may resume with another strategy.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import RandomSampler
from transformers import Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from seatrial.probe import Probe
from seatrial.probe.hf import SeatrialCallback
from seatrial_workloads.common.checkpoints import (
    CheckpointInfo,
    load_random_states,
    load_tensors,
    save_checkpoint,
    save_random_states,
    save_tensors,
    tag_name,
)
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.errors import NotFinite
from seatrial_workloads.sft.fast.graph import GraphedStep
from seatrial_workloads.sft.fsdp import gathered_state, load_optimizer_state, optimizer_state
from seatrial_workloads.sft.packing import COUNTS
from seatrial_workloads.sft.settings import Settings
from seatrial_workloads.sft.step_counts import StepCounter
from seatrial_workloads.sft.text import TEMPLATE

OPTIMIZER, SCHEDULER = "optimizer.pt", "scheduler.pt"
ENGINE = "hf_trainer"
NAN_LOSS = "nan_loss"
NUM_ITEMS = "num_items_in_batch"
"""Key of a step's number of learnt tokens, the divisor of its loss: a graph takes it as a tensor of the batch."""


def training_arguments(settings: Settings, output_dir: Path, precision: str | None = None) -> TrainingArguments:
    """Creating them joins the process group."""
    on_cpu = settings.device == "cpu" or (settings.device == "auto" and not torch.cuda.is_available())
    arguments = TrainingArguments(
        output_dir=str(output_dir),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.micro_batch,
        gradient_accumulation_steps=settings.grad_accum,
        learning_rate=settings.lr,
        optim="adamw_torch",
        seed=settings.seed,
        bf16=precision == "bf16",
        gradient_checkpointing=settings.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": settings.checkpointing_reentrant} if settings.gradient_checkpointing else None,
        ddp_find_unused_parameters=settings.ddp_find_unused_parameters,
        ddp_static_graph=settings.ddp_static_graph or None,
        ddp_backend=("gloo" if on_cpu else "nccl") if int(os.environ.get("WORLD_SIZE") or 1) > 1 else None,
        torch_compile=settings.torch_compile,
        logging_steps=settings.log_every,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=settings.save_steps or settings.steps,
        # The last, incomplete batch of an epoch would be filled with examples of another rank.
        dataloader_drop_last=True,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        use_cpu=on_cpu,
    )
    # One process with several GPUs would train with nn.DataParallel.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def sequences_per_step(settings: Settings, world_size: int) -> int:
    return settings.micro_batch * settings.grad_accum * world_size


def decisive_settings(settings: Settings, precision: str, tokenised: str) -> dict[str, Any]:
    """All settings, effective values where they decide the mathematics, and the name of the tokenised dataset, which has a key of its
    content."""
    return {**asdict(settings), "precision": precision, "template": TEMPLATE, "tokenised": tokenised}


class StepCallback(SeatrialCallback):
    """The probe's callback, with the tokens of each step and the run's times."""

    def __init__(self, probe: Probe, step_counter: StepCounter) -> None:
        super().__init__(probe=probe)
        self._step_counter = step_counter

    def work_of_step(self, args: Any) -> tuple[int, int | None]:
        step = self._step_counter.steps[-1]
        return len(step.ids), step.total("real")

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._step_counter.step_begins()
        super().on_step_begin(args, state, control, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_step_end(args, state, control, **kwargs)
        self._step_counter.step_ended(is_last=control.should_training_stop or state.global_step >= state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().on_log(args, state, control, logs=logs, **kwargs)
        loss = (logs or {}).get("loss")
        if isinstance(loss, float):
            # The mean over all ranks: all end here, before a checkpoint of this step is written.
            check_finite(loss, state.global_step)
            self._step_counter.losses.append(loss)


def check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise NotFinite(
            f"loss is not finite ({loss}) at step {step}, {NAN_LOSS}: all ranks end without a checkpoint of it; "
            "look at the data, or lower lr"
        )


class SftTrainer(Trainer):
    """`strategy` is the effective one: ddp, fsdp or none; under fsdp the model is sharded already."""

    def __init__(
        self,
        *,
        settings: Settings,
        strategy: str,
        ranks: Ranks,
        run_dir: Path,
        probe: Probe,
        precision: str,
        cuda_graph: bool = False,
        first_step: int = 0,
        **options: Any,
    ) -> None:
        self.settings, self.strategy, self.ranks, self.run_dir, self.probe = settings, strategy, ranks, run_dir, probe
        self.precision, self.cuda_graph = precision, cuda_graph
        self.graphed: GraphedStep | None = None
        synchronize: Callable[[], None] = torch.cuda.synchronize if ranks.device.type == "cuda" else lambda: None
        self.step_counter = StepCounter(settings.steps - first_step, synchronize)
        super().__init__(
            callbacks=[StepCallback(probe, self.step_counter)], args=training_arguments(settings, run_dir, precision), **options
        )

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.strategy == "fsdp":
            prepare = self.accelerator.prepare_model
            # Autocast as for any model, but no DDP around a sharded one.
            self.accelerator.prepare_model = lambda model, **_: prepare(model, device_placement=False, evaluation_mode=True)

    def _get_train_sampler(self, train_dataset: Any = None) -> RandomSampler:
        """A permutation that ends with a whole step: the Trainer's last step of an epoch would be shorter."""
        dataset = self.train_dataset if train_dataset is None else train_dataset
        of_a_step = sequences_per_step(self.settings, self.ranks.world_size)
        return RandomSampler(dataset, num_samples=len(dataset) // of_a_step * of_a_step)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        self.step_counter.add(int(self.state.epoch or 0), [batch.pop(COUNTS) for batch in batches])
        return batches, num_items

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward; replayed from a CUDA graph where that is in effect."""
        if not self.cuda_graph:
            return super().training_step(model, inputs, num_items_in_batch)
        if self.graphed is None:
            plain = super().training_step
            weights = [weight for weight in model.parameters() if weight.requires_grad]

            def step(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
                rest = dict(batch)
                return plain(model, rest, rest.pop(NUM_ITEMS))

            self.graphed = GraphedStep(step, weights)
        # A row's padding is not masked: the mask would be one more tensor to copy, and the attention in effect needs none.
        batch = {name: tensor for name, tensor in self._prepare_inputs(inputs).items() if name != "attention_mask"}
        num_items = torch.as_tensor(num_items_in_batch, device=self.args.device)
        # The loss is overwritten by the next step, and the Trainer sums losses between two logs.
        return self.graphed({**batch, NUM_ITEMS: num_items}).clone()

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        begin = time.monotonic()
        # For the steps since the last log line, which checked those before.
        worst = self.ranks.all_reduce_max([float(not math.isfinite(float(self._tr_loss)))])[0]
        check_finite(math.nan if worst else 0.0, self.state.global_step)
        info = CheckpointInfo(
            engine=ENGINE,
            zero_stage=0,
            world_size=self.ranks.world_size,
            step=self.state.global_step - 1,
            seed=self.settings.seed,
            settings=decisive_settings(self.settings, self.precision, self.train_dataset.name),
        )
        save_checkpoint(self.run_dir, tag_name(info.step, "global_step"), info, self._write_checkpoint, self.ranks, keep=1)
        self.step_counter.paused(time.monotonic() - begin)

    def _write_checkpoint(self, folder: Path) -> None:
        self.save_model(str(folder), _internal_call=True)
        state = optimizer_state(self.model, self.optimizer.optimizer)
        if self.ranks.rank == 0:
            save_tensors(folder / OPTIMIZER, state)
            save_tensors(folder / SCHEDULER, self.lr_scheduler.state_dict())
            self.state.save_to_json(str(folder / TRAINER_STATE_NAME))
        save_random_states(folder, self.ranks.rank)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """A collective call under FSDP: rank 0 writes what all gather. The callback times the pause of a checkpoint."""
        with contextlib.nullcontext() if _internal_call else self.probe.pause("checkpoint"):
            if self.strategy != "fsdp":
                super().save_model(output_dir, _internal_call)
                return
            state = gathered_state(self.model, trainable_only=self.settings.use_lora)
            if self.ranks.rank == 0:
                self._save(output_dir, state_dict=state)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Weights were loaded before the model was sharded or wrapped."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer_state(self.model, self.optimizer.optimizer, load_tensors(Path(checkpoint) / OPTIMIZER))
            self.lr_scheduler.load_state_dict(load_tensors(Path(checkpoint) / SCHEDULER))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_random_states(Path(checkpoint), self.ranks.rank)
