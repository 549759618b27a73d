"""Fast paths against their plain references, forward and gradient, over odd shapes."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
from transformers import Wav2Vec2Config, Wav2Vec2Model

from seatrial_workloads.common.distributed import Ranks
from seatrial_workloads.common.effective_settings import Choice, as_requested
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.fast_paths import summarize_parts
from seatrial_workloads.common.precision import Precision
from seatrial_workloads.contrastive.equal_settings import PARTS
from seatrial_workloads.contrastive.model import fast_paths, graphs
from seatrial_workloads.contrastive.model.fast_paths import capture_tower
from seatrial_workloads.contrastive.model.front_end import FourierPositions, MatrixFrontEnd, why_not_matrix
from seatrial_workloads.contrastive.model.graphs import GraphedTower
from seatrial_workloads.contrastive.model.shapes import smooth_length
from seatrial_workloads.contrastive.settings import Settings
from tests.workloads.cpu_ranks import OtherFailed

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "num_conv_pos_embedding_groups": 2}


def make(**config) -> Wav2Vec2Model:
    torch.manual_seed(0)
    model = Wav2Vec2Model(Wav2Vec2Config(**{**SMALL, "conv_dim": (24,) * 7, **config})).eval()
    for layer in model.feature_extractor.conv_layers:
        # With the usual initialisation the signal fades over seven layers, and differences would not show.
        torch.nn.init.normal_(layer.conv.weight, std=0.3)
    return model


def plain(model: Wav2Vec2Model, audio: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.feature_extractor(audio).transpose(1, 2)


@pytest.mark.parametrize("samples", [400, 401, 719, 720, 7777, 16000, 31999, 32000])
@pytest.mark.parametrize("rows", [1, 3])
def test_same_features_at_odd_lengths(rows, samples):
    model = make()
    audio = torch.randn(rows, samples, generator=torch.Generator().manual_seed(samples))
    expected = plain(model, audio)
    actual = MatrixFrontEnd(model, torch.float32)(audio)
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-3 * expected.abs().max().item())


@pytest.mark.parametrize(
    "config", [{"conv_bias": True}, {"conv_kernel": (10, 4, 3, 2), "conv_stride": (5, 2, 3, 2), "conv_dim": (8, 12, 16, 20)}]
)
def test_same_features_for_other_shapes_of_cnn(config):
    config = {"num_feat_extract_layers": 4, **config} if "conv_kernel" in config else config
    model = make(**config)
    audio = torch.randn(2, 5001)
    torch.testing.assert_close(MatrixFrontEnd(model, torch.float32)(audio), plain(model, audio), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "audio",
    [
        torch.zeros(2, 2000),
        torch.ones(2, 2000),
        torch.sin(torch.arange(4000.0) / 400).expand(2, -1) * 1e3,
        torch.cat((torch.randn(2, 1000), torch.zeros(2, 3000)), dim=1),
    ],
    ids=["silence", "constant", "loud hum", "zero padding"],
)
def test_same_features_for_odd_signals(audio):
    model = make()
    expected = plain(model, audio)
    torch.testing.assert_close(
        MatrixFrontEnd(model, torch.float32)(audio), expected, rtol=1e-2, atol=1e-2 * max(1, expected.abs().max().item())
    )


def test_bf16_is_as_accurate_as_the_cnn_in_bf16():
    model = make()
    audio = torch.randn(2, 16000)
    exact = plain(model, audio)
    own_error = (MatrixFrontEnd(model, torch.bfloat16)(audio).float() - exact).abs().mean()
    model.feature_extractor.bfloat16()
    plain_error = (plain(model, audio.bfloat16()).float() - exact).abs().mean()
    assert own_error < 1.5 * plain_error


def test_rows_do_not_depend_on_each_other():
    model, audio = make(), torch.randn(3, 7777)
    front_end = MatrixFrontEnd(model, torch.float32)
    alone = torch.cat([front_end(row.unsqueeze(0)) for row in audio])
    torch.testing.assert_close(front_end(audio), alone, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, ""),
        ({"feat_extract_norm": "layer"}, "normalises by layer"),
        ({"feat_extract_activation": "relu"}, "activation is relu"),
        ({"conv_kernel": (11, 3, 3, 3, 3, 2, 2)}, "longer than twice"),
    ],
)
def test_an_unsupported_cnn_is_named(config, reason):
    found = why_not_matrix(Wav2Vec2Config(**config))
    assert reason in found
    assert bool(found) == bool(reason)


def test_it_adds_nothing_to_a_checkpoint():
    assert MatrixFrontEnd(make(), torch.float32).state_dict() == {}


def make_positions(taps: int, groups: int, width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    config = Wav2Vec2Config(
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        conv_dim=(8,) * 7,
        num_conv_pos_embeddings=taps,
        num_conv_pos_embedding_groups=groups,
    )
    return Wav2Vec2Model(config).encoder.pos_conv_embed


@pytest.mark.parametrize("frames", [1, 2, 7, 16, 49, 99, 149])
@pytest.mark.parametrize(("taps", "groups", "width"), [(16, 4, 24), (128, 2, 6), (5, 1, 3)])
def test_same_result_and_same_gradients(frames, taps, groups, width):
    plain = make_positions(taps, groups, width)
    fast = FourierPositions(copy.deepcopy(plain))
    hidden = torch.randn(2, frames, width)
    gradient = torch.randn(2, frames, width)
    found = []
    for module in (plain, fast):
        own = hidden.clone().requires_grad_()
        out = module(own)
        out.backward(gradient)
        found.append([out.detach(), own.grad, *(parameter.grad for parameter in module.parameters())])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4 * max(1, expected.abs().max().item()))


def test_names_of_parameters_stay_so_that_checkpoints_fit():
    plain = make_positions(16, 4, 24)
    assert list(FourierPositions(plain).state_dict()) == list(plain.state_dict())


def test_bf16_keeps_its_type():
    fast = FourierPositions(make_positions(16, 4, 24)).bfloat16()
    assert fast(torch.randn(1, 9, 24, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize(("least", "length"), [(1, 1), (7, 8), (13, 15), (226, 240), (128, 128)])
def test_lengths_are_the_next_with_small_factors(least, length):
    assert smooth_length(least) == length


FEATURES = torch.zeros(2, 4, 3)
FRAMES = torch.ones(2, 4, dtype=torch.bool)


@pytest.fixture
def graphed():
    """A tower with stand-ins for its graphs, which return which one it is and the number of its inputs."""
    tower = GraphedTower(None, lambda features, frame_mask, time_mask: "not graphed")
    tower.shape = FEATURES.shape
    tower.graphs = {masked: lambda *inputs, masked=masked: (masked, len(inputs)) for masked in (False, True)}
    return tower


def test_the_captured_shape_is_replayed_with_and_without_a_frame_mask(graphed):
    assert graphed(FEATURES, None, None) == (False, 2)
    assert graphed(FEATURES, FRAMES, None) == (True, 3)
    assert graphed(FEATURES, FRAMES, ~FRAMES) == (True, 3)


def test_another_shape_and_a_validation_are_not_graphed(graphed):
    assert graphed(torch.zeros(2, 5, 3), None, None) == "not graphed"
    with torch.no_grad():
        assert graphed(FEATURES, None, None) == "not graphed"


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def ranks_on(device, kind=Ranks):
    return kind(rank=0, local_rank=0, world_size=1, device=device)


@pytest.mark.parametrize(
    ("device", "settings", "reason"),
    [
        (CPU, {}, "no GPU"),
        (CUDA, {"engine": "deepspeed", "zero_stage": 3}, "ZeRO 3"),
        (CUDA, {"length_buckets": True}, "length_buckets"),
        (CUDA, {"torch_compile": True, "torch_compile_mode": "max-autotune"}, "max-autotune"),
        (CUDA, {"attn_impl": "flash_attention_2"}, "flash_attention_2"),
        (CPU, {"fast_paths": "equal:tower_graph"}, "no GPU"),
    ],
)
def test_why_the_tower_is_not_captured(device, settings, reason):
    choice = capture_tower(None, Settings(**settings), ranks_on(device), Precision("auto", "fp32", "CPU: fp32"))
    assert (choice.requested, choice.effective) == (True, False)
    assert reason in choice.reason


def test_a_tower_that_one_rank_cannot_capture_is_graphed_on_none(monkeypatch):
    monkeypatch.setattr(fast_paths, "GraphedTower", lambda tower, encode: "graphed")
    model = SimpleNamespace(tower=None, paths=SimpleNamespace(speech="plain"))
    for kind, problem, choice in (
        (OtherFailed, None, Choice(True, False, "another rank could not capture it")),
        (Ranks, "out of memory", Choice(True, False, "out of memory")),
        (Ranks, None, as_requested(True)),
    ):
        monkeypatch.setattr(fast_paths, "try_capture", lambda *_, problem=problem: problem)
        assert capture_tower(model, Settings(), ranks_on(CUDA, kind), Precision("auto", "fp32", "")) == choice
        assert model.paths.speech == ("graphed" if choice.effective else "plain")


@pytest.mark.parametrize("fast_paths", [False, "none", "front_end"])
def test_a_part_that_is_not_requested_is_recorded_so(fast_paths):
    choice = capture_tower(None, Settings(fast_paths=fast_paths), ranks_on(CUDA), Precision("auto", "fp32", ""))
    assert (choice.requested, choice.effective) == (False, False)


def test_a_part_that_a_plan_left_out_was_requested():
    """Two plans may leave out unlike parts: compared with each other, their runs are confounded."""
    choice = capture_tower(None, Settings(fast_paths="equal:front_end,positions"), ranks_on(CUDA), Precision("auto", "fp32", ""))
    assert (choice.requested, choice.effective, choice.reason) == (True, False, fast_paths.LEFT_OUT)


def test_a_part_of_the_own_list_that_the_node_does_not_have_fails_the_run():
    with pytest.raises(StartupError, match="fast_paths names tower_graph, which is not available here: no GPU"):
        capture_tower(None, Settings(fast_paths="front_end,tower_graph"), ranks_on(CPU), Precision("auto", "fp32", ""))


def test_fast_paths_itself_records_the_parts_in_use():
    setting = "equal:front_end,positions,text_graph"
    found = {
        "front_end": as_requested(True),
        "positions": Choice(True, False, "another encoder"),
        "text_graph": Choice(True, False, "no GPU"),
        "tower_graph": as_requested(False),
    }
    assert summarize_parts(setting, PARTS, found) == Choice(setting, "front_end", "positions: another encoder; text_graph: no GPU")


def test_the_capture_sees_leaves_of_the_same_memory_without_the_hooks_of_the_parameters():
    positions = make_positions(16, 4, 24)
    for parameter in positions.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: pytest.fail("a hook was called inside the capture"))
    own, hidden = dict(positions.named_parameters()), torch.randn(2, 9, 24)
    with graphs.sharing_copies(positions) as copies:
        assert set(copies) == set(own.values()) and not set(copies) & set(positions.parameters())
        assert all(copy.data_ptr() == parameter.data_ptr() and copy.is_leaf for parameter, copy in copies.items())
        positions(hidden).sum().backward()
    assert dict(positions.named_parameters()) == own and all(parameter.grad is None for parameter in own.values())
    assert all(copy.grad is not None for copy in copies.values())


def test_a_compiled_function_is_not_compiled_again_for_the_capture():
    positions, hidden, compiled_graphs = make_positions(16, 4, 24), torch.randn(2, 9, 24), []
    compiled = torch.compile(positions.forward, backend=lambda graph, _: compiled_graphs.append(graph) or graph.forward, dynamic=False)
    compiled(hidden).sum().backward()
    before = len(compiled_graphs)
    with graphs.sharing_copies(positions) as copies:
        gradients = torch.autograd.grad(compiled(hidden).sum(), list(copies.values()))
    assert len(compiled_graphs) == before and len(gradients) == len(copies)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("settings", "device", "dynamic"),
    [
        ({}, CUDA, False),
        ({"torch_compile_dynamic": True}, CUDA, None),
        ({"length_buckets": True}, CUDA, None),
        ({"fixed_slice_s": 2.0}, CUDA, False),
        # torch records a CUDA graph for each shape.
        ({"torch_compile_dynamic": True, "torch_compile_mode": "max-autotune"}, CUDA, False),
        # The plain positional convolution: inductor would compile it anew for every length.
        ({"torch_compile_dynamic": True}, CPU, False),
        ({"length_buckets": True}, CPU, False),
    ],
)
def test_shapes_are_static_unless_batches_are_to_differ(settings, device, dynamic, monkeypatch):
    found = []
    monkeypatch.setattr(
        fast_paths, "compile_or_fall_back", lambda *_, dynamic, **__: found.append(dynamic) or (None, Choice(True, False, ""))
    )
    speech = SimpleNamespace(encoder=SimpleNamespace(pos_conv_embed=None))
    model = SimpleNamespace(paths=SimpleNamespace(speech=None), tower=SimpleNamespace(num_frames=lambda samples: 1, speech=speech))
    fast_paths.compile_tower(model, SimpleNamespace(cannot_compile=None), Settings(**settings), ranks_on(device), None)
    assert found == [dynamic]


def test_a_cpu_with_the_fast_positions_may_have_dynamic_shapes():
    positions = FourierPositions(make().encoder.pos_conv_embed)
    tower = SimpleNamespace(speech=SimpleNamespace(encoder=SimpleNamespace(pos_conv_embed=positions)))
    settings = Settings(torch_compile_dynamic=True)
    assert fast_paths.dynamic_shapes(SimpleNamespace(tower=tower), settings, ranks_on(CPU)) == as_requested(True)


def test_one_fft_length_serves_all_inputs_it_is_long_enough_for():
    model = make()
    positions = FourierPositions(model.encoder.pos_conv_embed)
    inputs = {frames: torch.randn(2, frames, 16) for frames in (1, 40, 99, 100, 130)}
    expected = {frames: positions(hidden) for frames, hidden in inputs.items()}
    positions.use_one_length(100)
    for frames, hidden in inputs.items():
        torch.testing.assert_close(positions(hidden), expected[frames], rtol=1e-4, atol=1e-5)
