"""The speech–text model against transformers' own forward, and its parts against plain arithmetic."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from seatrial_workloads.contrastive.model import AttentionPooling, SpeechTextModel, attention_mask, symmetric_loss  # noqa: E402
from seatrial_workloads.contrastive.sources import described, speech_model, text_model  # noqa: E402

VOCABULARY = 40


def make(attention: str = "sdpa") -> SpeechTextModel:
    torch.manual_seed(0)
    return SpeechTextModel(speech_model("tiny", attention), text_model("tiny", attention, VOCABULARY))


def some_batch(rows: int = 3, samples: int = 9000):
    generator = torch.Generator().manual_seed(1)
    audio = torch.randn(rows, samples, generator=generator)
    ids = torch.randint(5, VOCABULARY, (rows, 8), generator=generator)
    return audio, ids, torch.ones_like(ids)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("lengths", [None, [9000, 5000, 400]])
def test_hidden_states_are_those_of_transformers_own_forward(attention, lengths):
    model = make(attention).eval()
    audio, _, _ = some_batch()
    num_samples = None if lengths is None else torch.tensor(lengths)
    sample_mask = None
    if num_samples is not None:
        sample_mask = (torch.arange(audio.shape[1]) < num_samples[:, None]).long()
        audio = audio * sample_mask
    expected = model.tower.speech(audio, attention_mask=sample_mask).last_hidden_state
    features = model.paths.front_end(audio)
    frame_mask = None if num_samples is None else model.tower.frame_mask(num_samples, features.shape[1])
    hidden = model.tower.transformed(model.tower.speech.feature_projection(features)[0], frame_mask)
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-5)


def test_masked_frames_are_those_transformers_would_mask():
    model = make().train()
    model.tower.speech.config.hidden_dropout = 0.0
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for layer in model.tower.speech.encoder.layers:
        layer.attention.dropout = 0.0
    audio, _, _ = some_batch()
    features = model.paths.front_end(audio)
    time_mask = torch.zeros(features.shape[:2], dtype=torch.bool)
    time_mask[0, 3:9] = True
    expected = model.tower.speech(audio, mask_time_indices=time_mask).last_hidden_state
    actual = model.tower.pooling(expected, None)
    torch.testing.assert_close(model.tower(features, None, time_mask), actual, rtol=1e-4, atol=1e-5)


def test_zeros_behind_a_row_change_nothing_for_the_pooling_and_little_for_the_row():
    pooling = AttentionPooling(16, 8)
    hidden = torch.randn(2, 12, 16)
    frame_mask = torch.arange(12) < torch.tensor([[12], [7]])
    pooled = pooling(hidden, frame_mask)
    changed = hidden.clone()
    changed[1, 7:] = 1e4
    torch.testing.assert_close(pooling(changed, frame_mask), pooled)
    torch.testing.assert_close(pooling(hidden[1:, :7], None)[0], pooled[1])


def test_only_speech_tower_and_temperature_learn():
    model = make().train()
    audio, ids, mask = some_batch()
    time_mask = torch.zeros(3, model.paths.front_end(audio).shape[1], dtype=torch.bool)
    time_mask[:, 2:5] = True
    model(audio, ids, mask, None, time_mask).backward()
    learning = {name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.abs().sum() > 0}
    still = {name for name, _ in model.named_parameters()} - learning
    # A shift of all scores changes no softmax: that bias has no gradient but rounding.
    still.discard("tower.pooling.score.2.bias")
    assert all(name.startswith(("text.", "tower.speech.feature_extractor.")) for name in still)
    assert "log_scale" in learning
    assert not any(name.startswith("text.") for name in learning)
    assert not model.text.training


def test_loss_of_an_untrained_model_is_near_that_of_a_guess_and_of_one_row_is_zero():
    speech, words = torch.eye(8), torch.eye(8)
    assert symmetric_loss(speech, words, torch.tensor(0.0), speech, words).item() == pytest.approx(torch.log(torch.tensor(8.0)).item())
    assert symmetric_loss(speech, words, torch.tensor(100.0), speech, words).item() == pytest.approx(0, abs=1e-6)
    model = make().train()
    audio, ids, mask = some_batch(rows=1)
    assert model(audio, ids, mask).item() == 0


def test_scale_stops_growing_at_a_hundred():
    model = make()
    with torch.no_grad():
        model.log_scale.fill_(50.0)
    loss = model.loss(torch.randn(4, 64), torch.randn(4, 64))
    loss.backward()
    assert torch.isfinite(loss)
    assert model.log_scale.grad.item() > 0, "and can come down again"


def test_frames_of_a_row_are_counted_as_transformers_counts_them():
    model = make()
    num_samples = torch.tensor([400, 719, 720, 9000, 16000])
    frames = int(model.tower.speech._get_feat_extract_output_lengths(num_samples).max())
    counted = model.tower.frame_mask(num_samples, frames).sum(dim=1)
    assert counted.tolist() == model.tower.speech._get_feat_extract_output_lengths(num_samples).tolist()


def test_mask_has_the_form_each_attention_takes():
    frame_mask = torch.tensor([[True, False]])
    assert attention_mask(None, torch.float32, "sdpa") is None
    assert attention_mask(frame_mask, torch.float32, "flash_attention_2") is frame_mask
    assert attention_mask(frame_mask, torch.float32, "sdpa").dtype == torch.bool
    assert attention_mask(frame_mask, torch.float32, "eager").tolist() == [[[[0.0, torch.finfo(torch.float32).min]]]]


def test_layers_are_never_skipped_at_random():
    assert make().tower.speech.config.layerdrop == 0


def test_weights_come_from_a_folder_of_the_hubs_layout(tmp_path):
    speech_model("tiny", "sdpa").save_pretrained(tmp_path / "speech")
    text_model("tiny", "sdpa", VOCABULARY).save_pretrained(tmp_path / "text")
    speech, text = speech_model(str(tmp_path / "speech"), "eager"), text_model(str(tmp_path / "text"), "sdpa", VOCABULARY)
    assert speech.config._attn_implementation == "eager"
    assert text.config.vocab_size == VOCABULARY
    assert next(speech.parameters()).dtype == torch.float32


@pytest.mark.parametrize(("load", "setting"), [(speech_model, "speech_model"), (lambda s, a: text_model(s, a, 9), "text_model")])
def test_missing_weights_name_the_setting_and_the_remedy(load, setting, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=f"{setting} is '.*nothing'.*use 'base' or 'tiny'"):
        load(str(tmp_path / "nothing"), "sdpa")


def test_a_misspelled_shape_is_not_looked_for_on_a_hub():
    with pytest.raises(ValueError, match="speech_model is 'tinny', and there is no such folder: did you mean 'tiny'"):
        speech_model("tinny", "sdpa")


def test_random_weights_are_said():
    assert described("base") == "base (random weights)"
    assert described("data/weights/wav2vec2-base") == "data/weights/wav2vec2-base"
