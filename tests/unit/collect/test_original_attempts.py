"""Attempts of the original scripts: rows and logs matched, specs, outcomes, merged logs."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from seatrial.collect.original.attempt_records import (
    ACTIONS,
    AS_FOR_ANY_JOB,
    action_of,
    effective_of,
    identified,
    merge_logs,
    outcome_of,
    provenance_of,
    settings_of,
    spec_of,
    typed,
)
from seatrial.collect.original.manifests import Row, read_manifests
from seatrial.collect.original.runs import LauncherBlock, OriginalAttempt, Segment, local_s, pair_attempts, read_runs, span_of
from seatrial.records.outcome import RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.signatures.registry import signatures
from tests.original_campaign import FIRST_START, OLD_COLUMNS, OriginalRun, ab_run, sweep_run, train_lines, write_original_campaign
from tests.original_campaign import OriginalAttempt as Written


def row(status: str, last_step: int | None, duration_s: int = 200) -> Row:
    cells = {"group": "g", "repeat": "1", "status": status, "exit_code": "0" if status == "success" else "1"}
    return Row(cells={**cells, "duration_sec": str(duration_s), **({} if last_step is None else {"last_step": str(last_step)})})


def segment(last_step: int, minutes: int = 0) -> Segment:
    return Segment(tuple(train_lines(sweep_run(), Written(last_step=last_step), FIRST_START + timedelta(minutes=minutes))))


def block(minutes: int = 0) -> LauncherBlock:
    start: datetime = FIRST_START + timedelta(minutes=minutes)
    return LauncherBlock(meta={"timestamp": start.isoformat(timespec="seconds")})


def shape(attempts: list[OriginalAttempt]) -> list[tuple[str, int | None, bool]]:
    return [
        (one.row.cells["status"] if one.row else "", one.segment.last_step if one.segment else None, one.block is not None)
        for one in attempts
    ]


FAILED_100, OK_300 = row("failed", 100), row("success", 300)


@pytest.mark.parametrize(
    ("rows", "segments", "blocks", "expected"),
    [
        pytest.param(
            [FAILED_100, OK_300],
            [segment(100), segment(300, 10)],
            [block(10)],
            [("failed", 100, False), ("success", 300, True)],
            id="failed, then success, and launcher.log of the last",
        ),
        pytest.param(
            [FAILED_100, OK_300],
            [segment(100), segment(300, 10)],
            [block(), block(10)],
            [("failed", 100, True), ("success", 300, True)],
            id="both in launcher.log",
        ),
        pytest.param(
            [row("failed", None), OK_300],
            [segment(300, 10)],
            [block(10)],
            [("failed", None, False), ("success", 300, True)],
            id="failed before train.log",
        ),
        # The driver reads the last step out of train.log, also where the newest attempt never wrote to it.
        pytest.param([FAILED_100] * 2, [segment(100)], [block(10)], [("failed", 100, False), ("failed", None, True)], id="step repeated"),
        pytest.param([OK_300], [segment(150), segment(300, 10)], [block(10)], [("", 150, False), ("success", 300, True)], id="cut first"),
        pytest.param([OK_300], [segment(300), segment(150, 10)], [block(10)], [("success", 300, False), ("", 150, True)], id="cut last"),
        pytest.param([OK_300], [segment(300)], [block(10)], [("success", 300, False), ("", None, True)], id="cut before train.log"),
        pytest.param([], [segment(50)], [block()], [("", 50, True)], id="cut, no row"),
        pytest.param([], [], [block()], [("", None, True)], id="block alone"),
        pytest.param([], [], [], [], id="nothing"),
        pytest.param([row("failed", 5), OK_300], [], [], [("failed", None, False), ("success", None, False)], id="rows alone"),
        pytest.param(
            [FAILED_100, row("success", 250)],
            [segment(150), segment(300, 10)],
            [],
            [("failed", 150, False), ("success", 300, False)],
            id="as many segments as rows, other last steps",
        ),
    ],
)
def test_rows_segments_and_blocks_are_paired(
    rows: list[Row], segments: list[Segment], blocks: list[LauncherBlock], expected: list[tuple[str, int | None, bool]]
) -> None:
    assert shape(pair_attempts(rows, segments, blocks)) == expected


def attempts(folder: Path, *runs: OriginalRun, **odd: object) -> list[OriginalAttempt]:
    write_original_campaign(folder, *runs, **odd)  # type: ignore[arg-type]
    return [run.newest for run in read_runs(folder, read_manifests(folder).rows)[0]]


def specs(found: list[OriginalAttempt]) -> list[RunSpec]:
    return identified([spec_of(one, one.cells["group"], int(one.cells["repeat"]), 10) for one in found])


def test_a_sweep_run(tmp_path: Path) -> None:
    (spec,) = specs(attempts(tmp_path, sweep_run(1, 160, 8, 2, repeat=3, rank_scope="all")))
    assert (spec.run, spec.group, spec.repeat, spec.mode) == ("sweep_z1_mb160_nw8_pf2_r3", "sweep_z1_mb160_nw8_pf2", 3, "sweep")
    assert spec.axes == {"zero_stage": 1, "micro_batch": 160, "num_workers": 8, "prefetch_factor": 2}
    assert spec.labels == {"zero_stage": "z", "micro_batch": "mb", "num_workers": "nw", "prefetch_factor": "pf"}
    assert spec.settings["deterministic"] is False and spec.settings["log_every"] == 50 and spec.settings["precision_mode"] == "auto"
    assert spec.settings["dataset_manifest_path"] == "data/LibriSpeech/LibriSpeech_16k_trim/manifest_16k_trim.tsv"
    # 0 to 300, both counted.
    assert (spec.steps, spec.timing.tail_points, spec.timing.log_every, spec.rank_scope) == (301, 10, 50, "all")
    assert (spec.place.ranks, spec.place.devices, spec.launcher.kind, spec.workload.samples_per_step) == (2, ("0", "1"), "deepspeed", 160.0)
    assert spec.telemetry.gpu_s == 2.0 and spec.workload.reads == "seed" and "++train.max_step_iterations=300" in spec.workload.args


def test_groups_of_the_ab_mode_are_bundles(tmp_path: Path) -> None:
    old, tuned = specs(attempts(tmp_path, ab_run("old_like"), ab_run("tuned")))
    assert old.axes == {"variant": "old_like"} and tuned.axes == {"variant": "tuned"} and old.labels == {}
    assert old.settings["log_every"] == 1 and old.settings["deterministic"] is True and tuned.settings["validation_every_steps"] == 5000


def test_a_row_of_an_older_version_is_filled_from_the_log(tmp_path: Path) -> None:
    old, new = specs(attempts(tmp_path / "old", sweep_run(), columns=OLD_COLUMNS)), specs(attempts(tmp_path / "new", sweep_run()))
    assert old[0].axes == new[0].axes and old[0].steps == new[0].steps
    assert old[0].settings["num_workers"] == 6 and old[0].settings["attn_impl"] == "auto"


def test_hashes_use_settings_that_all_attempts_of_a_group_have(tmp_path: Path) -> None:
    known = specs(attempts(tmp_path / "a", sweep_run(repeat=1), sweep_run(repeat=2), sweep_run(0, 160)))
    assert known[0].group_key == known[1].group_key != known[2].group_key and known[0].hash != known[1].hash
    fewer = dataclasses.replace(known[1], settings={"micro_batch": 128}, steps=None)
    first, second = identified([known[0], fewer])
    assert first.group_key == second.group_key and second.steps == 301
    other = dataclasses.replace(known[1], settings={"micro_batch": 256})
    first, second = identified([known[0], other])
    assert first.group_key != second.group_key


def test_steps_by_the_command_the_estimates_or_a_successful_end(tmp_path: Path) -> None:
    (by_eta,) = attempts(tmp_path / "a", sweep_run(launcher_log=False))
    assert spec_of(by_eta, "g", 1, 20).steps == 301
    (cut,) = attempts(tmp_path / "b", sweep_run(launcher_log=False, attempts=(Written(status="failed", exit_code=1, last_step=0),)))
    assert spec_of(cut, "g", 1, 20).steps is None


def test_ranks_by_row_else_command_else_lines(tmp_path: Path) -> None:
    (by_command,) = attempts(tmp_path / "a", sweep_run(world_size=0))
    assert spec_of(by_command, "g", 1, 20).place.ranks == 2
    (unknown,) = attempts(tmp_path / "b", sweep_run(world_size=0, launcher_log=False))
    assert spec_of(unknown, "g", 1, 20).place.ranks == 1


def test_effective_settings() -> None:
    cells = {"attn_impl_req": "flash_attention_2", "attn_impl_effective": "sdpa", "precision_mode_req": "auto", "tf32_enabled": "1"}
    assert effective_of(cells | {"precision_mode_effective": "bf16"}) == {
        "precision_mode": ("auto", "bf16", ""),
        "attn_impl": ("flash_attention_2", "sdpa", "replaced by the original driver"),
        "tf32_enabled": (None, True, ""),
    }
    assert effective_of({}) == {} and settings_of({}) == {}


def test_cells_are_typed() -> None:
    assert [typed("x", text) for text in ("true", "False", "8", "2.5", "1", "sdpa", "1e400")] == [True, False, 8, 2.5, 1, "sdpa", "1e400"]
    assert typed("deterministic", "0") is False and typed("tf32_enabled", "1") is True


def test_the_machine_by_row_and_run_context() -> None:
    runtime = {"hostname": "node-7", "python": "3.10.1", "torch_version": "2.4.0", "cuda_version": None, "devices": [1]}
    found = provenance_of({"gpu_name": "RTX", "git_commit_short": "abc"}, {"runtime": runtime})
    assert (found.host, found.packages, found.gpu_name, found.git_commit_hash, found.cuda) == (
        "node-7",
        {"torch": "2.4.0"},
        "RTX",
        "abc",
        "",
    )
    assert found.fingerprint and provenance_of({}, ["no", "mapping"]).host == "" and provenance_of({}, {"runtime": 3}).python == ""


OOM = ("Traceback (most recent call last):", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
SEGMENT = Segment(tuple(train_lines(sweep_run(), Written(last_step=100), FIRST_START)))
START = {"timestamp": FIRST_START.isoformat(timespec="seconds")}
ZONE_S = 8 * 3600.0


def ended(
    code: int | None, *output: str, status: str = "failed", segment: Segment | None = SEGMENT, meta: dict[str, str] = START
) -> RunOutcome:
    cells = {"group": "g", "repeat": "1", "status": status, "duration_sec": "1800", "port": "29650"}
    row = Row(cells=cells if code is None else {**cells, "exit_code": str(code)})
    attempt = OriginalAttempt(row=row, segment=segment, block=LauncherBlock(meta=meta, output=output))
    return outcome_of(attempt, 2, spec_of(attempt, "g", 1, 20), span_of(attempt, ZONE_S))


@pytest.mark.parametrize(
    ("code", "output", "how", "why"),
    [
        (124, (), "timeout", "run_limit"),
        (124, OOM, "timeout", "cuda_oom"),
        (124, ("Connection reset by peer",), "timeout", "run_limit"),
        (137, (), "failed", "killed"),
        (137, OOM, "failed", "cuda_oom"),
        (137, ("Connection reset by peer",), "failed", "killed"),
        (139, (), "failed", "native_crash"),
        (125, (), "timeout", "run_limit"),
        (1, OOM, "failed", "cuda_oom"),
        (1, ("RuntimeError: The server socket has failed to listen: EADDRINUSE, Address already in use",), "failed", "port_in_use"),
        (1, (), "failed", "exit_code"),
    ],
)
def test_outcome_and_cause(code: int, output: tuple[str, ...], how: str, why: str) -> None:
    found = ended(code, *output)
    assert (found.outcome.value, found.cause.value, found.exit_code) == (how, why, code)
    assert found.detail and found.action and found.log_tail


@pytest.mark.parametrize(
    ("code", "output", "id", "fault"),
    [
        (1, OOM, "cuda_oom", "configuration"),
        (1, ("OSError: [Errno 5] Input/output error",), "io_error", "infrastructure"),
        (124, (), "run_limit", "unknown"),
        (1, (), "exit_code", "unknown"),
    ],
)
def test_signature_and_fault(code: int, output: tuple[str, ...], id: str, fault: str) -> None:
    found = ended(code, *output)
    assert (found.signature, found.fault.value) == (id, fault)
    assert (ended(0, status="success").signature, ended(0, status="success").fault.value) == ("", "unknown")


def test_exit_code_125_is_a_timeout_only_with_steps_left() -> None:
    whole = Segment(tuple(train_lines(sweep_run(), Written(), FIRST_START)))
    assert (ended(125).cause.value, ended(125).outcome.value) == ("run_limit", "timeout") and "step 100 of 300" in ended(125).detail
    assert ended(125, segment=whole).cause.value == "exit_code" and ended(125, segment=None).cause.value == "exit_code"


def test_advice_names_nothing_that_such_a_run_lacks() -> None:
    absent = ("command.sh", "limits.", "place.", "`env`", "in the plan", "`seatrial ", "stacks/", "for Seatrial to choose")
    reached = [entry for entry in signatures() if entry.patterns or entry.exit_codes or entry.id in ("exception", "exit_code", "unknown")]
    actions = {entry.id: action_of(entry.id, entry.action) for entry in reached}
    assert {id: action for id, action in actions.items() if not action or any(word in action for word in absent)} == {}
    assert {*ACTIONS, *AS_FOR_ANY_JOB} <= set(actions) and ended(1, "ValueError: no such key").action == ACTIONS["exception"]


def test_a_successful_end() -> None:
    found = ended(0, status="success")
    assert (found.outcome.value, found.cause.value, found.detail, found.log_tail) == ("ok", "none", "", ())
    assert (found.run, found.attempt, found.port, found.duration_s) == ("g_r1", 2, 29650, 1800.0)
    assert found.started_t == FIRST_START.timestamp() and found.ended_t == found.started_t + 1800


def test_ended_before_train_log_existed() -> None:
    assert ended(143, segment=None).cause.value == "start_limit"
    assert ended(143).cause.value == "exit_code"


def test_without_a_row_it_was_interrupted() -> None:
    attempt = OriginalAttempt(segment=SEGMENT, block=LauncherBlock(meta=START))
    found = outcome_of(attempt, 1, spec_of(attempt, "g", 1, 20), span_of(attempt, ZONE_S))
    assert (found.outcome.value, found.exit_code) == ("interrupted", None)
    # 30 s of start-up and 100 steps of half a second.
    assert found.duration_s == pytest.approx(80.0)


def test_an_unknown_start_is_not_estimated() -> None:
    found = ended(0, status="success", meta={})
    assert found.started_t == 0.0 and found.ended_t == FIRST_START.timestamp() + 80
    assert ended(1, segment=None, meta={}).ended_t == 0.0


def test_secrets_are_masked() -> None:
    token = "hf_abcdefghijklmnopqrstuvwxyz012345"
    found = ended(1, f"ValueError: no access with {token}")
    assert token not in repr(found)


HEADER = "offset_bytes,t,m"

STAMP = "2026-02-18 17:56:{second:02},000"
HEAD = ("=== META ===", "group=g")
STEP = f"{STAMP.format(second=20)} INFO Step 10: Loss 2.5"
LATER = f"{STAMP.format(second=23)} INFO Step 20: Loss 2.0 €"


def first_t(zone_s: float) -> float:
    found = local_s(STEP)
    assert found is not None
    return found - zone_s


def test_logs_of_an_attempt_without_any() -> None:
    assert merge_logs(OriginalAttempt(), 0.0) == ("", f"{HEADER}\n")


def test_the_launchers_lines_come_first_and_stamped_ones_have_their_times() -> None:
    attempt = OriginalAttempt(block=LauncherBlock(meta={}, head=HEAD, output=("starting",)), segment=Segment((STEP, "  rest of it", LATER)))
    log, arrivals = merge_logs(attempt, 3600.0)
    assert log.splitlines() == [*HEAD, "starting", STEP, "  rest of it", LATER]
    ends = [log.encode().index(line.encode()) + len(line.encode()) + 1 for line in (STEP, LATER)]
    t = first_t(3600.0)
    assert arrivals.splitlines() == [HEADER, f"{ends[0]},{t:.6f},0.000000", f"{ends[1]},{t + 3:.6f},3.000000"]


def test_lines_that_both_logs_hold_are_taken_once() -> None:
    repeated = "Step 10: Loss 2.5"
    validation = "Val Step 10: Loss 2.4"
    attempt = OriginalAttempt(block=LauncherBlock(meta={}, output=(STEP, repeated, validation)), segment=Segment((STEP,)))
    assert merge_logs(attempt, 0.0)[0].splitlines() == [validation, STEP]


def test_without_steps_in_train_log_the_launchers_are_kept() -> None:
    attempt = OriginalAttempt(block=LauncherBlock(meta={}, output=("Step 10: Loss 2.5",)), segment=Segment(("loading",)))
    assert merge_logs(attempt, 0.0)[0].splitlines() == ["Step 10: Loss 2.5", "loading"]


def test_without_train_log_the_launchers_lines_are_timed() -> None:
    attempt = OriginalAttempt(block=LauncherBlock(meta={}, head=HEAD, output=(STEP,)))
    log, arrivals = merge_logs(attempt, 0.0)
    assert log.splitlines() == [*HEAD, STEP] and len(arrivals.splitlines()) == 2


def test_timing_lines_that_train_log_lacks_are_the_launchers() -> None:
    """Of two runs alike the one whose train.log was cut would else have another tail, and the latency winner with it."""
    stamps = [STAMP.format(second=20 + at) for at in range(4)]
    steps = [f"{stamp} INFO Step {10 * at}: Loss 2.5" for at, stamp in enumerate(stamps)]
    timing = [f"{stamp} INFO Timing(window=10): iter_ms p50={10 + at}.0 p90={20 + at}.0" for at, stamp in enumerate(stamps)]
    everything = tuple(line for pair in zip(steps, timing, strict=True) for line in pair)
    # No timing of step 10, and nothing at all of step 20.
    cut = Segment((steps[0], timing[0], steps[1], steps[3], timing[3]))
    log, arrivals = merge_logs(OriginalAttempt(block=LauncherBlock(meta={}, output=everything), segment=cut), 0.0)
    assert log.splitlines() == list(everything) and len(arrivals.splitlines()) == 1 + len(everything)
    # What train.log has is not replaced, and plain steps are not added: their times would be of another clock.
    other = tuple(line.replace("p50=1", "p50=9") for line in everything[:2])
    whole = Segment(everything[:2])
    assert merge_logs(OriginalAttempt(block=LauncherBlock(meta={}, output=(*other, steps[3])), segment=whole), 0.0)[0].splitlines() == [
        *everything[:2]
    ]
