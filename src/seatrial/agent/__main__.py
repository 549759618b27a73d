"""`python -m seatrial.agent PATH/agent.json`: start an attempt's command, supervise it, leave nothing behind.

Standard input is the control pipe (lines `stacks`, `stop` and `kill`; its end means that the harness is gone: everything is killed).
Standard output is one JSON report a line, for example:

    {"kind": "started", "t": 1794705558.1, "pid": 4711, "returncode": null, "killed": 0, "detail": ""}
    {"kind": "stacks", "t": 1794705569.2, "pid": null, "returncode": null, "killed": 0, "detail": "by signal: rank 0 (pid 4712)"}
    {"kind": "exited", "t": 1794705570.3, "pid": null, "returncode": 0, "killed": 0, "detail": ""}
    {"kind": "gone", "t": 1794705570.4, "pid": null, "returncode": null, "killed": 0, "detail": ""}

`python -m seatrial.agent --call PATH/call.json`: the same on one node of many. It connects to the harness named in the file, which sends
the order and receives the reports; see `seatrial.agent.node`. Exit code 3: the harness could not be reached, 4: no such file.

`python -m seatrial.agent --end PATH/attempt-1`: kill the attempt's remaining processes on this host, where its agent is gone: processes
with SEATRIAL_RUN_DIR=PATH/attempt-1, their children, and an agent of the attempt. Prints one `gone` report with the number of killed
processes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

from seatrial.agent.harness import HarnessPipe
from seatrial.agent.supervise import run_order
from seatrial.core.paths import AttemptPaths
from seatrial.core.private_files import NotPrivateError, read_private_json
from seatrial.machine.orphans import kill_orphans
from seatrial.records.codec import from_json, to_json
from seatrial.records.launch import AgentOrder, AgentReport


def main(argv: list[str]) -> int:
    if len(argv) == 3 and argv[1] == "--call":
        # Imported here: the agent of a run on one host starts without it.
        from seatrial.agent.node import run_node_agent

        return run_node_agent(Path(argv[2]))
    if len(argv) == 3 and argv[1] == "--end":
        return end_attempt(Path(argv[2]))
    try:
        order = read_private_json(Path(argv[1])) if len(argv) == 2 else None
    except NotPrivateError as error:
        sys.stderr.write(f"seatrial.agent: {error}\n")
        return 1
    if order is None:
        sys.stderr.write("seatrial.agent: expected PATH/agent.json, --call PATH/call.json, or --end PATH/attempt-N\n")
        return 1
    return run_order(from_json(AgentOrder, order), os.environ, HarnessPipe())


def end_attempt(folder: Path) -> int:
    """Carry out `--end`; returns the exit code."""
    # Checked by its name only: a folder that this host does not see may still have processes here.
    if not folder.is_absolute() or not AttemptPaths(folder).number:
        sys.stderr.write(f"seatrial.agent: {folder} is not an attempt's folder; expected an absolute path that ends in attempt-N\n")
        return 1
    killed = kill_orphans(folder, {})
    report = AgentReport(kind="gone", t=time.time(), m=time.monotonic(), killed=len(killed), host=socket.gethostname())
    sys.stdout.write(json.dumps(to_json(report)) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
