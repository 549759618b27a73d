"""site.yaml: found by name or beside the plan, checked, and in every run without changing its hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.core.errors import PlanError, UsageError
from seatrial.core.paths import AttemptPaths
from seatrial.launch.launchers.environment import environment
from seatrial.launch.places.allocation import local_allocation
from seatrial.plan.load import load_plan
from seatrial.plan.resolve import resolve_plan
from seatrial.plan.site import find_site, load_site, with_site
from seatrial.records.plan import CampaignPlan

SITE = """
name: lab
interface: eth0
env: {NCCL_IB_DISABLE: "1", GLOO_USE_IPV6: "0", NCCL_DEBUG: WARN}
shared: /mnt/sharedfs
activate: ["source /opt/venv/bin/activate"]
slurm: {partition: gpu, account: physics}
"""


def plan_at(tmp_path: Path, place: str) -> tuple[CampaignPlan, CampaignPlan]:
    """Without the site, and with it."""
    (tmp_path / "plan.yaml").write_text(f"name: p\nworkload: dummy\nsteps: 3\nenv: {{NCCL_DEBUG: INFO}}\nplace: {place}\n")
    plan = resolve_plan(load_plan(tmp_path / "plan.yaml"), source="plan.yaml", cwd=tmp_path)
    (tmp_path / "site.yaml").write_text(SITE)
    found = find_site(None, tmp_path / "plan.yaml")
    assert found == tmp_path / "site.yaml"
    return plan, with_site(plan, load_site(found), found)


def test_a_job_takes_from_the_site_what_its_plan_leaves_open(tmp_path: Path) -> None:
    plain, at_site = plan_at(tmp_path, "{kind: slurm, partition: debug}")
    (before,), (run,) = plain.runs, at_site.runs
    assert run.hash == before.hash
    assert run.place.slurm is not None and run.site is not None
    assert (run.place.slurm.partition, run.place.slurm.account, run.place.interface) == ("debug", "physics", "eth0")
    assert run.site.activate == ("source /opt/venv/bin/activate",)


def test_ranks_of_every_place_get_its_variables_and_the_plan_counts_first(tmp_path: Path) -> None:
    _, at_site = plan_at(tmp_path, "local")
    (run,) = at_site.runs
    given = {one.name: one for one in environment(run, local_allocation(run, 1), AttemptPaths(tmp_path), {"NCCL_IB_DISABLE": "0"})}
    assert (given["NCCL_IB_DISABLE"].value, given["NCCL_IB_DISABLE"].set_by, given["NCCL_IB_DISABLE"].replaced) == ("1", "site", "0")
    assert given["NCCL_SOCKET_IFNAME"].value == given["GLOO_SOCKET_IFNAME"].value == "eth0"
    assert (given["NCCL_DEBUG"].value, given["NCCL_DEBUG"].set_by) == ("INFO", "plan")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: lab\nintreface: eth0\n", "unknown key; did you mean 'interface'"),
        ("name: lab\nenv: {SEATRIAL_RANK: x}\n", "not a variable that a site can set"),
        ("name: lab\nshared: data\n", "is not an absolute path"),
        ("name: lab\nslurm: {partition: 'a b'}\n", "does not fit"),
        ("name: lab\ncontainer: {mounts: ['/a:/a']}\n", "image"),
        ("name: lab\ncontainer: {image: 'a;b'}\n", "does not fit"),
        ("name: lab\ncontainer: {image: a, mounts: ['data']}\n", "is not a mount"),
    ],
)
def test_a_wrong_site_is_refused_by_key_and_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(PlanError, match=problem):
        load_site(tmp_path / "site.yaml")


def test_a_site_by_name_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="there is no"):
        find_site("lab", None)
    folder = tmp_path / ".config/seatrial/sites"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text(SITE)
    assert find_site("lab", None) == folder / "lab.yaml"
    with pytest.raises(UsageError, match="did you mean 'lab'"):
        find_site("labb", None)
