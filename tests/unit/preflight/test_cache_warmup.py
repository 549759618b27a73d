"""What hosts are asked to build before a campaign, and what their answers say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from seatrial.agent.query_handler import QueryHandler
from seatrial.campaign.preflight import warm_hosts
from seatrial.cli.main import run_command
from seatrial.preflight.cache_warmup import warm_checks, warm_query
from seatrial.preflight.check_definition import Need
from seatrial.records.launch import Reply
from tests.unit.launch.factory import make_spec

TRAINER = "seatrial_workloads.contrastive.train"


def need(tmp_path: Path, *runs: dict[str, object], module: str = TRAINER) -> Need:
    return Need(output=tmp_path, runs=tuple(make_spec(tmp_path, module=module, settings=settings, env={"A": "1"}) for settings in runs))


def test_each_set_of_settings_is_sent_once_with_the_runs_variables(tmp_path: Path) -> None:
    query = warm_query(need(tmp_path, {"zero_stage": 0}, {"zero_stage": 1}, {"zero_stage": 0}))
    assert query is not None and query["settings"] == [{"zero_stage": 0}, {"zero_stage": 1}]
    assert (query["module"], query["variables"], query["cwd"]) == (
        "seatrial_workloads.contrastive.cache_warmup",
        {"A": "1"},
        str(tmp_path),
    )


def test_a_workload_without_caches_has_nothing_to_do(tmp_path: Path) -> None:
    dummy = need(tmp_path, {"steps": 5}, module="seatrial_workloads.dummy.train")
    assert warm_query(dummy) is None
    ((host, (check,)),) = warm_hosts(dummy, None).items()
    assert check.ok and "nothing to do" in check.found and host


def test_every_result_says_what_was_built_and_in_how_many_seconds() -> None:
    results = [
        {"what": "ops", "of": "", "ok": True, "found": "FusedAdam built, /cache", "took_s": 61.23},
        {"what": "compile", "of": "z0 mb128", "ok": False, "found": "not compiled: no\x1b C++ compiler", "took_s": 2.0},
        {"what": "unheard of"},
        "no result",
    ]
    ops, compiled = warm_checks(Reply(answer={"results": results}))
    assert (ops.ok, ops.found) == (True, "FusedAdam built, /cache; 61.2 s")
    assert (compiled.ok, compiled.name, compiled.refuses) == (False, "torch.compile z0 mb128", False)
    assert compiled.found.endswith("; 2.0 s") and "\x1b" not in compiled.found


@pytest.mark.parametrize("reply", [Reply(trouble="no answer within 1900 s"), Reply(answer={"trouble": "no torch"}), Reply(answer={})])
def test_a_host_that_could_not_is_a_warning(reply: Reply) -> None:
    (check,) = warm_checks(reply)
    assert not check.ok and not check.refuses and check.found


def test_the_module_runs_in_the_runs_environment_and_its_last_line_is_the_answer(tmp_path: Path) -> None:
    package = tmp_path / "warmable"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "warm.py").write_text(
        "import json, os, sys\nprint('noise of a compiler')\n"
        "print(json.dumps({'results': [json.loads(sys.argv[1]), os.environ['A'], os.getcwd()]}))\n"
    )
    query = {"ask": "warm", "settings": [{"x": 1}], "cwd": str(tmp_path), "variables": {"A": "1", "PYTHONPATH": str(tmp_path)}}
    found = QueryHandler().answer({**query, "module": "warmable.warm", "program": [sys.executable]})
    assert found["results"] == [[{"x": 1}], "1", str(tmp_path)]
    failed = QueryHandler().answer({**query, "module": "warmable.missing"})
    assert "run it there" in failed["trouble"] and "warmable.missing" in failed["trouble"]
    assert "not found" in QueryHandler().answer({**query, "program": ["no-such-python"]})["trouble"]


def test_without_a_plan_there_is_nothing_to_warm(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["doctor", "--fast", "--warm"]) == 1
    assert "--warm needs a plan" in capsys.readouterr().err


def test_the_doctor_prints_what_this_machine_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: a\nworkload: dummy\nplace: {kind: local, ranks: 1}\nsteps: 3\noutput: out\n")
    assert run_command(["doctor", str(plan), "--fast", "--warm", "--json"]) == 0
    document = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert [check["name"] for check in document["checks"] if check["subject"].startswith("warm-up on ")] == ["caches to fill"]
