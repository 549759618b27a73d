"""One rank that trains the same thing under several engines, one after the other: importing DeepSpeed costs more than training does.

python -m tests.workloads.contrastive.engines_in_turn FOLDER '{"dataset_root": …}' ddp:0 deepspeed:0 deepspeed:3:bf16

A third word is the precision. One process group serves them all: DeepSpeed keeps the first it is given for good.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from seatrial.probe import Probe
from seatrial_workloads.common.distributed import Ranks, joined_ranks
from seatrial_workloads.common.human_lines import HumanLines
from seatrial_workloads.common.one_rank import OneRank
from seatrial_workloads.contrastive.settings import Settings
from seatrial_workloads.contrastive.train import Trainer


def main() -> None:
    folder, settings, *engines = sys.argv[1:]
    common = json.loads(settings)
    with joined_ranks(common["device"], Probe()) as ranks:
        for word in engines:
            engine, stage, *precision = word.split(":")
            chosen = {"engine": engine, "zero_stage": int(stage), "precision": precision[0] if precision else "auto"}
            train_one({**common, **chosen}, Path(folder) / word.replace(":", "-"), ranks)


def train_one(settings: dict[str, Any], run_dir: Path, ranks: Ranks) -> None:
    with Probe(run_dir) as probe, HumanLines(run_dir, ranks.rank) as lines:
        trainer = Trainer(Settings(**settings), OneRank(run_dir, probe, ranks, lines))
        trainer.train({})
        trainer.close()


if __name__ == "__main__":
    main()
