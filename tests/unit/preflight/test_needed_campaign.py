"""A plan that needs another campaign to have passed: what is refused, and what is not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.campaign import preflight
from seatrial.core.errors import PlanError, RefusedError
from seatrial.core.files import read_json, write_json
from seatrial.core.hostfile import HostSpec
from seatrial.core.paths import AttemptPaths, CampaignPaths
from seatrial.machine.provenance import compute_fingerprint, gather_provenance, tuning_of, with_host_facts
from seatrial.plan.load import load_plan
from seatrial.plan.resolve import resolve_plan
from seatrial.preflight import needed_campaign
from seatrial.preflight.needed_campaign import check_needed
from seatrial.records.attempt import HostFacts, Provenance
from seatrial.records.caution import Check
from seatrial.records.codec import to_json
from seatrial.records.outcome import Outcome, RunOutcome
from seatrial.records.plan import HOSTFILE, LOCAL, PERNODE, SLURM, CampaignPlan, NeededCampaign, PlaceSpec
from seatrial.records.verdict import CampaignVerdict, Criterion, Finding, Verdict
from tests.unit.preflight.needs import make_need, make_run

CALLER = {"PATH": "/usr/bin:/bin", "NCCL_ALGO": "Ring"}
READY = "stage1_stability"


def write_campaign(
    root: Path,
    verdict: Verdict = Verdict.PASS,
    *,
    ready: str = READY,
    partial: bool = False,
    confounded: tuple[str, ...] = (),
    edit: Callable[[Provenance], Provenance] = replace,
) -> NeededCampaign:
    """A campaign that was run here, by a shell with the base environment's variables."""
    paths = CampaignPaths(root / "b")
    criterion = Criterion(metric="iter_ratio_max", scope="every_group", at_most=2.5, ready=ready)
    finding = Finding(id="1", criterion=criterion, verdict=verdict, text="2.9 in z0 is above 2.5.")
    found = edit(gather_provenance(root, (), env=CALLER, tuning=tuning_of(CALLER, {})))
    for run in ("z0_r1", "z0_r2"):
        write_attempt(paths, run, 1, Outcome.OK, found)
    write_json(paths.verdict, to_json(CampaignVerdict(verdict=verdict, findings=(finding,), partial=partial, confounded=confounded)))
    return NeededCampaign(campaign=str(paths.folder), ready=READY, plan="plans/phase-b.yaml")


def write_attempt(paths: CampaignPaths, run: str, number: int, how: Outcome | None, found: Provenance) -> AttemptPaths:
    """The first ended an hour ago, later ones now; without an outcome, one that has not ended."""
    attempt, ended_t = paths.run(run).attempt(number), time.time() - (3600 if number == 1 else 0)
    write_json(attempt.provenance, to_json(replace(found, fingerprint=compute_fingerprint(found))))
    if how is not None:
        outcome = RunOutcome(run=run, attempt=number, hash="h", outcome=how, started_t=ended_t - 1, ended_t=ended_t)
        write_json(attempt.outcome, to_json(outcome))
    return attempt


def checked(root: Path, needs: NeededCampaign) -> Check:
    need = replace(make_need(make_run(root, bundled="dummy"), base_env=dict(CALLER)), needs=needs)
    (found,) = check_needed(need)
    return found


def test_a_plan_without_needs_has_no_such_check(tmp_path: Path) -> None:
    assert list(check_needed(make_need(make_run(tmp_path, bundled="dummy")))) == []


def test_a_campaign_that_passed_here_is_enough(tmp_path: Path) -> None:
    assert checked(tmp_path, write_campaign(tmp_path)).ok


def test_a_missing_campaign_is_refused_with_what_to_run(tmp_path: Path) -> None:
    found = checked(tmp_path, NeededCampaign(campaign=str(tmp_path / "b"), plan="plans/phase b.yaml"))
    assert (found.ok, found.refuses, found.found) == (False, True, "there is no such campaign")
    assert "`seatrial run 'plans/phase b.yaml'`" in found.fix and "--ignore-needs" in found.fix


def test_a_campaign_that_did_not_pass_is_refused_with_its_reason(tmp_path: Path) -> None:
    assert checked(tmp_path, write_campaign(tmp_path, Verdict.FAIL)).found == "its verdict is FAIL: 2.9 in z0 is above 2.5"
    assert "INCONCLUSIVE" in checked(tmp_path, write_campaign(tmp_path, Verdict.INCONCLUSIVE)).found
    assert "still to be run" in checked(tmp_path, write_campaign(tmp_path, partial=True)).found
    assert checked(tmp_path, write_campaign(tmp_path, ready="")).found == f"it was not judged by {READY}"
    marked = checked(tmp_path, write_campaign(tmp_path, confounded=("graph is on in z0 and off in z1",)))
    assert not marked.ok and marked.found.startswith("it is PASS with confounded groups compared anyway (graph is on in z0")
    CampaignPaths(tmp_path / "b").verdict.write_text("{")
    assert "verdict.json is missing" in checked(tmp_path, write_campaign_without_verdict(tmp_path)).found


def write_campaign_without_verdict(root: Path) -> NeededCampaign:
    needs = write_campaign(root)
    CampaignPaths(root / "b").verdict.unlink()
    return needs


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (Outcome.FAILED, "attempt 2 of z0_r1 ended after its verdict.json"),
        (None, "attempt 2 of z0_r1 has not ended, and is newer than its verdict.json"),
    ],
)
def test_a_verdict_that_is_older_than_an_attempt_is_refused_until_it_is_reported_again(
    tmp_path: Path, how: Outcome | None, named: str
) -> None:
    needs = write_campaign(tmp_path)
    paths = CampaignPaths(tmp_path / "b")
    age(paths.verdict, 60)
    write_attempt(paths, "z0_r1", 2, how, gather_provenance(tmp_path, (), env=CALLER, tuning=tuning_of(CALLER, {})))
    found = checked(tmp_path, needs)
    assert (found.ok, found.refuses, found.found) == (False, True, named)
    assert f"report it again: `seatrial report {needs.campaign}`" in found.fix
    paths.verdict.touch()
    assert checked(tmp_path, needs).ok, "it was reported again, and passed"


def test_an_outcome_that_the_report_rejects_does_not_end_an_attempt(tmp_path: Path) -> None:
    needs = write_campaign(tmp_path)
    paths = CampaignPaths(tmp_path / "b")
    age(paths.verdict, 60)
    first = paths.run("z0_r1").attempt(1)
    later = write_attempt(paths, "z0_r1", 2, None, gather_provenance(tmp_path, (), env=CALLER, tuning=tuning_of(CALLER, {})))
    write_json(later.outcome, read_json(first.outcome))
    age(later.outcome, 3600)
    assert not checked(tmp_path, needs).ok, "it is attempt 1's, from before the verdict"


def test_a_copied_folder_and_a_host_with_a_fast_clock_have_no_newer_attempts(tmp_path: Path) -> None:
    needs = write_campaign(tmp_path)
    paths = CampaignPaths(tmp_path / "b")
    outcome = paths.run("z0_r1").attempt(1).outcome
    outcome.touch()
    assert checked(tmp_path, needs).ok
    write_json(outcome, {**(read_json(outcome) or {}), "ended_t": time.time() + 600})
    age(outcome, 60)
    assert checked(tmp_path, needs).ok


def age(path: Path, by_s: float) -> None:
    os.utime(path, (time.time() - by_s,) * 2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"driver_version": "555.1"}, "driver_version 555.1 there"),
        ({"host": "elsewhere"}, "host elsewhere there"),
        ({"packages": {"torch": "0.1"}}, "torch 0.1 there"),
        ({"variables": {}}, "NCCL_ALGO none there, Ring here"),
    ],
)
def test_another_machine_or_other_software_is_refused_by_name(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    needs = write_campaign(tmp_path, edit=lambda found: replace(found, **changes))  # type: ignore[arg-type]
    assert named in checked(tmp_path, needs).found


NODES = {name: HostFacts(name=name, host=name, cpu="Xeon", gpus=("H100", "H100"), driver_version="550") for name in ("node1", "node2")}


def on_hosts(root: Path, asked: dict[str, HostFacts], was: dict[str, HostFacts], kind: str = HOSTFILE) -> Check:
    """A plan on hosts `asked`, whose phase B ran on hosts `was`; none for this machine alone."""
    hosts = tuple(HostSpec(name=name, ranks=2) for name in NODES)
    place = {HOSTFILE: PlaceSpec(kind=HOSTFILE, ranks=4, hosts=hosts), LOCAL: PlaceSpec(), PERNODE: PlaceSpec(kind=PERNODE, nodes=2)}
    place[SLURM] = PlaceSpec(kind=SLURM, nodes=2)
    needs = write_campaign(root, edit=lambda found: with_host_facts(found, list(was), was))
    run = replace(make_run(root, bundled="dummy"), place=place[kind])
    # As before a campaign: the head has no ranks of its own.
    need = replace(make_need(run, base_env=dict(CALLER)), runs=(), whole_runs=(run,), needs=needs, host_facts=asked)
    (found,) = check_needed(need)
    return found


@pytest.mark.parametrize("kind", [HOSTFILE, PERNODE])
def test_hosts_are_compared_with_those_of_the_needed_campaign(tmp_path: Path, kind: str) -> None:
    assert on_hosts(tmp_path, NODES, NODES, kind).ok
    other = {**NODES, "node2": replace(NODES["node2"], driver_version="555")}
    assert "driver_version of the hosts 550 there, 550, 555 here" in on_hosts(tmp_path, other, NODES, kind).found
    assert "one machine there, 2 hosts here" in on_hosts(tmp_path, NODES, {}, kind).found
    # Another host of the same kind is the same machine, but for node 0's name.
    again = {"node1": NODES["node1"], "node2": replace(NODES["node2"], host="node3")}
    assert on_hosts(tmp_path, again, NODES, kind).ok


def test_hosts_then_and_this_machine_now_are_not_the_same(tmp_path: Path) -> None:
    assert "2 hosts there, one machine here" in on_hosts(tmp_path, {}, NODES, LOCAL).found


@pytest.mark.parametrize(("kind", "said"), [(HOSTFILE, "the hosts are compared when"), (SLURM, "not known yet, so machine and software")])
def test_what_is_not_compared_is_said(tmp_path: Path, kind: str, said: str) -> None:
    found = on_hosts(tmp_path, {}, NODES, kind)
    assert found.ok and said in found.found and "on this machine" not in found.found


def test_every_run_of_the_plan_is_compared_and_not_the_first_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []

    def gather(cwd: Path, devices: tuple[str, ...], **how: Any) -> Provenance:
        seen.append(devices)
        found = gather_provenance(cwd, (), **how)
        return replace(found, gpu_name="A100") if devices == ("2",) else found

    needs = write_campaign(tmp_path)
    monkeypatch.setattr(needed_campaign, "gather_provenance", gather)
    runs = [replace(make_run(tmp_path, bundled="dummy"), place=PlaceSpec(devices=(gpu,))) for gpu in ("1", "1", "2")]
    need = replace(make_need(*runs, base_env=dict(CALLER)), needs=needs)
    (found,) = check_needed(need)
    assert not found.ok and "gpu_name none there, A100 here" in found.found and seen == [("1",), ("2",)], "alike ones once"


def test_other_code_is_not_another_platform(tmp_path: Path) -> None:
    assert checked(tmp_path, write_campaign(tmp_path, edit=lambda found: replace(found, git_commit_hash="a" * 40, git_diff_sha256="b"))).ok


def test_runs_without_provenance_are_no_pass(tmp_path: Path) -> None:
    needs = write_campaign(tmp_path)
    for run in CampaignPaths(tmp_path / "b").runs():
        run.attempt(1).provenance.unlink()
    assert "what it ran on is unknown" in checked(tmp_path, needs).found


PLAN = "name: c\nworkload: dummy\nneeds: {campaign: outputs/b, ready: stage1_stability, plan: b.yaml}\noutput: out\n"


def resolved(path: Path, *overrides: str) -> CampaignPlan:
    return resolve_plan(load_plan(path, overrides), source=str(path), cwd=path.parent.parent)


def test_the_key_in_a_plan(tmp_path: Path) -> None:
    (tmp_path / "plans" / "mine").mkdir(parents=True)
    base, mine = tmp_path / "plans" / "c.yaml", tmp_path / "plans" / "mine" / "d.yaml"
    base.write_text(PLAN)
    mine.write_text("extends: ../c.yaml\nname: d\n")
    folder = str(tmp_path / "outputs" / "b")
    assert resolved(base).needs == NeededCampaign(campaign=folder, ready=READY, plan=str(tmp_path / "plans" / "b.yaml"))
    # The plan that runs it is beside the file that names it.
    inherited = resolve_plan(load_plan(mine), source=str(mine), cwd=tmp_path).needs
    assert inherited is not None and Path(inherited.plan).resolve() == tmp_path / "plans" / "b.yaml"
    assert resolved(base, "needs=null").needs is None
    assert resolved(base, "needs=outputs/b").needs == NeededCampaign(campaign=folder)
    assert [run.hash for run in resolved(base).runs] == [run.hash for run in resolved(base, "needs=null").runs], "no part of a run"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("needs.campain=x", "did you mean 'campaign'?"),
        ("needs.ready=stage1_stabilty", "did you mean 'stage1_stability'?"),
        ("needs.campaign=' '", "is empty"),
        ("needs=3", "must be a mapping"),
    ],
)
def test_a_mistake_is_answered(tmp_path: Path, override: str, words: str) -> None:
    (tmp_path / "p").mkdir()
    path = tmp_path / "p" / "c.yaml"
    path.write_text(PLAN)
    with pytest.raises(PlanError) as caught:
        resolved(path, override)
    assert words in str(caught.value)


def test_the_campaign_is_refused_before_it_starts_unless_the_user_insists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p").mkdir()
    path = tmp_path / "p" / "c.yaml"
    path.write_text(PLAN)
    plan = resolved(path)
    monkeypatch.setattr(preflight, "fast_checks", lambda need: list(check_needed(need)))
    with pytest.raises(RefusedError, match=r"needed campaign .*/outputs/b: there is no such campaign"):
        preflight.run_preflight(plan, CampaignPaths(tmp_path / "out"))
    assert plan.needs is not None
    insisted = replace(plan, needs=replace(plan.needs, enforced=False))
    (warning,) = preflight.run_preflight(insisted, CampaignPaths(tmp_path / "out")).warnings
    assert warning.name.startswith("needed campaign") and not warning.refuses
