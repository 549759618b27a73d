"""The registry itself: every cause has its advice and its fault, every entry says what it must."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.harmless import HARMLESS
from seatrial.records import health
from seatrial.records.outcome import Cause, Fault, Outcome, RunOutcome
from seatrial.signatures.check import problems
from seatrial.signatures.registry import (
    advice,
    fault_named,
    fault_of,
    general,
    of_exit_code,
    signature,
    signatures,
    slow_sign_for,
    slow_signs,
)
from seatrial.signatures.signature import STAGE1, Signature

ROOT = Path(__file__).parents[3]
SEEDS_ENTRIES = {
    "port_in_use", "start_limit", "telemetry_empty", "io_error", "deepspeed_missing", "stall", "pdsh_missing", "hostfile", "ninja_missing",
    "run_limit", "killed", "slow_start", "flash_attention_fp32", "manifest_header", "driver_log_folder", "ranks_left_behind",
}  # fmt: skip
INFRASTRUCTURE = {
    "io_error", "read_only", "disk_full", "nccl_interface", "nccl_handshake", "nccl_version", "nccl_route", "ibv_error", "ibv_completion",
    "nccl_transport", "driver_mismatch", "no_driver", "gpu_fault", "slurm_time_limit", "preempted", "evicted", "scheduler", "host_lost",
    "rendezvous_timeout", "port_in_use", "harness_lost", "agent_lost", "agent_stopped", "suspended",
    "events_removed", "hub_unreachable", "ibv_memlock", "gpu_busy", "name_unknown", "checkpoint_write",
    "node_silent", "node_gone", "node_not_started", "loopback_address",
}  # fmt: skip
CODE = {"exception", "collective_mismatch", "nan", "ended_early", "cache_race", "gpu_access", "unused_parameters"}


def test_no_id_is_one_of_a_harmless_line_too() -> None:
    assert {entry.id for entry in signatures()} & {entry.id for entry in HARMLESS} == set()


@pytest.mark.parametrize("entry", signatures(), ids=lambda entry: entry.id)
def test_an_entry_says_what_it_must(entry: Signature) -> None:
    assert problems(entry) == []


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.NONE])
def test_every_cause_of_a_bad_end_has_general_advice(cause: Cause) -> None:
    assert general(cause).cause is cause
    assert advice(cause)


def test_what_the_seeds_tell_of_is_there_and_belongs_to_stage_1() -> None:
    assert {id for id in SEEDS_ENTRIES if STAGE1 not in signature(id).topics} == set()
    assert [entry.id for entry in HARMLESS if STAGE1 not in entry.topics] == []


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("pdsh_missing", ("pdsh", "openssh-client", "--launcher pdsh", "--no_ssh", "--node_rank", "--master_addr", "--master_port")),
        ("ninja_missing", ("ninja-build", "build-essential", "torch_adam")),
        ("deepspeed_missing", ("CONDA_ENV", "PATH")),
        ("stall", ("NCCL_P2P_DISABLE=1", "that host only", "stacks/")),
        ("start_limit", ("launcher.log", "limits.start_s", "can be written")),
        ("io_error", ("storage", "run again on a healthy node")),
        ("ibv_memlock", ("ulimit -l unlimited", "--ulimit memlock=-1", "Slurm")),
        ("port_in_use", ("ss -ltnp", "MASTER_PORT", "leave the port")),
        ("telemetry_empty", ("nvidia-smi", "/proc", "to be expected")),
        ("hostfile", ("test -s", "slots=N")),
        ("run_limit", ("limits.run_s", "RUN_TIMEOUT_SEC")),
        ("cache_race", ("rank 0", "barrier")),
        ("cuda_oom", ("LoRA", "nvidia-smi")),
        ("ready_twice", ("gradient checkpointing", "use_reentrant=False", "static_graph")),
        ("nccl_handshake", ("NCCL_IB_DISABLE=1", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")),
        ("sequential_prefill", ("NSA_PREFILL_BATCHED=1",)),
        ("bucket_size", ("NSA_DDP_BUCKET_MB=50",)),
        ("ranges_v2", ("NSA_SEL_RANGES_V2=0",)),
        ("fused_optimizer", ("NSA_OPT_FUSED",)),
        ("profiler_hang", ("NSA_TB_DISABLE=1", "NSA_DISABLE_AUX_STATS=1")),
    ],
)
def test_the_seeds_advice_is_in_it(id: str, words: tuple[str, ...]) -> None:
    assert [word for word in words if word not in signature(id).action] == []


@pytest.mark.parametrize(("code", "id"), [(137, "killed"), (-9, "killed"), (127, "program_missing"), (124, "timeout_command")])
def test_exit_codes_that_tell_something(code: int, id: str) -> None:
    found = of_exit_code(code)
    assert found is not None and found.id == id


@pytest.mark.parametrize("code", [None, 0, 1, 3, -15])
def test_exit_codes_that_tell_nothing(code: int | None) -> None:
    assert of_exit_code(code) is None


def test_cautions_that_the_registry_names_are_said_by_the_code() -> None:
    named = {entry.caution for entry in signatures() if entry.caution}
    source = "".join(path.read_text() for path in (ROOT / "src" / "seatrial").rglob("*.py"))
    assert named and [kind for kind in named if f'kind="{kind}"' not in source] == []


def test_whose_fault_each_entry_is() -> None:
    assert {entry.id for entry in signatures() if entry.fault is Fault.INFRASTRUCTURE} == INFRASTRUCTURE
    assert {entry.id for entry in signatures() if entry.fault is Fault.CODE} == CODE
    for id in ("cuda_oom", "host_oom", "bad_argument", "file_missing", "vllm_kv_cache", "memory_limit", "import_error", "shared_memory"):
        assert fault_named(id) is Fault.CONFIGURATION


def test_what_is_the_platform_s_fault_asks_for_another_run() -> None:
    actions = {id: signature(id).action for id in INFRASTRUCTURE}
    # Slurm's limit is the one that needs no other machine: the same command goes on.
    assert [id for id, action in actions.items() if "again" not in action and "the same command goes on" not in action] == []


def ended(cause: Cause, signature: str = "", fault: Fault = Fault.UNKNOWN) -> RunOutcome:
    return RunOutcome(run="r", attempt=1, hash="h", outcome=Outcome.FAILED, cause=cause, signature=signature, fault=fault)


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (ended(Cause.EXCEPTION, "exception", Fault.INFRASTRUCTURE), Fault.INFRASTRUCTURE),
        # Written by an older version: the entry, else the cause.
        (ended(Cause.FILE_MISSING, "cache_race"), Fault.CODE),
        (ended(Cause.FILE_MISSING), Fault.CONFIGURATION),
        (ended(Cause.IO_ERROR), Fault.INFRASTRUCTURE),
        (ended(Cause.HARNESS_LOST), Fault.INFRASTRUCTURE),
        (ended(Cause.CUDA_OOM), Fault.CONFIGURATION),
        (ended(Cause.NAN), Fault.CODE),
        (ended(Cause.KILLED), Fault.UNKNOWN),
        # An entry that a later version has and this one has not.
        (ended(Cause.IO_ERROR, "disk_from_the_moon"), Fault.INFRASTRUCTURE),
        (RunOutcome(run="r", attempt=1, hash="h", outcome=Outcome.OK), Fault.UNKNOWN),
    ],
)
def test_the_fault_of_an_outcome(outcome: RunOutcome, fault: Fault) -> None:
    assert fault_of(outcome) is fault


def test_a_name_that_is_not_there_has_no_fault() -> None:
    assert fault_named("") is fault_named("nothing") is Fault.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "id"),
    [
        ("data_wait_bursts", "data_wait"),
        ("throttling", "throttling"),
        ("thermal", "throttling"),
        ("power_cap", "throttling"),
        ("slow_rank", "slow_rank"),
        ("anti_correlated_gpus", "slow_rank"),
        ("gpu_imbalance", "slow_rank"),
        ("host_load", "busy_host"),
        ("host_steal", "busy_host"),
        ("debug", "debug_on"),
        ("telemetry_gaps", None),
        ("anything", None),
    ],
)
def test_what_analysis_finds_has_its_advice(kind: str, id: str | None) -> None:
    found = slow_sign_for(kind)
    assert (found.id if found else None) == id


def test_the_kinds_of_uneven_steps_are_those_that_the_record_names() -> None:
    source = Path(health.__file__).read_text()
    named = {kind for entry in slow_signs() for kind in entry.kinds} - {"debug", "data_wait"}
    assert [kind for kind in named if f"`{kind}`" not in source] == []


def test_what_the_issue_asks_for_as_advice_is_there() -> None:
    wanted = {"flash_fallback", "bucket_size", "sequential_prefill", "debug_on", "data_wait", "throttling", "socket_transport"}
    assert wanted <= {entry.id for entry in slow_signs()}
