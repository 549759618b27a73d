"""Every parser of the project as a function of bytes.

A target accepts any bytes within a time limit; the only exceptions allowed are errors for the user. Where possible it also checks
invariants of the result. `all_targets` is the table; the corpus of a target is its initial inputs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from polars.testing import assert_frame_equal

from seatrial.analyse.measure import measure_run
from seatrial.analyse.telemetry_summary import WindowSpan, telemetry_figures
from seatrial.campaign.lock import read_owner
from seatrial.collect.attempt_files import recovered_cautions
from seatrial.collect.attempts import alarm_cautions, preflight_cautions, read_campaign, read_plans
from seatrial.collect.event_steps import read_event_steps
from seatrial.collect.events import read_block, read_block_by_line
from seatrial.collect.logs.diagnosis import diagnose
from seatrial.collect.logs.launcher_log import read_arrivals, read_stage1_lines, stamped_lines
from seatrial.collect.manifest import append_manifest, read_manifest
from seatrial.collect.original.translate import translate
from seatrial.collect.run_health import read_health, read_slow_signs
from seatrial.collect.stacks import main_frame, read_stacks
from seatrial.collect.steps import read_log_steps, read_steps
from seatrial.collect.telemetry import GPU_READ, HOST_READ, read_sample_file
from seatrial.core import files, launcher_options, log_lines, tables
from seatrial.core import text as units
from seatrial.core.errors import SeatrialError
from seatrial.core.log_lines import TimedPattern
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.machine.processes import ProcessTree, read_oom_kills, read_process
from seatrial.machine.secrets import mask_argv, mask_text
from seatrial.machine.software import parse_status
from seatrial.machine.telemetry import HostTelemetry
from seatrial.observe.log_progress import LogProgressReader
from seatrial.observe.progress import ProgressReader, latest_rss_bytes
from seatrial.plan.from_command import mapping_from_command
from seatrial.plan.load import load_plan, parse_scalars, plan_from_mapping
from seatrial.plan.resolve import resolve_plan
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.launch import AgentOrder, AgentReport
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import LiveState
from seatrial.records.stored import read_outcome, read_plan, read_record, read_spec, read_telemetry_account
from seatrial.records.telemetry import HOST_COLUMNS, TelemetryTables
from seatrial.results.diagnose import diagnose_logs, find_logs
from seatrial.results.recompute import recompute
from tests.fuzz import scratch
from tests.original_campaign import OriginalAttempt, sweep_run, write_original_campaign
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import write_attempt
from tests.unit.results.campaigns import write_campaign


@cache
def stored_attempt(name: str, patterns: tuple[str, ...] = ()) -> Attempt:
    """An attempt that ended well, one per target."""
    return write_attempt(scratch.folder() / name, factory.spec(ranks=2, workload={"patterns": patterns}))


def paths_of(one: Attempt) -> AttemptPaths:
    return AttemptPaths(Path(one.folder))


@cache
def campaign() -> Path:
    """A whole small campaign."""
    return write_campaign(scratch.folder() / "campaign").folder


RECORDED = Path(__file__).parents[1] / "recorded"
ORIGINAL_RUN = sweep_run(attempts=(OriginalAttempt(max_steps=50, log_every=10),))
PLANS = Path(__file__).parents[2] / "plans"
OWN_PATTERNS = (r"step\s*=?\s*(?P<step>\d+)(?:/(?P<total>\d+))?", r"loss[=: ]+(?P<loss>\S+)", r"(?P<pause>saving)")
LONGEST_CORPUS_BYTES = 4096


@dataclass(frozen=True)
class Target:
    """One parser and its initial inputs."""

    run: Callable[[bytes], object]
    corpus: tuple[bytes, ...] = ()


def _written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _text(data: bytes) -> str:
    """As in argv: bytes that are not UTF-8 become surrogates."""
    return data.decode("utf-8", errors="surrogateescape").replace("\0", "")


def plan_yaml(data: bytes) -> None:
    path = _written(scratch.folder() / "plan" / "plan.yaml", data)
    resolve_plan(load_plan(path), source=str(path), cwd=scratch.folder())


def plan_overrides(data: bytes) -> None:
    base = b"name: p\nworkload: dummy\naxes: {micro_batch: [4, 8]}\noutput: out\nsteps: 10\n"
    plan = load_plan(_written(scratch.folder() / "overrides" / "plan.yaml", base), _text(data).split("\n"))
    resolve_plan(plan, source="fuzz", cwd=scratch.folder())


def axis_values(data: bytes) -> None:
    parse_scalars(_text(data), "fuzz")


def durations(data: bytes) -> None:
    seconds = units.parse_limit_s(_text(data), "--limit")
    assert seconds > 0
    units.format_duration(seconds)
    units.format_hms(seconds)


def sweep_commands(data: bytes) -> None:
    argv = data.decode("utf-8", errors="surrogateescape").split("\0")
    plan = plan_from_mapping(mapping_from_command(argv, axes={"bs": [1, 2]}), "fuzz")
    resolve_plan(plan, source="fuzz", cwd=scratch.folder())


def torchrun_options(data: bytes) -> None:
    argv = data.decode("utf-8", errors="replace").split("\0")
    split = launcher_options.TORCHRUN.parse(argv)
    parsed = [argument for option in split.options for argument in option.typed] + list(split.rest)
    assert [argument for argument in argv if argument != "--"] == [argument for argument in parsed if argument != "--"]
    launcher_options.TORCHRUN.values(argv)


def events(data: bytes) -> None:
    attempt = stored_attempt("events")
    _written(paths_of(attempt).events(0), data)
    tables_read, _cautions = read_event_steps(attempt)
    if tables_read is not None:
        measured = measure_run(attempt, tables_read)
        assert measured.samples_per_s is None or math.isfinite(measured.samples_per_s)
        assert attempt.outcome is not None
        assert measured.wall_p50_ms is None or 0 <= measured.wall_p50_ms <= attempt.outcome.duration_s * 1100 + 1000
    if b"\0" not in data:
        assert_frame_equal(read_block(data), read_block_by_line(data))


def heartbeats(data: bytes) -> None:
    attempt = stored_attempt("heartbeats")
    path = _written(paths_of(attempt).heartbeat(0), data)
    list(files.read_json_lines(path))
    files.last_json_lines(path, 2)
    ProgressReader(attempt.spec, paths_of(attempt)).read()


def logs_of_known_formats(data: bytes) -> None:
    attempt = stored_attempt("logs")
    _written(paths_of(attempt).launcher_log, data)
    measure_run(attempt, read_steps(attempt))
    assert read_health(attempt, 2).tracebacks >= 0
    read_slow_signs(attempt, {})
    LogProgressReader(attempt.spec, paths_of(attempt)).read()


def logs_by_own_patterns(data: bytes) -> None:
    attempt = stored_attempt("own", OWN_PATTERNS)
    _written(paths_of(attempt).launcher_log, data)
    read_log_steps(attempt)
    LogProgressReader(attempt.spec, paths_of(attempt)).read()


def own_pattern(data: bytes) -> None:
    pattern, _, line = data[:300].decode("utf-8", errors="replace").partition("\n")
    log_lines.line_values(line, [TimedPattern(one, longest_s=0.05) for one in log_lines.compile_patterns([pattern])])


def arrivals(data: bytes) -> None:
    attempt = stored_attempt("arrivals")
    paths = paths_of(attempt)
    _written(paths.launcher_log, (RECORDED / "logs" / "nanogpt.log").read_bytes())
    found = read_arrivals(_written(paths.arrivals, data))
    assert all(one.end_bytes < later.end_bytes and not later.m < one.m for one, later in zip(found.rows, found.rows[1:], strict=False))
    read_log_steps(attempt)


def stage1_lines(data: bytes) -> None:
    path = _written(scratch.folder() / "seed" / "train.log", data)
    read_stage1_lines(list(stamped_lines(path, [])))


def failures(data: bytes) -> None:
    code = (None, 0, 1, -9, -6, 3, 137, 255)[data[0] % 8] if data else None
    found = diagnose(code, data[1:].decode("utf-8", errors="replace").splitlines())
    assert found.detail and found.action


def logs_of_any_job(data: bytes) -> None:
    """Two files of one job, split at a NUL, and what the report must never contradict."""
    folder = scratch.folder() / "any job"
    out, _, err = data.partition(b"\0")
    files = [_written(folder / "job.out", out), _written(folder / "job.err", err)]
    report = diagnose_logs(find_logs(files), None)
    assert (report.diagnosis.outcome is Outcome.OK) == (report.diagnosis.cause is Cause.NONE)
    # Losses without steps have neither.
    assert report.steps is None or report.steps.first is None or report.steps.first <= report.steps.last
    if report.diagnosis.cause is not Cause.NONE:
        assert report.diagnosis.detail and report.diagnosis.action


def manifest(data: bytes) -> None:
    path = _written(scratch.folder() / "manifest" / "run_manifest.tsv", data)
    read_manifest(path)
    append_manifest(path, {"run": "a_r1", "outcome": "ok", "axis_x": 3})
    assert any(row.get("run") == "a_r1" for row in read_manifest(path))


def csv_tables(data: bytes) -> None:
    for name, delimiter in (("table.csv", ","), ("table.tsv", "\t")):
        tables.read_table(_written(scratch.folder() / "tables" / name, data), delimiter)


def telemetry(data: bytes) -> None:
    path = _written(scratch.folder() / "telemetry" / "telemetry.csv", data)
    found = TelemetryTables(gpu=read_sample_file(path, GPU_READ).table, host=read_sample_file(path, HOST_READ).table)
    figures = telemetry_figures(found, None, WindowSpan(samples=100.0))
    assert all(math.isfinite(cell) for cell in figures.values() if isinstance(cell, float))
    rss_bytes = latest_rss_bytes(path)
    assert rss_bytes is None or 0 <= rss_bytes < 2**63


def records(data: bytes) -> None:
    """Files of one record each, and the way back for those that are read."""
    paths = paths_of(stored_attempt("records"))
    for path in (paths.spec, paths.outcome, paths.telemetry, paths.provenance, paths.recovered, paths.folder / "plan.json"):
        _written(path, data)
    read = [read_spec(paths), read_outcome(paths), read_telemetry_account(paths), read_record(Provenance, paths.provenance)]
    read.append(read_plan(paths.folder / "plan.json"))
    for record, _ in read:
        assert record is None or from_json_or_none(type(record), json.loads(json.dumps(to_json(record)))) == record
    recovered_cautions(paths.folder)


def reports_of_the_agent(data: bytes) -> None:
    value = files.json_object(data)
    for kind in (AgentReport, AgentOrder, LiveState):
        record = from_json_or_none(kind, value)
        assert record is None or from_json_or_none(kind, to_json(record)) == record


def alarms(data: bytes) -> None:
    list(alarm_cautions("run", _written(scratch.folder() / "alarms" / "alarms.jsonl", data)))


def preflight(data: bytes) -> None:
    list(preflight_cautions(_written(scratch.folder() / "preflight" / "preflight.json", data)))


def files_of_the_kernel(data: bytes) -> None:
    """The same text in every file of /proc that is read."""
    proc = scratch.folder() / "proc"
    for name in ("7/stat", "self/cgroup", "vmstat", "memory.events", "loadavg", "meminfo", "stat", "diskstats", "net/dev"):
        _written(proc / name, data)
    process = read_process(str(proc), 7)
    assert process is None or (process.parent >= 0 and process.cpu_s >= 0)
    ProcessTree(7, proc).read()
    assert all(count >= 0 for count in read_oom_kills(proc, proc).values())
    seconds = iter((100.0, 102.0, 104.0))
    telemetry = HostTelemetry(1, proc=proc, sys=proc, shm=proc, monotonic=lambda: next(seconds))
    for _ in range(2):
        assert set(telemetry.sample()) <= set(HOST_COLUMNS)


def stacks(data: bytes) -> None:
    paths = AttemptPaths(scratch.folder() / "stacks" / "attempt-1")
    _written(paths.rank_stack(0), data)
    _written(paths.process_stack(77), data)
    for stack in read_stacks(paths):
        main_frame(stack)


def owner_and_plans(data: bytes) -> None:
    paths = CampaignPaths(scratch.folder() / "owned")
    for path in (paths.owner, paths.plan, paths.plans / "p.json", paths.progress):
        _written(path, data)
    read_owner(paths)
    read_plans(paths)


def secrets(data: bytes) -> None:
    mask_text(_text(data))
    mask_argv(_text(data).split("\n"))


def git_status(data: bytes) -> None:
    parse_status(_text(data))


FILES_OF_A_RUN = ("spec.json", "outcome.json", "provenance.json", "events_rank0.jsonl", "events_rank1.jsonl", "gpu_telemetry.csv",
                  "host_telemetry.csv", "alarms.jsonl", "telemetry.json", "launcher.log")  # fmt: skip


FILES_OF_AN_ORIGINAL = ("run_manifest.tsv", "summary.json", "host_telemetry.csv", f"{ORIGINAL_RUN.name}/launcher.log",
                        f"{ORIGINAL_RUN.name}/train.log", f"{ORIGINAL_RUN.name}/gpu_telemetry.csv")  # fmt: skip


@cache
def original() -> Path:
    """A small folder of the original scripts."""
    return write_original_campaign(scratch.folder() / "original", ORIGINAL_RUN, root_host_telemetry=True, own_tables=True)


def original_folder(data: bytes) -> None:
    """One file of a folder of the original scripts replaced, and the folder translated."""
    if not data:
        return
    path = original() / FILES_OF_AN_ORIGINAL[data[0] % len(FILES_OF_AN_ORIGINAL)]
    before = path.read_bytes()
    path.write_bytes(data[1:])
    try:
        for one in read_campaign(CampaignPaths(translate(original()))):
            read_steps(one)
    finally:
        path.write_bytes(before)


def whole_report(data: bytes) -> None:
    """One file of a campaign replaced, and the report written."""
    if not data:
        return
    path = campaign() / "mb16_r1" / "attempt-1" / FILES_OF_A_RUN[data[0] % len(FILES_OF_A_RUN)]
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(data[1:])
    try:
        results = recompute(campaign())
    finally:
        path.unlink() if before is None else path.write_bytes(before)
    others = {
        run.attempt.spec.run for run in results.runs if run.attempt.spec.run != "mb16_r1" and run.measure and run.measure.samples_per_s
    }
    assert {"mb8_r1", "mb8_r2"} <= others


def _recorded(*names: str) -> tuple[bytes, ...]:
    return tuple((RECORDED / "logs" / name).read_bytes()[:LONGEST_CORPUS_BYTES] for name in names)


def _all_logs() -> tuple[bytes, ...]:
    return _recorded(*sorted(path.name for path in (RECORDED / "logs").glob("*.log")))


def _plans() -> Iterator[bytes]:
    yield from (path.read_bytes() for path in sorted(PLANS.glob("*.yaml")))


def _of_attempt(*names: str) -> tuple[bytes, ...]:
    folder = campaign() / "mb16_r1" / "attempt-1"
    return tuple((folder / name).read_bytes()[:LONGEST_CORPUS_BYTES] for name in names)


def all_targets() -> dict[str, Target]:
    """The table; built on demand, as the corpora are read from files."""
    event_text, telemetry_text = _of_attempt("events_rank0.jsonl"), _of_attempt("gpu_telemetry.csv", "host_telemetry.csv")
    record_text = _of_attempt("spec.json", "outcome.json", "provenance.json")
    argv = (b"torchrun\0--nproc-per-node=2\0train.py\0--bs\0{bs}", b"python\0-m\0train\0--lr={bs}", b"A=1\0./job.sh\0{bs}")
    stack = (
        b'Thread 0x00007f (most recent call first):\n  File "train.py", line 41 in step\n# rank 0 pid 77\nThread 41 (idle): "MainThread"\n'
    )
    return {
        "plan YAML": Target(plan_yaml, tuple(_plans())),
        "overrides (--set)": Target(plan_overrides, (b"repeats=3", b"axes.micro_batch=[8,16]\nsettings.d_model=64", b"limits.run_s=2h")),
        "values of an axis (-P)": Target(axis_values, (b"8,16", b"[a, 1e-3, true]")),
        "durations and limits": Target(durations, (b"1h30m", b"90s", b"1.5 d")),
        "command words (sweep)": Target(sweep_commands, argv),
        "torchrun options": Target(torchrun_options, argv),
        "event lines": Target(events, event_text),
        "heartbeats": Target(heartbeats, _of_attempt("heartbeat_rank0.jsonl")),
        "logs of known formats": Target(logs_of_known_formats, _all_logs()),
        "logs by own patterns": Target(logs_by_own_patterns, (b"step 1/40 loss=2.5\nsaving\nstep 2/40 loss=nan\n", *_recorded("seed.log"))),
        "a plan's own pattern": Target(
            own_pattern, (rb"(?P<step>\d+)" + b"\nstep 41", rb"(?P<step>(a+)+)b" + b"\naaaaaaaaaaaaaaaaaaaaaaaaaaaaac")
        ),
        "arrivals of output": Target(arrivals, (b"offset_bytes,t,m\n100,1.5,2.5\n400,2.5,3.5\n", *_recorded("hf_trainer_arrivals.csv"))),
        "stage 1's timing lines": Target(stage1_lines, _recorded("seed.log")),
        "failures": Target(failures, tuple(b"\2" + text for text in (*_all_logs(), b"RuntimeError: CUDA out of memory."))),
        "logs of any job": Target(logs_of_any_job, (*_all_logs(), b"step 1: loss 2\0Traceback (most recent call last):\nValueError: x\n")),
        "manifest": Target(manifest, (b"run\toutcome\tmode\na_r2\tok\tsweep\n",)),
        "tables": Target(csv_tables, (b'a,b\n1,"x,y"\n', b"a\tb\n1\t2\n")),
        "telemetry": Target(telemetry, telemetry_text),
        "records": Target(records, record_text),
        "reports of the agent": Target(reports_of_the_agent, (b'{"kind": "gone", "t": 1.5, "killed": 2}',)),
        "alarms": Target(alarms, (b'{"kind": "spike", "ratio": 2.5, "text": "steps take 50 ms"}\n',)),
        "preflight": Target(preflight, (b'[{"name": "ssh", "ok": false, "found": "no", "fix": "x", "refuses": true}]', b"[1, {}]")),
        "files of the kernel": Target(
            files_of_the_kernel,
            (
                b"7 (a) R) S 3 7 7 0 -1 0 0 0 0 0 100 50 20 10 20 0 4 0 9876 8192 25 0",
                b"oom_kill 7\n0::/a\nMemTotal: 1000 kB\nMemAvailable: x kB\ncpu  1 2 3 4 5 6 7 8 0 0\n",
                b"   8  0 sda 1 2 3 4 5 6 7 8 9 10 11\n  eth0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n",
            ),
        ),
        "stacks": Target(stacks, (stack,)),
        "owner and plans": Target(owner_and_plans, (b'{"pid": 1, "host": "a", "token": "b", "since_t": 2.0}',)),
        "secrets": Target(secrets, (b"HF_TOKEN=hf_abcdefghij --password x https://me:pw@host/a",)),
        "git status": Target(git_status, (b"# branch.oid 12ab\n# branch.head main\n1 .M N... a b c file.py\n",)),
        "original folder": Target(
            original_folder, tuple(bytes([index]) + (original() / name).read_bytes() for index, name in enumerate(FILES_OF_AN_ORIGINAL))
        ),
        "whole report": Target(whole_report, tuple(bytes([at]) + text for at, text in enumerate(record_text))),
    }


def taken(target: Target, data: bytes) -> None:
    """Run the target on the bytes; an error for the user is a valid result."""
    try:
        target.run(data)
    except SeatrialError as error:
        assert str(error)
