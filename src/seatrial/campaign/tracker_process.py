"""`python -m seatrial.campaign.tracker_process NAME OUT`: one tracker in a process of its own.

Reads one JSON order a line from standard input and answers each with one line on standard output: `{"do": "open"}`,
`{"do": "run", "attempt": FOLDER}`, `{"do": "campaign"}` → `{"ok": true, "where": …}` or `{"ok": false, "reason": …}`. Ends when its
input does. What a tracker's library prints goes to standard error, which is OUT/tracking.log.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from seatrial.campaign.grouped import as_asked_now
from seatrial.campaign.tracked import tracked_campaign, tracked_run
from seatrial.collect.attempts import read_attempt, read_plans
from seatrial.errors import CampaignError
from seatrial.machine.secrets import mask_text
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.run_spec import RunSpec
from seatrial.report.trackers.registry import open_tracker
from seatrial.report.trackers.tracker import Tracker

LONGEST_REASON = 180


def serve(name: str, folder: Path, orders: IO[str], answers: IO[str]) -> None:
    """Do each order and answer it; whatever a tracker raises is an answer, a library's SystemExit too."""
    open_once = functools.cache(lambda: open_tracker(name, folder))
    for line in orders:
        try:
            answer: dict[str, Any] = {"ok": True, "where": mask_text(_obey(json.loads(line), open_once(), CampaignPaths(folder)))}
        except (Exception, SystemExit) as error:
            answer = {"ok": False, "reason": _reason(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _obey(order: dict[str, str], tracker: Tracker, paths: CampaignPaths) -> str:
    if order["do"] == "run":
        _send_run(tracker, AttemptPaths(Path(order["attempt"])), paths)
    elif order["do"] == "campaign":
        campaign = tracked_campaign(paths)
        if campaign is not None:
            tracker.send_campaign(campaign)
    return tracker.where


def _send_run(tracker: Tracker, attempt: AttemptPaths, paths: CampaignPaths) -> None:
    from seatrial.campaign.measuring import measure
    from seatrial.collect.steps import read_steps

    stored = read_attempt(attempt)
    if stored is None or stored.outcome is None:
        raise CampaignError(f"{attempt.folder} holds no attempt that is over; send it when it is")
    asked = as_asked_now(stored, _asked(paths))
    tracker.send_run(tracked_run(measure(asked), read_steps(asked)))


@functools.cache
def _asked(paths: CampaignPaths) -> dict[tuple[str, str], RunSpec]:
    return {(spec.run, spec.hash): spec for plan in read_plans(paths) for spec in plan.runs}


def _reason(error: BaseException) -> str:
    """The first line that says something, short and without secrets."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    told = mask_text(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    return told if len(told) <= LONGEST_REASON else told[: LONGEST_REASON - 1] + "…"


def _private_stdout() -> IO[str]:
    """The stream for answers; what anybody else prints from now on goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), sys.stdin, _private_stdout())
