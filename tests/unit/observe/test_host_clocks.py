"""Ranks whose hosts have other clocks than the harness: what is measured while a run runs is as if they had its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.observe.eta import RunEta
from seatrial.observe.halt_step import halt_step
from seatrial.observe.heartbeats import Beat
from seatrial.observe.host_clocks import HostClocks, nobody_knows
from seatrial.observe.progress import Progress, ProgressReader
from seatrial.observe.spike import SpikeWatch
from seatrial.observe.stall import StallWatch
from seatrial.paths import AttemptPaths
from seatrial.records.run_spec import LimitsSpec, PlaceSpec, StallSpec
from seatrial.records.telemetry import HOST_COLUMNS
from tests.unit.analyse import factory
from tests.unit.campaign.made_campaign import write_samples
from tests.unit.observe.test_progress import nano
from tests.unit.records.test_codec import spec

HOUR_S = 3600.0
WALL_T = 1_794_700_000.0
ITER_S = 0.25
EVERY_S = 5.0
"""Between two beats."""


class Watched:
    """Two ranks on two hosts, the second with a clock of its own; beats come every five seconds and are seen a second later."""

    def __init__(self, folder: Path, skew_s: float, offset_of: Callable[[int], float | None] = nobody_knows) -> None:
        self.now_s = 0.0
        self._paths, self._skew_s = AttemptPaths(folder / "attempt-1"), skew_s
        self._paths.folder.mkdir(parents=True)
        planned = replace(spec(steps=1000), place=PlaceSpec(kind="hostfile", ranks=2))
        self._reader = ProgressReader(
            planned, self._paths, monotonic=lambda: self.now_s, offset_of=offset_of, wall=lambda: WALL_T + self.now_s
        )

    def at(self, second: float, *, stands: bool = False) -> Progress:
        """What is seen a second after the beat of that second."""
        for rank, ahead_s in ((0, 0.0), (1, self._skew_s)):
            ended = int(second / ITER_S) - 1 if not (stands and rank) else 3
            beat = {
                "ts": WALL_T + second + ahead_s,
                "rank": rank,
                "attempt": 1,
                "step": ended,
                "phase": "bwd",
                "pid": 7,
                "iter_ms_p50": 250.0,
            }
            beat["step_t"] = WALL_T + (ended + 1) * ITER_S + ahead_s
            with open(self._paths.heartbeat(rank), "a") as target:
                target.write(json.dumps(beat) + "\n")
        self.now_s = second + 1.0
        return self._reader.look()

    @property
    def now_t(self) -> float:
        return WALL_T + self.now_s


SKEWS = pytest.mark.parametrize("skew_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])


@SKEWS
@pytest.mark.parametrize("told", [True, False], ids=["measured", "learned"])
def test_estimates_and_halts_are_those_of_a_right_clock(tmp_path: Path, skew_s: float, told: bool) -> None:
    right = Watched(tmp_path / "right", 0.0)
    wrong = Watched(tmp_path / "wrong", skew_s, (lambda rank: skew_s if rank else 0.0) if told else nobody_knows)
    etas = [RunEta(1000, mode="global_max", least_samples=2) for _ in range(2)]
    for second in range(5, 60, 5):
        one, other = right.at(float(second)), wrong.at(float(second))
        left = [eta.look(progress.ranks, right.now_t) for eta, progress in zip(etas, (one, other), strict=True)]
    # What is learned of a clock is off by as long as a beat takes to be seen.
    slack_s = 0.0 if told else 1.0
    assert left[0].left is not None and left[1].left is not None and left[0].mode == left[1].mode == "global_max"
    assert left[1].left.eta_s == pytest.approx(left[0].left.eta_s, abs=slack_s + 0.01)
    assert abs(halt_step(other, wrong.now_t) - halt_step(one, right.now_t)) <= slack_s / ITER_S
    # Neither is asked to halt at a step that it has ended already.
    assert halt_step(other, wrong.now_t) > wrong.now_s / ITER_S


@SKEWS
def test_a_stall_and_its_culprit_are_found_by_our_own_clock(tmp_path: Path, skew_s: float) -> None:
    watched, stalls = Watched(tmp_path, skew_s), StallWatch(LimitsSpec(start_s=1.0, stall=StallSpec(factor=2.0, floor_s=20.0)))
    found = [stalls.look(watched.at(float(second), stands=True), watched.now_s) for second in range(5, 60, 4)]
    seen = next(stall for stall in found if stall is not None)
    assert seen.culprit is not None and seen.culprit.rank == 1
    assert not any(found[:4])


@SKEWS
def test_no_spike_comes_of_a_clock(tmp_path: Path, skew_s: float) -> None:
    watched, spikes = Watched(tmp_path, skew_s), SpikeWatch(2.0)
    assert not [alarm for second in range(5, 120, 5) if (alarm := spikes.look(watched.at(float(second)), watched.now_t, watched.now_s))]


def test_a_shared_folder_that_shows_beats_late_is_no_clock() -> None:
    clocks = HostClocks(wall=lambda: WALL_T)
    late = Beat(rank=0, step=3, ts=WALL_T - 12.0, step_t=WALL_T - 13.0)
    assert clocks.moved([late]) == [late]


def test_lines_of_a_script_come_by_the_clock_of_node_0(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "attempt-1")
    paths.folder.mkdir()
    planned = replace(factory.spec(), place=PlaceSpec(kind="hostfile", ranks=2))
    reader = ProgressReader(planned, paths, offset_of=lambda rank: HOUR_S, wall=lambda: WALL_T + 20.0)
    paths.launcher_log.write_text(nano(1, 2))
    first, both = len(nano(1)), len(nano(1, 2))
    paths.arrivals.write_text(f"offset_bytes,t,m\n{first},{WALL_T + HOUR_S + 10},1\n{both},{WALL_T + HOUR_S + 15},6\n")
    (mark,) = reader.look().ranks
    assert mark.step_t == pytest.approx(WALL_T + 15)
    paths.launcher_log.write_text(nano(1, 2, 3))
    # Its stamp is not there yet: then it came now.
    assert reader.look().ranks[0].step_t == pytest.approx(WALL_T + 20)


def test_the_host_that_holds_most_memory_counts_and_all_output_does(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "attempt-1")
    for host, gib in ((paths, 1), (paths.node("node1"), 3), (paths.node("node2"), 2)):
        host.folder.mkdir(parents=True, exist_ok=True)
        write_samples(host.host_telemetry, HOST_COLUMNS, [{"epoch_sec": 1.0, "rss_kib": gib * 2**20}])
        host.launcher_log.write_text("12345\n")
    look = ProgressReader(factory.spec(), paths).look()
    assert look.memory_bytes == 3 * 2**30
    assert look.output_bytes == 18
    assert look.written_bytes > 18
