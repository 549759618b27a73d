"""Sparse attention on a GPU: bf16 paths against the fp32 reference, selected blocks, a step without a synchronisation, and trainings whose
step is compiled and captured."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")]
# torch's own warnings, of its debug mode and of what compiling imports.
pytestmark += [
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]

from seatrial_workloads.common.distributed import Ranks  # noqa: E402
from seatrial_workloads.common.engines import EngineOptions  # noqa: E402
from seatrial_workloads.common.engines.ddp import DdpEngine  # noqa: E402
from seatrial_workloads.common.precision import Precision  # noqa: E402
from seatrial_workloads.sparse_lm.model import SparseLM  # noqa: E402
from seatrial_workloads.sparse_lm.ops import compressed, gathered, masked, naive, selection, tiles  # noqa: E402
from seatrial_workloads.sparse_lm.ops.layout import document_starts  # noqa: E402
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v2  # noqa: E402
from seatrial_workloads.sparse_lm.ops.shape import ModelShape  # noqa: E402
from tests.workloads.ranks import events  # noqa: E402
from tests.workloads.sparse_lm.shapes import assert_close, assert_whole_agrees, documents, tensors, with_gradients  # noqa: E402
from tests.workloads.sparse_lm.trainings import TINY, losses, rows, run  # noqa: E402

SHAPE = ModelShape()
ONE_GPU = Ranks(rank=0, local_rank=0, world_size=1, device=torch.device("cuda", 0))


@pytest.fixture(autouse=True)
def fresh_and_full_fp32() -> Iterator[None]:
    """TF32 would round the reference. Nothing compiled is left from other tests: torch compiles a function for eight shapes."""
    torch._dynamo.reset()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def on_gpu(seq_len: int, dtype, packed: bool):
    inputs = [tensor.to("cuda", dtype) for tensor in tensors(SHAPE, seq_len)]
    return inputs, document_starts(documents(2, seq_len).cuda()) if packed else None


# More than 4,096 tokens are more than 64 blocks, for which FlexAttention reads bytes in place of bits.
@pytest.mark.parametrize(
    ("seq_len", "packed", "dtype", "tolerance"),
    [(4161, True, "bfloat16", 2e-2), (2048, False, "bfloat16", 2e-2), (111, True, "float32", 1e-5)],
)
def test_branches_agree_with_the_reference_given_the_same_blocks(seq_len: int, packed: bool, dtype: str, tolerance: float) -> None:
    inputs, starts = on_gpu(seq_len, getattr(torch, dtype), packed)
    exact = [tensor.float() for tensor in inputs]
    num_blocks = SHAPE.num_sel(seq_len)
    ids = selection.select(torch.rand(2, seq_len, 2, num_blocks, device="cuda"), SHAPE, starts)
    bits = selection.block_bits(ranges_v2(ids, SHAPE.sel_block, num_blocks), SHAPE, num_blocks)
    expected = with_gradients(lambda *qkv: naive.selected(*qkv, ids, SHAPE, starts), exact)
    for path in (
        lambda *qkv: tiles.selected(*qkv, bits, SHAPE, starts),
        lambda *qkv: masked.selected(*qkv, bits, SHAPE, starts),
        lambda *qkv: gathered.selected(*qkv, ids, SHAPE, starts),
    ):
        assert_close(with_gradients(path, inputs), expected, tolerance)
    expected = with_gradients(lambda *qkv: naive.window(*qkv, SHAPE, starts), exact)
    assert_close(with_gradients(lambda *qkv: tiles.window(*qkv, SHAPE, starts), inputs), expected, tolerance)

    def reference(query, key, value):
        return naive.compressed(query, naive.pool(key, SHAPE), naive.pool(value, SHAPE), SHAPE, seq_len, starts)[0]

    def fast(query, key, value):
        return compressed.compressed(query, compressed.pool(key, SHAPE), compressed.pool(value, SHAPE), SHAPE, starts)[0]

    assert_close(with_gradients(fast, inputs), with_gradients(reference, exact), tolerance)


@pytest.mark.parametrize("selected", ["flex", "mask", "gather"])
@pytest.mark.parametrize(("seq_len", "packed"), [(2048, False), (1111, True)])
def test_the_whole_attention_agrees_with_the_reference_given_the_same_blocks(seq_len: int, packed: bool, selected: str) -> None:
    assert_whole_agrees(SHAPE, seq_len, packed=packed, selected=selected, device="cuda", dtype=torch.bfloat16, tolerance=2e-2)


@pytest.mark.parametrize("tf32", [False, True])
def test_bf16_selects_the_blocks_of_the_reference(tf32: bool) -> None:
    """On 99 % of rows; where not, the blocks that differ score within rounding of the last one that was selected."""
    (query, key, value), _ = on_gpu(2048, torch.bfloat16, packed=False)
    probabilities = naive.compressed(query.float(), naive.pool(key.float(), SHAPE), naive.pool(value.float(), SHAPE), SHAPE, 2048)[1]
    scores = naive.block_scores(probabilities, SHAPE, 2048)
    expected = naive.select(scores, SHAPE, 2048)
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    by_group = compressed.compressed(query, compressed.pool(key, SHAPE), compressed.pool(value, SHAPE), SHAPE)[1]
    found = selection.select(compressed.block_scores(by_group, SHAPE), SHAPE)
    same = (found == expected).all(dim=-1)
    print(f"rows with the reference's blocks, TF32 {tf32}: {same.float().mean().item():.5f} of {same.numel()}")
    assert same.float().mean() >= 0.99
    blocks = torch.arange(scores.shape[-1], device="cuda")
    in_found, in_expected = ((ids[..., None] == blocks).any(dim=-2) for ids in (found, expected))
    local = blocks >= (torch.arange(2048, device="cuda")[:, None, None] // SHAPE.sel_block) - 1
    ranked = scores.masked_fill(local | (blocks == 0), -1.0).sort(dim=-1, descending=True).values
    # Three of the sixteen are forced.
    cut = ranked[..., SHAPE.n_sel - 4 : SHAPE.n_sel - 3]
    # A logit rounded to 8 bits, and all others in its normaliser, on both sides of the cut.
    logit = (query.float().norm(dim=-1).max() * key.float().norm(dim=-1).max() / 8).item() / math.sqrt(SHAPE.cmp_block)
    rounding = math.expm1(4 * logit * 2**-9)
    apart = (scores - cut).abs() / cut
    assert (apart[in_found != in_expected] <= rounding).all()


def test_a_step_does_not_synchronise() -> None:
    """The trainer's engine over the production model, shorter and with fewer layers; statistics collected. Eager, then captured."""
    torch.manual_seed(0)
    model = SparseLM(ModelShape(n_layers=2)).cuda()
    model.collect_statistics(True)
    engine = DdpEngine(model, ONE_GPU, Precision("bf16", "bf16", ""), EngineOptions(lr=1e-3))
    tokens = torch.randint(0, 256, (2, 1024), device="cuda")
    inputs = {"tokens": tokens, "targets": tokens, "documents": documents(2, 1024).cuda()}

    def step():
        loss = engine.forward(**inputs)
        engine.backward(loss)
        engine.step()
        return loss.detach()

    # Compiles FlexAttention, which may synchronise; as may a capture.
    losses = [step()]
    with no_synchronisation():
        losses += [step() for _ in range(3)]
    engine.capture(**inputs)
    with no_synchronisation():
        losses += [engine.replay(**inputs) for _ in range(3)]
    assert losses[-1] < losses[3] < losses[0], "it learns the batch, captured or not"
    assert model.statistics()["sel_k_max"].item() <= 1024


@contextlib.contextmanager
def no_synchronisation() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


# Heads as wide as FlexAttention needs them; the loss in chunks and blocks recomputed, which capture must allow.
TRAINED = TINY | {
    "dim": 64,
    "d_k": 16,
    "d_v": 16,
    "cmp_block": 16,
    "cmp_stride": 8,
    "sel_block": 32,
    "window": 32,
    "seq_len": 256,
    "batch_size": 4,
    "loss_chunk": 300,
    "gradient_checkpointing": True,
    "device": "cuda",
    "precision": "fp32",
    "steps": 12,
    "log_every": 3,
    "eval_every": 5,
    "checkpoint_every": 6,
    "checkpoint_keep": 5,
}
COMPARED = {"training.csv": ("loss", "lr", "grad_norm"), "k_stats.csv": ("k_mean", "gate_entropy_mean"), "val.csv": ("val_loss",)}


def effective(run_dir: Path, setting: str):
    return [event["effective"] for event in events(run_dir, "effective") if event["setting"] == setting]


def test_a_captured_training_is_the_eager_one(tmp_path: Path) -> None:
    """Losses, gradient norms, statistics and validations; resumed from a checkpoint of either kind; an end by NaN, inside the graph and by
    a step beside it."""
    for name, graph in (("eager", False), ("captured", True)):
        assert run(ONE_GPU, tmp_path / name, {**TRAINED, "cuda_graph": graph}) == "steps"
        assert effective(tmp_path / name, "cuda_graph") == [graph]
        source = str(tmp_path / name / "checkpoints" / "ckpt_iter_5")
        run(ONE_GPU, tmp_path / f"after {name}", {**TRAINED, "cuda_graph": not graph, "resume_from": source})
    for file, columns in COMPARED.items():
        for column in columns:
            one, other = ([float(row[column]) for row in rows(tmp_path / name, file)] for name in ("captured", "eager"))
            assert one == pytest.approx(other, rel=1e-3), column
    for name in ("eager", "captured"):
        assert losses(tmp_path / f"after {name}") == pytest.approx(losses(tmp_path / name)[6:], rel=1e-3)
    captured = {**TRAINED, "cuda_graph": True, "checkpoint_every": None}
    assert run(ONE_GPU, tmp_path / "fault", {**captured, "fault": "nan@4"}) == "nan_loss"
    assert run(ONE_GPU, tmp_path / "overflow", {**captured, "lr": 1e38, "warmup_steps": 0}) == "nan_loss"
    assert effective(tmp_path / "overflow", "cuda_graph") == effective(tmp_path / "fault", "cuda_graph") == [True]


def test_a_compiled_training_is_captured_and_has_the_eager_losses(tmp_path: Path) -> None:
    settings = {**TRAINED, "gradient_checkpointing": False, "eval_every": None, "checkpoint_every": None, "steps": 6}
    for name in ("eager", "compiled"):
        run(ONE_GPU, tmp_path / name, {**settings, "compile": name == "compiled"})
    assert effective(tmp_path / "compiled", "compile") == effective(tmp_path / "compiled", "cuda_graph") == [True]
    assert effective(tmp_path / "eager", "cuda_graph") == [False]
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "eager"), rel=1e-3)
