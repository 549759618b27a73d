"""The report on a terminal: whole text at 80 columns, no markup from names, a picture that needs nothing from outside."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from seatrial.records.measure import Estimate
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.report.terminal import print_report, save_svg
from tests.unit.report import factory

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
    ],
)
def test_the_text_is_as_it_was(name: str, results: CampaignResults, width: int) -> None:
    lines = [line.rstrip() for line in printed(results, width).splitlines()]
    assert "\n".join(lines) + "\n" == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(len(line) for line in printed(factory.results(), width).splitlines()) <= width


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
    assert "winner" in table and "1,270" in table


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
    text = printed(factory.results(ranking=factory.ranking(decided=True, latency_winner="mb8_nw2")), 200)
    assert "Throughput winner: mb16_nw2 (1,270 samples/s ±1.0 %), ahead of every other group by more than the noise." in text
    assert "Latency winner: mb8_nw2 (38.10 ms, mean tail iter p50)." in text


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
    assert "intervals" not in printed(factory.results(groups=single)).split("Verdict")[0]


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
    assert text.count("debug on") == 1 and "winner, debug on" in text
