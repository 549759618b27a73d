"""An outcome that may be sent around: none of its run's secrets is in it."""

from __future__ import annotations

from dataclasses import replace

from seatrial.campaign.masking import masked_outcome
from seatrial.records.outcome import Cause, Outcome, RunOutcome
from tests.unit.launch.factory import make_spec

OUTCOME = RunOutcome(
    run="mb8_r1",
    attempt=1,
    hash="h",
    outcome=Outcome.FAILED,
    cause=Cause.EXCEPTION,
    detail="RuntimeError: 401 for plan-hunter at http://me:pw@host",
    log_tail=("args: --api-key args-hunter", "caller-hunter refused", "step 3 loss 1.5"),
    telling=("caller-hunter refused",),
)


def test_log_and_sentence_hold_none_of_the_runs_secrets() -> None:
    spec = make_spec("/", args=("--api-key", "args-hunter"), env={"DB_PASSWORD": "plan-hunter"})
    shown = masked_outcome(OUTCOME, spec, {"HF_TOKEN": "caller-hunter", "HOME": "/home/me"})
    assert shown.detail == "RuntimeError: 401 for *** at http://me:***@host"
    assert shown.log_tail == ("args: --api-key ***", "*** refused", "step 3 loss 1.5")
    assert shown.telling == ("*** refused",)
    assert (shown.run, shown.cause, shown.outcome) == (OUTCOME.run, OUTCOME.cause, OUTCOME.outcome)


def test_settings_and_axes_with_a_secret_name_are_known_wherever_they_stand() -> None:
    spec = make_spec(
        "/", settings={"hub_token": "settings-hunter", "lr": 0.1, "steps": 5}, axes={"api_key": "axis-hunter", "loader": "forked"}
    )
    bare = replace(OUTCOME, detail="ValueError: settings-hunter", log_tail=("refused: axis-hunter", "loader forked, lr 0.1"))
    shown = masked_outcome(bare, spec, {})
    assert shown.detail == "ValueError: ***"
    assert shown.log_tail == ("refused: ***", "loader forked, lr 0.1")


def test_one_name_with_a_value_here_and_another_there() -> None:
    spec = make_spec("/", env={"hf_token": "plan-hunter"}, settings={"hf_token": "settings-hunter"})
    bare = replace(OUTCOME, detail="caller-hunter, plan-hunter, settings-hunter", log_tail=())
    assert masked_outcome(bare, spec, {"hf_token": "caller-hunter"}).detail == "***, ***, ***"


def test_outcome_without_a_log_stays_as_it_is() -> None:
    plain = RunOutcome(run="mb8_r1", attempt=1, hash="h", outcome=Outcome.OK)
    assert masked_outcome(plain, make_spec("/"), {}) == plain
