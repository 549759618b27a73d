"""What a script printed, or a file says, never drives the terminal: no escape sequence of theirs comes out on ours, nor any markup."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from seatrial.cli.live_view import live_view, state_line
from seatrial.cli.main import run_command
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.live import LiveState
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.report.one_line import one_line
from tests.unit.campaign.made_campaign import spec, write_campaign

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
def campaign(tmp_path: Path) -> CampaignPaths:
    """A campaign whose every free text is evil."""
    paths = write_campaign(tmp_path / "out", steps=5)
    for run in paths.runs():
        for attempt in run.attempts():
            told = {"outcome": "failed", "cause": "exception", "detail": EVIL, "action": EVIL, "log_tail": [EVIL, EVIL]}
            rewrite(attempt.outcome, **told, rank=1, phase=EVIL, frame=EVIL)
            rewrite(attempt.provenance, host=EVIL, gpu_name=EVIL, git_branch=EVIL, packages={"torch": EVIL}, variables={EVIL: EVIL})
            attempt.alarms.write_text(json.dumps({"t": 1.0, "kind": "spike", "text": EVIL, "rank": 0, "step": 1}) + "\n")
            attempt.environment.write_text(json.dumps({"variables": [{"name": EVIL, "value": f"{EVIL}{attempt.run}", "set_by": "plan"}]}))
    return paths


def test_the_report_on_the_terminal(campaign: CampaignPaths, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["report", str(campaign.folder)])
    said = capsys.readouterr()
    assert_harmless(said.out + said.err)
    assert MARKUP in said.out, "markup is shown and not obeyed"
    assert_harmless(campaign.summary_md.read_text())


def test_the_difference_of_two_runs(campaign: CampaignPaths, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(run.folder) for run in campaign.runs()]
    assert run_command(["diff", runs[0], runs[-1]]) == 0
    said = capsys.readouterr().out
    assert MARKUP in said
    assert_harmless(said)


def outcome() -> RunOutcome:
    return RunOutcome(
        run="mb8_r1",
        attempt=1,
        hash="h",
        outcome=Outcome.FAILED,
        cause=Cause.EXCEPTION,
        detail=EVIL,
        action=EVIL,
        log_tail=(EVIL, EVIL),
    )


def test_a_failed_run_while_the_campaign_goes() -> None:
    text = io.StringIO()
    with live_view(Console(file=text, width=300, color_system=None)) as view:
        view.ended(spec("mb8", 1), outcome(), None)
    assert MARKUP in text.getvalue()
    assert_harmless(text.getvalue())


def state() -> LiveState:
    evil = {"plan": EVIL, "run": EVIL, "group": EVIL, "phase": EVIL, "alarm": EVIL}
    return LiveState(t=1.0, pid=2, host=EVIL, count=4, repeat=1, step=3, total_steps=9, elapsed_s=100.0, **evil)


def test_the_run_under_way() -> None:
    text = io.StringIO()
    with live_view(Console(file=text, width=300, color_system=None)) as view:
        view.progress(state())
    assert_harmless(text.getvalue())
    assert_harmless(state_line(state()))


def test_the_run_under_way_on_a_real_terminal() -> None:
    text = io.StringIO()
    with live_view(Console(file=text, width=300, force_terminal=True, color_system=None)) as view:
        view.progress(state())
    for sequence in ("\x1b]", "\x9b", "\x90", "\x07", "\x08", "\x1b[31m", "\x1b[6n"):
        assert sequence not in text.getvalue()


def test_watch_reads_a_file_that_anybody_may_have_written(campaign: CampaignPaths, capsys: pytest.CaptureFixture[str]) -> None:
    campaign.progress.write_text(json.dumps({"t": 1, "pid": 1, "host": EVIL, "plan": EVIL, "count": 1, "run": EVIL, "phase": EVIL}))
    assert run_command(["watch", str(campaign.folder), "--once"]) == 0
    assert_harmless(capsys.readouterr().out)


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


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_logs_on_a_terminal_keep_colours_and_nothing_else(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    run = campaign.runs()[0]
    AttemptPaths(run.attempts()[-1].folder).launcher_log.write_text(f"[rank0]: {EVIL}\n[rank1]: {EVIL}\n")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    assert run_command(["logs", str(run.folder)]) == 0
    shown = terminal.getvalue()
    assert "not markup" in shown
    assert_harmless(shown.replace("\x1b[31m", "").replace("\x1b[0m", "").replace("\r", ""))


def test_logs_in_a_pipe_are_what_the_script_printed(campaign: CampaignPaths, capsys: pytest.CaptureFixture[str]) -> None:
    run = campaign.runs()[0]
    AttemptPaths(run.attempts()[-1].folder).launcher_log.write_text("\x1b[31mred\x1b[0m\n")
    assert run_command(["logs", str(run.folder)]) == 0
    assert capsys.readouterr().out == "\x1b[31mred\x1b[0m\n"


def test_one_line_takes_out_all_that_a_terminal_obeys() -> None:
    assert_harmless(one_line(EVIL + "\n\t"))
    assert one_line("Größe 𝟙 → ok\u00a0") == "Größe 𝟙 → ok\u00a0"
