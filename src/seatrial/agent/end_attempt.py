"""`python -m seatrial.agent --end ATTEMPT`: end all that an attempt still runs on this host, when its agent here can no longer do so.

In: the attempt's folder, as its processes name it. Out: one report a line, as every agent gives, and 0; for example:

    {"kind": "gone", "t": 1794705570.4, "m": 81.2, "pid": null, "returncode": null, "killed": 3, "detail": "", "host": "gpu-17", …}

Killed are processes with SEATRIAL_RUN_DIR=ATTEMPT, their children, and an agent of the attempt; of any other attempt, nothing.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

from seatrial.machine.orphans import kill_orphans
from seatrial.paths import AttemptPaths
from seatrial.records.codec import to_json
from seatrial.records.command import AgentReport


def end_attempt(folder: Path) -> int:
    """The exit code."""
    # By the name alone: a folder that this host does not see may have processes here all the same.
    if not folder.is_absolute() or not AttemptPaths(folder).number:
        sys.stderr.write(f"seatrial.agent: {folder} is no attempt's folder; expected a full path that ends in attempt-N\n")
        return 1
    killed = kill_orphans(folder, {})
    report = AgentReport(kind="gone", t=time.time(), m=time.monotonic(), killed=len(killed), host=socket.gethostname())
    sys.stdout.write(json.dumps(to_json(report)) + "\n")
    sys.stdout.flush()
    return 0
