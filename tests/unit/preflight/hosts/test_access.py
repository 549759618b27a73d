"""Hostfile, ssh sessions, programs, paths and the shared output folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign.preflight import run_preflight
from seatrial.core.errors import RefusedError
from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import CampaignPaths
from seatrial.preflight.hosts.access import (
    check_paths,
    check_programs,
    check_sessions,
    check_shared_folder,
    ssh_error,
)
from seatrial.preflight.hosts.queries import Answers
from seatrial.preflight.hosts.run_checks import examine_hosts
from seatrial.preflight.storage import LITTLE_FREE_BYTES, MIN_FREE_BYTES
from seatrial.records.caution import Check
from seatrial.records.plan import CampaignPlan, PlaceSpec, RunSpec
from tests.facts import states
from tests.unit.preflight.hosts.factory import FakeHosts, found, make_answers, make_hosts_need, reply
from tests.unit.preflight.needs import make_need, make_run


def run_on(folder: Path) -> RunSpec:
    return replace(make_run(folder, bundled="dummy"), place=PlaceSpec(kind="hostfile", ranks=4, hostfile="hosts"))


def refused(folder: Path) -> Check:
    (check,) = examine_hosts(FakeHosts(), make_need(run_on(folder)), (), head="this machine", fast=True).checks
    return check


def test_a_hostfile_that_is_missing_empty_or_wrong_is_refused_with_its_path(tmp_path: Path) -> None:
    found = {}
    for text in (None, "", "node1\n", "node1 slots=2\n"):
        if text is not None:
            (tmp_path / "hosts").write_text(text)
        check = refused(tmp_path)
        assert not check.ok and check.refuses and check.name == "hostfile hosts on this machine"
        assert states(check.fix, f"{tmp_path}/hosts", "`node1 slots=2`", "place.hostfile")
        path, _, found[text] = check.found.partition(": ")
        assert path == f"{tmp_path}/hosts"
    assert len(set(found.values())) == 4 and found["node1\n"].startswith("line 1: 'node1'")
    assert found["node1 slots=2\n"].endswith("Start again"), "it has appeared since the plan was read"


def test_a_campaign_is_refused_for_it_exactly_once(tmp_path: Path) -> None:
    plan = CampaignPlan(name="p", output=str(tmp_path), runs=(run_on(tmp_path), run_on(tmp_path)))
    with pytest.raises(RefusedError) as error:
        run_preflight(plan, CampaignPaths(tmp_path))
    assert str(error.value).count("hostfile hosts") == 1 and f"{tmp_path}/hosts: no such hostfile" in str(error.value)
    assert len(str(error.value).splitlines()) == 2


def test_hosts_without_a_rank_are_reported_unless_they_are_left_out_on_purpose(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    for changes, warned in (({}, True), ({"exclude": "node2"}, False), ({"include": "node1"}, False), ({"hostfile": "gone"}, False)):
        place = PlaceSpec(
            **{"kind": "hostfile", "hostfile": str(tmp_path / "hosts"), "hosts": (HostSpec(name="node1", ranks=2),), **changes}
        )
        found = examine_hosts(FakeHosts("node1"), make_need(), place.hosts, head="node1", fast=True, place=place)
        failed = [check for check in found.checks if not check.ok]
        assert [check.found for check in failed] == (["no rank of any run is on node2"] if warned else [])
        assert not any(check.refuses for check in failed)


def _failures(trouble: str, host: str = "b") -> dict[tuple[str, str], object]:
    answers = Answers(first={"a": reply(), "b": reply()} | {host: reply(trouble=trouble)})
    return {key: check for key, check in found(check_sessions(make_hosts_need("a", "b"), answers)).items() if not check.ok}


@pytest.mark.parametrize(
    ("problem", "error", "way"),
    [
        ("Host key verification failed. (ended with 255)", "Host key verification failed", "ssh-keyscan b"),
        ("b: Permission denied (publickey). (ended with 255)", "Permission denied (publickey)", "ssh-copy-id b"),
        ("ssh: Could not resolve hostname b: Name or service not known", "ssh: Could not resolve hostname b", "correct the name"),
        ("ssh: connect to host b port 22: Connection refused", "ssh: connect to host b port 22: Connection refused", "start sshd there"),
        ("the session has not begun within 60 s", "ssh: connect to host b port 22: Connection timed out", "place.exclude: b"),
        ("an odd word", "an odd word", "see what `ssh -v -o BatchMode=yes b true` says"),
        ("", "ssh exited with exit code 255", "see what `ssh -v"),
    ],
)
def test_what_ssh_says_and_the_way_out(problem: str, error: str, way: str) -> None:
    later, fix = ssh_error(problem, "b")
    assert later.startswith(error) and way in fix


@pytest.mark.parametrize(
    "trouble",
    [
        "env: ‘/opt/venv/bin/python’: No such file or directory (ended with 127)",
        "bash: line 1: /opt/venv/bin/python: No such file or directory (ended with 127)",
        "/usr/bin/python3: No module named seatrial (ended with 1)",
        "/usr/bin/python3: Error while finding module specification: No module named 'seatrial.agent.query_handler' (ended with 1)",
    ],
)
def test_what_fails_after_ssh_is_the_interpreters(trouble: str) -> None:
    ((name, host),) = _failures(trouble)
    assert host == "b" and name != "ssh"


def test_two_names_of_one_machine_are_refused() -> None:
    same = {"host": "gpu-1", "boot_id": "x"}
    results = found(check_sessions(make_hosts_need("a", "b", "c"), make_answers(facts={"a": same, "b": {"boot_id": "x"}, "c": same})))
    ((name, host),) = [key for key, check in results.items() if not check.ok]
    assert host == "c" and results[name, host].found == "a and c are both gpu-1" and results[name, host].refuses


@pytest.mark.parametrize(
    ("fast", "trouble", "ok"), [(False, "", True), (False, "Permission denied (publickey).", False), (True, "x", None)]
)
def test_the_head_enters_itself_in_the_long_form_only(fast: bool, trouble: str, ok: bool | None) -> None:
    answers = make_answers({"a": {"ssh": {"trouble": trouble} if trouble else {}}}, fast=fast)
    check = found(check_sessions(make_hosts_need("a"), answers)).get(("ssh to itself", "a"))
    assert (None if check is None else check.ok) is ok


def _where(**programs: str) -> dict[str, Any]:
    return {"programs": {"where": programs}}


def test_pdsh_is_refused_only_where_the_plan_asks_for_it() -> None:
    answers = make_answers({"a": _where(ssh="/bin/ssh"), "b": _where()})
    plain, by_pdsh = (found(check_programs(make_hosts_need("a", "b", place={"via": via}), answers)) for via in ("auto", "pdsh"))
    assert plain["pdsh", "a"].ok and plain["pdsh", "a"].found == "not on PATH: agents are started by ssh"
    assert not by_pdsh["pdsh", "a"].ok and by_pdsh["pdsh", "a"].refuses and by_pdsh["pdsh", "a"].found == "not on PATH"
    assert plain["ssh program", "a"].ok and ("ssh program", "b") not in plain, "the head alone starts others"


def test_ssh_is_needed_where_there_is_another_host() -> None:
    assert ("ssh program", "a") not in found(check_programs(make_hosts_need("a"), make_answers({"a": _where()})))
    assert not found(check_programs(make_hosts_need("a", "b"), make_answers({"a": _where()})))["ssh program", "a"].ok
    assert found(check_programs(make_hosts_need("a", "b", kind="pernode"), make_answers({"a": _where(), "b": _where()}))) == {}


def test_ninja_and_the_runs_program_on_each_host() -> None:
    need = make_hosts_need("a", "b", "c", kind="pernode", ninja=True, program=("/env/python",))
    answers = make_answers({"a": _where(**{"ninja": "/bin/ninja", "/env/python": "/env/python"}), "b": _where(), "c": {}})
    results = found(check_programs(need, answers))
    assert results["ninja", "a"].ok and results["program /env/python", "a"].ok
    assert not results["ninja", "b"].ok and not results["ninja", "b"].refuses
    assert results["program /env/python", "b"].found == "not there" and results["program /env/python", "b"].refuses
    assert not [host for _, host in results if host == "c"], "what it did not tell is told elsewhere"


def test_a_host_that_cannot_encrypt_is_refused_by_name() -> None:
    missing = "ModuleNotFoundError: No module named 'cryptography'"
    answers = make_answers({"a": {"encryption": {"problem": ""}}, "b": {"encryption": {"problem": missing}}, "c": {}})
    results = found(check_sessions(make_hosts_need("a", "b", "c"), answers))
    assert results["encrypted connection", "a"].ok and ("encrypted connection", "c") not in results
    refused = results["encrypted connection", "b"]
    assert not refused.ok and refused.refuses and refused.found == missing and "pip install cryptography" in refused.fix


FILES = {"head": "f0", "b": "f1"}
NEED = make_hosts_need("head", "b")


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


def _failed(answers: Answers) -> dict[tuple[str, str], Check]:
    return {key: check for key, check in found(check_shared_folder(NEED, answers)).items() if not check.ok}


def test_a_shared_folder_is_in_order_and_the_head_is_not_held_against_itself() -> None:
    results = found(check_shared_folder(NEED, _answers()))
    assert all(check.ok for check in results.values())
    names = ["output folder is shared", "output folder is writable", "rename is seen", "lock is seen", "space in the output folder"]
    assert [name for name, host in results if host == "b"] == [*names, "temporary files"]
    assert [name for name, host in results if host == "head"] == [
        "output folder is writable",
        "space in the output folder",
        "temporary files",
    ]


def test_a_host_where_the_agent_is_another_user_is_refused() -> None:
    foreign = {"troubles": {}, "foreign": {"f0": "user 1000, and the agent is user 0"}}
    failed = _failed(_answers(second={"look": foreign}))
    assert list(failed) == [("files of the head", "b")] and failed["files of the head", "b"].refuses
    assert not _failed(_answers(second={"look": {"troubles": {}, "foreign": {}}}))


@pytest.mark.parametrize("output", ["/out", "/out/not/there/yet"])
def test_a_folder_that_every_user_may_write_to_is_refused(output: str) -> None:
    answers = _answers({"put": {"open": "every user may write to it"}})
    failed = {key: check for key, check in found(check_shared_folder(replace(NEED, output=output), answers)).items() if not check.ok}
    assert list(failed) == ([("output folder is the user's own", "b")] if output == "/out" else []), "what it will be in is another's"
    assert all(check.refuses and check.fix.startswith("chmod o-w /out") for check in failed.values())


def test_a_folder_that_is_another_there_is_refused_and_nothing_more_is_asked_of_it() -> None:
    results = found(check_shared_folder(NEED, _answers(second={"look": {"troubles": {"f0": "No such file or directory"}}})))
    assert states(results["output folder is shared", "b"].found, "/out", "head's", "No such file or directory")
    assert (
        results["output folder is shared", "b"].refuses and ("lock is seen", "b") not in results and ("rename is seen", "b") not in results
    )


def test_its_own_file_that_the_head_does_not_see() -> None:
    answers = _answers()
    results = {"parts": {"look": {"troubles": {"f1": "an empty file is seen there"}}}}
    blind = make_answers(second={"head": results["parts"], "b": {"look": {"troubles": {}}}}).second
    failed = _failed(Answers(first=answers.first, second=blind, third=answers.third, files=FILES))
    assert states(failed["output folder is shared", "b"].found, "/out", "the head", "empty")


def test_when_the_head_cannot_write_nothing_is_reported_of_the_others_seeing_it() -> None:
    results = found(check_shared_folder(NEED, _answers(of_head={"put": {"trouble": "in /out no file can be written: Permission denied"}})))
    assert ("output folder is shared", "b") not in results and not results["output folder is writable", "head"].ok


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ("in /out no file can be written: No space left on device", "OSError: [Errno 28] No space left on device"),
        ("in /out no file can be renamed: Read-only file system", "OSError: [Errno 30] Read-only file system"),
        ("in /out no file can be written: Permission denied", "PermissionError: [Errno 13] Permission denied"),
    ],
)
def test_what_cannot_be_written_names_the_later_error(trouble: str, error: str) -> None:
    check = _failed(_answers({"put": {"trouble": trouble}}))["output folder is writable", "b"]
    assert check.found == trouble and check.prevents == f"{error}, on one host's ranks" and check.refuses


def test_a_rename_that_is_seen_late_and_a_lock_that_is_not_are_reported_only() -> None:
    answers = _answers(second={"is_held": {"held": False}})
    late = make_answers(third={"head": {"look": {"troubles": {"f1": "an older text is seen there"}}}}).third
    failed = _failed(Answers(first=answers.first, second=answers.second, third=late, files=FILES))
    assert {name: check.refuses for (name, _), check in failed.items()} == {"rename is seen": False, "lock is seen": False}
    assert failed["lock is seen", "b"].found == "not held here while the head holds it"


def test_a_head_that_holds_no_lock_itself_says_nothing_of_it() -> None:
    assert ("lock is seen", "b") not in found(check_shared_folder(NEED, _answers(of_head={"lock": {"trouble": "No locks available"}})))


@pytest.mark.parametrize(
    ("disk", "ok", "refuses"),
    [
        (_disk(LITTLE_FREE_BYTES), True, False),
        (_disk(LITTLE_FREE_BYTES - 1), False, False),
        (_disk(MIN_FREE_BYTES - 1), False, True),
        # A file system that does not count.
        (_disk(0, total_bytes=0), True, False),
    ],
)
def test_space_in_the_output_folder(disk: dict[str, Any], ok: bool, refuses: bool) -> None:
    check = found(check_shared_folder(NEED, _answers({"space": {"folders": {"/out": disk}}})))["space in the output folder", "b"]
    assert (check.ok, check.refuses) == (ok, refuses)


def test_a_temporary_folder_must_be_there_and_take_files() -> None:
    for disk, text in (
        (_disk(writable=False), "which cannot be written to"),
        ({"trouble": "No such file or directory"}, "/tmp: No such file"),
    ):
        check = _failed(_answers({"space": {"folders": {"/tmp": disk}}}))["temporary files", "b"]
        assert text in check.found and not check.refuses


PATHS = {"/job": "cwd", "/job/train.py": "script", "/data": "data"}
NEED_PATHS = make_hosts_need("a", "b", paths=PATHS)


def test_what_is_missing_is_reported_under_its_own_name() -> None:
    answers = make_answers(
        {"a": {"paths": {"troubles": {}}}, "b": {"paths": {"troubles": {"/job/train.py": "/job/train.py: No such file"}}}}
    )
    failed = {key: check for key, check in found(check_paths(NEED_PATHS, answers)).items() if not check.ok}
    assert (
        list(failed) == [("script", "b")] and failed["script", "b"].found == "/job/train.py: No such file" and failed["script", "b"].refuses
    )


def test_a_disk_that_does_not_answer_is_a_trouble_of_each() -> None:
    answers = make_answers({"b": {"paths": {"trouble": "no answer within 5 s"}}})
    failed = {name: check.found for (name, host), check in found(check_paths(NEED_PATHS, answers)).items() if not check.ok}
    assert set(failed.values()) == {"no answer within 5 s"} and "script" in failed


def test_users_are_held_against_the_heads_own_number() -> None:
    facts = {"a": {"user": "ann", "uid": 1000}, "b": {"user": "ann", "uid": 1001}, "c": {"user": "ann", "uid": 1001}, "d": {}}
    results = found(check_paths(make_hosts_need("a", "b", "c", "d"), make_answers(facts=facts)))
    assert results["user", "a"].ok and results["user", "b"].found == "ann (1001); 1000 on the head" and not results["user", "c"].ok
    assert ("user", "d") not in results and not results["user", "b"].refuses
