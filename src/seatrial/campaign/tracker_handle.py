"""One tracker's process, seen from the campaign: started when it is needed, asked, and ended with all that it started.

In: orders, each with the time it may take. Out: an `Answer`, whatever the process does: one that says nothing, dies or talks nonsense is
ended, and that is the answer. What the process itself does is in `tracker_process`.
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
from dataclasses import dataclass
from typing import Any

import psutil

from seatrial.launch.own_programs import program_words
from seatrial.paths import CampaignPaths
from seatrial.shell import KILLED_S, PIPE_BYTES, is_over_within

# From the end of its output to that of the process.
END_LIMIT_S = 2.0
LOOK_EVERY_S = 0.2
LONGEST_ANSWER_BYTES = 1024 * 1024
INTERRUPTED = "interrupted"
MARK = "SEATRIAL_TRACKER"
"""Variable by which what a tracker has started is known when the tracker itself is gone."""

GiveUp = Callable[[], bool]
"""Whether the user wants the end now; once it is so, it stays so."""


def never() -> bool:
    """A user who waits."""
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
        default = (*program_words("seatrial.campaign.tracker_process"), name, str(paths.folder))
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
                is_over_within(self._process, limit_s)
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
        is_over_within(process, KILLED_S)
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
            part = os.read(process.stdout.fileno(), PIPE_BYTES)
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
    if is_over_within(process, END_LIMIT_S):
        return f"its process ended with exit code {process.returncode}"
    return "its process closed its output and did not end"
