"""Fine-tune a causal language model on instructions. In: settings. Out: run_args.json, metrics.json, sample_ids.json, the adapter or model,
checkpoints, and the probe's events, all in the run's folder. What an earlier run left there is moved to `earlier/<number>` once model and
data are read; a run that is refused before leaves the folder as it was.

torchrun --standalone --nproc_per_node 2 -m seatrial_workloads.sft.train --steps 10 --seq_len 128
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from seatrial.core.checkpoints import FOLDER as CHECKPOINTS
from seatrial.core.files import BY_UMASK, write_json
from seatrial.probe import Probe
from seatrial.records.events import ENV_RUN_DIR
from seatrial_workloads.common.checkpoints import Checkpoint, check_same, find_checkpoint, resume_source
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import Choice, as_requested, record
from seatrial_workloads.common.errors import NotFinite, StartupError
from seatrial_workloads.common.precision import FLASH
from seatrial_workloads.common.run_folder import check_no_live_run, set_aside
from seatrial_workloads.common.settings import load_settings
from seatrial_workloads.sft import metrics
from seatrial_workloads.sft.dataset import prepared_rows
from seatrial_workloads.sft.fast import ATTENTION, PARTS, why_no_graph
from seatrial_workloads.sft.fast.apply import choose_fast_paths, remove_fast_paths
from seatrial_workloads.sft.fsdp import gathered_state, shard
from seatrial_workloads.sft.model import (
    RANDOM,
    TARGETS,
    adapted_names,
    build_model,
    build_tokenizer,
    choose_formats,
    count_parameters,
    describe_parameters,
    load_trained,
)
from seatrial_workloads.sft.packing import Collator, mixes_examples
from seatrial_workloads.sft.settings import Settings, results_dir
from seatrial_workloads.sft.shapes import Shape, UnknownShape, shape_of
from seatrial_workloads.sft.sources import source_problems, split_note
from seatrial_workloads.sft.step_counts import shared_samples
from seatrial_workloads.sft.trainer import SftTrainer, check_finite, decisive_settings, sequences_per_step, training_arguments

RUN_ARGS, METRICS, SAMPLE_IDS = "run_args.json", "metrics.json", "sample_ids.json"
ADAPTER, MODEL, MERGED = "adapter", "model", "merged"
# What a run leaves; anything else in the folder is the user's.
OWN_FILES = re.compile(
    rf"{RUN_ARGS}|{METRICS}|{SAMPLE_IDS}|{ADAPTER}|{MODEL}|{MERGED}|{CHECKPOINTS}|stacks|(?:events|heartbeat)_rank\d+\.jsonl"
)
# Settings that a resumed training must share with its checkpoint. The last two are not settings: see `decisive_settings`.
SAME = (
    "model", "dataset", "subset_size", "seq_len", "micro_batch", "grad_accum", "lr", "packing", "loss_on", "recipe", "append_eos",
    "use_lora", "lora_r", "lora_alpha", "lora_dropout", "precision", "seed", "template", "tokenised",
)  # fmt: skip
COMPILING = "compiling the fused kernels: the first step takes some seconds longer (10 to 17 s on an H200)"
COMPILING_MODEL = "compiling the model: the first step may take minutes (100 to 170 s for 7B on an H200)"


def main(argv: list[str] | None = None) -> None:
    start = load_settings(Settings, argv)
    given = os.environ.get(ENV_RUN_DIR) or any(word.split("=")[0] == "--run-dir" for word in (sys.argv[1:] if argv is None else argv))
    run_dir = start.run_dir if given else results_dir(start.settings)
    try:
        run(start.settings, run_dir, run_args=dataclasses.asdict(start.settings))
    except StartupError as error:
        sys.exit(f"sft: error: {error}")
    except NotFinite as error:
        sys.exit(f"sft: {error}")


def run(settings: Settings, run_dir: Path, *, run_args: dict[str, Any]) -> dict[str, Any]:
    """Train; everything goes to `run_dir`, the probe's events to the harness's folder where there is one. Returns the metrics, or nothing
    where a checkpoint left nothing to train."""
    begin = time.monotonic()
    rank, world_size = int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    refuse_impossible(settings, world_size)
    by_harness = os.environ.get(ENV_RUN_DIR)
    if not by_harness:
        check_no_live_run(run_dir, rank, "run_name")
    with contextlib.ExitStack() as stack:
        # Started by hand, the probe writes nothing until the folder is this run's own: its files may still be an earlier run's.
        training = Training(settings, run_dir, stack.enter_context(Probe(by_harness)), begin)
        if training.is_finished:
            training.finish()
            result = {}
        else:
            training.take_folder(run_args)
            if not by_harness:
                training.probe = stack.enter_context(Probe(run_dir))
            result = training.train()
    close_group()
    return result


def refuse_impossible(settings: Settings, world_size: int) -> None:
    """Refuse what cannot work, before any file is written."""
    if world_size > 1 and not os.environ.get("MASTER_PORT"):
        raise StartupError(
            f"WORLD_SIZE is {world_size}, and MASTER_PORT is not set: start the ranks with torchrun, or set MASTER_ADDR and MASTER_PORT"
        )
    found = source_problems(settings.model, settings.dataset, cwd=Path())
    problem = settings.rank_problem(world_size) or next((sentence for _, sentence in found), None)
    if problem:
        raise StartupError(problem)


class Training:
    """One rank's part of a run."""

    def __init__(self, settings: Settings, run_dir: Path, probe: Probe, begin: float) -> None:
        self.settings, self.run_dir, self.probe, self.begin = settings, run_dir, probe, begin
        with probe.startup("tokenise"):
            # Before the process group exists: ranks that wait for a long tokenisation would run into its timeout.
            self.tokenizer = build_tokenizer(settings)
            self.rows = prepared_rows(settings, self.tokenizer)
        self._check_enough_rows()
        with probe.startup("process_group"):
            self.ranks = join(settings, run_dir)
        with probe.startup("model"):
            self.formats = choose_formats(settings, self.ranks)
            self.strategy = choose_strategy(settings, self.ranks.world_size)
            self.checkpoint = self._find_checkpoint()
            self.model = self._build()

    def _check_enough_rows(self) -> None:
        world_size = int(os.environ.get("WORLD_SIZE") or 1)
        needed = sequences_per_step(self.settings, world_size)
        if len(self.rows) < needed:
            raise StartupError(
                f"the dataset has {len(self.rows)} sequences, and one step of {world_size} ranks takes {needed}: "
                "use a larger subset_size, or a smaller micro_batch or grad_accum"
            )

    def _find_checkpoint(self) -> Checkpoint | None:
        source = resume_source(self.settings.resume_from)
        if source is None:
            return None
        checkpoint, world_size = find_checkpoint(source), self.ranks.world_size
        current = {**decisive_settings(self.settings, self.formats.precision.effective, self.rows.name), "world_size": world_size}
        same = {name: current[name] for name in (*SAME, "world_size")}
        check_same(checkpoint, same, "start over (resume_from=null, or --from-start)")
        done, steps = checkpoint.info.step + 1, self.settings.steps
        if done > steps:
            raise StartupError(f"{checkpoint.folder} has {done} steps done, and steps is {steps}: raise steps, or start over")
        planned = checkpoint.info.settings.get("steps", self.settings.steps)
        if planned != self.settings.steps:
            # The number of steps may change on resume; the learning rate schedule changes with it.
            self.log(f"caution: resuming to step {self.settings.steps}, not {planned}: the learning rate now falls to 0 at the new end")
        return checkpoint

    @property
    def first_step(self) -> int:
        return self.checkpoint.info.step + 1 if self.checkpoint else 0

    @property
    def is_finished(self) -> bool:
        """Whether the checkpoint is that of the last step."""
        return self.first_step >= self.settings.steps

    def finish(self) -> None:
        """Save the model if the earlier attempt, which did every step, did not. A collective call."""
        assert self.checkpoint is not None
        self.log(f"nothing left to train: {self.checkpoint.folder} is at step {self.first_step} of {self.settings.steps}")
        if not (self.run_dir / (ADAPTER if self.settings.use_lora else MODEL)).is_dir():
            self.save()

    def take_folder(self, run_args: dict[str, Any]) -> None:
        """All ranks have read what they need: the folder is this run's own from now on. A collective call."""
        is_restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        barrier()
        if self.ranks.rank == 0:
            source = resume_source(self.settings.resume_from)
            resumes_here = source is not None and source.absolute().is_relative_to(self.run_dir.absolute())
            is_harness_own = Path(os.environ.get(ENV_RUN_DIR) or "").absolute() == self.run_dir.absolute()
            if not is_restart and not is_harness_own:
                moved = set_aside(self.run_dir, OWN_FILES, keep=(CHECKPOINTS,) if resumes_here else ())
                if moved:
                    self.log(f"the files of an earlier run are now in {moved}")
            self.run_dir.mkdir(parents=True, exist_ok=True)
            write_json(self.run_dir / RUN_ARGS, run_args, BY_UMASK)
        # No rank opens a file before the earlier run's are moved.
        barrier()

    def _build(self) -> nn.Module:
        settings = self.settings
        model, _ = build_model(settings, self.ranks.device, self.formats, self.tokenizer)
        if self.checkpoint is not None:
            load_trained(model, self.checkpoint.folder)
        self.shape, self.no_shape = self._shape(model)
        self.trainable, self.total = count_parameters(model)
        self.adapted = adapted_names(model)
        if self.strategy.effective == "fsdp":
            shard(model, self.ranks.world_size, self.ranks.device, self.formats.precision.dtype)
        self.choices = choose_fast_paths(model, settings, self.ranks.device, is_sharded=self.strategy.effective == "fsdp")
        self.choices["cuda_graph"] = self._choose_graph()
        return model

    def _shape(self, model: Any) -> tuple[Shape | None, str]:
        """The shape where its FLOPs can be counted; else why not."""
        try:
            return shape_of(model.config.to_dict()), ""
        except UnknownShape as unknown:
            if self.settings.packing and mixes_examples(model):
                raise StartupError(
                    f"packing is on, and in a {model.config.model_type} model a token reaches the next example of its sequence: "
                    "use packing=false"
                ) from unknown
            return None, str(unknown)

    def _choose_graph(self) -> Choice:
        on_gpu = self.ranks.device.type == "cuda"
        has_attention = bool(self.choices[ATTENTION].effective)
        reason = why_no_graph(self.settings, world_size=self.ranks.world_size, has_gpu=on_gpu, has_attention=has_attention)
        return Choice(True, False, reason) if self.settings.cuda_graph and reason else as_requested(self.settings.cuda_graph)

    @cached_property
    def trainer(self) -> SftTrainer:
        settings = self.settings
        collator = Collator(
            pad_id=self.tokenizer.pad_token_id,
            row_length=settings.seq_len,
            loss_on=settings.loss_on,
            packing=settings.packing,
            static=settings.torch_compile or bool(self.choices["cuda_graph"].effective),
            flat=self.formats.attention.effective == FLASH,
        )
        return SftTrainer(
            settings=settings,
            strategy=self.strategy.effective,
            precision=self.formats.precision.effective,
            cuda_graph=bool(self.choices["cuda_graph"].effective),
            first_step=self.first_step,
            ranks=self.ranks,
            run_dir=self.run_dir,
            probe=self.probe,
            model=self.model,
            train_dataset=self.rows,
            data_collator=collator,
            processing_class=self.tokenizer,
        )

    def train(self) -> dict[str, Any]:
        self.record_effective()
        if note := split_note(self.settings.dataset, Path()):
            self.log(note)
        self.log(self.rows.describe(self.settings.seq_len))
        self.log(describe_parameters(self.trainable, self.total))
        if self.compiles:
            self.log(COMPILING_MODEL if self.settings.torch_compile else COMPILING)
        begin = time.monotonic()
        output = self.trainer.train(resume_from_checkpoint=str(self.checkpoint.folder) if self.checkpoint else None)
        # For the steps after the last log line.
        check_finite(output.training_loss, self.trainer.state.global_step)
        wall_s = time.monotonic() - begin
        result = self.metrics(wall_s)
        self.save()
        if self.ranks.rank == 0:
            write_json(self.run_dir / METRICS, result, BY_UMASK)
        self.log(f"METRICS: {json.dumps(result)}")
        return result

    def record_effective(self) -> None:
        settings, formats = self.settings, self.formats
        choices = {
            "strategy": self.strategy,
            "precision": formats.precision,
            "attn_impl": formats.attention,
            "device": Choice(settings.device, self.ranks.device.type, self.ranks.device_name),
            **self.choices,
        }
        if settings.recipe == "seed":
            choices["append_eos"] = Choice(settings.append_eos, False, "recipe=seed adds none")
        if settings.use_lora and set(self.adapted) != set(TARGETS):
            choices["use_lora"] = Choice(True, True, f"adapters on {', '.join(self.adapted)}")
        if settings.model in RANDOM:
            choices["model"] = Choice(settings.model, settings.model, RANDOM[settings.model])
        record(choices, self.probe)
        self.probe.figure("trainable_parameters", self.trainable)
        self.probe.figure("all_parameters", self.total)

    def metrics(self, wall_s: float) -> dict[str, Any]:
        """metrics.json; a collective call."""
        settings, ranks, step_counter = self.settings, self.ranks, self.trainer.step_counter
        gpu = ranks.device_name if ranks.device.type == "cuda" else None
        precision, strategy = self.formats.precision, self.strategy.effective
        window = step_counter.window(self.gather)
        lora_rank = settings.lora_r if settings.use_lora else None
        return {
            **metrics.seed_fields(
                settings,
                steps=len(step_counter.steps),
                wall_s=wall_s,
                world_size=ranks.world_size,
                gpu=gpu,
                precision=precision.effective,
                strategy=strategy,
            ),
            "strategy": strategy,
            "precision": precision.effective,
            "trainable_parameters": self.trainable,
            "all_parameters": self.total,
            "trainable_percent": 100 * self.trainable / self.total,
            "first_step": self.first_step,
            **step_counter.times(self.begin, window, compiled=self.compiles),
            **metrics.window_fields(settings, window, ranks.world_size),
            **metrics.mfu_fields(
                self.shape,
                window,
                lora_rank=lora_rank,
                world_size=ranks.world_size,
                gpu=gpu,
                precision=precision.effective,
                no_shape=self.no_shape,
            ),
            "measured_peak_tflops": metrics.measured_peak_tflops(ranks.device, precision.dtype),
            **metrics.highest(self.gather(metrics.peak_memory_mib(ranks.device))),
            **self.sample_fields(),
            "losses": step_counter.losses,
        }

    @property
    def compiles(self) -> bool:
        """Whether the first step waits for torch.compile."""
        fused = any(self.choices[part].effective for part in PARTS) and self.ranks.device.type == "cuda"
        return self.settings.torch_compile or fused

    def sample_fields(self) -> dict[str, Any]:
        """Write which examples each rank had, and whether two ranks had the same; a collective call."""
        by_rank = self.gather(self.trainer.step_counter.steps)
        if self.ranks.rank == 0:
            ids = {str(rank): [step.ids for step in steps] for rank, steps in enumerate(by_rank)}
            write_json(self.run_dir / SAMPLE_IDS, ids, BY_UMASK)
        shared = shared_samples(by_rank)
        return {"samples_shared_by_ranks": shared, "samples_disjoint": shared == 0}

    def save(self) -> None:
        """The adapter, or the whole model; and the merged model where requested. A collective call."""
        settings = self.settings
        if settings.save_adapter:
            self.trainer.save_model(str(self.run_dir / (ADAPTER if settings.use_lora else MODEL)))
        if settings.merge_adapter:
            whole = self.whole_model()
            if whole is not None:
                whole.merge_and_unload().save_pretrained(self.run_dir / MERGED)
                self.tokenizer.save_pretrained(self.run_dir / MERGED)

    def whole_model(self) -> Any:
        """The model with its adapter on rank 0, from all shards; None elsewhere."""
        if self.strategy.effective != "fsdp":
            remove_fast_paths(self.model)
            return self.model if self.ranks.rank == 0 else None
        state = gathered_state(self.model, trainable_only=False)
        if self.ranks.rank != 0:
            return None
        model, _ = build_model(self.settings, torch.device("cpu"), self.formats, self.tokenizer)
        model.load_state_dict(state, strict=False)
        return model

    def gather(self, value: Any) -> Sequence[Any]:
        """The value of every rank; a collective call."""
        if self.ranks.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.ranks.world_size
        dist.all_gather_object(values, value)
        return values

    def log(self, text: str) -> None:
        if self.ranks.rank == 0:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()


def join(settings: Settings, run_dir: Path) -> Ranks:
    """The Trainer joins the process group when its arguments are created."""
    arguments = training_arguments(settings, run_dir)
    if arguments.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ and arguments.world_size > 1:
        # Ranks that each use every core slow one another down.
        torch.set_num_threads(1)
    return Ranks(
        rank=arguments.process_index,
        local_rank=arguments.local_process_index,
        world_size=arguments.world_size,
        device=torch.device(arguments.device.type, arguments.local_process_index)
        if arguments.device.type == "cuda"
        else torch.device("cpu"),
    )


def choose_strategy(settings: Settings, world_size: int) -> Choice:
    """How ranks share the work, in effect."""
    if world_size == 1:
        return Choice(settings.strategy, "none", "one rank: nothing is shared")
    if settings.strategy == "auto":
        return Choice("auto", "ddp", f"{world_size} ranks")
    return as_requested(settings.strategy)


def barrier() -> None:
    """Wait for all ranks, where there are several."""
    if dist.is_initialized():
        dist.barrier()


def close_group() -> None:
    """Destroy the process group after everything that uses it: gloo sometimes aborts otherwise."""
    if dist.is_initialized():
        gc.collect()
        barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
