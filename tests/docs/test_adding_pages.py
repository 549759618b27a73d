"""The pages on adding a workload, a launcher, a place or a signature: what they name exists, and their examples are valid.

Their commands are run by test_commands.py.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.collect.logs.diagnosis import diagnose
from seatrial.launch.launchers.commands import LAUNCHERS
from seatrial.plan import workloads
from seatrial.records.signatures.registry import Signature, load_signatures, signatures
from tests.docs.pages import DOCS, ROOT, Page, parse
from tests.docs.test_architecture_page import NAMED, SOURCE, names_in
from tests.unit.records.signature_checks import problems

WORKLOAD, LAUNCHER, SIGNATURE = (DOCS / f"adding-a-{subject}.md" for subject in ("workload", "launcher-or-place", "failure-signature"))
MODULE = re.compile(r"[\w/]+\.py")


def page(path: Path) -> Page:
    return parse(path.read_text(encoding="utf-8"))


def written(path: Path, title: str) -> str:
    """The file that the reader of the page writes."""
    return next(block.text for block in page(path).blocks if block.title == title)


def functions(tree: ast.Module | ast.ClassDef) -> dict[str, str]:
    """Name → arguments and what comes back, as text."""
    return {node.name: f"({ast.unparse(node.args)}) -> {ast.unparse(node.returns or ast.Constant(None))}" for node in _functions(tree)}


def _functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    yield from (node for node in tree.body if isinstance(node, ast.FunctionDef))


def of_module(named: str) -> dict[str, str]:
    """Of `launch/places/allocation.py`, or of a class in it: `launch/transports/__init__.py: Transport`."""
    module, _, kind = named.partition(": ")
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    if not kind:
        return functions(tree)
    return functions(next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind))


def shown_functions() -> list[tuple[str, str, str]]:
    """(module, function, signature) for each that the page on launchers shows under a comment with the module's name."""
    shown = []
    for block in page(LAUNCHER).blocks:
        if block.language == "python" and not block.title:
            for part in re.split(r"^# ", block.text, flags=re.MULTILINE)[1:]:
                modules, _, source = part.partition("\n")
                shown += [(module, *pair) for module in modules.split(", ") for pair in functions(ast.parse(source)).items()]
    return shown


@pytest.mark.parametrize(("module", "name", "signature"), shown_functions())
def test_functions_have_the_signatures_that_the_page_shows(module: str, name: str, signature: str) -> None:
    assert of_module(module)[name] == signature


def test_the_example_is_a_launcher_like_the_others() -> None:
    tree = ast.parse(written(LAUNCHER, "src/seatrial/launch/launchers/mpirun.py"))
    (launcher,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    offered = of_module("launch/launchers/__init__.py: Launcher")
    assert functions(launcher).items() <= offered.items()
    assert "mpirun" not in LAUNCHERS


@pytest.mark.parametrize("part", ["launcher", "place"])
def test_every_module_that_checks_a_kind_is_on_the_page(part: str) -> None:
    checks = re.compile(rf"{part}\.kind (?:==|!=|in|not in) ")
    checking = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if checks.search(path.read_text(encoding="utf-8"))}
    named = {name for span in page(LAUNCHER).code for name in MODULE.findall(span.text)}
    assert checking
    assert checking - named == set()


@pytest.mark.parametrize("path", [WORKLOAD, LAUNCHER, SIGNATURE], ids=lambda path: path.stem)
def test_what_a_page_names_in_a_module_exists(path: Path) -> None:
    named = [(found["module"], found["name"]) for found in NAMED.finditer(path.read_text(encoding="utf-8"))]
    assert named
    assert [pair for pair in named if pair[1] not in names_in(pair[0])] == []


@pytest.fixture
def primes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type:
    """The example's settings, in a package made for the test."""
    package = tmp_path / "made_workloads" / "primes"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "settings.py").write_text(written(WORKLOAD, "src/seatrial_workloads/primes/settings.py"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(workloads, "PACKAGE", "made_workloads")
    for name in [name for name in sys.modules if name.split(".")[0] == "made_workloads"]:
        monkeypatch.delitem(sys.modules, name)
    return workloads.settings_class("primes")


def test_the_example_s_settings_are_those_of_a_bundled_workload(primes: type) -> None:
    assert workloads.available_workloads() == ["primes"]
    assert workloads.complete_settings(primes, {"steps": 40, "micro_batch": 8})["log_every"] == 10
    assert importlib.import_module("made_workloads.primes.settings").NEEDS_TORCH is False
    with pytest.raises(workloads.SettingProblem, match="did you mean 'first'"):
        workloads.typed_setting(primes, "frist", 7)
    with pytest.raises(workloads.SettingProblem, match="lower log_every"):
        workloads.complete_settings(primes, {"steps": 5})


def test_names_in_tests_that_the_page_refers_to_exist() -> None:
    for name, file in (
        ("BOTH", "tests/workloads/common/test_settings.py"),
        ("LIGHT", "tests/architecture/test_layers.py"),
        ("test_nothing_heavy_at_import", "tests/architecture/test_layers.py"),
    ):
        assert f"`{name}`" in WORKLOAD.read_text(encoding="utf-8")
        assert re.search(rf"^(?:def )?{name}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture
def entry(tmp_path: Path) -> Signature:
    (tmp_path / "entry.toml").write_text(written(SIGNATURE, "entry.toml"), encoding="utf-8")
    (found,) = load_signatures(tmp_path, ("entry",))
    return found


def test_the_example_s_entry_is_valid_and_not_registered_yet(entry: Signature) -> None:
    assert problems(entry) == []
    assert entry.id not in {one.id for one in signatures()}


def test_the_diagnosis_on_the_page_is_that_of_the_code(entry: Signature) -> None:
    log = written(SIGNATURE, "tests/recorded/failures/token_expired.log").splitlines()
    before, after = (block.text.splitlines() for block in page(SIGNATURE).blocks if block.language == "text" and not block.title)
    found = diagnose(1, log)
    assert before == [f"{found.signature}: cause {found.cause.value}, fault {found.fault.value}", found.detail, found.action]
    assert after == [f"{entry.id}: cause {entry.cause.value}, fault {entry.fault.value}", found.detail, entry.action]
    assert [line for line in log if any(re.search(pattern, line) for pattern in entry.patterns)] == [f"[rank1]: {found.detail}"]


def test_fields_on_the_page_are_fields_of_an_entry() -> None:
    named = {span.text.removesuffix(" = true") for span in page(SIGNATURE).code}
    fields = {field.name for field in dataclasses.fields(Signature)}
    switches = {span.text.partition(" = ")[0] for span in page(SIGNATURE).code if span.text.endswith(" = true")}
    assert switches == {"after_effect", "after_usage", "echo", "takes_precedence", "slows"}
    assert {*switches, "exit_codes", "patterns", "keywords", "effective", "env", "kinds"} <= named & fields
