"""A watchdog for a training without other supervision. In: the trainer's output folder. Out: `.anomaly_type`, `.HALT`, stacks/ and
gate_collapse_details.json in it where something is wrong; exit code 0 healthy, 2 an anomaly or a rank that ended early, 1 wrong use or no
run to watch.

    python scripts/_watchdog.py --dir artifacts/m7c_125m_2xa100_prod --halt 1 --interval 30 &

It waits for a run to begin and ends with it, or at TERM, after a last look. Stalls are judged as by the harness: from the
periodic heartbeats of every rank, against the measured step time. At an anomaly, with --halt 1, it escalates as the harness does: stacks of
every rank, then `.HALT` and halt.json, at which all ranks end at the same step, then TERM, then KILL for a rank that does not. Under
`seatrial run` the harness itself does all this.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.campaign.escalation import Escalation, Level, StopReasons
from seatrial.campaign.interrupts import Urgency
from seatrial.core.errors import DONE, FAILED, INTERRUPTED, WRONG_USE, SeatrialError, UsageError, printable
from seatrial.core.files import write_json, write_text
from seatrial.core.text import format_duration
from seatrial.observe.progress import Progress
from seatrial.observe.stall import StallDetector
from seatrial.observe.training_health import FIGURES, GATE_COLLAPSE, Anomaly, HealthJudge, HealthLimits
from seatrial.observe.watchdog import Alarm, alarm, halt_step
from seatrial.records.outcome import Cause
from seatrial.records.plan import LimitsSpec, StallSpec
from seatrial.records.sparse_lm_halt import Halt, write_halt
from seatrial_runbooks.command_line import StrictParser, limit, write_to
from seatrial_runbooks.sparse_lm.rank_processes import dump_stacks, signal_ranks
from seatrial_runbooks.sparse_lm.watched_run import WatchedRun

NAME = "_watchdog.py"
HEARTBEAT_STALL, NO_FIRST_STEP, RANK_LOST = "heartbeat_stall", "no_first_step", "rank_lost"
ANOMALY_FILE, GATE_DETAILS = ".anomaly_type", "gate_collapse_details.json"
POLL_S = 2.0
# The launcher ends the others within seconds when one dies.
RANK_LOST_S = 30.0
WHY_UNSEEN = " (gates need statistics: unset NSA_DISABLE_AUX_STATS)"
EXAMPLES = """examples:
  python scripts/_watchdog.py --dir artifacts/m7c_125m_2xa100_prod --halt 1 --interval 30 &
  NSA_WATCH_HEARTBEAT_STALL_S=60 python scripts/_watchdog.py --dir artifacts/cpu_small --halt 0"""
VARIABLES = {
    "NSA_WATCH_INTERVAL_S": (30.0, "seconds between two checks of the figures"),
    "NSA_WATCH_HALT": (1.0, "1: end the run at an anomaly; 0: only report it"),
    "NSA_WATCH_HEARTBEAT_STALL_S": (180.0, "nothing shorter is a stall; beyond it, 20 times the measured step time is"),
    "NSA_WATCH_START_S": (900.0, "longest time to the first step"),
    "NSA_WATCH_WAIT_S": (600.0, "how long to wait for a run to begin"),
    "NSA_WATCH_SOFT_S": (30.0, "how long ranks may take to end at .HALT before TERM"),
    "NSA_WATCH_TERM_S": (20.0, "how long a rank may take to end after TERM, and 15 s more, before KILL"),
    "NSA_WATCH_FLATLINE_N": (4.0, "samples in a row without throughput"),
    "NSA_WATCH_GATE_COLLAPSE_N": (3.0, "samples in a row with collapsed gates"),
    "NSA_WATCH_GATE_ENTROPY_MIN": (0.2, "mean gate entropy below which gates have collapsed"),
    "NSA_WATCH_GATE_MAX_THRESHOLD": (0.9, "mean largest gate above which gates have collapsed"),
}


@dataclass(frozen=True, kw_only=True)
class WatchdogSettings:
    """Flags and NSA_WATCH_* variables."""

    folder: Path
    halt: bool = True
    interval_s: float = 30.0
    stall_s: float = 180.0
    start_s: float = 900.0
    wait_s: float = 600.0
    soft_s: float = 30.0
    term_s: float = 20.0
    health: HealthLimits = field(default_factory=HealthLimits)


class Watchdog:
    """Watches one run to its end."""

    def __init__(
        self,
        settings: WatchdogSettings,
        run: WatchedRun,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        log: Callable[[str], None] = print,
    ) -> None:
        self._settings, self._run, self._monotonic, self._wall, self._log = settings, run, monotonic, wall, log
        self._limits = LimitsSpec(start_s=settings.start_s, stall=StallSpec(floor_s=settings.stall_s), disk_gib=None)
        self._stalls = StallDetector(self._limits, has_probe=True)
        self._judge = HealthJudge(settings.health)
        self._escalation = Escalation(settings.soft_s, settings.term_s)
        self._progress = Progress()
        self._began_m = monotonic()
        self._found_m: float | None = None
        self._judged_m = float("-inf")
        self._lost_m: float | None = None
        self._stacks_taken = False
        self.anomaly: Anomaly | None = None
        """The first one."""
        self._reported: set[str] = set()

    def check(self) -> int | None:
        """Check once; returns the exit code when the run is over."""
        now_m = self._monotonic()
        self._progress = self._run.read()
        if not self._run.ranks:
            return self._wait_for_run(now_m)
        if self._found_m is None:
            self._found_m = now_m
            self._log(f"[watchdog] watching {self._settings.folder}: {len(self._run.ranks)} rank(s) so far, {self._describe_run()}")
        if not self._run.alive():
            return self._end()
        for anomaly in self._anomalies(now_m):
            self._report(anomaly)
        if self.anomaly is not None and self._settings.halt:
            self._escalate(self.anomaly, now_m)
        return None

    def leave(self) -> int:
        """Check once more at TERM, which the procedure sends when its trainer has failed; returns the exit code."""
        code = self.check()
        if code is not None:
            return code
        if not self._run.ranks:
            raise UsageError(f"received TERM before a run appeared in {self._settings.folder}: see why the trainer did not start")
        self._log("[watchdog] received TERM: the run continues unwatched")
        return INTERRUPTED

    def _wait_for_run(self, now_m: float) -> int | None:
        if now_m - self._began_m <= self._settings.wait_s:
            return None
        waited = format_duration(self._settings.wait_s)
        raise UsageError(
            f"no run appeared in {self._settings.folder} within {waited} (NSA_WATCH_WAIT_S): start the watchdog with `&` before the "
            "training, and give the out_dir of its config"
        )

    def _describe_run(self) -> str:
        run, attempt = self._run.identity()
        return f"run {run or 'without an id'}, attempt {attempt}"

    def _end(self) -> int:
        for anomaly in self._sampled_anomalies():
            self._report(anomaly)
        unfinished = self._run.lost()
        how = f"rank {', '.join(map(str, unfinished))} ended before being done" if unfinished else "every rank is done"
        self._log(f"[watchdog] the run is over: {how}; {self._findings()}")
        return FAILED if self.anomaly or unfinished else DONE

    def _findings(self) -> str:
        """What was found, and what could not be watched."""
        unseen = self._judge.unseen
        blind = f"{', '.join(unseen)} not watched: the run reported none{WHY_UNSEEN if 'gates' in unseen else ''}" if unseen else ""
        if self.anomaly is not None:
            return f"anomaly: {self.anomaly.kind}" + (f"; {blind}" if blind else "")
        seen = [name for name in FIGURES if name not in unseen]
        return f"healthy in {', '.join(('steps', *seen))}; {blind}" if blind else "no anomaly"

    def _anomalies(self, now_m: float) -> list[Anomaly]:
        found = [self._lost_rank(now_m), self._limit(now_m)]
        if now_m - self._judged_m >= self._settings.interval_s:
            self._judged_m = now_m
            found += self._sampled_anomalies()
        return [anomaly for anomaly in found if anomaly is not None]

    def _sampled_anomalies(self) -> list[Anomaly]:
        judged = (self._judge.check(sample) for sample in self._run.samples())
        return [anomaly for anomaly in judged if anomaly is not None]

    def _lost_rank(self, now_m: float) -> Anomaly | None:
        lost = self._run.lost()
        if not lost:
            self._lost_m = None
            return None
        self._lost_m = now_m if self._lost_m is None else self._lost_m
        if now_m - self._lost_m < RANK_LOST_S:
            return None
        names = ", ".join(map(str, lost))
        return Anomaly(kind=RANK_LOST, text=f"rank {names} has died, and the others still run {RANK_LOST_S:.0f} s later")

    def _limit(self, now_m: float) -> Anomaly | None:
        """A stall or a start that takes too long, as the harness judges them."""
        progress = replace(self._progress, num_ranks=len(self._run.ranks))
        stall = self._stalls.check(progress, now_m)
        raised = alarm(progress, now_m - (self._found_m or now_m), self._limits, stall, self._stalls.silent)
        if raised is None:
            return None
        kind = HEARTBEAT_STALL if raised.cause is Cause.STALL else NO_FIRST_STEP
        return Anomaly(kind=kind, text=_in_variables(raised.text), step=progress.step)

    def _report(self, anomaly: Anomaly) -> None:
        if anomaly.kind in self._reported:
            return
        self._reported.add(anomaly.kind)
        self._log(f"[watchdog] {anomaly.kind}: {printable(anomaly.text)}")
        folder = self._run.paths.folder
        if self.anomaly is None:
            self.anomaly = anomaly
            write_text(folder / ANOMALY_FILE, f"{anomaly.kind}\n")
        if anomaly.kind == GATE_COLLAPSE:
            write_json(folder / GATE_DETAILS, {"text": anomaly.text, **anomaly.details})

    def _escalate(self, anomaly: Anomaly, now_m: float) -> None:
        reasons = StopReasons(
            # The reason does not matter here: neither memory nor disk is at risk.
            alarm=Alarm(cause=Cause.STALL, text=anomaly.text),
            urgency=Urgency.NONE,
            stacks_taken=self._stacks_taken,
            can_halt=True,
        )
        level = self._escalation.next(reasons, now_m)
        if level is Level.STACKS:
            self._log(f"[watchdog] stacks: {dump_stacks(self._run.paths, self._run.alive())}")
            self._stacks_taken = True
        elif level is Level.SOFT:
            self._request_halt(anomaly)
        elif level in (Level.TERM, Level.KILL):
            pids = signal_ranks(self._run.paths, self._run.alive(), level.name)
            self._log(f"[watchdog] {level.name} sent to {', '.join(map(str, pids)) or 'no process: no rank that writes here is left'}")

    def _request_halt(self, anomaly: Anomaly) -> None:
        run, attempt = self._run.identity()
        at_step = halt_step(self._progress, self._wall())
        write_halt(
            self._run.paths.watchdog_halt, Halt(anomaly=anomaly.kind, run=run, attempt=attempt, at_step=at_step, reason=anomaly.text)
        )
        write_json(self._run.paths.halt, {"attempt": attempt, "at_step": at_step, "reason": f"watchdog: {anomaly.kind}"})
        self._log(f"[watchdog] wrote .HALT: halt: {anomaly.kind}; all ranks are to end before step {at_step}")


def _in_variables(text: str) -> str:
    """Replace the limits by the variables that set them."""
    return text.replace("limits.stall", "NSA_WATCH_HEARTBEAT_STALL_S").replace("limits.start_s", "NSA_WATCH_START_S")


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Watch until the run is over; the exit code."""
    try:
        settings = read_settings(argv, environ)
        watchdog = Watchdog(settings, WatchedRun(settings.folder), log=lambda text: write_to(f"{text}\n", sys.stdout))
        stop_requested = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: stop_requested.set())
        while (code := watchdog.check()) is None:
            if stop_requested.wait(min(POLL_S, settings.interval_s)):
                return watchdog.leave()
    except SeatrialError as error:
        write_to(f"{NAME}: {printable(str(error))}\n", sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def read_settings(argv: Sequence[str] | None, environ: Mapping[str, str]) -> WatchdogSettings:
    """Flags, else variables, else defaults; raises UsageError for one that is not a number."""
    values = {name: _number(name, environ.get(name, ""), default) for name, (default, _) in VARIABLES.items()}
    unknown = [name for name in environ if name.startswith("NSA_WATCH_") and name not in VARIABLES]
    if unknown:
        raise UsageError(f"unknown variable {unknown[0]}: expected one of {', '.join(VARIABLES)}")
    options = _parser().parse(argv)
    return WatchdogSettings(
        folder=options.dir,
        halt=bool(values["NSA_WATCH_HALT"] if options.halt is None else int(options.halt)),
        interval_s=options.interval if options.interval is not None else values["NSA_WATCH_INTERVAL_S"],
        stall_s=max(1.0, values["NSA_WATCH_HEARTBEAT_STALL_S"]),
        start_s=max(1.0, values["NSA_WATCH_START_S"]),
        wait_s=values["NSA_WATCH_WAIT_S"],
        soft_s=values["NSA_WATCH_SOFT_S"],
        term_s=values["NSA_WATCH_TERM_S"],
        health=HealthLimits(
            flatline_n=int(values["NSA_WATCH_FLATLINE_N"]),
            gate_collapse_n=int(values["NSA_WATCH_GATE_COLLAPSE_N"]),
            gate_entropy_min=values["NSA_WATCH_GATE_ENTROPY_MIN"],
            gate_max_threshold=values["NSA_WATCH_GATE_MAX_THRESHOLD"],
        ),
    )


def _number(name: str, text: str, default: float) -> float:
    if not text:
        return default
    try:
        return limit(text)
    except Exception as error:
        raise UsageError(f"{name}: {error}") from None


def _parser() -> StrictParser:
    variables = "\n".join(f"  {name} ({default:g}): {meaning}" for name, (default, meaning) in VARIABLES.items())
    options = StrictParser(f"Watch a training and end it when it hangs or goes wrong.\n\nvariables:\n{variables}", EXAMPLES)
    options.add_argument("--dir", type=Path, required=True, metavar="DIR", help="The trainer's train.out_dir.")
    options.add_argument("--halt", choices=("0", "1"), help="1: end the run at an anomaly; 0: only report it (NSA_WATCH_HALT).")
    options.add_argument("--interval", type=limit, metavar="S", help="Seconds between two checks of the figures (NSA_WATCH_INTERVAL_S).")
    return options


if __name__ == "__main__":
    sys.exit(main())
