"""Leaks and stragglers: a few told one by one, many together, and what cannot be said once."""

from __future__ import annotations

import dataclasses

from seatrial.judge.facts import Facts, sort_runs
from seatrial.judge.statements_of_health import leak_statements, straggler_statements
from seatrial.records.health import MemoryCourse, MemoryVerdict, Straggler, StragglerVerdict
from seatrial.records.verdict import Finding
from tests.unit.judge.campaigns import changed, clean_runs, course, straggler
from tests.unit.report import factory

LEAK, LEVEL, UNSAID = (course(verdict) for verdict in (MemoryVerdict.LEAK, MemoryVerdict.PLATEAU, MemoryVerdict.INCONCLUSIVE))


def leaks(*of_runs: tuple[MemoryCourse, ...]) -> dict[str, Finding]:
    runs = [changed(run, memory=memory) for run, memory in zip(clean_runs(), of_runs, strict=False)]
    return {one.id: one for one in leak_statements(facts(*runs))}


def facts(*runs) -> Facts:
    return sort_runs(runs, (), factory.ranking(), ())


def test_up_to_three_leaks_are_told_apart_the_worst_first() -> None:
    slow = dataclasses.replace(LEAK, slope_mib_per_min=1.0)
    assert list(leaks((slow,), (LEAK,), (slow,))) == ["leak:mb16_nw2_r2:host", "leak:mb16_nw2_r1:host", "leak:mb16_nw0_r1:host"]


def test_four_are_told_together_by_the_worst() -> None:
    slow = dataclasses.replace(LEAK, slope_mib_per_min=1.0)
    found = leaks((slow,), (LEAK,), (slow,), (slow,))["leak:host"]
    assert found.text.startswith(
        "4 runs leak (mb16_nw2_r2, mb16_nw2_r1, mb16_nw0_r1, mb16_nw0_r2), the worst, mb16_nw2_r2: process tree grows by 12.5"
    )


def test_each_kind_of_memory_is_told_for_itself_with_what_is_known() -> None:
    gpu = dataclasses.replace(LEAK, kind="gpu", subject="GPU 0", mib_per_1000_steps=None, hours_left=None, first_t=None, n=1)
    found = leaks((LEAK, gpu))
    assert found["leak:mb16_nw2_r1:gpu0"].text == "mb16_nw2_r1 leaks: GPU 0 grows by 12.5 MiB/min (12 to 13), 1 sample."
    no_low = leaks((dataclasses.replace(LEAK, hours_low=None),))["leak:mb16_nw2_r1:host"]
    assert no_low.text.endswith("; full in 6h 00m.")


def test_a_run_with_one_unsaid_course_is_not_level_and_no_samples_are_told() -> None:
    found = leaks((LEVEL, UNSAID), (LEVEL,), ())
    assert found["leak-none"].text == "No leak in 1 run: memory stays level after warm-up (300 samples)."
    assert found["leak-unknown"].text.startswith(
        "Whether memory leaks in 2 runs (mb16_nw2_r1, mb16_nw0_r1) cannot be said: process tree: Too few"
    )
    assert "any of 2 runs cannot be said: no samples of memory" in leaks((), ())["leak-unknown"].text
    assert "in mb16_nw2_r1 cannot be said" in leaks(())["leak-unknown"].text


def test_a_run_that_failed_is_said_to_leak_and_not_to_be_level() -> None:
    failed = dataclasses.replace(factory.oom("mb8_nw2", 2), measure=changed(clean_runs()[0], memory=(LEAK,)).measure)
    assert [one.id for one in leak_statements(facts(failed))] == ["leak:mb8_nw2_r2:host"]
    level = dataclasses.replace(failed, measure=changed(clean_runs()[0], memory=(LEVEL,)).measure)
    assert list(leak_statements(facts(level))) == []


def held(*found: Straggler) -> list[Finding]:
    return list(straggler_statements(facts(*(changed(run, straggler=one) for run, one in zip(clean_runs(), found, strict=False)))))


NAMED = straggler(StragglerVerdict.NAMED)


def test_one_rank_at_one_place_is_told_once_by_the_run_it_holds_up_most() -> None:
    worse = dataclasses.replace(NAMED, score=0.5)
    other = dataclasses.replace(NAMED, rank=0, host="", gpu="", phase="", held_up_ms=None)
    first, second = held(NAMED, worse, other)
    assert first.text == (
        "Rank 1 (node-2, GPU 3) holds mb16_nw2_r1, mb16_nw2_r2 up in bwd: at least 50 % longer at work than the others, 4 ms of each step "
        "(mb16_nw2_r2, steps 20–169)."
    )
    assert second.text == "Rank 0 holds mb16_nw0_r1 up: at least 25 % longer at work than the others (steps 20–169)."
    assert len(first.evidence) == 4


def test_a_whole_host_and_a_score_that_is_not_known() -> None:
    (host,) = held(dataclasses.replace(NAMED, slow_host="node-2", slow_host_ranks=8, score=None))
    assert host.text == "Host node-2 (all its 8 ranks and no others, rank 1 most) holds mb16_nw2_r1 up in bwd."


def test_who_cannot_tell_and_who_has_none() -> None:
    unknown, none = held(straggler(StragglerVerdict.ABSTAINED), straggler(StragglerVerdict.NONE))
    assert unknown.text == "Whether one rank holds mb16_nw2_r1 up cannot be said: Rank 1 of 2 is missing."
    assert none.text == "No rank holds the others up in 1 run (150 steps)."
    assert held() == []
