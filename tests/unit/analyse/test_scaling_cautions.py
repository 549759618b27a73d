"""What makes sides of several numbers of GPUs unlike in more than that number."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.analyse.scaling_cautions import compared_facts, own_settings, scaling_cautions
from seatrial.records.comparison import ScalingPoint, Side
from seatrial.records.measure import Estimate
from tests.unit.analyse.made_sides import side


def point(gpus: int, *, nodes: int = 1, runs: int = 3, weak: bool = True) -> ScalingPoint:
    one = Estimate(mean=1.0, n=runs)
    return ScalingPoint(
        gpus=gpus, nodes=nodes, group="g", source="out", value=one, per_gpu=one, efficiency=one, step_ms=1.0, runs=runs, weak=weak
    )


def sides(*changes: dict[str, Any]) -> list[Side]:
    """Sides on 1, 2, … GPUs, of hosts that nothing is known of."""
    return [side(f"g{at}", [1.0, 1.1], **{"world_size": at, "machine": {}, **each}) for at, each in enumerate(changes, start=1)]


def cautions(of: list[Side], *points: ScalingPoint, metric: str = "samples_per_s", told: list[str] | None = None) -> tuple[str, ...]:
    names = [one.name for one in of] if told is None else told
    return scaling_cautions(of, points or (point(1), point(2)), told=names, metric=metric, worker="GPU")


def test_sides_alike_have_none() -> None:
    assert cautions(sides({}, {})) == ()


def test_what_any_two_machines_differ_in_is_not_compared() -> None:
    assert compared_facts({"host": "a", "hosts": "a b", "gpu_uuid": "1", "gpu_uuids": "1 2", "gpu_name": "X"}) == {"gpu_name": "X"}


def test_the_number_of_ranks_is_no_setting_of_its_own() -> None:
    assert own_settings(side("a", [], settings={"ranks": "2", "env.WORLD_SIZE": "2", "lr": "1"})) == {"lr": "1"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (({"machine": {"gpu_name": "A"}}, {"machine": {"gpu_name": "B"}}), "differ in their machines too (gpu_name A / B)"),
        (({"settings": {"lr": "1"}}, {"settings": {"lr": "2"}}), "differ in their settings too (lr 1 / 2)"),
        (({"code": {"commit": "a"}}, {"code": {"commit": "b"}}), "differ in their code too (commit a / b)"),
        (({"effective": {"amp": "on"}}, {"effective": {"amp": "off"}}), "differ in their settings in effect too (amp off / on)"),
    ],
)
def test_what_differs_beside_the_number(changes: tuple[dict[str, Any], ...], words: str) -> None:
    (found,) = cautions(sides(*changes))
    assert words in found and found.endswith("what is said of scaling holds that as well.")


def test_a_fact_that_one_side_does_not_tell_is_no_difference_and_only_some_are_shown() -> None:
    assert cautions(sides({"code": {"commit": "a"}}, {})) == ()
    (found,) = cautions(sides({"code": {f"p{at}": "1" for at in range(5)}}, {"code": {f"p{at}": "2" for at in range(5)}}))
    assert "(p0 1 / 2; p1 1 / 2; p2 1 / 2; p3 1 / 2 and 1 more)" in found
    (four,) = cautions(sides({"code": {f"p{at}": "1" for at in range(4)}}, {"code": {f"p{at}": "2" for at in range(4)}}))
    assert "…" not in four


def test_debug_settings() -> None:
    (found,) = cautions(sides({"debug": ("NCCL_DEBUG=INFO",)}, {}))
    assert found.startswith("Debug settings were on in g1 (NCCL_DEBUG=INFO): run again without them")


def test_how_the_work_goes_with_the_number() -> None:
    of = sides({}, {}, {})
    (strong,) = cautions(of, point(1), point(2, weak=False), point(4, weak=False))
    assert strong.startswith("The whole work of a step stays (strong scaling): compute is taken to shrink with one GPU's work.")
    (mixed,) = cautions(of, point(1), point(2), point(4, weak=False))
    assert mixed.startswith("The work of one GPU stays at some numbers of GPUs and not at others")
    assert cautions(of, point(1, weak=False), point(2), point(4)) == (), "the smallest is what the others are held against"
    (by_steps,) = cautions(of, metric="steps_per_s")
    assert by_steps.startswith("The runs tell neither samples nor tokens: each GPU is taken to do the same work")


def test_sides_of_one_number_are_taken_together_and_named() -> None:
    (one,) = cautions(sides({}, {"world_size": 1}))
    assert one == "Several sides ran on 1 GPU, and their runs are taken together: g1 (out), g2 (out)."
    (two,) = cautions(sides({}, {}, {"world_size": 2}))
    assert two == "Several sides ran on 2 GPUs, and their runs are taken together: g2 (out), g3 (out)."
    assert cautions(sides({"nodes": 1}, {"world_size": 1, "nodes": 2})) == ()


def test_nodes() -> None:
    (found,) = cautions(sides({}, {}), point(1), point(2, nodes=2))
    assert found.startswith("The sides ran on 1, 2 nodes: between nodes bandwidth and latency are others")
    here = {"machine": {"host": "node-1"}}
    assert cautions(sides(here, here)) == (
        "All sides were run from host node-1: projections beyond one node take the network to be as fast as the links inside it.",
    )
    assert cautions(sides(here, here), point(2), point(2)) == (), "of one number nothing is projected"
    assert cautions(sides(here, {"machine": {"host": "node-2"}})) == () == cautions(sides({"machine": {"host": ""}}, {}))


def test_single_runs_have_no_interval() -> None:
    assert cautions(sides({}, {}), point(1, runs=1), point(2)) == ("A single run on 1 GPU: no interval there; run it again.",)
    assert cautions(sides({}, {}), point(2, runs=1), point(4, runs=2)) == ("A single run on 2 GPUs: no interval there; run it again.",)
    assert cautions(sides({}, {}), point(1, runs=1), point(2, runs=1))[0].startswith("A single run on 1, 2 GPUs")


def test_sides_with_runs_that_do_not_count() -> None:
    of = sides(
        {"pending": ("g1_r3", "g1_r4")}, {"run": {"steady": False}}, {"failed_runs": 1, "infrastructure_failures": ("g3_r9 (io_error)",)}
    )
    assert cautions(of, told=["g1", "g2"]) == (
        "Runs that are still to be made: g1 (2).",
        "No run of g3 tells samples_per_s and steps_per_s: left out.",
        "Runs without a steady state in g2.",
        "Failed runs, which are not counted: g3 (2).",
    )
