"""The software a run uses: its Python and packages, CUDA, cuDNN and NCCL, and the git state of its code.

In: a command's argv (`torchrun …`, `/opt/venv/bin/python …`) with its folder and environment; a folder of code. Out: `Interpreter`,
`CudaVersions`, `GitState`; empty fields where something is unknown. Standard library only, and torch, which takes seconds, is never
imported:

CUDA        torch/version.py of the run's interpreter, read as text: what torch was built for; else the newest the driver supports
cuDNN, NCCL the metadata of the wheels torch loads them from (nvidia-cudnn-cu13 …), those for torch's own CUDA where there are two;
            else the variable that NVIDIA's container images set (CUDNN_VERSION, NCCL_VERSION)

A library that LD_LIBRARY_PATH or LD_PRELOAD puts before these is not seen; both variables are in the recorded environment.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.metadata
import json
import os
import platform
import re
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seatrial.core.shell import RunawayCommandError, command_output, command_output_bytes, find_on_path, find_program

RECORDED_PACKAGES = (
    "seatrial",
    # Training and serving.
    "torch",
    "torchvision",
    "torchaudio",
    "torchao",
    "torchtitan",
    "torchdata",
    "deepspeed",
    "accelerate",
    "transformers",
    "peft",
    "trl",
    "lightning",
    "pytorch-lightning",
    "megatron-core",
    "nemo-toolkit",
    "vllm",
    "sglang",
    "jax",
    "jaxlib",
    # Kernels.
    "triton",
    "pytorch-triton",
    "flash-attn",
    "flash-attn-3",
    "flash-linear-attention",
    "xformers",
    "transformer-engine",
    "apex",
    "bitsandbytes",
    "liger-kernel",
    "numpy",
    "scipy",
    # Data.
    "datasets",
    "tokenizers",
    "sentencepiece",
    "safetensors",
    "pyarrow",
    "webdataset",
    "soundfile",
    "soxr",
    "librosa",
    "hydra-core",
    "omegaconf",
    "mpi4py",
    # CUDA as wheels: 12 has its number in every name, 13 only in some.
    *(f"nvidia-{name}-cu{major}" for major in (12, 13) for name in ("cudnn", "nccl", "nvshmem", "cusparselt")),
    *(f"nvidia-{name}-cu12" for name in ("cublas", "cuda-runtime", "cuda-nvrtc", "cufft", "cusolver", "cusparse", "nvjitlink")),
    *(f"nvidia-{name}" for name in ("cublas", "cuda-runtime", "cuda-nvrtc", "cufft", "cusolver", "cusparse", "nvjitlink")),
)
INTERPRETER_TIMEOUT_S = 10.0
# A longer first line is not a shebang.
SCRIPT_HEAD_BYTES = 1024
# The variables that decide where an interpreter looks for packages, or whether it starts at all.
RELEVANT_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "LD_LIBRARY_PATH")
_PYTHON_NAME = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?t?")
_TORCH_CUDA = re.compile(r"""^cuda\b[^=\n]*=\s*["'](?P<version>[\d.]+)["']""", re.MULTILINE)
# Runs in any Python 3.8 or later, and imports none of the packages.
_QUERY = """\
import importlib.metadata, importlib.util, json, platform, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        pass
torch = importlib.util.find_spec("torch")
print(json.dumps({"python": platform.python_version(), "packages": found, "torch": torch.origin if torch else None}))
"""
# A repository on a slow network disk must not hold up a run.
GIT_TIMEOUT_S = 5.0
# A larger diff takes too long to hash before every run.
MAX_DIFF_BYTES = 256 << 20
# Takes no lock that a user's git would wait for.
GIT = ("git", "--no-optional-locks")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# Every option that a user's configuration could change, so that the same changes give the same bytes for every user.
_DIFF = (
    "diff", "HEAD", "--patch", "--binary", "--full-index", "--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers",
    "--src-prefix=a/", "--dst-prefix=b/", "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--no-renames", "-O/dev/null",
    "--submodule=diff", "--ignore-submodules=untracked",
)  # fmt: skip
UNKNOWN_DIFF = "unknown"


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """One Python; empty when it is not known."""

    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    torch_cuda: str = ""
    """The CUDA its torch was built for; empty for a CPU build, and without torch."""
    asked: bool = True
    """False for another interpreter that was not started, so that it is unknown."""


def find_interpreter(argv: Sequence[str], cwd: Path, env: Mapping[str, str], *, start: bool = True) -> Interpreter:
    """The Python that `argv` starts, this one when `argv` is empty; `env` is the process's whole environment. Each interpreter is queried
    once in this process. Another one is started to be queried: with `start` False it stays unknown."""
    if not argv:
        return _own_interpreter()
    path = resolve_python(argv[0], cwd, env.get("PATH"))
    if path is None:
        return Interpreter()
    variables = _relevant(env)
    is_own = is_own_interpreter(path) and variables == _relevant(os.environ)
    if is_own:
        return _own_interpreter()
    return query_interpreter(path, variables) if start else Interpreter(asked=False)


def resolve_python(name: str, cwd: Path, search_path: str | None = None) -> str | None:
    """The interpreter that a program is, or that its first lines name; None for a binary, a shell script, or a missing program."""
    found = find_program(name, search_path, cwd)
    if found is None or _PYTHON_NAME.fullmatch(Path(found).name):
        return found
    argv = _parse_shebang(Path(found))
    if argv and Path(argv[0]).name == "env":
        argv = [argument for argument in argv[1:] if not argument.startswith("-") and "=" not in argument]
    if not argv or not _PYTHON_NAME.fullmatch(Path(argv[0]).name):
        return None
    return find_on_path(argv[0], search_path, cwd)


def is_own_interpreter(path: str) -> bool:
    """Whether `path` is the harness's interpreter; links of two virtual environments to one binary are two interpreters."""
    there, here = Path(path), Path(sys.executable)
    try:
        return there.parent.resolve() == here.parent.resolve() and there.samefile(here)
    except OSError:
        return False


def _parse_shebang(script: Path) -> list[str]:
    """The arguments after `#!`, or after the `exec` that installers write where the path is too long for a shebang."""
    try:
        with open(script, "rb") as source:
            head = source.read(SCRIPT_HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return []
    first, _, rest = head.partition("\n")
    if not first.startswith("#!"):
        return []
    second = rest.partition("\n")[0]
    try:
        return shlex.split(second)[1:] if second.startswith("'''exec' ") else first[2:].split()
    except ValueError:
        return []


def _relevant(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, env[name]) for name in RELEVANT_VARIABLES if name in env)


@functools.cache
def _own_interpreter() -> Interpreter:
    # By the path alone: a torch that is already imported does not count.
    torch = importlib.machinery.PathFinder.find_spec("torch")
    torch_cuda = _read_torch_cuda(torch.origin if torch else None)
    packages = {name: version for name in RECORDED_PACKAGES if (version := package_version(name))}
    return Interpreter(python=platform.python_version(), packages=packages, torch_cuda=torch_cuda)


@functools.cache
def query_interpreter(path: str, variables: tuple[tuple[str, str], ...]) -> Interpreter:
    """Version and packages of another interpreter; one that does not answer is not queried again."""
    others = {name: value for name, value in os.environ.items() if name not in RELEVANT_VARIABLES}
    # In the root folder, because -c puts the current one first on the path and a user's json.py would be imported.
    argv, env = [path, "-c", _QUERY, *RECORDED_PACKAGES], {**others, **dict(variables)}
    text = command_output(argv, cwd=Path("/"), timeout_s=INTERPRETER_TIMEOUT_S, env=env)
    try:
        answer = json.loads((text or "").strip().rpartition("\n")[2])
        return Interpreter(
            python=str(answer["python"]), packages=dict(answer["packages"]), torch_cuda=_read_torch_cuda(answer.get("torch"))
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Interpreter()


def _read_torch_cuda(torch: str | None) -> str:
    """torch's CUDA version, from the file beside its __init__.py."""
    try:
        return parse_torch_cuda(Path(torch).with_name("version.py").read_text(encoding="utf-8", errors="replace")) if torch else ""
    except OSError:
        return ""


def package_version(name: str) -> str:
    """The installed version, or an empty string."""
    try:
        return importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


@dataclass(frozen=True, kw_only=True)
class CudaVersions:
    """Empty where unknown."""

    cuda: str = ""
    cudnn: str = ""
    nccl: str = ""


def find_cuda_versions(torch_cuda: str, packages: Mapping[str, str], env: Mapping[str, str], driver_cuda: str) -> CudaVersions:
    """Versions by the interpreter's torch and packages, the run's environment and the driver."""
    return CudaVersions(
        cuda=torch_cuda or driver_cuda,
        cudnn=_library_version("cudnn", torch_cuda, packages, env),
        nccl=_library_version("nccl", torch_cuda, packages, env),
    )


def parse_torch_cuda(version_file: str) -> str:
    """The CUDA version in the text of a torch/version.py; empty for a build without."""
    found = _TORCH_CUDA.search(version_file)
    return found["version"] if found else ""


def _library_version(name: str, torch_cuda: str, packages: Mapping[str, str], env: Mapping[str, str]) -> str:
    wheels = {wheel: version for wheel, version in packages.items() if re.fullmatch(rf"nvidia-{name}-cu\d+", wheel)}
    own = wheels.get(f"nvidia-{name}-cu{torch_cuda.partition('.')[0]}")
    return own or next(iter(wheels.values()), "") or env.get(f"{name.upper()}_VERSION", "")


@dataclass(frozen=True, kw_only=True)
class GitState:
    """Empty strings where there is no repository, no commit or no git."""

    commit: str = ""
    branch: str = ""
    dirty: str = ""
    """`true` when a tracked file differs from the commit, else `false`; untracked files (results, data) do not count."""
    diff_sha256: str = ""
    """Hash of the changes to tracked files; empty without changes. Where git timed out, `unknown` and a random suffix: an unknown state
    equals nothing else, not even another unknown one."""


def read_git_state(folder: Path, output: Path | None = None) -> GitState:
    """The state of the repository that `folder` belongs to; `output`, a campaign's results, is not code and does not count."""
    try:
        status = _run_git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    except RunawayCommandError:
        return GitState(diff_sha256=_unknown_diff())
    state = GitState() if status is None else parse_status(status.decode("utf-8", errors="replace"))
    if state.dirty != "true":
        return state
    changes = _diff_sha256(folder, output)
    return replace(state, dirty="true" if changes else "false", diff_sha256=changes)


def parse_status(text: str) -> GitState:
    """The output of `git status --porcelain=v2 --branch`; an empty state for any other text, such as that of another program `git`."""
    lines = text.splitlines()
    headers = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# ") and " " in line[2:])
    commit, branch = headers.get("branch.oid", ""), headers.get("branch.head", "")
    if not _COMMIT.fullmatch(commit) and commit != "(initial)":
        return GitState()
    changed = any(line and not line.startswith("#") for line in lines)
    return GitState(
        commit="" if commit == "(initial)" else commit,
        branch="HEAD" if branch == "(detached)" else branch,
        dirty="true" if changed else "false",
    )


def _diff_sha256(folder: Path, output: Path | None) -> str:
    try:
        changes = _run_git(folder, *_DIFF, "--", ":/", *_exclude(folder, output))
    except RunawayCommandError:
        changes = None
    if changes is None:
        return _unknown_diff()
    return hashlib.sha256(changes).hexdigest() if changes else ""


def _exclude(folder: Path, output: Path | None) -> list[str]:
    """The pathspec that excludes `output`, where it is in the repository: results of an earlier campaign may be committed."""
    top = None if output is None else _run_git(folder, "rev-parse", "--show-toplevel")
    if output is None or not top:
        return []
    inside = (folder / output).resolve()
    root = Path(top.decode("utf-8", errors="replace").rstrip("\n").replace("\0", "")).resolve()
    return [f":(top,exclude,literal){inside.relative_to(root)}"] if root in inside.parents else []


def _run_git(folder: Path, *arguments: str) -> bytes | None:
    """git's output; None without git or a repository. RunawayCommandError when it times out: then there is a repository."""
    return command_output_bytes([*GIT, *arguments], cwd=folder, timeout_s=GIT_TIMEOUT_S, max_bytes=MAX_DIFF_BYTES)


def _unknown_diff() -> str:
    return f"{UNKNOWN_DIFF} {uuid.uuid4().hex[:12]}"
