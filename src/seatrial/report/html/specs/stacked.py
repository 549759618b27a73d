"""Parts of a whole as one bar for each group: the mean over its runs, part by part, in one order everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seatrial.report.html.specs.placed import UNKNOWN, told
from seatrial.report.html.specs.theme import Spec, document, legend, named_y, quantity, row_height
from seatrial.report.html.specs.tooltip import number, tooltip, word


def stacked(
    groups: Sequence[str],
    part: str,
    field: str,
    unit: str,
    colours: Mapping[str, str],
    *,
    windows: Mapping[str, str],
    of_group: Sequence[Spec] = (),
    shown: Sequence[Spec] = (),
) -> Spec:
    """`part` is the column that names a part, `field` its amount in `unit`. `windows` are those of each group's runs in words,
    `of_group` what `shown` shows of a group beside its parts; the sum of them is `whole`."""
    shades = {"domain": list(colours), "range": list(colours.values())}
    return document(
        height=row_height(len(groups)),
        transform=[*told("group", _group_places(groups, windows)), *told(part, _places(part, colours)), *_mean(part, field), *of_group],
        mark={"type": "bar"},
        encoding={
            "y": named_y("group"),
            "x": quantity("mean", unit),
            "color": {"field": part, "type": "nominal", "scale": shades, "legend": legend(columns=(2, 6))},
            "order": {"field": "at", "type": "quantitative"},
            "tooltip": tooltip(
                [
                    word("group", "group"),
                    word(part, "part"),
                    number("mean", unit),
                    number("share", "share", ".1%"),
                    *shown,
                    word("runs", "runs"),
                ]
            ),
        },
    )


def _group_places(groups: Sequence[str], windows: Mapping[str, str]) -> list[dict[str, str | int]]:
    return [{"group": group, "place": place, "window": windows.get(group, UNKNOWN)} for place, group in enumerate(groups)]


def _places(part: str, colours: Mapping[str, str]) -> list[dict[str, str | int]]:
    return [{part: name, "at": at} for at, name in enumerate(colours)]


def _mean(part: str, field: str) -> list[Spec]:
    means = [
        {"op": "mean", "field": field, "as": "mean"},
        {"op": "distinct", "field": "run", "as": "runs"},
        {"op": "sum", "field": "n", "as": "n"},
    ]
    return [
        {"aggregate": means, "groupby": ["group", "place", "window", part, "at"]},
        {"joinaggregate": [{"op": "sum", "field": "mean", "as": "whole"}], "groupby": ["group"]},
        {"calculate": "datum.whole > 0 ? datum.mean / datum.whole : 0", "as": "share"},
    ]
