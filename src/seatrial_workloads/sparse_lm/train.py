"""Train the sparse-attention language model with DDP. In: settings. Out: events, heartbeats, train.log, and the files of `results.py`.

torchrun --standalone --nproc_per_node 2 -m seatrial_workloads.sparse_lm.train --steps 50 --device cpu

Order: text → model → engine → resume → first batch → compile → CUDA graph → audit → steps. `showcase.py` is the entry point with the
procedure's flags and variables; both end in `train`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seatrial.core.files import BY_UMASK, atomic_write
from seatrial.core.paths import AttemptPaths
from seatrial.probe.identity import integer_variable, rank_and_world_size
from seatrial.probe.stacks import register_stack_signal
from seatrial.records.events import ENV_ATTEMPT, ENV_RUN, ENV_RUN_DIR
from seatrial.records.sparse_lm_halt import NAN_LOSS
from seatrial_workloads.common.distributed import RankContext, lowest_capability, rank_context
from seatrial_workloads.common.effective_settings import AS_REQUESTED, Choice, as_requested
from seatrial_workloads.common.engines import DdpOptions, EngineOptions
from seatrial_workloads.common.engines.ddp import DdpEngine
from seatrial_workloads.common.errors import NotFinite, StartupError
from seatrial_workloads.common.math_backend import MathOptions, set_math_backend
from seatrial_workloads.common.precision import check_fp16_has_gpu, choose_precision
from seatrial_workloads.common.run_folder import NoSharedStartTime, check_folder_unused, check_writable, shared_start_t
from seatrial_workloads.common.settings import load_settings
from seatrial_workloads.common.train_log import is_due, is_logged
from seatrial_workloads.sparse_lm.checkpointing import is_checkpoint_due, resume, save_training
from seatrial_workloads.sparse_lm.compiled_step import REQUESTED, capture_step, compile_blocks, why_no_graph
from seatrial_workloads.sparse_lm.config import CONFIRMS, EXIT_CODES, YES, check_long_run
from seatrial_workloads.sparse_lm.data import Batch, open_text, start_text, validation_batches
from seatrial_workloads.sparse_lm.model import SparseLM
from seatrial_workloads.sparse_lm.ops.spans import name_in_nvtx
from seatrial_workloads.sparse_lm.reporting import PATH_SETTINGS, Reporter, RunInfo
from seatrial_workloads.sparse_lm.settings import SCHEDULES, SIZE_FIELDS, Settings, parse_fault
from seatrial_workloads.sparse_lm.step_profile import StepProfile, attention_calls, profile_step, sequential_pass_s, write_audit
from seatrial_workloads.sparse_lm.stopping import EXIT_HALT, EXIT_TERM, DeviceReadout, HaltPoll, TermSignal, inject_fault

# From this length on the sequential reference takes minutes a step.
SLOW_SEQUENTIAL = 1024
STEPS, TERM, HALT = "steps", "term", "halt"


def main(argv: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if argv is None else list(argv)
    yes = YES in arguments
    start = load_settings(Settings, [argument for argument in arguments if argument != YES], f"{YES}: {CONFIRMS}. {EXIT_CODES}")
    try:
        if rank_and_world_size(os.environ)[0] == 0:
            check_folder_unused(start.run_dir)
        if not os.environ.get(ENV_RUN_DIR):
            check_writable(start.run_dir, "--run-dir")
        if not os.environ.get(ENV_RUN_DIR) and not yes:
            named = any(argument.partition("=")[0].removeprefix("--") in (*SIZE_FIELDS, "settings") for argument in arguments)
            check_long_run(start.settings, is_named=named)
        info = RunInfo(run_id=os.environ.get(ENV_RUN) or start_id(), attempt=integer_variable(os.environ, ENV_ATTEMPT, 1))
        train(start.settings, start.run_dir, info)
    except (StartupError, NotFinite) as error:
        sys.exit(f"sparse_lm: error: {error}")


def start_id() -> str:
    """An id shared by all ranks of this start, and by no other start."""
    try:
        start_t = shared_start_t(os.environ)
    except NoSharedStartTime as reason:
        raise StartupError(f"ranks {reason} have no id in common: give each the same {ENV_RUN}") from None
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(start_t))}-{int(start_t * 100) % 100:02d}"


def train(settings: Settings, run_dir: Path, info: RunInfo) -> None:
    """Train one rank. Ends the process with its own exit code after a TERM, and after a `.HALT` before the last step."""
    check_fp16_has_gpu(settings.precision, settings.device)
    stacks = AttemptPaths(run_dir).rank_stack(rank_and_world_size(os.environ)[0])
    # Before the process group is joined, which may hang.
    register_stack_signal("USR1", stacks)
    with rank_context(run_dir, settings.device, settings.steps, settings.group_timeout_s) as context:
        term = TermSignal(stacks)
        try:
            trainer = Trainer(settings, context, info, term)
            try:
                trainer.train()
            finally:
                trainer.close()
        finally:
            term.close()
    if trainer.ended_by == TERM:
        sys.exit(EXIT_TERM)
    if trainer.halted:
        if trainer.ranks.rank == 0:
            print(f"sparse_lm: {trainer.halted}", file=sys.stderr, flush=True)
        sys.exit(EXIT_HALT)


class Trainer:
    """Model, engine and loop of one rank."""

    def __init__(self, settings: Settings, context: RankContext, info: RunInfo, term: TermSignal) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.context, self.info, self.term = settings, context, info, term
        self.probe, self.ranks, self.log = probe, ranks, log = context.probe, context.ranks, context.log
        self.ended_by = STEPS
        """What ended the loop: the last step, TERM, a halt, or a loss that is not finite."""
        self.position: dict[str, Any] = {}
        self.saved_step: int | None = None
        self.not_finite = self.halted = ""
        self.profile: StepProfile | None = None
        self.reporter = Reporter(settings, context, info)
        self.halt = HaltPoll(context.run_dir, info.run_id, info.attempt, log.info)
        self.readout = DeviceReadout(ranks)
        lowest = lowest_capability(ranks)
        self.precision = choose_precision(settings.precision, lowest)
        self.choices: dict[str, Choice] = {**info.no_effect, "precision": self.precision, **set_math_backend(MathOptions(), lowest)}
        self.choices["device"] = Choice(settings.device, str(ranks.device.type), ranks.device_name)
        with probe.startup("data"):
            self.text, self.choices["dataset"] = open_text(settings, ranks, log.info)
        with probe.startup("model"):
            self._build()
            self.start_step, position = resume(self.engine, settings, context)
        with probe.startup("data"):
            self._load_data(position)

    def _build(self) -> None:
        settings = self.settings
        self.options = engine_options(settings)
        self.model = SparseLM(
            settings.shape(self.text.tokenizer.vocab_size),
            paths=settings.attention_paths(),
            gradient_checkpointing=settings.gradient_checkpointing,
            loss_chunk=settings.loss_chunk,
        )
        self.engine = DdpEngine(self.model, self.ranks, self.precision, self.options)
        self.model.train()
        self.choices |= {"ddp_compression": as_requested(settings.ddp_compression), **self.engine.choices}
        self.choices |= path_choices(self.model.choices(settings.seq_len))

    def _load_data(self, position: dict[str, Any] | None) -> None:
        settings = self.settings
        self.text, changed = start_text(self.text, settings, self.ranks, self.log.info, self.start_step, position)
        if changed is not None:
            self.choices["dataset"] = changed
        self.validation = validation_batches(self.text, settings, self.ranks) if settings.eval_every else []
        if settings.eval_every and not self.validation:
            reason = "the dataset has too little text for a batch of validation"
            self.choices["eval_every"] = Choice(settings.eval_every, None, reason)
        # DDP averages over ranks; with unequal shares the mean over rows needs their weights.
        self.row_weight = len(self.text.rows) * self.ranks.world_size / settings.batch_size

    def train(self) -> None:
        settings, probe = self.settings, self.probe
        self._prepare()
        rows = len(self.text.rows) * settings.accumulate
        probe.resume_at(self.start_step)
        self.readout.restart_clock()
        for step, batches in enumerate(probe.data(self.text.steps(settings.steps - self.start_step)), start=self.start_step):
            self._before_step(step)
            with probe.step(samples=rows, tokens=rows * settings.seq_len):
                loss = self._train_step(step, batches)
            probe.loss(loss)
            self._after_step(step, loss, batches)
            if self.ended_by != STEPS:
                break
        self._finish()

    def _prepare(self) -> None:
        """One-time work before the first step, in named pauses."""
        settings, probe = self.settings, self.probe
        if settings.compile or self._uses_flex():
            with probe.pause("compile"):
                self._compile()
        self.choices["cuda_graph"] = self._capture()
        if settings.profile:
            self._start_profile()
        self.reporter.effective(self.choices, self.model, len(self.text.rows))
        if settings.prefill == "sequential" and settings.seq_len >= SLOW_SEQUENTIAL:
            self._warn_of_sequential()
        if settings.sdpa_audit:
            with probe.pause("audit"):
                self._audit()
                self.ranks.barrier()

    def _before_step(self, step: int) -> None:
        settings = self.settings
        # Layer 0 computes its statistics in logged steps only; in a graph in every step.
        self.model.collect_statistics(settings.statistics and is_logged(step, settings.log_every, settings.steps))
        if self.profile is not None:
            self.profile.before(step)

    def _train_step(self, step: int, batches: list[Batch]) -> Tensor:
        """This rank's mean loss, on the device."""
        probe, engine = self.probe, self.engine
        if self._is_replayed(step):
            with probe.phase("preprocess"):
                inputs = batches[0].inputs(self.ranks.device)
            # No phases: the graph is one.
            return engine.replay(**inputs)
        losses = []
        for batch in batches:
            with probe.phase("preprocess"):
                inputs = batch.inputs(self.ranks.device)
            with probe.phase("fwd"):
                loss = inject_fault(self.settings.fault, step, self.ranks, engine.forward(**inputs))
            with probe.phase("bwd"):
                engine.backward(loss if self.row_weight == 1 else loss * self.row_weight)
            losses.append(loss.detach())
        with probe.phase("step"):
            engine.step()
        return torch.stack(losses).mean()

    def _is_replayed(self, step: int) -> bool:
        """Whether the step is replayed; one with an injected fault is not."""
        fault = parse_fault(self.settings.fault)
        return bool(self.choices["cuda_graph"].effective) and (fault is None or fault.step != step)

    def _after_step(self, step: int, loss: Tensor, batches: list[Batch]) -> None:
        settings = self.settings
        self.position = batches[-1].position
        self._put(step, loss)
        evaluates = bool(self.validation) and is_due(step + 1, settings.eval_every)
        saves = is_checkpoint_due(step, settings)
        profiled = settings.profile and StepProfile.ends(step, self.start_step)
        # Read the values first: a step whose loss is not finite must not be checkpointed.
        pauses = evaluates or saves or profiled
        self._read(leave=0 if pauses else 1)
        if self.ended_by != STEPS or not pauses:
            return
        if evaluates:
            with self.probe.pause("eval"):
                self._validate(step)
        if saves:
            self._save(step)
        if profiled:
            with self.probe.pause("profile"):
                self._end_profile()
        self.readout.restart_clock()

    def _put(self, step: int, loss: Tensor) -> None:
        assert self.engine.grad_norm is not None, "it is always measured"
        local = [self.engine.grad_norm]
        if self.model.collects_statistics:
            local += self.model.statistics().values()
        wants_end = self.ranks.rank == 0 and self.halt.wants_end(step)
        share = loss * (self.row_weight / self.ranks.world_size)
        self.readout.put(step, share, halts=wants_end, terminates=self.term.received, local=local, data_wait_s=self.text.wait_s)

    def _read(self, *, leave: int) -> None:
        """Report the values that have arrived, and note an end that the ranks agree on."""
        for values in self.readout.take(leave=leave):
            is_first = values.step == self.start_step
            self.reporter.step(values, self.options.lr_at(values.step), is_first=is_first)
            if is_first:
                self.reporter.files.optimizer_state(self.engine.optimizer_state_bytes())
            if self.ended_by != NAN_LOSS and (problem := self.reporter.not_finite(values)):
                self.ended_by, self.not_finite = NAN_LOSS, problem
            elif values.terminates and self.ended_by == STEPS:
                self.ended_by = TERM
            elif values.halts and self.ended_by == STEPS:
                self.ended_by = HALT

    @torch.no_grad()
    def _validate(self, step: int) -> None:
        """The mean over all ranks; a collective call."""
        self.model.eval()
        self.model.collect_statistics(False)
        losses = [self.engine.forward(**batch.inputs(self.ranks.device)).float() for batch in self.validation]
        self.model.train()
        readout = DeviceReadout(self.ranks)
        share = torch.stack(losses).mean() * (self.row_weight / self.ranks.world_size)
        readout.put(step, share, halts=False, terminates=False, local=[])
        self.reporter.validation(step, readout.take(leave=0)[0].loss)

    def _save(self, step: int) -> None:
        with self.probe.pause("checkpoint"):
            folder = save_training(self.engine, self.settings, self.context, step, self.position)
        self.saved_step = step
        self.log.info(f"[checkpoint] step {step + 1:04d} | {folder}")

    def _finish(self) -> None:
        """After the last step, or where the ranks agreed to end."""
        self._read(leave=0)
        self._end_profile()
        # A halt requested by the harness is not a failure of the run: the harness records its own reason.
        by_harness = self.ended_by == STEPS and self.probe.halted and bool(os.environ.get(ENV_RUN_DIR))
        if self.ended_by == STEPS and self.probe.halted:
            self.ended_by = HALT
        recent = self.probe.recent()
        steps = recent[-1].step + 1 if recent else self.start_step
        if self.ended_by in (TERM, HALT) and self.settings.checkpoint_every and self.saved_step != steps - 1 and steps > self.start_step:
            self._save(steps - 1)
        halt = self.halt.found
        if self.ended_by == HALT and not by_harness and steps < self.settings.steps:
            who = f"{halt.anomaly} (run {self.info.run_id}, attempt {self.info.attempt}) {halt.reason}" if halt else "by halt.json"
            self.halted = f"halted by .HALT before step {steps + 1} of {self.settings.steps}: {who.strip()}"
        why = {STEPS: "all steps done", TERM: "ended by TERM", HALT: f"ended by {'.HALT: ' + halt.anomaly if halt else 'a halt request'}"}
        self.reporter.end(self.ended_by, why.get(self.ended_by, self.not_finite), steps)
        if self.ended_by == NAN_LOSS:
            raise NotFinite(self.not_finite)
        if self.info.save is not None and self.ranks.rank == 0:
            self._save_weights(self.info.save, steps)

    def _save_weights(self, path: Path, steps: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, BY_UMASK, fsync=False) as aside:
            torch.save({"model": self.model.state_dict(), "settings": dataclasses.asdict(self.settings), "steps": steps}, aside)

    def close(self) -> None:
        self.text.close()
        self.reporter.files.close()
        self.engine.close()

    def _uses_flex(self) -> bool:
        """FlexAttention is compiled in its first call, with the blocks or by itself."""
        return "flex" in (self.choices["selected_path"].effective, self.choices["window_path"].effective)

    def _compile(self) -> None:
        """Compile before the first step, with the text's own shapes: the blocks where requested, and FlexAttention always."""
        if self.settings.compile:
            self.choices["compile"] = compile_blocks(self.model, self._warm_up, self.ranks)
            if self.choices["compile"].effective:
                return
        if self._uses_flex():
            self._warm_up()

    def _capture(self) -> Choice:
        """Capture the step. A graph computes the statistics in every step; logged steps read them."""
        requested = self.settings.cuda_graph
        reason = why_no_graph(self.settings, self.choices, self.engine.cannot_capture)
        if requested is False or reason:
            return Choice(REQUESTED[requested], False, reason if requested is not False else AS_REQUESTED)
        self.model.collect_statistics(self.settings.statistics)
        with self.probe.pause("cuda_graph"):
            return capture_step(self.engine, self._first_inputs(), requested=requested)

    def _first_inputs(self) -> dict[str, Tensor | None]:
        return self.text.peek().inputs(self.ranks.device)

    def _warm_up(self) -> None:
        self.engine.warm_up(**self._first_inputs())

    def _audit(self) -> None:
        if self.ranks.rank != 0:
            return
        profiled = profile_step(self._warm_up)
        calls = attention_calls(profiled.events())
        for line in write_audit(self.context.run_dir, self.info.run_id, calls, self.ranks.device_name):
            self.log.info(f"[sdpa-audit] {line}")

    def _start_profile(self) -> None:
        on_gpu = self.ranks.device.type == "cuda"
        if on_gpu:
            name_in_nvtx(True)
        reason = "NVTX ranges and a profile" if on_gpu else "no CUDA: a profile with the same names, no NVTX"
        steps, needed = self.settings.steps - self.start_step, StepProfile.WARM_UP + StepProfile.PROFILED
        if steps <= StepProfile.WARM_UP:
            reason = f"no profile is taken: {steps} steps, and the first {StepProfile.WARM_UP} are never profiled; use {needed} or more"
        self.choices["profile"] = Choice(True, "nvtx" if on_gpu else "profile" if steps > StepProfile.WARM_UP else False, reason)
        if self.ranks.rank == 0:
            self.profile = StepProfile(self.context.run_dir, self.info.run_id, self.start_step)

    def _end_profile(self) -> None:
        """Write the profile, also in a run that ends inside the profiled window."""
        if self.profile is not None:
            for line in self.profile.finish():
                self.log.info(f"[profile] {line}")
        if self.settings.profile:
            self.ranks.barrier()

    def _warn_of_sequential(self) -> None:
        settings = self.settings
        with self.precision.autocast(self.ranks.device):
            pass_s = sequential_pass_s(self.model, len(self.text.rows), settings.seq_len, self.ranks.device)
        # A backward pass takes about twice the forward, plus its recomputation with checkpointing.
        expected_s = pass_s * (4 if settings.gradient_checkpointing else 3) * settings.accumulate
        self.log.info(
            f"[warning] the sequential prefill is a Python loop over {settings.seq_len} tokens: about {expected_s:.0f} s a step; "
            "unset NSA_PREFILL_BATCHED (prefill=batched) for the vectorised one"
        )


def path_choices(by_layer: Mapping[str, Choice]) -> dict[str, Choice]:
    """Choices of each layer, and under the name of the setting the one that all layers share."""
    common = {setting: by_layer[f"layers.0.{part}"] for part, setting in PATH_SETTINGS.items()}
    return {**common, **by_layer}


def engine_options(settings: Settings) -> EngineOptions:
    return EngineOptions(
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_steps,
        schedule_steps=settings.steps,
        min_lr_ratio=0.0,
        schedule=SCHEDULES[settings.lr_schedule],
        gradient_clipping=settings.grad_clip,
        measure_grad_norm=True,
        mixed_precision=settings.mixed_precision,
        accumulate=settings.accumulate,
        fused_adam=settings.fused_adam,
        ddp=DdpOptions(
            bucket_mb=settings.ddp_bucket_mb,
            static_graph=settings.ddp_static_graph,
            bucket_view=settings.ddp_bucket_view,
            compression=settings.ddp_compression,
        ),
    )


if __name__ == "__main__":
    main()
