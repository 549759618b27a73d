"""Which transport starts the agent of which host, and why.

This machine's agent is a plain child. Without ssh, each node's own command starts its agent. Otherwise `place.via` decides; `auto` is pdsh
where it is installed and there are at least two other hosts, else ssh: one program for all hosts starts sooner.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seatrial.core.errors import HostError
from seatrial.core.launcher_options import PDSH_APPEND, pdsh_args
from seatrial.core.shell import find_program
from seatrial.launch.transports import (
    AGENT_EXIT_TIMEOUT_S,
    ChildCommand,
    ChildProcess,
    Exit,
    RemoteCommand,
    StartRequest,
    Transport,
    describe_exit,
    end_children,
)
from seatrial.launch.transports.srun import SrunTransport, container_options
from seatrial.launch.transports.ssh import PROGRAM, ArgvFor, PdshTransport, SshTransport, is_plain_for_pdsh
from seatrial.machine.orphans import kill_orphans
from seatrial.records.plan import PlaceSpec

PDSH, SSH, AUTO = "pdsh", "ssh", "auto"
MIN_HOSTS_FOR_PDSH = 2


class LocalTransport:
    """A child process for each agent on this machine."""

    def __init__(self, attempt_folder: Path, timeout_s: float = AGENT_EXIT_TIMEOUT_S) -> None:
        self._folder, self._timeout_s = attempt_folder, timeout_s
        self._children: dict[str, ChildProcess] = {}
        self._commands: list[ChildProcess] = []

    def start(self, requests: Sequence[StartRequest]) -> None:
        for request in requests:
            self._children[request.host] = ChildProcess(request.argv, request.log)

    def exits(self) -> dict[str, Exit]:
        codes = {host: child.returncode for host, child in self._children.items()}
        return {host: describe_exit("the agent", code) for host, code in codes.items() if code is not None}

    def run_command(self, request: StartRequest) -> RemoteCommand:
        self._commands.append(ChildProcess(request.argv, request.log))
        return ChildCommand("seatrial.agent --end", self._commands[-1])

    def close(self, after_run: bool = True) -> None:
        """Wait for the agents, which end when their connection does, and end what a killed one left."""
        # Before the run, an agent that may still try to connect is not waited for.
        end_children(self._children.values(), self._timeout_s if after_run else None)
        end_children(self._commands)
        if any(child.returncode for child in self._children.values()):
            kill_orphans(self._folder, {})


class NodeStarter(Protocol):
    """What a run needs of node 0 of a campaign without ssh (`launch.pernode_server.PernodeServer`)."""

    master_addr: str
    """Where node 0 is reached."""

    def start(self, node: str, argv: Sequence[str], log: Path) -> None:
        """Let the node's own command start `argv`."""

    def problem(self, node: str) -> str:
        """Why the agent started there can no longer connect; empty while it may."""

    def python_of(self, node: str) -> str:
        """The interpreter of the node's own command; empty where unknown."""


class _DelegatedCommand:
    """A RemoteCommand run by a node's own command: its result is only in its log."""

    def poll(self) -> Exit | None:
        return None

    def abandon(self) -> None:
        """It ends by itself."""


class PernodeTransport:
    """Each node's own command starts its agent."""

    def __init__(self, starter: NodeStarter) -> None:
        self._starter = starter
        self._started: list[str] = []

    def start(self, requests: Sequence[StartRequest]) -> None:
        for request in requests:
            self._starter.start(request.host, request.argv, request.log)
            self._started.append(request.host)

    def exits(self) -> dict[str, Exit]:
        problems = {node: self._starter.problem(node) for node in self._started}
        return {node: Exit(text=f"its own command reports: {problem}") for node, problem in problems.items() if problem}

    def run_command(self, request: StartRequest) -> RemoteCommand:
        self._starter.start(request.host, request.argv, request.log)
        return _DelegatedCommand()

    def close(self, after_run: bool = True) -> None:
        """The nodes' commands run for the whole campaign."""


@dataclass(frozen=True)
class TransportChoice:
    """The chosen transports with their hosts, and the reason."""

    by: tuple[tuple[Transport, tuple[str, ...]], ...]
    via: str
    """`pdsh`, `ssh`, `srun`, `pernode`, or `here` where every host is this machine."""
    why: str

    def exits(self) -> dict[str, Exit]:
        return {host: exited for transport, _ in self.by for host, exited in transport.exits().items()}


def choose_transports(
    place: PlaceSpec,
    others: Sequence[str],
    here: Sequence[str],
    attempt_folder: Path,
    argv_for: ArgvFor,
    starter: NodeStarter | None = None,
    find: Callable[[str], str | None] = find_program,
) -> TransportChoice:
    """`others` and `here` are hosts by name; `starter` is there in a campaign without ssh."""
    if container := place.slurm.container if place.slurm else None:
        # Also for this host, whose ranks run in the image too.
        in_image = SrunTransport(container_options(container, attempt_folder.parent.parent.absolute()))
        return TransportChoice(((in_image, (*here, *others)),), "srun", f"in the container {container.image}")
    own: list[tuple[Transport, tuple[str, ...]]] = [(LocalTransport(attempt_folder), tuple(here))] if here else []
    if not others:
        return TransportChoice(tuple(own), "here", "every host of the run is this machine")
    if starter is not None:
        return TransportChoice((*own, (PernodeTransport(starter), tuple(others))), "pernode", "each node's own command starts its agent")
    if place.traits.runs_in_jobs:
        return TransportChoice((*own, (SrunTransport(), tuple(others))), "srun", "the run is a Slurm job")
    via, why = choose_via(place.via, others, find)
    other: Transport = PdshTransport(argv_for, place.ssh_args) if via == PDSH else SshTransport(place.ssh_args)
    return TransportChoice((*own, (other, tuple(others))), via, why)


def choose_via(via: str, others: Sequence[str], find: Callable[[str], str | None] = find_program) -> tuple[str, str]:
    """(`pdsh` or `ssh`, why)."""
    if via == SSH:
        return SSH, "set by place.via"
    installed = find(PROGRAM) is not None
    if via == PDSH:
        _check_pdsh(others, installed)
        return PDSH, "set by place.via"
    if not installed:
        return SSH, "pdsh is not installed"
    if len(others) < MIN_HOSTS_FOR_PDSH:
        return SSH, "there is one other host"
    if not is_plain_for_pdsh(others):
        return SSH, "pdsh would expand a host name"
    return PDSH, f"it is installed and there are {len(others)} other hosts"


def _check_pdsh(others: Sequence[str], installed: bool) -> None:
    if not installed:
        raise HostError(
            "pdsh is not installed on this machine, but place.via asks for it: apt install pdsh, or leave place.via out to use ssh",
            host=others[0],
            cause="program_missing",
        )
    odd = next((host for host in others if not is_plain_for_pdsh([host])), None)
    if odd is not None:
        raise HostError(f"pdsh would expand the host name '{odd}': leave place.via out to use ssh", host=odd, cause="bad_argument")


def user_ssh_args(
    place: PlaceSpec,
    others: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    find: Callable[[str], str | None] = find_program,
) -> tuple[str, ...]:
    """The user's ssh options as the transport to `others` uses them, for other connections to these hosts."""
    if not environ.get(PDSH_APPEND) or not others:
        return place.ssh_args
    # A missing pdsh is reported elsewhere.
    via = PDSH if place.via == PDSH else choose_via(place.via, others, find)[0]
    return pdsh_args(place.ssh_args, environ) if via == PDSH else place.ssh_args
