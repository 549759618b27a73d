"""Hosts of one run whose ranks were given unlike variables.

In: nodes/<name>/environment.json of every host, as its own agent wrote it. Out: one caution that names what differs, and where. Variables
that belong to a host (which of its GPUs are shown, paths of its own) may differ and are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from seatrial.collect.environment import read_variables
from seatrial.collect.hosts.folders import node_names
from seatrial.machine.recorded_variables import NOT_TUNING, TUNING_PREFIXES
from seatrial.paths import AttemptPaths
from seatrial.records.caution import Caution
from seatrial.wording import MOST_NAMED, named

ABSENT = "not set"


def environment_cautions(run: str, attempt: AttemptPaths) -> Iterator[Caution]:
    """None for a run on one host, or where all have the same."""
    variables = {name: _tuning(attempt.node(name)) for name in node_names(attempt)}
    odd = {name: parted for name in sorted({name for one in variables.values() for name in one}) if (parted := _parted(variables, name))}
    if not odd:
        return
    told = named([f"{name} {words}" for name, words in odd.items()], MOST_NAMED, "; ")
    yield Caution(
        kind="unlike_environment",
        subject=run,
        numbers={"variables": len(odd), "hosts": len(variables)},
        text=f"Variables that tune a run are not the same on its hosts: {told}. Set them in the plan (`env`): it reaches all ranks.",
    )


def _tuning(own: AttemptPaths) -> dict[str, str]:
    told = read_variables(own.environment) or {}
    return {name: value for name, value in told.items() if name.startswith(TUNING_PREFIXES) and name not in NOT_TUNING}


def _parted(variables: Mapping[str, Mapping[str, str]], name: str) -> str:
    """`1 on node2, not set elsewhere`; empty where all hosts that told anything agree."""
    values = {host: one.get(name, ABSENT) for host, one in variables.items() if one}
    usual = Counter(values.values()).most_common(1)
    odd = {host: value for host, value in values.items() if usual and value != usual[0][0]}
    if not odd:
        return ""
    return ", ".join(f"{value} on {host}" for host, value in list(odd.items())[:MOST_NAMED]) + f", {usual[0][0]} elsewhere"
