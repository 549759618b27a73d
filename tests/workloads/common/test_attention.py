"""Attention: what is asked for, what it comes to, and why."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from seatrial_workloads.common.attention import choose_attention, common_word, flash_attn_problem, resolve_attention
from seatrial_workloads.common.choice import Choice

HOPPER, VOLTA = (9, 0), (7, 5)
FLASH = "flash_attention_2"


@pytest.mark.parametrize(
    ("requested", "precision", "lowest", "problem", "effective", "reason"),
    [
        ("auto", "bf16", HOPPER, None, "sdpa", "bf16: sdpa"),
        ("auto", "fp32", HOPPER, None, "sdpa", "fp32: sdpa"),
        ("auto", "fp16", VOLTA, None, "eager", "fp16: eager"),
        ("auto", "fp32", None, None, "sdpa", "no GPU: sdpa"),
        ("auto", "bf16", None, None, "sdpa", "no GPU: sdpa"),
        ("eager", "bf16", HOPPER, None, "eager", "as requested"),
        ("sdpa", "fp16", VOLTA, None, "sdpa", "as requested"),
        (FLASH, "bf16", HOPPER, None, FLASH, "as requested"),
        (FLASH, "bf16", None, None, "sdpa", "flash_attention_2 needs a GPU: sdpa"),
        (FLASH, "fp16", VOLTA, None, "sdpa", "flash_attention_2 needs compute capability 8.0, this is 7.5: sdpa"),
        (FLASH, "fp32", HOPPER, None, "sdpa", "flash_attention_2 computes nothing in fp32: sdpa"),
        (FLASH, "bf16", HOPPER, "no such package", "sdpa", "no such package: sdpa"),
    ],
)
def test_the_policy(requested, precision, lowest, problem, effective, reason):
    assert choose_attention(requested, precision, lowest, problem) == Choice(requested, effective, reason)


def test_an_unknown_word_is_named():
    with pytest.raises(ValueError, match="attention is 'flash'; expected one of auto, eager, sdpa, flash_attention_2"):
        choose_attention("flash", "bf16", HOPPER, None)


def test_the_package_is_looked_for_only_when_it_is_asked_for(monkeypatch):
    monkeypatch.setattr("seatrial_workloads.common.attention.flash_attn_problem", lambda: "not here")
    assert resolve_attention("sdpa", "bf16", HOPPER).reason == "as requested"
    assert resolve_attention(FLASH, "bf16", HOPPER).reason == "not here: sdpa"
    assert resolve_attention(FLASH, "fp32", None).reason == "flash_attention_2 needs a GPU: sdpa"


def test_a_package_that_does_not_import_says_why(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    assert flash_attn_problem() is None
    monkeypatch.delitem(sys.modules, "flash_attn")
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = tmp_path / "flash_attn.py"
    broken.write_text("raise ImportError('undefined symbol: built for another torch')\n")
    assert flash_attn_problem() == "flash_attn does not import (undefined symbol: built for another torch)"
    broken.write_text("import a_part_that_is_not_there_\n")
    assert flash_attn_problem() == "flash_attn does not import (No module named 'a_part_that_is_not_there_')"
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    assert flash_attn_problem() == "the flash_attn package is not installed"


def test_one_word_for_both_encoders():
    assert common_word([Choice("auto", "sdpa", ""), Choice("sdpa", "sdpa", "")]) == "sdpa"
    assert common_word([Choice("auto", "sdpa", ""), Choice("eager", "eager", "")]) == "split"
