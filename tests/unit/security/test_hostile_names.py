"""Names and text of other people: no path, shell, terminal or page acts on them."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

import seatrial as seatrial_module
from seatrial.cli.live_view import live_view, state_line
from seatrial.cli.main import run_command
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.launch.prepare import command_script
from seatrial.plan.matrix import group_name, labels_of, run_name, value_names
from seatrial.records.codec import to_json
from seatrial.records.launch import Command
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.results import LiveState
from seatrial.report.text import one_line
from tests.unit.results.campaigns import spec, write_campaign
from tests.unit.security.folders import CANARY, LONGEST_S, canaries, contents
from tests.unit.security.folders import seatrial as run_seatrial

PLAN: dict[str, Any] = {
    "name": "names",
    "workload": {"script": "train.py", "args": ["{a}"]},
    "axes": {"a": {"values": [1]}},
    "output": "out",
}
WAYS_OUT = (
    f"../{CANARY}",
    f"/tmp/{CANARY}",
    "..",
    "a/b",
    "a\\..\\b",
    "a\0b",
    "\x1b[31mred",
    "[red]a[/red]",
    "x" * 300,
    "",
)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "train.py").write_text("print('step 1 loss 1')\n")
    monkeypatch.chdir(folder)
    return folder


def shown(folder: Path, **changes: Any) -> int:
    (folder / "plan.yaml").write_text(yaml.safe_dump({**PLAN, **changes}))
    return run_command(["plan", "show", "plan.yaml"])


def assert_one_sentence(said: str) -> None:
    assert said.startswith("seatrial: ") and said.count("\n") == 1 and "Traceback" not in said
    assert said.rstrip("\n").isprintable(), f"control characters on the terminal: {said!r}"


@pytest.mark.parametrize("name", WAYS_OUT)
@pytest.mark.parametrize("key", ["name", "prefix", "mode", "label"])
def test_words_that_become_file_names_are_refused(inside: Path, capsys: pytest.CaptureFixture[str], key: str, name: str) -> None:
    if key == "prefix" and name == "":
        pytest.skip("no prefix is none")
    changes = {"axes": {"a": {"label": name, "values": [1]}}} if key == "label" else {key: name}
    assert shown(inside, **changes) == 1
    assert_one_sentence(capsys.readouterr().err)
    assert {path.name for path in inside.iterdir()} == {"train.py", "plan.yaml"}
    assert canaries(inside) == []


@pytest.mark.parametrize("value", [*WAYS_OUT, "..", "...", "-", "CON", "é", "\u202e", "𝟙", "a" * 5000])
def test_values_become_one_harmless_name(value: str) -> None:
    for other in ("a", 1, None):
        names = [group_name("", [("p", text)]) for text in value_names([value, other])] if value != other else []
        for name in names:
            run = run_name(name, 1)
            assert Path(run).name == run and run not in (".", "..") and not run.startswith((".", "-", "~"))
            assert len(run.encode()) < 128 and run.isascii() and run.isprintable()


@pytest.mark.parametrize("axis", ["..", "a/b", "a b", "$(x)", "a\nb", "\x1b[31m", "a" * 300, "env...", "env.A B", "env.$(x)", "place.x"])
def test_axes_have_names_of_letters(inside: Path, capsys: pytest.CaptureFixture[str], axis: str) -> None:
    if axis == "a" * 300:
        assert len(labels_of({axis: None})[axis]) <= 300, "a long name is cut where the group's name is"
        return
    assert shown(inside, workload={"script": "train.py"}, axes={axis: [1]}) == 1
    assert_one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": {"script": "train\0.py", "args": ["{a}"]}},
        {"workload": {"script": "{nothing}.py", "args": ["{a}"]}},
        {"workload": {"script": "train.py", "args": ["{a}", "x\0y"]}},
        {"axes": {"a": ["x\0y"]}},
        {"env": {"A": "x\0y"}},
        {"env": {"A;B": "x"}},
        {"env": {"A=B": "x"}},
        {"extends": "x\0.yaml"},
        {"extends": "../\x1b[31m"},
        {"\x1b[31mkey": 1},
        {"launcher": {"kind": "python", "program": ["a\0b"]}},
    ],
    ids=str,
)
def test_what_no_command_can_carry_is_refused(inside: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]) -> None:
    assert shown(inside, **changes) == 1
    assert_one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize("module", ["os.system", "../../x", "/etc/passwd", "dummy.train; import os", "seatrial.cli.main", "..dummy"])
def test_only_bundled_workloads_are_imported(inside: Path, capsys: pytest.CaptureFixture[str], module: str) -> None:
    assert shown(inside, workload={"module": module}, axes={}) == 1
    assert_one_sentence(capsys.readouterr().err)


def test_no_tag_of_yaml_makes_anything(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tag in (
        "!!python/object/apply:os.system",
        "!!python/object/new:subprocess.Popen",
        "!!python/name:os.system",
        "!include",
        "!!binary",
    ):
        (inside / "plan.yaml").write_text(f'name: a\nworkload: {tag} ["touch {CANARY}"]\n')
        assert run_command(["plan", "show", "plan.yaml"]) == 1
        assert_one_sentence(capsys.readouterr().err)
    assert canaries(inside) == []


@pytest.mark.parametrize("only", [f"../{CANARY}", "../../*", "[", "\x1b[31m", ""])
def test_only_selects_runs_of_the_plan(inside: Path, capsys: pytest.CaptureFixture[str], only: str) -> None:
    (inside / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    assert run_command(["run", "plan.yaml", "--only", only]) == 1
    assert_one_sentence(capsys.readouterr().err)
    assert {path.name for path in inside.iterdir()} == {"train.py", "plan.yaml"}


@pytest.mark.parametrize("output", ["a\0b", "x" * 300, "a/" * 3000])
def test_an_output_folder_that_cannot_be_created_is_refused(inside: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    (inside / "plan.yaml").write_text(yaml.safe_dump({**PLAN, "output": output}))
    assert run_command(["run", "plan.yaml"]) in (1, 2)
    assert_one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize("way", ["..", "../outside", "mb8_r1/../../outside", "\x1b[31m", "x" * 300])
@pytest.mark.parametrize("verb", ["logs", "diff", "stop", "watch", "report", "export"])
def test_a_folder_that_is_no_run_is_refused_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, way: str) -> None:
    out = write_campaign(tmp_path / "inside" / "out", steps=3).folder
    (tmp_path / "inside" / "outside").mkdir()
    before = contents(tmp_path)
    folder = str(out / way)
    assert run_command([verb, folder, *([folder] if verb == "diff" else [])]) == 1
    assert_one_sentence(capsys.readouterr().err)
    assert contents(tmp_path) == before


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
        assert run.parent == campaign.folder and re.fullmatch(r"[A-Za-z0-9._+-]+", run.name)
    assert {path.name for path in campaign.folder.parent.iterdir()} == {SCRIPT_NAME, "plan.yaml", campaign.folder.name}
    assert canaries(campaign.folder.parent) == []


def test_command_sh_by_hand_starts_the_same_command(campaign: CampaignPaths, tmp_path: Path) -> None:
    for run in campaign.runs():
        script = run.attempt(1).command
        done = subprocess.run(["bash", str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST_S, check=True)
        assert got(done.stdout) == expected(payload_of(run.folder), run.folder.name)
        assert subprocess.run(["bash", "-n", str(script)], timeout=LONGEST_S, check=False).returncode == 0
    assert canaries(campaign.folder.parent) == canaries(tmp_path) == []


def test_the_winners_file_can_be_sourced(campaign: CampaignPaths, tmp_path: Path) -> None:
    argv = ["bash", "-euc", '. "$1"; printf %s "$BEST_AXIS_PAYLOAD"', "bash", str(campaign.best_config_env)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST_S, check=True)
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
    attempt.command.write_text(command_script(command, attempt, {**odd, "NCCL_ALGO": f"$(touch {CANARY}-value)}}'"}))
    bare = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", str(attempt.command)], env=bare, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    assert f"NCCL_ALGO=$(touch {CANARY}-value)}}'\n" in done.stdout
    assert canaries(tmp_path / "out") == []


def calls_in(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]


def test_no_line_of_the_code_asks_for_a_shell() -> None:
    sources = [
        *Path(seatrial_module.__file__).parent.rglob("*.py"),
        *(Path(seatrial_module.__file__).parents[1] / "seatrial_workloads").rglob("*.py"),
    ]
    assert len(sources) > 100
    for path in sources:
        for call in calls_in(path):
            said = ast.unparse(call)
            assert not any(word.arg == "shell" for word in call.keywords), f"{path}: {said}"
            assert ast.unparse(call.func) not in ("os.system", "os.popen", "subprocess.getoutput", "eval", "exec"), f"{path}: {said}"


# Red, a cleared screen, a title, a link, a clipboard, an answer typed for the user, and the same by the one character for both.
SEQUENCES = ("\x1b[31m", "\x1b[2J", "\x1b]0;owned\x07", "\x1b]8;;http://x\x1b\\", "\x1b]52;c;cm0=\x07", "\x1b[6n", "\x9b31m", "\x90+q\x9c")
EVIL = f"before{''.join(SEQUENCES)}\x08\x08\x7f\rafter [red]not markup[/red] [/] [link=file:///x]x"
MARKUP = "[red]not markup[/red]"
HARMFUL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}


def assert_harmless(text: str) -> None:
    found = {character for character in text if character in HARMFUL}
    assert not found, f"{found} in {text[:2000]!r}"


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def terminal_campaign(tmp_path: Path) -> CampaignPaths:
    """A campaign whose every free text is evil."""
    paths = write_campaign(tmp_path / "out", steps=5)
    for run in paths.runs():
        for attempt in run.attempts():
            ended = {"outcome": "failed", "cause": "exception", "detail": EVIL, "action": EVIL, "log_tail": [EVIL, EVIL]}
            rewrite(attempt.outcome, **ended, rank=1, phase=EVIL, frame=EVIL)
            rewrite(attempt.provenance, host=EVIL, gpu_name=EVIL, git_branch=EVIL, packages={"torch": EVIL}, variables={EVIL: EVIL})
            attempt.alarms.write_text(json.dumps({"t": 1.0, "kind": "spike", "text": EVIL, "rank": 0, "step": 1}) + "\n")
            attempt.environment.write_text(json.dumps({"variables": [{"name": EVIL, "value": f"{EVIL}{attempt.run}", "set_by": "plan"}]}))
    return paths


@pytest.mark.parametrize("verb", ["report", "diff", "watch"])
def test_what_a_folder_holds_is_harmless_on_the_terminal(
    terminal_campaign: CampaignPaths, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    runs = [str(run.folder) for run in terminal_campaign.runs()]
    terminal_campaign.progress.write_text(json.dumps(to_json(state())))
    argv = {"report": [str(terminal_campaign.folder)], "diff": [runs[0], runs[-1]], "watch": [str(terminal_campaign.folder), "--once"]}
    run_command([verb, *argv[verb]])
    shown = capsys.readouterr()
    assert_harmless(shown.out + shown.err)
    assert MARKUP in shown.out, "markup is shown and not interpreted"
    if verb == "report":
        assert_harmless(terminal_campaign.summary_md.read_text())


def state() -> LiveState:
    evil = {"plan": EVIL, "run": EVIL, "group": EVIL, "phase": EVIL, "alarm": EVIL}
    return LiveState(t=1.0, pid=2, host=EVIL, count=4, repeat=1, step=3, total_steps=9, elapsed_s=100.0, **evil)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_running_campaign_is_harmless_on_the_terminal(is_terminal: bool) -> None:
    failed = RunOutcome(run="r", attempt=1, hash="h", outcome=Outcome.FAILED, cause=Cause.NAN, detail=EVIL, action=EVIL, log_tail=(EVIL,))
    text = io.StringIO()
    with live_view(Console(file=text, width=300, force_terminal=is_terminal, color_system=None)) as view:
        view.progress(state())
        view.ended(spec("mb8", 1), failed, None)
    shown = text.getvalue()
    assert MARKUP in shown and not any(sequence in shown for sequence in ("\x1b]", "\x9b", "\x90", "\x07", "\x08", "\x1b[31m", "\x1b[6n"))
    assert_harmless(state_line(state()))
    if not is_terminal:
        assert_harmless(shown)


def test_a_plan_that_holds_escapes_is_refused_without_repeating_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    workload = {"script": "train.py", "args": ["{a}", EVIL], "env": {"A": EVIL}}
    (tmp_path / "plan.yaml").write_text(
        yaml.safe_dump({"name": "a", "workload": workload, "axes": {"a": [EVIL, "b"]}, "output": "o\x1b[2J"})
    )
    assert run_command(["plan", "show", "plan.yaml"]) == 1
    said = capsys.readouterr()
    assert "control character" in said.err
    assert_harmless(said.out + said.err)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_logs_on_a_terminal_keep_colours_alone_and_in_a_pipe_everything(
    terminal_campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    run = terminal_campaign.runs()[0]
    written = f"[rank0]: {EVIL}\n[rank1]: {EVIL}\n"
    AttemptPaths(run.attempts()[-1].folder).launcher_log.write_bytes(written.encode())
    stdout = io.StringIO(newline="")
    monkeypatch.setattr(stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("sys.stdout", stdout)
    assert run_command(["logs", str(run.folder)]) == 0
    shown = stdout.getvalue()
    assert "not markup" in shown and "\x1b[31m" in shown
    if is_terminal:
        assert_harmless(shown.replace("\x1b[31m", "").replace("\x1b[0m", "").replace("\r", ""))
    else:
        assert SEQUENCES[1] in shown


def test_one_line_takes_out_all_that_a_terminal_obeys() -> None:
    assert_harmless(one_line(EVIL + "\n\t"))
    assert one_line("Größe 𝟙 → ok\u00a0") == "Größe 𝟙 → ok\u00a0"
