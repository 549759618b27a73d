"""What a launcher builds and the agent starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.line import Call
from seatrial.records.run_spec import TelemetrySpec


@dataclass(frozen=True, kw_only=True)
class Node:
    """One host's share of a run."""

    name: str
    """As the hostfile has it; `node0` and on where there is no ssh."""
    node_rank: int
    ranks: int
    first_rank: int
    """The global rank of its local rank 0."""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What a place gave to one run: ranks, devices and a port that is held for it."""

    ranks: int
    """Of the whole job."""
    devices: tuple[str, ...] = ()
    master_addr: str = "127.0.0.1"
    master_port: int
    cpu_only: bool = False
    """No GPU is asked for and none could be used; False also where nobody has looked."""
    nodes: tuple[Node, ...] = ()
    """Every host's share, by node_rank; empty for a run on this machine alone."""
    node: Node | None = None
    """The share that a command is built for; None for a run on this machine alone."""

    @property
    def local_ranks(self) -> int:
        """Ranks that one command starts."""
        return self.node.ranks if self.node else self.ranks


@dataclass(frozen=True, kw_only=True)
class Command:
    """One or more processes to start: the same words, with `ranks` giving each process its own variables on top of `env`."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """Only what Seatrial, the place, the launcher and the plan set; the caller's own environment lies beneath."""
    cwd: str
    ranks: tuple[dict[str, str], ...] = ({},)
    """One entry a process: torchrun and deepspeed need one entry, plain python one for each rank."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentVariable:
    """One variable that reached the ranks, and who set it."""

    name: str
    value: str
    set_by: str
    """`caller`, `plan`, `place`, `launcher` or `seatrial`."""
    replaced: str | None = None
    """The caller's value that this one took the place of; None when there was none or it was the same."""


@dataclass(frozen=True, kw_only=True)
class AgentOrder:
    """What the agent is told, in attempt-N/agent.json."""

    command: Command
    attempt_folder: str
    rank_logs: str | None = None
    """Where the launcher redirects each rank's output (torchrun's --log-dir, deepspeed's --enable_each_rank_log), to be merged
    into launcher.log."""
    term_s: float = 10.0
    telemetry: TelemetrySpec = field(default_factory=TelemetrySpec)
    """What the agent samples while the command runs."""
    stack_signal: str | None = None
    """The signal that ranks may have named in their start event (`USR2`); None when none was offered to them."""
    host: str = ""
    """Where the order was written."""
    shared_memory: tuple[str, ...] | None = None
    """Shared memory of known kinds that was there before; what is new and unused at the end is removed. None: nothing is removed."""
    devices: tuple[str, ...] = ()
    """GPUs of the run, by index or UUID; empty means those the command's CUDA_VISIBLE_DEVICES leaves, or all."""
    own_folder: str = ""
    """Where this node's agent writes its log, its samples and the stacks it takes itself; empty for the attempt's folder, which node 0
    of a run on many hosts writes to as well."""
    first_rank: int = 0
    """The global rank of this node's local rank 0: torchrun names its rank files by local rank."""
    call: Call | None = None
    """How the agent reaches the harness by TCP; None where it is the harness's child and its pipes are the line."""

    @property
    def writes_to(self) -> str:
        """The folder of what the agent itself writes; what ranks write lies in the attempt's folder on every host."""
        return self.own_folder or self.attempt_folder


AFTER_EFFECT_CODES = (1, -15)
"""How ranks and hosts end that only lost another one, and may be heard of before it: a code of another kind tells more."""

AGENT_GOT_TERM = "the agent was sent TERM"
"""Detail of `exited` where that is why the run was ended."""


@dataclass(frozen=True, kw_only=True)
class AgentReport:
    """What the agent says, one JSON line each on its standard output."""

    kind: str
    """`started` (pid, one report a process), `exited` (returncode: the launcher is over), `gone` (no descendant is left; killed: how
    many had to be), `stacks` (all stacks that could be had lie in attempt-N/stacks; detail: how they were taken), `lost`
    (said by the harness: the agent ended before it could say `gone`, and what it left was killed)."""
    t: float
    m: float = 0.0
    """Monotonic clock, which harness and agent of one host share; 0 where it is not known."""
    pid: int | None = None
    returncode: int | None = None
    killed: int = 0
    detail: str = ""
    host: str = ""
    """The node that says it, on many hosts; empty on one."""
    silent: bool = False
    """Of `node_lost` (said by the harness of one of many hosts): nobody closed its line, nothing was heard on it for too long."""
    oom_kills: str = ""
    """Of `exited`: which counter of the kernel's OOM killer rose while the run went on (`oom_kill 3 → 4 in its cgroup`)."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What the machine and the code were when an attempt ran (attempt-N/provenance.json)."""

    host: str = ""
    platform: str = ""
    python: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    cpu: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    gpu_name: str = ""
    gpu_cc: str = ""
    gpu_uuid_list: str = ""
    gpu_power_limit_w: str = ""
    pcie_gen: str = ""
    driver_version: str = ""
    git_commit_hash: str = ""
    git_branch: str = ""
    git_dirty: str = ""
    git_diff_sha256: str = ""
    """Hash of what tracked files differ by from the commit; empty when they do not."""
    cuda: str = ""
    """The CUDA version torch was built for, else the newest the driver takes."""
    cudnn: str = ""
    nccl: str = ""
    gpu_clocks: str = ""
    """`index:SM/memory MHz` as they may rise to, joined with `;`."""
    gpu_power_default_w: str = ""
    """What the limit of each GPU is without anybody's cap, joined with `;`."""
    nics: dict[str, str] = field(default_factory=dict)
    """Interface → addresses, speed and state, as one line each."""
    container: str = ""
    """`docker`, `podman`, `kubernetes`, `apptainer` …, with its id where it can be read; empty outside of one."""
    environment: dict[str, str] = field(default_factory=dict)
    """Allow-listed variables as the ranks got them, secrets masked."""
    plan_hash: str = ""
    """Short hash of the resolved plan this attempt was run for."""
    variables: dict[str, str] = field(default_factory=dict)
    """The caller's variables that tune a run: NCCL_…, OMP_… and their like."""
    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of a run on many hosts: name → what each of them told of its make (cpu, gpu_name, driver_version, memory_bytes, packages …)."""
    fingerprint: str = ""
    """Short hash of what must be alike for two runs to be averaged (machine.fingerprint.FINGERPRINT_FIELDS)."""
