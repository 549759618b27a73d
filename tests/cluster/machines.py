"""The life of a cluster and of its hosts.

One process, the keeper, is the init of a PID namespace that contains those of all hosts, and holds the network namespace of the switch.
When it ends, the kernel kills every process of every host, and namespaces, mounts and cables go with them. The keeper of a test's cluster
reads from a pipe whose other end the test's process holds, so the cluster does not outlive the test. No name is shared by two clusters.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.cluster import network, ssh
from tests.cluster.running import APPEARS_S, SYSTEM_PATH, only_child
from tests.cluster.state import ClusterError, ClusterState, HostState, ProcessId, living

BOOT = Path(__file__).with_name("boot.sh")
PROGRAMS = ("ip", "tc", "nft", "unshare", "nsenter", "tini", "ssh", "ssh-keygen", "sshd", "mount", "cc")
REPOSITORY = Path(__file__).parents[2]
SSH_PORT = 22
POLL_S = 0.005
TIMEOUT_S = 0.3


def unavailable() -> str:
    """Why no cluster can be built here; empty when one can."""
    if sys.platform != "linux":
        return "hosts need Linux namespaces"
    if os.geteuid() != 0:
        return "creating hosts needs root"
    lacking = [program for program in PROGRAMS if shutil.which(program, path=SYSTEM_PATH) is None]
    if lacking:
        return f"missing: {', '.join(lacking)} (bash tests/system-packages.sh)"
    tried = subprocess.run(
        ["unshare", "--net", "--pid", "--mount", "--uts", "--ipc", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else ""


def start_keeper(children: list[subprocess.Popen[str]], kept: bool) -> ProcessId:
    """`kept`: until it is taken down; else until this process ends."""
    keeper = subprocess.Popen(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "tini", "--", *(["sleep", "infinity"] if kept else ["cat"])],
        stdin=subprocess.DEVNULL if kept else subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": SYSTEM_PATH},
        cwd="/",
        start_new_session=True,
        text=True,
    )
    children.append(keeper)
    first = only_child(keeper.pid, keeper)
    if first is None:
        raise ClusterError("the cluster's keeper did not start")
    return ProcessId.of(first)


def new_state(nodes: int, folder: Path, shared: Sequence[Path], keeper: ProcessId) -> ClusterState:
    cluster_id = secrets.token_hex(4)
    work_folder = folder.resolve()
    # Packages may be elsewhere: an editable install refers to its checkout.
    packages = [Path(word).resolve() for word in sys.path if Path(word).is_absolute() and Path(word).is_dir()]
    visible = _outermost(
        [work_folder, REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), *packages, *(path.resolve() for path in shared)]
    )
    hosts = {name: HostState(name, number) for number, name in enumerate(["head", *(f"node{number}" for number in range(1, nodes + 1))])}
    own = work_folder / f"cluster-{cluster_id}"
    own.mkdir(parents=True)
    return ClusterState(cluster_id, str(own), str(work_folder), [str(path) for path in visible], keeper, None, None, hosts)


def _outermost(paths: Sequence[Path]) -> list[Path]:
    unique = set(paths)
    return sorted(path for path in unique if not any(other in path.parents for other in unique))


def prepare(state: ClusterState) -> None:
    network.make_switch(state.keeper)
    ssh.make_home(state)


def boot(state: ClusterState, names: Sequence[str], children: list[subprocess.Popen[str]]) -> None:
    """In parallel, without faults; returns when every sshd listens."""
    hosts = [state.host(name) for name in names]
    for host in hosts:
        if host.init is not None and host.init.alive():
            raise ClusterError(f"host {host.name} is on")
        host.forget_faults()
        ssh.write_host_files(state, host.name)
        shutil.rmtree(state.host_folder(host.name) / "hidden", ignore_errors=True)
        network.unplug(state, host)
    started = [_first_process(state, host, children) for host in hosts]
    for host, process in zip(hosts, started, strict=True):
        host.init = _init_below(state, host, process)
    network.plug_in(state, hosts)
    for host, process in zip(hosts, started, strict=True):
        _wait_until_up(state, host, process)
    state.save()


def _first_process(state: ClusterState, host: HostState, children: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    folder = state.host_folder(host.name)
    into_cluster = ["nsenter", "-t", str(state.keeper.pid), "-p", "--"]
    into_host = ["unshare", "--net", "--uts", "--ipc", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]
    with open(folder / "boot.log", "w") as log:
        process = subprocess.Popen(
            [*into_cluster, *into_host, "sh", str(BOOT), host.name, str(folder), str(state.tcp_retries2 or "default")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
            text=True,
        )
    children.append(process)
    return process


def _init_below(state: ClusterState, host: HostState, process: subprocess.Popen[str]) -> ProcessId:
    unshare = only_child(process.pid, process)
    first = None if unshare is None else only_child(unshare, process)
    if first is None:
        raise ClusterError(_did_not_come_up(state, host))
    return ProcessId.of(first)


def _wait_until_up(state: ClusterState, host: HostState, process: subprocess.Popen[str]) -> None:
    assert host.init is not None
    deadline = time.monotonic() + APPEARS_S
    while not (_is_tini(host.init) and network.listens(host.init, SSH_PORT)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise ClusterError(_did_not_come_up(state, host))
        time.sleep(POLL_S)


def _is_tini(init: ProcessId) -> bool:
    try:
        return Path(f"/proc/{init.pid}/comm").read_text() == "tini\n"
    except OSError:
        return False


def _did_not_come_up(state: ClusterState, host: HostState) -> str:
    logs = [path for path in (state.host_folder(host.name) / name for name in ("boot.log", "sshd.log")) if path.exists()]
    return f"host {host.name} did not come up:\n" + "".join(path.read_text() for path in logs)


def end(process: ProcessId, entered: Sequence[ProcessId]) -> None:
    """KILL, and wait until the kernel has ended everything in its PID namespace. `entered`: the hosts that end with it."""
    if process.alive():
        os.kill(process.pid, signal.SIGKILL)
    deadline_m = time.monotonic() + TIMEOUT_S
    while process.alive():
        time.sleep(POLL_S)
        if time.monotonic() > deadline_m:
            _kill_waiting(entered)


def _kill_waiting(entered: Sequence[ProcessId]) -> None:
    """A namespace does not end while an ended process of it is not reaped from outside: by an nsenter that is stopped with its child."""
    wanted = [["nsenter", "-t", str(process.pid)] for process in entered]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[:3] in wanted:
                process.kill()


def end_cluster(state: ClusterState) -> None:
    end(state.keeper, [host.init for host in state.hosts.values() if host.init is not None])
    state.forget()


def reap(children: list[subprocess.Popen[str]]) -> None:
    """Wait for the processes outside whose children inside have ended."""
    for child in children:
        child.wait()
        if child.stdin is not None:
            child.stdin.close()
    children.clear()


def sweep_leftovers() -> None:
    """Take down clusters that outlived their owner."""
    for state in living():
        if state.ownerless:
            end_cluster(state)


def scratch(state: ClusterState) -> Path:
    """A new folder for what one command or fault leaves."""
    folder = Path(state.folder) / "outputs"
    folder.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(dir=folder))
