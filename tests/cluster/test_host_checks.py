"""Faults of hosts before a campaign: preflight refuses or the doctor warns, with the host and the remedy, and nothing is started."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import seatrial
from tests.cluster.campaigns import DUMMY, Campaign
from tests.cluster.hosts import Hosts

REFUSED = 2
TORCH: dict[str, Any] = {
    **DUMMY,
    "workload": "tiny_lm",
    "settings": {"d_model": 16, "seq_len": 16, "device": "cpu"},
    "launcher": "torchrun",
    "steps": 3,
}


def assert_refused(campaign: Campaign, plan: dict[str, Any], *keywords: str) -> None:
    """Before anything was started, with these keywords, the later error and the remedy."""
    text = campaign.run(plan, code=REFUSED)
    expected = ("refused before anything was started", "Leads to: ", "Fix: ", *keywords)
    assert [keyword for keyword in expected if keyword not in text] == [], text


def placed(**place: object) -> dict[str, Any]:
    return {**DUMMY, "place": {**DUMMY["place"], **place}}


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
    assert "script contents on node2: prints.py differs" in text
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
