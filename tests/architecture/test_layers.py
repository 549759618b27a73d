"""The house's rules, held by reading imports: dependencies point down, no stage imports another, nothing heavy comes in at import."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
STAGES = ("plan", "preflight", "launch", "observe", "collect", "analyse", "judge", "report")
FOUNDATION = (
    "errors",
    "units",
    "wording",
    "disk",
    "files",
    "shell",
    "kinship",
    "uncollected",
    "bounded_pattern",
    "paths",
    "tables",
    "log_lines",
    "run_table",
    "options",
    "hostfile",
    "line",
    "ports",
    "eta",
    "records",
    "signatures",
)

# Folder → what of seatrial it may import besides itself.
MAY_IMPORT = {
    "records": {"records"},
    "eta": {"records"},
    "signatures": {"records"},
    "line": {"records"},
    "disk": {"records"},
    "options": {"errors"},
    "run_table": {"records", "paths"},
    "history": {*FOUNDATION, "machine"},
    "probe": {"records", "disk"},
    "machine": {*FOUNDATION},
    "agent": {*FOUNDATION, "machine", "observe"},
    **{stage: {*FOUNDATION, "machine", "probe"} for stage in STAGES},
    "campaign": {*FOUNDATION, "machine", "history", *STAGES},
    "web": {*FOUNDATION, "machine", "campaign", "report"},
    "cli": {*FOUNDATION, "machine", "campaign", "history", "web", *STAGES},
}


def modules(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


@cache
def imported(path: Path) -> set[str]:
    """Dotted names that the file imports anywhere, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "seatrial")
    return names


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_dependencies_point_down(folder: str) -> None:
    allowed = MAY_IMPORT[folder] | {folder}
    wrong = []
    for path in modules(f"seatrial/{folder}"):
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "seatrial" and len(parts) > 1 and parts[1] not in allowed and parts[1] != "__version__":
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert wrong == []


def test_every_folder_of_the_harness_has_a_rule() -> None:
    folders = {path.parent.name for path in (SOURCE / "seatrial").glob("*/__init__.py")}
    assert folders == set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("package", "above"),
    [("seatrial", "seatrial_workloads"), ("seatrial", "seatrial_runbooks"), ("seatrial_workloads", "seatrial_runbooks")],
)
def test_a_package_never_imports_one_above_it(package: str, above: str) -> None:
    wrong = [path for path in modules(package) for name in imported(path) if name.split(".")[0] == above]
    assert wrong == []


# Standard library only, all of them.
LIGHT = ("errors", "probe", "records", "eta", "units", "files", "shell", "kinship", "uncollected")
LIGHT_OF_MACHINE = ("seatrial.machine.secrets", "seatrial.machine.git")


def test_workloads_take_only_what_is_light() -> None:
    wrong = []
    for path in modules("seatrial_workloads"):
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "seatrial" and parts[1] not in LIGHT and name not in LIGHT_OF_MACHINE:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert wrong == []


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import seatrial.cli.main", {"torch", "numpy", "polars", "scipy", "pydantic", "yaml", "transformers"}),
        ("import seatrial.probe", {"torch", "numpy", "polars", "scipy", "pydantic", "typer", "rich", "psutil", "yaml"}),
        ("import seatrial.agent.__main__", {"torch", "numpy", "polars", "scipy", "pydantic", "typer", "rich"}),
        ("import seatrial.campaign.all_runs", {"torch", "numpy", "polars", "scipy", "pydantic"}),
        ("import seatrial_workloads.dummy.settings", {"torch", "numpy", "pydantic"}),
        ("import seatrial_workloads.dummy.train", {"torch", "numpy", "pydantic"}),
        ("import seatrial_workloads.tiny_lm.settings", {"torch", "numpy", "pydantic"}),
    ],
)
def test_nothing_heavy_at_import(statement: str, unwanted: set[str]) -> None:
    assert loaded_after(statement) & unwanted == set()


def test_only_the_command_line_prints_or_exits() -> None:
    wrong = []
    for path in modules("seatrial"):
        # The agent is a program of its own: its exit code is its last word.
        if "cli" in path.parts or path.parts[-2:] == ("agent", "__main__.py"):
            continue
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        wrong += [
            f"{path.relative_to(SOURCE)}:{call.lineno}" for call in calls if ast.unparse(call.func) in ("print", "sys.exit", "exit", "quit")
        ]
    assert wrong == []
