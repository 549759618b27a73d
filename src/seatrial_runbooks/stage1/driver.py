"""The benchmark driver, `scripts/run_stage1_ab_bench.sh`: variables become plans, plans are run by the harness.

    MODE=sweep INCLUDE=localhost:0,1 SWEEP_MICRO_BATCHES=160,192 OUTPUT_ROOT=outputs/x ./scripts/run_stage1_ab_bench.sh [--dry-run]

In: the environment, and a few words: --help lists every variable, --dry-run prints plans and commands and starts nothing. Out: the
campaign's folder; everything that is printed also in DRIVER_LOG_PATH. Exit codes are those of `seatrial run`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from seatrial.cli.program import exit_with
from seatrial.disk.fallback import VARIABLE as FALLBACK_DIR
from seatrial.errors import PlanError, RefusedError, UsageError, did_you_mean
from seatrial.paths import CampaignPaths
from seatrial.records.campaign_plan import CampaignPlan
from seatrial.records.exit_codes import INTERRUPTED, WRONG_USE
from seatrial_runbooks.stage1.driver_log import logged_to, refuse_unusable_log
from seatrial_runbooks.stage1.help_text import help_text
from seatrial_runbooks.stage1.misspelled import shortened_names
from seatrial_runbooks.stage1.notes import notes
from seatrial_runbooks.stage1.plan_words import in_driver_words
from seatrial_runbooks.stage1.program import answered
from seatrial_runbooks.stage1.spoken import say
from seatrial_runbooks.stage1.to_plan import TRAINER, plan_mappings
from seatrial_runbooks.stage1.variables import VARIABLES, Variables, read

NAME = "run_stage1_ab_bench.sh"
PLACE_IN_VARIABLES = "(Here place.include is INCLUDE; CPU ranks are asked for by INCLUDE=localhost and WORLD_SIZE=N.)"
HELP, DRY_RUN, YES, RUNBOOK = "--help", "--dry-run", "--yes", "--runbook"


@dataclass(frozen=True, kw_only=True)
class Words:
    """What was typed after the script's name."""

    wants_help: bool = False
    dry_run: bool = False
    yes: bool = False
    trainer: Path = TRAINER


@dataclass(frozen=True, kw_only=True)
class Work:
    """One plan to run, and the variables it came from."""

    mapping: dict[str, Any]
    plan: CampaignPlan
    variables: Variables


def main(environ: MutableMapping[str, str], argv: Sequence[str]) -> int:
    """Do what variables and words ask for and return the exit code. Ours are taken out of `environ`: ranks get none of them."""
    with logged_to(log_path(environ, argv)):
        return answered(lambda: _drive(environ, argv))


def log_path(environ: Mapping[str, str], argv: Sequence[str]) -> Path | None:
    """Where everything that is printed goes too; None where nobody asked for it, where nothing is to be started, or where it can be no
    file, which is told later."""
    asked = environ.get("DRIVER_LOG_PATH")
    only_shown = {HELP, "-h", DRY_RUN} & {*argv} or environ.get("DRY_RUN") == "1"
    return Path(asked).absolute() if asked and asked.isprintable() and not Path(asked).is_dir() and not only_shown else None


def read_words(argv: Sequence[str]) -> Words:
    """The few options there are."""
    words, trainer = list(argv), TRAINER
    if RUNBOOK in words[:1]:
        trainer = Path(words[1]) / "train.py"
        words = words[2:]
    known = {HELP: "wants_help", "-h": "wants_help", DRY_RUN: "dry_run", YES: "yes"}
    for word in words:
        if word not in known:
            hint = f"{word.partition('=')[0]} is a variable: put it before the command" if "=" in word else did_you_mean(word, known)
            raise UsageError(f"unknown word '{word}': {hint}")
    return Words(trainer=trainer, **{known[word]: True for word in words})


def prepared(all_variables: Sequence[Variables], words: Words) -> list[Work]:
    """The plans of each set of variables, checked; nothing is started."""
    from seatrial.plan.load import plan_from_mapping
    from seatrial.plan.resolve import resolve
    from seatrial_runbooks.stage1.before_start import refuse_unasked, refuse_unknown_baseline, refuse_what_cannot_work

    cwd, now = Path.cwd(), datetime.now()
    if not words.trainer.is_file():
        raise UsageError(f"there is no {words.trainer}: start the scripts of a whole checkout, where train.py lies beside them")
    found: list[Work] = []
    for variables in all_variables:
        if variables["DRIVER_LOG_PATH"]:
            refuse_unusable_log(Path(variables["DRIVER_LOG_PATH"]))
        mappings = plan_mappings(variables, cwd, now, words.trainer)
        try:
            plans = [resolve(plan_from_mapping(mapping, NAME), source=NAME, cwd=cwd) for mapping in mappings]
        except PlanError as error:
            raise UsageError(in_driver_words(str(error).removeprefix(f"{NAME}: "))) from error
        works = [Work(mapping=mapping, plan=plan, variables=variables) for mapping, plan in zip(mappings, plans, strict=True)]
        refuse_unknown_baseline([work.plan for work in works], variables)
        refuse_what_cannot_work([work.plan for work in works], variables, cwd)
        found += works
    refuse_unasked([work.plan for work in found], words.yes or words.dry_run)
    return found


def take_over(environ: MutableMapping[str, str], variables: Variables) -> list[str]:
    """Our variables out of the environment that the ranks inherit, and the one that the harness has for one of them into it."""
    for name in VARIABLES:
        environ.pop(name, None)
    asked = variables["MANIFEST_FALLBACK_PATH"]
    if asked is None:
        return []
    if environ.get(FALLBACK_DIR):
        return [f"[WARN] MANIFEST_FALLBACK_PATH has no effect: {FALLBACK_DIR} stands over it"]
    folder = Path(asked).absolute().parent / f"seatrial-fallback-{os.getuid()}"
    environ[FALLBACK_DIR] = str(folder)
    return [f"[INFO] MANIFEST_FALLBACK_PATH: what a disk does not take is kept in the folder {folder}, a file for each, and merged back"]


def run_works(works: Sequence[Work]) -> int:
    """One plan after the other; the exit code is that of the whole folder, which the last of them tells."""
    code = 0
    _keep_plans(works)
    for work in works:
        code, failed = _run(work)
        if code in (INTERRUPTED, WRONG_USE) or (failed and work.plan.stop_on_error):
            break
    return code


def _keep_plans(works: Sequence[Work]) -> None:
    """Put all plans of the command into the folder, so that what is still to come is known, and waited for, from the first run on."""
    if len(works) < 2:
        return
    from seatrial.campaign.owning import owned
    from seatrial.campaign.save_plan import save_plan
    from seatrial.cli.before_start import refuse_unusable_output

    paths = CampaignPaths(Path(works[0].plan.output))
    refuse_unusable_output(paths.folder)
    with owned(paths):
        for work in reversed(works):
            save_plan(work.plan, paths)


def say_head(works: Sequence[Work], told: Sequence[str]) -> None:
    from seatrial_runbooks.stage1.head_lines import head_lines

    variables = works[0].variables
    for line in [*head_lines(variables, [work.plan for work in works]), *told, *notes(variables)]:
        say(line)


def show(works: Sequence[Work]) -> int:
    """Each plan as a file would hold it, and what it would do. Nothing is started."""
    import tempfile

    from seatrial.cli.plan import show as show_plan
    from seatrial.files import write_text
    from seatrial.plan.write import plan_yaml

    for line in notes(works[0].variables):
        say(line)
    with tempfile.TemporaryDirectory() as folder:
        for work in works:
            path = Path(folder) / f"{work.plan.name}.yaml"
            write_text(path, plan_yaml(work.mapping))
            say(path.read_text(encoding="utf-8"))
            show_plan(path)
    return 0


def _drive(environ: MutableMapping[str, str], argv: Sequence[str]) -> int:
    words = read_words(argv)
    if words.wants_help:
        say(help_text(NAME))
        return 0
    variables = read(environ)
    works = prepared([variables], words)
    if words.dry_run or variables["DRY_RUN"]:
        return show(works)
    told = [*(f"[WARN] {text}" for text in shortened_names(environ, VARIABLES)), *take_over(environ, variables)]
    say_head(works, told)
    return run_works(works)


def _run(work: Work) -> tuple[int, bool]:
    """The exit code, and whether a run failed."""
    from seatrial.cli.carry_out import carry_out
    from seatrial_runbooks.stage1.view import DriverView, driver_view

    variables, views = work.variables, list[DriverView]()
    tail_lines = variables["FAIL_TAIL_LINES"] if variables["FAILURE_DUMP_TAIL"] else 0
    try:
        code = carry_out(
            work.plan,
            yes=True,
            heartbeat_s=float(variables["HEARTBEAT_EVERY_SEC"]),
            again=not variables["RESUME_RUNS"],
            view=driver_view(Path(work.plan.output), tail_lines, views),
        )
    except RefusedError as error:
        raise RefusedError(f"{error}\n  {PLACE_IN_VARIABLES}" if "place" in str(error) else str(error)) from error
    except UsageError as error:
        raise UsageError(in_driver_words(str(error))) from error
    return code, any(view.failed for view in views)


if __name__ == "__main__":
    exit_with(lambda: main(os.environ, sys.argv[1:]))
