"""Markdown pages are parsed as a reader sees them."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, Block, Span, all_pages, pages, parse


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("```bash\ntrue\n```\n", [Block("bash", "true\n", 2)]),
        ("````text\n```bash\nno\n```\n````\n", [Block("text", "```bash\nno\n```\n", 2)]),
        ("1. first\n\n   ```bash\n   a \\\n     b\n   ```\n2. second\n", [Block("bash", "a \\\n  b\n", 4)]),
        ("    ```bash\n    four spaces are a quotation, no fence\n    ```\n", []),
        ("```\nno language\n```\n", [Block("", "no language\n", 2)]),
        ("```python title=a/train.py\nx\n```\n", [Block("python", "x\n", 2, title="a/train.py")]),
        ('```python linenos title="my file.py"\nx\n```\n', [Block("python", "x\n", 2, title="my file.py")]),
    ],
)
def test_fenced_blocks(text: str, blocks: list[Block]) -> None:
    assert list(parse(text).blocks) == blocks


@pytest.mark.parametrize(
    ("above", "why"),
    [
        ("<!-- not run: needs a GPU -->\n", "needs a GPU"),
        ("text\n\n<!-- not run:\nover two\nlines -->\n", "over two lines"),
        ("<!-- not run: needs a GPU -->\n\n", ""),
        ("<!-- a remark -->\n", ""),
        ("<!-- not run: -->\n", ""),
        ("", ""),
    ],
)
def test_the_reason_is_directly_above_the_fence(above: str, why: str) -> None:
    assert parse(f"{above}```bash\ntrue\n```\n").blocks[0].why_not_run == why


def test_a_reason_in_a_list_belongs_to_the_block_below_it() -> None:
    page = parse("- one\n\n  <!-- not run: needs root -->\n  ```bash\n  x\n  ```\n")
    assert page.blocks[0].why_not_run == "needs root"


def test_tests_that_show_a_block() -> None:
    block = Block("bash", "", 1, comment="not run: needs two hosts; shown by tests/a/test_b.py::test_c, shown by tests/d.py.")
    assert block.shown_by == ["tests/a/test_b.py::test_c", "tests/d.py"]


def test_inline_code_over_two_lines_and_in_tables() -> None:
    page = parse("# A `b`\n\nsay `seatrial export OUT\nsteps` and ``a ` b``\n\n| x |\n|---|\n| `c \\| d` |\n")
    assert page.code == (Span("b", 1), Span("seatrial export OUT steps", 3), Span("a ` b", 3), Span("c | d", 8))


def test_the_text_of_a_block_is_neither_code_nor_link_nor_heading() -> None:
    page = parse("```text\n# no\n[a](b.md) `c`\n```\n")
    assert (page.code, page.links, page.headings) == ((), (), ())


def test_links_and_pictures() -> None:
    page = parse('[a](b.md#c "title") ![p](images/p.png)\n[r][] <img src="q.svg"> `[no](x.md)`\n\n[r]: d.md\n')
    assert [link.text for link in page.links] == ["b.md#c", "d.md"]
    assert [picture.text for picture in page.pictures] == ["images/p.png", "q.svg"]


def test_anchors_are_those_of_github() -> None:
    page = parse('# A: b, `c.d` & E_f\n## Same\n## Same\n### Größe – 2\nUnder\n=====\n<a id="by-hand"></a>\n')
    assert page.anchors == {"a-b-cd--e_f", "same", "same-1", "größe--2", "under", "by-hand"}


def test_comments_are_found_wherever_they_stand() -> None:
    assert [comment.text for comment in parse("<!-- one -->\n\ntext <!-- two --> text\n").comments] == ["one", "two"]


def test_the_pages_are_those_of_the_repository() -> None:
    assert {ROOT / "README.md", ROOT / "docs" / "files.md"} <= set(pages())
    assert ROOT / "runbooks" / "stage1" / "README.md" in all_pages()
    assert len(set(all_pages())) == len(all_pages())
