"""Health of a run: tracebacks and ranks that finished, signs of slowness, debug settings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.analyse.measure import measure_run
from seatrial.campaign.outcome_rules import Ending, RankEndings, judge_ending
from seatrial.collect import run_health
from seatrial.collect.run_health import HEAD_BYTES, debug_of_signs, read_debug_settings, read_health, read_slow_signs
from seatrial.collect.steps import read_steps
from seatrial.core import files
from seatrial.core.paths import AttemptPaths
from seatrial.records.attempt import Attempt, Provenance
from seatrial.records.measure import SlowSign
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import LauncherSpec, TimingSpec, WorkloadSpec
from seatrial.records.signatures.registry import slow_signs
from tests.unit.analyse import factory
from tests.unit.collect.log_texts import BY_ID, HARMLESS_LINES, SLOW_LINES
from tests.unit.collect.on_disk import event, write_attempt, write_events, write_log

RAISED = "[rank1]: Traceback (most recent call last):\n[rank1]:   File 'train.py', line 9\n[rank1]: ValueError: bad sample 17\n"


def counts(attempt: Attempt) -> dict[str, int]:
    return {one.id: one.lines for one in read_health(attempt, 2).harmless}


def write_ends(attempt: Attempt, *, done: int, ranks: int = 2) -> None:
    for rank in range(ranks):
        lines = [event(attempt, rank=rank, step=step, iter_ms=50.0) for step in range(20)]
        last = [event(attempt, "stop", rank=rank, steps=20)] if rank < done else []
        write_events(attempt, rank, "\n".join([*lines, *last]) + "\n")


def test_harmless_lines_of_a_good_run_are_counted(tmp_path: Path) -> None:
    assert judge_ending(Ending(returncode=0), RankEndings(started=2, done=2, stepped=True), 2, None).outcome is Outcome.OK
    attempt = write_attempt(tmp_path, factory.spec(ranks=2))
    write_ends(attempt, done=2)
    write_log(attempt, "\n".join(["step 1", *HARMLESS_LINES, "step 2", HARMLESS_LINES[0]]) + "\n")

    found = measure_run(attempt, read_steps(attempt)).health

    assert found is not None
    assert (found.ranks, found.ranks_ended_well, found.tracebacks) == (2, 2, 0)
    assert {one.id: one.lines for one in found.harmless} == {**{id: len(lines) for id, lines in BY_ID.items()}, "triton_autotune": 4}
    assert all(one.meaning.endswith(".") for one in found.harmless)


@pytest.mark.parametrize("reads", ["auto", "none"])
def test_health_of_a_run_without_the_probe(tmp_path: Path, reads: str) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2, workload={"reads": reads}))
    write_log(attempt, f"hello\n{HARMLESS_LINES[0]}\n")
    found = read_steps(attempt).health
    assert found is not None and (found.ranks_ended_well, len(found.harmless)) == (2, 1)


def test_finished_ranks_of_a_failed_run(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=3), outcome=Outcome.FAILED, cause=Cause.EXCEPTION)
    write_ends(attempt, done=2, ranks=3)
    write_log(attempt, RAISED + RAISED)
    found = read_health(attempt, 3)
    assert (found.ranks_ended_well, found.tracebacks, found.harmless) == (2, 2, ())


def test_finished_ranks_may_be_unknown(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=2), outcome=Outcome.FAILED)
    assert read_health(attempt, 2).ranks_ended_well is None


def test_finished_ranks_by_deepspeeds_launcher(tmp_path: Path) -> None:
    spec = factory.spec(ranks=2, launcher=LauncherSpec(kind="deepspeed"))
    attempt = write_attempt(tmp_path, spec, outcome=Outcome.FAILED)
    write_log(attempt, "[2026-11-15 12:44:17,121] [INFO] [launch.py:285:main] Process 4136 exits successfully.\n")
    assert read_health(attempt, 2).ranks_ended_well == 1


def test_head_and_end_of_a_large_log_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_health, "LARGEST_LOG_BYTES", 8000)
    monkeypatch.setattr(run_health, "BLOCK_BYTES", 1000)
    attempt = write_attempt(tmp_path)
    between = "step\n" * 1000
    write_log(attempt, f"{HARMLESS_LINES[0]}\n{between}{RAISED}{between}{between}{HARMLESS_LINES[0]}\n")
    assert counts(attempt) == {"triton_autotune": 2}
    assert read_health(attempt, 2).tracebacks == 0


def test_a_missing_or_unreadable_log_counts_as_empty(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    assert counts(attempt) == {}
    AttemptPaths(Path(attempt.folder)).launcher_log.mkdir()
    assert counts(attempt) == {}


INFINIBAND = Provenance(fingerprint="f0", nics={"mlx5_0 port 1": "ACTIVE, 400 Gb/sec (4X NDR), InfiniBand"})
LONG = factory.spec(settings={"seq_len": 2048})


def signs_of(
    tmp_path: Path, text: str | bytes = "", *, env: dict[str, str] | None = None, effective: Any = None, **changes: Any
) -> tuple[SlowSign, ...]:
    attempt = write_attempt(tmp_path, **changes)
    paths = AttemptPaths(Path(attempt.folder))
    paths.launcher_log.write_bytes(text.encode() if isinstance(text, str) else text)
    if env is not None:
        files.write_json(
            paths.environment, {"variables": [{"name": name, "value": value, "set_by": "plan"} for name, value in env.items()]}
        )
    return read_slow_signs(attempt, factory.effective(effective or {}))


@pytest.mark.parametrize(("id", "line"), [(id, line) for id, lines in SLOW_LINES.items() for line in lines])
def test_each_slow_line_is_found_with_its_place(tmp_path: Path, id: str, line: str) -> None:
    text = f"[rank0]: step 0: loss 6.0\nstep 1\n[rank1]: {line}\nstep 2\n[rank0]: {line}\n"
    found = signs_of(tmp_path, text, run=LONG, provenance=INFINIBAND)
    assert [(sign.id, sign.file, sign.n) for sign in found] == [(id, "launcher.log:3", 2)]
    assert found[0].action and found[0].detail.startswith("[rank1]: ")


def test_every_slow_pattern_matches_a_recorded_line() -> None:
    with_patterns = {entry.id: entry.patterns for entry in slow_signs() if entry.patterns}
    assert set(with_patterns) == set(SLOW_LINES)
    silent = [(id, one) for id, patterns in with_patterns.items() for one in patterns if not any(re.search(one, x) for x in SLOW_LINES[id])]
    assert silent == []


@pytest.mark.parametrize(
    ("id", "name", "value"),
    [
        ("flash_fallback", "NSA_SDPA_NO_FLASH", "1"),
        ("debug_on", "NCCL_DEBUG", "INFO"),
        ("debug_on", "NSA_TRACE_GRADS", "1"),
        ("debug_on", "NSA_NVTX", "1"),
        ("bucket_size", "NSA_DDP_BUCKET_MB", "2"),
        ("p2p_off", "NCCL_P2P_DISABLE", "1"),
        ("sequential_prefill", "NSA_PREFILL_BATCHED", "0"),
        ("socket_transport", "NCCL_IB_DISABLE", "1"),
    ],
)
def test_slow_variables_are_found(tmp_path: Path, id: str, name: str, value: str) -> None:
    found = signs_of(tmp_path, env={"NSA_PREFILL_BATCHED": "1", name: value, "PATH": "/usr/bin"}, run=LONG, provenance=INFINIBAND)
    assert [(sign.id, sign.detail, sign.file, sign.n) for sign in found] == [(id, f"{name}={value}", "environment.json", None)]


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_DEBUG": "WARN", "NSA_NVTX": "0", "NSA_SDPA_NO_FLASH": "0", "NSA_PREFILL_BATCHED": "1", "CUDA_LAUNCH_BLOCKING": "0"},
        {"NSA_DDP_BUCKET_MB": "50", "NSA_PREFILL_BATCHED": "1", "NCCL_P2P_DISABLE": "0"},
        # Without InfiniBand there is nothing better than a socket.
        {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"},
    ],
)
def test_other_variables_are_no_sign(tmp_path: Path, env: dict[str, str]) -> None:
    assert signs_of(tmp_path, "gpu-01:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n", env=env, run=LONG) == ()


@pytest.mark.parametrize(
    ("effective", "id"),
    [
        ({"attn_impl": ("flash_attention_2", "sdpa", "no CUDA")}, "flash_fallback"),
        ({"speech_attn_impl": ("flash_attention_2", "eager", "")}, "flash_fallback"),
        ({"attention": ("sdpa", "eager", "a mask it does not take")}, "flash_fallback"),
        ({"use_flash": (True, False, "not installed")}, "flash_fallback"),
        ({"attn_impl": ("sdpa", "flash_attention_2", "")}, None),
        ({"prefill": ("batched", "sequential", "")}, "sequential_prefill"),
        ({"ddp_bucket_mb": (0, 2, "safe mode")}, "bucket_size"),
        ({"attn_impl": ("auto", "sdpa", ""), "precision": ("auto", "bf16", "")}, None),
        ({"attn_impl": ("flash_attention_2", "flash_attention_2", "")}, None),
        ({"ddp_bucket_mb": (0, 25, "")}, None),
    ],
)
def test_slower_effective_settings_are_found(tmp_path: Path, effective: Any, id: str | None) -> None:
    found = signs_of(tmp_path, effective=effective, run=LONG)
    assert [sign.id for sign in found] == ([id] if id else [])
    assert all(sign.file == "events_rank0.jsonl" and " -> " in sign.detail for sign in found)


@pytest.mark.parametrize(
    ("changes", "is_found"),
    [
        ({"settings": {"seq_len": 1024}}, True),
        ({"axes": {"seq_len": 4096}}, True),
        ({"workload": {"args": ("--seq-len", "2048")}}, True),
        ({"workload": {"args": ("--train.seq_len=2048",)}}, True),
        ({"settings": {"seq_len": 512}}, False),
        ({"settings": {"seq_len": "long"}}, False),
        ({}, False),
    ],
)
def test_sequential_prefill_counts_only_at_long_sequences_that_are_known(tmp_path: Path, changes: dict[str, Any], is_found: bool) -> None:
    found = signs_of(tmp_path, env={"NSA_PREFILL_BATCHED": "0"}, run=factory.spec(**changes))
    assert [sign.id for sign in found] == (["sequential_prefill"] if is_found else [])


def test_infiniband_in_nccls_output_counts(tmp_path: Path) -> None:
    text = (
        "h:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\nh:1:1 [0] NCCL INFO 0 -> 8 [send] via NET/Socket/0\n"
    )
    assert [sign.id for sign in signs_of(tmp_path, text)] == ["socket_transport"]


def test_no_signs_without_readable_files(tmp_path: Path) -> None:
    attempt: Attempt = write_attempt(tmp_path)
    AttemptPaths(Path(attempt.folder)).environment.write_text('{"variables": [1, {"name"')
    assert read_slow_signs(attempt) == ()
    assert read_slow_signs(replace(attempt, folder=str(tmp_path / "nowhere"))) == ()


def test_provenance_replaces_a_lost_environment(tmp_path: Path) -> None:
    found = signs_of(tmp_path, provenance=Provenance(fingerprint="f0", environment={"NCCL_DEBUG": "TRACE"}))
    assert [sign.id for sign in found] == ["debug_on"]


def test_only_the_head_of_a_log_is_read(tmp_path: Path) -> None:
    late = "x" * 99 + "\n"
    text = late * (HEAD_BYTES // 100 + 1) + "Anomaly Detection has been enabled.\n"
    assert signs_of(tmp_path, text) == ()


def test_secrets_in_a_line_are_masked(tmp_path: Path) -> None:
    found = signs_of(tmp_path, "Anomaly Detection has been enabled with token=hf_abcdefghijklmnopqrstuvwxyz0123456789\n")
    assert "hf_abcdefghijklmnop" not in found[0].detail


@pytest.mark.parametrize(
    ("env", "effective", "is_found"),
    [
        ({"NSA_USE_FA2": "1"}, {}, True),
        ({"NSA_USE_FA2": "1", "NSA_PREFILL_BATCHED": "1"}, {}, False),
        # A workload that knows no such variable, or that reports the setting itself.
        ({"NCCL_DEBUG": "WARN"}, {}, False),
        ({}, {}, False),
        ({"NSA_USE_FA2": "1"}, {"prefill": ("auto", "batched", "")}, False),
    ],
)
def test_an_unset_variable_means_sequential_prefill(tmp_path: Path, env: dict[str, str], effective: Any, is_found: bool) -> None:
    found = signs_of(tmp_path, env=env, effective=effective, run=LONG)
    assert [(sign.id, sign.detail) for sign in found] == (
        [("sequential_prefill", "NSA_PREFILL_BATCHED is not set, beside NSA_USE_FA2")] if is_found else []
    )
    assert signs_of(tmp_path, env=env, effective=effective, run=factory.spec(settings={"seq_len": 512})) == ()


def attempt_with(out: Path, variables: dict[str, str], **spec: Any) -> Attempt:
    attempt = write_attempt(out, factory.spec(**spec))
    entries = [{"name": name, "value": value, "set_by": "caller", "replaced": None} for name, value in variables.items()]
    files.write_json(AttemptPaths(Path(attempt.folder)).environment, {"variables": entries})
    return attempt


def names(attempt: Attempt) -> list[str]:
    return [one.name for one in read_debug_settings(attempt)]


ENABLED = """
    NCCL_DEBUG=INFO NCCL_DEBUG=trace TORCH_DISTRIBUTED_DEBUG=DETAIL TORCH_DISTRIBUTED_DEBUG=INFO TORCH_CPP_LOG_LEVEL=INFO
    TORCH_CPP_LOG_LEVEL=0 CUDA_LAUNCH_BLOCKING=1 TORCH_NCCL_BLOCKING_WAIT=1 NCCL_BLOCKING_WAIT=1 PYTORCH_NO_CUDA_MEMORY_CACHING=1
    TORCH_LOGS=+dynamo TORCH_TRACE=/tmp/trace TORCH_COMPILE_DEBUG=1 TORCHDYNAMO_DISABLE=1 NSA_DETECT_ANOMALY=1 NSA_NVTX=true
    NSA_TRACE_GRADS=1 NSA_DEBUG_TIMING=1 NSYS_PROFILING_SESSION_ID=2417 PYTHONDEVMODE=1 PYTHONASYNCIODEBUG=1
    ENABLE_CUDA_SYNC_TIMING=true SEATRIAL_SYNC_TIMING=1
"""
DISABLED = """
    NCCL_DEBUG=WARN NCCL_DEBUG=VERSION NCCL_DEBUG_SUBSYS=ALL TORCH_DISTRIBUTED_DEBUG=OFF TORCH_CPP_LOG_LEVEL=ERROR CUDA_LAUNCH_BLOCKING=0
    CUDA_LAUNCH_BLOCKING= ENABLE_CUDA_SYNC_TIMING=false NSA_NVTX=0 TORCH_SHOW_CPP_STACKTRACES=1 PYTHONFAULTHANDLER=1 PYTHONMALLOC=malloc
    OMP_NUM_THREADS=1
"""


@pytest.mark.parametrize("variable", ENABLED.split())
def test_an_enabled_variable_is_listed_with_its_file(tmp_path: Path, variable: str) -> None:
    name, _, value = variable.partition("=")
    (found,) = read_debug_settings(attempt_with(tmp_path, {name: value}))
    assert (found.name, found.value, found.source) == (name, value, "environment.json")
    assert found.why and not found.why.endswith(".")


@pytest.mark.parametrize(("length", "shown"), [(80, 80), (81, 80)])
def test_a_long_value_is_shortened(tmp_path: Path, length: int, shown: int) -> None:
    (found,) = read_debug_settings(attempt_with(tmp_path, {"TORCH_TRACE": "x" * length}))
    assert len(found.value) == shown and found.value.endswith("…") is (shown < length)


@pytest.mark.parametrize("variable", DISABLED.split())
def test_a_variable_that_enables_nothing_is_not_listed(tmp_path: Path, variable: str) -> None:
    name, _, value = variable.partition("=")
    assert names(attempt_with(tmp_path, {name: value})) == []


def test_nccl_subsystems_count_only_with_nccl_debug(tmp_path: Path) -> None:
    assert names(attempt_with(tmp_path, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"})) == ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"]


def test_synchronised_timing_is_one_switch_by_any_name(tmp_path: Path) -> None:
    attempt = attempt_with(tmp_path, {"SEATRIAL_SYNC_TIMING": "1", "ENABLE_CUDA_SYNC_TIMING": "true"}, timing=TimingSpec(sync=True))
    (found,) = read_debug_settings(attempt)
    assert (found.name, found.value, found.source) == ("timing.sync", "true", "spec.json")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--detect_anomaly",), ["detect_anomaly"]),
        (("--trainer.detect-anomaly", "true"), ["detect_anomaly"]),
        (("--trainer.detect_anomaly=false",), []),
        (("--detect_anomaly", "false"), []),
        (("train.enable_cuda_sync_timing=true", "a=b=c", "--", "-x"), ["enable_cuda_sync_timing"]),
        (("--nvtx", "--bs", "8"), ["nvtx"]),
        (("--profile", "fast"), []),
        ((), []),
    ],
)
def test_options_of_a_script_count(tmp_path: Path, args: tuple[str, ...], expected: list[str]) -> None:
    spec = replace(factory.spec(), workload=WorkloadSpec(name="train.py", script="train.py", args=args))
    assert names(write_attempt(tmp_path, spec)) == expected


def test_effective_settings_count_before_requested_ones(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(settings={"wall_clock_breakdown": True}))
    assert names(attempt) == ["wall_clock_breakdown"]
    off = event(attempt, "effective", setting="wall_clock_breakdown", requested=True, effective=False, reason="only DeepSpeed has it")
    write_events(attempt, 0, off + "\n" + event(attempt, step=0, iter_ms=1.0) + "\n")
    assert read_steps(attempt).debug == ()
    on = event(attempt, "effective", setting="anomaly_detection", requested=True, effective=True, reason="")
    write_events(attempt, 0, "\n".join([on, off, event(attempt, step=0, iter_ms=1.0)]) + "\n")
    (found,) = read_steps(attempt).debug
    assert (found.name, found.source) == ("anomaly_detection", "events_rank0.jsonl")


def test_a_profiler_that_starts_the_run_is_seen(tmp_path: Path) -> None:
    spec = replace(
        factory.spec(), launcher=LauncherSpec(kind="command"), workload=WorkloadSpec(name="nsys", script="/opt/bin/nsys", args=("profile",))
    )
    (found,) = read_debug_settings(write_attempt(tmp_path, spec))
    assert (found.name, found.value, found.source) == ("nsys", "/opt/bin/nsys", "spec.json")


def test_without_environment_json_provenance_and_the_plan_count(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(env={"NCCL_DEBUG": "INFO"}))
    assert [(one.name, one.source) for one in read_debug_settings(attempt)] == [("NCCL_DEBUG", "spec.json")]
    attempt = replace(attempt, provenance=replace(attempt.provenance, environment={"CUDA_LAUNCH_BLOCKING": "1"}))
    assert [(one.name, one.source) for one in read_debug_settings(attempt)] == [
        ("CUDA_LAUNCH_BLOCKING", "provenance.json"),
        ("NCCL_DEBUG", "provenance.json"),
    ]


def test_torchs_anomaly_warning_is_one_debug_setting(tmp_path: Path) -> None:
    line = "UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime"
    signs = [SlowSign(id="debug_on", action="", detail=line, file=f"launcher.log:{number}") for number in (12, 13)]
    (found,) = debug_of_signs(signs, ())
    assert (found.name, found.value, found.source) == ("anomaly_detection", "on", "launcher.log:12")
    assert debug_of_signs(signs, read_debug_settings(attempt_with(tmp_path, {"NSA_DETECT_ANOMALY": "1"}))) == ()
    assert debug_of_signs([SlowSign(id="flash_fallback", action="", detail="no flash")], ()) == ()


def test_an_anomaly_warning_in_the_log_is_a_debug_setting(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_log(attempt, "hello\ntrain.py:9: UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime\n")
    tables = read_steps(attempt)
    assert [(one.name, one.source) for one in tables.debug] == [("anomaly_detection", "launcher.log:2")]
    assert [sign.id for sign in tables.slow_signs] == ["debug_on"]


@pytest.mark.parametrize(
    ("spec", "variables"),
    [
        ({"settings": {"wall_clock_breakdown": True}, "axes": {"variant": "old"}, "varied": ("log_every", "wall_clock_breakdown")}, {}),
        ({"settings": {"detect_anomaly": True}, "axes": {"detect_anomaly": True}}, {}),
        ({"axes": {"env.NCCL_DEBUG": "INFO"}}, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET"}),
    ],
)
def test_settings_the_plan_varies_are_marked(tmp_path: Path, spec: dict[str, Any], variables: dict[str, str]) -> None:
    found = read_debug_settings(attempt_with(tmp_path, {**variables, "CUDA_LAUNCH_BLOCKING": "1"}, **spec))
    assert {one.name: one.varied for one in found}.pop("CUDA_LAUNCH_BLOCKING") is False
    assert len(found) > 1 and all(one.varied for one in found if one.name != "CUDA_LAUNCH_BLOCKING")
