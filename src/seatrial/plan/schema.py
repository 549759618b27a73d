"""The plan as pydantic models: every key, its type, its default and, in the docstring below it, what it means.

`Plan` is what a plan file holds once short forms are expanded. `timing`, `limits` and `telemetry` are the dataclasses of records.plan;
workload, launcher, place and criteria are models of their own, since a plan holds templates and choices there that `resolve` turns into
specs. Checks that need two keys at once are in `checks`, those that need the workload's settings in `workloads`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, PrivateAttr, WithJsonSchema
from pydantic_core import PydanticCustomError

from seatrial.core.errors import PlanError, UsageError
from seatrial.core.ports import LAST_PORT
from seatrial.core.text import parse_duration_s
from seatrial.plan.placeholders import PlaceholderProblem, check_work
from seatrial.plan.yaml_text import KeyPath, Locations, kind_name
from seatrial.records.figures import ANY_THROUGHPUT, FIGURES
from seatrial.records.plan import NODE_AXIS, LimitsSpec, PlaceTraits, TelemetrySpec, TimingSpec, traits_of


class StrictModel(BaseModel):
    """Base of all parts of a plan: no conversion, no unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


LARGEST_WORK = 1e18


def value_error(text: str) -> PydanticCustomError:
    """A validation error whose text reaches the user unchanged."""
    # Pydantic's message templates use braces.
    return PydanticCustomError("plan", "{text}", {"text": text})


def _check_scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise value_error(f"{value} is not a finite number")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise value_error(f"must be one value (text, number, true or false), not {kind_name(value)}")


def _check_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        shown = "null" if value is None else str(value).lower()
        raise value_error(f'must be text: put it in quotes, "{shown}"')
    if not isinstance(value, (str, int, float)):
        raise value_error(f"must be text, not {kind_name(value)}")
    if "\0" in str(value):
        raise value_error("contains a null byte, which no argument can hold")
    return value if isinstance(value, str) else repr(value)


def _check_work(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= LARGEST_WORK:
        return float(value)
    if isinstance(value, str):
        try:
            check_work(value)
        except PlaceholderProblem as problem:
            raise value_error(str(problem)) from problem
        return value
    raise value_error(f'must be a number above zero, or a product or sum such as "{{bs}}*{{block}}", not {value!r}')


def _check_duration(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = parse_duration_s(value)
        except UsageError as error:
            raise value_error(str(error)) from error
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise value_error(f"must be a time above zero such as 90s, 15m or 2h, not {value!r}")
    return float(value)


def _check_one_or_more(value: Any) -> Any:
    return [_check_scalar(item) for item in value] if isinstance(value, list) else _check_scalar(value)


_SCALAR_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
_WORD_SCHEMA: dict[str, Any] = {"type": ["string", "number"]}

ScalarValue = Annotated[Any, PlainValidator(_check_scalar), WithJsonSchema(_SCALAR_SCHEMA)]
_ONE_OR_MORE_SCHEMA: dict[str, Any] = {"anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA}]}
# Lists of settings that a workload declares to be some are joined before the checks.
SettingValue = Annotated[Any, PlainValidator(_check_scalar), WithJsonSchema(_ONE_OR_MORE_SCHEMA)]
OneOrMore = Annotated[Any, PlainValidator(_check_one_or_more), WithJsonSchema(_ONE_OR_MORE_SCHEMA)]
Text = Annotated[str, PlainValidator(_check_text), WithJsonSchema(_WORD_SCHEMA)]
Work = Annotated[Any, PlainValidator(_check_work), WithJsonSchema(_WORD_SCHEMA)]
Duration = Annotated[float, PlainValidator(_check_duration), WithJsonSchema(_WORD_SCHEMA)]


def type_and_value(value: Any) -> tuple[str, Any]:
    """A key under which true, 1, 1.0 and "1" are four values."""
    return type(value).__name__, value


# Not records.verdict.Baseline itself: a plan may say null, and which group and folder that is is known only with the groups.
class BaselinePart(StrictModel):
    """What a metric compares with. Short form: the name of a group."""

    group: str | None = Field(default=None, max_length=200)
    """A group of this plan; with `campaign`, one of that campaign, the recommended one when left out."""
    campaign: str | None = None
    """The output folder of another campaign, relative to where seatrial is started."""
    history: str | None = Field(default=None, max_length=200)
    """A row that `seatrial history pin` put under this name."""


# Not records.verdict.Criterion itself: one part may be a whole set (`ready`), what it leaves open has the metric's own default, which is
# not the same as that value given, and its bounds are not in the metric's unit yet.
class CriterionPart(StrictModel):
    """One gate that the verdict rests on, or a preset."""

    metric: str | None = None
    """What is judged; `seatrial plan criteria` lists all metrics, with their units."""
    ready: str | None = None
    """In place of a metric: a criteria preset by name, with bounds and reasons of its own. `seatrial plan criteria` lists them."""
    scope: str | None = None
    """Where: `campaign`, `every_run`, `every_group` or `winner` (the recommended group where no winner is proven). Each metric has its own
    default."""
    at_most: float | None = None
    """The largest value that passes."""
    at_least: float | None = None
    """The smallest value that passes."""
    unit: str | None = Field(default=None, max_length=40)
    """Unit of the bounds: the metric's own, or one that converts to it exactly: `s` for `ms`, `GiB` for `MiB`, `pct` for a ratio."""
    group: str | None = None
    """The group that is judged in place of the recommended one: for scope `winner`, and of a preset for its criteria of that scope."""
    baseline: BaselinePart | None = None
    """For metrics that compare: the baseline. The plan's `baseline` when left out, if it is one of its groups."""
    reason: str = ""
    """Why the gate is there; shown with the verdict."""


class Needs(StrictModel):
    """A campaign that must have passed before this plan may start, on the same machine with the same software. Short form: its folder."""

    campaign: str
    """Its output folder, relative to where seatrial is started."""
    ready: str | None = None
    """The criteria preset that its verdict must rest on, such as `stage1_stability`; any verdict counts when left out."""
    plan: str | None = None
    """The plan file that runs it, relative to this file: the refusal names it."""


RankBy = Literal[
    "throughput",
    "samples_per_s",
    "tokens_per_s",
    "audio_s_per_s",
    "steps_per_s",
    "wall_p50_ms",
    "iter_p50",
    "stability",
    "balanced",
    "duration_s",
]
RANK_MEANINGS = {
    ANY_THROUGHPUT: "samples/s, else tokens/s, else steps/s, else the length of the run",
    **{name: FIGURES[name].meaning for name in get_args(RankBy) if name != ANY_THROUGHPUT},
}

MAX_RANKS = 4096
RANKS_AXIS = "place.ranks"
NODES_AXIS = "place.nodes"
"""For `slurm`: how many nodes a job has."""
ENV_AXIS = "env."


class Workload(StrictModel):
    """What is run: a bundled workload by name, or a script or program of the user's own. Short form: the bundled workload's name."""

    module: str | None = None
    """A bundled workload, such as `tiny_lm` or `dummy`. Its settings go under `settings`."""
    script: str | None = None
    """Your own script or program, unmodified, relative to where seatrial is started."""
    args: list[Text] = Field(default_factory=list)
    """The script's arguments. `{AXIS}`, `{steps}`, `{run}`, `{group}`, `{repeat}`, `{seed}` are filled in; `{{` is `{`."""
    env: dict[str, Text] = Field(default_factory=dict)
    """Environment variables for the workload, over those of `env`. Placeholders as in `args`."""
    reads: str = "auto"
    """Which built-in log format reads the script's lines; `auto` finds one, `none` times the run as a whole."""
    patterns: list[str] = Field(default_factory=list)
    """Your own regular expressions for its lines, tried first, with groups `step`, `loss`, `samples`, `tokens`, `total`, `pause`; \
`global_samples` and `global_tokens` are those of all ranks."""
    samples_per_step: Work | None = None
    """Samples one rank processes in a step, where the probe does not report it: a number, or a sum or product of settings and whole \
numbers such as `"{bs}*{accum}"`. When left out, what the script prints about itself is used (total batch size, tokens per iteration)."""
    tokens_per_step: Work | None = None
    """Tokens one rank processes in a step, in the form of `samples_per_step`."""


class Launcher(StrictModel):
    """How processes start. Short form: the kind."""

    kind: Literal["python", "torchrun", "deepspeed", "command"] = "python"
    """`python` starts one process a rank, `torchrun` and `deepspeed` start them all, `command` starts the script as a program, as typed."""
    args: list[Text] = Field(default_factory=list)
    """Options for the launcher itself, such as `["--max-restarts", "0"]`. Placeholders as in `workload.args`."""
    program: list[Text] = Field(default_factory=list)
    """What starts the launcher, such as `["/opt/venv/bin/torchrun"]`; empty means the one beside seatrial's own interpreter."""


# Not records.plan.PlaceSpec and SlurmSpec themselves: in a plan the keys of all kinds stand side by side, null leaves one open, which a
# site then fills, and ranks, nodes, hosts and GPUs differ from point to point of the matrix. `plan.place` copies the rest by name.
class Place(StrictModel):
    """Where processes run. Short form: the kind."""

    kind: Literal["local", "hostfile", "pernode", "slurm"] = "local"
    """`local`: this machine. `hostfile`: the hosts of a DeepSpeed hostfile, reached by pdsh or ssh. `pernode`: no ssh at all; \
`seatrial run PLAN --node-rank R --master-addr HOST --master-port PORT` is typed on each node. \
`slurm`: jobs, one for each run or one for all (`allocation`)."""
    ranks: int | None = Field(default=None, ge=1, le=MAX_RANKS)
    """Number of processes of the job, on all hosts together. When left out: one for each GPU of `include` (on each node of `pernode`), \
`gpus_per_node` on each node of `slurm`, all slots of a hostfile, else 1 a node. \
Of more slots than `ranks` the first are taken, host by host."""
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
    ssh_args: list[Text] = Field(default_factory=list)
    """For `hostfile`: options for ssh, such as `["-p", "2222"]`; what belongs to one host goes into ~/.ssh/config."""
    nodes: int | None = Field(default=None, ge=1, le=MAX_RANKS)
    """For `pernode` and `slurm`: how many nodes there are, each with the same number of ranks; 1 for `slurm` when left out."""
    master_addr: str | None = None
    """For all but `local`: rendezvous address of the ranks, a name or an IP address; that of the first host when left out."""
    interface: str | None = None
    """For all but `local`: network interfaces for NCCL and Gloo, in NCCL's grammar: names begin so (`eth,ib`), are exactly so \
(`=eth0`), or do not (`^lo,docker`). Sets NCCL_SOCKET_IFNAME, and GLOO_SOCKET_IFNAME where it is one name. Agents reach the harness there \
alone, if its machine has such an interface."""
    python: str | None = None
    """For all but `local`: the interpreter on every host, by its absolute path; where seatrial's own lies when left out."""
    alike: Literal["say", "refuse"] = "say"
    """For `hostfile` and `pernode`: whether hosts that differ (GPUs, driver, processors, packages) give a warning or are refused."""
    gpu: str | None = None
    """Which GPUs are there, such as `H100-80GB` (`seatrial plan fit --help` lists them), for the forecast of memory where they cannot be \
asked before the start: on `slurm`, other hosts, or another machine than this."""
    port: int | None = Field(default=None, ge=1, le=LAST_PORT)
    """Rendezvous port of the ranks, where it must be this one: a run that cannot have it ends as `port_in_use`. A free one is held for \
each run when left out."""
    port_base: int | None = Field(default=None, ge=1, le=LAST_PORT)
    """First of the 200 ports that are tried, one after the other; 29650 and up when left out."""
    partition: str | None = None
    """For `slurm`: the partition; the cluster's default one when left out."""
    gpus_per_node: int | None = Field(default=None, ge=1, le=64)
    """For `slurm`: GPUs of each node, and as many ranks unless `ranks` says otherwise. Requested as `--gres=gpu:N`."""
    gres: str | None = None
    """For `slurm`: in place of `gpus_per_node`, generic resources as sbatch takes them, such as `gpu:h100:8`."""
    cpus_per_task: int | None = Field(default=None, ge=1, le=4096)
    """For `slurm`: CPUs of each node; there is one task a node, which starts that node's ranks."""
    mem: str | None = None
    """For `slurm`: memory of each node as sbatch takes it, such as `64G`; `0` is all of it."""
    time: str | None = None
    """For `slurm`: time limit of a job as sbatch takes it, such as `02:00:00` or `90` minutes; the partition's own when left out."""
    account: str | None = None
    """For `slurm`: the account that the job is charged to."""
    qos: str | None = None
    """For `slurm`: the quality of service."""
    constraint: str | None = None
    """For `slurm`: features that the nodes must have."""
    nodelist: str | None = None
    """For `slurm`: the nodes to run on, in Slurm's notation, such as `node[1-2]`; any that fit when left out."""
    exclusive: bool = True
    """For `slurm`: whether a job has its nodes to itself. Another job beside it would be measured too. `false` only with `jobs: 1`."""
    sbatch_args: list[Text] = Field(default_factory=list)
    """For `slurm`: further options of sbatch, such as `["--reservation=exam"]`."""
    allocation: Literal["run", "campaign", "current"] = "run"
    """For `slurm`: `run` makes every run a job of its own. `campaign` submits one job that holds its nodes for one run after another, and \
a further one for what is left at its time limit. `current` uses the job that `seatrial run` was started in (salloc, sbatch)."""
    jobs: int = Field(default=1, ge=1, le=1000)
    """For `slurm`: how many jobs are in the queue or running at once; no two are on one node."""
    queue_s: Duration | None = None
    """For `slurm`: longest wait in the queue; the job is then cancelled, and its run left for the next start. No limit when left out."""
    warn_s: int = Field(default=120, ge=1, le=65535)
    """For `slurm`: how many seconds before its time limit a job is warned: its ranks then save a checkpoint and halt."""

    @property
    def traits(self) -> PlaceTraits:
        return traits_of(self.kind)


class Axis(StrictModel):
    """One setting with several values, or several settings that change together. Short form: the list of values."""

    label: str | None = Field(default=None, pattern=r"^[A-Za-z][A-Za-z0-9.-]*$", max_length=40)
    """Its short name in group names. When left out: a common one (`mb` for micro_batch, `nw` for num_workers), else the axis's own name. \
A folder that holds runs keeps the names it has."""
    values: list[SettingValue] = Field(default_factory=list)
    """The values to try, each once."""
    bundles: dict[str, dict[str, SettingValue]] = Field(default_factory=dict)
    """In place of values: named sets of settings, `{old: {lr: 0.1, bs: 8}, new: {lr: 0.2, bs: 16}}`, each naming the same ones. The \
name is part of the group's name; each setting is set, or fills its placeholder."""

    @property
    def choices(self) -> list[ScalarValue]:
        """What the axis takes in turn: its values, or the names of its bundles."""
        return list(self.bundles) if self.bundles else self.values


@dataclass(frozen=True, kw_only=True)
class Timing(TimingSpec):
    """A second type, since a plan may leave open what a resolved `TimingSpec` must have: `log_every` and `tail_points`."""

    log_every: int | None = field(default=None, metadata={"ge": 1})  # type: ignore[assignment]
    """Steps between two timing points; 50 when left out, or a tenth of `steps` where that is less."""
    tail_points: int | None = field(default=None, metadata={"ge": 1})  # type: ignore[assignment]
    """How many last timing points the tail columns average, at most half of them and none whose window holds the first step; 20 when left
    out."""


class Sentinel(StrictModel):
    """One group that is run again and again in between, to see whether the platform changes meanwhile. Short form: `every`."""

    every: int = Field(ge=1, le=10_000)
    """Runs between two of it; it is also the first run and the last. Its runs are called `sentinel_r1` and on, and are not ranked."""
    group: str | None = Field(default=None, max_length=200)
    """The group to run; the plan's first when left out."""
    settings: dict[str, ScalarValue] = Field(default_factory=dict)
    """In place of `group`: axes and their values, `{micro_batch: 8}`; the first group that has them is run."""


class Plan(StrictModel):
    """A campaign: what is run, over which settings, how often, and what must hold."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=80)
    """Name of the plan, in reports and as a file name."""
    extends: str | None = None
    """Another plan to build on, relative to this file: mappings are merged, everything else replaced, axes replaced one by one."""
    workload: Workload
    """What is run."""
    settings: dict[str, SettingValue] = Field(default_factory=dict)
    """Fixed settings of a bundled workload, checked against its own list; for a script, fixed values of its placeholders."""
    launcher: Launcher = Field(default_factory=Launcher)
    """How processes start."""
    place: Place = Field(default_factory=Place)
    """Where processes run."""
    axes: dict[str, Axis] = Field(default_factory=dict)
    """The matrix: a setting of the bundled workload, a placeholder of the script, `place.ranks`, for \
`slurm` `place.nodes` (jobs of so many nodes) and `place.node` (jobs of one node on each of these), or `env.NAME`, each with its values."""
    repeats: int = Field(default=1, ge=1, le=10_000)
    """How often each group is run. Two or more give an interval."""
    steps: int | None = Field(default=None, ge=1)
    """Steps of each run: the bundled workload's setting `steps`, or `{steps}` in a script's arguments."""
    order: Literal["interleaved", "rounds", "nested"] = "interleaved"
    """`interleaved`: repeats in rounds, shuffled within a round, so that drift affects all groups equally; `rounds`: each as the axes are \
written; `nested`: as they are written too, all repeats of a group one after the other."""
    seed: int = 0
    """Seed of that shuffle; also `{seed}`."""
    sentinel: Sentinel | None = None
    """A group that is run in between to see the platform drift; null for none."""
    mode: str = Field(default="sweep", pattern=r"^[a-z0-9_-]+$", max_length=40)
    """Value of the column `mode`, to distinguish kinds of campaign."""
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._+-]*)?$", max_length=60)
    """First part of every group name."""
    lane: dict[str, OneOrMore] = Field(default_factory=dict)
    """The main lane: settings and the value or values they must have; groups off it are marked and ranked apart."""
    needs: Needs | None = None
    """A campaign that must have passed first; null for none. The start is refused otherwise, unless with `--ignore-needs`."""
    rank_by: RankBy = "throughput"
    """What groups are ranked by; `throughput` is samples/s, else tokens/s, else steps/s, else the length of the run."""
    rank_scope: Literal["all", "rank0"] = "all"
    """Which ranks write step events."""
    timing: Timing = Field(default_factory=Timing)
    """What is timed and which steps count."""
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    """When a run is stopped."""
    telemetry: TelemetrySpec = Field(default_factory=TelemetrySpec)
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
    env: dict[str, Text] = Field(default_factory=dict)
    """Environment variables for every rank, over those that seatrial was started with. Placeholders as in `workload.args`."""
    output: str | None = None
    """Folder for everything the campaign writes, `outputs/<name>` when left out; `{time}` becomes the date and time."""

    _locations: Locations = PrivateAttr(default_factory=Locations)

    def error(self, path: KeyPath, problem: str) -> PlanError:
        return self._locations.error(path, problem)

    def located(self, locations: Locations) -> Plan:
        self._locations = locations
        return self


SHORT_FORMS: dict[str, str] = {"workload": "module", "launcher": "kind", "place": "kind"}
"""Keys that may be one value, and the key it stands for."""


def is_harness_axis(name: str) -> bool:
    """An axis that Seatrial applies itself, rather than the workload."""
    return name in (RANKS_AXIS, NODE_AXIS, NODES_AXIS) or name.startswith(ENV_AXIS)


def bundled_settings(plan: Plan) -> dict[str, str]:
    """Setting → axis, of every setting in a bundle."""
    return {key: name for name, axis in plan.axes.items() for bundle in axis.bundles.values() for key in bundle}
