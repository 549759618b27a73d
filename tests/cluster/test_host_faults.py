"""Faults of hosts during or before a campaign: cause, advice, exit code, and no process left."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seatrial
from seatrial.records.outcome import Cause, Fault, Outcome, RunOutcome
from seatrial.records.signatures.registry import signature
from tests.cluster.campaigns import DUMMY, LONG, Campaign
from tests.cluster.hosts import Hosts

REFUSED, INCONCLUSIVE = 2, 3
WRITES = """\
import time

for step in range(200):
    with open("/mnt/scratch", "a") as scratch:
        scratch.write("x" * 4096)
    print(step, flush=True)
    time.sleep(0.05)
"""
# Rank 1 fails while rank 0 is still busy.
FAILS = """\
import os, sys, time

time.sleep(1 if os.environ["RANK"] == "1" else 30)
sys.exit(int(os.environ["RANK"]) * 7)
"""
TORCH: dict[str, Any] = {
    **DUMMY,
    "workload": "tiny_lm",
    "settings": {"d_model": 16, "seq_len": 16, "device": "cpu"},
    "launcher": "torchrun",
    "steps": 3,
}
RUN_BY_HAND = """\
deepspeed --hostfile hostfile --launcher pdsh --master_addr node1 --master_port 29511 --no_local_rank sleeps.py
"""
SLEEPS = """\
import time

for step in range(600):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def campaign(hosts: Hosts, tmp_path: Path) -> Iterator[Campaign]:
    """A campaign that must leave no process on any host."""
    campaign = Campaign(hosts, tmp_path)
    yield campaign
    campaign.assert_nothing_left()


def assert_advised(outcome: RunOutcome, *keywords: str) -> None:
    """The advice is that of the signature, and contains these keywords."""
    assert outcome.action == signature(outcome.signature).action.replace("launcher.log", f"nodes/{outcome.host}/launcher.log")
    assert [keyword for keyword in keywords if keyword not in outcome.action] == []


def assert_refused(campaign: Campaign, plan: dict[str, Any], *keywords: str) -> None:
    """Before anything was started, with these keywords, the later error and the remedy."""
    text = campaign.run(plan, code=REFUSED)
    expected = ("refused before anything was started", "Later error: ", "Fix: ", *keywords)
    assert [keyword for keyword in expected if keyword not in text] == [], text


def placed(**place: object) -> dict[str, Any]:
    return {**DUMMY, "place": {**DUMMY["place"], **place}}


def test_a_link_that_is_cut_in_the_middle_of_a_step(campaign: Campaign) -> None:
    started = campaign.start(LONG)
    campaign.wait_for_steps(started, ranks=2)
    campaign.hosts.cut("node2")
    assert started.wait(120) == INCONCLUSIVE, started.output
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.cause, outcome.signature) == (Outcome.FAILED, Cause.HOST_LOST, "node_silent"), outcome
    assert outcome.fault is Fault.INFRASTRUCTURE and outcome.host == "node2"
    assert "node2 was lost" in started.output
    assert_advised(outcome, "network", "seatrial doctor", "again")


def test_a_host_that_goes_down(campaign: Campaign) -> None:
    started = campaign.start(LONG)
    campaign.wait_for_steps(started, ranks=2)
    campaign.hosts.halt("node2")
    assert started.wait(120) == INCONCLUSIVE, started.output
    outcome = campaign.outcome()
    assert (outcome.cause, outcome.signature, outcome.host) == (Cause.HOST_LOST, "node_gone", "node2"), outcome
    assert_advised(outcome, "ssh HOST uptime", "again")


def test_the_head_s_power_lost_leaves_no_rank_on_any_host(campaign: Campaign) -> None:
    started = campaign.start(LONG)
    campaign.wait_for_steps(started, ranks=2)
    campaign.hosts.poweroff("head")
    campaign.assert_nothing_left("node1", "node2")


def test_ssh_that_is_refused(campaign: Campaign) -> None:
    campaign.hosts.refuse_ssh("node2")
    assert_refused(campaign, DUMMY, "node2", "Connection refused", "systemctl start ssh")
    assert not campaign.out.runs()


def test_an_interface_that_is_not_there(campaign: Campaign) -> None:
    assert_refused(campaign, placed(interface="eth9"), "eth9", "eth0", "no socket interface found")


def test_a_port_that_is_blocked(campaign: Campaign) -> None:
    campaign.hosts.block_port("node1", 29777, silent=True)
    assert_refused(campaign, placed(port=29777), "29777", "node1", "firewall")


def test_a_name_that_is_loopback_on_its_own_host(campaign: Campaign) -> None:
    campaign.hosts.resolve("node1", "node1", "127.0.1.1")
    text = campaign.run(TORCH, code=0)
    assert "node1" in text and "127.0.1.1" in text and "/etc/hosts" in text
    campaign.hosts.resolve("node2", "node2", "127.0.1.1")
    assert_refused(campaign, TORCH, "node2", "connectFullMesh failed", "place.interface")


def test_pdsh_that_is_missing(campaign: Campaign) -> None:
    campaign.hosts.hide("head", "pdsh")
    assert_refused(campaign, placed(via="pdsh"), "launcher 'pdsh' not installed", "apt")
    campaign.run(DUMMY)
    assert campaign.nodes().via == "ssh"


def test_a_folder_that_is_not_shared(campaign: Campaign) -> None:
    campaign.out.folder.mkdir()
    campaign.hosts.unshare("node2", campaign.out.folder)
    assert_refused(campaign, DUMMY, "node2", "shared")


def test_a_disk_that_is_full_on_one_host(campaign: Campaign, tmp_path: Path) -> None:
    campaign.hosts.disk("node2", "/mnt", size="1m")
    campaign.hosts.fill("node2", "/mnt")
    (tmp_path / "writes.py").write_text(WRITES)
    plan = {**DUMMY, "workload": {"script": "writes.py", "reads": "none"}, "settings": {}, "steps": None}
    campaign.run({key: value for key, value in plan.items() if value is not None}, code=INCONCLUSIVE)
    outcome = campaign.outcome()
    assert (outcome.cause, outcome.host) == (Cause.DISK_FULL, "node2"), outcome
    assert_advised(outcome, "again")


def test_a_clock_an_hour_ahead_changes_no_figure(campaign: Campaign) -> None:
    skew_s = 3600
    campaign.hosts.skew("node2", skew_s)
    text = campaign.run(DUMMY)
    assert "node2" in text and "clock" in text
    offset_s = campaign.nodes().nodes[1].clock_offset_s
    assert offset_s is not None and abs(offset_s - skew_s) < 60
    first, second = (json.loads(path.read_text().splitlines()[0])["t"] for path in campaign.attempt().all_events())
    assert abs(second - first - skew_s) < 60, "the clocks of the ranks differ too"
    run = campaign.summary()["runs"][0]
    assert 0 < run["startup_sec"] < 60, run
    assert any(caution["kind"] == "clock_skew" and "node2" in caution["text"] for caution in campaign.summary()["cautions"])


def test_pdsh_killed_by_a_signal_costs_the_run_nothing(campaign: Campaign) -> None:
    plan = {**placed(via="pdsh"), "steps": 400}
    started = campaign.start(plan)
    campaign.wait_for_steps(started, ranks=2)
    (pdsh,) = campaign.hosts.processes("head", "pdsh -R")
    campaign.hosts.kill("head", pdsh)
    assert started.wait(120) == 0, started.output
    assert campaign.outcome().outcome is Outcome.OK
    campaign.assert_nothing_left()


def test_a_rank_that_hangs_on_another_host(campaign: Campaign) -> None:
    """Stacks of both hosts are collected, and the host of the hanging rank is named."""
    settings = {"step_ms": 20, "hang_at_step": 20, "hang_rank": 1}
    limits = {"start_s": 60, "run_s": 120, "soft_s": 2, "term_s": 2, "stall": {"floor_s": 5, "factor": 2}}
    campaign.run({**DUMMY, "settings": settings, "limits": limits}, code=2)
    outcome = campaign.outcome()
    assert (outcome.outcome, outcome.rank, outcome.host) == (Outcome.STALLED, 1, "node2"), outcome
    assert "hang_in_python" in outcome.frame and "on node2" in outcome.detail
    assert {path.name for path in campaign.attempt().stacks.iterdir()} >= {"rank0.txt", "rank1.txt"}


# The exit code of the launcher where a rank exits with 7: torchrun turns it into 1.
@pytest.mark.parametrize(("launcher", "code"), [("python", 7), ("torchrun", 1), ("deepspeed", 7)])
def test_one_of_two_exit_codes_is_the_true_one(campaign: Campaign, tmp_path: Path, launcher: str, code: int) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    plan = {**DUMMY, "workload": {"script": "fails.py", "reads": "none"}, "settings": {}, "launcher": launcher}
    del plan["steps"]
    campaign.run(plan, "--set", "env.DS_ACCELERATOR=cpu", code=2)
    outcome = campaign.outcome()
    assert (outcome.exit_code, outcome.host) == (code, "node2"), outcome
    assert campaign.nodes().nodes[1].returncode == code
    assert "7" in outcome.detail


def test_a_missing_or_empty_hostfile_is_never_a_local_run(campaign: Campaign, tmp_path: Path) -> None:
    for text in (None, "", "# nothing\n"):
        (tmp_path / "hostfile").unlink(missing_ok=True)
        if text is not None:
            (tmp_path / "hostfile").write_text(text)
        for plan in (DUMMY, {**DUMMY, "place": {**DUMMY["place"], "ranks": 2}}):
            # Without `ranks` the plan cannot be resolved; with it the preflight refuses.
            output = campaign.run(plan, code=REFUSED if "ranks" in plan["place"] else 1)
            assert "hostfile" in output and not campaign.out.runs(), output


def test_a_slow_link_is_named_by_the_doctor(campaign: Campaign) -> None:
    assert link_speeds(campaign) == {"node1": "ok", "node2": "ok"}
    campaign.hosts.slow("node2", "2mbit")
    assert link_speeds(campaign) == {"node1": "ok", "node2": "warning"}
    campaign.run(DUMMY)
    warnings = [caution["text"] for caution in campaign.summary()["cautions"] if caution["kind"] == "host_warning"]
    assert any("link speed on node2" in text for text in warnings), warnings
    assert link_speeds(campaign, "--fast") == {"node1": "ok", "node2": "warning"}


def link_speeds(campaign: Campaign, *options: str) -> dict[str, str]:
    """Host → status of its link by the doctor."""
    (row,) = [row for row in doctor(campaign, *options)["hosts"]["rows"] if row["name"] == "link speed"]
    assert all("MiB/s" in check["found"] for check in row["hosts"].values()), row
    return {host: check["status"] for host, check in row["hosts"].items()}


def doctor(campaign: Campaign, *options: str) -> dict[str, Any]:
    """The only line of its output that is JSON."""
    text = campaign.run(DUMMY, "--json", *options, verb="doctor")
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(line)  # type: ignore[no-any-return]


def test_versions_that_are_unlike(campaign: Campaign) -> None:
    for package, alike, refuses in (("transformers", "say", False), ("transformers", "refuse", True), ("torch", "say", True)):
        metadata, version = replaced_version(campaign.hosts, "node2", package, "0.0.1")
        text = campaign.run(DUMMY, "--set", f"place.alike={alike}", code=REFUSED if refuses else 0)
        assert "node2" in text and package in text and "0.0.1" in text and version in text, text
        assert ("refused before anything was started" in text) is refuses
        campaign.hosts.unmount("node2", metadata)


def test_a_script_and_a_seatrial_that_are_unlike(campaign: Campaign, tmp_path: Path) -> None:
    script = tmp_path / "prints.py"
    script.write_text("print('one')\n")
    plan = {**DUMMY, "workload": {"script": "prints.py", "reads": "none"}, "settings": {}}
    del plan["steps"]
    campaign.hosts.replace("node2", script, "print('two')\n")
    text = campaign.run(plan, code=REFUSED)
    assert "text of the script on node2: prints.py differs" in text
    campaign.hosts.unmount("node2", script)
    campaign.hosts.replace("node2", seatrial.__file__, Path(seatrial.__file__).read_text() + "# another\n")
    text = campaign.run(plan, code=REFUSED)
    assert "Seatrial version on node2: Seatrial's code differs" in text


def replaced_version(hosts: Hosts, host: str, package: str, version: str) -> tuple[Path, str]:
    """Give a host another version of a package; the replaced file, and the version on the other hosts."""
    found = importlib.metadata.distribution(package)
    metadata = Path(str(found.locate_file(f"{package}-{found.version}.dist-info/METADATA")))
    hosts.replace(host, metadata, metadata.read_text().replace(f"\nVersion: {found.version}\n", f"\nVersion: {version}\n", 1))
    return metadata, found.version


@pytest.mark.torch
def test_pdsh_killed_below_a_deepspeed_runner_that_then_exits_0(campaign: Campaign, tmp_path: Path) -> None:
    """A script of the user that Seatrial only starts: its exit code 0 is not trusted."""
    (tmp_path / "train.sh").write_text(RUN_BY_HAND)
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    plan = {**DUMMY, "workload": {"script": "bash", "args": ["train.sh"]}, "settings": {}, "launcher": "command", "place": "local"}
    del plan["steps"]
    started = campaign.start(plan, "--set", "env.DS_ACCELERATOR=cpu")
    campaign.wait(lambda: campaign.log().count("step 3") >= 2, lambda: started.output + campaign.log())
    (pdsh,) = campaign.hosts.processes("head", "pdsh -S")
    campaign.hosts.kill("head", pdsh)
    assert started.wait(90) == 2, started.output
    outcome = campaign.outcome()
    assert (outcome.exit_code, outcome.outcome, outcome.signature) == (0, Outcome.FAILED, "deepspeed_launcher_killed"), outcome
    assert "0 of 2 ranks" in outcome.detail
