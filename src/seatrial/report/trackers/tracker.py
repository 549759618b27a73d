"""What every tracker takes: a finished run and, at the end, the campaign. Nothing in them looks like a secret.

A tracker is asked from a process of its own, so it may raise, block or print as it likes; what it raises is told to the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from seatrial.records.run_spec import Scalar

TAG_PREFIX = "seatrial."


@dataclass(frozen=True, kw_only=True)
class Point:
    """Values at one moment."""

    step: int
    """The training step; for telemetry whole seconds since the launch."""
    t: float
    values: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One attempt that is over."""

    key: str
    """The same for the same attempt whenever and from wherever it is sent, and for no other."""
    name: str
    campaign: str
    """The plan's name."""
    group: str
    outcome: str
    attempt: int
    started_t: float
    ended_t: float
    params: dict[str, Scalar]
    tags: dict[str, str]
    steps: tuple[Point, ...]
    """Of rank 0, thinned, extremes kept."""
    telemetry: tuple[Point, ...]
    figures: dict[str, float]
    """One number each: throughput, percentiles, start-up, and what telemetry says of the window."""


@dataclass(frozen=True, kw_only=True)
class TrackedCampaign:
    """How the campaign stands."""

    key: str
    name: str
    started_t: float
    tags: dict[str, str]
    """Verdict, winner, and how it was decided."""
    text: str
    """summary.md."""


class Tracker(Protocol):
    """One place that runs are sent to. Sending the same again adds nothing."""

    @property
    def where(self) -> str:
        """For people: where the data goes."""

    def send_run(self, run: TrackedRun) -> None: ...

    def send_campaign(self, campaign: TrackedCampaign) -> None: ...
