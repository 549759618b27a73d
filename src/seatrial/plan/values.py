"""The kinds of single value a plan holds, each checked with a message for its author: words, scalars, bounds, durations."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from seatrial.errors import UsageError
from seatrial.plan.yaml_text import kind_of
from seatrial.units import parse_duration_s

RANK_MEANINGS = {
    "throughput": "samples/s, else tokens/s, else steps/s, else the length of the run",
    "samples_per_s": "samples a second, by wall clock",
    "tokens_per_s": "tokens a second, by wall clock",
    "steps_per_s": "steps a second, by wall clock",
    "wall_p50_ms": "median wall time of a step",
    "iter_p50": "lowest p50 of the sum of phases, averaged over the last timing points",
    "stability": "lowest stability score: p90 over p50 of the sum of phases, unstable runs counted against it",
    "balanced": "lowest sum of the places by iter_p50 and by stability",
    "duration_s": "length of the run",
}
LARGEST_WORK = 1e18
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_.]*\}")


def problem(text: str) -> PydanticCustomError:
    """An error whose words reach the user as they are."""
    # The template language of pydantic's messages has braces of its own.
    return PydanticCustomError("plan", "{text}", {"text": text})


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise problem(f"{value} is not a number one can run with")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise problem(f"must be one value (text, number, true or false), not {kind_of(value)}")


def _word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        shown = "null" if value is None else str(value).lower()
        raise problem(f'must be text: put it in quotes, "{shown}"')
    if not isinstance(value, (str, int, float)):
        raise problem(f"must be text, not {kind_of(value)}")
    if "\0" in str(value):
        raise problem("holds a null byte, which no command can carry")
    return value if isinstance(value, str) else repr(value)


def _work(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= LARGEST_WORK:
        return float(value)
    if isinstance(value, str) and _PLACEHOLDER.fullmatch(value):
        return value
    raise problem(f'must be a number above zero or one placeholder such as "{{bs}}", not {value!r}')


def _duration(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = parse_duration_s(value)
        except UsageError as error:
            raise problem(str(error)) from error
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise problem(f"must be a time above zero such as 90s, 15m or 2h, not {value!r}")
    return float(value)


def _one_or_more(value: Any) -> Any:
    return [_scalar(item) for item in value] if isinstance(value, list) else _scalar(value)


_SCALAR_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
_WORD_SCHEMA: dict[str, Any] = {"type": ["string", "number"]}

ScalarValue = Annotated[Any, PlainValidator(_scalar), WithJsonSchema(_SCALAR_SCHEMA)]
OneOrMore = Annotated[
    Any, PlainValidator(_one_or_more), WithJsonSchema({"anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA}]})
]
Word = Annotated[str, PlainValidator(_word), WithJsonSchema(_WORD_SCHEMA)]
Work = Annotated[Any, PlainValidator(_work), WithJsonSchema(_WORD_SCHEMA)]
Duration = Annotated[float, PlainValidator(_duration), WithJsonSchema(_WORD_SCHEMA)]


def type_and_value(value: Any) -> tuple[str, Any]:
    """Equal for equal values of one type: true, 1, 1.0 and "1" are four values."""
    return type(value).__name__, value
