"""Every parser of the project as a function of bytes.

A target takes any bytes without an exception (but those that tell a user what is wrong) and within a time; where it can, it also holds
what must hold of the result. `TARGETS` is the table; the corpus of a target is what it is given to begin with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from polars.testing import assert_frame_equal

from seatrial import files, log_lines, tables, units
from seatrial.analyse.measure import measure_run
from seatrial.analyse.telemetry import telemetry_figures
from seatrial.bounded_pattern import BoundedPattern
from seatrial.campaign.owner import read_owner
from seatrial.campaign.results import remake
from seatrial.collect.alarms import alarm_cautions
from seatrial.collect.attempts import read_plans
from seatrial.collect.events.files import read_block, read_block_by_line
from seatrial.collect.events.tables import read_events
from seatrial.collect.failure.cause import diagnose
from seatrial.collect.logs.arrivals import read_arrivals
from seatrial.collect.logs.seed_lines import read_seed_lines
from seatrial.collect.logs.source import stamped_lines
from seatrial.collect.logs.tables import read_logs
from seatrial.collect.manifest import append_manifest, read_manifest
from seatrial.collect.recovered import recovered_cautions
from seatrial.collect.stacks import frame_of, read_stacks
from seatrial.collect.steps import read_steps
from seatrial.collect.stored import read_account, read_outcome, read_plan, read_record, read_spec
from seatrial.collect.telemetry import GPU_READ, HOST_READ, read_sample_file
from seatrial.errors import SeatrialError
from seatrial.machine.git import parse_status
from seatrial.machine.secrets import mask_text, mask_words
from seatrial.observe.growing_log import GrowingLog
from seatrial.observe.progress import ProgressReader
from seatrial.options import torchrun as torchrun_options
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.plan.from_command import mapping_from_command
from seatrial.plan.load import load_plan, parse_scalars, plan_from_mapping
from seatrial.plan.resolve import resolve
from seatrial.records.codec import described, to_json
from seatrial.records.command import AgentOrder, AgentReport, Provenance
from seatrial.records.live import LiveState
from seatrial.records.telemetry import TelemetryTables
from tests.fuzz import made, scratch

RECORDED = Path(__file__).parents[1] / "recorded"
PLANS = Path(__file__).parents[2] / "plans"
OWN_PATTERNS = (r"step\s*=?\s*(?P<step>\d+)(?:/(?P<total>\d+))?", r"loss[=: ]+(?P<loss>\S+)", r"(?P<pause>saving)")
LONGEST_CORPUS_BYTES = 4096


@dataclass(frozen=True)
class Target:
    """One parser and what to begin with."""

    run: Callable[[bytes], object]
    corpus: tuple[bytes, ...] = ()


def _written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _text(data: bytes) -> str:
    """As a terminal gives it to a program: bytes that are no UTF-8 come as surrogates."""
    return data.decode("utf-8", errors="surrogateescape").replace("\0", "")


def plan_yaml(data: bytes) -> None:
    path = _written(scratch.folder() / "plan" / "plan.yaml", data)
    resolve(load_plan(path), source=str(path), cwd=scratch.folder())


def plan_overrides(data: bytes) -> None:
    base = {"name": "p", "workload": "dummy", "axes": {"micro_batch": [4, 8]}, "output": "out", "steps": 10}
    plan = plan_from_mapping(base, "fuzz", _text(data).split("\n"))
    resolve(plan, source="fuzz", cwd=scratch.folder())


def axis_values(data: bytes) -> None:
    parse_scalars(_text(data), "fuzz")


def durations(data: bytes) -> None:
    seconds = units.parse_limit_s(_text(data), "--limit")
    assert seconds > 0
    units.format_duration(seconds)
    units.format_hms(seconds)


def command_words(data: bytes) -> None:
    words = data.decode("utf-8", errors="surrogateescape").split("\0")
    plan = plan_from_mapping(mapping_from_command(words, axes={"bs": [1, 2]}), "fuzz")
    resolve(plan, source="fuzz", cwd=scratch.folder())


def torchrun_words(data: bytes) -> None:
    words = data.decode("utf-8", errors="replace").split("\0")
    split = torchrun_options.split_words(words)
    told = [word for option in split.options for word in option.words] + list(split.rest)
    assert [word for word in words if word != "--"] == [word for word in told if word != "--"]
    torchrun_options.values_in(words)


def events(data: bytes) -> None:
    attempt = made.attempt("events")
    _written(made.paths_of(attempt).events(0), data)
    tables_read, _cautions = read_events(attempt)
    if tables_read is not None:
        measured = measure_run(attempt, tables_read)
        assert measured.samples_per_s is None or math.isfinite(measured.samples_per_s)
        assert attempt.outcome is not None
        assert measured.wall_p50_ms is None or 0 <= measured.wall_p50_ms <= attempt.outcome.duration_s * 1100 + 1000
    if b"\0" not in data:
        assert_frame_equal(read_block(data), read_block_by_line(data))


def heartbeats(data: bytes) -> None:
    attempt = made.attempt("heartbeats")
    path = _written(made.paths_of(attempt).heartbeat(0), data)
    list(files.read_json_lines(path))
    files.last_json_lines(path, 2)
    ProgressReader(attempt.spec, made.paths_of(attempt)).look()


def logs_of_known_formats(data: bytes) -> None:
    attempt = made.attempt("logs")
    _written(made.paths_of(attempt).launcher_log, data)
    measure_run(attempt, read_steps(attempt))
    GrowingLog(attempt.spec, made.paths_of(attempt)).look()


def logs_by_own_patterns(data: bytes) -> None:
    attempt = made.attempt("own", OWN_PATTERNS)
    _written(made.paths_of(attempt).launcher_log, data)
    read_logs(attempt)
    GrowingLog(attempt.spec, made.paths_of(attempt)).look()


def own_pattern(data: bytes) -> None:
    pattern, _, line = data[:300].decode("utf-8", errors="replace").partition("\n")
    log_lines.values_in(line, [BoundedPattern(one, longest_s=0.05) for one in log_lines.compile_patterns([pattern])])


def arrivals(data: bytes) -> None:
    attempt = made.attempt("arrivals")
    paths = made.paths_of(attempt)
    _written(paths.launcher_log, (RECORDED / "logs" / "nanogpt.log").read_bytes())
    found = read_arrivals(_written(paths.arrivals, data))
    assert all(one.end_bytes < later.end_bytes and not later.m < one.m for one, later in zip(found.rows, found.rows[1:], strict=False))
    read_logs(attempt)


def seed_lines(data: bytes) -> None:
    path = _written(scratch.folder() / "seed" / "train.log", data)
    read_seed_lines(list(stamped_lines(path, [])))


def failures(data: bytes) -> None:
    code = (None, 0, 1, -9, -6, 3, 137, 255)[data[0] % 8] if data else None
    found = diagnose(code, data[1:].decode("utf-8", errors="replace").splitlines())
    assert found.detail and found.action


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
    figures = telemetry_figures(found, None, None, None, 100.0)
    assert all(math.isfinite(cell) for cell in figures.values() if isinstance(cell, float))


def records(data: bytes) -> None:
    """Files of one record each, and the way back for those that are read."""
    paths = made.paths_of(made.attempt("records"))
    for path in (paths.spec, paths.outcome, paths.telemetry, paths.provenance, paths.recovered, paths.folder / "plan.json"):
        _written(path, data)
    read = [read_spec(paths), read_outcome(paths), read_account(paths), read_record(Provenance, paths.provenance)]
    read.append(read_plan(paths.folder / "plan.json"))
    for record, _ in read:
        assert record is None or described(type(record), json.loads(json.dumps(to_json(record)))) == record
    recovered_cautions(paths.folder)


def reports_of_the_agent(data: bytes) -> None:
    value = files.json_object(data)
    for kind in (AgentReport, AgentOrder, LiveState):
        record = described(kind, value)
        assert record is None or described(kind, to_json(record)) == record


def alarms(data: bytes) -> None:
    list(alarm_cautions("run", _written(scratch.folder() / "alarms" / "alarms.jsonl", data)))


def stacks(data: bytes) -> None:
    paths = AttemptPaths(scratch.folder() / "stacks" / "attempt-1")
    _written(paths.rank_stack(0), data)
    _written(paths.process_stack(77), data)
    for stack in read_stacks(paths):
        frame_of(stack)


def owner_and_plans(data: bytes) -> None:
    paths = CampaignPaths(scratch.folder() / "owned")
    for path in (paths.owner, paths.plan, paths.plans / "p.json", paths.progress):
        _written(path, data)
    read_owner(paths)
    read_plans(paths)


def secrets(data: bytes) -> None:
    mask_text(_text(data))
    mask_words(_text(data).split("\n"))


def git_status(data: bytes) -> None:
    parse_status(_text(data))


FILES_OF_A_RUN = ("spec.json", "outcome.json", "provenance.json", "events_rank0.jsonl", "events_rank1.jsonl", "gpu_telemetry.csv",
                  "host_telemetry.csv", "alarms.jsonl", "telemetry.json", "launcher.log")  # fmt: skip


def whole_report(data: bytes) -> None:
    """One file of a campaign replaced, and the report made."""
    if not data:
        return
    path = made.campaign() / "mb16_r1" / "attempt-1" / FILES_OF_A_RUN[data[0] % len(FILES_OF_A_RUN)]
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(data[1:])
    try:
        results = remake(made.campaign())
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
    folder = made.campaign() / "mb16_r1" / "attempt-1"
    return tuple((folder / name).read_bytes()[:LONGEST_CORPUS_BYTES] for name in names)


def all_targets() -> dict[str, Target]:
    """The table; made late, as the corpus is read and written."""
    event_text, telemetry_text = _of_attempt("events_rank0.jsonl"), _of_attempt("gpu_telemetry.csv", "host_telemetry.csv")
    record_text = _of_attempt("spec.json", "outcome.json", "provenance.json")
    words = (b"torchrun\0--nproc-per-node=2\0train.py\0--bs\0{bs}", b"python\0-m\0train\0--lr={bs}", b"A=1\0./job.sh\0{bs}")
    stack = (
        b'Thread 0x00007f (most recent call first):\n  File "train.py", line 41 in step\n# rank 0 pid 77\nThread 41 (idle): "MainThread"\n'
    )
    return {
        "plan YAML": Target(plan_yaml, tuple(_plans())),
        "overrides (--set)": Target(plan_overrides, (b"repeats=3", b"axes.micro_batch=[8,16]\nsettings.d_model=64", b"limits.run_s=2h")),
        "values of an axis (-P)": Target(axis_values, (b"8,16", b"[a, 1e-3, true]")),
        "durations and limits": Target(durations, (b"1h30m", b"90s", b"1.5 d")),
        "command words (sweep)": Target(command_words, words),
        "torchrun options": Target(torchrun_words, words),
        "event lines": Target(events, event_text),
        "heartbeats": Target(heartbeats, _of_attempt("heartbeat_rank0.jsonl")),
        "logs of known formats": Target(logs_of_known_formats, _all_logs()),
        "logs by own patterns": Target(logs_by_own_patterns, (b"step 1/40 loss=2.5\nsaving\nstep 2/40 loss=nan\n", *_recorded("seed.log"))),
        "a plan's own pattern": Target(
            own_pattern, (rb"(?P<step>\d+)" + b"\nstep 41", rb"(?P<step>(a+)+)b" + b"\naaaaaaaaaaaaaaaaaaaaaaaaaaaaac")
        ),
        "arrivals of output": Target(arrivals, (b"offset_bytes,t,m\n100,1.5,2.5\n400,2.5,3.5\n", *_recorded("hf_trainer_arrivals.csv"))),
        "the seeds' timing lines": Target(seed_lines, _recorded("seed.log")),
        "failures": Target(failures, tuple(b"\2" + text for text in (*_all_logs(), b"RuntimeError: CUDA out of memory."))),
        "manifest": Target(manifest, (b"run\toutcome\tmode\na_r2\tok\tsweep\n",)),
        "tables": Target(csv_tables, (b'a,b\n1,"x,y"\n', b"a\tb\n1\t2\n")),
        "telemetry": Target(telemetry, telemetry_text),
        "records": Target(records, record_text),
        "reports of the agent": Target(reports_of_the_agent, (b'{"kind": "gone", "t": 1.5, "killed": 2}',)),
        "alarms": Target(alarms, (b'{"kind": "spike", "ratio": 2.5, "text": "steps take 50 ms"}\n',)),
        "stacks": Target(stacks, (stack,)),
        "owner and plans": Target(owner_and_plans, (b'{"pid": 1, "host": "a", "token": "b", "since_t": 2.0}',)),
        "secrets": Target(secrets, (b"HF_TOKEN=hf_abcdefghij --password x https://me:pw@host/a",)),
        "git status": Target(git_status, (b"# branch.oid 12ab\n# branch.head main\n1 .M N... a b c file.py\n",)),
        "whole report": Target(whole_report, tuple(bytes([at]) + text for at, text in enumerate(record_text))),
    }


def taken(target: Target, data: bytes) -> None:
    """Give the bytes to the target; an error that tells the user what is wrong is an answer."""
    try:
        target.run(data)
    except SeatrialError as error:
        assert str(error)
