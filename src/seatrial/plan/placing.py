"""Where each run of a plan is made: the hosts and GPUs there are, and what of them a number of ranks takes.

In: a checked `Plan` and the folder that relative paths begin at. Out: a `Ground`, once for a plan, then a `PlaceSpec` for each number of
ranks. A hostfile is read here, and only read: one that is not on this machine leaves the hosts open where the plan says how many ranks
there are, so that a plan can be looked at anywhere; a run of it is refused before the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import HostfileError, NoHostsError, PlanError
from seatrial.hostfile import HostfileHost, chosen, first_ranks, read_hostfile, slots_named
from seatrial.plan.checks_of_axes import RANKS_AXIS
from seatrial.plan.checks_of_hosts import uneven
from seatrial.plan.include import devices_in
from seatrial.plan.locate import KeyPath
from seatrial.plan.schema import MOST_RANKS, Plan
from seatrial.records.run_spec import HOSTFILE, HostSpec, PlaceSpec, Scalar


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a plan's place has."""

    ranks: int
    """Of a run where no axis says otherwise."""
    devices: tuple[str, ...] = ()
    """GPUs of this machine, or of every node."""
    hosts: tuple[HostSpec, ...] = ()
    """Of a hostfile that could be read, all that were chosen."""


def ground_of(plan: Plan, cwd: Path) -> Ground:
    """What there is; a PlanError for a hostfile that cannot be used."""
    if plan.place.kind == HOSTFILE:
        return _of_hostfile(plan, cwd)
    devices = devices_in(plan.place.include) if plan.place.include is not None else ()
    return Ground(ranks=plan.place.ranks or (len(devices) or 1) * (plan.place.nodes or 1), devices=devices)


def _of_hostfile(plan: Plan, cwd: Path) -> Ground:
    include = plan.place.include or ""
    try:
        listed = read_hostfile(cwd / str(plan.place.hostfile))
    except NoHostsError as error:
        named = slots_named(include) if include else None
        ranks = plan.place.ranks or named or (1 if RANKS_AXIS in plan.axes else None)
        if ranks is None:
            without = "`plan show` works without it where place.ranks says how many ranks there are"
            raise plan.locations.error(("place", "hostfile"), f"{error} ({without})") from error
        return Ground(ranks=ranks)
    except HostfileError as error:
        raise plan.locations.error(("place", "hostfile"), str(error)) from error
    hosts = _chosen(plan, listed)
    slots = sum(host.ranks for host in hosts)
    if plan.place.ranks is None and RANKS_AXIS not in plan.axes and slots > MOST_RANKS:
        raise plan.locations.error(
            ("place", "hostfile"), f"{slots:,} slots are more than the {MOST_RANKS:,} ranks of a run; say place.ranks"
        )
    return Ground(ranks=plan.place.ranks or slots, hosts=hosts)


def _chosen(plan: Plan, listed: tuple[HostfileHost, ...]) -> tuple[HostSpec, ...]:
    try:
        return chosen(listed, plan.place.include or "", plan.place.exclude or "")
    except HostfileError as error:
        key = "include" if plan.place.include is not None else "exclude"
        raise plan.locations.error(("place", key), f"{error} ({plan.place.hostfile})") from error


def place_on(plan: Plan, ground: Ground, ranks: Scalar) -> PlaceSpec:
    """The place of a run of so many ranks; a PlanError where the ground has no room for them."""
    assert isinstance(ranks, int), "checks_of_axes lets only whole numbers through"
    asked = plan.place
    nodes = asked.nodes or 1
    hosts = _first_hosts(plan, ground, ranks)
    problem = uneven(ranks, nodes)
    if problem:
        raise _ranks_error(plan, problem)
    if ground.devices and ranks > len(ground.devices) * nodes:
        raise _ranks_error(plan, f"{ranks} ranks, but include names {len(ground.devices)} GPUs ({asked.include})")
    return PlaceSpec(
        kind=asked.kind,
        ranks=ranks,
        devices=ground.devices[: ranks // nodes],
        hostfile=asked.hostfile or "",
        hosts=hosts,
        include=asked.include or "" if asked.kind == HOSTFILE else "",
        exclude=asked.exclude or "",
        via=asked.via,
        nodes=nodes,
        master_addr=asked.master_addr or "",
        interface=asked.interface or "",
        ssh_args=tuple(asked.ssh_args),
        python=asked.python or "",
        alike=asked.alike,
        port=asked.port,
        port_base=asked.port_base,
    )


def _first_hosts(plan: Plan, ground: Ground, ranks: int) -> tuple[HostSpec, ...]:
    if not ground.hosts:
        return ()
    try:
        return first_ranks(ground.hosts, ranks)
    except HostfileError as error:
        raise _ranks_error(plan, f"{error} ({plan.place.hostfile})") from error


def _ranks_error(plan: Plan, problem: str) -> PlanError:
    path: KeyPath = ("axes", RANKS_AXIS) if RANKS_AXIS in plan.axes else ("place", "ranks")
    return plan.locations.error(path, problem)
