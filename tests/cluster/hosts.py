"""A cluster of hosts on this machine, for tests: build it, run commands in it, break it, take it down.

    with cluster(nodes=2, folder=tmp_path) as hosts:              # head, node1, node2
        done = hosts.run("head", ["ssh", "node1", "hostname"])    # subprocess.CompletedProcess
        hosts.cut("node2")

All hosts see one file system and this virtual environment, as on a cluster with a file server; /tmp, /run and /dev/shm are each host's
own (a folder below /tmp is shared when it is `folder` or named in `shared`). A host that boots is as new: faults do not outlive a boot.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cluster import machines, network
from tests.cluster.faults import Faults
from tests.cluster.state import ClusterState, ProcessId


@contextlib.contextmanager
def cluster(nodes: int, folder: Path, *, tcp_retries2: int | None = None, shared: Sequence[Path] = ()) -> Iterator[Hosts]:
    """`head` and `node1` … `nodeN`, for as long as the block lasts, and never longer than this process."""
    hosts = Hosts.build(nodes, folder, tcp_retries2=tcp_retries2, shared=shared)
    try:
        yield hosts
    finally:
        hosts.down()


class Hosts(Faults):
    """The hosts of one cluster, by name."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self._children: list[subprocess.Popen[str]] = []

    @classmethod
    def build(cls, nodes: int, folder: Path, *, tcp_retries2: int | None = None, shared: Sequence[Path] = (), kept: bool = False) -> Hosts:
        """`kept`: stays after this process has ended, until `down`."""
        machines.sweep_leftovers()
        children: list[subprocess.Popen[str]] = []
        keeper = machines.start_keeper(children, kept)
        hosts = cls(machines.new_state(nodes, folder, shared, keeper))
        hosts.state.owner, hosts.state.tcp_retries2 = None if kept else ProcessId.of(os.getpid()), tcp_retries2
        hosts._children = children
        try:
            # First of all, so that a cluster half built when someone killed its builder can be found and taken down.
            hosts.state.save()
            machines.prepare(hosts.state)
            machines.boot(hosts.state, hosts.names, children)
        except BaseException:
            hosts.down()
            raise
        return hosts

    def down(self, remove_files: bool = False) -> None:
        """End everything; what the hosts wrote stays unless `remove_files`."""
        machines.end_cluster(self.state)
        machines.reap(self._children)
        machines.reap(self._started)
        if remove_files:
            shutil.rmtree(self.state.folder, ignore_errors=True)

    @property
    def names(self) -> list[str]:
        return list(self.state.hosts)

    @property
    def nodes(self) -> list[str]:
        """All but the head."""
        return self.names[1:]

    def address(self, host: str) -> str:
        return self.state.host(host).address

    def hostfile(self, path: Path, slots: int = 1, hosts: Sequence[str] | None = None) -> Path:
        """A DeepSpeed hostfile of the nodes, or of those named."""
        path.write_text("".join(f"{host} slots={slots}\n" for host in (self.nodes if hosts is None else hosts)))
        return path

    def is_on(self, host: str) -> bool:
        init = self.state.host(host).init
        return init is not None and init.alive()

    def poweroff(self, host: str) -> None:
        """Power lost: everything on the host ends at once and the others hear nothing more from it."""
        network.set_cable(self.state, self.state.host(host), up=False)
        self.halt(host)

    def halt(self, host: str) -> None:
        """Everything on the host is killed while its network is up: the others see their connections close."""
        found = self.state.host(host)
        if found.init is not None:
            machines.end(found.init, [found.init])
        found.init = None
        self.state.save()

    def boot(self, host: str) -> None:
        """Switch a host on that is off."""
        machines.boot(self.state, [host], self._children)
