"""A run's Python, its packages and CUDA versions, and the git state of its code."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.machine import software
from seatrial.machine.provenance import compute_fingerprint
from seatrial.machine.software import (
    UNKNOWN_DIFF,
    CudaVersions,
    GitState,
    Interpreter,
    find_cuda_versions,
    find_interpreter,
    is_own_interpreter,
    package_version,
    parse_status,
    parse_torch_cuda,
    read_git_state,
    resolve_python,
)
from seatrial.records.attempt import Provenance

OURS = find_interpreter((), Path("/"), os.environ)


@pytest.fixture(autouse=True)
def fresh_queries() -> Iterator[None]:
    software.query_interpreter.cache_clear()
    yield
    software.query_interpreter.cache_clear()


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a virtual environment with a torch of its own."""
    folder = tmp_path_factory.mktemp("other") / "venv"
    venv.create(folder, symlinks=True, with_pip=False)
    _install_torch(next(folder.glob("lib/python*/site-packages")), "9.9.9")
    return folder / "bin"


def _install_torch(folder: Path, version: str) -> None:
    info = folder / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")


def _script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_no_command_is_this_interpreter() -> None:
    assert (OURS.python, OURS.packages["seatrial"]) == (platform.python_version(), package_version("seatrial"))
    assert find_interpreter((sys.executable, "-m", "x"), Path("/"), os.environ) == OURS
    torch = pytest.importorskip("torch.version")
    assert OURS.torch_cuda == (torch.cuda or "")


def test_links_of_two_environments_to_one_binary_are_two(other: Path) -> None:
    assert (other / "python").samefile(sys.executable)
    assert not is_own_interpreter(str(other / "python"))
    assert is_own_interpreter(sys.executable)
    assert not is_own_interpreter("/no/such/python")


def test_another_environment_is_queried_for_its_own_packages(other: Path) -> None:
    theirs = Interpreter(python=platform.python_version(), packages={"torch": "9.9.9"})
    on_path = {**os.environ, "PATH": f"{other}:{os.environ['PATH']}"}
    assert find_interpreter((str(other / "python"), "train.py"), Path("/"), os.environ) == theirs
    assert find_interpreter(("python",), Path("/"), on_path) == find_interpreter(("bin/python",), other.parent, os.environ) == theirs


def test_pythonpath_of_the_run_counts(tmp_path: Path) -> None:
    _install_torch(tmp_path, "8.8.8")
    found = find_interpreter((sys.executable,), Path("/"), {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert found.packages["torch"] == "8.8.8"
    assert found.packages["seatrial"] == OURS.packages["seatrial"]


def test_each_interpreter_is_queried_once(tmp_path: Path) -> None:
    for name, answer in (("python3.9", """echo '{"python": "3.9.0", "packages": {}}'"""), ("python3.8", "exit 1")):
        asked = tmp_path / f"{name}.asked"
        program = _script(tmp_path / name, f"#!/bin/sh\necho x >> {asked}\n{answer}\n")
        found = [find_interpreter((str(program),), Path("/"), os.environ) for _ in range(3)]
        assert found == [Interpreter(python="3.9.0" if name == "python3.9" else "")] * 3
        assert asked.read_text() == "x\n"


@pytest.mark.parametrize(
    ("answer", "found"),
    [(text, Interpreter()) for text in ("rubbish", "[]", '{"python": "3.9.0", "packages": null}', "")]
    + [('hello\n{"python": "3.9.0", "packages": {"torch": "1"}}', Interpreter(python="3.9.0", packages={"torch": "1"}))],
)
def test_the_last_line_is_the_answer_and_an_invalid_one_is_unknown(tmp_path: Path, answer: str, found: Interpreter) -> None:
    program = _script(tmp_path / "python3", f"#!/bin/sh\necho '{answer}'\n")
    assert find_interpreter((str(program),), Path("/"), os.environ) == found


def test_console_script_names_its_interpreter(tmp_path: Path, other: Path) -> None:
    python = str(other / "python")
    heads = {
        "plain": f"#!{python}\nimport x\n",
        "spaced": f"#! {python} -u\n",
        "env": "#!/usr/bin/env python\n",
        "env-split": "#!/usr/bin/env -S A=b python -u\n",
        "long": f"""#!/bin/sh\n'''exec' "{python}" "$0" "$@"\n' '''\nimport x\n""",
    }
    for name, text in heads.items():
        _script(tmp_path / name, text)
        assert resolve_python(name, Path("/"), f"{tmp_path}:{other}") == python, name
    assert find_interpreter((str(tmp_path / "plain"), "x.py"), Path("/"), os.environ).packages == {"torch": "9.9.9"}


def test_other_programs_are_unknown(tmp_path: Path) -> None:
    heads = {"shell": "#!/bin/sh\npython train.py\n", "none": "x\n", "empty": "", "odd": "#!\n", "gone": "#!/no/such/python\n"}
    for name, text in {**heads, "unclosed": "#!/bin/sh\n'''exec' \"/x\n"}.items():
        _script(tmp_path / name, text)
        assert resolve_python(name, Path("/"), str(tmp_path)) is None, name
    assert resolve_python("/bin/ls", Path("/")) is None
    assert find_interpreter(("no-such-program",), Path("/"), {"PATH": ""}) == Interpreter()


def test_the_users_folder_does_not_shadow_modules(tmp_path: Path, other: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not the real one')\n")
    assert find_interpreter((str(other / "python"),), tmp_path, os.environ).packages == {"torch": "9.9.9"}


def test_cuda_of_torch_is_read_and_torch_is_not_imported(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "version.py").write_text("__version__ = '2.9.0'\ncuda: Optional[str] = '13.0'\n")
    _install_torch(tmp_path, "2.9.0")
    found = find_interpreter((sys.executable,), Path("/"), {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (found.packages["torch"], found.torch_cuda) == ("2.9.0", "13.0")
    (package / "version.py").unlink()
    software.query_interpreter.cache_clear()
    assert find_interpreter((sys.executable,), Path("/"), {**os.environ, "PYTHONPATH": str(tmp_path)}).torch_cuda == ""


NEW = "from typing import Optional\n__version__ = '2.9.0'\ndebug = False\ncuda: Optional[str] = '13.0'\ngit_version = 'abc'\n"
OLD = "__version__ = '1.13.1'\ndebug = False\ncuda = \"11.7\"\ngit_version = 'abc'\n"
CPU = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\ngit_version = 'cuda 12'\n"


@pytest.mark.parametrize(("text", "version"), [(NEW, "13.0"), (OLD, "11.7"), (CPU, ""), ("", ""), ("cuda_home = '1.0'\n", "")])
def test_cuda_torch_was_built_for(text: str, version: str) -> None:
    assert parse_torch_cuda(text) == version


WHEELS = {
    "nvidia-cudnn-cu12": "9.10.2.21",
    "nvidia-cudnn-cu13": "9.13.0.50",
    "nvidia-nccl-cu12": "2.27.5",
    "nvidia-nccl-cu13": "2.28.3",
    "nvidia-nccl-extras": "1",
}
IN_CONTAINER = {"NCCL_VERSION": "2.26.3", "CUDNN_VERSION": "9.9.0.52"}


@pytest.mark.parametrize(
    ("torch_cuda", "packages", "env", "found"),
    [
        ("13.0", WHEELS, IN_CONTAINER, CudaVersions(cuda="13.0", cudnn="9.13.0.50", nccl="2.28.3")),
        ("12.8", WHEELS, IN_CONTAINER, CudaVersions(cuda="12.8", cudnn="9.10.2.21", nccl="2.27.5")),
        ("12.8", {"torch": "2.8.0a0"}, IN_CONTAINER, CudaVersions(cuda="12.8", cudnn="9.9.0.52", nccl="2.26.3")),
        ("", {}, {}, CudaVersions(cuda="12.9")),
    ],
)
def test_versions_of_cuda(torch_cuda: str, packages: dict[str, str], env: dict[str, str], found: CudaVersions) -> None:
    assert find_cuda_versions(torch_cuda, packages, env, "12.9") == found


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "-b", "trunk")
    (tmp_path / "train.py").write_text("print(1)\n")
    _git(tmp_path, "add", "train.py")
    _git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_commit_branch_and_changes_of_tracked_files(repository: Path) -> None:
    state = read_git_state(repository)
    assert len(state.commit) == 40 and (state.branch, state.dirty) == ("trunk", "false")
    (repository / "outputs.txt").write_text("result\n")
    assert read_git_state(repository) == state
    (repository / "train.py").write_text("print(2)\n")
    _git(repository, "checkout", "--detach")
    changed = read_git_state(repository)
    assert (changed.branch, changed.dirty) == ("HEAD", "true")
    (repository / "outputs.txt").write_text("another result\n")
    assert read_git_state(repository) == changed
    assert parse_status("# branch.oid (initial)\n# branch.head main\n") == GitState(commit="", branch="main", dirty="false")


@pytest.mark.parametrize("name", ["", "no/such/folder"])
def test_no_repository_gives_empty_strings(tmp_path: Path, name: str) -> None:
    assert read_git_state(tmp_path / name) == GitState()


def test_clean_tree_has_no_hash_and_each_change_has_its_own(repository: Path) -> None:
    script = repository / "train.py"
    hashes = [read_git_state(repository).diff_sha256]
    for text in ("print(2)\n", "print(3)\n", "print(1)\r\n", "print('\xe9')\n", "print('\xe8')\n"):
        script.write_bytes(text.encode("latin-1"))
        hashes.append(read_git_state(repository).diff_sha256)
    assert hashes[0] == "" and len(hashes[1]) == 64
    assert len(set(hashes)) == len(hashes), "bytes count: ends of lines, and text that is not UTF-8"
    script.write_text("print(1)\n")
    assert read_git_state(repository).diff_sha256 == ""


def test_staged_changes_and_those_of_other_folders_count(repository: Path) -> None:
    below = repository / "below"
    below.mkdir()
    (repository / "train.py").write_text("print(2)\n")
    unstaged = read_git_state(below).diff_sha256
    _git(repository, "add", "train.py")
    assert read_git_state(below).diff_sha256 == read_git_state(repository).diff_sha256 == unstaged != ""


def test_committed_results_do_not_change_the_hash_either(repository: Path) -> None:
    out = repository / "out [1]"
    out.mkdir()
    table = out / "table.csv"
    table.write_text("a\n")
    _git(repository, "add", "-f", str(table))
    _git(repository, "commit", "-m", "results")
    table.write_text("b\n")
    assert read_git_state(repository).diff_sha256 != ""
    for output in (out, Path("out [1]")):
        assert read_git_state(repository, output).diff_sha256 == ""
    (repository / "train.py").write_text("print(2)\n")
    code = read_git_state(repository, out).diff_sha256
    assert code != "" and code != read_git_state(repository, repository.parent / "elsewhere").diff_sha256


USERS_SETTINGS = (
    ("color.ui", "always"),
    ("diff.noprefix", "true"),
    ("diff.external", "false"),
    ("diff.context", "9"),
    ("diff.algorithm", "patience"),
    ("diff.relative", "true"),
    ("core.abbrev", "6"),
)


def test_git_settings_of_the_user_do_not_change_the_hash(repository: Path) -> None:
    (repository / "train.py").write_text("print(2)\n")
    before = read_git_state(repository).diff_sha256
    for name, value in USERS_SETTINGS:
        _git(repository, "config", name, value)
        assert read_git_state(repository).diff_sha256 == before, name


def test_git_that_takes_too_long_is_unknown_and_not_clean(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "train.py").write_text("print(2)\n")
    slow = repository / "slow" / "git"
    slow.parent.mkdir()
    _script(slow, '#!/bin/sh\ncase "$*" in *"$SLOW"*) exec sleep 60;; esac\nPATH="${PATH#*:}" exec git "$@"\n')
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(software, "GIT_TIMEOUT_S", 1.0)
    monkeypatch.setenv("SLOW", " diff ")
    without_diff = [read_git_state(repository) for _ in range(2)]
    monkeypatch.setenv("SLOW", " status ")
    without_status = read_git_state(repository)
    assert [state.dirty for state in without_diff] == ["true", "true"] and without_status.commit == ""
    hashes = [state.diff_sha256 for state in (*without_diff, without_status)]
    assert all(value.startswith(f"{UNKNOWN_DIFF} ") for value in hashes)
    assert len(set(hashes)) == 3, "an unknown state equals no other"
    assert len({compute_fingerprint(Provenance(git_diff_sha256=value)) for value in hashes}) == 3


@pytest.mark.parametrize("script", ["head -c 100000 /dev/urandom", "printf '# branch.oid rubbish\\n'", "exit 128", "yes"])
def test_another_program_named_git_is_ignored(script: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    _script(tmp_path / "other" / "git", f"#!/bin/sh\n{script}\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:{os.environ['PATH']}")
    monkeypatch.setattr(software, "MAX_DIFF_BYTES", 1 << 20)
    state = read_git_state(repository, output=repository / "out")
    assert state == GitState(diff_sha256=state.diff_sha256) and state.diff_sha256.startswith(UNKNOWN_DIFF) is (script == "yes")
