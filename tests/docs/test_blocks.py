"""Every block of every page has a language, and is run, written to a file, or has a reason; checked without running anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
import yaml

from seatrial.plan.load import load_plan
from seatrial.plan.stages import load_stages
from tests.docs.pages import ROOT, Block, name_of, names_a_test, page_at, pages
from tests.docs.scratch import STAND_INS, is_run

LANGUAGES = ("bash", "text", "python", "yaml", "json", "toml")
"""Of blocks: `bash` is run, `text` is output or a drawing, the others are written where they have a title and else shown."""


def _blocks(language: str = "") -> list[tuple[Path, Block]]:
    found = [(path, block) for path in pages() for block in page_at(path).blocks]
    return [(path, block) for path, block in found if block.language == language or not language]


def _where(path: Path, block: Block) -> str:
    return f"{name_of(path)}:{block.line}"


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_a_page_begins_with_its_title_and_its_purpose(path: Path) -> None:
    first, empty, purpose = path.read_text().splitlines()[:3]
    assert first.startswith("# ")
    assert not empty and purpose
    assert not purpose.startswith(("#", "```", "|", "!["))


def test_every_block_has_a_language() -> None:
    assert [f"{_where(path, block)}: {block.language!r}" for path, block in _blocks() if block.language not in LANGUAGES] == []


def test_every_block_of_commands_is_run_or_has_a_reason() -> None:
    missing = [_where(path, block) for path, block in _blocks("bash") if not (is_run(block) or block.why_not_run or block.title)]
    assert missing == []
    assert [_where(path, block) for path, block in _blocks("bash") if block.comment == "not run:"] == []


def test_a_reason_is_directly_above_a_block_of_commands() -> None:
    for path in pages():
        page = page_at(path)
        given = [comment for comment in page.comments if comment.text.startswith("not run")]
        used = [block for block in page.blocks if block.language == "bash" and block.why_not_run]
        assert len(given) == len(used), f"{name_of(path)}: a `not run:` that is not directly above a bash block: {given}"


def test_the_test_that_covers_a_block_exists() -> None:
    missing = [f"{_where(path, block)}: {test}" for path, block in _blocks() for test in block.shown_by if not names_a_test(test)]
    assert missing == []


def test_commands_have_no_prompts() -> None:
    prompted = [_where(path, block) for path, block in _blocks("bash") if any(line.startswith("$ ") for line in block.text.splitlines())]
    assert prompted == []


def test_files_to_write_stay_in_the_readers_folder() -> None:
    titles = [(path, block, PurePosixPath(block.title)) for path, block in _blocks() if block.title]
    assert [_where(path, block) for path, block, title in titles if title.is_absolute() or ".." in title.parts] == []


def test_python_shown_is_python_and_imports_what_there_is() -> None:
    for path in pages():
        blocks = page_at(path).blocks
        written = {block.title: block.text for block in blocks if block.title}
        for block in blocks:
            for module, name in _imports(ast.parse(block.text)) if block.language == "python" else ():
                assert name in _names_of(module, written), f"{_where(path, block)}: {module} has no {name}"


def test_yaml_shown_is_a_plan_or_a_part_of_one(tmp_path: Path) -> None:
    """Files that the reader is to write are left to the commands that use them."""
    for path, block in _blocks("yaml"):
        if not block.title:
            given = yaml.safe_load(block.text)
            required = {"name": "shown"} if "stages" in given else {"name": "shown", "workload": "dummy"}
            missing = {name: word for name, word in required.items() if name not in given}
            plan = tmp_path / f"{path.stem}-{block.line}.yaml"
            plan.write_text("".join(f"{name}: {word}\n" for name, word in missing.items()) + block.text)
            assert load_stages(plan) or load_plan(plan)


def test_stand_ins_can_be_started() -> None:
    assert [program.name for program in STAND_INS.iterdir() if not program.stat().st_mode & 0o100] == []


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """`from seatrial… import name`, as pairs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("seatrial", "seatrial_workloads", "tests"):
            yield from ((str(node.module), alias.name) for alias in node.names)


def _names_of(module: str, written: dict[str, str]) -> set[str]:
    """What can be imported from it: modules in its folder, and names at its top; of files that the page itself gives too."""
    base = Path("src" if module.startswith("seatrial") else ".", *module.split("."))
    if (ROOT / base).is_dir():
        return {child.stem for child in (ROOT / base).iterdir()} | _names_at_top((ROOT / base / "__init__.py").read_text())
    file = base.with_suffix(".py")
    if str(file) in written:
        return _names_at_top(written[str(file)])
    return _names_at_top((ROOT / file).read_text()) if (ROOT / file).is_file() else set()


def _names_at_top(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(target.id for target in targets if isinstance(target, ast.Name))
    return found
