"""The caller's environment: variables left over from another job that would mislead this one, and those that make its figures another's.

What slows a run is told by the same table as is read afterwards: what compare would refuse to mix is warned of before it is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seatrial.machine.secrets import mask
from seatrial.preflight.need import Need
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.debug_settings import variables_on
from seatrial.records.own_variables import PREFIX, SET_BY_USERS
from seatrial.records.run_spec import RunSpec

RENDEZVOUS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
)  # fmt: skip
# Of these, what deepspeed's launcher does not set anew for its ranks.
LEFT_BY_DEEPSPEED = ("LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
# torchrun takes each of its options from PET_OPTION too.
TORCHRUN_PREFIX = "PET_"

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
    looks_at="NCCL_DEBUG=INFO, TORCH_DISTRIBUTED_DEBUG, CUDA_LAUNCH_BLOCKING and other variables for finding faults or tracing, unless an "
    "axis of the plan sets them",
    prevents="steps slower than they are without, and no error is shown; a run measured with one on is only compared with others that "
    "have it on",
    fix="unset {names} in the shell or the plan's env, unless they are meant",
)
QUESTIONS = (LEFT_OVER, OWN, SLOW)


def checks(need: Need) -> Iterator[Check]:
    yield _answer(LEFT_OVER, misleading(need), need.caller)
    yield _answer(OWN, sorted(name for name in need.caller if name.startswith(PREFIX) and name not in SET_BY_USERS), need.caller)
    slow = slowing(need)
    found = "; ".join(f"{name}={mask(name, value)}: {why}" for name, (value, why) in slow.items())
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


def slowing(need: Need) -> dict[str, tuple[str, str]]:
    """Variables for finding faults as the runs get them, each with its value and what it does; those that an axis sets are meant."""
    unlike = {(tuple(sorted(spec.env.items())), spec.varied): need.environment(spec) for spec in need.runs} or {((), ()): dict(need.caller)}
    found: dict[str, tuple[str, str]] = {}
    for (_, varied), env in unlike.items():
        for name, switch in variables_on(env).items():
            # Seatrial's own are told of above.
            if name not in varied and switch.only_with not in varied and not name.startswith(PREFIX):
                found.setdefault(name, (env[name], switch.why))
    return dict(sorted(found.items()))


def _answer(question: Question, names: list[str], caller: Mapping[str, str]) -> Check:
    found = ", ".join(f"{name}={mask(name, caller[name])}" for name in names)
    return question.answer(not names, found or "none", names=" ".join(names))
