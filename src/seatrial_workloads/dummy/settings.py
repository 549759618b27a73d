"""Settings of the dummy workload, checked on construction. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from seatrial_workloads.common.settings import check_at_least, check_one_of, check_types

NEEDS_TORCH = False
# A rank that does not exist has no effect: that depends on how many there are.
FOLLOWS = dict.fromkeys(("slow_rank", "crash_rank", "hang_rank"), ("world_size",))
CRASHES = ("exception", "exit", "sigkill", "segfault", "cuda_oom", "host_oom", "port_in_use")
HANGS = ("python", "c", "c_released")
OUTPUTS = ("normal", "none", "endless", "rubbish")
LIES = ("none", "steps_back", "other_run", "other_attempt")
PHASES = ("all", "data_wait", "fwd", "bwd", "step")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A training that only sleeps, with every effect that a sweep should find."""

    steps: int = 100
    """Number of steps."""
    step_ms: float = 20.0
    """Time of one step at micro_batch 8; half of it does not depend on the batch."""
    micro_batch: int = 8
    """Samples per rank and step."""
    jitter_ratio: float = 0.05
    """Relative random variation of each step's time, reproducible by seed."""
    warmup_steps: int = 0
    """Number of slow first steps."""
    warmup_factor: float = 3.0
    """Slowdown factor of warm-up steps."""
    drift_ratio: float = 1.0
    """Time of the last step over that of the first; above 1 the run slows down as it goes."""
    shift_at_step: int | None = None
    """First step, counted from 0, of a lasting slowdown."""
    shift_factor: float = 1.5
    """Slowdown factor after the shift."""
    uneven_every: int | None = None
    """Every n-th step is slow on every rank; step 0 is not."""
    uneven_factor: float = 4.0
    """Slowdown factor of such a step."""
    repeat_spread: float = 0.0
    """Relative random variation of a whole run's step time, by its name and the seed."""
    drift_per_run: float = 0.0
    """Relative slowdown of each run against the one started before it, counted by the run folders of the campaign."""
    data_wait_ms: float = 0.0
    """Wait for a batch of 8 without workers."""
    burst_every: int | None = None
    """Every n-th batch is late; that of step 0 is not."""
    burst_ms: float = 100.0
    """Additional wait for such a batch."""
    num_workers: int = 0
    """Loader workers, which share the wait between them."""
    slow_rank: int | None = None
    """The rank that is slower than the others."""
    slow_factor: float = 2.0
    """Slowdown factor of the slow rank."""
    slow_phase: str = "all"
    """Phase that is slow: all, data_wait, fwd, bwd or step."""
    crash_at_step: int | None = None
    """The step in which a rank fails, counted from 0."""
    crash_rank: int = 0
    """The rank that fails."""
    crash_with: str = "exception"
    """How it fails: exception, exit (with exit_code), sigkill, segfault, cuda_oom, host_oom or port_in_use."""
    exit_code: int = 1
    """Exit code of a crash by exit."""
    hang_at_step: int | None = None
    """The step in which a rank hangs, counted from 0."""
    hang_rank: int = 0
    """The rank that hangs."""
    hang_in: str = "python"
    """Where it hangs: python, c (holding the GIL, so that its heartbeat stops too) or c_released."""
    start_delay_s: float = 0.0
    """Delay before the first step."""
    skip_all_steps: bool = False
    """Exit with 0 without a single step."""
    output: str = "normal"
    """What is printed: normal, none, endless (as fast as possible) or rubbish (bytes that are not text)."""
    orphan: bool = False
    """Each rank leaves a process in its own session that ignores TERM and HUP and keeps the output open."""
    shared_memory: bool = False
    """Each rank leaves a shared memory segment named like torch's."""
    lies: str = "none"
    """False steps appended to each rank's events: none, steps_back, other_run or other_attempt."""
    pause_every: int | None = None
    """Steps between two checkpoint pauses; none after step 0."""
    pause_ms: float = 50.0
    """Length of a checkpoint pause."""
    loss: str = "falls"
    """The loss: falls, flat, or nan from the middle of the run on."""
    leak_mib_per_step: float = 0.0
    """Memory that each step leaks."""
    cache_mib: float = 0.0
    """Size of a cache that fills step by step."""
    cache_steps: int = 50
    """Steps until the cache is full."""
    saw_mib: float = 0.0
    """Memory that grows step by step and is freed at once, periodically."""
    saw_every: int = 20
    """Steps between two frees."""
    seed: int = 0
    """Seed of the jitter."""
    log_every: int = 10
    """Steps between two log lines; step 0 and the last step always have one."""

    def __post_init__(self) -> None:
        check_types(self)
        check_at_least(self, steps=1, micro_batch=1, log_every=1, num_workers=0, step_ms=0, data_wait_ms=0, warmup_steps=0)
        check_at_least(self, slow_rank=0, crash_at_step=0, crash_rank=0, pause_every=1, pause_ms=0, leak_mib_per_step=0)
        check_at_least(self, hang_at_step=0, hang_rank=0, start_delay_s=0, shift_at_step=0, uneven_every=1, burst_every=1, burst_ms=0)
        check_at_least(self, cache_mib=0, cache_steps=1, saw_mib=0, saw_every=1)
        check_one_of(self, crash_with=CRASHES, hang_in=HANGS, output=OUTPUTS, lies=LIES, loss=("falls", "flat", "nan"))
        check_one_of(self, slow_phase=PHASES)
        self._check_ratios()
        self._check_faults()

    def _check_ratios(self) -> None:
        for name in ("jitter_ratio", "repeat_spread"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0 and below 1, or a step would take no time")
        if self.drift_per_run <= -1:
            raise ValueError(f"drift_per_run is {self.drift_per_run}; it must be above -1, or a step would take no time")
        for name in ("warmup_factor", "drift_ratio", "slow_factor", "shift_factor", "uneven_factor"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0 (1 means no change)")

        if self.slow_phase != "all" and self.slow_factor < 1:
            raise ValueError(f"slow_factor is {self.slow_factor}; with a slow_phase it must be 1 or more: a phase can only become longer")

    def _check_faults(self) -> None:
        for name in ("crash_at_step", "hang_at_step", "shift_at_step"):
            step = getattr(self, name)
            if step is not None and step >= self.steps:
                raise ValueError(f"{name} ({step}) lies after the last step ({self.steps - 1}): lower it or raise steps")
            if step is not None and self.skip_all_steps:
                raise ValueError(f"{name} is {step}, but skip_all_steps runs no step: remove one of the two")
        if not 0 <= self.exit_code <= 255:
            raise ValueError(f"exit_code is {self.exit_code}; a process can only return 0 to 255")
