"""The driver's variables as plans. In: `Variables`, the folder that was stood in, the time. Out: the mappings that plan files would hold.

One for MODE=ab, one for MODE=sweep, both in that order for MODE=both, into one folder. A plan's name says its matrix: the same matrix
again takes the place of the plan that is in the folder, another one is kept beside it. Finished runs are known by their hash, so that
neither is run twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from seatrial.plan.placeholders import escape
from seatrial.records.original_names import SWEEP_LABELS as LABELS
from seatrial.records.run_spec import Scalar
from seatrial_runbooks.stage1.place import place_of
from seatrial_runbooks.stage1.trainer_words import OF_A_GROUP, OF_AN_AB_GROUP, eta_min_samples, fixed_settings, group_settings, words
from seatrial_runbooks.stage1.variables import AB, BOTH, SWEEP, Variables

TRAINER = Path(__file__).parents[3] / "runbooks" / "stage1" / "train.py"
"""Where a checkout has it."""
DEFAULT_OUTPUT = "outputs/bench_stage1_ab_%Y%m%d_%H%M%S"
AB_GROUPS = {"old_like": "AB_OLD_", "tuned": "AB_TUNED_"}
"""Groups of MODE=ab and how their variables begin."""
LONGEST_NAME = 80


def plan_mappings(variables: Variables, cwd: Path, now: datetime, trainer: Path = TRAINER) -> list[dict[str, Any]]:
    """The plans, in the order in which they are to be run."""
    modes = (AB, SWEEP) if variables["MODE"] == BOTH else (variables["MODE"],)
    output = str(cwd / (variables["OUTPUT_ROOT"] or now.strftime(DEFAULT_OUTPUT)))
    of_mode = {AB: _ab, SWEEP: _sweep}
    return [{**of_mode[mode](variables, trainer), **_of_both(variables), "output": escape(output)} for mode in modes]


def num_steps(variables: Variables) -> int:
    """The driver of old ran steps 0 to MAX_STEPS; N steps are N here."""
    return int(variables["MAX_STEPS"]) + 1


def sweep_values(variables: Variables) -> dict[str, Sequence[int]]:
    """The axes of the matrix; a list stands over the single value."""
    return {
        "zero_stage": variables["SWEEP_ZERO_STAGES"],
        "micro_batch": variables["SWEEP_MICRO_BATCHES"],
        "num_workers": variables["SWEEP_NUM_WORKERS_LIST"] or (variables["SWEEP_NUM_WORKERS"],),
        "prefetch_factor": variables["SWEEP_PREFETCH_LIST"] or (variables["SWEEP_PREFETCH_FACTOR"],),
    }


def sweep_name(values: dict[str, Sequence[int]]) -> str:
    """`stage1-sweep_z0+1_mb128+160_nw6_pf4`, in one order however the values were written; a long one is cut and ends with its hash."""
    parts = [f"{LABELS[axis]}{'+'.join(map(str, sorted(taken)))}" for axis, taken in values.items()]
    name = "_".join(["stage1-sweep", *parts])
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{digest}"


def log_every(variables: Variables, mode: str) -> int:
    """Steps between two timing points; the two groups of MODE=ab have them at the same steps, as far apart as the rarer lines."""
    names = [f"{prefix}LOG_EVERY" for prefix in (AB_GROUPS.values() if mode == AB else ("SWEEP_",))]
    return max(int(variables[name]) for name in names)


def _ab(variables: Variables, trainer: Path) -> dict[str, Any]:
    settings = {**fixed_settings(variables), "micro_batch": variables["AB_MICRO_BATCH"]}
    bundles = {group: group_settings(variables, prefix, OF_AN_AB_GROUP) for group, prefix in AB_GROUPS.items()}
    return {
        "name": "stage1-ab",
        "mode": AB,
        "order": "rounds" if variables["ORDER"] == "nested" else "interleaved",
        **_workload(variables, trainer, settings),
        "axes": {"variant": {"bundles": bundles}},
        "timing": _timing(variables, log_every(variables, AB)),
    }


def _sweep(variables: Variables, trainer: Path) -> dict[str, Any]:
    values = sweep_values(variables)
    return {
        "name": sweep_name(values),
        "mode": SWEEP,
        "prefix": SWEEP,
        "order": variables["ORDER"],
        **_workload(variables, trainer, {**fixed_settings(variables), **group_settings(variables, "SWEEP_", OF_A_GROUP)}),
        "axes": {axis: {"label": LABELS[axis], "values": list(taken)} for axis, taken in values.items()},
        "timing": _timing(variables, log_every(variables, SWEEP)),
    }


def _workload(variables: Variables, trainer: Path, settings: dict[str, Scalar]) -> dict[str, Any]:
    # In full: it is part of what makes a run the same run, wherever the command is typed.
    return {"workload": {"script": escape(str(trainer.absolute())), "args": words(variables, settings)}, "settings": settings}


def _of_both(variables: Variables) -> dict[str, Any]:
    """What the two modes share."""
    return {
        "launcher": "deepspeed",
        "place": place_of(variables),
        "repeats": variables["REPEATS"],
        "steps": num_steps(variables),
        "rank_scope": variables["TIMING_RANK_SCOPE"],
        "limits": {
            "run_s": float(variables["RUN_TIMEOUT_SEC"]) or None,
            "start_s": float(variables["MAX_WAIT_TRAIN_LOG_SEC"]) or None,
            "spike_ratio": variables["STALL_ALERT_RATIO"],
        },
        "telemetry": {key: _interval_s(variables, kind) for key, kind in (("gpu_s", "GPU"), ("host_s", "HOST"))},
        "stop_on_error": variables["STOP_ON_ERROR"],
        "baseline": variables["BASELINE_GROUP"],
    }


def _timing(variables: Variables, points_every: int) -> dict[str, Any]:
    eta_mode = variables["ETA_DISTRIBUTED_MODE"] if variables["ENABLE_ETA_LOGGING"] else "off"
    return {
        # Where lines are farther apart than the run is long, the harness chooses: without a point nothing could be compared.
        **({"log_every": points_every} if points_every <= num_steps(variables) else {}),
        "tail_points": variables["TAIL_TIMING_POINTS"],
        "sync": variables["ENABLE_CUDA_SYNC_TIMING"],
        "eta_mode": eta_mode,
        "eta_min_samples": eta_min_samples(variables),
    }


def _interval_s(variables: Variables, kind: str) -> float | None:
    return float(variables[f"{kind}_TELEMETRY_INTERVAL_SEC"]) if variables[f"ENABLE_{kind}_TELEMETRY"] else None
