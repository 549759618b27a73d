"""What a driver says before the first run: where it writes, what was asked for, on what machine and code.

In: variables and plans. Out: lines, in the order of the driver of old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seatrial.disk.fallback import fallback_root
from seatrial.machine.git import git_state
from seatrial.machine.gpus import chosen, read_driver
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.run_spec import HOSTFILE, HostSpec
from seatrial.tables import format_cell
from seatrial_runbooks.stage1.place import hosts_asked
from seatrial_runbooks.stage1.variables import Variables

SNAPSHOT, REVISION = "Runtime snapshot", "Code revision"
PRECISION = "Precision/attention (auto: decided by train.py where it runs)"
# Title → word → variable.
SAID = {
    "Dataset": {
        "root": "DATASET_ROOT",
        "manifest": "DATASET_MANIFEST_PATH",
        "use_trim": "DATASET_USE_TRIM",
        "offline_trimmed": "DATASET_OFFLINE_TRIMMED",
    },
    "Timing": {
        "cuda_sync": "ENABLE_CUDA_SYNC_TIMING",
        "rank_scope": "TIMING_RANK_SCOPE",
        "eta": "ENABLE_ETA_LOGGING",
        "eta_mode": "ETA_DISTRIBUTED_MODE",
        "eta_min_samples": "ETA_MIN_SAMPLES",
        "tail_points": "TAIL_TIMING_POINTS",
    },
    PRECISION: {
        "precision": "PRECISION_MODE",
        "model_dtype": "MODEL_LOAD_DTYPE",
        "speech_attn": "SPEECH_ATTN_IMPL",
        "text_attn": "TEXT_ATTN_IMPL",
    },
    "Math backend": {"tf32": "ENABLE_TF32", "matmul_precision": "MATMUL_PRECISION"},
    "Compile": {"enabled": "ENABLE_TORCH_COMPILE", "mode": "TORCH_COMPILE_MODE", "dynamic": "TORCH_COMPILE_DYNAMIC"},
    "Fixed slice": {"enabled": "ENABLE_LENGTH_FIXED_SLICE", "seconds": "FIXED_SLICE_SECONDS"},
    "Length bucketing": {"enabled": "ENABLE_LENGTH_BUCKET", "boundaries_sec": "LENGTH_BUCKET_BOUNDARIES_SEC"},
    "Telemetry": {
        "gpu": "ENABLE_GPU_TELEMETRY",
        "gpu_every_sec": "GPU_TELEMETRY_INTERVAL_SEC",
        "host": "ENABLE_HOST_TELEMETRY",
        "host_every_sec": "HOST_TELEMETRY_INTERVAL_SEC",
        "stall_alert_ratio": "STALL_ALERT_RATIO",
    },
}
IN_ORDER = (
    "Dataset", "Timing", SNAPSHOT, PRECISION, "Math backend", REVISION, "Compile", "Fixed slice", "Length bucketing", "Telemetry",
)  # fmt: skip
# Where the one says nothing the other counts.
INHERITED = {"SPEECH_ATTN_IMPL": "ATTN_IMPL", "TEXT_ATTN_IMPL": "ATTN_IMPL"}


def head_lines(variables: Variables, plans: Sequence[CampaignPlan]) -> list[str]:
    """The lines as they are printed."""
    output = Path(plans[0].output)
    asked = {name: variables[name] for name in ("REPEATS", "MAX_STEPS", "INCLUDE")}
    if variables["HOSTFILE"] is not None:
        asked |= {"INCLUDE": hosts_asked(variables) or "all", "HOSTFILE": variables["HOSTFILE"]}
    told = {title: _told({word: _value(variables, name) for word, name in names.items()}) for title, names in SAID.items()}
    told |= {SNAPSHOT: _machine(plans[0]), REVISION: _code(plans[0], output)}
    lines = [
        f"Output root: {output}",
        _told({"Mode": variables["MODE"], **asked, "WORLD_SIZE": plans[0].runs[0].place.ranks}),
        *(f"{title}: {told[title]}" for title in IN_ORDER),
        f"Manifest durability: what a disk does not take is kept in {fallback_root()} and merged back",
        *([f"Driver log: {variables['DRIVER_LOG_PATH']}"] if variables["DRIVER_LOG_PATH"] else []),
        *(f"Plan {plan.name}: {_told(_size(plan))}" for plan in plans),
    ]
    return [f"[INFO] {line}" for line in lines]


def _value(variables: Variables, name: str) -> object:
    return variables[name] if variables[name] is not None or name not in INHERITED else variables[INHERITED[name]]


def _told(pairs: Mapping[str, object]) -> str:
    return ", ".join(f"{word}={_text(value)}" for word, value in pairs.items())


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else format_cell(value) or "none"


def _size(plan: CampaignPlan) -> dict[str, object]:
    return {"groups": len({run.group for run in plan.runs}), "runs": len(plan.runs), "order": plan.order}


def _machine(plan: CampaignPlan) -> str:
    if plan.runs[0].place.kind == HOSTFILE:
        return f"hosts {', '.join(_host(host) for host in plan.runs[0].place.hosts) or 'not known'}"
    devices = plan.runs[0].place.devices
    if not devices:
        return "ranks on the CPU"
    driver = read_driver()
    gpus = chosen(driver.gpus, devices)
    if not gpus:
        return f"none of the GPUs {','.join(devices)} is seen here ({driver.problem or 'no such GPU'})"
    named = ", ".join(f"{gpu.index} {gpu.name} (cc {gpu.compute_capability}, {format_cell(gpu.power_limit_w)} W)" for gpu in gpus)
    return f"GPUs {named}; driver {driver.version}"


def _host(host: HostSpec) -> str:
    """`node1 (2 ranks, GPUs 0,1)`."""
    gpus = f", GPUs {','.join(host.devices)}" if host.devices else ""
    return f"{host.name} ({host.ranks} {'rank' if host.ranks == 1 else 'ranks'}{gpus})"


def _code(plan: CampaignPlan, output: Path) -> str:
    state = git_state(Path(str(plan.runs[0].workload.script)).parent, output)
    return _told({"commit": state.commit or None, "branch": state.branch or None, "dirty": state.dirty or None})
