"""What earlier invocations left in a campaign's folder: finished runs, and attempts that were never closed.

In: the folder. Out: the attempt that counts for a spec, and what changed since; where a harness died, outcomes for the attempts it left
open. A run is finished when the newest attempt with its hash that was not cut short is `ok`: it is not run again. A changed run has another
hash. A training, which is a plan of one group and one repeat, resumes from the newest complete checkpoint of its earlier attempts, also
with another number of steps, and also after it has finished with fewer. Any other change is refused without `--resume-changed`. Measured
runs always start anew, since a checkpoint would change what is measured.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.collect.attempt_files import read_step_span, recover_files
from seatrial.collect.attempts import PLACE_CHANGED, changed_parts, read_campaign, read_plans, uncounted_text
from seatrial.core import files
from seatrial.core.checkpoints import FoundCheckpoints, StoredCheckpoint, find_checkpoints
from seatrial.core.errors import RefusedError
from seatrial.core.paths import AttemptPaths, CampaignPaths, RunPaths
from seatrial.core.text import SHORT_HASH_DIGITS, count
from seatrial.launch.launchers.environment import tuning_variables
from seatrial.launch.prepare import masked_spec
from seatrial.machine.orphans import kill_orphans
from seatrial.machine.software import GitState
from seatrial.records.caution import Check
from seatrial.records.codec import to_json
from seatrial.records.outcome import Cause, Outcome, Resumption, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec, WorkloadSpec
from seatrial.records.signatures.registry import advice, fault_named
from seatrial.records.stored import LATEST_T, accepted_outcome, earlier_attempts, read_resumption, read_spec

HEAD_BYTES = 16384
RESUME_FROM = re.compile(r"\bresume_from=(?!null$)\S")
# Not intervals or parts, such as save_steps and warmup_steps.
STEPS_OPTION = re.compile(r"(?:(?:max|num|n|total|train|training)_?)*(?:steps?|iters?|iterations?|step_iterations)")
# From provenance.json to the first line of a run: the agents of many hosts start in between.
LONGEST_START_S = 3600.0


def finished_attempt(run: RunPaths, hash: str) -> RunOutcome | None:
    """The outcome of the attempt that finished this spec; None where it is still to be run."""
    for attempt in reversed(run.attempts()):
        outcome = accepted_outcome(attempt)
        if outcome is not None and outcome.hash == hash and not outcome.outcome.is_cut_short:
            return outcome if outcome.outcome is Outcome.OK else None
    return None


def choose_start(plan: CampaignPlan, run: RunPaths, spec: RunSpec, *, from_start: bool = False) -> Resumption | None:
    """Where the next attempt of `spec` starts; None for an ordinary start at step 0. A RefusedError where there is a checkpoint of another
    number of ranks, or of the training before a change: the user decides between resuming and starting over."""
    if len(plan.runs) != 1 or not run.attempts():
        return None
    return choose_checkpoint(run, spec, from_start=from_start, resume_changed=plan.resume_changed)


def makes_progress(plan: CampaignPlan, run: RunPaths, spec: RunSpec, number: int) -> bool:
    """Whether the attempt `number` saved a newer checkpoint than it started from; if not, the next job would end at the same step."""
    before, after = read_resumption(run.attempt(number)), choose_start(plan, run, spec)
    reached = -1 if before is None or before.step is None else before.step
    if after is None or after.step is None:
        # A script has its own format: that this attempt wrote a checkpoint is all that is known.
        return after is not None and after.from_attempt == number
    return after.step > reached


def refuse_changed_training(plan: CampaignPlan, paths: CampaignPaths, *, again: bool, from_start: bool) -> None:
    """The refusals of `choose_start`, before the folder changes: its stored plan can then still be run."""
    for spec in plan.chosen:
        run = paths.run(spec.run)
        if again or finished_attempt(run, spec.hash) is None:
            choose_start(plan, run, spec, from_start=from_start)


def choose_checkpoint(run: RunPaths, spec: RunSpec, *, from_start: bool = False, resume_changed: bool = False) -> Resumption | None:
    """`choose_start` for a run that is known to be a training."""
    if from_start:
        return Resumption(from_start=True)
    skipped: list[str] = []
    left_behind = ""
    # Attempts that a later attempt of this training resumed from.
    linked: set[int | None] = set()
    for attempt in reversed(run.attempts()):
        outcome = accepted_outcome(attempt)
        stored = read_spec(attempt)[0]
        is_done = outcome is not None and outcome.outcome is Outcome.OK
        changed = _change(stored, spec) if stored else ""
        goes_on = not changed or changed.startswith(STEPS) or resume_changed or attempt.number in linked
        # A finished training is continued where more steps are requested; any other change defines a different training.
        if is_done and not (stored and (spec.steps or 0) > (stored.steps or 0)):
            break
        if stored is None:
            continue
        found, started = find_checkpoints(attempt.checkpoints), read_resumption(attempt)
        if not goes_on:
            left_behind = left_behind or _left_behind(found, attempt, f"{'finished' if is_done else 'stopped'} with", changed, spec)
            # A finished attempt may have no checkpoint of its own but the one it resumed from.
            if is_done and not (started and started.from_attempt):
                break
            continue
        skipped += [f"attempt {attempt.number}'s {one}" for one in found.skipped]
        if found.whole:
            newest = found.whole[0]
            # A script's own launcher may decide the number of ranks.
            written = newest.world_size if spec.workload.module else stored.place.ranks
            _refuse_other_ranks(f"a checkpoint of step {newest.step:,}", written, spec, attempt)
            _refuse_nothing_left(newest, spec, attempt)
            checkpoint = str(newest.folder.relative_to(attempt.folder))
            start = Resumption(from_attempt=attempt.number, checkpoint=checkpoint, step=newest.step)
            return replace(start, skipped=tuple(skipped), changed=changed)
        if found.other_format:
            _refuse_other_ranks("checkpoints", stored.place.ranks, spec, attempt)
            return Resumption(from_attempt=attempt.number, skipped=tuple(skipped), changed=changed)
        if started and started.from_start:
            break
        linked.add(started.from_attempt if started else None)
    if left_behind and not _names_a_checkpoint(spec):
        raise RefusedError(left_behind)
    return Resumption(skipped=tuple(skipped)) if skipped else None


def _names_a_checkpoint(spec: RunSpec) -> bool:
    """Whether the run itself names a checkpoint, as `resume_from` does for our trainers."""
    return bool(spec.settings.get("resume_from")) or any(RESUME_FROM.search(argument) for argument in spec.workload.args)


def _left_behind(found: FoundCheckpoints, attempt: AttemptPaths, ended: str, changed: str, spec: RunSpec) -> str:
    """The refusal where the training before the change has a checkpoint; empty where it has none."""
    if not found.whole and not found.other_format:
        return ""
    what = f"a checkpoint of step {found.whole[0].step:,}" if found.whole else "checkpoints"
    # A bundled trainer itself rejects changes that define a different training, when it reads the checkpoint.
    proviso = " (the trainer rejects changes that define a different training)" if spec.workload.module else ""
    return (
        f"{spec.run} {ended} {what} (attempt {attempt.number}), and {changed} since. Resume anyway with "
        f"--resume-changed{proviso}, restart with --from-start, or undo the change"
    )


STEPS = "steps "


def _change(stored: RunSpec, spec: RunSpec) -> str:
    """What changed in the training since the attempt; empty for nothing, or for other GPUs only. A change of the steps alone begins with
    STEPS."""
    if stored.hash == spec.hash:
        return ""
    changed = changed_parts(stored, masked_spec(spec))
    if changed == PLACE_CHANGED:
        return ""
    return f"{STEPS}{stored.steps:,} → {spec.steps:,}" if _differs_in_steps_alone(stored, spec) else changed


def _differs_in_steps_alone(stored: RunSpec, spec: RunSpec) -> bool:
    """Whether it would have the attempt's hash with the attempt's steps in its settings and in the arguments that set them. A batch size
    that happens to be the same number is another change."""
    from seatrial.plan.run_hash import run_hash

    if stored.steps is None or spec.steps is None:
        return False
    number = re.compile(rf"(?<!\d)(?<!\d\.){spec.steps}(?!\d|\.\d)")
    shown = masked_spec(spec).workload.args
    args = [
        number.sub(str(stored.steps), now) if _sets_steps(spec.workload, place) and number.sub(str(stored.steps), seen) == then else now
        for place, (now, seen, then) in enumerate(zip(spec.workload.args, shown, stored.workload.args, strict=False))
    ]
    settings = {**spec.settings, **({"steps": stored.steps} if spec.settings.get("steps") == spec.steps else {})}
    before = replace(spec, steps=stored.steps, settings=settings, workload=replace(spec.workload, args=tuple(args)))
    return len(shown) == len(stored.workload.args) and run_hash(before) == stored.hash


def _sets_steps(workload: WorkloadSpec, place: int) -> bool:
    """Whether the argument holds `{steps}`, or is the value of an option for the number of steps: `--max_steps 60`, `train.steps=60`."""
    if place in workload.steps_args:
        return True
    name, has_value, _ = workload.args[place].partition("=")
    option = name if has_value else workload.args[place - 1] if place else ""
    return STEPS_OPTION.fullmatch(option.lstrip("-+").rpartition(".")[2].lower().replace("-", "_")) is not None


def _refuse_other_ranks(what: str, written: int | None, spec: RunSpec, attempt: AttemptPaths) -> None:
    """`written` is the number of ranks that saved `what`; None where it is unknown."""
    if written is None or written == spec.place.ranks:
        return
    raise RefusedError(
        f"{spec.run} stopped with {what} (attempt {attempt.number}), saved by {count(written, 'rank')}, "
        f"and the plan has {count(spec.place.ranks, 'rank')}: optimiser shards and data order are those of {written}. "
        f"Run it with {written}, or start over with --from-start"
    )


def _refuse_nothing_left(checkpoint: StoredCheckpoint, spec: RunSpec, attempt: AttemptPaths) -> None:
    if spec.steps is not None and checkpoint.step + 1 >= spec.steps:
        raise RefusedError(
            f"{spec.run} has a checkpoint of step {checkpoint.step:,} (attempt {attempt.number}), and the plan has {spec.steps:,} steps: "
            "nothing is left to train. Raise steps, or start over with --from-start"
        )


def with_resumption(outcome: RunOutcome, attempt: AttemptPaths) -> RunOutcome:
    """The outcome with the steps and the time lost between this attempt and the first one of the same training."""
    resumption = read_resumption(attempt)
    if resumption is None or resumption.from_attempt is None:
        return outcome
    earlier = earlier_attempts(attempt)
    own = read_step_span(attempt)
    resumed_at = own.first if own else None if resumption.step is None else resumption.step + 1
    return replace(
        outcome,
        resumed_from=resumption.from_attempt,
        resumed_at=resumed_at,
        lost_steps=_lost_steps(earlier, resumed_at),
        downtime_s=_downtime_s(earlier, outcome),
    )


def _lost_steps(earlier: Sequence[AttemptPaths], resumed_at: int | None) -> int | None:
    """Steps of the earlier attempts beyond the checkpoint that this one resumed from."""
    spans = [span for attempt in earlier if (span := read_step_span(attempt))]
    if resumed_at is None or not spans:
        return None
    taken = sum(span.last + 1 - span.first for span in spans)
    return max(0, taken - (resumed_at - spans[0].first))


def _downtime_s(earlier: Sequence[AttemptPaths], outcome: RunOutcome) -> float | None:
    ended = [accepted_outcome(attempt) for attempt in earlier]
    outcomes = [*(one for one in ended if one), outcome]
    if len(outcomes) <= len(earlier) or not all(one.started_t and one.ended_t for one in outcomes):
        return None
    return sum(max(0.0, after.started_t - before.ended_t) for before, after in itertools.pairwise(outcomes))


def changes_since(run: RunPaths, spec: RunSpec, done: RunOutcome, code: GitState, variables: Mapping[str, str]) -> str:
    """What of the code and the caller's environment changed since the finished attempt; empty where nothing did."""
    stored = files.read_json(run.attempt(done.attempt).provenance)
    if not isinstance(stored, dict):
        return ""
    then = {**(stored.get("variables") or {}), **_code(stored.get("git_commit_hash"), stored.get("git_diff_sha256"))}
    now = {**tuning_variables(spec, variables), **_code(code.commit, code.diff_sha256)}
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    return ", ".join(f"{name} {then.get(name) or 'none'} → {now.get(name) or 'none'}" for name in names)


def _code(commit: object, changes: object) -> dict[str, str]:
    return {"commit": str(commit or "")[:SHORT_HASH_DIGITS], "uncommitted changes": str(changes or "")[:SHORT_HASH_DIGITS]}


def uncounted_runs(paths: CampaignPaths, plan: CampaignPlan | None = None) -> tuple[Check, ...]:
    """A warning where finished runs of this folder no longer count, because the command or the plan changed; they are not removed. `plan`
    has not been run yet and replaces the stored one of its name."""
    plans = read_plans(paths)
    if plan is not None:
        plans = [*(stored for stored in plans if stored.name != plan.name), plan]
    text = uncounted_text(read_campaign(paths, plans), plans)
    if not text:
        return ()
    prevents = "a report that leaves them out"
    fix = f"repeat the earlier command to use them again; --out FOLDER keeps both; `seatrial report {paths.folder}` names them too"
    return (Check(name="earlier runs that no longer count", ok=False, found=text, prevents=prevents, fix=fix, refuses=False),)


def recover_folder(paths: CampaignPaths) -> None:
    """Finish what an earlier invocation that died left undone; the caller owns the folder."""
    files.remove_partial_files(paths.folder)
    recover_files(paths.folder)
    close_abandoned_attempts(paths)


def close_abandoned_attempts(paths: CampaignPaths) -> None:
    """Write an outcome for attempts whose harness died, and kill their remaining processes."""
    # A job for many runs may be creating an attempt at this moment.
    held = paths.open_allocation() is not None
    for run in paths.runs():
        for attempt in run.attempts():
            # A job may still run: the harness that follows it closes its attempt.
            if attempt.outcome.exists() or attempt.job_script.exists() or attempt.job.exists() or held:
                continue
            kill_orphans(attempt.folder, {})
            stored = files.read_json(attempt.spec) or {}
            lived = read_lifetime(attempt)
            seen = f"; last activity recorded in {lived.file}" if lived.file else ""
            outcome = RunOutcome(
                run=attempt.run,
                attempt=attempt.number,
                hash=str(stored.get("hash", "")),
                outcome=Outcome.INTERRUPTED,
                cause=Cause.HARNESS_LOST,
                detail=f"the harness ended before this attempt did{seen}",
                action=advice(Cause.HARNESS_LOST),
                signature=Cause.HARNESS_LOST.value,
                fault=fault_named(Cause.HARNESS_LOST.value),
                started_t=lived.started_t,
                ended_t=lived.ended_t,
                duration_s=lived.ended_t - lived.started_t,
                last_seen_in=lived.file,
            )
            files.write_json(attempt.outcome, to_json(with_resumption(outcome, attempt)))


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """When an attempt is known to have run, by the wall clock; 0 where unknown."""

    started_t: float = 0.0
    ended_t: float = 0.0
    file: str = ""
    """The file with its last sign of life."""


def read_lifetime(attempt: AttemptPaths) -> Lifetime:
    """From the contents of its files, not their times, which a copy changes; only the start may be the time of provenance.json, which is
    written before everything else."""
    times = {
        path.name: _times(path) for path in (*attempt.all_heartbeats(), *attempt.all_events(), attempt.arrivals, attempt.host_telemetry)
    }
    known = {name: found for name, found in times.items() if found}
    if not known:
        return Lifetime()
    first_t = min(min(found) for found in known.values())
    try:
        started_t = min(attempt.provenance.stat().st_mtime, first_t)
    except OSError:
        started_t = first_t
    # A start long before the first file is not plausible: the file may have been restored from a copy.
    started_t = started_t if first_t - started_t <= LONGEST_START_S else first_t
    last = max(known, key=lambda name: max(known[name]))
    return Lifetime(started_t=started_t, ended_t=max(known[last]), file=last)


def _times(path: Path) -> list[float]:
    """Wall clock of the first and last entries of a JSON-lines file or of a table of samples or arrivals."""
    try:
        with files.open_file(path) as source:
            head = source.read(HEAD_BYTES).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    # The last line of the part may be torn.
    lines = [*head[:3], *files.tail_lines(path, 3)]
    if path.suffix == ".jsonl":
        found = [(files.json_object(line) or {}) for line in lines]
        values: list[object] = [one.get("t", one.get("ts")) for one in found]
    else:
        columns = head[0].split(",") if head else []
        place = next((columns.index(name) for name in ("t", "epoch_sec") if name in columns), 0)
        values = [cells[place] for line in lines if len(cells := line.split(",")) == len(columns)]
    return [t for value in values if (t := _wall_clock(value)) is not None]


def _wall_clock(value: object) -> float | None:
    try:
        t = float(value) if isinstance(value, (str, int, float)) else math.nan
    except ValueError:
        return None
    return t if 0 < t <= LATEST_T else None
