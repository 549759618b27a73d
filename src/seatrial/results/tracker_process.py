"""`python -m seatrial.results.tracker_process NAME OUT`: one tracker in a process of its own.

Reads one JSON request a line from standard input (`results.tracked`) and answers each with one line on standard output: `{"do": "open"}`,
`{"do": "run", "run": …}`, `{"do": "campaign", "campaign": …}` → `{"ok": true, "where": …}` or `{"ok": false, "reason": …}`. It ends with
its input. What a tracker's library prints goes to standard error, which is OUT/tracking.log. It is a process of its own because such a
library may hang on a network, start threads, or end the process, and the campaign must go on.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from seatrial.core.text import shortened
from seatrial.machine.secrets import mask_text
from seatrial.report.trackers import Tracker, open_tracker
from seatrial.results.tracked import Request, requested_campaign, requested_run

MAX_REASON_CHARS = 180


def serve(name: str, folder: Path, requests: IO[str], answers: IO[str]) -> None:
    """Carry out each request and answer it; an exception of the tracker, also a library's SystemExit, is an answer."""
    open_once = functools.cache(lambda: open_tracker(name, folder))
    for line in requests:
        try:
            answer: dict[str, Any] = {"ok": True, "where": mask_text(_send(json.loads(line), open_once()))}
        except (Exception, SystemExit) as error:
            answer = {"ok": False, "reason": _reason(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _send(request: Request, tracker: Tracker) -> str:
    if request["do"] == "run":
        tracker.send_run(requested_run(request))
    elif request["do"] == "campaign" and (campaign := requested_campaign(request)):
        tracker.send_campaign(campaign)
    return tracker.destination


def _reason(error: BaseException) -> str:
    """The first line with text, short and without secrets."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    reason = mask_text(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    return shortened(reason, MAX_REASON_CHARS)


def private_stdout() -> IO[str]:
    """The stream for answers; everything else printed from now on goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), sys.stdin, private_stdout())
