"""The agents that a node's command has started for node 0, as its children.

Each has a session of its own, so that Ctrl-C in the terminal reaches the command alone, which then ends them in order: TERM, time to end
the run by itself, KILL. Its words go to the log that node 0 named, in the attempt's folder.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from seatrial.launch.own_programs import AGENT_ENDS_WITHIN_S
from seatrial.machine.orphans import kill_orphans
from seatrial.shell import KILLED_S, is_over_within


class StartedAgents:
    """In order of their start; usually one lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[str, Path, subprocess.Popen[bytes]]] = []

    def start(self, message: dict[str, Any]) -> str:
        """Start what node 0 asks for; the name of the run it is for. OSError where it cannot be, others where it is no such message."""
        argv, log = [str(word) for word in message["argv"]], Path(message["log"])
        env = {**os.environ, **{str(name): str(value) for name, value in dict(message["env"]).items()}}
        with open(log, "ab") as words:
            process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True)
        run = self._run_of(log)
        self._running.append((run, log, process))
        return run

    def ended(self) -> list[tuple[str, str, int]]:
        """(run, log, exit code) of agents that have ended since the last call."""
        over = [(run, str(log), process.returncode) for run, log, process in self._running if process.poll() is not None]
        self._running = [one for one in self._running if one[2].returncode is None]
        return over

    def end(self) -> None:
        """End all that still live, and whatever they leave."""
        for _, _, process in self._running:
            process.terminate()
        until_m = time.monotonic() + AGENT_ENDS_WITHIN_S
        for _, log, process in self._running:
            if not is_over_within(process, until_m - time.monotonic()):
                process.kill()
                kill_orphans(_attempt_of(log), {})
                # One in a call that the kernel cannot interrupt ends later, by itself.
                is_over_within(process, KILLED_S)
        self._running = []

    def _run_of(self, log: Path) -> str:
        """OUT/<run>/attempt-1/nodes/node1/start.log → the run; the path itself where it lies elsewhere."""
        try:
            return log.relative_to(self._folder).parts[0]
        except (ValueError, IndexError):
            return str(log)


def _attempt_of(log: Path) -> Path:
    return log.parents[2] if len(log.parents) > 2 else log.parent
