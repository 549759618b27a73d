"""One way of calling ssh, for all that enter a host."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from seatrial.agent.answering import ssh_trial
from seatrial.campaign import host_check
from seatrial.errors import HostError
from seatrial.launch.ask_commands import ask_commands
from seatrial.launch.transports.choose import users_args
from seatrial.options.ssh import CONNECT_S, PDSH_APPEND, pdsh_args, ssh_words
from seatrial.preflight.hosts.rows import HostsExamined
from seatrial.records.run_spec import HostSpec, PlaceSpec
from tests.unit.preflight.needs import make_need, make_run

USERS = ("-o", "ConnectTimeout=60", "-o", "BatchMode=no")
TWO = ("node1", "node2")


def test_the_users_options_stand_before_ours() -> None:
    words = ssh_words("node1", ("echo", "a b"), USERS)
    assert words[: len(USERS) + 1] == ["ssh", *USERS] and words[-3:] == ["node1", "--", "echo 'a b'"]
    assert words.index("BatchMode=no") < words.index("BatchMode=yes") and f"ConnectTimeout={CONNECT_S}" in words


def test_the_doctor_enters_as_the_launch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    class Done:
        returncode, stderr = 0, b""

    monkeypatch.setattr("subprocess.run", lambda argv, **options: given.append(argv) or Done())
    ssh_trial.ssh({"host": "node1", "args": list(USERS)})
    asked = ask_commands([HostSpec(name="node1")], "head", ssh_args=USERS, env={})["node1"]
    assert list(asked[:-1]) == ssh_words("node1", (), USERS)[:-1] == given[0][:-1]


@pytest.mark.parametrize(
    ("via", "others", "installed", "counts"),
    [
        ("pdsh", ("node1",), True, True),
        # That it is missing is told by a check of its own.
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
    found = users_args(place, others, {PDSH_APPEND: "-i 'my key'"}, lambda program: "/usr/bin/pdsh" if installed else None)
    assert found == (("-p", "22", "-i", "my key") if counts else ("-p", "22"))
    assert users_args(place, others, {}) == ("-p", "22")


def test_a_quote_that_is_not_closed_is_told_in_words() -> None:
    with pytest.raises(
        HostError, match=r"PDSH_SSH_ARGS_APPEND cannot be taken apart into words .no closing quotation.: -o .x; close its quotes"
    ) as raised:
        pdsh_args((), {PDSH_APPEND: "-o 'x"})
    assert raised.value.cause == "bad_argument"


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

    monkeypatch.setattr(host_check, "Sessions", Sessions)
    monkeypatch.setattr(host_check, "examine_hosts", examine)
    monkeypatch.setattr(host_check, "head_of", lambda hosts: "node1")
    need = make_need(dataclasses.replace(make_run(tmp_path), place=place))
    host_check.examine_by_ssh(dataclasses.replace(need, caller={PDSH_APPEND: "-l ann"}), place, fast=True)
    commands = seen["commands"]
    assert isinstance(commands, dict) and commands["node2"][:5] == ("ssh", "-p", "22", "-l", "ann")
    assert seen["place"] == dataclasses.replace(place, ssh_args=("-p", "22", "-l", "ann"))
