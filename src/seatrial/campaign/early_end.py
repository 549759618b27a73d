"""How one invocation of a campaign ended, and when failures end it before all its runs are over.

In: each run that is over. Out: a CampaignEnd where no further run is to start, for runs that are processes here (`campaign.loop`) and for
runs that are jobs (`campaign.slurm`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from seatrial.campaign.schedule import Invocation, RunSource
from seatrial.records.caution import Scalar
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import RunSpec

MAX_IDENTICAL_FAILURES = 3
# Causes that no setting changes: the same failure again means that the next run fails too.
SETTING_INDEPENDENT_CAUSES = frozenset(
    {Cause.IMPORT_ERROR, Cause.PROGRAM_MISSING, Cause.FILE_MISSING, Cause.PORT_IN_USE, Cause.PERMISSION, Cause.DRIVER_MISMATCH}
)
# The rank and host that report a failure may change from run to run.
LOCATION_PREFIX = re.compile(r"^(?:exit code 0, but )?(?:on \S+: )?(?:rank \d+: )?")


@dataclass(frozen=True, kw_only=True)
class CampaignEnd:
    """How one invocation ended."""

    interrupted: bool = False
    stopped_on_error: bool = False
    out_of_budget: bool = False
    repeated_failure: str = ""
    """The cause of MAX_IDENTICAL_FAILURES, where no run has succeeded and no setting explains it."""
    disk_trouble: str = ""
    """The disk error that kept the next run from being prepared."""
    jobs_ended: str = ""
    """How jobs ended whose runs are still to be run: cancelled from outside, time limit, lost node."""
    jobs_left: str = ""
    """Jobs that may go on, because Slurm did not answer when they were to be cancelled, and how to end them."""
    job_too_short: str = ""
    """Why the job around this program has too little time left for the next run."""
    left: int = 0
    """Runs still to be run, an interrupted one included."""

    @property
    def reason(self) -> str:
        """Why no further run was started; empty where all are over."""
        if self.interrupted:
            return "interrupted"
        if self.stopped_on_error:
            return "stopped at the first failure (stop_on_error)"
        if self.out_of_budget:
            return "the budget is used up"
        if self.repeated_failure:
            return f"stopped after {MAX_IDENTICAL_FAILURES} identical failures in a row ({self.repeated_failure})"
        if self.jobs_ended or self.job_too_short:
            return self.jobs_ended or self.job_too_short
        return f"no further run could be prepared ({self.disk_trouble})" if self.disk_trouble else ""


@dataclass
class EarlyEnd:
    """Whether failures end the campaign before all its runs are over."""

    invocation: Invocation
    schedule: RunSource
    end: CampaignEnd | None = None
    _ended: list[tuple[RunSpec, RunOutcome]] = field(default_factory=list)

    def after(self, spec: RunSpec, outcome: RunOutcome) -> CampaignEnd | None:
        """To be called once `schedule` knows that `spec` is over; others in flight may still end."""
        if outcome.outcome is Outcome.INTERRUPTED:
            return self.end
        self._ended.append((spec, outcome))
        if outcome.outcome is not Outcome.OK and self.invocation.plan.stop_on_error:
            self.end = CampaignEnd(stopped_on_error=True)
        elif self.schedule.left and not self.invocation.keep_going and not self.schedule.any_ok:
            repeated = repeated_failure(self._ended, self.schedule.left)
            self.end = CampaignEnd(repeated_failure=repeated) if repeated else self.end
        return self.end


def repeated_failure(ended: Sequence[tuple[RunSpec, RunOutcome]], left: Sequence[RunSpec]) -> str:
    """The one cause of the last MAX_IDENTICAL_FAILURES, where it would fail the runs that are `left` too; else empty."""
    last = [outcome for _, outcome in ended[-MAX_IDENTICAL_FAILURES:]]
    if _is_explained_by_a_setting([spec for spec, _ in ended[-MAX_IDENTICAL_FAILURES:]], left):
        return ""
    reasons = {(one.signature, LOCATION_PREFIX.sub("", one.detail) if one.cause is not Cause.PORT_IN_USE else "") for one in last}
    if len(last) < MAX_IDENTICAL_FAILURES or len(reasons) > 1 or any(one.outcome is not Outcome.FAILED for one in last):
        return ""
    return f"{last[-1].cause.value}: {last[-1].detail}" if last[-1].cause in SETTING_INDEPENDENT_CAUSES else ""


def _is_explained_by_a_setting(failed: Sequence[RunSpec], left: Sequence[RunSpec]) -> bool:
    """Whether all failed runs share a value of an axis or setting that a remaining run does not have."""
    same = dict(set.intersection(*(set(_varied(spec).items()) for spec in failed))) if failed else {}
    return any(_varied(spec).get(name) != value for name, value in same.items() for spec in left)


def _varied(spec: RunSpec) -> dict[str, Scalar]:
    return {**spec.settings, **spec.axes, **{f"env.{name}": value for name, value in spec.env.items()}}
