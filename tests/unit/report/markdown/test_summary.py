"""summary.md as a pull request takes it: verdict and ranking first, the rest folded, short enough, with pictures where there are any."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from seatrial.paths import CampaignPaths
from seatrial.records.caution import Caution
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import Finding, Verdict
from seatrial.report.markdown.summary import MOST_CHARACTERS, summary_md
from tests.unit.report import charted_factory, factory

GOLDEN = Path(__file__).parents[1] / "golden"
GITHUB_TAKES = 65_536
OUT = CampaignPaths(Path("out"))


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_with_charts_it_is_as_it_was() -> None:
    assert summary_md(charted_factory.results(), OUT) == (GOLDEN / "summary_charts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("results", [factory.results(), factory.empty_results(), charted_factory.results()])
def test_verdict_and_ranking_are_open_and_every_fold_is_closed(results: CampaignResults) -> None:
    text = summary_md(results, OUT)
    head, *folds = re.split(r"^<details", text, flags=re.MULTILINE)
    assert [line.split(":")[0] for line in lines(head, "## ")] == ["## Verdict", "## Ranking"]
    assert len(folds) == 4 and all(fold.count("</details>") == 1 and fold.rstrip().endswith("</details>") for fold in folds)
    # A reader of Markdown takes what follows an HTML line for HTML, up to the next blank line.
    assert all(re.match(r"[^\n]*>\n<summary>[^\n<]+</summary>\n\n## ", fold) for fold in folds)


def test_failures_are_not_folded_away() -> None:
    assert "<details open>\n<summary>Failures (1 cause)" in summary_md(factory.results(), OUT)
    assert "<details open>" not in summary_md(factory.results(runs=factory.runs()[:1]), OUT)


def test_pictures_are_shown_where_they_are(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    assert "](charts/" not in summary_md(factory.results(), paths)
    paths.charts.mkdir()
    for name in ("ranking.png", "steps.png", "notes.png", "eta.csv"):
        (paths.charts / name).write_bytes(b"")
    text = summary_md(factory.results(), paths)
    assert re.findall(r"!\[[^]]+\]\((.*)\)", text) == ["charts/ranking.png", "charts/steps.png"]
    assert text.index("charts/ranking.png") < text.index("<details")
    assert text.index("<details") < text.index("charts/steps.png")


def test_step_times_and_phases_are_told_group_by_group() -> None:
    text = summary_md(charted_factory.results(), OUT)
    steps, phases = (text.split(f"## {title}\n\n")[1].split("\n\n")[0] for title in ("Step time", "Phases"))
    assert len(steps.splitlines()) == len(phases.splitlines()) == 2 + 4
    assert "| mb16_nw0 | 23.02 | 25.43 | 27.97 | 35.60 | 255.8 |" in steps and " log | steps 20–199 | 356 | 2 |" in steps
    assert (
        "| mb16_nw2 | 0.50 (2 %) | 7.56 (30 %) | 15.1 (60 %) | 1.89 (8 %) | 0.13 (0 %) | 25.20 | 25.20 | steps 20–199 | 356 | 2 |" in phases
    )


def test_a_thousand_runs_fit_a_comment() -> None:
    text = summary_md(charted_factory.many_groups(1000), OUT)
    assert len(text) < MOST_CHARACTERS < GITHUB_TAKES
    assert "960 more rows are left out here: `ranked_groups.csv` has them." in text
    assert "975 more rows are left out here: `per_run_metrics.csv` has them." in text
    assert "Left out for length" not in text


def worst() -> CampaignResults:
    """A thousand runs that all failed for reasons of their own, with a caution and a statement each, and names as long as names get."""
    found = charted_factory.many_groups(300)
    failed = [
        factory.measured("mb8_nw2", 1, how=Outcome.FAILED, cause=Cause.EXCEPTION, detail=f"{at} " + "x" * 500, log_tail=("y" * 500,) * 20)
        for at in range(300)
    ]
    said = tuple(Finding(id=f"leak:{at}", kind="leak", verdict=Verdict.FAIL, text=f"{at} " + "z" * 900) for at in range(300))
    cautions = tuple(Caution(kind="drift", text=f"{at} " + "w" * 900) for at in range(300))
    verdict = dataclasses.replace(found.verdict, statements=said)
    return dataclasses.replace(found, runs=(*found.runs, *failed), cautions=cautions, verdict=verdict)


def test_what_is_too_long_all_the_same_is_left_out_and_named() -> None:
    text = summary_md(worst(), OUT)
    assert len(text) <= MOST_CHARACTERS
    assert re.search(r"^Left out for length: .*(Failures|Cautions|Also found)", text, re.MULTILINE)
    assert text.count("<details") == text.count("</details>")
    assert text.index("## Verdict") < text.index("## Ranking") < text.index("Left out for length")


def test_a_verdict_of_endless_text_is_cut_at_a_line() -> None:
    found = factory.results()
    endless = tuple(dataclasses.replace(found.verdict.findings[0], text=f"{at} " + "v" * 5000) for at in range(50))
    text = summary_md(dataclasses.replace(found, verdict=dataclasses.replace(found.verdict, findings=endless)), OUT)
    assert len(text) <= MOST_CHARACTERS and "Cut here for length" in text
    assert text.count("<details") == text.count("</details>")


def test_hostile_names_stay_text() -> None:
    name = "</details><script>x\u2028# a\u202e|`b"
    groups = tuple(dataclasses.replace(group, group=name) if group.group == "mb16_nw2" else group for group in factory.groups())
    places = tuple(dataclasses.replace(place, group=name) if place.group == "mb16_nw2" else place for place in factory.ranking().groups)
    found = charted_factory.with_charts(factory.results(groups=groups, ranking=factory.ranking(groups=places, winner=name)))
    text = summary_md(found, OUT)
    assert "\u202e" not in text and "\u2028" not in text
    unescaped = re.sub(r"\\.", "", text)
    assert unescaped.count("</details>") == 4 and "<script>x" not in unescaped
