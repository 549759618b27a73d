"""What a mark says when it is pointed at: fields, their names for people, a format where it is a number; window and n always last."""

from __future__ import annotations

import json
from collections.abc import Iterable

from seatrial.report.html.specs.theme import NUMBER, Spec

SECONDS = ",.2~f"
COUNTED: tuple[Spec, ...] = ({"field": "window", "type": "nominal", "title": "window"}, {"field": "n", "type": "nominal", "title": "n"})
"""Which steps a figure is of, and how many."""
SPELT_WINDOW: Spec = {"calculate": "'steps ' + datum.first_step + '–' + datum.last_step", "as": "window"}
"""For tables that have the window as two numbers."""


def spelt_seconds(begin: str, end: str) -> Spec:
    """For what is of a time and not of steps: the window as seconds since launch."""
    first, last = (f"format(datum.{field}, '{SECONDS}')" for field in (begin, end))
    return {"calculate": f"{first} + ({first} === {last} ? '' : ' to ' + {last}) + ' s since launch'", "as": "window"}


def word(field: str, title: str) -> Spec:
    return {"field": field, "type": "nominal", "title": title}


def number(field: str, title: str, form: str = NUMBER) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, "format": form}


def tooltip(shown: Iterable[Spec]) -> list[Spec]:
    """`shown`, then window and n."""
    return [*shown, *COUNTED]


def nearest_tooltip(shown: Iterable[Spec]) -> Spec:
    """The same for marks that answer when the pointer is near: of those Vega-Lite 6.4 finds numbers in the row, and words nowhere."""
    row = "(datum.datum || datum)"
    parts = []
    for one in shown:
        cell = f"{row}[{json.dumps(one['field'])}]"
        told = f"format({cell}, {json.dumps(one['format'])})" if "format" in one else f"'' + {cell}"
        parts.append(f"{json.dumps(one['title'])}: isValid({cell}) ? {told} : '–'")
    return {"value": {"expr": f"{{{', '.join(parts)}}}"}}


def interval_text(low: str, high: str, name: str, form: str = NUMBER) -> Spec:
    """A transform: `LOW to HIGH`, or that there is none; a format alone would show a missing bound as 0."""
    told = f"format(datum.{low}, '{form}') + ' to ' + format(datum.{high}, '{form}')"
    return {"calculate": f"isValid(datum.{low}) && isValid(datum.{high}) ? {told} : 'none'", "as": name}


def number_text(field: str, name: str, form: str = NUMBER) -> Spec:
    """A transform: the number as text, or that it is not known."""
    return {"calculate": f"isValid(datum.{field}) ? format(datum.{field}, '{form}') : 'not known'", "as": name}
