"""The registry of failure signatures."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from seatrial.records.outcome import Cause, Fault, Outcome, RunOutcome
from seatrial.records.signatures.harmless import HARMLESS
from seatrial.records.signatures.registry import (
    FILES,
    FOLDER,
    STAGE1,
    Signature,
    advice,
    fault_named,
    fault_of,
    general,
    load_signatures,
    of_exit_code,
    signature,
    signatures,
    slow_sign_for,
)
from tests.unit.records.signature_checks import problems

ROOT = Path(__file__).parents[3]
GOOD = """\
[[signature]]
id = "disk_gone"
symptom = "`no disk`"
cause = "io_error"
fault = "infrastructure"
why = "The disk is gone."
action = "Bring it back."
patterns = ['no disk']
"""


def loaded(tmp_path: Path, *texts: str) -> tuple[Signature, ...]:
    for number, text in enumerate(texts):
        (tmp_path / f"f{number}.toml").write_text(text)
    return load_signatures(tmp_path, tuple(f"f{number}" for number in range(len(texts))))


def test_every_file_is_in_the_order_and_every_name_of_the_order_is_a_file() -> None:
    assert sorted(FILES) == sorted(path.stem for path in FOLDER.glob("*.toml"))


def test_entries_come_in_the_order_of_the_files_and_within_them() -> None:
    written = [entry["id"] for name in FILES for entry in tomllib.loads((FOLDER / f"{name}.toml").read_text())["signature"]]
    assert [entry.id for entry in load_signatures()] == written


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("shm_comm_build", "op_build"),
        ("cache_race", "file_missing"),
        ("shared_memory", "disk_full"),
        ("shared_memory", "host_oom"),
        ("slurm_oom", "bad_argument"),
        ("deepspeed_not_installed", "import_error"),
        ("local_rank", "bad_argument"),
        ("nccl_version", "extension_abi"),
        ("extension_abi", "import_error"),
        ("vllm_kv_cache", "cuda_oom"),
        ("ibv_error", "nccl_transport"),
        ("nccl_remote", "nccl_transport"),
        ("host_lost", "hub_unreachable"),
        ("driver_mismatch", "no_driver"),
    ],
)
def test_special_entries_come_before_general_ones(earlier: str, later: str) -> None:
    ids = [entry.id for entry in load_signatures()]
    assert ids.index(earlier) < ids.index(later)


def test_the_files_go_into_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    globs = project["tool"]["setuptools"]["package-data"]["seatrial"]
    assert [name for name in FILES if not any(fnmatch(f"records/signatures/{name}.toml", glob) for glob in globs)] == []


def test_an_entry_is_read_into_the_record(tmp_path: Path) -> None:
    [entry] = loaded(tmp_path, GOOD)
    assert (entry.cause, entry.fault, entry.patterns) == (Cause.IO_ERROR, Fault.INFRASTRUCTURE, ("no disk",))
    assert problems(entry) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('cause = "io_error"', 'cause = "disk"', "entry disk_gone: cause"),
        ('fault = "infrastructure"', 'fault = "theirs"', "fault"),
        ('action = "Bring it back."\n', "", "'action' is missing"),
        ('why = "The disk is gone."', 'why = ""', "'why' is missing"),
        ('id = "disk_gone"\n', "", "entry 1: 'id' is missing"),
        ("patterns = ['no disk']", "pattern = 'no disk'", "unknown key 'pattern'"),
        ("patterns = ['no disk']", "patterns = 'no disk'", "patterns"),
        ("patterns = ['no disk']", "exit_codes = ['9']", "exit_codes"),
        ("patterns = ['no disk']", "after_effect = 'yes'", "after_effect"),
        ("[[signature]]", "[[signatur]]", "'signatur'"),
    ],
)
def test_a_malformed_entry_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(ValueError, match=rf"^f0\.toml.*{problem}"):
        loaded(tmp_path, GOOD.replace(old, new))


def test_every_id_is_unique(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="disk_gone"):
        loaded(tmp_path, GOOD, GOOD)
    assert {entry.id for entry in signatures()} & {entry.id for entry in HARMLESS} == set()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("'no disk'", "'no ('", "not a regular expression"),
        ("'no disk'", "'step'", "lines that every script prints"),
        ('"disk_gone"', '"Disk-gone"', "small letters"),
        ("gone.", "gone", "'why' is not a sentence"),
        ("Bring", "bring", "'action' is not a sentence"),
        ("`no disk`", "`no disk", "paired backticks"),
        ("patterns", "topics = ['moon']\npatterns", "topic 'moon'"),
        ("patterns", "keywords = ['disk']\npatterns", "'keywords' is for signs of slowness"),
        ("patterns", "echo = true\npatterns", "an echo is an after-effect too"),
        ("patterns", "slows = true\npatterns", "has the cause `none`"),
        ('"io_error"', '"none"', "nobody's fault"),
    ],
)
def test_a_wrong_entry_is_found(tmp_path: Path, old: str, new: str, expected: str) -> None:
    [entry] = loaded(tmp_path, GOOD.replace(old, new))
    assert any(expected in problem for problem in problems(entry))


SEEDS_ENTRIES = {
    "port_in_use", "start_limit", "telemetry_empty", "io_error", "deepspeed_missing", "stall", "pdsh_missing", "hostfile", "ninja_missing",
    "run_limit", "killed", "slow_start", "flash_attention_fp32", "manifest_header", "driver_log_folder", "ranks_left_behind",
}  # fmt: skip
INFRASTRUCTURE = {
    "io_error", "read_only", "disk_full", "nccl_interface", "nccl_handshake", "nccl_version", "nccl_route", "ibv_error", "ibv_completion",
    "nccl_transport", "driver_mismatch", "no_driver", "gpu_fault", "slurm_time_limit", "preempted", "evicted", "scheduler", "host_lost",
    "rendezvous_timeout", "port_in_use", "harness_lost", "agent_lost", "agent_stopped", "suspended",
    "events_removed", "hub_rate_limit", "hub_unreachable", "ibv_memlock", "gpu_busy", "name_unknown", "checkpoint_write",
    "job_cancelled", "job_time_limit", "job_preempted", "job_node_failed", "job_requeued", "job_queue_deadline", "job_failed", "job_lost",
    "node_silent", "node_gone", "node_not_started", "srun_failed", "loopback_address",
}  # fmt: skip
CODE = {"exception", "collective_mismatch", "nan", "ended_early", "cache_race", "gpu_access", "unused_parameters"}


@pytest.mark.parametrize("entry", signatures(), ids=lambda entry: entry.id)
def test_an_entry_is_sound(entry: Signature) -> None:
    assert problems(entry) == []


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.NONE])
def test_every_cause_of_a_bad_end_has_general_advice(cause: Cause) -> None:
    assert general(cause).cause is cause
    assert advice(cause)


def test_what_the_seeds_mention_is_there_and_belongs_to_stage_1() -> None:
    assert {id for id in SEEDS_ENTRIES if STAGE1 not in signature(id).topics} == set()
    assert [entry.id for entry in HARMLESS if STAGE1 not in entry.topics] == []


@pytest.mark.parametrize(
    ("id", "texts"),
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
def test_the_seeds_advice_is_in_it(id: str, texts: tuple[str, ...]) -> None:
    assert [text for text in texts if text not in signature(id).action] == []


@pytest.mark.parametrize(
    ("code", "id"),
    [(137, "killed"), (-9, "killed"), (127, "program_missing"), (124, "timeout_command"), (None, None), (0, None), (1, None), (-15, None)],
)
def test_exit_codes_with_a_meaning_of_their_own(code: int | None, id: str | None) -> None:
    found = of_exit_code(code)
    assert (found.id if found else None) == id


def test_cautions_that_the_registry_names_exist() -> None:
    named = {entry.caution for entry in signatures() if entry.caution}
    source = "".join(path.read_text() for path in (ROOT / "src" / "seatrial").rglob("*.py"))
    assert named and [kind for kind in named if f'kind="{kind}"' not in source] == []


def test_whose_fault_each_entry_is() -> None:
    assert {entry.id for entry in signatures() if entry.fault is Fault.INFRASTRUCTURE} == INFRASTRUCTURE
    assert {entry.id for entry in signatures() if entry.fault is Fault.CODE} == CODE
    for id in ("cuda_oom", "host_oom", "bad_argument", "file_missing", "vllm_kv_cache", "memory_limit", "import_error", "shared_memory"):
        assert fault_named(id) is Fault.CONFIGURATION
    assert fault_named("nothing") is Fault.UNKNOWN


def test_a_fault_of_the_platform_asks_for_another_run() -> None:
    actions = {id: signature(id).action for id in INFRASTRUCTURE}
    assert [id for id, action in actions.items() if "again" not in action] == []


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


@pytest.mark.parametrize(
    ("kind", "id"),
    [
        ("data_wait_bursts", "data_wait"),
        *((kind, "throttling") for kind in ("throttling", "thermal", "power_cap")),
        *((kind, "slow_rank") for kind in ("slow_rank", "anti_correlated_gpus", "gpu_imbalance")),
        *((kind, "busy_host") for kind in ("host_load", "host_steal")),
        ("debug", "debug_on"),
        ("telemetry_gaps", None),
    ],
)
def test_findings_of_the_analysis_have_their_advice(kind: str, id: str | None) -> None:
    found = slow_sign_for(kind)
    assert (found.id if found else None) == id
