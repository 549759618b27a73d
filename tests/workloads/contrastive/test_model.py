"""The model against transformers' own forward, its loss, and the effective."""

from __future__ import annotations

import dataclasses

import pytest

from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.precision import choose_precision
from seatrial_workloads.contrastive import checkpointing
from seatrial_workloads.contrastive.effective_settings import engine_options, math_options, resolve_settings
from seatrial_workloads.contrastive.model import encoders, speech_text
from seatrial_workloads.contrastive.model.encoders import revision_choices, speech_model, text_model
from seatrial_workloads.contrastive.model.speech_text import AttentionPooling, SpeechTextModel, attention_mask, new_model, symmetric_loss
from seatrial_workloads.contrastive.settings import Settings, hashed_settings
from tests.workloads.cpu_ranks import cpu_ranks

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


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


def test_pooling_ignores_padding():
    pooling = AttentionPooling(16, 8)
    hidden = torch.randn(2, 12, 16)
    frame_mask = torch.arange(12) < torch.tensor([[12], [7]])
    pooled = pooling(hidden, frame_mask)
    changed = hidden.clone()
    changed[1, 7:] = 1e4
    torch.testing.assert_close(pooling(changed, frame_mask), pooled)
    torch.testing.assert_close(pooling(hidden[1:, :7], None)[0], pooled[1])


def test_only_speech_tower_and_temperature_have_gradients():
    model = make().train()
    audio, ids, mask = some_batch()
    time_mask = torch.zeros(3, model.paths.front_end(audio).shape[1], dtype=torch.bool)
    time_mask[:, 2:5] = True
    model(audio, ids, mask, None, time_mask).backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.abs().sum() > 0}
    untrained = {name for name, _ in model.named_parameters()} - trained
    # A shift of all scores changes no softmax: that bias has no gradient but rounding.
    untrained.discard("tower.pooling.score.2.bias")
    assert all(name.startswith(("text.", "tower.speech.feature_extractor.")) for name in untrained)
    assert "log_scale" in trained
    assert model.tower.speech.config.layerdrop == 0
    assert not any(name.startswith("text.") for name in trained)
    assert not model.text.training


def test_loss_of_a_guess_of_a_match_and_of_one_row():
    speech, words = torch.eye(8), torch.eye(8)
    assert symmetric_loss(speech, words, torch.tensor(0.0), speech, words).item() == pytest.approx(torch.log(torch.tensor(8.0)).item())
    assert symmetric_loss(speech, words, torch.tensor(100.0), speech, words).item() == pytest.approx(0, abs=1e-6)
    model = make().train()
    audio, ids, mask = some_batch(rows=1)
    assert model(audio, ids, mask).item() == 0


def test_the_scale_is_limited_but_keeps_its_gradient():
    model = make()
    with torch.no_grad():
        model.log_scale.fill_(50.0)
    loss = model.loss(torch.randn(4, 64), torch.randn(4, 64))
    loss.backward()
    assert torch.isfinite(loss)
    assert model.log_scale.grad.item() > 0


def test_the_number_of_frames_is_that_of_transformers():
    model = make()
    num_samples = torch.tensor([400, 719, 720, 9000, 16000])
    frames = int(model.tower.speech._get_feat_extract_output_lengths(num_samples).max())
    expected = model.tower.speech._get_feat_extract_output_lengths(num_samples).tolist()
    assert model.tower.frame_mask(num_samples, frames).sum(dim=1).tolist() == expected
    assert [model.tower.num_frames(samples) for samples in num_samples.tolist()] == expected


def test_the_mask_has_the_form_of_each_attention():
    frame_mask = torch.tensor([[True, False]])
    assert attention_mask(None, torch.float32, "sdpa") is None
    assert attention_mask(frame_mask, torch.float32, "flash_attention_2") is frame_mask
    assert attention_mask(frame_mask, torch.float32, "sdpa").dtype == torch.bool
    assert attention_mask(frame_mask, torch.float32, "eager").tolist() == [[[[0.0, torch.finfo(torch.float32).min]]]]


def test_weights_are_loaded_from_a_folder(tmp_path):
    speech_model("tiny", "sdpa").save_pretrained(tmp_path / "speech")
    text_model("tiny", "sdpa", VOCABULARY).save_pretrained(tmp_path / "text")
    speech, text = speech_model(str(tmp_path / "speech"), "eager"), text_model(str(tmp_path / "text"), "sdpa", VOCABULARY)
    assert speech.config._attn_implementation == "eager"
    assert text.config.vocab_size == VOCABULARY
    assert next(speech.parameters()).dtype == torch.float32


def test_the_revision_of_a_hub_id_is_asked_for_and_its_commit_recorded(monkeypatch):
    asked, small = [], {"speech": speech_model("tiny", "sdpa"), "text": text_model("tiny", "sdpa", VOCABULARY)}

    def from_hub(name):
        def loaded(source, *, revision, **options):
            asked.append((source, revision))
            small[name].config._commit_hash = f"commit-of-{revision}"
            return small[name]

        return loaded

    monkeypatch.setattr(encoders.Wav2Vec2Model, "from_pretrained", from_hub("speech"))
    monkeypatch.setattr(encoders.BertModel, "from_pretrained", from_hub("text"))
    settings = Settings(speech_model="me/speech", speech_revision="v1.0", text_model="me/text")
    made = new_model(settings, resolve_settings(settings, cpu_ranks()), VOCABULARY)
    assert asked == [("me/speech", "v1.0"), ("me/text", "main")]
    choices = revision_choices(settings, made.tower.speech, made.text)
    assert (choices["speech_revision"].requested, choices["speech_revision"].effective) == ("v1.0", "commit-of-v1.0")
    assert (choices["text_revision"].requested, choices["text_revision"].effective) == (None, "commit-of-main")
    assert revision_choices(Settings(), made.tower.speech, made.text) == {}


def test_a_revision_without_a_hub_id_is_refused_and_none_leaves_earlier_hashes_valid():
    with pytest.raises(ValueError, match="speech_revision is 'v1', and speech_model 'tiny' has random weights"):
        Settings(speech_revision="v1")
    with pytest.raises(ValueError, match="text_revision is '', and it is empty"):
        Settings(text_model="me/text", text_revision="")
    assert hashed_settings({"lr": 1, "speech_revision": None, "text_revision": "v1"}) == {"lr": 1, "text_revision": "v1"}


@pytest.mark.parametrize(("load", "setting"), [(speech_model, "speech_model"), (lambda s, a: text_model(s, a, 9), "text_model")])
def test_missing_weights_are_refused_by_setting(load, setting, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=f"{setting} is '.*nothing'"):
        load(str(tmp_path / "nothing"), "sdpa")


def test_a_misspelled_shape_is_not_sought_on_the_hub():
    with pytest.raises(ValueError, match="did you mean 'tiny'"):
        speech_model("tinny", "sdpa")


def test_every_policy_is_recorded():
    effective = resolve_settings(Settings(device="cpu", precision="bf16"), cpu_ranks())
    assert effective.choices["precision"] == effective.precision == choose_precision("bf16", None)
    assert effective.choices["device"].effective == "cpu"
    assert effective.choices["attn_impl"].effective == effective.speech_attention == effective.text_attention
    assert {"model_load_dtype", "speech_attn_impl", "text_attn_impl"} <= effective.choices.keys()
    fixed = resolve_settings(Settings(device="cpu", fixed_slice_s=2.0), cpu_ranks()).choices
    unused = {name for name, choice in fixed.items() if choice.effective is None}
    assert unused == {"min_slice_s", "max_slice_s", "bucket_boundaries_s"}


@pytest.mark.parametrize(
    "asked", [{"attn_impl": "flash_attention_2"}, {"speech_attn_impl": "flash_attention_2", "text_attn_impl": "flash_attention_2"}]
)
def test_that_flash_attention_was_requested_is_recorded_however_it_was_set(asked):
    choices = resolve_settings(Settings(device="cpu", precision="bf16", **asked), cpu_ranks()).choices
    for name in ("attn_impl", "speech_attn_impl", "text_attn_impl"):
        assert (choices[name].requested, choices[name].effective) == ("flash_attention_2", "sdpa")
        assert "needs a GPU" in choices[name].reason


def test_encoders_with_different_attention_are_split():
    effective = resolve_settings(Settings(device="cpu", speech_attn_impl="eager", text_attn_impl="sdpa"), cpu_ranks())
    assert (effective.speech_attention, effective.text_attention) == ("eager", "sdpa")
    assert effective.choices["attn_impl"] == Choice("auto", "split", "speech eager, text sdpa")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"num_workers": 2}, set()),
        ({"num_workers": 0}, {"prefetch_factor"}),
        ({"num_workers": 2, "dataset_use_trim": True, "dataset_offline_trimmed": True}, {"dataset_use_trim"}),
        ({"num_workers": 2, "dataset_use_trim": True, "dataset_offline_trimmed": False}, set()),
    ],
)
def test_a_setting_without_effect_is_recorded(given, named):
    choices = resolve_settings(Settings(device="cpu", **given), cpu_ranks()).choices
    assert {"prefetch_factor", "dataset_use_trim"} & choices.keys() == named


def test_engine_options_come_from_the_settings():
    settings = Settings(lr=0.01, beta1=0.8, micro_batch=3, zero_stage=2, engine="deepspeed", torch_adam=True, overlap_comm=False)
    options = engine_options(settings)
    assert (options.lr, options.betas, options.micro_batch, options.zero_stage) == (0.01, (0.8, settings.beta2), 3, 2)
    assert (options.torch_adam, options.overlap_comm, options.exclude_frozen) == (True, False, settings.checkpoint_exclude_frozen)
    assert math_options(settings).tf32 == settings.tf32


@pytest.mark.parametrize(("every", "saved"), [(None, []), (2, [2, 4, 5]), (5, [5]), (6, [5]), (7, [])])
def test_steps_with_a_checkpoint(every, saved):
    settings = dataclasses.replace(Settings(steps=6), checkpoint_every_steps=every)
    assert [step for step in range(6) if checkpointing.is_checkpoint_due(step, settings)] == saved


def test_a_single_rank_gathers_nothing():
    rows = torch.ones(2, 3)
    assert speech_text.gather_rows(rows) is rows


def test_rows_are_gathered_in_rank_order_and_gradients_returned(monkeypatch):
    """Rank 1 of two; rank 0 is simulated: it has twos, and its loss has the same gradients."""

    def all_gather(parts, rows):
        parts[0].fill_(2.0)
        parts[1].copy_(rows)

    for name, answer in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 1)):
        monkeypatch.setattr(speech_text.dist, name, lambda answer=answer: answer)
    monkeypatch.setattr(speech_text.dist, "all_gather", all_gather)
    monkeypatch.setattr(speech_text.dist, "all_reduce", lambda summed: summed.mul_(2))
    rows = torch.ones(1, 3, requires_grad=True)
    gathered = speech_text.gather_rows(rows)
    assert gathered.tolist() == [[2.0] * 3, [1.0] * 3]
    (gathered * torch.tensor([[1.0], [5.0]])).sum().backward()
    assert rows.grad.tolist() == [[10.0] * 3]
