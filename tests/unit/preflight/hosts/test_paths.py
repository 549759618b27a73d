"""Folder, script and data of the runs on each host, and one user."""

from __future__ import annotations

from seatrial.preflight.hosts.paths import checks
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted

PATHS = {"/job": "cwd", "/job/train.py": "script", "/data": "data"}
WANTED = make_wanted("a", "b", paths=PATHS)


def test_all_are_there() -> None:
    told = found(checks(WANTED, make_answers({host: {"paths": {"troubles": {}}} for host in ("a", "b")})))
    assert {name for name, _ in told} == {"folder of the runs", "script", "data of the runs"} and all(check.ok for check in told.values())


def test_what_is_missing_is_told_under_its_own_name() -> None:
    answers = make_answers(
        {"a": {"paths": {"troubles": {}}}, "b": {"paths": {"troubles": {"/job/train.py": "/job/train.py: No such file"}}}}
    )
    amiss = {key: check for key, check in found(checks(WANTED, answers)).items() if not check.ok}
    assert list(amiss) == [("script", "b")] and amiss["script", "b"].found == "/job/train.py: No such file" and amiss["script", "b"].refuses


def test_a_disk_that_does_not_answer_is_a_trouble_of_each() -> None:
    answers = make_answers({"b": {"paths": {"trouble": "no answer within 5 s"}}})
    amiss = {name: check.found for (name, host), check in found(checks(WANTED, answers)).items() if not check.ok}
    assert set(amiss.values()) == {"no answer within 5 s"} and "script" in amiss


def test_a_script_with_another_text_is_refused_with_both_digests() -> None:
    facts = {host: {"scripts": {"/job/train.py": digest}} for host, digest in (("a", "1" * 64), ("b", "2" * 64))}
    told = found(checks(WANTED, make_answers(facts=facts)))
    assert told["text of the script", "a"].found == "train.py is the same"
    assert told["text of the script", "b"].found == "train.py differs: 22222222; 11111111 on a" and told["text of the script", "b"].refuses


def test_users_are_held_against_the_heads_own_number() -> None:
    facts = {"a": {"user": "ann", "uid": 1000}, "b": {"user": "ann", "uid": 1001}, "c": {"user": "ann", "uid": 1001}, "d": {}}
    told = found(checks(make_wanted("a", "b", "c", "d"), make_answers(facts=facts)))
    assert told["user", "a"].ok and told["user", "b"].found == "ann (1001); 1000 on the head" and not told["user", "c"].ok
    assert ("user", "d") not in told and not told["user", "b"].refuses
