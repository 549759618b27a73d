"""Several short trainings in one process of each rank, since starting torch takes longer than all of them.

torchrun --standalone --nproc_per_node 2 -m tests.workloads.sft.trainings OUT NAME…
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from seatrial.probe import Probe
from seatrial_workloads.sft.settings import Settings
from seatrial_workloads.sft.train import Training, close_group

# Without dropout, so that the loss does not depend on which rank has an example.
SHORT: dict[str, Any] = {
    "steps": 4, "micro_batch": 2, "seq_len": 96, "subset_size": 64, "lr": 2e-2, "lora_dropout": 0.0, "device": "cpu",
}  # fmt: skip
STOPPED_AFTER = 2
TRAININGS: dict[str, dict[str, Any]] = {
    "alone": {"grad_accum": 2},
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
    "ddp_stopped": {"strategy": "ddp", "save_steps": STOPPED_AFTER},
    "fsdp_stopped": {"strategy": "fsdp", "save_steps": STOPPED_AFTER},
    # Each goes on from the other's checkpoint, which is whole and so fits both.
    "ddp_resumed": {"strategy": "ddp", "resume_from": "fsdp_stopped", "merge_adapter": True},
    "fsdp_resumed": {"strategy": "fsdp", "resume_from": "ddp_stopped", "merge_adapter": True},
    "ddp_full": {"strategy": "ddp", "use_lora": False, "lr": 2e-3},
    "fsdp_full": {"strategy": "fsdp", "use_lora": False, "lr": 2e-3},
    "fsdp_bf16": {"strategy": "fsdp", "precision": "bf16"},
    "checkpointed": {"strategy": "ddp", "gradient_checkpointing": True},
    "fsdp_checkpointed": {"strategy": "fsdp", "gradient_checkpointing": True},
    "reentrant_static": {"strategy": "ddp", "gradient_checkpointing": True, "checkpointing_reentrant": True, "ddp_static_graph": True},
    "reentrant": {"strategy": "ddp", "gradient_checkpointing": True, "checkpointing_reentrant": True},
    "packed": {"packing": True},
    # Each of these ends with an error, the first by design of DDP: preflight refuses it, and nothing but it.
    "ready_twice": {"gradient_checkpointing": True, "checkpointing_reentrant": True, "ddp_find_unused_parameters": True},
    "not_finite": {"lr": 1e20},
}
FAILING = ("ready_twice", "not_finite")


class StopEarly(TrainerCallback):  # type: ignore[misc]  # transformers is not there for the type checker
    """Ends a training in the middle of its schedule."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step == STOPPED_AFTER


def shard_bytes(model: torch.nn.Module) -> tuple[int, int]:
    """(bytes of parameters that this rank holds, bytes of all of them)."""
    held = whole = 0
    for parameter in model.parameters():
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        held += local.numel() * local.element_size()
        whole += parameter.numel() * parameter.element_size()
    return held, whole


def train(name: str, out: Path) -> dict[str, Any]:
    """One training; its metrics and how its parameters are placed."""
    chosen = {**SHORT, "tok_cache_dir": str(out / "tokenized"), **TRAININGS[name]}
    if "resume_from" in chosen:
        chosen["resume_from"] = str(out / chosen["resume_from"])
    with Probe(out / name) as probe:
        training = Training(Settings(**chosen), out / name, probe, time.monotonic())
        held, whole = shard_bytes(training.model)
        are_sharded = {isinstance(parameter, DTensor) for parameter in training.model.parameters()}
        if name.endswith("_stopped"):
            training.trainer.add_callback(StopEarly())
        try:
            result = training.train()
        except RuntimeError as error:
            if name not in FAILING:
                raise
            return {"error": str(error).splitlines()[0]}
    return {**result, "held_bytes": held, "whole_bytes": whole, "all_sharded": are_sharded == {True}}


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:]
    results = {name: train(name, out) for name in names}
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    (out / f"results_rank{rank}.json").write_text(json.dumps(results))
    close_group()


if __name__ == "__main__":
    main()
