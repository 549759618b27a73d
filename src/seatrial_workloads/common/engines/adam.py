"""Which AdamW updates the weights. In: the option, the device, what can be built here. Out: the optimiser, and why.

ddp has torch's own. DeepSpeed's FusedAdam is compiled on first use: under DeepSpeed it is taken on a GPU where that can be done, else
torch's own (fused on a GPU), which computes the same. On a CPU nothing is compiled unless FusedAdam is insisted on.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from seatrial_workloads.common.choice import AS_REQUESTED, Choice
from seatrial_workloads.common.compiling import first_words
from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.engines.engine import EngineOptions

TORCH, FUSED = "AdamW", "FusedAdam"
ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
LETTERED = re.compile(r"(\d+\.\d+)[a-z]")
REQUESTED = {None: "auto", True: TORCH, False: FUSED}


@dataclass(frozen=True, kw_only=True)
class FusedAdamFacts:
    """What FusedAdam would meet here."""

    on_gpu: bool
    installed: bool
    """Its op was compiled when DeepSpeed was installed."""
    cannot_build: str | None
    """Why it cannot be compiled here."""


def choose_adam(torch_adam: bool | None, facts: FusedAdamFacts) -> Choice:
    """The policy itself."""
    requested = REQUESTED[torch_adam]
    if torch_adam is True:
        return Choice(requested, TORCH, AS_REQUESTED)
    if facts.installed:
        return Choice(requested, FUSED, "its op is installed")
    if torch_adam is False:
        return Choice(requested, FUSED, "as requested; its op is compiled on first use, which takes a minute")
    if not facts.on_gpu:
        return Choice(requested, TORCH, f"no GPU: {FUSED} would first have to be compiled for the CPU (torch_adam=false does that)")
    if facts.cannot_build:
        return Choice(requested, TORCH, f"{FUSED} cannot be compiled here: {facts.cannot_build}")
    return Choice(requested, FUSED, "its op is compiled on first use")


def read_facts(deepspeed: ModuleType, ranks: Ranks) -> FusedAdamFacts:
    from deepspeed.git_version_info import installed_ops

    on_gpu = ranks.device.type == "cuda"
    return FusedAdamFacts(
        on_gpu=on_gpu,
        installed=bool(installed_ops.get("fused_adam")),
        cannot_build=_why_not_built(deepspeed) if on_gpu else None,
    )


def _why_not_built(deepspeed: ModuleType) -> str | None:
    from torch.utils import cpp_extension

    if not deepspeed.ops.__compatible_ops__.get("fused_adam"):
        return "DeepSpeed finds it not compatible with this machine"
    if cpp_extension.CUDA_HOME is None or not (Path(cpp_extension.CUDA_HOME) / "bin" / "nvcc").exists():
        return "no CUDA compiler (nvcc)"
    if shutil.which("ninja") is None:
        return "no ninja"
    return None


def make_adam(
    deepspeed: ModuleType, parameters: list[nn.Parameter], options: EngineOptions, ranks: Ranks
) -> tuple[torch.optim.Optimizer, Choice]:
    """The optimiser. Where FusedAdam does not build on one rank, all take torch's, unless it was insisted on."""
    choice = choose_adam(options.torch_adam, read_facts(deepspeed, ranks))
    if choice.effective == FUSED:
        fused, failure = _try_fused(parameters, options)
        if not ranks.largest([float(fused is None)])[0] and fused is not None:
            return fused, choice
        if options.torch_adam is False:
            raise RuntimeError(f"torch_adam is false, and {FUSED} could not be made ({failure}): leave torch_adam out, or set it to true")
        choice = Choice(choice.requested, TORCH, f"{FUSED} could not be made: {failure}")
    return make_torch_adam(parameters, options, ranks), choice


def _try_fused(parameters: list[nn.Parameter], options: EngineOptions) -> tuple[torch.optim.Optimizer | None, str]:
    from deepspeed.ops.adam import FusedAdam

    try:
        with plain_architectures(os.environ):
            return FusedAdam(parameters, adam_w_mode=True, **_update(options)), "another rank could not build it"
    # A compiler can fail in every way; subprocess errors, missing headers and mismatched versions among them.
    except Exception as error:
        return None, first_words(error)


@contextlib.contextmanager
def plain_architectures(environment: MutableMapping[str, str]) -> Iterator[None]:
    """GPUs to compile for without the letter behind their number (9.0a), at which DeepSpeed 0.19 stumbles."""
    given = environment.get(ARCHITECTURES)
    if given is not None:
        environment[ARCHITECTURES] = LETTERED.sub(r"\1", given)
    try:
        yield
    finally:
        # The build writes its own list there.
        if given is not None:
            environment[ARCHITECTURES] = given


def make_torch_adam(parameters: list[nn.Parameter], options: EngineOptions, ranks: Ranks) -> torch.optim.Optimizer:
    """torch's own, fused on a GPU."""
    return torch.optim.AdamW(parameters, fused=ranks.device.type == "cuda", **_update(options))


def _update(options: EngineOptions) -> dict[str, object]:
    return {"lr": options.lr, "betas": options.betas, "eps": options.eps, "weight_decay": options.weight_decay}
