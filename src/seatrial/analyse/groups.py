"""Groups: runs of one configuration on one kind of machine, put together.

In: measured runs and the baseline's name. Out: one `GroupSummary` for each group key, with our figures as estimates and the seeds'
columns by their rules. Only current attempts count, only those that ended ok, and only those made under the newest conditions: runs
on another driver, GPU or commit, or whose settings came to something else on the node, are set aside and said, never averaged in.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from seatrial.analyse.interval import estimate
from seatrial.analyse.rank import with_seed_ranks
from seatrial.analyse.seed_groups import seed_group_cells
from seatrial.analyse.stability import group_stability
from seatrial.machine.fingerprint import parted_by
from seatrial.records.attempt import Attempt
from seatrial.records.caution import Caution
from seatrial.records.command import Provenance
from seatrial.records.measure import Estimate, GroupSummary
from seatrial.records.outcome import Fault, Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.run_spec import Scalar
from seatrial.run_table.told_apart import told_apart
from seatrial.signatures.registry import fault_of

FIGURES = ("samples_per_s", "tokens_per_s", "steps_per_s", "wall_p50_ms", "wall_p90_over_p50", "startup_s", "duration_s")


def summarise(runs: Sequence[MeasuredRun], baseline_group: str) -> tuple[GroupSummary, ...]:
    """Every group of the current attempts, in the order in which they first appear."""
    by_key: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        if run.attempt.current:
            by_key.setdefault(_key(run.attempt), []).append(run)
    names = _names(by_key)
    failed = Counter(run.attempt.spec.hash for run in runs if not run.attempt.current and _failed_itself(run))
    groups = [_summary(names[key], members, failed) for key, members in by_key.items()]
    return with_seed_ranks(_with_speedup(groups, baseline_group))


def _key(attempt: Attempt) -> str:
    return attempt.spec.key


def _names(by_key: dict[str, list[MeasuredRun]]) -> dict[str, str]:
    """The plans' names, made unique by digits of the key where two configurations carry one name."""
    plain = {key: members[0].attempt.spec.group for key, members in by_key.items()}
    uses = Counter(plain.values())
    return {key: name if uses[name] == 1 else told_apart(name, key) for key, name in plain.items()}


def _summary(name: str, members: list[MeasuredRun], failed_before: Mapping[str, int]) -> GroupSummary:
    spec = members[0].attempt.spec
    counted, aside = _alike([run for run in members if run.outcome is Outcome.OK])
    windows = [run.measure.window for run in counted if run.measure and run.measure.window]
    retried = sum(failed_before.get(run.attempt.spec.hash, 0) for run in members)
    return GroupSummary(
        group=name,
        group_key=_key(members[0].attempt),
        mode=spec.mode,
        lane=spec.lane,
        axes=dict(spec.axes),
        runs=len(counted),
        failed_runs=sum(map(_failed_itself, members)),
        infrastructure_failures=tuple(_with_cause(run) for run in members if _platform_failed(run)),
        failed_attempts=retried,
        set_aside_runs=len(aside),
        broken_losses=sum(run.measure is not None and run.measure.loss_finite is False for run in counted),
        unsteady_runs=sum(not window.steady for window in windows),
        counted=tuple(run.attempt.spec.run for run in counted),
        fingerprint=counted[0].attempt.provenance.fingerprint if counted else "",
        figures=_figures(counted),
        window_n=sum(window.n for window in windows),
        stability=group_stability(counted),
        debug=tuple(sorted({f"{one.name}={one.value}" for run in counted if run.measure for one in run.measure.debug if not one.varied})),
        seed={"group": name, "mode": spec.mode, "runs": len(counted), **seed_group_cells(counted or members, counted)},
        cautions=(*_set_aside(name, counted, aside), *_retried(name, retried), *_changed_tree(name, counted)),
    )


def _failed_itself(run: MeasuredRun) -> bool:
    """A bad end that weighs on the group."""
    return run.outcome is not None and run.outcome.is_failure and not _platform_failed(run)


def _platform_failed(run: MeasuredRun) -> bool:
    """A bad end that is no fault of the group's settings."""
    outcome = run.attempt.outcome
    return outcome is not None and outcome.outcome.is_failure and fault_of(outcome) is Fault.INFRASTRUCTURE


def _with_cause(run: MeasuredRun) -> str:
    outcome = run.attempt.outcome
    return f"{run.attempt.spec.run} ({outcome.cause.value})" if outcome else run.attempt.spec.run


def _alike(ok: list[MeasuredRun]) -> tuple[list[MeasuredRun], list[MeasuredRun]]:
    """Runs made under the newest conditions, and the others. A run whose provenance was lost decides nothing for those that have it."""
    if not ok:
        return [], []
    known = [run for run in ok if run.attempt.provenance.fingerprint]
    newest = _conditions(max(known or ok, key=_started_t))
    return [run for run in ok if _conditions(run) == newest], [run for run in ok if _conditions(run) != newest]


def _conditions(run: MeasuredRun) -> tuple[str, dict[str, Scalar]]:
    return run.attempt.provenance.fingerprint, _effective(run)


def _effective(run: MeasuredRun) -> dict[str, Scalar]:
    """What the settings came to on the node."""
    return {name: effective for name, (_, effective, _) in run.measure.effective.items()} if run.measure else {}


def _started_t(run: MeasuredRun) -> float:
    return run.attempt.outcome.started_t if run.attempt.outcome else 0.0


def _figures(counted: list[MeasuredRun]) -> dict[str, Estimate]:
    """A figure that some run lacks is not given for the rest of them: the mean would be of other runs than `runs` says."""
    figures = {}
    for name in FIGURES:
        values = [getattr(run.measure, name) if run.measure else None for run in counted]
        found = estimate(values) if None not in values else None
        if found is not None:
            figures[name] = found
    return figures


def _set_aside(name: str, counted: list[MeasuredRun], aside: list[MeasuredRun]) -> Iterator[Caution]:
    if not aside:
        return
    differing = sorted({what for run in aside for what in _differences(run, counted[0])})
    what = ", ".join(differing) if differing else "the machine's fingerprint"
    yield Caution(
        kind="unlike_runs",
        subject=name,
        numbers={"set_aside": len(aside)},
        text=f"{_runs_were(len(aside))} made under other conditions and not averaged with the newest; "
        f"what differs: {what}. To have them counted, remove their folders and run the same command.",
    )


def _runs_were(count: int) -> str:
    return "1 run was" if count == 1 else f"{count} runs were"


def _retried(name: str, failed_attempts: int) -> Iterator[Caution]:
    if failed_attempts:
        times = "attempt" if failed_attempts == 1 else "attempts"
        yield Caution(
            kind="retried",
            subject=name,
            numbers={"failed_attempts": failed_attempts},
            text=f"{failed_attempts} earlier {times} of its runs failed before they ended ok: a configuration that fails now and then is "
            "not safe to train with. run_manifest.tsv has each attempt and its cause.",
        )


def _changed_tree(name: str, counted: list[MeasuredRun]) -> Iterator[Caution]:
    if len({run.attempt.provenance.git_dirty for run in counted}) > 1:
        yield Caution(
            kind="changed_tree",
            subject=name,
            text="Some of its runs were made with uncommitted changes in the working tree and some without, so they may not have run the "
            "same code; commit, and run them again.",
        )


def _differences(old: MeasuredRun, new: MeasuredRun) -> list[str]:
    before, after = _effective(old), _effective(new)
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    told = [f"{name} ({before.get(name, 'none')} → {after.get(name, 'none')})" for name in names]
    return [*differences(old.attempt.provenance, new.attempt.provenance), *told]


def differences(old: Provenance, new: Provenance) -> list[str]:
    """What parts two machines or codes, in words: `driver_version (550.54 → 560.28)`."""
    return [f"{name} ({_short(before)} → {_short(after)})" for name, (before, after) in parted_by(old, new).items()]


def _short(value: object) -> str:
    return str(value)[:24] or "none"


def _with_speedup(groups: list[GroupSummary], baseline_group: str) -> list[GroupSummary]:
    """Fill `speedup_vs_baseline`: the baseline's tail iter p50 over the group's."""
    column = "tail_mean_iter_p50_ms_mean"
    baseline = next((group.seed[column] for group in groups if group.group == baseline_group), None)
    filled = []
    for group in groups:
        own = group.seed[column]
        speedup = baseline / own if isinstance(baseline, float) and isinstance(own, float) and own > 0 else None
        filled.append(dataclasses.replace(group, seed={**group.seed, "speedup_vs_baseline": speedup}))
    return filled
