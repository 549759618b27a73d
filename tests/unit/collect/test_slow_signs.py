"""Signs of slowness in lines, settings and variables, each with where it was seen."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial import files
from seatrial.collect.slow_signs import HEAD_BYTES, read_slow_signs
from seatrial.paths import AttemptPaths
from seatrial.records.attempt import Attempt
from seatrial.records.command import Provenance
from seatrial.records.health import SlowSign
from seatrial.signatures.registry import slow_signs
from tests.unit.analyse import factory
from tests.unit.collect.on_disk import write_attempt
from tests.unit.collect.slow_lines import SLOW_LINES

INFINIBAND = Provenance(fingerprint="f0", nics={"mlx5_0 port 1": "ACTIVE, 400 Gb/sec (4X NDR), InfiniBand"})
LONG = factory.spec(settings={"seq_len": 2048})


def signs_of(
    tmp_path: Path, text: str | bytes = "", *, env: dict[str, str] | None = None, effective: Any = None, **changes: Any
) -> tuple[SlowSign, ...]:
    attempt = write_attempt(tmp_path, **changes)
    paths = AttemptPaths(Path(attempt.folder))
    paths.launcher_log.write_bytes(text.encode() if isinstance(text, str) else text)
    if env is not None:
        files.write_json(
            paths.environment, {"variables": [{"name": name, "value": value, "set_by": "plan"} for name, value in env.items()]}
        )
    return read_slow_signs(attempt, effective or {})


@pytest.mark.parametrize(("id", "line"), [(id, line) for id, lines in SLOW_LINES.items() for line in lines])
def test_each_line_is_told_with_its_place(tmp_path: Path, id: str, line: str) -> None:
    text = f"[rank0]: step 0: loss 6.0\nstep 1\n[rank1]: {line}\nstep 2\n[rank0]: {line}\n"
    found = signs_of(tmp_path, text, run=LONG, provenance=INFINIBAND)
    assert [(sign.id, sign.file, sign.n) for sign in found] == [(id, "launcher.log:3", 2)]
    assert found[0].action and found[0].detail.startswith("[rank1]: ")


def test_every_entry_with_patterns_has_lines_and_every_pattern_finds_one() -> None:
    with_patterns = {entry.id: entry.patterns for entry in slow_signs() if entry.patterns}
    assert set(with_patterns) == set(SLOW_LINES)
    silent = [(id, one) for id, patterns in with_patterns.items() for one in patterns if not any(re.search(one, x) for x in SLOW_LINES[id])]
    assert silent == []


@pytest.mark.parametrize(
    ("id", "name", "value"),
    [
        ("flash_fallback", "NSA_SDPA_NO_FLASH", "1"),
        ("debug_on", "NCCL_DEBUG", "INFO"),
        ("debug_on", "NSA_TRACE_GRADS", "1"),
        ("debug_on", "NSA_NVTX", "1"),
        ("bucket_size", "NSA_DDP_BUCKET_MB", "2"),
        ("p2p_off", "NCCL_P2P_DISABLE", "1"),
        ("sequential_prefill", "NSA_PREFILL_BATCHED", "0"),
        ("socket_transport", "NCCL_IB_DISABLE", "1"),
    ],
)
def test_variables_are_told(tmp_path: Path, id: str, name: str, value: str) -> None:
    found = signs_of(tmp_path, env={"NSA_PREFILL_BATCHED": "1", name: value, "PATH": "/usr/bin"}, run=LONG, provenance=INFINIBAND)
    assert [(sign.id, sign.detail, sign.file, sign.n) for sign in found] == [(id, f"{name}={value}", "environment.json", None)]


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_DEBUG": "WARN", "NSA_NVTX": "0", "NSA_SDPA_NO_FLASH": "0", "NSA_PREFILL_BATCHED": "1", "CUDA_LAUNCH_BLOCKING": "0"},
        {"NSA_DDP_BUCKET_MB": "50", "NSA_PREFILL_BATCHED": "1", "NCCL_P2P_DISABLE": "0"},
        # Without InfiniBand there is nothing better than a socket.
        {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"},
    ],
)
def test_variables_that_slow_nothing_down_are_not(tmp_path: Path, env: dict[str, str]) -> None:
    assert signs_of(tmp_path, "gpu-01:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n", env=env, run=LONG) == ()


@pytest.mark.parametrize(
    ("effective", "id"),
    [
        ({"attn_impl": ("flash_attention_2", "sdpa", "no CUDA")}, "flash_fallback"),
        ({"speech_attn_impl": ("flash_attention_2", "eager", "")}, "flash_fallback"),
        ({"attention": ("sdpa", "eager", "a mask it does not take")}, "flash_fallback"),
        ({"use_flash": (True, False, "not installed")}, "flash_fallback"),
        ({"attn_impl": ("sdpa", "flash_attention_2", "")}, None),
        ({"prefill": ("batched", "sequential", "")}, "sequential_prefill"),
        ({"ddp_bucket_mb": (0, 2, "safe mode")}, "bucket_size"),
        ({"attn_impl": ("auto", "sdpa", ""), "precision": ("auto", "bf16", "")}, None),
        ({"attn_impl": ("flash_attention_2", "flash_attention_2", "")}, None),
        ({"ddp_bucket_mb": (0, 25, "")}, None),
    ],
)
def test_settings_that_came_to_something_slower_are_told(tmp_path: Path, effective: Any, id: str | None) -> None:
    found = signs_of(tmp_path, effective=effective, run=LONG)
    assert [sign.id for sign in found] == ([id] if id else [])
    assert all(sign.file == "events_rank0.jsonl" and " -> " in sign.detail for sign in found)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"settings": {"seq_len": 1024}}, True),
        ({"axes": {"seq_len": 4096}}, True),
        ({"workload": {"args": ("--seq-len", "2048")}}, True),
        ({"workload": {"args": ("--train.seq_len=2048",)}}, True),
        ({"settings": {"seq_len": 512}}, False),
        ({"settings": {"seq_len": "long"}}, False),
        ({}, False),
    ],
)
def test_sequential_prefill_counts_only_at_long_sequences_that_are_known(tmp_path: Path, changes: dict[str, Any], told: bool) -> None:
    found = signs_of(tmp_path, env={"NSA_PREFILL_BATCHED": "0"}, run=factory.spec(**changes))
    assert [sign.id for sign in found] == (["sequential_prefill"] if told else [])


def test_infiniband_that_nccl_speaks_of_counts_too(tmp_path: Path) -> None:
    text = (
        "h:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\nh:1:1 [0] NCCL INFO 0 -> 8 [send] via NET/Socket/0\n"
    )
    assert [sign.id for sign in signs_of(tmp_path, text)] == ["socket_transport"]


@pytest.mark.parametrize("text", [b"", b"step 1\nstep 2\n", b"\xff\xfe\x00" * 1000, b"lash back to sequential" * 5000, b"\n" * 10_000])
def test_a_log_without_a_sign_or_without_sense_says_nothing(tmp_path: Path, text: bytes) -> None:
    assert signs_of(tmp_path, text) == ()


def test_no_log_and_torn_files_say_nothing(tmp_path: Path) -> None:
    attempt: Attempt = write_attempt(tmp_path)
    AttemptPaths(Path(attempt.folder)).environment.write_text('{"variables": [1, {"name"')
    assert read_slow_signs(attempt) == ()
    assert read_slow_signs(replace(attempt, folder=str(tmp_path / "nowhere"))) == ()


def test_provenance_stands_in_for_a_lost_environment(tmp_path: Path) -> None:
    found = signs_of(tmp_path, provenance=Provenance(fingerprint="f0", environment={"NCCL_DEBUG": "TRACE"}))
    assert [sign.id for sign in found] == ["debug_on"]


def test_only_the_head_of_a_log_is_read(tmp_path: Path) -> None:
    late = "x" * 99 + "\n"
    text = late * (HEAD_BYTES // 100 + 1) + "Anomaly Detection has been enabled.\n"
    assert signs_of(tmp_path, text) == ()


def test_secrets_in_a_line_are_masked(tmp_path: Path) -> None:
    found = signs_of(tmp_path, "Anomaly Detection has been enabled with token=hf_abcdefghijklmnopqrstuvwxyz0123456789\n")
    assert "hf_abcdefghijklmnop" not in found[0].detail


@pytest.mark.parametrize(
    ("env", "effective", "told"),
    [
        ({"NSA_USE_FA2": "1"}, {}, True),
        ({"NSA_USE_FA2": "1", "NSA_PREFILL_BATCHED": "1"}, {}, False),
        # A workload that knows no such variable, or that says itself what it does.
        ({"NCCL_DEBUG": "WARN"}, {}, False),
        ({}, {}, False),
        ({"NSA_USE_FA2": "1"}, {"prefill": ("auto", "batched", "")}, False),
    ],
)
def test_prefill_is_sequential_where_nothing_is_said(tmp_path: Path, env: dict[str, str], effective: Any, told: bool) -> None:
    found = signs_of(tmp_path, env=env, effective=effective, run=LONG)
    assert [(sign.id, sign.detail) for sign in found] == (
        [("sequential_prefill", "NSA_PREFILL_BATCHED is not set, beside NSA_USE_FA2")] if told else []
    )
    assert signs_of(tmp_path, env=env, effective=effective, run=factory.spec(settings={"seq_len": 512})) == ()
