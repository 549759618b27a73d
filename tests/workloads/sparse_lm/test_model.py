"""The sparse language model as a whole: causality, packing, decoding, loss, statistics, paths."""

from __future__ import annotations

import math

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
torch = pytest.importorskip("torch")

from torch._dynamo.testing import CompileCounter  # noqa: E402
from torch.nn import functional  # noqa: E402

from seatrial_workloads.sparse_lm.model import STATISTICS, SparseLM  # noqa: E402
from seatrial_workloads.sparse_lm.ops.attention_paths import AttentionPaths, choose_fla, choose_paths  # noqa: E402
from seatrial_workloads.sparse_lm.ops.shape import ModelShape  # noqa: E402
from tests.workloads.sparse_lm.shapes import assert_close, documents, small  # noqa: E402

SEQ_LEN = 65


def create(**changed: object) -> SparseLM:
    """With weights large enough that every branch and gate shows in the output."""
    torch.manual_seed(0)
    model = SparseLM(small(**changed))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def tokens(seq_len: int = SEQ_LEN, seed: int = 0):
    return torch.randint(0, 17, (2, seq_len), generator=torch.Generator().manual_seed(seed))


def test_the_production_shape_has_its_parameters() -> None:
    with torch.device("meta"):
        model = SparseLM(ModelShape())
    assert model.num_parameters == ModelShape().num_parameters == 78_295_332


@pytest.mark.parametrize("changed", [{}, {"phi": "conv"}, {"n_layers": 1, "n_heads": 6, "d_v": 3}])
def test_parameters_are_counted_from_the_shape(changed: dict[str, object]) -> None:
    assert create(**changed).num_parameters == small(**changed).num_parameters


@pytest.mark.parametrize(
    "paths", [AttentionPaths(selected="mask"), AttentionPaths(selected="gather"), AttentionPaths(prefill="sequential")]
)
def test_a_token_changes_nothing_before_it(paths: AttentionPaths) -> None:
    model = create()
    model.paths = paths
    before, changed = tokens(), tokens()
    changed[:, 40] = (changed[:, 40] + 1) % 17
    one, other = model(before), model(changed)
    assert torch.equal(one[:, :40], other[:, :40])
    assert not torch.allclose(one[:, 40:], other[:, 40:])


def test_the_same_twice() -> None:
    model = create()
    losses, gradients = [], []
    for _ in range(2):
        loss = model(tokens(), tokens(seed=1))
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert torch.equal(*losses)
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("phi", ["avg", "conv"])
@pytest.mark.parametrize("prompt", [1, 7, 40])
def test_decoding_gives_what_prefill_gives(prompt: int, phi: str) -> None:
    model, ids = create(phi=phi), tokens()
    expected, cache = model(ids), model.create_cache(SEQ_LEN)
    found = [model.decode(ids[:, :prompt], cache), *(model.decode(ids[:, at : at + 1], cache) for at in range(prompt, SEQ_LEN))]
    assert_close([torch.cat(found, dim=1)], [expected])
    with pytest.raises(ValueError, match="larger max_len"):
        model.decode(ids[:, :1], cache)
    with pytest.raises(ValueError, match="one at a time"):
        model.decode(ids[:, :2], cache)


@pytest.mark.parametrize("ranges", ["v1", "v2"])
@pytest.mark.parametrize("packed", [False, True])
def test_sequential_prefill_gives_what_batched_gives(packed: bool, ranges: str) -> None:
    model, ids = create(), documents(2, SEQ_LEN) if packed else None
    found = {}
    for prefill in ("batched", "sequential"):
        model.paths = AttentionPaths(prefill=prefill, ranges=ranges)
        model.collect_statistics(True)
        loss = model(tokens(), tokens(seed=1), ids)
        found[prefill] = [loss.detach(), *torch.autograd.grad(loss, list(model.parameters())), *model.statistics().values()]
    assert_close(found["sequential"], found["batched"], tolerance=2e-5)


def test_documents_do_not_see_each_other() -> None:
    model, ids = create(), torch.tensor([0] * 20 + [1] * 30 + [0] * 15).expand(2, -1)
    before, changed = tokens(), tokens()
    changed[:, 20:50] = tokens(seed=9)[:, 20:50]
    one, other = model(before, documents=ids), model(changed, documents=ids)
    assert torch.equal(one[:, :20], other[:, :20])
    assert torch.equal(one[:, 50:], other[:, 50:])
    assert not torch.allclose(one[:, 20:50], other[:, 20:50])


def test_a_packed_document_is_computed_as_if_it_stood_alone() -> None:
    """Where it begins at a multiple of the selection block."""
    model, row = create(), tokens(72)
    ids = torch.tensor([0] * 24 + [1] * 16 + [2] * 32).expand(2, -1)
    alone = [model(row[:, begin:end]) for begin, end in ((0, 24), (24, 40), (40, 72))]
    assert_close([model(row, documents=ids)], [torch.cat(alone, dim=1)])


@pytest.mark.parametrize("chunk", [1, 50, 130, None])
def test_loss_in_chunks(chunk: int | None) -> None:
    model = create()
    model.loss_chunk = chunk or model.loss_chunk
    targets = tokens(seed=1)
    targets[:, ::3] = -100
    loss = model(tokens(), targets)
    expected = functional.cross_entropy(model(tokens()).flatten(0, 1), targets.flatten(), ignore_index=-100)
    parameters = list(model.parameters())
    assert_close([loss, *torch.autograd.grad(loss, parameters)], [expected, *torch.autograd.grad(expected, parameters)], tolerance=2e-5)


def test_the_loss_is_fp32_and_no_target_gives_zero() -> None:
    model = create().bfloat16()
    assert model(tokens(), tokens()).dtype == torch.float32
    assert model(tokens(), torch.full((2, SEQ_LEN), -100)).item() == 0.0


def test_checkpointing_changes_no_gradient() -> None:
    model = create()
    found = []
    for model.gradient_checkpointing in (False, True):
        found.append(torch.autograd.grad(model(tokens(), tokens(seed=1)), list(model.parameters())))
    assert_close(*found)


def test_statistics_of_equal_gates_and_of_collapsed_ones() -> None:
    model = create()
    gate = model.blocks[0].attention.gate[2]
    model.collect_statistics(True)
    torch.nn.init.zeros_(gate.weight)
    torch.nn.init.zeros_(gate.bias)
    model(tokens())
    found = {name: value.item() for name, value in model.statistics().items()}
    assert tuple(found) == STATISTICS
    assert found["gate_entropy_mean"] == pytest.approx(math.log(3), abs=1e-4) == found["gate_entropy_min"]
    assert found["gate_share_sel"] == pytest.approx(1 / 3)
    assert found["gate_collapse_frac"] == 0
    # Rows are queries × groups. From token 31 on, four blocks of 8; the last is partial but for every eighth query.
    assert found["sel_rows"] == 2 * SEQ_LEN * 2
    assert found["sel_k_max"] == 32
    whole = sum(query >= 31 and query % 8 == 7 for query in range(SEQ_LEN))
    assert found["sel_pct_at_max"] == pytest.approx(whole / SEQ_LEN)
    torch.nn.init.constant_(gate.bias[1:2], 60.0)
    model.collect_statistics(False)
    model(tokens())
    assert model.statistics()["gate_collapse_frac"].item() == 0
    model.collect_statistics(True)
    model(tokens())
    assert model.statistics()["gate_collapse_frac"].item() == 1
    assert model.statistics()["gate_share_sel"].item() == pytest.approx(1)


# torch hides it from all but those who make errors of warnings.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_the_blocks_are_compiled_once_for_all_layers_and_both_kinds_of_step() -> None:
    """What a GPU takes half a minute for."""
    model, compiled = create(), CompileCounter()
    expected = model(tokens(), tokens(seed=1), documents(2, SEQ_LEN))
    model.compile_blocks(dynamic=False, backend=compiled)
    for collects in (False, True, False):
        model.collect_statistics(collects)
        found = model(tokens(), tokens(seed=1), documents(2, SEQ_LEN))
        torch.autograd.grad(found, list(model.parameters()))
    assert compiled.frame_count == 1
    assert_close([found], [expected])
    assert model.statistics()["sel_rows"].item() == 2 * SEQ_LEN * 2
    torch._dynamo.reset()


def test_tokens_of_another_document_are_not_counted_as_selected() -> None:
    model = create()
    model.collect_statistics(True)
    model(tokens(), documents=torch.arange(SEQ_LEN).expand(2, -1))
    assert model.statistics()["sel_k_max"].item() == 1


@pytest.mark.parametrize(
    ("requested", "device", "seq_len", "effective"),
    [
        ({}, "cuda", 2048, {"selected": "flex", "window": "flex", "sdpa": "any"}),
        ({}, "cpu", 2048, {"selected": "mask", "window": "mask"}),
        ({"selected": "flex"}, "cpu", 64, {"selected": "mask"}),
        ({"selected": "gather"}, "cuda", 64, {"selected": "gather"}),
        ({"sdpa": "no_flash"}, "cpu", 64, {"sdpa": "no_flash"}),
        ({"sdpa": "flash"}, "cpu", 64, {"sdpa": "any"}),
        ({"sdpa": "no_flash"}, "cuda", 64, {"sdpa": "any"}),
        ({"prefill": "sequential"}, "cuda", 64, {"prefill": "sequential", "selected": "naive", "window": "naive"}),
    ],
)
def test_paths(requested: dict[str, str], device: str, seq_len: int, effective: dict[str, str]) -> None:
    chosen = choose_paths(AttentionPaths(**requested), device=device, seq_len=seq_len)
    for part, value in effective.items():
        choice = getattr(chosen, part)
        assert choice.effective == value
        assert choice.requested == requested.get(part, choice.requested)
        assert choice.reason


@pytest.mark.parametrize(("device", "reason"), [("cuda", "take no mask"), ("cpu", "takes the mask")])
def test_why_flash_alone_has_no_effect_depends_on_the_device(device: str, reason: str) -> None:
    choice = choose_paths(AttentionPaths(sdpa="flash", selected="mask", window="mask"), device=device, seq_len=64).sdpa
    assert (choice.effective, reason in choice.reason) == ("any", True)


def test_choices_name_every_layer() -> None:
    choices = create().choices(SEQ_LEN)
    assert choices["layers.1.selected"].effective == "mask"
    assert len(choices) == 2 * 6


@pytest.mark.parametrize(
    ("requested", "device", "heads", "reason"),
    [
        ("auto", "cuda", 6, "groups of 16 query heads or a multiple, and this model has 6"),
        ("auto", "cuda", 32, "no path calls its kernels"),
        ("auto", "cpu", 16, "cpu: its kernels are Triton's"),
        ("off", "cuda", 6, "as requested"),
    ],
)
def test_why_flash_linear_attention_is_not_taken(requested: str, device: str, heads: int, reason: str) -> None:
    choice = choose_fla(requested, device=device, heads_per_group=heads)
    assert (choice.requested, choice.effective) == (requested, "off") and reason in choice.reason


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_heads": 5}, r"n_heads \(5\) is not a multiple of n_kv_groups \(2\): use for example n_heads=4"),
        ({"cmp_stride": 3}, "cmp_block .* is not a multiple of cmp_stride"),
        ({"sel_block": 10}, "sel_block .* is not a multiple of cmp_stride"),
        ({"n_sel": 2}, "n_sel is 2; it must be 3 or more"),
        ({"d_k": 7}, "use an even one"),
        ({"phi": "mean"}, "expected one of avg, conv"),
        ({"gate_temperature": 0.0}, "above 0"),
    ],
)
def test_shapes_that_cannot_be(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changed)
