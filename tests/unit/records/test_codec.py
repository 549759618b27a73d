"""Records to JSON and back."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
import math
import pkgutil
import types
import typing
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seatrial.records
from seatrial.records.codec import LARGEST_WHOLE, from_json, from_json_or_none, to_json
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from seatrial.records.plan import LimitsSpec


def test_unknown_keys_of_a_later_version_are_ignored() -> None:
    outcome = RunOutcome(run="r", attempt=2, hash="ab", outcome=Outcome.FAILED, cause=Cause.CUDA_OOM, log_tail=("a", "b"))
    assert from_json(RunOutcome, to_json(outcome) | {"invented_later": 1}) == outcome


def test_an_unknown_word_of_a_later_version_is_kept_and_a_number_in_its_place_is_not() -> None:
    assert from_json(LimitsSpec, {"stack_signal": "TSTP"}).stack_signal == "TSTP"
    with pytest.raises(ValueError, match="stack_signal: int where str is expected"):
        from_json(LimitsSpec, {"stack_signal": 5})


def test_values_of_every_kind() -> None:
    class Held(NamedTuple):
        value: object

    outcome = RunOutcome(run="r", attempt=1, hash="", outcome=Outcome.OK, duration_s=float("inf"))
    values = [1, True, None, "a", 2.5, -math.inf, np.float64(3.5), np.float64("nan"), Outcome.OK, {1: (2, {"x": Cause.NONE})}]
    plain = [1, True, None, "a", 2.5, None, 3.5, None, "ok", {"1": [2, {"x": "none"}]}]
    assert to_json(values) == plain and to_json({"all": values}) == {"all": plain}
    ((written,),) = to_json(Held([outcome]))
    assert (written["outcome"], written["duration_s"], written["log_tail"]) == ("ok", None, [])


# They hold tables, which are not JSON, or whatever a host answered.
NO_JSON = {"StepTables", "TelemetryTables", "Reply"}
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    int: st.integers(1 - LARGEST_WHOLE, LARGEST_WHOLE - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    types.NoneType: st.none(),
}
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


def record_types() -> list[type]:
    found: list[type] = []
    for module in pkgutil.iter_modules(seatrial.records.__path__):
        names = vars(importlib.import_module(f"seatrial.records.{module.name}"))
        found += [kind for kind in names.values() if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind not in found]
    return [kind for kind in found if kind.__module__.startswith("seatrial.records.") and kind.__name__ not in NO_JSON]


def values(kind: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Any value of a field's type; records inside records inside records have their required fields only."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in SCALARS:
        return SCALARS[kind]
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(choice, depth) for choice in inner])
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(values(inner[0], depth), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(one, depth) for one in inner))
    if origin is list:
        return st.lists(values(inner[0], depth), max_size=2)
    if origin is dict:
        return st.dictionaries(SCALARS[str], values(inner[1], depth), max_size=2)
    assert dataclasses.is_dataclass(kind), f"{kind} is no type that a record may have"
    hints = typing.get_type_hints(kind)
    required = {field.name for field in dataclasses.fields(kind) if field.default is field.default_factory is dataclasses.MISSING}
    return st.builds(kind, **{name: values(hints[name], depth + 1) for name in hints if depth < 2 or name in required})


ALL = record_types()
SETTINGS = settings(max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@SETTINGS
@given(data=st.data())
def test_any_record_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    record = data.draw(values(kind))
    assert from_json(kind, json.loads(json.dumps(to_json(record), allow_nan=False))) == record


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@SETTINGS
@given(data=st.data())
def test_a_field_of_another_type_is_an_error_that_names_it_or_a_sound_value(kind: type, data: st.DataObject) -> None:
    fields = typing.get_type_hints(kind)
    name = data.draw(st.sampled_from(sorted(fields)))
    stored = {**to_json(data.draw(values(kind))), name: data.draw(JSON)}
    record = from_json_or_none(kind, stored)
    if record is None:
        with pytest.raises(ValueError, match=name):
            from_json(kind, stored)
    else:
        # What was taken can be written again: no NaN, no number beyond what tables hold.
        assert from_json(kind, json.loads(json.dumps(to_json(record), allow_nan=False))) == record
