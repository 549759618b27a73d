"""Converts one attempt of the original scripts to our records.

In: an attempt and the telemetry files of its run. Out: `RunSpec` (settings under stage 1's names, so that stage 1's columns are filled),
effective settings, `Provenance`, `RunOutcome`, the merged log with arrival times, and the samples. Settings come from the row, META and
the command; names are never parsed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial.collect.logs.diagnosis import diagnose
from seatrial.collect.logs.launcher_log import STAGE1_ETA, STAGE1_RANK, STAGE1_TIMING
from seatrial.collect.logs.launcher_report import SHELL_SIGNALS
from seatrial.collect.original.manifests import LARGEST_BYTES, NO_HEADER, number, read_lines, whole
from seatrial.collect.original.runs import SCRIPT, LauncherBlock, OriginalAttempt, RunLogs, Span, local_s, step_in
from seatrial.core.paths import AttemptPaths
from seatrial.core.text import format_duration
from seatrial.machine.secrets import mask_argv, mask_lines, mask_text
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Scalar
from seatrial.records.columns import ARRIVALS, STAGE1_SETTINGS, SWEEP_LABELS
from seatrial.records.eta import GLOBAL_MAX, OFF, RANK0
from seatrial.records.outcome import Cause, Diagnosis, Outcome, RunOutcome
from seatrial.records.plan import LauncherSpec, PlaceSpec, RunSpec, TelemetrySpec, TimingSpec, WorkloadSpec
from seatrial.records.signatures.registry import advice_without_plan, fault_named
from seatrial.records.telemetry import SamplerAccount

TIME, STAMP = "epoch_sec", "timestamp"
RSS, SAMPLER_RSS = "rss_kib", "train_rss_kib"
PERCENTAGES = ("util_gpu_pct", "util_mem_pct")
SLACK_S = 5.0
"""A run's own samplers begin a little before the launcher and end a little after it."""
LARGEST_SAMPLES_BYTES = 8 * LARGEST_BYTES
ZONE_ROWS = 50
QUARTER_S = 900
"""Time zones differ by quarters of an hour."""
LARGEST_ZONE_S = 15 * 3600
ZONE_SLACK_S = 120.0
"""Longest time from reading the clock to writing the row, on a very busy machine."""
NO_ROWS = "the file has a header and no rows: the original sampler ended at once, or could not query the driver"
Cells = list[str]


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """gpu_telemetry.csv or host_telemetry.csv: the driver's, one per run, or the separate sampler's at the root, which spans all runs and
    has the processes' memory in `train_rss_kib`."""

    path: Path
    columns: tuple[str, ...] = ()
    rows: tuple[Cells, ...] = ()
    invalid: int = 0
    """Rows with a utilisation out of range; left out of `rows`, as our own sampler does."""
    problem: str = ""

    @property
    def exists(self) -> bool:
        return bool(self.columns or self.problem)

    def epochs_s(self) -> list[float | None]:
        index = self.columns.index(TIME) if TIME in self.columns else None
        return [None if index is None else number(row[index]) for row in self.rows]

    def zone_s(self) -> float | None:
        """How far the clock of the machine was ahead of UTC, by the first plausible row."""
        if TIME not in self.columns or STAMP not in self.columns:
            return None
        stamp, epoch = self.columns.index(STAMP), self.columns.index(TIME)
        for row in self.rows[:ZONE_ROWS]:
            here_s, epoch_s = local_s(row[stamp]), number(row[epoch])
            if here_s is not None and epoch_s is not None:
                zone_s = round((here_s - epoch_s) / QUARTER_S) * QUARTER_S
                if abs(zone_s) <= LARGEST_ZONE_S and abs(here_s - epoch_s - zone_s) <= ZONE_SLACK_S:
                    return float(zone_s)
        return None

    def span(self) -> Span | None:
        """Time from the first row to the last; None without rows."""
        times = [time_s for time_s in self.epochs_s() if time_s is not None]
        if not times:
            return None
        return Span(first_t=min(times), last_t=max(times), duration_s=max(times) - min(times), source=self.path.name)

    def within(self, span: Span, slack_s: float = 0.0) -> SampleFile:
        timed = zip(self.rows, self.epochs_s(), strict=True)
        return replace(self, rows=tuple(row for row, time_s in timed if time_s is not None and span.covers(time_s, slack_s)))

    def text(self) -> str:
        """The file as our readers expect it: with `rss_kib`, whatever the sampler called it."""
        lines = [self.columns, *self.rows]
        if RSS not in self.columns and SAMPLER_RSS in self.columns:
            index = self.columns.index(SAMPLER_RSS)
            lines = [(*self.columns, RSS), *([*row, row[index]] for row in self.rows)]
        return "".join(f"{','.join(cells)}\n" for cells in lines)


def read_sample_rows(path: Path) -> SampleFile:
    text = read_lines(path, LARGEST_SAMPLES_BYTES)
    if not text.lines:
        return SampleFile(path=path, problem=text.problem)
    columns = tuple(cell.strip() for cell in text.lines[0].split(","))
    if TIME not in columns or len(set(columns)) != len(columns):
        return SampleFile(path=path, problem=NO_HEADER)
    rows = [cells for line in text.whole_lines[1:] if len(cells := [cell.strip() for cell in line.split(",")]) == len(columns)]
    # A restarted sampler wrote its header again.
    samples = [cells for cells in rows if tuple(cells) != columns]
    indices = [columns.index(name) for name in PERCENTAGES if name in columns]
    valid = tuple(cells for cells in samples if all(0 <= (number(cells[index]) or 0.0) <= 100 for index in indices))
    return SampleFile(path=path, columns=columns, rows=valid, invalid=len(samples) - len(valid))


@dataclass(frozen=True, kw_only=True)
class RunSamples:
    """Both files of one run, and the root's, which all runs share."""

    gpu: SampleFile
    host: SampleFile
    shared_host: SampleFile

    def of_attempt(self, span: Span, *, alone: bool, is_newest: bool) -> tuple[SampleFile | None, SampleFile | None]:
        """GPU and host samples of one attempt, None without any; the host's come from the root if the run has none."""
        gpu, host = (_own_rows(file, span, alone=alone, is_newest=is_newest) for file in (self.gpu, self.host))
        if (host is None or not host.rows) and span.first_t is not None:
            from_root = self.shared_host.within(span)
            host = from_root if from_root.rows else host
        return gpu, host


def read_run_samples(folder: Path | None, shared_host: SampleFile) -> RunSamples:
    """The samples of a run; empty without a folder."""
    if folder is None:
        nothing = SampleFile(path=shared_host.path)
        return RunSamples(gpu=nothing, host=nothing, shared_host=shared_host)
    paths = AttemptPaths(folder)
    return RunSamples(gpu=read_sample_rows(paths.gpu_telemetry), host=read_sample_rows(paths.host_telemetry), shared_host=shared_host)


def _own_rows(file: SampleFile, span: Span, *, alone: bool, is_newest: bool) -> SampleFile | None:
    """The rows of this attempt's time; None without a file."""
    if not file.exists:
        return None
    own = file if alone else file.within(span, SLACK_S)
    if own.rows or not is_newest:
        # An older attempt's file was overwritten: no rows is not a fault.
        return own if own.rows else None
    # Even where the times do not match, the rows are the newest attempt's: the sampler starts a new file each time.
    return file


def account_of(samples: SampleFile | None, interval_s: float | None) -> SamplerAccount | None:
    """An account of the sampling by the rows; None without a file."""
    if samples is None:
        return None
    times = sorted({time_s for time_s in samples.epochs_s() if time_s is not None})
    waits = [later - one for one, later in itertools.pairwise(times)]
    every_s = interval_s or (sorted(waits)[len(waits) // 2] if waits else 0.0)
    # Times are in whole seconds, so a gap may look a second too long.
    gaps = [wait for wait in waits if wait > 2 * every_s + 1]
    notes = []
    if samples.problem:
        notes.append(f"{samples.path.name} cannot be used ({samples.problem})")
    elif not samples.rows and not samples.invalid:
        notes.append(NO_ROWS)
    if samples.invalid:
        notes.append("utilisation outside 0 to 100 %")
    return SamplerAccount(
        interval_s=every_s,
        rows=len(samples.rows),
        samples=len(times),
        invalid=samples.invalid,
        gaps=len(gaps),
        longest_gap_s=max(gaps, default=0.0),
        wall_s=times[-1] - times[0] if times else 0.0,
        empty=not samples.rows,
        note="; ".join(notes),
    )


def zone_of_run(logs: RunLogs, samples: RunSamples, elsewhere_s: float | None) -> float | None:
    """How far the clock of the run's machine was ahead of UTC: by its samples, else its META blocks, else `elsewhere_s`."""
    return first_known(samples.gpu.zone_s(), samples.host.zone_s(), *named_zones_s([logs]), elsewhere_s)


def first_known(*zones_s: float | None) -> float | None:
    return next((zone_s for zone_s in zones_s if zone_s is not None), None)


def named_zones_s(runs: Sequence[RunLogs]) -> Iterator[float]:
    """Zones in META blocks, newest attempts of each run first."""
    for run in runs:
        zones = (attempt.block.zone_s for attempt in reversed(run.attempts) if attempt.block)
        yield from (zone_s for zone_s in zones if zone_s is not None)


PLAN = "original-stage1-scripts"
SWEEP, AB = "sweep", "ab"
RESOLVED = ("precision_mode", "model_load_dtype", "attn_impl", "speech_attn_impl", "text_attn_impl")
"""Settings for which the driver records both the requested and the effective value."""
SWITCHES = ("torch_compile_enabled", "tf32_enabled")
"""Settings for which it records the effective value only."""
FOLLOWS = {
    # Its weights are fp32 only without flash attention.
    "model_load_dtype": (*(f"{name}=flash_attention_2" for name in ("attn_impl", "speech_attn_impl", "text_attn_impl")), "precision_mode"),
    "attn_impl": ("speech_attn_impl", "text_attn_impl"),
    # What was requested is not recorded, so a difference may be the requested one.
    **{name: (name,) for name in SWITCHES},
}
"""Effective setting → settings that it follows in the original trainer."""
META_SETTINGS = (
    "torch_compile_mode",
    "torch_compile_dynamic",
    "matmul_precision",
    "enable_length_fixed_slice",
    "fixed_slice_seconds",
    "enable_length_bucket",
    "length_bucket_boundaries_sec",
)
"""Settings that only META has."""
BOOLEANS = {"true": True, "false": False}
BINARY = ("deterministic", "cudnn_benchmark", "wall_clock_breakdown", "dataset_use_trim", "dataset_offline_trimmed", *SWITCHES)
"""Columns in which 0 and 1 are false and true."""
REPLACED = "replaced by the original driver"
MACHINE = ("gpu_name", "gpu_cc", "gpu_uuid_list", "gpu_power_limit_w", "pcie_gen", "driver_version", "git_branch", "git_dirty")


def spec_of(attempt: OriginalAttempt, group: str, repeat: int, tail_points: int) -> RunSpec:
    """The spec, without its hashes (`identified`)."""
    cells, block = attempt.cells, attempt.block or LauncherBlock(meta={})
    mode = cells.get("mode", SWEEP)
    micro_batch = whole(cells.get("micro_batch"))
    return RunSpec(
        run=f"{group}_r{repeat}",
        group=group,
        repeat=repeat,
        plan=PLAN,
        mode=mode,
        workload=WorkloadSpec(
            name=SCRIPT,
            script=SCRIPT,
            args=tuple(mask_argv(block.script_args)),
            reads="seed",
            samples_per_step=None if micro_batch is None else float(micro_batch),
            follows=FOLLOWS,
        ),
        settings=settings_of(cells),
        axes={"variant": group} if mode == AB else {name: typed(name, cells[name]) for name in SWEEP_LABELS if name in cells},
        labels={} if mode == AB else {name: label for name, label in SWEEP_LABELS.items() if name in cells},
        launcher=LauncherSpec(kind="deepspeed", args=tuple(mask_argv(block.launcher_args))),
        place=PlaceSpec(kind="local", ranks=world_size(attempt) or 1, devices=block.devices),
        cwd="",
        steps=steps_of(attempt),
        rank_scope=cells.get("timing_rank_scope", RANK0),
        timing=_timing(cells, tail_points),
        telemetry=TelemetrySpec(
            gpu_s=number(cells.get("gpu_telemetry_interval_sec")), host_s=number(cells.get("host_telemetry_interval_sec"))
        ),
    )


def _timing(cells: Mapping[str, str], tail_points: int) -> TimingSpec:
    is_off = typed("enable_eta_logging", cells.get("enable_eta_logging", "true")) is False
    # Where the trainer had printed nothing yet, this is the driver's own guess and not a mode of the trainer.
    is_slowest = (cells.get("last_eta_mode") or cells.get("eta_distributed_mode")) == GLOBAL_MAX
    return TimingSpec(
        tail_points=tail_points,
        sync=typed("enable_cuda_sync_timing", cells.get("enable_cuda_sync_timing", "")) is True,
        log_every=max(whole(cells.get("log_every_steps")) or TimingSpec().log_every, 1),
        eta_mode=OFF if is_off else GLOBAL_MAX if is_slowest else RANK0,
        eta_min_samples=whole(cells.get("eta_min_samples")) or TimingSpec().eta_min_samples,
    )


def settings_of(cells: Mapping[str, str]) -> dict[str, Scalar]:
    """Every known setting, under the name by which stage 1's columns are filled."""
    known = {name: cells.get(name) for name in (*sorted(STAGE1_SETTINGS), *META_SETTINGS)}
    known |= {name: cells.get(f"{name}_req") for name in RESOLVED}
    known["log_every"] = cells.get("log_every_steps")
    return {name: typed(name, text) for name, text in known.items() if text is not None}


def typed(name: str, text: str) -> Scalar:
    if text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    if name in BINARY and text in ("0", "1"):
        return text == "1"
    value = whole(text) if "." not in text else number(text)
    return text if value is None else value


def effective_of(cells: Mapping[str, str]) -> dict[str, tuple[Scalar, Scalar, str]]:
    """Setting → (requested, effective, reason)."""
    found: dict[str, tuple[Scalar, Scalar, str]] = {}
    for name in RESOLVED:
        effective, requested = cells.get(f"{name}_effective"), cells.get(f"{name}_req")
        if effective is not None:
            found[name] = (requested, effective, REPLACED if requested not in (None, "auto", effective) else "")
    return found | {name: (None, typed(name, cells[name]), "") for name in SWITCHES if name in cells}


def provenance_of(cells: Mapping[str, str], context: Any) -> Provenance:
    """Machine and code by the row and, where there is one, the trainer's run_context.json."""
    runtime = context.get("runtime") if isinstance(context, dict) else None
    facts = {name: str(value) for name, value in runtime.items() if value} if isinstance(runtime, dict) else {}
    machine = {name: cells.get(name, "") for name in MACHINE}
    found = Provenance(
        host=facts.get("hostname", ""),
        platform=facts.get("platform", ""),
        python=facts.get("python", ""),
        packages={name: facts[f"{name}_version"] for name in ("torch", "deepspeed") if f"{name}_version" in facts},
        cuda=facts.get("cuda_version", ""),
        git_commit_hash=cells.get("git_commit_hash") or cells.get("git_commit_short", ""),
        **machine,  # type: ignore[arg-type]
    )
    # Imports psutil, and the leak diagnosis reads these folders with the standard library alone.
    from seatrial.machine.provenance import compute_fingerprint

    return replace(found, fingerprint=compute_fingerprint(found))


def world_size(attempt: OriginalAttempt) -> int | None:
    """Ranks by the row, else the GPUs in the command, else the ranks that print; None for unknown."""
    recorded = whole(attempt.cells.get("world_size")) or 0
    named = len(attempt.block.devices) if attempt.block else 0
    return recorded or named or len({match[2] for line in attempt.trainer_lines.lines if (match := STAGE1_RANK.search(line))}) or None


def steps_of(attempt: OriginalAttempt) -> int | None:
    """Steps it was to take: 0 to MAX_STEPS, both counted, by the command, an estimate or a successful end; None for unknown."""
    last, printed = whole(attempt.cells.get("max_steps")), attempt.trainer_lines
    if last is None:
        last = printed.max_steps
    if last is None and attempt.row is not None and attempt.row.is_success:
        last = printed.last_step
    return None if last is None or last < 0 else last + 1


def identified(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """The same specs with hash and group key, computed from settings that all attempts of a group have: older rows have fewer."""
    groups: dict[tuple[str, str], list[RunSpec]] = {}
    for spec in specs:
        groups.setdefault((spec.mode, spec.group), []).append(spec)
    return [_identified(spec, groups[spec.mode, spec.group]) for spec in specs]


def _identified(spec: RunSpec, group: Sequence[RunSpec]) -> RunSpec:
    steps = {one.steps for one in group if one.steps is not None}
    filled = spec if spec.steps is not None or len(steps) != 1 else replace(spec, steps=next(iter(steps)))
    common = [name for name in spec.settings if all(name in one.settings for one in group)]
    key = [spec.mode, spec.group, {name: spec.settings[name] for name in common}, spec.place.ranks, filled.steps]
    from seatrial.machine.provenance import short_hash

    return replace(filled, group_key=short_hash(key), hash=short_hash([*key, spec.repeat]))


# Advice for failures of such a run, which never had a plan, limits of ours or a command.sh: entry of the registry → action.
COMMAND_AT_HEAD = "the command is at its head, under CMD"
ACTIONS = {
    "exception": f"Read the traceback in launcher.log; {COMMAND_AT_HEAD}.",
    "exit_code": f"Read the end of launcher.log; {COMMAND_AT_HEAD}.",
    "bad_argument": f"Fix the arguments: the program at the beginning of that line does not take them. In launcher.log, {COMMAND_AT_HEAD}.",
    "bad_usage": f"Fix the arguments as the line says. In launcher.log, {COMMAND_AT_HEAD}.",
    "program_missing": "Install the program, or add its folder to PATH.",
    "port_in_use": "End the process that holds the port (`ss -ltnp` names it), or set another one (MASTER_PORT_BASE).",
    "no_slot": "Name GPUs that `nvidia-smi -L` lists (INCLUDE).",
    "native_crash": "A library crashed below Python: PYTHONFAULTHANDLER=1 before the command prints the stack.",
    "nccl_transport": "Check that the ranks reach one another (interface, firewall, peer access); NCCL_DEBUG=INFO before the command says "
    "more.",
    "master_address": "Name the rendezvous address (--master_addr): the first of `hostname -I` is often another network's.",
    "peer_lost": "Another rank ended first and printed no reason: launcher.log has what each of them printed last.",
    "timeout_command": "See in train.log whether it was slow or hung; raise RUN_TIMEOUT_SEC only if it was slow.",
}
AS_FOR_ANY_JOB = ("loopback_address",)
"""Entries whose advice for a job that no campaign started fits here too."""
TIMEOUT_CODE = 124
STALLED_CODE = 125
"""A timeout too where steps were left to do; `timeout` itself exits so where it could not start the command."""
NUM_SIGNALS = 64
TERM = 15
LOG_TAIL_LINES = 80
UNINFORMATIVE = (Cause.EXIT_CODE, Cause.UNKNOWN, Cause.NONE)
"""Causes that add nothing to the exit code."""


def outcome_of(attempt: OriginalAttempt, attempt_number: int, spec: RunSpec, span: Span) -> RunOutcome:
    """How the attempt ended, and why; lines of the log are masked, as the record is sent around."""
    # The trainer's lines, then the launcher's, which show the end.
    lines = (*(attempt.segment.lines if attempt.segment else ()), *(attempt.block.output if attempt.block else ()))
    outcome, found = _ending(attempt, lines, spec, span)
    is_start_known = attempt.block is not None and attempt.block.start_local_s is not None
    return RunOutcome(
        run=spec.run,
        attempt=attempt_number,
        hash=spec.hash,
        outcome=outcome,
        cause=found.cause,
        detail=mask_text(found.detail),
        action=found.action,
        exit_code=attempt.row.exit_code if attempt.row else None,
        # An estimated start would give a start-up time that was never measured.
        started_t=span.first_t or 0.0 if is_start_known else 0.0,
        ended_t=span.last_t or 0.0,
        duration_s=span.duration_s,
        port=whole(attempt.cells.get("port")),
        log_tail=mask_lines(lines[-LOG_TAIL_LINES:]) if outcome is not Outcome.OK else (),
        signature=found.signature,
        fault=fault_named(found.signature),
        telling=mask_lines(found.telling),
    )


def action_of(signature: str, of_campaigns: str) -> str:
    """The advice of that entry for such a run; `of_campaigns` where nothing in it is of a campaign of ours."""
    return advice_without_plan(signature) if signature in AS_FOR_ANY_JOB else ACTIONS.get(signature, of_campaigns)


def _ending(attempt: OriginalAttempt, lines: tuple[str, ...], spec: RunSpec, span: Span) -> tuple[Outcome, Diagnosis]:
    """`timeout` ends a run with exit code 124, and stalled runs were seen to end with 125; 128 plus a signal's number is how a shell
    reports a signal. A cause in the end of the log comes before the code."""
    row = attempt.row
    if row is None:
        detail = "run_manifest.tsv has no row of this attempt: it was interrupted, or the row was lost"
        return Outcome.INTERRUPTED, _known(Cause.HARNESS_LOST, detail, "run it again")
    if row.is_success:
        return Outcome.OK, Diagnosis(cause=Cause.NONE, detail="", action="", signature="")
    found = diagnose(_as_signal(row.exit_code), lines)
    found = replace(found, action=action_of(found.signature, found.action))
    has_steps_left = attempt.last_step is not None and spec.steps is not None and attempt.last_step < spec.steps - 1
    if row.exit_code == TIMEOUT_CODE or (row.exit_code == STALLED_CODE and has_steps_left):
        if found.cause not in UNINFORMATIVE:
            return Outcome.TIMEOUT, found
        how = f"`timeout` ended it (exit code {TIMEOUT_CODE})"
        if row.exit_code == STALLED_CODE:
            how = f"it was ended at step {attempt.last_step} of {(spec.steps or 1) - 1} (exit code {STALLED_CODE})"
        advice = "see in train.log whether it was slow or hung; raise RUN_TIMEOUT_SEC only if it was slow"
        return Outcome.TIMEOUT, _known(Cause.RUN_LIMIT, f"{how} after {format_duration(span.duration_s)}", advice)
    if attempt.segment is None and row.exit_code == SHELL_SIGNALS + TERM:
        detail = "ended from outside before train.log existed, as the driver does after MAX_WAIT_TRAIN_LOG_SEC"
        advice = "read in launcher.log what it was waiting for; raise the limit if the start is only slow"
        return Outcome.TIMEOUT, _known(Cause.START_LIMIT, detail, advice)
    return Outcome.FAILED, found


def _known(cause: Cause, detail: str, action: str) -> Diagnosis:
    return Diagnosis(cause=cause, detail=detail, action=action, signature=cause.value)


def _as_signal(exit_code: int | None) -> int | None:
    """The driver's exit codes are a shell's: 137 is signal 9."""
    if exit_code is not None and SHELL_SIGNALS < exit_code <= SHELL_SIGNALS + NUM_SIGNALS:
        return SHELL_SIGNALS - exit_code
    return exit_code


# Lines that must not come from both logs. TimingRank lines may be in either: there, a repeated step does no harm.
PRINTED_ONCE = re.compile(r"(?<!Val )\bStep \d+: Loss |\bTiming\(window=|\bTimingETA ")


def merge_logs(attempt: OriginalAttempt, zone_s: float) -> tuple[str, str]:
    """launcher.log and train.log of one attempt as the one log that our readers take, and its launcher_arrivals.csv: the launcher's lines
    first, then the trainer's, each of which arrived at its timestamp. Lines in both logs are taken once; timing lines that train.log lacks
    are the launcher's."""
    before = attempt.block.head if attempt.block else ()
    output = attempt.block.output if attempt.block else ()
    # Without a segment the trainer's lines, if any, are in the launcher's output.
    stamped = attempt.segment.lines if attempt.segment else output
    if attempt.segment:
        own, has_steps = set(stamped), bool(attempt.segment.steps)
        before = (*before, *(line for line in output if line not in own and not (has_steps and PRINTED_ONCE.search(line))))
        stamped = _with_missing_timing(stamped, output) if has_steps else stamped
    rows = [",".join(ARRIVALS), *_arrivals(stamped, sum(map(_size_bytes, before)), zone_s)]
    log, arrivals = ("".join(f"{line}\n" for line in lines) for lines in ((*before, *stamped), rows))
    return log, arrivals


TIMING_KINDS = (STAGE1_TIMING, STAGE1_ETA)


def _with_missing_timing(own: Sequence[str], output: Sequence[str]) -> tuple[str, ...]:
    """Lines of train.log, with the timing lines of launcher.log that it lacks behind their step: without them the figures of a run would
    be those of the few points that are left."""
    known, printed = _timing_by_step(own), _timing_by_step(output)
    missing: dict[int, list[str]] = {}
    for step, (step_line, timing) in printed.items():
        lacking = [line for kind, line in timing.items() if step not in known or kind not in known[step][1]]
        # A timing line has no step number: it belongs to the step line before it.
        missing[step] = [step_line, *lacking] if lacking and step not in known else lacking
    merged: list[str] = []
    left = sorted(step for step, lines in missing.items() if lines)
    for line in own:
        current = step_in(line)
        while current is not None and left and left[0] < current:
            merged += missing[left.pop(0)]
        merged.append(line)
        if current is not None and left and left[0] == current:
            merged += missing[left.pop(0)]
    return (*merged, *(line for step in left for line in missing[step]))


def _timing_by_step(lines: Sequence[str]) -> dict[int, tuple[str, dict[int, str]]]:
    """Step → its line, and the first timing line of each kind after it."""
    found: dict[int, tuple[str, dict[int, str]]] = {}
    current: dict[int, str] | None = None
    for line in lines:
        if (step := step_in(line)) is not None:
            current = found.setdefault(step, (line, {}))[1]
        elif current is not None:
            kind = next((at for at, pattern in enumerate(TIMING_KINDS) if pattern.search(line)), None)
            if kind is not None:
                current.setdefault(kind, line)
    return found


def _arrivals(lines: Sequence[str], offset_bytes: int, zone_s: float) -> Iterator[str]:
    first_s: float | None = None
    for line in lines:
        offset_bytes += _size_bytes(line)
        time_s = local_s(line)
        if time_s is not None:
            first_s = time_s if first_s is None else first_s
            # There was no monotonic clock: the time since the first line replaces it.
            yield f"{offset_bytes},{time_s - zone_s:.6f},{time_s - first_s:.6f}"


def _size_bytes(line: str) -> int:
    return len(line.encode(errors="backslashreplace")) + 1
