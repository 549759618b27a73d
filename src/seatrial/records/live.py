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
    iter_ms_p50: float | None = None
    """Median of the newest step times, on the slowest rank."""
    run_eta_s: float | None = None
    run_eta_low_s: float | None = None
    run_eta_high_s: float | None = None
    eta_mode: str = ""
    """`rank0`, `global_max`, or `fallback_local` while there are too few steps for more than a guess."""
    campaign_eta_s: float | None = None
    campaign_eta_low_s: float | None = None
    campaign_eta_high_s: float | None = None
    group: str = ""
    repeat: int | None = None
    alarm: str = ""
    """The newest alarm of this run: a spike, in one sentence."""
    over: bool = False
