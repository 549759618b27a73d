"""The campaign in the lines that the procedures speak of. In: what the harness tells as it goes. Out: lines on the console.

[INFO] START sweep_z0_mb160_nw8_pf4 r1: z=0, mb=160, nw=8, pf=4, port=29650+, precision=auto, model_dtype=auto, …
[INFO] DONE sweep_z0_mb160_nw8_pf4 r1: duration_sec=412.1, last_step=1200, last_iter_ms_p50=301.2, last_eta=00:00:00, …
[WARN] sweep_z0_mb192_nw8_pf4 repeat 1 failed (exit_code=1, duration_sec=38.2, last_step=none)

Heartbeats and alarms are the plain view's. They, warnings and the ends of logs go to stderr, as with the driver of old.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from seatrial import files
from seatrial.campaign.preflight import one_line as check_line
from seatrial.cli.live_view import PLAIN_HEARTBEAT_S, PlainView
from seatrial.collect.manifest import manifest_row
from seatrial.log_lines import shortened
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.check import Check
from seatrial.records.measure import Cell
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec
from seatrial.tables import format_cell
from seatrial.units import format_duration
from seatrial_runbooks.stage1.plan_words import in_driver_words

UNKNOWN = "none"
# Lines about how the campaign goes; all others are for whoever must act.
PROGRESS = ("[INFO] START ", "[INFO] DONE ", "[INFO] SKIP ", "[INFO] Logs: ")
# Longest line that is printed of a log, on average: a progress bar is one line.
TAIL_BYTES_A_LINE = 2000
# Word of a START line → setting.
TOLD_AT_START = {
    "z": "zero_stage",
    "mb": "micro_batch",
    "nw": "num_workers",
    "pf": "prefetch_factor",
    "port": "",
    "precision": "precision",
    "model_dtype": "model_load_dtype",
    "speech_attn": "speech_attn_impl",
    "text_attn": "text_attn_impl",
    "tf32": "tf32",
    "compile": "torch_compile",
}
# Word of a DONE line → column of the manifest.
TOLD_AT_END = {
    "duration_sec": "duration_sec",
    "last_step": "last_step",
    "last_iter_ms_p50": "last_iter_ms_p50",
    "last_eta": "last_eta_hms",
    "eta_mode": "last_eta_mode",
    "unstable_run_flag": "unstable_run_flag",
    "iter_p90_over_p50": "iter_p90_over_p50",
}


class DriverView(PlainView):
    """START, DONE, SKIP and failed lines; after a failure the ends of its logs, `tail_lines` of each."""

    def __init__(self, console: Console, heartbeat_s: float, output: Path, tail_lines: int, beside: Console | None = None) -> None:
        super().__init__(console, heartbeat_s)
        self._paths, self._tail_lines, self._beside = CampaignPaths(output), tail_lines, beside or console

    def warned(self, checks: Sequence[Check]) -> None:
        for check in checks:
            self._say(f"[WARN] {in_driver_words(check_line(check))}")

    def skipped(self, spec: RunSpec, unlike: str) -> None:
        then = f"; it ran under other conditions ({unlike}), RESUME_RUNS=false runs it anew" if unlike else ""
        self._say(f"[INFO] SKIP {_title(spec)}: already successful in manifest{then}")

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        self._position = f"[{position}/{count}]"
        # It is taken when the run starts; the manifest has it.
        port = str(spec.place.port or f"{spec.place.port_base}+")
        known = {**spec.settings, **spec.axes, "": port}
        told = ", ".join(f"{word}={_shown(known.get(setting))}" for word, setting in TOLD_AT_START.items())
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self._say(f"[INFO] START {_title(spec)}: {told} · {self._position}{again}")
        paths = self._paths.run(spec.run).attempt(attempt)
        self._say(f"[INFO] Logs: launcher={paths.launcher_log}, train={paths.train_log}")

    def stopping(self, spec: RunSpec) -> None:
        longest = format_duration(spec.limits.soft_s + spec.limits.term_s)
        self._say(f"[WARN] {_title(spec)}: stopping, up to {longest} for it to end by itself; Ctrl-C again kills it at once")

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        row = manifest_row(measured.attempt, measured.measure) if measured else {"duration_sec": round(outcome.duration_s, 3)}
        if outcome.outcome is Outcome.OK:
            self._say(f"[INFO] DONE {_title(spec)}: " + ", ".join(f"{word}={_shown(row.get(at), at)}" for word, at in TOLD_AT_END.items()))
            return
        how = "interrupted" if outcome.outcome is Outcome.INTERRUPTED else "failed"
        told = {"exit_code": outcome.exit_code, "duration_sec": row.get("duration_sec"), "last_step": row.get("last_step")}
        said = ", ".join(f"{word}={_shown(value, word)}" for word, value in told.items())
        self._say(f"[WARN] {spec.group} repeat {spec.repeat} {how} ({said})")
        if how == "failed":
            self.failed += 1
            self._say_failure(outcome)
            self._say_tails(self._paths.run(spec.run).attempt(outcome.attempt))

    def _say_failure(self, outcome: RunOutcome) -> None:
        self._say(f"[WARN] {outcome.outcome.value}, {outcome.cause.value}: {outcome.detail}")
        if outcome.action:
            self._say(f"[WARN] what to do: {outcome.action}")

    def _say_tails(self, attempt: AttemptPaths) -> None:
        for name, path in (("launcher", attempt.launcher_log), ("train", attempt.train_log)) if self._tail_lines else ():
            lines = files.tail_lines(path, self._tail_lines, self._tail_lines * TAIL_BYTES_A_LINE)
            if lines:
                self._say(f"===== {name} tail (last {self._tail_lines} lines) =====")
            for line in lines:
                self._say(shortened(line))

    def _console_for(self, line: str) -> Console:
        return self._console if line.startswith(PROGRESS) else self._beside


def driver_view(output: Path, tail_lines: int, kept: list[DriverView]) -> Callable[..., contextlib.AbstractContextManager[PlainView]]:
    """What `carry_out` makes its view by; the view is put into `kept`, to be asked afterwards."""

    @contextlib.contextmanager
    def view(console: Console, heartbeat_s: float | None = None) -> Iterator[PlainView]:
        every_s = PLAIN_HEARTBEAT_S if heartbeat_s is None else heartbeat_s
        kept.append(DriverView(console, every_s, output, tail_lines, Console(stderr=True)))
        yield kept[-1]

    return view


def _title(spec: RunSpec) -> str:
    return f"{spec.group} r{spec.repeat}"


def _shown(value: Cell, column: str = "") -> str:
    """A value as the tables have it."""
    return format_cell(value, column) or UNKNOWN
