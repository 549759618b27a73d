"""All checks together: the shipped plans on this host, the fast form, and the page made from the questions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.plan.load import load_plan
from seatrial.plan.resolve import resolve_plan
from seatrial.preflight import run_checks
from seatrial.preflight.check_definition import Need, need_of
from seatrial.records.caution import Check
from seatrial.records.plan import CampaignPlan
from tests.unit.preflight.needs import make_run

PLANS = Path(__file__).parents[3] / "plans"


def planned(name: str, output: Path) -> CampaignPlan:
    return resolve_plan(load_plan(PLANS / name), source=name, cwd=Path.cwd(), output=output)


@pytest.mark.parametrize("name", ["dummy-smoke.yaml", "tiny-lm-demo.yaml"])
def test_shipped_cpu_plans_are_not_refused_here(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch") if name.startswith("tiny") else None
    found = run_checks.fast_checks(need_of(planned(name, tmp_path / "out")))
    assert [check for check in found if not check.ok and check.refuses] == []
    # What depends on who else uses this machine just now may be said.
    assert {check.name for check in found if not check.ok} <= {"other processes", "load", "other campaigns", "memory", "swap", "disk space"}
    assert list(tmp_path.iterdir()) == []


def test_only_chosen_runs_count(tmp_path: Path) -> None:
    lost = make_run(tmp_path, script="gone.py")
    plan = CampaignPlan(name="p", output=str(tmp_path), runs=(lost, make_run(tmp_path, bundled="dummy")))
    assert any(check.name == "script gone.py" for check in run_checks.fast_checks(need_of(plan)))
    assert need_of(CampaignPlan(name="p", output=str(tmp_path), runs=(lost,), selected=("other",))).runs == ()


def test_the_fast_form_leaves_out_what_may_take_long(tmp_path: Path) -> None:
    need = Need(output=tmp_path)
    fast = [section.subject for section in run_checks.examine(need, fast=True)]
    full = [section.subject for section in run_checks.examine(need, fast=False, empty_columns=lambda: {"host_telemetry.csv": ()})]
    assert set(full) - set(fast) == {"names", "telemetry"}


def test_checks_that_break_on_an_odd_host_do_not_stop_a_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(need: Need) -> Iterator[Check]:
        yield Check(name="swap", ok=False, found="none", prevents="x", fix="y")
        raise RuntimeError("no /proc/vmstat")

    monkeypatch.setattr(run_checks, "SUBJECTS", (run_checks.Subject(title="memory", definitions=(), checks=broken),))
    before, check = run_checks.examine(Need(output=tmp_path), fast=True)[0].checks
    assert (before.name, before.refuses) == ("swap", True), "what was found before it broke still refuses"
    assert (check.name, check.ok, check.refuses, check.found) == ("checks of memory", False, False, "RuntimeError: no /proc/vmstat")


def test_every_answer_has_a_later_error_and_a_fix(tmp_path: Path) -> None:
    sections = run_checks.examine(Need(output=tmp_path), fast=True)
    assert all(check.prevents and check.fix and check.found for section in sections for check in section.checks)


def test_empty_columns_are_named() -> None:
    columns = run_checks.TELEMETRY_COLUMNS["gpu_telemetry.csv"]
    for empty, found in (
        ((), f"all {len(columns)} filled"),
        (tuple("abcdefg"), "empty here: a, b, c, d, e, f and 1 more"),
        (columns, "none will be filled: no GPU driver answers"),
    ):
        (check,) = run_checks.check_telemetry({"gpu_telemetry.csv": empty})
        assert (check.ok, check.found) == (True, found)


DEFINITIONS = [definition for definitions in run_checks.all_definitions().values() for definition in definitions]


def test_no_two_questions_have_one_name() -> None:
    names = [definition.name for definition in DEFINITIONS]
    assert len(names) == len(set(names))
    assert not any(definition.refuses and definition.informational for definition in DEFINITIONS)
