"""The setting `fast_paths` of fine-tuning: its rules, what all groups of a plan can have, and when a step is captured. No torch."""

from __future__ import annotations

from typing import Any

import pytest

from seatrial_workloads.sft.fast import PARTS, equalize_settings, why_no_graph
from seatrial_workloads.sft.settings import Settings

ALL = ",".join(PARTS)


@pytest.mark.parametrize(
    ("given", "setting", "parts"),
    [
        (True, "all", PARTS),
        ("none", "none", ()),
        ("rope, lora", "lora,rope", ("lora", "rope")),
        ("equal:lora", "equal:lora", ("lora",)),
    ],
)
def test_it_has_one_form(given: Any, setting: str, parts: tuple[str, ...]) -> None:
    settings = Settings(fast_paths=given)
    assert (settings.fast_paths, settings.fast_parts) == (setting, parts)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"fast_paths": "lorra"}, "did you mean 'lora'"),
        ({"fast_paths": "lora", "strategy": "fsdp"}, "names lora, which is not available: FSDP"),
        ({"fast_paths": "lora", "use_lora": False}, "use_lora is false"),
        ({"fast_paths": "attention", "attn_impl": "eager"}, "attn_impl is eager"),
        ({"fast_paths": "rms_norm", "device": "cpu"}, "no GPU"),
        ({"fast_paths": "swiglu", "torch_compile": True}, "torch_compile"),
    ],
)
def test_a_part_that_cannot_be_had_is_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings(**values)


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        ([{}, {"micro_batch": 4}], ALL),
        ([{}, {"strategy": "fsdp"}], "none"),
        ([{}, {"torch_compile": True}], "none"),
        ([{}, {"attn_impl": "eager"}], ALL.replace("attention,", "")),
        ([{}, {"device": "cpu"}], "lora,attention,cross_entropy"),
        ([{"use_lora": False}, {}], "attention"),
    ],
)
def test_a_plan_gives_all_groups_what_each_can_have(groups: list[dict[str, Any]], left: str) -> None:
    built = {str(number): Settings(**values) for number, values in enumerate(groups)}
    alike = equalize_settings(built, given=(), compared=True)
    assert alike.changes == {name: {"fast_paths": f"equal:{left}"} for name in built}
    assert equalize_settings(built, given=("fast_paths",), compared=True).changes == {}


@pytest.mark.parametrize(
    ("values", "node", "reason"),
    [
        ({}, {}, ""),
        ({}, {"has_gpu": False}, "no GPU"),
        ({}, {"world_size": 2}, "2 ranks"),
        ({}, {"has_attention": False}, "the part attention"),
        ({"packing": True}, {}, "packing"),
        ({"grad_accum": 2}, {}, "grad_accum"),
        ({"gradient_checkpointing": True}, {}, "gradient_checkpointing"),
    ],
)
def test_a_step_is_captured_or_says_why_not(values: dict[str, Any], node: dict[str, Any], reason: str) -> None:
    found = why_no_graph(Settings(**values), **{"world_size": 1, "has_gpu": True, "has_attention": True, **node})
    assert found.startswith(reason) and bool(found) == bool(reason)
