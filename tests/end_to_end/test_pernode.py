"""A campaign on two nodes without ssh: two real commands that share a folder. Node 1 is this machine under another host name (a UTS
namespace), since two nodes on one host are refused; they connect to this machine's own address."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from seatrial.machine.network import is_loopback, list_interfaces
from tests.harness import ENVIRONMENT, Harness
from tests.waiting import wait_until

PLAN = """\
name: pernode
workload: dummy
launcher: python
place: {kind: pernode, nodes: 2}
repeats: 2
steps: 30
settings: {step_ms: 20}
limits: {soft_s: 1, term_s: 2}
telemetry: {gpu_s: null, host_s: null}
output: out
"""
LONG = PLAN.replace("steps: 30", "steps: 3000").replace("repeats: 2", "repeats: 1")


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def own_address() -> str:
    """An address that is not loopback: ranks of two hosts could not connect there."""
    found = [
        address for addresses in list_interfaces().values() for address in addresses if not is_loopback(address) and ":" not in address
    ]
    return found[0] if found else ""


def has_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*AS_ANOTHER_HOST, "true"], capture_output=True, check=False).returncode == 0


AS_ANOTHER_HOST = ("unshare", "--uts", "sh", "-c", 'hostname other-host && exec "$@"', "sh")
ADDRESS = own_address()


@pytest.fixture(scope="module")
def _reason() -> str:
    if not ADDRESS:
        return "no network address"
    return "" if has_namespaces() else "no UTS namespace (unshare --uts)"


@pytest.fixture(autouse=True)
def _possible(_reason: str) -> None:
    """Skip, or fail under CI=1, where a skipped test would show nothing."""
    if _reason:
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)(f"no second node here: {_reason}")


def start(harness: Harness, rank: int, port: int, *options: str) -> subprocess.Popen[str]:
    argv = ["run", "plan.yaml", "--node_rank", str(rank), "--master_addr", ADDRESS, "--master_port", str(port), *options]
    process = subprocess.Popen(
        [*(AS_ANOTHER_HOST if rank else ()), sys.executable, "-m", "seatrial", *argv],
        cwd=harness.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**ENVIRONMENT, "SEATRIAL_FALLBACK_DIR": str(harness.fallback)},
    )
    harness.started.append(process)
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    text, _ = process.communicate(timeout=120)
    return process.returncode, text


def steps_are_done(harness: Harness, run: str = "base_r1") -> bool:
    events = harness.out.run(run).attempt(1).events(1)
    return events.exists() and '"step"' in events.read_text()


def test_both_run_their_share_and_a_node_with_another_plan_is_refused(harness: Harness, port: int) -> None:
    harness.plan(PLAN)
    node0 = start(harness, 0, port, "--only", "base")
    code, text = ended(start(harness, 1, port, "--set", "steps=31"))
    assert code == 1 and "(hash " in text
    code, text = ended(start(harness, 1, port))
    code0, text0 = ended(node0)
    assert (code, code0) == (0, 0), text0 + text
    assert f"waiting for node1 (start there: seatrial run plan.yaml --only base --node-rank 1 --master-addr {ADDRESS}" in text0
    assert "is refused" in text0 and "PASS " in text0
    assert "base_r2: started here" in text and "base_r2: finished on this node" in text and "the campaign has ended (exit code 0)" in text
    attempt = harness.out.run("base_r2").attempt(1)
    assert len(attempt.all_events()) == 2
    assert attempt.node("node1").launcher_log.exists() and not attempt.node("node0").launcher_log.exists()
    assert not harness.out.pernode_server_file.exists()
    assert [row["status"] for row in harness.manifest()] == ["success"] * 2


def test_a_command_stopped_by_its_user_fails_the_run(harness: Harness, port: int) -> None:
    harness.plan(LONG)
    other, node0 = start(harness, 1, port), start(harness, 0, port)
    wait_until(lambda: steps_are_done(harness), "steps are done on node 1")
    other.send_signal(signal.SIGINT)
    code, text = ended(other)
    code0, text0 = ended(node0)
    assert code == 130, text
    assert code0 == 3 and "command on node1 has ended" in text0, text0
    outcome = json.loads(harness.out.run("base_r1").attempt(1).outcome.read_text())
    assert outcome["outcome"] == "failed", outcome


def test_when_node_0_is_killed_the_other_leaves_nothing(harness: Harness, port: int) -> None:
    harness.plan(LONG)
    other, node0 = start(harness, 1, port), start(harness, 0, port)
    wait_until(lambda: steps_are_done(harness), "steps are done on node 1")
    node0.kill()
    node0.wait()
    code, text = ended(other)
    assert code == 1 and "lost node 0" in text and "Nothing runs here" in text, text
    wait_until(lambda: harness.left_behind() == [], "everything is gone", 60)
    assert harness.out.pernode_server_file.exists(), "left by the dead process; the next command ignores it"
    other, node0 = start(harness, 1, port, "--set", "steps=5"), start(harness, 0, port, "--set", "steps=5")
    code0, text0 = ended(node0)
    assert code0 == 0, text0
    assert ended(other)[0] == 0


def test_a_killed_command_costs_nothing_when_it_is_started_again(harness: Harness, port: int) -> None:
    harness.plan(PLAN.replace("steps: 30", "steps: 150"))
    other, node0 = start(harness, 1, port), start(harness, 0, port)
    wait_until(lambda: steps_are_done(harness), "steps are done on node 1")
    other.kill()
    other.wait()
    # The agent continues without it; the next run waits.
    wait_until(harness.out.run("base_r1").attempt(1).outcome.exists, "the first run is over")
    again = start(harness, 1, port)
    (code0, text0), (code, text) = ended(node0), ended(again)
    assert (code0, code) == (0, 0), text0 + text
    assert "command on node1 has ended" in text0 and "seatrial run plan.yaml --node-rank 1" in text0
    assert [row["status"] for row in harness.manifest()] == ["success"] * 2


def test_node_0_stopped_ends_both(harness: Harness, port: int) -> None:
    harness.plan(LONG)
    other, node0 = start(harness, 1, port), start(harness, 0, port)
    wait_until(lambda: steps_are_done(harness), "steps are done on node 1")
    node0.send_signal(signal.SIGTERM)
    (code0, text0), (code, text) = ended(node0), ended(other)
    assert (code0, code) == (130, 130), text0 + text


def test_node_0_stopped_while_it_waits(harness: Harness, port: int) -> None:
    harness.plan(PLAN)
    node0 = start(harness, 0, port)
    wait_until(harness.out.pernode_server_file.exists, "node 0 waits")
    node0.send_signal(signal.SIGINT)
    code, text = ended(node0)
    assert code == 130 and "stopped while waiting for node1; nothing was run" in text
    assert not harness.out.pernode_server_file.exists() and not harness.out.owner.exists()


def test_a_port_in_use_is_reported_at_once(harness: Harness) -> None:
    harness.plan(PLAN)
    with socket.create_server(("", 0)) as server:
        code, text = ended(start(harness, 0, server.getsockname()[1]))
    assert code == 1 and "is in use on this node" in text
    assert not harness.out.pernode_server_file.exists()
