"""Launcher and place of a plan: their checks, and the hosts and GPUs that a run of N ranks gets.

In: a checked `Plan` and the folder that relative paths start from. Out: a PlanError at the key to change; the `Capacity` of the place,
once per plan; a `PlaceSpec` for each number of ranks. No host is contacted. A hostfile is read when the plan is resolved; one that is
missing on this machine leaves the hosts open where the plan says how many ranks there are, so that a plan can be shown anywhere.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.core import launcher_options
from seatrial.core.errors import HostfileError, NoHostsError, PlanError, UsageError
from seatrial.core.hostfile import HostfileHost, HostSpec, count_selected_slots, parse_selection, read_hostfile, select_hosts, take_ranks
from seatrial.machine.gpu_memory import named_gpu
from seatrial.machine.network import LOCAL_NAMES
from seatrial.machine.slurm import short_time_problem
from seatrial.plan.schema import MAX_RANKS, NODES_AXIS, RANKS_AXIS, Place, Plan
from seatrial.plan.yaml_text import KeyPath
from seatrial.records.caution import Scalar
from seatrial.records.plan import HOSTFILE, LOCAL, NODE_AXIS, PER_RUN, PERNODE, SLURM, PlaceSpec, SlurmSpec

_DEVICE = re.compile(r"\d+|(?:GPU|MIG)-[A-Za-z0-9/-]+")


def devices_in(include: str) -> tuple[str, ...]:
    """GPU ids in `localhost:0,1`; a ValueError says what is wrong with the text."""
    host, colon, ids = include.strip().partition(":")
    hosts = [part.partition(":")[0].strip() for part in include.split("@")]
    other = next((name for name in hosts if name and name not in LOCAL_NAMES), None)
    if other is not None:
        raise ValueError(
            f"'{other}' is another host; write `kind: hostfile` to run on those of a hostfile, or localhost:0,1 for GPUs of this machine"
        )
    if len(hosts) > 1:
        raise ValueError(f"'{include}' names several hosts that are all this machine; write localhost:0,1")
    if not host or not colon or not ids.strip():
        raise ValueError(f"'{include}' names no GPUs; write localhost:0 or localhost:0,1")
    devices = tuple(part.strip() for part in ids.split(","))
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise ValueError(f"'{device}' is not a GPU id in '{include}'; write numbers with commas between them, localhost:0,1")
    if len(set(devices)) < len(devices):
        raise ValueError(f"'{include}' names a GPU twice")
    return devices


_RANKS = "use place.ranks"
_NODES = "use `place: {kind: hostfile, hostfile: FILE}` or `{kind: pernode, nodes: N}`"
# Launcher options that Seatrial sets itself, and the key to use instead.
GIVEN_BY_SEATRIAL = {
    "torchrun": {"nproc_per_node": _RANKS, "nnodes": _NODES, "node_rank": _NODES},
    "deepspeed": {"include": "use place.include", "num_gpus": _RANKS},
}
_MEET = "use place.master_addr and place.port"
_RANK_FILES = "each node has a folder of its own for them; leave it out"
# The same on many hosts, where one node's options would be wrong on another.
GIVEN_ON_MANY_HOSTS = {
    "torchrun": {
        **dict.fromkeys(("master_addr", "master_port", "standalone"), _MEET),
        **dict.fromkeys(("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf"), _MEET),
        "local_addr": "use place.interface",
        "log_dir": _RANK_FILES,
    },
    "deepspeed": {**dict.fromkeys(("master_addr", "master_port"), _MEET), "enable_each_rank_log": _RANK_FILES},
}
OPTIONS = {"torchrun": launcher_options.TORCHRUN, "deepspeed": launcher_options.DEEPSPEED}


def check_launcher(plan: Plan) -> None:
    """Raise for launcher options that have no meaning, or that Seatrial sets."""
    if plan.launcher.kind == "command" and (plan.launcher.args or plan.launcher.program):
        key = "args" if plan.launcher.args else "program"
        raise plan.error(("launcher", key), "has no meaning for launcher 'command'; put the arguments in workload.script and workload.args")
    if plan.launcher.kind not in OPTIONS:
        return
    args = plan.launcher.args
    for position, argument in enumerate(args):
        name, inline = OPTIONS[plan.launcher.kind].parse_argument(argument)
        value = inline if inline is not None else args[position + 1] if position + 1 < len(args) else ""
        problem = _option_problem(plan, name or "", value)
        if problem:
            raise plan.error(("launcher", "args", position), f"'{argument}' {problem}")


def _option_problem(plan: Plan, name: str, value: str) -> str:
    """Why launcher.args cannot hold this option; empty if it can."""
    kind, many = plan.launcher.kind, not plan.place.traits.is_this_machine
    given = {**GIVEN_BY_SEATRIAL[kind], **(GIVEN_ON_MANY_HOSTS[kind] if many else {})}
    # `nproc_per_node gpu` is counted by torchrun and cannot be written as place.ranks; on many hosts the number must be known.
    counted_there = name == "nproc_per_node" and not value.isdigit() and "{" not in value and not many
    if name in given and not counted_there:
        return f"is set by Seatrial: {given[name]}"
    if kind == "deepspeed" and name in launcher_options.NOT_PASSED_ON:
        return f"is not supported: {launcher_options.NOT_PASSED_ON[name]}"
    return f"is not supported: {launcher_options.QUIET}" if kind == "deepspeed" and launcher_options.is_quiet(name, value) else ""


def check_place(plan: Plan) -> None:
    """Raise for a port, hosts or GPUs that cannot be used as written."""
    check_keys_of_kind(plan)
    _check_port(plan)
    if plan.place.gpu is not None:
        try:
            named_gpu(plan.place.gpu)
        except UsageError as error:
            raise plan.error(("place", "gpu"), str(error)) from error
    if not plan.place.traits.is_this_machine:
        check_hosts(plan)
    if not plan.place.traits.lists_hosts and plan.place.include is not None:
        _check_devices(plan, plan.place.include)


def _check_devices(plan: Plan, include: str) -> None:
    try:
        devices = devices_in(include)
    except ValueError as error:
        raise plan.error(("place", "include"), str(error)) from error
    ranks, nodes = plan.place.ranks, plan.place.nodes or 1
    if ranks is not None and ranks != len(devices) * nodes:
        on_each = f" on each of {nodes} nodes" if plan.place.traits.counts_nodes else ""
        raise plan.error(
            ("place", "ranks"),
            f"{ranks} ranks, but include names {len(devices)} GPUs ({include}){on_each}; leave ranks out or make them agree",
        )
    if plan.launcher.kind == "deepspeed":
        _check_deepspeed_devices(plan, devices)


def _check_port(plan: Plan) -> None:
    keys = [key for key in ("port", "port_base") if getattr(plan.place, key) is not None]
    if len(keys) == 2:
        raise plan.error(("place", "port_base"), "cannot be combined with place.port; keep one of the two")
    options = OPTIONS.get(plan.launcher.kind)
    if keys and options is not None and "master_port" in options.values(plan.launcher.args):
        raise plan.error(("place", keys[0]), "cannot be combined with the port in launcher.args; keep one of the two")


def _check_deepspeed_devices(plan: Plan, devices: tuple[str, ...]) -> None:
    """deepspeed takes numbers and sorts them: rank 0 would not be on the GPU named first."""
    named = next((device for device in devices if not device.isdecimal()), None)
    if named is not None:
        raise plan.error(
            ("place", "include"),
            f"launcher deepspeed takes GPUs by number, not '{named}'; write localhost:0,1 (`nvidia-smi -L` lists them)",
        )
    rising = sorted(devices, key=int)
    if rising != list(devices):
        raise plan.error(("place", "include"), f"launcher deepspeed takes GPUs in rising order; write localhost:{','.join(rising)}")


# A container is a fact of the site.
SLURM_KEYS = tuple(one.name for one in dataclasses.fields(SlurmSpec) if one.name != "container")
# Keys that a run's place takes from the plan unchanged; the others depend on the point of the matrix or on the kind.
_SAME_KEYS = tuple(
    one.name for one in dataclasses.fields(PlaceSpec) if one.name in Place.model_fields and one.name not in ("ranks", "nodes", "include")
)
# Key → the kinds of place that have it; keys that all kinds have are left out.
KINDS_OF_KEY = {
    "hostfile": (HOSTFILE,),
    "exclude": (HOSTFILE,),
    "via": (HOSTFILE,),
    "ssh_args": (HOSTFILE,),
    "nodes": (PERNODE, SLURM),
    "include": (LOCAL, HOSTFILE, PERNODE),
    "master_addr": (HOSTFILE, PERNODE, SLURM),
    "interface": (HOSTFILE, PERNODE, SLURM),
    "python": (HOSTFILE, PERNODE, SLURM),
    "alike": (HOSTFILE, PERNODE),
    **dict.fromkeys(SLURM_KEYS, (SLURM,)),
}
# What to do instead, if not leaving the key out.
_INSTEAD = {
    ("exclude", "local"): "name the GPUs to use with place.include",
    ("exclude", PERNODE): "name the GPUs to use with place.include",
    ("hostfile", PERNODE): "set the number of nodes with place.nodes",
    ("via", PERNODE): "leave it out, no host is reached by ssh",
    ("ssh_args", PERNODE): "leave it out, no host is reached by ssh",
    ("nodes", HOSTFILE): "choose hosts of the file with place.include",
    ("interface", "local"): "on this machine set env: {NCCL_SOCKET_IFNAME: NAME}",
    ("python", "local"): "on this machine set the interpreter with launcher.program",
    ("include", SLURM): "Slurm chooses the GPUs; set their number with place.gpus_per_node",
    ("exclude", SLURM): 'Slurm chooses the nodes; write sbatch_args: ["--exclude=node3"]',
    ("hostfile", SLURM): "Slurm chooses the nodes; set their number with place.nodes",
    ("via", SLURM): "leave it out, srun starts the agents",
    ("ssh_args", SLURM): "leave it out, srun starts the agents",
}
# Key → its grammar, and what is wrong with a text that does not fit.
_GRAMMARS = {
    "master_addr": (r"[A-Za-z0-9:][A-Za-z0-9.:%_-]*", "is not a host name or address; write node1 or 10.0.0.1"),
    # Names or prefixes; the kernel allows 15 characters.
    "interface": (
        r"(?:\^=?|=)?[A-Za-z0-9_.:-]{1,15}(?:,[A-Za-z0-9_.:-]{1,15})*",
        "is not NCCL's grammar; write eth0, or eth,ib for names that begin so, =eth0 or ^lo,docker",
    ),
    "python": (
        r"/\S+|[A-Za-z][A-Za-z0-9._-]*",
        "is looked for on every host; write its absolute path, such as /opt/venv/bin/python",
    ),
}
# Option letters of ssh: those that take a value, and those that would keep it from running a program and reporting its exit.
SSH_VALUED = frozenset("BbcDEeFIiJLlmOopQRSWw")
SSH_REFUSED = frozenset("fGNnOQstVW")


def check_keys_of_kind(plan: Plan) -> None:
    """Raise for a key that this kind of place does not have."""
    defaults = Place()
    for key, kinds in KINDS_OF_KEY.items():
        if plan.place.kind not in kinds and getattr(plan.place, key) != getattr(defaults, key):
            belongs = " or ".join(f"`kind: {kind}`" for kind in kinds)
            instead = _INSTEAD.get((key, plan.place.kind), "leave it out to run on this machine")
            raise plan.error(("place", key), f"belongs to {belongs}; {instead}")


def check_hosts(plan: Plan) -> None:
    """Raise for keys that places other than `local` cannot have."""
    traits = plan.place.traits
    one_node = traits.runs_in_jobs and (plan.place.nodes or 1) == 1
    if plan.launcher.kind == "command" and not one_node:
        raise plan.error(("launcher", "kind"), "'command' starts one program on one host; on many use python, torchrun or deepspeed")
    if traits.lists_hosts:
        if not (plan.place.hostfile or "").strip():
            raise plan.error(("place", "hostfile"), "name the file that lists the hosts, such as /etc/deepspeed/hostfile")
        _check_include_exclude(plan)
        _check_ssh_args(plan)
    elif traits.typed_on_each_node and plan.place.nodes is None:
        raise plan.error(("place", "nodes"), "is missing; set the number of nodes that run the command")
    elif plan.place.ranks is not None and (problem := uneven_ranks_problem(plan.place.ranks, plan.place.nodes or 1)):
        raise plan.error(("place", "ranks"), problem)
    if traits.runs_in_jobs:
        _check_slurm(plan)
    for key, (grammar, problem) in _GRAMMARS.items():
        text = getattr(plan.place, key)
        if text is not None and not re.fullmatch(grammar, text):
            raise plan.error(("place", key), f"'{text}' {problem}")


# Key → its grammar, and what is wrong with a text that does not fit: each becomes a line of the job's script.
_SLURM_GRAMMARS = {
    **dict.fromkeys(("partition", "account", "qos"), (r"[A-Za-z0-9_.,@-]+", "is not a name")),
    "gres": (r"[A-Za-z0-9_.:,-]+", "is not a list of generic resources; write gpu:8"),
    "constraint": (r"[A-Za-z0-9_.:,&|()\[\]*-]+", "is not a constraint; write features with & or | between them"),
    "nodelist": (r"[A-Za-z0-9_.,\[\]-]+", "is not a list of nodes; write node1 or node[1-2]"),
    "mem": (r"\d+[KMGT]?", "is not an amount of memory; write 64G, or 0 for all of the node's"),
    "time": (
        r"\d+|\d+:\d+(?::\d+)?|\d+-\d+(?::\d+){0,2}|UNLIMITED|INFINITE",
        "is not a time limit; write 02:00:00, 1-12:00:00, or a number of minutes",
    ),
}
# Options of sbatch that Seatrial sets, and the key to use instead.
_SBATCH_GIVEN = {
    **{
        option: f"use place.{option.replace('-', '_')}"
        for option in ("partition", "nodes", "gres", "gpus-per-node", "cpus-per-task", "mem")
    },
    **{option: f"use place.{option}" for option in ("time", "account", "qos", "constraint", "nodelist", "exclusive")},
    **dict.fromkeys(("job-name", "output", "error", "open-mode", "comment", "chdir", "signal"), "Seatrial needs its own to follow the job"),
    **dict.fromkeys(("oversubscribe", "share"), "jobs of a campaign never share a node; use place.exclusive"),
    **dict.fromkeys(("ntasks", "ntasks-per-node"), "there is one task a node, which starts its ranks"),
    **dict.fromkeys(("array", "wrap", "wait", "parsable", "test-only"), "each run is one job with a script of its own"),
    **dict.fromkeys(("requeue", "no-requeue"), "a job that Slurm requeues begins the next attempt"),
}
# Options of sbatch that are not abbreviations, though an option that Seatrial sets begins with them.
_SBATCH_WHOLE = frozenset({"gpus"})


def _check_slurm(plan: Plan) -> None:
    for key, (grammar, problem) in _SLURM_GRAMMARS.items():
        text = getattr(plan.place, key)
        if text is not None and not re.fullmatch(grammar, text):
            raise plan.error(("place", key), f"'{text}' {problem}")
    if plan.place.allocation != PER_RUN:
        _check_allocation(plan)
    if plan.place.time is not None and (problem := short_time_problem(plan.place.time, plan.place.warn_s)):
        raise plan.error(("place", "time"), problem)
    if plan.place.jobs > 1 and not plan.place.exclusive:
        shared = f"with jobs: {plan.place.jobs} Slurm may put two runs on one node, and each would be measured beside the other"
        raise plan.error(("place", "exclusive"), f"{shared}; leave it out, or set jobs: 1")
    if plan.place.gres is not None and plan.place.gpus_per_node is not None:
        raise plan.error(("place", "gres"), "cannot be combined with place.gpus_per_node; keep one of the two")
    for position, argument in enumerate(plan.place.sbatch_args):
        path: KeyPath = ("place", "sbatch_args", position)
        found = re.fullmatch(r"--([a-z][a-z-]*)(?:=[^\s\"'\\]+)?", argument)
        if not found:
            raise plan.error(path, f"'{argument}' is not a long option of sbatch in one word; write --reservation=NAME")
        if (given := _sbatch_option(found[1])) is not None:
            option = f"'{argument}'" if given == found[1] else f"'{argument}' (--{given})"
            raise plan.error(path, f"{option} is set by Seatrial: {_SBATCH_GIVEN[given]}")


def _sbatch_option(name: str) -> str | None:
    """The option that Seatrial sets and sbatch may take `name` for: it accepts any beginning that only one option has. Which one has it
    depends on sbatch's version, so every beginning counts."""
    if name in _SBATCH_GIVEN or name in _SBATCH_WHOLE:
        return name if name in _SBATCH_GIVEN else None
    return next((option for option in _SBATCH_GIVEN if option.startswith(name)), None)


def _check_allocation(plan: Plan) -> None:
    """Raise for keys that one job for many runs cannot have."""
    one_job = f"allocation: {plan.place.allocation} runs one after another on the same nodes"
    if plan.place.jobs != Place().jobs:
        raise plan.error(("place", "jobs"), f"{one_job}; leave it out, or use allocation: run")
    for axis in (NODE_AXIS, NODES_AXIS):
        if axis in plan.axes:
            raise plan.error(("axes", axis), f"{one_job}; use allocation: run, which submits a job for each run")


def _check_include_exclude(plan: Plan) -> None:
    include, exclude, ranks = plan.place.include, plan.place.exclude, plan.place.ranks
    if include is not None and exclude is not None:
        raise plan.error(("place", "exclude"), "cannot be combined with place.include; keep one of the two")
    for key, text in (("include", include), ("exclude", exclude)):
        if text is None:
            continue
        if not text.strip():
            raise plan.error(("place", key), "names no host; write node1@node2:0,1 or leave it out")
        try:
            parse_selection(text)
        except HostfileError as error:
            raise plan.error(("place", key), str(error)) from error
    named = count_selected_slots(include) if include is not None else None
    if ranks is not None and named is not None and ranks > named:
        raise plan.error(("place", "ranks"), f"{ranks} ranks, but include names {named} slots ({include}); lower ranks or name more")


def uneven_ranks_problem(ranks: int, nodes: int) -> str | None:
    """Why the ranks do not divide evenly over the nodes; None where they do."""
    if ranks % nodes == 0:
        return None
    below = ranks - ranks % nodes
    fitting = f"{below} or {below + nodes}" if below else str(nodes)
    return f"{ranks} ranks do not divide evenly over {nodes} nodes (place.nodes); use {fitting}"


def _check_ssh_args(plan: Plan) -> None:
    """Options only: ssh would take a bare argument for the host."""
    value_next = False
    for position, argument in enumerate(plan.place.ssh_args):
        if value_next:
            value_next = False
            continue
        if not re.fullmatch(r"-[A-Za-z0-9].*", argument):
            raise plan.error(
                ("place", "ssh_args", position),
                f"'{argument}' is not an ssh option: ssh would take it for the host; write -p 2222 or -o NAME=VALUE",
            )
        flags, valued = _ssh_letters(argument[1:])
        refused = next((letter for letter in flags if letter in SSH_REFUSED), None)
        if refused:
            raise plan.error(
                ("place", "ssh_args", position), f"-{refused} would keep ssh from running the agent and reporting its exit; leave it out"
            )
        value_next = valued and flags == argument[1:]
    if value_next:
        raise plan.error(("place", "ssh_args"), f"'{plan.place.ssh_args[-1]}' is not followed by its value")


def _ssh_letters(letters: str) -> tuple[str, bool]:
    """The option letters of one argument, and whether the last takes a value: `p2222` is p with a value, `Av` two without."""
    for position, letter in enumerate(letters):
        if letter in SSH_VALUED:
            return letters[: position + 1], True
    return letters, False


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What a plan's place offers."""

    ranks: int
    """Ranks of a run, unless an axis sets them or the number of nodes."""
    devices: tuple[str, ...] = ()
    """GPUs of this machine, or of every node."""
    hosts: tuple[HostSpec, ...] = ()
    """The included hosts of a hostfile that could be read."""


def capacity_of(plan: Plan, cwd: Path) -> Capacity:
    """What the place offers; a PlanError for a hostfile that cannot be used."""
    if plan.place.traits.lists_hosts:
        return _hostfile_capacity(plan, cwd)
    devices = devices_in(plan.place.include) if plan.place.include is not None else ()
    return Capacity(ranks=_ranks_on(plan, plan.place.nodes or 1, devices), devices=devices)


def _ranks_on(plan: Plan, nodes: int, devices: Sequence[str]) -> int:
    """Ranks of a run on so many nodes with these GPUs each, unless an axis sets them."""
    return plan.place.ranks or nodes * (len(devices) or plan.place.gpus_per_node or 1)


def _hostfile_capacity(plan: Plan, cwd: Path) -> Capacity:
    include = plan.place.include or ""
    try:
        listed = read_hostfile(cwd / str(plan.place.hostfile))
    except NoHostsError as error:
        named = count_selected_slots(include) if include else None
        ranks = plan.place.ranks or named or (1 if RANKS_AXIS in plan.axes else None)
        if ranks is None:
            without = "`plan show` works without it if place.ranks is set"
            raise plan.error(("place", "hostfile"), f"{error} ({without})") from error
        return Capacity(ranks=ranks)
    except HostfileError as error:
        raise plan.error(("place", "hostfile"), str(error)) from error
    hosts = _included_hosts(plan, listed)
    slots = sum(host.ranks for host in hosts)
    if plan.place.ranks is None and RANKS_AXIS not in plan.axes and slots > MAX_RANKS:
        raise plan.error(("place", "hostfile"), f"{slots:,} slots are more than the {MAX_RANKS:,} ranks of a run; set place.ranks")
    return Capacity(ranks=plan.place.ranks or slots, hosts=hosts)


def _included_hosts(plan: Plan, listed: tuple[HostfileHost, ...]) -> tuple[HostSpec, ...]:
    try:
        return select_hosts(listed, plan.place.include or "", plan.place.exclude or "")
    except HostfileError as error:
        key = "include" if plan.place.include is not None else "exclude"
        raise plan.error(("place", key), f"{error} ({plan.place.hostfile})") from error


def place_at(plan: Plan, capacity: Capacity, axes: Mapping[str, Scalar]) -> PlaceSpec:
    """The place of the runs at this point of the matrix; a PlanError where it does not have room for their ranks."""
    place = plan.place
    nodes = axes.get(NODES_AXIS, place.nodes or 1)
    assert isinstance(nodes, int), "check_axes lets only integers through"
    ranks = axes.get(RANKS_AXIS, _ranks_on(plan, nodes, capacity.devices) if NODES_AXIS in axes else capacity.ranks)
    assert isinstance(ranks, int), "check_axes lets only integers through"
    try:
        hosts = take_ranks(capacity.hosts, ranks) if capacity.hosts else ()
    except HostfileError as error:
        raise _ranks_error(plan, f"{error} ({place.hostfile})") from error
    if problem := uneven_ranks_problem(ranks, nodes):
        raise _ranks_error(plan, problem)
    if capacity.devices and ranks > len(capacity.devices) * nodes:
        raise _ranks_error(plan, f"{ranks} ranks, but include names {len(capacity.devices)} GPUs ({place.include})")
    return PlaceSpec(
        **_given(place, _SAME_KEYS),
        ranks=ranks,
        devices=capacity.devices[: ranks // nodes],
        hosts=hosts,
        include=place.include or "" if place.traits.lists_hosts else "",
        nodes=nodes,
        slurm=_slurm_spec(place, axes.get(NODE_AXIS)) if place.traits.runs_in_jobs else None,
    )


def _slurm_spec(place: Place, node: Scalar) -> SlurmSpec:
    return SlurmSpec(**{**_given(place, SLURM_KEYS), **({"nodelist": str(node)} if node is not None else {})})


def _given(place: Place, keys: Sequence[str]) -> dict[str, Any]:
    """Keys that the plan sets; the record has defaults for the others."""
    values = {key: getattr(place, key) for key in keys}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items() if value is not None}


def _ranks_error(plan: Plan, problem: str) -> PlanError:
    path: KeyPath = ("axes", RANKS_AXIS) if RANKS_AXIS in plan.axes else ("place", "ranks")
    return plan.error(path, problem)
