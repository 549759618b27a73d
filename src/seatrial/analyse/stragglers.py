"""Which rank is the straggler that delays the others.

In: the step tables of an attempt and its window. Out: `Straggler`: the rank, how slow it is, in which phase and where it ran; or that there
is none; or why that is unknown and how to find out. None for a single rank.

Ranks that exchange gradients end every step together, so their step times are equal and name no rank. All ranks leave the synchronising
phase at the same moment: the one that waits least in it came last, and its own work is the longest. The noise shows which phase that is:
what a rank lost in the phases since the last synchronisation it makes up for here, step by step. Where steps were not recorded
consecutively (phases on every tenth, lines at every fiftieth), it is the phase that varies most between ranks. Work inside that phase
before the wait begins is invisible, so a rank that is slow only there is never named. It may still show: its random delays delay every
rank, while those of the others vanish in their waiting; then an abstention names the rank.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from seatrial.analyse.statistics import MEDIAN_TO_MEAN_ERROR, level_and_width, median, row_medians
from seatrial.analyse.steady_state import find_grid
from seatrial.records.attempt import StepTables
from seatrial.records.events import PHASES
from seatrial.records.measure import RankLocation, Straggler, StragglerVerdict, Window

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Columns = slice | npt.NDArray[np.intp]
MIN_STEPS = 20
"""With fewer steps a rank may come last in most of them by chance."""
MIN_SCORE = 0.02
"""A rank that is a tenth slower in everything shows only by its work outside the synchronising phase, which may be a third of the step or
less. Healthy ranks differ by some tenths of a percent."""
CHANCE = 0.001
"""Probability that any of so many ranks comes last so often by chance."""
MIN_ERRORS = 4.0
"""Standard errors, with dependent steps counted as fewer: noise that lasts for many steps is not a slow rank."""
MAX_NAMED = 5
ALL_RANKS = "set `rank_scope: all` in the plan (TIMING_RANK_SCOPE=all for the stage 1 scripts)"
HOW_PHASES = "put fwd, bwd and step into `probe.phase(…)`, or let the script print TimingRank lines with them"
MORE_PHASES = "run more steps, or take phases more often: a lower `timing.phase_every`, or `timing: {sync: true}` on GPUs for every step"
OWN_CLOCK = " The times are the script's own: on GPUs they show work only if it synchronises before it takes them (`timing: {sync: true}`)."
EXPLAINED = 0.5
"""Share of a rank's shorter wait that must show as work of its own."""
CONSISTENT = 0.8
"""Share of the steps in which a rank must wait less than the others: a slow rank is slow nearly always."""
DRIVES = 0.6
"""Share of a rank's random delays that delay everybody: 1 for the one that is always last, about 0 where none is."""
DRIVES_T = 4.0
"""In standard errors; high, since the largest of many ranks is tested."""
MAX_AUTOCORRELATION = 0.99
LARGE = 4.5
"""In MADs: three standard deviations."""
FEW_RANKS = 64
SEEN_NOISE = 0.003
"""Smaller random delays, as a share of a step, do not show which rank is last, nor does it matter."""
NAMES = tuple(name.removesuffix("_ms") for name in PHASES)
USUAL = ("bwd", "step")
"""Where trainings usually synchronise: the all-reduce of DDP in bwd, that of a partitioned optimiser in step."""
UNUSUAL = ("fwd", "preprocess")
"""Where they may synchronise too: gathered weights, a blocking copy. Waiting for data is a rank's own."""
MIN_PAIRS = 20
"""Consecutive steps needed to compare their noise."""
SURE_T = 3.0
"""A difference of this many standard errors is significant."""
CLEARLY_MORE = 4.0
"""Ratio of variances: twice the standard deviation."""


@dataclass(frozen=True, kw_only=True)
class RankLag:
    """One rank compared with the others; times in ms, medians over the steps."""

    at: int
    """The rank's row in the tables."""
    extra_ms: float
    """How much longer than the others it works before it waits."""
    share: float
    """Share of the steps in which it works longer."""
    errors: float
    """The extra time in standard errors."""
    own_ms: float
    """How long the others work in a step."""
    rest_ms: float
    """The part of the extra time found in its other phases."""
    outside_ms: float | None
    """The part found outside the phases; None where that is unknown."""
    longer: dict[str, float]
    """How much longer it takes in each phase."""

    @property
    def score(self) -> float:
        return self.extra_ms / self.own_ms if self.own_ms > 0 else 0.0

    @property
    def is_in_phases(self) -> bool:
        return bool(self.longer) and self.rest_ms >= EXPLAINED * self.extra_ms

    @property
    def phase(self) -> str:
        """The phase with most of the extra time; empty where it is outside all phases."""
        return max(self.longer, key=lambda name: self.longer[name]) if self.is_in_phases else ""


@dataclass(frozen=True, kw_only=True)
class RankWork:
    """Steps whose phases every rank reports; all tables are ranks × steps, in ms."""

    ranks: Ints
    steps: Ints
    phases: dict[str, Floats]
    """By name, in the order of a step; 0 where a rank does not have the phase."""
    shared: tuple[str, ...]
    """Phases that every rank has."""
    iter_ms: Floats | None
    """None unless every rank reports it."""

    @property
    def total_ms(self) -> Floats:
        """Step times by wall clock, else as the sum of phases."""
        return self.iter_ms if self.iter_ms is not None else self.sum_ms

    @property
    def sum_ms(self) -> Floats:
        return np.asarray(np.sum(list(self.phases.values()), axis=0))


def find_straggler(tables: StepTables, window: Window | None) -> Straggler | None:
    """The straggler in the steps of the window whose phases every rank reports."""
    rank = tables.steps["rank"].to_numpy()
    # Sorted by rank: a rank begins where the number changes.
    seen = set(rank[np.flatnonzero(np.diff(rank, prepend=-1))].tolist())
    world_size = max(tables.world_size, max(seen, default=0) + 1)
    if world_size < 2:
        return None
    if len(seen) < world_size:
        return _abstained(_missing_ranks(seen, world_size), tables)
    work = rank_work(tables, window)
    if not any(name in work.phases for name in ("fwd", "bwd", "step")):
        return _abstained(f"No rank reports the phases of its steps, so which rank waits for which is unknown: {HOW_PHASES}", tables, work)
    if len(work.steps) < MIN_STEPS:
        too_few = f"Only {len(work.steps)} steps have the phases of all {len(work.ranks)} ranks, {MIN_STEPS} are needed: {MORE_PHASES}"
        return _abstained(too_few, tables, work)
    phase = synchronising_phase(work)
    if phase is None:
        # In which of two phases they synchronise is unknown, but irrelevant if no rank is late in either.
        either = [name for name in USUAL if name in work.shared]
        if not either or any(_is_late(latest_rank(work, name), work) for name in either):
            return _abstained(_unknown_phase(work), tables, work)
        phase = either[0]
    return _judge(work, phase, tables)


def _judge(work: RankWork, phase: str, tables: StepTables) -> Straggler:
    lag = latest_rank(work, phase)
    if not _is_late(lag, work):
        return _no_straggler(work, phase, lag, tables)
    if reason := _inconclusive_reason(lag, work, phase):
        return _abstained(reason, tables, work)
    return _named(work, phase, lag, tables)


def _is_late(lag: RankLag, work: RankWork) -> bool:
    return lag.score >= MIN_SCORE and _is_consistent(lag, work)


def _is_consistent(lag: RankLag, work: RankWork) -> bool:
    """Whether it is late in nearly all steps, more often than any of so many ranks by chance."""
    if lag.share < CONSISTENT or lag.errors < MIN_ERRORS:
        return False
    n = len(work.steps)
    return chance_of_at_least(round(lag.share * n), n) * len(work.ranks) <= CHANCE


def chance_of_at_least(count: int, n: int) -> float:
    """Probability of `count` or more heads, over half, in `n` tosses of a coin. scipy has it too, but takes a sixth of a second to import
    in every worker."""
    term = math.exp(math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1) - n * math.log(2))
    total = term
    # Each further count is rarer than the previous one, by a falling ratio.
    while count < n and term > total * 1e-12:
        term *= (n - count) / (count + 1)
        count += 1
        total += term
    return total


def _inconclusive_reason(lag: RankLag, work: RankWork, phase: str) -> str:
    """Why a rank that waits less is not named as a straggler; empty where it is."""
    rank = int(work.ranks[lag.at])
    if lag.is_in_phases:
        return ""
    if lag.outside_ms is None or lag.rest_ms + lag.outside_ms < EXPLAINED * lag.extra_ms:
        return _unexplained(rank, phase, lag)
    return _two_ranks_outside_phases(rank, phase, lag) if len(work.ranks) == 2 else ""


def _named(work: RankWork, phase: str, lag: RankLag, tables: StepTables) -> Straggler:
    waits = work.phases[phase]
    slow = slow_ranks(waits, MIN_SCORE * lag.own_ms)
    slow[lag.at] = True
    held_up_ms = None if slow.all() else median(np.maximum(waits[~slow].min(axis=0) - waits[lag.at], 0.0))
    rank = int(work.ranks[lag.at])
    locations = {location.rank: location for location in tables.locations}
    location = locations.get(rank, RankLocation(rank=rank))
    others = [int(each) for each in work.ranks[slow] if each != rank]
    slow_host, on_it = _slow_host([rank, *others], locations)
    return Straggler(
        verdict=StragglerVerdict.NAMED,
        reason=_straggler_text(work, phase, lag, others, locations, held_up_ms) + (OWN_CLOCK if tables.source.startswith("log:") else ""),
        rank=rank,
        score=lag.score,
        phase=lag.phase,
        host=location.host,
        gpu=location.gpu,
        held_up_ms=held_up_ms,
        n=len(work.steps),
        first_step=int(work.steps[0]),
        last_step=int(work.steps[-1]),
        source=tables.source,
        slow_host=slow_host,
        slow_host_ranks=on_it,
    )


def _slow_host(slow: Sequence[int], locations: Mapping[int, RankLocation]) -> tuple[str, int]:
    """The host whose ranks, and no others, are all slow, and how many it has; empty for a host with a single rank."""
    hosts = {locations[rank].host if rank in locations else "" for rank in slow}
    host = hosts.pop() if len(hosts) == 1 else ""
    on_it = [location.rank for location in locations.values() if location.host == host]
    is_host = host and len(on_it) > 1 and set(on_it) == set(slow) and len(on_it) < len(locations)
    return (host, len(on_it)) if is_host else ("", 0)


def _no_straggler(work: RankWork, phase: str, lag: RankLag, tables: StepTables) -> Straggler:
    driving = driving_rank(work, phase, lag.own_ms)
    if driving is not None:
        rank = int(work.ranks[driving])
        return _abstained(_hidden_in_sync_phase(rank, phase), tables, work, rank=rank, phase=phase)
    widest = f"the widest is rank {int(work.ranks[lag.at])} with {_percent(max(lag.score, 0.0), 1)}"
    return Straggler(
        verdict=StragglerVerdict.NONE,
        reason=f"No rank stands out: by their waits in {phase}, where they synchronise, none works {_percent(MIN_SCORE)} longer than the "
        f"others in nearly all steps ({widest}; {_span(work)}). A rank that is slow inside {phase} alone may not show.",
        n=len(work.steps),
        first_step=int(work.steps[0]),
        last_step=int(work.steps[-1]),
        source=tables.source,
    )


def _abstained(reason: str, tables: StepTables, work: RankWork | None = None, *, rank: int | None = None, phase: str = "") -> Straggler:
    if work is None or len(work.steps) == 0:
        return Straggler(verdict=StragglerVerdict.ABSTAINED, reason=f"{reason}.", rank=rank, phase=phase, source=tables.source)
    return Straggler(
        verdict=StragglerVerdict.ABSTAINED,
        reason=f"{reason} ({_span(work)}).",
        rank=rank,
        phase=phase,
        n=len(work.steps),
        first_step=int(work.steps[0]),
        last_step=int(work.steps[-1]),
        source=tables.source,
    )


def _span(work: RankWork) -> str:
    return f"steps {int(work.steps[0])}–{int(work.steps[-1])}, n = {len(work.steps)}"


def _missing_ranks(seen: Collection[int], world_size: int) -> str:
    if not seen:
        return f"None of {world_size} ranks reports its steps: use the probe with its phases, or print TimingRank lines; {ALL_RANKS}"
    # A garbled line may claim any number of ranks: only the first missing ones are collected.
    missing = list(islice((rank for rank in range(world_size) if rank not in seen), MAX_NAMED + 1))
    seen_text = f"Only {len(seen)} of {world_size} ranks report their steps (not {_listed(missing)})"
    return f"{seen_text}, and any other may be the slow one: {ALL_RANKS}"


def _unknown_phase(work: RankWork) -> str:
    if not any(name in work.shared for name in ("fwd", "bwd", "step")):
        return f"The ranks report no phase that all of them have: {HOW_PHASES}"
    return (
        "The ranks differ as much in bwd as in step, so which of the two is waiting is unknown: take phases at every step "
        "(`timing: {sync: true}` on GPUs)"
    )


def _unexplained(rank: int, phase: str, lag: RankLag) -> str:
    return (
        f"Rank {rank} spends {lag.extra_ms:.2f} ms less in {phase} than the others, but no longer anywhere else: either the ranks do not "
        f"synchronise in {phase}, or its time goes outside the phases; {HOW_PHASES}"
    )


def _two_ranks_outside_phases(rank: int, phase: str, lag: RankLag) -> str:
    return (
        f"Rank {rank} spends {lag.extra_ms:.2f} ms less in {phase} than the other, and longer outside the phases: with two ranks that may "
        "be its own work or waiting for the other; put what it does there into a phase, or into `probe.pause(…)`"
    )


def _hidden_in_sync_phase(rank: int, phase: str) -> str:
    return (
        f"Rank {rank} comes last in {phase}, though its other phases are no longer than the others': its random delays delay everybody. "
        f"How much longer it works inside {phase} cannot be seen, as the others wait there: time its {phase} without the exchange "
        "(`no_sync`), or compare its GPU's clocks and power with the others'"
    )


def _straggler_text(
    work: RankWork, phase: str, lag: RankLag, others: Sequence[int], locations: Mapping[int, RankLocation], held_up_ms: float | None
) -> str:
    """The sentence that names the rank; `others` are slow too."""
    rank = int(work.ranks[lag.at])
    location = locations.get(rank, RankLocation(rank=rank))
    parts = ", ".join(filter(None, (location.host and f"host {location.host}", location.gpu and f"GPU {location.gpu}")))
    where = f" ({parts})" if parts else ""
    spent = f"in {lag.phase} (+{lag.longer[lag.phase]:.2f} ms)" if lag.phase else "outside the phases (logging, reading a loss back)"
    also = _also(others, location, locations)
    without = "" if held_up_ms is None else f" Without {'them' if others else 'it'} a step would be {held_up_ms:.2f} ms shorter."
    return (
        f"Rank {rank}{where} waits least in {phase}, where the ranks synchronise: it works at least {_percent(lag.score, 1)} "
        f"longer than the others, {spent}, in {_percent(lag.share)} of the steps ({_span(work)}).{also}{without}"
    )


def _also(others: Sequence[int], location: RankLocation, locations: Mapping[int, RankLocation]) -> str:
    """The other slow ranks, and their host where they are all on one of several."""
    if not others:
        return ""
    also = f" Rank {others[0]} is slow too" if len(others) == 1 else f" Ranks {_listed(others)} are slow too"
    hosts = {locations[rank].host if rank in locations else "" for rank in others}
    is_host = location.host and hosts == {location.host} and len({each.host for each in locations.values()}) > 1
    return f"{also}, all on host {location.host}: look at the host first." if is_host else f"{also}."


def _percent(share: float, decimals: int = 0) -> str:
    return f"{100 * share:.{decimals}f} %"


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:MAX_NAMED])) + (" …" if len(ranks) > MAX_NAMED else "")


def latest_rank(work: RankWork, phase: str) -> RankLag:
    """The rank that waits least, compared with the others."""
    waits, sums = work.phases[phase], work.sum_ms
    at = int(row_medians(_medians(waits) - waits).argmax())
    others = _others(waits, at)
    before_ms = _medians(others) - waits[at]
    # Against each of the others; for an even number the lower median, so that one odd rank of two changes nothing.
    against = np.sort(row_medians(others - waits[at]))
    own_ms = _medians(_others(work.total_ms, at)) - _medians(others) + waits.min(axis=0)
    return RankLag(
        at=at,
        extra_ms=float(against[(len(against) - 1) // 2]),
        share=float((before_ms > 0).mean()),
        errors=_errors(before_ms),
        own_ms=median(own_ms),
        rest_ms=_longer(sums - waits, at),
        outside_ms=None if work.iter_ms is None else _longer(work.iter_ms - sums, at),
        longer={name: _longer(values, at) for name, values in work.phases.items() if name != phase},
    )


def slow_ranks(waits: Floats, least_ms: float) -> Mask:
    """Every rank that waits at least this much less than the median rank, in nearly all steps."""
    before_ms = _medians(waits) - waits
    return np.asarray((row_medians(before_ms) >= least_ms) & ((before_ms > 0).mean(axis=1) >= CONSISTENT))


def _errors(values: Floats) -> float:
    """The median in standard errors; autocorrelated values count as fewer."""
    middle, width = level_and_width(values)
    residuals = values - middle
    power = float(residuals @ residuals)
    autocorrelation = min(max(float(residuals[1:] @ residuals[:-1]) / power, 0.0), MAX_AUTOCORRELATION) if power else 0.0
    error = width * MEDIAN_TO_MEAN_ERROR / math.sqrt(len(values) * (1 - autocorrelation) / (1 + autocorrelation))
    return middle / error if error > 0 else math.copysign(math.inf, middle)


def _others(values: Floats, at: int) -> Floats:
    """All rows except one; a view for two rows."""
    return values[1 - at : 2 - at] if len(values) == 2 else np.delete(values, at, axis=0)


def _medians(values: Floats) -> Floats:
    """The median over the ranks, by step."""
    if len(values) <= 2:
        return values[0] if len(values) == 1 else np.asarray((values[0] + values[1]) / 2)
    # Sorting is quicker than np.median for short rows only.
    return row_medians(values.T) if len(values) <= FEW_RANKS else np.asarray(np.median(values, axis=0))


def _longer(values: Floats, at: int) -> float:
    return median(values[at] - _medians(_others(values, at)))


def driving_rank(work: RankWork, phase: str, own_ms: float) -> int | None:
    """The row of the rank whose random delays delay every rank although it does not seem to work longest; None where there is none."""
    waits = work.phases[phase]
    delay = waits.mean(axis=0) - waits
    delay -= delay.mean(axis=1, keepdims=True)
    common = _since_synchronised(work, phase)
    common -= common.mean()
    power = np.square(delay).sum(axis=1)
    if not (power > 0).all() or own_ms <= 0:
        return None
    at = int((delay @ common / power).argmax())
    is_longest = float((waits.argmin(axis=0) == at).mean()) >= CONSISTENT
    return at if not is_longest and _drives(delay[at], common, own_ms) else None


def _drives(delay: Floats, common: Floats, own_ms: float) -> bool:
    """Whether a rank's random delays delay every rank. Large delays, such as occasional waits for data, are left out: any rank's do."""
    off = np.abs(delay - median(delay))
    usual = off <= LARGE * median(off)
    delay, common = delay[usual] - delay[usual].mean(), common[usual] - common[usual].mean()
    power = float(delay @ delay)
    if math.sqrt(power / len(delay)) < SEEN_NOISE * own_ms:
        return False
    slope = float(delay @ common) / power
    residuals = common - slope * delay
    error = math.sqrt(float(residuals @ residuals) / max(len(residuals) - 2, 1) / power)
    return slope >= max(DRIVES, DRIVES_T * error)


def _since_synchronised(work: RankWork, phase: str) -> Floats:
    """The time since the ranks last synchronised, by step; the step's own time where the previous step is unknown."""
    names = list(work.phases)
    later = names[names.index(phase) + 1 :]
    time_ms = work.sum_ms.mean(axis=0)
    if later:
        after = sum((work.phases[name].mean(axis=0) for name in later), start=np.zeros(()))
        follows = np.flatnonzero(np.diff(work.steps) == 1) + 1
        time_ms[follows] += after[follows - 1] - after[follows]
    return np.asarray(time_ms)


def rank_work(tables: StepTables, window: Window | None) -> RankWork:
    """Steps of the window, or of the whole run, without a pause on any rank."""
    steps = tables.steps
    rank, step = steps["rank"].to_numpy(), steps["step"].to_numpy()
    paused = tables.pauses["step"].to_numpy()
    kept = np.ones(len(step), dtype=np.bool_)
    if window is not None:
        kept &= (step >= window.first_step) & (step <= window.last_step)
    if len(paused):
        kept &= ~np.isin(step, paused)
    grid = find_grid(rank[kept], step[kept]) if not kept.all() else find_grid(rank, step)
    # Sorted by rank, then step: the steps that all ranks have are an equally long block of rows for each.
    rows = np.flatnonzero(kept) if grid.is_full else np.flatnonzero(kept)[(grid.seen == len(grid.ranks))[grid.step_index]]
    shape = (len(grid.ranks), -1) if len(rows) else (len(grid.ranks), 0)
    values = {name: steps[name].to_numpy()[rows].reshape(shape) for name in (*PHASES, "iter_ms")}
    numbers = grid.numbers if grid.is_full else grid.numbers[grid.seen == len(grid.ranks)]
    return _complete_steps(grid.ranks, numbers, np.stack([values[name] for name in PHASES]), values["iter_ms"])


def _complete_steps(ranks: Ints, numbers: Ints, phases: Floats, iter_ms: Floats) -> RankWork:
    """The steps in which every rank reports all its phases. On a GPU most steps have only the wait for data."""
    finite = np.isfinite(phases)
    has_phases = finite[1:].any(axis=0)
    used = finite.sum(axis=2, where=has_phases) * 2 > has_phases.sum(axis=1)
    whole = ((finite | ~used[:, :, None]).all(axis=0) & has_phases).all(axis=0)
    kept = phases[:, :, whole] if not whole.all() else phases
    wall = iter_ms[:, whole]
    return RankWork(
        ranks=ranks,
        steps=numbers[whole],
        phases={name: np.where(used[at][:, None], kept[at], 0.0) for at, name in enumerate(NAMES) if used[at].any()},
        shared=tuple(name for at, name in enumerate(NAMES) if used[at].all()),
        iter_ms=wall if wall.size and np.isfinite(wall).all() else None,
    )


def synchronising_phase(work: RankWork) -> str | None:
    """The phase in which ranks wait for one another; None where two are as likely, or none is shared."""
    deviation = {name: values - values.mean(axis=0) for name, values in work.phases.items()}
    usual = [name for name in USUAL if name in work.shared]
    found = _bwd_or_step(work, deviation) if len(usual) == 2 else usual[0] if usual else None
    if len(usual) == 2 and found is None:
        return None
    unusual = [name for name in UNUSUAL if name in work.shared]
    varies = {name: float(np.square(deviation[name]).mean()) for name in (*usual, *unusual)}
    other = max(unusual, key=lambda name: varies[name], default=None)
    if other is None or (found is not None and varies[found] * CLEARLY_MORE >= varies[other]):
        return found
    return other


def _bwd_or_step(work: RankWork, deviation: dict[str, Floats]) -> str | None:
    """`bwd` or `step`: by the noise, else the one that differs more between ranks, else the one with one low outlier."""
    noise = {name: values - values.mean(axis=1, keepdims=True) for name, values in deviation.items()}
    pairs = _pairs(work.steps)
    bwd, step = (_fit_error(noise, name, pairs) for name in USUAL)
    surplus = step - bwd
    error = float(surplus.std()) / math.sqrt(len(surplus))
    mean = float(surplus.mean())
    if abs(mean) > SURE_T * error:
        return "bwd" if mean > 0 else "step"
    return _by_level(*(deviation[name].mean(axis=1) for name in USUAL))


def _pairs(steps: Ints) -> tuple[Columns, Columns] | None:
    """Steps and their previous steps; None where there are too few."""
    before = np.flatnonzero(np.diff(steps) == 1)
    if len(before) < MIN_PAIRS:
        return None
    # Where all steps are consecutive, as in a clean run, a slice copies nothing.
    return (slice(1, None), slice(None, -1)) if len(before) == len(steps) - 1 else (before + 1, before)


def _fit_error(noise: dict[str, Floats], phase: str, pairs: tuple[Columns, Columns] | None) -> Floats:
    """How badly the noise fits ranks that synchronise at the end of `phase`, by step: the variance of a rank's time between two
    synchronisations, less that of the phase. In the right phase, waiting makes up for the other phases and nothing is left."""
    if pairs is None:
        return -_square_means(noise[phase])
    now, before = pairs
    names = list(noise)
    end = names.index(phase) + 1
    left = sum((noise[name][:, now] for name in names[:end]), start=np.zeros(()))
    left = sum((noise[name][:, before] for name in names[end:]), start=left)
    return _square_means(left) - _square_means(noise[phase][:, now])


def _square_means(values: Floats) -> Floats:
    """The mean square over the ranks, by step."""
    return np.asarray(np.einsum("rs,rs->s", values, values) / len(values))


def _by_level(bwd: Floats, step: Floats) -> str | None:
    """The phase by the ranks' means alone; with two ranks it is unknown which of them waits where both phases differ."""
    varies_bwd, varies_step = float(np.square(bwd).sum()), float(np.square(step).sum())
    if varies_bwd >= varies_step * CLEARLY_MORE or varies_step == 0:
        return "bwd"
    if varies_step >= varies_bwd * CLEARLY_MORE:
        return "step"
    if len(bwd) == 2:
        return None
    return "bwd" if -bwd.min() - bwd.max() >= -step.min() - step.max() else "step"
