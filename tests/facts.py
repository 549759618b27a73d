"""What a text for people says, without pinning its sentences."""

from __future__ import annotations

import re


def states(text: str, *facts: object) -> bool:
    """Whether these facts (names, numbers, options, a remedy's key) stand in the text in this order, each as whole words. The words between
    them are free; whole texts stand in the golden files."""
    whole = (re.escape(fact).join((r"(?<!\w)" * fact[0].isalnum(), r"(?!\w)" * fact[-1].isalnum())) for fact in map(str, facts))
    return re.search(".*".join(whole), text, re.DOTALL) is not None
