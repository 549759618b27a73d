"""From a folder of the original scripts to a campaign of ours in FOLDER/seatrial.

In: the folder. Out: plan.json, plans/ and every attempt, with translation.json last; `seatrial report` and every other reader of a
campaign then work on it. Where no file of the original has changed since, nothing is done. The original files are only read. Two that
want it at once do it one after the other, and the second finds it done.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial import files
from seatrial.collect.original.cautions import made_from, run_cautions, stray_cautions
from seatrial.collect.original.endings import outcome_of
from seatrial.collect.original.lock import translating
from seatrial.collect.original.manifest_rows import NAME
from seatrial.collect.original.manifests import Manifests, read_manifests
from seatrial.collect.original.pairing import OriginalAttempt
from seatrial.collect.original.run_specs import PLAN, identified, provenance_of, spec_of
from seatrial.collect.original.runs import OriginalRun, OriginalRuns, read_runs
from seatrial.collect.original.samples import RunSamples, read_run_samples, read_sample_rows
from seatrial.collect.original.sources import source_marks
from seatrial.collect.original.spans import Span, span_of
from seatrial.collect.original.translation import VERSION, Translation, read_translation, write_translation
from seatrial.collect.original.write import Translated, write_attempt
from seatrial.collect.original.zones import first_known, named_zones_s, zone_of
from seatrial.collect.stored import read_plan
from seatrial.errors import CampaignError
from seatrial.paths import AttemptPaths, CampaignPaths, OriginalPaths, RunPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.caution import Caution
from seatrial.records.codec import to_json
from seatrial.records.criteria_catalog import METRICS
from seatrial.records.run_spec import RunSpec, Scalar, TimingSpec
from seatrial.records.verdict import Criterion

NO_FAILURES = Criterion(metric="failed_runs", scope=METRICS["failed_runs"].default_scope, at_most=0)
Specs = Mapping[str, Sequence[RunSpec]]
"""Run → the specs of its attempts, oldest first."""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """The original folder as it was read."""

    folder: Path
    marks: dict[str, str]
    manifests: Manifests
    found: OriginalRuns


def translate(folder: Path) -> Path:
    """The folder of the campaign that was made of it, made anew where something has changed."""
    target = CampaignPaths(OriginalPaths(folder).translated)
    _refuse_if_taken(target)
    # Somebody who may only read the folder can still have a report of what was translated before.
    if not _is_fresh(target, folder):
        source = _read(folder)
        with translating(target):
            if not _is_fresh(target, folder):
                _write(target, source)
    return target.folder


def _is_fresh(target: CampaignPaths, folder: Path) -> bool:
    before = read_translation(target)
    now = (VERSION, str(folder.resolve()), source_marks(folder))
    return before is not None and (before.version, before.source, before.files) == now and target.plan.is_file()


def _read(folder: Path) -> _Source:
    # Before anything is read: what changes meanwhile is then translated the next time.
    marks = source_marks(folder)
    manifests = read_manifests(folder)
    found = read_runs(folder, manifests.rows)
    if not found.runs:
        raise CampaignError(f"{folder} holds no run that can be read: its run_manifest.tsv has no whole row, and no folder in it has a log")
    return _Source(folder=folder, marks=marks, manifests=manifests, found=found)


def _write(target: CampaignPaths, source: _Source) -> None:
    before, runs, at = read_translation(target), source.found.runs, source.folder.resolve()
    asked = _asked(source.folder)
    specs = _specs(runs, asked.tail_points)
    said = list(_write_runs(target, source.folder, runs, specs))
    _write_plan(target, at, specs, asked.baseline)
    written = {run.name: len(run.attempts) for run in runs}
    _remove_stale(target, before.runs if before else {}, written)
    cautions = (made_from(at, target.folder.resolve()), *source.manifests.cautions, *stray_cautions(source.found.strays), *said)
    write_translation(target, Translation(source=str(at), files=source.marks, runs=written, cautions=cautions))


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

    tail_points: int = TimingSpec.tail_points
    baseline: str = CampaignPlan.baseline


def _asked(folder: Path) -> _Asked:
    """As its own summary.json tells; its defaults where there is none."""
    told = files.read_json(OriginalPaths(folder).summary_json)
    summary = told if isinstance(told, dict) else {}
    tail, baseline, usual = summary.get("tail_points"), summary.get("baseline_group"), _Asked()
    return _Asked(
        tail_points=tail if isinstance(tail, int) and tail > 0 else usual.tail_points,
        baseline=baseline if isinstance(baseline, str) and baseline else usual.baseline,
    )


def _specs(runs: Sequence[OriginalRun], tail_points: int) -> Specs:
    """Identities are made over all runs, as the attempts of one group are compared."""
    flat = identified([spec_of(attempt, run.group, run.repeat, tail_points) for run in runs for attempt in run.attempts])
    left = iter(flat)
    return {run.name: [next(left) for _ in run.attempts] for run in runs}


def _write_runs(target: CampaignPaths, folder: Path, runs: Sequence[OriginalRun], specs: Specs) -> Iterator[Caution]:
    """Each run's samples are read when it is written: all of them at once may not fit into memory."""
    shared_host = read_sample_rows(OriginalPaths(folder).host_telemetry)
    elsewhere_s = first_known(shared_host.zone_s(), *named_zones_s(runs))
    for run in runs:
        samples = read_run_samples(run.folder, shared_host)
        zone_s = zone_of(run, samples, elsewhere_s)
        yield from run_cautions(run, zone_s)
        for number, made in enumerate(_translated(run, specs[run.name], samples, zone_s or 0.0), start=1):
            write_attempt(target.run(run.name).attempt(number), made)


def _translated(run: OriginalRun, specs: Sequence[RunSpec], samples: RunSamples, zone_s: float) -> Iterator[Translated]:
    # The trainer writes its context anew at every start, so what lies there is the newest one's.
    context = files.read_json(AttemptPaths(run.folder).run_context) if run.folder else None
    for number, (attempt, spec) in enumerate(zip(run.attempts, specs, strict=True), start=1):
        is_newest = attempt is run.newest
        span = _span(attempt, zone_s, samples if is_newest else None)
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


def _span(attempt: OriginalAttempt, zone_s: float, own: RunSamples | None) -> Span:
    """By its logs, else by the samples in the run's folder, which are the newest attempt's."""
    told = span_of(attempt, zone_s)
    sampled = own.gpu.span() if own and told.first_t is None else None
    return replace(sampled, duration_s=told.duration_s) if sampled else told


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
