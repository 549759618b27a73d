"""The driver's output, in the procedures' line formats: head, notes, START and DONE of every run; copied to DRIVER_LOG_PATH.

[INFO] START sweep_z0_mb160_nw8_pf4 r1: z=0, mb=160, nw=8, pf=4, port=29650+, precision=auto, model_dtype=auto, …
[INFO] DONE sweep_z0_mb160_nw8_pf4 r1: duration_sec=412.1, last_step=1200, last_iter_ms_p50=301.2, last_eta=00:00:00, …
[WARN] sweep_z0_mb192_nw8_pf4 repeat 1 failed (exit_code=1, duration_sec=38.2, last_step=none)

A failing disk costs log lines only. Colours go to the terminal only. Its users parse these lines, so
every field of the original driver is kept, by tables from names to variables, settings and columns.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from seatrial.campaign.preflight import check_line
from seatrial.cli.live_view import PLAIN_HEARTBEAT_S, PlainView
from seatrial.cli.program import describe_system_error
from seatrial.collect.manifest import manifest_row
from seatrial.core import files
from seatrial.core.durable_writes import DISK_ERRNOS, AppendFile
from seatrial.core.errors import PlanError
from seatrial.core.fallback import fallback_folders
from seatrial.core.hostfile import HostSpec
from seatrial.core.log_lines import shorten_line
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.core.tables import format_cell
from seatrial.core.text import format_duration
from seatrial.machine.gpus import read_driver, select_gpus
from seatrial.machine.software import read_git_state
from seatrial.records.caution import Check, Scalar
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.results import MeasuredRun
from seatrial.report.text import strip_ansi
from seatrial_runbooks.command_line import warn
from seatrial_runbooks.stage1.to_plan import eta_min_samples, included_hosts, log_every, num_steps
from seatrial_runbooks.stage1.variables import AB, BOTH, SWEEP, Variables

# Plan key → the variable that sets it.
PLAN_KEYS = {
    "place.ranks": "WORLD_SIZE",
    "place.include": "INCLUDE",
    "place.hostfile": "HOSTFILE",
    "place.port": "MASTER_PORT",
    "place.port_base": "MASTER_PORT_BASE",
    "settings.dataset_root": "DATASET_ROOT",
    "settings.dataset_manifest_path": "DATASET_MANIFEST_PATH",
    "settings.pretrained_checkpoint": "PRETRAINED_CKPT",
    "limits.start_s": "MAX_WAIT_TRAIN_LOG_SEC",
    "limits.run_s": "RUN_TIMEOUT_SEC",
    "telemetry.gpu_s": "GPU_TELEMETRY_INTERVAL_SEC",
    "telemetry.host_s": "HOST_TELEMETRY_INTERVAL_SEC",
    "timing.sync": "ENABLE_CUDA_SYNC_TIMING",
    "timing.log_every": "SWEEP_LOG_EVERY",
    "timing.tail_points": "TAIL_TIMING_POINTS",
}
# Options and keys in the harness's messages → what the driver's user types instead.
REMEDIES = {
    "choose another with --out": "choose another OUTPUT_ROOT",
    "run it first, or start anyway with --ignore-needs": "run phase B into it first (OUTPUT_ROOT=… "
    "./scripts/run_phaseb_4090_stability.sh), or start anyway with IGNORE_NEEDS=1",
    "needed campaign ": "NEEDS=",
    "place: {kind: local, ranks: N} for CPU ranks (deepspeed: --num_gpus N)": "INCLUDE=localhost WORLD_SIZE=N for CPU ranks",
    "`plan show` works": "DRY_RUN=1 works",
    "`--only GROUP` on one group gives a measure": "a command for one group gives a measure",
    "data dataset_root": "DATASET_ROOT",
    "data dataset_manifest_path": "DATASET_MANIFEST_PATH",
    "choose another disk with --out": "choose another disk with OUTPUT_ROOT",
    "with --out": "with OUTPUT_ROOT",
    "Resume anyway with --resume-changed": "Resume anyway with TRAIN_RESUME_FROM and its folder",
    "--from-start": "RESUME_RUNS=false",
    "rank_scope: all": "TIMING_RANK_SCOPE=all",
}
# Too common a word to replace in a sentence: known by the key of a PlanError.
OUTPUT = "output"
PLAN_TERMS = {**REMEDIES, **PLAN_KEYS}
# Whole terms only, the longest first: a path or a user's line may contain one.
_TERM = re.compile("|".join(rf"(?<![\w./-]){re.escape(term)}(?![\w/-]|\.\w)" for term in sorted(PLAN_TERMS, key=len, reverse=True)))
# A term that ends with a space is followed by what it names.
_NAMED = tuple(term for term in PLAN_TERMS if term.endswith(" "))


def plan_terms_as_variables(text: str) -> str:
    """Replace plan keys and options, which the user did not type, by the driver's variables. Only for sentences of the harness, never for
    lines of a user's log."""
    for term in _NAMED:
        text = text.replace(term, PLAN_TERMS[term])
    return _TERM.sub(lambda found: PLAN_TERMS[found[0]], text)


def plan_error_in_variables(error: PlanError, source: str) -> str:
    """The error of a plan that the driver generated, without its `source`, which is not a file."""
    text = str(error).removeprefix(f"{source}: ")
    return plan_terms_as_variables(f"OUTPUT_ROOT{text.removeprefix(OUTPUT)}" if error.key == OUTPUT else text)


class InVariables:
    """A stream that names the driver's variables where the harness writes plan keys and options."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return int(self._stream.write(plan_terms_as_variables(text)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Tee:
    """A stream that also writes to the log."""

    def __init__(self, stream: Any, log: AppendFile) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        self._log.append(strip_ansi(text).encode("utf-8", errors="replace"))
        return int(self._stream.write(text))

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def logged_to(path: Path | None) -> Iterator[None]:
    """Copy stdout and stderr to the file at `path` while the block runs; None for no file."""
    problem = _log_problem(path) if path is not None else ""
    if problem:
        warn(f"continuing without the driver log {path}: {problem}")
    if path is None or problem:
        yield
        return
    log, before = AppendFile(path), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = Tee(sys.stdout, log), Tee(sys.stderr, log)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        is_complete = log.close() and not log.last_error
    if not is_complete:
        where = "; the rest was written to the fallback folder and merged back" if log.fallback_bytes and not log.lost_bytes else ""
        warn(f"the driver log {path} is incomplete: {log.last_error}{where}")


def _log_problem(path: Path) -> str:
    """Why the file can never be written; empty for a disk error, which may be temporary."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        return "" if error.errno in DISK_ERRNOS else describe_system_error(error) or str(error)
    return ""


UNKNOWN = "none"
SNAPSHOT, REVISION = "Runtime snapshot", "Code revision"
PRECISION = "Precision/attention (auto: decided by train.py where it runs)"
# Title → name in the line → variable; two titles show the machine and the code instead.
HEAD_FIELDS = {
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
    SNAPSHOT: {},
    PRECISION: {
        "precision": "PRECISION_MODE",
        "model_dtype": "MODEL_LOAD_DTYPE",
        "speech_attn": "SPEECH_ATTN_IMPL",
        "text_attn": "TEXT_ATTN_IMPL",
    },
    "Math backend": {"tf32": "ENABLE_TF32", "matmul_precision": "MATMUL_PRECISION"},
    REVISION: {},
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
# Variable → the one that applies where it is not set.
INHERITED = {"SPEECH_ATTN_IMPL": "ATTN_IMPL", "TEXT_ATTN_IMPL": "ATTN_IMPL"}


def head_lines(variables: Variables, plans: Sequence[CampaignPlan]) -> list[str]:
    output = Path(plans[0].output)
    shown = {name: variables[name] for name in ("REPEATS", "MAX_STEPS", "INCLUDE")}
    if variables["HOSTFILE"] is not None:
        shown |= {"INCLUDE": included_hosts(variables) or "all", "HOSTFILE": variables["HOSTFILE"]}
    values = {**variables.values, **{name: variables[name] or variables[other] for name, other in INHERITED.items()}}
    texts = {title: _pairs({key: values[name] for key, name in names.items()}) for title, names in HEAD_FIELDS.items()}
    git = read_git_state(Path(str(plans[0].runs[0].workload.script)).parent, output)
    revision = _pairs({"commit": git.commit or None, "branch": git.branch or None, "dirty": git.dirty or None})
    texts |= {SNAPSHOT: _machine(plans[0]), REVISION: revision}
    lines = [
        f"Output root: {output}",
        _pairs({"Mode": variables["MODE"], **shown, "WORLD_SIZE": plans[0].runs[0].place.ranks}),
        *(f"{title}: {text}" for title, text in texts.items()),
        f"Manifest durability: writes that fail go to {fallback_folders()[0]} and are merged back",
        *([f"Driver log: {variables['DRIVER_LOG_PATH']}"] if variables["DRIVER_LOG_PATH"] else []),
        *(f"Plan {plan.name}: groups={len({run.group for run in plan.runs})}, runs={len(plan.runs)}, order={plan.order}" for plan in plans),
    ]
    return [f"[INFO] {line}" for line in lines]


def _pairs(pairs: Mapping[str, object]) -> str:
    texts = {key: ",".join(map(str, value)) if isinstance(value, tuple) else format_cell(value) or UNKNOWN for key, value in pairs.items()}
    return ", ".join(f"{key}={text}" for key, text in texts.items())


def _machine(plan: CampaignPlan) -> str:
    if plan.runs[0].place.traits.lists_hosts:
        return f"hosts {', '.join(_host(host) for host in plan.runs[0].place.hosts) or 'unknown'}"
    devices = plan.runs[0].place.devices
    if not devices:
        return "ranks on the CPU"
    driver = read_driver()
    gpus = select_gpus(driver.gpus, devices)
    if not gpus:
        return f"none of the GPUs {','.join(devices)} found ({driver.problem or 'no such GPU'})"
    named = ", ".join(f"{gpu.index} {gpu.name} (cc {gpu.compute_capability}, {format_cell(gpu.power_limit_w)} W)" for gpu in gpus)
    return f"GPUs {named}; driver {driver.version}"


def _host(host: HostSpec) -> str:
    """`node1 (2 ranks, GPUs 0,1)`."""
    gpus = f", GPUs {','.join(host.devices)}" if host.devices else ""
    return f"{host.name} ({host.ranks} {'rank' if host.ranks == 1 else 'ranks'}{gpus})"


# The first of each pair has no effect when the second is set.
OVERRIDDEN = (
    ("SWEEP_NUM_WORKERS", "SWEEP_NUM_WORKERS_LIST"),
    ("SWEEP_PREFETCH_FACTOR", "SWEEP_PREFETCH_LIST"),
    ("MASTER_PORT_BASE", "MASTER_PORT"),
)
# Switch → variables without effect while it is off.
SWITCHED_BY = {
    "ENABLE_LENGTH_FIXED_SLICE": ("FIXED_SLICE_SECONDS",),
    "ENABLE_LENGTH_BUCKET": ("LENGTH_BUCKET_BOUNDARIES_SEC",),
    "ENABLE_GPU_TELEMETRY": ("GPU_TELEMETRY_INTERVAL_SEC",),
    "ENABLE_HOST_TELEMETRY": ("HOST_TELEMETRY_INTERVAL_SEC",),
    "ENABLE_ETA_LOGGING": ("ETA_DISTRIBUTED_MODE", "ETA_MIN_SAMPLES"),
    "ENABLE_TORCH_COMPILE": ("TORCH_COMPILE_MODE", "TORCH_COMPILE_DYNAMIC"),
}
RETRIES = ("MANIFEST_WRITE_RETRIES", "MANIFEST_WRITE_RETRY_SLEEP_SEC")


def notes(variables: Variables) -> list[str]:
    """A line for each variable without effect and each adjusted value."""
    return [*_without_effect(variables), *_adjusted(variables)]


def _without_effect(variables: Variables) -> Iterator[str]:
    given = [name for name in RETRIES if name in variables.given]
    if given:
        yield (
            f"[INFO] no effect here: {', '.join(given)}; a failed write is retried within a second, then kept in a "
            "folder of this host and merged back"
        )
    for name, over in OVERRIDDEN:
        if {name, over} <= variables.given:
            yield f"[WARN] {name} has no effect: {over} overrides it"
    off = [f"{name} ({switch} is false)" for switch, names in SWITCHED_BY.items() if not variables[switch] for name in names]
    off = [text for text in off if text.partition(" ")[0] in variables.given]
    if off:
        yield f"[INFO] no effect here: {', '.join(off)}"
    other = {AB: "SWEEP_", SWEEP: "AB_"}.get(variables["MODE"])
    idle = sorted(name for name in variables.given if other and name.startswith(other))
    if idle:
        more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
        right = SWEEP if variables["MODE"] == AB else AB
        yield f"[WARN] no effect here: {idle[0]}{more}; MODE is {variables['MODE']}, did you mean MODE={right} or MODE={BOTH}?"


def _adjusted(variables: Variables) -> Iterator[str]:
    requested, used = variables["ETA_MIN_SAMPLES"], eta_min_samples(variables)
    if used != requested:
        yield f"[INFO] ETA_MIN_SAMPLES is {requested}: the first ETA needs {used} timed steps"
    modes = (AB, SWEEP) if variables["MODE"] == BOTH else (variables["MODE"],)
    if AB in modes and variables["AB_OLD_LOG_EVERY"] != variables["AB_TUNED_LOG_EVERY"]:
        yield f"[INFO] MODE=ab: both groups have timing points every {log_every(variables, AB)} steps, so that they can be compared"
    rarest, steps = max(log_every(variables, mode) for mode in modes), num_steps(variables)
    if rarest > steps:
        yield f"[WARN] train.log has a line every {rarest} steps only, in a run of {steps}; timing points are taken more often"


# Progress goes to stdout, all other lines to stderr.
PROGRESS = ("[INFO] START ", "[INFO] DONE ", "[INFO] SKIP ", "[INFO] Logs: ")
# Average bytes read per printed line: a progress bar is one long line.
TAIL_BYTES_A_LINE = 2000
# Name in a START line → setting.
START_FIELDS = {
    "z": "zero_stage",
    "mb": "micro_batch",
    "nw": "num_workers",
    "pf": "prefetch_factor",
    "port": "",
    "precision": "precision",
    "model_dtype": "model_load_dtype",
    "speech_attn": "speech_attn_impl",
    "text_attn": "text_attn_impl",
    "tf32": "tf32",
    "compile": "torch_compile",
}
# Name in a DONE line → column of the manifest.
DONE_FIELDS = {
    "duration_sec": "duration_sec",
    "last_step": "last_step",
    "last_iter_ms_p50": "last_iter_ms_p50",
    "last_eta": "last_eta_hms",
    "eta_mode": "last_eta_mode",
    "unstable_run_flag": "unstable_run_flag",
    "iter_p90_over_p50": "iter_p90_over_p50",
}


class DriverView(PlainView):
    """Prints START, DONE, SKIP and failure lines, and after a failure the last `tail_lines` of its logs."""

    def __init__(self, console: Console, heartbeat_s: float, output: Path, tail_lines: int, beside: Console | None = None) -> None:
        super().__init__(console, heartbeat_s)
        self._paths, self._tail_lines, self._beside = CampaignPaths(output), tail_lines, beside or console

    def warned(self, checks: Sequence[Check]) -> None:
        for check in checks:
            self._print_line(f"[WARN] {plan_terms_as_variables(check_line(check))}")

    def skipped(self, spec: RunSpec, conditions: str) -> None:
        then = f"; it ran under other conditions ({conditions}); RESUME_RUNS=false runs it again" if conditions else ""
        self._print_line(f"[INFO] SKIP {_title(spec)}: already successful in manifest{then}")

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        self._position = f"[{position}/{count}]"
        # Chosen when the run starts, and recorded in the manifest.
        port = str(spec.place.port or f"{spec.place.port_base}+")
        known = {**spec.settings, **spec.axes, "": port}
        fields = ", ".join(f"{key}={_format(known.get(setting))}" for key, setting in START_FIELDS.items())
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self._print_line(f"[INFO] START {_title(spec)}: {fields} · {self._position}{again}")
        paths = self._paths.run(spec.run).attempt(attempt)
        self._print_line(f"[INFO] Logs: launcher={paths.launcher_log}, train={paths.train_log}")

    def stopping(self, spec: RunSpec) -> None:
        longest = format_duration(spec.limits.soft_s + spec.limits.term_s)
        self._print_line(f"[WARN] {_title(spec)}: stopping (up to {longest}). Ctrl-C again kills it")

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        row = manifest_row(measured.attempt, measured.measure) if measured else {"duration_sec": round(outcome.duration_s, 3)}
        if outcome.outcome is Outcome.OK:
            fields = ", ".join(f"{key}={_format(row.get(column), column)}" for key, column in DONE_FIELDS.items())
            self._print_line(f"[INFO] DONE {_title(spec)}: {fields}")
            return
        how = "interrupted" if outcome.outcome is Outcome.INTERRUPTED else "failed"
        figures = {"exit_code": outcome.exit_code, "duration_sec": row.get("duration_sec"), "last_step": row.get("last_step")}
        shown = ", ".join(f"{key}={_format(value, key)}" for key, value in figures.items())
        self._print_line(f"[WARN] {spec.group} repeat {spec.repeat} {how} ({shown})")
        if how == "failed":
            self.failed += 1
            self._print_line(f"[WARN] {outcome.outcome.value}, {outcome.cause.value}: {outcome.detail}")
            if outcome.action:
                self._print_line(f"[WARN] what to do: {plan_terms_as_variables(outcome.action)}")
            self._print_tails(self._paths.run(spec.run).attempt(outcome.attempt))

    def _print_tails(self, attempt: AttemptPaths) -> None:
        for name, path in (("launcher", attempt.launcher_log), ("train", attempt.train_log)) if self._tail_lines else ():
            lines = files.tail_lines(path, self._tail_lines, self._tail_lines * TAIL_BYTES_A_LINE)
            if lines:
                self._print_line(f"===== {name} tail (last {self._tail_lines} lines) =====")
            for line in lines:
                self._print_line(shorten_line(line))

    def _console_for(self, line: str) -> Console:
        return self._console if line.startswith(PROGRESS) else self._beside


def driver_view(output: Path, tail_lines: int, kept: list[DriverView]) -> Callable[..., contextlib.AbstractContextManager[PlainView]]:
    """A factory of the view for `execute`; the view is appended to `kept`, for its count of failed runs."""

    @contextlib.contextmanager
    def view(console: Console, heartbeat_s: float | None = None) -> Iterator[PlainView]:
        every_s = PLAIN_HEARTBEAT_S if heartbeat_s is None else heartbeat_s
        kept.append(DriverView(console, every_s, output, tail_lines, Console(stderr=True)))
        yield kept[-1]

    return view


def _title(spec: RunSpec) -> str:
    return f"{spec.group} r{spec.repeat}"


def _format(value: Scalar, column: str = "") -> str:
    return format_cell(value, column) or UNKNOWN
