"""The report on a terminal: whole text at 80 columns, no markup from names, a picture that needs nothing from outside."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from rich.console import Console

from seatrial.records.measure import Cell, Estimate
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Verdict
from seatrial.report.terminal import print_report, save_svg
from seatrial.report.terminal.machine import SHOWN
from seatrial.report.terminal.text import spans
from tests.unit.report import charted_factory, factory

GOLDEN = Path(__file__).parent / "golden"


def printed(results: CampaignResults, width: int = 80, **console: object) -> str:
    out = io.StringIO()
    print_report(results, Console(file=out, width=width, **console))  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "results", "width"),
    [
        ("terminal_80.txt", factory.results(), 80),
        ("terminal_120.txt", factory.results(), 120),
        ("terminal_empty.txt", factory.empty_results(), 80),
        ("terminal_charts_60.txt", charted_factory.results(), 60),
        ("terminal_charts_80.txt", charted_factory.results(), 80),
        ("terminal_charts_120.txt", charted_factory.results(), 120),
    ],
)
def test_the_text_is_as_it_was(name: str, results: CampaignResults, width: int) -> None:
    lines = [line.rstrip() for line in printed(results, width).splitlines()]
    assert "\n".join(lines) + "\n" == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("results", [factory.results(), charted_factory.results()])
def test_no_line_is_wider_than_the_terminal(results: CampaignResults, width: int) -> None:
    assert max(len(line) for line in printed(results, width).splitlines()) <= width


def test_names_and_log_lines_are_never_markup() -> None:
    text = printed(factory.results(), 200)
    assert factory.ODD in text
    assert "[red]Tried[/red]" in text


def test_colour_codes_in_a_log_do_not_reach_the_terminal() -> None:
    failed = factory.measured("mb8_nw2", 2, how=Outcome.FAILED, cause=Cause.EXCEPTION, log_tail=("\x1b[2Jcleared \x1b[31mred", "bell \x07"))
    text = printed(factory.results(runs=(failed,)))
    assert "\x1b" not in text and "\x07" not in text
    assert "| cleared red" in text


def test_long_names_fold_and_nothing_is_lost() -> None:
    name = "a_very_long_group_name_" * 4
    groups = tuple(dataclasses.replace(group, group=name) if group.group == "mb16_nw2" else group for group in factory.groups())
    places = tuple(dataclasses.replace(place, group=name) if place.group == "mb16_nw2" else place for place in factory.ranking().groups)
    ranking = factory.ranking(groups=places, winner=name)
    text = printed(factory.results(groups=groups, ranking=ranking))
    table = text.split("95 % intervals")[0]
    assert max(len(line) for line in text.splitlines()) <= 80
    cells = [re.split(r"\s{2,}", line[3:].strip())[0] for line in table.splitlines()]
    assert name in "".join(cells)
    assert "leads" in table and "1,270" in table


def test_failures_of_one_cause_are_told_once() -> None:
    runs = tuple(factory.oom("mb8_nw2", 1 + number % 2) for number in range(9))
    text = printed(factory.results(runs=runs), 200)
    assert text.count("What to do: Lower micro_batch") == 1
    assert "and 5 more: failed after 12.0 s, cuda_oom" in text


def test_without_an_interval_the_reason_is_given_and_not_a_tie() -> None:
    places = tuple(
        dataclasses.replace(place, ratio=Estimate(mean=0.985, n=2)) if place.group == "mb16_nw0" else place
        for place in factory.ranking().groups
    )
    reason = "mb16_nw2 has the highest samples/s, but without an interval the order is not evidence; repeat the runs."
    text = printed(factory.results(ranking=factory.ranking(groups=places, reason=reason)), 200)
    assert reason in text
    assert "the tie goes to" not in text
    assert re.search(r"mb16_nw0 .*no interval", text)


def test_both_winners_are_named() -> None:
    text = printed(factory.results(ranking=factory.ranking(decided=True, latency_winner="mb8_nw2"), pending=()), 200)
    assert "Throughput winner: mb16_nw2 (1,270 samples/s ±1.0 %), ahead of every other group by more than the noise." in text
    assert "Latency winner: mb8_nw2 (38.10 ms median step over the last timing points)." in text


def test_the_picture_refers_to_nothing_outside(tmp_path: Path) -> None:
    path = tmp_path / "report.svg"
    save_svg(factory.results(), path)
    text = path.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert re.findall(r"https?://[^\"'<> ]+", text) == ["http://www.w3.org/2000/svg"]
    assert "@font-face" not in text and "@import" not in text
    assert "INCONCLUSIVE" in text or "FAIL" in text


def test_the_picture_of_the_same_results_is_the_same(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        save_svg(factory.results(), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_without_any_interval_none_is_drawn() -> None:
    single = tuple(factory.summary(group.group, counted=1) for group in factory.groups())
    assert "95 % intervals" not in printed(factory.results(groups=single))


@pytest.mark.parametrize(
    ("unsteady", "words"), [((0, 0), "steady steps of"), ((2, 2), "no steady state was found"), ((2, 0), "where none")]
)
def test_it_is_said_which_steps_the_figures_are_taken_over(unsteady: tuple[int, int], words: str) -> None:
    few = dict(zip(("mb16_nw2", "mb16_nw0"), unsteady, strict=True))
    groups = [dataclasses.replace(group, unsteady_runs=few[group.group]) for group in factory.groups() if group.group in few]
    assert words in printed(factory.results(groups=tuple(groups)), 120)


def test_a_row_measured_with_debugging_on_is_marked() -> None:
    groups = [dataclasses.replace(group, debug=("NCCL_DEBUG=INFO",) if group.group == "mb16_nw2" else ()) for group in factory.groups()]
    text = printed(factory.results(groups=tuple(groups)), 120)
    assert text.count("debug on") == 1 and "leads, not proven, debug on" in text


HOSTILE = "a\x1b[2J\x1b]0;x\x07\u202egnp\u2066\u2028[red]b[/red]"
SHOWN_AS = "a]0;xgnp [red]b[/red]"


def renamed(found: CampaignResults, old: str, new: str) -> CampaignResults:
    """The campaign with another name for one of its groups."""
    groups = tuple(dataclasses.replace(group, group=new if group.group == old else group.group) for group in found.groups)
    places = tuple(dataclasses.replace(place, group=new if place.group == old else place.group) for place in found.ranking.groups)
    return dataclasses.replace(found, groups=groups, ranking=dataclasses.replace(found.ranking, groups=places, winner=new))


def test_a_hostile_name_is_text_in_every_section() -> None:
    text = printed(renamed(charted_factory.results(), "mb16_nw2", HOSTILE), 120)
    assert not set(text) & set("\x1b\x07\u202e\u2066\u2028")
    assert text.count(SHOWN_AS) >= 4, "ranking, steps, phases, start-up"


def test_a_name_of_wide_characters_keeps_the_columns() -> None:
    text = printed(renamed(charted_factory.results(), "mb16_nw2", "火山" * 12), 80)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    drawn = [line for line in text.split("Step time")[1].split("Phases")[0].splitlines() if " n " in line]
    assert len({cell_len(line[: line.index(" n ")]) for line in drawn}) == 1


def test_without_charts_there_is_no_section_for_them() -> None:
    text = printed(factory.results())
    assert not any(title in text for title in ("Step time", "Phases", "Ranks"))


def test_a_spike_is_seen_in_its_group_and_in_no_other() -> None:
    lines = {line.split()[0]: line for line in printed(charted_factory.results()).split("Step time")[1].splitlines()[1:4]}
    assert "log: log scale" in printed(charted_factory.results())
    assert lines["mb16_nw0"].count("█") == 1 and "255.8" in lines["mb16_nw0"] and lines["mb16_nw0"].endswith("log")
    assert "log" not in lines["mb16_nw2"]


def test_the_rank_that_is_waited_for_is_named() -> None:
    text = " ".join(printed(charted_factory.results()).split())
    assert "mb8_nw2 ▁█ 26.7 to 38.1 n 178 rank 1 waits 0 ms (node-1 GPU 1), rank 0 11.4 ms" in text


def test_the_verdict_stands_last_and_what_it_rests_on_above() -> None:
    text = printed(charted_factory.results())
    titles = (
        "intervals",
        "Step time",
        "Phases",
        "Start-up",
        "Ranks",
        "Cautions",
        "Failures",
        "Also found",
        "Verdict:",
        "Leads by",
        "Report:",
    )
    at = [text.index(title) for title in titles]
    assert at == sorted(at)
    assert len(text.split("Verdict:")[1].splitlines()) <= 24, "it fits the smallest terminal"


def test_many_groups_leave_the_report_short() -> None:
    found = charted_factory.many_groups(40)
    text = printed(found)
    assert len(text.splitlines()) < 110
    assert "and 24 more groups: see the summary" in text and text.count("and 34 more groups: see the summary") == 2
    assert "Verdict:" in "\n".join(text.splitlines()[-24:])


def test_the_winner_is_shown_though_many_stand_before_it() -> None:
    found = charted_factory.many_groups(40)
    found = dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, winner="group0033"))
    table = printed(found).split("Step time")[0]
    assert "group0014" in table and "group0015" not in table and "leads" in next(line for line in table.splitlines() if "group0033" in line)


def test_many_criteria_are_cut_and_those_that_fail_are_shown() -> None:
    verdict = factory.results().verdict
    failing = next(finding for finding in verdict.findings if finding.verdict is Verdict.FAIL)
    passing = tuple(dataclasses.replace(failing, verdict=Verdict.PASS, text=f"good {number}") for number in range(40))
    text = printed(factory.results(verdict=dataclasses.replace(verdict, findings=(*passing, failing))))
    assert failing.text[:40] in text and "and 29 more criteria: see the summary" in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "cp1252"])
def test_a_terminal_without_our_characters_shows_others(encoding: str) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    print_report(charted_factory.results(), Console(file=out, width=80))
    out.flush()
    text = raw.getvalue().decode(encoding)
    assert max(len(line) for line in text.splitlines()) <= 80
    line = next(line for line in text.split("Step time")[1].splitlines() if line.startswith("mb16_nw0"))
    assert re.fullmatch(r"[1-8]+", line.split()[1]) and line.split()[1].count("8") == 1
    assert "?" not in text.replace("? [2]", "").replace("? cannot be said", "")


def test_ascii_draws_intervals_too() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    print_report(factory.results(), Console(file=out, width=80))
    out.flush()
    assert re.search(r"^mb16_nw0 +\|-+o-+\| *$", raw.getvalue().decode(), re.MULTILINE)


def test_without_colour_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    bare = printed(charted_factory.results(), force_terminal=True)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", bare)
    without = re.sub(r"\x1b\[[0-9;]*m", "", bare)
    assert without == printed(charted_factory.results())


def test_telemetry_is_a_line_a_group() -> None:
    figures: dict[str, Cell] = dict.fromkeys(SHOWN, 1234.5)
    runs = [
        dataclasses.replace(run, measure=dataclasses.replace(run.measure, telemetry=figures)) if run.measure else run
        for run in factory.runs()
    ]
    for width, titles in ((80, ("GPU W", "GPU %", "SM MHz", "GPU peak MiB", "runs")), (120, ("throttled %", "steal %", "tree peak MiB"))):
        text = printed(factory.results(runs=tuple(runs)), width)
        heading = next(line for line in text.splitlines() if line.startswith("Machine "))
        assert all(title in heading for title in titles), heading
        assert "…" not in heading and len(heading.rstrip()) <= width


def test_a_log_scale_is_explained_only_where_there_is_one() -> None:
    flat = [run for run in charted_factory.results().runs if run.attempt.spec.group != "mb16_nw0"]
    assert "log scale" not in printed(factory.results(runs=tuple(flat)))


def test_every_block_of_figures_has_its_window_and_n() -> None:
    text = printed(charted_factory.results())
    for title in ("Step time, ms  ", "Phases, ms  ", "Ranks  "):
        block = text.split(title)[1].split("\n\n")[0]
        assert block.startswith("steps 20–199: ") and " n 178" in block, title
    assert re.search(r"4\.25  n 2$", text, re.MULTILINE)


def test_phases_stand_beside_the_usual_step() -> None:
    slow = {"key-mb16_nw2": 40.0}
    groups = tuple(
        dataclasses.replace(group, figures={**group.figures, "wall_p50_ms": Estimate(mean=slow.get(group.group_key, 30.0))})
        for group in factory.groups()
    )
    block = printed(charted_factory.with_charts(factory.results(groups=groups))).split("Phases, ms")[1]
    assert re.search(r"mb16_nw2 .* 25\.2  40\.0  n 356", block)


def test_groups_to_come_are_in_the_table_and_not_among_those_that_cannot_win() -> None:
    to_come = dataclasses.replace(factory.summary("mb8_nw2", counted=0), group="mb64", group_key="key-mb64", figures={}, window_n=0)
    text = printed(factory.results(not_started=(to_come,)), 120)
    assert re.search(r"4 +mb64 .* – .* 0/0 +not run yet", text) and "mb64 cannot win" not in text


def test_windows_side_by_side_are_named_once() -> None:
    assert spans(["steps 1–9", "steps 1–9"]) == "steps 1–9"
    assert spans(["steps 1–9", "steps 2–9", "steps 3–9"]) == "steps 1–9, 2–9 and 1 more"
    assert spans(["steps 1–9", "whole run"]) == "steps 1–9, whole run"
