"""The rank that holds the others up: named, not named, and when nothing can be said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seatrial.analyse.straggler import _slow_host, find_straggler
from seatrial.collect.logs.tables import read_logs
from seatrial.records.health import RankPlace, Straggler, StragglerVerdict
from seatrial.records.measure import Window
from seatrial.records.steps import StepTables
from tests.unit.analyse import factory
from tests.unit.analyse.meeting_ranks import WORK_MS, as_tables, meeting, own_work, run
from tests.unit.collect.on_disk import RECORDED, write_attempt, write_log


def judged(tables: StepTables, window: Window | None = None) -> Straggler:
    found = find_straggler(tables, window)
    assert found is not None
    assert found.reason.endswith((".", ". ")) and found.source == tables.source
    return found


def test_a_single_rank_waits_for_nobody() -> None:
    assert find_straggler(factory.tables(factory.steps_of([10.0] * 50)), None) is None


@pytest.mark.parametrize("slow_in", ["data_wait", "preprocess", "fwd", "step"])
def test_the_slow_rank_and_its_phase_are_named_though_all_steps_are_as_long(slow_in: str) -> None:
    tables = run(4, 60, extra={(2, slow_in): 20.0})
    longest = tables.steps.group_by("rank").mean().sort("rank")["iter_ms"].to_list()
    assert longest == pytest.approx([longest[0]] * 4, rel=0.01)
    found = judged(tables)
    assert (found.verdict, found.rank, found.phase) == (StragglerVerdict.NAMED, 2, slow_in)
    assert found.score == pytest.approx(0.2, abs=0.03)
    assert found.held_up_ms == pytest.approx(18.0, abs=3.0)
    assert (found.n, found.first_step, found.last_step) == (60, 0, 59)
    assert "Rank 2 waits least in bwd" in found.reason and f"in {slow_in} (+" in found.reason and "steps 0–59, n = 60" in found.reason


def test_where_the_ranks_meet_in_step_a_slow_backward_is_named() -> None:
    found = judged(run(3, 60, meets_in="step", extra={(0, "bwd"): 15.0}))
    assert (found.rank, found.phase) == (0, "bwd") and "waits least in step" in found.reason


def test_only_the_window_counts() -> None:
    work = own_work(2, 120)
    work["fwd"][1, 60:] += 20.0
    tables = as_tables(meeting(work))
    quick, slow = (Window(first_step=first, last_step=first + 59, n=60, warmup_steps=0) for first in (0, 60))
    assert judged(tables, quick).verdict is StragglerVerdict.NONE
    assert judged(tables, slow).rank == 1


def test_phases_of_every_tenth_step_are_enough_where_there_are_twenty() -> None:
    found = judged(run(4, 400, extra={(3, "fwd"): 12.0}, phase_every=10))
    assert (found.rank, found.phase, found.n) == (3, "fwd", 40)
    few = judged(run(4, 150, extra={(3, "fwd"): 12.0}, phase_every=10))
    assert few.verdict is StragglerVerdict.ABSTAINED and few.n == 15
    assert "Only 15 steps" in few.reason and "timing.phase_every" in few.reason


def test_where_no_rank_is_slow_none_is_named() -> None:
    found = judged(run(8, 100, noise=0.05))
    assert found.verdict is StragglerVerdict.NONE and found.rank is None
    assert "No rank stands out" in found.reason and found.n == 100


def test_a_rank_that_is_slow_now_and_then_is_not_one_that_is_slow() -> None:
    work = own_work(4, 100)
    work["data_wait"][1, ::4] += 50.0
    assert judged(as_tables(meeting(work))).verdict is StragglerVerdict.NONE


def test_noise_that_lasts_for_half_the_run_is_no_slow_rank() -> None:
    work = own_work(4, 60)
    work["fwd"][1, :30] += 6.0
    work["fwd"][2, 30:] += 6.0
    assert judged(as_tables(meeting(work))).rank is None


def test_it_abstains_when_ranks_are_missing() -> None:
    whole = run(4, 60, extra={(2, "fwd"): 20.0})
    part = factory.tables(whole.steps.filter(whole.steps["rank"] != 1), world_size=4)
    found = judged(part)
    assert found.verdict is StragglerVerdict.ABSTAINED and found.rank is None
    assert "Only 3 of 4 ranks" in found.reason and "not 1)" in found.reason and "rank_scope: all" in found.reason


def test_it_abstains_for_rank_0_alone_and_for_no_rank_at_all() -> None:
    alone = factory.tables(factory.steps_of([10.0] * 50, fwd_ms=4.0, bwd_ms=6.0), world_size=1024)
    assert "Only 1 of 1024 ranks tell their steps (not 1, 2, 3, 4, 5 …)" in judged(alone).reason
    assert "None of 2 ranks" in judged(factory.tables(world_size=2, source="whole")).reason


def test_a_garbled_rank_of_a_thousand_million_is_only_a_reason_to_abstain() -> None:
    odd = [factory.steps_of([10.0] * 50, rank=rank, fwd_ms=4.0, bwd_ms=6.0) for rank in (0, 999_999_999)]
    assert judged(factory.tables(*odd)).verdict is StragglerVerdict.ABSTAINED


def test_it_abstains_without_phases() -> None:
    found = judged(factory.tables(*(factory.steps_of([10.0] * 50, rank=rank, data_wait_ms=1.0) for rank in range(2))))
    assert found.verdict is StragglerVerdict.ABSTAINED and "probe.phase" in found.reason and "TimingRank" in found.reason


def test_it_abstains_where_a_rank_waits_less_and_works_no_longer() -> None:
    rows = [
        factory.steps_of([100.0 - 20.0 * (rank == 1)] * 50, rank=rank, fwd_ms=30.0, bwd_ms=70.0 - 20.0 * (rank == 1)) for rank in range(4)
    ]
    found = judged(factory.tables(*rows))
    assert found.verdict is StragglerVerdict.ABSTAINED and "no longer anywhere else" in found.reason


def test_work_outside_the_phases_counts_where_more_than_two_ranks_tell_their_time() -> None:
    outside = np.zeros((4, 60))
    outside[0] = 20.0
    found = judged(as_tables(meeting(own_work(4, 60), outside=outside)))
    assert (found.verdict, found.rank, found.phase) == (StragglerVerdict.NAMED, 0, "") and "outside the phases" in found.reason
    pair = judged(as_tables(meeting(own_work(2, 60), outside=outside[:2])))
    assert pair.verdict is StragglerVerdict.ABSTAINED and "with two ranks" in pair.reason


def test_a_rank_slow_inside_the_meeting_phase_alone_is_told_and_not_named() -> None:
    found = judged(run(4, 300, noise=0.04, extra={(2, "bwd"): 30.0}))
    assert (found.verdict, found.rank, found.phase, found.score) == (StragglerVerdict.ABSTAINED, 2, "bwd", None)
    assert f"Rank {found.rank} comes last in bwd" in found.reason and "cannot be seen" in found.reason


def test_the_place_is_told_and_the_host_where_its_ranks_are_all_slow() -> None:
    places = tuple(RankPlace(rank=rank, host=f"node{rank // 2}", gpu=str(rank % 2)) for rank in range(8))
    one = judged(run(8, 60, extra={(5, "fwd"): 20.0}, places=places))
    assert (one.host, one.gpu) == ("node2", "1") and "Rank 5 (host node2, GPU 1)" in one.reason
    both = judged(run(8, 60, extra={(4, "fwd"): 20.0, (5, "fwd"): 22.0}, places=places))
    assert both.rank == 5 and "Rank 4 is slow too, all on host node2: look at the host first." in both.reason
    assert both.held_up_ms == pytest.approx(20.0, abs=4.0)
    apart = judged(run(8, 60, extra={(1, "fwd"): 20.0, (5, "fwd"): 22.0}, places=places))
    assert "Rank 1 is slow too." in apart.reason


def test_timing_rank_lines_of_a_foreign_script_are_enough(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=4))
    write_log(attempt, (RECORDED / "timing_rank.log").read_text())
    tables = read_logs(attempt)
    assert tables is not None and tables.source == "log:seed"
    assert tables.steps["rank"].unique().to_list() == [0, 1, 2, 3]
    found = judged(tables)
    assert (found.verdict, found.rank, found.phase) == (StragglerVerdict.NAMED, 2, "data_wait")
    assert found.n == 30 and found.score == pytest.approx(0.15, abs=0.04)
    assert "the script's own" in found.reason


def test_they_are_enough_beside_lines_of_another_format_and_without_the_plan_knowing_the_ranks(tmp_path: Path) -> None:
    attempt = write_attempt(tmp_path, factory.spec(ranks=1))
    lines = (RECORDED / "timing_rank.log").read_text().splitlines()
    own = [f"iter {number}: loss 2.0, time 50.00ms" for number in range(0, 1500, 50)]
    write_log(attempt, "\n".join(sorted([*lines, *own], key=lambda line: "iter" not in line)) + "\n")
    tables = read_logs(attempt)
    assert tables is not None and tables.source == "log:nanogpt"
    assert judged(tables).rank == 2


def test_where_two_phases_are_as_likely_and_nobody_is_late_in_either_no_rank_stands_out() -> None:
    """Two ranks that differ by as little in bwd as in step: nothing tells where they meet, and it does not matter."""
    told = {name: np.full((2, 60), mean_ms) for name, mean_ms in WORK_MS.items()}
    told["bwd"][0] += 0.5
    told["step"][1] += 0.5
    found = judged(as_tables({**told, "iter": np.sum(list(told.values()), axis=0)}))
    assert found.verdict is StragglerVerdict.NONE and "by what they wait in bwd, where the ranks meet" in found.reason


@pytest.mark.parametrize(
    ("slow", "host"),
    [((2, 3), ("b", 2)), ((2,), ("", 0)), ((1, 2), ("", 0)), ((1, 2, 3), ("", 0)), ((0, 1, 2, 3), ("", 0)), ((2, 3, 9), ("", 0))],
)
def test_a_host_is_slow_where_all_its_ranks_are_and_no_others(slow: tuple[int, ...], host: tuple[str, int]) -> None:
    places = {rank: RankPlace(rank=rank, host="a" if rank < 2 else "b") for rank in range(4)}
    assert _slow_host(slow, places) == host
    assert _slow_host((0, 1), {rank: places[rank] for rank in (0, 1)}) == ("", 0), "of one host only nothing is said of the host"
