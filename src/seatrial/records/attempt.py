"""One attempt as it is on disk: its spec, outcome, provenance, and its steps as tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seatrial.records.caution import Caution
from seatrial.records.eta import EtaPoint
from seatrial.records.launch import NodesRecord
from seatrial.records.measure import RankLocation, RunFacts, TimingPoint
from seatrial.records.outcome import RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.telemetry import TelemetryAccount

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Read back by collect/ from attempt-N/."""

    folder: str
    number: int
    spec: RunSpec
    outcome: RunOutcome | None
    """None while it runs, or where the harness died before it could write it."""
    provenance: Provenance
    telemetry: TelemetryAccount | None = None
    """The samplers' own account; None where none ran."""
    current: bool = True
    """The newest attempt with the hash that a plan of this folder has; others stay in the manifest and out of statistics."""
    cautions: tuple[Caution, ...] = ()
    nodes: NodesRecord | None = None
    """None for a run on one host, and where nodes.json was not written."""
    node_telemetry: dict[str, TelemetryAccount] = field(default_factory=dict)
    """The samplers' account of the other hosts, by name; `telemetry` is that of node 0."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The machine and the code of an attempt (attempt-N/provenance.json)."""

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
    """Hash of the diff of tracked files to the commit; empty without changes."""
    cuda: str = ""
    """The CUDA version torch was built for, else the newest that the driver supports."""
    cudnn: str = ""
    nccl: str = ""
    gpu_clocks: str = ""
    """`index:SM/memory MHz`, the maximum clocks, joined with `;`."""
    gpu_power_default_w: str = ""
    """The default power limit of each GPU, joined with `;`."""
    nics: dict[str, str] = field(default_factory=dict)
    """Interface → addresses, speed and state, as one line each."""
    container: str = ""
    """`docker`, `podman`, `kubernetes`, `apptainer` …, with its id where it can be read; empty outside of one."""
    environment: dict[str, str] = field(default_factory=dict)
    """Allow-listed variables as the ranks got them, secrets masked."""
    plan_hash: str = ""
    """Short hash of the resolved plan."""
    variables: dict[str, str] = field(default_factory=dict)
    """The caller's variables that tune a run: NCCL_…, OMP_… and similar."""
    hosts: dict[str, dict[str, str]] = field(default_factory=dict)
    """On many hosts: name → hardware and software (cpu, gpu_name, driver_version, memory_bytes, packages …)."""
    fingerprint: str = ""
    """Short hash of what must be equal for two runs to be averaged (machine.provenance.FINGERPRINT_FIELDS)."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """One host before the campaign: hardware, versions, network, clock; empty where it could not report it."""

    name: str = ""
    """As in the hostfile."""
    host: str = ""
    """Its own name."""
    boot_id: str = ""
    """New at every boot: with `host` it distinguishes two names of one machine from two machines."""
    platform: str = ""
    cpu: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    """Names in the order of the PCI bus."""
    driver_version: str = ""
    driver_cuda: str = ""
    """The newest CUDA that the driver supports."""
    seatrial: str = ""
    """Version of Seatrial."""
    code: str = ""
    """Hash of Seatrial's files, which distinguishes two checkouts of one version."""
    scripts: dict[str, str] = field(default_factory=dict)
    """Path of a plan's script → its sha256 on this host."""
    python: str = ""
    """Version of the interpreter for the runs."""
    packages: dict[str, str] = field(default_factory=dict)
    torch_cuda: str = ""
    user: str = ""
    uid: int = -1
    interfaces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Every interface that is up → its addresses, in the kernel's order, loopback included."""
    campaigns: tuple[str, ...] = ()
    """Folders of the campaigns that have an agent there."""
    clock_offset_s: float | None = None
    """How far its wall clock is ahead of the harness's; None where it was not measured."""
    clock_round_trip_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class StartupFacts:
    """What the probe of one rank reported up to the end of its first step."""

    rank: int
    """The rank whose first step ended last; where none reported a step, the lowest that started."""
    start_t: float
    """Start of its probe, wall clock."""
    start_m: float | None = None
    """The same, monotonic clock; None where it is unknown."""
    process_t: float | None = None
    """Start of its process, wall clock; None where it is unknown."""
    spans: tuple[tuple[str, float, float], ...] = ()
    """Name (records.events.SPANS), seconds, and the monotonic clock at the end, in order of their ends."""


@dataclass(frozen=True, kw_only=True)
class StepTables(RunFacts):
    """Columns as in records.events: STEP_TABLE_COLUMNS and PAUSE_TABLE_COLUMNS; sorted by rank, then step. Both tables are empty where the
    source is `whole`."""

    steps: polars.DataFrame
    pauses: polars.DataFrame
    world_size: int
    timing_points: tuple[TimingPoint, ...] = ()
    """Printed by the script itself (stage 1's `Timing` lines); empty where analysis has to compute them."""
    eta_points: tuple[EtaPoint, ...] = ()
    """The same, from stage 1's `TimingETA` lines."""
    startup: StartupFacts | None = None
    """None without the probe."""
    locations: tuple[RankLocation, ...] = ()
    """Hosts and GPUs of the ranks, as far as they report them."""
    cautions: tuple[Caution, ...] = ()
