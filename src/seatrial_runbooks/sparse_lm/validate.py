"""The whole validation: `seatrial run` of plans/sparse-lm/validation.yaml, or of validation-cpu.yaml. In: flags. Out: that command's.

    python scripts/validate.py                      two GPUs, the production model
    python scripts/validate.py --cpu                a small model on two CPU ranks: it checks the procedure, not its speed
    python scripts/validate.py --only acceptance    the tables again from existing files

Exit code 0 every criterion passed, 2 one failed, 3 one is open or not tested, 1 wrong use, 130 interrupted. The same command resumes
where the last one ended.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from seatrial.cli.main import run_command
from seatrial.cli.program import exit_with
from seatrial.cli.shipped import PLANS
from seatrial_runbooks.command_line import StrictParser, count, run_reporting_errors

PLAN, CPU_PLAN = PLANS / "sparse-lm" / "validation.yaml", PLANS / "sparse-lm" / "validation-cpu.yaml"
EXAMPLES = """examples:
  python scripts/validate.py --out outputs/sparse-lm
  python scripts/validate.py --cpu --steps 60 --repeats 2"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stages; the exit code."""
    return run_reporting_errors(lambda: run_command(command_line(argv)))


def command_line(argv: Sequence[str] | None) -> list[str]:
    """Arguments of `seatrial`."""
    options = StrictParser("Validate the sparse-attention trainer, from the snapshot to the acceptance table.", EXAMPLES)
    options.add_argument("--out", type=Path, metavar="DIR", help="Where everything goes (default: the plan's own folder).")
    options.add_argument("--cpu", action="store_true", help="The small model on two CPU ranks (plans/sparse-lm/validation-cpu.yaml).")
    options.add_argument("--steps", type=count, metavar="N", help="Steps of every run, for a try; below 50 figures are not meaningful.")
    options.add_argument("--repeats", type=count, metavar="N", help="Repeats of each group, for a try.")
    options.add_argument(
        "--only", metavar="STAGES", help="Only these stages of the plan, separated by commas; acceptance alone for the tables."
    )
    given = options.parse(argv)
    command = ["run", str(CPU_PLAN if given.cpu else PLAN)]
    command += [text for key in ("steps", "repeats") if getattr(given, key) for text in ("--set", f"{key}={getattr(given, key)}")]
    command += [text for name in (given.only or "").split(",") if name.strip() for text in ("--only", name.strip())]
    return command + (["--out", str(given.out)] if given.out else [])


if __name__ == "__main__":
    exit_with(lambda: main(sys.argv[1:]))
