"""Sides parted into families that differ in nothing but ranks, the worst of them, and machines that are refused."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial.analyse.scaling_families import scaling_families, worst_family
from seatrial.errors import RefusedError
from seatrial.records.comparison import Side
from tests.unit.analyse.test_scaling import side


def ranks_and_step_ms() -> list[Side]:
    """Axes place.ranks × step_ms: the slow configuration scales well, the fast one a little worse."""
    times = {("10", 1): 10.0, ("10", 2): 10.2, ("40", 1): 40.0, ("40", 2): 40.4}
    return [
        side(
            ranks, step_ms=time_ms, name=f"n{ranks}_{step}", group=f"n{ranks}_{step}", settings={"place.ranks": str(ranks), "step_ms": step}
        )
        for (step, ranks), time_ms in times.items()
    ]


def test_each_configuration_has_its_own_efficiency() -> None:
    found = scaling_families(ranks_and_step_ms())
    assert [one.family for one in found] == ["step_ms=10", "step_ms=40"]
    assert [one.points[-1].efficiency.mean for one in found] == pytest.approx([10 / 10.2, 40 / 40.4], rel=1e-3)
    assert [len(one.points) for one in found] == [2, 2]


def test_the_worst_family_is_named() -> None:
    worst = worst_family(scaling_families(ranks_and_step_ms()))
    assert worst is not None
    assert worst.family == "step_ms=10"
    assert worst.reason.startswith("step_ms=10, the worst of 2 configurations: By the runs on 1, 2 GPUs")


def test_a_family_of_one_number_is_said_beside_the_worst() -> None:
    worst = worst_family(scaling_families(ranks_and_step_ms()[:3]))
    assert worst is not None and worst.family == "step_ms=10"
    assert any("one number only" in text and "step_ms=40" in text for text in worst.cautions)
    assert worst_family([]) is None
    alone = worst_family(scaling_families([side(2)]))
    assert alone is not None and "one more number" in alone.reason


def test_campaigns_of_several_sizes_are_one_family_by_equal_settings() -> None:
    sides = [side(gpus, campaign=f"/out{gpus}x", settings={"mb": "8", "env.CUDA_VISIBLE_DEVICES": "0,1"[:gpus]}) for gpus in (1, 2, 4)]
    (found,) = scaling_families(sides)
    assert [point.gpus for point in found.points] == [1, 2, 4] and found.family == "" and not found.cautions


def test_one_side_of_each_number_is_a_family_whatever_else_differs_and_that_is_said() -> None:
    """Strong scaling by hand: the batch of one GPU halves with every doubling."""
    (found,) = scaling_families([side(gpus, batch=16.0, settings={"mb": str(16 // gpus)}) for gpus in (1, 2, 4)])
    assert [point.gpus for point in found.points] == [1, 2, 4]
    assert any("differ in their settings too (mb 16 / 4 / 8)" in text for text in found.cautions)


def test_unlike_machines_are_refused_unless_asked_for() -> None:
    sides = [side(1, machine={"gpu_name": "V100", "host": "a"}), side(2, machine={"gpu_name": "H100", "host": "b"})]
    with pytest.raises(RefusedError, match=r"unlike machines: gpu_name \(V100 → H100\).*--across"):
        scaling_families(sides)
    (found,) = scaling_families(sides, across=True)
    assert any("machines" in text for text in found.cautions)
    alike = [dataclasses.replace(one, machine={**one.machine, "gpu_name": "H100"}) for one in sides]
    assert len(scaling_families(alike)) == 1
