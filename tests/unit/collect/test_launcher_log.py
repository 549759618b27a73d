"""Lines of launcher.log: arrival times, prefixes, the logs of many hosts merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.cli.watch import logs, new_lines
from seatrial.collect.attempts import read_attempt
from seatrial.collect.logs.diagnosis import diagnose
from seatrial.collect.logs.launcher_log import (
    PrefixSplitter,
    all_lines,
    host_logs,
    last_lines,
    num_finished_ranks,
    read_arrivals,
    read_lines,
    read_log,
)
from seatrial.collect.run_health import read_health
from seatrial.collect.stacks import read_stacks
from seatrial.core.errors import CampaignError
from seatrial.core.log_header import find_header, header_text
from seatrial.core.paths import AttemptPaths
from seatrial.records.outcome import Cause
from tests.unit import many_hosts
from tests.unit.analyse import factory


def write_rows(path: Path, rows: list[tuple[object, object, object]]) -> Path:
    path.write_text("offset_bytes,t,m\n" + "".join(f"{end},{t},{m}\n" for end, t, m in rows))
    return path


MISLEADING = {
    "timestamp": "2026-11-17T22:40:01+00:00",
    "group": "Step 7: Loss 1.0000",
    "run_dir": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
}
OUTPUT = ["loading", "Step 0: Loss 3.0000"]


@pytest.fixture
def headed(tmp_path: Path) -> AttemptPaths:
    """An attempt whose log begins with META and CMD."""
    attempt = AttemptPaths(tmp_path)
    head = header_text(MISLEADING, "deepspeed train.py 'NCCL WARN Step 8: Loss 2.0000'")
    attempt.launcher_log.write_text(head + "".join(f"{line}\n" for line in OUTPUT))
    write_rows(attempt.arrivals, [(len(head) + len("loading\n"), 1001.0, 51.0), (attempt.launcher_log.stat().st_size, 1002.0, 52.0)])
    return attempt


def test_the_head_of_a_log_is_never_searched_for_steps_or_causes(headed: AttemptPaths) -> None:
    found = read_log(headed.launcher_log, headed.arrivals)
    assert [(line.text, line.t) for line in found.lines] == [("loading", 1001.0), ("Step 0: Loss 3.0000", 1002.0)]
    texts = [line for _, line in all_lines(headed)]
    assert texts[-2:] == OUTPUT and not any(texts[:-2]) and len(texts) == 8
    assert diagnose(1, list(MISLEADING.values())).cause is Cause.CUDA_OOM and diagnose(1, texts).cause is not Cause.CUDA_OOM
    assert last_lines(headed, 100, 10_000) == OUTPUT


def test_every_head_of_a_log_is_left_out_and_a_torn_one_too(tmp_path: Path) -> None:
    head, log = header_text(MISLEADING, "deepspeed"), tmp_path / "launcher.log"
    log.write_text(f"{head}first\n{head}\nsecond\n")
    assert [line for line in read_lines(log) if line] == ["first", "second"]
    log.write_text("=== META ===\ngroup=Step 3: Loss 1.0\nout of order\nk=v\n")
    assert find_header(log).num_lines == 2 and [line for line in read_lines(log) if line] == ["out of order", "k=v"]
    log.write_text("a line\n=== CMD ===\nk=v\n")
    assert find_header(log) == (0, 0) and list(read_lines(log))[:3] == ["a line", "=== CMD ===", "k=v"]


def test_rows_that_contradict_the_others_are_skipped(tmp_path: Path) -> None:
    good = [(100 * at, 1000.0 + at, 50.0 + at) for at in range(1, 10)]
    bad = [("x", 1, 2), (450, "nan", 55.0), (-5, 1.0, 1.0), (350, 1003.0, 9e9), (10**18, 1004.0, 1.0), (400, 1004.0, 54.0)]
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", [*good[:4], *bad, *good[4:]]))
    assert [row.end_bytes for row in found.rows] == [end for end, _, _ in good]
    # Bytes before 400 may have arrived with the row at 9e9.
    assert [row.m for row in found.rows if row.m == row.m] == [m for end, _, m in good if end != 400]
    assert found.num_skipped == len(bad)


def test_bytes_of_a_chunk_whose_row_is_lost_have_no_time(tmp_path: Path) -> None:
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", [(100, 1001.0, 51.0), ("2\x8000", 1002.0, 52.0), (300, 1003.0, 53.0)]))
    assert [(row.end_bytes, row.m == row.m) for row in found.rows] == [(100, True), (300, False)]


def test_between_the_ends_of_a_large_file_no_time_is_known(tmp_path: Path) -> None:
    rows = [(100 * at, 1000.0 + at, 50.0 + at) for at in range(1, 100)]
    found = read_arrivals(write_rows(tmp_path / "arrivals.csv", rows), max_bytes=200)
    times = {row.end_bytes: row.m for row in found.rows}
    assert times[100] == 51.0 and times[9900] == 149.0 and len(times) < 20
    first_of_tail = next(row for row in found.rows if row.end_bytes > 5000)
    assert first_of_tail.m != first_of_tail.m, "bytes of the middle must not get the time of the first chunk after it"


@pytest.mark.parametrize(
    ("line", "source", "text"),
    [
        ("[rank3]: step 1", "[rank3]:", "step 1"),
        ("[rank3]: [rank3]:[E1115 14:30] x", "[rank3]: [rank3]:", "[E1115 14:30] x"),
        ("[default3]:step 1", "[default3]:", "step 1"),
        ("[trainer0|3]:step 1", "[trainer0|3]:", "step 1"),
        ("[1,3]<stderr>:step 1", "[1,3]<stderr>:", "step 1"),
        ("17: step 1", "17:", "step 1"),
        ("3: [rank3]:   File", "3: [rank3]:", "  File"),
        ("(EngineCore_0 pid=51) ERROR 11-15 14:02:36 [core.py:708] ValueError: x", "(EngineCore_0 pid=51)", "ValueError: x"),
        ("(VllmWorker rank=1 pid=51) INFO 11-15 14:02:36 [core.py:708] x", "(VllmWorker rank=1 pid=51)", "x"),
        ("ERROR 11-15 14:02:36 [core.py:708] ValueError: x", "", "ValueError: x"),
        ("(Worker_TP1 pid=51) WARNING 11-15 14:02:36 [core.py:708] x", "(Worker_TP1 pid=51) WARNING", "x"),
        ("ValueError: bad", "", "ValueError: bad"),
        ("INFO: KeyError: x was handled", "", "INFO: KeyError: x was handled"),
        ("train.py: error: no", "", "train.py: error: no"),
        ("2026-11-15 14:02:31,880 - train - INFO - step", "", "2026-11-15 14:02:31,880 - train - INFO - step"),
        ("", "", ""),
    ],
)
def test_prefixes_of_one_line(line: str, source: str, text: str) -> None:
    assert PrefixSplitter().split(line) == (source, text)


@pytest.mark.parametrize(
    "shows",
    [
        "worker-1: Traceback (most recent call last):",
        'worker-1:   File "train.py", line 3, in <module>',
        "worker-1: [rank1]: step 1",
        "worker-1: [2026-11-15 14:02:14,771] [INFO] [launch.py:158:main] nnodes=2",
        "pdsh@head: worker-1: ssh exited with exit code 1",
    ],
)
def test_a_pdsh_host_is_recognised_before_the_beginning_of_a_line(shows: str) -> None:
    lines = [shows, "worker-1: ValueError: bad", "worker-2: ValueError: bad"]
    splitter = PrefixSplitter()
    assert [splitter.split(line) for line in lines][1:] == [("worker-1:", "ValueError: bad"), ("", "worker-2: ValueError: bad")]


def test_padded_task_numbers_are_prefixes() -> None:
    lines = [" 3: Traceback (most recent call last):", ' 3:   File "train.py", line 3', " 3: ValueError: bad"]
    assert diagnose(1, lines).detail == "ValueError: bad"


def test_a_chain_is_followed_within_one_host() -> None:
    lines = [
        "w1: Traceback (most recent call last):",
        "w1: KeyError: 'lr'",
        "w2: Traceback (most recent call last):",
        "w2: KeyError: 'lr'",
        "w1: During handling of the above exception, another exception occurred:",
        "w1: Traceback (most recent call last):",
        "w1: RuntimeError: no learning rate in the config",
    ]
    assert diagnose(1, lines).detail == "RuntimeError: no learning rate in the config"


LOST = "[rank{}]: RuntimeError: [../gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.2]:43210"
OOM = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "train.py", line 3, in <module>',
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.10 GiB",
)


def write_hosts(tmp_path: Path, **changes: object) -> AttemptPaths:
    return AttemptPaths(Path(many_hosts.write(tmp_path, many_hosts.Hosts(**changes)).folder))  # type: ignore[arg-type]


def write_lines(host: AttemptPaths, lines: dict[float, str], ahead_s: float = 0.0) -> None:
    """Lines with the seconds since the launch at which they came, by a clock that may be off."""
    text, rows = "", ["offset_bytes,t,m"]
    for at_s, line in lines.items():
        text += line + "\n"
        rows.append(f"{len(text.encode())},{factory.STARTED_T + at_s + ahead_s:.6f},{at_s:.6f}")
    host.launcher_log.write_text(text)
    host.arrivals.write_text("\n".join(rows) + "\n")


def test_every_host_has_its_log(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path, hosts=3)
    found = host_logs(paths)
    assert [log.host for log in found] == ["node0", "node1", "node2"]
    assert [log.path for log in found] == [paths.launcher_log, paths.node("node1").launcher_log, paths.node("node2").launcher_log]


def test_lines_of_all_hosts_are_merged_by_one_clock(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path, skew_s={1: 3600.0})
    write_lines(paths, {1.0: "a", 3.0: "c", 5.0: "e"})
    write_lines(paths.node("node1"), {2.0: "b", 4.0: "d"}, ahead_s=3600.0)
    assert [(line.source, line.text) for line in map(PrefixSplitter().split, last_lines(paths, 100, 1 << 20))] == [
        ("[host node0]:", "a"), ("[host node1]:", "b"), ("[host node0]:", "c"), ("[host node1]:", "d"), ("[host node0]:", "e"),
    ]  # fmt: skip
    assert last_lines(paths, 100, 1 << 20, host="node1") == ["[host node1]: b", "[host node1]: d"]


def test_every_line_of_all_hosts_is_read_by_one_clock(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path, skew_s={1: 3600.0})
    write_lines(paths, {float(at): f"a{at}" for at in range(1, 9001, 2)})
    write_lines(paths.node("node1"), {2.0: "first", 9001.0: "last"}, ahead_s=3600.0)
    found = list(all_lines(paths))
    other = str(paths.node("node1").launcher_log.relative_to(paths.folder))
    assert found[:3] == [("launcher.log", "[host node0]: a1"), (other, "[host node1]: first"), ("launcher.log", "[host node0]: a3")]
    assert len(found) == 4502 and found[-1] == (other, "[host node1]: last")


def test_lines_of_a_host_without_arrivals_keep_their_order(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path)
    paths.node("node1").launcher_log.write_text("one\ntwo\nthree\n")
    own = [line for line in last_lines(paths, 100, 1 << 20) if "node1" in line]
    assert own == ["[host node1]: one", "[host node1]: two", "[host node1]: three"]


def test_the_last_lines_of_many_hosts_are_as_few(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path, hosts=16)
    for host in (paths, *(paths.node(f"node{at}") for at in range(1, 16))):
        write_lines(host, {float(at): f"line {at}" for at in range(100)})
    assert len(last_lines(paths, 80, 1 << 20)) == 80
    assert len(last_lines(paths, 400, 1 << 20)) == 16 * 40


def test_one_host_has_no_prefix(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "attempt-1")
    paths.folder.mkdir()
    paths.launcher_log.write_text("plain\n")
    assert last_lines(paths, 10, 4096) == ["plain"]


def test_the_cause_names_its_host(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path)
    write_lines(paths, {9.0: "[rank0]: Traceback (most recent call last):", 9.5: LOST.format(0), 9.6: LOST.format(1)})
    write_lines(paths.node("node1"), dict(zip((8.0, 8.1, 8.2), OOM, strict=True)))
    found = diagnose(1, last_lines(paths, 500, 1 << 20))
    assert (found.cause, found.host) == (Cause.CUDA_OOM, "node1")
    assert not found.detail.startswith("[host")


def test_one_step_after_lines_without_prefix_does_not_clear_them(tmp_path: Path) -> None:
    """Without a rank's mark one step printed afterwards may be another rank's, on a host as on a machine alone."""
    paths = write_hosts(tmp_path)
    write_lines(paths, {1.0: "step 1"})
    write_lines(paths.node("node1"), {2.0: "Traceback (most recent call last):", 2.1: "ValueError: bad", 2.2: "step 2 loss 1.0"})
    assert diagnose(1, last_lines(paths, 500, 1 << 20)).detail == "ValueError: bad"


def test_torchrun_reports_of_two_hosts_do_not_mix(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path)
    report = "Root Cause (first observed failure):\n[0]:\n  host      : node1\n  rank      : {} (local_rank: 0)\n  exitcode  : {} (pid: 4)"
    write_lines(paths, {9.0: report.format(0, -15)})
    write_lines(paths.node("node1"), {8.0: report.format(2, -9)})
    found = diagnose(1, last_lines(paths, 500, 1 << 20))
    assert (found.cause, found.detail) == (Cause.KILLED, "rank 2 was killed by signal 9 (SIGKILL)")


def test_health_counts_all_hosts(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path)
    for host in (paths, paths.node("node1")):
        host.launcher_log.write_text("Traceback (most recent call last):\ndestroy_process_group() was not called before program exit\n")
    attempt = read_attempt(paths)
    assert attempt is not None
    health = read_health(attempt, 4)
    assert health.tracebacks == 2 and [one.lines for one in health.harmless] == [2]


def test_processes_of_two_hosts_may_have_one_pid(tmp_path: Path) -> None:
    line = "[2026-01-01 00:00:00,000] [INFO] [launch.py:351:main] Process 4711 exits successfully.\n"
    logs = [tmp_path / name for name in ("a", "b")]
    for log in logs:
        log.write_text(line)
    assert num_finished_ranks(logs) == 2


def test_stacks_of_every_host(tmp_path: Path) -> None:
    paths = write_hosts(tmp_path)
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
    assert logs(write_hosts(tmp_path).folder.parent, node=node, follow=follow) == 0
    assert capsys.readouterr().out == expected


def test_the_verb_knows_the_hosts(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="did you mean 'node1'"):
        logs(write_hosts(tmp_path).folder.parent, node="nod1")


def test_a_bar_is_shown_as_it_moves_and_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    log, read = tmp_path / "log", dict[Path, int]()
    log.write_bytes(b"10%\r20%\rrest")
    assert list(new_lines(log, read, whole_only=True)) == ["10%\r", "20%\r"]
    log.write_bytes(b"10%\r20%\rrest of it\nlast")
    assert list(new_lines(log, read, whole_only=True)) == ["rest of it\n"]
    assert list(new_lines(log, read, whole_only=False)) == ["last"]
