"""The words that start Seatrial's own programs, here and on other hosts; how long an agent may take to end, what of its log is told.

Pure: an interpreter in, words out.
"""

from __future__ import annotations

import sys

from seatrial.machine.running_agents import AGENT

ANSWERS = f"{AGENT}.answers"
# Longer than an agent's own patience with processes that do not die, and than the lease of one that hears nothing any more.
AGENT_ENDS_WITHIN_S = 40.0
LAST_WORDS_LINES = 3
"""Of the log of an agent that is lost, as an error tells them."""


def agent_words(python: str = "") -> tuple[str, ...]:
    """`seatrial.agent`, which runs beside the ranks; `python` is the interpreter, this one's where it is empty."""
    return program_words(AGENT, python)


def answers_words(python: str = "") -> tuple[str, ...]:
    """`seatrial.agent.answers`, which tells the doctor about its host."""
    return program_words(ANSWERS, python)


def program_words(module: str, python: str = "") -> tuple[str, ...]:
    """Any other module of ours that is a program."""
    # -P: a selectors.py, an mlflow/ or a seatrial/ in the user's folder must not take the place of the real one.
    return (python or sys.executable, "-P", "-m", module)
