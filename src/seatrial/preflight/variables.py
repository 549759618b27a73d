"""The caller's environment: variables left over from another job that would mislead this one, and some that slow every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seatrial.machine.secrets import mask
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec

RENDEZVOUS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
)  # fmt: skip
# Of these, what deepspeed's launcher does not set anew for its ranks.
LEFT_BY_DEEPSPEED = ("LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
# torchrun takes each of its options from PET_OPTION too.
TORCHRUN_PREFIX = "PET_"
OWN_PREFIX = "SEATRIAL_"
SLOWING = {
    "CUDA_LAUNCH_BLOCKING": ("1", "every kernel is waited for"),
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL", "every collective is checked"),
    "NCCL_DEBUG": ("TRACE", "every call is logged"),
    "PYTHONDEVMODE": ("1", "every allocation is checked"),
    "PYTHONMALLOC": ("debug", "every allocation is checked"),
}

LEFT_OVER = Question(
    name="left-over variables",
    looks_at="RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, PET_… and their like in the caller's environment, where a run would take them",
    prevents="EADDRINUSE: address already in use; or ranks that wait for others for ever: Timed out after 601 seconds waiting for clients",
    fix="unset {names}",
)
OWN = Question(
    name="SEATRIAL_ variables",
    looks_at="variables of Seatrial's own in the caller's environment, as within a run of another campaign",
    prevents="events that land in another run's folder",
    fix="unset {names}; do not start a campaign from within a run",
)
SLOW = Question(
    name="slowing variables",
    looks_at="CUDA_LAUNCH_BLOCKING, TORCH_DISTRIBUTED_DEBUG=DETAIL and other settings for finding faults",
    prevents="steps slower than they are without; no error is shown",
    fix="unset {names}, unless they are meant",
)
QUESTIONS = (LEFT_OVER, OWN, SLOW)
# The one variable of ours that users set.
FALLBACK = "SEATRIAL_FALLBACK_DIR"


def checks(need: Need) -> Iterator[Check]:
    yield _answer(LEFT_OVER, misleading(need), need.caller)
    yield _answer(OWN, sorted(name for name in need.caller if name.startswith(OWN_PREFIX) and name != FALLBACK), need.caller)
    slow = slowing(need)
    found = "; ".join(f"{name}={value}: {SLOWING[name][1]}" for name, value in slow.items())
    yield SLOW.answer(not slow, found or "none", names=" ".join(slow))


def misleading(need: Need) -> list[str]:
    """What of the caller's environment at least one run would take for its own."""
    if not need.planned:
        return sorted(name for name in need.caller if name in RENDEZVOUS or name.startswith(TORCHRUN_PREFIX))
    return sorted({name for spec in need.runs for name in need.caller if name not in spec.env and _taken_by(spec, name)})


def _taken_by(spec: RunSpec, name: str) -> bool:
    """Launchers set each rank's variables themselves and so does `python` for several ranks; a single process takes what it finds."""
    if spec.launcher.kind == "torchrun":
        return name.startswith(TORCHRUN_PREFIX)
    if spec.launcher.kind == "deepspeed":
        return name in LEFT_BY_DEEPSPEED
    if spec.launcher.kind == "python" and spec.place.ranks > 1:
        return False
    return name in RENDEZVOUS


def slowing(need: Need) -> dict[str, str]:
    """Variables that slow a run, as the runs get them."""
    environments = [need.environment(spec) for spec in need.runs] or [dict(need.caller)]
    return {
        name: given[name] for given in environments for name, (value, _) in SLOWING.items() if given.get(name, "").upper() == value.upper()
    }


def _answer(question: Question, names: list[str], caller: Mapping[str, str]) -> Check:
    found = ", ".join(f"{name}={mask(name, caller[name])}" for name in names)
    return question.answer(not names, found or "none", names=" ".join(names))
