"""Device times without waiting: on every n-th step, written when they have arrived, dropped when they never do."""

from __future__ import annotations

import pytest

from seatrial.probe.contexts import PHASE_INDEX, PauseContext, PhaseContext, StepContext
from seatrial.probe.cuda import LOSSES_PER_BATCH, NUM_BATCHES, Cuda
from seatrial.probe.timeline import MAX_WAIT_STEPS, Timeline
from tests.unit.probe.fake_torch import FakeDevice, FakeLoss

FWD = PHASE_INDEX["fwd"]


class Loop:
    """A timeline on a fake device, and what came out of it."""

    def __init__(self, clock, **options) -> None:
        self.clock = clock
        self.device = FakeDevice()
        self.records = []
        cuda = Cuda(self.device.torch)
        self.timeline = Timeline(
            **{"sync": False, "phase_every": 1, **options}, emit=self.records.append, monotonic=clock, find_device=lambda: cuda
        )

    def step(self, *, fwd_ms: float = 20.0, launch_ms: float = 1.0, loss: float | None = None) -> None:
        with StepContext(self.timeline, 8, None), PhaseContext(self.timeline, "fwd", FWD):
            self.clock.pass_ms(launch_ms)
            self.device.queue(fwd_ms)
        if loss is not None:
            self.timeline.loss(FakeLoss(loss))

    def fwd_ms(self):
        return [record.phases_ms[FWD] for record in self.records]


@pytest.fixture
def loop(clock) -> Loop:
    return Loop(clock)


def test_phases_are_device_time_and_the_step_is_wall_time(loop):
    loop.step(fwd_ms=20, launch_ms=1)
    loop.device.catch_up()
    loop.timeline.drain(1.0)
    assert loop.fwd_ms() == [20.0]
    assert loop.records[0].iter_ms == pytest.approx(1.0)


def test_a_step_is_released_only_when_the_device_has_passed_it(loop):
    for _ in range(LOSSES_PER_BATCH):
        loop.step()
    loop.device.done_ms = 45.0
    assert loop.records == []
    loop.step()
    assert [record.step for record in loop.records] == [0, 1]
    assert loop.device.syncs == 0


def test_a_step_is_released_with_nulls_at_the_first_check_after_sixteen_more(loop):
    checked_after = MAX_WAIT_STEPS + LOSSES_PER_BATCH
    for _ in range(checked_after):
        loop.step(loss=1.0)
    assert loop.records == []
    loop.step(loss=1.0)
    assert [record.step for record in loop.records] == list(range(LOSSES_PER_BATCH))
    assert (loop.fwd_ms(), {record.loss for record in loop.records}) == ([None] * LOSSES_PER_BATCH, {None})


def test_phases_are_timed_on_every_nth_step(clock):
    loop = Loop(clock, phase_every=3)
    for _ in range(7):
        loop.step()
        loop.device.catch_up()
    loop.timeline.drain(1.0)
    assert loop.fwd_ms() == [20.0, None, None, 20.0, None, None, 20.0]


def test_known_steps_have_arrived_phases_and_every_step_is_still_written_complete(clock):
    loop = Loop(clock, window=10)
    loop.step(loss=3.0)
    assert [record.phases_ms[FWD] for record in loop.timeline.known_steps()] == [None], "the device is not there yet"
    loop.device.catch_up()
    loop.step(loss=2.0)
    assert [record.phases_ms[FWD] for record in loop.timeline.known_steps()] == [20.0, None]
    loop.device.catch_up()
    assert [record.phases_ms[FWD] for record in loop.timeline.known_steps()] == [20.0, 20.0]
    assert loop.records == [], "their losses have not arrived: a query releases no step"
    loop.timeline.drain(1.0)
    assert [(record.phases_ms[FWD], record.loss) for record in loop.records] == [(20.0, 3.0), (20.0, 2.0)]
    assert loop.device.syncs == 0


def test_events_are_pooled(loop):
    for _ in range(50):
        loop.step(loss=1.0)
        loop.device.catch_up()
    assert loop.device.events_made <= NUM_BATCHES + 2 * 2 * LOSSES_PER_BATCH, "one for each batch, and those of the open steps"


def test_losses_are_copied_in_batches_and_none_is_read_before_it_has_arrived(loop):
    losses = [float(step) for step in range(1, LOSSES_PER_BATCH + 1)]
    for loss in losses:
        loop.step(loss=loss)
        loop.device.catch_up()
    assert loop.records == [], "they are not copied yet"
    loop.device.queue(1.0)
    for _ in losses:
        loop.step(loss=99.0)
        assert loop.records == [], "they are copied, and the device is not there yet"
    loop.device.catch_up()
    loop.step()
    assert [record.loss for record in loop.records][:LOSSES_PER_BATCH] == losses


@pytest.mark.parametrize("count", [2, 40])
def test_the_last_loss_of_a_step_counts(loop, count):
    for step in range(3 * LOSSES_PER_BATCH):
        loop.step(loss=float(step))
        for number in range(count):
            loop.timeline.loss(FakeLoss(step + number / 100))
        loop.device.catch_up()
    loop.timeline.drain(1.0)
    assert [record.loss for record in loop.records] == [step + (count - 1) / 100 for step in range(3 * LOSSES_PER_BATCH)]


def test_slow_steps_are_written_as_they_end(loop):
    for step in range(4):
        loop.step(launch_ms=2000, loss=float(step))
        loop.device.catch_up()
    assert [record.loss for record in loop.records] == [0.0, 1.0, 2.0]


def test_every_loss_of_a_long_run_belongs_to_its_step(loop):
    for step in range(1, 301):
        loop.step(loss=float(step))
        loop.device.catch_up()
    loop.timeline.drain(1.0)
    assert [record.loss for record in loop.records] == [float(step) for step in range(1, 301)]


def test_closing_waits_for_the_device_but_not_for_ever(loop, clock):
    loop.step(loss=1.0)
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.pass_ms(100)

    loop.timeline.drain(1.0, sleep)
    assert 9 <= len(waits) <= 11
    assert (loop.fwd_ms(), loop.records[0].loss) == ([None], None)


def test_closing_reads_what_arrives_while_it_waits(loop):
    loop.step(loss=1.0)
    loop.timeline.drain(1.0, lambda _: loop.device.catch_up())
    assert (loop.fwd_ms(), loop.records[0].loss) == ([20.0], 1.0)


def test_an_error_of_the_device_is_left_to_the_training(loop):
    loop.step(loss=1.0)
    loop.device.error = "CUDA error: an illegal memory access was encountered\nmore"
    loop.step(loss=1.0)
    loop.timeline.drain(1.0)
    assert loop.fwd_ms() == [None, None]
    assert loop.timeline.status_note().endswith(": CUDA error: an illegal memory access was encountered")


def test_sync_takes_wall_time_between_synchronised_borders_on_every_step(clock):
    loop = Loop(clock, sync=True, phase_every=10)
    for _ in range(2):
        loop.step(launch_ms=21.0)
    loop.timeline.drain(1.0)
    assert loop.fwd_ms() == pytest.approx([21.0, 21.0])
    assert loop.device.syncs == 4


def test_a_pause_inside_a_device_phase_leaves_it_null(loop, clock):
    with StepContext(loop.timeline, 8, None), PhaseContext(loop.timeline, "fwd", FWD):
        clock.pass_ms(1)
        with PauseContext(loop.timeline, "compile", lambda name, pause_s: None):
            clock.pass_ms(1000)
    loop.device.catch_up()
    loop.timeline.drain(1.0)
    assert loop.fwd_ms() == [None]
    assert loop.records[0].iter_ms == pytest.approx(1.0)


def test_waiting_for_data_is_wall_time_on_every_step(clock):
    loop = Loop(clock, phase_every=10)
    for wait_ms in (7, 5):
        with PhaseContext(loop.timeline, "data_wait", PHASE_INDEX["data_wait"]):
            clock.pass_ms(wait_ms)
        loop.step()
    loop.device.catch_up()
    loop.timeline.drain(1.0)
    assert [record.phases_ms[PHASE_INDEX["data_wait"]] for record in loop.records] == pytest.approx([7, 5])
    assert loop.fwd_ms() == [20.0, None], "the second is a step whose device times are not taken"


def test_a_loss_of_many_numbers_is_refused_with_the_remedy(loop):
    class Many(FakeLoss):
        shape = (8,)

        def numel(self) -> int:
            return 8

    with pytest.raises(ValueError, match=r"not a tensor of shape \(8,\): pass its mean\(\)"):
        loop.timeline.loss(Many(1.0))


def test_losses_on_alternating_streams(loop):
    for number in range(40):
        loop.device.stream = f"stream {number % 2}"
        loop.step(loss=float(number))
        loop.device.catch_up()
    loop.timeline.drain(0.0)
    assert [record.loss for record in loop.records] == [float(number) for number in range(40)]
