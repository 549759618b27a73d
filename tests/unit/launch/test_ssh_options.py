"""The user's options for ssh, as the launch and the doctor use them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from seatrial.campaign import preflight
from seatrial.core.hostfile import HostSpec
from seatrial.core.launcher_options import PDSH_APPEND
from seatrial.launch.transports.choice import user_ssh_args
from seatrial.preflight.check_definition import HostsExamined
from seatrial.records.plan import PlaceSpec
from tests.unit.preflight.needs import make_need, make_run

TWO = ("node1", "node2")


@pytest.mark.parametrize(
    ("via", "others", "installed", "counts"),
    [
        ("pdsh", ("node1",), True, True),
        # A check of its own reports that it is missing.
        ("pdsh", TWO, False, True),
        ("auto", TWO, True, True),
        ("auto", ("node1",), True, False),
        ("auto", TWO, False, False),
        ("auto", (), True, False),
        ("ssh", TWO, True, False),
    ],
)
def test_what_is_set_for_pdsh_counts_where_pdsh_is_used(via: str, others: tuple[str, ...], installed: bool, counts: bool) -> None:
    place = PlaceSpec(kind="hostfile", via=via, ssh_args=("-p", "22"))
    found = user_ssh_args(place, others, {PDSH_APPEND: "-i 'my key'"}, lambda program: "/usr/bin/pdsh" if installed else None)
    assert found == (("-p", "22", "-i", "my key") if counts else ("-p", "22"))
    assert user_ssh_args(place, others, {}) == ("-p", "22")


def test_the_doctor_of_a_plan_by_pdsh_has_what_is_set_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tuple(HostSpec(name=name) for name in TWO)
    place = PlaceSpec(kind="hostfile", hosts=hosts, via="pdsh", ssh_args=("-p", "22"))
    seen: dict[str, object] = {}

    class Sessions:
        ask = None

        def __init__(self, commands: dict[str, tuple[str, ...]]) -> None:
            seen["commands"] = commands

        def __enter__(self) -> Sessions:
            return self

        def __exit__(self, *reason: object) -> None:
            return None

    def examine(*given: object, place: PlaceSpec, **named: object) -> HostsExamined:
        seen["place"] = place
        return HostsExamined(hosts=TWO, sections=())

    monkeypatch.setattr(preflight, "HostSessions", Sessions)
    monkeypatch.setattr(preflight, "examine_hosts", examine)
    monkeypatch.setattr(preflight, "own_host", lambda hosts: "node1")
    need = make_need(dataclasses.replace(make_run(tmp_path), place=place))
    preflight.examine_by_ssh(dataclasses.replace(need, base_env={PDSH_APPEND: "-l ann"}), place, fast=True)
    commands = seen["commands"]
    assert isinstance(commands, dict) and commands["node2"][:5] == ("ssh", "-p", "22", "-l", "ann")
    assert seen["place"] == dataclasses.replace(place, ssh_args=("-p", "22", "-l", "ann"))
