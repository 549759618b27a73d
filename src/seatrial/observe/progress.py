"""How far a run is, while it runs.

Goes in: an attempt's folder. Comes out: `Progress`, read from the ranks' heartbeats where the workload has the probe, else from
the lines the script itself prints, else only from the fact that it prints. Reading is incremental: each call looks at what is new.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial import files
from seatrial.log_lines import compile_patterns, split_rank, values_in
from seatrial.paths import AttemptPaths
from seatrial.records.log_formats import READY
from seatrial.records.run_spec import RunSpec

# One look at a log must stay cheap even when a script floods it.
MOST_BYTES_A_LOOK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands."""

    step: int | None = None
    """Highest step that every rank has reached; None before the first."""
    total: int | None = None
    phase: str = ""
    """What rank 0 is doing, in the probe's words."""
    alive: bool = False
    """Something was heard of the workload: a step, or for scripts without the probe any output."""


def ranks_step(beats: Sequence[dict[str, object]]) -> int | None:
    """The step that all ranks have reached, by their newest heartbeats."""
    steps = [beat["step"] for beat in beats if isinstance(beat.get("step"), int)]
    return min(step for step in steps if isinstance(step, int)) if len(steps) == len(beats) and steps else None


class ProgressReader:
    """Looks at one attempt again and again."""

    def __init__(self, spec: RunSpec, attempt: AttemptPaths) -> None:
        self._spec, self._attempt = spec, attempt
        self._log = _GrowingLog(spec, attempt)

    def look(self) -> Progress:
        """The newest progress."""
        beats = [beat for path in self._attempt.all_heartbeats() if (beat := files.last_json_line(path))]
        if beats:
            step = ranks_step(beats)
            return Progress(step=step, total=self._spec.steps, phase=str(beats[0].get("phase") or ""), alive=step is not None)
        step, heard = self._log.look()
        return Progress(step=step, total=self._spec.steps, alive=heard)


class _GrowingLog:
    """The step a script's own lines have reached, read on from where the last look ended."""

    def __init__(self, spec: RunSpec, attempt: AttemptPaths) -> None:
        self._path = attempt.launcher_log
        self._formats = _formats(spec)
        self._offset = 0
        self._rest = ""
        self._step: int | None = None

    def look(self) -> tuple[int | None, bool]:
        if self._path.is_file():
            with open(self._path, "rb") as log:
                log.seek(self._offset)
                chunk = log.read(MOST_BYTES_A_LOOK)
            self._offset += len(chunk)
            self._read(chunk.decode("utf-8", errors="replace"))
        return self._step, self._offset > 0

    def _read(self, text: str) -> None:
        *lines, self._rest = re.split(r"[\r\n]", self._rest + text)
        for line in lines:
            for patterns in self._formats:
                step = values_in(split_rank(line)[1], patterns).get("step")
                if step is not None:
                    self._step = int(step)


def _formats(spec: RunSpec) -> list[list[re.Pattern[str]]]:
    if spec.workload.patterns:
        return [compile_patterns(spec.workload.patterns)]
    if spec.workload.reads == "none":
        return []
    names = [spec.workload.reads] if spec.workload.reads in READY else list(READY)
    return [compile_patterns(READY[name].lines) for name in names]
