"""One rank that trains the same model with several engines in turn: importing DeepSpeed takes longer than the training.

python -m tests.workloads.contrastive.engines_in_turn FOLDER '{"dataset_root": …}' ddp:0 deepspeed:0 deepspeed:3:bf16:weights ddp:0@two.json

The third part is the precision, the fourth the mixed precision; a file with more settings names the folder of its run. All share one
process group, since DeepSpeed keeps the first one it gets.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from seatrial.probe import Probe
from seatrial_workloads.common.distributed import RankContext, Ranks, process_group
from seatrial_workloads.common.train_log import TrainLog
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.contrastive.train import Trainer


def main() -> None:
    folder, settings, *engines = sys.argv[1:]
    common = json.loads(settings)
    with process_group(common["device"], Probe()) as ranks:
        for run, _, file in (argument.partition("@") for argument in engines):
            engine, stage, *formats = run.split(":")
            chosen = {"engine": engine, "zero_stage": int(stage), **dict(zip(("precision", "mixed_precision"), formats, strict=False))}
            more = json.loads(Path(file).read_text()) if file else {}
            train_one({**common, **chosen, **more}, Path(folder) / (Path(file).stem if file else run.replace(":", "-")), ranks)


def train_one(settings: dict[str, Any], run_dir: Path, ranks: Ranks) -> None:
    with Probe(run_dir) as probe, TrainLog(run_dir, ranks.rank) as lines:
        trainer = Trainer(Settings(**settings), RankContext(run_dir, probe, ranks, lines))
        trainer.train({})
        trainer.close()


if __name__ == "__main__":
    main()
