"""Nothing in a training step waits for the GPU or loops over tokens: read from the source of what a step runs.

What is a tensor is followed from annotations through assignments, as far as reading goes: what is not known to be one is not reported.
tests/gpu runs a step under torch's own check.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from pathlib import Path

import pytest

import seatrial_workloads

PACKAGE = Path(seatrial_workloads.__file__).parent
SPARSE_LM = PACKAGE / "sparse_lm"
WHOLE = sorted([*(SPARSE_LM / "ops").glob("*.py"), SPARSE_LM / "attention.py", SPARSE_LM / "model.py"])
# Of other modules, what runs in every step.
PARTS = {
    PACKAGE / "common" / "engines" / "ddp.py": (
        *("DdpEngine.forward", "DdpEngine.backward", "DdpEngine._without_exchange", "DdpEngine.step", "DdpEngine._set_lr"),
        *("DdpEngine._update", "DdpEngine._whole_step", "DdpEngine.replay", "total_norm", "compressed_all_reduce"),
    ),
    PACKAGE / "common" / "engines" / "step_graph.py": ("StepGraph.__call__",),
    SPARSE_LM / "train.py": (
        *("Trainer.train", "Trainer._before_step", "Trainer._train_step", "Trainer._is_replayed", "Trainer._after_step"),
        *("Trainer._put", "Trainer._read"),
    ),
    SPARSE_LM / "stopping.py": (
        "DeviceReadout._mark",
        "DeviceReadout.put",
        "DeviceReadout.take",
        "DeviceReadout._read",
        "HaltPoll.wants_end",
    ),
    SPARSE_LM / "data.py": ("Batch.inputs", "Text.steps", "Text._next"),
    SPARSE_LM / "reporting.py": ("Reporter.step", "Reporter._log_step", "Reporter._progress"),
}
# What waits or loops by design, and why it may.
ALLOWED = {
    "ranges_v1": "the reference, which loops over rows",
    "prefill": "the reference, which loops over tokens",
    "SparseLM.__init__": "creates the layers, before the first step",
    "SparseLM.choices": "describes the layers, before the first step",
    "DeviceReadout._read": "reads the values of the step before, which the device has passed: the host stays one step ahead",
    "DeviceReadout.take": "loops over the steps that are due, one",
    "Text.steps": "loops over the steps, and over the passes of one",
}

WAITS = {"item", "cpu", "tolist", "numpy", "nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "synchronize"}
WAITS |= {"bincount", "equal", "allclose", "is_nonzero"}
CONVERSIONS = {"bool", "float", "int"}


class Kind(enum.Enum):
    TENSOR = "tensor"
    MASK = "tensor of booleans"
    SEVERAL = "tuple of tensors"


NOT_TENSORS = {"shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "nbytes", "grad_fn", "itemsize"}
NOT_TENSORS |= {"size", "dim", "numel", "stride", "element_size", "data_ptr", "get_device", "is_contiguous", "is_floating_point", "type"}
SEVERAL = {"chunk", "split", "unbind", "tensor_split", "sort", "topk", "cummax", "cummin", "aminmax"}
MASKS = {"isfinite", "isnan", "isinf", "any", "all", "eq", "ne", "gt", "ge", "lt", "le", "logical_and", "logical_or", "logical_not", "bool"}
KEEPS_KIND = {"view", "reshape", "unsqueeze", "squeeze", "transpose", "expand", "repeat_interleave", "flatten", "unflatten", "flip"}
KEEPS_KIND |= {"contiguous", "clone", "detach", "permute"}
# Functions of torch that return no tensor.
OF_TORCH = {"autocast", "device", "compile", "no_grad", "inference_mode", "is_tensor", "is_grad_enabled", "get_num_threads", "manual_seed"}
IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
TESTS = (ast.If, ast.IfExp, ast.While, ast.Assert)


def annotated(annotation: ast.AST | None) -> Kind | None:
    text = ast.unparse(annotation) if annotation is not None else ""
    if text in ("Tensor", "Tensor | None", "torch.Tensor"):
        return Kind.TENSOR
    return Kind.SEVERAL if text.startswith(("tuple[Tensor", "list[Tensor")) else None


class Known:
    """Functions that return tensors and fields that are some, in all modules that are read."""

    def __init__(self, paths: list[Path]) -> None:
        nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
        self.functions = {node.name: annotated(node.returns) for node in nodes if isinstance(node, ast.FunctionDef)}
        fields = [inner for node in nodes if isinstance(node, ast.ClassDef) for inner in node.body if isinstance(inner, ast.AnnAssign)]
        self.fields = {ast.unparse(field.target): annotated(field.annotation) for field in fields}


KNOWN = Known([*WHOLE, *PARTS])


class Reading:
    """One function: which of its names are tensors, and what is wrong in it."""

    def __init__(self, function: ast.FunctionDef, *, strict: bool = True) -> None:
        """`strict`: in a module of tensors, what is converted or reduced may be one even where that is not known."""
        self._function, self._strict = function, strict
        self._names: dict[str, Kind] = {}
        for argument in (node for node in ast.walk(function) if isinstance(node, ast.arg)):
            self._assign(ast.Name(argument.arg), annotated(argument.annotation))
        # Twice: a loop may assign after it reads.
        for _ in range(2):
            for node in ast.walk(function):
                self._follow(node)

    def _follow(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
                    for one, value in zip(target.elts, node.value.elts, strict=True):
                        self._assign(one, self.kind(value))
                else:
                    self._assign(target, self.kind(node.value))
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._assign(node.target, self.kind(node.value))
        elif isinstance(node, (ast.For, ast.comprehension)) and self.kind(node.iter) is not None:
            self._assign(node.target, Kind.TENSOR)

    def _assign(self, target: ast.AST, kind: Kind | None) -> None:
        if isinstance(target, ast.Name) and kind is not None:
            self._names[target.id] = kind
        elif isinstance(target, (ast.Tuple, ast.List)) and kind is Kind.SEVERAL:
            for one in target.elts:
                self._assign(one, Kind.TENSOR)

    def kind(self, node: ast.AST) -> Kind | None:
        """Of an expression, where it is known to be a tensor."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            return self._kind_of_attribute(node)
        if isinstance(node, ast.Call):
            return self._kind_of_call(node)
        if isinstance(node, ast.Subscript):
            inner = self.kind(node.value)
            return Kind.TENSOR if inner is Kind.SEVERAL else inner
        if isinstance(node, ast.Compare):
            is_of_tensors = any(self.kind(part) for part in (node.left, *node.comparators))
            return Kind.MASK if is_of_tensors and not isinstance(node.ops[0], IDENTITY) else None
        if isinstance(node, ast.BinOp):
            kinds = {self.kind(node.left), self.kind(node.right)} - {None}
            return Kind.MASK if kinds == {Kind.MASK} else Kind.TENSOR if kinds else None
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            return self.kind(node.operand)
        if isinstance(node, ast.IfExp):
            return self.kind(node.body) or self.kind(node.orelse)
        return None

    def _kind_of_attribute(self, node: ast.Attribute) -> Kind | None:
        if node.attr in NOT_TENSORS:
            return None
        inner = self.kind(node.value)
        return Kind.TENSOR if inner else KNOWN.fields.get(node.attr)

    def _kind_of_call(self, node: ast.Call) -> Kind | None:
        if isinstance(node.func, ast.Name):
            return KNOWN.functions.get(node.func.id)
        if not isinstance(node.func, ast.Attribute) or node.func.attr in NOT_TENSORS:
            return None
        name, base = node.func.attr, self.kind(node.func.value)
        of_torch = isinstance(node.func.value, ast.Name) and node.func.value.id in ("torch", "functional") and name not in OF_TORCH
        if not base and not of_torch:
            # A layer that is called with a tensor.
            is_layer = ast.unparse(node.func.value) == "self" and name not in KNOWN.functions and any(map(self.kind, node.args))
            return Kind.TENSOR if is_layer else KNOWN.functions.get(name)
        if name in SEVERAL:
            return Kind.SEVERAL
        if name in KEEPS_KIND:
            return base or self.kind(node.args[0])
        return Kind.MASK if name in MASKS else Kind.TENSOR

    def problems(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self._function):
            found = self._problem(node)
            if found:
                yield getattr(node, "lineno", self._function.lineno), found

    def _problem(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Call):
            return self._problem_of_call(node)
        tests = node.ifs if isinstance(node, ast.comprehension) else [node.test] if isinstance(node, TESTS) else []
        if any(self._is_tested(test) for test in tests):
            return "truth of a tensor"
        if isinstance(node, (ast.For, ast.comprehension)):
            if any(isinstance(inner, ast.Call) and getattr(inner.func, "id", "") == "range" for inner in ast.walk(node.iter)):
                return "Python loop over a range"
            return "Python loop over a tensor" if self.kind(node.iter) in (Kind.TENSOR, Kind.MASK) else None
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return "indexing with a mask waits for its size" if any(self.kind(part) is Kind.MASK for part in parts) else None
        return None

    def _is_tested(self, test: ast.AST) -> bool:
        if isinstance(test, ast.BoolOp):
            return any(self._is_tested(part) for part in test.values)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._is_tested(test.operand)
        reduces = any(isinstance(node, ast.Attribute) and node.attr in ("any", "all") for node in ast.walk(test))
        return self.kind(test) in (Kind.TENSOR, Kind.MASK) or (self._strict and reduces)

    def _problem_of_call(self, node: ast.Call) -> str | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if isinstance(node.func, ast.Attribute):
            if name in WAITS:
                return f".{name}() waits for the device"
            if name == "where" and len(node.args) == 1 and not node.keywords:
                return "torch.where() of one argument waits for its size"
            arguments = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "device")]
            if name == "to" and any("'cpu'" in ast.unparse(argument) for argument in arguments):
                return ".to('cpu') waits for the device"
        elif name in CONVERSIONS and node.args and not isinstance(node.args[0], ast.Constant) and (self._strict or self.kind(node.args[0])):
            return f"{name}() of a tensor waits for the device"
        return None


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child


def hot_functions(path: Path) -> dict[str, ast.FunctionDef]:
    found = dict(functions(ast.parse(path.read_text())))
    return {name: found[name] for name in PARTS.get(path, found)}


def problems(path: Path) -> Iterator[tuple[str, int, str]]:
    """Function, line and what is wrong there."""
    for name, function in hot_functions(path).items():
        for line, what in Reading(function, strict=path in WHOLE).problems():
            yield name, line, what


@pytest.mark.parametrize("path", [*WHOLE, *PARTS], ids=lambda path: path.stem)
def test_what_a_step_runs_neither_waits_nor_loops(path: Path) -> None:
    found = [f"{path.name}:{line}: {what} in {name}" for name, line, what in problems(path) if name not in ALLOWED]
    assert not found


def test_every_exception_is_still_needed() -> None:
    assert {name for path in (*WHOLE, *PARTS) for name, _, _ in problems(path)} == set(ALLOWED)


@pytest.mark.parametrize(
    "line",
    [
        *("x.item()", "x.cpu()", "x.tolist()", "x.nonzero()", "torch.nonzero(x)", "float(x.sum())", "[y for y in range(n)]"),
        "for y in z if n else range(n): pass",
        *("y = 1 if x.any() else 2", "assert not (x > 0).all()", "if x.sum() > 0: pass", "while x.max() > 0: x = x - 1"),
        *(
            "y = x * 2\n    if n and y[0] < n: pass",
            "for row in x: pass",
            "[row for row in x.abs()]",
            "y, z = x.chunk(2)\n    if z.min(): pass",
        ),
        *("x[x > 0]", "mask = ~torch.isfinite(x)\n    x[mask] = 0", "y = x[:, (x == 1).unsqueeze(0)]", "torch.where(x > 0)"),
        *("x.to('cpu')", "x.to(device='cpu')", "x.to(torch.device('cpu'))", "for part in x.split(2):\n        for row in part: pass"),
        "y = self.norm(x)\n    y[y > 0]",
    ],
)
def test_the_guard_finds(line: str) -> None:
    (function,) = (node for _, node in functions(ast.parse(f"def step(x: Tensor, n: int):\n    {line}\n")))
    assert list(Reading(function).problems())


@pytest.mark.parametrize(
    "line",
    [
        *("if x is None: pass", "if x.shape[0] > n: pass", "if x.requires_grad and n: pass", "for part in x.split(2): pass"),
        *("y = x[:, n]", "y = x[x.long()]", "y = torch.where(x > 0, x, 0)", "y = x.to(z.device)", "one, other = x.chunk(2)"),
        *("y = x.masked_fill(x > 0, 0.0)", "size = x.numel()\n    if size > 3: pass", "for name, y in {'x': x}.items(): pass"),
    ],
)
def test_the_guard_does_not_report(line: str) -> None:
    (function,) = (node for _, node in functions(ast.parse(f"def step(x: Tensor, n: int, z: Tensor):\n    {line}\n")))
    assert not list(Reading(function).problems())
