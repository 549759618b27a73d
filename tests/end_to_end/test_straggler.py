"""A rank that holds the others up is named, with its phase, in real runs: by the probe's events, and by TimingRank lines alone."""

from __future__ import annotations

from seatrial.analyse.straggler import find_straggler
from seatrial.collect.attempts import read_campaign
from seatrial.collect.steps import read_steps
from seatrial.records.health import Straggler, StragglerVerdict
from tests.harness import Harness

SLOW = """
name: slow-rank
workload: dummy
settings: {step_ms: 10, slow_rank: 1, slow_factor: 2.0}
launcher: python
place: {kind: local, ranks: 3}
rank_scope: %s
repeats: 1
steps: 80
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
    came = [sum(phases.values()) for phases in work]
    for rank, phases in enumerate(work):
        phases["bwd"] += max(came) - came[rank]
        told = " ".join(f"{name}={ms:.2f}" for name, ms in phases.items())
        print(f"TimingRank step={step} rank={rank} loss={3 - step / 40:.4f} {told} iter={sum(phases.values()):.2f}", flush=True)
"""


def straggler_of_the_run(harness: Harness) -> Straggler:
    """What is found in the campaign's only run."""
    (attempt,) = read_campaign(harness.out)
    found = find_straggler(read_steps(attempt), None)
    assert found is not None
    return found


def test_the_slow_rank_of_real_processes_is_named(harness: Harness) -> None:
    harness.run("run", str(harness.plan(SLOW % "all")))
    found = straggler_of_the_run(harness)
    assert (found.verdict, found.rank, found.phase) == (StragglerVerdict.NAMED, 1, "fwd"), found.reason
    assert found.source == "events" and found.n >= 70
    assert found.score is not None and found.score > 0.1
    assert found.held_up_ms is not None and found.held_up_ms > 1.0


def test_rank_0_alone_is_a_reason_to_abstain(harness: Harness) -> None:
    harness.run("run", str(harness.plan(SLOW % "rank0")))
    found = straggler_of_the_run(harness)
    assert found.verdict is StragglerVerdict.ABSTAINED and "rank_scope: all" in found.reason


def test_a_script_that_prints_timing_rank_lines_and_nothing_else_is_enough(harness: Harness) -> None:
    (harness.folder / "job.py").write_text(JOB)
    harness.run("sweep", "-P", "seed=1", "--repeats", "1", "--out", "out", "--", "python", "job.py", "{seed}")
    found = straggler_of_the_run(harness)
    assert (found.verdict, found.rank, found.phase, found.n) == (StragglerVerdict.NAMED, 3, "preprocess", 40), found.reason
    assert found.source == "log:seed"
