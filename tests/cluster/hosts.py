"""A cluster of hosts on this machine, for tests: build it, run commands in it, break it, take it down.

    with cluster(nodes=2, folder=tmp_path) as hosts:              # head, node1, node2
        done = hosts.run("head", ["ssh", "node1", "hostname"])    # subprocess.CompletedProcess
        hosts.cut("node2")

All hosts share one file system and this virtual environment, as on a cluster with a file server; /tmp, /run and /dev/shm belong to each
host (a folder below /tmp is shared when it is `folder` or named in `shared`). Faults do not outlive a boot. They are implemented in
network.py, disks.py and ssh.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.cluster import disks, machines, network, ssh
from tests.cluster.running import Started, entering_command, environment, inside, kill_inside, listener_pid, processes_of
from tests.cluster.state import ClusterState, HostState, ProcessId
from tests.stubs.clock import WallClock
from tests.waiting import wait_until

Argv = Sequence[str | Path]


class Commands:
    """Every method that takes `host` raises ClusterError for an unknown name."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._started: list[subprocess.Popen[str]] = []

    def run(
        self,
        host: str,
        argv: Argv,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        timeout: float = 60.0,
        input: str = "",
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; its own exit code, negative for a signal. Past `timeout` everything below it is killed inside."""
        with _scratch_file() as stdin, _scratch_file() as out, _scratch_file() as err:
            stdin.write(input)
            stdin.seek(0)
            command = entering_command(self.state, host, [str(argument) for argument in argv], cwd)
            process = subprocess.Popen(
                command,
                env={**environment(self.state), **(env or {})},
                stdin=stdin,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout)
            except BaseException as error:
                kill_inside(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise subprocess.TimeoutExpired(list(argv), timeout, _text(out), _text(err)) from None
                raise
            done = subprocess.CompletedProcess([str(argument) for argument in argv], code, _text(out), _text(err))
        if check:
            assert code == 0, f"{done.args} on {host} ended with {code}:\n{done.stdout}{done.stderr}"
        return done

    def start(self, host: str, argv: Argv, *, env: Mapping[str, str] | None = None, cwd: Path | str | None = None) -> Started:
        """Start a command and return; it ends with its host at the latest."""
        log = machines.scratch(self.state) / f"{host}.log"
        command = entering_command(self.state, host, [str(argument) for argument in argv], cwd)
        with open(log, "w") as output:
            process = subprocess.Popen(
                command,
                env={**environment(self.state), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return Started(host, process, log)

    def processes(self, host: str, text: str = "") -> list[int]:
        """Pids inside the host of the processes with this text in their command line or environment; none where the host is off."""
        return [seen.pid for seen in processes_of(self.state, host) if text in seen.command or text in seen.environment]

    def commands(self, host: str, text: str = "") -> list[str]:
        """Their command lines, for messages."""
        return [seen.command for seen in processes_of(self.state, host) if text in seen.command or text in seen.environment]

    def kill(self, host: str, pid: int, number: int = signal.SIGKILL) -> None:
        """Signal a process by its pid inside the host."""
        for seen in processes_of(self.state, host):
            if seen.pid == pid:
                os.kill(seen.outer, number)

    def is_on(self, host: str) -> bool:
        init = self.state.host(host).init
        return init is not None and init.alive()

    def listens(self, host: str, port: int) -> bool:
        init = self.state.host(host).init
        return init is not None and network.listens(init, port)


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _scratch_file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


class Faults(Commands):
    """Each fault ends when it is undone, or when the host boots."""

    def cut(self, host: str) -> None:
        """Pull the cable at the switch: no packets in either direction."""
        network.set_cable(self.state, self.state.host(host), up=False)

    def uncut(self, host: str) -> None:
        """Returns when packets pass again."""
        plugged = self.state.host(host)
        network.set_cable(self.state, plugged, up=True)
        if self.is_on(host):
            wait_until(lambda: network.has_link(plugged), f"{host} notices its cable")
        for name in filter(self.is_on, self.state.hosts):
            network.forget_neighbours(self.state.host(name))

    def slow(self, host: str, rate: str = "1mbit") -> None:
        """Limit the rate to and from the host, in the syntax of tc."""
        network.limit_rate(self.state, self.state.host(host), rate)

    def delay(self, host: str, delay_ms: int) -> None:
        """Delay each packet, both ways; ClusterError where the kernel has no netem. Replaces `slow`."""
        network.delay(self.state, self.state.host(host), delay_ms)

    def unslow(self, host: str) -> None:
        """Undo `slow` and `delay`."""
        network.remove_queue(self.state, self.state.host(host))

    def lose(self, host: str, percent: int) -> None:
        """Drop this percentage of incoming packets, at random."""
        network.add_rule(self.state.host(host), f"numgen random mod 100 < {int(percent)} drop" if percent < 100 else "drop")

    def block_port(self, host: str, port: int, *, silent: bool = False) -> None:
        """Refuse connections from other hosts to this TCP port, or drop their packets when `silent`."""
        network.add_rule(self.state.host(host), f"tcp dport {int(port)} {'drop' if silent else 'reject with tcp reset'}")

    def unblock(self, host: str) -> None:
        """Undo every `block_port` and `lose` of this host."""
        network.remove_rules(self.state.host(host))

    def second_interface(self, host: str, *, connected: bool = True) -> str:
        """Add eth1 with an address of another network, which is returned; unless `connected` it reaches no other host."""
        found = self.state.host(host)
        network.add_second_interface(self.state, found, connected)
        return found.second_address

    def resolve(self, host: str, name: str, address: str | None) -> None:
        """Set the address of `name` on this host; None removes it."""
        path = self.state.host_folder(host) / "hosts"
        kept = [line for line in path.read_text().splitlines() if name not in line.split()[1:]]
        # Written in place: the file is bind-mounted over the host's /etc/hosts.
        path.write_text("\n".join([*kept, *([f"{address}\t{name}"] if address else []), ""]))

    def refuse_ssh(self, host: str, how: str = "stopped") -> None:
        """`stopped`: nothing listens; `key`: no key is accepted; `host_key`: an unknown host key. Open sessions stay."""
        self._set_ssh(self.state.host(host), how)

    def allow_ssh(self, host: str) -> None:
        self._set_ssh(self.state.host(host), "")

    def skew(self, host: str, seconds: int) -> None:
        """Offset the wall clock of whatever is started on this host from now on, by ssh or by `run` and `start`."""
        found = self.state.host(host)
        found.clock = {}
        if seconds:
            # Not libfaketime: where it leaves the monotonic clock alone, Python's time.sleep fails under it with "Invalid argument".
            clock = WallClock(machines.scratch(self.state) / "clock")
            clock.set(seconds)
            found.clock = clock.environment()
        self._set_ssh(found, found.ssh_refusal)

    def _set_ssh(self, host: HostState, refusal: str) -> None:
        host.ssh_refusal = refusal
        ssh.write_sshd_config(self.state, host.name, host.clock)
        self._stop_sshd(host)
        if refusal != "stopped":
            folder = self.state.host_folder(host.name)
            inside(self.state, host.name, ["/usr/sbin/sshd", "-f", str(folder / "sshd_config"), "-E", str(folder / "sshd.log")])
            wait_until(lambda: self.listens(host.name, machines.SSH_PORT), f"sshd of {host.name} listens")
        self.state.save()

    def _stop_sshd(self, host: HostState) -> None:
        listener = listener_pid(host.init) if host.init is not None else None
        if listener is not None:
            inside(self.state, host.name, ["kill", str(listener)])
            wait_until(lambda: not self.listens(host.name, machines.SSH_PORT), f"sshd of {host.name} ends")

    def disk(self, host: str, path: Path | str, size: str = "8m") -> None:
        """An empty disk of the host's own at `path`, which hides what is there."""
        disks.add_disk(self.state, host, str(path), size)
        self.state.save()

    def fill(self, host: str, path: Path | str) -> None:
        """Fill a disk made by `disk` to the last byte."""
        disks.fill_disk(self.state, host, str(path))

    def unfill(self, host: str, path: Path | str) -> None:
        disks.empty_disk(self.state, host, str(path))

    def unshare(self, host: str, path: Path | str) -> None:
        """An empty folder of the host's own in place of the shared one."""
        self.disk(host, path, size="1g")

    def read_only(self, host: str, path: Path | str) -> None:
        """The host can read there but not write."""
        disks.make_read_only(self.state, host, str(path))

    def replace(self, host: str, path: Path | str, content: str) -> None:
        """Replace the contents of the file `path` on this host only."""
        disks.replace_file(self.state, host, str(path), content)

    def unmount(self, host: str, path: Path | str) -> None:
        """Undo one `disk`, `unshare`, `read_only` or `replace`."""
        disks.unmount(self.state, host, str(path))
        self.state.save()

    def hide(self, host: str, program: str) -> None:
        """As if the program were not installed on this host."""
        disks.hide_program(self.state, host, program)


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
        """`kept`: outlives this process, until `down`."""
        machines.sweep_leftovers()
        children: list[subprocess.Popen[str]] = []
        keeper = machines.start_keeper(children, kept)
        hosts = cls(machines.new_state(nodes, folder, shared, keeper))
        hosts.state.owner, hosts.state.tcp_retries2 = None if kept else ProcessId.of(os.getpid()), tcp_retries2
        hosts._children = children
        try:
            # First, so that a half-built cluster can be found and taken down if its builder is killed.
            hosts.state.save()
            machines.prepare(hosts.state)
            machines.boot(hosts.state, hosts.names, children)
        except BaseException:
            hosts.down()
            raise
        return hosts

    def down(self, remove_files: bool = False) -> None:
        """End everything; the hosts' files stay unless `remove_files`."""
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

    def poweroff(self, host: str) -> None:
        """Power lost: everything on the host ends at once and the others get no more packets from it."""
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
        """Start a host that is off."""
        machines.boot(self.state, [host], self._children)
