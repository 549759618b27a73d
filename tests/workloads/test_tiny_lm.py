"""The tiny language model: its parts, and real trainings on CPU."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial.core.ports import reserve_port  # noqa: E402
from seatrial_workloads.tiny_lm import train  # noqa: E402
from seatrial_workloads.tiny_lm.data import SyntheticText, train_loader  # noqa: E402
from seatrial_workloads.tiny_lm.model import TinyLM, next_token_loss  # noqa: E402
from seatrial_workloads.tiny_lm.settings import Settings  # noqa: E402
from tests.workloads.cpu_ranks import cpu_ranks  # noqa: E402
from tests.workloads.ranks import column, events, run_module, run_ranks  # noqa: E402

TINY = {"d_model": 32, "seq_len": 32, "n_layers": 1, "vocab_size": 64, "device": "cpu"}


@pytest.fixture
def model() -> TinyLM:
    torch.manual_seed(0)
    return TinyLM(Settings(vocab_size=50, seq_len=16, d_model=24, n_layers=2, n_heads=3))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_attention_is_causal(model):
    ids = torch.randint(50, (2, 16), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[:, 9:] = (changed[:, 9:] + 1) % 50
    before, after = model(ids), model(changed)
    assert before.shape == (2, 16, 50)
    torch.testing.assert_close(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_every_parameter_has_a_gradient_and_the_first_loss_is_that_of_a_guess(model):
    ids = torch.randint(50, (4, 17), generator=torch.Generator().manual_seed(1))
    loss = next_token_loss(model(ids[:, :-1]), ids[:, 1:])
    loss.backward()
    assert loss.item() == pytest.approx(torch.log(torch.tensor(50.0)).item(), abs=0.2)
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    assert model.num_parameters == sum(parameter.numel() for parameter in model.parameters())


def test_text_is_reproducible_by_seed_and_follows_its_table():
    text, again, other = (SyntheticText(Settings(seq_len=40, vocab_size=16, seed=seed), 4) for seed in (1, 1, 2))
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


def test_fp16_without_a_gpu_is_refused_before_the_ranks_join(monkeypatch, run_dir):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(train, "rank_context", None)
    with pytest.raises(ValueError, match="precision is 'fp16'"):
        train.main(["--run-dir", str(run_dir), "--precision", "fp16"])


def test_a_checkpoint_is_written_without_fsync_and_its_mode_follows_the_umask(monkeypatch, tmp_path):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    model = torch.nn.Linear(2, 2)
    trainer = SimpleNamespace(ranks=cpu_ranks(), bare_model=model, optimizer=torch.optim.SGD(model.parameters()), run_dir=tmp_path)
    trainer.scaler = torch.amp.GradScaler("cpu", enabled=False)
    before = os.umask(0o002)
    try:
        train.Trainer.save_checkpoint(trainer, 4)
    finally:
        os.umask(before)
    (written,) = (tmp_path / "checkpoints").iterdir()
    assert synced == [] and written.name == "newest.pt"
    assert torch.load(written)["step"] == 4
    assert stat.S_IMODE(written.stat().st_mode) == 0o664


@pytest.mark.slow
def test_one_process_trains_and_records_pauses_and_effective_settings(run_dir):
    done = run_ranks("tiny_lm", run_dir, steps=6, log_every=2, eval_every=3, checkpoint_every=4, num_workers=1, precision="bf16", **TINY)
    assert done.returncodes == [0], done.stderr
    assert column(run_dir, "step") == [0, 1, 2, 3, 4, 5]
    assert (set(column(run_dir, "samples")), set(column(run_dir, "tokens"))) == ({8}, {256})
    for name in ("data_wait_ms", "preprocess_ms", "fwd_ms", "bwd_ms", "step_ms"):
        assert all(ms >= 0 for ms in column(run_dir, name))
    assert [(pause["name"], pause["step"]) for pause in events(run_dir, "pause")] == [("eval", 4), ("checkpoint", 5)]
    assert torch.load(run_dir / "checkpoints" / "newest.pt")["step"] == 4
    effective = {event["setting"]: (event["requested"], event["effective"]) for event in events(run_dir, "effective")}
    assert effective == {"precision": ("bf16", "bf16"), "device": ("cpu", "cpu")}
    _, first, *rest = done.stdout.splitlines()
    assert first.endswith("parameters, seq_len 32, batch 8 x 1 ranks, bf16 (as requested), cpu")
    assert re.findall(r"- Step (\d): Loss ", "\n".join(rest)) == ["0", "2", "4", "5"]


def test_without_a_compiler_all_ranks_fall_back_and_record_why(tmp_path):
    argv = ["tests.workloads.tiny_lm_in_turn"]
    no_compiler = {"CXX": str(tmp_path / "no-compiler"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    with reserve_port() as first, reserve_port() as second:
        for name, compiles, held in (("plain", False, first), ("compiled", True, second)):
            settings = tmp_path / f"{name}.json"
            settings.write_text(json.dumps({**TINY, "steps": 3, "num_workers": 0, "compile": compiles}))
            argv += [str(held.port), str(settings), str(tmp_path / name)]
        done = run_module(argv, 2, MASTER_ADDR="127.0.0.1", **no_compiler)
    assert done.returncodes == [0, 0], done.stderr
    losses = {name: [column(tmp_path / name, "loss", rank) for rank in range(2)] for name in ("plain", "compiled")}
    assert losses["compiled"] == losses["plain"], "the same seed, the same losses"
    for rank in range(2):
        (event,) = [event for event in events(tmp_path / "compiled", "effective", rank) if event["setting"] == "compile"]
        assert (event["requested"], event["effective"]) == (True, False)
        assert event["reason"]
