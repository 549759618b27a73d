"""Checks of a place on many hosts: which keys belong to which kind, and the words that reach ssh, NCCL and the hosts' interpreters.

Nothing is read or asked here: a hostfile is read when the plan is resolved, hosts are asked before a campaign starts.
"""

from __future__ import annotations

import re

from seatrial.errors import HostfileError
from seatrial.hostfile import parse_choice, slots_named
from seatrial.plan.schema import Place, Plan
from seatrial.records.run_spec import HOSTFILE, PERNODE

# Key → the kinds that it belongs to, where these are not all.
KINDS_OF_KEY = {
    "hostfile": (HOSTFILE,),
    "exclude": (HOSTFILE,),
    "via": (HOSTFILE,),
    "ssh_args": (HOSTFILE,),
    "nodes": (PERNODE,),
    "master_addr": (HOSTFILE, PERNODE),
    "interface": (HOSTFILE, PERNODE),
    "python": (HOSTFILE, PERNODE),
    "alike": (HOSTFILE, PERNODE),
}
# What to do instead, where it is not to leave the key out.
_INSTEAD = {
    ("exclude", "local"): "name the GPUs to use with place.include",
    ("exclude", PERNODE): "name the GPUs to use with place.include",
    ("hostfile", PERNODE): "place.nodes says how many nodes type the command",
    ("via", PERNODE): "leave it out, nobody is reached by ssh",
    ("ssh_args", PERNODE): "leave it out, nobody is reached by ssh",
    ("nodes", HOSTFILE): "place.include says which hosts of the file to use",
    ("interface", "local"): "on this machine set env: {NCCL_SOCKET_IFNAME: NAME}",
    ("python", "local"): "on this machine launcher.program names the interpreter",
}
# A name, or the beginning of names; the kernel takes no longer ones.
_INTERFACES = re.compile(r"(?:\^=?|=)?[A-Za-z0-9_.:-]{1,15}(?:,[A-Za-z0-9_.:-]{1,15})*")
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:%_-]*")
# ssh's own letters: those whose value may be the next word, and those that would keep it from starting a program and telling its end.
SSH_VALUED = frozenset("BbcDEeFIiJLlmOopQRSWw")
SSH_UNFIT = frozenset("fGNnOQstVW")


def check_keys_of_kind(plan: Plan) -> None:
    """Raise for a key that has no meaning for this kind of place."""
    defaults = Place()
    for key, kinds in KINDS_OF_KEY.items():
        if plan.place.kind not in kinds and getattr(plan.place, key) != getattr(defaults, key):
            belongs = " or ".join(f"`kind: {kind}`" for kind in kinds)
            instead = _INSTEAD.get((key, plan.place.kind), "leave it out to run on this machine")
            raise plan.locations.error(("place", key), f"belongs to {belongs}; {instead}")


def check_hosts(plan: Plan) -> None:
    """Raise for what many hosts cannot have; the place is not `local`."""
    if plan.launcher.kind == "command":
        raise plan.locations.error(
            ("launcher", "kind"), "'command' starts one program on this machine; on many hosts use python, torchrun or deepspeed"
        )
    if plan.place.kind == HOSTFILE:
        _hostfile(plan)
        _choice(plan)
        _ssh_args(plan)
    else:
        _pernode(plan)
    _address(plan)
    _interface(plan)
    _python(plan)


def _hostfile(plan: Plan) -> None:
    if not (plan.place.hostfile or "").strip():
        raise plan.locations.error(("place", "hostfile"), "name the file that lists the hosts, such as /etc/deepspeed/hostfile")


def _choice(plan: Plan) -> None:
    include, exclude, ranks = plan.place.include, plan.place.exclude, plan.place.ranks
    if include is not None and exclude is not None:
        raise plan.locations.error(("place", "exclude"), "has no meaning beside place.include; keep one of the two")
    for key, text in (("include", include), ("exclude", exclude)):
        if text is None:
            continue
        if not text.strip():
            raise plan.locations.error(("place", key), "names no host; write node1@node2:0,1, or leave it out")
        try:
            parse_choice(text)
        except HostfileError as error:
            raise plan.locations.error(("place", key), str(error)) from error
    named = slots_named(include) if include is not None else None
    if ranks is not None and named is not None and ranks > named:
        raise plan.locations.error(
            ("place", "ranks"), f"{ranks} ranks, but include names {named} slots ({include}); lower ranks or name more"
        )


def _pernode(plan: Plan) -> None:
    nodes, ranks = plan.place.nodes, plan.place.ranks
    if nodes is None:
        raise plan.locations.error(("place", "nodes"), "is missing; say how many nodes type the command")
    if ranks is not None:
        problem = uneven(ranks, nodes)
        if problem:
            raise plan.locations.error(("place", "ranks"), problem)


def uneven(ranks: int, nodes: int) -> str | None:
    """Why so many ranks cannot be shared out alike; None where they can."""
    if ranks % nodes == 0:
        return None
    below = ranks - ranks % nodes
    fitting = f"{below} or {below + nodes}" if below else str(nodes)
    return f"{ranks} ranks cannot be shared alike by {nodes} nodes (place.nodes); make it {fitting}"


def _ssh_args(plan: Plan) -> None:
    """Options alone: a bare word would be taken for the host."""
    value_next = False
    for position, word in enumerate(plan.place.ssh_args):
        if value_next:
            value_next = False
            continue
        if not re.fullmatch(r"-[A-Za-z0-9].*", word):
            raise plan.locations.error(
                ("place", "ssh_args", position),
                f"'{word}' is no option of ssh, which would take it for a host; write -p 2222 or -o NAME=VALUE",
            )
        flags, valued = _ssh_letters(word[1:])
        unfit = next((letter for letter in flags if letter in SSH_UNFIT), None)
        if unfit:
            raise plan.locations.error(
                ("place", "ssh_args", position), f"-{unfit} would keep ssh from starting the agent and telling its end; leave it out"
            )
        value_next = valued and flags == word[1:]
    if value_next:
        raise plan.locations.error(("place", "ssh_args"), f"'{plan.place.ssh_args[-1]}' is not followed by its value")


def _ssh_letters(letters: str) -> tuple[str, bool]:
    """The option letters of one word, and whether the last of them takes a value: `p2222` is p with one, `Av` two without."""
    for position, letter in enumerate(letters):
        if letter in SSH_VALUED:
            return letters[: position + 1], True
    return letters, False


def _address(plan: Plan) -> None:
    address = plan.place.master_addr
    if address is not None and not _ADDRESS.fullmatch(address):
        raise plan.locations.error(("place", "master_addr"), f"'{address}' is no name or address of a host; write node1 or 10.0.0.1")


def _interface(plan: Plan) -> None:
    text = plan.place.interface
    if text is None:
        return
    if not _INTERFACES.fullmatch(text):
        raise plan.locations.error(
            ("place", "interface"), f"'{text}' is not NCCL's grammar; write eth0, or eth,ib for names that begin so, =eth0 or ^lo,docker"
        )


def _python(plan: Plan) -> None:
    path = plan.place.python
    if path is not None and not re.fullmatch(r"/\S+|[A-Za-z][A-Za-z0-9._-]*", path):
        raise plan.locations.error(
            ("place", "python"), f"'{path}' is looked for on every host; write its whole path, such as /opt/venv/bin/python"
        )
