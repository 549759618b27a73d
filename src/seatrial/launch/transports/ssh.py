"""Agents on other hosts by ssh, one process per host, or by pdsh, one process that runs an ssh for each; and why a start failed.

pdsh runs with `-R exec` and not `-R ssh`: both replace %h by the host (tested with pdsh 2.34), but only the first keeps ssh's options
unsplit. Our own `%` is doubled for it. Each line of its output begins with the host's name, without the domain where all hosts share it,
and is sorted into the hosts' logs by that.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from seatrial.core.errors import HostError
from seatrial.core.files import tail_lines
from seatrial.core.hostfile import HOST_NAME
from seatrial.core.launcher_options import pdsh_args, ssh_command
from seatrial.core.text import join_names
from seatrial.launch.transports import (
    ChildCommand,
    ChildProcess,
    Exit,
    RemoteCommand,
    StartRequest,
    describe_exit,
    end_by_argv,
    end_children,
)

PROGRAM = "pdsh"
HOST = "%h"
# For a command beside the agent, which is not waited for long.
QUICK_OPTIONS = ("-o", "ConnectTimeout=5")
# pdsh's own default: all hosts are started at once, however many there are.
MIN_FANOUT = 32
# For the last lines in its pipe.
READER_TIMEOUT_S = 2.0
_EXIT_LINE = re.compile(rb"pdsh@[^:]*: (?P<host>[^:]+): \S+ exited with exit code (?P<code>\d+)")
_LABELLED = re.compile(rb"(?P<host>[^:\s]+): (?P<text>.*)", re.DOTALL)
# Stands for the host's name while arguments are quoted; no argument has it.
_ANY = "\0"

ArgvFor = Callable[[str], Sequence[str]]
"""Host → the argv that starts its agent."""


def quick_ssh(request: StartRequest, ssh_args: Sequence[str]) -> ChildProcess:
    """An ssh that soon gives up on an unreachable host."""
    return ChildProcess(ssh_command(request.host, request.argv, (*ssh_args, *QUICK_OPTIONS)), request.log)


class SshTransport:
    """An ssh for each host."""

    def __init__(self, ssh_args: Sequence[str] = ()) -> None:
        self._ssh_args = tuple(ssh_args)
        self._children: dict[str, ChildProcess] = {}
        self._commands: list[ChildProcess] = []

    def start(self, requests: Sequence[StartRequest]) -> None:
        for request in requests:
            self._children[request.host] = ChildProcess(ssh_command(request.host, request.argv, self._ssh_args), request.log)

    def exits(self) -> dict[str, Exit]:
        codes = {host: child.returncode for host, child in self._children.items()}
        return {host: describe_exit("ssh", code) for host, code in codes.items() if code is not None}

    def run_command(self, request: StartRequest) -> RemoteCommand:
        self._commands.append(quick_ssh(request, self._ssh_args))
        return ChildCommand("ssh", self._commands[-1])

    def close(self, after_run: bool = True) -> None:
        end_children([*self._children.values(), *self._commands])


def is_plain_for_pdsh(hosts: Iterable[str]) -> bool:
    """Whether pdsh takes these names literally. In others, brackets are ranges, `^` a file, `/` a pattern, `:` and `@` other programs
    and users."""
    return all(HOST_NAME.fullmatch(host) for host in hosts)


def pdsh_argv(hosts: Sequence[str], argv_for: ArgvFor, ssh_args: Sequence[str]) -> list[str]:
    """The whole command; argvs of hosts may differ in their name only."""
    escaped = [argument.replace("%", "%%") for argument in ssh_command(_ANY, argv_for(_ANY), ssh_args)]
    fanout = str(max(MIN_FANOUT, len(hosts)))
    return [PROGRAM, "-R", "exec", "-f", fanout, "-w", ",".join(hosts), *(argument.replace(_ANY, HOST) for argument in escaped)]


def ssh_argv_of_pdsh(host: str, argv_for: ArgvFor, ssh_args: Sequence[str]) -> list[str]:
    """The ssh that pdsh runs for one host; quoted differently from ours, since the name is inserted afterwards."""
    return [argument.replace(_ANY, host) for argument in ssh_command(_ANY, argv_for(_ANY), ssh_args)]


class PdshTransport:
    """One pdsh for all hosts."""

    def __init__(self, argv_for: ArgvFor, ssh_args: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> None:
        self._argv_for = argv_for
        self._ssh_args = pdsh_args(ssh_args, environ)
        self._child: ChildProcess | None = None
        self._commands: list[ChildProcess] = []
        self._logs: dict[str, Path] = {}
        self._codes: dict[str, int] = {}
        self._reader = threading.Thread(target=self._read, name="seatrial-pdsh", daemon=True)

    def start(self, requests: Sequence[StartRequest]) -> None:
        self._logs = {request.host: request.log for request in requests}
        # Every host has a log, as with ssh: an empty one where nothing was printed.
        self._append(self._logs, b"")
        self._child = ChildProcess(pdsh_argv(tuple(self._logs), self._argv_for, self._ssh_args), None)
        self._reader.start()

    def exits(self) -> dict[str, Exit]:
        if self._child is None or self._child.returncode is None:
            return self._host_exits()
        # Its last output is read first, which explains more than its exit code.
        self._reader.join(READER_TIMEOUT_S)
        return {**dict.fromkeys(self._logs, describe_exit(PROGRAM, self._child.returncode)), **self._host_exits()}

    def run_command(self, request: StartRequest) -> RemoteCommand:
        """Run it by ssh directly, as pdsh would."""
        self._commands.append(quick_ssh(request, self._ssh_args))
        return ChildCommand("ssh", self._commands[-1])

    def close(self, after_run: bool = True) -> None:
        if self._child is None:
            return
        end_children([self._child, *self._commands])
        # A pdsh that was killed has left its ssh behind, each in a session of its own.
        end_by_argv([ssh_argv_of_pdsh(host, self._argv_for, self._ssh_args) for host in self._logs])
        self._reader.join(READER_TIMEOUT_S)

    def _host_exits(self) -> dict[str, Exit]:
        return {host: describe_exit("ssh (by pdsh)", code) for host, code in dict(self._codes).items()}

    def _read(self) -> None:
        """A thread: pdsh would block at a full pipe, and with it the last output of an agent."""
        assert self._child is not None
        with self._child.stream as stream:
            for line in stream:
                self._sort(line)

    def _sort(self, line: bytes) -> None:
        exited = _EXIT_LINE.match(line)
        if exited and (host := self._host(exited["host"])):
            self._codes[host] = int(exited["code"])
            self._append([host], line)
            return
        labelled = _LABELLED.match(line)
        if labelled and (host := self._host(labelled["host"])):
            self._append([host], labelled["text"])
            return
        # Not from one host, so it goes to all logs: `pdsh: Invalid …`.
        self._append(self._logs, line)

    def _append(self, hosts: Iterable[str], text: bytes) -> None:
        for host in hosts:
            try:
                with open(self._logs[host], "ab") as log:
                    log.write(text)
            except OSError:
                # A full disk does not stop the start.
                continue

    def _host(self, label: bytes) -> str | None:
        name = os.fsdecode(label)
        if name in self._logs:
            return name
        short = [host for host in self._logs if host.partition(".")[0] == name]
        return short[0] if len(short) == 1 else None


SHOWN_LINES = 3
READ_LINES = 40
MAX_HOSTS_NAMED = 5
# What pdsh prints about every ssh that failed, after ssh's own message.
_UNINFORMATIVE = re.compile(r"pdsh@\S+: \S+ \S+ exited with exit code \d+|\S*Warning: Permanently added")

# (pattern in start.log, cause in the registry of signatures, what to do); the first row that fits decides.
_FIXES: tuple[tuple[str, str, str], ...] = (
    (
        r"Permission denied \(|Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|Too many authentication failures",
        "ssh_denied",
        "make `ssh -o BatchMode=yes {host} true` work without a prompt (ssh-copy-id {host}, or accept its key once)",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "name_unknown",
        "add the name to /etc/hosts or ~/.ssh/config, or correct it in the hostfile",
    ),
    (
        r"Connection (?:refused|timed out|closed by|reset)|No route to host|Network is unreachable|kex_exchange",
        "host_lost",
        "check that {host} is up and sshd runs there on that port (`ssh {host} true`), or leave the host out with place.exclude",
    ),
    (
        r"port \d+ is in use|no TCP port is free",
        "port_in_use",
        "leave place.port out, so that a free one is used, or end what holds it on {host}",
    ),
    (
        r"cannot reach the harness|harness could not be reached",
        "node_not_started",
        "let {host} reach this machine by TCP (a firewall, or a name that resolves to another network); `seatrial doctor PLAN` tries it",
    ),
    (
        r"No module named '?seatrial|ModuleNotFoundError|ImportError",
        "import_error",
        "install Seatrial on {host} in the same environment, or name its interpreter with place.python",
    ),
    (
        r"(?:has no|cannot read) \S*call\.json",
        "file_missing",
        "mount the output folder on {host} at the same path (a shared disk): no file of this attempt was found there",
    ),
    (
        r"command not found|: not found|No such file or directory|cannot execute|Exec format error",
        "program_missing",
        "put the interpreter at the same path on {host}, or name one that exists there with place.python",
    ),
)
# Rows of _FIXES about ssh, which jobs do not use.
_OF_SSH = frozenset({"ssh_denied", "name_unknown", "host_lost"})
SRUN_FAILED = "srun_failed"
_UNKNOWN_SRUN = "see the lines above and the node's state (`sinfo -N -l`); `seatrial doctor PLAN --place slurm` starts a task on every node"
_UNKNOWN = "see the lines above and try `ssh {host} true`; `seatrial doctor PLAN` checks every host at once"
_KILLED = "find out who ended it (a person, or the kernel for lack of memory: `dmesg`), then start the same command again"
_SILENT = "check whether {host} is very busy and can reach this machine by TCP; `seatrial doctor PLAN` tries it"


def start_error(exits: Mapping[str, Exit], logs: Mapping[str, Path], *, by_srun: bool = False) -> HostError:
    """The error for hosts whose starting process has ended, by the first of them."""
    host, *others = exits
    was_killed = (exits[host].returncode or 0) < 0
    problem = f"{host}: its agent could not be started: {exits[host].text}"
    return _host_error(host, others, problem, logs, _KILLED if was_killed else _UNKNOWN, by_srun)


def connect_timeout_error(missing: Sequence[str], logs: Mapping[str, Path], timeout_s: float, *, by_srun: bool = False) -> HostError:
    """The error for hosts whose agent did not connect in time."""
    host, *others = missing
    return _host_error(host, others, f"the agent of {host} did not connect within {timeout_s:.0f} s", logs, _SILENT, by_srun)


def disconnect_error(host: str, why: str, logs: Mapping[str, Path], *, by_srun: bool = False) -> HostError:
    """The error for a host that connected and disconnected before it got its order."""
    problem = f"the agent of {host} connected and disconnected again ({why}){_quoted(_log_lines(logs[host]))}"
    return HostError(f"{problem}; {(_UNKNOWN_SRUN if by_srun else _UNKNOWN).format(host=host)}", host=host, cause="node_gone")


def _host_error(host: str, others: list[str], problem: str, logs: Mapping[str, Path], general_fix: str, by_srun: bool) -> HostError:
    """Cause and fix by the first pattern that is in the host's log."""
    lines = _log_lines(logs[host])
    text = "\n".join(lines)
    general = (SRUN_FAILED, general_fix if general_fix == _KILLED else _UNKNOWN_SRUN) if by_srun else ("node_not_started", general_fix)
    rows = [row for row in _FIXES if not by_srun or row[1] not in _OF_SSH]
    found = next(((cause, fix) for pattern, cause, fix in rows if re.search(pattern, text)), general)
    same = f"; the same on {join_names(others, MAX_HOSTS_NAMED)}" if others else ""
    return HostError(f"{problem}{_quoted(lines)}{same}; {found[1].format(host=host)}", host=host, cause=found[0])


def _log_lines(log: Path) -> list[str]:
    return [line.strip() for line in tail_lines(log, READ_LINES) if line.strip()]


def _quoted(lines: list[str]) -> str:
    informative = [line for line in lines if not _UNINFORMATIVE.match(line)] or lines
    return f" ({' / '.join(informative[-SHOWN_LINES:])})" if informative else ""
