"""Who else uses this host: looks that were made up, and a real process that does nothing but count."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.preflight import system_load
from seatrial.preflight.system_load import Activity, CpuUser, HostSample, LoadFacts, ProcessSample
from seatrial.records.caution import Check
from tests.unit.preflight.needs import by_name

OWN = 10


def look(m: float, busy_s: float, *rows: tuple[int, int, str, float, float]) -> HostSample:
    found = [
        ProcessSample(pid=pid, parent=parent, name=name, cpu_s=cpu_s, reaped_s=reaped_s) for pid, parent, name, cpu_s, reaped_s in rows
    ]
    return HostSample(m=m, busy_s=busy_s, processes={process.pid: process for process in found})


def judged(foreign_cores: float = 0.0, load1: float = 0.1, cores: int = 2, **more: object) -> dict[str, Check]:
    activity = Activity(span_s=0.2, foreign_cores=foreign_cores, users=more.pop("users", ()), blocked=more.pop("blocked", 0))  # type: ignore[arg-type]
    return by_name(system_load.judge_load(LoadFacts(activity=activity, load1=load1, cores=cores, **more)))  # type: ignore[arg-type]


def test_foreign_processor_time_is_separated_from_our_own() -> None:
    before = look(0.0, 100.0, (1, 0, "init", 5, 0), (9, 1, "bash", 1, 50), (OWN, 9, "seatrial", 2, 0), (20, 1, "hog", 7, 0))
    after = look(
        2.0, 105.0, (1, 0, "init", 5, 0), (9, 1, "bash", 1, 90), (OWN, 9, "seatrial", 3, 1), (11, OWN, "child", 1, 0), (20, 1, "hog", 9, 0)
    )
    found = system_load.activity_between(before, after, own_pid=OWN)
    assert found.foreign_cores == pytest.approx(1.0), "children that a shell waits for do not count at once"
    assert [(user.pid, user.name, user.cores) for user in found.users] == [(20, "hog", pytest.approx(1.0))]


def test_work_that_this_container_does_not_show_counts() -> None:
    found = system_load.activity_between(
        look(0.0, 100.0, (OWN, 1, "seatrial", 0, 0)), look(1.0, 103.0, (OWN, 1, "seatrial", 0.5, 0)), own_pid=OWN
    )
    assert found.foreign_cores == pytest.approx(2.5) and found.users == ()
    check = judged(2.5)["other processes"]
    assert not check.ok and "processes this container does not show" in check.found


@pytest.mark.parametrize(("foreign", "cores", "ok"), [(0.4, 2, True), (0.6, 2, False), (2.0, 64, True), (8.0, 64, False)])
def test_what_counts_as_noise_grows_with_the_machine(foreign: float, cores: int, ok: bool) -> None:
    check = judged(foreign, cores=cores, users=(CpuUser(pid=5, name="hog", cores=foreign),))["other processes"]
    assert check.ok is ok and not check.refuses
    assert ("hog (pid 5)" in check.found) is not ok


def test_load_is_reported_while_there_is_work_in_sight() -> None:
    assert judged(0.1, load1=9.0)["load"].ok
    check = judged(0.1, load1=9.0, blocked=6)["load"]
    assert not check.ok and check.found == "9.0 on 2 processors, 6 processes wait for a disk"


def test_another_campaign_is_a_warning() -> None:
    check = judged(agents=((77, "/data/out/mb8_r1/attempt-1"),))["other campaigns"]
    assert (check.ok, check.refuses, check.found) == (False, False, "pid 77 runs /data/out/mb8_r1/attempt-1")


def test_odd_names_of_processes_are_read(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", "7", *["0"] * 9, str(3 * ticks), str(ticks), str(ticks), "0", *["0"] * 20]
    (tmp_path / "42" / "stat").write_text(f"42 (a) b (c) {' '.join(fields)}\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "stat").write_text("cpu  10 0 5 100 3 0 0 0 0 0\nprocs_blocked 2\n")
    found = system_load.take_sample(tmp_path)
    assert found.processes == {42: ProcessSample(pid=42, parent=7, name="a) b (c", cpu_s=4.0, reaped_s=1.0)}
    assert (found.busy_s * ticks, found.blocked) == (15, 2)


def test_a_real_agent_of_another_harness_is_found(tmp_path: Path) -> None:
    waits = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", waits, "-m", "seatrial.agent", str(tmp_path)], stdin=subprocess.PIPE) as agent:
        try:
            name, deadline = "", time.monotonic() + 60
            while "python" not in name and time.monotonic() < deadline:
                now = system_load.take_sample()
                name = now.processes[agent.pid].name
            assert (agent.pid, str(tmp_path)) in system_load.foreign_agents(now, own_pid=1)
            assert agent.pid not in dict(system_load.foreign_agents(now)), "our own agents are no other campaign's"
        finally:
            agent.kill()


def test_a_short_burst_is_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([look(1.0, 5.0), look(2.0, 5.0)])
    monkeypatch.setattr(system_load, "take_sample", lambda: next(looks))
    slept: list[float] = []
    check = by_name(system_load.check_load(look(0.0, 0.0), sleep=slept.append))["other processes"]
    assert check.ok and len(slept) == 2, "five busy cores at first, none over the longer look"
