"""`python -m seatrial.agent PATH/agent.json`: start an attempt's command, watch over it, leave nothing behind.

Standard input is the control pipe (lines `stacks`, `stop` and `kill`; its end means that the harness is gone: everything is killed).
Standard output gives one JSON report a line, for example:

    {"kind": "started", "t": 1794705558.1, "pid": 4711, "returncode": null, "killed": 0, "detail": ""}
    {"kind": "stacks", "t": 1794705569.2, "pid": null, "returncode": null, "killed": 0, "detail": "by signal: rank 0 (pid 4712)"}
    {"kind": "exited", "t": 1794705570.3, "pid": null, "returncode": 0, "killed": 0, "detail": ""}
    {"kind": "gone", "t": 1794705570.4, "pid": null, "returncode": null, "killed": 0, "detail": ""}
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from seatrial.agent.supervise import Supervisor
from seatrial.files import read_json
from seatrial.records.codec import from_json
from seatrial.records.command import AgentOrder


def main(argv: list[str]) -> int:
    written = read_json(Path(argv[1])) if len(argv) == 2 else None
    if written is None:
        sys.stderr.write("seatrial.agent: expected one argument, the path of an attempt's agent.json\n")
        return 1
    supervisor = Supervisor(from_json(AgentOrder, written))
    code = _carried_out(supervisor)
    if supervisor.stuck:
        # The usual way out would wait for locks that the hung call holds; everything is written already.
        os._exit(code)
    return code


def _carried_out(supervisor: Supervisor) -> int:
    """The exit code. An error of ours is printed here as Python would, since the way out after it may be the short one too."""
    try:
        supervisor.run()
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
