"""What makes sides of several numbers of GPUs unlike in more than that number.

In: the sides and their points. Out: sentences, each with the sides it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from seatrial.records.comparison import ScalingPoint, Side
from seatrial.wording import named

NOT_COMPARED = ("host", "hosts", "gpu_uuid", "gpu_uuids")
"""Facts that differ between any two machines of one kind."""
SIZE_SETTINGS = frozenset(
    {"place.ranks", "ranks", "world_size", "nproc_per_node", "num_processes", "num_gpus", "env.WORLD_SIZE", "env.CUDA_VISIBLE_DEVICES"}
)
"""What the number of ranks is called in settings, and what goes with it."""
MOST_SHOWN = 4


def scaling_cautions(
    sides: Sequence[Side], points: Sequence[ScalingPoint], *, told: Sequence[str], metric: str, worker: str
) -> tuple[str, ...]:
    """All of them, what bears most on the figures first. `worker` is what there are several of, GPU or rank."""
    return (
        *_unlike("machines", {side.name: compared_facts(side.machine) for side in sides}),
        *_unlike("settings", {side.name: own_settings(side) for side in sides}),
        *_unlike("code", {side.name: side.code for side in sides}),
        *_unlike("settings in effect", {side.name: side.effective for side in sides}),
        *_debug(sides),
        *_work(points, metric, worker),
        *_pooled(sides, worker),
        *_nodes(sides, points),
        *_single_runs(points, worker),
        *_poor_sides(sides, told, metric),
    )


def compared_facts(machine: Mapping[str, str]) -> dict[str, str]:
    """Those that two machines of one kind have in common."""
    return {name: value for name, value in machine.items() if name not in NOT_COMPARED}


def own_settings(side: Side) -> dict[str, str]:
    """Its settings but for the number of ranks."""
    return {name: value for name, value in side.settings.items() if name not in SIZE_SETTINGS}


def _unlike(what: str, facts: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """One sentence with the facts that are not the same for all sides that tell them."""
    names = sorted({name for told in facts.values() for name in told})
    differing = []
    for name in names:
        values = sorted({told[name] for told in facts.values() if name in told})
        if len(values) > 1:
            differing.append(f"{name} {' / '.join(values)}")
    if differing:
        yield f"The sides differ in their {what} too ({named(differing, MOST_SHOWN, '; ')}): what is said of scaling holds that as well."


def _debug(sides: Sequence[Side]) -> Iterator[str]:
    found = [f"{side.name} ({', '.join(side.debug)})" for side in sides if side.debug]
    if found:
        yield f"Debug settings were on in {', '.join(found)}: run again without them, as they cost more the more ranks there are."


def _work(points: Sequence[ScalingPoint], metric: str, worker: str) -> Iterator[str]:
    if metric == "steps_per_s":
        yield f"The runs tell neither samples nor tokens: each {worker} is taken to do the same work in a step at every number."
    beyond = [point for point in points if point.gpus > points[0].gpus]
    if beyond and len({point.weak for point in beyond}) > 1:
        yield f"The work of one {worker} stays at some numbers of {worker}s and not at others: the fit takes compute to go with the work."
    elif beyond and not beyond[0].weak:
        yield f"The whole work of a step stays (strong scaling): compute is taken to shrink with one {worker}'s work."


def _pooled(sides: Sequence[Side], worker: str) -> Iterator[str]:
    """Several sides of one number, which is right only for repeats of one configuration."""
    counts = [(side.world_size, side.nodes) for side in sides]
    doubled = sorted({size for size in counts if counts.count(size) > 1})
    if doubled:
        names = ", ".join(dict.fromkeys(f"{side.group} ({side.source})" for side in sides if (side.world_size, side.nodes) == doubled[0]))
        yield f"Several sides ran on {doubled[0][0]} {worker}{'s' * (doubled[0][0] > 1)}, and their runs are taken together: {names}."


def _nodes(sides: Sequence[Side], points: Sequence[ScalingPoint]) -> Iterator[str]:
    nodes = sorted({point.nodes for point in points})
    if len(nodes) > 1:
        counts = ", ".join(map(str, nodes))
        yield f"The sides ran on {counts} nodes: between nodes bandwidth and latency are others than within one, and one fit mixes them."
        return
    hosts = {side.machine.get("host", "") for side in sides}
    if len(hosts) == 1 and "" not in hosts and len({point.gpus for point in points}) > 1:
        node = f"All sides were run from host {hosts.pop()}"
        yield f"{node}: projections beyond one node take the network to be as fast as the links inside it."


def _single_runs(points: Sequence[ScalingPoint], worker: str) -> Iterator[str]:
    alone = [point.gpus for point in points if point.runs < 2]
    if alone:
        yield f"A single run on {', '.join(map(str, alone))} {worker}{'s' * (alone != [1])}: no interval there; run it again."


def _poor_sides(sides: Sequence[Side], told: Sequence[str], metric: str) -> Iterator[str]:
    pending = [f"{side.name} ({len(side.pending)})" for side in sides if side.pending]
    if pending:
        yield f"Runs that are still to be made: {', '.join(pending)}."
    untold = [side.name for side in sides if side.name not in told]
    if untold:
        yield f"No run of {', '.join(untold)} tells {metric} and steps_per_s: left out."
    unsteady = [side.name for side in sides if any(not run.steady for run in side.runs)]
    if unsteady:
        yield f"Runs without a steady state in {', '.join(unsteady)}."
    failed = [f"{side.name} ({side.failed_runs + len(side.infrastructure_failures)})" for side in sides if _failed(side)]
    if failed:
        yield f"Failed runs, which are not counted: {', '.join(failed)}."


def _failed(side: Side) -> bool:
    return bool(side.failed_runs or side.infrastructure_failures)
