"""What is found beside the criteria."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from seatrial.judge.evidence import (
    CriterionValue,
    JudgedCampaign,
    held_up_evidence,
    inconclusive_text,
    is_single_rank,
    judged_campaign,
    leak_value,
    slope_text,
    straggler_evidence,
    trend_evidence,
)
from seatrial.judge.findings import (
    cause_findings,
    debug_findings,
    drift_finding,
    failure_findings,
    leak_findings,
    other_findings,
    slow_step_findings,
    stability_findings,
    steady_findings,
    straggler_findings,
    winner_finding,
)
from seatrial.records.measure import (
    DebugSetting,
    Estimate,
    GroupStability,
    GroupSummary,
    JitterCause,
    MemoryTrend,
    MemoryVerdict,
    SentinelDrift,
    SlowStep,
    SlowSteps,
    StabilityVerdict,
    Straggler,
    StragglerVerdict,
    Window,
)
from seatrial.records.outcome import Cause, Fault, Outcome
from seatrial.records.results import MeasuredRun
from seatrial.records.verdict import Criterion, Finding, Verdict
from tests.facts import states
from tests.unit.analyse.factory import golden
from tests.unit.judge.campaigns import changed, clean_runs, course, judged, platform_failed, statement, straggler
from tests.unit.report import factory

SENTENCES = golden("findings", Path(__file__).parent)

NO_FAILURES = Criterion(metric="failed_runs", scope="campaign", at_most=0)
_SAYS = {StabilityVerdict.UNSTABLE: "Not stable", StabilityVerdict.STABLE: "Stable", StabilityVerdict.INCONCLUSIVE: "Unknown"}


def with_stability(verdict: StabilityVerdict, name: str = "mb16_nw2") -> GroupSummary:
    cause = JitterCause(kind="thermal", text="GPU 0 was held back.", file="gpu_telemetry.csv", window="steps 20–199", n=300)
    found = GroupStability(
        verdict=verdict,
        reason=f"{_SAYS[verdict]}: the median is 1.2. Why: GPU 0 was held back.",
        runs=2,
        ratio_median=1.2,
        cv_pct=4.0,
        causes=(cause,),
    )
    return factory.summary(name, stability=found)


def test_statements_do_not_change_the_verdict() -> None:
    runs = [changed(run, memory=(course(MemoryVerdict.LEAK),)) for run in clean_runs()]
    verdict = judged(NO_FAILURES, runs=runs)
    assert verdict.verdict is Verdict.PASS and verdict.statements[0].verdict is Verdict.FAIL


def test_the_gravest_come_first_and_ids_are_unique() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2), platform_failed("mb8_nw2", 1)]
    runs[0] = changed(runs[0], memory=(course(MemoryVerdict.LEAK),), straggler=straggler(StragglerVerdict.NAMED))
    found = judged(runs=runs).statements
    order = [one.verdict for one in found]
    assert order == sorted(order, key=[Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS].index)
    assert len({one.id for one in found}) == len(found)
    assert all(one.criterion is None and one.kind != "criterion" for one in found)


def test_a_leak_is_reported_with_all_its_figures() -> None:
    runs = clean_runs()
    runs[0] = changed(runs[0], memory=(course(MemoryVerdict.LEAK),))
    found = statement("leak:mb16_nw2_r1:host", runs=runs)
    assert found is not None and found.text in SENTENCES
    assert found.evidence[0].n == 300
    assert {one.name: (one.value, one.unit) for one in found.evidence} == {
        "slope of process tree": (12.5, "MiB/min"),
        "slope of process tree, lower end": (12.0, "MiB/min"),
        "slope of process tree, upper end": (13.0, "MiB/min"),
        "growth of process tree in 1,000 steps": (40.0, "MiB"),
        "limit of process tree": (16384.0, "MiB"),
        "hours until process tree is full": (6.0, "h"),
        "hours until process tree is full, at the steepest": (5.8, "h"),
    }


def test_an_unstable_group_is_reported_with_its_causes() -> None:
    found = statement("stability:mb16_nw2", groups=[with_stability(StabilityVerdict.UNSTABLE)])
    assert found is not None and (found.verdict, found.text) == (Verdict.FAIL, "mb16_nw2 is not stable: the median is 1.2.")
    assert [advice.id for advice in found.advice] == ["thermal"]
    assert [(one.name, one.value, one.n) for one in found.evidence] == [("median p90/p50", 1.2, 2), ("spread over repeats", 4.0, 2)]


def test_stable_groups_are_reported_together() -> None:
    groups = [with_stability(StabilityVerdict.STABLE), with_stability(StabilityVerdict.STABLE, "mb16_nw0")]
    found = statement("stability-stable", groups=groups)
    assert found is not None and found.text in SENTENCES
    assert len(found.evidence) == 4
    groups[1] = dataclasses.replace(groups[1], stability=dataclasses.replace(groups[1].stability, reason="Stable: the median is 1.3."))
    apart = statement("stability-stable", groups=groups)
    assert apart is not None and apart.text in SENTENCES
    one = statement("stability:mb16_nw2", groups=groups[:1])
    assert one is not None and one.text in SENTENCES
    unclear = statement("stability:mb16_nw2", groups=[with_stability(StabilityVerdict.INCONCLUSIVE)])
    assert unclear is not None and unclear.text in SENTENCES


def test_a_group_may_be_called_none() -> None:
    runs = [changed(run, straggler=straggler(StragglerVerdict.NONE), memory=(course(MemoryVerdict.PLATEAU),)) for run in clean_runs()]
    groups = [
        with_stability(StabilityVerdict.UNSTABLE),
        with_stability(StabilityVerdict.STABLE),
        with_stability(StabilityVerdict.STABLE, "mb16_nw0"),
    ]
    groups[0] = dataclasses.replace(groups[0], group="stable")
    found = judged(runs=runs, groups=groups).statements
    assert len({one.id for one in found}) == len(found)


def test_every_number_has_its_file_window_and_n() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2)]
    runs[0] = changed(runs[0], memory=(course(MemoryVerdict.LEAK),), straggler=straggler(StragglerVerdict.NAMED))
    verdict = judged(NO_FAILURES, Criterion(metric="samples_per_s", scope="winner", at_least=1), runs=runs)
    for found in (*verdict.findings, *verdict.statements):
        for evidence in found.evidence:
            assert evidence.file and evidence.window and evidence.n is not None, (found.id, evidence)


def test_of_one_verdict_statements_are_in_the_order_a_reader_wants() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2)]
    runs[0] = changed(runs[0], memory=(course(MemoryVerdict.LEAK),), straggler=straggler(StragglerVerdict.NAMED))
    facts = judged_campaign(runs, [with_stability(StabilityVerdict.UNSTABLE)], factory.ranking(), ())
    failing = [one.kind for one in other_findings(facts) if one.verdict is Verdict.FAIL]
    assert failing == ["failure", "leak", "straggler", "stability"]
    assert other_findings(dataclasses.replace(facts, ok=(), failed=())) == ()


def group_facts(**ranking: Any) -> JudgedCampaign:
    return judged_campaign(clean_runs(), factory.groups(), factory.ranking(**ranking), ())


def winner(of: JudgedCampaign) -> Finding:
    (found,) = winner_finding(of)
    return found


def settled(**ranking: Any) -> JudgedCampaign:
    """The data decide, and nothing is missing."""
    reason = "mb16_nw2 has the highest samples/s, significantly better than every other group."
    facts = group_facts(**{"decided": True, "reason": reason, "recommended_reason": "the highest samples/s", **ranking})
    return dataclasses.replace(facts, groups=factory.groups()[1:3], pending=())


def test_no_winner_and_why() -> None:
    assert winner(group_facts(recommended=None, reason="")).text in SENTENCES
    found = winner(group_facts(recommended=None, reason="All failed."))
    assert (found.text, found.verdict, found.evidence) == ("No winner. All failed.", Verdict.INCONCLUSIVE, ())


def test_the_winner_and_one_that_is_not_proven() -> None:
    sure = winner(settled())
    assert sure.verdict is Verdict.PASS and sure.text in SENTENCES
    waiting = winner(dataclasses.replace(settled(), pending=("x_r1",)))
    assert waiting.verdict is Verdict.INCONCLUSIVE and waiting.text in SENTENCES
    tied = winner(dataclasses.replace(settled(), ranking=factory.ranking(decided=False)))
    assert tied.verdict is Verdict.INCONCLUSIVE and tied.text in SENTENCES


@pytest.mark.parametrize("failed", [("a_r1",), ("a_r1", "a_r2")])
def test_what_the_platform_failed_might_have_been_faster(failed: tuple[str, ...]) -> None:
    groups = (*factory.groups()[1:2], factory.summary("mb16_nw2", infrastructure_failures=failed))
    found = winner(dataclasses.replace(settled(), groups=groups))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.text in SENTENCES


def test_evidence_is_the_place_of_every_group_there_is() -> None:
    found = winner(settled())
    first = found.evidence[0]
    assert (first.subject, first.name, first.value, first.unit) == ("mb16_nw2", "samples_per_s", 1270.0, "samples/s")
    assert (first.file, first.n) == ("ranked_groups.csv", 2)
    assert {one.subject for one in found.evidence} == {group.group for group in settled().groups} - {factory.ODD}


def test_a_rival_without_an_interval_and_none_at_all() -> None:
    places = factory.ranking().groups
    bare = dataclasses.replace(places[1], ratio=Estimate(mean=0.9, n=1))
    assert "next is mb16_nw0 at 0.9 of the best mean, no interval" in winner(settled(groups=(places[0], bare))).text
    assert "next is" not in winner(settled(groups=places[:1])).text


def test_of_a_tie_the_recommended_group_need_not_have_the_best_mean() -> None:
    found = winner(dataclasses.replace(settled(), ranking=factory.ranking(recommended="mb16_nw0")))
    assert found.verdict is Verdict.INCONCLUSIVE and "Recommended: mb16_nw0 with 1,251 samples/s" in found.text
    assert " leads" not in found.text and " wins" not in found.text


def test_evidence_of_stability_is_what_is_known() -> None:
    stability = GroupStability(verdict=StabilityVerdict.STABLE, reason="Stable: so.", runs=2, ratio_max=1.5, unstable_run_ratio=0.0)
    (found,) = stability_findings(dataclasses.replace(group_facts(), groups=(factory.summary("mb16_nw2", stability=stability),)))
    assert [(one.name, one.value, one.window) for one in found.evidence] == [
        ("highest p90/p50", 1.5, "the last timing window of each run"),
        ("share of unstable runs", 0.0, "the last timing window of each run"),
    ]
    assert list(stability_findings(dataclasses.replace(group_facts(), groups=(factory.summary("mb16_nw2"),)))) == []


def test_no_sentinel_no_drift() -> None:
    assert list(drift_finding(group_facts())) == []
    drift = SentinelDrift(verdict=StabilityVerdict.INCONCLUSIVE, reason="Too few.", group="s", runs=2)
    (found,) = drift_finding(dataclasses.replace(group_facts(), drift=drift))
    assert (found.verdict, found.text, found.id) == (Verdict.INCONCLUSIVE, "Too few.", "drift")


def cause(kind: str) -> JitterCause:
    return JitterCause(kind=kind, text=f"It was {kind}.", file="host_telemetry.csv", window="steps 20–199", n=9)


def found_causes(*kinds: str, unstable: StabilityVerdict | None = None) -> list[Finding]:
    stability = unstable and GroupStability(verdict=unstable, reason="", runs=2, causes=(cause("thermal"),))
    runs = [changed(clean_runs()[0], jitter_causes=tuple(map(cause, kinds)))]
    return list(cause_findings(judged_campaign(runs, [factory.summary("mb16_nw2", stability=stability)], factory.ranking(), ())))


def test_in_the_order_in_which_runs_show_them() -> None:
    found = found_causes("thermal", "host_load")
    assert [(one.id, one.kind, one.verdict) for one in found] == [
        ("cause:thermal", "cause", Verdict.FAIL),
        ("cause:host_load", "cause", Verdict.FAIL),
    ]
    assert found[0].text in SENTENCES and found[0].evidence[0].n == 9


@pytest.mark.parametrize("kind", ["slow_rank", "slow_host"])
def test_a_slow_rank_is_reported_as_a_straggler(kind: str) -> None:
    assert found_causes(kind) == []


def test_what_an_unstable_group_shows_is_reported_with_it() -> None:
    assert [one.id for one in found_causes("thermal", "host_load", unstable=StabilityVerdict.UNSTABLE)] == ["cause:host_load"]
    assert [one.id for one in found_causes("thermal", unstable=StabilityVerdict.STABLE)] == ["cause:thermal"]


LEAK, LEVEL, UNSAID = (course(verdict) for verdict in (MemoryVerdict.LEAK, MemoryVerdict.PLATEAU, MemoryVerdict.INCONCLUSIVE))


def leaks(*of_runs: tuple[MemoryTrend, ...]) -> dict[str, Finding]:
    runs = [changed(run, memory=memory) for run, memory in zip(clean_runs(), of_runs, strict=False)]
    return {one.id: one for one in leak_findings(run_facts(*runs))}


def test_up_to_three_leaks_are_distinguished_the_worst_first() -> None:
    slow = dataclasses.replace(LEAK, slope_mib_per_min=1.0)
    assert list(leaks((slow,), (LEAK,), (slow,))) == ["leak:mb16_nw2_r2:host", "leak:mb16_nw2_r1:host", "leak:mb16_nw0_r1:host"]


def test_four_are_reported_together_by_the_worst() -> None:
    slow = dataclasses.replace(LEAK, slope_mib_per_min=1.0)
    found = leaks((slow,), (LEAK,), (slow,), (slow,))["leak:host"]
    assert found.text in SENTENCES


def test_each_kind_of_memory_is_reported_separately_with_what_is_known() -> None:
    gpu = dataclasses.replace(LEAK, kind="gpu", subject="GPU 0", mib_per_1000_steps=None, hours_left=None, first_t=None, n=1)
    found = leaks((LEAK, gpu))
    assert found["leak:mb16_nw2_r1:gpu0"].text in SENTENCES
    no_low = leaks((dataclasses.replace(LEAK, hours_low=None),))["leak:mb16_nw2_r1:host"]
    assert no_low.text in SENTENCES


def test_a_run_with_one_inconclusive_trend_is_not_level_and_no_samples_are_reported() -> None:
    found = leaks((LEVEL, UNSAID), (LEVEL,), ())
    assert found["leak-none"].text in SENTENCES
    assert found["leak-unknown"].text in SENTENCES
    assert leaks((), ())["leak-unknown"].text in SENTENCES
    assert leaks(())["leak-unknown"].text in SENTENCES


def test_a_run_that_failed_may_leak_and_is_never_level() -> None:
    failed = dataclasses.replace(factory.oom("mb8_nw2", 2), measure=changed(clean_runs()[0], memory=(LEAK,)).measure)
    assert [one.id for one in leak_findings(run_facts(failed))] == ["leak:mb8_nw2_r2:host"]
    level = dataclasses.replace(failed, measure=changed(clean_runs()[0], memory=(LEVEL,)).measure)
    assert list(leak_findings(run_facts(level))) == []


def held(*found: Straggler) -> list[Finding]:
    return list(straggler_findings(run_facts(*(changed(run, straggler=one) for run, one in zip(clean_runs(), found, strict=False)))))


NAMED = straggler(StragglerVerdict.NAMED)


def test_one_rank_at_one_place_is_reported_once_by_the_run_it_holds_up_most() -> None:
    worse = dataclasses.replace(NAMED, score=0.5)
    other = dataclasses.replace(NAMED, rank=0, host="", gpu="", phase="", held_up_ms=None)
    first, second = held(NAMED, worse, other)
    assert first.text in SENTENCES
    assert second.text in SENTENCES
    assert len(first.evidence) == 4


def test_a_whole_host_and_a_score_that_is_not_known() -> None:
    (host,) = held(dataclasses.replace(NAMED, slow_host="node-2", slow_host_ranks=8, score=None))
    assert host.text in SENTENCES


def test_stragglers_that_are_unknown_and_none() -> None:
    unknown, none = held(straggler(StragglerVerdict.ABSTAINED), straggler(StragglerVerdict.NONE))
    assert unknown.text in SENTENCES
    assert none.text in SENTENCES
    assert held() == []


def run_facts(*runs: MeasuredRun) -> JudgedCampaign:
    return judged_campaign(runs, (), factory.ranking(), ())


def failed(group: str, repeat: int, **changes: object) -> MeasuredRun:
    return factory.measured(group, repeat, how=Outcome.FAILED, **{"cause": Cause.UNKNOWN, "fault": Fault.CODE, **changes})


def test_a_failure_is_reported_with_its_lines_and_what_to_do() -> None:
    telling = tuple(f"line {at}" for at in range(5))
    (found,) = failure_findings(run_facts(failed("mb8_nw2", 1, detail="It broke.", action="Mend it.", telling=telling)))
    assert found.text in SENTENCES
    assert (found.id, found.verdict, found.evidence[0].window) == ("failure:unknown", Verdict.FAIL, "whole run, 31.5 s")


def test_what_the_platform_did_does_not_weigh_on_the_group() -> None:
    (found,) = failure_findings(run_facts(platform_failed("mb8_nw2", 1)))
    assert found.verdict is Verdict.INCONCLUSIVE and found.text in SENTENCES


def test_one_cause_with_two_remedies_is_two_statements_and_else_one() -> None:
    runs = [failed("mb8_nw2", 1, action="A."), failed("mb8_nw2", 2, action="B."), failed("mb16_nw2", 1, action="A.")]
    first, second = failure_findings(run_facts(*runs))
    assert (first.id, second.id) == ("failure:unknown", "failure:unknown:2") and first.text in SENTENCES
    (bare,) = failure_findings(run_facts(failed("mb8_nw2", 1, fault=Fault.CONFIGURATION, detail="")))
    assert bare.text in SENTENCES


def test_runs_that_failed_for_different_exceptions_are_not_shown_with_one() -> None:
    """What every start chooses anew does not tell them apart."""
    texts = ("KeyError: 'other'", "ValueError: nope", "bind to port 29501 (pid 4711)", "bind to port 29502 (pid 4712)", "KeyError: 'other'")
    runs = [failed("mb8_nw2", 1, detail=text) for text in texts]
    found = list(failure_findings(run_facts(*runs)))
    assert [(len(each.evidence), text in each.text) for each, text in zip(found, texts, strict=False)] == [(2, True), (1, True), (2, True)]


DEBUG = DebugSetting(name="NCCL_DEBUG", value="INFO", source="launcher.log:12", why="It logs.")


def test_a_setting_that_a_run_shows_twice_is_of_one_run() -> None:
    run = changed(clean_runs()[0], debug=(DEBUG, dataclasses.replace(DEBUG, source="environment.json")))
    (found,) = debug_findings(run_facts(run))
    assert found.id == "debug:NCCL_DEBUG" and states(found.text, "NCCL_DEBUG=INFO", "mb16_nw2_r1", "It logs.", "Measure without it.")
    assert [(one.file, one.window) for one in found.evidence] == [
        ("mb16_nw2_r1/attempt-1/launcher.log", "line 12"),
        ("mb16_nw2_r1/attempt-1/environment.json", "steps 20–199"),
    ]


def test_two_values_of_one_setting_have_two_names_and_a_plan_that_turns_it_on_is_reported() -> None:
    first, second, *_ = clean_runs()
    varied = [
        changed(run, debug=(dataclasses.replace(DEBUG, value=value, varied=True),)) for run, value in ((first, "INFO"), (second, "WARN"))
    ]
    found = list(debug_findings(run_facts(*varied)))
    assert [one.id for one in found] == ["debug:NCCL_DEBUG=INFO", "debug:NCCL_DEBUG=WARN"]
    assert found[0].text in SENTENCES
    (mixed,) = debug_findings(run_facts(changed(first, debug=(DEBUG, dataclasses.replace(DEBUG, varied=True)))))
    assert mixed.text in SENTENCES


def window(**changes: object) -> Window:
    return Window(**{"first_step": 5, "last_step": 9, "n": 5, "warmup_steps": 5, **changes})  # type: ignore[arg-type]


def test_a_steady_state_with_the_longest_warm_up_and_all_steps() -> None:
    first, second, *_ = clean_runs()
    (found,) = steady_findings(run_facts(changed(first, window=window()), changed(second, window=window(warmup_steps=7, n=3))))
    assert (found.id, found.verdict) == ("steady_state", Verdict.PASS)
    assert found.text in SENTENCES
    (one,) = steady_findings(run_facts(changed(first, window=window(warmup_steps=1, n=1))))
    assert one.text in SENTENCES
    assert [(each.value, each.unit, each.n, each.window) for each in one.evidence] == [(1, "steps", 1, "steps 5–9")]


@pytest.mark.parametrize(("count", "statements"), [(0, 0), (3, 3), (4, 1)])
def test_up_to_three_without_a_steady_state_are_distinguished(count: int, statements: int) -> None:
    restless = [changed(run, window=window(steady=False, reason="it rose.")) for run in clean_runs()[:count]]
    found = list(steady_findings(run_facts(*restless)))
    assert len(found) == statements and all(one.verdict is Verdict.INCONCLUSIVE for one in found)
    if count == 4:
        assert found[0].text in SENTENCES


def test_a_run_that_gives_no_reason_had_too_few_steps() -> None:
    (found,) = steady_findings(run_facts(changed(clean_runs()[0], window=window(steady=False))))
    assert found.text in SENTENCES


def slow(share: float, count: int = 1) -> SlowSteps:
    worst = tuple(SlowStep(step=at, ms=100.0 * at, over_median=2.0 * at) for at in range(5, 1, -1))
    return SlowSteps(count=count, time_share=share, worst=worst)


def test_slow_steps_are_reported_by_the_run_that_has_most() -> None:
    first, second, third, fourth = clean_runs()
    runs = [changed(first, slow_steps=slow(0.051)), changed(second, slow_steps=slow(0.2, 2)), changed(third, slow_steps=slow(0.05))]
    grave, slight = slow_step_findings(run_facts(*runs, changed(fourth, slow_steps=slow(0.9, 0))))
    assert (grave.id, grave.verdict, slight.id, slight.verdict) == ("slow_steps", Verdict.FAIL, "slow_steps-few", Verdict.PASS)
    assert grave.text in SENTENCES
    assert slight.text in SENTENCES
    assert [(one.name, one.unit, one.n) for one in slight.evidence][:2] == [("time of slow steps", "%", 178), ("time of step 5", "ms", 1)]
    assert len(slight.evidence) == 5


def read(*memory: MemoryTrend) -> CriterionValue:
    return leak_value(changed(clean_runs()[0], memory=memory))


def test_the_fastest_leak_counts() -> None:
    slow = dataclasses.replace(LEAK, subject="GPU 1", slope_mib_per_min=2.0)
    found = read(LEVEL, slow, LEAK)
    assert (found.value, found.unit, found.window, found.n) == (12.5, "MiB/min", "600 s after warm-up", 300)
    assert found.detail in SENTENCES and found.unsettled == ""
    assert found.file == "mb16_nw2_r1/attempt-1/host_telemetry.csv" and len(found.further) == 15


def test_level_memory_is_a_growth_of_nothing() -> None:
    found = read(LEVEL, LEVEL)
    assert (found.value, found.detail, found.missing) == (0.0, "no growth", "")


def test_what_is_inconclusive_is_missing_unless_something_leaks() -> None:
    assert slope_text(dataclasses.replace(LEAK, slope_low=None)) == "grows by 12.5 MiB/min"
    assert slope_text(dataclasses.replace(LEAK, slope_high=None)) == "grows by 12.5 MiB/min"
    assert slope_text(dataclasses.replace(LEAK, slope_mib_per_min=None)) == "grows"
    assert read().missing in SENTENCES
    assert read(LEVEL, UNSAID).missing in SENTENCES
    found = read(UNSAID, LEAK)
    assert found.value == 12.5 and found.unsettled == inconclusive_text(UNSAID)
    without_slope = dataclasses.replace(LEAK, slope_mib_per_min=None)
    assert read(without_slope, UNSAID).missing != "" and leak_value(dataclasses.replace(clean_runs()[0], measure=None)).missing != ""


def test_evidence_is_the_slope_and_of_a_leak_all_that_is_known() -> None:
    run = clean_runs()[0]
    assert [one.name for one in trend_evidence(run, LEVEL)] == ["slope of process tree"]
    known = trend_evidence(run, dataclasses.replace(LEAK, limit_mib=None, hours_left=None, hours_low=None))
    assert [(one.name, one.value, one.unit) for one in known] == [
        ("slope of process tree", 12.5, "MiB/min"),
        ("slope of process tree, lower end", 12.0, "MiB/min"),
        ("slope of process tree, upper end", 13.0, "MiB/min"),
        ("growth of process tree in 1,000 steps", 40.0, "MiB"),
    ]
    (bare,) = trend_evidence(run, dataclasses.replace(LEVEL, first_t=None, file=""))
    assert (bare.window, bare.file, bare.subject) == ("after warm-up", "per_run_metrics.csv", "mb16_nw2_r1")


def test_a_run_of_a_single_rank_is_alone_unless_its_ranks_were_measured() -> None:
    assert is_single_rank(changed(clean_runs()[0], world_size=1).measure)
    assert not is_single_rank(clean_runs()[0].measure) and not is_single_rank(None)
    assert not is_single_rank(changed(clean_runs()[0], world_size=1, straggler=straggler(StragglerVerdict.NONE)).measure)


def test_the_score_and_what_it_costs() -> None:
    run = clean_runs()[0]
    score, held = straggler_evidence(run, NAMED), held_up_evidence(run, NAMED)
    assert (score.subject, score.name, score.value, score.unit) == ("mb16_nw2_r1", "straggler score of rank 1", 0.25, "")
    assert (score.file, score.window, score.n) == ("per_run_metrics.csv", "steps 20–169", 150)
    assert (held.name, held.value, held.unit, held.window) == ("time that a step is held up", 4.0, "ms", "steps 20–169")
    assert straggler_evidence(run, straggler(StragglerVerdict.NONE)).name == "straggler score"
    assert straggler_evidence(run, dataclasses.replace(NAMED, rank=0)).name == "straggler score of rank 0"
    windows = [straggler_evidence(run, dataclasses.replace(NAMED, first_step=step)).window for step in (0, None)]
    assert windows == ["steps 0–169", "no steps"]
