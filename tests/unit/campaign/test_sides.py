"""Words and groups as sides."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from seatrial.campaign.grouped import read_grouped
from seatrial.campaign.side_words import asked_pairs, scaling_sides
from seatrial.campaign.sides import Finder, side_name, side_of, split_word
from seatrial.errors import CampaignError, UsageError
from seatrial.history import rows
from seatrial.records.comparison import Side
from tests.unit.campaign.compared_campaign import write_compared

FAST, SLOW = [10.0, 10.1, 10.05], [12.0, 12.1, 12.2]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return write_compared(tmp_path / "out", {"fast": FAST, "slow": SLOW}).folder


def find_sides(words: list[str], *, inside: Path | None = None, history: Path | None = None) -> list[Side]:
    finder = Finder(inside=inside, history=history)
    return [finder.side(word) for word in words]


def names(pairs: tuple[tuple[Side, Side], ...]) -> list[tuple[str, str]]:
    return [(a.name, b.name) for a, b in pairs]


def test_a_group_with_all_that_a_comparison_reads(out: Path) -> None:
    side = side_of(read_grouped(out), "slow")
    assert (side.name, side.group, side.campaign, side.world_size) == ("slow", "slow", str(out.resolve()), 1)
    assert [(run.run, run.repeat, run.steady) for run in side.runs] == [("slow_r1", 1, True), ("slow_r2", 2, True), ("slow_r3", 3, True)]
    assert side.runs[0].figures["samples_per_s"] == pytest.approx(8 / 0.012, rel=0.02)
    assert side.runs[0].window.startswith("steps ") and side.runs[0].n > 20
    assert side.runs[0].started_t < side.runs[1].started_t
    assert side.machine == {"host": "node-1", "gpu_name": "Example GPU", "driver_version": "550"}
    assert side.code == {"git_commit_hash": "0123456789abcdef"}
    assert side.settings == {"variant": "slow"}


def test_only_runs_that_count_are_in_it(tmp_path: Path) -> None:
    campaign = read_grouped(write_compared(tmp_path / "o", {"a": FAST, "b": SLOW}, failed=["b_r2"]).folder)
    side = side_of(campaign, "b")
    assert [run.run for run in side.runs] == ["b_r1", "b_r3"] and side.failed_runs == 1


def test_no_gpu_is_a_fact_where_the_host_is_known(tmp_path: Path) -> None:
    from tests.unit.campaign.compared_campaign import elsewhere

    cpu = write_compared(tmp_path / "o", {"a": FAST}, provenance=elsewhere(gpu_name="", driver_version="")).folder
    assert side_of(read_grouped(cpu), "a").machine == {"host": "node-2", "gpu_name": "none", "driver_version": "none"}


def test_an_unknown_group_is_answered_with_the_nearest(out: Path) -> None:
    with pytest.raises(UsageError, match="has no group 'fats'; did you mean 'fast'"):
        find_sides([f"{out}:fats"])


def test_words(out: Path, tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    rows.add(history, side_of(read_grouped(out), "slow"))
    rows.pin(history, 1, "old")
    found = find_sides([f"{out}:slow", "fast", str(out), "history:old", "old"], history=history)
    assert [side.group for side in found] == ["slow", "fast", "fast", "slow", "slow"]
    assert [side.name for side in found][3:] == ["history:old", "history:old"]
    assert find_sides(["slow"], inside=out, history=history)[0].group == "slow"


def test_words_that_name_nothing_say_what_they_could(out: Path, tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    for words, says in (
        (["nothing"], "'nothing' is no campaign's folder"),
        ([""], "is no campaign's folder"),
        (["history:old"], "nothing is pinned there: `seatrial history add OUT`"),
        ([f"{out}:fast", "slwo"], "did you mean 'slow'"),
    ):
        with pytest.raises(UsageError, match=says):
            find_sides(words, history=history)
    history.write_text("torn\n{}\n")
    with pytest.raises(UsageError, match=r"is pinned as 'old' \(2 lines of it cannot be read\)"):
        find_sides(["history:old"], history=history)
    with pytest.raises(CampaignError, match="holds no campaign"):
        find_sides([str(tmp_path)])


def test_a_folder_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "a:b", {"only": FAST}).folder
    assert split_word(str(folder)) == (folder, "")
    assert split_word(f"{folder}:only") == (folder, "only")
    assert find_sides([str(folder)])[0].group == "only"


def test_one_campaign_is_all_groups_against_the_winner(out: Path) -> None:
    asked = asked_pairs([str(out)])
    assert names(asked.pairs) == [("fast", "slow")] and asked.family == 1
    assert asked.note == "fast, the winner, is the baseline."
    assert asked_pairs([], inside=out) == asked


def test_a_baseline_that_is_no_group_is_told_and_a_choice_counts(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "o", {"a": SLOW, "b": FAST, "c": SLOW, "d": SLOW}, baseline="gone").folder
    asked = asked_pairs([str(folder)])
    assert asked.family == 6
    assert asked.note == (
        "b, the winner, is the baseline: the plan's own ('gone') is no group here that counts. "
        "It was chosen from 4 groups by their figures, so 6 pairs count for the correction."
    )
    assert asked_pairs([str(folder), "c"]).family == 3


def test_one_campaign_is_all_groups_against_the_plans_baseline(tmp_path: Path) -> None:
    folder = write_compared(tmp_path / "o", {"a": FAST, "b": SLOW, "c": FAST}, baseline="b").folder
    asked = asked_pairs([str(folder)])
    assert names(asked.pairs) == [("b", "a"), ("b", "c")] and asked.family is None
    assert asked_pairs([str(folder), "c"]).pairs[0][0].group == "b"


def test_groups_of_a_campaign_named_before_them_or_beside_them(out: Path) -> None:
    assert names(asked_pairs([str(out), "slow", "fast"]).pairs) == [("slow", "fast")]
    assert names(asked_pairs(["slow", "fast"], inside=out).pairs) == [("slow", "fast")]
    assert names(asked_pairs([f"{out}:slow", "fast"]).pairs) == [(f"{out}:slow", "fast")]


def test_two_campaigns_are_compared_group_by_group(out: Path, tmp_path: Path) -> None:
    other = write_compared(tmp_path / "other", {"slow": SLOW, "fast": FAST, "new": FAST}).folder
    asked = asked_pairs([str(out), str(other)])
    assert names(asked.pairs) == [(f"{out}:fast", f"{other}:fast"), (f"{out}:slow", f"{other}:slow")]
    assert "left out: new" in asked.note


def test_two_campaigns_without_common_groups_are_their_winners(out: Path, tmp_path: Path) -> None:
    other = write_compared(tmp_path / "other", {"only": SLOW}).folder
    asked = asked_pairs([str(out), str(other)])
    assert names(asked.pairs) == [(f"{out}:fast", f"{other}:only")]
    assert asked.family == 2
    assert asked.note == "Winner against winner, chosen from 2 and 1 groups: 2 comparisons count for the correction."


def test_one_side_is_none(out: Path) -> None:
    with pytest.raises(UsageError, match="two sides"):
        asked_pairs([f"{out}:fast"])


def test_names_are_written_as_people_would(out: Path) -> None:
    assert side_name("./a//b/../out/", "g") == "a/out:g"
    assert names(asked_pairs([f"{out}/:slow", f"{out.parent}/./out:fast"]).pairs) == [(f"{out}:slow", f"{out}:fast")]


def test_hosts_of_the_runs_are_its_nodes(out: Path) -> None:
    read = read_grouped(out)
    runs = tuple(
        dataclasses.replace(run, measure=dataclasses.replace(run.measure, hosts=run.attempt.spec.repeat)) if run.measure else run
        for run in read.runs
    )
    assert side_of(dataclasses.replace(read, runs=runs), "slow").nodes == 3


def test_scaling_takes_every_side_or_all_groups_of_one_campaign(out: Path, tmp_path: Path) -> None:
    other = write_compared(tmp_path / "other", {"only": SLOW}).folder
    assert [side.group for side in scaling_sides([str(out)])] == ["fast", "slow"]
    assert [side.group for side in scaling_sides([str(out), str(other)])] == ["fast", "only"]
    assert scaling_sides([]) == []
