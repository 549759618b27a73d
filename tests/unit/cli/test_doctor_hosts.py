"""The table of many hosts, as people and programs read it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from seatrial.campaign import host_check
from seatrial.cli import doctor
from seatrial.cli.doctor_hosts import findings, place_of, table
from seatrial.cli.main import run_command
from seatrial.launch.asking import Sessions
from seatrial.preflight.hosts.rows import HostRow, HostSection, HostsExamined
from seatrial.preflight.need import Need
from seatrial.records.check import Check

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
            HostSection(subject="sessions", rows=(HostRow(name="ssh", checks=ssh),)),
            HostSection(subject="clocks", rows=(HostRow(name="clock", checks=clock),)),
        ),
    )


def text(examined: HostsExamined, width: int = 80) -> str:
    return "\n".join(line for line, _ in table(examined, MARKS, width)) + "\n"


def test_three_hosts_are_three_columns() -> None:
    assert text(many(3)) == (
        "hosts       node0  node1  node2\n  sessions\n    ssh       ✓      ✗      ✓\n  clocks\n    clock     !      ·      !\n"
    )


def test_64_hosts_are_counts_and_the_odd_ones_by_name() -> None:
    assert text(many(64)) == "hosts      64\n  sessions\n    ssh    ✓ 63  ✗ node1\n  clocks\n    clock  ✓ 61  ! node0, node2\n"


def test_a_narrow_terminal_folds_too() -> None:
    assert "✗ node1" in text(many(3), 20)


def test_the_head_has_a_column_of_its_own_where_it_is_no_host() -> None:
    row = HostRow(name="pdsh", checks={"this machine": check("pdsh")})
    found = HostsExamined(hosts=("node0",), sections=(HostSection(subject="programs", rows=(row,)),))
    assert text(found).splitlines()[0].split() == ["hosts", "node0", "this", "machine"]


def test_findings_name_their_hosts() -> None:
    assert [found.name for section in findings(many(64)) for found in section.checks] == ["ssh on node1", "clock on node0, node2"]


def test_it_is_printed_with_the_later_error_and_the_fix() -> None:
    for encoding in ("utf-8", "ascii"):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding)
        doctor._print_hosts(Console(file=stream, width=80), many(3))
        stream.flush()
        printed = raw.getvalue().decode()
        assert "would end in: Permission denied (publickey)" in printed and "fix:          ssh-copy-id" in printed


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

    def refused(commands: dict[str, tuple[str, ...]], **more: object) -> Sessions:
        denied = ("sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255")
        return Sessions({name: denied if words[0] == "ssh" else words for name, words in commands.items()})

    monkeypatch.setattr(host_check, "Sessions", refused)
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
    assert line == "nodes: all 3 are looked at when the campaign starts, by the command that runs on each of them"
