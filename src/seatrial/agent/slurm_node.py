"""One node's part in `seatrial doctor --place slurm`: `python -m seatrial.agent.slurm_node FOLDER NODES`, started by srun on each.

Writes a file to the shared folder, waits for those of the others, and prints what it saw as one line of JSON.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any

from seatrial.core.paths import TRIAL_PREFIX
from seatrial.machine.network import describe_infiniband, list_interfaces

SEEN_TIMEOUT_S = 15.0
POLL_S = 0.2
INFINIBAND = Path("/sys/class/infiniband")
CACHES = ("HF_HOME", "RUNS_ROOT")


def facts(folder: Path, nodes: int) -> dict[str, Any]:
    """What this node sees."""
    host, job = socket.gethostname(), os.environ.get("SLURM_JOB_ID", "")
    problem = ""
    try:
        (folder / f"{TRIAL_PREFIX}{job}-{host}").write_text(host)
    except OSError as error:
        problem = f"{folder}: {error.strerror}"
    return {
        "host": host,
        "job": job,
        "problem": problem,
        "sees": _wait_for_others(folder, job, nodes),
        "python": platform.python_version(),
        "executable": sys.executable,
        "gpus": len([one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]),
        "infiniband": dict(describe_infiniband(INFINIBAND)),
        "interfaces": {name: list(addresses) for name, addresses in list_interfaces().items()},
        "folders": {name: _identity(os.environ[name]) for name in CACHES if os.environ.get(name)},
    }


def _wait_for_others(folder: Path, job: str, nodes: int) -> list[str]:
    until_m = time.monotonic() + SEEN_TIMEOUT_S
    while True:
        # A network file system shows new files when the folder is read again.
        seen = sorted(path.name.rpartition(f"{job}-")[2] for path in folder.glob(f"{TRIAL_PREFIX}{job}-*"))
        if len(seen) >= nodes or time.monotonic() > until_m:
            return seen
        time.sleep(POLL_S)


def _identity(path: str) -> str:
    """The same on every node that has the same folder there; empty where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    return f"{found.st_ino}:{found.st_mtime_ns}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts(Path(sys.argv[1]), int(sys.argv[2]))) + "\n")
