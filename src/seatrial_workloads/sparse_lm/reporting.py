"""What a run reports: console lines, heartbeats, rows and summaries. In: the values of each step. Out: the log and `results.py`'s files.

[boot] run 20261118-020355-41 | torch 2.13.0+cpu | cpu
[model] 254,499 parameters | S 128 | batch 8 (4 per rank) x 1 | fp32 | prefill batched, selected mask, window mask, ranges v2
step 0020 | loss 4.8032 | lr 2.00e-04 | toks/s 41230 | grad_norm 1.2034 | fetch 0.1ms
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from seatrial.core.files import BY_UMASK, write_text
from seatrial.core.paths import AttemptPaths
from seatrial.records.sparse_lm_halt import NAN_LOSS, SKIPPED_IN_A_ROW, Halt, write_halt
from seatrial_workloads.common.distributed import RankContext
from seatrial_workloads.common.effective_settings import Choice, record
from seatrial_workloads.common.train_log import is_due, is_logged
from seatrial_workloads.sparse_lm.model import STATISTICS, SparseLM
from seatrial_workloads.sparse_lm.results import ANOMALY, Row, RunFiles
from seatrial_workloads.sparse_lm.settings import Settings
from seatrial_workloads.sparse_lm.stopping import StepValues

# The format with loss scaling, whose steps are skipped where gradients overflow.
LOSS_SCALED = "fp16"
# Part of a layer → setting.
PATH_SETTINGS = {
    "prefill": "prefill",
    "selected": "selected_path",
    "window": "window_path",
    "ranges": "ranges",
    "sdpa": "sdpa",
    "fla": "fla",
}
PER_LAYER = "layers."
# Counter → (part, requested path). Requests of kernels that do not exist here are refused, so their counters stay 0.
FALLBACKS: dict[str, tuple[tuple[str, str], ...]] = {
    "selection_triton_fails": (),
    "selection_cuda_fails": (),
    "selection_pack_fails": (("selected", "gather"),),
    "selection_mask_fails": (("selected", "mask"),),
    "compressed_fa2_fails": (),
    "sliding_fa2_fails": (),
    "selection_flex_fails": (("selected", "flex"),),
    "sliding_mask_fails": (("window", "mask"),),
    "sliding_flex_fails": (("window", "flex"),),
}


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What identifies a run and is only recorded."""

    run_id: str
    attempt: int = 1
    no_effect: Mapping[str, Choice] = field(default_factory=dict)
    """The caller's flags and variables without effect."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """More for env.json: configuration file, out_dir."""
    notes: tuple[str, ...] = ()
    """Log lines from before the log was open."""
    save: Path | None = None
    """Where the trained weights go at the end."""


class Reporter:
    """The reports of one rank; files are written by rank 0."""

    def __init__(self, settings: Settings, context: RankContext, info: RunInfo) -> None:
        self.settings, self.context, self.info = settings, context, info
        self.probe, self.ranks, self.log = context.probe, context.ranks, context.log
        self.files = RunFiles(context.run_dir, info.run_id, rank=self.ranks.rank, csv=settings.csv, tensorboard=settings.tensorboard)
        self._losses: list[float] = []
        self._health: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}
        self._fallbacks: dict[str, int] = {}
        self._is_scaled = False
        self._skipped = self._skipped_in_a_row = 0
        self.log.info(f"[boot] run {info.run_id} | torch {torch.__version__} | {self.ranks.device_name}")
        for note in info.notes:
            self.log.info(note)
        if self.ranks.world_size > 1:
            backend = torch.distributed.get_backend()
            self.log.info(f"[ddp] process group ready | world {self.ranks.world_size} | backend {backend}")

    def effective(self, choices: dict[str, Choice], model: SparseLM, rows: int) -> None:
        """Record and log what is in effect, before step 1."""
        num_parameters = model.num_parameters
        settings, log = self.settings, self.log
        if self.files.tensorboard_reason:
            choices["tensorboard"] = Choice(True, False, self.files.tensorboard_reason)
        record(choices, self.probe)
        compression = choices.get("ddp_compression")
        if compression is not None and compression.effective != "none":
            log.info(f"[ddp] gradient compression enabled: {compression.effective}")
        dtype = choices["precision"].effective
        self._is_scaled = dtype == LOSS_SCALED
        paths = ", ".join(f"{part} {choices[name].effective}" for part, name in PATH_SETTINGS.items())
        log.info(
            f"[model] {num_parameters:,} parameters | S {settings.seq_len} | batch {settings.batch_size} ({rows} per rank) "
            f"x {settings.accumulate} | {dtype}, {choices['mixed_precision'].effective} | {paths}"
        )
        whole = {name: choice for name, choice in choices.items() if not name.startswith(PER_LAYER)}
        for name, choice in whole.items():
            if choice.requested != choice.effective:
                log.info(f"[effective] {name}: {choice.requested} -> {choice.effective} ({choice.reason})")
        self._facts = {"parameters": num_parameters, "dtype": dtype, "world_size": self.ranks.world_size}
        self.files.environment(
            {
                "attempt": self.info.attempt,
                "out_dir": str(self.context.run_dir),
                **self._facts,
                **self.info.facts,
                "settings": dataclasses.asdict(settings),
                "effective": {name: dataclasses.asdict(choice) for name, choice in whole.items()},
            }
        )
        self._fallbacks = fallback_counts(choices)
        self.files.dtypes(model, f"{dtype}, {choices['mixed_precision'].effective}")
        self.files.memory("boot")

    def step(self, values: StepValues, lr: float, *, is_first: bool) -> None:
        """Every rank calls it for every step."""
        settings = self.settings
        tokens = settings.batch_size * settings.accumulate * settings.seq_len
        grad_norm, *rest = values.local
        is_skipped = self._is_scaled and not math.isfinite(grad_norm)
        self._skipped += is_skipped
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if is_skipped else 0
        row = Row(
            step=values.step + 1,
            loss=values.loss,
            lr=lr,
            toks_per_s=tokens / values.step_s,
            grad_norm=None if is_skipped else grad_norm,
            step_ms=values.step_s * 1000,
            data_wait_ms=values.data_wait_s * 1000,
            tokens=tokens,
            skipped_in_a_row=self._skipped_in_a_row,
        )
        self._losses = [*self._losses[:1], values.loss]
        self.files.step(row)
        if rest:
            statistics = dict(zip(STATISTICS, rest, strict=True))
            self.files.statistics(row.step, statistics)
            # Events and heartbeats count steps from 0.
            self._health = {**health_of(statistics), "gate_step": values.step}
        if is_logged(values.step, settings.log_every, settings.steps):
            self._log_step(row)
            self.files.fallbacks(row.step, self._fallbacks)
            self.log.timing(values.step, values.loss)
            self.probe.memory()
        self._progress(values.step, row)
        if is_first or is_due(row.step, settings.memory_every):
            self.files.memory(f"step{row.step}")

    def _log_step(self, row: Row) -> None:
        norm = " | grad_norm overflow" if row.grad_norm is None else f" | grad_norm {row.grad_norm:.4f}"
        norm += f" | skipped {self._skipped}" if self._skipped else ""
        speed = f"lr {row.lr:.2e} | toks/s {row.toks_per_s:.0f}{norm} | fetch {row.data_wait_ms:.1f}ms"
        self.log.info(f"step {row.step:04d} | loss {row.loss:.4f} | {speed}")

    def _progress(self, step: int, row: Row) -> None:
        """Figures for heartbeats, whose own step is a later one; the health of gates and selection stays that of the last logged step."""
        on_gpu = self.ranks.device.type == "cuda"
        self.probe.progress(
            run_id=self.info.run_id,
            figures_step=step,
            loss=_plain([row.loss]),
            toks_per_s=round(row.toks_per_s, 1),
            grad_norm=None if row.grad_norm is None else _plain([row.grad_norm]),
            skipped_steps=self._skipped,
            skipped_in_a_row=row.skipped_in_a_row,
            dt_fetch_s=round(row.data_wait_ms / 1000, 6),
            gpu_mem_alloc=torch.cuda.memory_allocated() >> 20 if on_gpu else None,
            gpu_mem_reserved=torch.cuda.memory_reserved() >> 20 if on_gpu else None,
            **self._health,
        )

    def validation(self, step: int, loss: float) -> None:
        self.log.info(f"[eval] step {step + 1:04d} | val_loss {loss:.4f}")
        self.files.validation(step + 1, loss)

    def not_finite(self, values: StepValues) -> str:
        """The sentence that ends the run where the loss of the step is not finite, or gradients overflowed for too long; else empty. All
        ranks have the same gradients and agree. Rank 0 writes .anomaly_type and .HALT."""
        step, skipped = values.step + 1, self._skipped_in_a_row
        if not values.is_finite:
            reason = f"loss {values.loss} at step {step}"
            sentence = f"the loss of step {step} is not finite ({values.loss}): all ranks end; look at the data and the learning rate"
        elif skipped >= SKIPPED_IN_A_ROW:
            reason = f"{skipped} steps in a row skipped, up to step {step}"
            sentence = f"the gradients of {skipped} steps in a row overflow fp16, up to step {step}: all ranks end; use bf16 or fp32"
        else:
            return ""
        if self.ranks.rank == 0:
            write_text(self.context.run_dir / ANOMALY, f"{NAN_LOSS}\n", BY_UMASK)
            halt = Halt(anomaly=NAN_LOSS, run=self.info.run_id, attempt=self.info.attempt, reason=reason)
            write_halt(AttemptPaths(self.context.run_dir).watchdog_halt, halt)
        return sentence

    def end(self, status: str, why: str, steps: int) -> None:
        settings = self.settings
        if self._skipped:
            self.log.info(f"[scaler] {self._skipped} steps skipped: their gradients overflow fp16, and the loss scale was lowered")
        self.log.info(f"[end] step {steps:04d} | {why}")
        for name in ("gate_entropy_mean", "gate_max_mean"):
            if name in self._health:
                self.probe.figure(name, self._health[name])
        self.files.memory("end")
        self.files.metrics(
            {
                "status": status,
                "device": self.ranks.device_name,
                **self._facts,
                "steps": steps,
                "seq_len": settings.seq_len,
                "batch_global": settings.batch_size,
                "accumulate": settings.accumulate,
                "lr": settings.lr,
                "skipped_steps": self._skipped,
                "loss_first": _plain(self._losses[:1]),
                "loss_last": _plain(self._losses[-1:]),
            }
        )


def fallback_counts(choices: Mapping[str, Choice]) -> dict[str, int]:
    """Counter → layers that did not take the path requested for them; `auto` requests none. The first seven are the procedure's. Paths are
    chosen once, before step 1, so a counter does not grow."""
    missed = [(name.rpartition(".")[2], choice.requested) for name, choice in choices.items() if _is_fallback(name, choice)]
    counts = {name: sum((part, requested) in of for part, requested in missed) for name, of in FALLBACKS.items()}
    counts["sdpa_fails"] = sum(part == "sdpa" for part, _ in missed)
    counts["compile_fails"] = int("compile" in choices and choices["compile"].requested != choices["compile"].effective)
    first = {name: counts.pop(name) for name in list(FALLBACKS)[:6]}
    return {**first, "total_fallbacks": sum(first.values()) + sum(counts.values()), **counts}


def _is_fallback(name: str, choice: Choice) -> bool:
    return name.startswith(PER_LAYER) and choice.requested not in ("auto", "any", choice.effective)


def _plain(losses: list[float]) -> float | str | None:
    """Infinities and NaN as text, since JSON has no such numbers."""
    if not losses:
        return None
    return losses[0] if math.isfinite(losses[0]) else str(losses[0])


def health_of(statistics: Mapping[str, float]) -> dict[str, Any]:
    """Health in the form of heartbeats: the shares of the branches in one list."""
    shares = [round(statistics[f"gate_share_{branch}"], 6) for branch in ("cmp", "sel", "win")]
    return {**{name: value for name, value in statistics.items() if not name.startswith("gate_share_")}, "gate_branch_shares": shares}
