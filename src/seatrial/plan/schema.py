"""The plan as pydantic models: every key, its type, its default and, in the line under it, what it means.

`Plan` is what a plan file holds after short forms are spelled out; `json_schema` has the same for editors. Checks that need two keys at
once are in `checks`, those that need the workload's settings in `bundled`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PrivateAttr

from seatrial.plan.criteria_schema import CriterionPart
from seatrial.plan.locate import Locations
from seatrial.plan.part import Part
from seatrial.plan.values import Duration, OneOrMore, ScalarValue, Word, Work
from seatrial.ports import LAST_PORT

RankBy = Literal[
    "throughput", "samples_per_s", "tokens_per_s", "steps_per_s", "wall_p50_ms", "iter_p50", "stability", "balanced", "duration_s"
]

MOST_RANKS = 4096
StackSignal = Literal["USR1", "USR2", "WINCH", "URG", "IO", "PWR"]


class Workload(Part):
    """What is run: a bundled workload by name, or a script or program of the user's own. Short form: the bundled workload's name."""

    module: str | None = None
    """A bundled workload, such as `tiny_lm` or `dummy`. Its settings go under `settings`."""
    script: str | None = None
    """Your own script or program, unmodified, relative to where seatrial is started."""
    args: list[Word] = Field(default_factory=list)
    """The script's arguments, a word each. `{AXIS}`, `{steps}`, `{run}`, `{group}`, `{repeat}`, `{seed}` are filled in; `{{` is `{`."""
    env: dict[str, Word] = Field(default_factory=dict)
    """Environment variables for the workload, over those of `env`. Placeholders as in `args`."""
    reads: str = "auto"
    """Which ready log format reads the script's lines; `auto` finds one, `none` times the run as a whole."""
    patterns: list[str] = Field(default_factory=list)
    """Your own regular expressions for its lines, tried first, with groups `step`, `loss`, `samples`, `tokens`, `total`, `pause`."""
    samples_per_step: Work | None = None
    """Samples one rank works through in a step, where neither probe nor log says so: a number or one placeholder such as `"{bs}"`."""
    tokens_per_step: Work | None = None
    """Tokens one rank works through in a step, likewise."""


class Launcher(Part):
    """How processes start. Short form: the kind."""

    kind: Literal["python", "torchrun", "deepspeed", "command"] = "python"
    """`python` starts one process a rank, `torchrun` and `deepspeed` start them all, `command` starts the script as a program, as typed."""
    args: list[Word] = Field(default_factory=list)
    """Options for the launcher itself, such as `["--max-restarts", "0"]`. Placeholders as in `workload.args`."""
    program: list[Word] = Field(default_factory=list)
    """The words that start the launcher, such as `["/opt/venv/bin/torchrun"]`; empty means the one beside seatrial's own interpreter."""


class Place(Part):
    """Where processes run. Short form: the kind."""

    kind: Literal["local", "hostfile", "pernode"] = "local"
    """`local`: this machine. `hostfile`: the hosts of a DeepSpeed hostfile, reached by pdsh or ssh. `pernode`: no ssh at all; \
`seatrial run PLAN --node-rank R --master-addr HOST --master-port PORT` is typed on each node."""
    ranks: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    """Number of processes of the job, on all hosts together. When left out: one for each GPU of `include` (on each node of `pernode`), \
all slots of a hostfile, else 1 a node. Of more slots than `ranks` the first are taken, host by host."""
    include: str | None = None
    """GPUs to use, `localhost:0,1`: sets CUDA_VISIBLE_DEVICES, one rank for each; `deepspeed` takes numbers, in rising order. Leave it \
out for CPU ranks. For `pernode` these are the GPUs of every node. For `hostfile` the hosts to use, `node1@node2:0,1`: all slots of \
node1, two GPUs of node2."""
    exclude: str | None = None
    """For `hostfile`, in place of `include`: what of its hosts not to use, `node3@node2:0`."""
    hostfile: str | None = None
    """For `hostfile`: the file with a line `host slots=n` for each host, such as `/etc/deepspeed/hostfile`. One that is missing or empty \
is refused."""
    via: Literal["auto", "pdsh", "ssh"] = "auto"
    """For `hostfile`: what starts Seatrial's agent on other hosts; `auto` is pdsh where it is installed and there are several, else ssh."""
    ssh_args: list[Word] = Field(default_factory=list)
    """For `hostfile`: options for ssh, a word each, such as `["-p", "2222"]`; what belongs to one host goes into ~/.ssh/config."""
    nodes: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    """For `pernode`: how many nodes there are, each with the same number of ranks."""
    master_addr: str | None = None
    """For `hostfile` and `pernode`: name or address at which ranks meet; that of the first host when left out."""
    interface: str | None = None
    """For `hostfile` and `pernode`: network interfaces for NCCL and Gloo, in NCCL's grammar: names begin so (`eth,ib`), are exactly so \
(`=eth0`), or do not (`^lo,docker`). Sets NCCL_SOCKET_IFNAME, and GLOO_SOCKET_IFNAME where it is one name."""
    python: str | None = None
    """For `hostfile` and `pernode`: the interpreter on every host, by its whole path; where seatrial's own lies when left out."""
    alike: Literal["say", "refuse"] = "say"
    """For `hostfile` and `pernode`: whether hosts of unlike make (GPUs, driver, processors, packages) are told of or refused."""
    port: int | None = Field(default=None, ge=1, le=LAST_PORT)
    """The port at which ranks meet, where it must be this one: a run that cannot have it ends as `port_in_use`. A free one is held for \
each run when left out."""
    port_base: int | None = Field(default=None, ge=1, le=LAST_PORT)
    """First of the 200 ports that are tried, one after the other; 29650 and up when left out."""


class Axis(Part):
    """One setting with several values, or several settings that change together. Short form: the list of values."""

    label: str | None = Field(default=None, pattern=r"^[A-Za-z][A-Za-z0-9.-]*$", max_length=40)
    """Short word for it in group names; `mb` for micro_batch, else made from the name."""
    values: list[ScalarValue] = Field(default_factory=list)
    """The values to try, each once."""
    bundles: dict[str, dict[str, ScalarValue]] = Field(default_factory=dict)
    """In place of values: named sets of settings, `{old: {lr: 0.1, bs: 8}, new: {lr: 0.2, bs: 16}}`, each naming the same ones. The \
name stands in the group's name as it is; each setting is set, or fills its placeholder."""

    @property
    def choices(self) -> list[ScalarValue]:
        """What the axis takes in turn: its values, or the names of its bundles."""
        return list(self.bundles) if self.bundles else self.values


class Timing(Part):
    """What is timed and which steps count."""

    window: str = Field(default="auto", pattern=r"^(auto|[0-9]{1,15}:[0-9]{0,15}|:[0-9]{1,15})$")
    """Steps that count: `auto` detects the warm-up, `"100:"`, `"100:900"` or `":900"` say which."""
    log_every: int | None = Field(default=None, ge=1)
    """Steps between two timing points; 50 when left out, or a tenth of `steps` where that is less."""
    timing_window: int = Field(default=100, ge=1)
    """Steps in the rolling window of a timing point."""
    tail_points: int | None = Field(default=None, ge=1)
    """How many last timing points the tail columns average; 20, or half of the points where there are fewer than 40."""
    sync: bool = False
    """Synchronise the device at phase borders: exact phases, slower steps."""
    phase_every: int = Field(default=10, ge=1)
    """On CUDA, take phases on one step in this many."""
    eta_mode: Literal["rank0", "global_max", "off"] = "rank0"
    """Whose time to go the ETA lines and columns give: rank 0's, or the slowest rank's."""
    eta_min_samples: int = Field(default=10, ge=2)
    """Steps that must have been timed before a time to go is said."""


class Stall(Part):
    """When a run that has begun counts as standing still. Named pauses of the probe do not count, as long as heartbeats come."""

    factor: float = Field(default=20.0, ge=2)
    """A step that takes longer than this many times the measured step time is a stall."""
    floor_s: float = Field(default=180.0, ge=1)
    """Nothing shorter than this is, in seconds; heartbeats come every five, and that much is waited for besides. Between two steps, \
after the last one, and for a script without the probe, which cannot say that it evaluates or saves, it is `limits.start_s` where that \
is more."""
    quiet_s: float | None = Field(default=None, gt=0)
    """For a script without the probe: longest time in seconds without output, in place of the two above; null judges one that tells its \
steps by them, and one that tells none not at all."""


class Limits(Part):
    """When a run is stopped from outside."""

    start_s: float | None = Field(default=900.0, gt=0)
    """Longest time in seconds from launch to the first step (of a script without the probe: to its first output); null for no limit."""
    run_s: float | None = Field(default=None, gt=0)
    """Longest time in seconds for a whole run; null for no limit."""
    stall: Stall | None = Field(default_factory=Stall)
    """When a run that hangs is stopped, the stacks of all its ranks written first; null for never."""
    soft_s: float = Field(default=10.0, ge=0)
    """Seconds that ranks with the probe get to end together at a step of their own before they get TERM; 0 for TERM at once."""
    term_s: float = Field(default=10.0, ge=0)
    """Seconds a process may take to end after TERM before it is killed."""
    memory_gib: float | None = Field(default=None, gt=0)
    """Most resident memory of a run's process tree in GiB, by the samples of host_telemetry.csv; null for no limit."""
    disk_gib: float | None = Field(default=20.0, gt=0)
    """Most that logs and events of one attempt may take in GiB; null for no limit."""
    stack_signal: StackSignal | None = "USR2"
    """At this signal a rank with the probe writes its stacks; null where the workload needs every signal itself. NCCL may use USR1."""
    spike_ratio: float | None = Field(default=2.0, gt=1)
    """Tell an alarm when steps take this many times as long as they did before; null for none. The run goes on."""


class Telemetry(Part):
    """How often the machine is looked at while a run runs."""

    gpu_s: float | None = Field(default=2.0, ge=0.1)
    """Seconds between two samples of the run's GPUs (gpu_telemetry.csv); null for none."""
    host_s: float | None = Field(default=2.0, ge=0.1)
    """Seconds between two samples of host and process tree (host_telemetry.csv); null for none."""


class Sentinel(Part):
    """One group that is run again and again in between, to see whether the platform changes meanwhile. Short form: `every`."""

    every: int = Field(ge=1, le=10_000)
    """Runs between two of it; it is also the first run and the last. Its runs are called `sentinel_r1` and on, and are not ranked."""
    group: str | None = Field(default=None, max_length=200)
    """The group to run; the plan's first when left out."""
    settings: dict[str, ScalarValue] = Field(default_factory=dict)
    """In place of `group`: axes and their values, `{micro_batch: 8}`; the first group that has them is run."""


class Plan(Part):
    """A campaign: what is run, over which settings, how often, and what must hold."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=80)
    """Name of the plan, in reports and as a file name."""
    extends: str | None = None
    """Another plan to build on, relative to this file: mappings are merged, everything else replaced, axes replaced one by one."""
    workload: Workload
    """What is run."""
    settings: dict[str, ScalarValue] = Field(default_factory=dict)
    """Fixed settings of a bundled workload, checked against its own list; for a script, fixed values of its placeholders."""
    launcher: Launcher = Field(default_factory=Launcher)
    """How processes start."""
    place: Place = Field(default_factory=Place)
    """Where processes run."""
    axes: dict[str, Axis] = Field(default_factory=dict)
    """The matrix: a setting of the bundled workload, a placeholder of the script, `place.ranks` or `env.NAME`, each with its values."""
    repeats: int = Field(default=1, ge=1, le=10_000)
    """How often each group is run. Two or more give an interval."""
    steps: int | None = Field(default=None, ge=1)
    """Steps of each run: the bundled workload's setting `steps`, or `{steps}` in a script's arguments."""
    order: Literal["interleaved", "rounds", "nested"] = "interleaved"
    """`interleaved`: repeats in rounds, shuffled within a round, so that drift hits all groups alike; `rounds`: each as the axes are \
written; `nested`: as they are written too, all repeats of a group one after the other."""
    seed: int = 0
    """Seed of that shuffle; also `{seed}`."""
    sentinel: Sentinel | None = None
    """A group that is run in between to see the platform drift; null for none."""
    mode: str = Field(default="sweep", pattern=r"^[a-z0-9_-]+$", max_length=40)
    """A word for the column `mode`, to tell kinds of campaign apart."""
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._+-]*)?$", max_length=60)
    """First part of every group name."""
    lane: dict[str, OneOrMore] = Field(default_factory=dict)
    """The main lane: settings and the value or values they must have; groups off it are ranked apart."""
    rank_by: RankBy = "throughput"
    """What groups are ranked by; `throughput` is samples/s, else tokens/s, else steps/s, else the length of the run."""
    rank_scope: Literal["all", "rank0"] = "all"
    """Which ranks write step events."""
    timing: Timing = Field(default_factory=Timing)
    """What is timed and which steps count."""
    limits: Limits = Field(default_factory=Limits)
    """When a run is stopped."""
    telemetry: Telemetry = Field(default_factory=Telemetry)
    """How often GPUs and host are sampled."""
    baseline: str = Field(default="old_like", max_length=200)
    """The group that `speedup_vs_baseline` compares with, and criteria that name no baseline; the column stays empty where there is no \
such group."""
    criteria: list[CriterionPart] | None = None
    """What must hold for PASS; `failed_runs at_most 0` when left out."""
    stop_on_error: bool = False
    """Stop the campaign after the first run that fails."""
    budget: Duration | None = None
    """Longest time for the whole campaign, such as `2h`; runs that would begin later are left for the next time."""
    env: dict[str, Word] = Field(default_factory=dict)
    """Environment variables for every rank, over the caller's own. Placeholders as in `workload.args`."""
    output: str | None = None
    """Folder for everything the campaign writes, `outputs/<name>` when left out; `{time}` becomes the date and time."""

    _locations: Locations = PrivateAttr(default_factory=Locations)

    @property
    def locations(self) -> Locations:
        """Where each key was written."""
        return self._locations

    def located(self, locations: Locations) -> Plan:
        """This plan, knowing where its keys were written."""
        self._locations = locations
        return self


SHORT_FORMS: dict[str, str] = {"workload": "module", "launcher": "kind", "place": "kind"}
"""Keys that may be one word, and the key that word stands for."""
