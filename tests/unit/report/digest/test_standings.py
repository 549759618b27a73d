"""What is said of a campaign before it is drawn."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.caution import Caution
from seatrial.records.measure import GroupSummary, RankedGroup
from seatrial.records.original_names import MADE_FROM
from seatrial.records.outcome import Outcome
from seatrial.report.digest.cautions import cautions, warnings
from seatrial.report.digest.failures import failures
from seatrial.report.digest.machines import machines
from seatrial.report.digest.sentences import origin, pending_sentence, winners_sentence
from seatrial.report.digest.standings import ALONE, LEADS, SHOWN_NOTES, standings
from tests.unit.report import factory


def test_notes_of_every_place() -> None:
    notes = {standing.group.group: standing.note for standing in standings(factory.results())}
    assert notes == {"mb16_nw2": "leads", "mb16_nw0": "tied", "mb8_nw2": "cannot win", factory.ODD: "off lane"}


def test_a_tie_may_go_to_another_than_the_best() -> None:
    ranking = factory.ranking(winner="mb16_nw0")
    results = factory.results(ranking=ranking)
    notes = {standing.group.group: standing.note for standing in standings(results)}
    assert (notes["mb16_nw0"], notes["mb16_nw2"]) == ("leads", "tied")
    told = f"Leads by throughput, not proven: mb16_nw0 (1,251 samples/s ±2.0 %). {ranking.reason} 1 run still to be run."
    assert winners_sentence(results).startswith(told)


@pytest.mark.parametrize(
    ("decided", "pending", "note", "title"),
    [
        (True, (), "winner", "Throughput winner: mb16_nw2"),
        (False, (), "leads", "Leads by throughput, not proven: mb16_nw2"),
        (True, ("mb16_nw0_r3",), "leads", "Leads by throughput, not proven: mb16_nw2"),
    ],
)
def test_only_a_decided_and_whole_campaign_has_a_winner(decided: bool, pending: tuple[str, ...], note: str, title: str) -> None:
    results = factory.results(ranking=factory.ranking(decided=decided), pending=pending)
    first = standings(results)[0]
    assert (first.note, first.shown, first.is_first) == (note, SHOWN_NOTES.get(note, note), True)
    told = winners_sentence(results)
    assert told.startswith(title)
    assert ("more than the noise" in told) is (note == "winner")
    assert ("1 run still to be run" in told) is bool(pending)


def waiting(name: str, **changes: Any) -> GroupSummary:
    """A group of which nothing is there."""
    made = GroupSummary(group=name, group_key=f"key-{name}", mode="sweep", lane=True, axes={"micro_batch": 64}, runs=0, failed_runs=0)
    return dataclasses.replace(made, **changes)


def test_groups_that_have_not_run_are_listed_and_are_not_said_to_lose() -> None:
    results = factory.results(not_started=(waiting("mb64"), waiting("aside", lane=False)))
    placed = [(standing.group.group, standing.place.rank, standing.note) for standing in standings(results)]
    assert placed[2:] == [
        ("mb8_nw2", 3, "cannot win"),
        ("mb64", 4, "not run yet"),
        (factory.ODD, 1, "off lane"),
        ("aside", 2, "not run yet"),
    ]
    assert [standing.n for standing in standings(results)] == [356, 356, 178, None, 178, None]


def test_a_group_of_which_no_run_has_ended_says_so() -> None:
    running = waiting("mb16_nw2", runs=0)
    groups = tuple(running if group.group == running.group else group for group in factory.groups())
    place = RankedGroup(rank=1, group="mb16_nw2", value=None, can_win=False, reason="no run has ended yet")
    results = factory.results(groups=groups, ranking=factory.ranking(groups=(place,), winner=None))
    assert standings(results)[0].note == "no run ended"
    failed = tuple(dataclasses.replace(group, failed_runs=1) for group in groups)
    assert standings(dataclasses.replace(results, groups=failed))[0].note == "cannot win"


def test_the_first_of_those_to_come_is_not_called_the_only_group() -> None:
    only = factory.ranking().groups[0]
    ranking = factory.ranking(groups=(only,), reason="mb16_nw2 is the only group.")
    told = winners_sentence(factory.results(ranking=ranking, not_started=(waiting("mb64"),), pending=("mb64_r1",)))
    assert "is the only group" not in told and "No run of another group has ended yet. 1 run still to be run." in told


def test_a_group_alone_leads_nobody() -> None:
    only = factory.summary("mb16_nw2")
    sentinel = factory.summary("mb8_nw2", mode=SENTINEL)
    place = next(place for place in factory.ranking().groups if place.group == "mb16_nw2")
    ranking = factory.ranking(groups=(place,), off_lane=(), decided=False, reason="It is alone.")
    alone = factory.results(groups=(only, sentinel), ranking=ranking, pending=(), runs=())
    assert standings(alone)[0].note == ALONE and standings(alone)[0].is_first
    assert winners_sentence(alone).startswith("Throughput of the only group: mb16_nw2 (1,270 samples/s ±1.0 %).")
    waits = dataclasses.replace(alone, pending=("mb16_nw2_r3",))
    assert standings(waits)[0].note == LEADS


def test_figures_of_whole_runs_rest_on_runs() -> None:
    groups = tuple(dataclasses.replace(group, window_n=0) for group in factory.groups())
    assert [standing.n for standing in standings(factory.results(groups=groups))] == [2, 2, 1, 1]


def test_only_current_failures_are_told() -> None:
    assert [failure.runs for failure in failures(factory.results())] == [("mb8_nw2_r2",)]


def test_one_caution_of_many_runs_is_said_once() -> None:
    caution = Caution(kind="no_steady_state", text="No steady state was found; run more steps.")
    runs = tuple(
        dataclasses.replace(run, measure=dataclasses.replace(run.measure, cautions=(caution,))) if run.measure else run
        for run in factory.runs()
    )
    found = {warned.kind: warned for warned in cautions(factory.results(runs=runs))}
    assert len(found["no_steady_state"].subjects) == 6
    assert found["one_repeat"].subjects == (factory.ODD,)
    assert found["drift"].subjects == ()


def test_cautions_of_old_attempts_are_not_said() -> None:
    old = factory.measured("mb16_nw0", 1, how=Outcome.FAILED, current=False)
    warned = dataclasses.replace(old, attempt=dataclasses.replace(old.attempt, cautions=(Caution(kind="torn", text="Torn."),)))
    assert "torn" not in {caution.kind for caution in cautions(factory.results(runs=(warned,)))}


def test_unlike_machines_are_listed_apart() -> None:
    runs = list(factory.runs())
    gpu = factory.provenance(host="node-2", gpu_name="Example GPU", driver_version="570.1", git_dirty="true")
    runs[0] = dataclasses.replace(runs[0], attempt=dataclasses.replace(runs[0].attempt, provenance=gpu))
    found = machines(factory.results(runs=tuple(runs)))
    assert [count for _, count in found] == [6, 1]
    assert found[1][0].startswith("node-2, Example GPU (driver 570.1), ")
    assert found[1][0].endswith("commit 0123456789ab (main) with uncommitted changes")


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({}, "step"),
        ({"last_fwd_p50_ms": 8.0, "last_bwd_p50_ms": None}, "step"),
        ({"last_fwd_p50_ms": 8.0, "last_bwd_p50_ms": 16.0}, "sum of phases"),
    ],
)
def test_the_latency_winners_figure_says_what_it_is_of(told: dict[str, float | None], what: str) -> None:
    run = factory.measured("mb16_nw2", 1)
    assert run.measure is not None
    run = dataclasses.replace(run, measure=dataclasses.replace(run.measure, seed={**run.measure.seed, **told}))
    text = winners_sentence(factory.results(runs=(run,)))
    assert text.endswith(f"Latency winner: the same, mb16_nw2 (25.20 ms median {what} over the last timing points).")


def test_latency_without_timing_points_is_said() -> None:
    text = winners_sentence(factory.results(ranking=factory.ranking(latency_winner=None)))
    assert text.endswith("Latency winner: none, as no run gave timing points.")


def test_a_winner_by_another_figure_is_not_called_throughput() -> None:
    ranking = factory.ranking(metric="duration_s", unit="s")
    assert winners_sentence(factory.results(ranking=ranking)).startswith("Leads by duration_s, not proven: mb16_nw2 (1,270 s")
    decided = factory.results(ranking=dataclasses.replace(ranking, decided=True), pending=())
    assert winners_sentence(decided).startswith("Winner by duration_s: mb16_nw2 (1,270 s")


def test_the_only_group_that_can_win_is_ahead_of_nobody() -> None:
    only = factory.ranking().groups[0]
    reason = "mb16_nw2 is the only group that can win."
    text = winners_sentence(factory.results(ranking=factory.ranking(groups=(only,), decided=True, reason=reason), pending=()))
    assert text.startswith(f"Throughput winner: mb16_nw2 (1,270 samples/s ±1.0 %). {reason}")


def test_cautions_on_figures_of_failed_runs_are_left_out() -> None:
    caution = Caution(kind="no_steady_state", text="No steady state was found; run more steps.")
    failed = dataclasses.replace(factory.oom("mb8_nw2", 2), measure=factory.measure(1.0, cautions=(caution,)))
    assert "no_steady_state" not in {warned.kind for warned in cautions(factory.results(runs=(failed,)))}


def test_what_is_still_to_be_run_of_an_original_folder_has_no_command_here() -> None:
    assert pending_sentence(factory.results(pending=("a_r1",))).endswith("The same command again runs only what is missing.")
    translated = factory.results(pending=("a_r1",), cautions=(Caution(kind=MADE_FROM, text="Made."),))
    told = pending_sentence(translated)
    assert told.startswith("1 run still to be run: a_r1. ") and "same command" not in told
    assert origin(translated) == "Made." and MADE_FROM not in {one.kind for one in warnings(translated)}
    assert pending_sentence(factory.results(pending=())) == ""


def test_a_winner_is_not_final_while_the_platform_failed_a_run() -> None:
    failed = ("mb16_nw0_r3 (io_error)",)
    groups = [dataclasses.replace(group, infrastructure_failures=failed if group.group == "mb16_nw0" else ()) for group in factory.groups()]
    told = winners_sentence(factory.results(groups=tuple(groups), ranking=factory.ranking(decided=True), pending=()))
    assert told.startswith("Leads by throughput, not proven: ") and "more than the noise" not in told
    assert "but the platform failed mb16_nw0_r3 (io_error): no winner is final before that is run again." in told


def test_debugging_stands_beside_the_figures() -> None:
    groups = [dataclasses.replace(group, debug=("NCCL_DEBUG=INFO",) if group.group == "mb16_nw2" else ()) for group in factory.groups()]
    results = factory.results(groups=tuple(groups))
    assert [standing.remarks for standing in standings(results)][:2] == ["leads, debug on", "tied"]
    assert "(1,270 samples/s ±1.0 %), measured with NCCL_DEBUG=INFO on." in winners_sentence(results)
