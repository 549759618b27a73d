"""The files of one rank: events_rank{r}.jsonl and heartbeat_rank{r}.jsonl, written by a thread, and halt.json, which that thread polls.

In: step records and rare events. Out: their lines, in order, and heartbeats: one at the start, one as soon as the first step has ended,
one when a halt is requested, one every `heartbeat_s`, one at the end. The loop only appends to a buffer; the thread formats and writes. A
full disk costs lines and not the run.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from seatrial.core.durable_writes import AppendFile
from seatrial.core.paths import AttemptPaths
from seatrial.probe.cuda import find_cuda
from seatrial.probe.identity import Identity, process_group
from seatrial.probe.stacks import register_stack_signal
from seatrial.probe.timeline import StepRecord, Timeline
from seatrial.records.events import EVENT_VERSION, HEARTBEAT_FIELDS, PROCESS_GROUP, STEP_FIELDS

log = logging.getLogger(__name__)

MAX_HALT_FILE_BYTES = 64 * 1024
TICK_S = 0.5
JOIN_TIMEOUT_S = 5.0
FLUSH_AT_LINES = 256
# Reached only when the thread is gone or far behind; the loop then writes itself.
FLUSH_HERE_AT_LINES = 16 * FLUSH_AT_LINES
DRAIN_TIMEOUT_S = 5.0


class EventFormatter:
    """Formats the events of one process as JSON lines.

    `json.dumps` costs more than a whole step may; a step line is therefore a template, filled when the buffer is flushed.
    """

    def __init__(self, identity: Identity) -> None:
        self._head = f'{{"v":{EVENT_VERSION},"run":{json.dumps(identity.run)},"attempt":{identity.attempt},"rank":{identity.rank},"t":'
        numbers = ",".join(f'"{name}":%s' for name in STEP_FIELDS[2:])
        self._step = self._head.replace("%", "%%") + f'%.3f,"m":%.6f,"kind":"step","step":%d,"iter_ms":%.3f,{numbers}}}'

    def event(self, kind: str, t: float, m: float, **fields: Any) -> str:
        """One rare event; what JSON cannot hold is written as text, and numbers that are not finite as null."""
        plain = {name: _finite(value) for name, value in fields.items()}
        body = json.dumps(plain, default=str, separators=(",", ":"))[1:]
        return f'{self._head}{t:.3f},"m":{m:.6f},"kind":"{kind}"' + ("," if plain else "") + body

    def step(self, record: StepRecord) -> str:
        work = _format_number(record.samples), _format_number(record.tokens)
        phases = ["null" if ms is None else "%.3f" % ms for ms in record.phases_ms]  # noqa: UP031 - faster than format()
        return self._step % (record.t, record.m, record.step, record.iter_ms, *work, *phases, _format_loss(record.loss))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _format_loss(loss: float | None) -> str:
    """JSON has no number for what is not finite: it is written as the string nan, inf or -inf."""
    if loss is None:
        return "null"
    return f"{loss:.9g}" if math.isfinite(loss) else f'"{loss}"'


def _format_number(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return "null"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "null"
    return f"{number:.12g}" if math.isfinite(number) else "null"


class LineFile:
    """An append-only file of lines that can fail without harming the training: on a bad disk its lines go to the fallback, and are
    dropped and counted only where there is none. A forked child writes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost_lines = 0
        self._pid = os.getpid()
        self._file = AppendFile(path)
        self._warned = False

    @property
    def last_error(self) -> str:
        return self._file.last_error

    def write(self, lines: Sequence[str]) -> None:
        """Append the lines, all or none of them."""
        if not lines or os.getpid() != self._pid:
            return
        if not self._file.append(("\n".join(lines) + "\n").encode()):
            self.lost_lines += len(lines)
        if (self.lost_lines or self._file.fallback_bytes) and not self._warned:
            self._warned = True
            meanwhile = "its measurements are being lost" if self.lost_lines else "its measurements are written to the fallback folder"
            log.warning("cannot write %s (%s): training continues, %s", self.path, self.last_error, meanwhile)

    def status_note(self, what: str) -> str:
        """Problems with this file for readers of heartbeats; else empty."""
        if self.lost_lines:
            return f"{self.lost_lines} {what} lines lost: {self.last_error}"
        return f"some {what} lines were written to the fallback folder: {self.last_error}" if self._file.fallback_bytes else ""

    def close(self) -> None:
        if os.getpid() == self._pid:
            self._file.close()


@dataclass(frozen=True, kw_only=True)
class HaltRequest:
    """End before step `at_step` begins; at once where it has begun."""

    at_step: int
    reason: str


class HaltFile:
    """One run's halt.json, by which the harness requests ranks to end early.

    It is read only when its size or times have changed. A torn or invalid file is ignored, and so is a request for another attempt: a
    stale file stops no run.
    """

    def __init__(self, path: Path, attempt: int) -> None:
        self._path = path
        self._attempt = attempt
        self._seen: tuple[int, int, int] | None = None

    def poll(self) -> HaltRequest | None:
        """A request for this attempt that is new since the last poll."""
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen or found.st_size > MAX_HALT_FILE_BYTES:
                return None
            value = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            # Missing, not readable just now, or not complete yet: the next poll may succeed.
            return None
        self._seen = seen
        return _parse_request(value, self._attempt)


def _parse_request(value: Any, attempt: int) -> HaltRequest | None:
    numbers = [value.get(name) for name in ("attempt", "at_step")] if isinstance(value, dict) else [None]
    if not all(type(number) is int and number >= 0 for number in numbers):
        return None
    if value["attempt"] != attempt:
        log.info("ignoring halt.json: it is for attempt %s, this is attempt %s", value["attempt"], attempt)
        return None
    return HaltRequest(at_step=value["at_step"], reason=str(value.get("reason") or "no reason given"))


@dataclass(frozen=True, kw_only=True)
class LoopState:
    """Where the loop is at one moment."""

    phase: str
    newest: Sequence[StepRecord] = ()
    """The steps that ended last, in order."""
    status_note: str = ""


class HeartbeatThread:
    """The thread, and the heartbeat file it writes."""

    def __init__(
        self,
        file: LineFile,
        identity: Identity,
        *,
        state: Callable[[], LoopState],
        on_tick: Callable[[], None],
        every_s: float | None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._identity = identity
        self._state = state
        self._on_tick = on_tick
        self._every_s = every_s
        self._monotonic = monotonic
        self._wall = wall
        self._next_s = 0.0
        self._first_step_written = False
        self._ending = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seatrial-heartbeat", daemon=True)

    def start(self) -> None:
        self.write("boot")
        if self._every_s is not None:
            self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        """End the thread; the caller writes the last line."""
        self._ending = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def tick(self) -> None:
        self._on_tick()
        if self._state().newest and not self._first_step_written:
            self.write("step_end")
        elif self._monotonic() >= self._next_s:
            self.write("beat")

    def write(self, msg: str, more: Mapping[str, Any] | None = None) -> None:
        state = self._state()
        self._first_step_written = bool(state.newest)
        self._next_s = self._monotonic() + (self._every_s or 0.0)
        self._file.write([format_heartbeat(self._identity, state, msg, self._wall(), more)])

    def _run(self) -> None:
        pause_s = min(TICK_S, self._every_s or TICK_S)
        while not self._ending:
            self._wake.wait(pause_s)
            self._wake.clear()
            if not self._ending:
                self.tick()


def format_heartbeat(identity: Identity, state: LoopState, msg: str, ts: float, more: Mapping[str, Any] | None = None) -> str:
    """One line with the fields of records.events.HEARTBEAT_FIELDS, then those of `more`."""
    last = state.newest[-1] if state.newest else None
    values = (
        round(ts, 3),
        datetime.fromtimestamp(ts, UTC).isoformat(timespec="milliseconds"),
        identity.pid,
        identity.rank,
        last.step if last else None,
        f"{msg}; {state.status_note}" if state.status_note else msg,
        state.phase,
        identity.attempt,
        identity.host,
        round(last.t, 3) if last else None,
        round(median(record.iter_ms for record in state.newest), 3) if last else None,
        round(last.paused_s, 3) if last else None,
    )
    fields = dict(zip(HEARTBEAT_FIELDS, values, strict=True))
    own = {name: _finite(value) for name, value in (more or {}).items() if name not in fields}
    return json.dumps({**fields, **own}, default=str, separators=(",", ":"))


class Writer:
    """Buffer, files and thread behind one rank's probe."""

    def __init__(self, identity: Identity, heartbeat_s: float | None, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        self.identity = identity
        self._formatter = EventFormatter(identity)
        self._paths = AttemptPaths(identity.run_dir)
        self._events = LineFile(self._paths.events(identity.rank))
        self._heartbeats = LineFile(self._paths.heartbeat(identity.rank))
        # A deque is safe between the loop that appends and the thread that takes; swapping a list is not.
        self._buffer: deque[StepRecord | str] = deque()
        self._flushing = threading.Lock()
        self._progress: dict[str, Any] | None = None
        self._group: dict[str, Any] | None = None
        self._looking = threading.Lock()
        self._has_stepped = False
        self.timeline = Timeline(
            sync=identity.sync,
            phase_every=identity.phase_every,
            window=identity.timing_window,
            emit=self._put_step if identity.writes_steps else lambda record: None,
            monotonic=monotonic,
            wall=wall,
            # A rank whose steps are not written need not query the device.
            find_device=find_cuda if identity.writes_steps else lambda: None,
            on_halt=self._on_halt,
        )
        self._halt = HaltFile(self._paths.halt, identity.attempt)
        self._thread = HeartbeatThread(
            self._heartbeats,
            identity,
            state=self._loop_state,
            on_tick=self._tick,
            every_s=heartbeat_s,
            monotonic=monotonic,
            wall=wall,
        )

    def start(self) -> None:
        me = self.identity
        began_t = None if me.process_t is None else round(me.process_t, 3)
        signal = register_stack_signal(me.stack_signal, self._paths.rank_stack(me.rank))
        who = {"pid": me.pid, "host": me.host, "world_size": me.world_size, "launched_by": me.launched_by}
        self.put_event("start", **who, signal=signal, process_t=began_t, local_rank=me.local_rank, gpu=me.gpu)
        self._poll_halt()
        self.flush()
        self._thread.start()

    def put_event(self, kind: str, **fields: Any) -> None:
        """Put one rare event after the step lines that are already released."""
        self._put(self._formatter.event(kind, self.timeline.wall(), self.timeline.monotonic(), **fields))

    def put_progress(self, fields: dict[str, Any]) -> None:
        """Put figures into the next heartbeat, which the thread writes."""
        self._progress = fields

    def on_pause_end(self, name: str, pause_s: float) -> None:
        if self.identity.writes_steps:
            self.put_event("pause", name=name, step=self.timeline.ended_steps, pause_ms=round(pause_s * 1000.0, 3))

    def on_span_end(self, name: str, span_s: float) -> None:
        self.put_event("span", name=name, span_ms=round(span_s * 1000.0, 3))

    def flush(self) -> None:
        # A forked child may hold a copy of a lock that is never released; it has nothing to write.
        if os.getpid() != self.identity.pid:
            self._buffer.clear()
            return
        with self._flushing:
            batch: list[str] = []
            with contextlib.suppress(IndexError):
                while True:
                    entry = self._buffer.popleft()
                    batch.append(entry if isinstance(entry, str) else self._formatter.step(entry))
            self._events.write(batch)

    def end(self, *, clean: bool) -> None:
        timeline = self.timeline
        timeline.drain(DRAIN_TIMEOUT_S)
        self._look_at_group()
        if clean:
            self.put_event("stop", step=timeline.last_step, steps=timeline.ended_steps)
            timeline.where = "done"
        self._thread.stop()
        self.flush()
        self._write_progress()
        self._thread.write("done" if clean else "ended without reaching its end")
        self._events.close()
        self._heartbeats.close()

    def _tick(self) -> None:
        if self._poll_halt():
            self._thread.write("beat")
        self._write_progress()
        # Before the heartbeat of the first step, so that its reader finds the group too.
        self._look_at_group()
        self.flush()

    def _look_at_group(self) -> None:
        """Report the process group; called by the thread and by the loop at its first step, as a short run may leave its group early."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            group = process_group()
            if group is not None and group != self._group:
                self._group = group
                self.put_event(PROCESS_GROUP, **group)
        finally:
            self._looking.release()

    def _write_progress(self) -> None:
        fields, self._progress = self._progress, None
        if fields is not None:
            self._thread.write("progress", fields)

    def _poll_halt(self) -> bool:
        """Whether there is a new request; the loop notices it by comparing two numbers."""
        request, timeline = self._halt.poll(), self.timeline
        if request is None or timeline.halted or request.at_step == timeline.halt_at:
            return False
        timeline.halt_at = request.at_step
        log.warning("rank %d is to end before step %d: %s", self.identity.rank, request.at_step, request.reason)
        return True

    def _on_halt(self) -> None:
        self.put_event("halt", step=self.timeline.last_step, at_step=self.timeline.halt_at)
        # The run may hang in what comes after the last step: the thread writes the line now.
        self._thread.wake()

    def _put_step(self, record: StepRecord) -> None:
        if not self._has_stepped:
            self._has_stepped = True
            self._look_at_group()
        self._put(record)

    def _put(self, entry: StepRecord | str) -> None:
        self._buffer.append(entry)
        buffered = len(self._buffer)
        if buffered == FLUSH_AT_LINES:
            self._thread.wake()
        elif buffered >= FLUSH_HERE_AT_LINES:
            self.flush()

    def _loop_state(self) -> LoopState:
        notes = [note for note in (self.timeline.status_note(), self._events.status_note("event")) if note]
        # A copy, which no step can change while the median is taken.
        return LoopState(phase=self.timeline.where, newest=self.timeline.newest.copy(), status_note="; ".join(notes))
