"""The state of a campaign now, for the progress bars above the page: /state.json.

In: OUT/progress.json and the owner of the folder's lock. Out: plain JSON: numbers, and the same as text, so that the page computes nothing.
Anybody may have written the file: its strings are only shown as text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seatrial.campaign.lock import read_owner
from seatrial.core import files
from seatrial.core.paths import CampaignPaths
from seatrial.core.text import format_duration, format_estimate
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.results import LiveState
from seatrial.report.text import one_line

NEVER_RAN = "nothing has run here yet"


@dataclass(frozen=True, kw_only=True)
class CampaignState:
    """progress.json and the lock's owner, read once."""

    state: LiveState | None
    """None where nothing has run yet, or the file is not ours."""
    is_run: bool
    """Whether the campaign is running."""
    line: str
    """The state in one line, as `seatrial watch --once` prints it."""


def read_state(paths: CampaignPaths, line: Callable[[LiveState], str]) -> CampaignState:
    """The state now; `line` gives a state as text."""
    state = from_json_or_none(LiveState, files.read_json(paths.progress))
    return CampaignState(state=state, is_run=read_owner(paths) is not None, line=line(state) if state else NEVER_RAN)


def state_json(now: CampaignState) -> dict[str, Any]:
    """Numbers and text; `campaign` and `run` are a progress bar each, null where there is none."""
    state = now.state
    return {
        "state": to_json(state),
        "line": now.line,
        "runs_now": now.is_run,
        "over": not now.is_run and state is not None and state.over,
        "campaign": _campaign_bar(state, now.is_run) if state else None,
        "run": _run_bar(state) if state and state.run and now.is_run else None,
        "alarm": one_line(state.alarm or state.others) if state and now.is_run else "",
    }


def _campaign_bar(state: LiveState, is_run: bool) -> dict[str, Any]:
    parts = [f"{state.finished} of {state.count} runs"]
    if state.failed:
        parts.append(f"{state.failed} failed")
    if is_run and not state.over:
        parts.append(f"ETA {format_estimate(state.campaign_eta_s, state.campaign_eta_low_s, state.campaign_eta_high_s)}")
    return {"name": one_line(state.plan), "done": state.finished, "of": state.count, "text": " · ".join(parts)}


def _run_bar(state: LiveState) -> dict[str, Any]:
    """Steps are counted from 0: the one under way is done when the next is reported."""
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
