"""What the callbacks for Hugging Face and Lightning are built from."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seatrial.probe.contexts import OpenContexts, count_samples


class Recorder:
    """A context that records what is done to it."""

    def __init__(self, name: str, done: list[str]) -> None:
        self._name, self._done = name, done

    def __enter__(self) -> Recorder:
        self._done.append(f"+{self._name}")
        return self

    def __exit__(self, *error: object) -> None:
        assert error == (None, None, None)
        self._done.append(f"-{self._name}")


@pytest.fixture
def done() -> list[str]:
    return []


@pytest.fixture
def contexts(done: list[str]) -> OpenContexts:
    opened = OpenContexts()
    for name in ("step", "fwd"):
        context: Any = Recorder(name, done)
        opened.enter(name, context)
    return opened


def test_a_context_is_open_until_it_is_left(contexts: OpenContexts, done: list[str]) -> None:
    assert "step" in contexts and "bwd" not in contexts
    contexts.leave("fwd", "step")
    assert done == ["+step", "+fwd", "-fwd", "-step"], "in the order they are named"
    assert "step" not in contexts


def test_a_context_is_left_once(contexts: OpenContexts, done: list[str]) -> None:
    contexts.leave("fwd", "fwd", "never")
    assert done.count("-fwd") == 1


def test_a_forgotten_context_is_never_left(contexts: OpenContexts, done: list[str]) -> None:
    contexts.forget("fwd", "never")
    assert "fwd" not in contexts and "step" in contexts
    contexts.forget()
    contexts.leave("step", "fwd")
    assert done == ["+step", "+fwd"]


def tensor(*shape: int) -> Any:
    return SimpleNamespace(shape=shape)


@pytest.mark.parametrize(
    ("batch", "loader", "expected"),
    [
        (tensor(8, 3), SimpleNamespace(batch_size=4), 4),
        ([tensor(3, 9, 9), tensor(3, 7, 7)], SimpleNamespace(batch_size=2), 2),
        (tensor(8, 3), SimpleNamespace(batch_size=None), 8),
        ((tensor(8, 3), tensor(8)), None, 8),
        ({"x": tensor(8, 3), "scale": tensor(), "name": "a"}, None, 8),
        (({"x": tensor(8, 3)}, {"y": tensor(8)}), None, 8),
        ((tensor(8, 3), tensor(4)), None, None),
        ([[[tensor(8)]]], None, None),
        ("text", None, None),
        (None, None, None),
    ],
)
def test_samples_are_the_batch_size_else_what_tensors_agree_on(batch: Any, loader: Any, expected: int | None) -> None:
    assert count_samples(batch, loader) == expected


def load_callback(monkeypatch: pytest.MonkeyPatch, **modules: ModuleType | None) -> type:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, modules.get(name.replace(".", "_")))
    monkeypatch.delitem(sys.modules, "seatrial.probe.lightning", raising=False)
    try:
        return importlib.import_module("seatrial.probe.lightning").SeatrialCallback
    finally:
        sys.modules.pop("seatrial.probe.lightning", None)


def test_without_lightning_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match="pip install lightning"):
        load_callback(monkeypatch)


def test_the_imported_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    older = ModuleType("pytorch_lightning")
    older.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    assert issubclass(load_callback(monkeypatch, pytorch_lightning=older), older.Callback)
