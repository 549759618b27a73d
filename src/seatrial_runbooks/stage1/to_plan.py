"""The driver's variables as plans: place, trainer arguments (Hydra overrides), axes, timing, limits.

One plan for MODE=ab, one for MODE=sweep, both in that order for MODE=both, in one folder. A plan is named after its matrix: the same matrix
replaces the plan in the folder, another one is added. Finished runs are identified by their hash, so none is run twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from seatrial.core.errors import HostfileError, UsageError
from seatrial.core.hostfile import count_selected_slots, parse_selection
from seatrial.machine.network import LOCAL_NAMES
from seatrial.plan.placeholders import escape, value_text
from seatrial.records.caution import Scalar
from seatrial.records.columns import SWEEP_LABELS as LABELS
from seatrial.records.columns import TRAINER_KEYS
from seatrial_runbooks.stage1.variables import AB, BOTH, NO_CHECKPOINT, PATH, SWEEP, TRAINER_VARIABLES, VARIABLES, Variables
from seatrial_workloads.contrastive.settings import equal_settings


def place_of(variables: Variables) -> dict[str, Any]:
    """The plan's `place`: kind, GPUs, hosts or a number of ranks, and the port."""
    if variables["HOSTFILE"] is not None:
        return {"kind": "hostfile", "hostfile": variables["HOSTFILE"], **_on_hosts(variables), **_port(variables)}
    return {"kind": "local", **_ranks(variables["INCLUDE"], variables["WORLD_SIZE"]), **_port(variables)}


def is_on_cpu(variables: Variables) -> bool:
    """Whether INCLUDE names this machine, or hosts of HOSTFILE, without GPUs."""
    if variables["HOSTFILE"] is None:
        return variables["INCLUDE"] in LOCAL_NAMES
    include = included_hosts(variables)
    return include is not None and ":" not in include and bool(variables["WORLD_SIZE"])


def included_hosts(variables: Variables) -> str | None:
    """INCLUDE with a HOSTFILE; its default, GPUs of this machine, does not apply there."""
    return str(variables["INCLUDE"]) if "INCLUDE" in variables.given else None


def _on_hosts(variables: Variables) -> dict[str, Any]:
    include, world_size = included_hosts(variables), variables["WORLD_SIZE"]
    ranks = {"ranks": world_size} if world_size else {}
    if include is None:
        return ranks
    try:
        parse_selection(include)
        named = count_selected_slots(include)
    except HostfileError as error:
        raise UsageError(f"INCLUDE: {error}") from error
    if named is not None and world_size not in (0, named):
        raise UsageError(
            f"WORLD_SIZE is {world_size}, and INCLUDE={include} has {named} GPUs, one rank each: omit WORLD_SIZE, or make the two match"
        )
    return {"include": include, **ranks}


def _ranks(include: str, world_size: int) -> dict[str, Any]:
    if include in LOCAL_NAMES:
        if not world_size:
            raise UsageError(
                f"INCLUDE is '{include}', which names no GPUs: use localhost:0,1, or add WORLD_SIZE=2 for two ranks on the CPU"
            )
        return {"ranks": world_size}
    devices = _devices(include)
    if world_size not in (0, len(devices)):
        raise UsageError(
            f"WORLD_SIZE is {world_size}, and INCLUDE={include} has {len(devices)} GPUs, one rank each: omit WORLD_SIZE, "
            "or make the two match"
        )
    return {"include": include}


def _devices(include: str) -> tuple[str, ...]:
    # Imports pydantic, which only a command that runs something should load.
    from seatrial.plan.place import devices_in

    hosts = [part.partition(":")[0] for part in include.split("@")]
    other = next((host for host in hosts if host and host not in LOCAL_NAMES), None)
    if other or len(hosts) > 1:
        named = f"the host {other}" if other else "several hosts"
        raise UsageError(
            f"INCLUDE is '{include}', which names {named}: add HOSTFILE=/etc/deepspeed/hostfile to run on hosts, or use localhost:0,1 "
            "for GPUs of this machine"
        )
    try:
        return devices_in(include)
    except ValueError as error:
        raise UsageError(f"INCLUDE: {error}") from error


def _port(variables: Variables) -> dict[str, int]:
    """MASTER_PORT, else the first port to try."""
    if variables["MASTER_PORT"] is not None:
        return {"port": variables["MASTER_PORT"]}
    return {"port_base": variables["MASTER_PORT_BASE"]}


# For a group of MODE=ab and for the sweep: suffix of the variable → setting.
GROUP_SETTINGS = {
    "LOG_EVERY": "log_every",
    "VALIDATION_EVERY": "validation_every_steps",
    "CHECKPOINT_EVERY": "checkpoint_every_steps",
    "DETERMINISTIC": "deterministic",
    "CUDNN_BENCHMARK": "cudnn_benchmark",
    "WALL_CLOCK_BREAKDOWN": "wall_clock_breakdown",
}
AB_GROUP_SETTINGS = {**GROUP_SETTINGS, "ZERO_STAGE": "zero_stage", "NUM_WORKERS": "num_workers", "PREFETCH_FACTOR": "prefetch_factor"}
# Setting → variable, for values that all runs share.
FROM_VARIABLE = {
    "length_buckets": "ENABLE_LENGTH_BUCKET",
    "torch_compile": "ENABLE_TORCH_COMPILE",
    "torch_compile_mode": "TORCH_COMPILE_MODE",
    "torch_compile_dynamic": "TORCH_COMPILE_DYNAMIC",
    "tf32": "ENABLE_TF32",
    "matmul_precision": "MATMUL_PRECISION",
    "dataset_root": "DATASET_ROOT",
    "dataset_manifest_path": "DATASET_MANIFEST_PATH",
    "dataset_use_trim": "DATASET_USE_TRIM",
    "dataset_offline_trimmed": "DATASET_OFFLINE_TRIMMED",
    "speech_model": "SPEECH_MODEL_PATH",
    "text_model": "TEXT_MODEL_PATH",
    "model_load_dtype": "MODEL_LOAD_DTYPE",
    "precision": "PRECISION_MODE",
}
BOUNDARIES = "bucket_boundaries_s"
ALIKE_VARIABLES = {"fast_paths": "FAST_PATHS", "mixed_precision": "MIXED_PRECISION"}
_UNQUOTED = re.compile(r"[A-Za-z0-9_./-]+")
_YAML_KEYWORDS = ("null", "none", "true", "false", "yes", "no", "on", "off")


def fixed_settings(variables: Variables) -> dict[str, Scalar]:
    """Settings that all runs of a plan share, in any mode."""
    settings = {setting: variables[name] for setting, name in FROM_VARIABLE.items()}
    checkpoint = variables["PRETRAINED_CKPT"]
    settings["pretrained_checkpoint"] = None if checkpoint == NO_CHECKPOINT else checkpoint
    settings["fixed_slice_s"] = variables["FIXED_SLICE_SECONDS"] if variables["ENABLE_LENGTH_FIXED_SLICE"] else None
    settings[BOUNDARIES] = ",".join(map(str, variables["LENGTH_BUCKET_BOUNDARIES_SEC"]))
    for encoder in ("speech", "text"):
        settings[f"{encoder}_attn_impl"] = variables[f"{encoder.upper()}_ATTN_IMPL"] or variables["ATTN_IMPL"]
    if is_on_cpu(variables):
        settings["device"] = "cpu"
    return settings


# The mainline of the procedure, as settings of the plan; the mode adds ZeRO stages.
MAINLINE: dict[str, Any] = {
    "precision": "auto",
    "model_load_dtype": "auto",
    "speech_attn_impl": ["auto", "sdpa"],
    "text_attn_impl": ["auto", "sdpa"],
    "tf32": True,
    "matmul_precision": "high",
    "torch_compile": False,
    "fixed_slice_s": None,
    "length_buckets": False,
}
MAINLINE_ZERO_STAGE = 0


def lane_of(zero_stages: Sequence[int]) -> dict[str, Any]:
    """`lane`: runs with other values are marked and ranked apart. Several ZeRO stages are the axis compared."""
    several = len(set(zero_stages)) > 1
    return {"zero_stage": sorted(set(zero_stages)) if several else MAINLINE_ZERO_STAGE, **MAINLINE}


# Stages that the procedure compares across commands: phase B has one command for each. The settings are equalized over all of them, so
# that runs that exist stay valid when a command names more stages.
PROCEDURE_ZERO_STAGES = (0, 1)
# What decides which fast paths and which mixed precision a run can have, beside its ZeRO stage.
DECIDING = ("precision", "device", "length_buckets", "torch_compile", "torch_compile_mode", "speech_attn_impl", "text_attn_impl")


def equalized_settings(variables: Variables, zero_stages: Sequence[int]) -> tuple[dict[str, str], tuple[str, ...]]:
    """`fast_paths` and `mixed_precision` that all groups have, where FAST_PATHS and MIXED_PRECISION leave them open, and one line on each.
    To the plan train.py is a script, whose groups it does not equalize itself."""
    given = {setting: variables[name] for setting, name in ALIKE_VARIABLES.items() if variables[name] is not None}
    engine = variables["TRAIN_ENGINE"] or "deepspeed"
    is_open = engine == "deepspeed" and given.get("mixed_precision", "auto") == "auto"
    stages = {*zero_stages, *(PROCEDURE_ZERO_STAGES if is_open else ())}
    fixed = fixed_settings(variables)
    shared = {"engine": engine, **{name: fixed[name] for name in DECIDING if name in fixed}, **given}
    try:
        values, notes = equal_settings({f"ZeRO {stage}": {**shared, "zero_stage": stage} for stage in sorted(stages)}, given)
    except ValueError:
        # An invalid value: it is reported with its variable when the groups are checked.
        return {}, ()
    return values, notes


def equalized_notes(variables: Variables) -> list[str]:
    """Which settings were equalized in all groups and why, named by the driver's variables; one line each."""
    found = dict.fromkeys(note for mode in modes_of(variables) for note in equalized_settings(variables, zero_stages(variables, mode))[1])
    return [_in_variables(note) for note in found]


def alike_by(declared: Mapping[str, str]) -> dict[str, str]:
    """Effective setting → the driver's variable and value that equalize it in two groups."""
    found = {}
    for setting, remedy in declared.items():
        name, _, values = remedy.partition("=")
        found[setting] = f"{variable_names('SWEEP_')[name]}={values}"
    return found


def _in_variables(text: str) -> str:
    for setting, name in ALIKE_VARIABLES.items():
        text = text.replace(setting, name)
    return text


def group_settings(variables: Variables, prefix: str, names: dict[str, str]) -> dict[str, Scalar]:
    """Settings of one group of MODE=ab, or of every group of the sweep."""
    return {setting: variables[f"{prefix}{ending}"] for ending, setting in names.items()}


def trainer_args(variables: Variables, settings: dict[str, Scalar]) -> list[str]:
    """The trainer's Hydra overrides; `settings` are known values, which decide about quotes."""
    keys = {**TRAINER_KEYS, **({"++train.device": "device"} if "device" in settings else {})}
    return [
        f"+experiment={escape(variables['EXPERIMENT'])}",
        "++train.max_step_iterations={steps}",
        *(f"{key}={_placeholder(setting, settings.get(setting))}" for key, setting in keys.items()),
        *_switches(variables["PRECISION_MODE"]),
        *(f"++train.{key}={value_text(value)}" for key, value in timing_keys(variables).items()),
        *_further_keys(variables, settings),
    ]


def _further_keys(variables: Variables, equalized: Collection[str]) -> Iterator[str]:
    """Variables that the original driver did not have: only those given, and the settings `equalized` in all groups."""
    from seatrial_workloads.contrastive.hydra_config.keys import KEYS, source_of

    for name, (settings, _, _) in TRAINER_VARIABLES.items():
        value = variables[name]
        if settings[0] in equalized:
            # In quotes: a list of parts has commas.
            yield f"++{source_of(settings[0])}='{{{settings[0]}}}'"
            continue
        if name not in variables.given:
            continue
        # Several keys may set one setting: both ZeRO buckets have one size.
        for key in [key for key, entry in KEYS.items() if entry.fields == settings]:
            text = f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else value_text(value)
            quoted = isinstance(value, str) and (
                set(value) & set(",:") or (VARIABLES[name].kind is PATH and _needs_quotes(settings[0], value))
            )
            yield f"++{key}={escape(chr(39) + text + chr(39) if quoted else text)}"


def timing_keys(variables: Variables) -> dict[str, Scalar]:
    """Timing keys, which the harness also passes as variables; passed here so that resolved_config.yaml has them."""
    return {
        "enable_cuda_sync_timing": variables["ENABLE_CUDA_SYNC_TIMING"],
        "timing_rank_scope": variables["TIMING_RANK_SCOPE"],
        "enable_eta_logging": variables["ENABLE_ETA_LOGGING"],
        "eta_distributed_mode": variables["ETA_DISTRIBUTED_MODE"],
        "eta_min_samples": eta_min_samples(variables),
    }


def eta_min_samples(variables: Variables) -> int:
    """The harness needs at least two timed steps."""
    return max(2, int(variables["ETA_MIN_SAMPLES"]))


def variable_names(prefix: str) -> dict[str, str]:
    """Setting → the variable that sets it, for messages; `prefix` is that of the sweep or of a group of MODE=ab."""
    group = {setting: f"{prefix}{ending}" for ending, setting in AB_GROUP_SETTINGS.items()}
    axes = {
        "zero_stage": "SWEEP_ZERO_STAGES",
        "micro_batch": "SWEEP_MICRO_BATCHES",
        "num_workers": "SWEEP_NUM_WORKERS_LIST",
        "prefetch_factor": "SWEEP_PREFETCH_LIST",
    }
    return {
        **group,
        **(axes if prefix == "SWEEP_" else {"micro_batch": "AB_MICRO_BATCH"}),
        **FROM_VARIABLE,
        **{setting: name for name, (settings, _, _) in TRAINER_VARIABLES.items() for setting in settings},
        "attn_impl": "ATTN_IMPL",
        "pretrained_checkpoint": "PRETRAINED_CKPT",
        "fixed_slice_s": "FIXED_SLICE_SECONDS",
        BOUNDARIES: "LENGTH_BUCKET_BOUNDARIES_SEC",
        "speech_attn_impl": "SPEECH_ATTN_IMPL",
        "text_attn_impl": "TEXT_ATTN_IMPL",
        "steps": "MAX_STEPS",
        "device": "INCLUDE",
    }


def _placeholder(setting: str, value: Any) -> str:
    if setting == BOUNDARIES:
        return f"[{{{setting}}}]"
    return f"'{{{setting}}}'" if isinstance(value, str) and _needs_quotes(setting, value) else f"{{{setting}}}"


def _needs_quotes(setting: str, value: str) -> bool:
    """Whether Hydra would parse the text as something else. Within quotes only these three are special."""
    if "'" in value or "\\" in value or "${" in value:
        name = variable_names("")[setting]
        raise UsageError(f"{name} is '{value}': a quote, a backslash or ${{ cannot be passed to train.py; use a symlink with another name")
    with contextlib.suppress(ValueError):
        float(value)
        return True
    return not _UNQUOTED.fullmatch(value) or value.lower() in _YAML_KEYWORDS


def _switches(precision: str) -> list[str]:
    """DeepSpeed's precision switches, so that the experiment's do not contradict PRECISION_MODE."""
    enabled = (
        {"bf16": "null", "fp16": "null"} if precision == "auto" else {kind: value_text(kind == precision) for kind in ("bf16", "fp16")}
    )
    return [f"deepspeed_config_yaml.{kind}.enabled={value}" for kind, value in enabled.items()]


TRAINER = Path(__file__).parents[3] / "runbooks" / "stage1" / "train.py"
"""Path of train.py in a checkout."""
PHASE_B_CRITERIA = "stage1_stability"
DEFAULT_OUTPUT = "outputs/bench_stage1_ab_%Y%m%d_%H%M%S"
AB_GROUPS = {"old_like": "AB_OLD_", "tuned": "AB_TUNED_"}
"""Groups of MODE=ab, and the prefixes of their variables."""
LONGEST_NAME = 80


def plan_mappings(variables: Variables, cwd: Path, now: datetime, trainer: Path = TRAINER) -> list[dict[str, Any]]:
    """The plans, in order of execution."""
    output = str(cwd / (variables["OUTPUT_ROOT"] or now.strftime(DEFAULT_OUTPUT)))
    builders = {AB: _ab, SWEEP: _sweep}
    return [{**builders[mode](variables, trainer), **_common_keys(variables), "output": escape(output)} for mode in modes_of(variables)]


def modes_of(variables: Variables) -> tuple[str, ...]:
    """The modes to run: AB, SWEEP or both."""
    return (AB, SWEEP) if variables["MODE"] == BOTH else (variables["MODE"],)


def zero_stages(variables: Variables, mode: str) -> list[int]:
    """ZeRO stages of all groups of the mode."""
    if mode == SWEEP:
        return sorted(set(variables["SWEEP_ZERO_STAGES"]))
    return sorted({int(variables[f"{prefix}ZERO_STAGE"]) for prefix in AB_GROUPS.values()})


def num_steps(variables: Variables) -> int:
    """The original driver ran steps 0 to MAX_STEPS, one more than MAX_STEPS."""
    return int(variables["MAX_STEPS"]) + 1


def sweep_values(variables: Variables) -> dict[str, Sequence[int]]:
    """The axes of the matrix; a list overrides the single value."""
    return {
        "zero_stage": variables["SWEEP_ZERO_STAGES"],
        "micro_batch": variables["SWEEP_MICRO_BATCHES"],
        "num_workers": variables["SWEEP_NUM_WORKERS_LIST"] or (variables["SWEEP_NUM_WORKERS"],),
        "prefetch_factor": variables["SWEEP_PREFETCH_LIST"] or (variables["SWEEP_PREFETCH_FACTOR"],),
    }


def sweep_name(values: dict[str, Sequence[int]]) -> str:
    """`stage1-sweep_z0+1_mb128+160_nw6_pf4`, with sorted values; a long name is truncated and ends with a hash."""
    parts = [f"{LABELS[axis]}{'+'.join(map(str, sorted(taken)))}" for axis, taken in values.items()]
    name = "_".join(["stage1-sweep", *parts])
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{digest}"


def log_every(variables: Variables, mode: str) -> int:
    """Steps between two timing points; both groups of MODE=ab use the larger LOG_EVERY."""
    names = [f"{prefix}LOG_EVERY" for prefix in (AB_GROUPS.values() if mode == AB else ("SWEEP_",))]
    return max(int(variables[name]) for name in names)


def _ab(variables: Variables, trainer: Path) -> dict[str, Any]:
    settings = {**fixed_settings(variables), "micro_batch": variables["AB_MICRO_BATCH"]}
    bundles = {group: group_settings(variables, prefix, AB_GROUP_SETTINGS) for group, prefix in AB_GROUPS.items()}
    return {
        "name": "stage1-ab",
        "mode": AB,
        "order": "rounds" if variables["ORDER"] == "nested" else "interleaved",
        **_workload(variables, trainer, settings, zero_stages(variables, AB)),
        "axes": {"variant": {"bundles": bundles}},
        # The procedure's A/B runs both groups under ZeRO 1.
        "lane": {**MAINLINE, "zero_stage": zero_stages(variables, AB)},
        "timing": _timing(variables, log_every(variables, AB)),
    }


def _sweep(variables: Variables, trainer: Path) -> dict[str, Any]:
    values = sweep_values(variables)
    settings = {**fixed_settings(variables), **group_settings(variables, "SWEEP_", GROUP_SETTINGS)}
    return {
        "name": sweep_name(values),
        "mode": SWEEP,
        "prefix": SWEEP,
        "order": variables["ORDER"],
        **_workload(variables, trainer, settings, zero_stages(variables, SWEEP)),
        "axes": {axis: {"label": LABELS[axis], "values": list(taken)} for axis, taken in values.items()},
        "lane": lane_of(values["zero_stage"]),
        "timing": _timing(variables, log_every(variables, SWEEP)),
    }


def _workload(variables: Variables, trainer: Path, own: dict[str, Scalar], stages: Sequence[int]) -> dict[str, Any]:
    settings = {**own, **equalized_settings(variables, stages)[0]}
    # Absolute: it is part of the run's hash, which must not depend on the working directory.
    return {"workload": {"script": escape(str(trainer.absolute())), "args": trainer_args(variables, settings)}, "settings": settings}


def _common_keys(variables: Variables) -> dict[str, Any]:
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
        **({"needs": {"campaign": variables["NEEDS"], "ready": PHASE_B_CRITERIA}} if variables["NEEDS"] else {}),
    }


def _timing(variables: Variables, points_every: int) -> dict[str, Any]:
    eta_mode = variables["ETA_DISTRIBUTED_MODE"] if variables["ENABLE_ETA_LOGGING"] else "off"
    return {
        # Where the interval exceeds the run, the harness chooses it: without timing points nothing can be compared.
        **({"log_every": points_every} if points_every <= num_steps(variables) else {}),
        "tail_points": variables["TAIL_TIMING_POINTS"],
        "sync": variables["ENABLE_CUDA_SYNC_TIMING"],
        "eta_mode": eta_mode,
        "eta_min_samples": eta_min_samples(variables),
    }


def _interval_s(variables: Variables, kind: str) -> float | None:
    return float(variables[f"{kind}_TELEMETRY_INTERVAL_SEC"]) if variables[f"ENABLE_{kind}_TELEMETRY"] else None
