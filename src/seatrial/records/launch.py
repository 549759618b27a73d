"""Allocations and commands, the orders and reports of agents, and the hosts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from seatrial.core.control_connection.protocol import ClockOffset, ControlEndpoint
from seatrial.records.events import PROCESS_GROUP
from seatrial.records.plan import TelemetrySpec


@dataclass(frozen=True, kw_only=True)
class Node:
    """One host's share of a run."""

    name: str
    """As in the hostfile; `node0`, `node1` … where there is no ssh."""
    node_rank: int
    ranks: int
    first_rank: int
    """The global rank of its local rank 0."""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """The resources of one run, from its place: ranks, devices and a reserved port."""

    ranks: int
    """Ranks of the whole job."""
    devices: tuple[str, ...] = ()
    master_addr: str = "127.0.0.1"
    master_port: int
    cpu_only: bool = False
    """No GPU is requested and none could be used; False also where that was not checked."""
    nodes: tuple[Node, ...] = ()
    """Each host's share, by node_rank; empty for a run on this machine alone."""
    node: Node | None = None
    """The share that a command is built for; None as above."""
    rendezvous_id: str = ""
    """The scheduler's job, by which torchrun's nodes recognise each other; empty without one."""
    resume_from: str = ""
    """The folder of an earlier attempt whose checkpoint the ranks resume from; empty for a start at step 0."""

    @property
    def local_ranks(self) -> int:
        """Ranks that one command starts."""
        return self.node.ranks if self.node else self.ranks


@dataclass(frozen=True, kw_only=True)
class Command:
    """One or more processes to start: the same argv, with `ranks` giving each process its own variables on top of `env`."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """Set by Seatrial, the place, the launcher or the plan, on top of the caller's environment."""
    cwd: str
    ranks: tuple[dict[str, str], ...] = ({},)
    """One entry per process: one for torchrun and deepspeed, one per rank for plain python."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentVariable:
    """One variable of the ranks, and who set it."""

    name: str
    value: str
    set_by: str
    """`caller`, `site`, `plan`, `place`, `launcher` or `seatrial`."""
    replaced: str | None = None
    """The caller's value that this one replaced; None where there was none, or the same."""


@dataclass(frozen=True, kw_only=True)
class AgentOrder:
    """The agent's order, in attempt-N/agent.json."""

    command: Command
    attempt_folder: str
    rank_logs: str | None = None
    """Where the launcher redirects each rank's output (torchrun's --log-dir, deepspeed's --enable_each_rank_log), to be merged
    into launcher.log."""
    term_s: float = 10.0
    telemetry: TelemetrySpec = field(default_factory=TelemetrySpec)
    """What the agent samples while the command runs."""
    stack_signal: str | None = None
    """The signal that ranks may name in their start event (`USR2`); None where they are given none."""
    host: str = ""
    """Where the order was written."""
    shared_memory: tuple[str, ...] | None = None
    """Shared-memory segments of known kinds that existed before; new and unused ones are removed at the end. None: nothing is removed."""
    devices: tuple[str, ...] = ()
    """GPUs of the run, by index or UUID; empty means those the command's CUDA_VISIBLE_DEVICES leaves, or all."""
    own_folder: str = ""
    """Where this node's agent writes its log, its samples and the stacks it takes; empty for the attempt's folder, as on node 0."""
    first_rank: int = 0
    """The global rank of this node's local rank 0: torchrun names its rank files by local rank."""
    call: ControlEndpoint | None = None
    """How the agent reaches the harness by TCP; None where it is the harness's child and connected by pipes."""

    @property
    def writes_to(self) -> str:
        """The folder for the agent's own files; ranks write to the attempt's folder on every host."""
        return self.own_folder or self.attempt_folder


COMMAND_LAUNCHERS = frozenset(
    {"torchrun", "deepspeed", "accelerate", "horovodrun", "mpirun", "mpiexec", "srun", "torch.distributed.run", "torch.distributed.launch"}
    | {"docker", "podman", "apptainer", "singularity", "ssh", "kubectl"}
)
"""Programs and modules that start ranks, or start them where the agent cannot see them."""


@dataclass(frozen=True, kw_only=True)
class RankConnection:
    """An established TCP connection of a rank, beside those to the rendezvous."""

    rank: int
    local: str
    """`10.0.0.1:40123`, as `remote`."""
    remote: str


@dataclass(frozen=True, kw_only=True)
class RankListener:
    """A TCP socket at which a rank listens, beside the rendezvous."""

    rank: int
    at: str
    """`10.0.0.1:40123`; `0.0.0.0:40123` or `:::40123` at any address of its host."""


@dataclass(frozen=True, kw_only=True)
class ObservedRanks:
    """What the agent saw of a run's ranks in their processes (observed_ranks.json of the attempt, and of each further node)."""

    world_sizes: tuple[int, ...] = ()
    """Every number of ranks in their variables; one, unless they started several jobs."""
    ranks: tuple[int, ...] = ()
    """Ranks seen on this host."""
    launchers: tuple[str, ...] = ()
    """Members of COMMAND_LAUNCHERS among its processes."""
    spawned: int = 0
    """The largest number of processes spawned at once by Python's multiprocessing."""
    looks: int = 0
    """The number of scans."""
    forked: int = 0
    """Processes that a Python process forked, and that did similar work while it waited."""
    connections: tuple[RankConnection, ...] = ()
    """Connections seen in any scan. Two ranks at the two ends of one are connected, whatever their script reports."""
    listening: tuple[RankListener, ...] = ()
    """Where ranks accept connections, as seen in any scan."""


@dataclass(frozen=True, kw_only=True)
class Communicator:
    """The process group that a rank trained in: by its event `process_group`, else by NCCL's own lines in the log."""

    rank: int
    backend: str
    size: int
    transport: str = ""
    """`TCP` of gloo; `P2P`, `SHM`, `NET/IB`, `NET/Socket` of NCCL, as it logs them; empty where unknown."""
    interface: str = ""
    """As GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME name it."""

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Communicator | None:
        """From a `process_group` event; None for any other or damaged event."""
        rank, size, backend = event.get("rank"), event.get("size"), event.get("backend")
        if event.get("kind") != PROCESS_GROUP or type(rank) is not int or type(size) is not int or not isinstance(backend, str):
            return None
        transport, interface = (str(event.get(name) or "") for name in ("transport", "interface"))
        return cls(rank=rank, backend=backend, size=size, transport=transport, interface=interface)


AFTER_EFFECT_CODES = (1, -15)
"""Exit codes of ranks and hosts that only lost a peer, and may be reported before it: other codes are better evidence."""

FAILED_GRACE_S = 5.0
"""After a rank or node has failed, the others often end by themselves, with a better message than ours."""

AGENT_GOT_TERM = "the agent was sent TERM"
"""Detail of `exited` where that ended the run."""


@dataclass(frozen=True, kw_only=True)
class AgentReport:
    """A report of the agent, one JSON line on its standard output."""

    kind: str
    """`started` (pid, one report per process), `exited` (returncode of the launcher), `gone` (no descendant is left; killed: how many had
    to be), `stacks` (stacks are in attempt-N/stacks; detail: how they were taken), `lost` (by the harness: the agent ended before it could
    report `gone`, and its processes were killed)."""
    t: float
    m: float = 0.0
    """Monotonic clock, which harness and agent of one host share; 0 where it is unknown."""
    pid: int | None = None
    returncode: int | None = None
    killed: int = 0
    detail: str = ""
    host: str = ""
    """The reporting node, on many hosts; empty on one."""
    silent: bool = False
    """In `node_lost` (by the harness, on many hosts): the connection was not closed, but silent for too long."""
    oom_kills: str = ""
    """In `exited`: the counter of the kernel's OOM killer that rose during the run (`oom_kill 3 → 4 in its cgroup`)."""


@dataclass(frozen=True, kw_only=True)
class AgentEndpoint(ControlEndpoint):
    """How the agent of one node connects to the harness (nodes/<name>/call.json)."""

    campaign: str
    """The campaign's folder: processes that earlier attempts left on the node are killed first."""
    attempt: str
    """The attempt's folder."""
    holds_port: bool = False
    """Whether this node reserves the rendezvous port for the run and reports it: node 0 does. `port` above is the harness's own."""
    rendezvous_port: int | None = None
    """The requested port; None for any free one."""
    port_base: int | None = None
    """First of the 200 ports to try."""


SKEW_S = 1.0
"""From this offset on a clock counts as wrong: NTP achieves less, and it is half a sampling interval."""


@dataclass(frozen=True, kw_only=True)
class RendezvousView:
    """The rendezvous as one node sees it, before any rank starts."""

    resolved: tuple[str, ...] = ()
    """Addresses of the master by this node's resolver; none for an unknown name."""
    interface: str = ""
    """The interface that its ranks would use, by NCCL's or Gloo's rules or the route to the master; empty where unknown."""
    address: str = ""
    """Its own address on that interface."""
    interfaces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Interfaces that are up → their addresses."""
    missing_interface: str = ""
    """An interface that the plan or the site names and this node lacks."""

    @property
    def nic(self) -> str:
        return f"{self.interface} {self.address}" if self.interface else "interface unknown"

    @property
    def interfaces_text(self) -> str:
        return ", ".join(f"{name} {' '.join(addresses)}" for name, addresses in self.interfaces.items()) or "none"

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(address for addresses in self.interfaces.values() for address in addresses)


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """One host as the harness saw it."""

    name: str
    """As in the hostfile."""
    host: str = ""
    """The host's own name; empty where its agent never connected."""
    node_rank: int = 0
    first_rank: int = 0
    ranks: int = 1
    devices: tuple[str, ...] = ()
    returncode: int | None = None
    """The launcher's; None where it never started, or was not reported."""
    ended: str = ""
    """`exited`, `lost` (its connection ended) or `not_started`."""
    detail: str = ""
    """What went wrong, in one sentence."""
    clock_offset_s: float | None = None
    """How far its wall clock was ahead of the harness's; None where it was not measured."""
    clock_round_trip_s: float | None = None
    killed: int = 0
    """Processes that had to be killed there; on a lost host, those killed afterwards."""
    oom_kills: str = ""
    rendezvous: str = ""
    """The master's address as this node resolves it; empty where its agent was not asked."""
    interface: str = ""
    """The interface that its ranks use towards the others; empty where unknown."""
    address: str = ""
    """Its own address on that interface."""


@dataclass(frozen=True, kw_only=True)
class NodesRecord:
    """The hosts of one attempt (attempt-N/nodes.json): their ranks, how each ended, and its clock offset."""

    nodes: tuple[NodeRecord, ...] = ()
    via: str = ""
    """What started the agents: `pdsh`, `ssh`, `pernode`, or `here` where every host is this machine."""
    master_addr: str = ""
    master_port: int = 0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One host's answer to the doctor, or why there is none."""

    answer: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""
    took_s: float = 0.0
    """From the question to the answer; for the first one, until the session had started."""
    clock: ClockOffset | None = None


class AskHosts(Protocol):
    """Queries many hosts at once. Every host has a reply, within `timeout_s` each."""

    def __call__(self, questions: Mapping[str, Mapping[str, Any]], timeout_s: float, /) -> Mapping[str, Reply]: ...
