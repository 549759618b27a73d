"""The benchmark driver, `scripts/run_stage1_ab_bench.sh`: variables become plans, plans are run by the harness.

    MODE=sweep INCLUDE=localhost:0,1 SWEEP_MICRO_BATCHES=160,192 OUTPUT_ROOT=outputs/x ./scripts/run_stage1_ab_bench.sh [--dry-run]

In: the environment and a few options: --help lists every variable, --dry-run prints plans and commands and starts nothing. Out: the
campaign's folder; the output also goes to DRIVER_LOG_PATH. Exit codes are those of `seatrial run`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from seatrial.cli.program import exit_with
from seatrial.core.errors import INTERRUPTED, WRONG_USE, PlanError, RefusedError, UsageError, did_you_mean
from seatrial.core.fallback import FALLBACK_DIR
from seatrial.core.paths import CampaignPaths
from seatrial.records.plan import CampaignPlan
from seatrial_runbooks.command_line import echo, run_reporting_errors
from seatrial_runbooks.stage1.driver_output import InVariables, logged_to, notes, plan_error_in_variables, plan_terms_as_variables
from seatrial_runbooks.stage1.to_plan import TRAINER, alike_by, equalized_notes, plan_mappings
from seatrial_runbooks.stage1.variables import VARIABLES, Variables, help_text, read, setting_names, shortened_names

NAME = "run_stage1_ab_bench.sh"
TRAINER_WORKLOAD = "contrastive"
"""The bundled workload that train.py starts."""
PLACE_IN_VARIABLES = "(Here place.include is INCLUDE; for CPU ranks use INCLUDE=localhost and WORLD_SIZE=N.)"
GUARD = (
    "This plan starts train.py as a script: only the driver knows which of its effective settings may follow others. `seatrial run` may "
    "refuse groups as confounded that the driver compares; there use `workload: contrastive`, as the plans of stage1 do."
)
HELP, DRY_RUN, YES, RUNBOOK = "--help", "--dry-run", "--yes", "--runbook"


@dataclass(frozen=True, kw_only=True)
class Options:
    show_help: bool = False
    dry_run: bool = False
    yes: bool = False
    trainer: Path = TRAINER


@dataclass(frozen=True, kw_only=True)
class DriverPlan:
    """One plan to run, its YAML mapping and its variables."""

    mapping: dict[str, Any]
    plan: CampaignPlan
    variables: Variables
    missing: tuple[str, ...] = ()
    """In a dry run: data and weights that are missing here."""


def main(environ: MutableMapping[str, str], argv: Sequence[str]) -> int:
    """Run the driver and return the exit code. The driver's variables are removed from `environ`, so that ranks do not inherit them."""
    with logged_to(log_path(environ, argv)):
        return run_reporting_errors(lambda: _drive(environ, argv))


def log_path(environ: Mapping[str, str], argv: Sequence[str]) -> Path | None:
    """DRIVER_LOG_PATH; None where it is not set, where nothing is started, or where it cannot be a file, which is reported later."""
    path = environ.get("DRIVER_LOG_PATH")
    only_shown = {HELP, "-h", DRY_RUN} & {*argv} or environ.get("DRY_RUN") == "1"
    return Path(path).absolute() if path and path.isprintable() and not Path(path).is_dir() and not only_shown else None


def parse_options(argv: Sequence[str]) -> Options:
    arguments, trainer = list(argv), TRAINER
    if RUNBOOK in arguments[:1]:
        trainer = Path(arguments[1]) / "train.py"
        arguments = arguments[2:]
    known = {HELP: "show_help", "-h": "show_help", DRY_RUN: "dry_run", YES: "yes"}
    for argument in arguments:
        if argument not in known:
            name, is_variable, _ = argument.partition("=")
            hint = f"{name} is a variable: put it before the command" if is_variable else did_you_mean(argument, known)
            raise UsageError(f"unknown argument '{argument}': {hint}")
    return Options(trainer=trainer, **{known[argument]: True for argument in arguments})


def prepare_plans(all_variables: Sequence[Variables], options: Options, **more: Any) -> list[DriverPlan]:
    """The checked plans of each set of variables, with `more` keys in each; starts nothing."""
    from seatrial.plan.load import plan_from_mapping
    from seatrial.plan.resolve import resolve_plan
    from seatrial_runbooks.stage1.preflight import check_baseline, check_gpus, check_run_count, check_runnable

    cwd, now = Path.cwd(), datetime.now()
    if not options.trainer.is_file():
        raise UsageError(f"there is no {options.trainer}: run the scripts from a full checkout, which has train.py next to them")
    plans: list[DriverPlan] = []
    for variables in all_variables:
        if variables["DRIVER_LOG_PATH"] and (log := Path(variables["DRIVER_LOG_PATH"])).is_dir():
            raise UsageError(f"DRIVER_LOG_PATH is {log}, which is a folder: give a file, such as {log / 'driver.log'}")
        dry_run = options.dry_run or variables["DRY_RUN"]
        mappings = [{**mapping, **more} for mapping in plan_mappings(variables, cwd, now, options.trainer)]
        try:
            resolved = [with_declared(resolve_plan(plan_from_mapping(mapping, NAME), source=NAME, cwd=cwd)) for mapping in mappings]
        except PlanError as error:
            raise UsageError(plan_error_in_variables(error, NAME)) from error
        check_baseline(resolved, variables)
        missing = tuple(check_runnable(resolved, variables, cwd, dry_run=dry_run))
        if not dry_run:
            check_gpus(resolved, variables)
        if variables["IGNORE_NEEDS"]:
            resolved = [replace(plan, needs=replace(plan.needs, enforced=False)) if plan.needs else plan for plan in resolved]
        plans += [
            DriverPlan(mapping=mapping, plan=plan, variables=variables, missing=missing)
            for mapping, plan in zip(mappings, resolved, strict=True)
        ]
    check_run_count([one.plan for one in plans], options.yes or options.dry_run)
    return plans


def with_declared(plan: CampaignPlan) -> CampaignPlan:
    """The plan with what the trainer declares about its effective settings: to the plan train.py is a script without any."""
    from seatrial.plan import workloads

    follows, remedies = workloads.follows(TRAINER_WORKLOAD), alike_by(workloads.alike_by(TRAINER_WORKLOAD))
    runs = (replace(run, workload=replace(run.workload, follows=follows, alike_by=remedies)) for run in plan.runs)
    return replace(plan, runs=tuple(runs))


def remove_from_environment(environ: MutableMapping[str, str], variables: Variables) -> list[str]:
    """Remove the driver's variables, which ranks would inherit, and set the harness's fallback folder from MANIFEST_FALLBACK_PATH."""
    for name in VARIABLES:
        environ.pop(name, None)
    path = variables["MANIFEST_FALLBACK_PATH"]
    if path is None:
        return []
    if environ.get(FALLBACK_DIR):
        return [f"[WARN] MANIFEST_FALLBACK_PATH has no effect: {FALLBACK_DIR} overrides it"]
    folder = Path(path).absolute().parent / f"seatrial-fallback-{os.getuid()}"
    environ[FALLBACK_DIR] = str(folder)
    return [f"[INFO] MANIFEST_FALLBACK_PATH: writes that fail go to {folder} and are merged back"]


def run_plans(plans: Sequence[DriverPlan]) -> int:
    """Run the plans in order; the exit code of the last one covers the whole folder."""
    code = 0
    _save_plans(plans)
    for one in plans:
        code, failed = _run(one)
        if code in (INTERRUPTED, WRONG_USE) or (failed and one.plan.stop_on_error):
            break
    return code


def _save_plans(plans: Sequence[DriverPlan]) -> None:
    """Save all plans of the command first, so that the pending runs of later ones are known from the first run on."""
    if len(plans) < 2:
        return
    from seatrial.campaign.lock import hold_lock
    from seatrial.campaign.loop import save_plan
    from seatrial.cli.run import refuse_unusable_output

    paths = CampaignPaths(Path(plans[0].plan.output))
    refuse_unusable_output(paths.folder)
    with hold_lock(paths):
        for one in reversed(plans):
            save_plan(one.plan, paths)


def print_head(plans: Sequence[DriverPlan], more: Sequence[str]) -> None:
    from seatrial_runbooks.stage1.driver_output import head_lines

    variables = plans[0].variables
    equalized = [f"[INFO] {note}" for note in equalized_notes(variables)]
    for line in [*head_lines(variables, [one.plan for one in plans]), *more, *notes(variables), *equalized]:
        echo(line)


def print_plans(plans: Sequence[DriverPlan]) -> int:
    """Print each plan as YAML and what it would run; starts nothing."""
    import tempfile

    from seatrial.cli.plan import show as show_plan
    from seatrial.core.files import write_text
    from seatrial.plan.yaml_text import plan_yaml

    for line in [*notes(plans[0].variables), *dict.fromkeys(f"[WARN] not here: {text}" for one in plans for text in one.missing)]:
        echo(line)
    with tempfile.TemporaryDirectory() as folder:
        for one in plans:
            # As comments, so that the output stays a valid plan.
            for note in [*equalized_notes(one.variables), GUARD]:
                echo(f"# {note}")
            path = Path(folder) / f"{one.plan.name}.yaml"
            write_text(path, plan_yaml(one.mapping))
            echo(path.read_text(encoding="utf-8"))
            with contextlib.redirect_stdout(InVariables(sys.stdout)):
                show_plan(path)
    return 0


def _drive(environ: MutableMapping[str, str], argv: Sequence[str]) -> int:
    options = parse_options(argv)
    if options.show_help:
        echo(help_text(NAME))
        return 0
    variables = read(environ)
    plans = prepare_plans([variables], options)
    unknown = name_warnings(environ, variables)
    if options.dry_run or variables["DRY_RUN"]:
        for line in unknown:
            echo(line)
        return print_plans(plans)
    print_head(plans, [*unknown, *remove_from_environment(environ, variables)])
    return run_plans(plans)


def name_warnings(environ: Mapping[str, str], variables: Variables) -> list[str]:
    """A line for each unknown name that resembles the driver's, and for those that IGNORE_UNKNOWN lets pass."""
    passed = setting_names(environ, VARIABLES) if variables["IGNORE_UNKNOWN"] else []
    ignored = [f"{text}; ignored, IGNORE_UNKNOWN is 1" for text in passed]
    return [f"[WARN] {text}" for text in [*ignored, *shortened_names(environ, VARIABLES)]]


def _run(driver_plan: DriverPlan) -> tuple[int, bool]:
    """The exit code, and whether a run failed."""
    from seatrial.cli.run import RunOptions, execute
    from seatrial_runbooks.stage1.driver_output import DriverView, driver_view

    variables, views = driver_plan.variables, list[DriverView]()
    tail_lines = variables["FAIL_TAIL_LINES"] if variables["FAILURE_DUMP_TAIL"] else 0
    how = RunOptions(
        yes=True,
        heartbeat_s=float(variables["HEARTBEAT_EVERY_SEC"]),
        again=not variables["RESUME_RUNS"],
        from_start=not variables["RESUME_RUNS"],
        # As the original driver does.
        keep_going=True,
        how_to_resume="RESUME_RUNS=true resumes" if not variables["RESUME_RUNS"] else "",
        view=driver_view(Path(driver_plan.plan.output), tail_lines, views),
    )
    try:
        code = execute(driver_plan.plan, how)
    except RefusedError as error:
        text = plan_terms_as_variables(str(error))
        raise RefusedError(f"{text}\n  {PLACE_IN_VARIABLES}" if "place" in str(error) else text) from error
    except UsageError as error:
        raise UsageError(plan_terms_as_variables(str(error))) from error
    return code, any(view.failed for view in views)


if __name__ == "__main__":
    exit_with(lambda: main(os.environ, sys.argv[1:]))
