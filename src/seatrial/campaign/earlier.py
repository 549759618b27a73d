"""What earlier invocations left in a campaign's folder: runs that are finished, runs that were never brought to an end.

In: the folder. Out: the attempt that counts for a spec and what was otherwise when it was made; and, where a harness died, outcomes for
the attempts it left open.
"""

from __future__ import annotations

from collections.abc import Mapping

from seatrial import files
from seatrial.collect.recovered import recover
from seatrial.launch.environment import tuning_variables
from seatrial.machine.git import GitState
from seatrial.machine.orphans import kill_orphans
from seatrial.paths import CampaignPaths, RunPaths
from seatrial.records.codec import described, to_json
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec
from seatrial.signatures.registry import advice, fault_named
from seatrial.units import HASH_SHOWN


def finished_attempt(run: RunPaths, hash: str) -> RunOutcome | None:
    """The attempt of this very spec that counts, where it ended well: the newest one that came to its own end."""
    for attempt in reversed(run.attempts()):
        outcome = described(RunOutcome, files.read_json(attempt.outcome))
        if outcome is not None and outcome.hash == hash and not outcome.outcome.is_cut_short:
            return outcome if outcome.outcome is Outcome.OK else None
    return None


def unlike_now(run: RunPaths, spec: RunSpec, done: RunOutcome, code: GitState, variables: Mapping[str, str]) -> str:
    """What of the code and the caller's variables was otherwise when the finished attempt was made; empty where nothing was."""
    stored = files.read_json(run.attempt(done.attempt).provenance)
    if not isinstance(stored, dict):
        return ""
    then = {**(stored.get("variables") or {}), **_code(stored.get("git_commit_hash"), stored.get("git_diff_sha256"))}
    now = {**tuning_variables(spec, variables), **_code(code.commit, code.diff_sha256)}
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    return ", ".join(f"{name} {then.get(name) or 'none'} → {now.get(name) or 'none'}" for name in names)


def _code(commit: object, changes: object) -> dict[str, str]:
    """A commit and the changes beside it, as they are told."""
    return {"commit": str(commit or "")[:HASH_SHOWN], "uncommitted changes": str(changes or "")[:HASH_SHOWN]}


def tidy_up(paths: CampaignPaths) -> None:
    """What an earlier invocation that died could not do: nobody else owns the folder now."""
    files.sweep_parts(paths.folder)
    recover(paths.folder)
    close_abandoned(paths)


def close_abandoned(paths: CampaignPaths) -> None:
    """Give an outcome to attempts whose harness died before it could, and end what still runs of them."""
    for run in paths.runs():
        for attempt in run.attempts():
            if attempt.outcome.exists():
                continue
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
                signature=Cause.HARNESS_LOST.value,
                fault=fault_named(Cause.HARNESS_LOST.value),
            )
            files.write_json(attempt.outcome, to_json(outcome))
