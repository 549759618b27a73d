"""The tiny language model: its parts, and real trainings on CPU."""

from __future__ import annotations

import os
import re
import stat
import statistics
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial.probe import Probe  # noqa: E402
from seatrial_workloads.common.precision import choose_precision  # noqa: E402
from seatrial_workloads.tiny_lm import train  # noqa: E402
from seatrial_workloads.tiny_lm.data import SyntheticText, train_loader  # noqa: E402
from seatrial_workloads.tiny_lm.model import TinyLM, next_token_loss  # noqa: E402
from seatrial_workloads.tiny_lm.settings import Settings  # noqa: E402
from tests.workloads.cpu_ranks import cpu_ranks  # noqa: E402
from tests.workloads.ranks import column, events, run_ranks  # noqa: E402

TINY = {"d_model": 32, "seq_len": 32, "n_layers": 1, "vocab_size": 64, "device": "cpu"}


@pytest.fixture
def model() -> TinyLM:
    torch.manual_seed(0)
    return TinyLM(vocab_size=50, seq_len=16, d_model=24, n_layers=2, n_heads=3)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize(("batch", "seq_len"), [(1, 1), (2, 16), (3, 7)])
def test_logits_have_a_place_for_every_token(model, batch, seq_len):
    assert model(torch.zeros(batch, seq_len, dtype=torch.long)).shape == (batch, seq_len, 50)


def test_a_token_sees_nothing_of_those_after_it(model):
    ids = torch.randint(50, (2, 16), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[:, 9:] = (changed[:, 9:] + 1) % 50
    before, after = model(ids), model(changed)
    torch.testing.assert_close(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_every_parameter_learns_and_an_untrained_model_knows_nothing(model):
    ids = torch.randint(50, (4, 17), generator=torch.Generator().manual_seed(1))
    loss = next_token_loss(model(ids[:, :-1]), ids[:, 1:])
    loss.backward()
    assert loss.item() == pytest.approx(torch.log(torch.tensor(50.0)).item(), abs=0.2)
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    assert model.num_parameters == sum(parameter.numel() for parameter in model.parameters())


def test_text_is_the_same_for_one_seed_and_follows_its_table():
    options = {"num_sequences": 4, "seq_len": 40, "vocab_size": 16}
    text, again, other = (SyntheticText(**options, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(text[2][0], again[2][0])
    assert not torch.equal(text[2][0], other[2][0])
    assert not torch.equal(text[2][0], text[3][0])
    inputs, targets = text[0]
    assert torch.equal(inputs[1:], targets[:-1])
    successors: dict[int, set[int]] = {}
    for index in range(4):
        for token, following in zip(*(part.tolist() for part in text[index]), strict=True):
            successors.setdefault(token, set()).add(following)
    assert max(len(found) for found in successors.values()) <= 4


def test_ranks_share_no_sequence_and_each_has_its_steps():
    settings = Settings(steps=3, micro_batch=2, seq_len=16)
    loaders = [train_loader(settings, cpu_ranks(rank, 2)) for rank in range(2)]
    batches = [list(loader) for loader in loaders]
    assert [len(own) for own in batches] == [3, 3]
    seen = {tuple(row.tolist()) for own in batches for inputs, _ in own for row in inputs}
    assert len(seen) == 12


@pytest.mark.parametrize(
    ("requested", "capability", "effective", "reason"),
    [
        ("auto", (9, 0), "bf16", "compute capability 9.0 has bf16"),
        ("auto", (7, 0), "fp16", "compute capability 7.0 has no bf16: fp16 with loss scaling"),
        ("auto", None, "fp32", "CPU: fp32"),
        ("bf16", (7, 5), "fp16", "compute capability 7.5 has no bf16: fp16 with loss scaling"),
        ("bf16", None, "bf16", "as requested"),
        ("fp16", (9, 0), "fp16", "as requested"),
        ("fp32", (7, 0), "fp32", "as requested"),
    ],
)
def test_precision_is_resolved_with_its_reason(requested, capability, effective, reason):
    found = choose_precision(requested, capability)
    assert (found.requested, found.effective, found.reason) == (requested, effective, reason)
    assert found.needs_scaler is (effective == "fp16")


def test_fp16_without_a_gpu_is_refused_when_settings_are_made_and_else_before_ranks_join(monkeypatch, run_dir):
    with pytest.raises(ValueError, match="a CPU has no loss scaling for it: use precision=auto, bf16 or fp32, or a GPU"):
        Settings(device="cpu", precision="fp16")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(train, "one_rank", None)
    with pytest.raises(ValueError, match="precision is 'fp16', and a CPU has no loss scaling for it"):
        train.main(["--run-dir", str(run_dir), "--precision", "fp16"])


def test_the_checkpoints_pause_does_not_wait_for_the_disk_and_its_mode_is_the_umasks(monkeypatch, tmp_path):
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", waited.append)
    model = torch.nn.Linear(2, 2)
    trainer = SimpleNamespace(ranks=cpu_ranks(), bare_model=model, optimizer=torch.optim.SGD(model.parameters()), run_dir=tmp_path)
    before = os.umask(0o002)
    try:
        train.Trainer.save_checkpoint(trainer, 4)
    finally:
        os.umask(before)
    assert waited == [] and [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert torch.load(tmp_path / "checkpoint.pt")["step"] == 4
    assert stat.S_IMODE((tmp_path / "checkpoint.pt").stat().st_mode) == 0o664


@pytest.mark.slow
def test_one_process_trains_pauses_and_tells_what_it_used(run_dir):
    done = run_ranks("tiny_lm", run_dir, steps=6, log_every=2, eval_every=3, checkpoint_every=4, num_workers=1, precision="bf16", **TINY)
    assert done.returncodes == [0], done.stderr
    assert column(run_dir, "step") == [0, 1, 2, 3, 4, 5]
    assert (set(column(run_dir, "samples")), set(column(run_dir, "tokens"))) == ({8}, {256})
    for name in ("data_wait_ms", "preprocess_ms", "fwd_ms", "bwd_ms", "step_ms"):
        assert all(ms >= 0 for ms in column(run_dir, name))
    assert [(pause["name"], pause["step"]) for pause in events(run_dir, "pause")] == [("eval", 4), ("checkpoint", 5)]
    assert torch.load(run_dir / "checkpoint.pt")["step"] == 4
    told = {event["setting"]: (event["requested"], event["effective"]) for event in events(run_dir, "effective")}
    assert told == {"precision": ("bf16", "bf16"), "device": ("cpu", "cpu")}
    _, first, *rest = done.stdout.splitlines()
    assert first.endswith("parameters, seq_len 32, batch 8 x 1 ranks, bf16 (as requested), cpu")
    assert [line.split(" - INFO - ")[1].split(":")[0] for line in rest if "Step " in line and "Loss " in line and "Avg" not in line] == [
        "Step 0",
        "Step 2",
        "Step 4",
        "Step 5",
    ]


@pytest.mark.slow
def test_two_torchrun_ranks_learn_together(run_dir):
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    argv += ["-m", "seatrial_workloads.tiny_lm.train", "--run-dir", str(run_dir), "--steps", "60", "--device", "cpu", "--seq_len", "64"]
    argv += ["--log_every", "20"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SEATRIAL_")}
    asked = {"SEATRIAL_RANK_SCOPE": "all", "SEATRIAL_ETA_MODE": "global_max"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False, env={**env, **asked, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert column(run_dir, "step", rank) == list(range(60))
        losses = column(run_dir, "loss", rank)
        assert statistics.mean(losses[-5:]) < 0.6 * losses[0]
        assert events(run_dir, "start", rank)[0]["launched_by"] == "torchrun"
        assert events(run_dir, "start", rank)[0]["world_size"] == 2
        assert len(events(run_dir, "stop", rank)) == 1
        assert [span["name"] for span in events(run_dir, "span", rank)] == ["process_group", "model", "data", "data"]
    assert column(run_dir, "loss", 0) != column(run_dir, "loss", 1), "each rank has its own text"
    assert done.stdout.count("Step 59: Loss") == 1, "rank 0 alone speaks"
    assert "destroy_process_group" not in done.stderr
    assert set(re.findall(r"TimingRank step=(\d+) rank=(\d+) ", (run_dir / "train.log").read_text())) == {
        (str(step), rank) for step in (0, 20, 40, 59) for rank in "01"
    }
    assert "TimingETA step=59 remain_steps=0 eta_sec=0.0 eta_hms=00:00:00 mode=global_max" in done.stdout


@pytest.mark.slow
def test_the_same_seed_gives_the_same_losses(tmp_path):
    losses = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        (tmp_path / name).mkdir()
        run_ranks("tiny_lm", tmp_path / name / "run", steps=4, seed=seed, **TINY)
        losses.append(column(tmp_path / name / "run", "loss"))
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_cuda_without_a_gpu_is_refused_with_the_remedy(monkeypatch):
    from seatrial_workloads.common.distributed import joined_ranks

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="use device=auto or cpu"), joined_ranks("cuda", Probe()):
        pass
