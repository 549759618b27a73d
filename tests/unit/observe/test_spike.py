"""Spike alarms: when a spike begins, when it is over, and none for noise."""

from __future__ import annotations

from seatrial.observe.progress import LastStep, Progress, RankState
from seatrial.observe.spike import SpikeAlarm, SpikeDetector
from tests.facts import states


def alarms(paces_ms: list[float | None], ratio: float | None = 2.0, looks_a_beat: int = 1) -> list[SpikeAlarm]:
    """Alarms for one rank with these medians, a heartbeat every ten steps."""
    detector, found = SpikeDetector(ratio), []
    for number, pace_ms in enumerate(paces_ms):
        mark = LastStep(rank=0, step=10 * number, step_t=100.0 + number, iter_ms_p50=pace_ms)
        for _ in range(looks_a_beat):
            alarm = detector.check(Progress(step=mark.step, last_steps=(mark,)), t=100.0 + number)
            found += [alarm] if alarm else []
    return found


def test_one_alarm_when_it_begins_and_one_when_it_is_over() -> None:
    begins, ends = alarms([50, 51, 49, 50, 130, 135, 128, 90, 52, 50], looks_a_beat=5)
    assert begins == SpikeAlarm(
        t=104.0,
        kind="spike",
        rank=0,
        step=40,
        iter_ms_p50=130,
        before_ms=50,
        ratio=2.6,
        text="steps take 130.0 ms (median, rank 0, at step 40), 2.6 times the 50.0 ms before",
    )
    assert (ends.kind, ends.step, ends.iter_ms_p50, ends.before_ms) == ("spike_over", 80, 52, 50)


def test_a_spike_that_stays_is_reported_once_and_one_that_grows_again() -> None:
    assert [alarm.step for alarm in alarms([50, 50, 50, 120, *[121] * 40])] == [30]
    assert [(alarm.step, alarm.ratio) for alarm in alarms([50, 50, 50, 120, 121, 300, 301])] == [(30, 2.4), (50, 6.0)]


def test_a_step_time_at_the_border_does_not_come_and_go() -> None:
    assert [alarm.kind for alarm in alarms([50, 50, 50, 101, 99, 102, 98, 101, 50])] == ["spike", "spike_over"]


def test_neither_a_slow_start_nor_noise_nor_slow_drift_is_a_spike() -> None:
    assert alarms([900, 300, 60, 50, 95, 50, 98, 40]) == []
    assert alarms([50 * 1.05**number for number in range(60)]) == []


def test_nothing_before_enough_is_known_and_nothing_where_it_is_switched_off() -> None:
    assert alarms([50, 50, 500]) == []
    assert alarms([None, None, None]) == []
    assert alarms([50, 50, 50, 500], ratio=None) == []


def test_the_slowest_rank_is_named() -> None:
    detector = SpikeDetector(2.0)
    for step, slow_ms in ((10, 50.0), (20, 50.0), (30, 50.0), (40, 400.0)):
        last_steps = [LastStep(rank=rank, step=step, step_t=0.0, iter_ms_p50=slow_ms if rank == 3 else 49.0) for rank in range(4)]
        alarm = detector.check(Progress(step=step, last_steps=tuple(last_steps)), t=1.0)
    assert alarm is not None
    assert alarm.rank == 3


def test_a_step_that_does_not_end_is_reported_once_and_again_when_it_has_lasted_twice_as_long() -> None:
    detector, found = SpikeDetector(2.0), []
    for t in range(3):
        mark = LastStep(rank=1, step=t, step_t=float(t), iter_ms_p50=50.0)
        detector.check(Progress(step=t, last_steps=(mark,)), t=float(t))
    for t in range(3, 60):
        alarm = detector.check(Progress(step=2, last_steps=(mark,)), t=float(t))
        found += [alarm] if alarm else []
    assert [(alarm.t, alarm.kind) for alarm in found] == [(17.0, "silence"), (33.0, "silence")]
    assert states(found[0].text, "15 s", 2, "rank 1", "50.0 ms")


def test_slow_steps_are_no_silence() -> None:
    detector = SpikeDetector(2.0)
    for step in range(6):
        mark = LastStep(rank=0, step=step, step_t=20.0 * step, iter_ms_p50=20_000.0)
        assert [detector.check(Progress(step=step, last_steps=(mark,)), t=20.0 * step + late_s) for late_s in (0.0, 10.0, 19.0)] == [
            None
        ] * 3


def silence_alarms(times: list[tuple[float, float]], rank_states: tuple[RankState, ...] = ()) -> list[SpikeAlarm]:
    """Alarms for a rank that took three steps and then none, at these wall and monotonic times."""
    detector, found = SpikeDetector(2.0), []
    mark = LastStep(rank=1, step=2, step_t=times[0][0], iter_ms_p50=50.0)
    for step in range(3):
        detector.check(Progress(step=step, last_steps=(mark,)), *times[0])
    for t, now_m in times:
        alarm = detector.check(Progress(step=2, last_steps=(mark,), rank_states=rank_states), t, now_m)
        found += [alarm] if alarm else []
    return found


def test_silence_is_measured_by_the_monotonic_clock() -> None:
    assert silence_alarms([(1e9 + 7200 * (m > 5), 50.0 + m) for m in range(10)]) == []
    assert [alarm.text[:29] for alarm in silence_alarms([(1e9 - 7200 * (m > 5), 50.0 + m) for m in range(17)])] == [
        "no step has ended for 15 s (t"
    ]


def test_neither_a_pause_nor_a_suspended_harness_is_silence() -> None:
    paused = (RankState(rank=1, step=2, phase="pause:eval"),)
    assert silence_alarms([(1e9 + m, 50.0 + m) for m in range(300)], paused) == []
    assert silence_alarms([(1e9 + m, 50.0 + m) for m in (0, 1, 2, 602, 603, 604)]) == []
