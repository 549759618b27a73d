"""A report recomputed from a folder, also a damaged one, a full disk or folders in the way."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path

import pytest
from polars.exceptions import PanicException
from rich.console import Console

from seatrial.core.files import read_json, write_json
from seatrial.core.paths import CampaignPaths
from seatrial.records.measure import StabilityVerdict
from seatrial.records.results import CampaignResults
from seatrial.report.terminal import print_report
from seatrial.report.view.campaign import PAGE_NOT_DRAWN, REPORT_NOT_WRITTEN
from seatrial.results.export import Exporter
from seatrial.results.gather import group_campaign
from seatrial.results.recompute import move_folder_aside, move_folders_aside, recompute, recompute_or_explain
from tests.facts import states
from tests.faults import damage
from tests.faults.damage import Told
from tests.unit.results.campaigns import write_campaign, write_compared

FULL = OSError(errno.ENOSPC, "No space left on device", "/out/summary.html")


@pytest.fixture
def campaign(tmp_path: Path) -> CampaignPaths:
    return write_campaign(tmp_path / "out")


def printed(results: CampaignResults) -> str:
    out = io.StringIO()
    print_report(results, Console(file=out, width=200), full=True)
    return out.getvalue()


def spoil(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(name, broken)


@pytest.mark.parametrize("error", [ValueError("no such\x1b[2J column"), PermissionError(errno.EACCES, "denied"), PanicException("index")])
def test_a_spec_that_raises_costs_the_page_and_nothing_else(
    campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    whole = recompute(campaign.folder)
    assert campaign.summary_html.is_file()
    spoil(monkeypatch, "seatrial.report.html.page.all_charts", error)
    results, unwritten = recompute_or_explain(campaign.folder)
    assert unwritten == "" and results.verdict == whole.verdict
    assert not campaign.summary_html.exists(), "it would show what no longer holds"
    (caution,) = [caution for caution in results.cautions if caution.kind == PAGE_NOT_DRAWN]
    assert caution.text.startswith(f"summary.html could not be drawn ({type(error).__name__}: ") and "\x1b" not in caution.text
    assert PAGE_NOT_DRAWN in {one["kind"] for one in json.loads(campaign.summary_json.read_text())["cautions"]}
    assert "could not be drawn" in campaign.summary_md.read_text()
    text = printed(results)
    assert "could not be drawn" in text and "Page: " not in text and "For a pull request: " in text


def test_a_disk_that_is_full_when_the_page_comes_says_what_is_written(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    recompute(campaign.folder)
    spoil(monkeypatch, "seatrial.report.write.summary_page", FULL)
    results, unwritten = recompute_or_explain(campaign.folder)
    assert "written: run_manifest.tsv, verdict.json, group_summary.csv, summary.json, summary.md; not written: summary.html" in unwritten
    assert f"`seatrial report {campaign.folder}`" in unwritten
    assert REPORT_NOT_WRITTEN in {caution.kind for caution in results.cautions}
    text = printed(results)
    assert "Page: " not in text and "For a pull request: " not in text and "No space left" not in text, "the caller says it"


def test_a_disk_that_takes_nothing_says_so(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, "seatrial.results.recompute.write_manifest", FULL)
    _, unwritten = recompute_or_explain(campaign.folder)
    assert "; tables and report are not written: fix that" in unwritten


def test_any_other_error_of_the_disk_is_not_hushed_up(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, "seatrial.results.recompute.write_manifest", PermissionError(errno.EACCES, "denied"))
    with pytest.raises(PermissionError):
        recompute_or_explain(campaign.folder)


def test_groups_that_nothing_was_made_of_are_there_all_the_same(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path / "out", nan_step=None)
    plan = json.loads(campaign.plan.read_text())
    unlike = {"run": "mb32_r1", "group": "mb32", "hash": "hash-mb32", "group_key": "key-mb32", "axes": {"micro_batch": 32}}
    aside = {**unlike, "run": "aside_r1", "group": "aside", "hash": "hash-aside", "group_key": "key-aside", "lane": False}
    plan["runs"] += [{**plan["runs"][0], **changes} for changes in (unlike, aside)]
    for path in (campaign.plan, campaign.plans / "factory.json"):
        path.write_text(json.dumps(plan))
    results = recompute(campaign.folder)
    assert results.pending == ("mb32_r1", "aside_r1")
    assert [(group.group, group.lane, group.axes) for group in results.not_started] == [
        ("mb32", True, {"micro_batch": 32}),
        ("aside", False, {"micro_batch": 32}),
    ]
    assert "mb32" not in {group.group for group in results.groups} | {place.group for place in results.ranking.groups}
    told = json.loads(campaign.summary_json.read_text())
    notes = {row["group"]: (row["note"], row["n"]) for row in told["standings"]}
    assert notes["mb32"] == notes["aside"] == ("not run yet", None)
    assert notes["mb8"][0] == "recommended" and "Recommended: mb8 " in told["winners"]
    assert (told["ranking"]["recommended"], told["ranking"]["winner"]) == ("mb8", None)
    assert "mb32" in campaign.summary_html.read_text() and "| mb32 | 32 |" in campaign.summary_md.read_text()


def test_nothing_and_files_are_in_nobodys_way(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    paths.summary_md.write_text("old")
    paths.charts.mkdir()
    assert move_folders_aside(paths) == []
    assert move_folder_aside(paths.summary_md) is None and move_folder_aside(tmp_path / "none") is None


def test_a_folder_is_kept_under_the_next_free_name(tmp_path: Path) -> None:
    table = tmp_path / "group_summary.csv"
    (tmp_path / "group_summary.csv.folder-1").mkdir()
    table.mkdir()
    (table / "mine.txt").write_text("kept")
    moved = move_folder_aside(table)
    assert moved is not None and moved.kind == "moved_aside"
    assert states(moved.text, "group_summary.csv", "group_summary.csv.folder-2", "remove")
    assert not table.exists() and (tmp_path / "group_summary.csv.folder-2" / "mine.txt").read_text() == "kept"


def test_way_is_made_for_all_of_a_report(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    in_the_way = (paths.manifest, paths.verdict, paths.summary_html, paths.best_config_env)
    for path in in_the_way:
        path.mkdir()
    paths.charts.write_text("a file")
    found = move_folders_aside(paths)
    assert len(found) == len(in_the_way) + 1
    assert found[0].text.startswith(f"A file was in the way of {paths.charts.name}")
    assert not any(path.exists() for path in (*in_the_way, paths.charts))


RUN = "mb16_r1"
ATTEMPT = f"{RUN}/attempt-1"


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_campaign(tmp_path_factory.mktemp("damaged") / "out").folder
    damage.told(folder)
    return folder


@pytest.fixture(scope="module")
def whole(whole_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return damage.report_of(whole_folder, tmp_path_factory.mktemp("whole") / "out")


FILES = {
    "plan.json": ("a third", "a pipe"),
    "plans/factory.json": ("random bytes", "a folder"),
    f"{ATTEMPT}/spec.json": ("missing", "a block of NUL"),
    f"{ATTEMPT}/outcome.json": ("empty", "a loop of links"),
    f"{ATTEMPT}/provenance.json": ("a third",),
    f"{ATTEMPT}/events_rank0.jsonl": ("nearly whole", "a pipe", "every line twice", "lines backwards", "1e400"),
    f"{ATTEMPT}/host_telemetry.csv": ("a third", "every line twice", "a number of 400 digits"),
    "run_manifest.tsv": ("a folder", "random bytes"),
}


@pytest.mark.parametrize(("file", "what"), [(file, what) for file, names in FILES.items() for what in names])
def test_the_rest_is_reported_and_the_damage_is_named(whole_folder: Path, whole: Told, tmp_path: Path, file: str, what: str) -> None:
    found = damage.report_of(whole_folder, tmp_path / "out", file, damage.damages_for(file)[what])
    assert {run: row for run, row in found.runs.items() if run != RUN} == {run: row for run, row in whole.runs.items() if run != RUN}
    if found.runs != whole.runs:
        assert found.names(file)
    for name in ("wall_samples_per_sec", "wall_iter_p50_ms"):
        now, true = found.runs.get(RUN, {}).get(name, ""), float(whole.runs[RUN][name])
        assert not now or float(now) == pytest.approx(true, rel=0.1)


def test_a_spec_that_is_gone_is_taken_from_the_plan_of_the_same_hash(whole_folder: Path, whole: Told, tmp_path: Path) -> None:
    found = damage.report_of(whole_folder, tmp_path / "out", f"{ATTEMPT}/spec.json", damage.missing)
    assert found.runs == whole.runs
    (told,) = [caution.text for caution in found.cautions if caution.kind == "unreadable_file"]
    assert told.endswith("spec.json cannot be used (it is missing) and was skipped; the plan's spec with the same hash was used instead.")


def test_a_run_whose_provenance_was_lost_does_not_set_the_others_aside(whole_folder: Path, whole: Told, tmp_path: Path) -> None:
    """Though it is the newest of its group."""
    newest = "mb8_r2/attempt-1/provenance.json"
    found = damage.report_of(whole_folder, tmp_path / "out", newest, damage.empty)
    assert found.runs["mb8_r1"] == whole.runs["mb8_r1"] and "mb8_r2" not in found.runs
    assert found.names(newest)


def test_files_that_only_later_attempts_lack_are_reported(whole_folder: Path, tmp_path: Path) -> None:
    """An attempt whose outcome is damaged is not current, so that the older one counts: why must be said all the same."""
    found = damage.report_of(whole_folder, tmp_path / "out", "mb8_r1/attempt-2/outcome.json", damage.empty)
    assert found.outcomes["mb8_r1"] == "unfinished" and found.names("outcome.json")


def test_every_table_of_a_damaged_folder_can_be_exported(whole_folder: Path, tmp_path: Path) -> None:
    damage.report_of(whole_folder, tmp_path / "out", f"{ATTEMPT}/events_rank1.jsonl", damage.random_bytes)
    damage.a_pipe(tmp_path / "out" / ATTEMPT / "heartbeat_rank0.jsonl")
    damage.random_bytes(tmp_path / "out" / ATTEMPT / "heartbeat_rank1.jsonl")
    exporter = Exporter(CampaignPaths(tmp_path / "out"))
    assert sum(len(frame) for frame in exporter.table("steps").frames) > 0
    assert {row for frame in exporter.table("heartbeats").frames for row in frame["run"].to_list()} == {"mb8_r1", "mb8_r2", "mb16_r2"}
    assert exporter.left_out == []


def test_heartbeats_with_numbers_that_cannot_be_are_exported_as_empty(whole_folder: Path, tmp_path: Path) -> None:
    beat = {"ts": 10**400, "pid": 2**70, "rank": 0, "step": 1e300, "host": ["x"], "msg": 7}
    lines = json.dumps(beat) + "\n" + '{"ts": NaN, "step": -Infinity, "rank": 1e999}\n'
    damage.report_of(whole_folder, tmp_path / "out", f"{ATTEMPT}/heartbeat_rank0.jsonl", lambda path: path.write_text(lines) and None)
    exporter = Exporter(CampaignPaths(tmp_path / "out"))
    assert sum(len(frame) for frame in exporter.table("heartbeats").frames) == 9
    assert exporter.left_out == []


def test_what_preflight_saw_on_this_host_is_in_the_summary_and_is_offered_as_a_cause(tmp_path: Path) -> None:
    campaign = write_compared(tmp_path / "out", {"a": [10.0, 14.0, 20.0], "b": [10.0, 10.0, 10.0]})
    busy = {
        "name": "other processes",
        "ok": False,
        "found": "2.0 of 2 cores in use by others: yes (pid 7)",
        "prevents": "step times slowed by other processes",
        "fix": "end them or wait",
        "refuses": False,
        "noise": True,
    }
    campaign.preflight.write_text(json.dumps([busy, {**busy, "ok": True}, {**busy, "found": "refused", "refuses": True}, 7]))
    results = recompute(campaign.folder)
    (caution,) = [one for one in json.loads(campaign.summary_json.read_text())["cautions"] if one["kind"] == "host_warning"]
    assert busy["found"] in caution["text"]
    assert str(busy["found"]) in campaign.summary_md.read_text() and str(busy["found"]) in campaign.summary_html.read_text()
    unstable = [group for group in results.groups if group.stability and group.stability.verdict is StabilityVerdict.UNSTABLE]
    assert [group.group for group in unstable] == ["a"]
    (advice, *_) = [one for finding in results.verdict.statements for one in finding.advice if one.id == "preflight"]
    assert str(busy["found"]) in advice.text


def test_values_of_an_axis_are_named_in_the_order_of_the_plan_and_not_of_the_folders(tmp_path: Path) -> None:
    paths = write_compared(tmp_path / "out", {"bs32": [30.0, 30.1], "bs8": [20.0, 20.1]})
    plan = read_json(paths.plan)
    for run in plan["runs"]:
        run["axes"] = {"block_size": int(run["group"].removeprefix("bs"))}
    for path in (paths.plan, paths.plans / "factory.json"):
        write_json(path, {**plan, "axes": {"block_size": [8, 32]}})
    (caution,) = [one for one in group_campaign(paths).ranking.cautions if one.kind == "unlike_samples"]
    assert caution.numbers["setting"] == "block_size (8 → 32)"
