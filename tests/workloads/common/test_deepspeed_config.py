"""DeepSpeed's configuration and optimiser: the policies, without DeepSpeed itself."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from seatrial_workloads.common.choice import Choice  # noqa: E402
from seatrial_workloads.common.engines.adam import FusedAdamFacts, choose_adam  # noqa: E402
from seatrial_workloads.common.engines.deepspeed_config import choose_mixed_precision, deepspeed_config  # noqa: E402
from seatrial_workloads.common.engines.engine import EngineOptions  # noqa: E402


def options(**changed) -> EngineOptions:
    return EngineOptions(lr=1e-4, micro_batch=160, **changed)


def test_zero_0_in_fp32_has_nothing_that_waits_for_the_gpu():
    assert deepspeed_config(options(), "fp32", "none") == {
        "train_micro_batch_size_per_gpu": 160,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 0},
        "zero_allow_untested_optimizer": True,
        "wall_clock_breakdown": False,
        "steps_per_print": None,
        "timers": {"throughput": {"enabled": False, "synchronized": False}},
    }


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_other_stages_get_their_buckets(stage):
    section = deepspeed_config(options(zero_stage=stage, overlap_comm=False, bucket_size=7), "fp32", "none")["zero_optimization"]
    expected = {"stage": stage, "overlap_comm": False, "reduce_bucket_size": 7, "allgather_bucket_size": 7}
    assert section == expected | ({"stage3_param_persistence_threshold": 100_000} if stage == 3 else {})


@pytest.mark.parametrize(
    ("precision", "mixed", "expected"),
    [
        ("bf16", "autocast", {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}),
        ("fp16", "autocast", {"torch_autocast": {"enabled": True, "dtype": "float16"}}),
        ("bf16", "weights", {"bf16": {"enabled": True, "check_grad_overflow": False}}),
        ("fp16", "weights", {"fp16": {"enabled": True}}),
    ],
)
def test_sixteen_bits_have_their_section(precision, mixed, expected):
    config = deepspeed_config(options(), precision, mixed)
    assert {name: config[name] for name in ("bf16", "fp16", "torch_autocast") if name in config} == expected


@pytest.mark.parametrize(
    ("requested", "stage", "precision", "effective", "reason"),
    [
        ("auto", 0, "bf16", "autocast", "ZeRO 0 keeps weights in fp32, as ddp does"),
        ("auto", 2, "bf16", "weights", "ZeRO 2 keeps weights in bf16 and their fp32 copies in the optimiser"),
        ("weights", 0, "bf16", "weights", "as requested"),
        ("autocast", 3, "bf16", "autocast", "as requested"),
        ("autocast", 1, "fp16", "weights", "ZeRO 1 scales the loss only for weights in fp16"),
        ("auto", 1, "fp32", "none", "fp32: nothing is computed in 16 bits"),
    ],
)
def test_how_sixteen_bits_are_computed(requested, stage, precision, effective, reason):
    assert choose_mixed_precision(requested, stage, precision) == Choice(requested, effective, reason)


def test_an_unknown_way_is_named():
    with pytest.raises(ValueError, match="mixed_precision is 'amp'; expected one of auto, autocast, weights"):
        choose_mixed_precision("amp", 0, "bf16")


def facts(*, on_gpu: bool = True, installed: bool = False, cannot_build: str | None = None) -> FusedAdamFacts:
    return FusedAdamFacts(on_gpu=on_gpu, installed=installed, cannot_build=cannot_build)


@pytest.mark.parametrize(
    ("torch_adam", "met", "effective", "reason"),
    [
        (None, facts(), "FusedAdam", "its op is compiled on first use"),
        (None, facts(installed=True), "FusedAdam", "its op is installed"),
        (None, facts(cannot_build="no ninja"), "AdamW", "FusedAdam cannot be compiled here: no ninja"),
        (None, facts(on_gpu=False), "AdamW", "no GPU: FusedAdam would first have to be compiled for the CPU (torch_adam=false does that)"),
        (True, facts(installed=True), "AdamW", "as requested"),
        (False, facts(on_gpu=False), "FusedAdam", "as requested; its op is compiled on first use, which takes a minute"),
        (False, facts(cannot_build="no ninja"), "FusedAdam", "as requested; its op is compiled on first use, which takes a minute"),
    ],
)
def test_fused_adam_where_it_can_be_had(torch_adam, met, effective, reason):
    assert choose_adam(torch_adam, met) == Choice({None: "auto", True: "AdamW", False: "FusedAdam"}[torch_adam], effective, reason)
