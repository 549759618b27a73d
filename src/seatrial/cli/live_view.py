"""A campaign as it goes: two bars with ETA on a terminal, plain lines elsewhere (logs, CI, a pipe)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from seatrial.records.live import LiveState
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import RunSpec
from seatrial.units import format_duration

PLAIN_PROGRESS_EVERY_S = 30.0
FAILURE_LINES_SHOWN = 12


class PlainView:
    """One line when a run starts, one when it ends, one every half minute between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._position = ""
        self._said_s = 0.0
        self.failed = 0

    def skipped(self, spec: RunSpec, unlike: str) -> None:
        then = f"; it ran under other conditions ({unlike}): remove its folder to run it anew" if unlike else ""
        self._say(f"{spec.run}: finished before, not run again{then}")

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        self._position, self._said_s = f"[{position}/{count}]", 0.0
        again = f", attempt {attempt}" if attempt > 1 else ""
        self._say(f"{self._position} {spec.run}: started{again}")

    def progress(self, state: LiveState) -> None:
        if state.run and state.elapsed_s - self._said_s >= PLAIN_PROGRESS_EVERY_S:
            self._said_s = state.elapsed_s
            self._say(f"{self._position} {state_line(state)}")

    def stopping(self, spec: RunSpec) -> None:
        self._say(
            f"{self._position} {spec.run}: stopping, up to {format_duration(spec.limits.term_s)} for it to end by itself; "
            "Ctrl-C again kills it at once"
        )

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        self._say(f"{self._position} {end_line(spec, outcome, measured)}")
        if outcome.outcome not in (Outcome.OK, Outcome.INTERRUPTED):
            self.failed += 1
            self._say_failure(outcome)

    def _say_failure(self, outcome: RunOutcome) -> None:
        for line in outcome.log_tail[-FAILURE_LINES_SHOWN:]:
            self._say(f"    | {line}")
        if outcome.action:
            self._say(f"    → {outcome.action}")

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class TerminalView(PlainView):
    """The same lines above, and below them a bar for the campaign and one for the run."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[right]}", markup=False),
            console=console,
            transient=True,
        )
        self._campaign: TaskID | None = None
        self._run: TaskID | None = None

    def progress(self, state: LiveState) -> None:
        if self._campaign is None:
            self._campaign = self.bars.add_task(state.plan, total=state.count, right="")
            self._run = self.bars.add_task("", total=None, right="", visible=False)
        assert self._run is not None
        self.bars.update(
            self._campaign,
            completed=state.finished,
            right=f"{state.finished}/{state.count} runs · ETA {format_duration(state.campaign_eta_s)}",
        )
        self.bars.update(
            self._run,
            visible=state.run is not None,
            description=state.run or "",
            total=state.total_steps,
            completed=(state.step + 1) if state.step is not None else 0,
            right=_run_right(state),
        )


@contextlib.contextmanager
def live_view(console: Console) -> Iterator[PlainView]:
    """The view that fits the console."""
    if not console.is_terminal:
        yield PlainView(console)
        return
    view = TerminalView(console)
    with view.bars:
        yield view


def state_line(state: LiveState) -> str:
    """One line for people who look on without bars."""
    if state.over:
        return f"{state.plan}: over, {state.finished} of {state.count} runs done, {state.failed} failed"
    if state.run is None:
        return f"{state.plan}: between runs, {state.finished} of {state.count} done"
    return f"{state.run}: {_run_right(state)} · campaign {state.finished}/{state.count}, ETA {format_duration(state.campaign_eta_s)}"


def end_line(spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> str:
    """How a run ended, with its throughput, window and n."""
    head = f"{spec.run}: {outcome.outcome.value} in {format_duration(outcome.duration_s)}"
    if outcome.outcome is not Outcome.OK:
        return f"{head} ({outcome.cause.value}: {outcome.detail})"
    measure = measured.measure if measured else None
    if measure is None or measure.window is None:
        return head
    rates = ((measure.samples_per_s, "samples/s"), (measure.tokens_per_s, "tokens/s"), (measure.steps_per_s, "steps/s"))
    rate = next((f"{value:,.1f} {unit}" for value, unit in rates if value is not None), "no rate")
    window = measure.window
    return f"{head} · {rate} · steps {window.first_step}–{window.last_step}, n {window.n}"


def _run_right(state: LiveState) -> str:
    steps = "no step yet" if state.step is None else f"step {state.step}"
    if state.step is not None and state.total_steps:
        steps += f" of {state.total_steps}"
    where = f" · {state.phase}" if state.phase else ""
    return f"{steps}{where} · {format_duration(state.elapsed_s)} · ETA {format_duration(state.run_eta_s)}"
