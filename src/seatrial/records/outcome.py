"""How a run ended, and why."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field

# `port 29501`, `localhost:29501`, `10.0.0.1:29501`, `[::1]:29501`, `pid 4711`, `0x7f3c…`; not the line number in `train.py:1200`.
CHOSEN_AGAIN = re.compile(
    r"(\bport[ :=]+|\blocalhost:|\b\d{1,3}(?:\.\d{1,3}){3}:|\]:)\d{4,5}\b|(\bpid[ :=]+)\d+\b|\b0x[0-9a-f]{4,}\b", re.IGNORECASE
)


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
        """It counts against the run's configuration, unless the platform caused it."""
        return self in (Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED)

    @property
    def is_cut_short(self) -> bool:
        """Ended by a user or a scheduler: no result of its configuration, and still to be run."""
        return self in (Outcome.INTERRUPTED, Outcome.SKIPPED)

    @property
    def stage1_status(self) -> str:
        """Stage 1's status column."""
        return "success" if self is Outcome.OK else "failed"


class Cause(str, enum.Enum):
    """Why a run failed; `none` for one that ended well, `unknown` without any sign."""

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
    WORLD_TOO_SMALL = "world_too_small"
    ENDED_EARLY = "ended_early"
    HALTED = "halted"
    GATE_COLLAPSE = "gate_collapse"
    ZERO_GRAD = "zero_grad"
    THROUGHPUT_FLATLINE = "throughput_flatline"
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
    JOB_CANCELLED = "job_cancelled"
    JOB_TIME_LIMIT = "job_time_limit"
    JOB_PREEMPTED = "job_preempted"
    JOB_NODE_FAILED = "job_node_failed"
    JOB_REQUEUED = "job_requeued"
    JOB_QUEUE_DEADLINE = "job_queue_deadline"
    JOB_NEVER_STARTS = "job_never_starts"
    JOB_FAILED = "job_failed"
    JOB_LOST = "job_lost"
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
    """Whose fault a failure is: decides whether it counts against the group."""

    INFRASTRUCTURE = "infrastructure"
    """Storage, network, a machine, a scheduler: repeat the run on a healthy platform."""
    CONFIGURATION = "configuration"
    """The group's own settings: batch too large, an option refused."""
    CODE = "code"
    """The script."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """How a run ended by its log, or by what the harness saw: the outcome, the first cause and where it is. A RunOutcome has some of
    these fields too: outcome.json is one flat object, and both sources go into it."""

    cause: Cause
    """`none` without a failure."""
    detail: str
    action: str
    signature: str
    """The entry of the registry that the advice comes from."""
    fault: Fault = Fault.UNKNOWN
    telling: tuple[str, ...] = ()
    """The most relevant lines of the log, where no signature matched, or only one of a lost peer."""
    host: str = ""
    """On many hosts, the host whose line shows the cause; empty if no single line does."""
    outcome: Outcome | None = None
    """None if that source does not show it."""
    rank: int | None = None
    """The rank that failed first, where the log names it."""
    noticed_by: int | None = None
    """If the log shows only that another rank is lost or does not answer: the first rank that reports it."""
    source: str = ""
    """The file of that line, as the caller named it."""
    line: int | None = None
    """Number of the line that shows the cause, from 1; None where no single line does."""
    excerpt: tuple[str, ...] = ()
    """That line, after the innermost frames of its traceback."""
    num_consequences: int = 0
    """Further errors after it: timeouts, aborts, other ranks, the launcher's report."""
    launcher_report: bool = False
    """The launcher reported that the run failed, and no step followed."""
    traceback_at_end: bool = False
    """A process printed the traceback of an uncaught exception last."""
    last_step: int | None = None
    """The highest among the last step numbers in the log; None without any."""
    good_end: bool = False
    """A line reports the end of training, or the requested steps were reached."""

    @property
    def who(self) -> str:
        """`rank 3`; empty where no rank is known, and where the detail names it already."""
        return "" if self.rank is None or re.search(rf"\brank {self.rank}\b", self.detail) else f"rank {self.rank}"


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """attempt-N/outcome.json, written last: where it exists, the attempt is over."""

    run: str
    attempt: int
    hash: str
    outcome: Outcome
    cause: Cause = Cause.NONE
    detail: str = ""
    """One sentence: what happened, with the line of the log that shows it."""
    action: str = ""
    """One sentence: what to do."""
    exit_code: int | None = None
    """The launcher's exit code; a signal is negative. None if it never started or never ended."""
    started_t: float = 0.0
    """When the launcher was started, seconds since the epoch."""
    ended_t: float = 0.0
    duration_s: float = 0.0
    """Monotonic time from launch to the launcher's end."""
    port: int | None = None
    killed: int = 0
    """Processes that had to be killed after the launcher was over."""
    log_tail: tuple[str, ...] = ()
    rank: int | None = None
    """The rank that failed first, or that held the others up, where it is known."""
    phase: str = ""
    """Its phase, as the probe names it."""
    host: str = ""
    """The host on which it failed, of a run on many hosts; otherwise, and where it is unknown, empty."""
    signature: str = ""
    """The entry of the registry of signatures that matched."""
    fault: Fault = Fault.UNKNOWN
    telling: tuple[str, ...] = ()
    """The most relevant lines of the log, where no signature matches."""
    frame: str = ""
    """Where the main thread of `rank` was: `train.py:41 in step`."""
    excerpt: tuple[str, ...] = ()
    """The lines of the log that show the cause: the innermost frames of the rank that failed first."""
    may_have_failed: str = ""
    """Why a run that is `ok` by its exit code may have failed."""
    last_seen_in: str = ""
    """If the end was not observed: the file whose last entry `ended_t` and `duration_s` come from."""
    resumed_from: int | None = None
    """The attempt whose checkpoint this one resumed from; None where it started at step 0."""
    resumed_at: int | None = None
    """Its first step; None where it started at step 0, or where that is unknown."""
    lost_steps: int | None = None
    """Steps of this training that were repeated since earlier attempts lost them after their checkpoint; over all attempts so far."""
    downtime_s: float | None = None
    """Time between the end of one attempt and the start of the next, of all attempts so far; None where an end is unknown."""

    @property
    def message(self) -> str:
        """The detail, by which failures are distinguished, without values that change with every start: ports, process numbers
        and addresses in memory."""
        detail = re.sub(rf"(?<!\d){self.port}(?!\d)", "…", self.detail) if self.port else self.detail
        return CHOSEN_AGAIN.sub(lambda found: f"{found[1] or found[2] or ''}…", detail)


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """attempt-N/resume.json: where an attempt starts that is not the first of its training. No part of the run's hash."""

    from_attempt: int | None = None
    """The attempt whose checkpoint it resumes from; None for a start at step 0."""
    checkpoint: str = ""
    """The newest complete checkpoint, a folder within that attempt; empty where a script has its own format."""
    step: int | None = None
    """The last step completed in it; None where a script has its own format."""
    skipped: tuple[str, ...] = ()
    """Newer checkpoints that are damaged: attempt, name and reason."""
    from_start: bool = False
    """A start at step 0 was requested (`--from-start`): earlier attempts are left behind."""
    changed: str = ""
    """Changes of the training since the checkpoint: `steps 1,000 → 2,000`, or more with `--resume-changed`."""

    @property
    def text(self) -> str:
        """Sentence for people, after the run's name."""
        return f"{'starts again' if self.from_attempt is None else 'resumes'} {self._where}"

    @property
    def infinitive(self) -> str:
        """The same after `would`."""
        return f"{'start again' if self.from_attempt is None else 'resume'} {self._where}"

    @property
    def _where(self) -> str:
        skipped = f"; skipped {', '.join(self.skipped)}" if self.skipped else ""
        if self.from_attempt is None:
            return f"at step 0{skipped}"
        what = f"{self.checkpoint}, step {self.step:,}" if self.step is not None else "its checkpoints"
        changed = f"; changed since: {self.changed.removesuffix(' changed')}" if self.changed else ""
        return f"from attempt {self.from_attempt} ({what}){changed}{skipped}"


@dataclass(kw_only=True)
class StageRecord:
    """End of a stage of a staged plan, as in stages.json."""

    exit_code: int | None
    """None where it was not run."""
    why: str = ""
    """Why it was not run, or could not be."""
    command: list[str] = field(default_factory=list)
    """The command that was run, if any."""
    ended_t: float = 0.0
