"""Whose a process is, where hosts of one name have processes of one number."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.agent.python_processes import python_processes
from seatrial.paths import AttemptPaths


@pytest.mark.parametrize(("by_variable", "signal"), [(False, "USR2"), (True, None)])
def test_the_start_event_of_a_like_named_host_is_not_taken(tmp_path: Path, by_variable: bool, signal: str | None) -> None:
    """The signal that another rank has named might end this one."""
    attempt = AttemptPaths(tmp_path / "run" / "attempt-1")
    attempt.folder.mkdir(parents=True)
    code = "import time; print(flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "RANK": "3"}, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        event = {"kind": "start", "attempt": 1, "rank": 0, "pid": process.pid, "host": socket.gethostname(), "signal": "USR2"}
        attempt.events(0).write_text(json.dumps(event) + "\n")
        (found,) = python_processes([process.pid], attempt, by_variable=by_variable)
        assert (found.rank, found.signal) == (3, signal)
    finally:
        process.kill()
        process.communicate()
