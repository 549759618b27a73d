"""Phase B, `scripts/run_phaseb_4090_stability.sh`: both sentinel groups three times, then the check of their stability.

    OUTPUT_ROOT=outputs/bench_4090_phaseB_diag INCLUDE=localhost:0,1 ./scripts/run_phaseb_4090_stability.sh

In: the driver's variables; those of the matrix and TIMING_RANK_SCOPE=all are fixed, three have defaults of their own. Out: the
campaign's folder and the check's table; exit code 0 stable, 2 not, 1 wrong use, 130 interrupted. The two groups are two plans, the very
ones that two commands of the driver make: as one plan their place in its matrix would differ, and with it their hash, and what is
finished would be run again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence

from seatrial.cli.program import exit_with
from seatrial.records.exit_codes import INTERRUPTED, WRONG_USE
from seatrial_runbooks.stage1.driver import Words, log_path, prepared, read_words, run_works, say_head, show, take_over
from seatrial_runbooks.stage1.driver_log import logged_to
from seatrial_runbooks.stage1.help_text import help_text
from seatrial_runbooks.stage1.phaseb_check import SENTINELS, Thresholds
from seatrial_runbooks.stage1.phaseb_check import main as check
from seatrial_runbooks.stage1.program import answered
from seatrial_runbooks.stage1.spoken import say
from seatrial_runbooks.stage1.variables import VARIABLES, Variables, read

NAME = "run_phaseb_4090_stability.sh"
WHAT = """\
Phase B: runs sweep_z0_mb128_nw6_pf4 and sweep_z1_mb160_nw6_pf2 three times each, timed on all ranks, then checks how steady they are.
Exit codes: 0 steady, 1 wrong use or an error, 2 not steady or refused to start, 130 interrupted.
"""
DEFAULTS = {"REPEATS": "3", "MAX_STEPS": "1000", "OUTPUT_ROOT": "outputs/bench_4090_phaseB_diag"}
AXES = ("SWEEP_ZERO_STAGES", "SWEEP_MICRO_BATCHES", "SWEEP_NUM_WORKERS_LIST", "SWEEP_PREFETCH_LIST")
# The groups of SENTINELS, in that order.
VALUES = (("0", "128", "6", "4"), ("1", "160", "6", "2"))
FIXED = {"MODE": "sweep", "TIMING_RANK_SCOPE": "all"}
# What a list stands over has nothing to say.
IDLE = ("SWEEP_NUM_WORKERS", "SWEEP_PREFETCH_FACTOR")


def main(environ: MutableMapping[str, str], argv: Sequence[str]) -> int:
    """Run what is missing, check, and return the check's exit code."""
    with logged_to(log_path(environ, argv)):
        return answered(lambda: _drive(environ, read_words(argv)))


def sentinel_variables(environ: Mapping[str, str]) -> list[Variables]:
    """The driver's variables of each sentinel: those of the environment, and its place in the matrix."""
    kept = {name: value for name, value in environ.items() if name not in IDLE}
    return [read({**kept, **FIXED, **dict(zip(AXES, values, strict=True))}, DEFAULTS) for values in VALUES]


def overruled(environ: Mapping[str, str]) -> list[str]:
    """A line for each variable that was given and does not count here."""
    taken = {**{name: {value} for name, value in FIXED.items()}, **{name: set() for name in IDLE}}
    taken |= {name: set(values) for name, values in zip(AXES, zip(*VALUES, strict=True), strict=True)}
    # What the table has by itself was no wish.
    given = [name for name, values in taken.items() if environ.get(name) and environ[name] not in {*values, VARIABLES[name].default}]
    return [f"[WARN] {name} has no effect: phase B runs {' and '.join(SENTINELS)}, timed on all ranks" for name in given]


def _too_few(environ: Mapping[str, str]) -> list[str]:
    repeats = read(environ, DEFAULTS)["REPEATS"]
    least = Thresholds().min_repeats
    return [f"[WARN] REPEATS is {repeats}, and the check asks for {least}: it cannot pass"] if repeats < least else []


def _drive(environ: MutableMapping[str, str], words: Words) -> int:
    if words.wants_help:
        say(help_text(NAME, WHAT, DEFAULTS))
        return 0
    # As they were given: what is overruled must be no nonsense either.
    read(environ, DEFAULTS)
    both, told = sentinel_variables(environ), [*overruled(environ), *_too_few(environ)]
    works = prepared(both, words)
    if words.dry_run or both[0]["DRY_RUN"]:
        for line in told:
            say(line)
        return show(works)
    say_head(works, [*take_over(environ, both[0]), *told])
    code = run_works(works)
    # What was broken off, or left no tables, has nothing to be checked by; a failed run is for the check to judge.
    if code in (INTERRUPTED, WRONG_USE):
        return code
    return check(["--output-root", works[0].plan.output, "--groups", ",".join(SENTINELS)])


if __name__ == "__main__":
    exit_with(lambda: main(os.environ, sys.argv[1:]))
