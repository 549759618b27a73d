"""Every module has a test of its own: a file `test_*.py` under tests/ that imports it, or starts it as the program that it is.

That says nothing of how good the test is (`make mutate` does, for the arithmetic); it says where to look and where to add.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def modules() -> set[str]:
    """Dotted names of all modules; of packages only those that hold more than a docstring."""
    names = set()
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[-1] != "__init__":
            names.add(".".join(parts))
        elif any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text()).body):
            names.add(".".join(parts[:-1]))
    return names


def named_in_tests() -> set[str]:
    """Dotted names that tests import, and those in texts: arguments of `-m`, and what is imported by name."""
    names: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("seatrial"):
                names.add(node.value)
    # `python -m seatrial.agent` is its __main__.
    return names | {f"{name}.__main__" for name in names}


def test_every_module_is_named_by_a_test() -> None:
    assert sorted(modules() - named_in_tests()) == []
