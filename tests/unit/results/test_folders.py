"""Folders of the original scripts and of ours, found and measured; all figures by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.collect.original import translate as translate_module
from seatrial.core.errors import CampaignError
from seatrial.core.paths import CampaignPaths
from seatrial.core.tables import read_table
from seatrial.records.columns import MANIFEST_STAGE1, ORIGINAL_SCRIPTS, PER_RUN_STAGE1
from seatrial.records.results import CampaignResults, MeasuredRun
from seatrial.results.folders import MAX_NAMED, find_attempts, find_campaign, find_run
from seatrial.results.recompute import gather_results, recompute
from tests.original_campaign import OriginalAttempt, ab_run, sweep_run, write_original_campaign
from tests.unit.results.campaigns import write_campaign

OOM = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",)
GROWING = OriginalAttempt(iter_p50_ms=400.0, iter_p50_growth_ms=2.0, iter_p90_over_p50=1.25, wall_iter_ms=501.0)
FIRST = "sweep_z0_mb128_nw6_pf4_r1"


def results_of(folder: Path, *runs: object, **odd: object) -> CampaignResults:
    write_original_campaign(folder, *runs, **odd)  # type: ignore[arg-type]
    return gather_results(CampaignPaths(find_campaign(folder)))


def by_run(results: CampaignResults) -> dict[str, MeasuredRun]:
    return {run.attempt.spec.run: run for run in results.runs if run.attempt.current}


def test_throughput_is_wall_clock_between_the_stamps(tmp_path: Path) -> None:
    run = by_run(results_of(tmp_path, sweep_run(attempts=(GROWING,))))[FIRST]
    assert run.measure is not None and run.measure.source == "log:seed"
    # Every 50 steps a line, 25.05 s apart; 128 samples of each of 2 ranks a step.
    assert run.measure.wall_p50_ms == pytest.approx(501.0)
    assert run.measure.samples_per_s == pytest.approx(256 / 0.501)
    assert run.measure.startup_s == 30.0 and (run.measure.first_loss, run.measure.last_loss) == (4.8672, 3.5)


def test_tails_are_the_seeds_without_the_first_half(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run(attempts=(GROWING,)))
    paths = CampaignPaths(find_campaign(tmp_path))
    whole = by_run(gather_results(paths))[FIRST].measure
    tail = by_run(gather_results(paths, tail_points=2))[FIRST].measure
    assert whole is not None and tail is not None
    # Windows of 400, 402 … 412 ms: of these seven three count where twenty are asked for, 408, 410, 412. Sample variance (4 + 0 + 4)/2.
    assert whole.stage1["tail_points_used"] == 3 and whole.stage1["tail_mean_iter_p50_ms"] == pytest.approx(410.0)
    assert whole.stage1["tail_std_iter_p50_ms"] == pytest.approx(2.0)
    assert tail.stage1["tail_points_used"] == 2 and tail.stage1["tail_mean_iter_p50_ms"] == pytest.approx(411.0)
    assert tail.stage1["tail_mean_iter_p90_ms"] == pytest.approx(411.0 * 1.25)
    assert tail.stage1["tail_samples_per_sec"] == pytest.approx(256 * 1000 / 411.0)
    assert tail.stage1["all_mean_iter_p50_ms"] == pytest.approx(406.0) and tail.stage1["iter_p90_over_p50"] == pytest.approx(1.25)
    assert tail.stage1["last_iter_p50_ms"] == 412.0 and tail.stage1["unstable_run_flag"] is False


def test_the_spread_between_ranks_is_read_from_train_log(tmp_path: Path) -> None:
    run = by_run(results_of(tmp_path, sweep_run(rank_scope="all", attempts=(OriginalAttempt(rank_spread_ms=12.0),))))[FIRST]
    assert run.measure is not None and run.measure.stage1["rank_spread_points"] == 3
    assert run.measure.stage1["rank_iter_spread_p90_ms"] == pytest.approx(12.0)
    assert run.measure.stage1["rank_step_spread_p90_ms"] == pytest.approx(12.0)


def test_speed_up_is_against_the_baseline(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, ab_run("old_like"), ab_run("tuned"))
    paths = CampaignPaths(find_campaign(tmp_path))
    by_plan = {group.group: group.stage1["speedup_vs_baseline"] for group in gather_results(paths).groups}
    assert by_plan == {"old_like": pytest.approx(1.0), "tuned": pytest.approx(480 / 400)}
    other = gather_results(paths, baseline="tuned")
    assert other.baseline_group == "tuned"
    assert {group.group: group.stage1["speedup_vs_baseline"] for group in other.groups}["old_like"] == pytest.approx(400 / 480)


def test_every_column_of_the_seeds_is_filled(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run(rank_scope="all"))
    paths = CampaignPaths(find_campaign(tmp_path))
    recompute(paths.folder)
    (manifest,) = read_table(paths.manifest, "\t")
    assert [name for name in MANIFEST_STAGE1 if not manifest[name]] == []
    (row,) = read_table(paths.per_run_metrics)
    assert [name for name in PER_RUN_STAGE1 if not row[name]] == []
    assert (row["precision_mode_req"], row["precision_mode_effective"], row["attn_impl_effective"]) == ("auto", "bf16", "sdpa")
    assert (row["tf32_enabled"], row["torch_compile_enabled"], row["global_batch"], row["world_size"]) == ("true", "false", "256", "2")


def test_rows_as_the_original_driver_has_them(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run(attempts=(GROWING,)), sweep_run(1, 160))
    theirs = {row["group"]: row for row in read_table(tmp_path / "run_manifest.tsv", "\t")}
    paths = CampaignPaths(find_campaign(tmp_path))
    recompute(paths.folder)
    ours = {row["group"]: row for row in read_table(paths.manifest, "\t")}
    own_words = {"run_dir", "launcher_log", "train_log", "last_iter_ms_p50", "last_eta_sec", "data_p90_over_p50"}
    for group, row in theirs.items():
        same = {name: (row[name], ours[group][name]) for name in MANIFEST_STAGE1 if name not in own_words}
        assert {name: pair for name, pair in same.items() if pair[0] != pair[1]} == {}


def test_old_attempts_and_failures_are_kept_apart(tmp_path: Path) -> None:
    failed = OriginalAttempt(status="failed", exit_code=1, last_step=100, iter_p50_ms=900.0, launcher_lines=OOM)
    results = results_of(
        tmp_path,
        sweep_run(attempts=(failed, OriginalAttempt())),
        sweep_run(0, 192, attempts=(failed,)),
        sweep_run(1, 192, attempts=(OriginalAttempt(status="failed", exit_code=124, last_step=150, duration_s=1800),)),
        sweep_run(1, 160, attempts=(OriginalAttempt(has_row=False, last_step=50),)),
        torn_line=True,
    )
    groups = {group.group: group for group in results.groups}
    again = groups["sweep_z0_mb128_nw6_pf4"]
    assert (again.runs, again.failed_attempts) == (1, 1) and again.stage1["tail_mean_iter_p50_ms_mean"] == pytest.approx(400.0)
    ends = {run.attempt.spec.group: run.attempt.outcome for run in results.runs if run.attempt.current and run.attempt.outcome}
    assert ends["sweep_z0_mb192_nw6_pf4"].cause.value == "cuda_oom" and ends["sweep_z1_mb192_nw6_pf4"].outcome.value == "timeout"
    assert results.pending == ("sweep_z1_mb160_nw6_pf4_r1",) and results.verdict.verdict.value == "FAIL"
    said = [caution.kind for caution in results.cautions]
    assert said[0] == ORIGINAL_SCRIPTS and "original_manifest" in said and "original_appended" in said and "original_no_row" in said


def test_runs_of_another_commit_are_not_averaged(tmp_path: Path) -> None:
    results = results_of(tmp_path, sweep_run(repeat=1, commit="a" * 40), sweep_run(repeat=2), sweep_run(repeat=3))
    (group,) = results.groups
    assert (group.runs, group.set_aside_runs) == (2, 1) and "git_commit_hash" in group.cautions[0].text


def test_absurd_and_missing_telemetry(tmp_path: Path) -> None:
    runs = by_run(results_of(tmp_path, sweep_run(gpu_telemetry="absurd"), sweep_run(0, 160, gpu_telemetry="header", host_telemetry="none")))
    odd, empty = runs[FIRST].measure, runs["sweep_z0_mb160_nw6_pf4_r1"].measure
    assert odd is not None and empty is not None
    assert 90 <= float(odd.telemetry["gpu_util_mean_pct"] or 0) <= 96 and odd.telemetry["telemetry_invalid"] == 36
    assert "telemetry_invalid" in {caution.kind for caution in odd.cautions}
    assert "telemetry_empty" in {caution.kind for caution in empty.cautions} and empty.telemetry["gpu_util_mean_pct"] is None


def test_the_hand_made_sampler_at_the_root_fills_the_host_columns(tmp_path: Path) -> None:
    run = sweep_run(host_telemetry="none", rss_growth_mib_per_min=60.0)
    measure = by_run(results_of(tmp_path, run, root_host_telemetry=True))[FIRST].measure
    # 24,000,000 KiB at the start and 60 MiB a minute more, up to the last step at 180 s.
    assert measure is not None and measure.telemetry["host_rss_peak_mib"] == pytest.approx(24_000_000 / 1024 + 180, abs=5)


def test_a_campaign_of_ours_stays_itself(tmp_path: Path) -> None:
    paths = write_campaign(tmp_path / "out")
    assert find_campaign(paths.folder) == paths.folder and find_run(paths.folder / "mb8_r1") == paths.folder / "mb8_r1"
    assert find_campaign(tmp_path / "none") == tmp_path / "none" and find_run(tmp_path / "none" / "x_r1") == tmp_path / "none" / "x_r1"
    assert all(caution.kind != ORIGINAL_SCRIPTS for caution in gather_results(paths).cautions)


def test_the_plan_says_which_baseline_where_nobody_else_does(tmp_path: Path) -> None:
    paths = write_campaign(tmp_path / "out")
    assert gather_results(paths).baseline_group == "old_like" and gather_results(paths, baseline="mb8").baseline_group == "mb8"
    paths.plan.write_text(paths.plan.read_text().replace('"baseline": "old_like"', '"baseline": "mb16"'))
    (paths.plans / "factory.json").write_text(paths.plan.read_text())
    assert recompute(paths.folder).baseline_group == "mb16"


def test_a_translation_named_itself_is_brought_up_to_date(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run())
    translated = find_campaign(tmp_path)
    write_original_campaign(tmp_path, sweep_run(), sweep_run(0, 160))
    assert find_campaign(translated) == translated
    assert len(gather_results(CampaignPaths(translated)).runs) == 2


def test_a_run_of_an_original_folder_is_found(tmp_path: Path) -> None:
    write_original_campaign(tmp_path, sweep_run())
    translated = tmp_path / "seatrial" / FIRST
    assert find_run(tmp_path / FIRST) == translated and (translated / "attempt-1").is_dir()
    # Its launcher.log begins as the original one does; it is ours all the same.
    assert find_run(translated) == translated and find_run(translated / "attempt-1") == translated / "attempt-1"
    assert find_campaign(translated) == translated and not list(tmp_path.rglob("seatrial/seatrial"))


def test_a_disk_that_takes_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_original_campaign(tmp_path, sweep_run())

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(translate_module, "write_attempt", full)
    with pytest.raises(CampaignError, match="somewhere: No space left on device"):
        find_campaign(tmp_path)


def made(out: Path, *runs: str, attempts: int = 1) -> None:
    for run in runs:
        for number in range(1, attempts + 1):
            (out / run / f"attempt-{number}").mkdir(parents=True)


def test_all_of_a_run_oldest_first(tmp_path: Path) -> None:
    made(tmp_path, "mb8_r1", attempts=11)
    assert [attempt.number for attempt in find_attempts(tmp_path / "mb8_r1")] == list(range(1, 12))


def test_a_campaign_is_not_a_run_and_its_runs_are_named(tmp_path: Path) -> None:
    made(tmp_path, "mb8_r1", "mb16_r1")
    with pytest.raises(CampaignError, match=r"is a campaign; name one of its runs: mb16_r1, mb8_r1$"):
        find_attempts(tmp_path)
    made(tmp_path, *(f"z{number}_r1" for number in range(MAX_NAMED)))
    with pytest.raises(CampaignError, match=r" and 2 more$"):
        find_attempts(tmp_path)


def test_a_misspelt_run_is_reported_the_nearest(tmp_path: Path) -> None:
    made(tmp_path, "mb8_r1", "lr3_r1")
    with pytest.raises(CampaignError, match=r"mb8_r2 holds no run: did you mean 'mb8_r1'\?$"):
        find_attempts(tmp_path / "mb8_r2")


@pytest.mark.parametrize("name", ["empty", "no/such/folder"])
def test_where_there_is_nothing_near_that_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(CampaignError, match="holds no run: none is known here"):
        find_attempts(tmp_path / name)
