"""The state of a cluster between two commands: its processes, hosts and folders.

Each cluster has a JSON file under /run, named by its id. A cluster lives exactly as long as its keeper; the file of a dead keeper is
removed.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

REGISTRY = Path("/run/seatrial-clusters")


class ClusterError(Exception):
    """The cluster cannot do what was requested; the message gives the reason."""


@dataclasses.dataclass(frozen=True)
class ProcessId:
    """A process of this machine; the start time distinguishes it from a later one with the same pid."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        return cls(pid, start_time(pid) or 0)

    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """In clock ticks since boot; None when there is no such process, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


@dataclasses.dataclass
class HostState:
    """One host; `init` is None while it is off."""

    name: str
    number: int
    init: ProcessId | None = None
    # The environment that offsets the wall clock; empty without an offset.
    clock: dict[str, str] = dataclasses.field(default_factory=dict)
    # How its sshd refuses connections; "" when it does not.
    ssh_refusal: str = ""
    disks: list[str] = dataclasses.field(default_factory=list)

    @property
    def address(self) -> str:
        return f"10.77.{self.number // 200}.{self.number % 200 + 10}"

    @property
    def second_address(self) -> str:
        return self.address.replace("10.77.", "10.78.", 1)

    @property
    def port(self) -> str:
        """The switch's end of its cable."""
        return f"p-{self.name}"

    @property
    def second_port(self) -> str:
        return f"q-{self.name}"

    def forget_faults(self) -> None:
        self.clock, self.ssh_refusal, self.disks = {}, "", []


@dataclasses.dataclass
class ClusterState:
    id: str
    # The cluster's own files: keys, the hosts' files, outputs.
    folder: str
    # The default working directory of commands, and the shared folders.
    work_folder: str
    shared: list[str]
    keeper: ProcessId
    # The process that it must not outlive; None: it stays until `down`.
    owner: ProcessId | None
    tcp_retries2: int | None
    hosts: dict[str, HostState]

    def host(self, name: str) -> HostState:
        if name not in self.hosts:
            raise ClusterError(f"there is no host {name!r}; there are {', '.join(self.hosts)}")
        return self.hosts[name]

    def host_folder(self, name: str) -> Path:
        return Path(self.folder) / "hosts" / name

    @property
    def ownerless(self) -> bool:
        """Whether its owner has ended."""
        return self.owner is not None and not self.owner.alive()

    @property
    def home(self) -> Path:
        return Path(self.folder) / "home"

    def save(self) -> None:
        REGISTRY.mkdir(exist_ok=True)
        aside = REGISTRY / f"{self.id}.new"
        aside.write_text(json.dumps(dataclasses.asdict(self)))
        aside.rename(REGISTRY / f"{self.id}.json")

    def forget(self) -> None:
        (REGISTRY / f"{self.id}.json").unlink(missing_ok=True)


def _from_json(document: dict[str, Any]) -> ClusterState:
    def process(value: dict[str, int] | None) -> ProcessId | None:
        return ProcessId(**value) if value else None

    hosts = {name: HostState(**{**host, "init": process(host["init"])}) for name, host in document["hosts"].items()}
    return ClusterState(**{**document, "keeper": ProcessId(**document["keeper"]), "owner": process(document["owner"]), "hosts": hosts})


def living() -> list[ClusterState]:
    """All clusters of this machine; the files of dead ones are removed."""
    found = []
    for path in sorted(REGISTRY.glob("*.json")):
        try:
            state = _from_json(json.loads(path.read_text()))
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            # Removed since, or written by another version.
            continue
        if state.keeper.alive():
            found.append(state)
        else:
            path.unlink(missing_ok=True)
    return found
