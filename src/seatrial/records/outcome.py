"""How a run ended, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(str, enum.Enum):
    """How a run ended. Only `ok` counts in statistics."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"

    @property
    def is_failure(self) -> bool:
        """The run came to an end of its own, and a bad one."""
        return self in (Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED)

    @property
    def is_cut_short(self) -> bool:
        """Ended from outside: it says nothing about its configuration and is still to be run."""
        return self in (Outcome.INTERRUPTED, Outcome.SKIPPED)

    @property
    def seed_status(self) -> str:
        """The seeds' two words."""
        return "success" if self is Outcome.OK else "failed"


class Cause(str, enum.Enum):
    """Why a run did not end well; `none` for one that did, `unknown` where nothing told."""

    NONE = "none"
    START_LIMIT = "start_limit"
    RUN_LIMIT = "run_limit"
    STALL = "stall"
    SUSPENDED = "suspended"
    MEMORY_LIMIT = "memory_limit"
    DISK_LIMIT = "disk_limit"
    USER = "user"
    NO_STEPS = "no_steps"
    RANKS_MISSING = "ranks_missing"
    ENDED_EARLY = "ended_early"
    AGENT_LOST = "agent_lost"
    HARNESS_LOST = "harness_lost"
    PROGRAM_MISSING = "program_missing"
    CUDA_OOM = "cuda_oom"
    HOST_OOM = "host_oom"
    PORT_IN_USE = "port_in_use"
    SHARED_MEMORY = "shared_memory"
    GPU_FAULT = "gpu_fault"
    DRIVER_MISMATCH = "driver_mismatch"
    SCHEDULER = "scheduler"
    HOST_LOST = "host_lost"
    NCCL_TRANSPORT = "nccl_transport"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    PEER_LOST = "peer_lost"
    RENDEZVOUS_TIMEOUT = "rendezvous_timeout"
    IMPORT_ERROR = "import_error"
    OP_BUILD = "op_build"
    BAD_ARGUMENT = "bad_argument"
    FILE_MISSING = "file_missing"
    DISK_FULL = "disk_full"
    IO_ERROR = "io_error"
    PERMISSION = "permission"
    NAN = "nan"
    INVALID_RESULT = "invalid_result"
    KILLED = "killed"
    NATIVE_CRASH = "native_crash"
    EXCEPTION = "exception"
    EXIT_CODE = "exit_code"
    UNKNOWN = "unknown"


class Fault(str, enum.Enum):
    """Whose fault a bad end is: what decides whether it weighs on the group."""

    INFRASTRUCTURE = "infrastructure"
    """The platform's: storage, network, a machine, a scheduler. The run is to be made again on a healthy one."""
    CONFIGURATION = "configuration"
    """The group's own settings: batch too large, an option refused."""
    CODE = "code"
    """The script's."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """attempt-N/outcome.json, written last: its presence alone means that the attempt is over."""

    run: str
    attempt: int
    hash: str
    outcome: Outcome
    cause: Cause = Cause.NONE
    detail: str = ""
    """One sentence for people: what happened, with the telling line of the log."""
    action: str = ""
    """One sentence: what to do."""
    exit_code: int | None = None
    """As the launcher returned it; a signal is negative. None when it never started or never ended."""
    started_t: float = 0.0
    """Wall clock, seconds since the epoch, when the launcher was started."""
    ended_t: float = 0.0
    duration_s: float = 0.0
    """Monotonic time from launch to the launcher's end."""
    port: int | None = None
    killed: int = 0
    """Processes that had to be killed after the launcher was over."""
    log_tail: tuple[str, ...] = ()
    rank: int | None = None
    """The rank that held the others up, where one did."""
    phase: str = ""
    """What it was doing, in the probe's words."""
    host: str = ""
    """The host on which it broke, of a run on many hosts; empty on one, and where nothing told."""
    signature: str = ""
    """The entry of the registry of signatures that told the cause."""
    fault: Fault = Fault.UNKNOWN
    telling: tuple[str, ...] = ()
    """The most telling lines of the log, where no entry of the registry tells the cause."""
    frame: str = ""
    """Where its main thread stood: `train.py:41 in step`."""
