"""Where runs are made. In: HOSTFILE, INCLUDE, WORLD_SIZE and the ports as variables. Out: `place` of a plan, or a UsageError.

`localhost:0,1` is two GPUs of this machine; `localhost` with WORLD_SIZE=n is n ranks on its CPU. With a HOSTFILE `node1:0,1@node2:0,1`
is two GPUs of each host, `node1@node2` all their slots; with WORLD_SIZE=n these are n ranks on their CPUs. Without INCLUDE it is every
slot of the file.
"""

from __future__ import annotations

from typing import Any

from seatrial.errors import HostfileError, UsageError
from seatrial.hostfile import parse_choice, slots_named
from seatrial.machine.this_host import LOCAL_NAMES
from seatrial.plan.include import devices_in
from seatrial_runbooks.stage1.variables import Variables


def place_of(variables: Variables) -> dict[str, Any]:
    """`place`: kind, GPUs, hosts or a number of ranks, and a port where one was asked for."""
    if variables["HOSTFILE"] is not None:
        return {"kind": "hostfile", "hostfile": variables["HOSTFILE"], **_on_hosts(variables), **_port(variables)}
    return {"kind": "local", **_ranks(variables["INCLUDE"], variables["WORLD_SIZE"]), **_port(variables)}


def is_on_cpu(variables: Variables) -> bool:
    """Whether INCLUDE names this machine, or hosts of HOSTFILE, and no GPU of them."""
    if variables["HOSTFILE"] is None:
        return variables["INCLUDE"] in LOCAL_NAMES
    include = hosts_asked(variables)
    return include is not None and ":" not in include and bool(variables["WORLD_SIZE"])


def hosts_asked(variables: Variables) -> str | None:
    """INCLUDE beside a HOSTFILE; its default, GPUs of this machine, says nothing there."""
    return str(variables["INCLUDE"]) if "INCLUDE" in variables.given else None


def _on_hosts(variables: Variables) -> dict[str, Any]:
    include, world_size = hosts_asked(variables), variables["WORLD_SIZE"]
    ranks = {"ranks": world_size} if world_size else {}
    if include is None:
        return ranks
    try:
        parse_choice(include)
        named = slots_named(include)
    except HostfileError as error:
        raise UsageError(f"INCLUDE: {error}") from error
    if named is not None and world_size not in (0, named):
        raise UsageError(
            f"WORLD_SIZE is {world_size}, and INCLUDE={include} names {named} GPUs, one rank each: leave WORLD_SIZE out, "
            "or make the two agree"
        )
    return {"include": include, **ranks}


def _ranks(include: str, world_size: int) -> dict[str, Any]:
    if include in LOCAL_NAMES:
        if not world_size:
            raise UsageError(
                f"INCLUDE is '{include}', which names no GPUs: write localhost:0,1, or add WORLD_SIZE=2 for two ranks on the CPU"
            )
        return {"ranks": world_size}
    devices = _devices(include)
    if world_size not in (0, len(devices)):
        raise UsageError(
            f"WORLD_SIZE is {world_size}, and INCLUDE={include} names {len(devices)} GPUs, one rank each: leave WORLD_SIZE out, "
            "or make the two agree"
        )
    return {"include": include}


def _devices(include: str) -> tuple[str, ...]:
    hosts = [part.partition(":")[0] for part in include.split("@")]
    other = next((host for host in hosts if host and host not in LOCAL_NAMES), None)
    if other or len(hosts) > 1:
        named = f"the host {other}" if other else "several hosts"
        raise UsageError(
            f"INCLUDE is '{include}', which names {named}: add HOSTFILE=/etc/deepspeed/hostfile to run on hosts, or write localhost:0,1 "
            "for GPUs of this one"
        )
    try:
        devices = devices_in(include)
    except ValueError as error:
        raise UsageError(f"INCLUDE: {error}") from error
    wrong = next((device for device in devices if not device.isdecimal()), None)
    if wrong is not None:
        raise UsageError(f"INCLUDE is '{include}': deepspeed takes GPUs by number, not '{wrong}'; write localhost:0,1")
    rising = sorted(devices, key=int)
    if list(devices) != rising:
        raise UsageError(f"INCLUDE is '{include}': deepspeed takes GPUs in rising order; write localhost:{','.join(rising)}")
    return devices


def _port(variables: Variables) -> dict[str, int]:
    """This very port, which stands over where to begin looking."""
    if variables["MASTER_PORT"] is not None:
        return {"port": variables["MASTER_PORT"]}
    return {"port_base": variables["MASTER_PORT_BASE"]}
