"""What must be right between the keys of a plan: one workload, axes that reach it, placeholders that can be filled, bounds that bind.

In: a `Plan` whose single keys are right. Out: nothing, or a PlanError at the key to change. The settings of a bundled workload are
checked by `bundled`, since that imports them.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.errors import UsageError, did_you_mean
from seatrial.log_lines import compile_patterns
from seatrial.machine.nic_names import interface_variables
from seatrial.plan import checks_of_axes, checks_of_place
from seatrial.plan.checks_of_criteria import check_criteria
from seatrial.plan.locate import KeyPath
from seatrial.plan.placeholders import PlaceholderProblem, names_in
from seatrial.plan.schema import Plan, Workload
from seatrial.records.campaign_plan import SENTINEL
from seatrial.records.log_formats import READY
from seatrial.records.run_spec import LOCAL

RUN_NAMES = ("run", "group", "repeat", "seed")
"""Placeholders every plan knows; `steps` joins them where the plan says it."""
# Each rank's own, set when it is started: a fixed value would be overwritten.
SET_FOR_EACH_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def check(plan: Plan) -> None:
    """Raise a PlanError for the first pair of keys that cannot stand together."""
    _workload(plan)
    _reading(plan)
    checks_of_place.check_launcher(plan)
    checks_of_place.check_place(plan)
    _environment(plan)
    used = names_that_reach_the_run(plan)
    checks_of_axes.check_script_settings(plan, used)
    checks_of_axes.check_axes(plan, used)
    _placeholders(plan)
    _timing(plan)
    _limits(plan)
    _mode(plan)
    check_criteria(plan)
    _output(plan)


def templates(plan: Plan) -> Iterator[tuple[KeyPath, str]]:
    """Every text of a plan in which placeholders are filled, with its key."""
    if plan.workload.script is not None:
        yield ("workload", "script"), plan.workload.script
    for position, word in enumerate(plan.workload.args):
        yield ("workload", "args", position), word
    for position, word in enumerate(plan.launcher.args):
        yield ("launcher", "args", position), word
    for name, text in plan.workload.env.items():
        yield ("workload", "env", name), text
    for name, text in plan.env.items():
        yield ("env", name), text
    for key in ("samples_per_step", "tokens_per_step"):
        value = getattr(plan.workload, key)
        if isinstance(value, str):
            yield ("workload", key), value


def names_that_reach_the_run(plan: Plan) -> set[str]:
    """Every placeholder in arguments and variables; one that only counts samples changes nothing in a run."""
    used: set[str] = set()
    for path, text in templates(plan):
        try:
            names = names_in(text)
        except PlaceholderProblem as problem:
            raise plan.locations.error(path, str(problem)) from problem
        used.update(names if not str(path[-1]).endswith("_per_step") else ())
    return used


def _workload(plan: Plan) -> None:
    module, script = plan.workload.module, plan.workload.script
    if (module is None) == (script is None):
        missing = "names neither `module` nor `script`" if module is None else "names both `module` and `script`"
        raise plan.locations.error(("workload",), f"{missing}; give a bundled workload or a script of your own")
    if script is not None and not script.strip():
        raise plan.locations.error(("workload", "script"), "is empty; name a script or program")
    if module is not None:
        _bundled_keys(plan)


def _bundled_keys(plan: Plan) -> None:
    defaults = Workload()
    for key in ("args", "reads", "patterns", "samples_per_step", "tokens_per_step"):
        if getattr(plan.workload, key) != getattr(defaults, key):
            raise plan.locations.error(
                ("workload", key), "is for scripts of your own; a bundled workload takes `settings` and reports its steps itself"
            )
    if plan.launcher.kind == "command":
        raise plan.locations.error(
            ("launcher", "kind"), "'command' starts a program of your own; a bundled workload needs python, torchrun or deepspeed"
        )


def _reading(plan: Plan) -> None:
    reads = plan.workload.reads
    if reads not in (*READY, "auto", "none"):
        raise plan.locations.error(("workload", "reads"), f"unknown log format '{reads}'; {did_you_mean(reads, (*READY, 'auto', 'none'))}")
    for position, pattern in enumerate(plan.workload.patterns):
        try:
            compile_patterns([pattern])
        except UsageError as error:
            raise plan.locations.error(("workload", "patterns", position), str(error)) from error


def _environment(plan: Plan) -> None:
    variables: list[KeyPath] = [("env", name) for name in plan.env] + [("workload", "env", name) for name in plan.workload.env]
    for path in variables:
        problem = checks_of_axes.variable_problem(str(path[-1]))
        if problem:
            raise plan.locations.error(path, problem)
        if str(path[-1]).startswith("SEATRIAL_") or path[-1] in _set_for_each_rank(plan):
            raise plan.locations.error(path, "is set for each rank when it is started; leave it out")
        key = _place_key_that_sets(str(path[-1]), plan)
        if key:
            raise plan.locations.error(path, f"is set from place.{key}; keep one of the two")


def _place_key_that_sets(name: str, plan: Plan) -> str | None:
    """The key of `place` by which a variable is set for the ranks."""
    place, many = plan.place, plan.place.kind != LOCAL
    if name == "CUDA_VISIBLE_DEVICES":
        # Hosts that are named without slots say nothing of GPUs.
        return next((key for key, text in (("include", place.include), ("exclude", place.exclude)) if text and ":" in text), None)
    if many and name in ("MASTER_ADDR", "MASTER_PORT"):
        return "master_addr" if name == "MASTER_ADDR" else "port"
    return "interface" if name in interface_variables(place.interface or "") else None


def _set_for_each_rank(plan: Plan) -> tuple[str, ...]:
    """What each rank is told of its number; a single plain process runs as it would without Seatrial."""
    if plan.launcher.kind == "deepspeed":
        # It has another name for the last one.
        return SET_FOR_EACH_RANK[:-1]
    many = plan.place.kind != LOCAL or (plan.place.ranks or 1) > 1
    several = plan.launcher.kind == "torchrun" or (plan.launcher.kind == "python" and many)
    return SET_FOR_EACH_RANK if several else ()


def _placeholders(plan: Plan) -> None:
    known = {*plan.axes, *RUN_NAMES, *(("steps",) if plan.steps is not None else ())}
    if plan.workload.script is not None:
        known |= {*plan.settings, *checks_of_axes.members(plan)}
    for path, text in templates(plan):
        for name in names_in(text):
            if name not in known:
                raise plan.locations.error(path, _unknown_placeholder(name, known))


def _unknown_placeholder(name: str, known: set[str]) -> str:
    if name == "steps":
        return "{steps} cannot be filled: the plan does not say `steps`"
    return f"{{{name}}} is no axis or setting of the plan; {did_you_mean(name, known)} (for braces of your own write {{{{ and }}}})"


def _timing(plan: Plan) -> None:
    log_every, steps = plan.timing.log_every, plan.steps
    if log_every is not None and steps is not None and log_every > steps:
        raise plan.locations.error(
            ("timing", "log_every"), f"{log_every} is larger than steps ({steps}): no timing point would be recorded; lower it"
        )
    first, colon, last = plan.timing.window.partition(":")
    if colon and first and last and int(first) >= int(last):
        raise plan.locations.error(("timing", "window"), f"'{plan.timing.window}' is empty: the first step must be below the last")


def _limits(plan: Plan) -> None:
    if plan.limits.memory_gib is not None and plan.telemetry.host_s is None:
        raise plan.locations.error(
            ("limits", "memory_gib"),
            "is judged by the samples of host_telemetry.csv, and telemetry.host_s is null; sample the host or leave the limit out",
        )
    if plan.workload.module is not None and plan.limits.stall is not None and plan.limits.stall.quiet_s is not None:
        raise plan.locations.error(
            ("limits", "stall", "quiet_s"), "is for scripts of your own; a bundled workload reports its steps itself, so leave it out"
        )


def _mode(plan: Plan) -> None:
    if plan.mode == SENTINEL:
        raise plan.locations.error(("mode",), f"'{SENTINEL}' is the mode of the runs that the key `sentinel` adds; take another word")


def _output(plan: Plan) -> None:
    if plan.output is None:
        return
    try:
        names = names_in(plan.output)
    except PlaceholderProblem as problem:
        raise plan.locations.error(("output",), str(problem)) from problem
    wrong = [name for name in names if name != "time"]
    if wrong:
        raise plan.locations.error(("output",), f"{{{wrong[0]}}} cannot stand here; only {{time}} can")
    if not plan.output.strip():
        raise plan.locations.error(("output",), "is empty; name a folder or leave the key out")
