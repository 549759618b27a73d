"""When a run counts as stalled, and which rank the others wait for.

In: progress, polled, and the harness's monotonic clock, since wall clocks may jump. Out: `Stall` or None, and its description.
Pure.

With the probe, a rank is stalled when the step in its heartbeats has not changed for longer than the plan's limit. While the rank that
is furthest behind is between two steps, has taken them all or was restarted, every rank's limit is at least that of the start, since an
evaluation without a named pause looks the same. A named pause stops the clocks while its rank's heartbeats arrive. Without the probe, a
script is stalled after ten minutes, or `factor` times its longest silence so far if that is longer, without a step or output. It cannot
announce an evaluation, a download or a compilation, so the limit is extended, at most threefold, while its processes are busy; a hanging
collective is busy too, so the extension ends. The plan's `quiet_s` is never extended; with the probe, named pauses and the time between
heartbeats do not count towards it, and the limits of single ranks are at least as long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.core.text import format_duration
from seatrial.observe.progress import BETWEEN_STEPS, Progress, RankState
from seatrial.records.events import HEARTBEAT_EVERY_S
from seatrial.records.plan import LimitsSpec, StallSpec

# The order of a step: of two ranks that ended the same step, the one in the earlier phase is behind.
PHASE_ORDER = {phase: place for place, phase in enumerate((BETWEEN_STEPS, "data_wait", "preprocess", "fwd", "bwd", "step"))}
# A longer gap between two checks means that the harness itself did not run, and the ranks must not be blamed for it.
HARNESS_GAP_S = 30.0
# Checks come every second, on a busy machine every few; HEARTBEAT_SPREAD_S covers what is not seen in a shorter gap.
MIN_GAP_S = 5.0
# Heartbeats of ranks that stop together arrive up to a heartbeat, a tick of the probe and a check apart. A rank is waited for that much
# beyond its limit, so that those it may be waiting for are over theirs too.
HEARTBEAT_SPREAD_S = HEARTBEAT_EVERY_S + 1.5
# A rank without a heartbeat for longer has missed one: it is suspended, gone, or in a call that holds the GIL.
SILENT_S = 1.6 * HEARTBEAT_EVERY_S
# A rank that makes progress is seen between two steps too, by chance, until its next heartbeat.
BETWEEN_STEPS_S = 2 * HEARTBEAT_EVERY_S
# Few working scripts print nothing for as long.
QUIET_S = 600.0
MAX_EXTENSION = 3.0
# Telemetry comes every few seconds, and work may wait now and then.
ACTIVE_S = 30.0
UNKNOWN_ACTIVITY = "telemetry is off: activity unknown"
STALL_KEY, QUIET_KEY, START_KEY = "limits.stall", "limits.stall.quiet_s", "limits.start_s"


@dataclass(frozen=True, kw_only=True)
class Stall:
    stalled_s: float
    """Since the last step or output, or since the end of a pause."""
    limit_s: float
    key: str
    """The key of the plan that set the limit."""
    culprit: RankState | None = None
    """The rank the others wait for, as far as is known; None for a script without the probe."""
    silent_s: float | None = None
    """Time since that rank's last heartbeat; None while its heartbeat comes."""
    others: tuple[RankState, ...] = ()
    """The other ranks that are not done."""
    moving: frozenset[int] = frozenset()
    """Those of `others` that still take steps."""
    num_done: int = 0
    iter_ms_p50: float | None = None
    """Median step time of the slowest rank before the stall."""
    longest_silence_s: float = 0.0
    """Longest earlier silence of a script without the probe."""
    extended: str = ""
    """Why a script got longer than its limit."""


def furthest_behind(states: Sequence[RankState]) -> list[RankState]:
    """The ranks with the fewest steps; a restarted rank has none."""
    fewest = min(_num_steps(state) for state in states)
    return [state for state in states if _num_steps(state) == fewest]


def find_culprit(last: Sequence[RankState], silent: frozenset[int]) -> RankState:
    """The rank to blame: at the same step a silent one first, then the rarest phase, the earliest phase, the lowest rank."""
    among = [state for state in last if state.rank in silent] or last
    counts = Counter(state.phase for state in among)
    return min(among, key=lambda state: (counts[state.phase], PHASE_ORDER.get(state.phase, len(PHASE_ORDER)), state.rank))


def _num_steps(state: RankState) -> int:
    return 0 if state.step is None else state.step + 1


@dataclass
class _RankClock:
    """When one rank last showed life and progress."""

    step_and_pid: tuple[int | None, int | None]
    heartbeat: tuple[float, int]
    heartbeat_m: float
    moved_m: float
    """The last step, or the end of a named pause."""
    judged_m: float
    """The same, or the last check with the rank before or between steps: the plan's own limit counts from here."""


@dataclass(frozen=True, kw_only=True)
class _Check:
    """One check of ranks with the probe."""

    progress: Progress
    now_m: float
    limit_s: float
    silent: frozenset[int]

    @property
    def unfinished(self) -> list[RankState]:
        return [state for state in self.progress.rank_states if not state.is_done]

    def is_between_steps(self, state: RankState) -> bool:
        """Whether its present work may take as long as a start."""
        total = self.progress.total
        if state.step is None:
            return state.rank not in self.silent
        if total is not None and state.step >= total - 1:
            return True
        # The phase of a silent rank is outdated.
        return state.phase == BETWEEN_STEPS and state.rank not in self.silent


class StallDetector:
    """Checks one run repeatedly."""

    def __init__(self, limits: LimitsSpec, *, has_probe: bool = False) -> None:
        """`has_probe`: the workload is known to have it, so that it is still starting while none of its ranks has reported."""
        self._has_probe = has_probe
        self._stall: StallSpec = limits.stall or StallSpec()
        self._off = limits.stall is None
        self._start_s = math.inf if limits.start_s is None else limits.start_s
        self.silent: frozenset[int] = frozenset()
        """Ranks without a recent heartbeat, at the last check."""
        self._clocks: dict[int, _RankClock] = {}
        self._begun = False
        self._checked_m: float | None = None
        self._output_bytes = 0
        self._output_m = 0.0
        self._sign_of_life: tuple[object, ...] | None = None
        self._sign_of_life_m = 0.0
        self._longest_silence_s = 0.0
        self._active_m = 0.0
        self._activity = ""
        self.quiet_s = 0.0
        """Time since the last step or output, at the last check."""

    def check(self, progress: Progress, now_m: float) -> Stall | None:
        before_m, self._checked_m = self._checked_m, now_m
        if before_m is None or now_m - before_m > max(MIN_GAP_S, min(HARNESS_GAP_S, self._stall.floor_s / 2)):
            self._restart_clocks(now_m)
        if progress.output_bytes != self._output_bytes:
            self._output_bytes, self._output_m = progress.output_bytes, now_m
        self._update_silence(progress, now_m)
        if self._off:
            return None
        return self._check_ranks(progress, now_m) if progress.rank_states else self._check_script(progress, now_m)

    def _update_silence(self, progress: Progress, now_m: float) -> None:
        steps = tuple(last.step for last in progress.last_steps)
        sign = (progress.output_bytes, progress.step, steps)
        if sign != self._sign_of_life:
            # Time before the first output is the start, which has its own limit.
            if self._sign_of_life is not None and self._sign_of_life[0]:
                self._longest_silence_s = max(self._longest_silence_s, now_m - self._sign_of_life_m)
            self._sign_of_life, self._sign_of_life_m = sign, now_m
        self.quiet_s = now_m - self._sign_of_life_m
        activity = progress.activity
        if activity is None or activity.is_busy:
            self._active_m, self._activity = now_m, f"its processes were busy: {activity.text}" if activity else UNKNOWN_ACTIVITY

    def _restart_clocks(self, now_m: float) -> None:
        self._sign_of_life_m = now_m
        for clock in self._clocks.values():
            clock.heartbeat_m = now_m
        self._pause_clocks(now_m)

    def _pause_clocks(self, now_m: float) -> None:
        """Time until now does not count."""
        self._output_m = now_m
        for clock in self._clocks.values():
            clock.moved_m = clock.judged_m = now_m

    def _check_ranks(self, progress: Progress, now_m: float) -> Stall | None:
        for state in progress.rank_states:
            self._update_clock(state, now_m)
        self.silent = silent = frozenset(rank for rank, clock in self._clocks.items() if now_m - clock.heartbeat_m > SILENT_S)
        self._begun = self._begun or _has_begun(progress, silent)
        if not self._begun:
            return None
        check = _Check(progress=progress, now_m=now_m, limit_s=self._limit_s(progress), silent=silent)
        if any(state.is_paused and state.rank not in silent for state in progress.rank_states):
            self._pause_clocks(now_m)
            return None
        if (quiet := self._quiet_stall(check)) is not None:
            return quiet
        if not check.unfinished and len(progress.rank_states) >= progress.num_ranks:
            return self._stall_after_the_end(check)
        if not check.unfinished:
            # A rank that never reached its probe is a matter of the start limit.
            return None
        self._exempt_between_steps(check)
        clocks = {state.rank: self._clocks[state.rank] for state in check.unfinished}
        within_s = {rank: now_m - clock.judged_m for rank, clock in clocks.items()}
        between_s = {rank: now_m - clock.moved_m for rank, clock in clocks.items()}
        own_key = QUIET_KEY if check.limit_s == self._stall.quiet_s else STALL_KEY
        key = START_KEY if self._start_s > check.limit_s else own_key
        stall = self._stall_of_ranks(within_s, check.limit_s, own_key, check)
        return stall or self._stall_of_ranks(between_s, max(check.limit_s, self._start_s), key, check)

    def _update_clock(self, state: RankState, now_m: float) -> None:
        step_and_pid, heartbeat = (state.step, state.pid), (state.heartbeat_t, state.heartbeat_bytes)
        clock = self._clocks.get(state.rank)
        if clock is None:
            self._clocks[state.rank] = _RankClock(step_and_pid, heartbeat, heartbeat_m=now_m, moved_m=now_m, judged_m=now_m)
            return
        if clock.heartbeat != heartbeat:
            clock.heartbeat, clock.heartbeat_m = heartbeat, now_m
        if clock.step_and_pid != step_and_pid:
            clock.step_and_pid = step_and_pid
            clock.heartbeat_m = clock.moved_m = clock.judged_m = now_m

    def _limit_s(self, progress: Progress) -> float:
        slowest_ms, least_s = _slowest_ms(progress), max(self._stall.floor_s, self._stall.quiet_s or 0.0)
        if slowest_ms is None:
            # No step time is known yet.
            return max(least_s, self._start_s)
        return max(least_s, self._stall.factor * slowest_ms / 1000)

    def _exempt_between_steps(self, check: _Check) -> None:
        """The plan's own limit does not count while those that the others wait for are between steps, and more than in passing."""
        for state in furthest_behind(check.unfinished):
            unmoved_s = check.now_m - self._clocks[state.rank].moved_m
            if check.is_between_steps(state) and (state.step is None or unmoved_s >= BETWEEN_STEPS_S):
                for clock in self._clocks.values():
                    clock.judged_m = check.now_m
                return

    def _stall_of_ranks(self, unmoved_s: dict[int, float], limit_s: float, key: str, check: _Check) -> Stall | None:
        # Others may always wait for a rank before its first step.
        unmoved = [state for state in check.unfinished if state.step is None or unmoved_s[state.rank] >= limit_s]
        last = furthest_behind(unmoved) if unmoved else []
        longest_s = max((unmoved_s[state.rank] for state in last), default=0.0)
        if longest_s < limit_s + HEARTBEAT_SPREAD_S:
            return None
        moving = frozenset(rank for rank, seconds in unmoved_s.items() if seconds < limit_s)
        return self._stall_at(find_culprit(last, check.silent), longest_s, limit_s, key, check, moving)

    def _quiet_stall(self, check: _Check) -> Stall | None:
        """Neither a step of any rank nor output for as long as the user has set, since the last named pause."""
        quiet_s = check.now_m - max(self._output_m, *(clock.moved_m for clock in self._clocks.values()))
        if self._stall.quiet_s is None or quiet_s < self._stall.quiet_s + HEARTBEAT_SPREAD_S:
            return None
        culprit = find_culprit(furthest_behind(check.unfinished), check.silent) if check.unfinished else None
        return self._stall_at(culprit, quiet_s, self._stall.quiet_s, QUIET_KEY, check)

    def _stall_at(
        self, culprit: RankState | None, stalled_s: float, limit_s: float, key: str, check: _Check, moving: frozenset[int] = frozenset()
    ) -> Stall:
        silent_m = self._clocks[culprit.rank].heartbeat_m if culprit is not None and culprit.rank in check.silent else None
        return Stall(
            stalled_s=stalled_s,
            limit_s=limit_s,
            key=key,
            culprit=culprit,
            silent_s=None if silent_m is None else check.now_m - silent_m,
            others=tuple(state for state in check.unfinished if culprit is not None and state.rank != culprit.rank),
            moving=moving,
            num_done=len(check.progress.rank_states) - len(check.unfinished),
            iter_ms_p50=_slowest_ms(check.progress),
        )

    def _stall_after_the_end(self, check: _Check) -> Stall | None:
        """Every rank is done; a script may still print something after that."""
        limit_s = max(check.limit_s, self._start_s)
        since_m = max(self._output_m, *(clock.heartbeat_m for clock in self._clocks.values()))
        if check.now_m - since_m < limit_s:
            return None
        key = STALL_KEY if limit_s == check.limit_s else START_KEY
        return Stall(stalled_s=check.now_m - since_m, limit_s=limit_s, key=key, num_done=len(check.progress.rank_states))

    def _check_script(self, progress: Progress, now_m: float) -> Stall | None:
        limit_s = self._script_limit_s()
        if not progress.alive or self.quiet_s < limit_s:
            return None
        # A limit that the user has set is exact.
        may_extend = self._stall.quiet_s is None and now_m - self._active_m < ACTIVE_S
        if may_extend and self.quiet_s < MAX_EXTENSION * limit_s:
            return None
        return Stall(
            stalled_s=self.quiet_s,
            limit_s=limit_s,
            key=QUIET_KEY,
            iter_ms_p50=_slowest_ms(progress),
            longest_silence_s=self._longest_silence_s if self._stall.quiet_s is None else 0.0,
            extended=self._activity if self._stall.quiet_s is None and self.quiet_s > limit_s + ACTIVE_S else "",
        )

    def _script_limit_s(self) -> float:
        if self._stall.quiet_s is not None:
            return self._stall.quiet_s
        limit_s = max(QUIET_S, self._stall.floor_s, self._stall.factor * self._longest_silence_s)
        return max(limit_s, self._start_s) if self._has_probe else limit_s


def _has_begun(progress: Progress, silent: frozenset[int]) -> bool:
    """Every rank has taken a step, or has fallen silent before it could report one while others did."""
    stepped = [state.step is not None for state in progress.rank_states]
    return any(stepped) and all(has or state.rank in silent for has, state in zip(stepped, progress.rank_states, strict=True))


def _slowest_ms(progress: Progress) -> float | None:
    return max((last.iter_ms_p50 for last in progress.last_steps if last.iter_ms_p50), default=None)


# Beyond this, seconds are hard to read.
MAX_IN_SECONDS_S = 600.0
WHERE_TO_LOOK = "See where each rank is in stacks/ of the attempt's folder, and its last lines with `seatrial logs RUN{rank}`"
SILENT_CAUSES = (
    "A silent rank was suspended (SIGSTOP), has died, or is in a call that holds the GIL; a full or hung file system silences it too"
)
COLLECTIVE_CAUSES = (
    "Usual causes: a collective that not every rank reaches, a network or GPU that does not answer, a rank with more batches than another"
)
# A single process waits for no other.
WHERE_TO_LOOK_ALONE = "See where your command is in stacks/ of the attempt's folder, and its last lines with `seatrial logs RUN`"
ALONE_CAUSES = (
    "Usual causes: your command waits for a child process, a lock, input or storage that does not answer, or works on and prints nothing"
)
LOADER_CAUSES = "Usual causes: a data loader worker that died or waits, storage that does not answer"
BETWEEN_STEPS_CAUSES = "Put evaluation and saving into probe.pause(NAME), which never counts as a stall"


def describe_stall(stall: Stall, progress: Progress) -> str:
    """One sentence: for how long, against which limit, and where each rank is."""
    return f"{_what(stall, progress)}{_where(stall, progress)}"


def advise_on_stall(stall: Stall, num_ranks: int) -> str:
    """Where to look, the usual causes, and the limit to raise where nothing is wrong."""
    rank = f" --rank {stall.culprit.rank}" if stall.culprit else ""
    key = "limits.stall.floor_s" if stall.key == STALL_KEY else stall.key
    where = WHERE_TO_LOOK_ALONE if num_ranks == 1 else WHERE_TO_LOOK.format(rank=rank)
    return f"{where}. {_causes(stall, is_alone=num_ranks == 1)}. If nothing is wrong, raise {key}."


def _what(stall: Stall, progress: Progress) -> str:
    stalled = _seconds(stall.stalled_s)
    if stall.num_done and stall.culprit is None:
        return f"every rank is done, but for {stalled} the run has neither ended nor printed anything ({_limit(stall)})"
    if stall.culprit is None:
        extended = f"; extended, since {stall.extended}" if stall.extended else ""
        missing = "no output" if progress.step is None else "no step and no output"
        return f"{missing} for {stalled} ({_limit(stall)}{extended})"
    step = stall.culprit.step
    if step is None and stall.silent_s is None:
        return f"no step for {stalled} since a rank was restarted ({_limit(stall)})"
    if step is not None and progress.total is not None and step >= progress.total - 1:
        return f"all {progress.total} steps are taken, but the run has not ended for {stalled} ({_limit(stall)})"
    return f"no step for {stalled} ({_limit(stall)})"


def _limit(stall: Stall) -> str:
    larger = ", the larger of it and limits.stall" if stall.key == START_KEY else ""
    if stall.longest_silence_s:
        larger = f"; its longest silence before was {_seconds(stall.longest_silence_s)}"
    step_time = f"; steps took {format_duration(stall.iter_ms_p50 / 1000)} before" if stall.iter_ms_p50 else ""
    return f"limit {_seconds(stall.limit_s)}: {stall.key}{larger}{step_time}"


def _where(stall: Stall, progress: Progress) -> str:
    if stall.culprit is None:
        return f"; last step printed: {progress.step}" if progress.step is not None and not stall.num_done else ""
    done = f"; {stall.num_done} {'rank is' if stall.num_done == 1 else 'ranks are'} done" if stall.num_done else ""
    return f"; {_ranks(stall, stall.culprit)}{done}"


def _ranks(stall: Stall, culprit: RankState) -> str:
    same = all(other.step == culprit.step and other.phase == culprit.phase for other in stall.others)
    if stall.others and same and stall.silent_s is None:
        at = _at(culprit).replace("its", "their")
        return f"all {len(stall.others) + 1} ranks are {at} in '{culprit.phase}'"
    if stall.silent_s is not None:
        own = f"rank {culprit.rank} has sent no heartbeat for {_seconds(stall.silent_s)}; it was {_at(culprit)} in '{culprit.phase}'"
    else:
        own = f"rank {culprit.rank} is {_at(culprit)} in '{culprit.phase}'"
    return f"{own}{_others(stall, culprit)}"


def _others(stall: Stall, culprit: RankState) -> str:
    if not stall.others:
        return ""
    name = "the other" if len(stall.others) == 1 else "the others"
    moving = [other for other in stall.others if other.rank in stall.moving]
    if len(moving) == len(stall.others):
        return f", {name} still {'takes' if len(moving) == 1 else 'take'} steps, {_range(moving)}"
    if all(other.step == culprit.step for other in stall.others):
        phases = sorted({f"'{other.phase}'" for other in stall.others})
        return f", {name} at the same step in {' or '.join(phases)}"
    return f", {name} {_range(stall.others)}"


def _at(state: RankState) -> str:
    return "before its first step" if state.step is None else f"at step {state.step}"


def _range(states: Sequence[RankState]) -> str:
    steps = [state.step for state in states if state.step is not None]
    if not steps:
        return "before the first step"
    return f"at {min(steps)}" if min(steps) == max(steps) else f"at {min(steps)} to {max(steps)}"


def _causes(stall: Stall, *, is_alone: bool) -> str:
    if stall.silent_s is not None:
        return SILENT_CAUSES
    phase = stall.culprit.phase if stall.culprit else ""
    return {"data_wait": LOADER_CAUSES, BETWEEN_STEPS: BETWEEN_STEPS_CAUSES}.get(phase, ALONE_CAUSES if is_alone else COLLECTIVE_CAUSES)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < MAX_IN_SECONDS_S else format_duration(seconds)
