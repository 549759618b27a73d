"""The parts that engines are made of, each alone and in this process: ddp's own, DeepSpeed's files and start, weights, the warm-up."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from seatrial_workloads.common.checkpoints.saved_tensors import CheckpointError  # noqa: E402
from seatrial_workloads.common.engines import EngineOptions, deepspeed_files, deepspeed_start  # noqa: E402
from seatrial_workloads.common.engines.ddp import DdpEngine, ddp_choices  # noqa: E402
from seatrial_workloads.common.engines.deepspeed_files import CheckpointFiles, put_in_place  # noqa: E402
from seatrial_workloads.common.engines.engine import trainable  # noqa: E402
from seatrial_workloads.common.engines.engine_files import (  # noqa: E402
    frozen_names,
    load_own_random_states,
    load_trained_weights,
    refuse_other_names,
    save_own_random_states,
    trained_weights,
)
from seatrial_workloads.common.engines.warm_up import forward_and_backward  # noqa: E402
from seatrial_workloads.common.precision import Precision  # noqa: E402
from tests.workloads.cpu_ranks import ALONE  # noqa: E402

FP32 = Precision("auto", "fp32", "CPU: fp32")


class Halves(nn.Module):
    """Its forward gives the loss; the first half is frozen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.trained = nn.Linear(2, 1)

    def forward(self, rows):
        return self.trained(self.frozen(rows)).square().mean()


ROWS = torch.ones(3, 2)


def test_what_trains_is_given_to_the_optimiser_and_nothing_to_train_is_an_error():
    model = Halves()
    assert [id(weight) for weight in trainable(model)] == [id(model.trained.weight), id(model.trained.bias)]
    with pytest.raises(ValueError, match="there is nothing to train"):
        trainable(model.requires_grad_(False))


def test_a_warm_up_leaves_no_trace():
    model = Halves()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward_and_backward(model, contextlib.nullcontext(), {"rows": ROWS})
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_frozen_weights_are_left_out_where_that_was_asked_for():
    model = Halves()
    assert frozen_names(model) == {"frozen.weight", "frozen.bias"}
    assert trained_weights(model, exclude_frozen=True).keys() == {"trained.weight", "trained.bias"}
    assert trained_weights(model, exclude_frozen=False).keys() == model.state_dict().keys()


def test_weights_that_are_missing_too_many_or_of_another_shape_are_named(tmp_path):
    model, source = Halves(), tmp_path / "model.pt"
    weights = trained_weights(model, exclude_frozen=True)
    assert refuse_other_names(model, weights, source) is None
    with pytest.raises(CheckpointError, match=r"it lacks trained\.bias \(and 1 more\) and has also extra; resume"):
        refuse_other_names(model, ["extra"], source)
    with pytest.raises(CheckpointError, match="does not fit this model"):
        load_trained_weights(model, {**weights, "trained.weight": torch.zeros(5, 5)}, source)


def test_loading_changes_what_was_saved_and_nothing_else(tmp_path):
    model = Halves()
    frozen = model.frozen.weight.clone()
    load_trained_weights(model, {"trained.weight": torch.ones(1, 2), "trained.bias": torch.zeros(1)}, tmp_path)
    assert model.trained.weight.tolist() == [[1.0, 1.0]] and torch.equal(model.frozen.weight, frozen)


def test_each_rank_draws_on_where_it_was_saved(tmp_path):
    save_own_random_states(tmp_path, 3)
    drawn = torch.rand(4).tolist()
    load_own_random_states(tmp_path, 3)
    assert torch.rand(4).tolist() == drawn
    with pytest.raises(CheckpointError, match=r"random_states_rank4\.pt is missing"):
        load_own_random_states(tmp_path, 4)


def test_ddp_of_one_rank_learns_and_goes_on_to_the_bit(tmp_path):
    options = EngineOptions(lr=0.1)
    engine = DdpEngine(Halves(), ALONE, FP32, options)
    losses = [stepped(engine) for _ in range(3)]
    engine.save(tmp_path, {"note": "mine"})
    losses.append(stepped(engine))
    again = DdpEngine(Halves(), ALONE, FP32, options)
    assert again.load(tmp_path) == {"note": "mine"}
    assert stepped(again) == losses[-1] < losses[0]
    again.close()


def stepped(engine: DdpEngine) -> float:
    loss = engine.forward(rows=ROWS)
    engine.backward(loss)
    engine.step()
    return loss.item()


@pytest.mark.parametrize(
    ("torch_adam", "on_gpu", "told"),
    [
        (None, False, ("auto", "AdamW", "torch's own")),
        (True, True, ("AdamW", "AdamW, fused", "torch's own")),
        (False, False, ("FusedAdam", "AdamW", "ddp has torch's own; FusedAdam is DeepSpeed's")),
    ],
)
def test_ddp_says_which_optimiser_it_has(torch_adam, on_gpu, told):
    choices = ddp_choices(EngineOptions(lr=0.1, torch_adam=torch_adam), on_gpu=on_gpu)
    optimizer = choices["optimizer"]
    assert (optimizer.requested, optimizer.effective, optimizer.reason) == told
    assert "wall_clock_breakdown" not in choices


def test_ddp_says_that_only_deepspeed_times_its_phases():
    choice = ddp_choices(EngineOptions(lr=0.1, wall_clock_breakdown=True), on_gpu=False)["wall_clock_breakdown"]
    assert (choice.requested, choice.effective) == (True, False)


@pytest.fixture
def deepspeeds():
    """As much of DeepSpeed's engine as has to do with files."""
    copied: list[str] = []
    storage = SimpleNamespace(save=None, load=None)
    return SimpleNamespace(_copy_recovery_script=copied.append, checkpoint_engine=storage, copied=copied)


def test_deepspeeds_files_are_written_our_way(tmp_path, deepspeeds, monkeypatch):
    monkeypatch.setattr(deepspeed_files, "known_classes", list)
    files = CheckpointFiles(deepspeeds)
    with files.failing_later():
        deepspeeds.checkpoint_engine.save({"a": torch.ones(2)}, str(tmp_path / "states.pt"))
        deepspeeds._copy_recovery_script(str(tmp_path))
    assert deepspeeds.checkpoint_engine.load(str(tmp_path / "states.pt"))["a"].tolist() == [1.0, 1.0]
    assert deepspeeds.copied == [str(tmp_path)]


def test_what_fails_on_the_way_is_raised_when_all_are_through_the_first_of_it(tmp_path, deepspeeds):
    files, came_through = CheckpointFiles(deepspeeds), False
    with pytest.raises((OSError, RuntimeError), match="first"), files.failing_later():
        files.save({}, str(tmp_path / "first" / "a.pt"))
        files.save({}, str(tmp_path / "second" / "b.pt"))
        came_through = True
    assert came_through
    with files.failing_later():
        files.save({}, str(tmp_path / "well.pt"))


def test_nothing_is_put_in_the_place_of_what_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace(__version__="9.9"))
    owner = SimpleNamespace(save=1)
    put_in_place(owner, "save", 2)
    assert owner.save == 2
    with pytest.raises(RuntimeError, match=r"DeepSpeed 9\.9 has no SimpleNamespace\.store: install 0\.19\.8"):
        put_in_place(owner, "store", 3)


def test_deepspeed_that_is_not_installed_or_is_for_another_device_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(RuntimeError, match="the deepspeed package is not installed: install it, or use engine=ddp"):
        deepspeed_start._imported()
    for_cuda = SimpleNamespace(get_accelerator=lambda: SimpleNamespace(device_name=lambda: "cuda:0"))
    with pytest.raises(RuntimeError, match="DeepSpeed was started for cuda, and this rank is on cpu: set DS_ACCELERATOR=cpu"):
        deepspeed_start._refuse_other_device(for_cuda, ALONE)
