"""GPUs: that the driver answers, and that there are as many as the plan asks for. The state of those it will use: gpu_states.

In: a Need. Out: checks. Each is a function of what the driver tells and of the plan's runs, so odd ones can be fed to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.machine.gpu_state import read_states
from seatrial.machine.gpus import (
    DEVICE_FILE,
    HUNG,
    LIMIT,
    Driver,
    Gpu,
    chosen,
    is_certain,
    is_mig_instance,
    read_driver,
    visible_gpus,
    visible_ids,
)
from seatrial.preflight import gpu_states
from seatrial.preflight.need import Need, asks_for_gpus, may_use_gpus
from seatrial.preflight.question import Question
from seatrial.records.check import Check

COUNT = Question(
    name="GPUs",
    looks_at="that the GPUs the plan asks for are on this host",
    prevents="CUDA error: invalid device ordinal",
    fix="take ids that `nvidia-smi -L` lists, or use place: {{kind: local, ranks: N}} for CPU ranks (deepspeed: --num_gpus N)",
    refuses=True,
)
DRIVER = Question(
    name="GPU driver",
    looks_at="that the driver's library answers, where there is one; one that hangs refuses a plan that asks for GPUs",
    prevents="Failed to initialize NVML: Driver/library version mismatch; then: RuntimeError: No CUDA GPUs are available. Or a run that "
    "hangs in its first call to CUDA",
    fix="reboot after a driver update or where it hangs (`dmesg | grep -i xid` may tell why), or start the container with the host's "
    "driver and its tools (docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
    refuses=True,
)
VISIBLE = Question(
    name="GPUs for {workload}",
    looks_at="that a bundled workload told to use CUDA sees a GPU for each rank",
    prevents="RuntimeError: device is cuda, but torch sees no GPU here",
    fix='name the GPUs (place: {{kind: local, include: "localhost:0"}}), mend CUDA_VISIBLE_DEVICES, lower place.ranks, or set device: cpu',
    refuses=True,
)
QUESTIONS = (DRIVER, COUNT, VISIBLE, *gpu_states.STATE_QUESTIONS)


def checks(need: Need) -> Iterator[Check]:
    found = read_driver()
    watched = watched_gpus(need, found.gpus)
    states = read_states(found.gpus) if watched else ()
    if states is None:
        found = HUNG
    certain = is_certain(found, DEVICE_FILE.exists())
    yield driver(found, need, certain=certain)
    if found.hung:
        return
    yield count(need, found.gpus, certain=certain)
    yield from visible(need, found.gpus, certain=certain)
    if watched and states is not None:
        by_index = {state.index: state for state in states}
        yield from gpu_states.judge([by_index[gpu.index] for gpu in watched if gpu.index in by_index], states, need)


def driver(found: Driver, need: Need, *, certain: bool) -> Check:
    """No driver at all is no fault: many hosts have no GPU."""
    problem = "device files are here, but NVML's library is not" if found.no_driver and not certain else found.problem
    hopeless = found.hung and any(asks_for_gpus(spec) for spec in need.runs)
    return DRIVER.answer(certain, problem or f"driver {found.version or 'of unknown version'}", refuses=hopeless)


def count(need: Need, here: Sequence[Gpu], *, certain: bool = True) -> Check:
    """The GPUs asked for against those there are; ids of MIG instances are left to CUDA."""
    asked = sorted({device for spec in need.runs for device in spec.place.devices})
    missing = [device for device in asked if not is_mig_instance(device) and not chosen(here, [device])]
    found = f"{len(here)} here ({', '.join(str(gpu.index) for gpu in here) or 'none'})"
    return COUNT.answer(not missing, found + (f", {', '.join(asked)} asked for" if asked else ""), refuses=certain)


def visible(need: Need, here: Sequence[Gpu], *, certain: bool = True) -> Iterator[Check]:
    """For runs that say `device: cuda` and name no GPUs: one visible GPU for each rank; ids of MIG instances are left to CUDA."""
    wanted = {(spec.workload.name, spec.place.ranks): spec for spec in need.runs if asks_for_gpus(spec) and not spec.place.devices}
    for (workload, ranks), spec in sorted(wanted.items()):
        environment = need.environment(spec)
        seen = len(visible_gpus(here, (), environment)) + sum(map(is_mig_instance, visible_ids(environment) or ()))
        narrowed = f" with {LIMIT}={environment[LIMIT]!r}" if LIMIT in environment else ""
        yield VISIBLE.answer(seen >= ranks, f"{seen} to be seen{narrowed}, {ranks} wanted", refuses=certain, workload=workload)


def watched_gpus(need: Need, here: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Those of `here` whose state matters: those the runs can use, or all visible ones without a plan."""
    if not need.planned:
        return visible_gpus(here, (), need.caller)
    # Most runs of a plan ask for the same ones.
    asked = {(spec.place.devices, need.environment(spec).get(LIMIT)) for spec in need.runs if may_use_gpus(spec)}
    limits = [(devices, {} if limit is None else {LIMIT: limit}) for devices, limit in asked]
    seen = {gpu.index: gpu for devices, environment in limits for gpu in visible_gpus(here, devices, environment)}
    return tuple(seen[index] for index in sorted(seen))
