"""Which sides are one configuration at several numbers of GPUs.

In: sides (groups, campaigns, rows of history). Out: a `Scaling` for each family: sides that differ in nothing but their number of ranks,
by their settings, axes and environment; and the family that scales worst. Sides of unlike machines are refused, as in any comparison,
unless they are to be compared across them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from seatrial.analyse.scaling import scaling
from seatrial.analyse.scaling_cautions import compared_facts, own_settings
from seatrial.errors import RefusedError
from seatrial.records.comparison import Scaling, Side
from seatrial.wording import named

Settings = tuple[tuple[str, str], ...]


def scaling_families(sides: Sequence[Side], metric: str = "throughput", *, gpus: Sequence[int] = (), across: bool = False) -> list[Scaling]:
    """One for each family, in the order in which they are first met; a RefusedError for unlike machines."""
    refused = "" if across else unlike_machines(sides)
    if refused:
        raise RefusedError(refused)
    families = part(sides)
    names = _names(list(families))
    return [replace(scaling(members, metric, gpus=gpus), family=names[key]) for key, members in families.items()]


def part(sides: Sequence[Side]) -> dict[Settings, list[Side]]:
    """By settings. Where those put no two numbers of ranks together and there is one side of each number, all are one family: somebody
    who holds the whole work fixed has another batch at every number."""
    families: dict[Settings, list[Side]] = {}
    for side in sides:
        families.setdefault(tuple(sorted(own_settings(side).items())), []).append(side)
    sizes = [side.world_size for side in sides]
    if len(set(sizes)) == len(sizes) > 1 and len(families) == len(sizes):
        return {(): list(sides)}
    return families


def unlike_machines(sides: Sequence[Side]) -> str:
    """Why the sides must not be held against one another; empty where they may. More ranks may be more hosts of one kind."""
    for side in sides[1:]:
        before, after = compared_facts(sides[0].machine), compared_facts(side.machine)
        unlike = [f"{name} ({before[name]} → {after[name]})" for name in before if name in after and before[name] != after[name]]
        if unlike:
            return (
                f"{sides[0].name} and {side.name} ran on unlike machines: {named(unlike)}; run all on machines of one kind, or hold them "
                "against one another all the same with --across"
            )
    return ""


def worst_family(found: Sequence[Scaling]) -> Scaling | None:
    """The one whose efficiency at its largest number of GPUs is lowest. Where none was run on two numbers, the first says so."""
    measured = [one for one in found if one.is_measured]
    if not measured:
        return found[0] if found else None
    worst = min(measured, key=lambda one: one.points[-1].efficiency.mean)
    if len(found) == 1:
        return worst
    untold = [one.family for one in found if not one.is_measured]
    caution = f"Run on one number only, so nothing is known of their scaling: {'; '.join(untold)}." if untold else ""
    return replace(
        worst,
        reason=f"{worst.family}, the worst of {len(found)} configurations: {worst.reason}",
        cautions=(*worst.cautions, *([caution] if caution else [])),
    )


def _names(keys: Sequence[Settings]) -> Mapping[Settings, str]:
    """By what sets each family apart from the others; nothing where there is only one."""
    apart = set().union(*map(set, keys)) - set(keys[0]).intersection(*map(set, keys[1:])) if len(keys) > 1 else set()
    names = {key: [f"{name}={value}" for name, value in key if (name, value) in apart] for key in keys}
    return {key: named(words) for key, words in names.items()}
