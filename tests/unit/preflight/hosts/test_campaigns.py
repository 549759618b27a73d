"""Other campaigns on a host."""

from __future__ import annotations

from seatrial.preflight.hosts.campaigns import checks
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted


def test_others_are_named_a_few_of_them_and_this_campaign_is_none() -> None:
    wanted = make_wanted("a", "b", "c", output="/out/mine")
    answers = make_answers(facts={"a": {"campaigns": ("/out/mine/",)}, "b": {"campaigns": ("/1", "/2", "/out/mine", "/3", "/4")}})
    told = found(checks(wanted, answers))
    assert told["campaigns there", "a"].ok and told["campaigns there", "a"].found == "none"
    assert not told["campaigns there", "b"].ok and told["campaigns there", "b"].found == "/1, /2, /3"
    assert not told["campaigns there", "b"].refuses, "it is said, and the campaign goes on"
    assert ("campaigns there", "c") not in told, "one that told nothing has no row"
