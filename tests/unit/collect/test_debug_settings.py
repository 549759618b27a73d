"""Which debug and tracing settings a run was measured with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial import files
from seatrial.analyse.debug_cautions import debug_cautions
from seatrial.collect.debug_settings import debug_of_signs, read_debug_settings
from seatrial.collect.steps import read_steps
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.debug_settings import PROGRAMS, SETTINGS, VARIABLES
from seatrial.records.health import DebugSetting, SlowSign
from seatrial.records.run_spec import LauncherSpec, TimingSpec, WorkloadSpec
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import event, write_attempt, write_events, write_log


def attempt_with(out: Path, variables: dict[str, str], **spec: Any) -> Attempt:
    attempt = write_attempt(out, factory.spec(**spec))
    entries = [{"name": name, "value": value, "set_by": "caller", "replaced": None} for name, value in variables.items()]
    files.write_json(AttemptPaths(Path(attempt.folder)).environment, {"variables": entries})
    return attempt


def names(attempt: Attempt) -> list[str]:
    return [one.name for one in read_debug_settings(attempt)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG", "trace"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ("TORCH_CPP_LOG_LEVEL", "INFO"),
        ("TORCH_CPP_LOG_LEVEL", "0"),
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1"),
        ("NCCL_BLOCKING_WAIT", "1"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
        ("TORCH_LOGS", "+dynamo"),
        ("TORCH_TRACE", "/tmp/trace"),
        ("TORCH_COMPILE_DEBUG", "1"),
        ("TORCHDYNAMO_DISABLE", "1"),
        ("NSA_DETECT_ANOMALY", "1"),
        ("NSA_NVTX", "true"),
        ("NSA_TRACE_GRADS", "1"),
        ("NSA_DEBUG_TIMING", "1"),
        ("NSYS_PROFILING_SESSION_ID", "2417"),
        ("PYTHONDEVMODE", "1"),
        ("PYTHONASYNCIODEBUG", "1"),
        ("ENABLE_CUDA_SYNC_TIMING", "true"),
        ("SEATRIAL_SYNC_TIMING", "1"),
    ],
)
def test_a_variable_that_is_on_is_listed_with_its_file(tmp_path: Path, name: str, value: str) -> None:
    (found,) = read_debug_settings(attempt_with(tmp_path, {name: value}))
    assert (found.name, found.value, found.source) == (name, value, "environment.json")
    assert found.why and not found.why.endswith(".")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_DEBUG", "VERSION"),
        ("NCCL_DEBUG_SUBSYS", "ALL"),
        ("TORCH_DISTRIBUTED_DEBUG", "OFF"),
        ("TORCH_CPP_LOG_LEVEL", "ERROR"),
        ("CUDA_LAUNCH_BLOCKING", "0"),
        ("CUDA_LAUNCH_BLOCKING", ""),
        ("ENABLE_CUDA_SYNC_TIMING", "false"),
        ("NSA_NVTX", "0"),
        ("TORCH_SHOW_CPP_STACKTRACES", "1"),
        ("PYTHONFAULTHANDLER", "1"),
        ("PYTHONMALLOC", "malloc"),
        ("OMP_NUM_THREADS", "1"),
    ],
)
def test_a_variable_that_switches_nothing_on_is_not(tmp_path: Path, name: str, value: str) -> None:
    assert names(attempt_with(tmp_path, {name: value})) == []


def test_parts_of_nccl_speak_only_when_it_speaks_at_all(tmp_path: Path) -> None:
    assert names(attempt_with(tmp_path, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"})) == ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"]


def test_synchronised_timing_is_one_switch_whatever_its_name(tmp_path: Path) -> None:
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
def test_options_of_a_script_count_too(tmp_path: Path, args: tuple[str, ...], expected: list[str]) -> None:
    spec = replace(factory.spec(), workload=WorkloadSpec(name="train.py", script="train.py", args=args))
    assert names(write_attempt(tmp_path, spec)) == expected


def test_what_a_setting_came_to_counts_before_what_was_asked_for(tmp_path: Path) -> None:
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


def test_where_environment_json_is_lost_provenance_and_the_plan_tell(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(env={"NCCL_DEBUG": "INFO"}))
    assert [(one.name, one.source) for one in read_debug_settings(attempt)] == [("NCCL_DEBUG", "spec.json")]
    attempt = replace(attempt, provenance=replace(attempt.provenance, environment={"CUDA_LAUNCH_BLOCKING": "1"}))
    assert [(one.name, one.source) for one in read_debug_settings(attempt)] == [
        ("CUDA_LAUNCH_BLOCKING", "provenance.json"),
        ("NCCL_DEBUG", "provenance.json"),
    ]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"variables": 3}', '{"variables": [1, {"name": 2, "value": "x"}, {"name": "NCCL_DEBUG"}]}']
)
def test_a_damaged_environment_says_nothing(tmp_path: Path, text: str) -> None:
    attempt = write_attempt(tmp_path)
    AttemptPaths(Path(attempt.folder)).environment.write_text(text)
    assert names(attempt) == []


def test_torchs_own_warning_tells_of_anomaly_detection_once(tmp_path: Path) -> None:
    line = "UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime"
    signs = [SlowSign(id="debug_on", action="", detail=line, file=f"launcher.log:{number}") for number in (12, 13)]
    (found,) = debug_of_signs(signs, ())
    assert (found.name, found.value, found.source) == ("anomaly_detection", "on", "launcher.log:12")
    assert debug_of_signs(signs, read_debug_settings(attempt_with(tmp_path, {"NSA_DETECT_ANOMALY": "1"}))) == ()
    assert debug_of_signs([SlowSign(id="flash_fallback", action="", detail="no flash")], ()) == ()


def test_a_log_that_warns_of_anomaly_detection_is_a_debug_setting_of_the_run(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path)
    write_log(attempt, "hello\ntrain.py:9: UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime\n")
    tables = read_steps(attempt)
    assert [(one.name, one.source) for one in tables.debug] == [("anomaly_detection", "launcher.log:2")]
    assert [sign.id for sign in tables.slow_signs] == ["debug_on"]


def test_every_entry_says_what_it_does_to_a_measurement() -> None:
    assert all(
        switch.why and switch.why[0].islower() | switch.why.startswith(("Python", "DeepSpeed")) for switch in (*VARIABLES, *SETTINGS)
    )
    assert all(PROGRAMS.values())
    assert len({switch.name for switch in VARIABLES}) == len(VARIABLES)


def test_the_caution_names_settings_effects_and_remedy() -> None:
    debug = (
        DebugSetting(name="NCCL_DEBUG", value="INFO", source="environment.json", why="the library writes lines"),
        DebugSetting(name="timing.sync", value="true", source="spec.json", why="the device is synchronised"),
    )
    (caution,) = debug_cautions(debug, "mb8_r1")
    assert (caution.kind, caution.subject, caution.numbers) == ("debug_on", "mb8_r1", {"settings": 2})
    assert caution.text == (
        "Measured with debug or tracing on: NCCL_DEBUG=INFO (environment.json), timing.sync=true (spec.json). The library writes lines. "
        "The device is synchronised. The figures are of such a run, and are not compared with those of a plain one; unset NCCL_DEBUG in "
        "the shell or the plan's env, switch timing.sync off in the plan and run again to measure."
    )
    assert list(debug_cautions((), "mb8_r1")) == []
    (many,) = debug_cautions(debug * 3, "mb8_r1")
    assert "and 2 more" in many.text


@pytest.mark.parametrize(
    ("spec", "variables"),
    [
        ({"settings": {"wall_clock_breakdown": True}, "axes": {"variant": "old"}, "varied": ("log_every", "wall_clock_breakdown")}, {}),
        ({"settings": {"detect_anomaly": True}, "axes": {"detect_anomaly": True}}, {}),
        ({"axes": {"env.NCCL_DEBUG": "INFO"}}, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET"}),
    ],
)
def test_what_the_plan_varies_is_marked_so(tmp_path: Path, spec: dict[str, Any], variables: dict[str, str]) -> None:
    found = read_debug_settings(attempt_with(tmp_path, {**variables, "CUDA_LAUNCH_BLOCKING": "1"}, **spec))
    assert {one.name: one.varied for one in found}.pop("CUDA_LAUNCH_BLOCKING") is False
    assert len(found) > 1 and all(one.varied for one in found if one.name != "CUDA_LAUNCH_BLOCKING")
