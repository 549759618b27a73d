"""Sparse attention on a GPU: bf16 paths against the fp32 reference, selected blocks, a step without a synchronisation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")]
# torch's own warnings, of its debug mode and of what compiling imports.
pytestmark += [
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]

from seatrial_workloads.common.distributed import Ranks  # noqa: E402
from seatrial_workloads.common.engines import EngineOptions, create_engine  # noqa: E402
from seatrial_workloads.common.precision import Precision  # noqa: E402
from seatrial_workloads.sparse_lm.model import SparseLM  # noqa: E402
from seatrial_workloads.sparse_lm.ops import compressed, gathered, masked, naive, selection, tiles  # noqa: E402
from seatrial_workloads.sparse_lm.ops.layout import document_starts  # noqa: E402
from seatrial_workloads.sparse_lm.ops.ranges import ranges_v2  # noqa: E402
from seatrial_workloads.sparse_lm.shape import ModelShape  # noqa: E402
from tests.workloads.sparse_lm.shapes import assert_close, documents, tensors, with_gradients  # noqa: E402

SHAPE = ModelShape()


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


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("seq_len", "dtype", "tolerance"), [(111, "float32", 1e-5), (2048, "bfloat16", 2e-2), (4161, "bfloat16", 2e-2)])
def test_branches_agree_with_the_reference_given_the_same_blocks(seq_len: int, dtype: str, tolerance: float, packed: bool) -> None:
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
    """The trainer's engine over the production model, shorter and with fewer layers; statistics collected."""
    torch.manual_seed(0)
    model = SparseLM(ModelShape(n_layers=2)).cuda()
    model.collect_statistics(True)
    ranks = Ranks(rank=0, local_rank=0, world_size=1, device=torch.device("cuda", 0))
    engine = create_engine("ddp", model, ranks, Precision("bf16", "bf16", ""), EngineOptions(lr=1e-3))
    tokens = torch.randint(0, 256, (2, 1024), device="cuda")
    ids = documents(2, 1024).cuda()

    def step():
        loss = engine.forward(tokens=tokens, targets=tokens, documents=ids)
        engine.backward(loss)
        engine.step()
        return loss

    # Compiles FlexAttention, which may synchronise.
    first = step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            last = step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert last.item() < first.item()
    assert model.statistics()["sel_k_max"].item() <= 1024


def test_compiled_blocks_give_the_same_loss() -> None:
    torch.manual_seed(0)
    model = SparseLM(ModelShape(n_layers=2)).cuda()
    tokens = torch.randint(0, 256, (2, 512), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        expected = model(tokens, tokens)
        model.compile_blocks(dynamic=False)
        assert_close([model(tokens, tokens)], [expected], 1e-3)
