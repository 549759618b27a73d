"""The words that start our own programs: modules that are there, by an interpreter that looks nowhere else for them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

import pytest

from seatrial.launch.own_programs import agent_words, answers_words
from seatrial.machine.running_agents import is_agent


@pytest.mark.parametrize("words", [agent_words, answers_words])
def test_the_interpreter_named_else_this_one_and_never_the_users_folder(words: Callable[..., tuple[str, ...]]) -> None:
    python, safe, by_name, module = words()
    assert (python, safe, by_name) == (sys.executable, "-P", "-m") and importlib.util.find_spec(module)
    assert words("/env/bin/python") == ("/env/bin/python", "-P", "-m", module)


def test_an_agent_is_known_again_by_its_words_and_an_answerer_is_none() -> None:
    assert is_agent(agent_words()) and not is_agent(answers_words())
