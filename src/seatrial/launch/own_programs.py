"""The words that start Seatrial's own programs, here and on other hosts, and how long an agent may take to end.

Pure: an interpreter in, words out.
"""

from __future__ import annotations

import sys

from seatrial.machine.running_agents import AGENT

ANSWERS = f"{AGENT}.answers"
# Longer than an agent's own patience with processes that do not die, and than the lease of one that hears nothing any more.
AGENT_ENDS_WITHIN_S = 40.0


def agent_words(python: str = "") -> tuple[str, ...]:
    """`seatrial.agent`, which runs beside the ranks; `python` is the interpreter, this one's where it is empty."""
    return _words(python, AGENT)


def answers_words(python: str = "") -> tuple[str, ...]:
    """`seatrial.agent.answers`, which tells the doctor about its host."""
    return _words(python, ANSWERS)


def _words(python: str, module: str) -> tuple[str, ...]:
    # -P: a selectors.py or a seatrial/ in the user's folder must not take the place of ours.
    return (python or sys.executable, "-P", "-m", module)
