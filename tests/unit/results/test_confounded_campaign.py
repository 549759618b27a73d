"""A campaign whose groups differ in more than their axis, from its events to every report and to the criteria."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.cli.main import run_command
from seatrial.core.paths import CampaignPaths
from seatrial.core.tables import read_table
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Baseline, Criterion, Finding, Verdict
from seatrial.report.terminal import print_report
from seatrial.report.view.first_screen import headline, headline_text
from seatrial.results.recompute import gather_results, recompute
from seatrial.results.why import find_finding, read_verdict, recompute_finding
from tests.unit.results.campaigns import write_compared

FAST, SLOW = [10.0, 10.1, 10.05], [13.0, 13.1, 13.2]
AXES = {"z0": {"zero_stage": 0}, "z1": {"zero_stage": 1}}
FASTER = Criterion(metric="speedup_pct", scope="winner", at_least=10, baseline=Baseline(group="z1"))
ONE_SCREEN = 25


def graph(effective: bool, **more: Any) -> list[dict[str, Any]]:
    return [{"setting": "tower_graph", "requested": True, "effective": effective, "reason": "" if effective else "ZeRO hooks", **more}]


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEATRIAL_HISTORY", str(tmp_path / "history.jsonl"))
    effective = {"z0": graph(True), "z1": graph(False)}
    return write_compared(tmp_path / "out", {"z0": FAST, "z1": SLOW}, axes=AXES, effective=effective, criteria=(FASTER,)).folder


def criterion(results: CampaignResults) -> Finding:
    return results.verdict.findings[0]


def test_every_report_says_what_confounds_and_the_criterion_is_inconclusive(out: Path) -> None:
    results = recompute(out)
    assert headline_text(results).split(" · ")[1] == "no proven winner: confounded by tower_graph"
    assert criterion(results).verdict is Verdict.INCONCLUSIVE
    assert "tower_graph is on in z1" not in criterion(results).text, "values belong to their groups"
    assert "tower_graph is off in z1 and on in z0 (ZeRO hooks)" in criterion(results).text
    paths = CampaignPaths(out)
    summary = json.loads(paths.summary_json.read_text())
    assert summary["ranking"]["confounded_by"] == ["tower_graph"] and summary["ranking"]["winner"] is None
    assert [row["note"] for row in summary["standings"]] == ["recommended, confounded", "confounded"]
    assert "confounded by tower_graph" in paths.summary_md.read_text() and "confounded" in paths.summary_html.read_text()
    assert json.loads(paths.best_config_json.read_text())["caution"].startswith("confounded with another group")
    screen = printed(results)
    assert len(screen) < ONE_SCREEN and any("confounded by tower_graph" in line for line in screen)


def test_allowed_it_is_compared_and_marked_in_all_of_them(out: Path) -> None:
    results = recompute(out, allow_confounded=True)
    assert criterion(results).verdict is Verdict.PASS and "onfounded" in criterion(results).text
    assert headline_text(results).split(" · ")[1] == "winner z0, confounded by tower_graph"
    assert "confounded by tower_graph" in headline(results)[1].text
    paths = CampaignPaths(out)
    summary = json.loads(paths.summary_json.read_text())
    assert summary["ranking"]["winner"] == "z0" and summary["ranking"]["allow_confounded"] and summary["ranking"]["confounded"]
    assert [row["note"] for row in summary["standings"]] == ["winner, confounded", "confounded"]
    assert all("confounded by tower_graph" in text for text in (paths.summary_md.read_text(), "\n".join(printed(results))))
    # What programs and other plans read is not a plain PASS.
    marked = "tower_graph is on in z0 and off in z1 (ZeRO hooks)"
    judged = json.loads(paths.verdict.read_text())
    assert (judged["verdict"], judged["confounded"][0]) == ("PASS", marked)
    assert headline_text(results).startswith("PASS, with confounded groups compared · ")
    assert printed(results)[0].split()[:5] == ["PASS", "with", "confounded", "groups", "compared;"]
    assert [row["confounded"] for row in read_table(paths.ranked_groups)] == [marked, marked]
    assert f"BEST_CAUTION='confounded with another group: {marked}'" in paths.best_config_env.read_text()
    # The next report without the option writes the plain one.
    recompute(out)
    judged = json.loads(paths.verdict.read_text())
    assert (judged["verdict"], judged["confounded"]) == ("INCONCLUSIVE", [])
    results = recompute(out, allow_confounded=True)
    # What the report was made with is what its findings are recomputed with.
    recorded = read_verdict(paths)
    assert recompute_finding(paths, find_finding(recorded.findings, "1")).differences == ()


def printed(results: CampaignResults) -> list[str]:
    text = io.StringIO()
    print_report(results, Console(file=text, width=80))
    return text.getvalue().splitlines()


def test_the_command_line_refuses_and_takes_the_option(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", str(out), "z0", "z1", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert "tower_graph is on in z0 and off in z1" in told["refused"] and "--allow-confounded" in told["refused"]
    assert run_command(["compare", str(out), "z0", "z1", "--json", "--allow-confounded"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert one["relation"] == "SLOWER" and one["confounded"].startswith("tower_graph")
    assert run_command(["report", str(out), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["confounded"].startswith("confounded: tower_graph")
    assert run_command(["report", str(out), "--allow-confounded"]) == 0


def test_a_row_of_history_is_confounded_too(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["history", "add", str(out), "--group", "z0"]) == 0 and run_command(["history", "pin", "1", "graphed"]) == 0
    capsys.readouterr()
    other = write_compared(tmp_path / "other", {"z1": SLOW}, axes=AXES, effective={"z1": graph(False)}).folder
    assert run_command(["compare", "history:graphed", f"{other}:z1", "--json"]) == 2
    assert "tower_graph" in json.loads(capsys.readouterr().out)["refused"]


def test_what_the_script_declares_to_follow_the_axis_is_compared(tmp_path: Path) -> None:
    effective = {"z0": graph(True, follows="zero_stage,offload"), "z1": graph(False, follows="zero_stage,offload")}
    paths = write_compared(tmp_path / "out", {"z0": FAST, "z1": SLOW}, axes=AXES, effective=effective, criteria=(FASTER,))
    results = gather_results(paths)
    assert (results.ranking.winner, results.ranking.confounded) == ("z0", "") and criterion(results).verdict is Verdict.PASS


def test_a_fallback_is_said_first_and_nothing_is_compared(tmp_path: Path) -> None:
    def attention(requested: str) -> list[dict[str, Any]]:
        reason = "" if requested == "sdpa" else "flash_attn is not installed"
        return [{"setting": "attn_impl", "requested": requested, "effective": "sdpa", "reason": reason}]

    criteria = tuple(
        Criterion(metric="speedup_pct", scope=scope, at_least=1, baseline=Baseline(group="sdpa")) for scope in ("every_group", "winner")
    )
    paths = write_compared(
        tmp_path / "out",
        {"sdpa": SLOW, "flash": FAST},
        axes={"sdpa": {"attn_impl": "sdpa"}, "flash": {"attn_impl": "flash"}},
        effective={"sdpa": attention("sdpa"), "flash": attention("flash")},
        criteria=criteria,
    )
    results = recompute(paths.folder)
    assert headline(results)[1].text.startswith("attn_impl had no effect: both ran sdpa (flash_attn is not installed)")
    for finding in results.verdict.findings:
        assert finding.verdict is Verdict.INCONCLUSIVE and "attn_impl had no effect" in finding.text
    summary = json.loads(paths.summary_json.read_text())
    assert [(row["group"], row["note"], row["ratio"]) for row in summary["standings"]] == [
        ("flash", "duplicate", None),
        ("sdpa", "recommended", 1.0),
    ]
