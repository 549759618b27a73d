"""Parts of the engines that need no process group: optimiser, schedule, DeepSpeed's configuration and files."""

from __future__ import annotations

import contextlib
import os
import sys
from types import SimpleNamespace

import pytest

from seatrial_workloads.common.checkpoints import save_tensors
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.engines import EngineOptions, adam, create_engine, deepspeed_engine
from seatrial_workloads.common.engines.adam import ARCHITECTURES, choose_adam, without_architecture_letters
from seatrial_workloads.common.engines.ddp import choose_compression, ddp_choices
from seatrial_workloads.common.engines.deepspeed_engine import (
    CheckpointFiles,
    deepspeed_config,
    odd_sizes_last,
    replace_attribute,
    saved_with_alignment,
)
from seatrial_workloads.common.engines.engine import TRAINING
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.precision import choose_mixed_precision, choose_precision
from tests.workloads.cpu_ranks import ALONE, OtherFailed, cpu_ranks

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("given", "during"),
    [("8.6;9.0a+PTX 10.0f", "8.6;9.0+PTX 10.0"), ("9.0", "9.0"), ("Hopper", "Hopper"), (None, None)],
)
def test_architectures_have_no_letters_while_an_op_is_built(given, during):
    before = {} if given is None else {ARCHITECTURES: given}
    environment = dict(before)
    with pytest.raises(RuntimeError), without_architecture_letters(environment):
        assert environment.get(ARCHITECTURES) == during
        if given is not None:
            environment[ARCHITECTURES] = "overwritten by the build"
        raise RuntimeError
    assert environment == before


@pytest.mark.parametrize(("warmup", "total"), [(10, 100), (1, 20), (2, 2), (30, 20), (1000, 5000)])
def test_the_schedule_is_deepspeeds_warm_up_and_cosine(warmup, total, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", os.environ.get("DS_ACCELERATOR", "cpu"))
    # DeepSpeed would load it, which takes a second.
    monkeypatch.setitem(sys.modules, "mlflow", sys.modules.get("mlflow"))
    schedules = pytest.importorskip("deepspeed.runtime.lr_schedules")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = schedules.WarmupCosineLR(optimizer, total, warmup_num_steps=warmup, cos_min_ratio=1e-4, last_batch_iteration=0)
    ours = EngineOptions(lr=1.0, warmup_steps=warmup, schedule_steps=total, min_lr_ratio=1e-4)
    for step in range(total + 20):
        theirs.last_batch_iteration = step
        assert ours.lr_at(step) == pytest.approx(theirs.get_lr_ratio(), rel=1e-12, abs=1e-15)


def test_the_learning_rate_follows_the_schedule():
    options = EngineOptions(lr=2.0, warmup_steps=4, schedule_steps=10, min_lr_ratio=0.5)
    assert [options.lr_at(0), options.lr_at(3), options.lr_at(100)] == [0.0, 2.0, 1.0]
    no_warm_up = EngineOptions(lr=1.0, schedule_steps=10, min_lr_ratio=0.0)
    factors = [no_warm_up.lr_at(step) for step in range(10)]
    assert factors == sorted(factors, reverse=True) and factors[0] > 0.97 and factors[-1] == pytest.approx(0.0)


def test_the_linear_schedules_warm_up_to_the_full_rate_and_end_at_their_minimum():
    cosine = EngineOptions(lr=2.0, warmup_steps=4, schedule_steps=12, min_lr_ratio=0.0, schedule="linear_cosine")
    assert [cosine.lr_at(step) for step in (0, 3, 4, 8, 12, 99)] == pytest.approx([0.5, 2.0, 2.0, 1.0, 0.0, 0.0])
    constant = EngineOptions(lr=2.0, warmup_steps=4, schedule="linear_constant")
    assert [constant.lr_at(step) for step in (1, 4, 10**6)] == [1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("requested", "world_size", "gradients", "effective"),
    [("bf16", 2, "fp32", "bf16"), ("fp16", 2, "fp32", "fp16"), ("bf16", 1, "fp32", "none"), ("bf16", 2, "bf16", "none")],
)
def test_gradients_are_compressed_only_where_it_does_something(requested, world_size, gradients, effective):
    choice = choose_compression(requested, world_size, gradients)
    assert (choice.requested, choice.effective) == (requested, effective) and choice.reason


def test_accumulated_batches_are_one_batch_of_their_mean():
    """With 16-bit weights on request, and the norm of the gradients before clipping."""
    inputs = torch.arange(12.0).view(4, 3) / 10
    trained = []
    for accumulate, mixed in ((1, "auto"), (2, "auto"), (2, "pure")):
        torch.manual_seed(0)
        chosen = EngineOptions(lr=1e-2, gradient_clipping=0.1, accumulate=accumulate, mixed_precision=mixed)
        precision = choose_precision("bf16" if mixed == "pure" else "fp32", None)
        engine = create_engine("ddp", SquaredOutput(), ALONE, precision, chosen)
        for part in inputs.chunk(accumulate):
            engine.backward(engine.forward(inputs=part))
        engine.step()
        trained.append((engine.model.linear.weight.detach(), engine.grad_norm, engine.choices["mixed_precision"].effective))
    (whole, whole_norm, _), (halves, halves_norm, _), (pure, _, mode) = trained
    torch.testing.assert_close(halves, whole)
    torch.testing.assert_close(halves_norm, whole_norm)
    assert (pure.dtype, mode) == (torch.bfloat16, "pure")


class SquaredOutput(torch.nn.Module):
    """Its forward returns a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(inputs).square().mean()


def options(**changed) -> EngineOptions:
    return EngineOptions(lr=1e-4, micro_batch=160, **changed)


def test_zero_0_in_fp32_is_configured_without_synchronisation():
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
def test_other_stages_have_buckets(stage):
    section = deepspeed_config(options(zero_stage=stage, overlap_comm=False, bucket_size=7), "fp32", "none")["zero_optimization"]
    expected = {"stage": stage, "overlap_comm": False, "reduce_bucket_size": 7, "allgather_bucket_size": 7}
    assert section == expected | ({"stage3_param_persistence_threshold": 100_000} if stage == 3 else {"parameter_alignment": True})


def test_a_weight_of_odd_size_shifts_no_other_from_its_alignment():
    sizes = [1, 8, 3, 16, 24]
    weights = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    assert [len(weight) for weight in odd_sizes_last(weights)] == [8, 16, 24, 1, 3]


@pytest.mark.parametrize(
    ("precision", "mixed", "expected"),
    [
        ("bf16", "autocast", {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}),
        ("fp16", "autocast", {"torch_autocast": {"enabled": True, "dtype": "float16"}}),
        ("bf16", "weights", {"bf16": {"enabled": True, "check_grad_overflow": False}}),
        ("fp16", "weights", {"fp16": {"enabled": True}}),
    ],
)
def test_sixteen_bit_formats_have_their_section(precision, mixed, expected):
    config = deepspeed_config(options(), precision, mixed)
    assert {name: config[name] for name in ("bf16", "fp16", "torch_autocast") if name in config} == expected


@pytest.mark.parametrize(
    ("requested", "engine", "stage", "precision", "effective"),
    [
        ("auto", "ddp", 0, "bf16", "autocast"),
        ("auto", "deepspeed", 0, "fp16", "autocast"),
        ("auto", "deepspeed", 2, "bf16", "weights"),
        ("auto", "deepspeed", 1, "fp32", "none"),
        ("autocast", "deepspeed", 1, "bf16", "autocast"),
        ("weights", "deepspeed", 0, "bf16", "weights"),
        ("by_precision", "deepspeed", 0, "bf16", "autocast"),
        ("by_precision", "deepspeed", 1, "bf16", "autocast"),
        ("by_precision", "deepspeed", 0, "fp16", "weights"),
        ("by_precision", "deepspeed", 1, "fp16", "weights"),
    ],
)
def test_mixed_precision_is_the_requested_one_else_that_of_the_stage(requested, engine, stage, precision, effective):
    choice = choose_mixed_precision(requested, engine, stage, precision)
    assert (choice.requested, choice.effective) == (requested, effective) and choice.reason


@pytest.mark.parametrize(
    ("requested", "engine", "stage", "precision"),
    [
        ("weights", "ddp", 0, "bf16"),
        ("by_precision", "ddp", 0, "fp16"),
        ("autocast", "deepspeed", 1, "fp16"),
        ("pure", "deepspeed", 0, "bf16"),
    ],
)
def test_a_mixed_precision_that_the_engine_does_not_have_is_refused(requested, engine, stage, precision):
    with pytest.raises(StartupError, match=f"mixed_precision is '{requested}'"):
        choose_mixed_precision(requested, engine, stage, precision)


@pytest.mark.parametrize(
    ("torch_adam", "on_gpu", "installed", "build_problem", "effective", "reason"),
    [
        (None, True, False, None, "FusedAdam", "compiled on first use"),
        (None, False, True, None, "FusedAdam", "installed"),
        (None, True, False, "no ninja", "AdamW", "no ninja"),
        (None, False, False, None, "AdamW", "no GPU"),
        (True, True, True, None, "AdamW", "as requested"),
        (False, False, False, None, "FusedAdam", "as requested"),
        (False, True, False, "no ninja", "FusedAdam", "as requested"),
    ],
)
def test_fused_adam_is_used_where_it_is_available(torch_adam, on_gpu, installed, build_problem, effective, reason):
    choice = choose_adam(torch_adam, on_gpu=on_gpu, installed=installed, build_problem=build_problem)
    assert (choice.requested, choice.effective) == ({None: "auto", True: "AdamW", False: "FusedAdam"}[torch_adam], effective)
    assert reason in choice.reason


@pytest.mark.parametrize(("torch_adam", "spans"), [(False, ["ops_build"]), (True, [])])
def test_the_build_of_an_op_is_a_part_of_the_start_up(torch_adam, spans, monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "deepspeed.git_version_info", SimpleNamespace(installed_ops={}))
    weights, timed = [torch.nn.Parameter(torch.ones(2))], []

    @contextlib.contextmanager
    def startup(name):
        timed.append(name)
        yield

    monkeypatch.setattr(adam, "try_fused", lambda *_: (torch.optim.SGD(weights), None) if timed else (None, "outside of its span"))
    optimizer, _ = adam.create_adam(None, weights, EngineOptions(lr=0.1, torch_adam=torch_adam), ALONE, startup)
    assert timed == spans
    assert isinstance(optimizer, torch.optim.SGD) == bool(spans)


def test_a_rank_with_fused_adam_beside_one_without_uses_torch_s_too(monkeypatch):
    """The other rank does not try to build it: waiting for its result would be a hang."""
    monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "deepspeed.git_version_info", SimpleNamespace(installed_ops={"fused_adam": True}))
    weights = [torch.nn.Parameter(torch.zeros(2))]
    monkeypatch.setattr(adam, "try_fused", lambda *_: pytest.fail("the other rank does not take part in this"))
    optimizer, choice = adam.create_adam(None, weights, EngineOptions(lr=0.1), cpu_ranks(world_size=2, kind=OtherFailed))
    assert isinstance(optimizer, torch.optim.AdamW)
    assert choice == Choice("auto", "AdamW", "another rank has no FusedAdam")


def test_ddp_records_its_optimiser_and_what_only_deepspeed_has():
    assert ddp_choices(options(), on_gpu=False)["optimizer"] == Choice("auto", "AdamW", "torch's")
    choices = ddp_choices(options(torch_adam=False, wall_clock_breakdown=True), on_gpu=True)
    assert {name: (choice.requested, choice.effective) for name, choice in choices.items()} == {
        "optimizer": ("FusedAdam", "AdamW, fused"),
        "torch_adam": (False, True),
        "bucket_size": (200_000_000, None),
        "wall_clock_breakdown": (True, False),
    }


def test_a_checkpoint_without_aligned_weights_is_loaded_without(tmp_path):
    save_tensors(tmp_path / TRAINING, {"updates": 1})
    assert not saved_with_alignment(tmp_path), "as earlier versions saved it"
    save_tensors(tmp_path / TRAINING, {"updates": 1, "parameter_alignment": True})
    assert saved_with_alignment(tmp_path)
    section = deepspeed_config(options(zero_stage=1, parameter_alignment=False), "fp32", "none")["zero_optimization"]
    assert section["parameter_alignment"] is False


@pytest.fixture
def deepspeed_files():
    """The parts of DeepSpeed's engine that concern files."""
    copied: list[str] = []
    return SimpleNamespace(_copy_recovery_script=copied.append, checkpoint_engine=SimpleNamespace(save=None, load=None), copied=copied)


def test_deepspeed_writes_and_reads_through_our_functions(tmp_path, deepspeed_files, monkeypatch):
    monkeypatch.setattr(deepspeed_engine, "deepspeed_classes", list)
    files = CheckpointFiles(deepspeed_files)
    with files.raising_deferred():
        deepspeed_files.checkpoint_engine.save({"a": torch.ones(2)}, str(tmp_path / "states.pt"))
        deepspeed_files._copy_recovery_script(str(tmp_path))
    assert deepspeed_files.checkpoint_engine.load(str(tmp_path / "states.pt"))["a"].tolist() == [1.0, 1.0]
    assert deepspeed_files.copied == [str(tmp_path)]


def test_the_first_write_error_is_raised_after_all_writes(tmp_path, deepspeed_files):
    files, reached_end = CheckpointFiles(deepspeed_files), False
    with pytest.raises((OSError, RuntimeError), match="first"), files.raising_deferred():
        files.save({}, str(tmp_path / "first" / "a.pt"))
        files.save({}, str(tmp_path / "second" / "b.pt"))
        reached_end = True
    assert reached_end
    with files.raising_deferred():
        files.save({}, str(tmp_path / "well.pt"))


def test_only_an_existing_attribute_is_replaced(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace(__version__="9.9"))
    owner = SimpleNamespace(save=1)
    replace_attribute(owner, "save", 2)
    assert owner.save == 2
    with pytest.raises(RuntimeError, match=r"DeepSpeed 9\.9 has no SimpleNamespace\.store"):
        replace_attribute(owner, "store", 3)


def test_a_missing_deepspeed_or_one_for_another_device_is_refused(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(RuntimeError, match="install it, or use engine=ddp"):
        deepspeed_engine.start_deepspeed(ALONE, verbose=False)
    for_cuda = SimpleNamespace(get_accelerator=lambda: SimpleNamespace(device_name=lambda: "cuda:0"))
    monkeypatch.setitem(sys.modules, "deepspeed", for_cuda)
    with pytest.raises(RuntimeError, match=r"cuda.*cpu.*DS_ACCELERATOR=cpu"):
        deepspeed_engine.start_deepspeed(ALONE, verbose=False)
