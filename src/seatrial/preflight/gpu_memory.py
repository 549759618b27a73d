"""Whether the plan's runs will fit into the memory of this host's GPUs, by the forecast of their workload.

In: a `Need`. Out: one check for all that fit, and one for each group that does not. A campaign is refused only for what is counted:
weights, gradients, optimiser states, activations, at their least. Where only their most or the allowances exceed it, that is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from seatrial.core.text import MIB
from seatrial.machine.gpu_memory import FITS, WILL_NOT, GpuMemory, gib, judge_fit, named_gpu
from seatrial.machine.gpus import Gpu, GpuState, read_driver, read_gpu_states, visible_gpus
from seatrial.preflight.check_definition import Need, may_use_gpus, refusal
from seatrial.records.caution import Check
from seatrial.records.plan import PlaceSpec, RunSpec

OVERRIDE = "--ignore-fit"
MEMORY = refusal(
    name="GPU memory{group}",
    what="the memory that a bundled workload forecasts from its settings (`seatrial plan fit PLAN`) against that of the GPUs here",
    prevents="torch.OutOfMemoryError: CUDA out of memory, after the model is loaded",
    fix="{advice}, or start anyway with " + OVERRIDE,
    in_docs={"group": " of GROUP", "advice": "change the settings that the check names with their figures"},
)
GPU_MEMORY_CHECKS = (MEMORY,)


def check_gpu_memory(need: Need) -> Iterator[Check]:
    """No checks where the memory of a run's GPUs is unknown: they are on other hosts, and the plan does not name them (`place.gpu`)."""
    runs = [spec for spec in one_of_each_group(need.whole_runs or need.runs) if spec.workload.module and may_use_gpus(spec)]
    gpus = read_driver().gpus if runs else ()
    yield from judge_runs(need, runs, gpus, (read_gpu_states(gpus) or ()) if gpus else ())


def judge_runs(need: Need, runs: Sequence[RunSpec], gpus: Sequence[Gpu], states: Sequence[GpuState]) -> Iterator[Check]:
    here, fits = {spec.run: spec for spec in need.runs}, []
    for spec in runs:
        share = here.get(spec.run)
        memory = declared_memory(spec.place) or (memory_of(share, need.environment(spec), gpus, states) if share else None)
        fit = judge_fit(spec, memory) if memory else None
        if fit is None or fit.forecast is None or not fit.forecast.parts:
            continue
        if fit.verdict == FITS:
            fits.append((fit.forecast.total_bytes, f"of {gib(fit.memory_bytes)} GiB, group {spec.group}"))
            continue
        certain = fit.verdict == WILL_NOT and need.fit_enforced
        yield MEMORY.result(False, fit.text, refuses=certain, group=f" of {spec.group}", advice=fit.advice)
    if fits:
        total, of = max(fits)
        yield MEMORY.result(True, f"at most {gib(total)} {of}", group="", advice="")


def declared_memory(place: PlaceSpec) -> GpuMemory | None:
    """Memory of the GPUs that the plan names."""
    return named_gpu(place.gpu) if place.gpu else None


def one_of_each_group(runs: Sequence[RunSpec]) -> list[RunSpec]:
    return list({spec.group: spec for spec in reversed(runs)}.values())[::-1]


def memory_of(spec: RunSpec, variables: Mapping[str, str], gpus: Sequence[Gpu], states: Sequence[GpuState]) -> GpuMemory | None:
    """The least that a GPU of the run has; None where they are on other hosts or the driver does not report it."""
    if not spec.place.traits.is_this_machine:
        return None
    visible = {gpu.index for gpu in visible_gpus(gpus, spec.place.devices, variables)}
    sizes = [(state.mem_total_mib, state.name) for state in states if state.index in visible and state.mem_total_mib]
    if not sizes:
        return None
    size_mib, name = min(sizes)
    return GpuMemory(size_bytes=size_mib * MIB, source=name or "this host's GPU")
