"""The live page's data and state."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign.lock import hold_lock
from seatrial.cli.live_view import state_line
from seatrial.core import files
from seatrial.core.paths import CampaignPaths
from seatrial.records.codec import to_json
from seatrial.records.plan import CampaignPlan
from seatrial.results.cache import MeasureCache
from seatrial.results.recompute import recompute
from seatrial.web import snapshot
from seatrial.web.refresher import RefreshPace
from seatrial.web.snapshot import folder_source, read_page_data_now
from seatrial.web.state import NEVER_RAN, CampaignState, read_state, state_json
from tests.unit.collect import on_disk
from tests.unit.results.campaigns import RUNS, spec, write_campaign, write_telemetry, write_what_ranks_write
from tests.unit.security.folders import contents
from tests.unit.web.served import Client, fake_source, live_state, served
from tests.waiting import wait_until

UNDER_WAY = "mb16_r2"
HOSTILE = "mb8</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028\u202e"


@pytest.fixture
def campaign(tmp_path: Path) -> CampaignPaths:
    return write_campaign(tmp_path / "out", steps=60)


@pytest.fixture
def running(campaign: CampaignPaths) -> CampaignPaths:
    """The last run has written its steps and not ended."""
    campaign.run(UNDER_WAY).attempts()[-1].outcome.unlink()
    files.write_json(campaign.progress, to_json(live_state(finished=3, run=UNDER_WAY, attempt=1, step=59, total_steps=60)))
    return campaign


def end(campaign: CampaignPaths) -> None:
    on_disk.write_attempt(campaign.folder, spec("mb16", 2))
    files.write_json(campaign.progress, to_json(live_state(finished=4, over=True)))


def serving(campaign: CampaignPaths) -> Any:
    return served(folder_source(campaign, state_line), RefreshPace(every_s=0, largest_share=1))


def told(client: Client, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.ask(path).text)
    return found


def test_the_tables_are_those_that_a_report_writes(campaign: CampaignPaths) -> None:
    tables = read_page_data_now(campaign, MeasureCache()).drawn.tables
    recompute(campaign.folder)
    written = {path.stem for path in campaign.charts.glob("*.csv")}
    assert written <= tables.keys() and {"groups", "runs", "steps"} <= tables.keys()
    with open(campaign.chart_table("steps"), newline="", encoding="utf-8") as file:
        steps = list(csv.DictReader(file))
    assert [(row["run"], int(row["step"]), float(row["iter_ms"])) for row in steps] == [
        *zip(tables["steps"]["run"], tables["steps"]["step"], tables["steps"]["iter_ms"], strict=True)
    ]


def test_finished_runs_and_the_one_under_way_are_there(running: CampaignPaths) -> None:
    tables = read_page_data_now(running, MeasureCache()).drawn.tables
    assert UNDER_WAY in tables["steps"]["run"] and "mb8_r1" in tables["steps"]["run"]
    assert len([run for run in tables["steps"]["run"] if run == UNDER_WAY]) > 10
    assert dict(zip(tables["runs"]["run"], tables["runs"]["outcome"], strict=True))[UNDER_WAY] == "running"


def test_how_far_it_is_counts_what_was_done_before_it_was_gone_on_with(running: CampaignPaths) -> None:
    assert read_page_data_now(running, MeasureCache()).running is None
    assert read_page_data_now(running, MeasureCache(), running=True).running == (RUNS - 1, RUNS)


def test_nothing_in_the_folder_changes_and_it_may_be_read_only(running: CampaignPaths) -> None:
    folders = [path for path in (running.folder, *running.folder.rglob("*")) if path.is_dir()]
    before = contents(running.folder)
    for folder in folders:
        folder.chmod(0o555)
    try:
        with serving(running) as client:
            client.enter()
            assert client.ask("/").status == client.ask("/data.json").status == client.ask("/state.json").status == 200
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert contents(running.folder) == before


def test_the_page_lives_with_the_campaign(running: CampaignPaths) -> None:
    with serving(running) as client:
        client.enter()
        page = client.ask("/").text
        assert 'name="seatrial-version" content="1"' in page and "/state.json" in page and UNDER_WAY in page
        with hold_lock(running):
            wait_until(lambda: told(client, "/state.json").get("runs_now"))
            assert told(client, "/state.json")["run"]["name"] == UNDER_WAY
            end(running)
        wait_until(lambda: told(client, "/state.json")["over"])
        data = wait_until(lambda: (found := told(client, "/data.json")) and "running" not in outcomes(found) and found)
        assert int(data["version"]) > 1 and {"title", "main", "payload"} <= data.keys()
        assert "ok" in outcomes(data)


def outcomes(data: dict[str, Any]) -> list[str]:
    categories: list[str] = data["payload"]["tables"]["runs"]["columns"]["outcome"]["categories"]
    return categories


def test_the_data_say_how_far_somebody_is_who_runs_it_and_only_then(running: CampaignPaths) -> None:
    source = folder_source(running, state_line)
    before = source.mark()
    with hold_lock(running):
        assert source.mark() != before
        assert snapshot.progress_mark(source.now()) == (3, 4)
        # A folder in which nothing has been written yet is run, too, but how far nobody knows.
        running.progress.unlink()
        assert snapshot.progress_mark(source.now()) is None
    assert source.mark() == before


def test_the_parts_of_the_page_are_made_once(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    make, made = snapshot.page.page_parts, []
    monkeypatch.setattr(snapshot.page, "page_parts", lambda data: made.append(1) or make(data))
    with serving(campaign) as client:
        client.enter()
        assert client.ask("/").status == client.ask("/data.json").status == 200
    assert made == [1]


def test_a_report_made_meanwhile_is_no_news_and_does_no_harm(campaign: CampaignPaths) -> None:
    with serving(campaign) as client:
        client.enter()
        first = client.ask("/data.json").text
        recompute(campaign.folder)
        assert client.ask("/data.json").text == first
        assert told(client, "/state.json")["problem"] == ""


def test_a_plan_that_is_torn_meanwhile_is_reported_and_the_page_stays(campaign: CampaignPaths) -> None:
    plan = campaign.plan.read_text()
    with serving(campaign) as client:
        client.enter()
        assert client.ask("/").status == 200
        for path in (campaign.plan, *campaign.plans.glob("*.json")):
            path.write_text("{")
        wait_until(lambda: "plan" in told(client, "/state.json")["problem"])
        assert client.ask("/").status == 200
        campaign.plan.write_text(plan)
        wait_until(lambda: told(client, "/state.json")["problem"] == "")


def test_a_text_is_packed_for_those_who_can_unpack_it(campaign: CampaignPaths) -> None:
    with serving(campaign) as client:
        client.enter()
        plain, packed = client.ask("/"), client.ask("/", Accept_Encoding="gzip")
        assert packed.headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain.headers
        assert int(packed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 2


def test_the_header_names_the_very_scripts_of_the_page(campaign: CampaignPaths) -> None:
    with serving(campaign) as client:
        answer = client.enter().ask("/")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and policy.endswith("frame-ancestors 'none'")
    assert "connect-src 'self'" in policy and "unsafe-eval" not in policy and "script-src 'unsafe" not in policy


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    campaign = CampaignPaths(tmp_path / "out")
    one = replace(spec("mb8", 1), group=HOSTILE)
    stored = to_json(CampaignPlan(name=HOSTILE, output=str(campaign.folder), repeats=1, runs=(one,)))
    files.write_json(campaign.plan, stored)
    files.write_json(campaign.plans / "one.json", stored)
    attempt = on_disk.write_attempt(campaign.folder, one)
    write_what_ranks_write(attempt, 30, None)
    write_telemetry(attempt)
    with serving(campaign) as client:
        page, data = client.enter().ask("/").text, told(client, "/data.json")
    for text in (page, data["main"]):
        assert "<img src=x" not in text and "<script>alert" not in text
        assert "alert(1)" in text


EVIL = "</script><script>alert(1)</script>\x1b[31m\u2028\u202e\"'&<img src=x onerror=alert(1)>"
UNDER_WAY_WEB_NOW = live_state(
    finished=1,
    failed=1,
    run="mb8_r1",
    attempt=2,
    step=40,
    total_steps=200,
    phase="train",
    elapsed_s=12.34,
    iter_ms_p50=51.2,
    run_eta_s=8.1,
    campaign_eta_s=185.0,
    campaign_eta_low_s=170.0,
    campaign_eta_high_s=210.0,
    alarm="steps take 130 ms",
)


def test_two_bars_in_numbers_and_words() -> None:
    told = state_json(CampaignState(state=UNDER_WAY_WEB_NOW, is_run=True, line="l"))
    assert told["campaign"] == {"name": "demo", "done": 1, "of": 4, "text": "1 of 4 runs · 1 failed · ETA 3m 05s (2m 50s–3m 30s)"}
    words = "attempt 2 · step 40 of 200 · train · 51.2 ms a step · 12.3 s · ETA 8.1 s"
    assert told["run"] == {"name": "mb8_r1", "done": 41, "of": 200, "text": words}
    assert told["state"]["campaign_eta_high_s"] == 210.0 and told["alarm"] == "steps take 130 ms"
    assert told["runs_now"] is True and told["over"] is False


def test_between_runs_before_the_first_step_and_without_a_known_end() -> None:
    between = state_json(CampaignState(state=live_state(finished=2), is_run=True, line="l"))
    assert between["run"] is None and between["campaign"]["text"] == "2 of 4 runs · ETA –"
    first = state_json(CampaignState(state=live_state(run="a", elapsed_s=2.0), is_run=True, line="l"))
    assert first["run"] == {"name": "a", "done": 0, "of": None, "text": "no step yet · 2.0 s · ETA –"}


@pytest.mark.parametrize(
    ("over", "is_run", "says"), [(True, False, True), (True, True, False), (False, False, False), (False, True, False)]
)
def test_it_is_over_when_it_says_so_and_nobody_holds_the_folder(over: bool, is_run: bool, says: bool) -> None:
    assert state_json(CampaignState(state=live_state(over=over), is_run=is_run, line="l"))["over"] is says


def test_what_a_dead_campaign_was_doing_is_no_longer_shown_as_done_now() -> None:
    told = state_json(CampaignState(state=UNDER_WAY_WEB_NOW, is_run=False, line="l"))
    assert told["run"] is None and told["alarm"] == "" and "ETA" not in told["campaign"]["text"]


def test_the_folder_tells_who_runs_it_and_how_it_stands(tmp_path: Path) -> None:
    paths = CampaignPaths(tmp_path)
    assert read_state(paths, state_line) == CampaignState(state=None, is_run=False, line=NEVER_RAN)
    files.write_json(paths.progress, to_json(UNDER_WAY_WEB_NOW))
    with hold_lock(paths):
        now = read_state(paths, state_line)
    assert now.state == UNDER_WAY_WEB_NOW and now.is_run and now.line == state_line(UNDER_WAY_WEB_NOW)
    assert not read_state(paths, state_line).is_run


@pytest.mark.parametrize("text", ["", "[]", '{"t": NaN, "pid": 1, "host": "h", "plan": "p", "count": 1}'])
def test_a_progress_file_of_somebody_else_is_no_state(tmp_path: Path, text: str) -> None:
    paths = CampaignPaths(tmp_path)
    paths.progress.write_text(text)
    assert read_state(paths, state_line).state is None


def test_hostile_names_come_as_text_that_no_reader_acts_on() -> None:
    state = live_state(run=EVIL, plan=EVIL, phase=EVIL, alarm=EVIL, host=EVIL)
    now = CampaignState(state=state, is_run=True, line=state_line(state))
    with served(fake_source(now=lambda: now)) as client:
        client.enter()
        answer = wait_until(lambda: (found := client.ask("/state.json")) and "campaign" in found.text and found)
    assert answer.headers["Content-Type"] == "application/json" and answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not any(letter in answer.text for letter in "\x1b\u2028\u202e")
    told = json.loads(answer.text)
    assert told["state"]["run"] == EVIL
    for shown in (told["line"], told["alarm"], told["run"]["name"], told["run"]["text"], told["campaign"]["name"]):
        assert "\x1b" not in shown and "alert(1)" in shown
