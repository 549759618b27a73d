"""Finished runs sent to trackers, without ever failing or delaying the campaign.

In: tracker names and the campaign's folder; then each finished attempt as it was measured, and the results at the campaign's end. Out: what
was sent, what was not, and why. Every tracker has its own process (`results.tracker_process`), because its library may hang, exit or start
services: a thread cannot be killed, and a new process per request would import that library for seconds each time. A process that exceeds
the time of a request, dies or gives an invalid answer is killed with everything it started; on an interrupt, all are. A tracker that fails
twice in a row gets no more requests. Requests are sent between runs, so that none is sent while a run is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import TracebackType
from typing import Any

import psutil

from seatrial.campaign.loop import Listener
from seatrial.core.files import refuse_links
from seatrial.core.paths import CampaignPaths
from seatrial.core.shell import KILL_TIMEOUT_S, PIPE_BYTES, module_argv, wait_for_exit
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.results.tracked import OPEN, Request, campaign_request, run_request

# A large library to import, and a server to reach; a database is created the first time.
OPEN_LIMIT_S = 60.0
REQUEST_LIMIT_S = 30.0
CLOSE_LIMIT_S = 10.0
# The user has interrupted and waits for the prompt.
INTERRUPTED_CLOSE_LIMIT_S = 2.0
# From the end of its output to that of the process.
END_LIMIT_S = 2.0
ANSWER_POLL_S = 0.2
LONGEST_ANSWER_BYTES = 1024 * 1024
# One failure may be a network error; after two in a row the server counts as down.
MAX_FAILURES = 2
INTERRUPTED = "interrupted"
UNREADABLE = "its files cannot be read"
MARK = "SEATRIAL_TRACKER"
"""Environment variable by which a tracker's children are found when the tracker itself is gone."""

StopRequested = Callable[[], bool]
"""Whether the user wants the end now; once true, it stays true."""
Warn = Callable[[str], None]


def never() -> bool:
    """The default of `stop_requested`."""
    return False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A tracker's answer to one request."""

    ok: bool
    where: str = ""
    reason: str = ""


class TrackerProcess:
    """One tracker's process, started when it is first needed and again after it had to be killed."""

    def __init__(self, name: str, paths: CampaignPaths, argv: Sequence[str] = ()) -> None:
        default = (*module_argv("seatrial.results.tracker_process"), name, str(paths.folder))
        self._argv, self._log = argv or default, paths.tracking_log
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = uuid.uuid4().hex

    @property
    def pid(self) -> int | None:
        """None before it is started, and after it was killed."""
        return None if self._process is None else self._process.pid

    def ask(self, request: Request, limit_s: float, stop_requested: StopRequested = never) -> Answer:
        """The answer within `limit_s`, or until `stop_requested`; otherwise the reason why there is none."""
        try:
            answer = self._exchange(request, limit_s, stop_requested)
        except OSError as error:
            answer = f"its process cannot be reached: {error.strerror or error}"
        except (ValueError, RecursionError):
            answer = "its answer cannot be read"
        if isinstance(answer, str):
            self.kill()
            return Answer(ok=False, reason=answer)
        return Answer(ok=bool(answer.get("ok")), where=str(answer.get("where", "")), reason=str(answer.get("reason", "")))

    def close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def close(self, limit_s: float) -> None:
        """Let it end normally within `limit_s`, then kill it."""
        self.close_input()
        try:
            if self._process is not None:
                wait_for_exit(self._process, limit_s)
        finally:
            self.kill()

    def reap(self) -> None:
        """If it has ended early, kill what it left behind."""
        if self._process is not None and self._process.poll() is not None:
            self.kill()

    def kill(self) -> None:
        """Kill it and whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        for one in self._descendants(process.pid):
            with contextlib.suppress(psutil.Error):
                one.kill()
        # By its session, which outlives it: a dead process has no children any more.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        wait_for_exit(process, KILL_TIMEOUT_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _descendants(self, pid: int) -> list[psutil.Process]:
        """Its children, and those with a session of their own (wandb's service) that have its mark when it is gone."""
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            found += psutil.Process(pid).children(recursive=True)
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                found += [one] if one.environ().get(MARK) == self._mark else []
        return found

    def _started(self) -> subprocess.Popen[bytes]:
        self.reap()
        if self._process is None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            refuse_links([self._log])
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

    def _exchange(self, request: Request, limit_s: float, stop_requested: StopRequested) -> dict[str, Any] | str:
        """Its answer, or the reason why there is none; ValueError for an answer that cannot be read."""
        end_m = time.monotonic() + limit_s
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        # A process that does not read must not block the campaign: a run does not fit into the pipe.
        os.set_blocking(process.stdin.fileno(), False)
        unsent, text = json.dumps(request).encode() + b"\n", b""
        while not text.endswith(b"\n"):
            left_s = end_m - time.monotonic()
            if stop_requested():
                return INTERRUPTED
            if left_s <= 0:
                return f"no answer in {limit_s:.0f} s"
            writing = [process.stdin] if unsent else []
            readable, writable, _ = select.select([process.stdout], writing, [], min(left_s, ANSWER_POLL_S))
            if writable:
                unsent = unsent[_write_some(process.stdin.fileno(), unsent) :]
            if not readable:
                continue
            part = os.read(process.stdout.fileno(), PIPE_BYTES)
            if not part:
                if wait_for_exit(process, END_LIMIT_S):
                    return f"its process ended with exit code {process.returncode}"
                return "its process closed its output but did not exit"
            text += part
            if len(text) > LONGEST_ANSWER_BYTES:
                raise ValueError(f"the answer is longer than {LONGEST_ANSWER_BYTES} bytes")
        if unsent:
            # The next request would follow a torn line.
            raise ValueError("it answered before it had read the request")
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise ValueError("the answer is not a JSON object")
        return answer


def _write_some(pipe: int, data: bytes) -> int:
    """The number of bytes written; all of them where the reader is gone, since its output then shows why."""
    try:
        return os.write(pipe, data[:PIPE_BYTES])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


@dataclass
class _Tracker:
    """One tracker and what it was sent."""

    process: TrackerProcess
    runs: int = 0
    sent: int = 0
    failures: int = 0
    """Consecutive failures."""
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
    """Runs that were finished before this invocation, which does not send them."""
    stop_requested: StopRequested = never
    process_of: Callable[[str, CampaignPaths], TrackerProcess] = TrackerProcess
    """The process of one tracker; tests pass their own."""
    _trackers: dict[str, _Tracker] = field(init=False)

    def __post_init__(self) -> None:
        self._trackers = {name: _Tracker(process=self.process_of(name, self.paths)) for name in self.names}

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        processes = [tracker.process for tracker in self._trackers.values()]
        limit_s = 0.0 if kind is not None else INTERRUPTED_CLOSE_LIMIT_S if self.stop_requested() else CLOSE_LIMIT_S
        end_m = time.monotonic() + limit_s
        for process in processes:
            process.close_input()
        with contextlib.ExitStack() as stack:
            for process in processes:
                stack.callback(process.kill)
            for process in processes:
                process.close(end_m - time.monotonic())

    def open(self) -> None:
        """Import and connect before the first run, so that an unreachable tracker is reported at once."""
        for name, tracker in self._trackers.items():
            tracker.process.reap()
            if not tracker.opened:
                tracker.opened = True
                self._request(name, tracker, lambda: OPEN, OPEN_LIMIT_S)

    def send_run(self, measured: MeasuredRun) -> None:
        self.open()
        request = cache(partial(run_request, measured))
        for name, tracker in self._trackers.items():
            tracker.runs += 1
            tracker.sent += self._request(name, tracker, request, REQUEST_LIMIT_S)

    def leave_out(self, reason: str) -> None:
        """Count a run that is not sent."""
        for tracker in self._trackers.values():
            tracker.runs, tracker.reason = tracker.runs + 1, reason

    def send_campaign(self, results: CampaignResults) -> None:
        """Send the campaign's results, when its report is written."""
        request = cache(partial(campaign_request, results))
        for name, tracker in self._trackers.items():
            if tracker.sent:
                self._request(name, tracker, request, REQUEST_LIMIT_S)

    def send_all(self, results: CampaignResults) -> None:
        """Send every attempt that is over, and the campaign."""
        for run in results.runs:
            if run.outcome is not None:
                self.send_run(run)
        self.send_campaign(results)

    def account(self) -> list[str]:
        """One sentence per tracker."""
        return [self._account(name, tracker) for name, tracker in self._trackers.items()]

    def _account(self, name: str, tracker: _Tracker) -> str:
        text = f"{name}: {tracker.sent} of {tracker.runs} runs sent"
        if tracker.sent:
            text += f" to {tracker.where}"
        left = [f"{tracker.runs - tracker.sent} not ({tracker.reason})"] if tracker.sent < tracker.runs else []
        left += [f"{self.earlier} already sent"] if self.earlier else []
        if not left:
            return text
        return f"{text}; {', '.join(left)}: `seatrial report {self.paths.folder} --track {name}` sends what is missing"

    def _request(self, name: str, tracker: _Tracker, request: Callable[[], Request], limit_s: float) -> bool:
        """`request` is called only where needed, since it reads the steps of the run."""
        if tracker.failures >= MAX_FAILURES:
            return False
        answer = self._ask(tracker.process, request, limit_s)
        if answer.ok:
            tracker.failures, tracker.where = 0, answer.where
            return True
        tracker.reason = answer.reason
        if answer.reason == INTERRUPTED:
            return False
        tracker.failures += 1
        rest = "; nothing more is sent to it" if tracker.failures >= MAX_FAILURES else ""
        self.warn(f"tracking: {name}: {answer.reason}; the campaign goes on{rest} (more in {self.paths.tracking_log})")
        return False

    def _ask(self, process: TrackerProcess, request: Callable[[], Request], limit_s: float) -> Answer:
        if self.stop_requested():
            return Answer(ok=False, reason=INTERRUPTED)
        try:
            return process.ask(request(), limit_s, self.stop_requested)
        except Exception as error:
            # No error of a tracker may end a campaign.
            return Answer(ok=False, reason=f"{type(error).__name__}: {error}")


class TrackingListener:
    """Passes everything on to another listener, and sends each finished run."""

    def __init__(self, listener: Listener, tracking: Tracking) -> None:
        self._listener, self._tracking = listener, tracking
        self.warned, self.progress, self.stopping = listener.warned, listener.progress, listener.stopping
        self.resumes, self.noted = listener.resumes, listener.noted

    def skipped(self, spec: RunSpec, changes: str) -> None:
        self._tracking.earlier += 1
        self._listener.skipped(spec, changes)

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        self._tracking.open()
        self._listener.started(spec, attempt, position, count)

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        self._listener.ended(spec, outcome, measured)
        if outcome.outcome is Outcome.INTERRUPTED:
            self._tracking.leave_out(INTERRUPTED)
        elif measured is None:
            self._tracking.leave_out(UNREADABLE)
        else:
            self._tracking.send_run(measured)
