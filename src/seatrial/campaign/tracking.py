"""Finished runs to trackers, without ever failing or holding up the campaign.

In: names of trackers and the campaign's folder; then each attempt that is over, and the campaign at its end. Out: what was sent, what was
not, and why. Every tracker has a process of its own that is given a limited time for each order and killed when it takes longer, or
when the user interrupts; one that fails twice in a row is left alone. Orders are given between runs, so that nothing is sent while one
is measured.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from seatrial.campaign.listener import Listener
from seatrial.campaign.tracker_handle import INTERRUPTED, Answer, GiveUp, TrackerProcess, never
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.check import Check
from seatrial.records.live import LiveState
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec

# Imports of a large library, and a first word with its server; a database is made the first time.
OPEN_LIMIT_S = 60.0
ORDER_LIMIT_S = 30.0
CLOSE_LIMIT_S = 10.0
# For whoever has interrupted and waits for the prompt.
HURRIED_CLOSE_LIMIT_S = 2.0
# One may be a hiccup of the network; two in a row are a server that is gone.
MOST_FAILURES = 2

Warn = Callable[[str], None]


@dataclass
class _Sent:
    """How it went with one tracker."""

    process: TrackerProcess
    runs: int = 0
    sent: int = 0
    failures: int = 0
    """In a row."""
    where: str = ""
    reason: str = ""
    opened: bool = False


@dataclass
class Tracking:
    """All trackers of one invocation."""

    names: Sequence[str]
    paths: CampaignPaths
    warn: Warn
    earlier: int = 0
    """Runs that were over before this invocation, and so are not sent by it."""
    give_up: GiveUp = never
    _trackers: dict[str, _Sent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._trackers = {name: _Sent(process=TrackerProcess(name, self.paths)) for name in self.names}

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        processes = [tracker.process for tracker in self._trackers.values()]
        # Whoever interrupts does not want to wait for a tracker as well.
        limit_s = 0.0 if kind is not None else HURRIED_CLOSE_LIMIT_S if self.give_up() else CLOSE_LIMIT_S
        end_m = time.monotonic() + limit_s
        for process in processes:
            process.hang_up()
        with contextlib.ExitStack() as stack:
            for process in processes:
                stack.callback(process.kill)
            for process in processes:
                process.close(end_m - time.monotonic())

    def open(self) -> None:
        """Import and connect before the first run, so that a tracker out of reach is told now and not after hours."""
        for name, tracker in self._trackers.items():
            tracker.process.clear_if_ended()
            if not tracker.opened:
                tracker.opened = True
                self._order(name, tracker, {"do": "open"}, OPEN_LIMIT_S)

    def send_run(self, attempt: Path) -> None:
        """Send one attempt that is over."""
        self.open()
        for name, tracker in self._trackers.items():
            tracker.runs += 1
            tracker.sent += self._order(name, tracker, {"do": "run", "attempt": str(attempt)}, ORDER_LIMIT_S)

    def leave_out(self, reason: str) -> None:
        """Count a run that is over and is not sent."""
        for tracker in self._trackers.values():
            tracker.runs, tracker.reason = tracker.runs + 1, reason

    def send_campaign(self) -> None:
        """Send how the campaign stands, when its report is written."""
        for name, tracker in self._trackers.items():
            if tracker.sent:
                self._order(name, tracker, {"do": "campaign"}, ORDER_LIMIT_S)

    def account(self) -> list[str]:
        """One sentence a tracker."""
        return [_account(name, tracker, self.paths.folder, self.earlier) for name, tracker in self._trackers.items()]

    def _order(self, name: str, tracker: _Sent, order: dict[str, str], limit_s: float) -> bool:
        if tracker.failures >= MOST_FAILURES:
            return False
        answer = self._ask(tracker.process, order, limit_s)
        if answer.ok:
            tracker.failures, tracker.where = 0, answer.where
            return True
        tracker.reason = answer.reason
        if answer.reason == INTERRUPTED:
            return False
        tracker.failures += 1
        rest = "; it is left alone from here on" if tracker.failures >= MOST_FAILURES else ""
        self.warn(f"tracking: {name}: {answer.reason}; the campaign goes on{rest} (more in {self.paths.tracking_log})")
        return False

    def _ask(self, process: TrackerProcess, order: dict[str, str], limit_s: float) -> Answer:
        if self.give_up():
            return Answer(ok=False, reason=INTERRUPTED)
        try:
            return process.ask(order, limit_s, self.give_up)
        except Exception as error:
            # Nothing about a tracker, foreseen or not, may end a campaign of hours.
            return Answer(ok=False, reason=f"{type(error).__name__}: {error}")


def _account(name: str, tracker: _Sent, folder: Path, earlier: int) -> str:
    told = f"{name}: {tracker.sent} of {tracker.runs} runs sent"
    if tracker.sent:
        told += f" to {tracker.where}"
    left = [f"{tracker.runs - tracker.sent} not ({tracker.reason})"] if tracker.sent < tracker.runs else []
    left += [f"{earlier} finished before not again"] if earlier else []
    return f"{told}; {', '.join(left)}: `seatrial report {folder} --track {name}` sends what is missing" if left else told


class TrackingListener:
    """Hears what another listener hears, and sends each run that is over."""

    def __init__(self, listener: Listener, tracking: Tracking) -> None:
        self._listener, self._tracking = listener, tracking

    def warned(self, checks: Sequence[Check]) -> None:
        self._listener.warned(checks)

    def skipped(self, spec: RunSpec, unlike: str) -> None:
        self._tracking.earlier += 1
        self._listener.skipped(spec, unlike)

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        self._tracking.open()
        self._listener.started(spec, attempt, position, count)

    def progress(self, state: LiveState) -> None:
        self._listener.progress(state)

    def stopping(self, spec: RunSpec) -> None:
        self._listener.stopping(spec)

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        self._listener.ended(spec, outcome, measured)
        if outcome.outcome is Outcome.INTERRUPTED:
            self._tracking.leave_out(INTERRUPTED)
        else:
            self._tracking.send_run(self._tracking.paths.run(spec.run).attempt(outcome.attempt).folder)


def send_all(tracking: Tracking, attempts: Sequence[AttemptPaths]) -> None:
    """Every attempt that is over, then the campaign."""
    for attempt in attempts:
        if attempt.outcome.exists():
            tracking.send_run(attempt.folder)
    tracking.send_campaign()
