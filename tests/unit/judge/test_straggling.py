"""A rank that holds the others up, as a number."""

from __future__ import annotations

import dataclasses

from seatrial.judge.straggling import held_up_evidence, is_alone, steps_text, straggler_evidence
from seatrial.records.health import StragglerVerdict
from tests.unit.judge.campaigns import changed, clean_runs, straggler

NAMED, NONE = straggler(StragglerVerdict.NAMED), straggler(StragglerVerdict.NONE)


def test_a_run_of_a_single_rank_is_alone_unless_its_ranks_were_looked_at() -> None:
    assert is_alone(changed(clean_runs()[0], world_size=1).measure)
    assert not is_alone(clean_runs()[0].measure) and not is_alone(None)
    assert not is_alone(changed(clean_runs()[0], world_size=1, straggler=NONE).measure)


def test_the_score_and_what_it_costs() -> None:
    run = clean_runs()[0]
    score, held = straggler_evidence(run, NAMED), held_up_evidence(run, NAMED)
    assert (score.subject, score.name, score.value, score.unit) == ("mb16_nw2_r1", "straggler score of rank 1", 0.25, "")
    assert (score.file, score.window, score.n) == ("per_run_metrics.csv", "steps 20–169", 150)
    assert (held.name, held.value, held.unit, held.window) == ("time that a step is held up", 4.0, "ms", "steps 20–169")
    assert straggler_evidence(run, NONE).name == "straggler score"
    assert straggler_evidence(run, dataclasses.replace(NAMED, rank=0)).name == "straggler score of rank 0"


def test_steps_that_were_looked_at() -> None:
    assert steps_text(NAMED) == "steps 20–169" and steps_text(dataclasses.replace(NAMED, first_step=0)) == "steps 0–169"
    assert steps_text(dataclasses.replace(NAMED, first_step=None)) == "no steps"
