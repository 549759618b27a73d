"""Whether the runs were well: the section, the values and the terminal's line."""

from __future__ import annotations

import json
from dataclasses import replace

from seatrial.records.measure import HarmlessCount, RunHealth, RunMeasure
from seatrial.records.outcome import Outcome
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.digest.health import NOTHING, health_line, health_of
from seatrial.report.markdown.health import health_section
from seatrial.report.summary import summary_json
from tests.unit.report import factory

WELL = RunHealth(ranks=2, ranks_ended_well=2)


def with_health(run: MeasuredRun, health: RunHealth | None) -> MeasuredRun:
    return replace(run, measure=replace(run.measure or RunMeasure(source="whole"), health=health))


def results(*runs: MeasuredRun) -> CampaignResults:
    return factory.results(runs=runs)


def test_runs_that_were_all_well_leave_nothing_to_say_on_the_terminal() -> None:
    well = results(*(with_health(factory.measured("mb16_nw0", repeat), WELL) for repeat in (1, 2)))
    assert list(health_section(well)) == [
        "## Health",
        "- Fatal tracebacks: none.\n- Ranks: 4 of 4 ended well.\n- Harmless warnings: none.",
    ]
    assert health_line(well) == ""


def test_a_traceback_of_a_run_that_ended_well_is_not_fatal_and_is_told() -> None:
    printed = with_health(factory.measured("mb16_nw0", 1), replace(WELL, tracebacks=3))
    assert "- Not fatal: 1 run printed a traceback and ended well (mb16_nw0_r1)." in list(health_section(results(printed)))[1]
    assert health_line(results(printed)) == "Health: 1 run printed a traceback and ended well (mb16_nw0_r1)."


def test_a_failed_run_that_does_not_tell_of_its_ranks_is_named() -> None:
    silent = with_health(factory.measured("mb16_nw0", 1, how=Outcome.FAILED), RunHealth(ranks=2, tracebacks=1))
    health = health_of(results(silent, with_health(factory.measured("mb16_nw0", 2), WELL)))
    assert (health.ranks_started, health.ranks_ended_well, health.ranks_unknown) == (2, 2, ("mb16_nw0_r1",))
    assert health.fatal_tracebacks == ("mb16_nw0_r1",)
    assert (
        "- Ranks: 2 of 2 ended well; not told by mb16_nw0_r1." in list(health_section(results(silent, factory.measured("mb16_nw0", 2))))[1]
    )


def test_only_current_runs_that_came_to_an_end_of_their_own_are_looked_at() -> None:
    told = RunHealth(ranks=2, ranks_ended_well=0, tracebacks=1)
    old = with_health(factory.measured("mb16_nw0", 1, how=Outcome.FAILED, current=False), told)
    cut_short = with_health(factory.measured("mb16_nw0", 2, how=Outcome.INTERRUPTED), told)
    running = with_health(factory.measured("mb16_nw2", 1, how=None), told)
    unseen = with_health(factory.measured("mb16_nw2", 2), None)
    assert health_of(results(old, cut_short, running, unseen)).runs == 0
    assert list(health_section(results(old, cut_short, running, unseen))) == ["## Health", NOTHING]


def test_the_same_in_json() -> None:
    told = json.loads(json.dumps(summary_json(factory.results())["health"], allow_nan=False))
    assert (told["runs"], told["fatal_tracebacks"], told["ranks_started"], told["ranks_ended_well"]) == (7, ["mb8_nw2_r2"], 14, 13)
    assert told["harmless_runs"] == 2
    assert told["harmless"][0] == {"id": "triton_autotune", "meaning": "A folder is not there | yet.", "runs": 2, "lines": 2}


def test_what_every_run_of_deepspeed_says_is_listed_and_not_said_on_the_terminal() -> None:
    usual = replace(WELL, harmless=(HarmlessCount(id="no_hostfile", meaning="there is none to find", lines=1),))
    ran = results(with_health(factory.measured("mb16_nw0", 1), usual))
    assert health_line(ran) == ""
    assert "no_hostfile" in "\n".join(health_section(ran))
