"""AdamW implementation. In: the option, the device, what can be built here. Out: the optimiser, and why.

ddp uses torch's. Under DeepSpeed a GPU uses FusedAdam where it can be compiled, else torch's (fused on a GPU), which computes the same.
On a CPU nothing is compiled unless FusedAdam is requested.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import AS_REQUESTED, Choice
from seatrial_workloads.common.engines.engine import EngineOptions, Startup, no_startup
from seatrial_workloads.common.errors import summarize_error

TORCH, FUSED = "AdamW", "FusedAdam"
ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
LETTERED = re.compile(r"(\d+\.\d+)[a-z]")
REQUESTED = {None: "auto", True: TORCH, False: FUSED}


def choose_adam(torch_adam: bool | None, *, on_gpu: bool, installed: bool, build_problem: str | None) -> Choice:
    """The policy; `installed` if the op was compiled with DeepSpeed, `build_problem` is why it cannot be compiled here."""
    requested = REQUESTED[torch_adam]
    if torch_adam is True:
        return Choice(requested, TORCH, AS_REQUESTED)
    if installed:
        return Choice(requested, FUSED, "the op is installed")
    if torch_adam is False:
        return Choice(requested, FUSED, "as requested; the op is compiled on first use, which takes a minute")
    if not on_gpu:
        return Choice(requested, TORCH, f"no GPU: {FUSED} would have to be compiled for the CPU (torch_adam=false does that)")
    if build_problem:
        return Choice(requested, TORCH, f"{FUSED} cannot be compiled here: {build_problem}")
    return Choice(requested, FUSED, "the op is compiled on first use")


def _build_problem(deepspeed: ModuleType) -> str | None:
    from torch.utils import cpp_extension

    if not deepspeed.ops.__compatible_ops__.get("fused_adam"):
        return "DeepSpeed reports it as incompatible with this machine"
    if cpp_extension.CUDA_HOME is None or not (Path(cpp_extension.CUDA_HOME) / "bin" / "nvcc").exists():
        return "no CUDA compiler (nvcc)"
    if shutil.which("ninja") is None:
        return "no ninja"
    return None


def create_adam(
    deepspeed: ModuleType, parameters: list[nn.Parameter], options: EngineOptions, ranks: Ranks, startup: Startup = no_startup
) -> tuple[torch.optim.Optimizer, Choice]:
    """If FusedAdam does not build on one rank, all use torch's, unless FusedAdam was requested. The build is a named part of the start-up:
    it takes minutes on a machine without DeepSpeed's cached ops."""
    from deepspeed.git_version_info import installed_ops

    on_gpu = ranks.device.type == "cuda"
    problem = _build_problem(deepspeed) if on_gpu else None
    choice = choose_adam(options.torch_adam, on_gpu=on_gpu, installed=bool(installed_ops.get("fused_adam")), build_problem=problem)
    if options.torch_adam is None:
        # One node may lack the compiler or the installed op.
        lacking = ranks.agreed_problem(None if choice.effective == FUSED else choice.reason, f"another rank has no {FUSED}")
        choice = choice if lacking is None else Choice(choice.requested, TORCH, lacking)
    if choice.effective == FUSED:
        with startup("ops_build"):
            fused, failure = try_fused(parameters, options)
        failure = ranks.agreed_problem(failure, "another rank failed to build it")
        if fused is not None and failure is None:
            return fused, choice
        if options.torch_adam is False:
            raise RuntimeError(f"torch_adam is false, and {FUSED} could not be built ({failure}): leave torch_adam out, or set it to true")
        choice = Choice(choice.requested, TORCH, f"{FUSED} could not be built: {failure}")
    return create_torch_adam(parameters, options, ranks), choice


def build_fused_adam(torch_adam: bool | None, *, on_gpu: bool) -> tuple[bool, str]:
    """Build the op as the first step of a run would, so that runs find it in torch's extension cache; returns whether it succeeded, and
    what was done."""
    import deepspeed
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder import FusedAdamBuilder
    from torch.utils import cpp_extension

    problem = _build_problem(deepspeed) if on_gpu else None
    choice = choose_adam(torch_adam, on_gpu=on_gpu, installed=bool(installed_ops.get("fused_adam")), build_problem=problem)
    if choice.effective != FUSED or installed_ops.get("fused_adam"):
        return problem is None, f"nothing to build: {choice.effective} is used ({choice.reason})"
    library = Path(cpp_extension._get_build_directory("fused_adam", verbose=False)) / "fused_adam.so"
    if is_left_over(lock := library.with_name("lock")):
        return (
            False,
            f"{lock} is left over from a build that was killed, and no process here holds it: remove it, or every run waits for it",
        )
    was_there = library.exists()
    with without_architecture_letters(os.environ):
        FusedAdamBuilder().load(verbose=False)
    return True, f"{FUSED} {'was in the cache' if was_there else 'built'}, {library.parent}"


def is_left_over(lock: Path) -> bool:
    """Whether the file exists and no process of this host has it open, as a build does."""
    if not lock.exists():
        return False
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if fd.readlink() == lock:
                return False
    return True


def try_fused(parameters: list[nn.Parameter], options: EngineOptions) -> tuple[torch.optim.Optimizer | None, str | None]:
    """The optimiser, or why it could not be built."""
    from deepspeed.ops.adam import FusedAdam

    try:
        with without_architecture_letters(os.environ):
            return FusedAdam(parameters, adam_w_mode=True, **_hyperparameters(options)), None
    # A build can fail in any way: subprocess errors, missing headers, mismatched versions.
    except Exception as error:
        return None, summarize_error(error)


@contextlib.contextmanager
def without_architecture_letters(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Target architectures without the letter suffix (9.0a), which DeepSpeed 0.19 cannot parse."""
    given = environment.get(ARCHITECTURES)
    if given is not None:
        environment[ARCHITECTURES] = LETTERED.sub(r"\1", given)
    try:
        yield
    finally:
        # The build overwrites it.
        if given is not None:
            environment[ARCHITECTURES] = given


def create_torch_adam(parameters: list[nn.Parameter], options: EngineOptions, ranks: Ranks) -> torch.optim.Optimizer:
    """torch's AdamW, fused on a GPU unless requested otherwise."""
    fused = ranks.device.type == "cuda" if options.fused_adam is None else options.fused_adam
    return torch.optim.AdamW(parameters, fused=fused, **_hyperparameters(options))


def _hyperparameters(options: EngineOptions) -> dict[str, object]:
    return {"lr": options.lr, "betas": options.betas, "eps": options.eps, "weight_decay": options.weight_decay}
