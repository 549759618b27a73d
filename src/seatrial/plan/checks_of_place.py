"""Checks of how and where a plan's processes start: the launcher's own options, ports, hosts and GPUs."""

from __future__ import annotations

from seatrial import deepspeed_options, torchrun_options
from seatrial.plan.include import devices_in
from seatrial.plan.schema import Plan

# Options of a launcher that Seatrial gives itself, and the key that says it instead.
GIVEN_BY_SEATRIAL = {
    "torchrun": {
        "nproc_per_node": "place.ranks says how many ranks there are",
        "nnodes": "runs on several nodes are not built yet",
        "node_rank": "runs on several nodes are not built yet",
    },
    "deepspeed": {
        "include": "place.include says which GPUs there are",
        "num_gpus": "place.ranks says how many ranks there are",
    },
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
        problem = _option_problem(plan.launcher.kind, name or "", value)
        if problem:
            raise plan.locations.error(("launcher", "args", position), f"'{word}' {problem}")


def _option_problem(kind: str, name: str, value: str) -> str:
    """Why an option cannot stand in launcher.args; empty for one that can."""
    # A number of ranks that torchrun finds out by itself cannot be said in place.ranks.
    counted_there = name == "nproc_per_node" and not value.isdigit() and "{" not in value
    if name in GIVEN_BY_SEATRIAL[kind] and not counted_there:
        return f"is Seatrial's to give: {GIVEN_BY_SEATRIAL[kind][name]}"
    if kind == "deepspeed" and name in deepspeed_options.NOT_PASSED_ON:
        return f"is not taken: {deepspeed_options.NOT_PASSED_ON[name]}"
    return f"is not taken: {deepspeed_options.QUIET}" if kind == "deepspeed" and deepspeed_options.is_quiet(name, value) else ""


def check_place(plan: Plan) -> None:
    """Raise for a port, hosts or GPUs that cannot be had as they are named."""
    _port(plan)
    if plan.place.kind == "hostfile" or plan.place.hostfile is not None:
        _hostfile(plan)
    include, ranks = plan.place.include, plan.place.ranks
    if include is None:
        return
    try:
        devices = devices_in(include)
    except ValueError as error:
        raise plan.locations.error(("place", "include"), str(error)) from error
    if ranks is not None and ranks != len(devices):
        raise plan.locations.error(
            ("place", "ranks"), f"{ranks} ranks, but include names {len(devices)} GPUs ({include}); leave ranks out or make them agree"
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


def _hostfile(plan: Plan) -> None:
    """What such a place needs, and what it cannot have yet."""
    if plan.place.kind != "hostfile":
        raise plan.locations.error(("place", "hostfile"), "belongs to `kind: hostfile`; leave it out to run on this machine")
    if not (plan.place.hostfile or "").strip():
        raise plan.locations.error(("place", "hostfile"), "name the file that lists the hosts, such as /etc/deepspeed/hostfile")
    if plan.launcher.kind != "deepspeed":
        raise plan.locations.error(("place", "kind"), f"'hostfile' is read by launcher deepspeed, not {plan.launcher.kind}")
    if plan.place.ranks is None:
        raise plan.locations.error(("place", "ranks"), "say how many ranks there are on all hosts together")
    if plan.place.include is not None:
        raise plan.locations.error(("place", "include"), "names GPUs of this machine; the hostfile's slots say how many each host has")


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
