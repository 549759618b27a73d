"""The Python of a run: found behind the word that was typed, asked once, and never mistaken for ours. The others here are real."""

from __future__ import annotations

import os
import platform
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.machine import interpreter, provenance
from seatrial.machine.gpus import Driver
from seatrial.machine.interpreter import Interpreter, interpreter_of, is_this_python, python_behind
from seatrial.machine.packages import package_versions

OURS = Interpreter(python=platform.python_version(), packages=package_versions(), torch_cuda=interpreter._own().torch_cuda)


@pytest.fixture(autouse=True)
def fresh_answers() -> Iterator[None]:
    interpreter._asked.cache_clear()
    yield
    interpreter._asked.cache_clear()


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


def test_no_program_is_this_interpreter() -> None:
    assert interpreter_of((), Path("/"), os.environ) == OURS
    assert interpreter_of((sys.executable, "-m", "x"), Path("/"), os.environ) == OURS


def test_links_of_two_environments_to_one_binary_are_two(other: Path) -> None:
    assert (other / "python").samefile(sys.executable)
    assert not is_this_python(str(other / "python"))
    assert is_this_python(sys.executable)
    assert not is_this_python("/no/such/python")


def test_another_environment_is_asked_for_its_own_packages(other: Path) -> None:
    found = interpreter_of((str(other / "python"), "train.py"), Path("/"), os.environ)
    assert found == Interpreter(python=platform.python_version(), packages={"torch": "9.9.9"})


def test_word_is_looked_up_on_the_runs_own_path(other: Path) -> None:
    env = {**os.environ, "PATH": f"{other}:{os.environ['PATH']}"}
    assert interpreter_of(("python",), Path("/"), env).packages == {"torch": "9.9.9"}
    assert interpreter_of(("bin/python",), other.parent, os.environ).packages == {"torch": "9.9.9"}


def test_pythonpath_of_the_run_counts(tmp_path: Path) -> None:
    _install_torch(tmp_path, "8.8.8")
    found = interpreter_of((sys.executable,), Path("/"), {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert found.packages["torch"] == "8.8.8"
    assert found.packages["seatrial"] == OURS.packages["seatrial"]


def test_interpreter_is_asked_once_and_a_silent_one_too(tmp_path: Path) -> None:
    for name, answer in (("python3.9", """echo '{"python": "3.9.0", "packages": {}}'"""), ("python3.8", "exit 1")):
        asked = tmp_path / f"{name}.asked"
        program = _script(tmp_path / name, f"#!/bin/sh\necho x >> {asked}\n{answer}\n")
        found = [interpreter_of((str(program),), Path("/"), os.environ) for _ in range(3)]
        assert found == [Interpreter(python="3.9.0" if name == "python3.9" else "")] * 3
        assert asked.read_text() == "x\n"


@pytest.mark.parametrize("answer", ["rubbish", "[]", "{}", '{"python": "3.9.0", "packages": null}', ""])
def test_answer_that_makes_no_sense_is_unknown(tmp_path: Path, answer: str) -> None:
    program = _script(tmp_path / "python3", f"#!/bin/sh\necho '{answer}'\n")
    assert interpreter_of((str(program),), Path("/"), os.environ) == Interpreter()


def test_lines_printed_before_the_answer_are_passed_over(tmp_path: Path) -> None:
    program = _script(tmp_path / "python3", """#!/bin/sh\necho hello\necho '{"python": "3.9.0", "packages": {"torch": "1"}}'\n""")
    assert interpreter_of((str(program),), Path("/"), os.environ) == Interpreter(python="3.9.0", packages={"torch": "1"})


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
        assert python_behind(name, Path("/"), f"{tmp_path}:{other}") == python, name
    assert interpreter_of((str(tmp_path / "plain"), "x.py"), Path("/"), os.environ).packages == {"torch": "9.9.9"}


def test_what_is_no_python_is_unknown(tmp_path: Path) -> None:
    heads = {"shell": "#!/bin/sh\npython train.py\n", "none": "x\n", "empty": "", "odd": "#!\n", "gone": "#!/no/such/python\n"}
    for name, text in {**heads, "unclosed": "#!/bin/sh\n'''exec' \"/x\n"}.items():
        _script(tmp_path / name, text)
        assert python_behind(name, Path("/"), str(tmp_path)) is None, name
    assert python_behind("/bin/ls", Path("/")) is None
    assert interpreter_of(("no-such-program",), Path("/"), {"PATH": ""}) == Interpreter()


def test_provenance_describes_the_runs_python(tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "read_driver", Driver)
    ours = provenance.gather(tmp_path, [])
    theirs = provenance.gather(tmp_path, [], program=(str(other / "python"), "train.py"))
    unknown = provenance.gather(tmp_path, [], program=("/bin/ls",))
    assert (ours.python, ours.packages) == (OURS.python, OURS.packages)
    assert theirs.packages == {"torch": "9.9.9"}
    assert (unknown.python, unknown.packages) == ("", {})
    assert len({ours.fingerprint, theirs.fingerprint, unknown.fingerprint}) == 3


def test_users_folder_cannot_take_part_in_the_answer(tmp_path: Path, other: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not the real one')\n")
    assert interpreter_of((str(other / "python"),), tmp_path, os.environ).packages == {"torch": "9.9.9"}


def test_cuda_of_torch_is_read_and_torch_is_not_imported(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "version.py").write_text("__version__ = '2.9.0'\ncuda: Optional[str] = '13.0'\n")
    _install_torch(tmp_path, "2.9.0")
    found = interpreter_of((sys.executable,), Path("/"), {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (found.packages["torch"], found.torch_cuda) == ("2.9.0", "13.0")
    (package / "version.py").unlink()
    interpreter._asked.cache_clear()
    assert interpreter_of((sys.executable,), Path("/"), {**os.environ, "PYTHONPATH": str(tmp_path)}).torch_cuda == ""


def test_our_own_torch_is_asked_by_its_file() -> None:
    torch = pytest.importorskip("torch.version")
    assert OURS.torch_cuda == (torch.cuda or "")
