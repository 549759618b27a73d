"""Every parser takes arbitrary bytes, and what it was made for with damage: the table of tests/fuzz, a few inputs each, always the same.

`make fuzz` does it for longer.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.engines import changed
from tests.fuzz.targets import Target, all_targets, taken

SETTINGS = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
NAMES = (
    "plan YAML", "overrides (--set)", "values of an axis (-P)", "durations and limits", "command words (sweep)", "torchrun options",
    "event lines", "heartbeats", "logs of known formats", "logs by own patterns", "a plan's own pattern", "arrivals of output",
    "stage 1's timing lines", "failures", "logs of any job", "manifest", "tables", "telemetry", "records", "reports of the agent",
    "alarms", "preflight", "files of the kernel", "stacks", "owner and plans", "secrets", "git status", "original folder", "whole report",
)  # fmt: skip


@cache
def target(name: str) -> Target:
    return all_targets()[name]


def test_every_target_is_tried() -> None:
    assert sorted(NAMES) == sorted(all_targets())


@pytest.mark.parametrize("name", NAMES)
def test_what_it_was_made_for_is_taken(name: str) -> None:
    for data in (*target(name).corpus, b"", b"\0", b"\xff\xfe", b"\n" * 100):
        taken(target(name), data)


@pytest.mark.parametrize("name", NAMES)
@SETTINGS
@given(data=st.binary(max_size=600))
def test_arbitrary_bytes_are_taken(name: str, data: bytes) -> None:
    taken(target(name), data)


@pytest.mark.parametrize("name", NAMES)
@SETTINGS
@given(chance=st.randoms(use_true_random=False), choice=st.integers(0, 99))
def test_damaged_input_is_taken(name: str, chance: object, choice: int) -> None:
    corpus = target(name).corpus or (b"",)
    taken(target(name), changed(corpus[choice % len(corpus)], chance))  # type: ignore[arg-type]
