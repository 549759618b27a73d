"""The sections that the seeds' summary has."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from seatrial.paths import CampaignPaths
from seatrial.records.results import CampaignResults
from seatrial.report.markdown.seeds import TOP_STABLE, seed_sections
from tests.unit.report import factory

PATHS = CampaignPaths(Path("out"))
HEADINGS = ["## Best Config", "## ETA Overview", "## Group Summary", "## Rank Imbalance", "## Top Stable Groups", "## Skipped Runs"]


def sections(results: CampaignResults) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for block in seed_sections(results, PATHS):
        found.setdefault(block, []) if block.startswith("## ") else found[list(found)[-1]].append(block)
    return found


def test_all_are_there_in_the_seeds_order_also_where_nothing_ran() -> None:
    assert list(sections(factory.results())) == HEADINGS
    empty = sections(factory.empty_results())
    assert list(empty) == HEADINGS and empty["## Best Config"] == ["None. No run ended ok."]
    assert empty["## Group Summary"] == ["No group has a run that ended."] and empty["## Skipped Runs"] == ["None."]


def test_the_best_config_has_settings_axes_and_files() -> None:
    (best,) = sections(factory.results())["## Best Config"]
    assert best.startswith("mb16_nw2: ") and "| micro_batch | 16 |" in best and "`best_config.env`" in best


def test_a_spread_is_shown_of_the_groups_that_tell_it() -> None:
    assert sections(factory.results())["## Rank Imbalance"][0].startswith("Not measured")
    groups = list(factory.groups())
    told = dataclasses.replace(groups[2], seed={**groups[2].seed, "rank_iter_spread_p90_ms_mean": 1.5})
    (table,) = sections(factory.results(groups=(*groups[:2], told, groups[3])))["## Rank Imbalance"]
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == ["| mb16_nw2"] and "1.500" in table


def test_the_stable_groups_stand_by_their_rank() -> None:
    (table,) = sections(factory.results())["## Top Stable Groups"]
    rows = table.splitlines()[2:]
    assert len(rows) <= TOP_STABLE and [row.split(" | ")[0].removeprefix("| ") for row in rows] == ["mb16_nw0", "mb16_nw2", "mb8_nw2"]


def test_a_run_without_timing_is_among_those_skipped() -> None:
    (table,) = sections(factory.results())["## Skipped Runs"]
    assert "| mb8_nw2_r2 | run_failed | failed | cuda_oom |" in table
