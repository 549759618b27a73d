"""The hosts of a command a person typed: `deepspeed --hostfile hosts --include node1@node2 …` as the `place` of a plan.

In: the launcher's options. Out: keys of `place`, or a UsageError for what asks for several nodes in a way that only a plan can say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seatrial.errors import UsageError
from seatrial.options.deepspeed import NOT_PASSED_ON, is_for_one_host
from seatrial.options.words import TypedOption

ON_NODES = (
    "leave it out: `seatrial sweep --nodes {nodes} --node-rank R` says it where a command is typed on each node, and in a plan "
    "`place: {{kind: hostfile, hostfile: FILE}}` (by ssh) or `place: {{kind: pernode, nodes: {nodes}}}`"
)
# Options that become keys of `place` or say nothing beside a hostfile.
OF_HOSTS = ("hostfile", "include", "exclude", "master_addr", "master_port", "launcher", "ssh_port", "no_ssh_check", "force_multi")
_AS_TYPED = ("hostfile", "include", "exclude", "master_addr")
# deepspeed's own words for them: all nodes, and no rank given.
_NOTHING_SAID = {"num_nodes": "-1", "node_rank": "-1"}


def hosts_typed(options: Sequence[TypedOption]) -> dict[str, Any]:
    """`place` of a deepspeed command that names a hostfile; empty for one that does not."""
    typed = {option.name: option for option in options}
    if "hostfile" not in typed:
        return {}
    for name in ("num_gpus", "num_nodes", "node_rank", "no_ssh"):
        if name in typed and typed[name].value != _NOTHING_SAID.get(name):
            why = "the slots of the hostfile say how many there are; leave it out" if name == "num_gpus" else NOT_PASSED_ON[name]
            raise UsageError(f"{' '.join(typed[name].words)}: {why}")
    place: dict[str, Any] = {"kind": "hostfile", **{name: typed[name].value for name in _AS_TYPED if name in typed}}
    if "master_port" in typed:
        place["port"] = _number(typed["master_port"])
    if "ssh_port" in typed:
        place["ssh_args"] = ["-p", str(_number(typed["ssh_port"]))]
    if "launcher" in typed:
        place["via"] = _via(typed["launcher"])
    return place


def _number(option: TypedOption) -> int:
    if not option.value.isascii() or not option.value.isdigit():
        raise UsageError(f"{' '.join(option.words)}: must be a number")
    return int(option.value)


def _via(option: TypedOption) -> str:
    if option.value.lower() != "pdsh":
        raise UsageError(f"{' '.join(option.words)}: other hosts are reached by pdsh, or by ssh where there is none; leave it out")
    return "pdsh"


def is_for_one_node(name: str, value: str) -> bool:
    """True for options of torchrun that say nothing on one node; UsageError where they ask for more."""
    alone = {"nnodes": ("1", "1:1"), "node_rank": ("0",)}.get(name)
    if alone is not None and value not in alone:
        nodes = value.rpartition(":")[2] if name == "nnodes" else ""
        raise UsageError(f"--{name} {value}: {ON_NODES.format(nodes=nodes if nodes.isdigit() else 'N')}")
    return alone is not None


def is_said_by_place(option: TypedOption, place: dict[str, Any]) -> bool:
    """Whether an option of deepspeed need not be passed on: `place` has it, or it asks for nothing but one host."""
    return option.name in OF_HOSTS or option.name in _NOTHING_SAID if place else is_for_one_host(option.name, option.value)
