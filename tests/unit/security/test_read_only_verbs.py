"""Read-only verbs start no program that a plan, a script or a folder names; those that do say so first.

One process runs every such verb with an audit hook on whatever starts a program. The plans, and the folder they are in, name several that
leave a file behind: an interpreter, a sitecustomize.py, a configuration of git.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.core.paths import CampaignPaths
from tests.facts import states
from tests.unit.results.campaigns import write_campaign
from tests.unit.security.folders import CANARY, canaries, seatrial

# Events of every way in which Python starts a program.
WATCHED = r"""
import json, sys
started = []
NAMES = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.fork", "os.forkpty", "pty.spawn")
sys.addaudithook(lambda event, args: started.append([event, repr(args[:2])]) if event in NAMES else None)
from seatrial.cli.main import run_command
for verb in json.loads(sys.argv[1]):
    before = len(started)
    code = run_command(verb)
    print(json.dumps({"verb": verb, "code": code, "started": started[before:]}), file=sys.stderr)
"""
PLANS = {
    "program": "launcher: {kind: python, program: [./python]}\n",
    "torchrun": "launcher: {kind: torchrun, program: [./python, -m, torch.distributed.run]}\n",
    "deepspeed": "launcher: {kind: deepspeed, program: [./python]}\n",
    "search_path": "launcher: {kind: python, program: [python]}\nenv: {PATH: .}\n",
    "python_path": "launcher: {kind: python, program: [{python}]}\nenv: {PYTHONPATH: {folder}}\n",
    "needing": "launcher: {kind: python, program: [./python]}\nneeds: {campaign: out}\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stranger's folder: a campaign, plans, and what they would start."""
    here = tmp_path / "theirs"
    write_campaign(here / "out", steps=5)
    leave = f'Path("{here}", "{CANARY}" + str(sys.argv)[:9].replace("/", "_")).touch()'
    (here / "sitecustomize.py").write_text(f"import sys\nfrom pathlib import Path\n{leave}\n")
    program = here / "python"
    program.write_text(f"#!/bin/sh\ntouch {here}/{CANARY}-program\nexit 1\n")
    program.chmod(0o755)
    (here / "train.py").write_text("print(1)\n")
    (here / "train.log").write_text("step 1 loss 2.0\nTraceback (most recent call last):\nValueError: x\n")
    subprocess.run(["git", "init", "-q", here], check=True)
    with (here / ".git" / "config").open("a") as config:
        config.write(f'[core]\n\tfsmonitor = "touch {here}/{CANARY}-git; false"\n')
    for name, lines in PLANS.items():
        lines = lines.replace("{python}", sys.executable).replace("{folder}", str(here))
        (here / f"{name}.yaml").write_text(f"name: {name}\nworkload: {{script: train.py}}\nplace: {{kind: local, ranks: 1}}\n{lines}")
    return here


def looking_verbs(folder: Path) -> list[list[str]]:
    out = CampaignPaths(folder / "out")
    runs = [str(run.folder) for run in out.runs()]
    return [
        *(["plan", "show", f"{name}.yaml", "--out", f"new-{name}"] for name in PLANS),
        ["plan", "show", "program.yaml", "--out", "out"],
        ["init", "-o", "written.yaml", "--", "./python", "train.py"],
        ["init", "-o", "again.yaml", "--", "python", "-m", "torch.distributed.run", "train.py"],
        ["report", "out"],
        ["report", "out", "--full", "--json"],
        ["why", "out"],
        ["compare", "out", "out"],
        ["diff", runs[0], runs[-1]],
        ["export", "out", "all", "-o", "tables"],
        ["history", "add", "out", "--history", "history.jsonl"],
        ["history", "list", "--history", "history.jsonl"],
        ["logs", runs[0]],
        ["watch", "out", "--once"],
        ["diagnose", "train.log"],
        ["stop", "out"],
        ["runbook", "stage1", "bench"],
        ["plan", "list"],
        ["plan", "criteria"],
    ]


def test_read_only_verbs_start_nothing(folder: Path) -> None:
    verbs = looking_verbs(folder)
    argv = [sys.executable, "-P", "-c", WATCHED, json.dumps(verbs)]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"verb"')]
    assert [line["verb"] for line in lines] == verbs, done.stderr
    assert [line for line in lines if line["started"]] == []
    assert not canaries(folder)
    # The plans were read, and what would be refused was looked for.
    assert {line["code"] for line in lines[: len(PLANS)]} == {0}, done.stderr
    assert "Python of ./python: not asked here" in done.stdout
    assert "needed campaign" in done.stdout


def test_verbs_that_start_what_a_plan_names_say_so_first(folder: Path) -> None:
    checked = seatrial(folder, "doctor", "program.yaml", "--fast")
    assert states(checked.stdout.splitlines()[0], "program.yaml", "started")
    assert {path.name for path in canaries(folder)} >= {f"{CANARY}-program"}, "the trap works"
    ran = seatrial(folder, "run", "program.yaml", "--out", "ran", "--json")
    assert states(ran.stderr.splitlines()[0], "program.yaml", "starts", "as your user")
