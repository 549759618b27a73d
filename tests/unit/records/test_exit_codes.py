"""The table of exit codes, which scripts and pipelines of users rely on."""

from __future__ import annotations

import signal

from seatrial.errors import CampaignError, LaunchError, RefusedError, UsageError
from seatrial.records import exit_codes
from seatrial.records.verdict import Verdict


def test_the_codes_that_are_promised() -> None:
    told = exit_codes
    assert (told.DONE, told.WRONG_USE, told.FAILED, told.INCONCLUSIVE, told.INTERRUPTED) == (0, 1, 2, 3, 130)


def test_verdicts_and_errors_end_with_them() -> None:
    assert [verdict.exit_code for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)] == [0, 2, 3]
    assert [error.exit_code for error in (UsageError, CampaignError, LaunchError, RefusedError)] == [1, 1, 1, 2]


def test_a_shell_gives_the_same_for_ctrl_c() -> None:
    assert exit_codes.INTERRUPTED == 128 + signal.SIGINT
    assert set(exit_codes.STOP_SIGNALS) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
