"""The architecture, checked by reading imports: dependencies point down, no stage imports another, no cycles, nothing heavy at import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
STAGES = ("plan", "preflight", "launch", "observe", "collect", "analyse", "judge", "report")
FOUNDATION = ("core", "records")

# Package → what of seatrial it may import besides itself.
MAY_IMPORT = {
    "core": set(),
    "records": {"core"},
    "machine": {*FOUNDATION},
    "probe": {*FOUNDATION},
    "agent": {*FOUNDATION, "machine"},
    **{stage: {*FOUNDATION, "machine"} for stage in STAGES},
    "observe": {*FOUNDATION},
    "judge": {*FOUNDATION},
    "history": {*FOUNDATION},
    "results": {*FOUNDATION, "machine", "history", "plan", "collect", "analyse", "judge", "report"},
    "campaign": {*FOUNDATION, "machine", "results", "plan", "preflight", "launch", "observe", "collect"},
    "web": {*FOUNDATION, "campaign", "results", "report"},
    "cli": {*FOUNDATION, "machine", "campaign", "results", "history", "web", *STAGES},
}


def modules(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> frozenset[str]:
    return imported_names(path.read_text())


def imported_names(text: str) -> frozenset[str]:
    """Dotted names that a module imports anywhere: inside functions and for type checking only, too. Ruff bans relative imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                names.add(inside if _is_module(inside) else node.module)
    return frozenset(names)


@cache
def _is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@cache
def module_graph() -> Mapping[str, frozenset[str]]:
    """Module → modules of ours that it imports."""
    known = {dotted(path): path for package in ("seatrial", "seatrial_workloads", "seatrial_runbooks") for path in modules(package)}
    return {name: imported(path) & known.keys() - {name} for name, path in known.items()}


def folder_graph() -> dict[str, set[str]]:
    """For every folder, which of its modules and sub-folders import which; a sub-folder is one node."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name, targets in module_graph().items():
        for target in targets:
            here, there = _places(name), _places(target)
            shared = next(level for level, (one, other) in enumerate(zip(here, there, strict=False)) if one != other)
            graph[".".join(here[: shared + 1])].add(".".join(there[: shared + 1]))
    return graph


def _places(name: str) -> list[str]:
    """The names on the way to a module; a package's own code is its `__init__`."""
    is_package = SOURCE.joinpath(*name.split(".")).is_dir()
    return [*name.split("."), "__init__"] if is_package else name.split(".")


def rings(graph: Mapping[str, frozenset[str] | set[str]]) -> list[list[str]]:
    """Sets of nodes that reach one another (Tarjan's strongly connected components of two or more)."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in number:
                visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in stack:
                lowest[node] = min(lowest[node], number[target])
        if lowest[node] == number[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return found


def test_a_ring_is_found() -> None:
    assert rings({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert rings({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_a_ring_by_a_type_only_import_is_found() -> None:
    texts = {"here.a": "from here.b import B", "here.b": "if TYPE_CHECKING:\n    from here.a import A"}
    assert rings({name: imported_names(text) for name, text in texts.items()}) == [["here.a", "here.b"]]


@pytest.mark.parametrize("graph", [module_graph, folder_graph], ids=["modules", "folders"])
def test_nothing_imports_in_a_ring(graph: Callable[[], Mapping[str, frozenset[str]]]) -> None:
    assert rings(graph()) == []


# Modules of a package that stand on the other side of a sub-folder than the package's other modules, and why.
OTHER_SIDE = {
    "seatrial.__init__": "the version, which `seatrial --version` prints",
    "seatrial.campaign.loop": "runs here, or has jobs of Slurm run, what is left; those run one of them as it does",
    "seatrial.campaign.slurm_allocation_program": "runs the loop inside a job",
    "seatrial.report.text": "text primitives, which the view needs as well as the renderers above it",
    "seatrial.report.write": "writes every form of the report, the page among them; html uses the tables and words beside it",
    "seatrial_workloads.contrastive.data": "puts the parts in loading together; these share the settings with it",
    "seatrial_workloads.contrastive.memory": "forecasts the memory of the model's shapes",
    "seatrial_workloads.contrastive.train": "trains the model, which shares the settings with it",
}


def sides(graph: Mapping[str, frozenset[str]], other_side: Container[str] = ()) -> dict[tuple[str, str], set[str]]:
    """Package and sub-folder → the package's own modules that import from it ("above") and that it imports ("below")."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            for side, own, other in (("above", name, target), ("below", target, name)):
                *package, module = _places(own)
                inside = _places(other)
                key = ".".join(package)
                if inside[: len(package)] == package and len(inside) > len(package) + 1 and f"{key}.{module}" not in other_side:
                    found[key, inside[len(package)]].add(side)
    return found


def test_a_package_beside_its_own_sub_folder_is_found() -> None:
    """`folder_graph` has no ring here: module by module, nothing goes round."""
    graph = {"here.a": frozenset({"here.sub.x"}), "here.sub.y": frozenset({"here.b"})}
    assert rings(graph) == []
    assert sides(graph) == {("here", "sub"): {"above", "below"}}
    assert sides(graph, {"here.b"}) == {("here", "sub"): {"above"}}


def test_a_packages_own_modules_are_all_above_or_all_below_each_of_its_sub_folders() -> None:
    assert [pair for pair, found in sides(module_graph(), OTHER_SIDE).items() if len(found) > 1] == []


def test_every_exception_is_needed() -> None:
    for name in OTHER_SIDE:
        others = {own for own in OTHER_SIDE if own != name}
        assert any(len(found) > 1 for found in sides(module_graph(), others).values()), name


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_dependencies_point_down(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package, "__version__"}
    wrong = []
    for path in modules(f"seatrial/{package}"):
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "seatrial" and len(parts) > 1 and parts[1] not in allowed:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert wrong == []


def test_every_package_of_the_harness_has_a_rule() -> None:
    assert {path.parent.name for path in (SOURCE / "seatrial").glob("*/__init__.py")} == set(MAY_IMPORT)
    assert {path.name for path in (SOURCE / "seatrial").glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize(
    ("package", "above"),
    [("seatrial", "seatrial_workloads"), ("seatrial", "seatrial_runbooks"), ("seatrial_workloads", "seatrial_runbooks")],
)
def test_a_package_never_imports_one_above_it(package: str, above: str) -> None:
    wrong = [path for path in modules(package) for name in imported(path) if name.split(".")[0] == above]
    assert wrong == []


# What a workload may import: standard library only, all of it.
LIGHT = ("core", "records", "probe")
LIGHT_OF_MACHINE = {
    "seatrial.machine.secrets": "results and argv that a workload writes are masked as the harness masks them",
    "seatrial.machine.software": "the entry point under the original name records the git commit and package versions as the harness does",
}


def test_workloads_import_only_what_is_light() -> None:
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


FOUNDATION_MODULES = ", ".join(dotted(path) for package in FOUNDATION for path in modules(f"seatrial/{package}"))


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import seatrial.cli.main", {"torch", "numpy", "polars", "scipy", "pydantic", "yaml", "transformers", "cryptography"}),
        ("import seatrial.probe", {"torch", "numpy", "polars", "scipy", "pydantic", "typer", "rich", "psutil", "yaml", "regex"}),
        ("import seatrial.agent.__main__", {"torch", "numpy", "polars", "scipy", "pydantic", "typer", "rich", "cryptography"}),
        ("import seatrial.campaign.loop", {"torch", "numpy", "polars", "scipy", "pydantic", "cryptography"}),
        (
            f"import {FOUNDATION_MODULES}",
            {"torch", "numpy", "polars", "scipy", "pydantic", "typer", "rich", "psutil", "yaml", "filelock", "cryptography"},
        ),
        ("import seatrial_workloads.dummy.settings", {"torch", "numpy", "pydantic"}),
        ("import seatrial_workloads.dummy.train", {"torch", "numpy", "pydantic"}),
        ("import seatrial_workloads.tiny_lm.settings", {"torch", "numpy", "pydantic"}),
        ("import seatrial_workloads.sft.settings, seatrial_workloads.common.prepare_once", {"torch", "numpy", "pydantic", "datasets"}),
        ("import seatrial_workloads.sparse_lm.settings, seatrial_workloads.sparse_lm.showcase", {"torch", "numpy", "pydantic", "yaml"}),
    ],
    ids=lambda value: value[7:40] if isinstance(value, str) else "",
)
def test_nothing_heavy_at_import(statement: str, unwanted: set[str]) -> None:
    assert loaded_after(statement) & unwanted == set()


def test_only_the_command_line_prints_or_exits() -> None:
    wrong = []
    for path in modules("seatrial"):
        # The agent, and what runs in a Slurm job, are separate programs.
        programs = (("agent", "__main__.py"), ("slurm", "program.py"), ("campaign", "slurm_allocation_program.py"))
        if "cli" in path.parts or path.parts[-2:] in programs:
            continue
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        wrong += [
            f"{path.relative_to(SOURCE)}:{call.lineno}" for call in calls if ast.unparse(call.func) in ("print", "sys.exit", "exit", "quit")
        ]
    assert wrong == []
