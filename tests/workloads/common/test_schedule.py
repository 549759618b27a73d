"""The learning rate of a step, held against DeepSpeed's own scheduler."""

from __future__ import annotations

import os

import pytest

from seatrial_workloads.common.schedule import lr_factor


@pytest.mark.torch
@pytest.mark.parametrize(("warmup", "total"), [(10, 100), (1, 20), (2, 2), (30, 20), (1000, 5000)])
def test_it_is_deepspeeds_warm_up_and_cosine(warmup, total, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("DS_ACCELERATOR", os.environ.get("DS_ACCELERATOR", "cpu"))
    schedules = pytest.importorskip("deepspeed.runtime.lr_schedules")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = schedules.WarmupCosineLR(optimizer, total, warmup_num_steps=warmup, cos_min_ratio=1e-4, last_batch_iteration=0)
    for step in range(total + 20):
        theirs.last_batch_iteration = step
        own = lr_factor(step, warmup_steps=warmup, schedule_steps=total, min_ratio=1e-4)
        assert own == pytest.approx(theirs.get_lr_ratio(), rel=1e-12, abs=1e-15)


def test_it_rises_from_nothing_and_ends_at_its_least():
    factors = [lr_factor(step, warmup_steps=10, schedule_steps=50, min_ratio=0.1) for step in range(60)]
    assert (factors[0], factors[9]) == (0.0, 1.0)
    assert factors[:10] == sorted(factors[:10])
    assert factors[10:50] == sorted(factors[10:50], reverse=True)
    assert factors[49:] == pytest.approx([0.1] * 11)


def test_without_a_warm_up_it_begins_near_one_and_comes_down():
    factors = [lr_factor(step, warmup_steps=0, schedule_steps=10, min_ratio=0.0) for step in range(10)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 0.97
    assert factors[-1] == pytest.approx(0.0)
