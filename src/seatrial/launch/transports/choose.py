"""Which transport starts which host, and why.

This machine's own agent is a plain child. Others are started by what `place.via` names; `auto` is pdsh where it is installed and there
are at least two of them, else ssh: what both can do is the same, and one program for all hosts is only quicker to start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import HostError
from seatrial.launch.transports.here import Here
from seatrial.launch.transports.pdsh import PROGRAM, Pdsh, can_name
from seatrial.launch.transports.pernode import NodeStarter, Pernode
from seatrial.launch.transports.ssh import Ssh
from seatrial.launch.transports.transport import Transport
from seatrial.options.ssh import PDSH_APPEND, pdsh_args
from seatrial.records.run_spec import PlaceSpec
from seatrial.shell import find_program

PDSH, SSH, AUTO = "pdsh", "ssh", "auto"
FEWEST_FOR_PDSH = 2


@dataclass(frozen=True)
class Chosen:
    """Transport and hosts, and a sentence that says why."""

    by: tuple[tuple[Transport, tuple[str, ...]], ...]
    via: str
    """`pdsh`, `ssh`, `pernode`, or `here` where no other host has a part."""
    why: str


def choose(
    place: PlaceSpec,
    others: Sequence[str],
    here: Sequence[str],
    attempt_folder: Path,
    words_for: Callable[[str], Sequence[str]],
    gate: NodeStarter | None = None,
    find: Callable[[str], str | None] = find_program,
) -> Chosen:
    """`others` and `here` are hosts by name, `words_for` gives the words that start a host's agent."""
    own: list[tuple[Transport, tuple[str, ...]]] = [(Here(attempt_folder), tuple(here))] if here else []
    if not others:
        return Chosen(tuple(own), "here", "every host of the run is this machine")
    if gate is not None:
        return Chosen((*own, (Pernode(gate), tuple(others))), "pernode", "each node's own command starts its agent")
    via, why = choose_via(place.via, others, find)
    other: Transport = Pdsh(words_for, place.ssh_args) if via == PDSH else Ssh(place.ssh_args)
    return Chosen((*own, (other, tuple(others))), via, why)


def choose_via(via: str, others: Sequence[str], find: Callable[[str], str | None] = find_program) -> tuple[str, str]:
    """(`pdsh` or `ssh`, why)."""
    if via == SSH:
        return SSH, "place.via says so"
    installed = find(PROGRAM) is not None
    if via == PDSH and not installed:
        advice = "apt install pdsh, or leave place.via out: ssh is used then"
        raise HostError(
            f"pdsh is not installed on this machine, and place.via asks for it: {advice}", host=others[0], cause="program_missing"
        )
    if via == PDSH and not can_name(others):
        strange = next(host for host in others if not can_name([host]))
        raise HostError(
            f"pdsh would take the name '{strange}' apart: leave place.via out: ssh is used then", host=strange, cause="bad_argument"
        )
    if via == PDSH:
        return PDSH, "place.via says so"
    if not installed:
        return SSH, "pdsh is not installed"
    if len(others) < FEWEST_FOR_PDSH:
        return SSH, "there is one other host"
    return (PDSH, f"it is installed and there are {len(others)} other hosts") if can_name(others) else (SSH, "pdsh would take a name apart")


def users_args(
    place: PlaceSpec,
    others: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    find: Callable[[str], str | None] = find_program,
) -> tuple[str, ...]:
    """The user's own options for an ssh to `others`, as their transport will have them: for who enters these hosts beside it."""
    if not environ.get(PDSH_APPEND) or not others:
        return place.ssh_args
    # Where pdsh is wanted and missing, that is told of elsewhere.
    via = PDSH if place.via == PDSH else choose_via(place.via, others, find)[0]
    return pdsh_args(place.ssh_args, environ) if via == PDSH else place.ssh_args
