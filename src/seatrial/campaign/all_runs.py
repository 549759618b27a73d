"""All runs of a plan, one after another, resuming what an earlier invocation finished.

Goes in: a CampaignPlan. Comes out: how the invocation ended; everything else is on disk. A run is finished when the newest attempt with
the plan's hash that came to its own end is `ok`: finished runs are not run again, changed ones have another hash and are. Plans that share
a folder are kept side by side in OUT/plans, and old attempts stay where they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from seatrial import files
from seatrial.campaign.code_folder import code_folder
from seatrial.campaign.earlier import finished_attempt, tidy_up, unlike_now
from seatrial.campaign.hosts import NO_HOSTS
from seatrial.campaign.interrupts import Interrupts
from seatrial.campaign.listener import Listener
from seatrial.campaign.one_run import new_attempt, run_one
from seatrial.campaign.owning import owned
from seatrial.campaign.preflight import refuse_what_can_only_fail
from seatrial.campaign.results import record_run
from seatrial.campaign.save_plan import save_plan
from seatrial.disk.append import TROUBLE
from seatrial.launch.gate import Gate
from seatrial.machine.git import git_state
from seatrial.observe.eta import CurrentRun, RunEta, RunLeft, TimeLeft, campaign_eta
from seatrial.observe.progress import Progress
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json
from seatrial.records.host_facts import HostFacts
from seatrial.records.live import LiveState
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.run_spec import RunSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class CampaignEnd:
    """How one invocation ended."""

    interrupted: bool = False
    stopped_on_error: bool = False
    out_of_budget: bool = False
    disk_trouble: str = ""
    """Why no further run could be prepared: what the disk said."""
    left: int = 0
    """Runs that are still to be run, one that was broken off included."""


def run_all(plan: CampaignPlan, listener: Listener, *, again: bool = False, gate: Gate | None = None) -> CampaignEnd:
    """Run what is not finished yet of `plan`, or all of it `again`; on nodes without ssh, `gate` has the commands of the others."""
    paths = CampaignPaths(Path(plan.output))
    with owned(paths) as owner, Interrupts(paths, owner).caught() as interrupts:
        if gate is not None:
            gate.gather(interrupts.is_asked)
        looked = refuse_what_can_only_fail(plan, paths, gate)
        listener.warned(looked.amiss)
        tidy_up(paths)
        plan_hash = save_plan(plan, paths)
        return _Campaign(plan, plan_hash, paths, interrupts, listener, gate, looked.hosts).run(again=again)


class _Campaign:
    """One invocation: what is still to do, how long things took, and whether to go on."""

    def __init__(
        self,
        plan: CampaignPlan,
        plan_hash: str,
        paths: CampaignPaths,
        interrupts: Interrupts,
        listener: Listener,
        gate: Gate | None = None,
        hosts: Mapping[str, HostFacts] = NO_HOSTS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._plan_hash, self._paths, self._interrupts, self._listener = plan, plan_hash, paths, interrupts, listener
        self._gate, self._hosts = gate, hosts
        self._lengths_s: dict[str, list[float]] = {}
        self._monotonic, self._began_m = monotonic, monotonic()
        self._state = LiveState(t=time.time(), pid=os.getpid(), host=socket.gethostname(), plan=plan.name, count=0)

    def run(self, *, again: bool) -> CampaignEnd:
        todo = self._still_to_do(again=again)
        self._state = dataclasses.replace(self._state, count=len(todo))
        try:
            return self._run_in_order(todo)
        finally:
            self._tell(run=None, over=True)

    def _still_to_do(self, *, again: bool) -> list[RunSpec]:
        todo = []
        code = cache(lambda folder: git_state(folder, self._paths.folder))
        for spec in self._plan.chosen:
            done = finished_attempt(self._paths.run(spec.run), spec.hash)
            if done is not None:
                self._lengths_s.setdefault(spec.group_key, []).append(done.duration_s)
            if done is None or again:
                todo.append(spec)
            else:
                self._listener.skipped(spec, unlike_now(self._paths.run(spec.run), spec, done, code(code_folder(spec)), os.environ))
        return todo

    def _run_in_order(self, todo: Sequence[RunSpec]) -> CampaignEnd:
        for index, spec in enumerate(todo):
            left = len(todo) - index
            if self._interrupts.is_asked():
                return CampaignEnd(interrupted=True, left=left)
            if self._over_budget(spec):
                return CampaignEnd(out_of_budget=True, left=left)
            try:
                outcome = self._run(spec, index, todo)
            except OSError as error:
                if error.errno not in TROUBLE:
                    raise
                # A run that is under way survives a bad disk; one that cannot be prepared has nowhere to go.
                return CampaignEnd(disk_trouble=f"{error.filename or self._paths.folder}: {error.strerror}", left=left)
            if outcome.outcome is Outcome.INTERRUPTED or self._interrupts.is_asked():
                return CampaignEnd(interrupted=True, left=left - (outcome.outcome is not Outcome.INTERRUPTED))
            if outcome.outcome is not Outcome.OK and self._plan.stop_on_error:
                return CampaignEnd(stopped_on_error=True, left=left - 1)
        return CampaignEnd()

    def _over_budget(self, spec: RunSpec) -> bool:
        """A run that would end beyond the budget, by its group's length so far, is not started."""
        left_s = self._budget_left_s()
        lengths_s = self._lengths_s.get(spec.group_key)
        return left_s is not None and (fmean(lengths_s) if lengths_s else 0.0) > left_s

    def _budget_left_s(self) -> float | None:
        return None if self._plan.budget_s is None else self._plan.budget_s - (self._monotonic() - self._began_m)

    def _run(self, spec: RunSpec, index: int, todo: Sequence[RunSpec]) -> RunOutcome:
        if self._gate is not None:
            self._gate.wait_for_return(self._interrupts.is_asked)
        attempt = new_attempt(self._paths.run(spec.run))
        self._listener.started(spec, attempt.number, index + 1, len(todo))
        eta = RunEta(spec.steps, mode=spec.timing.eta_mode, least_samples=spec.timing.eta_min_samples)

        def on_progress(progress: Progress, elapsed_s: float, alarm: str) -> None:
            run_left = eta.look(progress.ranks, time.time())
            current = CurrentRun(group_key=spec.group_key, elapsed_s=elapsed_s, left=run_left.left)
            all_left = campaign_eta(todo[index + 1 :], self._lengths_s, current, budget_left_s=self._budget_left_s())
            self._tell(
                run=spec.run,
                group=spec.group,
                repeat=spec.repeat,
                attempt=attempt.number,
                step=progress.step,
                total_steps=progress.total,
                phase=progress.phase,
                elapsed_s=elapsed_s,
                alarm=alarm,
                **_times_left(run_left, all_left),
            )

        try:
            outcome = run_one(
                spec,
                attempt,
                self._interrupts,
                on_progress,
                lambda: self._listener.stopping(spec),
                self._plan_hash,
                gate=self._gate,
                hosts=self._hosts,
            )
        except OSError:
            # Where the disk took nothing of it, there was no attempt.
            with contextlib.suppress(OSError):
                attempt.folder.rmdir()
            raise
        how = outcome.outcome
        if how is Outcome.OK:
            self._lengths_s.setdefault(spec.group_key, []).append(outcome.duration_s)
        finished = self._state.finished + (not how.is_cut_short)
        self._tell(run=None, finished=finished, failed=self._state.failed + how.is_failure)
        self._listener.ended(spec, outcome, record_run(self._paths, attempt))
        return outcome

    def _tell(self, **changes: object) -> None:
        self._state = dataclasses.replace(self._state, t=time.time(), **changes)  # type: ignore[arg-type]
        # For those who look on: a full disk must not cost the run that they look on at.
        with contextlib.suppress(OSError):
            files.write_json(self._paths.progress, to_json(self._state))
        self._listener.progress(self._state)


def _times_left(run: RunLeft, campaign: TimeLeft | None) -> dict[str, object]:
    """What of a LiveState speaks of the time to go."""
    fields: dict[str, object] = {"iter_ms_p50": run.iter_ms_p50, "eta_mode": run.mode}
    for name, left in (("run", run.left), ("campaign", campaign)):
        values = (left.eta_s, left.low_s, left.high_s) if left else (None, None, None)
        fields.update(zip((f"{name}_eta_s", f"{name}_eta_low_s", f"{name}_eta_high_s"), values, strict=True))
    return fields
