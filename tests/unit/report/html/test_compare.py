"""The page of two campaigns."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.comparison import Comparison, LossParity, LossVerdict, Relation
from seatrial.records.measure import Estimate
from seatrial.report.html import compare as module
from seatrial.report.html.compare import Compared, compare_page, merge_campaigns, page_name
from seatrial.report.html.data import ChartData, PageData, Picks, page_data
from seatrial.report.run_diff import RunDiff, diff_runs
from tests.unit.report import factory
from tests.unit.report.html.made_page import HOSTILE, made_page
from tests.unit.report.html.read_page import Read
from tests.unit.report.test_run_diff import side


def campaign(groups: dict[str, float], *, unit: str = "samples/s", steps: int = 3, axis: str = "micro_batch") -> ChartData:
    runs = [(name, repeat) for name in groups for repeat in (1, 2)]
    of_steps = [(run, at) for run in runs for at in range(steps)]
    winners = [f"{name}_r{repeat}" for name, repeat in runs[:2]]
    return ChartData(
        tables={
            "groups": {
                "rank": [*range(1, len(groups) + 1)],
                "group": [*groups],
                "value": [*groups.values()],
                f"axis_{axis}": [*range(1, len(groups) + 1)],
            },
            "runs": {"run": [f"{name}_r{repeat}" for name, repeat in runs], "group": [name for name, _ in runs]},
            "steps": {
                "run": [f"{name}_r{repeat}" for (name, repeat), _ in of_steps],
                "group": [name for (name, _), _ in of_steps],
                "step": [at for _, at in of_steps],
            },
        },
        picks=Picks(runs=(*winners, f"{runs[-1][0]}_r1", f"{runs[-1][0]}_r2"), timeline=winners[0]),
        unit=unit,
    )


def test_names_begin_with_their_campaigns_letter() -> None:
    both = merge_campaigns(campaign({"fast": 2.0, "slow": 1.0}), campaign({"fast": 3.0}, axis="workers"))
    groups = both.drawn.tables["groups"]
    assert groups["group"] == ["A fast", "A slow", "B fast"] and groups["campaign"] == ["A", "A", "B"]
    assert groups["axis_micro_batch"] == [1, 2, None] and groups["axis_workers"] == [None, None, 1]
    assert set(both.drawn.tables["steps"]["run"]) == {"A fast_r1", "A fast_r2", "A slow_r1", "A slow_r2", "B fast_r1", "B fast_r2"}
    assert {len(column) for column in both.drawn.tables["steps"].values()} == {3 * 6}


def test_the_winners_are_picked() -> None:
    both = merge_campaigns(campaign({"fast": 2.0, "slow": 1.0}), campaign({"other": 3.0, "last": 1.0}))
    assert both.drawn.picks == Picks(runs=("A fast_r1", "A fast_r2", "B other_r1", "B other_r2"), timeline="A fast_r1")


def test_unlike_units_are_not_on_one_scale() -> None:
    both = merge_campaigns(campaign({"a": 2.0}), campaign({"b": 1.0}, unit="tokens/s"))
    assert "groups" not in both.drawn.tables and "steps" in both.drawn.tables
    assert "A is ranked by samples/s and B by tokens/s" in both.remarks[0]


def test_an_empty_campaign_leaves_the_other() -> None:
    both = merge_campaigns(campaign({"a": 2.0}), ChartData())
    assert both.drawn.tables["groups"]["group"] == ["A a"] and both.remarks == ()
    assert merge_campaigns(ChartData(), ChartData()).drawn.tables == {}


def test_of_large_campaigns_the_best_runs_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS_OF_A_CAMPAIGN", 25)
    both = merge_campaigns(campaign({f"g{number:02}": 1.0 for number in range(20)}), campaign({"b": 1.0}))
    drawn = set(both.drawn.tables["steps"]["run"])
    # Those of the winner and of the last, which are selected, and then by rank.
    assert drawn == {
        *(f"A {run}" for run in ("g00_r1", "g00_r2", "g19_r1", "g19_r2", "g01_r1", "g01_r2", "g02_r1", "g02_r2")),
        "B b_r1",
        "B b_r2",
    }
    assert len(both.drawn.tables["runs"]["run"]) == 42
    assert both.remarks == ("Of A, only the runs of the best groups are drawn: 8 of 40.",)


FASTER = Comparison(
    a="tuesday:g1",
    b="monday:g1",
    metric="samples_per_s",
    unit="samples/s",
    higher_is_better=True,
    relation=Relation.FASTER,
    reason="monday:g1 has 3.2 % more samples/s than tuesday:g1.",
    method="Welch on logs, 3 and 3 runs",
    value_a=Estimate(mean=1512.0, low=1503.0, high=1521.0, n=5),
    value_b=Estimate(mean=1561.0, low=1550.0, high=1572.0, n=5),
    ratio=Estimate(mean=1.032, low=1.021, high=1.044, n=5),
    chance=0.0007,
    loss=LossParity(verdict=LossVerdict.COMPARABLE, reason="loss 2.3 against 2.3"),
    cautions=("Not made side by side.",),
)


@pytest.fixture(autouse=True)
def without_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte that takes seconds to make, and says nothing here."""
    monkeypatch.setattr("seatrial.report.html.compare.vega_bundle", lambda: "window.vegaEmbed=0;")
    monkeypatch.setattr("seatrial.report.html.page.vega_bundle", lambda: "window.vegaEmbed=0;")


def page_of(compared: Compared, *, a: PageData | None = None, b: PageData | None = None, diff: RunDiff | None = None) -> str:
    made = {"a": a or made_page(), "b": b or made_page(groups=2)}
    return compare_page(**made, names=("tuesday", "monday"), compared=compared, diff=diff)


def payload(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    assert found
    told = json.loads(found[1])
    assert isinstance(told, dict)
    return told


def test_the_comparison_is_on_top_as_the_verb_says_it() -> None:
    read = Read(page_of(Compared(comparisons=(FASTER,), note="Winner against winner.")))
    assert [one["id"] for one in read.of("section")][:4] == ["verdict", "campaigns", "differences", "ranking"]
    for words in ("B monday against A tuesday", FASTER.reason, "tuesday:g1 1,512 ±0.6 % (5 runs)", "95 % 1.021 to 1.044", "p 0.0007"):
        assert words in read.text
    assert (
        "comparable: loss 2.3 against 2.3" in read.text and "Not made side by side." in read.text and "Winner against winner." in read.text
    )
    spans = [attributes for attributes in read.of("span") if attributes.get("class") == "span"]
    assert len(spans) == 1 and str(spans[0]["style"]).startswith("left: 7")


def test_several_are_counted_and_the_many_folded() -> None:
    others = [dataclasses.replace(FASTER, relation=Relation.AMBIGUOUS, ratio=None) for _ in range(7)]
    read = Read(page_of(Compared(comparisons=(FASTER, *others))))
    assert "1 FASTER, 7 AMBIGUOUS" in read.text and "Further groups 2" in read.text


def test_a_refusal_is_reported_and_both_are_shown() -> None:
    read = Read(page_of(Compared(refused="unlike machines: gpu_name (A100 → H100)")))
    assert "NOT COMPARED" in read.text and "unlike machines: gpu_name (A100 → H100)" in read.text
    assert sum(attributes.get("class") in ("campaign campaign-a", "campaign campaign-b") for attributes in read.of("article")) == 2


def test_charts_have_the_runs_of_both() -> None:
    page = page_of(Compared(comparisons=(FASTER,)))
    told = payload(page)
    assert told["picks"] == {"runs": ["A g1_r1", "A g1_r2", "B g1_r1", "B g1_r2"], "timeline": "A g1_r1"}
    assert {"A", "B"} == set(told["tables"]["steps"]["columns"]["campaign"]["categories"])
    charts = [chart["id"] for chart in told["charts"]]
    assert charts[0] == "ranking" and "heat" not in charts and {"steps", "loss", "timeline", "eta"} <= set(charts)
    assert [one["data-chart"] for one in Read(page).of("figure")] == charts
    drawn = json.dumps(told["charts"][0]["spec"])
    assert "A g1" in drawn and "B g2" in drawn


def test_what_differs_is_a_table() -> None:
    diff = diff_runs(side(environment={"NCCL_ALGO": "Ring"}), side(environment={"NCCL_ALGO": "Tree"}, driver_version="999.1"))
    read = Read(page_of(Compared(refused="x"), diff=diff))
    assert "NCCL_ALGO" in read.text and "Ring Tree" in read.text and "driver_version *" in read.text and "999.1" in read.text
    assert "no counted run" in Read(page_of(Compared(refused="x"))).text


def test_hostile_words_stay_words() -> None:
    hostile = dataclasses.replace(FASTER, a=HOSTILE, reason=HOSTILE, cautions=(HOSTILE,))
    data = made_page(name=HOSTILE)
    compared = Compared(comparisons=(hostile,), note=HOSTILE)
    page = compare_page(a=data, b=data, names=(HOSTILE, HOSTILE), compared=compared, diff=None)
    plain = Read(page_of(Compared(comparisons=(FASTER,))))
    read = Read(page)
    assert len(read.scripts) == len(plain.scripts) and "\u2028" not in page and "\u202e" not in page
    assert payload(page)["picks"]["runs"] and "alert(1)" in read.text


def test_two_empty_campaigns_make_a_page_all_the_same() -> None:
    read = Read(page_of(Compared(refused="nothing has run"), a=page_data(factory.empty_results()), b=page_data(factory.empty_results())))
    assert "NOT COMPARED" in read.text and "No group of either campaign has a figure to draw." in read.text


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("runs/monday", r"compare_monday\.html"),
        ("elsewhere/monday", r"compare_monday-[0-9a-f]{6}\.html"),
        ("runs/a b<c>", r"compare_a_b_c_-[0-9a-f]{6}\.html"),
        ("/", r"compare_other-[0-9a-f]{6}\.html"),
        ("runs/" + "x" * 200, "compare_" + "x" * 80 + r"-[0-9a-f]{6}\.html"),
    ],
)
def test_the_file_is_named_after_the_other(folder: str, name: str) -> None:
    assert re.fullmatch(name, page_name(Path("runs/tuesday"), Path(folder)))


def test_folders_of_one_name_have_a_page_each_and_each_always_the_same() -> None:
    others = [Path("m1/out"), Path("m2/out"), Path("a b"), Path("a_b"), Path("a<b")]
    names = [page_name(Path("tuesday"), other) for other in others]
    assert len(set(names)) == len(others)
    assert page_name(Path("tuesday"), Path("m1/../m1/out")) == names[0]
