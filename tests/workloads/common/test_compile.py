"""torch.compile, and the fallback to the plain function."""

from __future__ import annotations

import contextlib
import random

import pytest

from seatrial_workloads.common.compile import RecompileWatch, compile_or_fall_back
from seatrial_workloads.common.errors import first_line, summarize_error
from tests.workloads.cpu_ranks import ALONE, OtherFailed, cpu_ranks

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


INPUT = torch.ones(2, 3)


@pytest.fixture
def layer():
    torch._dynamo.reset()
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.ReLU())


def forward_and_backward(function):
    random.random()
    function(INPUT).sum().backward()


def state(layer):
    weights = {name: value.clone() for name, value in layer.state_dict().items()}
    return weights, [parameter.grad for parameter in layer.parameters()], torch.get_rng_state().tolist(), random.getstate()


def assert_unchanged(layer, before):
    weights, gradients, torch_state, python_state = before
    assert all(torch.equal(value, weights[name]) for name, value in layer.state_dict().items())
    assert list(layer.state_dict()) == list(weights)
    assert [parameter.grad for parameter in layer.parameters()] == gradients == [None, None]
    assert torch.get_rng_state().tolist() == torch_state
    assert random.getstate() == python_state


def test_a_compiled_function_is_used_and_the_warm_up_changes_nothing(layer):
    before = state(layer)
    compiled, choice = compile_or_fall_back(layer, forward_and_backward, ranks=ALONE, backend="eager")
    assert (choice.requested, choice.effective, choice.reason) == (True, True, "compiled, mode default")
    assert_unchanged(layer, before)
    layer.eval()
    torch.testing.assert_close(compiled(INPUT), layer(INPUT))
    assert compiled is not layer


def test_a_compile_error_falls_back_with_the_reason(layer):
    before = state(layer)

    def broken(graph, inputs):
        raise ValueError("a broken compiler\nand its second line")

    used, choice = compile_or_fall_back(layer, forward_and_backward, ranks=ALONE, backend=broken)
    assert used is layer
    assert choice.effective is False
    assert "a broken compiler" in choice.reason
    assert "second line" not in choice.reason
    assert_unchanged(layer, before)
    assert used(INPUT).shape == (2, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_missing_compiler_is_the_reason(layer, monkeypatch):
    import torch._inductor.config as inductor

    monkeypatch.setattr(inductor.cpp, "cxx", (None, "no-such-compiler"))
    monkeypatch.setattr(inductor, "fx_graph_cache", False)
    used, choice = compile_or_fall_back(layer, forward_and_backward, ranks=ALONE)
    assert used is layer
    assert "No working C++ compiler found" in choice.reason


def test_all_ranks_fall_back_if_one_fails(layer):
    ranks = cpu_ranks(0, 2, OtherFailed)
    used, choice = compile_or_fall_back(layer, forward_and_backward, ranks=ranks, backend="eager")
    assert (used, choice.effective, choice.reason) == (layer, False, "another rank could not compile")


def test_nothing_is_compiled_where_the_engine_cannot(layer):
    used, choice = compile_or_fall_back(layer, pytest.fail, ranks=ALONE, cannot_compile="it is all hooks")
    assert (used, choice.effective, choice.reason) == (layer, False, "it is all hooks")


def test_a_plain_function_compiles_too():
    compiled, choice = compile_or_fall_back(lambda value: value * 2, lambda function: function(INPUT), ranks=ALONE, backend="eager")
    assert choice.effective
    assert torch.equal(compiled(INPUT), INPUT * 2)


def test_an_interrupt_is_not_a_compile_error(layer):
    def interrupted(function):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_or_fall_back(layer, interrupted, ranks=ALONE, backend="eager")


class Recorder:
    """What a probe is told."""

    def __init__(self):
        self.figures, self.effects = [], []

    def figure(self, name, value, unit="", n=None):
        self.figures.append((name, value, n))

    def effective(self, setting, *, requested, effective, reason=""):
        self.effects.append((setting, effective, reason))


def double(value):
    return value * 2


def widths(function, *sizes):
    for size in sizes:
        function(torch.ones(size))


def compiled_for(*sizes):
    torch._dynamo.reset()
    return compile_or_fall_back(double, lambda function: widths(function, *sizes), ranks=ALONE, backend="eager", dynamic=False)


def test_what_is_compiled_after_the_warm_up_is_counted_and_is_a_caution():
    function, choice = compiled_for(2, 3)
    watch, probe = RecompileWatch(choice), Recorder()
    with contextlib.closing(watch):
        widths(function, 3, 2)
        assert watch.report(0, probe) is None
        widths(function, 4, 5, 4)
        changed = watch.report(7, probe)
        assert watch.report(8, probe) is None
    assert probe.figures == [("recompiles", 0, 1), ("recompiles", 2, 8), ("recompiles", 2, 9)]
    assert probe.effects == [("torch_compile", True, changed.reason)]
    assert changed.reason.startswith("caution: ") and "2 times up to step 7" in changed.reason


def test_a_function_beyond_the_recompile_limit_is_not_compiled():
    limit = torch._dynamo.config.recompile_limit
    function, choice = compiled_for(2)
    watch, probe = RecompileWatch(choice), Recorder()
    with contextlib.closing(watch):
        widths(function, *range(3, 3 + limit))
        changed = watch.report(9, probe)
    assert (choice.effective, changed.effective) == (True, False)
    assert probe.effects == [("torch_compile", False, changed.reason)]
    assert f"config.recompile_limit ({limit})" in changed.reason and "last reason" in changed.reason


def test_a_warm_up_beyond_the_recompile_limit_falls_back():
    function, choice = compiled_for(*range(2, 4 + torch._dynamo.config.recompile_limit))
    assert function is double and choice.effective is False
    assert "recompile_limit" in choice.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one line", "RuntimeError: one line"),
        ("backend='inductor' raised:\nCppCompileError: no compiler\nmore", "RuntimeError: CppCompileError: no compiler"),
        ("only announced:", "RuntimeError: only announced:"),
        ("", "RuntimeError"),
    ],
)
def test_errors_are_summarized(text, expected):
    assert summarize_error(RuntimeError(text)) == expected


@pytest.mark.parametrize(("text", "expected"), [("\none\ntwo", "one"), ("", "RuntimeError")])
def test_the_first_line_of_an_error(text, expected):
    assert first_line(RuntimeError(text)) == expected
