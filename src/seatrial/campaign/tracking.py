"""Finished runs to trackers, without ever failing or holding up the campaign.

In: names of trackers and the campaign's folder; then each attempt that is over, and the campaign at its end. Out: what was sent, what was
not, and why. Every tracker has a process of its own that is given a limited time for each order and killed when it takes longer; one
that fails twice in a row is left alone. Orders are given between runs, so that nothing is sent while one is measured.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from seatrial.campaign.listener import Listener
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.check import Check
from seatrial.records.live import LiveState
from seatrial.records.outcome import RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec

# Imports of a large library, and a first word with its server; a database is made the first time.
OPEN_LIMIT_S = 60.0
ORDER_LIMIT_S = 30.0
CLOSE_LIMIT_S = 10.0
MOST_FAILURES = 2
READ_BYTES = 64 * 1024

Warn = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a tracker said to one order."""

    ok: bool
    where: str = ""
    reason: str = ""


class TrackerProcess:
    """One tracker's process, started when it is first needed and again after it had to be killed."""

    def __init__(self, name: str, paths: CampaignPaths, argv: Sequence[str] = ()) -> None:
        # -P: a wandb/ or an mlflow.py in the user's folder must not take the place of the package.
        default = (sys.executable, "-P", "-m", "seatrial.campaign.tracker_process", name, str(paths.folder))
        self._argv, self._log = argv or default, paths.tracking_log
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, order: dict[str, str], limit_s: float) -> Answer:
        """The answer, or the reason why there is none after `limit_s`."""
        end_m = time.monotonic() + limit_s
        try:
            process = self._started()
            assert process.stdin is not None
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
            answer = self._read_line(process, end_m)
        except OSError as error:
            answer, said = None, f"its process cannot be reached: {error.strerror or error}"
        else:
            said = f"no answer in {limit_s:.0f} s" if process.poll() is None else f"its process ended with exit code {process.returncode}"
        if answer is None:
            self.kill()
            return Answer(ok=False, reason=said)
        return Answer(ok=bool(answer.get("ok")), where=str(answer.get("where", "")), reason=str(answer.get("reason", "")))

    def close(self) -> None:
        """Let it end by itself for a moment, then end it."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(CLOSE_LIMIT_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self) -> None:
        """End it and whatever it started."""
        import psutil

        process, self._process = self._process, None
        if process is None:
            return
        try:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        except psutil.Error:
            # It is over already, and what it started with it.
            pass
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with open(self._log, "ab") as log:
                self._process = subprocess.Popen(
                    self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0, start_new_session=True
                )
        return self._process

    def _read_line(self, process: subprocess.Popen[bytes], end_m: float) -> dict[str, Any] | None:
        assert process.stdout is not None
        text = b""
        while not text.endswith(b"\n"):
            left_s = end_m - time.monotonic()
            if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                return None
            part = os.read(process.stdout.fileno(), READ_BYTES)
            if not part:
                process.wait(CLOSE_LIMIT_S)
                return None
            text += part
        value = json.loads(text)
        return value if isinstance(value, dict) else None


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
    _trackers: dict[str, _Sent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._trackers = {name: _Sent(process=TrackerProcess(name, self.paths)) for name in self.names}

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for tracker in self._trackers.values():
            # Whoever interrupts does not want to wait for a tracker as well.
            (tracker.process.close if kind is None else tracker.process.kill)()

    def open(self) -> None:
        """Import and connect before the first run, so that a tracker out of reach is told now and not after hours."""
        for name, tracker in self._trackers.items():
            if not tracker.opened:
                tracker.opened = True
                self._order(name, tracker, {"do": "open"}, OPEN_LIMIT_S)

    def send_run(self, attempt: Path) -> None:
        """Send one attempt that is over."""
        self.open()
        for name, tracker in self._trackers.items():
            tracker.runs += 1
            tracker.sent += self._order(name, tracker, {"do": "run", "attempt": str(attempt)}, ORDER_LIMIT_S)

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
        answer = tracker.process.ask(order, limit_s)
        if answer.ok:
            tracker.failures, tracker.where = 0, answer.where
            return True
        tracker.failures += 1
        tracker.reason = answer.reason
        rest = "; it is left alone from here on" if tracker.failures >= MOST_FAILURES else ""
        self.warn(f"tracking: {name}: {answer.reason}; the campaign goes on{rest} (more in {self.paths.tracking_log})")
        return False


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
        self._tracking.send_run(self._tracking.paths.run(spec.run).attempt(outcome.attempt).folder)


def send_all(tracking: Tracking, attempts: Sequence[AttemptPaths]) -> None:
    """Every attempt that is over, then the campaign."""
    for attempt in attempts:
        if attempt.outcome.exists():
            tracking.send_run(attempt.folder)
    tracking.send_campaign()
