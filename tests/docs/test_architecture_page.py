"""docs/architecture.md and its picture match the code: every module, function, record, file and package they name exists."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.core.paths import AttemptPaths, CampaignPaths
from tests.docs.pages import DOCS, ROOT, parse

SOURCE = ROOT / "src" / "seatrial"
TEXT = (DOCS / "architecture.md").read_text(encoding="utf-8")
PAGE = parse(TEXT)
WALK = re.compile(r"^\| (?P<number>\d+) \| `(?P<module>[\w/]+\.py)` \| `(?P<name>\w+)` \| ", re.MULTILINE)
BEHAVIOUR = re.compile(r"^\| (?P<behaviour>[^|]+) \| `(?P<module>[\w/]+\.py)` \| `(?P<name>\w+)` \|$", re.MULTILINE)
NAMED = re.compile(r"`(?P<module>[\w/]+\.py)`: `(?P<name>\w+)`")
MAX_WALK = 40
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


def test_the_picture_is_current() -> None:
    assert DIAGRAM.PICTURE.read_text(encoding="utf-8") == DIAGRAM.picture(), "run python docs/make_diagram.py"


@STAGES
def test_a_stage_names_what_exists(stage) -> None:
    assert stage.function in names_in(stage.module)
    if " " not in stage.record:
        assert stage.record in names_in(stage.record_module)
    assert (SOURCE / stage.record_module).is_file()
    assert {*stage.reads, *stage.writes} - ELSEWHERE - file_names() == set()


@STAGES
def test_a_stage_fits_its_box(stage) -> None:
    assert len(DIAGRAM.textwrap.wrap(stage.does, DIAGRAM.MAX_IN_BOX)) <= 2
    assert len(f"{stage.module}: {stage.function}") <= DIAGRAM.MAX_IN_BOX + 2


def test_the_picture_has_text_and_two_schemes_and_loads_nothing() -> None:
    picture = DIAGRAM.picture()
    assert picture.count("<text") > 3 * len(DIAGRAM.STAGES)
    assert "prefers-color-scheme: dark" in picture
    assert re.findall(r"https?://[^\"]+", picture) == ["http://www.w3.org/2000/svg"]
    assert all(f">{stage.name}</text>" in picture for stage in DIAGRAM.STAGES)


def test_every_package_of_the_harness_is_on_the_page() -> None:
    named = {span.text for span in PAGE.code}
    folders = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*") if path.is_dir() and path.name != "__pycache__"}
    assert {folder for folder in folders if f"{folder}/" not in named} == set()


def test_every_path_on_the_page_exists() -> None:
    paths = {span.text for span in PAGE.code if re.fullmatch(r"[\w./-]+(\.py|/)", span.text)}
    assert paths
    assert {path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists()} == set()


def test_the_walk_is_at_most_40_files_in_order() -> None:
    steps = list(WALK.finditer(TEXT))
    assert [int(step["number"]) for step in steps] == list(range(1, len(steps) + 1))
    modules = [step["module"] for step in steps]
    assert len(modules) == len(set(modules)) <= MAX_WALK


@pytest.mark.parametrize("found", [*WALK.finditer(TEXT), *BEHAVIOUR.finditer(TEXT)], ids=lambda found: f"{found['module']}:{found['name']}")
def test_what_to_look_for_is_in_the_module(found: re.Match[str]) -> None:
    assert found["name"] in names_in(found["module"])


def test_behaviours_can_be_looked_up() -> None:
    rows = [found["behaviour"] for found in BEHAVIOUR.finditer(TEXT)]
    assert len(rows) == len(set(rows))
