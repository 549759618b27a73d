"""summary.html: texts, policy, escaping, sections, and the Vega bundle."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import re
import stat
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.records.caution import Caution
from seatrial.records.columns import RunCharts
from seatrial.records.plan import CampaignPlan
from seatrial.records.results import CampaignResults
from seatrial.records.verdict import CampaignVerdict, Criterion, Evidence, Finding, Verdict
from seatrial.report.html import page as document_module
from seatrial.report.html import sections
from seatrial.report.html.data import PageData, page_data
from seatrial.report.html.page import assemble, page_parts, summary_page, vega_bundle
from seatrial.report.html.sections import NO_TABLES, NOTHING, SECTIONS, content
from seatrial.report.html.vega import HOW_TO_ZOOM
from seatrial.report.text import NONE
from seatrial.report.view.campaign import NOTE_TEXTS, RECOMMENDED
from seatrial.report.view.problems import DECIDES_NOTHING
from tests.unit.report import charted_factory, factory
from tests.unit.report.html.made_page import made_page, made_results
from tests.unit.report.html.read_page import Read

BUNDLE = "window.vegaEmbed=1;"
HOSTILE = "</script><script>alert(1)</script>\u2028\u202e<!--\"'&{{7*7}}"


@pytest.fixture(autouse=True)
def bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "vega_bundle", lambda: BUNDLE)


@pytest.fixture
def data() -> PageData:
    return page_data(factory.results())


def test_every_section_is_there_in_order_and_says_something(data: PageData) -> None:
    page = Read(summary_page(data))
    assert page.open == []
    assert [one["id"] for one in page.of("section")] == [id for id, _ in SECTIONS]
    assert [one["href"] for one in page.of("a")][1 : len(SECTIONS) + 1] == [f"#{id}" for id, _ in SECTIONS]


def test_the_verdict_comes_first_in_words(data: PageData) -> None:
    text = Read(page_parts(data)["main"]).text
    assert text.startswith("demo Verdict: FAIL 1 of 2 criteria failed: failed_runs")
    assert text.index("no proven winner") < text.index("platform unknown") < text.index("1,270") < text.index("95 % interval")


def test_a_page_of_a_campaign_that_runs_says_so_first(data: PageData) -> None:
    running = dataclasses.replace(data, running=(2, 4))
    text = Read(page_parts(running)["main"]).text
    assert text.startswith("demo ▶ RUNNING, 2 of 4 So far: FAIL ")
    assert Read(summary_page(running)).of("section")[0]["class"] == "verdict running"


def test_the_head_of_a_failed_campaign_leads_to_its_failures(data: PageData) -> None:
    page = Read(page_parts(data)["main"])
    assert page.of("a")[0]["href"] == "#failures" and "what failed: cuda_oom" in page.text
    assert page.text.index("What to do: Lower micro_batch") < page.text.index("Criteria")
    without = page_data(factory.results(runs=(factory.measured("mb16_nw2", 1),)))
    assert "#failures" not in [one["href"] for one in Read(page_parts(without)["main"]).of("a")]


def finding(verdict: Verdict, text: str = "t", *, id: str = "a", metric: str = "", evidence: tuple[Evidence, ...] = ()) -> Finding:
    criterion = Criterion(metric=metric, scope="campaign") if metric else None
    return Finding(id=id, kind=id.partition(":")[0], criterion=criterion, verdict=verdict, text=text, evidence=evidence)


def judged(verdict: Verdict = Verdict.FAIL, *, findings: Any = (), statements: Any = (), **more: Any) -> CampaignResults:
    return factory.results(verdict=CampaignVerdict(verdict=verdict, findings=tuple(findings), statements=tuple(statements)), **more)


def test_what_is_between_backticks_is_code_in_findings() -> None:
    main = page_parts(page_data(judged(statements=[finding(Verdict.FAIL, "look at `top <b>`")])))["main"]
    assert "look at <code>top &lt;b&gt;</code>" in main


def test_what_a_pointer_can_do_is_reported_on_the_screen_alone() -> None:
    shown = document_module.caption_markup(f"Of <b>. {HOW_TO_ZOOM} More.")
    assert shown == f'Of &lt;b&gt;. <span class="on-screen">{HOW_TO_ZOOM}</span> More.'
    assert document_module.caption_markup("plain & simple") == "plain &amp; simple"


def test_the_policy_allows_the_pages_own_scripts_and_nothing_else(data: PageData) -> None:
    page = Read(summary_page(data))
    policy = next(one["content"] for one in page.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    run = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in run]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": " ".join(hashes),
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert len(run) == 3


def test_nothing_is_fetched_from_anywhere(data: PageData) -> None:
    text = summary_page(data)
    page = Read(text)
    addresses = [
        value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href", "srcset", "action")
    ]
    beside = {name for name, _ in content(data, [], has_bundle=True)["files"]}
    assert all(value and (value.startswith(("#", "data:")) or value in beside) for value in addresses)
    assert beside and not [name for name in beside if ":" in name or name.startswith("/")]
    # A link fetches nothing before somebody follows it; nothing else names a file.
    assert not [tag for tag, attributes in page.elements if tag != "a" and beside & set(attributes.values())]
    assert "@import" not in text and "url(" not in text


def test_a_live_page_may_ask_its_own_server_and_runs_its_script(data: PageData) -> None:
    page = Read(assemble(page_parts(data), live="follow();", head='<meta name="seatrial-version" content="3">'))
    policy = next(one["content"] for one in page.of("meta") if one.get("http-equiv"))
    assert policy is not None and policy.endswith("connect-src 'self'")
    assert page.scripts[-1] == ({"type": "module"}, "follow();")
    assert {"name": "seatrial-version", "content": "3"} in page.of("meta")


def test_hostile_words_are_read_as_words() -> None:
    plain = Read(summary_page(made_page(steps=25)))
    results = made_results(steps=25, name=HOSTILE)
    verdict = dataclasses.replace(results.verdict, findings=(finding(Verdict.FAIL, HOSTILE, id=HOSTILE, metric=HOSTILE),))
    cautions = (Caution(kind=HOSTILE, text=HOSTILE, subject=HOSTILE),)
    plans = (CampaignPlan(name=HOSTILE, output=HOSTILE),)
    text = summary_page(page_data(dataclasses.replace(results, verdict=verdict, cautions=cautions, plans=plans)))
    page = Read(text)
    assert page.open == []
    assert len(page.scripts) == len(plain.scripts)
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert "</script><script>alert(1)</script> <!--\"'&{{7*7}}" in page.text
    assert "\u202e" not in text and "\u2028" not in text


def test_the_payload_is_whole_json_and_holds_the_tables(data: PageData) -> None:
    page = Read(summary_page(data))
    attributes, text = next(one for one in page.scripts if one[0].get("id") == "page-data")
    told = json.loads(text)
    assert attributes["type"] == "application/json"
    assert told["tables"]["groups"]["rows"] == 4
    assert told["picks"] == {"runs": [], "timeline": ""}
    assert [chart["id"] for chart in told["charts"]] == re.findall(r'id="chart-(\w+)"', summary_page(data))


def test_the_parts_are_what_the_page_is_made_of(data: PageData) -> None:
    parts = page_parts(data)
    assert set(parts) == {"title", "main", "payload", "sections"}
    assert parts["main"] in summary_page(data)
    assert json.loads(json.dumps(parts, allow_nan=False)) == parts


def test_without_the_drawing_package_the_page_says_how_to_get_it(data: PageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "vega_bundle", lambda: None)
    page = Read(summary_page(data))
    assert "pip install 'seatrial[charts]'" in page.text
    assert {one["data-state"] for one in page.of("figure")} == {"empty"}
    assert [one.get("type") for one, _ in page.scripts] == [None, "application/json", "module"]


def test_a_campaign_that_has_not_begun_has_a_page() -> None:
    text = Read(summary_page(page_data(factory.empty_results()))).text
    assert "1 run still to be run: mb16_nw2_r1" in text
    assert "No group could be ranked yet." in text


def test_bytes_that_are_no_text_are_spelt_out() -> None:
    results = dataclasses.replace(factory.results(), plans=(CampaignPlan(name="odd\udcff", output="out"),))
    assert b"odd\\udcff" in summary_page(page_data(results)).encode()


def test_the_ranking_has_figures_as_every_report_has_them() -> None:
    main, off_lane = sections.ranking_tables(factory.results())
    assert main["columns"][:8] == ["#", "group", "note", "samples/s", "95 % interval", "to best", "micro_batch", "loader"]
    assert main["titles"][8:] == ["wall p90/p50", "start-up", "runs", "window", "n"]
    first = main["rows"][0]
    assert first["cells"][:2] == ["1", "mb16_nw2"] and first["cells"][3].startswith("1,2") and first["cells"][6:8] == ["16", "fork"]
    assert off_lane["title"].startswith("Off the main lane") and off_lane["rows"][0]["cells"][1] == factory.ODD
    assert all(len(row["cells"]) == len(main["columns"]) for row in main["rows"])


@pytest.mark.parametrize(("decided", "debug"), [(True, ()), (True, ("NCCL_DEBUG=INFO",)), (False, ()), (False, ("NCCL_DEBUG=INFO",))])
def test_the_winner_is_out_and_who_is_only_recommended_is_not(decided: bool, debug: tuple[str, ...]) -> None:
    groups = tuple(dataclasses.replace(group, debug=debug) for group in factory.groups())
    results = factory.results(groups=groups, ranking=factory.ranking(decided=decided), pending=())
    row = sections.ranking_tables(results)[0]["rows"][0]
    note = ("winner" if decided else NOTE_TEXTS[RECOMMENDED]) + (", debug on" if debug else "")
    assert (row["cells"][2], row["won"], row["class"]) == (note, decided, "good" if decided else "open")
    first = content(page_data(results), [], has_bundle=True)["first"]["rows"][0]
    assert (first["group"], first["won"]) == ("mb16_nw2", decided) and ("debug on" in first["note"]) == bool(debug)


def test_a_group_that_has_not_run_has_no_figures_and_is_not_called_bad() -> None:
    waiting = dataclasses.replace(factory.summary("mb16_nw2"), group="mb64", group_key="key-mb64", runs=0, figures={}, window_n=0)
    row = sections.ranking_tables(factory.results(not_started=(waiting,)))[0]["rows"][-1]
    assert row["class"] == "quiet" and row["cells"][1] == "mb64" and row["cells"][-2:] == [NONE, NONE]


def test_an_axis_may_have_the_name_of_a_column() -> None:
    groups = tuple(dataclasses.replace(group, axes={"n": 4, "compile": True}) for group in factory.groups())
    table = sections.ranking_tables(factory.results(groups=groups))[0]
    assert table["columns"][6:8] == ["n (axis)", "compile"] and table["columns"].count("n") == 1
    assert table["rows"][0]["cells"][6:8] == ["4", "true"]


def test_findings_have_their_id_their_word_and_their_numbers() -> None:
    first = sections.criteria(factory.results())[0]
    assert (first["id"], first["word"], first["mark"]) == ("1-failed_runs-campaign", "FAIL", "✗")
    assert first["criterion"] == "failed_runs, scope campaign, at most 0"
    assert first["evidence"]["rows"] and len(first["evidence"]["rows"][0]) == len(first["evidence"]["columns"])


def test_a_finding_over_many_runs_shows_some_numbers_and_says_how_to_see_all() -> None:
    many = tuple(Evidence(subject=f"r{at}", value=at, file="a.csv") for at in range(100))
    (shown,) = sections.criteria(judged(findings=[finding(Verdict.PASS, evidence=many)]))
    assert len(shown["evidence"]["rows"]) == sections.MAX_NUMBERS
    assert shown["evidence"]["more"].startswith("and 70 numbers more")
    assert shown["evidence"]["columns"] == ["subject", "value", "file"]


def test_statements_are_by_what_they_say() -> None:
    found = [finding(verdict) for verdict in (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL, Verdict.PASS)]
    parts = sections.statements(judged(statements=found))
    assert [(part["verdict"], len(part["findings"])) for part in parts] == [("FAIL", 1), ("INCONCLUSIVE", 1), ("PASS", 2)]
    # What decides nothing does not say FAIL.
    assert [part["findings"][0]["word"] for part in parts] == ["problem", "unknown", "ok"]


def test_failures_that_a_criterion_counts_are_not_reported_to_change_nothing() -> None:
    failed = [finding(Verdict.FAIL, id="failure:cuda_oom")]

    def note(results: CampaignResults) -> str:
        return str(content(page_data(results), [], has_bundle=True)["statements_note"])

    assert note(judged(Verdict.FAIL, statements=failed)) == ""
    assert note(judged(Verdict.PASS, statements=failed)) == note(judged(Verdict.FAIL)) == DECIDES_NOTHING


def test_the_head_says_which_criteria_decide() -> None:
    verdicts = {"a": Verdict.PASS, "b": Verdict.INCONCLUSIVE, "c": Verdict.FAIL, "d": Verdict.INCONCLUSIVE}
    found = [finding(verdict, metric, metric=metric) for metric, verdict in verdicts.items()]

    def facts(findings: list[Finding], verdict: Verdict, **more: Any) -> str:
        results = judged(verdict, findings=findings, **{"pending": (), **more})
        return str(content(page_data(results), [], has_bundle=True)["headline"][0]["text"])

    assert [one["text"] for one in sections.criteria(judged(findings=found))] == ["c", "b", "d", "a"]
    assert facts(found, Verdict.FAIL).startswith("1 of 4 criteria failed: c; 2 undecided: b, d; 6 of 7 runs ok")
    assert facts(found[:2], Verdict.INCONCLUSIVE).startswith("1 of 2 criteria undecided: b;")
    assert facts(found[:2], Verdict.INCONCLUSIVE, pending=("x", "y")).endswith("6 of 9 runs ok, 2 still to be run")
    assert facts(found[:1], Verdict.PASS).startswith("1 of 1 criterion met;")


def test_while_it_runs_the_head_says_so_and_no_advice_is_given() -> None:
    open_finding = [finding(Verdict.INCONCLUSIVE, metric="a")]
    data = page_data(judged(Verdict.INCONCLUSIVE, findings=open_finding, pending=("x", "y")))

    def head(running: tuple[int, int] | None) -> dict[str, Any]:
        shown: dict[str, Any] = content(dataclasses.replace(data, running=running), [], has_bundle=True)["verdict"]
        return shown

    assert head(None)["running"] == "" and "same command" in head(None)["partial"][0]
    begun = head((0, 2))
    assert begun["running"] == "RUNNING, 0 of 2" and begun["winners"] == "No run has ended yet."
    assert begun["partial"] == ["Partial: 2 runs still to be run."]
    assert head((1, 2))["running"] == "RUNNING, 1 of 2" and head((1, 2))["winners"] == head(None)["winners"]


def test_the_folder_is_named_and_not_where_it_lies() -> None:
    shown = content(page_data(factory.results(output="/home/somebody/out/demo", plans=())), [], has_bundle=True)
    assert shown["head"]["output"] == "demo" and shown["title"] == "demo"


def test_a_failure_says_what_to_do_and_shows_its_lines() -> None:
    shown = content(page_data(factory.results()), [], has_bundle=True)
    (failure,) = shown["failures"]
    assert failure["cause"] == "cuda_oom" and failure["runs"] == "mb8_nw2_r2" and shown["more"][0] == ("failures", "what failed: cuda_oom")
    assert failure["ended"] == "Ended failed after 12.0 s."
    assert any("<script>" in line for line in (*failure["telling"], *failure["log_tail"]))


def test_a_sentence_on_a_hundred_groups_can_be_opened() -> None:
    others = "mb16_nw2 is tied with " + ", ".join(f"group_{at}" for at in range(100))
    results = factory.results(ranking=factory.ranking(reason=f"{others}."))
    verdict = content(page_data(results), [], has_bundle=True)["verdict"]
    assert len(verdict["winners"]) < len(others) and others in verdict["others"]
    assert content(page_data(factory.results()), [], has_bundle=True)["verdict"]["others"] == ""


def test_an_empty_section_says_why() -> None:
    without = content(page_data(factory.empty_results()), [], has_bundle=True)["nothing"]
    run = dataclasses.replace(factory.measured("mb16_nw2", 1), charts=RunCharts(tables={"steps": charted_factory.steps([16.0])}))
    with_steps = content(page_data(factory.results(runs=(run,))), [], has_bundle=True)["nothing"]
    assert without["phases"] == NO_TABLES and with_steps["phases"] == NOTHING["phases"]
    assert without["heat"].endswith("this campaign has 0 axes.")


BODY = "const long = 1;" * 10_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A package that makes a bundle at once; what it was asked for."""
    seen: list[str] = []
    install(monkeypatch, lambda snippet: seen.append(snippet) or f"{BODY}\rconst end = '</script></body><!--';\r\nwindow.vegaEmbed=a;")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return seen


def install(monkeypatch: pytest.MonkeyPatch, make: Callable[[str], str]) -> None:
    module = types.ModuleType("vl_convert")
    module.javascript_bundle = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vl_convert", module)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")


def test_it_is_made_once(asked: list[str], tmp_path: Path) -> None:
    first, second = vega_bundle(), vega_bundle()
    assert first is not None and first == second and len(asked) == 1
    assert [path.name for path in (tmp_path / "cache" / "seatrial").iterdir()] == ["vega-9.9.js"]


def test_nothing_in_it_ends_the_script_or_is_another_to_the_browser(asked: list[str]) -> None:
    text = vega_bundle() or ""
    assert "</" not in text and "<!--" not in text and "\r" not in text
    assert "<\\/script><\\/body>" in text


def test_a_kept_one_that_was_cut_short_is_made_again(asked: list[str], tmp_path: Path) -> None:
    whole = vega_bundle()
    kept = tmp_path / "cache" / "seatrial" / "vega-9.9.js"
    kept.write_text(BODY)
    assert vega_bundle() == whole and len(asked) == 2
    assert kept.read_text() == whole


def test_a_kept_one_that_others_could_have_written_is_made_again(asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = vega_bundle()
    kept = tmp_path / "cache" / "seatrial" / "vega-9.9.js"
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700 and stat.S_IMODE(kept.stat().st_mode) == 0o600
    planted = f"{BODY}alert(1);window.vegaEmbed=a;"
    for times, mode in enumerate((0o620, 0o602), start=2):
        kept.write_text(planted)
        kept.chmod(mode)
        assert vega_bundle() == whole and len(asked) == times
    kept.write_text(planted)
    assert vega_bundle() == planted
    monkeypatch.setattr(os, "geteuid", lambda: kept.stat().st_uid + 1)
    assert vega_bundle() == whole


def test_a_cache_that_cannot_be_written_costs_time_only(asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    first, second = vega_bundle(), vega_bundle()
    assert first is not None and first == second and len(asked) == 1


def test_without_a_home_there_is_no_cache(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "~")
    assert vega_bundle() is not None


def test_a_package_that_makes_nonsense_gives_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    install(monkeypatch, lambda snippet: "nonsense")
    assert vega_bundle() is None


def test_without_a_package_that_can_be_loaded_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for version in (lambda name: "9.9", unknown):
        monkeypatch.setattr(importlib.metadata, "version", version)
        assert vega_bundle() is None
