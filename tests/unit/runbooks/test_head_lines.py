"""What the driver says before the first run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.machine.git import GitState
from seatrial.machine.gpus import Driver, Gpu
from seatrial.records.campaign_plan import CampaignPlan
from seatrial_runbooks.stage1 import head_lines as module
from seatrial_runbooks.stage1.head_lines import SAID, head_lines
from seatrial_runbooks.stage1.variables import VARIABLES, read
from tests.unit.runbooks.conftest import SMALL

Said = Callable[..., list[str]]
GPUS = Driver(
    gpus=tuple(Gpu(index=index, name="RTX 4090", compute_capability="8.9", power_limit_w=450.0) for index in (0, 1)), version="550"
)


@pytest.fixture
def said(plans: Callable[..., list[CampaignPlan]], monkeypatch: pytest.MonkeyPatch) -> Said:
    monkeypatch.setattr(module, "read_driver", lambda: GPUS)
    monkeypatch.setattr(module, "git_state", lambda folder, output: GitState(commit="abc", branch="main", dirty="false"))
    monkeypatch.setenv("SEATRIAL_FALLBACK_DIR", "/kept")
    return lambda **environ: head_lines(read({**SMALL, **environ}), plans(**environ))


def test_every_line(said: Said) -> None:
    lines = said(ATTN_IMPL="sdpa", TEXT_ATTN_IMPL="eager", DRIVER_LOG_PATH="out/driver.log")
    assert lines[0].startswith("[INFO] Output root: /")
    assert lines[1:] == [
        "[INFO] Mode=sweep, REPEATS=1, MAX_STEPS=3, INCLUDE=localhost, WORLD_SIZE=2",
        "[INFO] Dataset: root=tree, manifest=tree/manifest.tsv, use_trim=false, offline_trimmed=true",
        "[INFO] Timing: cuda_sync=false, rank_scope=rank0, eta=true, eta_mode=rank0, eta_min_samples=10, tail_points=20",
        "[INFO] Runtime snapshot: ranks on the CPU",
        "[INFO] Precision/attention (auto: decided by train.py where it runs): precision=auto, model_dtype=auto, speech_attn=sdpa, "
        "text_attn=eager",
        "[INFO] Math backend: tf32=true, matmul_precision=high",
        "[INFO] Code revision: commit=abc, branch=main, dirty=false",
        "[INFO] Compile: enabled=false, mode=max-autotune, dynamic=true",
        "[INFO] Fixed slice: enabled=false, seconds=none",
        "[INFO] Length bucketing: enabled=false, boundaries_sec=1.0,1.5,2.0,2.5,3.0",
        "[INFO] Telemetry: gpu=true, gpu_every_sec=2, host=false, host_every_sec=2, stall_alert_ratio=2",
        "[INFO] Manifest durability: what a disk does not take is kept in /kept and merged back",
        "[INFO] Driver log: out/driver.log",
        "[INFO] Plan stage1-sweep_z0_mb4_nw2_pf2: groups=1, runs=1, order=nested",
    ]


def test_the_gpus_that_are_used(said: Said) -> None:
    machine = "[INFO] Runtime snapshot: GPUs 1 RTX 4090 (cc 8.9, 450 W); driver 550"
    assert machine in said(INCLUDE="localhost:1", WORLD_SIZE="")
    assert "[INFO] Runtime snapshot: none of the GPUs 4,5 is seen here (no such GPU)" in said(INCLUDE="localhost:4,5", WORLD_SIZE="")


def test_the_hosts_that_are_used(said: Said, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n1 slots=2\nn2 slots=1\n")
    some = said(HOSTFILE=str(tmp_path / "hosts"), INCLUDE="n1:0,1@n2", WORLD_SIZE="")
    assert some[1] == f"[INFO] Mode=sweep, REPEATS=1, MAX_STEPS=3, INCLUDE=n1:0,1@n2, HOSTFILE={tmp_path}/hosts, WORLD_SIZE=3"
    assert "[INFO] Runtime snapshot: hosts n1 (2 ranks, GPUs 0,1), n2 (1 rank)" in some
    assert "INCLUDE=all" in said(HOSTFILE=str(tmp_path / "hosts"), INCLUDE="", WORLD_SIZE="")[1]
    assert "[INFO] Runtime snapshot: hosts not known" in said(HOSTFILE="nowhere", INCLUDE="", WORLD_SIZE="2")


def test_both_plans_are_named(said: Said) -> None:
    assert [line.split(":")[0] for line in said(MODE="both")[-2:]] == ["[INFO] Plan stage1-ab", "[INFO] Plan stage1-sweep_z0_mb4_nw2_pf2"]


def test_only_variables_are_said() -> None:
    assert {name for names in SAID.values() for name in names.values()} <= set(VARIABLES)
