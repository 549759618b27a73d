"""Groups: runs of one configuration on one kind of machine, aggregated; and whether two groups may be compared.

In: measured runs and the baseline's name. Out: one `GroupSummary` for each group key, with our figures as estimates and stage 1's group
columns by their rules. Only current attempts that ended ok under the newest conditions count: runs with another driver, GPU, commit or
effective setting are set aside with a caution, never averaged.

Also, for two `ComparedGroup`s: why they must not be compared (the same runs, different machines, debug settings in one only), and how their
settings and code differ. Whether they did the same work: analyse.comparable.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from seatrial.analyse.confounding import NO_EFFECT, confounding, refusal, without_effect
from seatrial.analyse.stability import group_stability
from seatrial.analyse.statistics import estimate
from seatrial.analyse.work_settings import run_work_settings, typed_settings
from seatrial.core.text import MAX_IN_PASSING, count, join_names
from seatrial.machine.provenance import fingerprint_differences
from seatrial.machine.secrets import mask
from seatrial.records.caution import Caution, Scalar
from seatrial.records.columns import GROUP_STAGE1
from seatrial.records.comparison import ComparedGroup, Mismatch
from seatrial.records.figures import ITER_P50, MEASURED, STABILITY_SCORE
from seatrial.records.measure import WORLD_SIZE, EffectiveSetting, Estimate, GroupSummary, setting_text
from seatrial.records.outcome import Fault, Outcome
from seatrial.records.plan import SENTINEL
from seatrial.records.results import MeasuredRun, runs_that_may_have_failed
from seatrial.records.run_table import config_cells, qualified_name
from seatrial.records.signatures.registry import fault_of

TYPED_WORK = ("samples_per_step", "tokens_per_step")
CONFIG_COLUMNS = GROUP_STAGE1[GROUP_STAGE1.index("zero_stage") : GROUP_STAGE1.index("git_dirty") + 1]
MIXED = "mixed"
# Settings whose value is a level; the value of others is a path, an id or a list of names.
DEBUG_WITH_LEVELS = ("NCCL_DEBUG", "TORCH_DISTRIBUTED_DEBUG")
NOT_COMPARED = ("host", "hosts", "gpu_uuid", "gpu_uuids")
"""Facts that differ between two machines of one kind."""
SIZE_SETTINGS = frozenset(
    {
        "place.ranks",
        "place.nodes",
        "ranks",
        "world_size",
        "nproc_per_node",
        "num_processes",
        "num_gpus",
        "env.WORLD_SIZE",
        "env.CUDA_VISIBLE_DEVICES",
    }
)
"""Names of settings for the number of ranks, and of those that go with it."""
MAX_CHANGES = 6
LONGEST_VALUE = 24

Changes = Mapping[str, tuple[str, str]]
"""By name: the value in A and in B."""


def summarise_groups(runs: Sequence[MeasuredRun], baseline_group: str, *, allow_confounded: bool = False) -> tuple[GroupSummary, ...]:
    """Every group of the current attempts, in the order in which they first appear."""
    by_key: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        if run.attempt.current:
            by_key.setdefault(run.attempt.spec.key, []).append(run)
    names = _names(by_key)
    failed = Counter(run.attempt.spec.hash for run in runs if not run.attempt.current and _failed_itself(run))
    groups = [_summary(names[key], members, failed) for key, members in by_key.items()]
    return _with_stage1_ranks(_with_speedup(groups, baseline_group, allow_confounded=allow_confounded))


def _names(by_key: dict[str, list[MeasuredRun]]) -> dict[str, str]:
    """The plans' names, made unique by digits of the key where two configurations share one."""
    plain = {key: members[0].attempt.spec.group for key, members in by_key.items()}
    uses = Counter(plain.values())
    return {key: name if uses[name] == 1 else qualified_name(name, key) for key, name in plain.items()}


def _summary(name: str, members: list[MeasuredRun], failed_before: Mapping[str, int]) -> GroupSummary:
    spec = members[0].attempt.spec
    counted, aside = _newest_conditions([run for run in members if run.outcome is Outcome.OK])
    windows = [run.measure.window for run in counted if run.measure and run.measure.window]
    retried = sum(failed_before.get(run.attempt.spec.hash, 0) for run in members)
    described = counted or members
    return GroupSummary(
        group=name,
        group_key=spec.key,
        mode=spec.mode,
        lane=spec.lane,
        axes=dict(spec.axes),
        runs=len(counted),
        failed_runs=sum(map(_failed_itself, members)),
        infrastructure_failures=tuple(
            f"{run.attempt.spec.run} ({run.attempt.outcome.cause.value})"
            for run in members
            if run.attempt.outcome and _platform_failed(run)
        ),
        world_size=max(described, key=_started_t).world_size,
        # A mean over different numbers of ranks belongs to none of them.
        ranks_known=len({run.world_size for run in described}) == 1 and all(run.measure.ranks_known for run in described if run.measure),
        failed_attempts=retried,
        set_aside_runs=len(aside),
        may_have_failed=len(runs_that_may_have_failed(counted)),
        broken_losses=sum(run.measure is not None and run.measure.loss_finite is False for run in counted),
        unsteady_runs=sum(not window.steady for window in windows),
        counted=tuple(run.attempt.spec.run for run in counted),
        fingerprint=counted[0].attempt.provenance.fingerprint if counted else "",
        figures=_figures(counted),
        window_n=sum(window.n for window in windows),
        stability=group_stability(counted),
        debug=tuple(sorted({f"{one.name}={one.value}" for run in counted if run.measure for one in run.measure.debug if not one.varied})),
        stage1={"group": name, "mode": spec.mode, "runs": len(counted), **stage1_group_cells(described, counted)},
        cautions=(*_set_aside(name, counted, aside), *_retried(name, retried), *_changed_tree(name, counted)),
        work=run_work_settings(spec),
        typed_work={name: value for name in TYPED_WORK if (value := getattr(spec.workload, name)) is not None},
        declares_work=spec.workload.module is not None,
        effective_settings=_effective_settings(counted[0]) if counted else (),
        requested=_requested(described[0]),
    )


def _failed_itself(run: MeasuredRun) -> bool:
    """Whether a failure counts against the group."""
    return run.outcome is not None and run.outcome.is_failure and not _platform_failed(run)


def _platform_failed(run: MeasuredRun) -> bool:
    """Whether a failure is not the fault of the group's settings."""
    outcome = run.attempt.outcome
    return outcome is not None and outcome.outcome.is_failure and fault_of(outcome) is Fault.INFRASTRUCTURE


def _newest_conditions(ok: list[MeasuredRun]) -> tuple[list[MeasuredRun], list[MeasuredRun]]:
    """Runs under the newest conditions, and the others. A run without provenance does not set the conditions where others have it."""
    if not ok:
        return [], []
    known = [run for run in ok if run.attempt.provenance.fingerprint]
    newest = _conditions(max(known or ok, key=_started_t))
    return [run for run in ok if _conditions(run) == newest], [run for run in ok if _conditions(run) != newest]


def _started_t(run: MeasuredRun) -> float:
    return run.attempt.outcome.started_t if run.attempt.outcome else 0.0


def _conditions(run: MeasuredRun) -> tuple[str, dict[str, str]]:
    return run.attempt.provenance.fingerprint, _effective(run)


def _effective(run: MeasuredRun) -> dict[str, str]:
    return {name: one.effective_text for name, one in run.measure.effective.items()} if run.measure else {}


def _effective_settings(run: MeasuredRun) -> tuple[EffectiveSetting, ...]:
    """The settings as the workload reported them, the same in all counted runs of a group."""
    if run.measure is None:
        return ()
    workload = run.attempt.spec.workload
    return tuple(
        replace(
            one,
            requested=_masked_text(name, one.requested),
            effective=_masked_text(name, one.effective),
            reason=_masked(name, one.reason),
            follows=tuple(dict.fromkeys((*workload.follows.get(name, ()), *one.follows))),
            alike_by=workload.alike_by.get(name, ""),
        )
        for name, one in run.measure.effective.items()
    )


def _requested(run: MeasuredRun) -> dict[str, str]:
    """Options of a script, settings, axes except bundles (their settings are included), variables of the plan, the number of ranks."""
    spec = run.attempt.spec
    axes = {name: value for name, value in spec.axes.items() if spec.labels.get(name) != ""}
    settings = {**typed_settings(spec.workload.args, spec.env), **spec.settings, **axes}
    found = {name: _masked_text(name, value) for name, value in settings.items()}
    found |= {f"env.{name}": _masked(name, value) for name, value in spec.env.items()}
    found |= {WORLD_SIZE: str(run.world_size)}
    # A folder or a file that is named after the run differs in all of them.
    return {name: value.replace(spec.run, "{run}") for name, value in found.items()}


def _masked_text(name: str, value: Scalar) -> str:
    """A value in one spelling: a script that reports 1.0 where 1 was requested got what was requested."""
    return _masked(name, setting_text(value))


# Most settings are the same in all groups, and masking them again for a thousand groups would take longer than ranking.
_masked = lru_cache(maxsize=4096)(mask)


def _figures(counted: list[MeasuredRun]) -> dict[str, Estimate]:
    """The means; a figure that some run lacks is left out, since its mean would not be of `runs` runs."""
    figures = {}
    for name in MEASURED:
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
        text=f"{count(len(aside), 'run')} ran under different conditions and {'was' if len(aside) == 1 else 'were'} not averaged. "
        f"Different: {what}. To count such a run, remove its folder and run the same command.",
    )


def _retried(name: str, failed_attempts: int) -> Iterator[Caution]:
    if failed_attempts:
        yield Caution(
            kind="retried",
            subject=name,
            numbers={"failed_attempts": failed_attempts},
            text=f"{count(failed_attempts, 'earlier attempt')} of its runs failed before one ended ok: a configuration that fails now and "
            "then is not safe to train with. run_manifest.tsv lists each attempt and its cause.",
        )


def _changed_tree(name: str, counted: list[MeasuredRun]) -> Iterator[Caution]:
    if len({run.attempt.provenance.git_dirty for run in counted}) > 1:
        yield Caution(
            kind="changed_tree",
            subject=name,
            text="Only some of its runs ran with uncommitted changes, so they may not have run the same code: commit, and run them again.",
        )


def _differences(old: MeasuredRun, new: MeasuredRun) -> list[str]:
    before, after = _effective(old), _effective(new)
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    changed = [f"{name} ({before.get(name) or 'none'} → {after.get(name) or 'none'})" for name in names]
    machines = fingerprint_differences(old.attempt.provenance, new.attempt.provenance)
    return [*_change_texts({name: (str(one), str(other)) for name, (one, other) in machines.items()}), *changed]


def _with_speedup(groups: list[GroupSummary], baseline_group: str, *, allow_confounded: bool) -> list[GroupSummary]:
    """Fill `speedup_vs_baseline`: the baseline's tail iter p50 over the group's. It stays empty, with a caution, for groups that ran the
    same as the baseline or are confounded with it."""
    baseline = next((group for group in groups if group.group == baseline_group), None)
    if baseline is None:
        return [replace(group, stage1={**group.stage1, "speedup_vs_baseline": None}) for group in groups]
    filled = []
    for group in groups:
        one, own = baseline.stage1[ITER_P50], group.stage1[ITER_P50]
        speedup = one / own if isinstance(one, float) and isinstance(own, float) and own > 0 else None
        cautions = list(group.cautions)
        if speedup and group is not baseline and (found := without_effect(baseline, group) or confounding(baseline, group)):
            is_left_out = bool(refusal(found, allow_confounded=allow_confounded))
            speedup = None if is_left_out else speedup
            cautions.append(_speedup_caution(group.group, baseline_group, found, is_left_out=is_left_out))
        filled.append(replace(group, stage1={**group.stage1, "speedup_vs_baseline": speedup}, cautions=tuple(cautions)))
    return filled


def _speedup_caution(group: str, baseline: str, found: Mismatch, *, is_left_out: bool) -> Caution:
    why = f"confounded with the baseline {baseline} by {found.setting}"
    if found.kind == NO_EFFECT:
        why = f"{found.setting} had no effect, the baseline {baseline} ran the same"
    text = f"speedup_vs_baseline is empty: {why}." if is_left_out else f"speedup_vs_baseline was allowed: it is {why}."
    return Caution(kind="unlike_baseline", subject=group, numbers={"settings": found.setting}, text=text)


def stage1_group_cells(described: Sequence[MeasuredRun], counted: Sequence[MeasuredRun]) -> dict[str, Scalar]:
    """Stage 1's group columns: configuration from `described` (all runs where none counts), numbers from `counted`."""
    configs = [_config(run) for run in described]
    own = configs if counted is described else [_config(run) for run in counted]
    cells: dict[str, Scalar] = dict.fromkeys(GROUP_STAGE1)
    for name in CONFIG_COLUMNS:
        values = [config.get(name) for config in configs]
        cells[name] = values[0] if all(value == values[0] for value in values) else MIXED
    of_runs = [config | (run.measure.stage1 if run.measure else {}) for config, run in zip(own, counted, strict=True)]
    # Such a column is the mean, deviation, lowest or highest of the per-run column without the suffix.
    for ending, statistic in (("_mean", statistics.fmean), ("_std", _std), ("_min", min), ("_max", max)):
        for column in (column for column in GROUP_STAGE1 if column.endswith(ending)):
            cells_of_runs = [cell_number(cells_of_run.get(column.removesuffix(ending))) for cells_of_run in of_runs]
            numbers = [value for value in cells_of_runs if value is not None and math.isfinite(value)]
            cells[column] = statistic(numbers) if numbers else None
    for kind in ("gpu", "host"):
        cells[f"{kind}_telemetry_empty_count"], cells[f"{kind}_telemetry_empty_ratio"] = _share(of_runs, f"{kind}_telemetry_empty_flag")
    cells["unstable_run_count"], cells["unstable_run_ratio"] = _share(of_runs, "unstable_run_flag")
    cells[STABILITY_SCORE] = _stability_score(cells)
    return {name: cells[name] for name in GROUP_STAGE1 if name not in ("group", "mode", "runs")}


def _config(run: MeasuredRun) -> dict[str, Scalar]:
    measure = run.measure
    return config_cells(
        run.attempt.spec,
        run.attempt.provenance,
        measure.effective if measure else {},
        measure.world_size if measure else None,
        run.attempt.telemetry,
    )


def _std(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _share(per_run: Sequence[dict[str, Scalar]], flag: str) -> tuple[int | None, float | None]:
    """How many runs have the flag set, and their share of those that have it at all."""
    known = [cells[flag] for cells in per_run if cells.get(flag) is not None]
    count = sum(value is True for value in known)
    return (count, count / len(known)) if known else (None, None)


def _stability_score(cells: dict[str, Scalar]) -> float | None:
    """p90 over p50 of the tail means, worsened by the share of unstable runs; lower is better."""
    p50, p90, unstable = cells[ITER_P50], cells["tail_mean_iter_p90_ms_mean"], cells["unstable_run_ratio"]
    if not isinstance(p50, float) or not isinstance(p90, float) or p50 <= 0:
        return None
    return p90 / p50 * (1 + (unstable if isinstance(unstable, float) else 0.0))


def _with_stage1_ranks(groups: Sequence[GroupSummary]) -> tuple[GroupSummary, ...]:
    """The groups with stage 1's rank columns filled: by iter p50, by stability (tie: iter), and by the sum of both (tie: iter)."""
    main = [group for group in groups if group.lane]
    off_lane = [group for group in groups if not group.lane and group.mode != SENTINEL]
    ranked = {group.group: group for lane in (main, off_lane) for group in _with_lane_ranks(lane)}
    return tuple(ranked.get(group.group, group) for group in groups)


def _with_lane_ranks(groups: Sequence[GroupSummary]) -> tuple[GroupSummary, ...]:
    by_iter = _rank_positions({group.group: (cell_number(group.stage1.get(ITER_P50)),) for group in groups})
    by_stability = _rank_positions(
        {group.group: (cell_number(group.stage1.get(STABILITY_SCORE)), cell_number(group.stage1.get(ITER_P50))) for group in groups}
    )
    sums = {name: (float(by_iter[name] + by_stability[name]), float(by_iter[name])) for name in by_iter if name in by_stability}
    balanced = _rank_positions(sums)
    return tuple(
        replace(
            group,
            stage1={
                **group.stage1,
                "rank_by_iter_p50": by_iter.get(group.group),
                "rank_by_stability": by_stability.get(group.group),
                "rank_balanced": balanced.get(group.group),
            },
        )
        for group in groups
    )


def _rank_positions(keys: Mapping[str, tuple[float | None, ...]]) -> dict[str, int]:
    """The position of every group whose keys are all known, lowest first."""
    known = sorted((key, name) for name, key in keys.items() if None not in key)
    return {name: position for position, (_, name) in enumerate(known, start=1)}


def cell_number(cell: Scalar) -> float | None:
    """A cell as a number; None for anything else."""
    return float(cell) if isinstance(cell, (int, float)) and not isinstance(cell, bool) else None


def why_not_comparable(a: ComparedGroup, b: ComparedGroup, *, across: bool = False) -> str:
    """Why the two must not be compared, and what to do; empty where they may be. `across` allows different machines."""
    # One may be a copy of the other's campaign, or a row of history computed from it.
    known = {run.identity for run in a.runs}
    shared = [run.run for run in b.runs if run.identity in known]
    if shared:
        which = "are the same runs" if len(shared) == len(a.runs) == len(b.runs) else "have runs in common"
        return f"{a.name} and {b.name} {which} ({join_names(shared, MAX_IN_PASSING)}); name two that were measured separately"
    if debug_levels(a.debug) != debug_levels(b.debug):
        return (
            f"{a.name} and {b.name} were measured with different debug settings: {a.name} has {settings_text(a.debug)}, {b.name} has "
            f"{settings_text(b.debug)}; run both without them, or both with the same"
        )
    machines = machine_differences(a, b)
    if machines and not across:
        where = f"{a.name} and {b.name} ran on different machines: {changes_text(machines)}"
        return f"{where}; run both on one machine, or compare them anyway with --across"
    return ""


def debug_levels(debug: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Debug settings as groups record them (`NCCL_DEBUG=INFO`), by name, with the level of those that have one: two traces into two files
    are the same setting."""
    parts = [text.partition("=") for text in debug]
    return frozenset((name, value.strip().lower() if name in DEBUG_WITH_LEVELS else "") for name, _, value in parts)


def machine_differences(a: ComparedGroup, b: ComparedGroup) -> dict[str, tuple[str, str]]:
    """Facts of the machines that are known for both and differ."""
    return {name: (a.machine[name], b.machine[name]) for name in a.machine if name in b.machine and a.machine[name] != b.machine[name]}


def machine_problem(groups: Sequence[ComparedGroup]) -> str:
    """Why the groups must not be compared; empty where they may be. More ranks may be more hosts of one kind."""
    for group in groups[1:]:
        before, after = compared_facts(groups[0].machine), compared_facts(group.machine)
        differing = [f"{name} ({before[name]} → {after[name]})" for name in before if name in after and before[name] != after[name]]
        if differing:
            return (
                f"{groups[0].name} and {group.name} ran on different machines: {join_names(differing)}; run all on machines of one kind, "
                "or compare them anyway with --across"
            )
    return ""


def compared_facts(machine: Mapping[str, str]) -> dict[str, str]:
    """Facts that two machines of one kind share."""
    return {name: value for name, value in machine.items() if name not in NOT_COMPARED}


def own_settings(group: ComparedGroup) -> dict[str, str]:
    """Its settings except the number of ranks."""
    return {name: value for name, value in group.settings.items() if name not in SIZE_SETTINGS}


def differences(a: ComparedGroup, b: ComparedGroup) -> tuple[str, ...]:
    """Settings in effect, then code: `micro_batch (8 → 16)`. The requested value counts where the effective one is unknown."""
    changes: dict[str, tuple[str, str]] = {}
    reported = {*a.effective} & {*b.effective}
    for before, after in ((a.settings, b.settings), (a.effective, b.effective), (a.code, b.code)):
        for name in dict.fromkeys([*before, *after]):
            is_known_otherwise = before is a.settings and name in reported
            values = setting_text(before.get(name, "")), setting_text(after.get(name, ""))
            if values[0] != values[1] and not is_known_otherwise:
                changes.setdefault(name, values)
    return tuple(_change_texts(changes))


def _change_texts(changes: Changes) -> list[str]:
    return [f"{name} ({before[:LONGEST_VALUE] or 'none'} → {after[:LONGEST_VALUE] or 'none'})" for name, (before, after) in changes.items()]


def changes_text(changes: Changes) -> str:
    return join_names(_change_texts(changes), MAX_CHANGES)


def settings_text(settings: tuple[str, ...]) -> str:
    return ", ".join(sorted(settings)) or "none"
