"""What scripts may rely on of the probe, name by name: a change to it must be made here too, and be meant."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import seatrial.probe
from seatrial.probe import Probe, StepRecord

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "probe.md"

CONSTRUCTOR = (
    "(run_dir: 'str | Path | None' = None, *, run: 'str | None' = None, attempt: 'int | None' = None, rank: 'int | None' = None, "
    "world_size: 'int | None' = None, local_rank: 'int | None' = None, rank_scope: 'str | None' = None, sync: 'bool | None' = None, "
    "phase_every: 'int | None' = None, heartbeat_s: 'float | None' = 5.0, "
    "monotonic: 'Callable[[], float]' = <built-in function monotonic>, wall: 'Callable[[], float]' = <built-in function time>) -> 'None'"
)
CALLS = {
    "data": "(self, loader: 'Iterable[Batch]') -> 'Iterable[Batch]'",
    "resume_at": "(self, step: 'int') -> 'None'",
    "step": "(self, *, samples: 'float | None' = None, tokens: 'float | None' = None) -> 'StepContext | Nothing'",
    "phase": "(self, name: 'str') -> 'PhaseContext | UntimedPhase | Nothing'",
    "pause": "(self, name: 'str') -> 'PauseContext | Nothing'",
    "startup": "(self, name: 'str') -> 'SpanContext | Nothing'",
    "recent": "(self) -> 'tuple[StepRecord, ...]'",
    "effective": "(self, setting: 'str', *, requested: 'Any', effective: 'Any', reason: 'str' = '') -> 'None'",
    "figure": "(self, name: 'str', value: 'float', unit: 'str' = '', n: 'int | None' = None) -> 'None'",
    "memory": "(self) -> 'None'",
    "loss": "(self, value: 'Any') -> 'None'",
    "close": "(self) -> 'None'",
}
PROPERTIES = ("active", "halted")
STEP_RECORD = ("iter_ms", "loss", "m", "paused_s", "phases_ms", "samples", "step", "t", "tokens")
CALLBACKS = ("hf", "lightning")


def test_the_package_offers_two_names() -> None:
    assert seatrial.probe.__all__ == ["Probe", "StepRecord"]


def test_a_probe_is_made_as_it_was() -> None:
    assert str(inspect.signature(Probe)).replace(" -> None", " -> 'None'") == CONSTRUCTOR


def test_a_probe_has_these_calls_and_no_others() -> None:
    public = {name: value for name, value in vars(Probe).items() if not name.startswith("_")}
    assert {name: str(inspect.signature(value)) for name, value in public.items() if callable(value)} == CALLS
    assert sorted(name for name, value in public.items() if isinstance(value, property)) == sorted(PROPERTIES)
    assert hasattr(Probe, "__enter__") and hasattr(Probe, "__exit__")


def test_a_step_record_tells_these() -> None:
    # The other two are what the device has yet to tell, and the probe's own.
    assert sorted(set(StepRecord.__slots__) - {"loss_read", "marks"}) == sorted(STEP_RECORD)


@pytest.mark.parametrize("name", [*CALLS, *PROPERTIES])
def test_every_public_name_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(getattr(Probe, name))
    assert text and text.splitlines()[0].endswith((".", ":", "does"))


@pytest.mark.parametrize("module", CALLBACKS)
def test_each_trainer_has_one_callback_with_one_option(module: str) -> None:
    """Read, not imported: the Trainers are not installed everywhere."""
    tree = ast.parse((ROOT / "src" / "seatrial" / "probe" / f"{module}.py").read_text())
    callback = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SeatrialCallback")
    made = next(node for node in callback.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert ast.get_docstring(callback)
    assert ast.unparse(made.args) == "self, run_dir: str | Path | None=None"


@pytest.mark.parametrize("name", [*CALLS, *PROPERTIES, "Probe", "StepRecord", *STEP_RECORD])
def test_the_page_names_it(name: str) -> None:
    page = PAGE.read_text()
    assert f"`{name}`" in page or f"`{name}(" in page


@pytest.mark.parametrize("module", CALLBACKS)
def test_the_page_names_each_callback(module: str) -> None:
    assert f"from seatrial.probe.{module} import SeatrialCallback" in PAGE.read_text()
