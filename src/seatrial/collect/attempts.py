"""Attempts as they lie on disk.

In: a campaign's folder. Out: one `Attempt` for every attempt-N/ that can be told what it was to do, which of them are current (the
newest one that came to its own end, for every run and hash that a plan of this folder asks for), and what of the folder could not be
used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.collect.alarms import alarm_cautions
from seatrial.collect.hosts.clocks import skew_cautions
from seatrial.collect.hosts.folders import host_folders
from seatrial.collect.hosts.unlike_environment import environment_cautions
from seatrial.collect.hosts.unlike_make import unlike_cautions
from seatrial.collect.recovered import recovered_cautions
from seatrial.collect.run_oddities import left_behind, not_text
from seatrial.collect.sample_count import counted_samples
from seatrial.collect.stored import read_account, read_nodes, read_outcome, read_plan, read_record, read_spec, same_text, unusable
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Attempt
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.caution import Caution
from seatrial.records.command import Provenance
from seatrial.records.nodes import NodesRecord
from seatrial.records.outcome import Outcome
from seatrial.records.run_spec import RunSpec
from seatrial.records.telemetry import TelemetryAccount

Asked = Mapping[tuple[str, str], RunSpec]
"""What the folder's plans ask for, by run and hash."""


@dataclass(frozen=True, kw_only=True)
class StoredCampaign:
    """Everything that could be read of a folder."""

    attempts: list[Attempt]
    """By run name, then number."""
    cautions: tuple[Caution, ...] = ()
    """What could not be used and is not told by a current attempt."""


def read_campaign(paths: CampaignPaths, plans: Sequence[CampaignPlan] | None = None) -> list[Attempt]:
    """Every attempt of every run, by run name, then number; `plans` are the folder's, where they were read already."""
    return read_stored(paths, plans).attempts


def read_stored(paths: CampaignPaths, plans: Sequence[CampaignPlan] | None = None) -> StoredCampaign:
    """The same, and what of the attempts could not be used."""
    plans = read_plans(paths) if plans is None else plans
    asked = {(spec.run, spec.hash): spec for plan in plans for spec in plan.runs}
    found: list[Attempt] = []
    cautions = [*recovered_cautions(paths.folder)]
    for at in (at for run in paths.runs() for at in run.attempts()):
        attempt, why = _read_attempt(at, asked)
        if attempt is None:
            cautions.append(unusable(at.spec, why, at.run, "nothing can be said of this attempt: run the run again"))
        else:
            found.append(attempt)
    found.sort(key=lambda attempt: (attempt.spec.run, attempt.number))
    current = _current(found, set(asked) if plans or paths.plans.is_dir() else None)
    cautions += [caution for attempt in found if attempt.folder not in current for caution in attempt.cautions if caution.kind in OF_FILES]
    return StoredCampaign(
        attempts=[replace(attempt, current=attempt.folder in current) for attempt in found],
        cautions=tuple(cautions),
    )


OF_FILES = ("unreadable_file", "kept_elsewhere")
"""Of an attempt that does not count these are told all the same: it might count if the file were whole."""


@dataclass(frozen=True, kw_only=True)
class StoredPlans:
    """The plans that were run into a folder."""

    plans: list[CampaignPlan]
    """Those that can be read, the latest last."""
    cautions: tuple[Caution, ...] = ()


def read_plans(paths: CampaignPaths) -> list[CampaignPlan]:
    """Every plan that was run into this folder and can be read, the latest last."""
    return read_stored_plans(paths).plans


def read_stored_plans(paths: CampaignPaths) -> StoredPlans:
    """The same, and what could not be used."""
    latest, no_latest = read_plan(paths.plan)
    read = {path: _read_unless_same(path, paths.plan, latest) for path in sorted(paths.plans.glob("*.json"))}
    plans = [plan for plan, _ in read.values() if plan is not None]
    if latest is not None and all(plan.name != latest.name for plan in plans):
        plans.append(latest)
    plans.sort(key=lambda plan: latest is not None and plan.name == latest.name)
    cautions = [unusable(path, why, then=_instead(path, latest)) for path, (_, why) in read.items() if why]
    if latest is None:
        then = "the plans in plans/ were read; run the latest plan again to have it written"
        cautions.insert(0, unusable(paths.plan, no_latest or "it is missing", then=then))
    return StoredPlans(plans=plans, cautions=tuple(cautions))


def _read_unless_same(path: Path, latest_path: Path, latest: CampaignPlan | None) -> tuple[CampaignPlan | None, str]:
    """The latest plan stands in both places, and one of a thousand runs takes a tenth of a second to be read."""
    is_latest = latest is not None and path.stem == latest.name and same_text(path, latest_path)
    return (latest, "") if is_latest else read_plan(path)


def _instead(path: Path, latest: CampaignPlan | None) -> str:
    if latest is not None and path.stem == latest.name:
        return "plan.json holds the same plan and was read instead; run it again to have both"
    return "the runs that only this plan asks for do not count; run it again, which keeps what is finished"


def read_attempt(paths: AttemptPaths) -> Attempt | None:
    """One attempt; None when its spec.json is missing or not readable, since nothing can then be said of it."""
    return _read_attempt(paths, {})[0]


def _read_attempt(paths: AttemptPaths, asked: Asked) -> tuple[Attempt | None, str]:
    spec, no_spec = read_spec(paths)
    outcome, no_outcome = read_outcome(paths, spec.hash if spec else None)
    if spec is None:
        # The outcome names the hash of what was run, and a plan may have that very spec.
        spec = asked.get((paths.run, outcome.hash)) if outcome else None
    if spec is None:
        return None, no_spec
    provenance, no_provenance = read_record(Provenance, paths.provenance)
    if provenance is None and outcome is not None and outcome.outcome is Outcome.OK:
        no_provenance = no_provenance or "it is missing"
    telemetry, no_telemetry = read_account(paths)
    nodes, no_nodes = read_nodes(paths)
    unread = {
        paths.outcome: no_outcome,
        paths.provenance: no_provenance,
        paths.telemetry: no_telemetry,
        paths.nodes_record: no_nodes,
    }
    cautions = [unusable(path, why, spec.run) for path, why in unread.items() if why]
    if no_spec:
        cautions.append(unusable(paths.spec, no_spec, spec.run, "the plan's own for the same hash was taken instead"))
    attempt = Attempt(
        folder=str(paths.folder),
        number=paths.number,
        spec=spec,
        outcome=outcome,
        provenance=provenance or Provenance(),
        telemetry=telemetry or (counted_samples(paths, spec.telemetry) if outcome else None),
        cautions=(
            *cautions,
            *recovered_cautions(paths.folder),
            *alarm_cautions(spec.run, paths.alarms),
            *left_behind(spec.run, outcome),
            *not_text(spec.run, paths.launcher_log),
            *skew_cautions(spec.run, nodes),
            *unlike_cautions(spec.run, provenance.hosts if provenance else {}),
            *(environment_cautions(spec.run, paths) if nodes else ()),
        ),
        nodes=nodes,
        node_telemetry=_node_accounts(paths, nodes, spec) if outcome and nodes else {},
    )
    return attempt, ""


def _node_accounts(paths: AttemptPaths, nodes: NodesRecord, spec: RunSpec) -> dict[str, TelemetryAccount]:
    """Of every host but node 0, whose account lies in the attempt's own folder."""
    others = {folder.name: folder.paths for folder in host_folders(paths, nodes)[1:]}
    found = {name: read_account(own)[0] or counted_samples(own, spec.telemetry) for name, own in others.items()}
    return {name: account for name, account in found.items() if account is not None}


def _current(attempts: Iterable[Attempt], asked: set[tuple[str, str]] | None) -> set[str]:
    """Folders of the attempts whose results count; `asked` is None where the folder keeps no plans."""
    newest: dict[tuple[str, str], Attempt] = {}
    for attempt in attempts:
        key = (attempt.spec.run, attempt.spec.hash if asked is not None else "")
        wanted = asked is None or key in asked
        if wanted and (key not in newest or asked is None or ended(attempt) or not ended(newest[key])):
            newest[key] = attempt
    return {attempt.folder for attempt in newest.values()}


def ended(attempt: Attempt) -> bool:
    """Whether the attempt came to its own end, good or bad: one that was cut short from outside does not hide an older result."""
    return attempt.outcome is not None and not attempt.outcome.outcome.is_cut_short
