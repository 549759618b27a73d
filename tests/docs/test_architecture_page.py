"""docs/architecture.md and its picture say what the code is: every module, function, record, file and folder that they name is there."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.agent import supervise
from seatrial.campaign import follow
from seatrial.launch import fold
from seatrial.paths import AttemptPaths, CampaignPaths
from seatrial.records import events, line
from tests.docs.pages import DOCS, ROOT, parse

SOURCE = ROOT / "src" / "seatrial"
TEXT = (DOCS / "architecture.md").read_text(encoding="utf-8")
PAGE = parse(TEXT)
LOOKED_FOR = re.compile(r"^\| (?P<behaviour>[^|]+) \| `(?P<module>[\w/]+\.py)` \| `(?P<name>\w+)` \|$", re.MULTILINE)
NAMED = re.compile(r"`(?P<module>[\w/]+\.py)`: `(?P<name>\w+)`")
# Files that no campaign's folder holds under a fixed name.
ELSEWHERE = {"plan.yaml", "history.jsonl"}


def _program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_diagram", DOCS / "make_diagram.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up by name.
    sys.modules["make_diagram"] = module
    spec.loader.exec_module(module)
    return module


DIAGRAM = _program()
STAGES = pytest.mark.parametrize("stage", DIAGRAM.STAGES, ids=lambda stage: stage.name)


@cache
def names_in(module: str) -> frozenset[str]:
    """What the module defines: functions, classes, `Class.method` and constants."""
    found: set[str] = set()
    for node in ast.parse((SOURCE / module).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(found)


def file_names() -> set[str]:
    """Every name that `paths` gives to a file or folder."""
    of_folders = {
        vars(kind)[name].name for kind in (AttemptPaths, CampaignPaths) for name in vars(kind) if hasattr(vars(kind)[name], "name")
    }
    attempt = AttemptPaths(Path("a"))
    return of_folders | {re.sub(r"\d+", "*", path.name) for path in (attempt.events(0), attempt.heartbeat(0))}


def test_picture_and_table_are_what_the_program_would_write() -> None:
    assert DIAGRAM.PICTURE.read_text(encoding="utf-8") == DIAGRAM.picture(), "run python docs/make_diagram.py"
    assert DIAGRAM.page(TEXT) == TEXT, "run python docs/make_diagram.py"


def test_a_page_without_its_marks_is_not_written_over() -> None:
    with pytest.raises(AssertionError, match="must have"):
        DIAGRAM.page("# A page\n")


@STAGES
def test_a_stage_names_what_there_is(stage) -> None:
    assert stage.function in names_in(stage.module)
    if " " not in stage.record:
        assert stage.record in names_in(stage.record_module)
    assert (SOURCE / stage.record_module).is_file()
    assert {*stage.reads, *stage.writes} - ELSEWHERE - file_names() == set()


@STAGES
def test_a_stage_fits_its_box(stage) -> None:
    assert len(DIAGRAM.textwrap.wrap(stage.does, DIAGRAM.MOST_IN_BOX)) <= 2
    assert len(f"{stage.module}: {stage.function}") <= DIAGRAM.MOST_IN_BOX + 2


def test_the_picture_has_text_and_two_schemes_and_needs_nobody() -> None:
    picture = DIAGRAM.picture()
    assert picture.count("<text") > 3 * len(DIAGRAM.STAGES)
    assert "prefers-color-scheme: dark" in picture
    assert re.findall(r"https?://[^\"]+", picture) == ["http://www.w3.org/2000/svg"]
    assert all(f">{stage.name}</text>" in picture for stage in DIAGRAM.STAGES)


def test_every_folder_of_the_harness_stands_on_the_page() -> None:
    named = {spoken.text for spoken in PAGE.code}
    folders = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*") if path.is_dir() and path.name != "__pycache__"}
    assert {folder for folder in folders if f"{folder}/" not in named} == set()


def test_every_module_at_the_root_stands_on_the_page() -> None:
    named = {spoken.text for spoken in PAGE.code}
    assert {path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")} - named == set()


def test_every_path_on_the_page_is_there() -> None:
    paths = {spoken.text for spoken in PAGE.code if re.fullmatch(r"[\w./-]+(\.py|/)", spoken.text)}
    paths |= {word for block in PAGE.blocks for word in re.findall(r"[a-z_/]+/[a-z_]+\.py", block.text)}
    assert len(paths) > 100
    assert {path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists() and path != "settings.py"} == set()


@pytest.mark.parametrize(("module", "name"), sorted({(found["module"], found["name"]) for found in NAMED.finditer(TEXT)}))
def test_what_the_text_names_in_a_module_is_there(module: str, name: str) -> None:
    assert name in {full.rpartition(".")[2] for full in names_in(module)}


@pytest.mark.parametrize("found", list(LOOKED_FOR.finditer(TEXT)), ids=lambda found: found["behaviour"])
def test_what_is_looked_for_is_found(found: re.Match[str]) -> None:
    assert found["name"] in names_in(found["module"])


@pytest.mark.parametrize(
    ("told", "in_code", "words"),
    [
        (20, line.LEASE_S, "nothing is heard for 20 s"),
        (5, fold.FAILED_NODE_GRACE_S, "the others get 5 s, then are stopped"),
        (5, supervise.FAILED_RANK_GRACE_S, "the others get 5 s to speak"),
        (5, events.HEARTBEAT_EVERY_S, "a sign of life every five seconds"),
        (1, follow.PROGRESS_EVERY_S, "**Observe** looks once a second"),
    ],
)
def test_times_on_the_page_are_those_of_the_code(told: float, in_code: float, words: str) -> None:
    assert words in TEXT
    assert in_code == told


def test_at_least_25_behaviours_can_be_looked_up() -> None:
    rows = [found["behaviour"] for found in LOOKED_FOR.finditer(TEXT)]
    assert len(rows) == len(set(rows)) >= 25


def test_calls_in_the_drawings_are_functions_of_the_modules_beside_them() -> None:
    calls = [
        found.groups()
        for block in PAGE.blocks
        for found in re.finditer(r"^ *(\w+)\(.*?\)(?:\.\w+\(.*?\))? +([\w/]+\.py)", block.text, re.M)
    ]
    assert len(calls) > 10
    assert [call for call in calls if call[0] not in names_in(call[1])] == []
