"""What is said of a campaign before it is drawn."""

from __future__ import annotations

import dataclasses

from seatrial.records.caution import Caution
from seatrial.records.original_names import MADE_FROM
from seatrial.records.outcome import Outcome
from seatrial.report import digest
from seatrial.report.failures import failures
from tests.unit.report import factory


def test_notes_of_every_place() -> None:
    notes = {standing.group.group: standing.note for standing in digest.standings(factory.results())}
    assert notes == {"mb16_nw2": "winner", "mb16_nw0": "tied", "mb8_nw2": "cannot win", factory.ODD: "off lane"}


def test_a_tie_may_go_to_another_than_the_leader() -> None:
    ranking = factory.ranking(winner="mb16_nw0")
    results = factory.results(ranking=ranking)
    notes = {standing.group.group: standing.note for standing in digest.standings(results)}
    assert (notes["mb16_nw0"], notes["mb16_nw2"]) == ("winner", "tied")
    assert digest.winners_sentence(results).startswith(f"Throughput winner: mb16_nw0 (1,251 samples/s ±2.0 %). {ranking.reason}")


def test_only_current_failures_are_told() -> None:
    assert [failure.runs for failure in failures(factory.results())] == [("mb8_nw2_r2",)]


def test_one_caution_of_many_runs_is_said_once() -> None:
    caution = Caution(kind="no_steady_state", text="No steady state was found; run more steps.")
    runs = tuple(
        dataclasses.replace(run, measure=dataclasses.replace(run.measure, cautions=(caution,))) if run.measure else run
        for run in factory.runs()
    )
    found = {warned.kind: warned for warned in digest.cautions(factory.results(runs=runs))}
    assert len(found["no_steady_state"].subjects) == 6
    assert found["one_repeat"].subjects == (factory.ODD,)
    assert found["drift"].subjects == ()


def test_cautions_of_old_attempts_are_not_said() -> None:
    old = factory.measured("mb16_nw0", 1, how=Outcome.FAILED, current=False)
    warned = dataclasses.replace(old, attempt=dataclasses.replace(old.attempt, cautions=(Caution(kind="torn", text="Torn."),)))
    assert "torn" not in {caution.kind for caution in digest.cautions(factory.results(runs=(warned,)))}


def test_unlike_machines_are_listed_apart() -> None:
    runs = list(factory.runs())
    gpu = factory.provenance(host="node-2", gpu_name="Example GPU", driver_version="570.1", git_dirty="true")
    runs[0] = dataclasses.replace(runs[0], attempt=dataclasses.replace(runs[0].attempt, provenance=gpu))
    machines = digest.machines(factory.results(runs=tuple(runs)))
    assert [count for _, count in machines] == [6, 1]
    assert machines[1][0].startswith("node-2, Example GPU (driver 570.1), ")
    assert machines[1][0].endswith("commit 0123456789ab (main) with uncommitted changes")


def test_latency_without_timing_points_is_said() -> None:
    text = digest.winners_sentence(factory.results(ranking=factory.ranking(latency_winner=None)))
    assert text.endswith("Latency winner: none, as no run gave timing points.")


def test_a_winner_by_another_figure_is_not_called_throughput() -> None:
    ranking = factory.ranking(metric="duration_s", unit="s")
    assert digest.winners_sentence(factory.results(ranking=ranking)).startswith("Winner by duration_s: mb16_nw2 (1,270 s")


def test_the_only_group_that_can_win_is_ahead_of_nobody() -> None:
    only = factory.ranking().groups[0]
    reason = "mb16_nw2 is the only group that can win."
    text = digest.winners_sentence(factory.results(ranking=factory.ranking(groups=(only,), decided=True, reason=reason)))
    assert text.startswith(f"Throughput winner: mb16_nw2 (1,270 samples/s ±1.0 %). {reason}")


def test_cautions_on_figures_of_failed_runs_are_left_out() -> None:
    caution = Caution(kind="no_steady_state", text="No steady state was found; run more steps.")
    failed = dataclasses.replace(factory.oom("mb8_nw2", 2), measure=factory.measure(1.0, cautions=(caution,)))
    assert "no_steady_state" not in {warned.kind for warned in digest.cautions(factory.results(runs=(failed,)))}


def test_what_is_still_to_be_run_of_an_original_folder_has_no_command_here() -> None:
    assert digest.pending_sentence(factory.results(pending=("a_r1",))).endswith("The same command again runs only what is missing.")
    translated = factory.results(pending=("a_r1",), cautions=(Caution(kind=MADE_FROM, text="Made."),))
    told = digest.pending_sentence(translated)
    assert told.startswith("1 run still to be run: a_r1. ") and "same command" not in told
    assert digest.origin(translated) == "Made." and MADE_FROM not in {one.kind for one in digest.warnings(translated)}
    assert digest.pending_sentence(factory.results(pending=())) == ""


def test_a_winner_is_not_final_while_the_platform_failed_a_run() -> None:
    failed = ("mb16_nw0_r3 (io_error)",)
    groups = [dataclasses.replace(group, infrastructure_failures=failed if group.group == "mb16_nw0" else ()) for group in factory.groups()]
    told = digest.winners_sentence(factory.results(groups=tuple(groups), ranking=factory.ranking(decided=True)))
    assert "more than the noise" not in told
    assert "but the platform failed mb16_nw0_r3 (io_error): no winner is final before that is run again." in told


def test_debugging_stands_beside_the_figures() -> None:
    groups = [dataclasses.replace(group, debug=("NCCL_DEBUG=INFO",) if group.group == "mb16_nw2" else ()) for group in factory.groups()]
    results = factory.results(groups=tuple(groups))
    assert [standing.remarks for standing in digest.standings(results)][:2] == ["winner, debug on", "tied"]
    assert "(1,270 samples/s ±1.0 %), measured with NCCL_DEBUG=INFO on." in digest.winners_sentence(results)
