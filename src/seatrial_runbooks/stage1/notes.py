"""What is taken and changes nothing, or not what one might think, said once at the start. In: the variables. Out: lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from seatrial_runbooks.stage1.to_plan import log_every, num_steps
from seatrial_runbooks.stage1.trainer_words import eta_min_samples
from seatrial_runbooks.stage1.variables import AB, BOTH, SWEEP, Variables

# One of them given beside the other that stands over it.
OVERRULED = (
    ("SWEEP_NUM_WORKERS", "SWEEP_NUM_WORKERS_LIST"),
    ("SWEEP_PREFETCH_FACTOR", "SWEEP_PREFETCH_LIST"),
    ("MASTER_PORT_BASE", "MASTER_PORT"),
)
# One of them given while the switch that it needs is off.
IDLE = {
    "ENABLE_LENGTH_FIXED_SLICE": ("FIXED_SLICE_SECONDS",),
    "ENABLE_LENGTH_BUCKET": ("LENGTH_BUCKET_BOUNDARIES_SEC",),
    "ENABLE_GPU_TELEMETRY": ("GPU_TELEMETRY_INTERVAL_SEC",),
    "ENABLE_HOST_TELEMETRY": ("HOST_TELEMETRY_INTERVAL_SEC",),
    "ENABLE_ETA_LOGGING": ("ETA_DISTRIBUTED_MODE", "ETA_MIN_SAMPLES"),
    "ENABLE_TORCH_COMPILE": ("TORCH_COMPILE_MODE", "TORCH_COMPILE_DYNAMIC"),
}
RETRIES = ("MANIFEST_WRITE_RETRIES", "MANIFEST_WRITE_RETRY_SLEEP_SEC")


def notes(variables: Variables) -> list[str]:
    """A line for each, as it is printed."""
    return [*_without_effect(variables), *_changed(variables)]


def _without_effect(variables: Variables) -> Iterator[str]:
    given = [name for name in RETRIES if name in variables.given]
    if given:
        yield (
            f"[INFO] no effect here: {', '.join(given)}; a file that the disk does not take is tried again within a second, then kept in a "
            "folder of this host and merged back"
        )
    for name, over in OVERRULED:
        if {name, over} <= variables.given:
            yield f"[WARN] {name} has no effect: {over} stands over it"
    off = [f"{name} ({switch} is false)" for switch, names in IDLE.items() if not variables[switch] for name in names]
    off = [text for text in off if text.partition(" ")[0] in variables.given]
    if off:
        yield f"[INFO] no effect here: {', '.join(off)}"
    other = {AB: "SWEEP_", SWEEP: "AB_"}.get(variables["MODE"])
    idle = sorted(name for name in variables.given if other and name.startswith(other))
    if idle:
        more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
        right = SWEEP if variables["MODE"] == AB else AB
        yield f"[WARN] no effect of {idle[0]}{more}: MODE is {variables['MODE']}; give MODE={right} or MODE={BOTH} if that is meant"


def _changed(variables: Variables) -> Iterator[str]:
    asked, taken = variables["ETA_MIN_SAMPLES"], eta_min_samples(variables)
    if taken != asked:
        yield f"[INFO] ETA_MIN_SAMPLES is {asked}: a time to go is said from {taken} timed steps on"
    modes = (AB, SWEEP) if variables["MODE"] == BOTH else (variables["MODE"],)
    if AB in modes and variables["AB_OLD_LOG_EVERY"] != variables["AB_TUNED_LOG_EVERY"]:
        yield f"[INFO] MODE=ab: timing points of both groups are taken every {log_every(variables, AB)} steps, so that they can be compared"
    rarest, steps = max(log_every(variables, mode) for mode in modes), num_steps(variables)
    if rarest > steps:
        yield f"[WARN] lines every {rarest} steps in a run of {steps}: train.log has few of them; timing points are taken more often"
