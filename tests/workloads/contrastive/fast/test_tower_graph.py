"""The tower as CUDA graphs, as far as a CPU goes: which batches are replayed, which go to the tower itself, and where none are captured.

That graphs compute what the tower computes is shown on a GPU: tests/gpu.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial_workloads.common.precision import Precision  # noqa: E402
from seatrial_workloads.contrastive.fast import choose, tower_graph  # noqa: E402
from seatrial_workloads.contrastive.fast.compile_tower import _dynamic  # noqa: E402
from seatrial_workloads.contrastive.fast.tower_graph import GraphedTower  # noqa: E402
from seatrial_workloads.contrastive.settings import Settings  # noqa: E402

FEATURES = torch.zeros(2, 4, 3)
FRAMES = torch.ones(2, 4, dtype=torch.bool)


@pytest.fixture
def graphed(monkeypatch):
    """One whose graphs are played: each says which it is, and with what it was called."""
    monkeypatch.setattr(tower_graph.torch.cuda, "graph_pool_handle", lambda: None)
    tower = GraphedTower(None, lambda features, frame_mask, time_mask: "the tower itself")
    tower._shape = FEATURES.shape
    tower._graphs = {masked: lambda *inputs, masked=masked: (masked, len(inputs)) for masked in (False, True)}
    return tower


def test_the_captured_shape_is_replayed_with_and_without_a_frame_mask(graphed):
    assert graphed(FEATURES, None, None) == (False, 2)
    assert graphed(FEATURES, FRAMES, None) == (True, 3)
    assert graphed(FEATURES, FRAMES, ~FRAMES) == (True, 3)


def test_any_other_shape_and_a_validation_go_to_the_tower_itself(graphed):
    assert graphed(torch.zeros(2, 5, 3), None, None) == "the tower itself"
    with torch.no_grad():
        assert graphed(FEATURES, None, None) == "the tower itself"


def test_nothing_is_captured_without_a_gpu_or_where_it_was_refused():
    cpu, precision = torch.device("cpu"), Precision("auto", "fp32", "CPU: fp32")
    told = choose.capture_tower(None, Settings(fast_paths=True), cpu, precision)
    assert (told.requested, told.effective, told.reason) == (True, False, "no GPU")
    refused = choose.capture_tower(None, Settings(fast_paths=False), cpu, precision)
    assert (refused.requested, refused.effective) == (False, False)


@pytest.mark.parametrize(
    ("given", "dynamic"),
    [({}, None), ({"fixed_slice_s": 2.0}, False), ({"torch_compile_dynamic": True, "fixed_slice_s": 2.0}, True)],
)
def test_a_tower_of_one_length_is_compiled_for_it_unless_asked_otherwise(given, dynamic):
    assert _dynamic(Settings(**given)) is dynamic
