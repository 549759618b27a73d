"""Which groups are compared: from the names on the command line to pairs of groups.

In: names, and the campaign of `--in`. Out: `ComparedGroup`s, and `Pairs` of baseline and candidate with the number of comparisons they
were chosen from. A name is `OUT:GROUP`, `OUT` (its only group, else the recommended one), `GROUP` where a campaign is named beside it,
`history:NAME`, or the NAME of a pinned row of history.

    OUT:a OUT:b …     each against the first; likewise groups `a b …` with --in OUT or after a single OUT
    OUT               every group against the plan's baseline, else against the recommended group
    OUT b             the plan's baseline, else the recommended group, and b
    OUT1 OUT2         groups of one name against each other where both have several, else the recommended ones against each other
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from seatrial.analyse.work_settings import other_arguments, typed_settings
from seatrial.core.errors import CampaignError, RefusedError, UsageError, did_you_mean
from seatrial.core.text import SHORT_HASH_DIGITS
from seatrial.history.rows import history_path, read_history
from seatrial.machine.provenance import fingerprint_facts
from seatrial.machine.secrets import mask, mask_argv
from seatrial.records.caution import Scalar
from seatrial.records.comparison import ComparedGroup, ComparedRun
from seatrial.records.figures import MEASURED
from seatrial.records.measure import GroupFacts, GroupSummary, setting_text
from seatrial.records.plan import SENTINEL, CampaignPlan, RunSpec
from seatrial.records.results import GroupedCampaign, MeasuredRun
from seatrial.results.gather import read_campaign_at

HISTORY_PREFIX = "history:"
ARGUMENTS = "arguments"
# The rest of the fingerprint is the code: commit, packages, Python, tuning variables.
MACHINE_FACTS = ("host", "platform", "cpu", "cpu_count", "container", "gpu_name", "gpu_cc", "gpu_power_limit_w", "driver_version")
NO_GPU_FACTS = ("gpu_name", "driver_version")
DEFAULT_BASELINE = CampaignPlan.baseline


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The pairs to compare."""

    pairs: tuple[tuple[ComparedGroup, ComparedGroup], ...]
    """Baseline and candidate."""
    family: int | None = None
    """The number of comparisons these were picked from by their figures: a recommended group is the best of many."""
    note: str = ""
    """How the baseline was chosen where it was not named."""


def resolve_pairs(
    names: Sequence[str], *, inside: Path | None = None, history: Path | None = None, known: Mapping[Path, GroupedCampaign] | None = None
) -> Pairs:
    """The pairs that the names mean. `known` are campaigns that were read already, by folder."""
    resolver = Resolver(inside=inside, history=history, known=known)
    folders = [_whole_campaign(name) for name in names]
    if not names and inside is not None:
        return _all_groups(resolver, inside)
    if len(names) == 1 and folders[0] is not None:
        return _all_groups(resolver, folders[0])
    if len(names) == 2 and folders[0] is not None and folders[1] is not None:
        return _two_campaigns(resolver, folders[0], folders[1])
    # Only group names after the folder.
    if folders and folders[0] and not any(split_name(name)[0] or name.startswith(HISTORY_PREFIX) for name in names[1:]):
        resolver.inside = folders[0]
        return _groups_of(resolver, folders[0], names[1:])
    groups = [resolver.group(name) for name in names]
    if len(groups) < 2:
        raise UsageError("a comparison needs two names: OUT:GROUP, OUT or history:NAME; or one campaign for all its groups")
    return _against_first(groups, [len(comparable_groups(resolver.campaign(folder))) if folder else 1 for folder in folders])


def resolve_scaling(names: Sequence[str], *, inside: Path | None = None, history: Path | None = None) -> list[ComparedGroup]:
    """Every group of `--scaling`; for a single campaign all its groups."""
    resolver = Resolver(inside=inside, history=history)
    alone = _whole_campaign(names[0]) if len(names) == 1 else None if names else inside
    if alone is not None:
        campaign = resolver.campaign(alone)
        return [compared_group(campaign, group) for group in comparable_groups(campaign)]
    return [resolver.group(name) for name in names]


class Resolver:
    """Resolves names; reads each campaign once, however many names need it."""

    def __init__(
        self, *, inside: Path | None = None, history: Path | None = None, known: Mapping[Path, GroupedCampaign] | None = None
    ) -> None:
        self.inside = inside
        self.history = history_path(history)
        self._read: dict[Path, GroupedCampaign] = {folder.resolve(): campaign for folder, campaign in (known or {}).items()}

    def campaign(self, folder: Path) -> GroupedCampaign:
        """The campaign in a folder."""
        key = folder.resolve()
        if key not in self._read:
            self._read[key] = read_campaign_at(folder)
        return self._read[key]

    def group(self, name: str) -> ComparedGroup:
        """The group of a name; a UsageError with the nearest names where there is none."""
        folder, group = split_name(name)
        if folder is not None:
            self.inside = self.inside or folder
            return compared_group(self.campaign(folder), group, full_name(folder, group)) if group else self.best_of(folder)
        if self.inside is not None and not name.startswith(HISTORY_PREFIX):
            campaign = self.campaign(self.inside)
            if any(one.group == name for one in campaign.groups):
                return compared_group(campaign, name)
        return self._row(name)

    def best_of(self, folder: Path) -> ComparedGroup:
        """The only group of a campaign, else the recommended one."""
        campaign = self.campaign(folder)
        able = comparable_groups(campaign)
        chosen = able[0] if len(able) == 1 else campaign.ranking.recommended
        if chosen is None:
            why = (campaign.ranking.reason or "no run ended ok").rstrip(".")
            kind = RefusedError if able else CampaignError
            raise kind(f"{folder} recommends no group ({why}); name one: {folder}:GROUP")
        return compared_group(campaign, chosen, full_name(folder, chosen))

    def _row(self, name: str) -> ComparedGroup:
        pinned = name.removeprefix(HISTORY_PREFIX)
        history = read_history(self.history)
        row = history.pinned(pinned)
        if row is not None:
            return replace(row.compared, name=f"{HISTORY_PREFIX}{pinned}", source=f"{HISTORY_PREFIX}{pinned}")
        names = history.pinned_names
        if name.startswith(HISTORY_PREFIX):
            nothing = "no row is pinned: `seatrial history add OUT`, then `history pin ROW NAME`"
            remedy = did_you_mean(pinned, names) if names else nothing
            raise UsageError(f"no row of {self.history} is pinned as '{pinned}'{history.unreadable_clause}; {remedy}")
        if self.inside is not None:
            known = [*(group.group for group in self.campaign(self.inside).groups), *names]
            raise UsageError(f"{self.inside} has no group '{name}', and no row of history has that name; {did_you_mean(name, known)}")
        raise UsageError(
            f"'{name}' is not a campaign's folder, OUT:GROUP or a pinned row of history; name a folder that `seatrial run` wrote to, "
            "or the campaign of a group with --in OUT"
        )


def split_name(name: str) -> tuple[Path | None, str]:
    """Folder and group of `OUT:GROUP` or `OUT`; None for other names. A folder's own name may contain a colon."""
    if not name or name.startswith(HISTORY_PREFIX):
        return None, ""
    if Path(name).is_dir():
        return Path(name), ""
    before, colon, group = name.rpartition(":")
    if colon and before and Path(before).is_dir():
        return Path(before), group
    return None, ""


def full_name(folder: Path | str, group: str) -> str:
    """`OUT:GROUP` with a normalised path: `./out/` and `x/../out` are `out`."""
    return f"{os.path.normpath(folder)}:{group}"


def _whole_campaign(name: str) -> Path | None:
    folder, group = split_name(name)
    return folder if folder is not None and not group else None


def _groups_of(resolver: Resolver, folder: Path, names: Sequence[str]) -> Pairs:
    groups = [resolver.group(name) for name in names]
    if len(groups) > 1:
        return _against_first(groups, [1] * len(groups))
    campaign = resolver.campaign(folder)
    baseline, note = _baseline_of(resolver, folder)
    if baseline.group == campaign.baseline_group:
        return Pairs(pairs=((baseline, groups[0]),), note=note)
    family = len(comparable_groups(campaign)) - 1
    return Pairs(pairs=((baseline, groups[0]),), family=family, note=f"{note}{_chosen_from(family + 1, family)}")


def _all_groups(resolver: Resolver, folder: Path) -> Pairs:
    """Every group against the baseline. A recommended baseline was chosen by the figures of all groups, so all pairs of them count."""
    campaign = resolver.campaign(folder)
    groups = comparable_groups(campaign)
    if len(groups) < 2:
        raise CampaignError(f"{folder} has {len(groups) or 'no'} group{'s' * (not groups)} with counted runs: nothing to compare")
    baseline, note = _baseline_of(resolver, folder)
    pairs = tuple((baseline, compared_group(campaign, group)) for group in groups if group != baseline.group)
    if baseline.group == campaign.baseline_group:
        return Pairs(pairs=pairs, note=note)
    family = len(groups) * (len(groups) - 1) // 2
    return Pairs(pairs=pairs, family=family, note=f"{note}{_chosen_from(len(groups), family)}")


def _baseline_of(resolver: Resolver, folder: Path) -> tuple[ComparedGroup, str]:
    campaign = resolver.campaign(folder)
    if campaign.baseline_group in comparable_groups(campaign):
        return compared_group(campaign, campaign.baseline_group), f"{campaign.baseline_group} is the plan's baseline."
    best = resolver.best_of(folder)
    named = campaign.baseline_group not in ("", DEFAULT_BASELINE)
    why = f": the plan's own ('{campaign.baseline_group}') has no counted runs" if named else ""
    return compared_group(campaign, best.group), f"{best.group}, the recommended group, is the baseline{why}."


def _chosen_from(groups: int, family: int) -> str:
    """Why more comparisons count than are shown; empty where they do not."""
    return f" It was chosen from {groups} groups by their figures, so {family} pairs count for the correction." if family > 1 else ""


def _two_campaigns(resolver: Resolver, first: Path, second: Path) -> Pairs:
    campaigns = [resolver.campaign(folder) for folder in (first, second)]
    groups = [comparable_groups(campaign) for campaign in campaigns]
    shared = [group for group in groups[0] if group in groups[1]]
    if min(map(len, groups)) > 1 and shared:
        pairs = [
            (
                compared_group(campaigns[0], group, full_name(first, group)),
                compared_group(campaigns[1], group, full_name(second, group)),
            )
            for group in shared
        ]
        left = sorted({*groups[0], *groups[1]} - set(shared))
        note = f"Groups that only one of the two has are left out: {', '.join(left)}." if left else ""
        return Pairs(pairs=tuple(pairs), note=note)
    most = max(map(len, groups))
    chosen = (
        f"The recommended groups of both, chosen from {len(groups[0])} and {len(groups[1])}: {most} comparisons count for the correction."
    )
    return Pairs(pairs=((resolver.best_of(first), resolver.best_of(second)),), family=most, note=chosen if most > 1 else "")


def _against_first(groups: Sequence[ComparedGroup], picked_from: Sequence[int]) -> Pairs:
    """All groups against the first; `picked_from` is the number of groups that each was picked from."""
    family = sum(max(picked_from[0], many) for many in picked_from[1:])
    picked = [f"{group.name} from {many}" for group, many in zip(groups, picked_from, strict=True) if many > 1]
    chosen = f"Some were chosen from groups by their figures ({', '.join(picked)}): {family} comparisons count for the correction."
    return Pairs(pairs=tuple((groups[0], other) for other in groups[1:]), family=family, note=chosen if picked else "")


def comparable_groups(campaign: GroupedCampaign) -> list[str]:
    """Groups of the main lane with a counted run, or of all lanes where it has none, without the sentinel."""
    counted = [group for group in campaign.groups if group.runs and group.mode != SENTINEL]
    return [group.group for group in counted if group.lane] or [group.group for group in counted]


def compared_group(campaign: GroupedCampaign, group: str, name: str = "") -> ComparedGroup:
    """A group of a campaign with its counted runs."""
    summary = next((one for one in campaign.groups if one.group == group), None)
    if summary is None:
        raise UsageError(f"{campaign.output} has no group '{group}'; {did_you_mean(group, [one.group for one in campaign.groups])}")
    names = set(summary.counted)
    own = [run for run in campaign.runs if run.attempt.spec.key == summary.group_key]
    counted = [run for run in own if run.attempt.current and run.attempt.spec.run in names]
    planned = {run.attempt.spec.run for run in own}
    newest = max(counted, key=_ended_t, default=None)
    machine, code = _facts(newest) if newest else ({}, {})
    return ComparedGroup(
        **{one.name: getattr(summary, one.name) for one in fields(GroupFacts)},
        name=name or group,
        source=campaign.output,
        runs=tuple(map(_compared_run, counted)),
        campaign=str(Path(campaign.output).resolve()),
        nodes=max((run.measure.hosts for run in counted if run.measure), default=1),
        pending=tuple(run for run in campaign.pending if run in planned),
        machine=machine,
        code=code,
        settings=_settings(newest, summary),
        taken_t=_ended_t(newest) if newest else 0.0,
    )


def _compared_run(run: MeasuredRun) -> ComparedRun:
    measure, spec = run.measure, run.attempt.spec
    window = measure.window if measure else None
    figures = {name: getattr(measure, name, None) for name in MEASURED}
    return ComparedRun(
        run=spec.run,
        repeat=spec.repeat,
        started_t=run.attempt.outcome.started_t if run.attempt.outcome else 0.0,
        figures={name: float(value) for name, value in figures.items() if value is not None},
        steady=window.steady if window else True,
        window=window.text if window else "",
        n=window.n if window else 0,
        last_steps=measure.last_steps if measure else None,
        loss=measure.loss_course if measure else None,
    )


def _facts(run: MeasuredRun) -> tuple[dict[str, str], dict[str, str]]:
    """Machine and code. Unknown facts are left out, but where the host is known, having no GPU is a fact too."""
    provenance = run.attempt.provenance
    flat = {"script_sha256": (run.attempt.spec.script_sha256 or "")[:SHORT_HASH_DIGITS]}
    for name, value in fingerprint_facts(provenance).items():
        flat.update(value if isinstance(value, dict) else {name: ";".join(value) if isinstance(value, list) else str(value)})
    known = {name: value for name, value in flat.items() if value and value != "0"}
    machine = {name: known[name] for name in MACHINE_FACTS if name in known}
    if provenance.host:
        machine |= {name: "none" for name in NO_GPU_FACTS if name not in machine}
    return machine, {name: mask(name, value) for name, value in known.items() if name not in MACHINE_FACTS}


def _settings(run: MeasuredRun | None, summary: GroupSummary) -> dict[str, str]:
    """Fixed settings, axes, and variables that the plan adds to the environment."""
    spec = run.attempt.spec if run else None
    fixed: Mapping[str, Scalar] = spec.settings if spec else {}
    settings = {name: _masked_text(name, value) for name, value in {**fixed, **summary.axes}.items()}
    if spec and spec.workload.script:
        settings = {**_typed(spec, settings), **settings}
    return settings | {f"env.{name}": mask(name, value) for name, value in (spec.env.items() if spec else ())}


def _typed(spec: RunSpec, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings on a script's command line besides the plan's: its options, and its other arguments as one text."""
    argv = [argument.replace(spec.run, "{run}") for argument in mask_argv(spec.workload.args)]
    named = {value: f"{{{name}}}" for name, value in settings.items() if value}
    found = {name: _masked_text(name, value) for name, value in typed_settings(argv, spec.env).items()}
    found = {name: value for name, value in found.items() if value not in named}
    others = " ".join(named.get(word, word) for word in other_arguments(argv))
    return {**found, **({ARGUMENTS: others} if others else {})}


def _masked_text(name: str, value: Scalar) -> str:
    return mask(name, setting_text(value))


def _ended_t(run: MeasuredRun) -> float:
    outcome = run.attempt.outcome
    return (outcome.ended_t or outcome.started_t + outcome.duration_s) if outcome else 0.0
