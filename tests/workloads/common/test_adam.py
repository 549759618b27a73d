"""What stands between FusedAdam and its build."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from seatrial_workloads.common.engines.adam import ARCHITECTURES, plain_architectures  # noqa: E402


@pytest.mark.parametrize(
    ("given", "during"),
    [("9.0a", "9.0"), ("8.6;9.0a+PTX 10.0f", "8.6;9.0+PTX 10.0"), ("9.0", "9.0"), ("Hopper", "Hopper")],
)
def test_letters_behind_an_architecture_are_gone_while_it_is_built(given, during):
    environment = {ARCHITECTURES: given}
    with plain_architectures(environment):
        assert environment[ARCHITECTURES] == during
        environment[ARCHITECTURES] = "9.0+PTX"
    assert environment == {ARCHITECTURES: given}


def test_where_nothing_is_named_nothing_is_touched():
    environment: dict[str, str] = {}
    with pytest.raises(RuntimeError), plain_architectures(environment):
        raise RuntimeError
    assert environment == {}
