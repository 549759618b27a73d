"""Phase B, `scripts/run_phaseb_4090_stability.sh`: both sentinel groups three times, then the check of their stability.

    OUTPUT_ROOT=outputs/bench_4090_phaseB_diag INCLUDE=localhost:0,1 ./scripts/run_phaseb_4090_stability.sh

In: the driver's variables; the matrix and TIMING_RANK_SCOPE=all are fixed, three have their own defaults. Out: the campaign's folder and
the check's table; exit code 0 stable, 2 not, 3 not known, 1 wrong use, 130 interrupted. The two groups are two plans, as two driver
commands would create: in one plan their hashes would differ, and finished runs would be repeated.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence

from seatrial.cli.program import exit_with
from seatrial.core.errors import INTERRUPTED, WRONG_USE, UsageError
from seatrial_runbooks.command_line import echo, run_reporting_errors
from seatrial_runbooks.stage1.driver import (
    Options,
    log_path,
    name_warnings,
    parse_options,
    prepare_plans,
    print_head,
    print_plans,
    remove_from_environment,
    run_plans,
)
from seatrial_runbooks.stage1.driver_output import logged_to
from seatrial_runbooks.stage1.phaseb_check import SENTINELS, Thresholds
from seatrial_runbooks.stage1.phaseb_check import main as check
from seatrial_runbooks.stage1.to_plan import PHASE_B_CRITERIA
from seatrial_runbooks.stage1.variables import VARIABLES, Variables, help_text, read

NAME = "run_phaseb_4090_stability.sh"
WHAT = """\
Phase B: runs sweep_z0_mb128_nw6_pf4 and sweep_z1_mb160_nw6_pf2 three times each, timed on all ranks, then checks their stability.
Exit codes: 0 stable, 1 wrong use or an error, 2 not stable or refused to start, 3 not known, 130 interrupted.
"""
DEFAULTS = {"REPEATS": "3", "MAX_STEPS": "1000", "OUTPUT_ROOT": "outputs/bench_4090_phaseB_diag"}
AXES = ("SWEEP_ZERO_STAGES", "SWEEP_MICRO_BATCHES", "SWEEP_NUM_WORKERS_LIST", "SWEEP_PREFETCH_LIST")
# The groups of SENTINELS, in that order.
VALUES = (("0", "128", "6", "4"), ("1", "160", "6", "2"))
FIXED = {"MODE": "sweep", "TIMING_RANK_SCOPE": "all"}
# Overridden by the lists in AXES.
OVERRIDDEN = ("SWEEP_NUM_WORKERS", "SWEEP_PREFETCH_FACTOR")


def main(environ: MutableMapping[str, str], argv: Sequence[str]) -> int:
    """Run what is missing, check, and return the check's exit code."""
    with logged_to(log_path(environ, argv)):
        return run_reporting_errors(lambda: _drive(environ, parse_options(argv)))


def sentinel_variables(environ: Mapping[str, str]) -> list[Variables]:
    """The driver's variables for each sentinel: the environment, and its point of the matrix."""
    kept = {name: value for name, value in environ.items() if name not in OVERRIDDEN}
    return [read({**kept, **FIXED, **dict(zip(AXES, values, strict=True))}, DEFAULTS) for values in VALUES]


def overridden(environ: Mapping[str, str]) -> list[str]:
    """A line for each given variable that has no effect here."""
    used = {**{name: {value} for name, value in FIXED.items()}, **{name: set() for name in OVERRIDDEN}}
    used |= {name: set(values) for name, values in zip(AXES, zip(*VALUES, strict=True), strict=True)}
    # A value equal to the default needs no warning.
    given = [name for name, values in used.items() if environ.get(name) and environ[name] not in {*values, VARIABLES[name].default}]
    return [f"[WARN] {name} has no effect: phase B runs {' and '.join(SENTINELS)}, timed on all ranks" for name in given]


def _read(environ: Mapping[str, str]) -> list[Variables]:
    """The variables of both sentinels; values that are overridden must be valid too."""
    try:
        read({**environ, "MODE": environ.get("MODE") or FIXED["MODE"]}, DEFAULTS)
        return sentinel_variables(environ)
    except UsageError as error:
        raise UsageError(_without_fixed(str(error))) from error


def _without_fixed(text: str) -> str:
    """A message of the driver, without advice on variables that phase B sets itself."""
    fixed = "|".join((*AXES, *OVERRIDDEN))
    text = re.sub(rf"use (?:{fixed})\b(?! and)", "phase B sets it itself", text)
    text = re.sub(rf",? or (?:{fixed})=\S+", "", text)
    return text.replace("shorten the SWEEP_ lists or REPEATS", "lower REPEATS")


def _drive(environ: MutableMapping[str, str], options: Options) -> int:
    if options.show_help:
        echo(help_text(NAME, WHAT, DEFAULTS))
        return 0
    both, warnings = _read(environ), overridden(environ)
    repeats, least = both[0]["REPEATS"], Thresholds().min_repeats
    if repeats < least:
        warnings.append(f"[WARN] REPEATS is {repeats}, but the check needs {least}: it cannot pass")
    try:
        plans = prepare_plans(both, options, criteria=[{"ready": PHASE_B_CRITERIA}])
    except UsageError as error:
        raise UsageError(_without_fixed(str(error))) from error
    if options.dry_run or both[0]["DRY_RUN"]:
        for line in [*name_warnings(environ, both[0]), *warnings]:
            echo(line)
        return print_plans(plans)
    print_head(plans, [*name_warnings(environ, both[0]), *remove_from_environment(environ, both[0]), *warnings])
    code = run_plans(plans)
    # Nothing to check where it was interrupted or left no tables; the check judges failed runs.
    if code in (INTERRUPTED, WRONG_USE):
        return code
    return check(["--output-root", plans[0].plan.output, "--groups", ",".join(SENTINELS)], remedy="run the same command again")


if __name__ == "__main__":
    exit_with(lambda: main(os.environ, sys.argv[1:]))
