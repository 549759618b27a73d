"""Advice beside a throughput that falls short."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from seatrial.judge.advice import advice_for, cause_advice, causes_seen
from seatrial.judge.evidence import judged_campaign
from seatrial.records.measure import DebugSetting, JitterCause, SlowSign
from seatrial.records.verdict import Criterion, Verdict
from tests.unit.analyse.factory import golden
from tests.unit.judge.campaigns import changed, clean_runs, finding
from tests.unit.report import factory

SENTENCES = golden("advice", Path(__file__).parent)

SIGN = SlowSign(id="flash_fallback", action="Switch flash on again.", detail="sdpa.audit sel=fallback", file="launcher.log", n=4)
DEBUG = DebugSetting(name="NCCL_DEBUG", value="INFO", source="environment.json", why="every collective is written to the log")
THERMAL = JitterCause(
    kind="thermal",
    text="GPU 0 was held back in 40 % of 300 samples. Look after the cooling.",
    file="gpu_telemetry.csv",
    window="steps 20–199",
    n=300,
)
GAPS = JitterCause(kind="telemetry_gaps", text="Two gaps.", file="gpu_telemetry.csv")
TOO_SLOW = Criterion(metric="samples_per_s", scope="winner", at_least=5000)


def slow_runs() -> list:
    first, second, *others = clean_runs()
    return [changed(first, slow_signs=(SIGN,), debug=(DEBUG,), jitter_causes=(THERMAL, GAPS)), changed(second, slow_signs=(SIGN,)), *others]


def test_every_sign_once_with_all_its_runs() -> None:
    found = finding(TOO_SLOW, runs=slow_runs())
    assert found.verdict is Verdict.FAIL
    assert [advice.id for advice in found.advice] == ["flash_fallback", "debug_on", "throttling"]
    flash, debug, thermal = found.advice
    assert flash.text in SENTENCES
    assert [(one.subject, one.file, one.n) for one in flash.evidence] == [
        ("mb16_nw2_r1", "mb16_nw2_r1/attempt-1/launcher.log", 4),
        ("mb16_nw2_r2", "mb16_nw2_r2/attempt-1/launcher.log", 4),
    ]
    assert debug.text in SENTENCES and (debug.evidence[0].name, debug.evidence[0].value) == (DEBUG.name, DEBUG.value)
    assert thermal.evidence[0].window == "steps 20–199" and thermal.text in SENTENCES


def test_only_the_runs_that_fell_short_give_advice() -> None:
    runs = slow_runs()
    found = finding(Criterion(metric="samples_per_s", scope="every_run", at_least=1255), runs=runs)
    assert found.verdict is Verdict.FAIL and found.advice == (), "mb16_nw0_r1 alone is too slow and shows nothing"


def test_no_advice_where_it_passes_or_is_about_something_else() -> None:
    assert finding(Criterion(metric="samples_per_s", scope="winner", at_least=1), runs=slow_runs()).advice == ()
    assert finding(Criterion(metric="startup_s", scope="every_run", at_most=1), runs=slow_runs()).advice == ()


def test_what_two_sources_saw_is_reported_once() -> None:
    sign = SlowSign(id="debug_on", action="Switch it off.", detail="NCCL_DEBUG=INFO", file="environment.json")
    other = DebugSetting(name="TORCH_DISTRIBUTED_DEBUG", value="DETAIL", source="environment.json", why="every collective is checked")
    run = changed(clean_runs()[0], slow_signs=(sign,), debug=(DEBUG, other))
    (advice,) = finding(TOO_SLOW, runs=[run]).advice
    assert advice.text in SENTENCES
    assert len(advice.evidence) == 3


def test_causes_seen_are_each_given_once_with_all_their_runs() -> None:
    first, second, third, _ = clean_runs()
    hot = dataclasses.replace(THERMAL, numbers={"gpu": 0, "held_ratio": 0.123456, "temp_c": None})
    runs = [changed(first, jitter_causes=(hot, GAPS)), changed(second, jitter_causes=(hot,)), dataclasses.replace(third, measure=None)]
    heat, gaps = causes_seen(runs)
    assert (heat.id, gaps.id) == ("thermal", "telemetry_gaps") and heat.text in SENTENCES
    assert [(one.subject, one.value) for one in heat.evidence] == [
        ("mb16_nw2_r1", "gpu 0, held_ratio 0.1235"),
        ("mb16_nw2_r2", "gpu 0, held_ratio 0.1235"),
    ]
    assert [one.id for one in causes_seen(runs, ("thermal",))] == ["telemetry_gaps"] and causes_seen([]) == ()


def test_causes_of_a_group_keep_their_text() -> None:
    (found,) = cause_advice([dataclasses.replace(THERMAL, numbers={})], "mb8")
    assert (found.id, found.text) == ("thermal", THERMAL.text)
    assert [(one.subject, one.value, one.file, one.window, one.n) for one in found.evidence] == [
        ("mb8", None, THERMAL.file, THERMAL.window, THERMAL.n)
    ]


def test_only_criteria_of_throughput_are_advised_on_and_only_the_runs_behind_them() -> None:
    facts = judged_campaign(slow_runs(), (), factory.ranking(), ())
    assert advice_for(Criterion(metric="startup_s", scope="every_run"), ["mb16_nw2_r1"], facts) == ()
    assert advice_for(TOO_SLOW, ["mb16_nw0_r1"], facts) == ()
    assert [one.id for one in advice_for(TOO_SLOW, ["mb16_nw2_r2"], facts)] == ["flash_fallback"]


def test_a_sign_without_a_count_was_seen_once_and_is_in_the_log() -> None:
    sign = SlowSign(id="flash_fallback", action="Switch flash on again.", detail="fallback", file="", n=0)
    (found,) = finding(TOO_SLOW, runs=[changed(clean_runs()[0], slow_signs=(sign,))]).advice
    assert [(one.n, one.file) for one in found.evidence] == [(1, "mb16_nw2_r1/attempt-1/launcher.log")]
