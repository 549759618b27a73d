"""A hostfile that is missing or empty is refused before the start, once, with its path and the fix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.campaign.preflight import refuse_what_can_only_fail
from seatrial.errors import RefusedError
from seatrial.paths import CampaignPaths
from seatrial.preflight.hosts.examine import examine_hosts
from seatrial.preflight.hosts.hostfiles import UNNAMED, checks, nobody
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.check import Check
from seatrial.records.run_spec import HostSpec, PlaceSpec, RunSpec
from tests.unit.preflight.hosts.fake_hosts import FakeHosts, examined
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted
from tests.unit.preflight.needs import make_need, make_run


def run_on(folder: Path) -> RunSpec:
    return replace(make_run(folder, bundled="dummy"), place=PlaceSpec(kind="hostfile", ranks=4, hostfile="hosts"))


def refused(folder: Path) -> Check:
    (check,) = examine_hosts(FakeHosts(), make_need(run_on(folder)), (), head="this machine", fast=True).checks
    return check


def test_hosts_that_are_known() -> None:
    for count, told in ((2, "2 hosts for 2 ranks: n0, n1"), (64, "64 hosts for 64 ranks: n0, n1, n2, n3, n4, n5, n6, n7 and 56 more")):
        rows = examined(FakeHosts(*(f"n{number}" for number in range(count)))).rows
        (row,) = [row for row in rows if row.name == "hostfile hostfile"]
        assert [check.found for check in row.checks.values()] == [told]


def test_a_hostfile_that_is_missing_empty_or_wrong_is_refused_with_its_path(tmp_path: Path) -> None:
    found = {}
    for text in (None, "", "node1\n", "node1 slots=2\n"):
        if text is not None:
            (tmp_path / "hosts").write_text(text)
        check = refused(tmp_path)
        assert not check.ok and check.refuses and check.name == "hostfile hosts on this machine"
        assert check.fix == f"write {tmp_path}/hosts with a line `node1 slots=2` for each host, or name another with place.hostfile"
        path, _, found[text] = check.found.partition(": ")
        assert path == f"{tmp_path}/hosts"
    assert found == {
        None: "there is no such hostfile",
        "": "names no host",
        "node1\n": "line 1: 'node1' is no host with its slots",
        "node1 slots=2\n": "it could not be read when the plan was, and can be now; start again",
    }


def test_a_campaign_is_refused_for_it_exactly_once(tmp_path: Path) -> None:
    plan = CampaignPlan(name="p", output=str(tmp_path), runs=(run_on(tmp_path), run_on(tmp_path)))
    with pytest.raises(RefusedError) as error:
        refuse_what_can_only_fail(plan, CampaignPaths(tmp_path))
    assert str(error.value).count("hostfile hosts") == 1 and f"{tmp_path}/hosts: there is no such hostfile" in str(error.value)
    assert len(str(error.value).splitlines()) == 2


def test_hosts_without_a_rank_are_said_unless_they_are_left_out_on_purpose(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    for changes, said in (({}, True), ({"exclude": "node2"}, False), ({"include": "node1"}, False), ({"hostfile": "gone"}, False)):
        place = PlaceSpec(
            **{"kind": "hostfile", "hostfile": str(tmp_path / "hosts"), "hosts": (HostSpec(name="node1", ranks=2),), **changes}
        )
        found = examine_hosts(FakeHosts("node1"), make_need(), place.hosts, head="node1", fast=True, place=place)
        amiss = [check for check in found.checks if not check.ok]
        assert [check.found for check in amiss] == (["no rank of any run is on node2"] if said else [])
        assert not any(check.refuses for check in amiss)


def test_a_host_without_a_rank_is_told_of_unless_somebody_chose(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a slots=1\nb slots=1\n")
    for place, told in (({}, "no rank of any run is on b"), ({"exclude": "b"}, "all are used"), ({"include": "a"}, "all are used")):
        wanted = make_wanted("a", place=place)
        wanted = replace(wanted, place=replace(wanted.place, hostfile=str(file)))
        check = found(checks(wanted, make_answers()))[f"hosts of {file}", "a"]
        assert check.found == told and not check.refuses


def test_nodes_without_a_hostfile_have_no_rows_and_hosts_without_one_are_as_given() -> None:
    assert found(checks(make_wanted("a", kind="pernode"), make_answers())) == {}
    assert nobody(PlaceSpec(kind="hostfile"), Path("/job")).name == f"hostfile {UNNAMED}"
