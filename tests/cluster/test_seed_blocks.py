"""The blocks for many machines of the seeds and of our runbook, and the shipped plans for many hosts, run on two hosts.

One rank per host, toy models, the real deepspeed runner over the real pdsh. They leave the same files as a block on one machine, and every
host took part.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deepspeed")

from tests.cluster.hosts import cluster
from tests.cluster.runbook_blocks import SeedLane, has_section, make_lane
from tests.csv_files import rows_of
from tests.runbooks.blocks import MANY_HOSTS
from tests.runbooks.expected_files import check_launch
from tests.runbooks.rewrites import STEPS

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

CHECKS = "README Many machines"
SMOKE = "README Smoke run on many machines"
FINAL = "README Final training on many machines"
WITHOUT_SSH = "README Many machines without ssh"
# The final training of the seed is the same work as ours (tests/runbooks/test_blocks_have_plans.py).
OVER_PDSH = ("000 3.5", "001 6") if has_section("001 6") else (FINAL,)
RANK_HOSTS = {"0": "node1", "1": "node2"}
PLANS = "../../plans/many-hosts"
GATE = "--master-addr node1 --master-port 29500"
# The rows of the seed's record.
RECORD_ROWS = (
    "launch topology",
    "launcher start",
    "first step",
    "last step",
    "launcher end",
    "start-up before the first step",
    "loop, first step → last",
    "end to end",
    "steps/s",
    "samples/s",
    "iter p50, median",
    "step p50, median",
    "loss, first → last",
    "ETA error, median",
    "ETA error, p90",
    "fatal tracebacks",
    "workers ended well",
    "harmless warnings",
)


@pytest.fixture(scope="module")
def lane(_reason: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeedLane]:
    if _reason:
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)(f"no hosts can be created here: {_reason}")
    base = tmp_path_factory.mktemp("seeds")
    with cluster(nodes=2, folder=base) as hosts:
        yield make_lane(hosts, base)


def test_every_section_for_many_hosts_is_run_here() -> None:
    assert {"000 3.5", "001 6", FINAL, CHECKS, SMOKE, WITHOUT_SSH} == set(MANY_HOSTS)


@pytest.mark.parametrize("key", OVER_PDSH, ids=lambda key: key.replace(" ", "-"))
def test_a_block_over_pdsh_trains_on_every_host(lane: SeedLane, key: str) -> None:
    ran = lane.run(key)
    assert ran.returncode == 0, ran.stdout[-6000:]
    for host in lane.hosts.nodes:
        assert f"{host}: " in ran.stdout and ran.stdout.count("exits successfully") == 2, ran.stdout[-6000:]
    check_trained(check_launch(lane.work, lane.call(key)))
    assert_nothing_left(lane)


def test_without_ssh_one_command_on_each_host_trains_on_both(lane: SeedLane) -> None:
    with ssh_refused(lane):
        ran = typed_on_each(lane, lane.text(WITHOUT_SSH))
    assert [one.returncode for one in ran] == [0, 0], "\n".join(one.stdout[-4000:] for one in ran)
    check_trained(check_launch(lane.work, lane.call(WITHOUT_SSH)))


@pytest.mark.parametrize(
    ("hidden", "hostfile", "error"),
    [
        ("", "hostfile", ""),
        ("pdsh", "hostfile", "[FATAL] pdsh missing"),
        ("ninja", "hostfile", "[FATAL] ninja missing"),
        ("", "nowhere", "[FATAL] hostfile missing/empty"),
        ("", "comments", "[FATAL] hostfile missing/empty"),
    ],
)
def test_the_checks_print_the_line_of_the_seeds_and_exit_with_2(lane: SeedLane, hidden: str, hostfile: str, error: str) -> None:
    (lane.work / "comments").write_text("# node1 slots=2\n\n")
    path = path_without(hidden, lane.work / f"without_{hidden}") if hidden else ""
    ran = lane.run(CHECKS, change=lambda text: path + text.replace(" hostfile", f" {hostfile}"))
    assert ran.returncode == (2 if error else 0), ran.stdout
    assert ran.stdout.splitlines()[0] == error if error else "a hostfile of 2 hosts" in ran.stdout


def test_the_smoke_plan_leaves_the_rows_of_the_record(lane: SeedLane) -> None:
    ran = lane.run(SMOKE)
    out = lane.work / "outputs" / "stage1" / "multinode-smoke"
    check_campaign_ran(out, ran)
    (attempt,) = out.glob("*/attempt-1")
    assert json.loads((attempt / "nodes.json").read_text())["via"] == "pdsh"
    for name in ("launcher.log", "host_telemetry.csv"):
        assert (attempt / "nodes" / "node2" / name).stat().st_size, name
    (record,) = json.loads((out / "summary.json").read_text())["smoke_records"]
    unknown = [name for name in RECORD_ROWS if record["rows"].get(name, "–").startswith("–")]
    assert not unknown, f"not in the record: {unknown}\n{record}"
    assert record["rows"]["launch topology"] == "nnodes=2, procs per node=1, world size=2"
    assert (record["rows"]["fatal tracebacks"], record["rows"]["workers ended well"]) == ("none", "2 of 2")
    section = (out / "summary.md").read_text().partition("## Smoke record")[2].partition("\n## ")[0]
    assert [name for name in RECORD_ROWS if f"| {name} |" not in section] == [], section


def test_the_pernode_plan_runs_on_both_hosts_without_ssh(lane: SeedLane) -> None:
    with ssh_refused(lane):
        ran = typed_on_each(lane, lane.text(WITHOUT_SSH, 1))
    check_campaign_ran(lane.work / "outputs" / "stage1" / "multinode-pernode", *ran)


@pytest.mark.parametrize(
    ("plan", "options"),
    [("dummy-hostfile", "--only mb8"), ("tiny-lm-two-hosts", "--only mb8 --set steps=15"), ("tcp-only", "")],
)
def test_a_ready_plan_runs_over_the_hosts_of_a_hostfile(lane: SeedLane, plan: str, options: str) -> None:
    ran = lane.ended(lane.type_on("head", f"seatrial run {PLANS}/{plan}.yaml --set repeats=1 {options}"))
    check_campaign_ran(lane.work / "outputs" / "many-hosts" / plan, ran)


def test_a_ready_plan_runs_per_node(lane: SeedLane) -> None:
    command = f"seatrial run {PLANS}/dummy-pernode.yaml --set repeats=1 --only mb8 --node-rank $NODE_RANK {GATE}"
    ran = typed_on_each(lane, f"NODE_RANK=0\n{command}")
    check_campaign_ran(lane.work / "outputs" / "many-hosts" / "dummy-pernode", *ran)


def typed_on_each(lane: SeedLane, text: str) -> list[subprocess.CompletedProcess[str]]:
    """The same text on every host at once, each with its node rank."""
    started = [lane.type_on(host, text.replace("NODE_RANK=0", f"NODE_RANK={rank}")) for rank, host in enumerate(lane.hosts.nodes)]
    return [lane.ended(one) for one in started]


@contextlib.contextmanager
def ssh_refused(lane: SeedLane) -> Iterator[None]:
    """Without sshd on any host."""
    for host in lane.hosts.names:
        lane.hosts.refuse_ssh(host)
    try:
        yield
    finally:
        for host in lane.hosts.names:
            lane.hosts.allow_ssh(host)


def check_trained(folder: Path) -> None:
    """Every rank wrote heartbeats from its own host, and took every step."""
    for rank, host in RANK_HOSTS.items():
        heartbeats = [json.loads(line) for line in (folder / f"heartbeat_rank{rank}.jsonl").read_text().splitlines()]
        assert {heartbeat["host"] for heartbeat in heartbeats} == {host}
        events = [json.loads(line) for line in (folder / f"events_rank{rank}.jsonl").read_text().splitlines()]
        assert events[-1]["kind"] == "stop" and {event["rank"] for event in events} == {int(rank)}
    assert f"Step {STEPS - 1}: Loss" in (folder / "train.log").read_text()


def check_campaign_ran(out: Path, *commands: subprocess.CompletedProcess[str]) -> None:
    """All runs ended well, with a rank on each host; the exit codes are equal and those of the verdict."""
    output = "\n".join(one.stdout[-4000:] for one in commands)
    codes = {one.returncode for one in commands}
    assert len(codes) == 1 and (out / "run_manifest.tsv").exists(), f"{codes}\n{output}"
    rows = rows_of(out / "run_manifest.tsv")
    assert rows and {(row["status"], row["world_size"]) for row in rows} == {("success", "2")}, output
    verdict = json.loads((out / "verdict.json").read_text())
    assert codes == {{"PASS": 0, "FAIL": 2, "INCONCLUSIVE": 3}[verdict["verdict"]]}, output
    for nodes in out.glob("*/attempt-1/nodes.json"):
        record = json.loads(nodes.read_text())
        assert [(node["host"], node["returncode"]) for node in record["nodes"]] == [("node1", 0), ("node2", 0)]
    with open(out / "per_run_metrics.csv", newline="") as text:
        assert list(csv.DictReader(text))


def assert_nothing_left(lane: SeedLane) -> None:
    for host in lane.hosts.nodes:
        assert not lane.hosts.commands(host, "train.py")


def path_without(program: str, folder: Path) -> str:
    """The assignment of a PATH without that program."""
    folder.mkdir()
    for name in ("bash", "env", "grep", "dirname", "readlink", *({"pdsh", "ninja"} - {program})):
        found = subprocess.run(["bash", "-c", f"command -v {name}"], capture_output=True, text=True, check=True).stdout.strip()
        (folder / name).symlink_to(found)
    return f"PATH={folder} "
