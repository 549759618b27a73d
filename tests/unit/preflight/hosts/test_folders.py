"""The folder that is to be shared, and the space on each host."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial.preflight.disks import LEAST_FREE_BYTES, LITTLE_FREE_BYTES
from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.folders import checks
from seatrial.records.check import Check
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted

FILES = {"head": "f0", "b": "f1"}
WANTED = make_wanted("head", "b")


def _disk(free_bytes: int = LITTLE_FREE_BYTES, **more: Any) -> dict[str, Any]:
    return {"free_bytes": free_bytes, "total_bytes": 1 << 40, "writable": True, **more}


def _answers(b: dict[str, Any] | None = None, *, second: dict[str, Any] | None = None, of_head: dict[str, Any] | None = None) -> Answers:
    sound = {"put": {}, "space": {"folders": {"/out": _disk(), "/tmp": _disk()}}}
    seen: dict[str, Any] = {"look": {"troubles": {}}, "replace": {}, "is_held": {"held": True}}
    return make_answers(
        {"head": {**sound, "lock": {}, **(of_head or {})}, "b": {**sound, **(b or {})}},
        second={"head": {"look": {"troubles": {}}}, "b": {**seen, **(second or {})}},
        third={"head": {"look": {"troubles": {}}}},
        files=FILES,
    )


def _amiss(answers: Answers) -> dict[tuple[str, str], Check]:
    return {key: check for key, check in found(checks(WANTED, answers)).items() if not check.ok}


def test_a_shared_folder_is_in_order_and_the_head_is_not_held_against_itself() -> None:
    told = found(checks(WANTED, _answers()))
    assert all(check.ok for check in told.values())
    names = ["output folder is shared", "output folder is writable", "rename is seen", "lock is seen", "space in the output folder"]
    assert [name for name, host in told if host == "b"] == [*names, "temporary files"]
    assert [name for name, host in told if host == "head"] == ["output folder is writable", "space in the output folder", "temporary files"]


def test_a_folder_that_is_another_there_is_refused_and_nothing_more_is_asked_of_it() -> None:
    told = found(checks(WANTED, _answers(second={"look": {"troubles": {"f0": "No such file or directory"}}})))
    assert told["output folder is shared", "b"].found == "in /out the head's file is not seen: No such file or directory"
    assert told["output folder is shared", "b"].refuses and ("lock is seen", "b") not in told and ("rename is seen", "b") not in told


def test_its_own_file_that_the_head_does_not_see() -> None:
    answers = _answers()
    told = {"parts": {"look": {"troubles": {"f1": "an empty file is seen there"}}}}
    blind = make_answers(second={"head": told["parts"], "b": {"look": {"troubles": {}}}}).second
    amiss = _amiss(Answers(first=answers.first, second=blind, third=answers.third, files=FILES))
    assert amiss["output folder is shared", "b"].found == "in /out its file is not seen by the head: an empty file is seen there"


def test_when_the_head_cannot_write_nothing_is_said_of_the_others_seeing_it() -> None:
    told = found(checks(WANTED, _answers(of_head={"put": {"trouble": "in /out no file can be written: Permission denied"}})))
    assert ("output folder is shared", "b") not in told and not told["output folder is writable", "head"].ok


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ("in /out no file can be written: No space left on device", "OSError: [Errno 28] No space left on device"),
        ("in /out no file can be renamed: Read-only file system", "OSError: [Errno 30] Read-only file system"),
        ("in /out no file can be written: Permission denied", "PermissionError: [Errno 13] Permission denied"),
    ],
)
def test_what_cannot_be_written_tells_the_later_error(trouble: str, error: str) -> None:
    check = _amiss(_answers({"put": {"trouble": trouble}}))["output folder is writable", "b"]
    assert check.found == trouble and check.prevents == f"{error}, on one host's ranks" and check.refuses


def test_a_rename_that_is_seen_late_and_a_lock_that_is_not_are_said_only() -> None:
    answers = _answers(second={"is_held": {"held": False}})
    late = make_answers(third={"head": {"look": {"troubles": {"f1": "an older text is seen there"}}}}).third
    amiss = _amiss(Answers(first=answers.first, second=answers.second, third=late, files=FILES))
    assert {name: check.refuses for (name, _), check in amiss.items()} == {"rename is seen": False, "lock is seen": False}
    assert amiss["lock is seen", "b"].found == "not held here while the head holds it"


def test_a_head_that_holds_no_lock_itself_says_nothing_of_it() -> None:
    assert ("lock is seen", "b") not in found(checks(WANTED, _answers(of_head={"lock": {"trouble": "No locks available"}})))


@pytest.mark.parametrize(
    ("disk", "ok", "refuses"),
    [
        (_disk(LITTLE_FREE_BYTES), True, False),
        (_disk(LITTLE_FREE_BYTES - 1), False, False),
        (_disk(LEAST_FREE_BYTES - 1), False, True),
        # A file system that does not count.
        (_disk(0, total_bytes=0), True, False),
    ],
)
def test_space_in_the_output_folder(disk: dict[str, Any], ok: bool, refuses: bool) -> None:
    check = found(checks(WANTED, _answers({"space": {"folders": {"/out": disk}}})))["space in the output folder", "b"]
    assert (check.ok, check.refuses) == (ok, refuses)


def test_a_temporary_folder_must_be_there_and_take_files() -> None:
    for disk, words in (
        (_disk(writable=False), "which cannot be written to"),
        ({"trouble": "No such file or directory"}, "/tmp: No such file"),
    ):
        check = _amiss(_answers({"space": {"folders": {"/tmp": disk}}}))["temporary files", "b"]
        assert words in check.found and not check.refuses
