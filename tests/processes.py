"""Processes from outside: by a variable in their environment, whether they have ended, the pids that a script wrote."""

from __future__ import annotations

from multiprocessing import resource_tracker
from pathlib import Path

import psutil


def carrying(variable: str, folder: Path) -> list[psutil.Process]:
    """Processes in whose environment `variable` is this folder or below it."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.environ().get(variable, "")).is_relative_to(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def own_children() -> list[psutil.Process]:
    """Children of this process, without the resource tracker of multiprocessing."""
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    return [child for child in psutil.Process().children() if child.pid != tracker]


def pids_in(path: Path) -> list[int]:
    """Pids that a script wrote, one a line."""
    return [int(line) for line in path.read_text().split()] if path.is_file() else []
