"""A resolved plan: every default filled, every placeholder replaced, the matrix expanded.

plan.json holds `CampaignPlan`, spec.json `RunSpec`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from seatrial.core.hostfile import HostSpec
from seatrial.records.caution import Scalar
from seatrial.records.verdict import Criterion


@dataclass(frozen=True, kw_only=True)
class WorkloadSpec:
    """What is run: a bundled module, or the user's own script or program."""

    name: str
    """For people: `tiny_lm`, `train.py`."""
    module: str | None = None
    """Dotted name of a bundled trainer, started with `-m`; settings reach it as a file."""
    script: str | None = None
    """The user's script or program, as typed, relative to `cwd`."""
    args: tuple[str, ...] = ()
    """Arguments after the script, placeholders filled."""
    steps_args: tuple[int, ...] = ()
    """Places of the arguments that hold `{steps}`: they change with the number of steps. No part of the hash."""
    reads: str = "auto"
    """Which log format reads its lines, `auto` to find one, `none` to time the whole run only."""
    patterns: tuple[str, ...] = ()
    """The plan's own regular expressions, tried before any known format."""
    samples_per_step: float | None = None
    """Samples of one rank in one step, where neither probe nor log reports them."""
    tokens_per_step: float | None = None
    """Tokens of one rank in one step, likewise."""
    sample_size: dict[str, str] = field(default_factory=dict)
    """Settings that a bundled workload declares to change the size of a sample → what it is counted in (`tokens`). No part of the hash."""
    follows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Effective setting → settings that it may follow (`NAME`, or `NAME=VALUE|VALUE`), as a bundled workload declares (`FOLLOWS`). No part
    of the hash."""
    alike_by: dict[str, str] = field(default_factory=dict)
    """Effective setting → the setting that makes it equal in two groups, likewise (`ALIKE_BY`). No part of the hash."""


@dataclass(frozen=True, kw_only=True)
class LauncherSpec:
    """How processes start."""

    kind: str
    """`python`, `torchrun`, `deepspeed` or `command` (the program as typed)."""
    args: tuple[str, ...] = ()
    """Options for the launcher itself, placeholders filled."""
    program: tuple[str, ...] = ()
    """What the user typed for it (`torchrun`, `/opt/venv/bin/python`); empty means this interpreter's own."""


LOCAL, HOSTFILE, PERNODE, SLURM = "local", "hostfile", "pernode", "slurm"
"""Kinds of places: this machine; agents started by pdsh or ssh; one command on each node, without ssh; a job for each run."""


@dataclass(frozen=True, kw_only=True)
class PlaceTraits:
    """Traits of a kind of place, which are all that code outside `launch/places/` may use. False for an unknown kind."""

    is_this_machine: bool = False
    """Every rank is here: it has this host's clock, GPUs and environment, and its agent is a child of the harness."""
    lists_hosts: bool = False
    """The plan names the hosts, in a file that may not be readable where the plan is resolved."""
    starts_agents_over_ssh: bool = False
    """The harness reaches every host, before the start too."""
    typed_on_each_node: bool = False
    """The command is typed on each node: nodes are known by rank only until they connect to node 0."""
    runs_in_jobs: bool = False
    """A scheduler runs it, on nodes that are not known before; jobs outlive the harness. Such a place is a `launch.places.JobPlace`."""
    counts_nodes: bool = False
    """`nodes` is their number."""


PLACE_KINDS = {
    LOCAL: PlaceTraits(is_this_machine=True),
    HOSTFILE: PlaceTraits(lists_hosts=True, starts_agents_over_ssh=True),
    PERNODE: PlaceTraits(typed_on_each_node=True, counts_nodes=True),
    SLURM: PlaceTraits(runs_in_jobs=True, counts_nodes=True),
}


def traits_of(kind: str) -> PlaceTraits:
    return PLACE_KINDS.get(kind, PlaceTraits())


PER_RUN, PER_CAMPAIGN, CURRENT = "run", "campaign", "current"
"""Whose nodes a run of place SLURM gets: `place.allocation`."""
NODE_AXIS = "place.node"
"""For `slurm`: the node that a job of one node runs on."""


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """The image that agents and ranks of a Slurm job run in, by srun's plugin pyxis. From the site."""

    image: str
    mounts: tuple[str, ...] = ()
    """`/host/path:/path[:flags]`, that of the run's own folder first; the output folder is added when the job starts."""
    workdir: str = ""
    python: str = ""
    """Interpreter in the image; empty for the one of every host."""


@dataclass(frozen=True, kw_only=True)
class SlurmSpec:
    """What a job requests from Slurm, in sbatch's terms; empty leaves it to the cluster."""

    partition: str = ""
    gres: str = ""
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    """There is one task a node."""
    mem: str = ""
    time: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    nodelist: str = ""
    exclusive: bool = True
    sbatch_args: tuple[str, ...] = ()
    allocation: str = PER_RUN
    """PER_RUN: a job for each run. PER_CAMPAIGN: one job for all of them. CURRENT: the job that the harness itself runs in."""
    jobs: int = 1
    """Jobs in flight at once."""
    queue_s: float | None = None
    """Longest wait in the queue."""
    warn_s: int = 120
    """How long before the time limit Slurm's warning comes."""
    container: ContainerSpec | None = None


@dataclass(frozen=True, kw_only=True)
class PlaceSpec:
    """Where processes run."""

    kind: str = LOCAL
    """LOCAL, HOSTFILE, PERNODE or SLURM."""
    ranks: int = 1
    """Number of ranks of the job, on all hosts together."""
    devices: tuple[str, ...] = ()
    """GPU ids from `include`; empty means CPU ranks, or whatever the caller's CUDA_VISIBLE_DEVICES shows."""
    hostfile: str = ""
    """Of kind `hostfile`: the file that lists the hosts."""
    hosts: tuple[HostSpec, ...] = ()
    """Of kind `hostfile`: those that the file, `include` and `exclude` leave, in its order; empty where the file could not be read when
    the plan was resolved, and for other kinds. Which hosts they are does not change what is run: no part of the hash."""
    include: str = ""
    """Of kind `hostfile`: `node1:0,1@node2`, as typed."""
    exclude: str = ""
    via: str = "auto"
    """How agents of other hosts are started: `pdsh`, `ssh`, or `auto` for pdsh where it is installed. No part of the hash."""
    nodes: int = 1
    """Of kinds `pernode` and `slurm`: how many nodes there are, each with the same number of ranks."""
    master_addr: str = ""
    """The rendezvous address; empty for the first host as its own name resolves."""
    interface: str = ""
    """Network interfaces for NCCL, Gloo and agents, in NCCL's grammar: `eth0`, `eth,ib`, `=eth0`, `^lo,docker0`; empty for any."""
    ssh_args: tuple[str, ...] = ()
    """Options for ssh, such as `-p 2222`. No part of the hash."""
    python: str = ""
    """Interpreter on every host; empty for the harness's own path."""
    alike: str = "say"
    """What to do where hosts differ in hardware: `say` or `refuse`. No part of the hash."""
    gpu: str = ""
    """The GPUs by the plan; empty where they are queried. No part of the hash."""
    port: int | None = None
    """The rendezvous port; None where any free one will do."""
    port_base: int | None = None
    """First of the ports that are tried; None for Seatrial's own."""
    slurm: SlurmSpec | None = None
    """Of kind `slurm`: what its jobs request. No part of the hash: the ranks and what they run on are the same."""

    @property
    def traits(self) -> PlaceTraits:
        return traits_of(self.kind)


def _bounded(default: Any, **bounds: Any) -> Any:
    """A setting of a plan with the bounds that plan/ checks, under pydantic's names for them."""
    return field(default=default, metadata=bounds)


EtaMode = Literal["rank0", "global_max", "off"]


@dataclass(frozen=True, kw_only=True)
class TimingSpec:
    """What is timed and which steps count."""

    window: str = _bounded("auto", pattern=r"^(auto|[0-9]{1,15}:[0-9]{0,15}|:[0-9]{1,15})$")
    """Steps that count: `auto` detects the warm-up, `"100:"`, `"100:900"` or `":900"` say which."""
    log_every: int = _bounded(50, ge=1)
    """Steps between two timing points."""
    timing_window: int = _bounded(100, ge=1)
    """Steps in the rolling window of a timing point."""
    tail_points: int = _bounded(20, ge=1)
    """How many last timing points the tail columns average: at most half of them, and none whose window holds the first step."""
    sync: bool = False
    """Synchronise the device at phase borders: exact phases, slower steps."""
    phase_every: int = _bounded(10, ge=1)
    """On CUDA, take phases on one step in this many."""
    eta_mode: EtaMode = "rank0"
    """Whose time to go the ETA lines and columns give: rank 0's, the slowest rank's, or `off` for none."""
    eta_min_samples: int = _bounded(10, ge=2)
    """Steps that must have been timed before an ETA is given."""


@dataclass(frozen=True, kw_only=True)
class TelemetrySpec:
    """How often the machine is sampled during a run."""

    gpu_s: float | None = _bounded(2.0, ge=0.1)
    """Seconds between two samples of the run's GPUs (gpu_telemetry.csv); null for none."""
    host_s: float | None = _bounded(2.0, ge=0.1)
    """Seconds between two samples of host and process tree (host_telemetry.csv); null for none."""


@dataclass(frozen=True, kw_only=True)
class StallSpec:
    """When a run that has started counts as hung. Named pauses of the probe do not count, as long as heartbeats arrive."""

    factor: float = _bounded(20.0, ge=2)
    """A step that takes longer than this many times the measured step time is a stall; of a script without the probe, a silence longer \
than this many times its longest one before."""
    floor_s: float = _bounded(180.0, ge=1)
    """Nothing shorter than this is a stall, in seconds; heartbeats come every 5 s, and that much is added. Between two steps and after \
the last one it is `limits.start_s` if that is longer; for a script without the probe it is at least ten minutes."""
    quiet_s: float | None = _bounded(None, gt=0)
    """For a script of your own: longest time in seconds without output or step, exactly. With the probe, named pauses do not count and \
6.5 s are added for heartbeats. With null the two above decide, and a script without the probe whose processes are busy (CPU, GPU, disk, \
network) gets up to three times as long."""


StackSignal = Literal["USR1", "USR2", "WINCH", "URG", "IO", "PWR"]


@dataclass(frozen=True, kw_only=True)
class LimitsSpec:
    """When a run is stopped from outside."""

    start_s: float | None = _bounded(900.0, gt=0)
    """Longest time in seconds from launch to the first step (of a script without the probe: to its first output); null for no limit."""
    run_s: float | None = _bounded(None, gt=0)
    """Longest time in seconds for a whole run; null for no limit."""
    stall: StallSpec | None = field(default_factory=StallSpec)
    """When a run that hangs is stopped, the stacks of all its ranks written first; null for never."""
    soft_s: float = _bounded(10.0, ge=0)
    """Seconds that ranks with the probe get to end together at a step of their own before they get TERM; 0 for TERM at once."""
    term_s: float = _bounded(10.0, ge=0)
    """Seconds a process may take to end after TERM before it is killed."""
    memory_gib: float | None = _bounded(None, gt=0)
    """Most resident memory of a run's process tree in GiB, by the samples of host_telemetry.csv; null for no limit."""
    disk_gib: float | None = _bounded(20.0, gt=0)
    """Most that logs and events of one attempt may take in GiB; null for no limit."""
    stack_signal: StackSignal | None = "USR2"
    """At this signal a rank with the probe writes its stacks; null where the workload needs every signal itself. NCCL may use USR1."""
    spike_ratio: float | None = _bounded(2.0, gt=1)
    """Raise an alarm when steps take this many times as long as before; null for none. The run continues."""
    health: Literal["end", "warn"] | None = "end"
    """Where a workload's own figures (`probe.progress`) show collapsed gates, gradients of zero or a throughput that fell to a tenth for \
a minute: `end` the run, only `warn` in alarms.jsonl, or null: they are not judged."""


@dataclass(frozen=True, kw_only=True)
class SiteSpec:
    """The facts of a site, from its site.yaml. No part of a run's hash."""

    name: str
    source: str = ""
    """The file."""
    interface: str = ""
    env: dict[str, str] = field(default_factory=dict)
    shared: str = ""
    """The root of the file system that all nodes share."""
    activate: tuple[str, ...] = ()
    """Lines of bash that ranks are started after, on every host."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run. `hash` covers what changes the result; `group_key` is the same without the repeat."""

    run: str
    group: str
    repeat: int
    hash: str = ""
    group_key: str = ""
    plan: str
    """The plan's name."""
    mode: str = "sweep"
    """The plan's `mode`; `sentinel` for runs that only watch the platform: those are not ranked."""
    lane: bool = True
    """False when a setting is off the plan's main lane: such groups are ranked separately."""
    workload: WorkloadSpec
    settings: dict[str, Scalar] = field(default_factory=dict)
    """Settings of a bundled workload, fixed ones and axes together; of a script, its fixed values and the bundle's."""
    axes: dict[str, Scalar] = field(default_factory=dict)
    """This group's value on each axis, in the plan's order."""
    labels: dict[str, str] = field(default_factory=dict)
    """Axis → its label in group names; empty for an axis of bundles."""
    varied: tuple[str, ...] = ()
    """Settings, variables and options of a script that the plan's axes set, those in bundles included. No part of the hash."""
    launcher: LauncherSpec
    place: PlaceSpec
    env: dict[str, str] = field(default_factory=dict)
    """What the plan adds to the environment of every rank."""
    cwd: str
    """Where the command is started; relative paths of a plan are relative to this."""
    steps: int | None = None
    rank_scope: str = "all"
    """`all` or `rank0`: which ranks write step events."""
    script_sha256: str | None = None
    timing: TimingSpec = field(default_factory=TimingSpec)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    telemetry: TelemetrySpec = field(default_factory=TelemetrySpec)
    from_sweep: bool = False
    """Its limits are options of `seatrial sweep` and not keys of a plan file: messages name those. No part of the hash."""
    site: SiteSpec | None = None

    @property
    def key(self) -> str:
        """What runs of one configuration have in common; the group's name in specs without a `group_key`."""
        return self.group_key or self.group


SENTINEL = "sentinel"
"""Group and mode of the runs that only watch the platform; they are off the lane and not ranked."""


@dataclass(frozen=True, kw_only=True)
class NeededCampaign:
    """A campaign that must have passed before the plan may start."""

    campaign: str
    """Its output folder."""
    ready: str = ""
    """The criteria preset that its verdict must rest on; empty for any."""
    plan: str = ""
    """The plan file that runs it, for the message; empty where none is named."""
    enforced: bool = True
    """False if the user chose to start anyway: then it is a warning."""


@dataclass(frozen=True, kw_only=True)
class CampaignPlan:
    """One plan, resolved. Several may share an output folder; each is kept under its name in OUT/plans/."""

    name: str
    output: str
    source: str = ""
    """The file it was read from, or the command line of a one-liner."""
    axes: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    repeats: int = 1
    order: str = "interleaved"
    """`interleaved`: repeats in rounds, shuffled within a round by `seed`; `rounds` and `nested`: as the axes are written."""
    seed: int = 0
    rank_by: str = "throughput"
    """`throughput` (samples/s, else tokens/s, else steps/s, else length of the run), or a metric by name."""
    baseline: str = "old_like"
    """The group that `speedup_vs_baseline` compares with."""
    sentinel_group: str = ""
    """The group that the sentinel runs repeat; empty where the plan has no sentinel."""
    sentinel_every: int | None = None
    """Runs between two of them."""
    criteria: tuple[Criterion, ...] = ()
    needs: NeededCampaign | None = None
    resume_changed: bool = False
    """Whether a training resumes from a checkpoint that was saved before a change (`--resume-changed`)."""
    fit_enforced: bool = True
    """False if the user chose to start runs that will not fit into GPU memory."""
    stop_on_error: bool = False
    budget_s: float | None = None
    runs: tuple[RunSpec, ...] = ()
    """In the order of execution."""
    selected: tuple[str, ...] = ()
    """Runs selected by `--only`; empty means all. The others are not pending."""
    alike: tuple[str, ...] = ()
    """Settings that were made the same in all groups, and which group is the reason, one line each."""

    @property
    def chosen(self) -> tuple[RunSpec, ...]:
        """The runs to be run: all, or those that `--only` selected."""
        return tuple(spec for spec in self.runs if not self.selected or spec.run in self.selected)
