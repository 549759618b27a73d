"""Health, ETA, hosts, smoke records and telemetry in the reports."""

from __future__ import annotations

import dataclasses
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seatrial.core import files
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.records.attempt import Provenance
from seatrial.records.caution import Scalar
from seatrial.records.codec import to_json
from seatrial.records.measure import HarmlessCount, RunHealth, RunMeasure
from seatrial.records.outcome import Cause, Outcome
from seatrial.records.plan import CampaignPlan, TimingSpec
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.report.html.sections import hosts_table, smoke_table
from seatrial.report.markdown import summary_md
from seatrial.report.markdown_sections import eta_section, health_section, hosts_section, smoke_section, telemetry_section
from seatrial.report.terminal import print_report
from seatrial.report.terminal_sections import hosts_section as hosts_section_hosts
from seatrial.report.view.campaign import all_cautions
from seatrial.report.view.machine import (
    ALL_SHOWN,
    MAX_RECORDS,
    SMOKE,
    TELEMETRY_EXPLAINED,
    clock_text,
    eta_line,
    hosts_of,
    hosts_sentence,
    machines,
    memory_lines,
    pooled_quality,
    smoke_records,
    why_no_eta,
)
from seatrial.report.view.problems import NO_HEALTH, health_line, health_of
from seatrial.report.view.steps import ranks
from seatrial.report.write import summary_json
from seatrial.results.recompute import gather_results
from tests.facts import states
from tests.unit import many_hosts
from tests.unit.report import factory
from tests.unit.report.console import lines, on_hosts
from tests.unit.results.campaigns import write_campaign

WELL = RunHealth(ranks=2, ranks_ended_well=2)


def with_health(run: MeasuredRun, health: RunHealth | None) -> MeasuredRun:
    return replace(run, measure=replace(run.measure or RunMeasure(source="whole"), health=health))


def results(*runs: MeasuredRun) -> CampaignResults:
    return factory.results(runs=runs)


def test_runs_that_were_all_well_leave_nothing_to_say_on_the_terminal() -> None:
    well = results(*(with_health(factory.measured("mb16_nw0", repeat), WELL) for repeat in (1, 2)))
    assert list(health_section(well)) == [
        "## Health",
        "- Fatal tracebacks: none.\n- Ranks: 4 of 4 exited cleanly.\n- Harmless warnings: none.",
    ]
    assert health_line(well) == ""


def test_a_traceback_of_a_run_that_ended_well_is_not_fatal_and_is_reported() -> None:
    printed = with_health(factory.measured("mb16_nw0", 1), replace(WELL, tracebacks=3))
    for text in (list(health_section(results(printed)))[1], health_line(results(printed))):
        assert states(text, "1 run", "traceback", "may have failed", "mb16_nw0_r1")


def test_a_failed_run_that_does_not_tell_of_its_ranks_is_named() -> None:
    silent = with_health(factory.measured("mb16_nw0", 1, how=Outcome.FAILED), RunHealth(ranks=2, tracebacks=1))
    health = health_of(results(silent, with_health(factory.measured("mb16_nw0", 2), WELL)))
    assert (health.ranks_started, health.ranks_ended_well, health.ranks_unknown) == (2, 2, ("mb16_nw0_r1",))
    assert health.fatal_tracebacks == ("mb16_nw0_r1",)
    assert (
        "- Ranks: 2 of 2 exited cleanly; unknown of mb16_nw0_r1."
        in list(health_section(results(silent, factory.measured("mb16_nw0", 2))))[1]
    )


def test_only_current_runs_that_came_to_an_end_of_their_own_are_looked_at() -> None:
    told = RunHealth(ranks=2, ranks_ended_well=0, tracebacks=1)
    old = with_health(factory.measured("mb16_nw0", 1, how=Outcome.FAILED, current=False), told)
    cut_short = with_health(factory.measured("mb16_nw0", 2, how=Outcome.INTERRUPTED), told)
    running = with_health(factory.measured("mb16_nw2", 1, how=None), told)
    unseen = with_health(factory.measured("mb16_nw2", 2), None)
    assert health_of(results(old, cut_short, running, unseen)).runs == 0
    assert list(health_section(results(old, cut_short, running, unseen))) == ["## Health", NO_HEALTH]


def test_what_every_run_of_deepspeed_says_is_listed_and_not_reported_on_the_terminal() -> None:
    usual = replace(WELL, harmless=(HarmlessCount(id="no_hostfile", meaning="there is none to find", lines=1),))
    ran = results(with_health(factory.measured("mb16_nw0", 1), usual))
    assert health_line(ran) == ""
    assert "no_hostfile" in "\n".join(health_section(ran))


def changed(*, measure: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> CampaignResults:
    """The factory's campaign with every run changed alike."""
    runs = tuple(
        dataclasses.replace(
            run,
            attempt=dataclasses.replace(run.attempt, spec=dataclasses.replace(run.attempt.spec, **(spec or {}))),
            measure=dataclasses.replace(run.measure, **(measure or {})) if run.measure else None,
        )
        for run in factory.runs()
    )
    return factory.results(runs=runs)


NO_POINTS: dict[str, Any] = {"eta_points": (), "eta_quality": None, "stage1": {}}


def test_all_points_of_the_runs_that_count_are_pooled() -> None:
    found = pooled_quality(factory.results())
    assert found is not None
    assert found.points == 18
    assert found.median_error_s == pytest.approx(0.1)
    assert found.p90_error_s == pytest.approx(0.15)
    assert found.covered == pytest.approx(2 / 3)


def test_json_has_it_for_all_and_run_by_run() -> None:
    told = summary_json(factory.results())["eta_quality"]
    assert told["all"]["points"] == 18
    assert told["runs"]["mb16_nw2_r1"]["p90_error_s"] == 0.14
    assert told["text"] == eta_line(factory.results())


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (factory.empty_results(), "no run has ended ok"),
        (changed(measure=NO_POINTS, spec={"timing": TimingSpec(eta_mode="off")}), "off in the plan (`timing.eta_mode: off`)"),
        (changed(measure={**NO_POINTS, "source": "whole"}), "the runs recorded no steps"),
        (changed(measure=NO_POINTS, spec={"steps": None}), "pass --steps N, or set `steps` in the plan"),
        (changed(measure=NO_POINTS), "too few timed steps (`timing.eta_min_samples`), or steps without an end time"),
    ],
)
def test_where_there_are_none_it_says_why(results: CampaignResults, reason: str) -> None:
    assert why_no_eta(results) == reason
    heading, rows, why = eta_section(results)
    assert (heading, why) == ("## ETA Overview", f"No ETA: {reason}.")
    assert rows.splitlines()[-1] == "| all runs | 0 | – | – | – | – | – |"
    assert reason in eta_line(results)


def test_estimates_without_a_truth_are_shown_and_not_judged() -> None:
    *shown, last = eta_section(changed(measure={"eta_quality": None}))
    assert "mb16_nw2_r1" in shown[1]
    assert last.startswith("ETA not checked: the end of the last step was not recorded")


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
    print_report(results, console, full=True)
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
    drawn = hosts_table(results)
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
    drawn = smoke_table(results)
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


def test_sixty_four_hosts_are_reported_in_short(many: tuple[CampaignResults, CampaignPaths]) -> None:
    results, paths = many
    (one,) = hosts_of(results)
    assert len(one.hosts) == 64 and [row.host for row in one.shown] == ["node3", "node7", "node9"]
    facts = ("mb8_r1", "64 hosts", "ssh", "128 ranks", "62", "exit code 0", "node7 (exit code 1), node9 (lost)", "node3", "2.0 s behind")
    assert states(hosts_sentence(one), *facts)
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


def test_unlike_hosts_are_reported_once_and_in_the_machine_s_line(many: tuple[CampaignResults, CampaignPaths]) -> None:
    results, _ = many
    (said,) = (caution for caution in all_cautions(results) if caution.kind == "unlike_hosts")
    assert "driver_version (560 on node7, 570 on 63 hosts)" in said.text
    ((line, _),) = machines(results)
    assert line.startswith("64 hosts of 2 kinds (node0, node1, node2, node3 and 60 more), seen from head")


def test_of_many_hosts_the_odd_ones_alone_have_rows() -> None:
    found = lines(hosts_section_hosts(on_hosts(*[0] * ALL_SHOWN, None), 200), 200)
    assert len(found) == 4 and found[-1].split()[:2] == [f"node{ALL_SHOWN}", f"{2 * ALL_SHOWN}–{2 * ALL_SHOWN + 1}"]


def test_of_very_many_odd_ones_the_rest_is_counted() -> None:
    assert lines(hosts_section_hosts(on_hosts(*[1] * (ALL_SHOWN + 2)), 100))[-1] == "and 2 more hosts: see the summary"


def smoke(count: int) -> CampaignResults:
    """So many runs of a smoke plan."""
    runs = []
    for at in range(count):
        run = factory.measured("mb16_nw2", 1)
        spec = dataclasses.replace(run.attempt.spec, run=f"smoke_r{at}", mode=SMOKE)
        runs.append(dataclasses.replace(run, attempt=dataclasses.replace(run.attempt, spec=spec)))
    return factory.results(runs=tuple(runs))


def test_of_many_runs_the_first_are_shown() -> None:
    _, table, left_out, _ = smoke_section(smoke(MAX_RECORDS + 2))
    assert table.splitlines()[0].count("smoke_r") == MAX_RECORDS and left_out == "2 more runs are left out here: `summary.json` has them."


def sampled(results: CampaignResults, *figures: dict[str, Scalar]) -> CampaignResults:
    """The same campaign, the telemetry of its measured runs taken from `figures` in turn."""
    cells = iter(figures * len(results.runs))
    runs = [replace(run, measure=replace(run.measure, telemetry=next(cells))) if run.measure else run for run in results.runs]
    return replace(results, runs=tuple(runs))


def test_means_are_averaged_peaks_are_highest_and_counts_are_summed() -> None:
    low: dict[str, Scalar] = {"gpu_util_mean_pct": 80.0, "gpu_temp_max_c": 60, "telemetry_gaps": 1, "telemetry_cpu_pct": 0.25}
    high: dict[str, Scalar] = {"gpu_util_mean_pct": 90.0, "gpu_temp_max_c": 70, "telemetry_gaps": 2, "telemetry_cpu_pct": 0.75}

    _, text, explained = telemetry_section(sampled(factory.results(), low, high))

    header, _, *rows = text.splitlines()
    assert header == "| group | GPU % | hottest °C | gaps | own cost % | runs |"
    assert [row for row in rows if row.endswith("| 85.00 | 70 | 3 | 0.5000 | 2 |")]
    assert explained == TELEMETRY_EXPLAINED


def test_observed_gpu_memory_stands_beside_its_forecast() -> None:
    """Only where the workload forecasts it: settings of another version, and runs without samples, have none."""
    found = factory.results()
    settings: dict[str, Scalar] = {"d_model": 1024, "n_heads": 16, "n_layers": 12, "device": "cuda"}
    runs = tuple(
        replace(run, attempt=replace(run.attempt, spec=replace(run.attempt.spec, settings=settings)), measure=replace(run.measure, **seen))
        for run in found.runs
        if run.measure is not None
        for seen in ({"telemetry": {"gpu_mem_peak_mib": 4096.0} if run.attempt.spec.group == "mb16_nw2" else {}},)
    )
    (line,) = memory_lines(replace(found, runs=runs))
    assert line.startswith("GPU memory of mb16_nw2: forecast ") and "GiB, observed 4.0 (" in line
    assert line in "\n".join(telemetry_section(replace(found, runs=runs)))
    assert memory_lines(found) == []
