"""The whole validation as one command. In: flags. Out: OUTPUT with every campaign, and OUTPUT/deliverables; the acceptance table on stdout.

    python scripts/validate.py                      two GPUs, the production model
    python scripts/validate.py --cpu                a small model on two CPU ranks: whether the procedure works, nothing about speed
    python scripts/validate.py --only acceptance    the tables again from what is there

Exit code 0 every criterion passed, 2 one failed, 3 one is open or not tested, 1 wrong use, 130 interrupted. A command typed again goes on
where the last one ended. One campaign is the bucket sweep, `seatrial run plans/sparse-lm/validation.yaml`; the phases around it are other
plans and checks, which one matrix cannot hold: they differ in length, ranks and what they profile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seatrial.cli.program import exit_with
from seatrial.core.errors import INTERRUPTED, UsageError, did_you_mean
from seatrial.machine.gpus import read_driver
from seatrial_runbooks.command_line import StrictParser, count, echo, run_reporting_errors
from seatrial_runbooks.sparse_lm.acceptance import acceptance_rows, as_markdown, exit_code
from seatrial_runbooks.sparse_lm.deliverables import write_deliverables
from seatrial_runbooks.sparse_lm.phases import PHASES, Target, check_kind, run_phase

ACCEPTANCE = "acceptance"
NAMES = (*(phase.name for phase in PHASES), ACCEPTANCE)
EXAMPLES = """examples:
  python scripts/validate.py --out outputs/sparse-lm
  python scripts/validate.py --cpu --steps 60 --repeats 2"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for, write the deliverables; the exit code."""
    return run_reporting_errors(lambda: _validate(_parser().parse(argv)))


def _validate(options: argparse.Namespace) -> int:
    chosen = _chosen(options.only)
    # The tables can be made on any machine.
    num_gpus = 0 if options.cpu or chosen == {ACCEPTANCE} else _count_gpus()
    target = Target(out=options.out, cpu=options.cpu, num_gpus=num_gpus, steps=options.steps, repeats=options.repeats)
    check_kind(target)
    for phase in PHASES:
        if phase.name not in chosen:
            continue
        echo(f"[validate] {phase.name}")
        code = run_phase(phase, target)
        if code == INTERRUPTED:
            echo("[validate] interrupted: the same command goes on here")
            return INTERRUPTED
        echo(f"[validate] {phase.name}: {'not run, ' + str(target.record(phase.name)['why']) if code is None else f'exit code {code}'}")
    rows = acceptance_rows(target)
    index = write_deliverables(target, rows)
    echo(as_markdown(rows))
    echo(f"Deliverables: {index}")
    return exit_code(rows)


def _count_gpus() -> int:
    num_gpus = len(read_driver().gpus)
    if not num_gpus:
        raise UsageError("no GPU found: the production model needs one; name the small model on the CPU explicitly (--cpu)")
    return num_gpus


def _chosen(only: str | None) -> set[str]:
    names = set(NAMES) if only is None else {name.strip() for name in only.split(",")}
    for name in names - set(NAMES):
        raise UsageError(f"--only {name}: there is no such phase; {did_you_mean(name, list(NAMES))}")
    return names


def _parser() -> StrictParser:
    options = StrictParser("Validate the sparse-attention trainer, from the snapshot to the acceptance table.", EXAMPLES)
    options.add_argument(
        "--out", type=Path, default=Path("outputs/sparse-lm"), metavar="DIR", help="Where everything goes (default %(default)s)."
    )
    options.add_argument("--cpu", action="store_true", help="The small model on two CPU ranks (plans/sparse-lm/base-cpu.yaml).")
    options.add_argument(
        "--steps", type=count, metavar="N", help="At most N steps a run, for a try; figures of fewer than 50 are no result."
    )
    options.add_argument("--repeats", type=count, metavar="N", help="At most N repeats of each group, for a try.")
    options.add_argument("--only", metavar="PHASES", help=f"Only these, separated by commas: {', '.join(NAMES)}.")
    return options


if __name__ == "__main__":
    exit_with(lambda: main(sys.argv[1:]))
