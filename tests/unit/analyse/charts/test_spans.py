"""What went on when: the start-up, training cut at pauses, throttled GPUs."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from seatrial.analyse.charts.run import run_charts
from seatrial.analyse.charts.spans import MOST_PAUSES, Stretch, pieces
from seatrial.records.charts import Detail
from seatrial.records.steps import StartupFacts, StepTables
from seatrial.records.telemetry import TelemetryTables
from tests.unit.analyse import factory

T = factory.STARTED_T
MANY = Detail(steps=1500, telemetry=400, eta=150)
# The first step of 400 ms ends 5.4 s after launch, at 100.4 on the monotonic clock.
STEPS = factory.steps_of([400.0, 100.0, 100.0, 100.0])


def spans(tables: StepTables, *, gpu: pl.DataFrame | None = None, detail: Detail = MANY) -> list[tuple[Any, ...]]:
    table = run_charts(factory.attempt(), tables, TelemetryTables(gpu=gpu), None, detail).tables.get("spans", {})
    return [(source, name, round(begin, 6), round(end, 6)) for source, name, begin, end in zip(*table.values(), strict=True)]


def facts(*told: tuple[str, float, float], **changes: Any) -> StartupFacts:
    return StartupFacts(**{"rank": 0, "start_t": T + 2.0, "process_t": T + 1.25, "spans": told, **changes})


def test_the_start_up_from_launch_on_under_the_names_of_a_timeline() -> None:
    told = facts(("process_group", 0.5, 97.5), ("model", 1.0, 98.5), ("data", 0.25, 99.0), ("tokenise", 0.5, 99.75))
    assert spans(factory.tables(STEPS, startup=told)) == [
        ("rank 0", "launch", 0.0, 1.25),
        ("rank 0", "import", 1.25, 2.0),
        ("rank 0", "process_group", 2.0, 2.5),
        ("rank 0", "load model", 2.5, 3.5),
        ("rank 0", "load data", 3.75, 4.0),
        ("rank 0", "tokenise", 4.25, 4.75),
        ("rank 0", "train", 5.0, 5.7),
    ]


def test_a_run_that_ended_before_its_first_step_shows_how_far_it_came() -> None:
    # The probe began 2 s after launch, at 97 on the monotonic clock.
    told = facts(("process_group", 0.5, 97.75), ("model", 1.0, 99.0), start_m=97.0)
    assert spans(factory.tables(startup=told)) == [
        ("rank 0", "launch", 0.0, 1.25),
        ("rank 0", "import", 1.25, 2.0),
        ("rank 0", "process_group", 2.25, 2.75),
        ("rank 0", "load model", 3.0, 4.0),
    ]
    assert [row[1] for row in spans(factory.tables(startup=facts(("model", 1.0, 99.0))))] == ["launch", "import"]


def test_a_row_of_several_steps_begins_with_the_first_of_them() -> None:
    # Lines at every tenth step, of 100 ms each; a checkpoint of 2 s before the second of them.
    steps = factory.steps_of([100.0] * 3, step=[9, 19, 29], span=10, t=[T + 6.0, T + 9.0, T + 10.0], m=[101.0, 104.0, 105.0])
    told = factory.pauses_of((0, 15, "checkpoint", 2000.0))
    assert [row[1:] for row in spans(factory.tables(steps, pauses=told))] == [
        ("train", 5.0, 6.0),
        ("save", 6.0, 8.0),
        ("train", 8.0, 10.0),
    ]


def test_a_part_inside_another_cuts_it_in_two() -> None:
    told = facts(("process_group", 0.5, 97.5), ("model", 1.0, 98.0))
    assert [row[1:] for row in spans(factory.tables(STEPS, startup=told))[2:5]] == [
        ("load model", 1.5, 2.0),
        ("process_group", 2.0, 2.5),
        ("load model", 2.5, 3.0),
    ]


def test_a_compiler_in_the_first_step_is_no_training() -> None:
    told = facts(("compile", 0.3, 100.35), process_t=None)
    assert [row[1:] for row in spans(factory.tables(STEPS, startup=told))] == [
        ("train", 5.0, 5.05),
        ("compile", 5.05, 5.35),
        ("train", 5.35, 5.7),
    ]


def test_a_pause_that_was_a_part_of_the_start_up_is_drawn_once() -> None:
    told = facts(("compile", 0.3, 99.9), process_t=None)
    tables = factory.tables(STEPS, startup=told, pauses=factory.pauses_of((0, 0, "compile", 300.0)))
    assert [row[1] for row in spans(tables)] == ["compile", "train"]


def test_the_start_up_of_the_slowest_rank_stands_beside_the_training_of_the_first() -> None:
    slow = factory.steps_of([900.0, 50.0], rank=1)
    told = facts(("model", 1.0, 98.5), rank=1)
    assert {row[0] for row in spans(factory.tables(STEPS, slow, startup=told))} == {"rank 0", "rank 1"}


def test_pauses_lie_before_the_step_they_ended_in_and_one_after_the_last_behind_it() -> None:
    # Steps 0 and 1, then an eval of 1 s and a checkpoint of 2 s, step 2, and at last a checkpoint of 0.5 s.
    steps = factory.steps_of([400.0, 100.0, 100.0], t=[T + 5.4, T + 5.5, T + 8.6], m=[100.4, 100.5, 103.6])
    told = factory.pauses_of((0, 2, "eval", 1000.0), (0, 2, "checkpoint", 2000.0), (0, 3, "checkpoint", 500.0), (1, 2, "other", 9.0))
    assert [row[1:] for row in spans(factory.tables(steps, pauses=told))] == [
        ("train", 5.0, 5.5),
        ("eval", 5.5, 6.5),
        ("save", 6.5, 8.5),
        ("train", 8.5, 8.6),
        ("save", 8.6, 9.1),
    ]


def test_a_pause_whose_length_is_not_known_is_not_drawn() -> None:
    told = pl.DataFrame([(0, 2, "eval", None)], schema=factory.PAUSE_SCHEMA, orient="row")
    assert [row[1] for row in spans(factory.tables(STEPS, pauses=told))] == ["train"]


def test_of_very_many_pauses_the_longest_stay() -> None:
    count = 3000
    steps = factory.steps_of([100.0] * count, t=[T + 5 + step for step in range(count)])
    told = factory.pauses_of(*((0, step, "eval", 800.0 if step == 1234 else 500.0) for step in range(1, count)))
    for detail, most in ((MANY, MOST_PAUSES), (Detail(steps=120, telemetry=8, eta=10), 10), (Detail(steps=120, telemetry=30, eta=10), 30)):
        found = [row for row in spans(factory.tables(steps, pauses=told), detail=detail) if row[1] == "eval"]
        assert most // 2 < len(found) <= most
        assert max(end - begin for _, _, begin, end in found) == pytest.approx(0.8)


def test_a_throttled_gpu_from_its_first_sample_to_the_next_that_is_free() -> None:
    reasons = ["", "sw_power_cap", "sw_power_cap", "applications_clocks_setting", None, "hw_slowdown", "hw_slowdown"]
    gpu = pl.DataFrame(
        {
            "epoch_sec": [T + at for at in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 60.0)],
            "gpu_index": [3.0] * 7,
            "throttle_reasons": reasons,
        }
    )
    assert [row for row in spans(factory.tables(STEPS), gpu=gpu) if row[0] == "gpu 3"] == [
        ("gpu 3", "throttled sw_power_cap", 2.0, 4.0),
        # What the sampler did not see is not drawn.
        ("gpu 3", "throttled hw_slowdown", 6.0, 7.0),
        ("gpu 3", "throttled hw_slowdown", 60.0, 61.0),
    ]


@pytest.mark.parametrize(
    ("holes", "left"),
    [
        ([], [(0, 10)]),
        ([(2, 3), (5, 6)], [(0, 2), (3, 5), (6, 10)]),
        ([(5, 6), (2, 5.5)], [(0, 2), (6, 10)]),
        ([(-5, 1), (9, 20)], [(1, 9)]),
        ([(-5, 20)], []),
        ([(11, 12), (-3, -1)], [(0, 10)]),
    ],
)
def test_pieces_between_holes(holes: list[tuple[float, float]], left: list[tuple[float, float]]) -> None:
    assert list(pieces(Stretch(0, 10), [Stretch(*hole) for hole in holes])) == left
