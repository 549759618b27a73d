"""Variables that tune a run and are not the same on its hosts."""

from __future__ import annotations

import json
from pathlib import Path

from seatrial.agent.recorded_environment import write_environment
from seatrial.collect.hosts.unlike_environment import environment_cautions
from seatrial.paths import AttemptPaths


def written(folder: Path, **hosts: dict[str, str]) -> list[str]:
    attempt = AttemptPaths(folder / "attempt-1")
    for name, variables in hosts.items():
        attempt.node(name).folder.mkdir(parents=True, exist_ok=True)
        write_environment(attempt.node(name), variables, {"OMP_NUM_THREADS": "1"})
    return [caution.text for caution in environment_cautions("r", attempt)]


def test_what_differs_is_named_with_its_hosts(tmp_path: Path) -> None:
    (text,) = written(tmp_path, a={"NCCL_ALGO": "Ring"}, b={"NCCL_ALGO": "Ring"}, c={"NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO"})
    assert "NCCL_ALGO Tree on c, Ring elsewhere; NCCL_DEBUG INFO on c, not set elsewhere" in text


def test_what_belongs_to_a_host_may_differ(tmp_path: Path) -> None:
    assert written(tmp_path, a={"CUDA_VISIBLE_DEVICES": "0", "HOME": "/a"}, b={"CUDA_VISIBLE_DEVICES": "1", "HOME": "/b"}) == []
    assert written(tmp_path / "none") == []


def test_a_host_that_told_nothing_is_no_odd_one(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path / "attempt-1")
    attempt.node("c").folder.mkdir(parents=True)
    attempt.node("c").environment.write_text("[1")
    assert written(tmp_path, a={"NCCL_ALGO": "Ring"}, b={"NCCL_ALGO": "Ring"}) == []


def test_secrets_are_masked_and_only_what_counts_is_written(tmp_path: Path) -> None:
    written(tmp_path, a={"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz", "MY_OWN": "x"})
    stored = json.loads((tmp_path / "attempt-1" / "nodes" / "a" / "environment.json").read_text())["variables"]
    assert [one["name"] for one in stored] == ["HF_TOKEN", "OMP_NUM_THREADS"] and "hf_abc" not in json.dumps(stored)
    assert [one["set_by"] for one in stored] == ["host", "seatrial"]
