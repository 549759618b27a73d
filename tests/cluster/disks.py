"""Mounts of one host only: small disks, folders that are not shared, hidden programs, replaced files.

All are in the host's mount namespace and end with it; nothing under them is changed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.cluster.running import SYSTEM_PATH, environment, inside
from tests.cluster.state import ClusterError, ClusterState

FILLER = "filler"


def add_disk(state: ClusterState, name: str, path: str, size: str) -> None:
    inside(state, name, ["mkdir", "-p", path])
    inside(state, name, ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path])
    state.host(name).disks.append(path)


def fill_disk(state: ClusterState, name: str, path: str) -> None:
    # Only a disk created here is ever filled: any other path may be the machine's own.
    if path not in state.host(name).disks:
        raise ClusterError(f"{path} is no disk of {name}'s own; make one there first: disk({name!r}, {path!r}, size='8m')")
    inside(state, name, ["sh", "-c", 'dd if=/dev/zero of="$1" bs=4k 2>/dev/null; true', "sh", f"{path}/{FILLER}"])


def empty_disk(state: ClusterState, name: str, path: str) -> None:
    inside(state, name, ["rm", "-f", f"{path}/{FILLER}"])


def make_read_only(state: ClusterState, name: str, path: str) -> None:
    inside(state, name, ["mount", "--bind", path, path])
    inside(state, name, ["mount", "-o", "remount,ro,bind", path])


def unmount(state: ClusterState, name: str, path: str) -> None:
    inside(state, name, ["umount", "-l", path])
    host = state.host(name)
    host.disks = [disk for disk in host.disks if disk != path]


def hide_program(state: ClusterState, name: str, program: str) -> None:
    """As if it were not installed: every folder of PATH that has it gets an overlay in which it is deleted."""
    folders = {Path(folder).resolve() for folder in (*environment(state)["PATH"].split(":"), *SYSTEM_PATH.split(":"))}
    holding = sorted(folder for folder in folders if (folder / program).exists())
    if not holding:
        raise ClusterError(f"{program} is not there to be hidden")
    for folder in holding:
        _hide_in(state, name, folder, program)


def _hide_in(state: ClusterState, name: str, folder: Path, program: str) -> None:
    holes = state.host_folder(name) / "hidden" / str(folder).strip("/").replace("/", "-")
    if holes.exists():
        # A second overlay on the first would soon be one too many for the kernel.
        inside(state, name, ["umount", "-l", str(folder)])
    holes.mkdir(parents=True, exist_ok=True)
    # What an overlay takes for "deleted here".
    os.mknod(holes / program, stat.S_IFCHR | 0o000, os.makedev(0, 0))
    inside(state, name, ["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={holes}:{folder}", str(folder)])


def replace_file(state: ClusterState, name: str, path: str, content: str) -> None:
    """On this host only."""
    folder = state.host_folder(name) / "replaced"
    folder.mkdir(exist_ok=True)
    own = folder / str(len(list(folder.iterdir())))
    own.write_text(content)
    own.chmod(stat.S_IMODE(Path(path).stat().st_mode))
    inside(state, name, ["mount", "--bind", str(own), path])
