"""The output of many hosts as one: whose line it is, which came first, and what it tells of a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.cli.logs import _new_lines, logs
from seatrial.collect.attempts import read_attempt
from seatrial.collect.failure.cause import diagnose
from seatrial.collect.health import read_health
from seatrial.collect.hosts.logs import last_lines, logs_of
from seatrial.collect.logs.line_marks import marked_lines
from seatrial.collect.rank_endings import num_ended_well_on
from seatrial.collect.stacks import read_stacks
from seatrial.errors import CampaignError
from seatrial.paths import AttemptPaths
from seatrial.records.outcome import Cause
from tests.unit import many_hosts
from tests.unit.analyse import factory

LOST = "[rank{}]: RuntimeError: [../gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.2]:43210"
OOM = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "train.py", line 3, in <module>',
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.10 GiB",
)


def made(tmp_path: Path, **changes: object) -> AttemptPaths:
    return AttemptPaths(Path(many_hosts.write(tmp_path, many_hosts.Hosts(**changes)).folder))  # type: ignore[arg-type]


def say(host: AttemptPaths, lines: dict[float, str], ahead_s: float = 0.0) -> None:
    """Lines with the seconds since the launch at which they came, by a clock that may be off."""
    text, rows = "", ["offset_bytes,t,m"]
    for at_s, line in lines.items():
        text += line + "\n"
        rows.append(f"{len(text.encode())},{factory.STARTED_T + at_s + ahead_s:.6f},{at_s:.6f}")
    host.launcher_log.write_text(text)
    host.arrivals.write_text("\n".join(rows) + "\n")


def test_every_host_has_its_log(tmp_path: Path) -> None:
    paths = made(tmp_path, hosts=3)
    found = logs_of(paths)
    assert [log.host for log in found] == ["node0", "node1", "node2"]
    assert [log.path for log in found] == [paths.launcher_log, paths.node("node1").launcher_log, paths.node("node2").launcher_log]


def test_lines_of_all_hosts_come_in_their_order_by_one_clock(tmp_path: Path) -> None:
    paths = made(tmp_path, skew_s={1: 3600.0})
    say(paths, {1.0: "a", 3.0: "c", 5.0: "e"})
    say(paths.node("node1"), {2.0: "b", 4.0: "d"}, ahead_s=3600.0)
    assert [(line.source, line.text) for line in marked_lines(last_lines(paths, 100, 1 << 20))] == [
        ("[host node0]:", "a"), ("[host node1]:", "b"), ("[host node0]:", "c"), ("[host node1]:", "d"), ("[host node0]:", "e"),
    ]  # fmt: skip


def test_lines_of_a_host_without_arrivals_keep_their_order(tmp_path: Path) -> None:
    paths = made(tmp_path)
    paths.node("node1").launcher_log.write_text("one\ntwo\nthree\n")
    own = [line for line in last_lines(paths, 100, 1 << 20) if "node1" in line]
    assert own == ["[host node1]: one", "[host node1]: two", "[host node1]: three"]


def test_a_short_end_is_as_short_of_many_hosts(tmp_path: Path) -> None:
    paths = made(tmp_path, hosts=16)
    for host in (paths, *(paths.node(f"node{at}") for at in range(1, 16))):
        say(host, {float(at): f"line {at}" for at in range(100)})
    assert len(last_lines(paths, 80, 1 << 20)) == 80
    assert len(last_lines(paths, 400, 1 << 20)) == 16 * 40


def test_one_host_has_no_mark(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "attempt-1")
    paths.folder.mkdir()
    paths.launcher_log.write_text("plain\n")
    assert last_lines(paths, 10, 4096) == ["plain"]


def test_the_cause_is_found_on_the_host_that_has_it(tmp_path: Path) -> None:
    paths = made(tmp_path)
    say(paths, {9.0: "[rank0]: Traceback (most recent call last):", 9.5: LOST.format(0), 9.6: LOST.format(1)})
    say(paths.node("node1"), dict(zip((8.0, 8.1, 8.2), OOM, strict=True)))
    found = diagnose(1, last_lines(paths, 500, 1 << 20))
    assert (found.cause, found.host) == (Cause.CUDA_OOM, "node1")
    assert not found.detail.startswith("[host")


def test_of_two_hosts_the_one_that_failed_first_by_one_clock(tmp_path: Path) -> None:
    paths = made(tmp_path, skew_s={1: -3600.0})
    say(paths, {9.0: "[rank0]: Traceback (most recent call last):", 9.1: "[rank0]: ValueError: second"})
    say(paths.node("node1"), {8.0: "[rank2]: Traceback (most recent call last):", 8.1: "[rank2]: ValueError: first"}, ahead_s=-3600.0)
    found = diagnose(1, last_lines(paths, 500, 1 << 20))
    assert (found.detail, found.host) == ("ValueError: first", "node1")


def test_what_a_host_s_unmarked_lines_went_on_after_is_still_a_cause(tmp_path: Path) -> None:
    """Without a rank's mark one step printed afterwards may be another rank's, on a host as on a machine alone."""
    paths = made(tmp_path)
    say(paths, {1.0: "step 1"})
    say(paths.node("node1"), {2.0: "Traceback (most recent call last):", 2.1: "ValueError: bad", 2.2: "step 2 loss 1.0"})
    assert diagnose(1, last_lines(paths, 500, 1 << 20)).detail == "ValueError: bad"


def test_torchrun_s_reports_of_two_hosts_do_not_mix(tmp_path: Path) -> None:
    paths = made(tmp_path)
    report = "Root Cause (first observed failure):\n[0]:\n  host      : node1\n  rank      : {} (local_rank: 0)\n  exitcode  : {} (pid: 4)"
    say(paths, {9.0: report.format(0, -15)})
    say(paths.node("node1"), {8.0: report.format(2, -9)})
    found = diagnose(1, last_lines(paths, 500, 1 << 20))
    assert (found.cause, found.detail) == (Cause.KILLED, "rank 2 was killed by signal 9")


def test_health_counts_all_hosts(tmp_path: Path) -> None:
    paths = made(tmp_path)
    for host in (paths, paths.node("node1")):
        host.launcher_log.write_text("Traceback (most recent call last):\ndestroy_process_group() was not called before program exit\n")
    attempt = read_attempt(paths)
    assert attempt is not None
    health = read_health(attempt, 4)
    assert health.tracebacks == 2 and [one.lines for one in health.harmless] == [2]


def test_processes_of_unlike_hosts_may_have_one_number(tmp_path: Path) -> None:
    line = "[2026-01-01 00:00:00,000] [INFO] [launch.py:351:main] Process 4711 exits successfully.\n"
    logs = [tmp_path / name for name in ("a", "b")]
    for log in logs:
        log.write_text(line)
    assert num_ended_well_on(logs) == 2


def test_stacks_of_every_host(tmp_path: Path) -> None:
    paths = made(tmp_path)
    for host, rank in ((paths, 0), (paths.node("node1"), 2)):
        host.stacks.mkdir()
        host.process_stack(7).write_text(f'# rank {rank} pid 7\nThread 7 (idle): "MainThread"\n    step (/home/me/train.py:{rank})\n')
    assert [(stack.rank, stack.host) for stack in read_stacks(paths)] == [(0, "node0"), (2, "node1")]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("node", "expected"),
    [(None, "[host node0]: hello from node0\n[host node1]: hello from node1\n"), ("node1", "hello from node1\n")],
    ids=["all", "one"],
)
def test_the_verb_prints_all_hosts_or_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], node: str | None, expected: str, follow: bool
) -> None:
    assert logs(made(tmp_path).folder.parent, node=node, follow=follow) == 0
    assert capsys.readouterr().out == expected


def test_the_verb_knows_the_hosts(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="did you mean 'node1'"):
        logs(made(tmp_path).folder.parent, node="nod1")


def test_a_bar_is_shown_as_it_moves_and_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    log, read = tmp_path / "log", dict[Path, int]()
    log.write_bytes(b"10%\r20%\rrest")
    assert list(_new_lines(log, read, whole_only=True)) == ["10%\r", "20%\r"]
    log.write_bytes(b"10%\r20%\rrest of it\nlast")
    assert list(_new_lines(log, read, whole_only=True)) == ["rest of it\n"]
    assert list(_new_lines(log, read, whole_only=False)) == ["last"]
