"""Train a small transformer with DDP. In: settings. Out: events, heartbeats, train.log, checkpoint.pt where one was asked for.

torchrun --standalone --nproc_per_node 2 -m seatrial_workloads.tiny_lm.train --steps 50 --micro_batch 8

2026-11-15 03:24:55,193 - seatrial - INFO - tiny_lm: 445,952 parameters, seq_len 128, batch 8 x 2 ranks, fp32 (CPU: fp32), cpu
2026-11-15 03:24:55,693 - seatrial - INFO - Step 0: Loss 5.5813
2026-11-15 03:24:55,694 - seatrial - INFO - Timing(window=100): data_wait_ms:p50=0.95 p90=0.95 | … | iter_ms:p50=38.20 p90=38.20
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seatrial.files import BY_UMASK, written_aside
from seatrial_workloads.common.choice import Choice, record
from seatrial_workloads.common.distributed import Ranks, lowest_capability
from seatrial_workloads.common.due import is_due, is_logged
from seatrial_workloads.common.made_ahead import told_of_prefetch
from seatrial_workloads.common.one_rank import OneRank, one_rank
from seatrial_workloads.common.precision import Precision, choose_precision, refuse_fp16_without_gpu
from seatrial_workloads.common.settings_file import load_settings
from seatrial_workloads.tiny_lm.data import eval_batches, train_loader
from seatrial_workloads.tiny_lm.model import TinyLM, new_model, next_token_loss
from seatrial_workloads.tiny_lm.settings import Settings


def main(argv: list[str] | None = None) -> None:
    start = load_settings(Settings, argv)
    settings = start.settings
    refuse_fp16_without_gpu(settings.precision, settings.device)
    with one_rank(start.run_dir, settings.device, settings.steps) as here:
        Trainer(settings, here).train()


class Trainer:
    """Model, optimiser and loop of one rank."""

    def __init__(self, settings: Settings, here: OneRank) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.run_dir, self.probe, self.ranks, self.lines = here
        probe, ranks = here.probe, here.ranks
        self.precision = choose_precision(settings.precision, lowest_capability(ranks))
        with probe.startup("model"):
            self.bare_model = new_model(settings).to(ranks.device)
            self.model = wrap(self.bare_model, settings, ranks)
            self.optimizer = torch.optim.AdamW(self.bare_model.parameters(), lr=settings.lr, fused=ranks.device.type == "cuda")
            self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=self.precision.needs_scaler)
        with probe.startup("data"):
            self.loader = train_loader(settings, ranks)

    def train(self) -> None:
        settings, probe = self.settings, self.probe
        self.tell_effective()
        if settings.compile:
            with probe.pause("compile"):
                self.compile()
        samples, tokens = settings.micro_batch, settings.micro_batch * settings.seq_len
        for step, batch in enumerate(probe.data(self.loader)):
            with probe.step(samples=samples, tokens=tokens):
                loss = self.train_step(batch)
            probe.loss(loss)
            self.after_step(step, loss)

    def train_step(self, batch: list[Tensor]) -> Tensor:
        probe, device = self.probe, self.ranks.device
        with probe.phase("preprocess"):
            inputs, targets = (part.to(device, non_blocking=True) for part in batch)
        with probe.phase("fwd"):
            loss = self.loss_of(inputs, targets)
        with probe.phase("bwd"):
            self.scaler.scale(loss).backward()
        with probe.phase("step"):
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        return loss.detach()

    def loss_of(self, inputs: Tensor, targets: Tensor) -> Tensor:
        with self.precision.autocast(self.ranks.device):
            logits = self.model(inputs)
        return next_token_loss(logits, targets)

    def after_step(self, step: int, loss: Tensor) -> None:
        """What is due after this step: lines, an evaluation, a checkpoint."""
        settings = self.settings
        if is_logged(step, settings.log_every, settings.steps):
            self.lines.step(step, loss.item())
            self.probe.memory()
        if is_due(step, settings.eval_every):
            with self.probe.pause("eval"):
                self.lines.say(f"Validation Finished for Step {step}. Avg Loss: {self.evaluate():.4f}")
        if is_due(step, settings.checkpoint_every):
            with self.probe.pause("checkpoint"):
                self.save_checkpoint(step)

    @torch.no_grad()
    def evaluate(self) -> float:
        """Every rank does the same evaluation: none waits for another in a place that is not timed."""
        self.model.eval()
        losses = [self.loss_of(inputs, targets) for inputs, targets in eval_batches(self.settings, self.ranks)]
        self.model.train()
        return float(torch.stack(losses).mean())

    def save_checkpoint(self, step: int) -> None:
        """Rank 0 writes aside and renames; the others wait, so that the pause is the same for all. The disk is not waited for: the pause
        is measured, and is that of the training."""
        if self.ranks.rank == 0:
            content = {"step": step, "model": self.bare_model.state_dict(), "optimizer": self.optimizer.state_dict()}
            with written_aside(self.run_dir / "checkpoint.pt", BY_UMASK, to_disk=False) as aside:
                torch.save(content, aside)
        self.ranks.barrier()

    def compile(self) -> None:
        """Compile forward and backward on a batch of zeros, which leaves no trace in the weights."""
        zeros = torch.zeros(self.settings.micro_batch, self.settings.seq_len, dtype=torch.long, device=self.ranks.device)
        self.loss_of(zeros, zeros).backward()
        self.optimizer.zero_grad()

    def tell_effective(self) -> None:
        """What the settings came to on this machine, for the record and for people."""
        settings, ranks, precision = self.settings, self.ranks, self.precision
        record(choices(settings, ranks, precision), self.probe)
        self.lines.say(
            f"tiny_lm: {self.bare_model.num_parameters:,} parameters, seq_len {settings.seq_len}, "
            f"batch {settings.micro_batch} x {ranks.world_size} ranks, {precision.effective} ({precision.reason}), {ranks.device_name}"
        )


def choices(settings: Settings, ranks: Ranks, precision: Precision) -> dict[str, Choice]:
    """What was asked for, what it came to and why, by setting."""
    return {
        "precision": precision,
        "device": Choice(settings.device, str(ranks.device), ranks.device_name),
        **told_of_prefetch(settings.num_workers, settings.prefetch_factor),
    }


def wrap(model: TinyLM, settings: Settings, ranks: Ranks) -> nn.Module:
    """DDP where there is more than one rank, compiled where that was asked for."""
    wrapped: nn.Module = model
    if ranks.world_size > 1:
        wrapped = DistributedDataParallel(model, device_ids=[ranks.local_rank] if ranks.device.type == "cuda" else None)
    return torch.compile(wrapped) if settings.compile else wrapped


if __name__ == "__main__":
    main()
