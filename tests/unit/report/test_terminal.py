"""The terminal report whole, at several widths, and as SVG."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from rich.console import Console

from seatrial.records.measure import Estimate
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.report.terminal import print_report, save_svg
from seatrial.report.terminal_sections import spans
from tests.unit.report import charted_factory, factory

GOLDEN = Path(__file__).parent / "golden"


def printed(results: CampaignResults, width: int = 80, *, full: bool = True, **console: object) -> str:
    out = io.StringIO()
    print_report(results, Console(file=out, width=width, **console), full=full)  # type: ignore[arg-type]
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
        ("first_screen_80.txt", factory.results(), 80),
        ("first_screen_40.txt", factory.results(), 40),
    ],
)
def test_the_text_is_as_it_was(name: str, results: CampaignResults, width: int) -> None:
    lines = [line.rstrip() for line in printed(results, width, full=not name.startswith("first_screen")).splitlines()]
    assert "\n".join(lines) + "\n" == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [20, 40, 200])
@pytest.mark.parametrize("results", [factory.results(), charted_factory.results()])
def test_no_line_is_wider_than_the_terminal(results: CampaignResults, width: int) -> None:
    assert max(len(line) for line in printed(results, width).splitlines()) <= width


def test_colour_codes_in_a_log_do_not_reach_the_terminal() -> None:
    failed = factory.measured("mb8_nw2", 2, how=Outcome.FAILED, cause=Cause.EXCEPTION, log_tail=("\x1b[2Jcleared \x1b[31mred", "bell \x07"))
    text = printed(factory.results(runs=(failed,)))
    assert "\x1b" not in text and "\x07" not in text
    assert "| cleared red" in text


def test_long_names_fold_and_nothing_is_lost() -> None:
    name = "a_very_long_group_name_" * 4
    text = printed(factory.renamed(factory.results(), "mb16_nw2", name))
    table = text.split("95 % intervals")[0]
    assert max(len(line) for line in text.splitlines()) <= 80
    cells = [re.split(r"\s{2,}", line[3:].strip())[0] for line in table.splitlines()]
    assert name in "".join(cells)
    assert "recommended" in table and "1,270" in table


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


def test_the_picture_refers_to_nothing_outside(tmp_path: Path) -> None:
    path = tmp_path / "report.svg"
    save_svg(factory.results(), path)
    text = path.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert re.findall(r"https?://[^\"'<> ]+", text) == ["http://www.w3.org/2000/svg"]
    assert "@font-face" not in text and "@import" not in text
    assert "INCONCLUSIVE" in text or "FAIL" in text


def test_without_any_interval_none_is_drawn() -> None:
    single = tuple(factory.summary(group.group, counted=1) for group in factory.groups())
    assert "95 % intervals" not in printed(factory.results(groups=single))


@pytest.mark.parametrize(
    ("unsteady", "words"), [((0, 0), "steady steps of"), ((2, 2), "no steady state was found"), ((2, 0), "where none")]
)
def test_it_is_reported_which_steps_the_figures_are_taken_over(unsteady: tuple[int, int], words: str) -> None:
    few = dict(zip(("mb16_nw2", "mb16_nw0"), unsteady, strict=True))
    groups = [dataclasses.replace(group, unsteady_runs=few[group.group]) for group in factory.groups() if group.group in few]
    assert words in printed(factory.results(groups=tuple(groups)), 120)


HOSTILE = "a\x1b[2J\x1b]0;x\x07\u202egnp\u2066\u2028[red]b[/red]"
SHOWN_AS = "a]0;xgnp [red]b[/red]"


def test_a_hostile_name_is_text_in_every_section() -> None:
    results = factory.renamed(charted_factory.results(), "mb16_nw2", HOSTILE)
    assert not set(printed(results, 120, full=False)) & set("\x1b\x07\u202e\u2066\u2028")
    text = printed(results, 120)
    assert not set(text) & set("\x1b\x07\u202e\u2066\u2028")
    assert text.count(SHOWN_AS) >= 4, "ranking, steps, phases, start-up"


def test_a_name_of_wide_characters_keeps_the_columns() -> None:
    text = printed(factory.renamed(charted_factory.results(), "mb16_nw2", "火山" * 12), 80)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    drawn = [line for line in text.split("Step time")[1].split("Phases")[0].splitlines() if " n " in line]
    assert len({cell_len(line[: line.index(" n ")]) for line in drawn}) == 1


def test_many_groups_leave_the_report_short() -> None:
    found = charted_factory.many_groups(40)
    text = printed(found)
    assert len(text.splitlines()) < 110
    assert "and 24 more groups: see the summary" in text and text.count("and 34 more groups: see the summary") == 2
    assert any(line.startswith("FAIL ") for line in text.splitlines()[-24:])


def test_the_winner_is_shown_though_many_are_before_it() -> None:
    found = charted_factory.many_groups(40)
    found = dataclasses.replace(found, ranking=dataclasses.replace(found.ranking, recommended="group0033"))
    table = printed(found).split("Step time")[0]
    assert (
        "group0014" in table
        and "group0015" not in table
        and "recommended" in next(line for line in table.splitlines() if "group0033" in line)
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "cp1252"])
def test_a_terminal_without_our_characters_shows_others(encoding: str) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    print_report(charted_factory.results(), Console(file=out, width=80), full=True)
    out.flush()
    text = raw.getvalue().decode(encoding)
    assert max(len(line) for line in text.splitlines()) <= 80
    line = next(line for line in text.split("Step time")[1].splitlines() if line.startswith("mb16_nw0"))
    assert re.fullmatch(r"[1-8]+", line.split()[1]) and line.split()[1].count("8") == 1
    assert "?" not in text.replace("? [2]", "").replace("? unknown", "")


def test_without_colour_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    bare = printed(charted_factory.results(), force_terminal=True)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", bare)
    without = re.sub(r"\x1b\[[0-9;]*m", "", bare)
    assert without == printed(charted_factory.results())


def test_groups_to_come_are_in_the_table_and_not_among_those_that_cannot_win() -> None:
    to_come = dataclasses.replace(factory.summary("mb8_nw2", counted=0), group="mb64", group_key="key-mb64", figures={}, window_n=0)
    text = printed(factory.results(not_started=(to_come,)), 120)
    assert re.search(r"4 +mb64 .* – .* 0/0 +not run yet", text) and "mb64 cannot win" not in text


def test_windows_side_by_side_are_named_once() -> None:
    assert spans(["steps 1–9", "steps 1–9"]) == "steps 1–9"
    assert spans(["steps 1–9", "steps 2–9", "steps 3–9"]) == "steps 1–9, 2–9 and 1 more"
    assert spans(["steps 1–9", "whole run"]) == "steps 1–9, whole run"
