"""What stands beside the criteria: told once, the gravest first, and without a say in the verdict."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.judge.facts import sort_runs
from seatrial.judge.statements import statements
from seatrial.records.health import DebugSetting, MemoryVerdict, SlowStep, SlowSteps, StragglerVerdict, UnevenCause
from seatrial.records.measure import GroupSummary, Window
from seatrial.records.stability import GroupStability, SentinelDrift, StabilityVerdict
from seatrial.records.verdict import Criterion, Verdict
from tests.unit.judge.campaigns import changed, clean_runs, course, judged, spoilt, statement, straggler
from tests.unit.report import factory

NO_FAILURES = Criterion(metric="failed_runs", scope="campaign", at_most=0)
UNSTEADY = Window(first_step=0, last_step=199, n=200, warmup_steps=0, steady=False, reason="the step time rose at step 90")
_SAYS = {StabilityVerdict.UNSTABLE: "Not stable", StabilityVerdict.STABLE: "Stable", StabilityVerdict.INCONCLUSIVE: "Cannot be told"}


def with_stability(verdict: StabilityVerdict, name: str = "mb16_nw2") -> GroupSummary:
    cause = UnevenCause(kind="thermal", text="GPU 0 was held back.", file="gpu_telemetry.csv", window="steps 20–199", n=300)
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


def test_the_gravest_stand_first_and_ids_are_unique() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2), spoilt("mb8_nw2", 1)]
    runs[0] = changed(runs[0], memory=(course(MemoryVerdict.LEAK),), straggler=straggler(StragglerVerdict.NAMED))
    found = judged(runs=runs).statements
    order = [one.verdict for one in found]
    assert order == sorted(order, key=[Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS].index)
    assert len({one.id for one in found}) == len(found)
    assert all(one.criterion is None and one.kind != "criterion" for one in found)


def test_nothing_is_stated_where_nothing_ran() -> None:
    assert judged(runs=[], groups=[]).statements == ()


def test_a_leak_is_told_with_all_its_figures() -> None:
    runs = clean_runs()
    runs[0] = changed(runs[0], memory=(course(MemoryVerdict.LEAK),))
    found = statement("leak:mb16_nw2_r1:host", runs=runs)
    assert found is not None and found.text == (
        "mb16_nw2_r1 leaks: process tree grows by 12.5 MiB/min (12 to 13), 40 MiB in 1,000 steps, 300 samples over 10m 00s; "
        "full in 6h 00m, 5h 48m at the steepest."
    )
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


def test_many_leaks_are_told_once() -> None:
    runs = [changed(run, memory=(course(MemoryVerdict.LEAK, kind="gpu", subject="GPU 0"),)) for run in clean_runs()]
    found = statement("leak:gpu0", runs=runs)
    assert found is not None and found.text.startswith("4 runs leak (") and len({one.subject for one in found.evidence}) == 4


def test_level_memory_is_told_in_one_line_and_unknown_in_another() -> None:
    level = [changed(run, memory=(course(MemoryVerdict.PLATEAU),)) for run in clean_runs()[:3]]
    unsaid = changed(clean_runs()[3], memory=(course(MemoryVerdict.INCONCLUSIVE),))
    none, unknown = statement("leak-none", runs=[*level, unsaid]), statement("leak-unknown", runs=[*level, unsaid])
    assert none is not None and none.text == "No leak in 3 runs: memory stays level after warm-up (900 samples)."
    assert unknown is not None and unknown.text.startswith(
        "Whether memory leaks in mb16_nw0_r2 cannot be said: process tree: Too few samples"
    )


def test_a_straggler_is_named_with_place_phase_and_cost() -> None:
    runs = [changed(run, straggler=straggler(StragglerVerdict.NAMED)) for run in clean_runs()]
    found = statement("straggler:mb16_nw2_r1:rank1", runs=runs)
    assert found is not None and found.text == (
        "Rank 1 (node-2, GPU 3) holds mb16_nw2_r1, mb16_nw2_r2, mb16_nw0_r1, mb16_nw0_r2 up in bwd: "
        "at least 25 % longer at work than the others, 4 ms of each step (mb16_nw2_r1, steps 20–169)."
    )


@pytest.mark.parametrize(
    ("how", "id", "words"),
    [
        (StragglerVerdict.NONE, "straggler-none", "No rank holds the others up in 4 runs (600 steps)."),
        (
            StragglerVerdict.ABSTAINED,
            "straggler-unknown",
            "Whether one rank holds any of 4 runs up cannot be said: Rank 1 of 2 is missing.",
        ),
    ],
)
def test_no_straggler_and_no_answer(how: StragglerVerdict, id: str, words: str) -> None:
    found = statement(id, runs=[changed(run, straggler=straggler(how)) for run in clean_runs()])
    assert found is not None and found.text == words


def test_an_unstable_group_is_told_with_its_causes() -> None:
    found = statement("stability:mb16_nw2", groups=[with_stability(StabilityVerdict.UNSTABLE)])
    assert found is not None and (found.verdict, found.text) == (Verdict.FAIL, "mb16_nw2 is not stable: the median is 1.2.")
    assert [advice.id for advice in found.advice] == ["thermal"]
    assert [(one.name, one.value, one.n) for one in found.evidence] == [("median p90/p50", 1.2, 2), ("spread over repeats", 4.0, 2)]


def test_stable_groups_are_told_together() -> None:
    groups = [with_stability(StabilityVerdict.STABLE), with_stability(StabilityVerdict.STABLE, "mb16_nw0")]
    found = statement("stability-stable", groups=groups)
    assert found is not None and found.text == "2 groups are stable (mb16_nw2, mb16_nw0): the median is 1.2."
    assert len(found.evidence) == 4
    groups[1] = dataclasses.replace(groups[1], stability=dataclasses.replace(groups[1].stability, reason="Stable: the median is 1.3."))
    apart = statement("stability-stable", groups=groups)
    assert apart is not None and apart.text == "2 groups are stable (mb16_nw2, mb16_nw0); of mb16_nw2, the median is 1.2."
    one = statement("stability:mb16_nw2", groups=groups[:1])
    assert one is not None and one.text == "mb16_nw2 is stable: the median is 1.2."
    unclear = statement("stability:mb16_nw2", groups=[with_stability(StabilityVerdict.INCONCLUSIVE)])
    assert unclear is not None and unclear.text == "Whether mb16_nw2 is stable cannot be told: the median is 1.2."


def test_sentinels_are_no_group_to_be_judged() -> None:
    sentinel = dataclasses.replace(with_stability(StabilityVerdict.UNSTABLE), mode="sentinel", group="sentinel")
    verdict = judged(Criterion(metric="counted_runs", scope="every_group", at_least=2), groups=[factory.summary("mb16_nw2"), sentinel])
    assert verdict.verdict is Verdict.PASS and not [one for one in verdict.statements if "sentinel" in one.id]


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


def test_drift() -> None:
    drift = SentinelDrift(
        verdict=StabilityVerdict.UNSTABLE,
        reason="The platform grew 8 % slower.",
        group="s",
        runs=5,
        drift_pct=-8.0,
        first_t=0.0,
        last_t=7200.0,
    )
    found = statement("drift", drift=drift)
    assert found is not None and (found.verdict, found.evidence[0].window) == (Verdict.FAIL, "over 120 min of the campaign")


def test_runs_without_a_steady_state() -> None:
    one = statement("steady_state:mb16_nw2_r1", runs=[changed(clean_runs()[0], window=UNSTEADY)])
    assert one is not None and one.text == "No steady state in mb16_nw2_r1: the step time rose at step 90."
    many = statement("steady_state-none", runs=[changed(run, window=UNSTEADY) for run in clean_runs()])
    assert many is not None and len(many.evidence) == 4


@pytest.mark.parametrize(("share", "id", "verdict"), [(0.12, "slow_steps", Verdict.FAIL), (0.01, "slow_steps-few", Verdict.PASS)])
def test_slow_steps_are_named(share: float, id: str, verdict: Verdict) -> None:
    slow = SlowSteps(
        count=2, time_share=share, worst=(SlowStep(step=90, ms=400.0, over_median=16.0), SlowStep(step=40, ms=80.0, over_median=3.2))
    )
    found = statement(id, runs=[changed(clean_runs()[0], slow_steps=slow)])
    assert found is not None and found.verdict is verdict
    single = statement(id, runs=[changed(clean_runs()[0], slow_steps=dataclasses.replace(slow, count=1))])
    assert single is not None and "1 of 178 steps takes" in single.text
    assert "2 of 178 steps take" in found.text and "90 (400 ms, 16 × the median), 40 (80 ms, 3.2 × the median)" in found.text


def test_failures_are_told_by_cause_with_fault_and_action() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2), spoilt("mb8_nw2", 1)]
    oom, disk = statement("failure:cuda_oom", runs=runs), statement("failure:io_error", runs=runs)
    assert oom is not None and oom.verdict is Verdict.FAIL and "What to do: Lower micro_batch" in oom.text
    assert disk is not None and disk.verdict is Verdict.INCONCLUSIVE
    assert "the platform's fault" in disk.text and "run it again on a healthy platform" in disk.text


def test_debug_settings_are_told_once_with_all_runs() -> None:
    setting = DebugSetting(name="NCCL_DEBUG", value="INFO", source="launcher.log:12", why="every collective is written to the log")
    found = statement("debug:NCCL_DEBUG", runs=[changed(run, debug=(setting,)) for run in clean_runs()])
    assert found is not None and found.verdict is Verdict.INCONCLUSIVE
    assert (found.evidence[0].file, found.evidence[0].window) == ("mb16_nw2_r1/attempt-1/launcher.log", "line 12")
    assert len(found.evidence) == 4


def test_the_winner_is_stated_with_its_ratio_to_the_next() -> None:
    tied = statement("winner")
    assert tied is not None and tied.verdict is Verdict.INCONCLUSIVE
    assert "next is mb16_nw0 at 0.985 of the best mean, 95 % interval 0.96 to 1.011" in tied.text
    won = statement("winner", ranking=dataclasses.replace(factory.ranking(), decided=True, reason="Ahead of all."))
    assert won is not None and won.verdict is Verdict.PASS and won.text.startswith("mb16_nw2 wins with 1,270 samples/s: Ahead of all")
    failed = [factory.summary("mb16_nw2"), factory.summary("mb16_nw0", infrastructure_failures=("mb16_nw0_r3 (io_error)",))]
    unsure = statement("winner", groups=failed, ranking=dataclasses.replace(factory.ranking(), decided=True, reason="Ahead of all."))
    assert unsure is not None and unsure.verdict is Verdict.INCONCLUSIVE
    assert "but the platform failed mb16_nw0_r3 (io_error): run it again before one is called the fastest" in unsure.text
    waiting = statement(
        "winner", pending=("mb64_r1",), ranking=dataclasses.replace(factory.ranking(), decided=True, reason="Ahead of all.")
    )
    assert waiting is not None and waiting.verdict is Verdict.INCONCLUSIVE
    assert waiting.text.startswith("mb16_nw2 leads") and waiting.text.endswith("; 1 run still to be run.")
    none = statement("winner", ranking=factory.ranking(winner=None, reason="No run ended ok."))
    assert none is not None and none.text == "No winner. No run ended ok."


def test_every_number_has_its_file_window_and_n() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2)]
    runs[0] = changed(runs[0], memory=(course(MemoryVerdict.LEAK),), straggler=straggler(StragglerVerdict.NAMED))
    verdict = judged(NO_FAILURES, Criterion(metric="samples_per_s", scope="winner", at_least=1), runs=runs)
    for found in (*verdict.findings, *verdict.statements):
        for evidence in found.evidence:
            assert evidence.file and evidence.window and evidence.n is not None, (found.id, evidence)


def test_a_cause_is_told_though_its_group_is_not_unstable() -> None:
    cause = UnevenCause(kind="thermal", text="GPU 0 was too hot in 90 % of 100 samples: cool it.", file="gpu_telemetry.csv", n=100)
    slow = UnevenCause(kind="slow_rank", text="rank 1 is slow")
    runs = [changed(run, uneven=(cause, slow)) for run in clean_runs()]
    found = statement("cause:thermal", runs=runs)
    assert found is not None and found.text == (
        "GPU 0 was too hot in 90 % of 100 samples: cool it (mb16_nw2_r1, mb16_nw2_r2, mb16_nw0_r1, mb16_nw0_r2)."
    )
    assert {one.n for one in found.evidence} == {100} and len(found.evidence) == 4
    assert statement("cause:slow_rank", runs=runs) is None, "stragglers have statements of their own"


def test_a_cause_of_an_unstable_group_is_told_with_it_alone() -> None:
    cause = UnevenCause(kind="thermal", text="hot")
    unstable = GroupStability(verdict=StabilityVerdict.UNSTABLE, reason="Not stable: it varies.", runs=2, causes=(cause,))
    group = dataclasses.replace(factory.summary("mb16_nw2"), stability=unstable)
    runs = [changed(run, uneven=(cause,)) for run in clean_runs()]
    assert statement("cause:thermal", runs=runs, groups=[group]) is None


def test_a_switch_that_the_plan_turns_is_no_mistake() -> None:
    setting = DebugSetting(name="wall_clock_breakdown", value="true", source="spec.json", why="it synchronises", varied=True)
    found = statement("debug:wall_clock_breakdown", runs=[changed(run, debug=(setting,)) for run in clean_runs()])
    assert found is not None and found.text.endswith("The plan itself turns it on: differences hold what it costs.")


def test_what_a_straggler_costs_is_evidence() -> None:
    found = statement("straggler:mb16_nw2_r1:rank1", runs=[changed(clean_runs()[0], straggler=straggler(StragglerVerdict.NAMED))])
    assert found is not None
    assert {(one.name, one.value, one.unit) for one in found.evidence} >= {("time that a step is held up", 4.0, "ms")}


def test_every_slow_step_that_is_named_is_evidence() -> None:
    slow = SlowSteps(
        count=2, time_share=0.2, worst=(SlowStep(step=40, ms=90.0, over_median=3.0), SlowStep(step=12, ms=80.0, over_median=2.7))
    )
    found = statement("slow_steps", runs=[changed(clean_runs()[0], slow_steps=slow)])
    assert found is not None
    assert [(one.name, one.value) for one in found.evidence] == [
        ("time of slow steps", 20.0),
        ("time of step 40", 90.0),
        ("time of step 12", 80.0),
    ]


def test_of_one_verdict_statements_stand_in_the_order_a_reader_wants() -> None:
    runs = [*clean_runs(), factory.oom("mb8_nw2", 2)]
    runs[0] = changed(runs[0], memory=(course(MemoryVerdict.LEAK),), straggler=straggler(StragglerVerdict.NAMED))
    facts = sort_runs(runs, [with_stability(StabilityVerdict.UNSTABLE)], factory.ranking(), ())
    failing = [one.kind for one in statements(facts) if one.verdict is Verdict.FAIL]
    assert failing == ["failure", "leak", "straggler", "stability"]
    assert statements(dataclasses.replace(facts, ok=(), failed=())) == ()
