"""GPUs: the driver answers, there are as many as the plan requests, and those it uses are idle and not throttled.

In: a `Need`. Out: checks. Each is a function of what the driver reports and of the plan's runs, so tests can feed it odd states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from seatrial.core.text import join_names
from seatrial.machine.gpus import (
    CUDA_VISIBLE_DEVICES,
    DEVICE_FILE,
    HUNG_DRIVER,
    Driver,
    Gpu,
    GpuState,
    is_mig_instance,
    knows_all_gpus,
    read_driver,
    read_gpu_states,
    select_gpus,
    visible_gpus,
    visible_ids,
)
from seatrial.preflight.check_definition import CheckDefinition, Need, asks_for_gpus, information, may_use_gpus, refusal, warning
from seatrial.records.caution import Check

COUNT = refusal(
    name="GPUs",
    what="that the GPUs the plan requests are on this host",
    prevents="CUDA error: invalid device ordinal",
    fix="take ids that `nvidia-smi -L` lists, or use place: {{kind: local, ranks: N}} for CPU ranks (deepspeed: --num_gpus N)",
)
DRIVER = refusal(
    name="GPU driver",
    what="that the driver's library answers, where there is one; one that hangs refuses a plan that requests GPUs",
    prevents="Failed to initialize NVML: Driver/library version mismatch; then: RuntimeError: No CUDA GPUs are available. Or a run that "
    "hangs in its first call to CUDA",
    fix="reboot after a driver update or where it hangs (`dmesg | grep -i xid` may show why), or start the container with the host's "
    "driver and its tools (docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
)
VISIBLE = refusal(
    name="GPUs for {workload}",
    what="that a bundled workload told to use CUDA sees a GPU for each rank",
    prevents="RuntimeError: device is cuda, but torch sees no GPU here",
    fix='name the GPUs (place: {{kind: local, include: "localhost:0"}}), correct CUDA_VISIBLE_DEVICES, lower place.ranks, or set device: '
    "cpu",
)


def check_gpus(need: Need) -> Iterator[Check]:
    found = read_driver()
    watched = watched_gpus(need, found.gpus)
    states = read_gpu_states(found.gpus) if watched else ()
    if states is None:
        found = HUNG_DRIVER
    certain = knows_all_gpus(found, DEVICE_FILE.exists())
    yield check_driver(found, need, certain=certain)
    if found.hung:
        return
    yield check_count(need, found.gpus, certain=certain)
    yield from check_visible(need, found.gpus, certain=certain)
    if watched and states is not None:
        by_index = {state.index: state for state in states}
        yield from judge_states([by_index[gpu.index] for gpu in watched if gpu.index in by_index], states, need)


def check_driver(found: Driver, need: Need, *, certain: bool) -> Check:
    """No driver at all is not a problem: many hosts have no GPU."""
    problem = "device files are here, but NVML's library is not" if found.no_driver and not certain else found.problem
    refuses = found.hung and any(asks_for_gpus(spec) for spec in need.runs)
    return DRIVER.result(certain, problem or f"driver {found.version or 'of unknown version'}", refuses=refuses)


def check_count(need: Need, present: Sequence[Gpu], *, certain: bool = True) -> Check:
    """Requested against present GPUs; MIG instances are left to CUDA."""
    requested = sorted({device for spec in need.runs for device in spec.place.devices})
    missing = [device for device in requested if not is_mig_instance(device) and not select_gpus(present, [device])]
    found = f"{len(present)} found ({', '.join(str(gpu.index) for gpu in present)})" if present else "this machine has none"
    return COUNT.result(not missing, found + (f"; requested: {', '.join(requested)}" if requested else ""), refuses=certain)


def check_visible(need: Need, present: Sequence[Gpu], *, certain: bool = True) -> Iterator[Check]:
    """Checks that runs with `device: cuda` without named GPUs have one visible GPU per rank; MIG instances are left to CUDA."""
    wanted = {(spec.workload.name, spec.place.ranks): spec for spec in need.runs if asks_for_gpus(spec) and not spec.place.devices}
    for (workload, ranks), spec in sorted(wanted.items()):
        environment = need.environment(spec)
        seen = len(visible_gpus(present, (), environment)) + sum(map(is_mig_instance, visible_ids(environment) or ()))
        narrowed = f" with {CUDA_VISIBLE_DEVICES}={environment[CUDA_VISIBLE_DEVICES]!r}" if CUDA_VISIBLE_DEVICES in environment else ""
        yield VISIBLE.result(seen >= ranks, f"{seen} visible{narrowed}, {ranks} needed", refuses=certain, workload=workload)


def watched_gpus(need: Need, present: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """GPUs whose state matters: those the runs may use, or all visible ones without a plan."""
    if not need.planned:
        return visible_gpus(present, (), need.base_env)
    # Most runs of a plan use the same GPUs.
    selections = {(spec.place.devices, need.environment(spec).get(CUDA_VISIBLE_DEVICES)) for spec in need.runs if may_use_gpus(spec)}
    limits = [(devices, {} if limit is None else {CUDA_VISIBLE_DEVICES: limit}) for devices, limit in selections]
    seen = {gpu.index: gpu for devices, environment in limits for gpu in visible_gpus(present, devices, environment)}
    return tuple(seen[index] for index in sorted(seen))


# A driver and a display may hold this much of an idle GPU.
IDLE_MEMORY_MIB = 1024
IDLE_UTIL_PCT = 10
# A cap within a watt or two of the default is rounding.
POWER_SLACK_W = 2.0
# Performance states from here on are idle: links are slowed to save power.
RESTING_STATE = 5
MAX_SHOWN = 4
# Throttle reasons that are a problem. A software power cap is normal under load.
SLOWING = {
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "software thermal",
    "hw_thermal_slowdown": "hardware thermal",
    "hw_power_brake_slowdown": "power brake",
}

IDLE = warning(
    name="GPUs idle",
    what="processes, utilisation and memory of others on the requested GPUs",
    prevents="torch.OutOfMemoryError: CUDA out of memory; or step times slowed by other processes",
    fix="stop what runs on them (`nvidia-smi` lists it), wait, or use other GPUs with place.include{free}",
    in_docs={"free": ""},
    noise=True,
)
POWER = warning(
    name="GPU power cap",
    what="the power limit in force against the card's default",
    prevents="steps slower than the card can do, and runs that may not be averaged with others; no error is shown",
    fix="sudo nvidia-smi -i {ids} -pl {default_w}, unless the cap is meant",
    in_docs={"ids": "IDS", "default_w": "WATTS"},
)
THROTTLE = warning(
    name="GPU throttling",
    what="whether heat or a power brake slows the clocks right now",
    prevents="step times that drift with temperature; no error is shown",
    fix="check airflow, fans and power cables (`nvidia-smi -q -d PERFORMANCE`), and let the cards cool down first",
    noise=True,
)
ECC = warning(
    name="GPU memory errors",
    what="uncorrected ECC errors since the driver was loaded, and pending or failed row remappings",
    prevents="CUDA error: uncorrectable ECC error encountered",
    fix="drain the node and reset the card (sudo nvidia-smi --gpu-reset -i {ids}); have it replaced when the errors come back",
)
LINK = warning(
    name="PCIe link",
    what="width and generation of the link against what card and slot can do, judged only while the card is busy: an idle link "
    "drops to a lower speed by design",
    prevents="data_wait and all-reduce slower than on a sound machine; no error is shown",
    fix="reseat the card or its riser; `nvidia-smi -q -d PCIE` shows the link under load",
)
MODE = refusal(
    name="GPU compute mode",
    what="exclusive or prohibited compute mode",
    prevents="CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    fix="sudo nvidia-smi -i {ids} -c DEFAULT, one rank for each GPU, or end the process that holds it",
)
MIG = warning(
    name="MIG",
    what="whether a GPU requested by its number is cut into MIG instances, of which a process sees one",
    prevents="torch.OutOfMemoryError: CUDA out of memory, on a card with plenty; or ranks that find no second device",
    fix="ask for instances by their ids (`nvidia-smi -L` lists MIG-…), or turn MIG off: sudo nvidia-smi -i {ids} -mig 0",
)
ORDER = warning(
    name="GPU order",
    what="hosts with different GPUs, where CUDA counts the fastest first and the driver by slot",
    prevents="telemetry and settings of another card than the one that ran; no error is shown",
    fix="set CUDA_DEVICE_ORDER=PCI_BUS_ID in the plan's env",
)
PERSISTENCE = information(
    name="persistence mode",
    what="whether the driver stays loaded while the GPU is unused",
    prevents="seconds more at the start of every run, and counters that start over",
    fix="sudo nvidia-smi -pm 1",
)
GPU_CHECKS = (DRIVER, COUNT, VISIBLE, IDLE, POWER, THROTTLE, ECC, LINK, MODE, MIG, ORDER, PERSISTENCE)


def judge_states(states: Sequence[GpuState], all_states: Sequence[GpuState], need: Need) -> Iterator[Check]:
    free = [str(state.index) for state in all_states if not gpu_users(state)]
    yield _check_each(IDLE, states, gpu_users, ok_text="idle", free=f"; free now: {', '.join(free)}" if free else "")
    capped = _if_reported(states, "power_default_w", "none below the default")
    yield _check_each(POWER, states, _capped, ok_text=capped, default_w=_default_w(states))
    yield _check_each(THROTTLE, states, _slowed, ok_text=_if_reported(states, "throttle_reasons", "none"))
    yield _check_each(ECC, states, _memory_errors, ok_text=_if_reported(states, "ecc_uncorrected", "none"))
    yield _check_each(LINK, states, _slow_link, ok_text=_if_reported(states, "pcie_link_width", "full speed, or idle"))
    crowded = any(0 < len(spec.place.devices) < spec.place.ranks for spec in need.runs)
    usable = _if_reported(states, "compute_mode", "usable")
    yield _check_each(MODE, states, lambda state: _unusable(state, crowded=crowded), ok_text=usable)
    by_instance = any(is_mig_instance(device) for spec in need.runs for device in spec.place.devices)
    whole = _if_reported(states, "mig", "off")
    yield _check_each(MIG, states, lambda state: "MIG is on" if state.mig and not by_instance else "", ok_text=whole)
    if len({state.name for state in all_states}) > 1:
        yield _order(need, states)
    off = [str(state.index) for state in states if state.persistence is False]
    yield PERSISTENCE.result(True, f"off on {', '.join(off)}" if off else _if_reported(states, "persistence", "on"))


def _if_reported(states: Sequence[GpuState], fact: str, ok_text: str) -> str:
    """`ok_text` where the driver reports the fact for every GPU: what it does not report is neither good nor bad."""
    return ok_text if all(getattr(state, fact) is not None for state in states) else "not reported by the driver"


def _check_each(
    definition: CheckDefinition,
    states: Sequence[GpuState],
    problem: Callable[[GpuState], str],
    *,
    ok_text: str,
    free: str = "",
    default_w: str = "",
) -> Check:
    """One check over all GPUs: each with its problem, or `ok_text`."""
    bad = {state.index: text for state in states if (text := problem(state))}
    ids = ",".join(str(index) for index in bad) or "ID"
    found = join_names([f"GPU {index}: {text}" for index, text in bad.items()], MAX_SHOWN, "; ")
    return definition.result(not bad, found or ok_text, ids=ids, free=free, default_w=default_w)


def gpu_users(state: GpuState) -> str:
    """Users of a GPU; empty if idle."""
    others = [process for process in state.processes if not process.name.startswith("nvidia-cuda-mps")]
    if others:
        return join_names([str(process) for process in others], MAX_SHOWN)
    if (state.mem_used_mib or 0) >= IDLE_MEMORY_MIB:
        return f"{state.mem_used_mib} MiB in use by processes this container does not show"
    return f"{state.util_gpu_pct} % busy" if (state.util_gpu_pct or 0) >= IDLE_UTIL_PCT else ""


def _slowed(state: GpuState) -> str:
    reasons = (state.throttle_reasons or "").split("+")
    return ", ".join(words for name, words in SLOWING.items() if name in reasons)


def _capped(state: GpuState) -> str:
    limit, default = state.power_limit_w, state.power_default_w
    if limit is None or default is None or limit >= default - POWER_SLACK_W:
        return ""
    return f"{limit:.0f} W of {default:.0f} W"


def _default_w(states: Sequence[GpuState]) -> str:
    watts = {f"{state.power_default_w:.0f}" for state in states if state.power_default_w and _capped(state)}
    return watts.pop() if len(watts) == 1 else "WATTS"


def _memory_errors(state: GpuState) -> str:
    problems = [f"{state.ecc_uncorrected} uncorrected ECC errors"] if state.ecc_uncorrected else []
    problems += ["a repair of memory waits for a reset"] if state.rows_pending else []
    problems += ["a repair of memory failed"] if state.rows_failed else []
    return ", ".join(problems)


def _slow_link(state: GpuState) -> str:
    """The slow link of a busy GPU; an idle one slows its link."""
    at_work = (state.util_gpu_pct or 0) >= IDLE_UTIL_PCT and (state.performance_state is None or state.performance_state < RESTING_STATE)
    pairs = (
        ("generation {} of {}", state.pcie_link_gen, state.pcie_gen_max),
        ("{} lanes of {}", state.pcie_link_width, state.pcie_width_max),
    )
    low = [text.format(now, most) for text, now, most in pairs if now and most and now < most]
    return ", ".join(low) if at_work else ""


def _unusable(state: GpuState, *, crowded: bool) -> str:
    if state.compute_mode == "prohibited":
        return "compute is prohibited"
    if not (state.compute_mode or "").startswith("exclusive"):
        return ""
    if state.processes and (who := gpu_users(state)):
        return f"{state.compute_mode}, and held by {who}"
    return f"{state.compute_mode}, and there are more ranks than requested GPUs" if crowded else ""


def _order(need: Need, states: Sequence[GpuState]) -> Check:
    set_everywhere = all(need.environment(spec).get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" for spec in need.runs)
    by_slot = set_everywhere and (need.planned or need.base_env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID")
    names = ", ".join(f"{state.index}: {state.name}" for state in states)
    return ORDER.result(
        by_slot, f"different GPUs on this host ({names}), CUDA_DEVICE_ORDER is {'PCI_BUS_ID' if by_slot else 'not PCI_BUS_ID'}"
    )
