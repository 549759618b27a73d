"""What of Lightning's callback needs no Lightning: the size of a batch, and what is said where there is none."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seatrial.probe.batch_samples import samples_of


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
def test_samples_are_the_loaders_word_else_what_tensors_agree_on(batch: Any, loader: Any, expected: int | None) -> None:
    assert samples_of(batch, loader) == expected


def load_callback(monkeypatch: pytest.MonkeyPatch, **modules: ModuleType | None) -> type:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, modules.get(name.replace(".", "_")))
    monkeypatch.delitem(sys.modules, "seatrial.probe.lightning", raising=False)
    try:
        return importlib.import_module("seatrial.probe.lightning").SeatrialCallback
    finally:
        sys.modules.pop("seatrial.probe.lightning", None)


def test_without_lightning_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match="pip install lightning"):
        load_callback(monkeypatch)


def test_the_package_that_the_script_has_imported_is_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    older = ModuleType("pytorch_lightning")
    older.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    assert issubclass(load_callback(monkeypatch, pytorch_lightning=older), older.Callback)
