"""The scripts of the fine-tuning procedure. In: a script's flags and the variables MODEL, DATASET and GPU. Out: a training of
`seatrial_workloads.sft`, with its files in RUNS_ROOT/run_name.

    torchrun --nproc_per_node=8 training/src/train_sft_ddp_min.py --run_name sft_ddp_1node_smoke --max_steps 10
    python training/src/train_sft_ddp_min.py --check

Strict: an unknown flag, a value of the wrong kind, a model or dataset that is not here and cannot be downloaded, and what will not fit into
the GPU's memory end it before torch is imported. `--check` does only that, and is what the jobs run before torchrun.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seatrial.core.errors import DONE, RefusedError, SeatrialError, UsageError
from seatrial.machine.gpu_memory import WILL_NOT, Fit, judge_fit, named_gpu
from seatrial.machine.gpus import read_driver, read_gpu_states
from seatrial.preflight.gpu_memory import memory_of
from seatrial.probe.identity import integer_variable
from seatrial.records.plan import LauncherSpec, PlaceSpec, RunSpec, WorkloadSpec
from seatrial_runbooks.command_line import StrictParser, count, echo, run_reporting_errors, warn
from seatrial_workloads.common.errors import NotFinite, StartupError
from seatrial_workloads.sft.settings import LOSS_ON, RECIPES, Settings, results_dir

MODEL, DATASET = "mistralai/Mistral-7B-v0.1", "yahma/alpaca-cleaned"
NO_NETWORK = "MODEL=tiny DATASET=generated"
WORKLOAD = "sft"
# The default of the jobs.
RANKS_OF_A_NODE = 8
# Flag → setting, where the two have different names.
SETTING_OF = {"max_steps": "steps", "bsz": "micro_batch"}


def boolean(text: str) -> bool:
    """`True` or `False`, as the scripts write them."""
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise argparse.ArgumentTypeError(f"'{text}' is neither True nor False")
    return value


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None


def whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 0")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class Script:
    """One of the scripts: what it trains, and the flags that only some of them have."""

    name: str
    description: str
    launch: str
    """How it is started, for --help."""
    defaults: Mapping[str, Any]
    """Defaults by flag."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that none of its flags changes."""
    flags: tuple[str, ...] = ()
    """Options besides those that all scripts have."""
    ranks: int | None = None
    """The only number of ranks it supports."""


DDP_FLAGS = ("ddp_static_graph", "ddp_find_unused_parameters")
LORA_FLAGS = ("use_lora", "lora_r", "lora_alpha", "lora_dropout")
SCRIPTS = {
    script.name: script
    for script in (
        Script(
            name="train_sft_min",
            description="Full fine-tuning on one GPU.",
            launch="python training/src/train_sft_min.py",
            defaults={"run_name": "sft_1gpu_smoke", "grad_accum": 4, "lr": 2e-5},
            fixed={"use_lora": False},
            ranks=1,
        ),
        Script(
            name="train_sft_ddp_min",
            description="LoRA fine-tuning with DDP and gradient checkpointing on the GPUs of one node.",
            launch="torchrun --standalone --nproc_per_node=8 training/src/train_sft_ddp_min.py",
            # The learning rate of the original's log; the other scripts name theirs.
            defaults={"run_name": "sft_ddp_1node_smoke", "grad_accum": 1, "lr": 5e-5},
            fixed={"use_lora": True, "gradient_checkpointing": True, "strategy": "ddp"},
            flags=("tok_cache_dir", *DDP_FLAGS),
        ),
        Script(
            name="train_sft_ddp_lora_multinode",
            description="Full or LoRA fine-tuning with DDP on the GPUs of several nodes.",
            launch="sbatch training/slurm/train_ddp_2node.sbatch",
            defaults={"run_name": "sft_ddp_2node_lora_smoke", "grad_accum": 1, "lr": 5e-5},
            fixed={"strategy": "ddp"},
            flags=("tok_cache_dir", *LORA_FLAGS, "gradient_checkpointing", "checkpointing_reentrant", *DDP_FLAGS, "bf16"),
        ),
        Script(
            name="train_sft_fsdp_min",
            description="Full fine-tuning with FSDP (full shard) on the GPUs of one node, or of several.",
            launch="torchrun --standalone --nproc_per_node=8 training/src/train_sft_fsdp_min.py",
            defaults={"run_name": "sft_fsdp_1node_smoke", "grad_accum": 1, "lr": 2e-5},
            fixed={"strategy": "fsdp"},
            flags=("tok_cache_dir", *LORA_FLAGS, "activation_ckpt", "bf16"),
        ),
    )
}

Option = dict[str, Any]
EVERY_SCRIPT: dict[str, Option] = {
    "model": {"metavar": "NAME", "help": f"hub id, local folder, or tiny: two layers with random weights (default: $MODEL, else {MODEL})"},
    "dataset": {"metavar": "NAME", "help": f"hub id, local folder or file, or generated (default: $DATASET, else {DATASET})"},
    "run_name": {"metavar": "NAME", "help": "folder of the results in RUNS_ROOT"},
    "max_steps": {"type": count, "metavar": "N", "default": 10, "help": "optimiser steps"},
    "seq_len": {"type": count, "metavar": "N", "default": 512, "help": "tokens of an example"},
    "bsz": {"type": count, "metavar": "N", "default": 1, "help": "examples of a rank in a forward pass"},
    "grad_accum": {"type": count, "metavar": "N", "help": "forward passes of a step"},
    "seed": {"type": whole, "metavar": "N", "default": 42, "help": "seed"},
    "subset_size": {"type": count, "metavar": "N", "default": 2048, "help": "examples that are used"},
    "lr": {"type": number, "metavar": "X", "help": "peak learning rate"},
    "recipe": {"choices": RECIPES, "default": "ours", "help": "seed: no end-of-text token is learnt, as in the original scripts"},
    "loss_on": {"choices": LOSS_ON, "default": "all", "help": "tokens that are learnt"},
    "packing": {"type": boolean, "metavar": "BOOL", "default": False, "help": "several examples in a sequence, instead of padding"},
}
SOME_SCRIPTS: dict[str, Option] = {
    "tok_cache_dir": {"metavar": "DIR", "help": "where tokenised datasets are kept (default: HF_HOME/tokenized)"},
    "use_lora": {"action": "store_true", "help": "train LoRA adapters; without it the whole model is trained"},
    "lora_r": {"type": count, "metavar": "N", "default": 8, "help": "rank of the adapters"},
    "lora_alpha": {"type": count, "metavar": "N", "default": 16, "help": "scale of the adapters, divided by their rank"},
    "lora_dropout": {"type": number, "metavar": "X", "default": 0.05, "help": "dropout before the adapters"},
    "gradient_checkpointing": {"type": boolean, "metavar": "BOOL", "default": False, "help": "recompute activations in the backward pass"},
    "checkpointing_reentrant": {
        "type": boolean,
        "metavar": "BOOL",
        "default": False,
        "help": "its older form",
    },
    "ddp_static_graph": {"type": boolean, "metavar": "BOOL", "default": False, "help": "every step uses the same parameters"},
    "ddp_find_unused_parameters": {
        "type": boolean,
        "metavar": "BOOL",
        "default": False,
        "help": "DDP looks for parameters that a step does not use",
    },
    "activation_ckpt": {
        "type": boolean,
        "metavar": "BOOL",
        "nargs": "?",
        "const": True,
        "default": False,
        "help": "recompute activations in the backward pass",
    },
    "bf16": {"type": boolean, "metavar": "BOOL", "default": True, "help": "compute in bfloat16; else in float32"},
}


def parser_of(script: Script, env: Mapping[str, str] = os.environ) -> StrictParser:
    """The script's flags with their defaults, each of which --help shows."""
    parser = StrictParser(script.description, f"examples:\n  {script.launch}\n  python training/src/{script.name}.py --check")
    parser.prog = f"{script.name}.py"
    parser.add_argument("--check", action="store_true", help="check flags, model, dataset and memory, and end before anything is trained")
    parser.add_argument("--ignore_fit", action="store_true", help="start although the memory forecast says that it will not fit")
    defaults = {"model": env.get("MODEL") or MODEL, "dataset": env.get("DATASET") or DATASET, **script.defaults}
    for name, option in {**EVERY_SCRIPT, **{name: SOME_SCRIPTS[name] for name in script.flags}}.items():
        complete: Option = {**option, **({"default": defaults[name]} if name in defaults else {})}
        if complete.get("default") is not None and "default:" not in option["help"]:
            complete["help"] = f"{option['help']} (default: {complete['default']})"
        parser.add_argument(f"--{name}", **complete)
    return parser


def settings_of(script: Script, flags: Mapping[str, Any]) -> Settings:
    """The settings of these flags; UsageError for what cannot be trained."""
    given = {SETTING_OF.get(name, name): value for name, value in flags.items() if value is not None}
    if "activation_ckpt" in given:
        given["gradient_checkpointing"] = given.pop("activation_ckpt")
    if "bf16" in given:
        given["precision"] = "bf16" if given.pop("bf16") else "fp32"
    try:
        return Settings(**{**given, **script.fixed})
    except ValueError as error:
        raise UsageError(f"{error}; see --help") from error


def check(settings: Settings, script: Script, env: Mapping[str, str], cwd: Path, *, ignore_fit: bool = False) -> str:
    """RefusedError for what would end the training after its ranks have started; returns the result of the memory check."""
    # Slurm's tasks are not ranks: torchrun starts the ranks, and one task of Slurm starts it.
    world_size = integer_variable(env, "WORLD_SIZE", 1)
    if script.ranks is not None and world_size != script.ranks:
        raise RefusedError(f"{script.name}.py trains on one rank, and there are {world_size}: use train_sft_ddp_min.py, or start one")
    if problems := [problem for _, problem in settings.source_problems(cwd=cwd, env=env, is_seen=lambda path: True)]:
        raise RefusedError(f"{'; '.join(problems)}. For a job: {NO_NETWORK} sbatch …")
    if problem := settings.rank_problem(world_size):
        raise RefusedError(problem)
    fit = forecast_fit(settings, planned_ranks(script, env), env, cwd)
    if fit is None:
        return "memory not checked: no GPU here, and the variable GPU names none"
    if fit.verdict == WILL_NOT and not ignore_fit:
        raise RefusedError(f"{fit.text}. The scripts: --use_lora, or train_sft_fsdp_min.py; --ignore_fit starts anyway")
    return f"memory: {fit.text}"


def planned_ranks(script: Script, env: Mapping[str, str]) -> int:
    """Ranks of this start, or before torchrun those that the job is about to start."""
    if script.ranks is not None or env.get("WORLD_SIZE"):
        return script.ranks or integer_variable(env, "WORLD_SIZE", 1)
    on_a_node = env.get("NPROC_PER_NODE", "")
    # torchrun takes words too, such as `gpu`.
    return (int(on_a_node) if on_a_node.isdecimal() else RANKS_OF_A_NODE) * integer_variable(env, "SLURM_JOB_NUM_NODES", 1)


def forecast_fit(settings: Settings, ranks: int, env: Mapping[str, str], cwd: Path) -> Fit | None:
    """Whether the training fits into the GPU that is here, or that the variable GPU names; None without either."""
    place = PlaceSpec(ranks=ranks)
    workload = WorkloadSpec(name=WORKLOAD, module=f"seatrial_workloads.{WORKLOAD}.train")
    spec = RunSpec(
        run=WORKLOAD,
        group=WORKLOAD,
        repeat=1,
        plan=WORKLOAD,
        workload=workload,
        launcher=LauncherSpec(kind="torchrun"),
        place=place,
        cwd=str(cwd),
        settings=asdict(settings),
    )
    gpus = read_driver().gpus
    memory = memory_of(spec, env, gpus, read_gpu_states(gpus) or ()) if gpus else None
    memory = memory or (named_gpu(env["GPU"]) if env.get("GPU") else None)
    return judge_fit(spec, memory) if memory else None


def main(script_name: str, argv: Sequence[str] | None = None) -> int:
    """Train, or only check; the exit code."""
    return run_reporting_errors(lambda: _run(SCRIPTS[script_name], argv))


def _run(script: Script, argv: Sequence[str] | None) -> int:
    try:
        flags = vars(parser_of(script).parse(argv))
        only_check, ignore_fit = flags.pop("check"), flags.pop("ignore_fit")
        settings = settings_of(script, flags)
        memory = check(settings, script, os.environ, Path.cwd(), ignore_fit=ignore_fit)
        if only_check:
            echo(f"{socket.gethostname()}: {script.name}.py can start: model {settings.model}, dataset {settings.dataset}; {memory}")
        else:
            train(settings, flags)
    except SeatrialError as error:
        # All ranks of a node find the same: one reports it.
        if integer_variable(os.environ, "LOCAL_RANK", 0):
            return error.exit_code
        raise
    return DONE


def train(settings: Settings, flags: dict[str, Any]) -> None:
    """RefusedError for problems found only in the data, and for a loss that is not finite."""
    from seatrial_workloads.sft.train import run

    if problem := _lower_debug_level():
        warn(problem)
    try:
        run(settings, results_dir(settings), run_args=flags)
    except (StartupError, NotFinite) as error:
        raise RefusedError(str(error)) from error


def _lower_debug_level() -> str | None:
    """The original exports TORCH_DISTRIBUTED_DEBUG=DETAIL, under which torch 2.13 crashes when DDP is set up with gloo:
    use INFO and report it."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available() or dist.get_debug_level() != dist.DebugLevel.DETAIL:
        return None
    # The variable is read again when the process group is created.
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
    dist.set_debug_level_from_env()
    return "TORCH_DISTRIBUTED_DEBUG=DETAIL crashes DDP on CPU ranks: INFO is used"
