"""Events as text. In: step records as the loop made them and the fields of rare events. Out: lines of events_rank{r}.jsonl.

`json.dumps` costs more than a whole step may; a step line is therefore a template filled when the buffer is flushed.
"""

from __future__ import annotations

import json
import math
from typing import Any

from seatrial.probe.identity import Identity
from seatrial.records.events import EVENT_VERSION, PHASES, STEP_FIELDS


class StepRecord:
    """One ended step. `phases_ms` follows records.events.PHASES; `marks` and `loss_read` are what the device has yet to tell.

    `t` and `m` are the clocks at its end, `paused_s` is all time in named pauses up to then.
    """

    __slots__ = ("iter_ms", "loss", "loss_read", "m", "marks", "paused_s", "phases_ms", "samples", "step", "t", "tokens")

    def __init__(
        self, step: int, t: float, m: float, iter_ms: float, samples: Any, tokens: Any, phases_ms: list[float | None], paused_s: float = 0.0
    ) -> None:
        self.step = step
        self.t = t
        self.m = m
        self.iter_ms = iter_ms
        self.samples = samples
        self.tokens = tokens
        self.phases_ms = phases_ms
        self.paused_s = paused_s
        self.loss: float | None = None
        self.marks: list[Any] | None = None
        self.loss_read: Any = None


class EventLines:
    """Formats every event of one process."""

    def __init__(self, identity: Identity) -> None:
        self._head = f'{{"v":{EVENT_VERSION},"run":{json.dumps(identity.run)},"attempt":{identity.attempt},"rank":{identity.rank},"t":'
        numbers = ",".join(f'"{name}":%s' for name in STEP_FIELDS[2:])
        self._step = self._head.replace("%", "%%") + f'%.3f,"m":%.6f,"kind":"step","step":%d,"iter_ms":%.3f,{numbers}}}'

    def event(self, kind: str, t: float, m: float, **fields: Any) -> str:
        """One rare event; what JSON cannot hold is written as text, and numbers that are not finite as null."""
        plain = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in fields.items()}
        body = json.dumps(plain, default=str, separators=(",", ":"))[1:]
        return f'{self._head}{t:.3f},"m":{m:.6f},"kind":"{kind}"' + ("," if plain else "") + body

    def step(self, record: StepRecord) -> str:
        """One step line."""
        data_wait, preprocess, fwd, bwd, step = ["null" if ms is None else "%.3f" % ms for ms in record.phases_ms]  # noqa: UP031 - faster than format()
        return self._step % (
            record.t,
            record.m,
            record.step,
            record.iter_ms,
            _number(record.samples),
            _number(record.tokens),
            data_wait,
            preprocess,
            fwd,
            bwd,
            step,
            _loss(record.loss),
        )


def _loss(loss: float | None) -> str:
    """JSON has no number for what is not finite: it is written as the word nan, inf or -inf."""
    if loss is None:
        return "null"
    return f"{loss:.9g}" if math.isfinite(loss) else f'"{loss}"'


def _number(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return "null"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "null"
    return f"{number:.12g}" if math.isfinite(number) else "null"


assert len(PHASES) == 5, "EventLines.step names each phase"
