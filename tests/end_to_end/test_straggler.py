"""Stragglers in real runs without full events: rank 0 alone, and TimingRank lines alone. With events: test_verdict_causes.py."""

from __future__ import annotations

from seatrial.analyse.stragglers import find_straggler
from seatrial.collect.attempts import read_campaign
from seatrial.collect.steps import read_steps
from seatrial.records.measure import Straggler, StragglerVerdict
from tests.harness import Harness

SLOW = """
name: slow-rank
workload: dummy
settings: {step_ms: 10, slow_rank: 1, slow_factor: 2.0}
launcher: python
place: {kind: local, ranks: 2}
rank_scope: rank0
repeats: 1
steps: 40
output: out
"""

JOB = """
import random, time
random.seed(3)
for step in range(40):
    time.sleep(0.01)
    work = [{"data_wait": 1.0, "preprocess": 2.0, "fwd": 20.0, "bwd": 40.0, "step": 5.0} for rank in range(4)]
    for rank, phases in enumerate(work):
        phases.update({name: ms * random.gauss(1, 0.02) for name, ms in phases.items()})
    work[3]["preprocess"] += 15.0
    busy_ms = [sum(phases.values()) for phases in work]
    for rank, phases in enumerate(work):
        phases["bwd"] += max(busy_ms) - busy_ms[rank]
        timing = " ".join(f"{name}={ms:.2f}" for name, ms in phases.items())
        print(f"TimingRank step={step} rank={rank} loss={3 - step / 40:.4f} {timing} iter={sum(phases.values()):.2f}", flush=True)
"""


def straggler_of_the_run(harness: Harness) -> Straggler:
    """Of the campaign's only run."""
    (attempt,) = read_campaign(harness.out)
    found = find_straggler(read_steps(attempt), None)
    assert found is not None
    return found


def test_rank_0_alone_is_a_reason_to_abstain(harness: Harness) -> None:
    harness.run("run", str(harness.plan(SLOW)))
    found = straggler_of_the_run(harness)
    assert found.verdict is StragglerVerdict.ABSTAINED and "rank_scope: all" in found.reason


def test_a_script_that_prints_timing_rank_lines_and_nothing_else_is_enough(harness: Harness) -> None:
    (harness.folder / "job.py").write_text(JOB)
    harness.run("sweep", "-P", "seed=1", "--repeats", "1", "--out", "out", "--", "python", "job.py", "{seed}")
    found = straggler_of_the_run(harness)
    assert (found.verdict, found.rank, found.phase, found.n) == (StragglerVerdict.NAMED, 3, "preprocess", 40), found.reason
    assert found.source == "log:seed"
