"""Where each key of a plan was written, so that an error found late can still name file and line.

A key path is a tuple of mapping keys and list positions: `("axes", "bs", "values", 1)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.errors import PlanError

KeyPath = tuple[str | int, ...]
LONGEST_SHOWN = 80


@dataclass(frozen=True)
class Where:
    """A file (or the option that stood for one) and a line in it."""

    file: str
    line: int | None = None


@dataclass
class Locations:
    """All key paths of one plan. Two plans are equal whatever file they came from, so nothing here is compared."""

    source: str = field(default="", compare=False)
    where: dict[KeyPath, Where] = field(default_factory=dict, compare=False)

    def of(self, path: KeyPath) -> Where:
        """Where `path` was written, else the nearest mapping around it, else the whole source."""
        for length in range(len(path), -1, -1):
            found = self.where.get(path[:length])
            if found:
                return found
        return Where(self.source)

    def error(self, path: KeyPath, problem: str) -> PlanError:
        """The PlanError that says `problem` of `path`."""
        where = self.of(path)
        return PlanError(problem, file=where.file or None, line=where.line, key=key_text(path) or None)

    def under(self, path: KeyPath) -> dict[KeyPath, Where]:
        """Every known path at or below `path`."""
        return {known: where for known, where in self.where.items() if known[: len(path)] == path}

    def forget(self, path: KeyPath) -> None:
        """Drop what is known at or below `path`."""
        for known in self.under(path):
            del self.where[known]


def key_text(path: KeyPath) -> str:
    """`axes.bs[1]` for people; the `values` that a short form leaves out is left out here too."""
    shown = path
    if len(path) > 2 and path[0] == "axes" and path[2] == "values":
        shown = (*path[:2], *path[3:])
    text = ""
    for part in shown:
        text += f"[{part}]" if isinstance(part, int) else f".{_word(part)}" if text else _word(part)
    return text


def _word(key: str) -> str:
    """A key that can be told on one line of a terminal."""
    whole = key if key.isprintable() else ascii(key)
    return whole if len(whole) <= LONGEST_SHOWN else whole[: LONGEST_SHOWN - 1] + "…"
