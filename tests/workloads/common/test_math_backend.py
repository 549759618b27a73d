"""How torch may compute: the policy, and that torch is set so without a warning."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial_workloads.common.choice import Choice  # noqa: E402
from seatrial_workloads.common.math_backend import (  # noqa: E402
    CUBLAS_VARIABLE,
    MathOptions,
    choose_math_backend,
    prepare_determinism,
    set_math_backend,
)

HOPPER, VOLTA = (9, 0), (7, 5)


@pytest.fixture
def as_it_was():
    """torch's own switches are put back."""
    matmul, cudnn, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = cudnn, benchmark
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("asked", "lowest", "workspace", "expected"),
    [
        ({}, HOPPER, None, {}),
        ({}, VOLTA, None, {"tf32": (False, "compute capability 7.5 has no TF32"), "matmul_precision": ("highest", "tf32 is off")}),
        ({}, None, None, {"tf32": (False, "no GPU"), "matmul_precision": ("highest", "no GPU: products stay whole")}),
        ({"tf32": False}, HOPPER, None, {"matmul_precision": ("highest", "tf32 is off")}),
        ({"tf32": False, "matmul_precision": "highest"}, None, None, {}),
        ({"deterministic": True, "tf32": False, "matmul_precision": "highest"}, None, None, {}),
        ({"deterministic": True}, HOPPER, ":4096:8", {}),
        (
            {"deterministic": True},
            HOPPER,
            None,
            {"deterministic": (False, "CUBLAS_WORKSPACE_CONFIG must be :4096:8 or :16:8 before CUDA starts, and was not set")},
        ),
        (
            {"deterministic": True, "cudnn_benchmark": True},
            HOPPER,
            ":16:8",
            {"cudnn_benchmark": (False, "deterministic: the fastest algorithm may be another one each time")},
        ),
        ({"cudnn_benchmark": True}, HOPPER, None, {}),
    ],
)
def test_the_policy_says_what_differs_and_why(asked, lowest, workspace, expected):
    choices = choose_math_backend(MathOptions(**asked), lowest, workspace)
    assert set(choices) == {"tf32", "matmul_precision", "deterministic", "cudnn_benchmark"}
    told = {name: (choice.effective, choice.reason) for name, choice in choices.items() if choice.reason != "as requested"}
    assert told == expected
    assert all(choice.effective == choice.requested for name, choice in choices.items() if name not in expected)


def test_torch_is_set_without_a_warning(as_it_was):
    set_math_backend(MathOptions(deterministic=True), None)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.are_deterministic_algorithms_enabled()
    set_math_backend(MathOptions(tf32=True, matmul_precision="medium", cudnn_benchmark=True), HOPPER)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark) == ("medium", True, True)
    assert not torch.are_deterministic_algorithms_enabled()
    set_math_backend(MathOptions(tf32=False), HOPPER)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)


def test_cublas_is_told_while_it_can_still_hear_it(as_it_was, monkeypatch):
    environment: dict[str, str] = {}
    prepare_determinism(MathOptions(), environment)
    assert environment == {}
    prepare_determinism(MathOptions(deterministic=True), environment)
    assert environment == {CUBLAS_VARIABLE: ":4096:8"}
    environment[CUBLAS_VARIABLE] = ":16:8"
    prepare_determinism(MathOptions(deterministic=True), environment)
    assert environment == {CUBLAS_VARIABLE: ":16:8"}, "the user's own choice stands"

    monkeypatch.setenv(CUBLAS_VARIABLE, "")
    monkeypatch.delenv(CUBLAS_VARIABLE)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    too_late = set_math_backend(MathOptions(deterministic=True), HOPPER)["deterministic"]
    assert too_late.effective is False
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert set_math_backend(MathOptions(deterministic=True), HOPPER)["deterministic"] == Choice(True, True, "as requested")
