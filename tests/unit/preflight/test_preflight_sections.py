"""All checks together: the shipped plans on this host, the fast form, and the page made from the questions."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.plan.load import load_plan
from seatrial.plan.resolve import resolve
from seatrial.preflight import checks, telemetry
from seatrial.preflight.need import Need, need_of
from seatrial.preflight.question import Question
from seatrial.preflight.reference import markdown
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.check import Check
from tests.unit.preflight.needs import make_run

PLANS = Path(__file__).parents[3] / "plans"


def planned(name: str, output: Path) -> CampaignPlan:
    return resolve(load_plan(PLANS / name), source=name, cwd=Path.cwd(), output=output)


@pytest.mark.parametrize("name", ["dummy-smoke.yaml", "tiny-lm-demo.yaml"])
def test_shipped_cpu_plans_are_not_refused_here(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch") if name.startswith("tiny") else None
    found = checks.fast_checks(need_of(planned(name, tmp_path / "out")))
    assert [check for check in found if not check.ok and check.refuses] == []
    # What depends on who else uses this machine just now may be said.
    assert {check.name for check in found if not check.ok} <= {"other processes", "load", "other campaigns", "memory", "swap", "disk space"}
    assert list(tmp_path.iterdir()) == []


def test_only_chosen_runs_count(tmp_path: Path) -> None:
    lost = make_run(tmp_path, script="gone.py")
    plan = CampaignPlan(name="p", output=str(tmp_path), runs=(lost, make_run(tmp_path, bundled="dummy")))
    assert any(check.name == "script gone.py" for check in checks.fast_checks(need_of(plan)))
    assert need_of(CampaignPlan(name="p", output=str(tmp_path), runs=(lost,), selected=("other",))).runs == ()


def test_the_fast_form_leaves_out_what_may_take_long(tmp_path: Path) -> None:
    need = Need(output=tmp_path)
    fast = [section.subject for section in checks.examine(need, fast=True)]
    full = [section.subject for section in checks.examine(need, fast=False, empty_columns=lambda: {"host_telemetry.csv": ()})]
    assert set(full) - set(fast) == {"names", "telemetry"}


def test_checks_that_break_on_an_odd_host_do_not_stop_a_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(need: Need) -> Iterator[Check]:
        yield Check(name="swap", ok=False, found="none", prevents="x", fix="y")
        raise RuntimeError("no /proc/vmstat")

    monkeypatch.setattr(checks, "SUBJECTS", (checks.Subject(title="memory", questions=(), checks=broken),))
    before, check = checks.examine(Need(output=tmp_path), fast=True)[0].checks
    assert (before.name, before.refuses) == ("swap", True), "what was found before it broke still refuses"
    assert (check.name, check.ok, check.refuses, check.found) == ("checks of memory", False, False, "RuntimeError: no /proc/vmstat")


def test_every_answer_has_a_later_error_and_a_fix(tmp_path: Path) -> None:
    sections = checks.examine(Need(output=tmp_path), fast=True)
    assert all(check.prevents and check.fix and check.found for section in sections for check in section.checks)


def test_empty_columns_are_named() -> None:
    columns = {"gpu_telemetry.csv": tuple("abcdefgh")}
    (check,) = telemetry.checks({"gpu_telemetry.csv": ("a", "b")}, columns)
    assert (check.ok, check.found) == (True, "empty here: a, b")
    assert telemetry.text((), 8) == "all 8 filled"
    assert telemetry.text(tuple("abcdefgh"), 8) == "none will be filled: no GPU driver answers"
    assert telemetry.text(tuple("abcdefg"), 8) == "empty here: a, b, c, d, e, f and 1 more"


QUESTIONS = [question for questions in checks.all_questions().values() for question in questions]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_the_page_describes_every_question(question: Question) -> None:
    page = markdown()
    assert f"| {question.described(question.name)} |" in page
    assert question.described(question.prevents).replace("|", "\\|") in page
    assert not (question.refuses and question.only_tells)


def test_no_two_questions_have_one_name() -> None:
    names = [question.name for question in QUESTIONS]
    assert len(names) == len(set(names))


def test_every_module_of_questions_is_asked() -> None:
    folder = Path(checks.__file__).parent
    asking = {path.stem for path in folder.glob("*.py") if "\nQUESTIONS = (" in path.read_text()}
    assert asking == {question_module(subject) for subject in checks.all_questions() if subject != "any"}


def question_module(title: str) -> str:
    own = {"output": "folders", "data": "datasets", "environment": "variables", "Python and torch": "pythons"}
    return own.get(title, title.lower().translate(str.maketrans(" ", "_", string.punctuation)))
