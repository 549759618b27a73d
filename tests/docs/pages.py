"""Parses Markdown pages. In: text, CommonMark with tables. Out: fenced blocks, inline code, links and headings, with their lines.

`pages()` are those whose commands are run; `all_pages()` also the runbooks, whose commands have a lane of their own.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_COMMENT = re.compile(r"<!--(?P<text>.*?)-->\s*", re.DOTALL)
_NOT_RUN = "not run:"
_SHOWN_BY = re.compile(r"shown by (?P<test>[\w./-]+(?:::\w+)*)")
_TITLE = re.compile(r"(?:^|\s)title=(?:\"(?P<quoted>[^\"]+)\"|(?P<plain>\S+))")
_ANCHOR = re.compile(r"<\w+[^>]*\s(?:id|name)=\"(?P<name>[^\"]+)\"")
_ADDRESS = re.compile(r"<(?P<tag>\w+)[^>]*\s(?:href|src)=\"(?P<target>[^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """One fenced block, as written."""

    language: str
    """The first word after the fence; may be empty."""
    text: str
    line: int
    """Of its first line in the page, for messages."""
    title: str = ""
    """The file that the reader writes: `title=train.py`."""
    comment: str = ""
    """The text of the HTML comment directly above the fence."""

    @property
    def why_not_run(self) -> str:
        """The reason in the comment; empty where the block is run."""
        return self.comment.removeprefix(_NOT_RUN).strip() if self.comment.startswith(_NOT_RUN) else ""

    @property
    def shown_by(self) -> list[str]:
        """Tests that cover what is not run: `tests/cluster/test_campaigns.py::test_name`."""
        return [match["test"].rstrip(".") for match in _SHOWN_BY.finditer(self.comment)]


@dataclass(frozen=True)
class Span:
    """Inline code, the target of a link or picture, or a comment, with the line of its paragraph."""

    text: str
    line: int


@dataclass(frozen=True)
class Heading:
    """A heading, under the anchor that GitHub gives it."""

    title: str
    anchor: str
    line: int


@dataclass(frozen=True)
class Page:
    """The parts of a page, in order."""

    blocks: tuple[Block, ...]
    code: tuple[Span, ...]
    links: tuple[Span, ...]
    pictures: tuple[Span, ...]
    headings: tuple[Heading, ...]
    anchors: frozenset[str]
    """Of headings, and explicit ones (`<a id="…">`)."""
    comments: tuple[Span, ...]
    """All HTML comments."""


def pages() -> list[Path]:
    """Pages whose commands are run."""
    return [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))) if path.is_file()]


def all_pages() -> list[Path]:
    """The same and every other page of the repository, without outputs of campaigns and golden files."""
    others = [path for folder in ("runbooks", "plans", "benchmarks", "tests") for path in sorted((ROOT / folder).rglob("*.md"))]
    roots = [path for path in sorted(ROOT.glob("*.md")) if path not in pages()]
    return [*pages(), *roots, *(path for path in others if "golden" not in path.parts)]


def name_of(path: Path) -> str:
    """For messages and test ids."""
    return str(path.relative_to(ROOT))


def names_a_test(test: str) -> bool:
    """Whether file and function of `tests/a/test_b.py::test_c` exist."""
    path, *names = test.split("::")
    if not (ROOT / path).is_file():
        return False
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text()).body
    for name in names:
        found = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name]
        if not found:
            return False
        body = found[0].body
    return True


@cache
def page_at(path: Path) -> Page:
    """Parsed once."""
    return parse(path.read_text())


def parse(text: str) -> Page:
    tokens = _MARKDOWN.parse(text)
    headings = tuple(_headings(tokens))
    inline = [(child, _line(token)) for token in tokens if token.type == "inline" for child in token.children or ()]
    html = [(token.content, _line(token)) for token in tokens if token.type == "html_block"]
    html += [(child.content, line) for child, line in inline if child.type == "html_inline"]
    explicit = frozenset(found["name"] for text, _ in html for found in _ANCHOR.finditer(text))
    tagged = [(found["tag"].lower(), Span(found["target"], line)) for text, line in html for found in _ADDRESS.finditer(text)]
    return Page(
        blocks=tuple(_blocks(tokens)),
        code=tuple(Span(child.content, line) for child, line in inline if child.type == "code_inline"),
        links=tuple(Span(str(child.attrs["href"]), line) for child, line in inline if child.type == "link_open")
        + tuple(span for tag, span in tagged if tag != "img"),
        pictures=tuple(Span(str(child.attrs["src"]), line) for child, line in inline if child.type == "image")
        + tuple(span for tag, span in tagged if tag == "img"),
        headings=headings,
        anchors=frozenset(heading.anchor for heading in headings) | explicit,
        comments=tuple(Span(" ".join(found["text"].split()), line) for text, line in html for found in _COMMENT.finditer(text)),
    )


def _blocks(tokens: list[Token]) -> Iterator[Block]:
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "fence":
            language, _, rest = token.info.strip().partition(" ")
            title = _TITLE.search(rest)
            named = (title["quoted"] or title["plain"]) if title else ""
            yield Block(language, token.content, _line(token) + 1, named, _comment_above(before, token))


def _comment_above(before: Token | None, fence: Token) -> str:
    """The text of the comment that ends on the line directly above the fence."""
    if before is None or before.type != "html_block" or not before.content.endswith("-->\n") or before.map is None or fence.map is None:
        return ""
    found = list(_COMMENT.finditer(before.content))
    return " ".join(found[-1]["text"].split()) if found and before.map[1] == fence.map[0] else ""


def _headings(tokens: list[Token]) -> Iterator[Heading]:
    taken: Counter[str] = Counter()
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            title = "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))
            anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            taken[anchor] += 1
            yield Heading(title, anchor if taken[anchor] == 1 else f"{anchor}-{taken[anchor] - 1}", _line(token))


def _line(token: Token) -> int:
    """Counted from 1."""
    return token.map[0] + 1 if token.map else 0
