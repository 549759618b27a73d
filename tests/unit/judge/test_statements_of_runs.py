"""Failures, debug settings, steady states and slow steps: what many runs say alike is said once."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.judge.facts import Facts, sort_runs
from seatrial.judge.statements_of_runs import debug_statements, failure_statements, slow_step_statements, steady_statements
from seatrial.records.health import DebugSetting, SlowStep, SlowSteps
from seatrial.records.measure import Window
from seatrial.records.outcome import Cause, Fault, Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Verdict
from tests.unit.judge.campaigns import changed, clean_runs, spoilt
from tests.unit.report import factory


def facts(*runs: MeasuredRun) -> Facts:
    return sort_runs(runs, (), factory.ranking(), ())


def failed(group: str, repeat: int, **changes: object) -> MeasuredRun:
    return factory.measured(group, repeat, how=Outcome.FAILED, **{"cause": Cause.UNKNOWN, "fault": Fault.CODE, **changes})


def test_a_failure_is_told_with_its_lines_and_what_to_do() -> None:
    telling = tuple(f"line {at}" for at in range(5))
    (found,) = failure_statements(facts(failed("mb8_nw2", 1, detail="It broke.", action="Mend it.", telling=telling)))
    assert found.text == (
        "mb8_nw2_r1: failed, unknown, a matter of the script. It broke. Its most telling lines: line 0 | line 1 | line 2. "
        "What to do: Mend it."
    )
    assert (found.id, found.verdict, found.evidence[0].window) == ("failure:unknown", Verdict.FAIL, "whole run, 31.5 s")


def test_what_the_platform_did_does_not_weigh_on_the_group() -> None:
    (found,) = failure_statements(facts(spoilt("mb8_nw2", 1)))
    assert found.verdict is Verdict.INCONCLUSIVE and ", the platform's fault. Reading failed." in found.text
    assert found.text.endswith("That does not weigh on the group; run it again on a healthy platform.")


def test_one_cause_with_two_remedies_is_two_statements_and_else_one() -> None:
    runs = [failed("mb8_nw2", 1, action="A."), failed("mb8_nw2", 2, action="B."), failed("mb16_nw2", 1, action="A.")]
    first, second = failure_statements(facts(*runs))
    assert (first.id, second.id) == ("failure:unknown", "failure:unknown:2") and first.text.startswith("mb8_nw2_r1, mb16_nw2_r1: failed")
    (bare,) = failure_statements(facts(failed("mb8_nw2", 1, fault=Fault.CONFIGURATION, detail="")))
    assert bare.text == "mb8_nw2_r1: failed, unknown, a matter of its settings."


DEBUG = DebugSetting(name="NCCL_DEBUG", value="INFO", source="launcher.log:12", why="It logs.")


def test_a_setting_that_a_run_shows_twice_is_of_one_run() -> None:
    run = changed(clean_runs()[0], debug=(DEBUG, dataclasses.replace(DEBUG, source="environment.json")))
    (found,) = debug_statements(facts(run))
    assert (found.id, found.text) == ("debug:NCCL_DEBUG", "NCCL_DEBUG=INFO was on in mb16_nw2_r1: It logs. Measure without it.")
    assert [(one.file, one.window) for one in found.evidence] == [
        ("mb16_nw2_r1/attempt-1/launcher.log", "line 12"),
        ("mb16_nw2_r1/attempt-1/environment.json", "steps 20–199"),
    ]


def test_two_values_of_one_setting_have_two_names_and_a_plan_that_turns_it_on_is_told() -> None:
    first, second, *_ = clean_runs()
    varied = [
        changed(run, debug=(dataclasses.replace(DEBUG, value=value, varied=True),)) for run, value in ((first, "INFO"), (second, "WARN"))
    ]
    found = list(debug_statements(facts(*varied)))
    assert [one.id for one in found] == ["debug:NCCL_DEBUG=INFO", "debug:NCCL_DEBUG=WARN"]
    assert found[0].text.endswith("It logs. The plan itself turns it on: differences hold what it costs.")
    (mixed,) = debug_statements(facts(changed(first, debug=(DEBUG, dataclasses.replace(DEBUG, varied=True)))))
    assert mixed.text.endswith("Measure without it.")


def window(**changes: object) -> Window:
    return Window(**{"first_step": 5, "last_step": 9, "n": 5, "warmup_steps": 5, **changes})  # type: ignore[arg-type]


def test_a_steady_state_with_the_longest_warm_up_and_all_steps() -> None:
    first, second, *_ = clean_runs()
    (found,) = steady_statements(facts(changed(first, window=window()), changed(second, window=window(warmup_steps=7, n=3))))
    assert (found.id, found.verdict) == ("steady_state", Verdict.PASS)
    assert found.text == "2 runs reached a steady state, after 7 steps of warm-up at most; 8 steps count."
    (one,) = steady_statements(facts(changed(first, window=window(warmup_steps=1, n=1))))
    assert one.text == "1 run reached a steady state, after 1 step of warm-up at most; 1 step counts."
    assert [(each.value, each.unit, each.n, each.window) for each in one.evidence] == [(1, "steps", 1, "steps 5–9")]


@pytest.mark.parametrize(("count", "statements"), [(0, 0), (3, 3), (4, 1)])
def test_up_to_three_without_a_steady_state_are_told_apart(count: int, statements: int) -> None:
    restless = [changed(run, window=window(steady=False, reason="it rose.")) for run in clean_runs()[:count]]
    found = list(steady_statements(facts(*restless)))
    assert len(found) == statements and all(one.verdict is Verdict.INCONCLUSIVE for one in found)
    if count == 4:
        assert found[0].text.startswith("No steady state in 4 runs (mb16_nw2_r1, ") and found[0].text.endswith(
            "): of mb16_nw2_r1: it rose."
        )


def test_a_run_that_gives_no_reason_had_too_few_steps() -> None:
    (found,) = steady_statements(facts(changed(clean_runs()[0], window=window(steady=False))))
    assert found.text == "No steady state in mb16_nw2_r1: too few steps."


def slow(share: float, count: int = 1) -> SlowSteps:
    worst = tuple(SlowStep(step=at, ms=100.0 * at, over_median=2.0 * at) for at in range(5, 1, -1))
    return SlowSteps(count=count, time_share=share, worst=worst)


def test_slow_steps_are_told_by_the_run_that_has_most() -> None:
    first, second, third, fourth = clean_runs()
    runs = [changed(first, slow_steps=slow(0.051)), changed(second, slow_steps=slow(0.2, 2)), changed(third, slow_steps=slow(0.05))]
    grave, slight = slow_step_statements(facts(*runs, changed(fourth, slow_steps=slow(0.9, 0))))
    assert (grave.id, grave.verdict, slight.id, slight.verdict) == ("slow_steps", Verdict.FAIL, "slow_steps-few", Verdict.PASS)
    assert grave.text == (
        "Slow steps in 2 runs, most in mb16_nw2_r2: 2 of 178 steps take 20.0 % of its time beyond the median step (steps 20–199): "
        "5 (500 ms, 10 × the median), 4 (400 ms, 8 × the median), 3 (300 ms, 6 × the median)."
    )
    assert slight.text.startswith("Slow steps in mb16_nw0_r1: 1 of 178 steps takes 5.0 %")
    assert [(one.name, one.unit, one.n) for one in slight.evidence][:2] == [("time of slow steps", "%", 178), ("time of step 5", "ms", 1)]
    assert len(slight.evidence) == 5
