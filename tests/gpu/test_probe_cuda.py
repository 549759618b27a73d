"""The probe and tiny_lm on a real GPU."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

from seatrial.probe import Probe  # noqa: E402
from tests.gpu.check_phases import STEPS_A_ROUND, compare  # noqa: E402
from tests.workloads.ranks import column, events, run_ranks  # noqa: E402


def test_phases_by_events_agree_with_a_synchronised_reference(tmp_path):
    result = compare(tmp_path)
    assert result["holds"], json.dumps(result, indent=2)
    for row in result["phases"].values():
        assert row["synced_ms"] >= 20
        assert row["n_events"] == result["steps"] >= 3 * STEPS_A_ROUND
    assert result["losses_read"] == result["steps"]


def test_phases_are_timed_on_one_step_in_ten_and_iterations_on_every_step(tmp_path):
    weights = torch.randn(512, 512, device="cuda")
    with Probe(tmp_path, phase_every=10) as probe:
        for _ in range(30):
            with probe.step(samples=1):
                with probe.phase("fwd"):
                    product = weights @ weights
                probe.loss(product.mean())
    steps, fwd_ms = column(tmp_path, "step"), column(tmp_path, "fwd_ms")
    assert steps == list(range(30))
    assert [step for step, ms in zip(steps, fwd_ms, strict=True) if ms is not None] == [0, 10, 20]
    assert all(loss is not None for loss in column(tmp_path, "loss"))
    assert all(iter_ms > 0 for iter_ms in column(tmp_path, "iter_ms"))


def test_a_loss_overwritten_in_every_step_is_read_in_time(tmp_path):
    """Like the output of a CUDA graph: always the same tensor."""
    loss, one = torch.zeros((), device="cuda", dtype=torch.bfloat16), torch.ones((), device="cuda", dtype=torch.bfloat16)
    with Probe(tmp_path) as probe:
        for _ in range(100):
            with probe.step(samples=1):
                loss += one
            probe.loss(loss)
        torch.cuda.synchronize()
    assert column(tmp_path, "loss") == [float(step) for step in range(1, 101)]


def test_losses_on_changing_streams_are_read_after_their_own_work(tmp_path):
    matrix, streams = torch.randn(4096, 4096, device="cuda"), [torch.cuda.Stream() for _ in range(3)]
    with Probe(tmp_path) as probe:
        for number in range(60):
            with torch.cuda.stream(streams[number % 3]), probe.step(samples=1):
                torch.mm(matrix, matrix)
                loss = torch.full((), float(number), device="cuda", requires_grad=True)
                probe.loss(loss)
            if number % 10 == 9:
                torch.cuda.synchronize()
    assert column(tmp_path, "loss") == [float(number) for number in range(60)]


def test_a_loss_in_inference_mode_and_after_it_is_read(tmp_path):
    with Probe(tmp_path) as probe:
        for number in range(20):
            with torch.inference_mode(number < 10), probe.step(samples=1):
                probe.loss(torch.full((), float(number), device="cuda"))
        torch.cuda.synchronize()
    assert column(tmp_path, "loss") == [float(number) for number in range(20)]


def test_phases_are_timed_on_the_stream_they_run_on(tmp_path):
    matrix, side = torch.randn(4096, 4096, device="cuda"), torch.cuda.Stream()
    with Probe(tmp_path, phase_every=1) as probe:
        for stream in (torch.cuda.current_stream(), side) * 5:
            with torch.cuda.stream(stream), probe.step(samples=1), probe.phase("fwd"):
                for _ in range(20):
                    torch.mm(matrix, matrix)
            torch.cuda.synchronize()
    on_main, on_side = (sorted(column(tmp_path, "fwd_ms")[first::2])[2] for first in (0, 1))
    assert on_side == pytest.approx(on_main, rel=0.3)


def test_memory_of_the_gpu_is_recorded(tmp_path):
    kept = torch.zeros(64 * 1024 * 1024 // 4, device="cuda")
    with Probe(tmp_path) as probe:
        probe.memory()
    (memory,) = events(tmp_path, "memory")
    assert memory["peak_mib"] >= memory["allocated_mib"] >= kept.numel() * 4 / 2**20
    assert memory["reserved_mib"] >= memory["allocated_mib"]


def test_tiny_lm_trains_on_cuda_and_records_its_precision(tmp_path):
    run_dir = tmp_path / "run"
    done = run_ranks("tiny_lm", run_dir, steps=80, device="cuda", num_workers=2, eval_every=40, checkpoint_every=40)
    assert done.returncodes == [0], done.stderr
    losses = [loss for loss in column(run_dir, "loss") if loss is not None]
    assert len(losses) >= 60
    assert losses[-1] < 0.6 * losses[0]
    effective = {event["setting"]: event["effective"] for event in events(run_dir, "effective")}
    expected = "bf16" if torch.cuda.get_device_capability()[0] >= 8 else "fp16"
    assert (effective["precision"], effective["device"]) == (expected, "cuda:0")
    assert [fwd_ms is not None for fwd_ms in column(run_dir, "fwd_ms")].count(True) >= 6
