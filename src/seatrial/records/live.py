"""What is happening now: OUT/progress.json, for people who look on from another terminal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """One look at a campaign that runs."""

    t: float
    pid: int
    host: str
    plan: str
    count: int
    """Runs this invocation set out to do."""
    finished: int = 0
    failed: int = 0
    run: str | None = None
    """The run under way; None between runs and when all are over."""
    attempt: int | None = None
    step: int | None = None
    total_steps: int | None = None
    phase: str = ""
    elapsed_s: float = 0.0
    """Since this run's launch."""
    run_eta_s: float | None = None
    campaign_eta_s: float | None = None
    over: bool = False
