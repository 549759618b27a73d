"""Entering each host: what ssh and the interpreter there say, and the way out of it."""

from __future__ import annotations

import pytest

from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.sessions import checks, ssh_complaint
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted, reply


def _told(trouble: str, host: str = "b") -> dict[tuple[str, str], object]:
    answers = Answers(first={"a": reply(), "b": reply()} | {host: reply(trouble=trouble)})
    return {key: check for key, check in found(checks(make_wanted("a", "b"), answers)).items() if not check.ok}


@pytest.mark.parametrize(
    ("complaint", "error", "way"),
    [
        ("Host key verification failed. (ended with 255)", "Host key verification failed", "ssh-keyscan b"),
        ("b: Permission denied (publickey). (ended with 255)", "Permission denied (publickey)", "ssh-copy-id b"),
        ("ssh: Could not resolve hostname b: Name or service not known", "ssh: Could not resolve hostname b", "mend the name"),
        ("ssh: connect to host b port 22: Connection refused", "ssh: connect to host b port 22: Connection refused", "start sshd there"),
        ("the session has not begun within 60 s", "ssh: connect to host b port 22: Connection timed out", "place.exclude: b"),
        ("an odd word", "an odd word", "see what `ssh -v -o BatchMode=yes b true` says"),
        ("", "ssh exited with exit code 255", "see what `ssh -v"),
    ],
)
def test_what_ssh_says_and_the_way_out(complaint: str, error: str, way: str) -> None:
    later, fix = ssh_complaint(complaint, "b")
    assert later.startswith(error) and way in fix


def test_a_host_that_cannot_be_entered_is_one_finding() -> None:
    assert list(_told("ssh: connect to host b port 22: Connection refused")) == [("ssh", "b")]


@pytest.mark.parametrize(
    "trouble", ["/env/bin/python: No such file or directory (ended with 127)", "No module named 'seatrial' (ended with 1)"]
)
def test_what_fails_after_ssh_is_the_interpreters(trouble: str) -> None:
    ((name, host),) = _told(trouble)
    assert host == "b" and name != "ssh"


def test_this_machine_is_entered_without_ssh() -> None:
    assert [name for name, host in _told("it ended with 1", "a") if host == "a"] != ["ssh"]


def test_two_names_of_one_machine_are_refused() -> None:
    same = {"host": "gpu-1", "boot_id": "x"}
    told = found(checks(make_wanted("a", "b", "c"), make_answers(facts={"a": same, "b": {"boot_id": "x"}, "c": same})))
    ((name, host),) = [key for key, check in told.items() if not check.ok]
    assert host == "c" and told[name, host].found == "a and c are both gpu-1" and told[name, host].refuses


@pytest.mark.parametrize(
    ("fast", "trouble", "ok"), [(False, "", True), (False, "Permission denied (publickey).", False), (True, "x", None)]
)
def test_the_head_enters_itself_in_the_long_form_only(fast: bool, trouble: str, ok: bool | None) -> None:
    answers = make_answers({"a": {"ssh": {"trouble": trouble} if trouble else {}}}, fast=fast)
    check = found(checks(make_wanted("a"), answers)).get(("ssh to itself", "a"))
    assert (None if check is None else check.ok) is ok
