"""Translates a folder of the original scripts into a campaign in FOLDER/seatrial.

In: the folder. Out: plan.json, plans/ and every attempt, with translation.json last, as every reader of a campaign expects them. Unless a
file of the original has changed, nothing is written again. Of two processes at once, the second waits for the first.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import filelock

from seatrial.collect.original.attempt_records import (
    PLAN,
    RunSamples,
    SampleFile,
    account_of,
    effective_of,
    first_known,
    identified,
    merge_logs,
    named_zones_s,
    outcome_of,
    provenance_of,
    read_run_samples,
    read_sample_rows,
    spec_of,
    world_size,
    zone_of_run,
)
from seatrial.collect.original.manifests import NAME, TextFile, read_manifests
from seatrial.collect.original.runs import OriginalAttempt, OriginalRun, Span, read_runs, source_marks, span_of
from seatrial.core import files
from seatrial.core.errors import CampaignError
from seatrial.core.files import acquire_lock, refuse_links
from seatrial.core.paths import ATTEMPT_FILES, AttemptPaths, CampaignPaths, OriginalPaths, RunPaths
from seatrial.core.text import format_bytes, join_names
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Caution
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.columns import ORIGINAL_SCRIPTS
from seatrial.records.events import EVENT_VERSION
from seatrial.records.outcome import RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec, TimingSpec
from seatrial.records.stored import read_plan
from seatrial.records.telemetry import TelemetryAccount
from seatrial.records.verdict import METRICS, Criterion

VERSION = 2
"""Raised with every change of the output, so that folders are translated again."""
LOCK_TIMEOUT_S = 300.0
"""Longer than any translation takes; a holder beyond it hangs."""
NO_FAILURES = Criterion(metric="failed_runs", scope=METRICS["failed_runs"].default_scope, at_most=0)
NAMED_STRAYS = 4
Specs = Mapping[str, Sequence[RunSpec]]
"""Run → the specs of its attempts, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """translation.json, written last, so that an interrupted translation is repeated."""

    version: int = VERSION
    source: str
    """The original folder, absolute."""
    files: dict[str, str] = field(default_factory=dict)
    """Files that were read, with size and mtime."""
    runs: dict[str, int] = field(default_factory=dict)
    """Number of attempts written per run."""
    cautions: tuple[Caution, ...] = ()


def read_translation(paths: CampaignPaths) -> Translation | None:
    """The record; None for a campaign that was run, or an incomplete translation."""
    return from_json_or_none(Translation, files.read_json(paths.translation))


def translation_cautions(paths: CampaignPaths) -> tuple[Caution, ...]:
    """Cautions about a campaign that was translated; () for any other."""
    found = read_translation(paths)
    return found.cautions if found else ()


def translate(folder: Path) -> Path:
    """The folder of the translated campaign, written again where something has changed."""
    target = CampaignPaths(OriginalPaths(folder).translated)
    _refuse_if_taken(target)
    # A folder that is read-only now can still be reported as it was translated before.
    if not _is_current(target, folder):
        # Before anything is read: what changes meanwhile is then translated the next time.
        marks = source_marks(folder)
        manifests = read_manifests(folder)
        runs, strays = read_runs(folder, manifests.rows)
        if not runs:
            raise CampaignError(
                f"{folder} holds no run that can be read: its run_manifest.tsv has no whole row, and no folder in it has a log"
            )
        with locked(target):
            if not _is_current(target, folder):
                cautions = (*manifests.cautions, *_stray_cautions(strays))
                _write(target, folder, runs, Translation(source=str(folder.resolve()), files=marks, cautions=cautions))
    return target.folder


def _is_current(target: CampaignPaths, folder: Path) -> bool:
    before = read_translation(target)
    now = (VERSION, str(folder.resolve()), source_marks(folder))
    return before is not None and (before.version, before.source, before.files) == now and target.plan.is_file()


def _refuse_if_taken(target: CampaignPaths) -> None:
    """Refuse a target folder that is not a translation."""
    if target.folder.exists() and not target.folder.is_dir():
        raise CampaignError(f"{target.folder} is a file, and the translation of this folder goes there: move it")
    plan, _ = read_plan(target.plan)
    if plan is not None and plan.name != PLAN:
        raise CampaignError(
            f"{target.folder} holds the campaign of the plan '{plan.name}', and the translation of this folder goes there: move it"
        )


@contextlib.contextmanager
def locked(target: CampaignPaths) -> Iterator[None]:
    """Hold the campaign's lock; a second process waits. On a file system without locks both write the same."""
    refuse_links([target.folder, target.lock])
    target.folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(target.lock)
    try:
        acquire_lock(lock, LOCK_TIMEOUT_S)
    except filelock.Timeout:
        raise CampaignError(
            f"{target.folder} is being written by another process, which holds {target.lock}: wait for it, or end it"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _write(target: CampaignPaths, folder: Path, runs: Sequence[OriginalRun], translation: Translation) -> None:
    before = read_translation(target)
    tail_points, baseline = _summary_settings(folder)
    # Hashes are computed over all runs, as the attempts of one group are compared.
    flat = iter(identified([spec_of(attempt, run.group, run.repeat, tail_points) for run in runs for attempt in run.attempts]))
    specs = {run.name: [next(flat) for _ in run.attempts] for run in runs}
    written_to = [RunPaths(target.folder / run.name) for run in runs]
    refuse_links([target.plans, *(run.folder for run in written_to), *(own.folder for run in written_to for own in run.attempts())])
    run_cautions = list(_write_runs(target, folder, runs, specs))
    _write_plan(target, translation.source, specs, baseline)
    written = {run.name: len(run.attempts) for run in runs}
    remove_stale(target, before.runs if before else {}, written)
    head = Caution(
        kind=ORIGINAL_SCRIPTS,
        text=f"Translated from the folder of the original stage-1 scripts, {translation.source}, which was not changed, into "
        f"{target.folder.resolve()}. Times are those between the timestamps of train.log; there are no events of single steps.",
    )
    cautions = (head, *translation.cautions, *run_cautions)
    files.write_json(target.translation, to_json(replace(translation, runs=written, cautions=cautions)))


def _summary_settings(folder: Path) -> tuple[int, str]:
    """Tail points and baseline of the original summariser by its summary.json, else its defaults."""
    stored = files.read_json(OriginalPaths(folder).summary_json)
    summary = stored if isinstance(stored, dict) else {}
    tail, baseline = summary.get("tail_points"), summary.get("baseline_group")
    return (
        tail if isinstance(tail, int) and tail > 0 else TimingSpec.tail_points,
        baseline if isinstance(baseline, str) and baseline else CampaignPlan.baseline,
    )


def _write_runs(target: CampaignPaths, folder: Path, runs: Sequence[OriginalRun], specs: Specs) -> Iterator[Caution]:
    """Write the runs one by one: the samples of all may not fit into memory."""
    shared_host = read_sample_rows(OriginalPaths(folder).host_telemetry)
    elsewhere_s = first_known(shared_host.zone_s(), *named_zones_s(runs))
    for run in runs:
        samples = read_run_samples(run.folder, shared_host)
        zone_s = zone_of_run(run, samples, elsewhere_s)
        yield from run_cautions(run, zone_s)
        # The trainer rewrites its context at every start, so it is the newest attempt's.
        context = files.read_json(AttemptPaths(run.folder).run_context) if run.folder else None
        for number, (attempt, spec) in enumerate(zip(run.attempts, specs[run.name], strict=True), start=1):
            is_newest = attempt is run.newest
            span = _span(attempt, zone_s or 0.0, samples if is_newest else None)
            gpu, host = samples.of_attempt(span, alone=len(run.attempts) == 1, is_newest=is_newest)
            write_attempt(
                target.run(run.name).attempt(number),
                attempt,
                spec,
                outcome_of(attempt, number, spec, span),
                provenance_of(attempt.cells, context if is_newest else None),
                zone_s=zone_s or 0.0,
                gpu=gpu,
                host=host,
            )


def _span(attempt: OriginalAttempt, zone_s: float, own: RunSamples | None) -> Span:
    """The span by the attempt's logs, else by the samples of the run, which are the newest attempt's."""
    logged = span_of(attempt, zone_s)
    sampled = own.gpu.span() if own and logged.first_t is None else None
    return replace(sampled, duration_s=logged.duration_s) if sampled else logged


def write_attempt(
    paths: AttemptPaths,
    attempt: OriginalAttempt,
    spec: RunSpec,
    outcome: RunOutcome,
    provenance: Provenance,
    *,
    zone_s: float = 0.0,
    gpu: SampleFile | None = None,
    host: SampleFile | None = None,
) -> None:
    """Every file of the attempt, the outcome last, without stale files of an earlier translation. Events hold effective settings only."""
    log, arrivals = merge_logs(attempt, zone_s)
    account = TelemetryAccount(gpu=account_of(gpu, spec.telemetry.gpu_s), host=account_of(host, spec.telemetry.host_s))
    files.write_json(paths.spec, to_json(spec))
    files.write_json(paths.provenance, to_json(provenance))
    files.write_text(paths.launcher_log, log)
    files.write_text(paths.arrivals, arrivals)
    files.write_text(paths.events(0), "".join(_effective_lines(attempt, outcome)))
    files.write_json(paths.telemetry, to_json(account))
    texts = {
        paths.train_log: "".join(f"{line}\n" for line in attempt.segment.lines) if attempt.segment else None,
        paths.gpu_telemetry: gpu.text() if gpu and gpu.columns else None,
        paths.host_telemetry: host.text() if host and host.columns else None,
    }
    for path, text in texts.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            files.write_text(path, text)
    files.write_json(paths.outcome, to_json(outcome))


def _effective_lines(attempt: OriginalAttempt, outcome: RunOutcome) -> Iterator[str]:
    t = outcome.started_t
    common = {"v": EVENT_VERSION, "run": outcome.run, "attempt": outcome.attempt, "rank": 0, "t": t, "m": t}
    for setting, (requested, effective, reason) in effective_of(attempt.cells).items():
        event = {**common, "kind": "effective", "setting": setting, "requested": requested, "effective": effective, "reason": reason}
        yield json.dumps(event) + "\n"


def _write_plan(target: CampaignPaths, source: str, specs: Specs, baseline: str) -> None:
    """A plan of every run, with the settings of its newest attempt."""
    requested = tuple(own[-1] for own in specs.values())
    names = dict.fromkeys(name for spec in requested for name in spec.axes)
    plan = CampaignPlan(
        name=PLAN,
        output=str(target.folder.resolve()),
        source=source,
        axes={name: tuple(dict.fromkeys(spec.axes[name] for spec in requested if name in spec.axes)) for name in names},
        repeats=max(spec.repeat for spec in requested),
        order="nested",
        baseline=baseline,
        criteria=(NO_FAILURES,),
        runs=requested,
    )
    files.write_json(target.plans / f"{PLAN}.json", to_json(plan))
    files.write_json(target.plan, to_json(plan))


def remove_stale(target: CampaignPaths, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Remove attempts of an earlier translation that are no longer in the original."""
    for name, count in before.items():
        if not NAME.fullmatch(name):
            continue
        for attempt in RunPaths(target.folder / name).attempts():
            if now.get(name, 0) < attempt.number <= count:
                shutil.rmtree(attempt.folder, ignore_errors=True)


def _stray_cautions(strays: Sequence[str]) -> Iterator[Caution]:
    """Cautions about folders with logs whose run is unknown."""
    if strays:
        yield Caution(
            kind="original_stray",
            numbers={"folders": len(strays)},
            text=f"{join_names(strays, NAMED_STRAYS)}: skipped, as no row names the folder, and its launcher.log names no run without one.",
        )


def run_cautions(run: OriginalRun, zone_s: float | None) -> Iterator[Caution]:
    """Problems of one run's files. The same fault has the same text for all runs, so that a report shows it once."""
    for kind, text in (
        *_missing_files(run),
        *_unreadable(ATTEMPT_FILES.launcher_log.name, run.launcher),
        *_unreadable(ATTEMPT_FILES.train_log.name, run.train),
        *_contradictions(run, zone_s),
    ):
        yield Caution(kind=kind, subject=run.name, text=text)


def _missing_files(run: OriginalRun) -> Iterator[tuple[str, str]]:
    if run.folder is None:
        yield "original_log_missing", "The run's folder is missing: only its row in run_manifest.tsv is known."
        return
    if not run.launcher.lines and not run.launcher.problem:
        yield "original_log_missing", "launcher.log is missing, so the start of the run, and why it failed if it did, are unknown."
    if not run.train.lines and not run.train.problem and run.newest.row is not None and run.newest.row.is_success:
        yield "original_log_missing", "train.log is missing, so steps are known from launcher.log only."


def _unreadable(name: str, text: TextFile) -> Iterator[tuple[str, str]]:
    if text.problem:
        yield "unreadable_file", f"{name} cannot be read ({text.problem}) and was skipped."
    if text.left_out_bytes:
        yield "large_log", f"{name} is so large that {format_bytes(text.left_out_bytes)} in its middle were not read."


def _contradictions(run: OriginalRun, zone_s: float | None) -> Iterator[tuple[str, str]]:
    row = run.newest.row
    if sum(attempt.segment is not None for attempt in run.attempts) > 1:
        yield "original_appended", "train.log holds the lines of several attempts: only those of the newest count."
    if row is None:
        yield (
            "original_no_row",
            "run_manifest.tsv has no row of the newest attempt, which counts as interrupted; an older row of the run still counts.",
        )
    elif row.says_success and not row.is_success:
        yield "original_status", "Its row says success, but its exit code does not: it counts as failed."
    if world_size(run.newest) is None:
        yield "original_world_size", "Neither row nor command gives the number of ranks: figures are of one rank."
    if zone_s is None and any(attempt.segment for attempt in run.attempts):
        yield "original_zone", "No file gives the time zone of its machine: its times were taken for UTC."
