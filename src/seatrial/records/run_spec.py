"""What one run is to do: the plan with every default filled and every placeholder replaced, for one group and repeat."""

from __future__ import annotations

from dataclasses import dataclass, field

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class LogPatterns:
    """How to read a script's own lines: regular expressions with named groups (see records.log_formats)."""

    name: str
    lines: tuple[str, ...]


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
    reads: str = "auto"
    """Which ready log format reads its lines, `auto` to find one, `none` to time the whole run only."""
    patterns: tuple[str, ...] = ()
    """The plan's own regular expressions, tried before any ready format."""
    samples_per_step: float | None = None
    """Samples one rank works through in one step, where neither probe nor log says so."""
    tokens_per_step: float | None = None
    """Tokens one rank works through in one step, likewise."""


@dataclass(frozen=True, kw_only=True)
class LauncherSpec:
    """How processes start."""

    kind: str
    """`python`, `torchrun`, `deepspeed` or `command` (the program as typed)."""
    args: tuple[str, ...] = ()
    """Options for the launcher itself, placeholders filled."""
    program: tuple[str, ...] = ()
    """The words the user typed for it (`torchrun`, `/opt/venv/bin/python`); empty means this interpreter's own."""


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """One host of a run, and what of it is used."""

    name: str
    """As the hostfile has it and ssh knows it."""
    ranks: int = 1
    devices: tuple[str, ...] = ()
    """GPU numbers where `include` or `exclude` name some of them; empty for the first `ranks` ones, or for CPU ranks."""


LOCAL, HOSTFILE, PERNODE = "local", "hostfile", "pernode"
"""The places there are: this machine; agents started by pdsh or ssh; one command on each node, without ssh."""


@dataclass(frozen=True, kw_only=True)
class PlaceSpec:
    """Where processes run."""

    kind: str = LOCAL
    """One of the three above."""
    ranks: int = 1
    """Number of ranks of the job, on all hosts together."""
    devices: tuple[str, ...] = ()
    """GPU ids from `include`; empty means CPU ranks, or whatever the caller's CUDA_VISIBLE_DEVICES shows."""
    hostfile: str = ""
    """Of kind `hostfile`: the file that lists the hosts."""
    hosts: tuple[HostSpec, ...] = ()
    """Of kind `hostfile`: those that the file, `include` and `exclude` leave, in its order; empty where the file could not be read when
    the plan was resolved, and for other kinds. Whose it is does not change what is run: no part of the hash."""
    include: str = ""
    """Of kind `hostfile`: `node1:0,1@node2`, as typed."""
    exclude: str = ""
    via: str = "auto"
    """How agents of other hosts are started: `pdsh`, `ssh`, or `auto` for pdsh where it is installed. No part of the hash."""
    nodes: int = 1
    """Of kind `pernode`: how many nodes there are, each with the same number of ranks."""
    master_addr: str = ""
    """Where ranks meet; empty for the first host as its own name resolves."""
    interface: str = ""
    """Network interfaces for NCCL and Gloo, in NCCL's grammar: `eth0`, `eth,ib`, `=eth0`, `^lo,docker0`; empty leaves it to them."""
    ssh_args: tuple[str, ...] = ()
    """Options for ssh, such as `-p 2222`. No part of the hash."""
    python: str = ""
    """Interpreter on every host; empty for the harness's own path."""
    alike: str = "say"
    """Of hosts of unlike make: `say` or `refuse`. No part of the hash."""
    port: int | None = None
    """The port that ranks must meet at; None where any free one will do."""
    port_base: int | None = None
    """First of the ports that are tried; None for Seatrial's own."""


@dataclass(frozen=True, kw_only=True)
class TimingSpec:
    """What is timed and which steps count."""

    window: str = "auto"
    """`auto` (warm-up is detected), or `FIRST:LAST` steps, either side open: `100:`."""
    log_every: int = 50
    """Steps between two timing points."""
    timing_window: int = 100
    """Steps in the rolling window of a timing point, as the seeds define it."""
    tail_points: int = 20
    """How many last timing points the seeds' tail columns average."""
    sync: bool = False
    """Synchronise the device at phase borders: exact phases, slower steps."""
    phase_every: int = 10
    """On CUDA, take phases on one step in this many."""
    eta_mode: str = "rank0"
    """Whose estimate the seeds' ETA columns and lines give: `rank0`, `global_max` (the slowest rank's), or `off`."""
    eta_min_samples: int = 10
    """Steps that must have been timed before a time to go is said."""


@dataclass(frozen=True, kw_only=True)
class TelemetrySpec:
    """How often the machine is looked at while a run runs; None for never."""

    gpu_s: float | None = 2.0
    host_s: float | None = 2.0


@dataclass(frozen=True, kw_only=True)
class StallSpec:
    """When a run that has begun counts as standing still."""

    factor: float = 20.0
    """Steps that take this many times the measured step time are a stall …"""
    floor_s: float = 180.0
    """… but nothing shorter than this is."""
    quiet_s: float | None = None
    """For a script without the probe: longest time without output, in place of the two above; None judges one that tells its steps by
    them, and one that tells none not at all."""


@dataclass(frozen=True, kw_only=True)
class LimitsSpec:
    """When the supervisor steps in. None means no limit."""

    start_s: float | None = 900.0
    """Longest time from launch to the first step; for a script without the probe, to its first output."""
    run_s: float | None = None
    """Longest time for the whole run."""
    stall: StallSpec | None = field(default_factory=StallSpec)
    soft_s: float = 10.0
    """How long ranks with the probe may take to end at a step by themselves before they get TERM."""
    term_s: float = 10.0
    """How long a process may take to end after TERM before it is killed."""
    memory_gib: float | None = None
    """Most resident memory of the run's whole process tree on one host."""
    disk_gib: float | None = 20.0
    """Most that the logs and events of one attempt may take."""
    stack_signal: str | None = "USR2"
    """The signal at which a rank with the probe writes its stacks; None where the workload needs all signals for itself."""
    spike_ratio: float | None = 2.0
    """A step time this many times the one before is told in alarms.jsonl and on the terminal."""


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
    """The plan's word; `sentinel` for runs that only watch the platform: those are ranked nowhere."""
    lane: bool = True
    """False when a setting is off the plan's main lane: such groups are ranked apart."""
    workload: WorkloadSpec
    settings: dict[str, Scalar] = field(default_factory=dict)
    """Settings of a bundled workload, fixed ones and axes together; of a script, its fixed values and the bundle's."""
    axes: dict[str, Scalar] = field(default_factory=dict)
    """This group's value on each axis, in the plan's order."""
    labels: dict[str, str] = field(default_factory=dict)
    """Axis name to the short word its group name uses; empty for an axis of bundles."""
    varied: tuple[str, ...] = ()
    """Settings, variables and options of a script that the plan's axes set, those in bundles included. No part of the hash."""
    launcher: LauncherSpec
    place: PlaceSpec
    env: dict[str, str] = field(default_factory=dict)
    """What the plan adds to the environment of every rank."""
    cwd: str
    """Where the command is started; everything relative in a plan is relative to this."""
    steps: int | None = None
    rank_scope: str = "all"
    """`all` or `rank0`: which ranks write step events."""
    script_sha256: str | None = None
    timing: TimingSpec = field(default_factory=TimingSpec)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    telemetry: TelemetrySpec = field(default_factory=TelemetrySpec)

    @property
    def key(self) -> str:
        """What runs of one configuration have in common; the group's name in specs without a `group_key`."""
        return self.group_key or self.group
