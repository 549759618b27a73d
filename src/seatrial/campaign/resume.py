"""What earlier invocations left in a campaign's folder: finished runs, and attempts that were never closed.

In: the folder. Out: the attempt that counts for a spec, and what changed since; where a harness died, outcomes for the attempts it left
open. A run is finished when the newest attempt with its hash that was not cut short is `ok`: finished runs are not run again, changed
ones have another hash and are. The checkpoint of an earlier attempt would come in where attempts are created, `one_run.new_attempt`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from seatrial.collect.attempt_files import recover_files
from seatrial.core import files
from seatrial.core.paths import AttemptPaths, CampaignPaths, RunPaths
from seatrial.core.text import SHORT_HASH_DIGITS
from seatrial.launch.launchers.commands import tuning_variables
from seatrial.machine.orphans import kill_orphans
from seatrial.machine.software import GitState
from seatrial.records.codec import from_json_or_none, to_json
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import CampaignPlan, RunSpec
from seatrial.records.signatures.registry import advice, fault_named


def finished_attempt(run: RunPaths, hash: str) -> RunOutcome | None:
    """The attempt that finished this very spec; None where it is still to be run."""
    for attempt in reversed(run.attempts()):
        outcome = from_json_or_none(RunOutcome, files.read_json(attempt.outcome))
        if outcome is not None and outcome.hash == hash and not outcome.outcome.is_cut_short:
            return outcome if outcome.outcome is Outcome.OK else None
    return None


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


def outdated_runs(paths: CampaignPaths, plans: Sequence[CampaignPlan]) -> tuple[str, ...]:
    """Runs that finished with settings or a command that no plan of this folder has any more: they no longer count."""
    hashes = {spec.hash for plan in plans for spec in plan.runs}
    return tuple(run.folder.name for run in paths.runs() if (hash := _finished_hash(run)) and hash not in hashes)


def _finished_hash(run: RunPaths) -> str:
    """Of its newest attempt that was not cut short, where that is `ok`."""
    for attempt in reversed(run.attempts()):
        outcome = from_json_or_none(RunOutcome, files.read_json(attempt.outcome))
        if outcome is not None and not outcome.outcome.is_cut_short:
            return outcome.hash if outcome.outcome is Outcome.OK else ""
    return ""


def recover_folder(paths: CampaignPaths) -> None:
    """Finish what an earlier invocation left undone when it died; the caller owns the folder."""
    files.remove_partial_files(paths.folder)
    recover_files(paths.folder)
    close_abandoned_attempts(paths)


def close_abandoned_attempts(paths: CampaignPaths) -> None:
    """Write an outcome for attempts whose harness died before it could, and kill what still runs of them."""
    for run in paths.runs():
        for attempt in run.attempts():
            if attempt.outcome.exists():
                continue
            started_t, ended_t = _lasted(attempt)
            kill_orphans(attempt.folder, {})
            stored = files.read_json(attempt.spec) or {}
            outcome = RunOutcome(
                run=attempt.run,
                attempt=attempt.number,
                hash=str(stored.get("hash", "")),
                outcome=Outcome.INTERRUPTED,
                cause=Cause.HARNESS_LOST,
                detail="the harness ended before this attempt did",
                action=advice(Cause.HARNESS_LOST),
                started_t=started_t,
                ended_t=ended_t,
                duration_s=ended_t - started_t,
                signature=Cause.HARNESS_LOST.value,
                fault=fault_named(Cause.HARNESS_LOST.value),
            )
            files.write_json(attempt.outcome, to_json(outcome))


def _lasted(attempt: AttemptPaths) -> tuple[float, float]:
    """From the file written right before its launch to the last one that it wrote; nothing where it was never launched."""
    try:
        started_t = attempt.provenance.stat().st_mtime
    except OSError:
        return 0.0, 0.0
    ended_t = started_t
    for path in attempt.folder.rglob("*"):
        with contextlib.suppress(OSError):
            ended_t = max(ended_t, path.stat().st_mtime if path.is_file() and not path.is_symlink() else 0.0)
    return started_t, ended_t
