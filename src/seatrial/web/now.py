"""What is happening now, for the bars above the page: /state.json.

In: OUT/progress.json and who holds the folder. Out: plain JSON: the numbers as they are, and the same in words, so that the page need not
count. What stands in the file may have been written by anybody and is only ever text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seatrial import files
from seatrial.campaign.owner import read_owner
from seatrial.paths import CampaignPaths
from seatrial.records.codec import described, to_json
from seatrial.records.live import LiveState
from seatrial.report.one_line import one_line
from seatrial.units import format_duration, format_estimate

NEVER_RAN = "nothing has run here yet"


@dataclass(frozen=True, kw_only=True)
class Now:
    """One look at progress.json and the lock."""

    state: LiveState | None
    """None where nothing has run yet, or the file is none of ours."""
    is_run: bool
    """Whether anybody runs the campaign."""
    line: str
    """The state in one line, as `seatrial watch --once` says it."""


def read_now(paths: CampaignPaths, line: Callable[[LiveState], str]) -> Now:
    """The state of this moment; `line` puts it into words."""
    state = described(LiveState, files.read_json(paths.progress))
    return Now(state=state, is_run=read_owner(paths) is not None, line=line(state) if state else NEVER_RAN)


def now_json(now: Now) -> dict[str, Any]:
    """Numbers and words; `campaign` and `run` are a bar each, null where there is none to draw."""
    state = now.state
    return {
        "state": to_json(state),
        "line": now.line,
        "runs_now": now.is_run,
        "over": not now.is_run and state is not None and state.over,
        "campaign": _campaign_bar(state, now.is_run) if state else None,
        "run": _run_bar(state) if state and state.run and now.is_run else None,
        "alarm": one_line(state.alarm) if state and now.is_run else "",
    }


def _campaign_bar(state: LiveState, is_run: bool) -> dict[str, Any]:
    parts = [f"{state.finished} of {state.count} runs"]
    if state.failed:
        parts.append(f"{state.failed} failed")
    if is_run and not state.over:
        parts.append(f"ETA {format_estimate(state.campaign_eta_s, state.campaign_eta_low_s, state.campaign_eta_high_s)}")
    return {"name": one_line(state.plan), "done": state.finished, "of": state.count, "text": " · ".join(parts)}


def _run_bar(state: LiveState) -> dict[str, Any]:
    """Steps are counted from 0: the one under way is done when the next is told."""
    parts = ["no step yet" if state.step is None else f"step {state.step}" + (f" of {state.total_steps}" if state.total_steps else "")]
    if state.attempt and state.attempt > 1:
        parts.insert(0, f"attempt {state.attempt}")
    if state.phase:
        parts.append(one_line(state.phase))
    if state.iter_ms_p50 is not None:
        parts.append(f"{state.iter_ms_p50:.1f} ms a step")
    parts += [format_duration(state.elapsed_s), f"ETA {format_estimate(state.run_eta_s, state.run_eta_low_s, state.run_eta_high_s)}"]
    done = 0 if state.step is None else state.step + 1
    return {"name": one_line(state.run or ""), "done": done, "of": state.total_steps, "text": " · ".join(parts)}
