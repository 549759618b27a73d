"""Fast paths of the speech–text model on a GPU against the plain modules: forward and gradients."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")]

from seatrial_workloads.common.distributed import Ranks  # noqa: E402
from seatrial_workloads.common.effective_settings import as_requested  # noqa: E402
from seatrial_workloads.common.engines import EngineOptions, create_engine  # noqa: E402
from seatrial_workloads.common.precision import Precision  # noqa: E402
from seatrial_workloads.contrastive.model.encoders import speech_model, text_model  # noqa: E402
from seatrial_workloads.contrastive.model.fast_paths import apply_fast_paths, capture_tower, longest_samples, pad_inputs  # noqa: E402
from seatrial_workloads.contrastive.model.front_end import MatrixFrontEnd  # noqa: E402
from seatrial_workloads.contrastive.model.graphs import MAX_SHAPES, GraphedTextEncoder  # noqa: E402
from seatrial_workloads.contrastive.model.speech_text import SpeechTextModel  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402

CUDA = torch.device("cuda")
ALONE = Ranks(rank=0, local_rank=0, world_size=1, device=CUDA)
VOCABULARY = 50
FP32, BF16 = Precision("fp32", "fp32", ""), Precision("bf16", "bf16", "")


@pytest.fixture(autouse=True)
def full_fp32() -> Iterator[None]:
    """TF32 would hide differences behind its own rounding."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def make() -> SpeechTextModel:
    """Without dropout, which differs between two forwards."""
    torch.manual_seed(0)
    model = SpeechTextModel(speech_model("tiny", "sdpa"), text_model("tiny", "sdpa", VOCABULARY)).to(CUDA)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for layer in model.tower.speech.encoder.layers:
        layer.attention.dropout = 0.0
    return model.train()


def inputs_of(rows: int, samples: int, frames: int, lengths: list[int] | None = None):
    generator = torch.Generator().manual_seed(rows)
    ids = torch.randint(5, VOCABULARY, (rows, 8), generator=generator)
    time_mask = torch.zeros(rows, frames, dtype=torch.bool)
    time_mask[:, 2:7] = True
    parts = {
        "audio": torch.randn(rows, samples, generator=generator),
        "token_ids": ids,
        "token_mask": torch.ones_like(ids),
        "num_samples": None if lengths is None else torch.tensor(lengths),
        "time_mask": time_mask,
    }
    return {name: None if part is None else part.to(CUDA) for name, part in parts.items()}


def loss_and_gradients(model, inputs, precision=FP32):
    for parameter in model.parameters():
        parameter.grad = None
    with precision.autocast(CUDA):
        loss = model(**inputs)
    loss.backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}
    return loss.item(), found


@pytest.mark.parametrize("lengths", [None, [16000, 9000, 400]])
@pytest.mark.parametrize("samples", [16000, 12345])
def test_all_fast_paths_together_have_the_plain_loss_and_gradients(lengths, samples):
    settings = Settings(micro_batch=3, fixed_slice_s=1.0, device="cuda", precision="fp32")
    lengths = None if lengths is None else [min(length, samples) for length in lengths]
    plain = make()
    fast = copy.deepcopy(plain)
    fast.paths.front_end, fast.paths.speech, fast.paths.text = fast.tower.plain_front_end, fast.tower, fast.plain_text_encoder
    choices = apply_fast_paths(fast, settings, CUDA, "fp32")
    choices["tower_graph"] = capture_tower(fast, settings, ALONE, FP32)
    assert {name: choice.effective for name, choice in choices.items()} == dict.fromkeys(choices, True), choices
    inputs = inputs_of(3, samples, plain.tower.num_frames(samples), lengths)
    longest = longest_samples(settings)
    for _ in range(3):
        given = pad_inputs(dict(inputs), longest, fast.tower.num_frames(longest))
        actual_loss, actual = loss_and_gradients(fast, given)
    # The group norm of the CNN sees the padding, so the plain model gets the same.
    expected_loss, expected = loss_and_gradients(plain, pad_inputs(dict(inputs), longest, plain.tower.num_frames(longest)))
    assert actual_loss == pytest.approx(expected_loss, rel=1e-4)
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, rtol=1e-2, atol=1e-3 * gradient.abs().max().item() + 1e-6, msg=name)


def graphed_and_plain(settings, *, wrap=lambda model: None):
    """A model with its tower as graphs, captured after `wrap`, and the same one without."""
    plain = make()
    fast = copy.deepcopy(plain)
    fast.paths.front_end, fast.paths.speech, fast.paths.text = fast.tower.plain_front_end, fast.tower, fast.plain_text_encoder
    wrapped = wrap(fast)
    assert capture_tower(fast, settings, ALONE, FP32) == as_requested(True)
    return fast, plain, wrapped


def padded(model, settings, samples, lengths):
    longest = longest_samples(settings)
    inputs = inputs_of(settings.micro_batch, samples, model.tower.num_frames(samples), lengths)
    return pad_inputs(inputs, longest, model.tower.num_frames(longest))


def assert_same_gradients(actual, expected):
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, rtol=1e-2, atol=1e-3 * gradient.abs().max().item() + 1e-6, msg=name)


@pytest.fixture(scope="module")
def process_group():
    """Created by the first engine; DeepSpeed keeps the first one it gets, so all share it."""
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="no deepspeed")
# DeepSpeed's own warnings, at its import and after.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rows", "samples", "lengths"), [(3, 16000, None), (2, 12345, None), (5, 16000, [16000, 9001, 400, 7777, 15999])])
@pytest.mark.parametrize("stage", [1, 2])
def test_the_graphed_tower_under_zero_has_the_plain_loss_and_gradients(stage, rows, samples, lengths, process_group):
    from deepspeed.utils import safe_get_full_grad

    settings = Settings(engine="deepspeed", zero_stage=stage, micro_batch=rows, fixed_slice_s=1.0, device="cuda", precision="fp32")
    options = EngineOptions(lr=1e-3, zero_stage=stage, micro_batch=rows, torch_adam=True, gradient_clipping=0.0)
    ranks = Ranks(rank=0, local_rank=0, world_size=1, device=torch.device("cuda", 0))
    fast, plain, engine = graphed_and_plain(settings, wrap=lambda model: create_engine("deepspeed", model, ranks, FP32, options))
    try:
        # Two steps: the second replays into memory that hooks and optimiser have used, with weights that changed.
        for _ in range(2):
            plain.load_state_dict(fast.state_dict())
            expected_loss, expected = loss_and_gradients(plain, padded(plain, settings, samples, lengths))
            loss = engine.forward(**padded(fast, settings, samples, lengths))
            engine.backward(loss)
            actual = {name: safe_get_full_grad(parameter).clone() for name, parameter in fast.named_parameters() if name in expected}
            assert loss.item() == pytest.approx(expected_loss, rel=1e-4)
            assert_same_gradients(actual, expected)
            engine.step()
        assert any(not torch.equal(one, other) for one, other in zip(fast.parameters(), plain.parameters(), strict=True))
    finally:
        engine.close()


def test_hooks_that_were_there_before_the_capture_get_gradients_of_their_own():
    """ZeRO and DDP hold each parameter's gradient accumulator, made on the default stream; a capture with those in it fails."""
    settings = Settings(micro_batch=3, fixed_slice_s=1.0, device="cuda", precision="fp32")
    seen: dict[str, list[torch.Tensor]] = {}

    def hook(model):
        kept = []
        for name, parameter in model.tower.named_parameters():
            if parameter.requires_grad:
                kept.append(parameter.expand_as(parameter).grad_fn.next_functions[0][0])
                parameter.register_post_accumulate_grad_hook(lambda own, name=name: seen.setdefault(name, []).append(own.grad))
        return kept

    fast, plain, kept = graphed_and_plain(settings, wrap=hook)
    _, first = loss_and_gradients(fast, padded(fast, settings, 16000, None))
    _, expected = loss_and_gradients(plain, padded(plain, settings, 16000, None))
    assert_same_gradients(first, expected)
    loss_and_gradients(fast, padded(fast, settings, 9000, None))
    # A hook that keeps a gradient finds it unchanged after the next replay.
    assert kept and all(torch.equal(kept_gradients[0], first[f"tower.{name}"]) for name, kept_gradients in seen.items())


def test_graphs_use_current_weights_and_new_dropout():
    torch.manual_seed(0)
    model = SpeechTextModel(speech_model("tiny", "sdpa"), text_model("tiny", "sdpa", VOCABULARY)).to(CUDA).train()
    settings = Settings(micro_batch=3, fixed_slice_s=1.0, device="cuda", precision="bf16")
    apply_fast_paths(model, settings, CUDA, "bf16")
    assert capture_tower(model, settings, ALONE, BF16) == as_requested(True)
    inputs = inputs_of(3, 16000, model.tower.num_frames(16000))
    first, second = (loss_and_gradients(model, dict(inputs), BF16)[0] for _ in range(2))
    assert first != second
    with torch.no_grad():
        model.tower.pooling.project.weight.zero_()
        model.tower.pooling.project.bias.fill_(1.0)
    third, fourth = (loss_and_gradients(model, dict(inputs), BF16)[0] for _ in range(2))
    assert third == fourth, "every row is the same vector now, whatever the dropout"
    model.eval()
    with torch.no_grad(), BF16.autocast(CUDA):
        assert model(**inputs).isfinite()


@pytest.mark.parametrize("tokens", [8, 16])
def test_the_graphed_text_encoder_also_with_padding_and_more_shapes_than_it_captures(tokens):
    model = make()
    graphed = GraphedTextEncoder(model.plain_text_encoder)
    for rows in (1, 2, 5):
        ids = torch.randint(5, VOCABULARY, (rows, tokens), device=CUDA)
        mask = torch.ones_like(ids)
        mask[:, tokens // 2 :] = 0
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(graphed(ids, mask), model.plain_text_encoder(ids, mask), rtol=1e-4, atol=1e-4)
    graphed.captured.update({(0, number): None for number in range(MAX_SHAPES)})
    with torch.no_grad():
        ids = torch.randint(5, VOCABULARY, (7, tokens), device=CUDA)
        torch.testing.assert_close(
            graphed(ids, torch.ones_like(ids)), model.plain_text_encoder(ids, torch.ones_like(ids)), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("samples", [400, 7777, 32000])
def test_the_front_end_in_bf16_is_accurate(samples):
    model = make()
    audio = torch.randn(4, samples, device=CUDA)
    with torch.no_grad():
        exact = model.tower.plain_front_end(audio)
        with BF16.autocast(CUDA):
            plain_error = (model.tower.plain_front_end(audio).float() - exact).abs().mean()
        own_error = (MatrixFrontEnd(model.tower.speech, torch.bfloat16).to(CUDA)(audio).float() - exact).abs().mean()
    assert own_error < 2 * plain_error + 1e-6
