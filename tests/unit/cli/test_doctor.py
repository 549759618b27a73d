"""`doctor` and the hosts in `plan show`."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from seatrial.campaign import preflight
from seatrial.cli import doctor
from seatrial.cli.doctor import failed_checks, host_table, place_of
from seatrial.cli.main import run_command
from seatrial.cli.plan import allocation_of_node_0, is_unknown, print_hosts, rank_span
from seatrial.core.hostfile import HostSpec
from seatrial.launch.host_queries import HostSessions
from seatrial.preflight.check_definition import CheckRow, HostSection, HostsExamined, Need, Section
from seatrial.records.caution import Check
from seatrial.records.launch import Node
from seatrial.records.plan import CampaignPlan, PlaceSpec, RunSpec
from tests.facts import states
from tests.unit.launch.factory import allocation_for, make_spec

SECTIONS = (
    Section(
        subject="output",
        checks=(
            Check(name="output folder", ok=True, found="/data/out can be written to", prevents="PermissionError", fix="choose another"),
            Check(
                name="disk space",
                ok=False,
                found="1.0 MiB free in /data",
                prevents="OSError: [Errno 28] No space left on device",
                fix="free at least 200.0 MiB or choose another disk with --out",
            ),
        ),
    ),
    Section(
        subject="load",
        checks=(
            Check(
                name="other processes",
                ok=False,
                found="2.0 of 2 cores in use by others: python (pid 22072) 98 %, python (pid 22425) 98 %, stress (pid 1) 4 %",
                prevents="step times slowed by other processes",
                fix="end them",
                refuses=False,
            ),
            Check(name="a name that is far too long for its column", ok=True, found="fine", prevents="nothing", fix="none"),
        ),
    ),
)
SHOWN = """\
output
  ✓ output folder    /data/out can be written to
  ✗ disk space       1.0 MiB free in /data
      leads to: OSError: [Errno 28] No space left on device
      fix:      free at least 200.0 MiB or choose another disk with --out
load
  ! other processes  2.0 of 2 cores in use by others: python (pid 22072) 98 %,
                     python (pid 22425) 98 %, stress (pid 1) 4 %
      leads to: step times slowed by other processes
      fix:      end them
  ✓ a name that is far too long for its column
                     fine
"""


def shown(width: int, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="replace")
    doctor.print_sections(Console(file=stream, width=width, markup=False, highlight=False), SECTIONS)
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_the_table_at_80_columns() -> None:
    assert shown(80) == SHOWN


def test_a_narrow_terminal_still_shows_every_word() -> None:
    text = shown(40)
    assert text.split() == SHOWN.split()
    assert max(len(line) for line in text.splitlines() if "too long" not in line) <= 40


def test_a_terminal_without_the_marks_gets_plain_ones() -> None:
    text = shown(80, "ascii")
    assert "?" not in text and "  ok output folder" in text and "  X disk space" in text and "  ! other" in text


def test_this_host_in_general(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["doctor", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["refused"], document["plan"]) == (0, None) and document["took_s"] > 0
    assert {"subject", "status", "name", "ok", "found", "prevents", "fix", "refuses"} <= set(document["checks"][0])
    assert {check["subject"] for check in document["checks"]} >= {"GPUs", "telemetry", "names", "load"}
    assert "a campaign may start" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_would_be_refused_exits_2(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text("name: p\nworkload: {script: gone.py}\noutput: out\n")
    # The plan itself wants the script's bytes, so it must be there when the plan is read.
    (tmp_path / "gone.py").write_text("")
    (tmp_path / "bad.yaml").write_text("name: p\nworkload: dummy\nlauncher: {kind: python, program: [./no-such-python]}\noutput: out\n")
    assert run_command(["doctor", "plan.yaml", "--fast"]) == 0
    assert run_command(["doctor", "bad.yaml", "--fast", "--json"]) == 2
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [check["name"] for check in document["checks"] if check["status"] == "refused"] == ["program ./no-such-python"]


MARKS = {"ok": "✓", "warning": "!", "refused": "✗"}


def check(name: str, ok: bool = True, found: str = "fine", refuses: bool = True) -> Check:
    return Check(name=name, ok=ok, found=found, prevents="Permission denied (publickey)", fix="ssh-copy-id", refuses=refuses)


def many(count: int) -> HostsExamined:
    hosts = tuple(f"node{number}" for number in range(count))
    ssh = {host: check("ssh", ok=host != "node1", found="denied" if host == "node1" else "fine") for host in hosts}
    clock = {host: check("clock", ok=host not in ("node0", "node2"), found="off", refuses=False) for host in hosts if host != "node1"}
    return HostsExamined(
        hosts=hosts,
        sections=(
            HostSection(subject="sessions", rows=(CheckRow(name="ssh", checks=ssh),)),
            HostSection(subject="clocks", rows=(CheckRow(name="clock", checks=clock),)),
        ),
    )


def text(examined: HostsExamined, width: int = 80) -> str:
    return "\n".join(line for line, _ in host_table(examined, MARKS, width)) + "\n"


def test_three_hosts_are_three_columns() -> None:
    assert text(many(3)) == (
        "hosts       node0  node1  node2\n  sessions\n    ssh       ✓      ✗      ✓\n  clocks\n    clock     !      ·      !\n"
    )


def test_64_hosts_are_counts_and_the_odd_ones_by_name() -> None:
    assert text(many(64)) == "hosts      64\n  sessions\n    ssh    ✓ 63  ✗ node1\n  clocks\n    clock  ✓ 61  ! node0, node2\n"


def test_the_head_has_a_column_of_its_own_where_it_is_no_host() -> None:
    row = CheckRow(name="pdsh", checks={"this machine": check("pdsh")})
    found = HostsExamined(hosts=("node0",), sections=(HostSection(subject="programs", rows=(row,)),))
    assert text(found).splitlines()[0].split() == ["hosts", "node0", "this", "machine"]


def test_findings_name_their_hosts() -> None:
    assert [found.name for section in failed_checks(many(64)) for found in section.checks] == ["ssh on node1", "clock on node0, node2"]


def test_it_is_printed_with_the_later_error_and_the_fix() -> None:
    for encoding in ("utf-8", "ascii"):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding)
        doctor.print_hosts(Console(file=stream, width=80), many(3))
        stream.flush()
        printed = raw.getvalue().decode()
        assert "leads to: Permission denied (publickey)" in printed and "fix:      ssh-copy-id" in printed


def test_a_hostfile_without_a_plan(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("node1 slots=2\nnode2 slots=2\n")
    place = place_of(Need(output=tmp_path), tmp_path / "hostfile", "eth0")
    assert place is not None and [host.name for host in place.hosts] == ["node1", "node2"] and place.interface == "eth0"
    assert place_of(Need(output=tmp_path), None, "eth0") is None


def test_a_hostfile_that_is_missing_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["doctor", "--fast", "--hostfile", str(tmp_path / "none")]) == 1
    assert "no such hostfile" in capsys.readouterr().err


def test_doctor_asks_every_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hostfile").write_text("localhost slots=1\nnode2 slots=1\n")
    monkeypatch.chdir(tmp_path)

    def refused(commands: dict[str, tuple[str, ...]], **more: object) -> HostSessions:
        denied = ("sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255")
        return HostSessions({name: denied if words[0] == "ssh" else words for name, words in commands.items()})

    monkeypatch.setattr(preflight, "HostSessions", refused)
    assert run_command(["doctor", "--fast", "--json", "--hostfile", "hostfile"]) == 2
    printed = capsys.readouterr()
    hosts = json.loads(printed.out)["hosts"]
    assert hosts["names"] == ["localhost", "node2"] and list(hosts["facts"]) == ["localhost"]
    (ssh,) = [row for row in hosts["rows"] if row["name"] == "ssh"]
    assert ssh["hosts"]["node2"]["status"] == "refused" and ssh["hosts"]["localhost"]["status"] == "ok"
    assert "ssh-copy-id node2" in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["hostfile"]


def test_nodes_that_nobody_can_enter_are_looked_at_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"name: p\nworkload: dummy\nlauncher: python\nplace: {{kind: pernode, nodes: 3, ranks: 6}}\noutput: {tmp_path}/out\n")
    assert run_command(["doctor", "--fast", str(plan)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("nodes:")]
    assert states(line, "all 3", "when the campaign starts")


HOSTS = (HostSpec(name="node1", ranks=2, devices=("0", "1")), HostSpec(name="node2", ranks=1, devices=("3",)))
ON_HOSTS = PlaceSpec(kind="hostfile", hostfile="hosts", ranks=3, hosts=HOSTS)


def run_on(place: PlaceSpec) -> RunSpec:
    return replace(make_spec("/"), place=place)


def shown_plan_hosts(*places: PlaceSpec) -> str:
    text = io.StringIO()
    print_hosts(Console(file=text, width=100), CampaignPlan(name="x", output="/out", runs=tuple(map(run_on, places))))
    return text.getvalue()


@pytest.mark.parametrize(("ranks", "text"), [(1, "4"), (2, "4-5"), (8, "4-11")])
def test_the_ranks_of_a_node(ranks: int, text: str) -> None:
    assert rank_span(Node(name="n", node_rank=1, first_rank=4, ranks=ranks)) == text


def test_a_run_on_this_machine_shows_nothing() -> None:
    assert shown_plan_hosts(PlaceSpec()) == ""


def test_a_table_for_each_way_in_which_ranks_lie_on_hosts() -> None:
    lines = shown_plan_hosts(ON_HOSTS, ON_HOSTS, PlaceSpec()).splitlines()
    assert lines[0] == "hosts: 3 ranks on 2 hosts of hosts"
    assert [line.split() for line in lines[1:4]] == [
        ["host", "node_rank", "ranks", "devices"],
        ["node1", "0", "0-1", "0,1"],
        ["node2", "1", "2", "3"],
    ]
    assert len(lines) == 4, "once for both runs"


def test_a_hostfile_that_cannot_be_read_here_is_reported() -> None:
    unknown = PlaceSpec(kind="hostfile", hostfile="gone", ranks=8)
    assert is_unknown(unknown) and not is_unknown(ON_HOSTS) and not is_unknown(PlaceSpec())
    assert shown_plan_hosts(unknown) == "hosts: unknown, since gone cannot be read here; 8 ranks\n"


def test_the_command_that_is_shown_is_node_0s(tmp_path: Path) -> None:
    spec = run_on(ON_HOSTS)
    share = allocation_of_node_0(allocation_for(spec), spec)
    assert [node.name for node in share.nodes] == ["node1", "node2"] and share.master_addr == "node1"
    assert allocation_of_node_0(allocation_for(spec), run_on(replace(ON_HOSTS, master_addr="10.0.0.1"))).master_addr == "10.0.0.1"
    local = run_on(PlaceSpec())
    given = allocation_for(local)
    assert allocation_of_node_0(given, local) is given
