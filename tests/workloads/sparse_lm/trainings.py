"""Trainings in this process, and one rank of the trainings with two.

python -m tests.workloads.sparse_lm.trainings FOLDER     with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set
"""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from pathlib import Path
from typing import Any

from seatrial.probe import Probe
from seatrial.records.sparse_lm_halt import Halt, write_halt
from seatrial_workloads.common.distributed import RankContext, Ranks, process_group
from seatrial_workloads.common.errors import NotFinite
from seatrial_workloads.common.train_log import TrainLog
from seatrial_workloads.sparse_lm.reporting import RunInfo
from seatrial_workloads.sparse_lm.settings import Settings
from seatrial_workloads.sparse_lm.stopping import TermSignal
from seatrial_workloads.sparse_lm.train import Trainer

TINY = {
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_groups": 2,
    "d_k": 8,
    "d_v": 8,
    "cmp_block": 4,
    "cmp_stride": 2,
    "sel_block": 8,
    "n_sel": 3,
    "window": 8,
    "seq_len": 32,
    "batch_size": 5,
    "lr": 5e-3,
    "warmup_steps": 2,
    "log_every": 2,
    "device": "cpu",
    "tensorboard": False,
}
# Uneven shares, accumulation and checkpointing at once.
WHOLE = {**TINY, "steps": 6, "accumulate": 2, "gradient_checkpointing": True, "eval_every": 3, "checkpoint_every": 3, "checkpoint_keep": 5}
COMPRESSED = {**TINY, "steps": 3, "accumulate": 2, "ddp_compression": "bf16", "ddp_static_graph": True, "ddp_bucket_mb": 0.01}
RUN_ID = "this-run"


def run(ranks: Ranks, run_dir: Path, settings: dict[str, Any]) -> str:
    """One training with these ranks; what ended it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with Probe(run_dir) as probe, TrainLog(run_dir, ranks.rank) as log, contextlib.closing(TermSignal(run_dir / "stacks.txt")) as term:
        trainer = Trainer(Settings(**settings), RankContext(run_dir, probe, ranks, log), RunInfo(run_id=RUN_ID), term)
        with contextlib.closing(trainer), contextlib.suppress(NotFinite):
            trainer.train()
    return trainer.ended_by


def rows(run_dir: Path, name: str = "training.csv") -> list[dict[str, str]]:
    with open(run_dir / name, newline="") as source:
        return list(csv.DictReader(source))


def losses(run_dir: Path) -> list[float]:
    return [float(row["loss"]) for row in rows(run_dir)]


def main() -> None:
    folder = Path(sys.argv[1])
    with process_group("cpu", Probe()) as ranks:
        ended = {"whole": run(ranks, folder / "whole", WHOLE)}
        resumed = {**WHOLE, "resume_from": str(folder / "whole" / "checkpoints" / "ckpt_iter_2")}
        ended["resumed"] = run(ranks, folder / "resumed", resumed)
        ended["compressed"] = run(ranks, folder / "compressed", COMPRESSED)
        ended["nan"] = run(ranks, folder / "nan", {**TINY, "steps": 9, "fault": "nan@2", "checkpoint_every": 1})
        for name, run_id in (("halted", RUN_ID), ("stale", "another-run")):
            (folder / name).mkdir(exist_ok=True)
            ranks.barrier()
            if ranks.rank == 0:
                write_halt(folder / name / ".HALT", Halt(anomaly="gate_collapse", run=run_id, attempt=1))
            ended[name] = run(ranks, folder / name, {**TINY, "steps": 6, "checkpoint_every": 100})
        if ranks.rank == 0:
            (folder / "touched").mkdir()
            (folder / "touched" / ".HALT").touch()
        ranks.barrier()
        ended["touched"] = run(ranks, folder / "touched", {**TINY, "steps": 6})
    (folder / f"ended_rank{ranks.rank}.json").write_text(json.dumps(ended))


if __name__ == "__main__":
    main()
