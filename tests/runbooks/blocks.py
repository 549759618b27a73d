"""The commands of the procedures. In: the text of a document. Out: its sections, each with the bash blocks under its heading.

Blocks under one heading build on each other (exports first, then commands), so they run in one shell.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from tests.docs.pages import ROOT, parse

RUNBOOK = ROOT / "runbooks" / "stage1"
SEEDS = ROOT.parent / "shared" / "seeds"
SEED_NUMBERS = ("000", "001")
NO_SEEDS = f"no seeds at {SEEDS}: only our own runbooks are run"
MANY_HOSTS = (
    "000 3.5",
    "001 6",
    "README Many machines",
    "README Smoke run on many machines",
    "README Final training on many machines",
    "README Many machines without ssh",
)
"""Sections that need several hosts: run in the cluster lane, by tests/cluster/test_seed_blocks.py."""
_NUMBERED = re.compile(r"^(?P<number>\d+(?:\.\d+)*)\.?(?:\s|$)")


@dataclass(frozen=True)
class Block:
    """One fenced block, as written."""

    text: str
    line: int
    """Where it begins in its document, for messages."""

    @property
    def only_exports(self) -> bool:
        return all(line.startswith(("export ", "#")) for line in self.text.splitlines() if line.strip())


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    key: str
    """`000 3.1`, `001 12h`, `README Smoke run`; a second section of the same name is `001 3.5.1.1 (2)`."""
    title: str
    blocks: tuple[Block, ...]
    preamble: tuple[Block, ...] = ()
    """Exports above it in the same document, which the reader's shell has by then."""

    @property
    def document(self) -> str:
        return self.key.partition(" ")[0]


def seed_sections() -> list[Section]:
    """Every section with blocks of both seeds; none where the seeds are not here."""
    files = {number: sorted(SEEDS.glob(f"{number}_*.txt")) for number in SEED_NUMBERS}
    return [section for number, found in files.items() for file in found[:1] for section in sections_of(file.read_text(), number)]


def runbook_sections() -> list[Section]:
    """The same of our own runbook and the pages below it."""
    pages = [*sorted(RUNBOOK.glob("*.md")), *sorted((RUNBOOK / "docs").glob("*.md"))]
    return [section for page in pages for section in with_preambles(sections_of(page.read_text(), page.stem))]


def with_preambles(sections: list[Section]) -> list[Section]:
    """Our own pages are run in one shell from top to bottom: sections that only export become the preamble of those after them."""
    preamble: tuple[Block, ...] = ()
    found = []
    for section in sections:
        if all(block.only_exports for block in section.blocks):
            preamble += section.blocks
        else:
            found.append(replace(section, preamble=preamble))
    return found


def sections_of(text: str, document: str) -> list[Section]:
    """Sections that have a bash block, in order."""
    found: list[tuple[str, list[Block]]] = [("", [])]
    for title, block in _walk(text):
        if block is None:
            found.append((title, []))
        else:
            found[-1][1].append(block)
    keys: Counter[str] = Counter()
    return [Section(_key(document, title, keys), title, tuple(blocks)) for title, blocks in found if blocks]


def _walk(text: str) -> list[tuple[str, Block | None]]:
    """Headings (with no block) and bash blocks, as they come."""
    page = parse(text)
    found: list[tuple[int, str, Block | None]] = [(heading.line, heading.title, None) for heading in page.headings]
    found += [(block.line, "", Block(block.text, block.line)) for block in page.blocks if block.language == "bash"]
    return [(title, block) for _, title, block in sorted(found, key=lambda one: one[0])]


def _key(document: str, title: str, keys: Counter[str]) -> str:
    numbered = _NUMBERED.match(title)
    key = f"{document} {numbered['number'] if numbered else title}"
    keys[key] += 1
    return key if keys[key] == 1 else f"{key} ({keys[key]})"
