"""The procedure's tests as a command. In: names of files in nsa/tests. Out: pytest's output and exit code.

python -m seatrial_runbooks.sparse_lm.parity test_equiv_small.py test_group_consistency.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from seatrial.cli.program import exit_with
from seatrial.cli.shipped import RUNBOOKS
from seatrial.core.errors import UsageError, did_you_mean
from seatrial_runbooks.command_line import StrictParser, run_reporting_errors

RUNBOOK = RUNBOOKS / "sparse-lm"
TESTS = RUNBOOK / "nsa" / "tests"
EXAMPLES = """examples:
  python -m seatrial_runbooks.sparse_lm.parity test_equiv_small.py test_group_consistency.py
  python -m seatrial_runbooks.sparse_lm.parity test_selection_v2_equiv.py test_performance_guards.py"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tests; pytest's exit code."""
    return run_reporting_errors(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    options = StrictParser("Run tests of the sparse-LM procedure.", EXAMPLES)
    options.add_argument("files", nargs="+", metavar="FILE", help="Test files of runbooks/sparse-lm/nsa/tests.")
    files = options.parse(argv).files
    known = sorted(path.name for path in TESTS.glob("test_*.py"))
    for name in files:
        if name not in known:
            raise UsageError(f"there is no test file {name}; {did_you_mean(name, known)}")
    # A line for every test, so that the acceptance can judge each file.
    command = [sys.executable, "-m", "pytest", "-q", "-rfEsp", "-p", "no:cacheprovider", *(str(TESTS / name) for name in files)]
    # The packed selection is one of the patterns.
    return subprocess.run(command, cwd=RUNBOOK, env={**os.environ, "NSA_TEST_SEL_PACK": "1"}, check=False).returncode


if __name__ == "__main__":
    exit_with(lambda: main(sys.argv[1:]))
