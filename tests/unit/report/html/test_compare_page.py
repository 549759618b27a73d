"""The page of two campaigns: what stands on it, that hostile words stay words, and that a refusal is told and shown beside."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.comparison import Comparison, LossParity, LossVerdict, Relation
from seatrial.records.measure import Estimate
from seatrial.report.html.compare_page import Compared, compare_page, page_name, write_compare_page
from seatrial.report.html.page_data import PageData
from seatrial.report.run_diff import RunDiff, diff_runs
from tests.unit.report.html.made_page import HOSTILE, made_page
from tests.unit.report.test_run_diff import side

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
    monkeypatch.setattr("seatrial.report.html.document.vega_bundle", lambda: "window.vegaEmbed=0;")
    monkeypatch.setattr("seatrial.report.html.vega_bundle.vega_bundle", lambda: "window.vegaEmbed=0;")


class Read(HTMLParser):
    """Tags with their attributes, ids, and the text that a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += " ".join(data.split()) + " "

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.tags if "id" in attributes]


def page_of(compared: Compared, *, a: PageData | None = None, b: PageData | None = None, diff: RunDiff | None = None) -> str:
    made = {"a": a or made_page(), "b": b or made_page(groups=2)}
    return compare_page(**made, names=("tuesday", "monday"), compared=compared, diff=diff)


def payload(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    assert found
    told = json.loads(found[1])
    assert isinstance(told, dict)
    return told


def test_the_comparison_stands_on_top_as_the_verb_says_it() -> None:
    read = Read(page_of(Compared(comparisons=(FASTER,), note="Winner against winner.")))
    assert read.ids.index("verdict") < read.ids.index("sides") < read.ids.index("differences") < read.ids.index("ranking")
    for words in ("B monday against A tuesday", FASTER.reason, "tuesday:g1 1,512 ±0.6 % (5 runs)", "95 % 1.021 to 1.044", "p 0.0007"):
        assert words in read.text
    assert (
        "comparable: loss 2.3 against 2.3" in read.text and "Not made side by side." in read.text and "Winner against winner." in read.text
    )
    spans = [attributes for tag, attributes in read.tags if tag == "span" and attributes.get("class") == "span"]
    assert len(spans) == 1 and str(spans[0]["style"]).startswith("left: 7")


def test_several_are_counted_and_the_many_folded() -> None:
    others = [dataclasses.replace(FASTER, relation=Relation.AMBIGUOUS, ratio=None) for _ in range(7)]
    read = Read(page_of(Compared(comparisons=(FASTER, *others))))
    assert "1 FASTER, 7 AMBIGUOUS" in read.text and "Further groups 2" in read.text


def test_a_refusal_is_told_and_both_are_shown() -> None:
    read = Read(page_of(Compared(refused="unlike machines: gpu_name (A100 → H100)")))
    assert "NOT COMPARED" in read.text and "unlike machines: gpu_name (A100 → H100)" in read.text
    assert sum(attributes.get("class") in ("side side-a", "side side-b") for _, attributes in read.tags) == 2


def test_the_rankings_name_their_figures_as_the_page_of_one_does() -> None:
    read = Read(page_of(Compared(refused="x")))
    assert read.text.count("wall p90/p50") >= 2 and read.text.index("95 % interval") > 0


def test_charts_have_the_runs_of_both() -> None:
    page = page_of(Compared(comparisons=(FASTER,)))
    told = payload(page)
    assert told["picks"] == {"runs": ["A g1_r1", "A g1_r2", "B g1_r1", "B g1_r2"], "timeline": "A g1_r1"}
    assert {"A", "B"} == set(told["tables"]["steps"]["columns"]["side"]["words"])
    charts = [chart["id"] for chart in told["charts"]]
    assert charts[0] == "ranking" and "heat" not in charts and {"steps", "loss", "timeline", "eta"} <= set(charts)
    assert [one for one in charts if f"chart-{one}" not in Read(page).ids] == []
    drawn = json.dumps(told["charts"][0]["spec"])
    assert "A g1" in drawn and "B g2" in drawn


def test_what_differs_is_a_table() -> None:
    diff = diff_runs(side(environment={"NCCL_ALGO": "Ring"}), side(environment={"NCCL_ALGO": "Tree"}, driver_version="999.1"))
    read = Read(page_of(Compared(refused="x"), diff=diff))
    assert "NCCL_ALGO" in read.text and "Ring Tree" in read.text and "driver_version *" in read.text and "999.1" in read.text
    assert "no run that counts" in Read(page_of(Compared(refused="x"))).text


def test_hostile_words_stay_words() -> None:
    hostile = dataclasses.replace(FASTER, a=HOSTILE, reason=HOSTILE, cautions=(HOSTILE,))
    data = made_page(name=HOSTILE)
    compared = Compared(comparisons=(hostile,), note=HOSTILE)
    page = compare_page(a=data, b=data, names=(HOSTILE, HOSTILE), compared=compared, diff=None)
    plain = Read(page_of(Compared(comparisons=(FASTER,))))
    read = Read(page)
    count = [tag for tag, _ in plain.tags].count("script")
    assert [tag for tag, _ in read.tags].count("script") == count and "\u2028" not in page and "\u202e" not in page
    assert payload(page)["picks"]["runs"] and "alert(1)" in read.text


def test_sides_without_anything_make_a_page_all_the_same() -> None:
    read = Read(page_of(Compared(refused="nothing has run"), a=PageData(summary={}), b=PageData(summary={})))
    assert "NOT COMPARED" in read.text and "No group of either has a figure to draw." in read.text


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


def test_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "compare_b.html"
    data = made_page(groups=1, repeats=1)
    write_compare_page(path, a=data, b=data, names=("a", "b"), compared=Compared(refused="x"), diff=None)
    assert path.read_text().startswith("<!doctype html>")
