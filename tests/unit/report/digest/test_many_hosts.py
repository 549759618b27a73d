"""Runs on many hosts as every report shows them: two hosts in full, sixty-four in short, and the smoke record of both."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial import files
from seatrial.campaign.results import gather_results
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json
from seatrial.records.command import Provenance
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.results import CampaignResults
from seatrial.report.digest.cautions import cautions
from seatrial.report.digest.hosts import clock_text, hosts_of, sentence
from seatrial.report.digest.machines import machines
from seatrial.report.digest.ranks import ranks
from seatrial.report.digest.smoke import smoke_records
from seatrial.report.html import hosts as page_hosts
from seatrial.report.markdown.hosts import hosts_section
from seatrial.report.markdown.summary import summary_md
from seatrial.report.summary import summary_json
from seatrial.report.terminal import print_report
from tests.unit import many_hosts
from tests.unit.campaign.made_campaign import write_campaign

LONGEST_LINES = 120


def campaign(out: Path, made: many_hosts.Hosts, repeats: int = 1, **changes: Any) -> tuple[CampaignResults, CampaignPaths]:
    paths = CampaignPaths(out)
    specs = [many_hosts.run_spec(made, repeat=repeat, **changes) for repeat in range(1, repeats + 1)]
    failed = any(made.returncodes.values()) or bool(made.ended)
    for spec in specs:
        attempt = many_hosts.write(
            out, made, spec, outcome=Outcome.FAILED if failed else Outcome.OK, cause=Cause.EXCEPTION if failed else Cause.NONE
        )
        AttemptPaths(Path(attempt.folder)).launcher_log.write_text("destroy_process_group() was not called before program exit\n")
    files.write_json(paths.plan, to_json(CampaignPlan(name="factory", output=str(out), repeats=repeats, runs=tuple(specs))))
    return gather_results(paths, charts=True), paths


def printed(results: CampaignResults) -> str:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    print_report(results, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[CampaignResults, CampaignPaths]:
    return campaign(tmp_path_factory.mktemp("two"), many_hosts.Hosts(skew_s={1: 3600.0}, slow=frozenset({1})))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[CampaignResults, CampaignPaths]:
    makes = {f"node{at}": {"cpu": "EPYC", "driver_version": "560" if at == 7 else "570"} for at in range(64)}
    made = many_hosts.Hosts(
        hosts=64, returncodes={7: 1, 9: None}, ended={9: "lost"}, skew_s={3: -2.0}, provenance=Provenance(host="head", hosts=makes)
    )
    return campaign(tmp_path_factory.mktemp("many"), made)


def test_two_hosts_are_a_table_everywhere(two: tuple[CampaignResults, CampaignPaths]) -> None:
    results, paths = two
    text, terminal, told = summary_md(results, paths), printed(results), summary_json(results)
    assert "## Hosts" in text and "| mb8_r1 | node1 | 2–3 | \\+3,600.000 s ± 0.2 ms | 0 | exited |" in text
    assert "node0  " in terminal and "node1  " in terminal and "+3,600.000 s ± 0.2 ms" in terminal
    (run,) = told["hosts"]
    assert [(host["host"], host["first_rank"], host["ranks"], host["returncode"], host["ended"]) for host in run["hosts"]] == [
        ("node0", 0, 2, 0, "exited"),
        ("node1", 2, 2, 0, "exited"),
    ]
    drawn = page_hosts.hosts(json.loads(json.dumps(told)))
    assert drawn is not None and [row[1] for row in drawn["rows"]] == ["node0", "node1"]


def test_the_slow_host_is_named(two: tuple[CampaignResults, CampaignPaths]) -> None:
    results, paths = two
    (found,) = (one for one in results.verdict.statements if one.kind == "straggler")
    assert found.text.startswith("Host node1 (all its 2 ranks and no others, rank ")
    assert "node1" in [rank.where.split()[0] for each in ranks(results) for rank in each.ranks]
    assert "Host node1" in summary_md(results, paths)


def test_the_smoke_record_has_the_rows_of_the_seed(two: tuple[CampaignResults, CampaignPaths]) -> None:
    results, paths = two
    (record,) = smoke_records(results)
    assert list(record.rows) == [
        "outcome", "launch topology", "launcher start", "first step", "last step", "launcher end", "start-up before the first step",
        "loop, first step → last", "end to end", "steps/s", "samples/s", "iter p50, median", "step p50, median", "loss, first → last",
        "ETA error, median", "ETA error, p90", "fatal tracebacks", "workers ended well", "harmless warnings",
    ]  # fmt: skip
    assert record.rows["launch topology"] == "nnodes=2, procs per node=2, world size=4"
    assert record.rows["start-up before the first step"] == "5.100 s"
    assert record.rows["loop, first step → last"] == "5.900 s"
    assert record.rows["end to end"] == "60.00 s"
    assert record.rows["steps/s"].startswith("10.00 (steps ")
    assert record.rows["samples/s"] == "320.0 (global batch 32)"
    assert record.rows["step p50, median"].startswith("5.000 ms")
    assert record.rows["loss, first → last"] == "5.000 → 3.820"
    assert record.rows["workers ended well"] == "4 of 4"
    assert record.rows["harmless warnings"] == "destroy_process_group × 1"
    assert "–" not in [value for name, value in record.rows.items()]
    assert "## Smoke record" in summary_md(results, paths)
    drawn = page_hosts.smoke(json.loads(json.dumps(summary_json(results))))
    assert drawn is not None and drawn["rows"][1] == ["launch topology", record.rows["launch topology"]]


def test_a_smoke_plan_on_one_host_has_the_record_too(tmp_path: Path) -> None:
    results, _ = campaign(tmp_path, many_hosts.Hosts(hosts=1), mode="smoke")
    (record,) = smoke_records(results)
    assert record.rows["launch topology"] == "nnodes=1, procs per node=2, world size=2"
    assert hosts_of(results) == []


def test_one_host_has_neither(tmp_path: Path) -> None:
    results = gather_results(write_campaign(tmp_path))
    assert not {"hosts", "smoke_records"} & set(summary_json(results))
    assert list(hosts_section(results)) == [] and smoke_records(results) == []


def test_sixty_four_hosts_are_told_in_short(many: tuple[CampaignResults, CampaignPaths]) -> None:
    results, paths = many
    (one,) = hosts_of(results)
    assert len(one.hosts) == 64 and [row.host for row in one.shown] == ["node3", "node7", "node9"]
    assert sentence(one) == (
        "mb8_r1: 64 hosts started by ssh, 128 ranks, 62 ended with exit code 0, not so node7 (exit code 1), node9 (lost); the clock of "
        "node3 was 2.0 s behind."
    )
    text, terminal = summary_md(results, paths), printed(results)
    assert text.count("| node") == 3 and len(terminal.splitlines()) < LONGEST_LINES
    assert "node50" not in terminal and len(text) < 30_000
    assert clock_text(one.hosts[3]) == "-2.000 s ± 0.2 ms"
    assert len(summary_json(results)["hosts"][0]["hosts"]) == 64


def test_of_sixty_four_hosts_every_one_counts(many: tuple[CampaignResults, CampaignPaths]) -> None:
    results, _ = many
    measure = results.runs[0].measure
    assert measure is not None and (measure.hosts, measure.world_size, len(measure.by_host)) == (64, 128, 64)
    assert measure.telemetry["host_rss_peak_mib"] == 163 and measure.telemetry["gpu_mem_peak_mib"] == 1063
    assert measure.startup_s == pytest.approx(5.1)


def test_of_sixty_four_hosts_the_timeline_draws_eight_and_says_so(many: tuple[CampaignResults, CampaignPaths]) -> None:
    results, _ = many
    drawn = results.runs[0].charts
    assert drawn is not None and (drawn.hosts, drawn.hosts_drawn, drawn.gpus) == (64, 8, 64)
    hosts = {source for source in drawn.tables["telemetry"]["source"] if str(source).startswith("host ")}
    # Node 0, and those whose means are farthest from the others'.
    assert {"host node0", "host node63"} <= hosts and len(hosts) == 8
    (run,) = summary_json(results)["current_runs"]
    assert (run["hosts"], run["hosts_drawn"]) == (64, 8)


def test_unlike_hosts_are_said_once_and_in_the_machine_s_line(many: tuple[CampaignResults, CampaignPaths]) -> None:
    results, _ = many
    (said,) = (caution for caution in cautions(results) if caution.kind == "unlike_hosts")
    assert "driver_version (560 on node7, 570 on 63 hosts)" in said.text
    ((line, _),) = machines(results)
    assert line.startswith("64 hosts of 2 makes (node0, node1, node2, node3 and 60 more), seen from head")
