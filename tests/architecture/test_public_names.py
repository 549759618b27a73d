"""Tests reach our code through public names, so that moving a private one breaks no test of what the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PRIVATE = re.compile(r"_[a-zA-Z]")
OURS = ("seatrial", "seatrial_workloads", "seatrial_runbooks")
# Private names of others, which have no public way to the same.
OF_OTHERS = {
    "_actions": "argparse lists the options of a parser nowhere else",
    "_exit": "os._exit is a public function of Python",
    "_resource_tracker": "multiprocessing's process, which no test has started",
    "_pid": "of that process",
    "_dynamo": "torch._dynamo is torch's own documented name",
    "_attn_implementation": "transformers records the attention in use there alone",
    "_commit_hash": "transformers records the revision of a model there alone",
    "_compute_mask_indices": "the reference that our masks must agree with",
    "_get_feat_extract_output_lengths": "the reference that our lengths must agree with",
    "_flash_attention_forward": "torch's operator behind the stand-in of flash_attn",
    "_copy_recovery_script": "the method of DeepSpeed that our engine replaces",
    "_forward_hooks": "torch lists the hooks of a module nowhere else",
    "_forward_pre_hooks": "torch lists the hooks of a module nowhere else",
    "_call_impl": "what torch.compile leaves in place",
    "_compiled_call_impl": "what torch.compile puts in place",
}


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of what the module imports, reads or patches of a private name that is not its own."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_of_self(node) and isinstance(node.ctx, ast.Store)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute) and not _is_of_self(node):
            names = [node.attr]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("setattr", "getattr", "delattr"):
            given = [argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)]
            names = [text.rpartition(".")[2] for text in given if isinstance(text, str)]
        else:
            continue
        yield from ((node.lineno, name) for name in names if PRIVATE.match(name) and name not in own)


def _is_of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


@pytest.mark.parametrize(
    "text",
    [
        "from seatrial.core.ports import _probe",
        "from seatrial._core import ports",
        "ports._probe()",
        "run()._state.step",
        "monkeypatch.setattr(ports, '_probe', None)",
        "monkeypatch.setattr('seatrial.core.ports._probe', None)",
        "getattr(ports, '_probe')",
    ],
)
def test_a_private_name_is_found(text: str) -> None:
    assert [line for line, _ in private_names(ast.parse(text))] == [1]


def test_a_classs_own_names_are_its_own() -> None:
    text = "class A:\n    def _b(self):\n        return self._c\nA()._b()\nA().__dict__\nfrom shutil import _x"
    assert list(private_names(ast.parse(text))) == []


def test_no_test_reaches_for_a_private_name() -> None:
    """Without mutation/, which drives the internals of mutmut."""
    found = [
        (name, f"{path.relative_to(TESTS)}:{line}")
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] != "mutation"
        for line, name in private_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert [(name, where) for name, where in found if name not in OF_OTHERS] == []
    assert OF_OTHERS.keys() - {name for name, _ in found} == set(), "exceptions that nothing needs"
