"""The axes of a plan, without a file: names, bundles, and that each of them reaches the workload."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.errors import PlanError
from seatrial.plan.checks_of_axes import (
    LONGEST_NAME,
    check_axes,
    check_script_settings,
    is_harness_axis,
    members,
    variable_problem,
)
from seatrial.plan.schema import Axis, Place, Plan, Workload

BUNDLES = Axis(bundles={"old": {"lr": 0.1, "bs": 8}, "new": {"lr": 0.2, "bs": 16}})


def script(axes: dict[str, Axis] | None = None, **keys: Any) -> Plan:
    return Plan(name="x", workload=Workload(script="t.py"), axes=axes or {}, **keys)


def bundled(axes: dict[str, Axis], **keys: Any) -> Plan:
    return Plan(name="x", workload=Workload(module="dummy"), axes=axes, **keys)


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [("place.ranks", True), ("env.OMP_NUM_THREADS", True), ("bs", False), ("placeranks", False), ("environment", False)],
)
def test_axes_that_seatrial_applies_itself(name: str, is_ours: bool) -> None:
    assert is_harness_axis(name) is is_ours


def test_names_of_variables() -> None:
    assert variable_problem("OMP_NUM_THREADS") is None
    assert variable_problem("") and variable_problem("2X") and variable_problem("A-B") and variable_problem("Ä")


def test_settings_in_bundles_are_known_by_their_axis() -> None:
    assert members(script({"kind": BUNDLES, "nw": Axis(values=[0])})) == {"lr": "kind", "bs": "kind"}
    assert members(script()) == {}


def test_what_reaches_the_script_passes() -> None:
    check_axes(script({"bs": Axis(values=[8]), "env.A": Axis(values=[1]), "place.ranks": Axis(values=[1, 2])}), {"bs"})
    check_axes(script({"kind": BUNDLES}), {"lr", "bs"})
    check_axes(script(), set())
    check_axes(bundled({"micro_batch": Axis(values=[8, "8", True, 1])}), set())


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"bs": Axis(values=[8])}, r"^axes.bs: nothing uses it: put \{bs\} into workload.args"),
        ({"a" * (LONGEST_NAME + 1): Axis(values=[8])}, "has 101 characters, more than the 100 of an axis"),
        ({"run": Axis(values=[8])}, r"^axes.run: \{run\} is filled by Seatrial"),
        ({"x": Axis()}, "^axes.x: has no values"),
        ({"x": Axis(values=[8, "8"])}, r"^axes.x\[1\]: the value '8' is there twice"),
        ({"place.ranks": Axis(values=[True])}, r"^axes.place.ranks\[0\]: must be a number of ranks, 1 or more, not true"),
        ({"env.HF_TOKEN": Axis(values=["hf_abcdefghijklmnop"])}, r"^axes.env.HF_TOKEN\[0\]: looks like a secret"),
        ({"kind": Axis(label="k", bundles={"a": {"x": 1}})}, "`label` has no meaning beside `bundles`"),
        ({"env.A": Axis(bundles={"a": {"x": 1}})}, "takes values, not bundles"),
        ({"kind": Axis(bundles={"a b": {"x": 1}})}, "a bundle is named with letters, digits"),
        ({"kind": Axis(bundles={"a": {}})}, r"^axes.kind.bundles.a: is empty; name the settings"),
        ({"kind": Axis(bundles={"a": {"x": 1}, "b": {"y": 1}})}, "'x' stands in only one of 'a' and 'b'"),
        ({"kind": BUNDLES, "bs": Axis(values=[8])}, "is varied by axis 'bs' too"),
        ({"kind": BUNDLES, "other": BUNDLES}, "is varied by axis 'kind' too"),
        ({"kind": Axis(bundles={"a": {"seed": 1}})}, r"\{seed\} is filled by Seatrial"),
        ({"kind": Axis(bundles={"a": {"steps": 1}})}, "belongs to the plan's own key `steps`"),
    ],
)
def test_what_an_axis_cannot_be(axes: dict[str, Axis], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        check_axes(script(axes), {"x", "lr", "other"} | ({"bs"} if "kind" in axes else set()))


@pytest.mark.parametrize(
    ("axes", "keys", "says"),
    [
        ({"bs": Axis(values=[8])}, {"settings": {"bs": 4}}, "is fixed by `settings.bs`"),
        ({"place.ranks": Axis(values=[2])}, {"place": Place(ranks=2)}, "is fixed by `place.ranks`"),
        ({"env.NCCL_SOCKET_IFNAME": Axis(values=["eth1"])}, {"place": Place(interface="eth0")}, "is fixed by `place.interface`"),
        ({"kind": BUNDLES}, {"settings": {"lr": 4}}, "is fixed by `settings.lr`"),
    ],
)
def test_what_is_fixed_elsewhere(axes: dict[str, Axis], keys: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        check_axes(bundled(axes, **keys), set())


def test_fixed_values_of_a_script_must_fill_something() -> None:
    check_script_settings(script(settings={"lr": 1}), {"lr"})
    check_script_settings(bundled({}, settings={"anything": 1}), set())
    with pytest.raises(PlanError, match=r"^settings.lr: nothing uses it: .* or remove it$"):
        check_script_settings(script(settings={"lr": 1}), set())
    with pytest.raises(PlanError, match="is named with letters, digits and _"):
        check_script_settings(script(settings={"l-r": 1}), {"l-r"})
