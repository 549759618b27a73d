"""Files of a run besides the probe's: one run per folder, a run id in each.

training.csv   a row a step: step,loss,lr,toks_per_s, then ours
val.csv        step,val_loss,ppl,run_id
k_stats.csv    step,k_mean,k_max,rows,pct_at_max, then gates and run_id
fallback_counters.csv  layers that did not take the path requested for them, by part
dtypes_report.txt      formats of weights and buffers, with counts and sizes
opt_state_mb.txt       memory of the optimiser's state after the first step
env.json       environment, effective settings, out_dir
metrics.json   summary at the end
mem_*.txt      torch's memory summary, and mem_*.json its numbers
tb/            TensorBoard scalars

Rank 0 writes. `step` counts from 1 in these files, as the procedure's do; events and heartbeats count from 0. An earlier run's files are
first moved to `earlier/<its run id>`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from seatrial.core.checkpoints import FOLDER as CHECKPOINTS
from seatrial.core.files import BY_UMASK, write_json, write_text
from seatrial.machine.secrets import mask
from seatrial.probe.loop import read_memory_mib
from seatrial.probe.writer import LineFile
from seatrial.records.sparse_lm_halt import read_halt
from seatrial_workloads.common.run_folder import EARLIER, check_no_live_run
from seatrial_workloads.sparse_lm.stopping import predates_process

TRAINING_CSV, VAL_CSV, STATISTICS_CSV = "training.csv", "val.csv", "k_stats.csv"
FALLBACKS_CSV, DTYPES_TXT, OPTIMIZER_TXT = "fallback_counters.csv", "dtypes_report.txt", "opt_state_mb.txt"
ENV_JSON, METRICS_JSON, ANOMALY, HALT = "env.json", "metrics.json", ".anomaly_type", ".HALT"
STACKS = "stacks"
ENVIRONMENT = ("CONFIG", "WORLD_SIZE", "RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
PREFIXES = ("NSA_", "NCCL_", "TORCH_", "PYTORCH_")
# What a run leaves; anything else in the folder is the user's.
OWN_FILES = re.compile(
    r"(training|val|k_stats|fallback_counters)\.csv|(dtypes_report|opt_state_mb)\.txt|(env|metrics|halt|sdpa_audit)\.json|(sdpa_audit|profile_summary)\.txt|profile_trace\.json"
    r"|train\.log|mem_\w+\.(txt|json)|\.anomaly_type|\.HALT|gate_collapse_details\.json|tb|checkpoints|stacks/pid\d+\.txt"
)
# Written before the process group exists.
OWN_RANK_FILES = re.compile(r"(?:(?:heartbeat|events)_|stacks/)rank(\d+)\.\w+")
LAST_WINDOW = 50


@dataclass(frozen=True, kw_only=True)
class Row:
    """The row of one step."""

    step: int
    loss: float
    lr: float
    toks_per_s: float
    grad_norm: float | None
    """None in a step that the loss scaler skipped."""
    step_ms: float
    data_wait_ms: float
    tokens: int
    skipped_in_a_row: int = 0

    def text(self, run_id: str) -> str:
        grad_norm = "" if self.grad_norm is None else f"{self.grad_norm:.6g}"
        return (
            f"{self.step},{self.loss:.6f},{self.lr:.6e},{self.toks_per_s:.0f},{grad_norm},{self.step_ms:.3f},"
            f"{self.data_wait_ms:.3f},{self.tokens},{self.skipped_in_a_row},{run_id}"
        )


class Table:
    """A CSV file that grows by rows. A full disk costs rows, not the run."""

    def __init__(self, path: Path, header: Iterable[str]) -> None:
        self._file = LineFile(path)
        self._file.write([",".join(header)])

    def add(self, row: str) -> None:
        self._file.write([row])

    def close(self) -> None:
        self._file.close()


class RunFiles:
    """The files of rank 0; on other ranks every call is a no-op."""

    def __init__(self, run_dir: Path, run_id: str, *, rank: int, csv: bool, tensorboard: bool) -> None:
        self.run_dir, self.run_id, self._writes = run_dir, run_id, rank == 0
        self._csv = csv and self._writes
        self._tables: dict[str, Table] = {}
        self._board: Any = None
        self.tensorboard_reason = ""
        self.speeds: list[float] = []
        if tensorboard and self._writes:
            self._open_board()

    def _open_board(self) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            self.tensorboard_reason = "the package tensorboard is not installed"
            return
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(self.run_dir / "tb"))

    def _table(self, name: str, header: Iterable[str]) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(self.run_dir / name, (*header, "run_id"))
        return self._tables[name]

    def step(self, row: Row) -> None:
        self.speeds = [*self.speeds[-LAST_WINDOW + 1 :], row.toks_per_s]
        if self._csv:
            self._table(TRAINING_CSV, [field.name for field in fields(Row)]).add(row.text(self.run_id))
        named = {"loss": row.loss, "lr": row.lr, "toks_per_s": row.toks_per_s, "grad_norm": row.grad_norm}
        self._scalars("train", row.step, named)

    def validation(self, step: int, loss: float) -> None:
        if self._csv:
            perplexity = math.exp(min(loss, 700.0))
            self._table(VAL_CSV, ("step", "val_loss", "ppl")).add(f"{step},{loss:.6f},{perplexity:.6g},{self.run_id}")
        self._scalars("val", step, {"loss": loss})

    def statistics(self, step: int, values: Mapping[str, float]) -> None:
        columns = {name.removeprefix("sel_"): value for name, value in values.items() if name.startswith("sel_")}
        columns |= {name: value for name, value in values.items() if not name.startswith("sel_")}
        if self._csv:
            text = ",".join(f"{value:.6g}" for value in columns.values())
            self._table(STATISTICS_CSV, ("step", *columns)).add(f"{step},{text},{self.run_id}")
        self._scalars("statistics", step, columns)

    def fallbacks(self, step: int, counts: Mapping[str, int]) -> None:
        if self._csv:
            text = ",".join(map(str, counts.values()))
            self._table(FALLBACKS_CSV, ("step", *counts)).add(f"{step},{text},{self.run_id}")

    def dtypes(self, model: torch.nn.Module, computes_in: str) -> None:
        """dtypes_report.txt: formats of weights, buffers and computation."""
        if not self._writes:
            return
        lines = [f"run_id {self.run_id}", f"computed in {computes_in}, loss in fp32"]
        for kind, named in (("weights", model.named_parameters()), ("buffers", model.named_buffers())):
            by_dtype: dict[torch.dtype, list[tuple[str, torch.Tensor]]] = {}
            for name, tensor in named:
                by_dtype.setdefault(tensor.dtype, []).append((name, tensor))
            for dtype, found in by_dtype.items():
                size_mib = sum(tensor.nbytes for _, tensor in found) / 2**20
                values = sum(tensor.numel() for _, tensor in found)
                lines.append(f"{kind} {dtype}: {len(found)} tensors, {values:,} values, {size_mib:.2f} MiB, first {found[0][0]}")
        write_text(self.run_dir / DTYPES_TXT, "\n".join(lines) + "\n", BY_UMASK)

    def optimizer_state(self, state_bytes: Mapping[str, int]) -> None:
        """opt_state_mb.txt: one rank's optimiser state in MiB, by its name."""
        if self._writes:
            total = sum(state_bytes.values())
            lines = [f"run_id {self.run_id}", *(f"{name} {size / 2**20:.3f} MiB" for name, size in {**state_bytes, "total": total}.items())]
            write_text(self.run_dir / OPTIMIZER_TXT, "\n".join(lines) + "\n", BY_UMASK)

    def _scalars(self, group: str, step: int, values: Mapping[str, float | None]) -> None:
        if self._board is not None:
            for name, value in values.items():
                if value is not None:
                    self._board.add_scalar(f"{group}/{name}", value, step)

    def environment(self, facts: Mapping[str, Any]) -> None:
        """env.json, before step 1."""
        if not self._writes:
            return
        kept = {name: mask(name, value) for name, value in sorted(os.environ.items()) if name in ENVIRONMENT or name.startswith(PREFIXES)}
        on_gpu = torch.cuda.is_available()
        write_json(
            self.run_dir / ENV_JSON,
            {
                "run_id": self.run_id,
                "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "python": platform.python_version(),
                "torch": torch.__version__,
                "cuda_available": on_gpu,
                "cuda_device_count": torch.cuda.device_count() if on_gpu else 0,
                "gpu_name": torch.cuda.get_device_name() if on_gpu else None,
                "cuda_capability": list(torch.cuda.get_device_capability()) if on_gpu else None,
                "env": kept,
                **facts,
            },
            BY_UMASK,
        )

    def metrics(self, facts: Mapping[str, Any]) -> None:
        """metrics.json, at the end."""
        if self._writes:
            speeds = {"toks_per_s_last": sum(self.speeds) / len(self.speeds) if self.speeds else None, "last_steps": len(self.speeds)}
            write_json(self.run_dir / METRICS_JSON, {"run_id": self.run_id, **facts, **speeds}, BY_UMASK)

    def memory(self, name: str) -> None:
        """mem_NAME.txt and .json; without CUDA the resident memory alone."""
        if not self._writes:
            return
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        numbers = {"run_id": self.run_id, **read_memory_mib(), **(torch.cuda.memory_stats() if on_gpu else {})}
        text = torch.cuda.memory_summary() if on_gpu else f"No CUDA. Resident memory: {numbers['rss_mib']} MiB\n"
        write_text(self.run_dir / f"mem_{name}.txt", text, BY_UMASK)
        write_json(self.run_dir / f"mem_{name}.json", numbers, BY_UMASK)

    def close(self) -> None:
        for table in self._tables.values():
            table.close()
        if self._board is not None:
            self._board.close()


def set_earlier_run_aside(run_dir: Path, rank: int, world_size: int, *, keep_checkpoints: bool) -> tuple[str, ...]:
    """Move an earlier run's files aside; returns lines for the log. Each rank moves its own files before it opens them. Rank 0 moves the
    rest, which no rank writes before the process group exists: an open file is never moved."""
    if not run_dir.is_dir():
        return ()
    check_no_live_run(run_dir, rank, "train.out_dir")
    names = [path.name for path in run_dir.iterdir()] + [f"{STACKS}/{path.name}" for path in (run_dir / STACKS).glob("*")]
    kept = {*([CHECKPOINTS] if keep_checkpoints else []), *([HALT] if _is_meant_for_this_run(run_dir / HALT) else [])}
    mine = [name for name in names if _belongs_to(name, rank, world_size) and name not in kept]
    if not mine:
        return ()
    folder = run_dir / EARLIER / _earlier_run_id(run_dir, rank)
    for name in mine:
        with contextlib.suppress(OSError):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(run_dir / name, folder / name)
    stale = (f"[halt] ignored a stale {HALT}: it was there before this run",) if HALT in mine else ()
    return (f"[boot] the files of an earlier run are now in {folder}", *stale)


def _is_meant_for_this_run(path: Path) -> bool:
    """Whether the halt file was written while this process was starting."""
    halt = read_halt(path)
    return halt is not None and not predates_process(halt)


def _belongs_to(name: str, rank: int, world_size: int) -> bool:
    if match := OWN_RANK_FILES.fullmatch(name):
        return int(match[1]) == rank or (rank == 0 and int(match[1]) >= world_size)
    return rank == 0 and OWN_FILES.fullmatch(name) is not None


def _earlier_run_id(run_dir: Path, rank: int) -> str:
    """The run named by the first event of this rank."""
    try:
        with open(run_dir / f"events_rank{rank}.jsonl", "rb") as source:
            run = json.loads(source.readline()).get("run")
    except (OSError, ValueError, AttributeError):
        run = None
    return re.sub(r"[^\w.-]", "_", run) if isinstance(run, str) and run else "unknown"
