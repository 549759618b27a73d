"""Commands inside a host: in its namespaces, with its clock, its home and this virtual environment first on PATH.

nsenter joins the namespaces and its child is the command. The machine sees every process of every host, so a signal is sent directly to
that child: nsenter would not forward it. Output goes to files, since a left-over process could keep a pipe open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.cluster.state import ClusterError, ClusterState, ProcessId

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
APPEARS_S = 60.0


def environment(state: ClusterState) -> dict[str, str]:
    """The environment of a login with this virtual environment activated; nothing of the tests' own."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{SYSTEM_PATH}",
        "HOME": str(state.home),
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
    }


def entering(state: ClusterState, name: str) -> list[str]:
    init = state.host(name).init
    if init is None or not init.alive():
        raise ClusterError(f"host {name} is off")
    return ["nsenter", "-t", str(init.pid), "-n", "-u", "-i", "-p", "-m", "--"]


def inside(state: ClusterState, name: str, argv: list[str]) -> str:
    """Stdout of a command of the cluster itself; ClusterError unless it exits with 0."""
    done = subprocess.run(
        [*entering(state, name), *argv], env=environment(state), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ClusterError(f"{' '.join(argv)} on {name} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def entering_command(state: ClusterState, name: str, argv: list[str], cwd: Path | str | None) -> list[str]:
    # env changes to the folder as the host sees it, and gives the clock to the command alone.
    clock = [f"{key}={value}" for key, value in state.host(name).clock.items()]
    # A caller that ignores Ctrl-C, as the `exec` verb and a background shell do, must not pass that on.
    return [*entering(state, name), "env", "--default-signal=INT,QUIT", "-C", str(cwd or state.work_folder), "--", *clock, *argv]


def only_child(pid: int, still_there: subprocess.Popen[str]) -> int | None:
    """The child of `pid`, which appears a moment after it; None when `still_there` ended first."""
    deadline = time.monotonic() + APPEARS_S
    while time.monotonic() < deadline:
        try:
            children = psutil.Process(pid).children()
        except psutil.NoSuchProcess:
            children = []
        if children:
            return children[0].pid
        if still_there.poll() is not None:
            return None
        time.sleep(0.002)
    raise ClusterError(f"process {pid} has started nothing in {APPEARS_S:.0f} s")


def kill_inside(entered: subprocess.Popen[str]) -> None:
    """KILL for the command that this nsenter started and for all its descendants."""
    try:
        below = psutil.Process(entered.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    for process in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    # nsenter stops itself when its child is stopped, and would never see the end.
    entered.send_signal(signal.SIGCONT)
    entered.wait()


class Started:
    """A command that runs in a host."""

    def __init__(self, host: str, process: subprocess.Popen[str], log: Path) -> None:
        self.host, self.log = host, log
        self._process = process
        self._outer = only_child(process.pid, process)
        # Its pid inside the host; None when it has already ended.
        self.pid = None if self._outer is None else inner_pid(self._outer)

    @property
    def output(self) -> str:
        """Stdout and stderr so far."""
        return self.log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send it to the process inside, if that still runs."""
        if self._outer is None or not self.running:
            return
        try:
            os.kill(self._outer, number)
            # nsenter stopped itself with its child and must be resumed too.
            if number == signal.SIGCONT:
                os.kill(self._process.pid, number)
        except ProcessLookupError:
            return

    def wait(self, timeout: float | None = 60.0) -> int:
        """Its exit code, negative for a signal; subprocess.TimeoutExpired leaves it running."""
        return self._process.wait(timeout)

    def kill(self) -> None:
        """KILL for it and its descendants."""
        kill_inside(self._process)


def inner_pid(outer: int) -> int | None:
    try:
        for line in Path(f"/proc/{outer}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return None


@dataclasses.dataclass(frozen=True)
class Seen:
    """A process of a host as the machine sees it."""

    outer: int
    pid: int
    command: str
    environment: str


def processes_of(state: ClusterState, name: str) -> list[Seen]:
    """All processes of a host but its init, the sleep that init waits for, and the listening sshd. [] when it is off."""
    init = state.host(name).init
    if init is None or not init.alive():
        return []
    own = {init.pid, *_resting(init)}
    listener = listener_pid(init)
    return [seen for seen in map(_seen, _in_namespace(init)) if seen is not None and seen.outer not in own and seen.pid != listener]


def _resting(init: ProcessId) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(init.pid).children() if child.cmdline() == ["sleep", "infinity"]]
    except psutil.NoSuchProcess:
        return []


def listener_pid(init: ProcessId) -> int | None:
    """Of sshd, inside the host."""
    try:
        return int(Path(f"/proc/{init.pid}/root/run/sshd.pid").read_text())
    except (OSError, ValueError):
        return None


def _in_namespace(init: ProcessId) -> list[int]:
    def namespace(pid: int) -> str | None:
        try:
            return str(Path(f"/proc/{pid}/ns/pid").readlink())
        except OSError:
            return None

    wanted = namespace(init.pid)
    return [] if wanted is None else [pid for pid in psutil.pids() if namespace(pid) == wanted]


def _seen(outer: int) -> Seen | None:
    inside = inner_pid(outer)
    try:
        command = Path(f"/proc/{outer}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        variables = Path(f"/proc/{outer}/environ").read_bytes().replace(b"\0", b"\n").decode(errors="replace")
    except OSError:
        return None
    # A zombie has neither.
    return Seen(outer, inside, command, variables) if inside is not None and (command or variables) else None
