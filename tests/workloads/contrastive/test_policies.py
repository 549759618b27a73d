"""What settings come to on these ranks, what says that it has no effect, and rows of all ranks."""

from __future__ import annotations

import dataclasses

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial_workloads.common.precision import choose_precision  # noqa: E402
from seatrial_workloads.contrastive import checkpointing, negatives  # noqa: E402
from seatrial_workloads.contrastive.policies import engine_options, math_options, resolve_policies  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402
from tests.workloads.cpu_ranks import cpu_ranks  # noqa: E402


def test_every_policy_is_told_with_what_was_asked_for():
    policies = resolve_policies(Settings(device="cpu", precision="bf16"), cpu_ranks())
    assert policies.choices["precision"] == policies.precision == choose_precision("bf16", None)
    assert policies.choices["device"].effective == "cpu"
    assert policies.choices["attn_impl"].effective == policies.speech_attention == policies.text_attention
    assert {"model_load_dtype", "speech_attn_impl", "text_attn_impl"} <= policies.choices.keys()


def test_encoders_that_attend_differently_are_both_named():
    policies = resolve_policies(Settings(device="cpu", speech_attn_impl="eager", text_attn_impl="sdpa"), cpu_ranks())
    assert (policies.speech_attention, policies.text_attention) == ("eager", "sdpa")
    assert policies.choices["attn_impl"].reason == "speech eager, text sdpa"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"num_workers": 2}, set()),
        ({"num_workers": 0}, {"prefetch_factor"}),
        ({"num_workers": 2, "dataset_use_trim": True, "dataset_offline_trimmed": True}, {"dataset_use_trim"}),
        ({"num_workers": 2, "dataset_use_trim": True, "dataset_offline_trimmed": False}, set()),
    ],
)
def test_a_setting_that_does_nothing_says_so(given, named):
    choices = resolve_policies(Settings(device="cpu", **given), cpu_ranks()).choices
    assert {"prefetch_factor", "dataset_use_trim"} & choices.keys() == named


def test_the_engine_is_asked_for_what_the_settings_say():
    settings = Settings(lr=0.01, beta1=0.8, micro_batch=3, zero_stage=2, engine="deepspeed", torch_adam=True, overlap_comm=False)
    options = engine_options(settings)
    assert (options.lr, options.betas, options.micro_batch, options.zero_stage) == (0.01, (0.8, settings.beta2), 3, 2)
    assert (options.torch_adam, options.overlap_comm, options.exclude_frozen) == (True, False, settings.checkpoint_exclude_frozen)
    assert math_options(settings).tf32 == settings.tf32


@pytest.mark.parametrize(("every", "saved"), [(None, []), (2, [2, 4, 5]), (5, [5]), (6, [5]), (7, []), (1_000_000, [])])
def test_which_steps_are_saved(every, saved):
    settings = dataclasses.replace(Settings(steps=6), checkpoint_every_steps=every)
    assert [step for step in range(6) if checkpointing.is_saved(step, settings)] == saved


def test_a_rank_alone_keeps_its_rows():
    rows = torch.ones(2, 3)
    assert negatives.gather_rows(rows) is rows


def test_rows_of_all_ranks_come_in_rank_order_and_gradients_find_their_way_back(monkeypatch):
    """Rank 1 of two, its partner played: rank 0 has twos and its loss asks for the same gradients."""

    def all_gather(parts, rows):
        parts[0].fill_(2.0)
        parts[1].copy_(rows)

    for name, answer in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 1)):
        monkeypatch.setattr(negatives.dist, name, lambda answer=answer: answer)
    monkeypatch.setattr(negatives.dist, "all_gather", all_gather)
    monkeypatch.setattr(negatives.dist, "all_reduce", lambda summed: summed.mul_(2))
    rows = torch.ones(1, 3, requires_grad=True)
    gathered = negatives.gather_rows(rows)
    assert gathered.tolist() == [[2.0] * 3, [1.0] * 3]
    (gathered * torch.tensor([[1.0], [5.0]])).sum().backward()
    assert rows.grad.tolist() == [[10.0] * 3]
