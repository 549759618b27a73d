"""What a plan tries out: every setting, variable and option of a script that its axes set.

In: a checked `Plan`. Out: names without `env.` before them. A switch for finding faults that stands among them is the difference under
test, and no reason to refuse a comparison.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from seatrial.plan.checks_of_axes import ENV_AXIS, RANKS_AXIS, members
from seatrial.plan.placeholders import names_in, value_text
from seatrial.plan.schema import Plan
from seatrial.records.debug_settings import option_name


def varied_names(plan: Plan) -> tuple[str, ...]:
    """Sorted, each once."""
    placeholders = {name for name, axis in plan.axes.items() if not axis.bundles} | set(members(plan))
    names = {name.removeprefix(ENV_AXIS) for name in placeholders if name != RANKS_AXIS}
    variables = {name for name, text in {**plan.env, **plan.workload.env}.items() if placeholders & set(names_in(text))}
    return tuple(sorted({*names, *variables, *_options(plan, placeholders)}))


def _options(plan: Plan, placeholders: set[str]) -> Iterator[str]:
    """Options of the script whose value an axis fills in, or that are themselves what it fills in."""
    for before, word in itertools.pairwise(("", *plan.workload.args)):
        name, equals, _ = word.partition("=")
        filled = placeholders & set(names_in(word))
        if filled and equals and not names_in(name):
            yield option_name(name)
        elif filled and before.startswith("--") and "=" not in before:
            yield option_name(before)
        yield from (option_name(value.partition("=")[0]) for name in filled for value in _values(plan, name) if value.startswith("--"))


def _values(plan: Plan, name: str) -> list[str]:
    """Every value that fills a placeholder, as the script gets it."""
    bundles = (bundle for axis in plan.axes.values() for bundle in axis.bundles.values())
    values = plan.axes[name].values if name in plan.axes else [bundle[name] for bundle in bundles if name in bundle]
    return [value_text(value) for value in values]
