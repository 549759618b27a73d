"""Views of a running campaign: two bars with ETA on a terminal, plain lines elsewhere (logs, CI, a pipe).

[INFO] heartbeat mb8 r1: last_step=40, iter_ms_p50=51.2, eta=00:00:09(8.1s), …, elapsed=31.0 s, quiet=2.0 s · campaign 2/4, ETA 3m 05s
[WARN] mb8 r1: steps take 130.0 ms (median, rank 0, at step 40), 2.6 times the 50.0 ms before
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from seatrial.campaign.preflight import check_line
from seatrial.core.log_lines import lines_to_show
from seatrial.core.text import format_duration, format_estimate, format_hms
from seatrial.observe.progress import PAUSE
from seatrial.records.caution import Check
from seatrial.records.outcome import Outcome, Resumption, RunOutcome
from seatrial.records.plan import RunSpec
from seatrial.records.results import LiveState, MeasuredRun
from seatrial.report.text import one_line

PLAIN_HEARTBEAT_S = 30.0
FAILURE_LINES_SHOWN = 12
UNKNOWN = "none"
# A shorter silence is not worth a line.
SHOWN_QUIET_S = 60.0


class PlainView:
    """One line when a run starts, one when it ends, one every `heartbeat_s` between (0 for none), one for each alarm."""

    def __init__(self, console: Console, heartbeat_s: float = PLAIN_HEARTBEAT_S) -> None:
        self._console = console
        self._heartbeat_s = heartbeat_s
        self._positions: dict[str, str] = {}
        self._printed_run: tuple[object, ...] = ()
        self._printed_s = 0.0
        self._printed_alarm = self._printed_others = ""
        self.failed = 0

    def warned(self, checks: Sequence[Check]) -> None:
        for check in checks:
            self._print_line(f"[WARN] {check_line(check)}")

    def skipped(self, spec: RunSpec, changes: str) -> None:
        changed = f"; changed since: {changes}; remove its folder to run it again" if changes else ""
        self._print_line(f"{spec.run}: already finished, skipped{changed}")

    def resumes(self, spec: RunSpec, resumption: Resumption) -> None:
        self._print_line(f"{spec.run}: {resumption.text}")

    def noted(self, text: str) -> None:
        self._print_line(text)

    def started(self, spec: RunSpec, attempt: int, position: int, count: int) -> None:
        self._positions[spec.run] = f"[{position}/{count}] "
        again = f", attempt {attempt}" if attempt > 1 else ""
        self._print_line(f"{self._positions[spec.run]}{spec.run}: started{again}")

    def progress(self, state: LiveState) -> None:
        if _kind_of(state) != self._printed_run:
            self._printed_run, self._printed_s = _kind_of(state), 0.0
        # Kept between runs: an alarm of the previous run is not printed again under the next one's name.
        if state.alarm != self._printed_alarm:
            self._printed_alarm = state.alarm
            if state.alarm:
                self._print_line(f"[WARN] {run_title(state)}: {state.alarm}")
        if state.others != self._printed_others:
            self._printed_others = state.others
            if state.others:
                self._print_line(state.others)
        if state.run and self._heartbeat_s and state.elapsed_s - self._printed_s >= self._heartbeat_s:
            self._printed_s = state.elapsed_s
            self._print_line(heartbeat_line(state))

    def stopping(self, spec: RunSpec) -> None:
        longest = format_duration(spec.limits.soft_s + spec.limits.term_s)
        position = self._positions.get(spec.run, "")
        self._print_line(f"{position}{spec.run}: stopping (up to {longest}). Ctrl-C again kills it")

    def ended(self, spec: RunSpec, outcome: RunOutcome, measured: MeasuredRun | None) -> None:
        self._print_line(f"{self._positions.get(spec.run, '')}{end_line(spec, outcome, measured)}")
        if outcome.outcome not in (Outcome.OK, Outcome.INTERRUPTED):
            self.failed += 1
            self._print_failure(outcome)
        elif outcome.may_have_failed:
            self._print_line(f"    {outcome.may_have_failed}")

    def _print_failure(self, outcome: RunOutcome) -> None:
        for line in lines_to_show(outcome.excerpt or outcome.log_tail)[-FAILURE_LINES_SHOWN:]:
            self._print_line(f"    | {line}")
        if outcome.action:
            self._print_line(f"    → {outcome.action}")

    def _print_line(self, line: str) -> None:
        # Names and log lines come from users: control sequences in them must not reach the terminal.
        self._console_for(line).print(Text(one_line(line)), soft_wrap=True)

    def _console_for(self, line: str) -> Console:
        return self._console


class ChangesView(PlainView):
    """A campaign watched into a pipe or file: one line for each change of run, attempt or count, and alarms as above."""

    def __init__(self, console: Console, heartbeat_s: float = PLAIN_HEARTBEAT_S) -> None:
        super().__init__(console, heartbeat_s)
        self._printed_change: tuple[object, ...] | None = None

    def progress(self, state: LiveState) -> None:
        change = (state.run, state.attempt, state.finished, state.failed, state.waits)
        if change != self._printed_change:
            self._printed_change = change
            self._printed_run, self._printed_s = _kind_of(state), state.elapsed_s
            self._print_line(state_line(state))
        super().progress(state)


class TerminalView(PlainView):
    """The same lines above, and below them a bar for the campaign and one for the run."""

    def __init__(self, console: Console, heartbeat_s: float = 0.0) -> None:
        super().__init__(console, heartbeat_s)
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
        super().progress(state)
        if self._campaign is None:
            self._campaign = self.bars.add_task(one_line(state.plan), total=state.count, right="")
            self._run = self.bars.add_task("", total=None, right="", visible=False)
        assert self._run is not None
        self.bars.update(
            self._campaign,
            completed=state.finished,
            right=f"{state.finished}/{state.count} runs · ETA {_campaign_eta(state)}",
        )
        self.bars.update(
            self._run,
            visible=state.run is not None,
            description=one_line(state.run or ""),
            total=state.total_steps,
            completed=(state.step + 1) if state.step is not None else 0,
            right=one_line(_run_right(state)),
        )


@contextlib.contextmanager
def live_view(console: Console, heartbeat_s: float | None = None) -> Iterator[PlainView]:
    """The view that fits the console. By default a terminal has its bars and needs no heartbeat lines."""
    if not console.is_terminal:
        yield PlainView(console, PLAIN_HEARTBEAT_S if heartbeat_s is None else heartbeat_s)
        return
    view = TerminalView(console, heartbeat_s or 0.0)
    with view.bars:
        yield view


def _kind_of(state: LiveState) -> tuple[object, ...]:
    """The item whose seconds are counted."""
    return state.run, state.attempt, bool(state.waits)


def state_line(state: LiveState) -> str:
    """The state in one line, without bars."""
    if state.over:
        return one_line(f"{state.plan}: ended, {state.finished} of {state.count} runs done, {state.failed} failed")
    if state.run is None:
        return one_line(f"{state.plan}: between runs, {state.finished} of {state.count} done")
    return one_line(f"{state.run}: {_run_right(state)} · {_campaign(state)}")


def heartbeat_line(state: LiveState) -> str:
    """Stage 1's line about the run under way, and the campaign's progress; of a run that waits, its job's state."""
    if state.waits:
        return f"[INFO] heartbeat {run_title(state)}: {state.waits}, {format_duration(state.elapsed_s)} · {_campaign(state)}"
    remain_steps = max(state.total_steps - 1 - state.step, 0) if state.total_steps is not None and state.step is not None else None
    eta = UNKNOWN if state.run_eta_s is None else f"{format_hms(state.run_eta_s)}({state.run_eta_s:.1f}s)"
    fields = {
        "last_step": state.step,
        "iter_ms_p50": None if state.iter_ms_p50 is None else f"{state.iter_ms_p50:.1f}",
        "eta": eta,
        "eta_mode": state.eta_mode or None,
        "remain_steps": remain_steps,
        "elapsed": format_duration(state.elapsed_s),
        "quiet": None if state.quiet_s is None else format_duration(state.quiet_s),
    }
    # No step is due in a pause; `compile` may take minutes.
    if state.phase.startswith(PAUSE):
        fields["pause"] = state.phase.removeprefix(PAUSE)
    body = ", ".join(f"{name}={UNKNOWN if value is None else value}" for name, value in fields.items())
    return f"[INFO] heartbeat {run_title(state)}: {body} · {_campaign(state)}"


def run_title(state: LiveState) -> str:
    """`mb16_nw2 r1`, as the stage-1 scripts name a run."""
    return f"{state.group} r{state.repeat}" if state.group and state.repeat is not None else state.run or state.plan


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
    return f"{head} · {rate} · {window.text}, n {window.n}"


def _run_right(state: LiveState) -> str:
    if state.waits:
        return f"{state.waits}, {format_duration(state.elapsed_s)}"
    steps = "no step yet" if state.step is None else f"step {state.step}"
    if state.step is not None and state.total_steps:
        steps += f" of {state.total_steps}"
    where = f" · {state.phase}" if state.phase else ""
    eta = format_estimate(state.run_eta_s, state.run_eta_low_s, state.run_eta_high_s)
    quiet = f", quiet for {format_duration(state.quiet_s)}" if state.quiet_s is not None and state.quiet_s >= SHOWN_QUIET_S else ""
    return f"{steps}{where} · {format_duration(state.elapsed_s)}{quiet} · ETA {eta}"


def _campaign(state: LiveState) -> str:
    return f"campaign {state.finished}/{state.count}, ETA {_campaign_eta(state)}"


def _campaign_eta(state: LiveState) -> str:
    return format_estimate(state.campaign_eta_s, state.campaign_eta_low_s, state.campaign_eta_high_s)
