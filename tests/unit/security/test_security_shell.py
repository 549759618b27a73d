"""Nothing from a plan reaches a shell: every string that a plan or a command line can hold comes to the script as it was written."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import seatrial
from seatrial.launch.command_file import command_text
from seatrial.paths import CampaignPaths
from seatrial.records.command import Command
from tests.unit.security.folders import CANARY, LONGEST_S, canaries
from tests.unit.security.folders import seatrial as run_seatrial

PAYLOADS = (
    f"$(touch {CANARY}-substituted)",
    f"`touch {CANARY}-backticks`",
    f"; touch {CANARY}-semicolon;",
    f"a\ntouch {CANARY}-newline\n",
    f"&& touch {CANARY}-and || touch {CANARY}-or",
    f"' ; touch {CANARY}-single; '",
    f'" ; touch {CANARY}-double; "',
    f"| tee {CANARY}-pipe",
    f"> {CANARY}-redirected",
    "${HOME} $HOME ~ * ? [a-z] !! #",
    "}; exit 7; {",
    "-rf",
    "\\",
)
# Prints what reached it, one JSON line; the step lines let the run be timed.
SCRIPT = """
import json, os, sys
print("GOT " + json.dumps({"argv": sys.argv[1:], "env": {name: os.environ.get(name) for name in ("ONE", "TWO", "THREE")}}))
"""
# A name that is itself a command.
SCRIPT_NAME = f"got $(touch {CANARY}-script).py"
GOT = "GOT "


def braced(text: str) -> str:
    """As it must be written where placeholders are filled."""
    return text.replace("{", "{{").replace("}", "}}")


def plan() -> dict[str, Any]:
    """A payload in every key of a plan that takes free text."""
    return {
        "name": "payloads",
        "workload": {
            "script": SCRIPT_NAME,
            "args": ["{payload}", "{run}", "{{run}}", *map(braced, PAYLOADS)],
            "env": {"ONE": braced(" ".join(PAYLOADS)), "TWO": "{payload}"},
            "patterns": [f"$(touch {CANARY}-pattern) (?P<step>[0-9]+)"],
        },
        "launcher": {"kind": "python", "args": ["-X", f"$(touch {CANARY}-option)"]},
        "axes": {"payload": {"label": "p", "values": [*PAYLOADS, "{group} {nothing}"]}},
        "env": {"THREE": braced(PAYLOADS[0])},
        "criteria": [{"metric": "failed_runs", "at_most": 0, "reason": PAYLOADS[0]}],
        "output": f"out; touch {CANARY}-output; $(touch {CANARY}-output)",
    }


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignPaths:
    """The plan, run once."""
    folder = tmp_path_factory.mktemp("outside") / "inside"
    folder.mkdir()
    (folder / SCRIPT_NAME).write_text(SCRIPT)
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan()))
    done = run_seatrial(folder, "run", "plan.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return CampaignPaths(folder / str(plan()["output"]))


def got(text: str) -> dict[str, Any]:
    (line,) = [line for line in text.splitlines() if line.startswith(GOT)]
    return dict(json.loads(line.removeprefix(GOT)))


def expected(payload: str, run: str) -> dict[str, Any]:
    return {
        "argv": [payload, run, "{run}", *PAYLOADS],
        "env": {"ONE": " ".join(PAYLOADS), "TWO": payload, "THREE": PAYLOADS[0]},
    }


def payload_of(run: Path) -> str:
    return str(json.loads((run / "attempt-1" / "spec.json").read_text())["axes"]["payload"])


def test_every_string_reaches_the_script_as_it_was_written(campaign: CampaignPaths) -> None:
    runs = [run.folder for run in campaign.runs()]
    assert sorted(map(payload_of, runs)) == sorted([*PAYLOADS, "{group} {nothing}"])
    for run in runs:
        assert got((run / "attempt-1" / "launcher.log").read_text()) == expected(payload_of(run), run.name)
    assert canaries(campaign.folder.parent) == []


def test_every_run_lies_in_the_campaigns_own_folder(campaign: CampaignPaths) -> None:
    made = {path.name for path in campaign.folder.parent.iterdir()}
    assert made == {SCRIPT_NAME, "plan.yaml", campaign.folder.name}
    for run in campaign.runs():
        assert run.folder.parent == campaign.folder
        assert set(run.folder.name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-")


def test_command_sh_by_hand_starts_the_same_words(campaign: CampaignPaths, tmp_path: Path) -> None:
    for run in campaign.runs():
        script = run.attempt(1).command
        done = subprocess.run(["bash", str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST_S, check=True)
        assert got(done.stdout) == expected(payload_of(run.folder), run.folder.name)
        assert subprocess.run(["bash", "-n", str(script)], timeout=LONGEST_S, check=False).returncode == 0
    assert canaries(campaign.folder.parent) == canaries(tmp_path) == []


def test_the_winners_file_can_be_sourced(campaign: CampaignPaths, tmp_path: Path) -> None:
    asked = ["bash", "-euc", '. "$1"; printf %s "$BEST_AXIS_PAYLOAD"', "bash", str(campaign.best_config_env)]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    winner = json.loads(campaign.best_config_json.read_text())["axes"]["payload"]
    # A line of a table cannot hold the ends of lines.
    assert done.stdout.split() == winner.split()
    assert canaries(tmp_path) == []


def test_a_sweep_hands_on_what_was_typed(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "got.py").write_text(SCRIPT)
    values = [f"$(touch {CANARY}-1)", f"`touch {CANARY}-2`", f";touch {CANARY}-3"]
    # In YAML's quotes: a backtick has no meaning there.
    quoted = ",".join(f"'{value}'" for value in values)
    typed = ["-P", f"x={quoted}", "--repeats", "1", "--out", "out", "--env", f"ONE=$(touch {CANARY}-4)"]
    done = run_seatrial(folder, "sweep", *typed, "--", f"TWO=`touch {CANARY}-5`", "python", "got.py", "{x}", f"; touch {CANARY}-6")
    assert done.returncode == 0, done.stdout + done.stderr
    reached = [got((run.attempt(1).launcher_log).read_text()) for run in CampaignPaths(folder / "out").runs()]
    assert sorted(one["argv"][0] for one in reached) == sorted(values)
    assert {one["argv"][1] for one in reached} == {f"; touch {CANARY}-6"}
    assert {(one["env"]["ONE"], one["env"]["TWO"]) for one in reached} == {(f"$(touch {CANARY}-4)", f"`touch {CANARY}-5`")}
    assert canaries(folder) == []


def test_variables_of_the_caller_with_odd_names_are_left_out_of_command_sh(tmp_path: Path) -> None:
    attempt = CampaignPaths(tmp_path / "out").run("mb8_r1").attempt(1)
    attempt.folder.mkdir(parents=True)
    command = Command(argv=("env",), env={"MINE": "1"}, cwd=str(tmp_path), ranks=({},))
    odd = {f"NCCL_$(touch {CANARY}-name)": "1", f"LD_A=1; touch {CANARY}-equals": "1", "HF_A B": "1", "BASH_FUNC_x%%": "() { :; }"}
    attempt.command.write_text(command_text(command, attempt, {**odd, "NCCL_ALGO": f"$(touch {CANARY}-value)}}'"}))
    bare = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", str(attempt.command)], env=bare, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    assert f"NCCL_ALGO=$(touch {CANARY}-value)}}'\n" in done.stdout
    assert canaries(tmp_path / "out") == []


def calls_in(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]


def test_no_line_of_the_code_asks_for_a_shell() -> None:
    sources = [*Path(seatrial.__file__).parent.rglob("*.py"), *(Path(seatrial.__file__).parents[1] / "seatrial_workloads").rglob("*.py")]
    assert len(sources) > 100
    for path in sources:
        for call in calls_in(path):
            said = ast.unparse(call)
            assert not any(word.arg == "shell" for word in call.keywords), f"{path}: {said}"
            assert ast.unparse(call.func) not in ("os.system", "os.popen", "subprocess.getoutput", "eval", "exec"), f"{path}: {said}"
