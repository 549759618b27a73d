"""Number formats: what is asked for, what it comes to, and why. (Precision itself: see test_tiny_lm.)"""

from __future__ import annotations

import subprocess
import sys

import pytest

from seatrial_workloads.common.precision import (
    FP16_ON_CPU,
    FP16_WEIGHTS_ON_CPU,
    choose_load_dtype,
    choose_precision,
    refuse_fp16_without_gpu,
    torch_dtype,
)
from seatrial_workloads.contrastive import settings as contrastive_settings

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

HOPPER, VOLTA = (9, 0), (7, 0)


def test_fp16_on_a_cpu_is_refused_in_the_words_of_the_settings():
    assert FP16_ON_CPU == contrastive_settings.FP16_ON_CPU
    with pytest.raises(ValueError, match=FP16_ON_CPU):
        choose_precision("fp16", None)


def test_fp16_is_refused_before_ranks_join_where_the_device_comes_to_a_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cpu", "auto"):
        with pytest.raises(ValueError, match=FP16_ON_CPU):
            refuse_fp16_without_gpu("fp16", device)
        refuse_fp16_without_gpu("bf16", device)
    # That there is no GPU at all is then said by whoever looks for one.
    refuse_fp16_without_gpu("fp16", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    refuse_fp16_without_gpu("fp16", "auto")


def test_an_unknown_word_is_named_with_the_right_ones():
    with pytest.raises(ValueError, match="precision is 'int8'; expected one of auto, bf16, fp16, fp32"):
        choose_precision("int8", HOPPER)
    with pytest.raises(ValueError, match="model_load_dtype is 'int8'; expected one of auto, bf16, fp16, fp32"):
        choose_load_dtype("int8", choose_precision("auto", None), [], on_gpu=False)


@pytest.mark.parametrize(
    ("requested", "precision", "attentions", "effective", "reason"),
    [
        ("auto", "auto", ["sdpa", "sdpa"], "bf16", "follows precision (bf16)"),
        ("auto", "fp32", ["sdpa"], "fp32", "follows precision (fp32)"),
        ("fp32", "bf16", ["sdpa", "eager"], "fp32", "as requested"),
        ("fp32", "bf16", ["flash_attention_2", "sdpa"], "bf16", "flash_attention_2 reads no fp32 weights: bf16, as precision"),
        ("bf16", "fp16", ["flash_attention_2"], "bf16", "as requested"),
    ],
)
def test_the_load_dtype_follows_precision_and_flash_attention(requested, precision, attentions, effective, reason):
    choice = choose_load_dtype(requested, choose_precision(precision, HOPPER), attentions, on_gpu=True)
    assert (choice.requested, choice.effective, choice.reason) == (requested, effective, reason)


def test_a_cpu_takes_no_fp16_weights_and_loads_fp32():
    precision = choose_precision("auto", None)
    with pytest.raises(ValueError, match=FP16_WEIGHTS_ON_CPU):
        choose_load_dtype("fp16", precision, ["sdpa"], on_gpu=False)
    assert choose_load_dtype("auto", precision, ["sdpa"], on_gpu=False).effective == "fp32"


def test_words_become_dtypes_and_autocast_is_nothing_in_fp32():
    assert [torch_dtype(word) for word in ("bf16", "fp16", "fp32")] == [torch.bfloat16, torch.float16, torch.float32]
    cpu = torch.device("cpu")
    with choose_precision("fp32", None).autocast(cpu):
        assert not torch.is_autocast_enabled("cpu")
    with choose_precision("bf16", None).autocast(cpu):
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16


def test_nothing_heavy_at_import():
    script = "import sys, seatrial_workloads.common.precision; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout.strip() == "False"
