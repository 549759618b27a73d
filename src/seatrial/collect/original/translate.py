"""From a folder of the original scripts to a campaign of ours in FOLDER/seatrial.

In: the folder. Out: plan.json, plans/ and every attempt, with translation.json last; `seatrial report` and every other reader of a
campaign then work on it. Where no file of the original has changed since, nothing is done. The original files are only read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial import files
from seatrial.collect.original.cautions import made_from, run_cautions, stray_cautions
from seatrial.collect.original.endings import outcome_of, span_of
from seatrial.collect.original.manifest_rows import NAME, read_manifests
from seatrial.collect.original.run_specs import PLAN, identified, provenance_of, spec_of
from seatrial.collect.original.runs import OriginalRun, known_zones_s, read_runs
from seatrial.collect.original.samples import RunSamples, read_run_samples, read_sample_rows
from seatrial.collect.original.sources import source_marks
from seatrial.collect.original.translation import VERSION, Translation, read_translation, write_translation
from seatrial.collect.original.write import Translated, write_attempt
from seatrial.collect.stored import read_plan
from seatrial.errors import CampaignError
from seatrial.paths import AttemptPaths, CampaignPaths, OriginalPaths, RunPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.caution import Caution
from seatrial.records.codec import to_json
from seatrial.records.criteria_catalog import METRICS
from seatrial.records.run_spec import RunSpec, Scalar
from seatrial.records.verdict import Criterion

TAIL_POINTS = 20
BASELINE = "old_like"
NO_FAILURES = Criterion(metric="failed_runs", scope=METRICS["failed_runs"].default_scope, at_most=0)
Specs = Mapping[str, Sequence[RunSpec]]
"""Run → the specs of its attempts, oldest first."""


def translate(folder: Path) -> Path:
    """The folder of the campaign that was made of it, made anew where something has changed."""
    target, marks = CampaignPaths(OriginalPaths(folder).translated), source_marks(folder)
    before, source = read_translation(target), folder.resolve()
    _refuse_if_taken(target)
    if before is not None and (before.version, before.source, before.files) == (VERSION, str(source), marks) and target.plan.is_file():
        return target.folder
    rows = read_manifests(folder)
    found = read_runs(folder, rows.rows)
    if not found.runs:
        raise CampaignError(f"{folder} holds no run that can be read: its run_manifest.tsv has no whole row, and no folder in it has a log")
    asked = _asked(folder)
    specs = _specs(found.runs, asked.tail_points)
    said = list(_write_runs(target, folder, found.runs, specs))
    _write_plan(target, source, specs, asked.baseline)
    written = {run.name: len(run.attempts) for run in found.runs}
    _remove_stale(target, before.runs if before else {}, written)
    cautions = (made_from(source, target.folder.resolve()), *rows.cautions, *stray_cautions(found.strays), *said)
    write_translation(target, Translation(source=str(source), files=marks, runs=written, cautions=cautions))
    return target.folder


def _refuse_if_taken(target: CampaignPaths) -> None:
    """What stands there and is not ours to write over."""
    if target.folder.exists() and not target.folder.is_dir():
        raise CampaignError(f"{target.folder} is a file, and that is where the campaign made of this folder goes: move it")
    plan, _ = read_plan(target.plan)
    if plan is not None and plan.name != PLAN:
        raise CampaignError(
            f"{target.folder} holds the campaign of the plan '{plan.name}', and the translation of this folder goes there: move it"
        )


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What the original summariser was asked for."""

    tail_points: int = TAIL_POINTS
    baseline: str = BASELINE


def _asked(folder: Path) -> _Asked:
    """As its own summary.json tells; its defaults where there is none."""
    told = files.read_json(OriginalPaths(folder).summary_json)
    summary = told if isinstance(told, dict) else {}
    tail, baseline = summary.get("tail_points"), summary.get("baseline_group")
    return _Asked(
        tail_points=tail if isinstance(tail, int) and tail > 0 else TAIL_POINTS,
        baseline=baseline if isinstance(baseline, str) and baseline else BASELINE,
    )


def _specs(runs: Sequence[OriginalRun], tail_points: int) -> Specs:
    """Identities are made over all runs, as the attempts of one group are compared."""
    flat = identified([spec_of(attempt, run.group, run.repeat, tail_points) for run in runs for attempt in run.attempts])
    left = iter(flat)
    return {run.name: [next(left) for _ in run.attempts] for run in runs}


def _write_runs(target: CampaignPaths, folder: Path, runs: Sequence[OriginalRun], specs: Specs) -> Iterator[Caution]:
    """Each run's samples are read when it is written: all of them at once may not fit into memory."""
    shared_host = read_sample_rows(OriginalPaths(folder).host_telemetry)
    elsewhere_s = next((zone_s for zone_s in (shared_host.zone_s(), *known_zones_s(runs)) if zone_s is not None), None)
    for run in runs:
        samples = read_run_samples(run.folder, shared_host)
        zone_s = next((zone_s for zone_s in (samples.zone_s(), *known_zones_s([run]), elsewhere_s) if zone_s is not None), None)
        yield from run_cautions(run, zone_s)
        for number, made in enumerate(_translated(run, specs[run.name], samples, zone_s or 0.0), start=1):
            write_attempt(target.run(run.name).attempt(number), made)


def _translated(run: OriginalRun, specs: Sequence[RunSpec], samples: RunSamples, zone_s: float) -> Iterator[Translated]:
    # The trainer writes its context anew at every start, so what lies there is the newest one's.
    context = files.read_json(AttemptPaths(run.folder).run_context) if run.folder else None
    for number, (attempt, spec) in enumerate(zip(run.attempts, specs, strict=True), start=1):
        is_newest, span = attempt is run.newest, span_of(attempt, zone_s)
        gpu, host = samples.of_attempt(span, alone=len(run.attempts) == 1, is_newest=is_newest)
        yield Translated(
            original=attempt,
            spec=spec,
            outcome=outcome_of(attempt, number, spec, span),
            provenance=provenance_of(attempt.cells, context if is_newest else None),
            zone_s=zone_s,
            gpu=gpu,
            host=host,
        )


def _write_plan(target: CampaignPaths, source: Path, specs: Specs, baseline: str) -> None:
    """A plan that asks for every run as its newest attempt was made."""
    wanted = tuple(own[-1] for own in specs.values())
    plan = CampaignPlan(
        name=PLAN,
        output=str(target.folder.resolve()),
        source=str(source),
        axes=_axes(wanted),
        repeats=max(spec.repeat for spec in wanted),
        order="nested",
        baseline=baseline,
        criteria=(NO_FAILURES,),
        runs=wanted,
    )
    files.write_json(target.plans / f"{PLAN}.json", to_json(plan))
    files.write_json(target.plan, to_json(plan))


def _axes(specs: Sequence[RunSpec]) -> dict[str, tuple[Scalar, ...]]:
    names = dict.fromkeys(name for spec in specs for name in spec.axes)
    return {name: tuple(dict.fromkeys(spec.axes[name] for spec in specs if name in spec.axes)) for name in names}


def _remove_stale(target: CampaignPaths, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Attempts that an earlier translation wrote and that the folder no longer tells of."""
    for name, count in before.items():
        if not NAME.fullmatch(name):
            continue
        run = RunPaths(target.folder / name)
        for attempt in run.attempts():
            if now.get(name, 0) < attempt.number <= count:
                shutil.rmtree(attempt.folder, ignore_errors=True)
