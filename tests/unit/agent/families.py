"""Ranks with children of their own, and an agent without patience."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.processes import pids_in
from tests.waiting import wait_until

# Ranks, each with a child in a session of its own, all of whose pids stand in `pids`.
FAMILY = """\
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open("pids", "a") as out:
    out.write(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def impatient(patience: str, call: Path) -> subprocess.CompletedProcess[str]:
    """The agent on a call, with one of its patiences at nothing."""
    module, _, name = patience.rpartition(".")
    lines = (
        f"import sys, {module} as patient",
        f"patient.{name} = 0",
        "from seatrial.agent.__main__ import main",
        "sys.exit(main(sys.argv))",
    )
    code = "\n".join(lines)
    return subprocess.run([sys.executable, "-c", code, "--call", str(call)], capture_output=True, text=True, timeout=60)


def family(folder: Path, size: int = 4) -> list[int]:
    wait_until(lambda: len(pids_in(folder / "pids")) == size, "all ranks and their children are up")
    return pids_in(folder / "pids")
