"""Scaling within one campaign: families of groups, and the worst of them."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.campaign import scaling_within as module
from seatrial.campaign.grouped import GroupedCampaign
from seatrial.campaign.scaling_within import families_within, scaling_within
from seatrial.records.comparison import Side
from seatrial.records.measure import Ranking
from tests.unit.analyse.factory import measured, spec
from tests.unit.analyse.test_scaling_families import ranks_and_step_ms

NO_RANKING = Ranking(metric="throughput", unit="", higher_is_better=True, groups=())


def campaign(monkeypatch: pytest.MonkeyPatch, sides: list[Side]) -> GroupedCampaign:
    """A campaign whose groups are these sides."""
    by_name = {side.group: side for side in sides}
    monkeypatch.setattr(module, "groups_to_compare", lambda grouped: list(by_name))
    monkeypatch.setattr(module, "side_of", lambda grouped, name: by_name[name])
    runs = tuple(measured(spec(side.group, ranks=side.world_size), measure={"world_size": side.world_size}) for side in sides)
    empty: dict[str, Any] = {"output": "out", "baseline_group": "", "pending": (), "groups": ()}
    return GroupedCampaign(runs=runs, ranking=NO_RANKING, **empty)


def test_the_worst_family_of_a_campaign_is_what_a_criterion_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = campaign(monkeypatch, ranks_and_step_ms())
    assert [one.family for one in families_within(grouped)] == ["step_ms=10", "step_ms=40"]
    worst = scaling_within(grouped)
    assert worst is not None and worst.family == "step_ms=10" and worst.points[-1].efficiency.mean == pytest.approx(0.98, abs=0.005)


def test_one_number_of_ranks_has_no_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scaling_within(campaign(monkeypatch, ranks_and_step_ms()[::2])) is None


def test_groups_that_must_not_be_compared_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = ranks_and_step_ms()[:2]
    sides[1].machine["gpu_name"] = "V100"
    found = scaling_within(campaign(monkeypatch, sides))
    assert found is not None and found.points == () and "unlike machines" in found.reason
