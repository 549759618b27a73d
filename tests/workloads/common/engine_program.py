"""One rank of the tests of engines. In: the name of an action and a folder. Out: FOLDER/result_rank{r}.json.

python -m tests.workloads.common.engine_program train FOLDER
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from seatrial.probe import Probe
from seatrial_workloads.common.checkpoints import (
    CheckpointError,
    CheckpointInfo,
    find_checkpoint,
    random_states,
    restore_random_states,
    save_checkpoint,
    tag_name,
)
from seatrial_workloads.common.distributed import Ranks, process_group
from seatrial_workloads.common.engines import Engine, EngineOptions, create_engine
from seatrial_workloads.common.precision import choose_precision
from tests.workloads.common.small_model import ROWS, batch, new_model

STEPS, SAVED_AFTER = 4, 1


def main() -> None:
    action, folder = sys.argv[1], Path(sys.argv[2])
    with process_group("cpu", Probe()) as ranks:
        result = ACTIONS[action](folder, ranks)
    (folder / f"result_rank{ranks.rank}.json").write_text(json.dumps(result))


def train(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Both engines and all stages in fp32, then in bf16, each saved half-way and resumed."""
    result: dict[str, Any] = {}
    for name, zero_stage in (("ddp", 0), ("deepspeed", 0), ("deepspeed", 1), ("deepspeed", 2), ("deepspeed", 3)):
        result[f"{name}{zero_stage}"] = whole_and_resumed(folder / f"{name}{zero_stage}", ranks, name, zero_stage)
    result["full_disk"] = with_a_full_disk(folder / "full", ranks)
    for name, zero_stage in (("ddp", 0), ("deepspeed", 1), ("deepspeed", 2), ("deepspeed", 3)):
        result[f"{name}{zero_stage}_bf16"] = whole_and_resumed(folder / f"{name}{zero_stage}_bf16", ranks, name, zero_stage, "bf16")
    result["weights0_bf16"] = whole_and_resumed(folder / "weights0_bf16", ranks, "deepspeed", 0, "bf16", "weights")
    # Autocast last: DeepSpeed remembers it for every later engine of the process.
    result["deepspeed0_bf16"] = whole_and_resumed(folder / "deepspeed0_bf16", ranks, "deepspeed", 0, "bf16")
    for zero_stage in (1, 3):
        key = f"autocast{zero_stage}_bf16"
        result[key] = whole_and_resumed(folder / key, ranks, "deepspeed", zero_stage, "bf16", "autocast")
    return result


def whole_and_resumed(
    folder: Path, ranks: Ranks, name: str, zero_stage: int, precision: str = "fp32", mixed: str = "auto"
) -> dict[str, Any]:
    engine = new_engine(name, ranks, zero_stage, precision=precision, mixed=mixed)
    warm_up(engine, ranks)
    first = losses(engine, ranks, range(SAVED_AFTER + 1))
    saved = saved_checkpoint(folder, engine, ranks, SAVED_AFTER)
    rest = losses(engine, ranks, range(SAVED_AFTER + 1, STEPS))
    validated = validation(engine, ranks)
    result = {"losses": first + rest, "validation": validated, "choices": choices(engine), "frozen": frozen_sum(engine)}
    engine.close()
    # Trained weights of another seed, the same frozen ones.
    again = new_engine(name, ranks, zero_stage, precision=precision, mixed=mixed, other_weights=True)
    extra = again.load(find_checkpoint(folder).folder)
    result["resumed"] = losses(again, ranks, range(SAVED_AFTER + 1, STEPS))
    result["extra"], result["files"] = extra, sorted(path.name for path in saved.iterdir())
    result["frozen_resumed"] = frozen_sum(again)
    again.close()
    return result


def saved_checkpoint(folder: Path, engine: Engine, ranks: Ranks, step: int) -> Path:
    facts = CheckpointInfo(engine=engine.name, zero_stage=0, world_size=ranks.world_size, step=step, seed=0, settings={})
    return save_checkpoint(folder, tag_name(step, "iter"), facts, lambda part: engine.save(part, {"seen": [1, 2]}), ranks, keep=1)


def with_a_full_disk(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """The disk of rank 1 fills up while ZeRO 1 saves: no rank hangs, and training could continue."""
    engine = new_engine("deepspeed", ranks, zero_stage=1)
    saved_checkpoint(folder, engine, ranks, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096 if ranks.rank == 1 else soft, hard))
    try:
        saved_checkpoint(folder, engine, ranks, 2)
        error = None
    except CheckpointError as failure:
        error = str(failure)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    ranks.barrier()
    left = sorted(path.name for path in (folder / "checkpoints").iterdir())
    losses(engine, ranks, range(1))
    engine.close()
    return {"error": error, "left": left, "newest": find_checkpoint(folder).folder.name}


def new_engine(
    name: str, ranks: Ranks, zero_stage: int, *, precision: str = "fp32", mixed: str = "auto", other_weights: bool = False
) -> Engine:
    model = new_model()
    if other_weights:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.5 if parameter.requires_grad else 1.0)
    torch.manual_seed(ranks.rank)
    options = EngineOptions(
        lr=1e-2,
        betas=(0.8, 0.999),
        weight_decay=0.01,
        warmup_steps=2,
        schedule_steps=20,
        # Low enough to have an effect.
        gradient_clipping=0.1,
        zero_stage=zero_stage,
        micro_batch=ROWS,
        mixed_precision=mixed,
        bucket_size=20_000,
        # Shards even these small weights.
        persistence_threshold=0,
    )
    return create_engine(name, model.train(), ranks, choose_precision(precision, None), options)


def warm_up(engine: Engine, ranks: Ranks) -> None:
    """It uses random numbers, so their state is restored."""
    states = random_states()
    engine.warm_up(**batch(7, ranks.rank))
    restore_random_states(states)


def losses(engine: Engine, ranks: Ranks, steps: range) -> list[float]:
    found = []
    for step in steps:
        loss = engine.forward(**batch(step, ranks.rank))
        engine.backward(loss)
        engine.step()
        found.append(loss.item())
    return found


@torch.no_grad()
def validation(engine: Engine, ranks: Ranks) -> float:
    engine.model.eval()
    loss = engine.forward(**batch(99, 0)).item()
    engine.model.train()
    return loss


def choices(engine: Engine) -> dict[str, list[Any]]:
    return {name: [choice.requested, choice.effective, choice.reason] for name, choice in engine.choices.items()}


def frozen_sum(engine: Engine) -> float:
    """Sum of the frozen weights; under ZeRO 3 of this rank's shards."""
    parts = [getattr(parameter, "ds_tensor", parameter) for parameter in engine.model.parameters() if not parameter.requires_grad]
    return sum(float(part.detach().double().sum()) for part in parts)


def alone(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """One process, without a launcher."""
    result: dict[str, Any] = {}
    for name in ("ddp", "deepspeed"):
        engine = new_engine(name, ranks, zero_stage=0)
        result[name] = losses(engine, ranks, range(STEPS))
        engine.close()
    return result


ACTIONS = {"train": train, "alone": alone}

if __name__ == "__main__":
    main()
