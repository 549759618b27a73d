"""Ranking rows and labels, and how the terminal and summary.md show them."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from seatrial.analyse.groups import summarise_groups
from seatrial.analyse.ranking import rank_groups
from seatrial.records.caution import Caution
from seatrial.records.columns import ORIGINAL_SCRIPTS, STEPS, RunCharts
from seatrial.records.measure import GroupSummary, TimingPoint
from seatrial.records.outcome import Outcome
from seatrial.records.plan import SENTINEL
from seatrial.records.ranking import RankedGroup
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.html.data import page_data
from seatrial.report.markdown_sections import MAX_REASONS
from seatrial.report.markdown_sections import ranking_section as markdown_ranking
from seatrial.report.terminal_sections import MAX_CANNOT_WIN, ranking_section
from seatrial.report.view.campaign import (
    NOTE_TEXTS,
    ONLY_GROUP,
    RECOMMENDED,
    all_cautions,
    is_first,
    labels_of,
    note_text,
    note_with_debug,
    origin_sentence,
    pending_sentence,
    shown_cautions,
    why_no_tail,
    winners_sentence,
)
from seatrial.report.view.machine import machines
from seatrial.report.write import summary_json
from tests.facts import states
from tests.unit.analyse import factory as runs
from tests.unit.report import charted_factory, factory
from tests.unit.report.console import lines


def test_notes_of_every_place() -> None:
    notes = {row.group: row.note for row in factory.results().ranking_rows}
    assert notes == {"mb16_nw2": "recommended", "mb16_nw0": "tied", "mb8_nw2": "cannot win", factory.ODD: "off lane"}


def test_of_a_tie_another_than_the_best_may_be_recommended() -> None:
    ranking = factory.ranking(recommended="mb16_nw0")
    results = factory.results(ranking=ranking)
    notes = {row.group: row.note for row in results.ranking_rows}
    assert (notes["mb16_nw0"], notes["mb16_nw2"]) == ("recommended", "tied")
    told = winners_sentence(results)
    assert told.startswith("No winner by throughput is proven.") and ranking.reason in told and "1 run still to be run" in told
    assert states(told, "Recommended: mb16_nw0", "1,251 samples/s ±2.0 %", "lower p90/p50") and "eads" not in told


@pytest.mark.parametrize(
    ("decided", "pending", "note", "title"),
    [
        (True, (), "winner", "Throughput winner: mb16_nw2"),
        (False, (), "recommended", "No winner by throughput is proven."),
        (True, ("mb16_nw0_r3",), "recommended", "No winner by throughput is proven."),
    ],
)
def test_only_a_decided_and_whole_campaign_has_a_winner(decided: bool, pending: tuple[str, ...], note: str, title: str) -> None:
    results = factory.results(ranking=factory.ranking(decided=decided), pending=pending)
    first = results.ranking_rows[0]
    assert (first.note, note_text(first), is_first(first)) == (note, NOTE_TEXTS.get(note, note), True)
    told = winners_sentence(results)
    assert told.startswith(title)
    assert ("more than the noise" in told) is (note == "winner")
    assert ("1 run still to be run" in told) is bool(pending)


def waiting(name: str, **changes: Any) -> GroupSummary:
    """A group of which nothing is there."""
    made = GroupSummary(group=name, group_key=f"key-{name}", mode="sweep", lane=True, axes={"micro_batch": 64}, runs=0, failed_runs=0)
    return dataclasses.replace(made, **changes)


def test_groups_that_have_not_run_are_listed_and_are_not_reported_to_lose() -> None:
    results = factory.results(not_started=(waiting("mb64"), waiting("aside", lane=False)))
    placed = [(row.group, row.rank, row.note) for row in results.ranking_rows]
    assert placed[2:] == [
        ("mb8_nw2", 3, "cannot win"),
        ("mb64", 4, "not run yet"),
        (factory.ODD, 1, "off lane"),
        ("aside", 2, "not run yet"),
    ]
    assert [row.n for row in results.ranking_rows] == [356, 356, 178, None, 178, None]


def test_a_group_of_which_no_run_has_ended_says_so() -> None:
    running = waiting("mb16_nw2", runs=0)
    groups = tuple(running if group.group == running.group else group for group in factory.groups())
    place = RankedGroup(rank=1, summary=running, can_win=False, reason="no run has ended yet")
    results = factory.results(groups=groups, ranking=factory.ranking(groups=(place,), recommended=None))
    assert results.ranking_rows[0].note == "no run ended"
    failed = tuple(dataclasses.replace(group, failed_runs=1) for group in groups)
    assert factory.with_groups(dataclasses.replace(results, groups=failed)).ranking_rows[0].note == "cannot win"


def test_the_first_of_those_to_come_is_not_called_the_only_group() -> None:
    only = factory.ranking().groups[0]
    ranking = factory.ranking(groups=(only,), reason="mb16_nw2 is the only group.")
    told = winners_sentence(factory.results(ranking=ranking, not_started=(waiting("mb64"),), pending=("mb64_r1",)))
    assert "is the only group" not in told and states(told, "another group", "1 run still to be run")


def test_a_group_alone_leads_nobody() -> None:
    only = factory.summary("mb16_nw2")
    sentinel = factory.summary("mb8_nw2", mode=SENTINEL)
    place = next(place for place in factory.ranking().groups if place.group == "mb16_nw2")
    ranking = factory.ranking(groups=(place,), off_lane=(), decided=False, reason="It is alone.")
    alone = factory.results(groups=(only, sentinel), ranking=ranking, pending=(), runs=())
    assert alone.ranking_rows[0].note == ONLY_GROUP and is_first(alone.ranking_rows[0])
    assert winners_sentence(alone).startswith("Throughput of the only group: mb16_nw2 (1,270 samples/s ±1.0 %).")
    waits = dataclasses.replace(alone, pending=("mb16_nw2_r3",))
    assert waits.ranking_rows[0].note == RECOMMENDED


def test_figures_of_whole_runs_rest_on_runs() -> None:
    groups = tuple(dataclasses.replace(group, window_n=0) for group in factory.groups())
    assert [row.n for row in factory.results(groups=groups).ranking_rows] == [2, 2, 1, 1]


def test_one_caution_of_many_runs_is_reported_once() -> None:
    caution = Caution(kind="no_steady_state", text="No steady state was found; run more steps.")
    runs = tuple(
        dataclasses.replace(run, measure=dataclasses.replace(run.measure, cautions=(caution,))) if run.measure else run
        for run in factory.runs()
    )
    found = {warned.kind: warned for warned in all_cautions(factory.results(runs=runs))}
    assert len(found["no_steady_state"].subjects) == 6
    assert found["one_repeat"].subjects == (factory.ODD,)
    assert found["drift"].subjects == ()


def test_cautions_of_old_attempts_are_not_reported() -> None:
    old = factory.measured("mb16_nw0", 1, how=Outcome.FAILED, current=False)
    warned = dataclasses.replace(old, attempt=dataclasses.replace(old.attempt, cautions=(Caution(kind="torn", text="Torn."),)))
    assert "torn" not in {caution.kind for caution in all_cautions(factory.results(runs=(warned,)))}


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
    run = dataclasses.replace(run, measure=dataclasses.replace(run.measure, stage1={**run.measure.stage1, **told}))
    text = winners_sentence(factory.results(runs=(run,)))
    # A mean over runs of medians is not called a median.
    told_as = f"25.20 ms: the mean, over its runs and their last timing points, of the median {what}"
    assert text.endswith(f"Latency winner: the same, mb16_nw2 ({told_as}).")


def test_a_run_too_short_for_a_tail_says_why_and_how_long_it_would_have_to_be() -> None:
    """Of 60 steps every window of 100 holds step 0."""
    run = factory.measured("mb16_nw2", 1)
    assert run.measure is not None
    timing = dataclasses.replace(run.attempt.spec.timing, log_every=30, timing_window=100)
    spec = dataclasses.replace(run.attempt.spec, timing=timing)
    points = tuple(TimingPoint(index=index, step=step, values={}) for index, step in enumerate((0, 30)))
    measure = dataclasses.replace(run.measure, timing_points=points, stage1={**run.measure.stage1, "tail_points_used": 0})
    short = dataclasses.replace(run, measure=measure, attempt=dataclasses.replace(run.attempt, spec=spec))
    ranking = factory.ranking(latency_winner=None, lowest_latency=None)
    found = factory.results(runs=(short,), ranking=ranking)
    sentence = (
        "No tail figures for mb16_nw2_r1: the last timing point, one every 30 steps (timing.log_every), is at step 30, and its window of "
        "100 steps (timing.timing_window) contains the first step. Run at least 121 steps, or lower timing.timing_window."
    )
    assert why_no_tail(found) == sentence and winners_sentence(found).endswith(f"Latency winner: none. {sentence}")
    assert why_no_tail(factory.results()) == ""


def test_a_winner_by_another_figure_is_not_called_throughput() -> None:
    ranking = factory.ranking(metric="duration_s", unit="s")
    assert winners_sentence(factory.results(ranking=ranking)).startswith("No winner by duration_s is proven.")
    decided = factory.results(ranking=dataclasses.replace(ranking, decided=True, winner="mb16_nw2"), pending=())
    assert winners_sentence(decided).startswith("Winner by duration_s: mb16_nw2 (1,270 s")


def test_the_only_group_that_can_win_is_ahead_of_nobody() -> None:
    only = factory.ranking().groups[0]
    reason = "mb16_nw2 is the only group that can win."
    ranking = factory.ranking(groups=(only,), reason=reason, recommended_reason="")
    text = winners_sentence(factory.results(ranking=ranking, pending=()))
    assert text.startswith(f"No winner by throughput is proven. {reason} Recommended: mb16_nw2 (1,270 samples/s ±1.0 %).")


def test_cautions_on_figures_of_failed_runs_are_left_out() -> None:
    caution = Caution(kind="no_steady_state", text="No steady state was found; run more steps.")
    failed = dataclasses.replace(factory.oom("mb8_nw2", 2), measure=factory.measure(1.0, cautions=(caution,)))
    assert "no_steady_state" not in {warned.kind for warned in all_cautions(factory.results(runs=(failed,)))}


def test_what_is_still_to_be_run_of_an_original_folder_has_no_command_here() -> None:
    assert pending_sentence(factory.results(pending=("a_r1",))).endswith("The same command again runs only what is missing.")
    translated = factory.results(pending=("a_r1",), cautions=(Caution(kind=ORIGINAL_SCRIPTS, text="Made."),))
    told = pending_sentence(translated)
    assert told.startswith("1 run still to be run: a_r1. ") and "same command" not in told
    assert origin_sentence(translated) == "Made." and ORIGINAL_SCRIPTS not in {one.kind for one in shown_cautions(translated)}
    assert pending_sentence(factory.results(pending=())) == ""


def test_a_winner_is_not_final_while_the_platform_failed_a_run() -> None:
    failed = ("mb16_nw0_r3 (io_error)",)
    groups = [dataclasses.replace(group, infrastructure_failures=failed if group.group == "mb16_nw0" else ()) for group in factory.groups()]
    told = winners_sentence(factory.results(groups=tuple(groups), ranking=factory.ranking(decided=True), pending=()))
    assert told.startswith("No winner by throughput is proven. ") and "more than the noise" not in told
    assert states(told, "platform", "mb16_nw0_r3", "io_error", "Run it again")


def test_debugging_is_beside_the_figures() -> None:
    groups = [dataclasses.replace(group, debug=("NCCL_DEBUG=INFO",) if group.group == "mb16_nw2" else ()) for group in factory.groups()]
    results = factory.results(groups=tuple(groups))
    assert [note_with_debug(row) for row in results.ranking_rows][:2] == ["recommended, debug on", "tied"]
    assert states(winners_sentence(results), "1,270 samples/s ±1.0 %", "NCCL_DEBUG=INFO", "lower p90/p50")


FIRST, SECOND = "427b0000", "9c0d0000"


def run(key: str, value: float, *, group: str = "mb16", repeat: int = 1, outcome: Outcome = Outcome.OK) -> MeasuredRun:
    spec = runs.spec(group, repeat, group_key=key, hash=f"{key}-{repeat}")
    steps = {"rank": [0], "step": [7], "begin_s": [1.0], "t_s": [2.0], "iter_ms": [value], "loss": [None], "counted": [True]}
    made = runs.measured(spec, outcome=outcome, measure={"samples_per_s": value, "wall_p50_ms": 1000 / value})
    return replace(made, charts=RunCharts(tables={STEPS: steps}))


def campaign(*measured: MeasuredRun) -> CampaignResults:
    groups = summarise_groups(measured, "")
    return replace(factory.empty_results(), runs=measured, groups=groups, ranking=rank_groups(groups, "samples_per_s"))


@pytest.fixture
def results() -> CampaignResults:
    return campaign(run(FIRST, 100.0), run(SECOND, 200.0), run("5555aaaa", 50.0, group="mb8"))


def test_every_run_has_its_own_figures_under_one_name_in_every_table(results: CampaignResults) -> None:
    tables, told = page_data(results).drawn.tables, summary_json(results)
    runs, steps = tables["runs"], tables[STEPS]
    named = {"mb16_r1~427b": ("mb16~427b", 100.0), "mb16_r1~9c0d": ("mb16~9c0d", 200.0), "mb8_r1": ("mb8", 50.0)}
    assert {run: (group, value) for run, group, value in zip(runs["run"], runs["group"], runs["value"], strict=True)} == named
    assert {run: (group, value) for run, group, value in zip(steps["run"], steps["group"], steps["iter_ms"], strict=True)} == named
    assert {row["run"]: row["group"] for row in told["runs"]} == {run: group for run, (group, _) in named.items()}
    assert set(tables["groups"]["group"]) == {group for group, _ in named.values()}
    assert set(told["windows"]) == set(told["eta_quality"]["runs"]) == set(named)
    assert [row["folder"] for row in told["current_runs"]] == ["mb16_r1", "mb16_r1", "mb8_r1"]


def test_a_failed_run_is_distinguished_too() -> None:
    told = summary_json(campaign(run(FIRST, 100.0), run(SECOND, 200.0, outcome=Outcome.FAILED)))
    assert [(row["run"], row["group"]) for row in told["skipped_runs"]] == [("mb16_r1~9c0d", "mb16~9c0d")]


def test_a_name_that_one_configuration_carries_stays_as_it_is() -> None:
    # The second plan asks for another repeat of its mb16: the runs' names differ, the groups' do not.
    results = campaign(run(FIRST, 100.0), run(SECOND, 200.0, repeat=2))
    labels = labels_of(results)
    assert [labels.run_key(one.attempt.spec) for one in results.runs] == [("mb16_r1", "mb16~427b", 1), ("mb16_r2", "mb16~9c0d", 2)]


def test_groups_of_unlike_names_whose_runs_are_called_alike() -> None:
    one, other = run(FIRST, 100.0), run(SECOND, 200.0, group="mb8")
    other = replace(other, attempt=replace(other.attempt, spec=replace(other.attempt.spec, run="mb16_r1")))
    results = campaign(one, other)
    labels = labels_of(results)
    assert [labels.run(each.attempt.spec) for each in results.runs] == ["mb16_r1~427b", "mb16_r1~9c0d"]


def barred(count: int) -> CampaignResults:
    found = charted_factory.many_groups(count + 1)
    first, *rest = found.ranking.groups
    places = [dataclasses.replace(place, can_win=False, reason="its runs failed") for place in rest]
    return dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, groups=(first, *places)))


def test_axes_have_columns_only_where_the_table_still_fits() -> None:
    assert "mb" in lines(ranking_section(factory.results(), 200), 200)[0].split()
    assert "mb" not in lines(ranking_section(factory.results(), 50), 50)[0].split()


def test_who_cannot_win_and_why() -> None:
    assert "! mb8_nw2 cannot win: 1 of 2 runs failed" in lines(ranking_section(factory.results(), 100))
    many = lines(ranking_section(barred(MAX_CANNOT_WIN + 2), 100))
    assert sum("cannot win: its runs failed" in line for line in many) == MAX_CANNOT_WIN
    assert "and 2 more that cannot win: see the summary" in many


def test_less_may_be_better() -> None:
    lower = dataclasses.replace(factory.results(), ranking=factory.ranking(higher_is_better=False))
    assert list(markdown_ranking(lower))[-1].startswith("Lower is better.")


def test_groups_with_one_reason_share_a_line() -> None:
    reasons = list(markdown_ranking(charted_factory.many_groups(5)))[3]
    recommended, tied = reasons.splitlines()
    assert recommended.startswith("- group0000: recommended") and tied.startswith("- group0001, group0002, group0003, group0004: tied")


def test_of_many_reasons_the_rest_is_counted() -> None:
    found = charted_factory.many_groups(MAX_REASONS + 4)
    places = [dataclasses.replace(place, reason=f"reason {place.rank}") for place in found.ranking.groups[1:]]
    many = dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, groups=(found.ranking.groups[0], *places)))
    reasons = list(markdown_ranking(many))[3].splitlines()
    assert len(reasons) == MAX_REASONS + 1 and reasons[-1] == "- and 4 more reasons: `ranked_groups.csv` has them"
