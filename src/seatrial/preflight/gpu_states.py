"""The GPUs that a plan will use: free of others, and not held back by caps, heat, errors, links or modes.

In: the `GpuState`s of those it uses and of all, and the plan's runs. Out: checks. Pure, so odd states can be fed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from seatrial.machine.gpu_state import GpuState
from seatrial.machine.gpus import is_mig_instance
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec
from seatrial.wording import named

# What a driver and a display may hold of a GPU that nobody uses.
IDLE_MEMORY_MIB = 1024
IDLE_UTIL_PCT = 10
# A cap within a watt or two of the default is rounding.
POWER_SLACK_W = 2.0
# Performance states from here on are rest, when links go down to save power.
RESTING_STATE = 5
MOST_SHOWN = 4
# Reasons that slow a GPU against anybody's wish. A software power cap is normal under load.
SLOWING = {
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "software thermal",
    "hw_thermal_slowdown": "hardware thermal",
    "hw_power_brake_slowdown": "power brake",
}

IDLE = Question(
    name="GPUs idle",
    looks_at="processes, utilisation and memory of others on the GPUs asked for",
    prevents="torch.OutOfMemoryError: CUDA out of memory; or step times that are the neighbour's too",
    fix="end what is on them (`nvidia-smi` lists it), wait for it, or take other GPUs with place.include{free}",
    in_docs={"free": ""},
)
POWER = Question(
    name="GPU power cap",
    looks_at="the power limit in force against the card's default",
    prevents="steps slower than the card can do, and runs that may not be averaged with others; no error is shown",
    fix="sudo nvidia-smi -i {ids} -pl {default_w}, unless the cap is meant",
    in_docs={"ids": "IDS", "default_w": "WATTS"},
)
THROTTLE = Question(
    name="GPU throttling",
    looks_at="whether heat or a power brake slows the clocks right now",
    prevents="step times that drift with temperature; no error is shown",
    fix="check airflow, fans and power cables (`nvidia-smi -q -d PERFORMANCE`), and let the cards cool down first",
)
ECC = Question(
    name="GPU memory errors",
    looks_at="uncorrected ECC errors since the driver was loaded, and repairs of memory that wait or failed",
    prevents="CUDA error: uncorrectable ECC error encountered",
    fix="drain the node and reset the card (sudo nvidia-smi --gpu-reset -i {ids}); have it replaced when the errors come back",
)
LINK = Question(
    name="PCIe link",
    looks_at="width and generation of the link against what card and slot can do, judged only while the card is busy: a link at rest "
    "goes down by design",
    prevents="data_wait and all-reduce slower than on a sound machine; no error is shown",
    fix="reseat the card or its riser; `nvidia-smi -q -d PCIE` shows the link under load",
)
MODE = Question(
    name="GPU compute mode",
    looks_at="exclusive or prohibited compute mode",
    prevents="CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    fix="sudo nvidia-smi -i {ids} -c DEFAULT, one rank for each GPU, or end the process that holds it",
    refuses=True,
)
MIG = Question(
    name="MIG",
    looks_at="whether a GPU asked for by its number is cut into MIG instances, of which a process sees one",
    prevents="torch.OutOfMemoryError: CUDA out of memory, on a card with plenty; or ranks that find no second device",
    fix="ask for instances by their ids (`nvidia-smi -L` lists MIG-…), or turn MIG off: sudo nvidia-smi -i {ids} -mig 0",
)
ORDER = Question(
    name="order of GPUs",
    looks_at="hosts with unlike GPUs, where CUDA counts the fastest first and the driver by slot",
    prevents="telemetry and settings of another card than the one that ran; no error is shown",
    fix="set CUDA_DEVICE_ORDER=PCI_BUS_ID in the plan's env",
)
PERSISTENCE = Question(
    name="persistence mode",
    looks_at="whether the driver stays loaded while nobody uses the GPU",
    prevents="seconds more at the start of every run, and counters that begin anew",
    fix="sudo nvidia-smi -pm 1",
    only_tells=True,
)
STATE_QUESTIONS = (IDLE, POWER, THROTTLE, ECC, LINK, MODE, MIG, ORDER, PERSISTENCE)


def judge(states: Sequence[GpuState], all_states: Sequence[GpuState], need: Need) -> Iterator[Check]:
    """Every check of the GPUs in `states`."""
    yield _idle(states, all_states)
    capped = _sound(states, "power_default_w", "none below the default")
    yield _amiss(POWER, states, _capped, sound=capped, default_w=_default_w(states))
    yield _amiss(THROTTLE, states, _slowed, sound=_sound(states, "throttle_reasons", "none"))
    yield _amiss(ECC, states, _memory_errors, sound=_sound(states, "ecc_uncorrected", "none"))
    yield _amiss(LINK, states, _slow_link, sound=_sound(states, "pcie_link_width", "as it should be, or at rest"))
    usable = _sound(states, "compute_mode", "usable")
    yield _amiss(MODE, states, lambda state: _unusable(state, crowded=_crowded(need)), sound=usable)
    cut_up = _sound(states, "mig", "off")
    yield _amiss(MIG, states, lambda state: "MIG is on" if state.mig and not _names_instances(need.runs) else "", sound=cut_up)
    if len({state.name for state in all_states}) > 1:
        yield _order(need, states)
    off = [str(state.index) for state in states if state.persistence is False]
    yield PERSISTENCE.answer(True, f"off on {', '.join(off)}" if off else _sound(states, "persistence", "on"))


def _sound(states: Sequence[GpuState], fact: str, word: str) -> str:
    """`word` where the driver told the fact of every GPU: what it does not tell is neither good nor bad."""
    return word if all(getattr(state, fact) is not None for state in states) else "not told by the driver"


def _amiss(
    question: Question, states: Sequence[GpuState], trouble: Callable[[GpuState], str], *, sound: str, free: str = "", default_w: str = ""
) -> Check:
    """One check over all GPUs: each with its trouble, or `sound`."""
    bad = {state.index: text for state in states if (text := trouble(state))}
    ids = ",".join(str(index) for index in bad) or "ID"
    return question.answer(not bad, _listed(bad) or sound, ids=ids, free=free, default_w=default_w)


def _listed(bad: Mapping[int, str]) -> str:
    return named([f"GPU {index}: {text}" for index, text in bad.items()], MOST_SHOWN, "; ")


def _idle(states: Sequence[GpuState], all_states: Sequence[GpuState]) -> Check:
    free = [str(state.index) for state in all_states if not busy_with(state)]
    return _amiss(IDLE, states, busy_with, sound="nobody is on them", free=f"; free now: {', '.join(free)}" if free else "")


def busy_with(state: GpuState) -> str:
    """Who or what is on a GPU; empty for an idle one."""
    others = [process for process in state.processes if not process.name.startswith("nvidia-cuda-mps")]
    if others:
        return named([str(process) for process in others], MOST_SHOWN)
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
    troubles = [f"{state.ecc_uncorrected} uncorrected ECC errors"] if state.ecc_uncorrected else []
    troubles += ["a repair of memory waits for a reset"] if state.rows_pending else []
    troubles += ["a repair of memory failed"] if state.rows_failed else []
    return ", ".join(troubles)


def _slow_link(state: GpuState) -> str:
    """Only of a card at work: one at rest lets its link go down."""
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
    if state.processes and (who := busy_with(state)):
        return f"{state.compute_mode}, and held by {who}"
    return f"{state.compute_mode}, and more ranks than GPUs are asked for" if crowded else ""


def _crowded(need: Need) -> bool:
    return any(0 < len(spec.place.devices) < spec.place.ranks for spec in need.runs)


def _names_instances(runs: Sequence[RunSpec]) -> bool:
    return any(is_mig_instance(device) for spec in runs for device in spec.place.devices)


def _order(need: Need, states: Sequence[GpuState]) -> Check:
    set_everywhere = all(need.environment(spec).get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" for spec in need.runs)
    by_slot = set_everywhere and (need.planned or need.caller.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID")
    names = ", ".join(f"{state.index}: {state.name}" for state in states)
    return ORDER.answer(
        by_slot, f"unlike GPUs on this host ({names}), CUDA_DEVICE_ORDER is {'PCI_BUS_ID' if by_slot else 'not PCI_BUS_ID'}"
    )
