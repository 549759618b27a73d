"""Finished runs to trackers, without ever failing or holding up the campaign.

In: names of trackers and the campaign's folder; then each attempt that is over, and the campaign at its end. Out: what was sent, what was
not, and why. Every tracker has a process of its own that is given a limited time for each order and killed when it takes longer, or
when the user interrupts; one that fails twice in a row is left alone. Orders are given between runs, so that nothing is sent while one
is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from seatrial.campaign.listener import Listener
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
# From the end of its output to that of the process, and from KILL to its end.
END_LIMIT_S = 2.0
KILL_LIMIT_S = 5.0
LOOK_EVERY_S = 0.2
MOST_FAILURES = 2
READ_BYTES = 64 * 1024
LONGEST_ANSWER_BYTES = 1024 * 1024
INTERRUPTED = "interrupted"
MARK = "SEATRIAL_TRACKER"
"""Variable by which what a tracker has started is known when the tracker itself is gone."""

Warn = Callable[[str], None]
GiveUp = Callable[[], bool]
"""Whether the user wants the end now; once it is so, it stays so."""


def never() -> bool:
    return False


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
        self._mark = uuid.uuid4().hex

    def ask(self, order: dict[str, str], limit_s: float, give_up: GiveUp = never) -> Answer:
        """The answer, or the reason why there is none after `limit_s`, or earlier where `give_up` says so."""
        try:
            told = self._exchange(order, limit_s, give_up)
        except OSError as error:
            told = f"its process cannot be reached: {error.strerror or error}"
        except (ValueError, RecursionError):
            told = "its answer cannot be read"
        if isinstance(told, str):
            self.kill()
            return Answer(ok=False, reason=told)
        return Answer(ok=bool(told.get("ok")), where=str(told.get("where", "")), reason=str(told.get("reason", "")))

    def hang_up(self) -> None:
        """Tell it that no more orders come, so that it ends by itself."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def close(self, limit_s: float) -> None:
        """Let it end by itself for so long, then end it."""
        self.hang_up()
        try:
            if self._process is not None:
                self._process.wait(max(limit_s, 0.0))
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def clear_if_ended(self) -> None:
        """Where it has ended unasked, end what it left behind as well."""
        if self._process is not None and self._process.poll() is not None:
            self.kill()

    def kill(self) -> None:
        """End it and whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        for one in self._started_by(process.pid):
            with contextlib.suppress(psutil.Error):
                one.kill()
        # Its own session, which outlives it: children of a process that has died are nobody's children.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_LIMIT_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _started_by(self, pid: int) -> list[psutil.Process]:
        """Its children, and those with a session of their own (wandb's service) that have its mark when it is gone."""
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            found += psutil.Process(pid).children(recursive=True)
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                found += [one] if one.environ().get(MARK) == self._mark else []
        return found

    def _started(self) -> subprocess.Popen[bytes]:
        self.clear_if_ended()
        if self._process is None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with open(self._log, "ab") as log:
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    start_new_session=True,
                    env={**os.environ, MARK: self._mark},
                )
        return self._process

    def _exchange(self, order: dict[str, str], limit_s: float, give_up: GiveUp) -> dict[str, Any] | str:
        """What it answered, or in words why it did not; a ValueError for an answer that is none."""
        end_m = time.monotonic() + limit_s
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        text = b""
        while not text.endswith(b"\n"):
            left_s = end_m - time.monotonic()
            if give_up():
                return INTERRUPTED
            if left_s <= 0:
                return f"no answer in {limit_s:.0f} s"
            if not select.select([process.stdout], [], [], min(left_s, LOOK_EVERY_S))[0]:
                continue
            part = os.read(process.stdout.fileno(), READ_BYTES)
            if not part:
                return _how_it_ended(process)
            text += part
            if len(text) > LONGEST_ANSWER_BYTES:
                raise ValueError("it talks without end")
        told = json.loads(text)
        if not isinstance(told, dict):
            raise ValueError("its answer is no object")
        return told


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    try:
        return f"its process ended with exit code {process.wait(END_LIMIT_S)}"
    except subprocess.TimeoutExpired:
        return "its process closed its output and did not end"


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
