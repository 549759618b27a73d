"""Attempts on disk: what is read, what is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial import files
from seatrial.collect import attempts
from seatrial.collect.attempts import read_attempt, read_campaign
from seatrial.collect.stored import read_plan
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.codec import to_json
from seatrial.records.outcome import Outcome
from seatrial.records.run_spec import RunSpec
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import write_attempt


def write_plan(out: Path, *runs: RunSpec, name: str = "demo") -> None:
    files.write_json(out / "plans" / f"{name}.json", to_json(CampaignPlan(name=name, output=str(out), runs=runs)))


def current(out: Path) -> list[tuple[str, int]]:
    return [(attempt.spec.run, attempt.number) for attempt in read_campaign(CampaignPaths(out)) if attempt.current]


def test_an_attempt_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = write_attempt(tmp_path, factory.spec(axes={"bs": 8}, settings={"lr": 0.1}))
    assert read_attempt(AttemptPaths(Path(written.folder))) == written


def test_all_attempts_by_run_then_number(tmp_path: Path) -> None:
    for group, number in (("b", 1), ("a", 10), ("a", 2)):
        write_attempt(tmp_path, factory.spec(group), number=number)
    assert [(one.spec.run, one.number) for one in read_campaign(CampaignPaths(tmp_path))] == [("a_r1", 2), ("a_r1", 10), ("b_r1", 1)]


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"run": "x"}', "null"])
def test_an_unreadable_spec_is_no_attempt(tmp_path: Path, text: str | None) -> None:
    written = write_attempt(tmp_path)
    path = Path(written.folder) / "spec.json"
    path.unlink() if text is None else path.write_text(text)
    assert read_attempt(AttemptPaths(Path(written.folder))) is None
    assert read_campaign(CampaignPaths(tmp_path)) == []


def test_an_unreadable_outcome_is_a_caution(tmp_path: Path) -> None:
    written = write_attempt(tmp_path)
    (Path(written.folder) / "outcome.json").write_text('{"outcome": "exploded", "run": "a"}')
    found = read_attempt(AttemptPaths(Path(written.folder)))
    assert found is not None and found.outcome is None
    assert [caution.kind for caution in found.cautions] == ["unreadable_file"]


def test_without_an_outcome_it_is_unfinished_and_not_a_fault(tmp_path: Path) -> None:
    written = write_attempt(tmp_path, outcome=None)
    found = read_attempt(AttemptPaths(Path(written.folder)))
    assert found is not None and found.outcome is None and found.cautions == ()


def test_only_what_a_plan_asks_for_is_current(tmp_path: Path) -> None:
    asked, changed = factory.spec("a"), factory.spec("b", hash="old")
    write_attempt(tmp_path, asked)
    write_attempt(tmp_path, changed)
    write_plan(tmp_path, asked, factory.spec("b", hash="new"))
    assert current(tmp_path) == [("a_r1", 1)]


def test_the_newest_that_came_to_its_own_end_is_current(tmp_path: Path) -> None:
    run = factory.spec("a")
    write_plan(tmp_path, run)
    for number, outcome in enumerate([Outcome.FAILED, Outcome.OK, Outcome.INTERRUPTED, None], start=1):
        write_attempt(tmp_path, run, number=number, outcome=outcome)
    assert current(tmp_path) == [("a_r1", 2)]
    write_attempt(tmp_path, run, number=5, outcome=Outcome.FAILED)
    assert current(tmp_path) == [("a_r1", 5)]


def test_where_none_came_to_its_end_the_newest_is_current(tmp_path: Path) -> None:
    run = factory.spec("a")
    write_plan(tmp_path, run)
    for number, outcome in enumerate([Outcome.INTERRUPTED, None], start=1):
        write_attempt(tmp_path, run, number=number, outcome=outcome)
    assert current(tmp_path) == [("a_r1", 2)]


def test_two_plans_that_share_a_run_name_each_have_a_current_attempt(tmp_path: Path) -> None:
    one, other = factory.spec("a", hash="one"), factory.spec("a", hash="other")
    write_attempt(tmp_path, one, number=1)
    write_attempt(tmp_path, other, number=2)
    write_plan(tmp_path, one, name="first")
    write_plan(tmp_path, other, name="second")
    assert current(tmp_path) == [("a_r1", 1), ("a_r1", 2)]


def test_without_plans_the_newest_attempt_of_each_run_is_current(tmp_path: Path) -> None:
    write_attempt(tmp_path, factory.spec("a", hash="one"), number=1)
    write_attempt(tmp_path, factory.spec("a", hash="two"), number=2)
    write_attempt(tmp_path, factory.spec("b"))
    assert current(tmp_path) == [("a_r1", 2), ("b_r1", 1)]


def test_the_latest_plan_is_read_once_where_its_copy_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counted(path: Path) -> tuple[CampaignPlan | None, str]:
        read.append(path)
        return read_plan(path)

    monkeypatch.setattr(attempts, "read_plan", counted)
    paths = CampaignPaths(tmp_path)
    write_plan(tmp_path, factory.spec("a"))
    paths.plan.write_bytes((paths.plans / "demo.json").read_bytes())
    (plan,) = attempts.read_plans(paths)
    assert plan.runs == (factory.spec("a"),)
    assert read == [paths.plan]
    write_plan(tmp_path, factory.spec("b"))
    (plan,) = attempts.read_plans(paths)
    assert plan.runs == (factory.spec("b"),)
