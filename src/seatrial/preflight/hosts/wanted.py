"""What the runs of a plan want of their hosts, gathered once: who meets where, through which interfaces, with which programs and paths."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.machine.nic_names import only_name
from seatrial.preflight.datasets import named_paths
from seatrial.preflight.disks import nearest_existing
from seatrial.preflight.need import Need, asks_for_gpus, may_use_gpus, needs_torch, uses_deepspeed
from seatrial.records.run_spec import HOSTFILE, LOCAL, PERNODE, HostSpec, PlaceSpec, RunSpec

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
PLACE = "place.interface"
# What decides which interpreter and packages a run gets.
INTERPRETER_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "LD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What is known of the nodes of place `pernode` before they are asked: their commands have called node 0."""

    addresses: tuple[str, ...] = ()
    """Of node 0, where agents will call the harness; the one that the user typed first."""
    host_names: Mapping[str, str] = field(default_factory=dict)
    """Node → what its host calls itself."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """All of it; without a plan only what any run on these hosts would want."""

    hosts: tuple[HostSpec, ...]
    head: str
    """The host the harness runs on; not always one of `hosts`."""
    place: PlaceSpec
    planned: bool = False
    output: str = ""
    """Where the campaign writes, there already or not."""
    folder: str = ""
    """Where the campaign writes, or the nearest folder above that is there on the head."""
    interfaces: Mapping[str, str] = field(default_factory=dict)
    """Who names interfaces (`place.interface`, NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME) → the text."""
    program: tuple[str, ...] = ()
    """The runs' own program, where one is named."""
    cwd: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the interpreter of the runs depends on."""
    ninja: bool = False
    """Whether DeepSpeed may build its ops."""
    torch: bool = False
    gpus: bool = False
    """Whether the plan asks for GPUs."""
    gloo: bool = True
    """Whether ranks are likely to meet through Gloo: no GPU is asked for."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """What every host must have: path → `cwd`, `script` or `data`."""
    temporary: str = "/tmp"
    gathered: Gathered = Gathered()
    """Empty where hosts are entered by ssh."""

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts)

    @property
    def master(self) -> str:
        """The host ranks meet on: node 0."""
        return self.hosts[0].name

    @property
    def master_addr(self) -> str:
        return self.place.master_addr or self.master

    @property
    def own_ssh_name(self) -> str:
        """The name under which the head would enter itself."""
        return self.head if self.head in self.names else socket.gethostname()

    @property
    def by_ssh(self) -> bool:
        """Else nodes are known by their rank alone: `node1` is no name that anybody could look up."""
        return self.place.kind != PERNODE

    @functools.cached_property
    def looked_up(self) -> tuple[str, ...]:
        """The names that hosts look up when a run starts."""
        return tuple(dict.fromkeys([*(self.names if self.by_ssh else ()), self.master_addr]))


def hosts_of(need: Need) -> tuple[HostSpec, ...]:
    """Every host of the plan's runs, once, with the most ranks that a run has there."""
    found: dict[str, HostSpec] = {}
    for spec in need.runs:
        for host in spec.place.hosts:
            known = found.get(host.name)
            if known is None or (host.ranks, len(host.devices)) > (known.ranks, len(known.devices)):
                found[host.name] = host
    return tuple(found.values())


def wanted(need: Need, hosts: Sequence[HostSpec], head: str, place: PlaceSpec | None = None) -> Wanted:
    """Of the runs on many hosts; `place` stands in where there is no plan."""
    runs = [spec for spec in need.runs if spec.place.kind != LOCAL]
    if not runs:
        where = place or PlaceSpec(kind=HOSTFILE, hosts=tuple(hosts))
        return Wanted(
            hosts=tuple(hosts),
            head=head,
            place=where,
            output=str(need.output.absolute()),
            folder=_folder(need.output),
            interfaces=_interfaces(where, [dict(need.caller)]),
        )
    first = runs[0]
    environments = [need.environment(spec) for spec in runs]
    return Wanted(
        hosts=tuple(hosts),
        head=head,
        place=place or first.place,
        planned=True,
        output=str(need.output.absolute()),
        folder=_folder(need.output),
        interfaces=_interfaces(place or first.place, environments),
        program=first.launcher.program[:1],
        cwd=first.cwd,
        variables={name: environments[0][name] for name in INTERPRETER_VARIABLES if name in environments[0]},
        ninja=any(uses_deepspeed(spec) and may_use_gpus(spec) for spec in runs),
        torch=any(spec.launcher.kind in ("torchrun", "deepspeed") for spec in runs),
        gpus=any(asks_for_gpus(spec) for spec in runs),
        gloo=any(_may_meet_by_gloo(spec) for spec in runs) and not any(asks_for_gpus(spec) for spec in runs),
        paths=_paths(need, runs),
        temporary=environments[0].get("TMPDIR") or "/tmp",
    )


def _may_meet_by_gloo(spec: RunSpec) -> bool:
    """A script may do anything; of a bundled workload it is known whether it has torch in it."""
    return not spec.workload.module or needs_torch(spec)


def _folder(output: Path) -> str:
    return str(nearest_existing(output))


def _interfaces(place: PlaceSpec, environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What the ranks will have: the place sets both variables, Gloo's only where it gives one plain name."""
    found = {PLACE: place.interface} if place.interface else {}
    for variable in (NCCL, GLOO):
        set_by_place = place.interface and (variable == NCCL or only_name(place.interface))
        for given in environments:
            if given.get(variable) and not set_by_place:
                found[variable] = given[variable]
    return found


def _paths(need: Need, runs: Sequence[RunSpec]) -> dict[str, str]:
    found = {str(Path(spec.cwd).absolute()): "cwd" for spec in runs}
    for spec in runs:
        script = spec.workload.script
        if script and ("/" in script or script.endswith(".py")) and not spec.workload.module:
            found.setdefault(os.path.normpath(Path(spec.cwd).absolute() / script), "script")
    for _, _, value, cwd in named_paths(need):
        path = os.path.normpath(Path(cwd).absolute() / Path(value).expanduser())
        # What the head has not is told of by the head's own checks.
        if Path(path).exists():
            found.setdefault(path, "data")
    return found


def need_of_head(need: Need, head: str) -> Need:
    """What the plan asks of the head itself, for the checks of one host: its own ranks where it has some, else only the output."""
    runs = tuple(replace(spec, place=_share(spec.place, head)) for spec in need.runs if _takes_part(spec.place, head))
    return replace(need, runs=runs)


def _takes_part(place: PlaceSpec, head: str) -> bool:
    return place.kind != HOSTFILE or any(host.name == head for host in place.hosts)


def _share(place: PlaceSpec, head: str) -> PlaceSpec:
    if place.kind == PERNODE:
        return PlaceSpec(kind=LOCAL, ranks=max(1, place.ranks // max(1, place.nodes)), devices=place.devices, port=place.port)
    if place.kind != HOSTFILE:
        return place
    own = next(host for host in place.hosts if host.name == head)
    is_master = own.name == place.hosts[0].name
    return PlaceSpec(kind=LOCAL, ranks=own.ranks, devices=own.devices, port=place.port if is_master else None)
