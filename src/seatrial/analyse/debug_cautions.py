"""What stands beside every figure of a run that was measured with debug or tracing settings on.

In: the settings that were on. Out: a `Caution` of kind `debug_on`, one of kind `debug_varied` for what an axis of the plan turns, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.records.caution import Caution
from seatrial.records.health import DebugSetting
from seatrial.wording import MOST_NAMED, named

"""Settings named in a sentence; all of them are in the run's record."""


def debug_cautions(debug: Sequence[DebugSetting], run: str) -> Iterator[Caution]:
    """Which are on, what they do to the figures, and how to get rid of them; a switch that the plan turns itself is told apart."""
    fixed = [one for one in debug if not one.varied]
    varied = [one for one in debug if one.varied]
    if fixed:
        yield Caution(
            kind="debug_on",
            subject=run,
            numbers={"settings": len(fixed)},
            text=f"Measured with debug or tracing on: {_named(fixed)}. {_effects(fixed)}. The figures are of such a run, and are not "
            f"compared with those of a plain one; {_remedy(fixed)} and run again to measure.",
        )
    if varied:
        yield Caution(
            kind="debug_varied",
            subject=run,
            numbers={"settings": len(varied)},
            text=f"The plan itself turns {_named(varied)} on in this run: a difference from runs without holds what that costs. "
            f"{_effects(varied)}.",
        )


def _named(debug: Sequence[DebugSetting]) -> str:
    return named([f"{one.name}={one.value} ({one.source})" for one in debug])


def _effects(debug: Sequence[DebugSetting]) -> str:
    whys = list(dict.fromkeys(one.why for one in debug[:MOST_NAMED]))
    return ". ".join(why[:1].upper() + why[1:] for why in whys)


def _remedy(debug: Sequence[DebugSetting]) -> str:
    """Where each kind of switch is set."""
    variables = [one.name for one in debug if one.name.isupper()]
    settings = [one.name for one in debug if not one.name.isupper()]
    parts = [f"unset {_all(variables)} in the shell or the plan's env"] if variables else []
    parts += [f"switch {_all(settings)} off in the plan"] if settings else []
    return ", ".join(parts)


def _all(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
