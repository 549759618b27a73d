"""Comparisons that criteria ask for."""

from __future__ import annotations

import shutil
from pathlib import Path

from seatrial.campaign.baselines import Compared, comparisons_for
from seatrial.campaign.grouped import read_grouped
from seatrial.campaign.sides import side_of
from seatrial.history import rows
from seatrial.records.comparison import Comparison, Relation
from seatrial.records.verdict import Baseline, Criterion
from tests.unit.campaign.compared_campaign import elsewhere, write_compared

FAST, SLOW = [10.0, 10.1, 10.05], [12.0, 12.1, 12.2]


def compared(folder: Path, *baselines: Baseline, history: Path | None = None) -> Compared:
    criteria = [Criterion(metric="speedup_pct", scope="every_group", at_least=8.0, baseline=baseline) for baseline in baselines]
    criteria.append(Criterion(metric="failed_runs", scope="campaign", at_most=0))
    read = read_grouped(folder)
    return comparisons_for(criteria, groups=read.groups, runs=read.runs, ranking=read.ranking, folder=folder, history=history)


def test_every_group_against_a_group_of_its_own_campaign(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "out", {"base": SLOW, "a": FAST, "b": [12.05, 12.1, 12.15]}).folder
    found = compared(folder, Baseline(group="base"))
    assert found.keys() == {("a", "base"), ("b", "base")}
    first = found["a", "base"]
    assert isinstance(first, Comparison)
    assert (first.a, first.b, first.relation, first.comparisons) == ("base", "a", Relation.FASTER, 2)
    assert "paired t" in first.method


def test_a_group_of_another_campaign(tmp_path: Path) -> None:
    write_compared(tmp_path / "old", {"a": SLOW, "b": FAST})
    folder = write_compared(tmp_path / "new", {"a": FAST}).folder
    named = Baseline(campaign=str(tmp_path / "old"), group="a")
    one = compared(folder, named)["a", named.text]
    assert isinstance(one, Comparison) and one.relation is Relation.FASTER and "Welch" in one.method


def test_another_campaign_alone_is_its_namesake_else_its_winner(tmp_path: Path) -> None:
    old = write_compared(tmp_path / "old", {"a": SLOW, "b": FAST, "c": SLOW}).folder
    folder = write_compared(tmp_path / "new", {"a": FAST, "new": [10.02, 10.06, 10.1]}).folder
    whole = Baseline(campaign="old")
    found = compared(folder, whole)
    namesake, other = found["a", whole.text], found["new", whole.text]
    assert isinstance(namesake, Comparison) and (namesake.a, namesake.relation) == (f"{old}:a", Relation.FASTER)
    assert isinstance(other, Comparison) and other.a == f"{old}:b" and other.relation is not Relation.FASTER
    assert namesake.comparisons == other.comparisons == 4


def test_campaigns_that_moved_together_still_find_one_another(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    old = write_compared(tmp_path / "here" / "old", {"a": SLOW}).folder
    write_compared(tmp_path / "here" / "new", {"a": FAST})
    (tmp_path / "here").rename(tmp_path / "there")
    named = Baseline(campaign=str(old), group="a")
    found = compared(tmp_path / "there" / "new", named)["a", named.text]
    assert isinstance(found, Comparison) and found.relation is Relation.FASTER


def test_a_copy_of_the_campaign_is_no_baseline(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "new", {"a": FAST}).folder
    shutil.copytree(folder, tmp_path / "copy")
    named = Baseline(campaign="copy", group="a")
    found = compared(folder, named)["a", named.text]
    assert isinstance(found, str) and "are the same runs" in found


def test_a_pinned_row_of_history(tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    rows.add(history, side_of(read_grouped(write_compared(tmp_path / "old", {"a": SLOW}).folder), "a"))
    rows.pin(history, 1, "v100")
    folder = write_compared(tmp_path / "new", {"a": FAST}).folder
    found = compared(folder, Baseline(history="v100"), history=history)["a", "history:v100"]
    assert isinstance(found, Comparison) and found.relation is Relation.FASTER


def test_what_cannot_be_compared_says_why_and_what_to_do(tmp_path: Path) -> None:
    write_compared(tmp_path / "far", {"a": SLOW}, provenance=elsewhere())
    write_compared(tmp_path / "dead", {"a": SLOW}, failed=["a_r1", "a_r2", "a_r3"])
    folder = write_compared(tmp_path / "new", {"fast": FAST}).folder
    for baseline, says in (
        (Baseline(group="fats"), "did you mean 'fast'"),
        (Baseline(group="xyz"), "seatrial history pin"),
        (Baseline(campaign="nowhere", group="a"), "holds no campaign"),
        (Baseline(campaign="far", group="b"), "has no group 'b'"),
        (Baseline(campaign="far", group="a"), "unlike machines: host (node-2 → node-1)"),
        (Baseline(campaign="dead", group="a"), "no run that counts"),
        (Baseline(history="v100"), "is pinned as 'v100'"),
    ):
        found = compared(folder, baseline, history=tmp_path / "none.jsonl")["fast", baseline.text]
        assert isinstance(found, str) and says in found, found


def test_no_baseline_asks_for_nothing(tmp_path: Path) -> None:
    assert compared(write_compared(tmp_path / "out", {"a": FAST}).folder) == {}
