"""Train a small transformer with DDP. In: settings. Out: events, heartbeats, train.log, checkpoints/newest.pt if requested.

torchrun --standalone --nproc_per_node 2 -m seatrial_workloads.tiny_lm.train --steps 50 --micro_batch 8

2026-11-15 03:24:55,193 - seatrial - INFO - tiny_lm: 445,952 parameters, seq_len 128, batch 8 x 2 ranks, fp32 (CPU: fp32), cpu
2026-11-15 03:24:55,693 - seatrial - INFO - Step 0: Loss 5.5813
2026-11-15 03:24:55,694 - seatrial - INFO - Timing(window=100): data_wait_ms:p50=0.95 p90=0.95 | … | iter_ms:p50=38.20 p90=38.20
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seatrial.core.files import BY_UMASK, atomic_write
from seatrial_workloads.common.checkpoints import CheckpointError, load_tensors, resume_source
from seatrial_workloads.common.compile import compile_or_fall_back
from seatrial_workloads.common.distributed import RankContext, Ranks, lowest_capability, rank_context
from seatrial_workloads.common.effective_settings import Choice, prefetch_without_workers, record
from seatrial_workloads.common.precision import check_fp16_has_gpu, choose_precision
from seatrial_workloads.common.settings import load_settings
from seatrial_workloads.common.train_log import is_due, is_logged
from seatrial_workloads.tiny_lm.data import eval_batches, train_loader
from seatrial_workloads.tiny_lm.model import TinyLM, next_token_loss
from seatrial_workloads.tiny_lm.settings import Settings

CHECKPOINT = "checkpoints/newest.pt"


def main(argv: list[str] | None = None) -> None:
    start = load_settings(Settings, argv)
    settings = start.settings
    check_fp16_has_gpu(settings.precision, settings.device)
    with rank_context(start.run_dir, settings.device, settings.steps) as context:
        Trainer(settings, context).train()


class Trainer:
    """Model, optimiser and loop of one rank."""

    def __init__(self, settings: Settings, context: RankContext) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.run_dir, self.probe, self.ranks, self.log = context
        probe, ranks = context.probe, context.ranks
        self.precision = choose_precision(settings.precision, lowest_capability(ranks))
        with probe.startup("model"):
            self.bare_model = TinyLM(settings).to(ranks.device)
            self.model = wrap(self.bare_model, ranks)
            self.optimizer = torch.optim.AdamW(self.bare_model.parameters(), lr=settings.lr, fused=ranks.device.type == "cuda")
            self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=self.precision.needs_scaler)
            self.start_step = self.resume()
        with probe.startup("data"):
            self.loader = train_loader(settings, ranks, self.start_step)

    def train(self) -> None:
        settings, probe = self.settings, self.probe
        self.log_effective()
        if settings.compile:
            with probe.pause("compile"):
                record({"compile": self.compile()}, probe)
        samples, tokens = settings.micro_batch, settings.micro_batch * settings.seq_len
        probe.resume_at(self.start_step)
        for step, batch in enumerate(probe.data(self.loader), start=self.start_step):
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
        """Log, evaluate and checkpoint where due."""
        settings = self.settings
        if is_logged(step, settings.log_every, settings.steps):
            self.log.step(step, loss.item())
            self.probe.memory()
        if is_due(step, settings.eval_every):
            with self.probe.pause("eval"):
                self.log.info(f"Validation Finished for Step {step}. Avg Loss: {self.evaluate():.4f}")
        if is_due(step, settings.checkpoint_every):
            with self.probe.pause("checkpoint"):
                self.save_checkpoint(step)

    @torch.no_grad()
    def evaluate(self) -> float:
        """Every rank runs the same evaluation, so that none waits for another outside a timed phase."""
        self.model.eval()
        losses = [self.loss_of(inputs, targets) for inputs, targets in eval_batches(self.settings, self.ranks)]
        self.model.train()
        return float(torch.stack(losses).mean())

    def save_checkpoint(self, step: int) -> None:
        """Rank 0 writes aside and renames; the others wait, so that the pause is the same for all. No fsync: the pause is measured."""
        if self.ranks.rank == 0:
            (self.run_dir / CHECKPOINT).parent.mkdir(exist_ok=True)
            state = {"model": self.bare_model.state_dict(), "optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}
            with atomic_write(self.run_dir / CHECKPOINT, BY_UMASK, fsync=False) as aside:
                torch.save({"step": step, "world_size": self.ranks.world_size, **state}, aside)
        self.ranks.barrier()

    def resume(self) -> int:
        """Restore the checkpoint of the attempt that the harness names, if any; the first step to run."""
        source = resume_source(None)
        if source is None:
            return 0
        saved = load_tensors(source / CHECKPOINT)
        if saved["world_size"] != self.ranks.world_size:
            raise CheckpointError(
                f"{source / CHECKPOINT} was saved by {saved['world_size']} ranks, and this run has {self.ranks.world_size}: each would "
                "see other text; resume with as many ranks, or start over (--from-start)"
            )
        self.bare_model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])
        self.log.info(f"Resuming after step {saved['step']} from {source / CHECKPOINT}")
        return int(saved["step"]) + 1

    def compile(self) -> Choice:
        """Compile the forward, warmed up with zeros; keep the plain one if that fails."""
        zeros = torch.zeros(self.settings.micro_batch, self.settings.seq_len, dtype=torch.long, device=self.ranks.device)

        def warm_up(forward: Callable[[Tensor], Tensor]) -> None:
            with self.precision.autocast(self.ranks.device):
                loss = next_token_loss(forward(zeros), zeros)
            # Not backward(): a rank that fails here must not leave the others waiting for its gradients.
            torch.autograd.grad(loss, list(self.bare_model.parameters()))

        compiled, choice = compile_or_fall_back(self.bare_model, warm_up, ranks=self.ranks)
        if choice.effective:
            self.bare_model.forward = compiled
        return choice

    def log_effective(self) -> None:
        """Record and log the effective settings."""
        settings, ranks, precision = self.settings, self.ranks, self.precision
        device = Choice(settings.device, str(ranks.device), ranks.device_name)
        no_effect = prefetch_without_workers(settings.num_workers, settings.prefetch_factor)
        record({"precision": precision, "device": device, **no_effect}, self.probe)
        self.log.info(
            f"tiny_lm: {self.bare_model.num_parameters:,} parameters, seq_len {settings.seq_len}, "
            f"batch {settings.micro_batch} x {ranks.world_size} ranks, {precision.effective} ({precision.reason}), {ranks.device_name}"
        )


def wrap(model: TinyLM, ranks: Ranks) -> nn.Module:
    """Wrap in DDP with more than one rank."""
    if ranks.world_size == 1:
        return model
    return DistributedDataParallel(model, device_ids=[ranks.local_rank] if ranks.device.type == "cuda" else None)


if __name__ == "__main__":
    main()
