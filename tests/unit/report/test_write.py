"""The files of a report: summary.json, verdict.json and what docs/files.md says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from seatrial.core import paths
from seatrial.core.paths import CampaignPaths
from seatrial.records import columns
from seatrial.records.columns import GROUP_STAGE1
from seatrial.records.results import CampaignResults
from seatrial.report.markdown import summary_md
from seatrial.report.write import summary_json, write_report
from tests.unit.report import factory

GOLDEN = Path(__file__).parent / "golden"
SEED_KEYS = [
    "generated_at",
    "output_root",
    "tail_points",
    "baseline_group",
    "groups",
    "ranked_groups",
    "ranked_groups_by_stability",
    "best",
    "runs",
    "skipped_runs",
]


@pytest.mark.parametrize(("name", "results"), [("summary.md", factory.results()), ("summary_empty.md", factory.empty_results())])
def test_the_page_is_as_it_was(name: str, results: CampaignResults) -> None:
    assert summary_md(results, CampaignPaths(Path("out"))) == (GOLDEN / name).read_text(encoding="utf-8")


def test_json_has_the_seeds_keys_first() -> None:
    told = summary_json(factory.results())
    assert list(told)[: len(SEED_KEYS)] == SEED_KEYS
    assert list(told)[len(SEED_KEYS) :] == [
        "plans",
        "verdict",
        "ranking",
        "winners",
        "cautions",
        "failures",
        "pending",
        "windows",
        "eta_quality",
        "old_attempts",
        "health",
        "standings",
        "current_runs",
        "axis_labels",
        "machines",
        "sentences",
        "charts",
        "headline",
    ]


def test_json_values_are_values() -> None:
    told = json.loads(json.dumps(summary_json(factory.results()), allow_nan=False))
    assert told["generated_at"] == "2026-01-01T00:00:00Z"
    assert told["tail_points"] == 20
    assert [row["group"] for row in told["ranked_groups_by_stability"]] == ["mb16_nw0", "mb16_nw2", "mb8_nw2"]
    assert list(told["groups"][0])[: len(GROUP_STAGE1)] == list(GROUP_STAGE1)
    run = told["runs"][0]
    assert (run["wall_samples_per_sec"], run["steady"], run["rank_iter_spread_p90_ms"]) == (790.5, True, None)
    assert told["windows"]["mb16_nw2_r1"]["n"] == 178
    assert told["old_attempts"] == [{"run": "mb16_nw0_r1", "attempt": 1, "hash": "hash-mb16_nw0-1"}]
    assert told["verdict"]["verdict"] == "FAIL"
    assert told["best"]["group"] == "mb16_nw2"


def test_json_of_nothing_is_still_whole() -> None:
    told = summary_json(factory.empty_results())
    assert (told["groups"], told["best"], told["pending"], told["tail_points"]) == ([], None, ["mb16_nw2_r1"], 20)


def test_write_report_leaves_every_file_and_a_second_one_the_same(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    write_report(factory.results(), paths)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(first) == [
        "best_config.env",
        "best_config.json",
        "best_overrides.txt",
        "group_summary.csv",
        "per_run_metrics.csv",
        "ranked_groups.csv",
        "skipped_runs.tsv",
        "summary.html",
        "summary.json",
        "summary.md",
        "verdict.json",
    ]
    write_report(factory.results(), paths)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_verdict_file_answers_a_program(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    write_report(factory.results(), paths)
    told = json.loads(paths.verdict.read_text())
    assert list(told) == ["verdict", "exit_code", "partial", "confounded", "findings", "statements", "notes", "pending", "generated_at"]
    assert (told["verdict"], told["exit_code"], told["partial"]) == ("FAIL", 2, True)
    counted, cause = told["findings"][0]["evidence"]
    assert counted == {
        "subject": "campaign", "value": 1, "file": "run_manifest.tsv", "unit": "runs", "name": "", "window": "whole runs", "n": 7,
    }  # fmt: skip
    assert (cause["subject"], cause["value"], cause["file"]) == ("mb8_nw2_r2", "cuda_oom", "mb8_nw2_r2/attempt-1/outcome.json")


PAGE = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`\n]+)`", PAGE))


def file_names(owner: type) -> list[str]:
    values = [value for base in owner.__mro__ for value in vars(base).values()]
    return [value.name for value in values if isinstance(value, paths.InFolder)]


OWNERS = (paths.CampaignPaths, paths.AttemptPaths, paths.AllocationPaths, paths.StagesPaths)


@pytest.mark.parametrize("owner", OWNERS)
def test_every_file_is_described(owner: type) -> None:
    known = {name.rstrip("/") for name in NAMED}
    assert [name for name in file_names(owner) if name not in known] == []


TABLES: dict[str, Iterable[str]] = {
    name: value
    for name, value in vars(columns).items()
    if name.isupper() and not isinstance(value, str) and name not in ("STAGE1_SETTINGS", "TRAINER_KEYS", "CHART_TABLES")
} | {f"charts/{name}": value for name, value in columns.CHART_TABLES.items()}


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_described(table: str) -> None:
    assert [column for column in TABLES[table] if column not in NAMED] == []


def names_in_source(*packages: str) -> set[str]:
    """File names that stand in the code of a workload or procedure, which keeps its own."""
    sources = [path for package in packages for path in (Path(paths.__file__).parents[2] / package).rglob("*.py")]
    return {name for path in sources for name in re.findall(r"[\"']([.a-z_0-9]+\.[a-z]+)[\"']", path.read_text(encoding="utf-8"))}


def test_no_file_is_described_that_nobody_writes() -> None:
    described = {name for name in NAMED if re.fullmatch(r"\.?[a-z_0-9.]+\.(csv|tsv|json|jsonl|md|env|txt|log|sh|lock)", name)}
    known = {
        *(name for owner in OWNERS for name in file_names(owner)),
        "events_rank0.jsonl",
        "heartbeat_rank0.jsonl",
        "rank0.txt",
        "pid4711.txt",
        "mem_boot.txt",
        "mem_boot.json",
        # StagesPaths.log names them by stage.
        *("snapshot.log", "parity.log", "v2.log", "acceptance.log"),
        "fused_table.csv",
        *names_in_source("seatrial_workloads/sparse_lm", "seatrial_runbooks/sparse_lm", "seatrial_workloads/sft"),
    }
    assert described - known == set()
