"""A real campaign behind the server: as the report has it, while it grows, while it is remade, and without a byte of it being changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial import files
from seatrial.campaign.owning import owned
from seatrial.campaign.remembered import Remembered
from seatrial.campaign.results import remake
from seatrial.cli.live_view import state_line
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json
from seatrial.report.html.page_data import read_page_data
from seatrial.web import snapshot
from seatrial.web.pace import Pace
from seatrial.web.snapshot import source_of, take
from tests.unit.campaign.made_campaign import RUNS, spec, write_campaign, write_telemetry, write_what_ranks_write
from tests.unit.collect import on_disk
from tests.unit.security.folders import contents
from tests.unit.web.served import Client, live_state, served
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
    return served(source_of(campaign, state_line), Pace(every_s=0, largest_share=1))


def told(client: Client, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.ask(path).text)
    return found


def test_the_data_are_those_that_a_report_would_be_read_back_as(campaign: CampaignPaths) -> None:
    shown = take(campaign, Remembered())
    remake(campaign.folder)
    read = read_page_data(campaign)
    assert shown.tables.keys() == read.tables.keys() and len(shown.tables) >= 8
    for name, table in read.tables.items():
        # As text: a loss that is no number is not equal to itself.
        assert repr(shown.tables[name]) == repr(table), name
    assert {**shown.summary, "generated_at": ""} == {**read.summary, "generated_at": ""}


def test_finished_runs_and_the_one_under_way_are_there(running: CampaignPaths) -> None:
    tables = take(running, Remembered()).tables
    assert UNDER_WAY in tables["steps"]["run"] and "mb8_r1" in tables["steps"]["run"]
    assert len([run for run in tables["steps"]["run"] if run == UNDER_WAY]) > 10
    assert dict(zip(tables["runs"]["run"], tables["runs"]["outcome"], strict=True))[UNDER_WAY] == "running"


def test_how_far_it_is_counts_what_was_done_before_it_was_gone_on_with(running: CampaignPaths) -> None:
    assert "running" not in take(running, Remembered()).summary
    told = take(running, Remembered(), {"finished": 0, "count": 1}).summary["running"]
    assert told == {"finished": RUNS - 1, "count": RUNS}


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
        with owned(running):
            wait_until(lambda: told(client, "/state.json").get("runs_now"))
            assert told(client, "/state.json")["run"]["name"] == UNDER_WAY
            end(running)
        wait_until(lambda: told(client, "/state.json")["over"])
        data = wait_until(lambda: (found := told(client, "/data.json")) and "running" not in outcomes(found) and found)
        assert int(data["version"]) > 1 and {"title", "main", "payload"} <= data.keys()
        assert "ok" in outcomes(data)


def outcomes(data: dict[str, Any]) -> list[str]:
    words: list[str] = data["payload"]["tables"]["runs"]["columns"]["outcome"]["words"]
    return words


def test_the_data_say_how_far_somebody_is_who_runs_it_and_only_then(running: CampaignPaths) -> None:
    source = source_of(running, state_line)
    before = source.mark()
    with owned(running):
        assert source.mark() != before
        how_far = snapshot.running(source.now())
        assert take(running, Remembered(), how_far).summary["running"] == {"finished": 3, "count": 4}
        # A folder in which nothing has been written yet is run, too, but how far nobody knows.
        running.progress.unlink()
        assert snapshot.running(source.now()) is None
    assert source.mark() == before
    assert "running" not in take(running, Remembered(), snapshot.running(source.now())).summary


def test_the_parts_of_the_page_are_made_once(campaign: CampaignPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    make, made = snapshot.page.document_parts, []
    monkeypatch.setattr(snapshot.page, "document_parts", lambda data: made.append(1) or make(data))
    with serving(campaign) as client:
        client.enter()
        assert client.ask("/").status == client.ask("/data.json").status == 200
    assert made == [1]


def test_a_report_made_meanwhile_is_no_news_and_does_no_harm(campaign: CampaignPaths) -> None:
    with serving(campaign) as client:
        client.enter()
        first = client.ask("/data.json").text
        remake(campaign.folder)
        assert client.ask("/data.json").text == first
        assert told(client, "/state.json")["problem"] == ""


def test_a_plan_that_is_torn_meanwhile_is_told_and_the_page_stays(campaign: CampaignPaths) -> None:
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
