"""Fast paths of the speech–text model on a GPU against the plain modules: forward and gradients."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")]

from seatrial_workloads.common.effective import as_requested  # noqa: E402
from seatrial_workloads.common.precision import Precision  # noqa: E402
from seatrial_workloads.contrastive.fast.fast_paths import apply_fast_paths, capture_tower, longest_samples, pad_inputs  # noqa: E402
from seatrial_workloads.contrastive.fast.front_end import MatrixFrontEnd  # noqa: E402
from seatrial_workloads.contrastive.fast.graphs import MAX_SHAPES, GraphedTextEncoder  # noqa: E402
from seatrial_workloads.contrastive.model import SpeechTextModel  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402
from seatrial_workloads.contrastive.sources import speech_model, text_model  # noqa: E402

CUDA = torch.device("cuda")
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
    choices["tower_graph"] = capture_tower(fast, settings, CUDA, FP32)
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


def test_graphs_use_current_weights_and_new_dropout():
    torch.manual_seed(0)
    model = SpeechTextModel(speech_model("tiny", "sdpa"), text_model("tiny", "sdpa", VOCABULARY)).to(CUDA).train()
    settings = Settings(micro_batch=3, fixed_slice_s=1.0, device="cuda", precision="bf16")
    apply_fast_paths(model, settings, CUDA, "bf16")
    assert capture_tower(model, settings, CUDA, BF16) == as_requested(True)
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
    graphed._captured.update({(0, number): None for number in range(MAX_SHAPES)})
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
