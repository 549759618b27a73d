"""What stands beside figures that were taken with debug or tracing on."""

from __future__ import annotations

from seatrial.analyse.debug_cautions import debug_cautions
from seatrial.records.health import DebugSetting


def setting(name: str, why: str = "it logs", *, varied: bool = False) -> DebugSetting:
    return DebugSetting(name=name, value="1", source="env", why=why, varied=varied)


def test_nothing_on_nothing_said() -> None:
    assert list(debug_cautions((), "a_r1")) == []


def test_what_is_on_what_it_does_and_where_it_is_switched_off() -> None:
    (found,) = debug_cautions([setting("NCCL_DEBUG"), setting("TRACE"), setting("anomaly", "it checks"), setting("profiler")], "a_r1")
    assert (found.kind, found.subject, found.numbers) == ("debug_on", "a_r1", {"settings": 4})
    assert found.text == (
        "Measured with debug or tracing on: NCCL_DEBUG=1 (env), TRACE=1 (env), anomaly=1 (env), profiler=1 (env). It logs. It checks. The "
        "figures are of such a run, and are not compared with those of a plain one; unset NCCL_DEBUG and TRACE in the shell or the plan's "
        "env, switch anomaly and profiler off in the plan and run again to measure."
    )


def test_of_many_the_first_are_named_and_all_are_switched_off() -> None:
    (found,) = debug_cautions([setting(f"VAR{at}") for at in range(6)], "a_r1")
    assert "VAR3=1 (env) and 2 more. It logs. The" in found.text
    assert "unset VAR0, VAR1, VAR2, VAR3, VAR4 and VAR5 in the shell" in found.text


def test_a_switch_that_the_plan_turns_is_told_apart() -> None:
    fixed, varied = debug_cautions([setting("TRACE"), setting("NCCL_DEBUG", varied=True)], "a_r1")
    assert (fixed.kind, varied.kind, varied.subject, varied.numbers) == ("debug_on", "debug_varied", "a_r1", {"settings": 1})
    assert "unset TRACE in the shell" in fixed.text
    assert varied.text.startswith("The plan itself turns NCCL_DEBUG=1 (env) on in this run: a difference from runs without holds")
