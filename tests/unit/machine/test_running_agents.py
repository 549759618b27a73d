"""Whose campaigns have an agent on a host, by command lines."""

from __future__ import annotations

from pathlib import Path

from seatrial.machine.running_agents import campaigns_here


def process(proc: Path, pid: int, *words: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")


def test_both_kinds_of_agents_are_found_and_nothing_else(tmp_path: Path) -> None:
    process(tmp_path, 1, "python", "-P", "-m", "seatrial.agent", "/a/out/r1/attempt-2/agent.json")
    process(tmp_path, 2, "python", "-P", "-m", "seatrial.agent", "--call", "/b/out/r1/attempt-1/nodes/n/call.json")
    process(tmp_path, 3, "python", "-P", "-m", "seatrial.agent", "--call", "/b/out/r2/attempt-1/nodes/n/call.json")
    process(tmp_path, 4, "vim", "/c/out/r1/attempt-2/agent.json")
    process(tmp_path, 5, "python", "-m", "seatrial.agent.answers")
    process(tmp_path, 6, "python", "-m", "seatrial.agent", "--end", "/d/out/r1/attempt-1")
    (tmp_path / "7").mkdir()
    assert campaigns_here(tmp_path) == ["/a/out", "/b/out"]
    assert campaigns_here(tmp_path / "none") == []
