"""`python -m seatrial.agent PATH/agent.json`: start an attempt's command, watch over it, leave nothing behind.

Standard input is the control pipe (lines `stacks`, `stop` and `kill`; its end means that the harness is gone: everything is killed).
Standard output gives one JSON report a line, for example:

    {"kind": "started", "t": 1794705558.1, "pid": 4711, "returncode": null, "killed": 0, "detail": ""}
    {"kind": "stacks", "t": 1794705569.2, "pid": null, "returncode": null, "killed": 0, "detail": "by signal: rank 0 (pid 4712)"}
    {"kind": "exited", "t": 1794705570.3, "pid": null, "returncode": 0, "killed": 0, "detail": ""}
    {"kind": "gone", "t": 1794705570.4, "pid": null, "returncode": null, "killed": 0, "detail": ""}

`python -m seatrial.agent --call PATH/call.json`: the same on one node of many. It calls the harness named in the file, and order, words
and reports go over that line; see `seatrial.agent.on_node`. Exit code 3: the harness could not be reached, 4: there was no such file.

`python -m seatrial.agent --end PATH/attempt-1`: end what the attempt still runs on this host; see `seatrial.agent.end_attempt`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from seatrial.agent.carry_out import carry_out
from seatrial.agent.harness_pipe import HarnessPipe
from seatrial.files import read_json
from seatrial.records.codec import from_json
from seatrial.records.command import AgentOrder


def main(argv: list[str]) -> int:
    if len(argv) == 3 and argv[1] == "--call":
        # Imported here: the agent of a run on one host starts without it.
        from seatrial.agent.on_node import answer_call

        return answer_call(Path(argv[2]))
    if len(argv) == 3 and argv[1] == "--end":
        from seatrial.agent.end_attempt import end_attempt

        return end_attempt(Path(argv[2]))
    written = read_json(Path(argv[1])) if len(argv) == 2 else None
    if written is None:
        expected = (
            "one argument, the path of an attempt's agent.json, or two: --call and that of a call.json, --end and an attempt's folder"
        )
        sys.stderr.write(f"seatrial.agent: expected {expected}\n")
        return 1
    return carry_out(from_json(AgentOrder, written), os.environ, HarnessPipe())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
