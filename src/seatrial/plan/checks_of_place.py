"""Checks of how and where a plan's processes start: the launcher's own options, ports and GPUs; those of many hosts are in
`checks_of_hosts`."""

from __future__ import annotations

from seatrial.options import deepspeed as deepspeed_options
from seatrial.options import torchrun as torchrun_options
from seatrial.plan.checks_of_hosts import check_hosts, check_keys_of_kind
from seatrial.plan.include import devices_in
from seatrial.plan.schema import Plan
from seatrial.records.run_spec import HOSTFILE, LOCAL, PERNODE

_RANKS = "place.ranks says how many ranks there are"
_NODES = "`place: {kind: hostfile, hostfile: FILE}` or `{kind: pernode, nodes: N}` says on which nodes it runs"
# Options of a launcher that Seatrial gives itself, and the key that says it instead.
GIVEN_BY_SEATRIAL = {
    "torchrun": {"nproc_per_node": _RANKS, "nnodes": _NODES, "node_rank": _NODES},
    "deepspeed": {"include": "place.include says which GPUs there are", "num_gpus": _RANKS},
}
_MEET = "place.master_addr and place.port say where ranks meet"
_RANK_FILES = "each node has a folder of its own for them; leave it out"
# The same on many hosts, where the words of one node would be wrong on another.
GIVEN_ON_MANY_HOSTS = {
    "torchrun": {
        **dict.fromkeys(("master_addr", "master_port", "standalone"), _MEET),
        **dict.fromkeys(("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf"), _MEET),
        "local_addr": "place.interface says which network is used",
        "log_dir": _RANK_FILES,
    },
    "deepspeed": {**dict.fromkeys(("master_addr", "master_port"), _MEET), "enable_each_rank_log": _RANK_FILES},
}
OPTIONS = {"torchrun": torchrun_options.OPTIONS, "deepspeed": deepspeed_options.OPTIONS}


def check_launcher(plan: Plan) -> None:
    """Raise for options of a launcher that have no meaning there, or that are given from elsewhere."""
    if plan.launcher.kind == "command" and (plan.launcher.args or plan.launcher.program):
        key = "args" if plan.launcher.args else "program"
        raise plan.locations.error(
            ("launcher", key), "has no meaning for launcher 'command'; put the words in workload.script and workload.args"
        )
    if plan.launcher.kind not in OPTIONS:
        return
    words = plan.launcher.args
    for position, word in enumerate(words):
        name, inline = OPTIONS[plan.launcher.kind].option_of(word)
        value = inline if inline is not None else words[position + 1] if position + 1 < len(words) else ""
        problem = _option_problem(plan, name or "", value)
        if problem:
            raise plan.locations.error(("launcher", "args", position), f"'{word}' {problem}")


def _option_problem(plan: Plan, name: str, value: str) -> str:
    """Why an option cannot stand in launcher.args; empty for one that can."""
    kind, many = plan.launcher.kind, plan.place.kind != LOCAL
    given = {**GIVEN_BY_SEATRIAL[kind], **(GIVEN_ON_MANY_HOSTS[kind] if many else {})}
    # A number of ranks that torchrun finds out by itself cannot be said in place.ranks; on many hosts their numbers must be known.
    counted_there = name == "nproc_per_node" and not value.isdigit() and "{" not in value and not many
    if name in given and not counted_there:
        return f"is Seatrial's to give: {given[name]}"
    if kind == "deepspeed" and name in deepspeed_options.NOT_PASSED_ON:
        return f"is not taken: {deepspeed_options.NOT_PASSED_ON[name]}"
    return f"is not taken: {deepspeed_options.QUIET}" if kind == "deepspeed" and deepspeed_options.is_quiet(name, value) else ""


def check_place(plan: Plan) -> None:
    """Raise for a port, hosts or GPUs that cannot be had as they are named."""
    check_keys_of_kind(plan)
    _port(plan)
    if plan.place.kind != LOCAL:
        check_hosts(plan)
    if plan.place.kind != HOSTFILE and plan.place.include is not None:
        _devices(plan, plan.place.include)


def _devices(plan: Plan, include: str) -> None:
    """GPUs of this machine, or of every node."""
    try:
        devices = devices_in(include)
    except ValueError as error:
        raise plan.locations.error(("place", "include"), str(error)) from error
    ranks, nodes = plan.place.ranks, plan.place.nodes or 1
    if ranks is not None and ranks != len(devices) * nodes:
        on_each = f" on each of {nodes} nodes" if plan.place.kind == PERNODE else ""
        raise plan.locations.error(
            ("place", "ranks"),
            f"{ranks} ranks, but include names {len(devices)} GPUs ({include}){on_each}; leave ranks out or make them agree",
        )
    if plan.launcher.kind == "deepspeed":
        _for_deepspeed(plan, devices)


def _port(plan: Plan) -> None:
    keys = [key for key in ("port", "port_base") if getattr(plan.place, key) is not None]
    if len(keys) == 2:
        raise plan.locations.error(("place", "port_base"), "has no meaning beside place.port; keep one of the two")
    options = OPTIONS.get(plan.launcher.kind)
    if keys and options is not None and "master_port" in options.values_in(plan.launcher.args):
        raise plan.locations.error(("place", keys[0]), "has no meaning beside the port in launcher.args; keep one of the two")


def _for_deepspeed(plan: Plan, devices: tuple[str, ...]) -> None:
    """It is told numbers, and puts them in rising order: rank 0 would not be on the GPU that is named first."""
    named = next((device for device in devices if not device.isdecimal()), None)
    if named is not None:
        raise plan.locations.error(
            ("place", "include"),
            f"launcher deepspeed takes GPUs by number, not '{named}'; write localhost:0,1 (`nvidia-smi -L` lists them)",
        )
    rising = sorted(devices, key=int)
    if rising != list(devices):
        raise plan.locations.error(
            ("place", "include"), f"launcher deepspeed takes GPUs in rising order; write localhost:{','.join(rising)}"
        )
