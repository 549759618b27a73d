"""Nothing in a training step waits for the GPU or loops over tokens: read from the source of the modules that a step runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import seatrial_workloads

PACKAGE = Path(seatrial_workloads.__file__).parent / "sparse_lm"
HOT = sorted([*(PACKAGE / "ops").glob("*.py"), PACKAGE / "attention.py", PACKAGE / "model.py"])
WAITS = {"item", "cpu", "tolist", "numpy", "nonzero", "argwhere", "unique", "masked_select", "synchronize"}
CONVERSIONS = {"bool", "float", "int"}
REDUCTIONS = {"any", "all"}
# References that loop by design, and loops over layers outside of the step.
ALLOWED = {"ranges_v1", "prefill", "SparseLM.__init__", "SparseLM.choices"}


def problems(source: str) -> Iterator[tuple[str, int, str]]:
    """Function, line and what is wrong there."""
    for name, node in functions(ast.parse(source), ""):
        for inner in ast.walk(node):
            found = problem(inner)
            if found:
                yield name, getattr(inner, "lineno", node.lineno), found


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child


def problem(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
            return f".{node.func.attr}() waits for the device"
        if isinstance(node.func, ast.Name) and node.func.id in CONVERSIONS and node.args and not isinstance(node.args[0], ast.Constant):
            return f"{node.func.id}() of a tensor waits for the device"
    if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "range":
        return "Python loop over a range"
    if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)) and any(_reduces(inner) for inner in ast.walk(node.test)):
        return "truth of a tensor"
    return None


def _reduces(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REDUCTIONS


@pytest.mark.parametrize("path", HOT, ids=lambda path: path.stem)
def test_hot_modules_neither_wait_nor_loop(path: Path) -> None:
    found = [f"{path.name}:{line}: {what} in {name}" for name, line, what in problems(path.read_text()) if name not in ALLOWED]
    assert not found


def test_every_exception_is_still_needed() -> None:
    needed = {name for path in HOT for name, _, _ in problems(path.read_text())}
    assert needed == ALLOWED


@pytest.mark.parametrize(
    "line",
    ["x.item()", "x.cpu()", "x.tolist()", "x.nonzero()", "float(x.sum())", "y = 1 if x.any() else 2", "[y for y in range(n)]"],
)
def test_the_guard_finds(line: str) -> None:
    assert list(problems(f"def step(x):\n    {line}\n"))
