"""One `seatrial run` of a plan: the input of every loop over its runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from seatrial.campaign.interrupts import StopRequests
from seatrial.core.paths import CampaignPaths
from seatrial.records.plan import CampaignPlan


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """What is to be done, where, and until when."""

    plan: CampaignPlan
    plan_hash: str
    paths: CampaignPaths
    interrupts: StopRequests
    from_start: bool = False
    """Trainings start over instead of resuming from a checkpoint."""
    keep_going: bool = False
    """Do not stop after identical failures in a row (`early_end`)."""
    monotonic: Callable[[], float] = time.monotonic
