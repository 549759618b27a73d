"""One thing that is looked at, described once: the check on the terminal and the table in docs/doctor.md both come from it.

A word in braces (`{program}`) stands for what the answer fills in.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from seatrial.records.check import Check


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """What is looked at, the later error it prevents, literally as people see it, and the fix."""

    name: str
    looks_at: str
    prevents: str
    fix: str
    refuses: bool = False
    """Whether a campaign may be refused for it; else it is said, and the campaign goes on."""
    only_tells: bool = False
    """Never amiss by itself: a fact that explains figures or later errors."""
    in_docs: Mapping[str, str] = field(default_factory=dict)
    """What the page shows for a word in braces, where its name in capitals would not do."""

    def answer(self, ok: bool, found: str, *, refuses: bool | None = None, **words: object) -> Check:
        """The check for what was found; `refuses` False softens this one answer."""
        return Check(
            name=self.name.format(**words),
            ok=ok or self.only_tells,
            found=found,
            prevents=self.prevents.format(**words),
            fix=self.fix.format(**words),
            refuses=self.refuses if refuses is None else refuses and self.refuses,
        )

    def described(self, text: str) -> str:
        """One of its own texts with the words in braces as they are shown in docs."""
        names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        return text.format(**{name: self.in_docs.get(name, name.upper()) for name in names})


@dataclass(frozen=True, kw_only=True)
class Section:
    """The checks of one subject."""

    subject: str
    checks: tuple[Check, ...]
