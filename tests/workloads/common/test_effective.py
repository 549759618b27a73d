"""Precision, attention and arithmetic: the policy, and the reason for each effective value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.probe import Probe
from seatrial_workloads.common import attention
from seatrial_workloads.common.attention import choose_attention, flash_attn_problem
from seatrial_workloads.common.effective_settings import AS_REQUESTED, Choice, as_requested, prefetch_for, prefetch_without_workers, record
from seatrial_workloads.common.math_backend import CUBLAS_VARIABLE, MathOptions, choose_math_backend, prepare_determinism, set_math_backend
from seatrial_workloads.common.precision import (
    FP16_ON_CPU,
    FP16_WEIGHTS_ON_CPU,
    check_fp16_has_gpu,
    choose_load_dtype,
    choose_precision,
    torch_dtype,
)
from tests.facts import states
from tests.workloads.cpu_ranks import ALONE, OtherFailed, cpu_ranks
from tests.workloads.ranks import events

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

HOPPER, TURING = (9, 0), (7, 5)
FLASH = "flash_attention_2"


def test_each_choice_is_an_event_with_the_name_of_its_setting(tmp_path: Path) -> None:
    with Probe(tmp_path) as probe:
        record({"precision": Choice("bf16", "fp32", "CPU: fp32"), "tf32": as_requested(None)}, probe)
    recorded = [(event["setting"], event["requested"], event["effective"], event["reason"]) for event in events(tmp_path, "effective")]
    assert recorded == [("precision", "bf16", "fp32", "CPU: fp32"), ("tf32", None, None, AS_REQUESTED)]


def test_settings_import_neither_torch_nor_the_probe() -> None:
    code = "import sys, seatrial_workloads.contrastive.settings; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "seatrial_workloads.common.effective_settings" in loaded
    assert [name for name in loaded if name == "torch" or name.startswith("seatrial.probe")] == []


def test_prefetching_needs_workers() -> None:
    assert prefetch_for(2, 4) == 4 and prefetch_without_workers(2, 4) == {}
    assert prefetch_for(0, 4) is None
    assert prefetch_without_workers(0, 4)["prefetch_factor"].effective is None


@pytest.mark.parametrize(
    ("requested", "capability", "effective", "reason"),
    [
        ("auto", (9, 0), "bf16", "compute capability 9.0 has bf16"),
        ("auto", (8, 0), "bf16", "compute capability 8.0 has bf16"),
        ("auto", (7, 0), "fp16", "compute capability 7.0 has no bf16: fp16 with loss scaling"),
        ("auto", None, "fp32", "CPU: fp32"),
        ("bf16", (7, 5), "fp16", "compute capability 7.5 has no bf16: fp16 with loss scaling"),
        ("bf16", None, "bf16", "as requested"),
        ("fp16", (9, 0), "fp16", "as requested"),
        ("fp32", (7, 0), "fp32", "as requested"),
    ],
)
def test_precision(requested, capability, effective, reason):
    choice = choose_precision(requested, capability)
    assert (choice.requested, choice.effective, choice.reason) == (requested, effective, reason)
    assert choice.needs_scaler is (effective == "fp16")


def test_fp16_on_a_cpu_is_refused_also_before_the_ranks_join(monkeypatch):
    with pytest.raises(ValueError, match=FP16_ON_CPU):
        choose_precision("fp16", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cpu", "auto"):
        with pytest.raises(ValueError, match=FP16_ON_CPU):
            check_fp16_has_gpu("fp16", device)
        check_fp16_has_gpu("bf16", device)
    # A missing GPU has its own error.
    check_fp16_has_gpu("fp16", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_fp16_has_gpu("fp16", "auto")


@pytest.mark.parametrize(
    ("requested", "precision", "attentions", "effective", "reason"),
    [
        ("auto", "auto", ["sdpa", "sdpa"], "bf16", "follows precision (bf16)"),
        ("fp32", "bf16", ["sdpa", "eager"], "fp32", "as requested"),
        ("fp32", "bf16", [FLASH, "sdpa"], "bf16", "flash_attention_2 does not support fp32 weights: bf16, as precision"),
        ("bf16", "fp16", [FLASH], "bf16", "as requested"),
    ],
)
def test_the_load_dtype_follows_precision_and_flash_attention(requested, precision, attentions, effective, reason):
    choice = choose_load_dtype(requested, choose_precision(precision, HOPPER), attentions, HOPPER)
    assert (choice.requested, choice.effective, choice.reason) == (requested, effective, reason)


def test_a_gpu_without_bf16_loads_no_bf16_weights():
    choice = choose_load_dtype("bf16", choose_precision("bf16", (7, 0)), ["eager"], (7, 0))
    assert (choice.effective, choice.reason) == ("fp16", "compute capability 7.0 has no bf16")


def test_a_cpu_takes_no_fp16_weights():
    with pytest.raises(ValueError, match=FP16_WEIGHTS_ON_CPU):
        choose_load_dtype("fp16", choose_precision("auto", None), ["sdpa"], None)


def test_dtypes_and_autocast():
    assert [torch_dtype(name) for name in ("bf16", "fp16", "fp32")] == [torch.bfloat16, torch.float16, torch.float32]
    cpu = torch.device("cpu")
    with choose_precision("fp32", None).autocast(cpu):
        assert not torch.is_autocast_enabled("cpu")
    with choose_precision("bf16", None).autocast(cpu):
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16


@pytest.mark.parametrize(
    ("requested", "precision", "lowest", "problem", "effective", "reason"),
    [
        ("auto", "bf16", HOPPER, None, "sdpa", "bf16: sdpa"),
        ("auto", "fp32", HOPPER, None, "sdpa", "fp32: sdpa"),
        ("auto", "fp16", TURING, None, "eager", "fp16: eager"),
        ("auto", "bf16", None, None, "sdpa", "no GPU: sdpa"),
        ("sdpa", "fp16", TURING, "not imported", "sdpa", "as requested"),
        (FLASH, "bf16", HOPPER, None, FLASH, "as requested"),
        (FLASH, "bf16", None, "not imported", "sdpa", "flash_attention_2 needs a GPU: sdpa"),
        (FLASH, "fp16", TURING, "not imported", "sdpa", "flash_attention_2 needs compute capability 8.0, this is 7.5: sdpa"),
        (FLASH, "fp32", HOPPER, "not imported", "sdpa", "flash_attention_2 does not support fp32: sdpa"),
        (FLASH, "bf16", HOPPER, "no such package", "sdpa", "no such package: sdpa"),
    ],
)
def test_attention(requested, precision, lowest, problem, effective, reason, monkeypatch):
    monkeypatch.setattr(attention, "flash_attn_problem", lambda: problem)
    assert choose_attention(requested, precision, lowest, ALONE) == Choice(requested, effective, reason)


def test_flash_attention_that_another_rank_lacks_is_used_by_none(monkeypatch):
    monkeypatch.setattr(attention, "flash_attn_problem", lambda: None)
    beside = cpu_ranks(world_size=2, kind=OtherFailed)
    reason = "another rank cannot use flash_attention_2: sdpa"
    assert choose_attention(FLASH, "bf16", HOPPER, beside) == Choice(FLASH, "sdpa", reason)
    assert choose_attention("sdpa", "bf16", HOPPER, beside) == as_requested("sdpa"), "no collective call where nothing can differ"


def test_a_flash_attn_that_does_not_import_says_why(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    assert flash_attn_problem() is None
    monkeypatch.delitem(sys.modules, "flash_attn")
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = tmp_path / "flash_attn.py"
    broken.write_text("raise ImportError('undefined symbol: built for another torch')\n")
    assert states(flash_attn_problem(), "flash_attn", "undefined symbol: built for another torch")
    broken.write_text("import a_missing_part_\n")
    assert states(flash_attn_problem(), "flash_attn", "'a_missing_part_'")
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    assert flash_attn_problem() == "the flash_attn package is not installed"


@pytest.fixture
def restored_switches():
    """torch's switches are restored afterwards."""
    matmul, cudnn, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = cudnn, benchmark
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("options", "lowest", "workspace", "expected"),
    [
        ({}, HOPPER, None, {}),
        (
            {},
            TURING,
            None,
            {"tf32": (False, "compute capability 7.5 has no TF32"), "matmul_precision": ("highest", "tf32 is off")},
        ),
        ({}, None, None, {"tf32": (False, "no GPU"), "matmul_precision": ("highest", "no GPU: full fp32")}),
        ({"tf32": False}, HOPPER, None, {"matmul_precision": ("highest", "tf32 is off")}),
        ({"tf32": False, "matmul_precision": "highest"}, None, None, {}),
        ({"deterministic": True, "tf32": False, "matmul_precision": "highest"}, None, None, {}),
        ({"deterministic": True}, HOPPER, ":4096:8", {}),
        (
            {"deterministic": True},
            HOPPER,
            None,
            {"deterministic": (False, "CUBLAS_WORKSPACE_CONFIG must be :4096:8 or :16:8 before CUDA starts; it was not set")},
        ),
        (
            {"deterministic": True, "cudnn_benchmark": True},
            HOPPER,
            ":16:8",
            {"cudnn_benchmark": (False, "deterministic: the fastest algorithm may differ from run to run")},
        ),
        ({"cudnn_benchmark": True}, HOPPER, None, {}),
        ({"cudnn_benchmark": True, "tf32": False, "matmul_precision": "highest"}, None, None, {"cudnn_benchmark": (False, "no GPU")}),
    ],
)
def test_arithmetic(options, lowest, workspace, expected):
    choices = choose_math_backend(MathOptions(**options), lowest, workspace)
    assert set(choices) == {"tf32", "matmul_precision", "deterministic", "cudnn_benchmark"}
    differing = {name: (choice.effective, choice.reason) for name, choice in choices.items() if choice.reason != "as requested"}
    assert differing == expected
    assert all(choice.effective == choice.requested for name, choice in choices.items() if name not in expected)


def test_torch_is_set_without_a_warning(restored_switches):
    set_math_backend(MathOptions(deterministic=True), None)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.are_deterministic_algorithms_enabled()
    set_math_backend(MathOptions(tf32=True, matmul_precision="medium", cudnn_benchmark=True), HOPPER)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark) == ("medium", True, True)
    assert not torch.are_deterministic_algorithms_enabled()
    set_math_backend(MathOptions(tf32=False), HOPPER)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)


def test_cublas_is_configured_before_cuda_starts(restored_switches, monkeypatch):
    environment: dict[str, str] = {}
    prepare_determinism(MathOptions(), environment)
    assert environment == {}
    prepare_determinism(MathOptions(deterministic=True), environment)
    assert environment == {CUBLAS_VARIABLE: ":4096:8"}
    environment[CUBLAS_VARIABLE] = ":16:8"
    prepare_determinism(MathOptions(deterministic=True), environment)
    assert environment == {CUBLAS_VARIABLE: ":16:8"}, "the user's value is kept"

    monkeypatch.setenv(CUBLAS_VARIABLE, "")
    monkeypatch.delenv(CUBLAS_VARIABLE)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    too_late = set_math_backend(MathOptions(deterministic=True), HOPPER)["deterministic"]
    assert too_late.effective is False
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert set_math_backend(MathOptions(deterministic=True), HOPPER)["deterministic"] == Choice(True, True, "as requested")
