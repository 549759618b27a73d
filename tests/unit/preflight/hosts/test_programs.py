"""Programs on the head and on each host."""

from __future__ import annotations

from typing import Any

from seatrial.preflight.hosts.programs import checks
from tests.unit.preflight.hosts.told import found, make_answers, make_wanted


def _where(**programs: str) -> dict[str, Any]:
    return {"programs": {"where": programs}}


def test_pdsh_is_refused_only_where_the_plan_asks_for_it() -> None:
    answers = make_answers({"a": _where(ssh="/bin/ssh"), "b": _where()})
    plain, asked = (found(checks(make_wanted("a", "b", place={"via": via}), answers)) for via in ("auto", "pdsh"))
    assert plain["pdsh", "a"].ok and plain["pdsh", "a"].found == "not on PATH: agents are started by ssh"
    assert not asked["pdsh", "a"].ok and asked["pdsh", "a"].refuses and asked["pdsh", "a"].found == "not on PATH"
    assert plain["ssh program", "a"].ok and ("ssh program", "b") not in plain, "the head alone starts others"


def test_ssh_is_needed_where_there_is_another_host() -> None:
    assert ("ssh program", "a") not in found(checks(make_wanted("a"), make_answers({"a": _where()})))
    assert not found(checks(make_wanted("a", "b"), make_answers({"a": _where()})))["ssh program", "a"].ok
    assert found(checks(make_wanted("a", "b", kind="pernode"), make_answers({"a": _where(), "b": _where()}))) == {}


def test_ninja_and_the_runs_program_on_each_host() -> None:
    wanted = make_wanted("a", "b", "c", kind="pernode", ninja=True, program=("/env/python",))
    answers = make_answers({"a": _where(**{"ninja": "/bin/ninja", "/env/python": "/env/python"}), "b": _where(), "c": {}})
    told = found(checks(wanted, answers))
    assert told["ninja", "a"].ok and told["program /env/python", "a"].ok
    assert not told["ninja", "b"].ok and not told["ninja", "b"].refuses
    assert told["program /env/python", "b"].found == "not there" and told["program /env/python", "b"].refuses
    assert not [host for _, host in told if host == "c"], "what it did not tell is told elsewhere"
