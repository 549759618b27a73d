"""The two shell scripts: which Python they find, what they say when there is none, and that nothing stands between them and the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "runbooks" / "stage1" / "scripts"
DRIVER, PHASEB = SCRIPTS / "run_stage1_ab_bench.sh", SCRIPTS / "run_phaseb_4090_stability.sh"
LONGEST_S = 60
# Tells who it is and what it was started with; says yes where it is asked for an import.
PYTHON = """#!/usr/bin/env bash
[[ ${2:-} == -c ]] && exit "${CANNOT_IMPORT:-0}"
printf '%s|' "$0" "$$" "$@"
"""
# Knows the environment `training`, whose folder is beside it.
CONDA = """#!/usr/bin/env bash
[[ $1 == run && $3 == training ]] || { echo "EnvironmentLocationNotFound: Not a conda environment: $3" >&2; exit 1; }
shift 3
PATH="$ENV_BIN:$PATH" CONDA_PREFIX=training FROM_CONDA="two
lines 'quoted'" exec "$@"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with programs of our own, in a path that needs quotes."""
    folder = tmp_path / "my programs"
    (folder / "env").mkdir(parents=True)
    for name, text in (("python", PYTHON), ("conda", CONDA), ("env/python", PYTHON)):
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    return folder


def started(script: Path, *words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CONDA", "SEATRIAL_"))}
    command = ["bash", "-eu", str(script), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**kept, **environ}, timeout=LONGEST_S)


@pytest.mark.parametrize(("script", "module"), [(DRIVER, "driver"), (PHASEB, "phaseb")])
def test_the_driver_takes_the_place_of_the_script(script: Path, module: str, programs: Path) -> None:
    environment = {**os.environ, "SEATRIAL_PYTHON": str(programs / "python")}
    process = subprocess.Popen([str(script), "--dry-run", "a b"], stdout=subprocess.PIPE, text=True, cwd=programs, env=environment)
    name, pid, *words = process.communicate(timeout=LONGEST_S)[0].split("|")
    assert (name, int(pid)) == (str(programs / "python"), process.pid)
    assert words[:-1] == ["-P", "-m", f"seatrial_runbooks.stage1.{module}", "--runbook", str(SCRIPTS.parent), "--dry-run", "a b"]


def test_a_link_to_the_scripts_finds_the_runbook(programs: Path) -> None:
    (programs / "scripts").symlink_to(SCRIPTS)
    done = started(programs / "scripts" / DRIVER.name, cwd=programs, SEATRIAL_PYTHON=str(programs / "python"))
    assert f"--runbook|{SCRIPTS.parent}|" in done.stdout


def test_the_environments_variables_and_python_are_taken_over(programs: Path) -> None:
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "ENV_BIN": str(programs / "env"), "CONDA_ENV": "training"}
    (programs / "env" / "python").write_text(PYTHON + 'printf \'%s|\' "$CONDA_PREFIX" "$FROM_CONDA"\n')
    done = started(DRIVER, cwd=programs, **environ)
    assert done.stdout.startswith(f"{programs / 'env' / 'python'}|")
    assert done.stdout.endswith("|training|two\nlines 'quoted'|")


def test_conda_that_is_only_in_conda_exe_is_found(programs: Path) -> None:
    environ = {"CONDA_EXE": str(programs / "conda"), "ENV_BIN": str(programs / "env"), "CONDA_ENV": "training"}
    assert started(DRIVER, cwd=programs, **environ).stdout.startswith(f"{programs / 'env' / 'python'}|")


def test_an_environment_that_is_not_there_is_told(programs: Path) -> None:
    done = started(DRIVER, cwd=programs, CONDA_EXE=str(programs / "conda"), CONDA_ENV="csref_2")
    assert done.returncode == 1
    assert done.stderr.startswith("[ERROR] CONDA_ENV is csref_2, and conda cannot use such an environment (EnvironmentLocationNotFound: ")
    assert "`conda env list` shows those there are" in done.stderr


def test_no_conda_is_told(programs: Path) -> None:
    path = ":".join(folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "conda").exists())
    done = started(DRIVER, cwd=programs, PATH=path, CONDA_ENV="csref_2")
    assert (done.returncode, done.stderr) == (
        1,
        "[ERROR] CONDA_ENV is csref_2, and there is no conda on PATH nor in CONDA_EXE: activate conda, or leave CONDA_ENV out\n",
    )


def test_a_python_without_seatrial_is_told_how_to_get_it(programs: Path) -> None:
    done = started(DRIVER, cwd=programs, SEATRIAL_PYTHON=str(programs / "python"), CANNOT_IMPORT="1")
    assert done.returncode == 1
    assert f"{programs / 'python'} cannot import seatrial_runbooks: {programs / 'python'} -m pip install -e '" in done.stderr
    assert done.stderr.endswith("[stage1]'\n")


def test_a_python_that_is_not_there_is_told(programs: Path) -> None:
    done = started(DRIVER, cwd=programs, SEATRIAL_PYTHON="/nowhere/python")
    assert (done.returncode, "SEATRIAL_PYTHON is /nowhere/python, and no such program can be started" in done.stderr) == (1, True)


def test_the_real_thing_answers_from_any_folder(tmp_path: Path) -> None:
    done = started(DRIVER, cwd=tmp_path, SEATRIAL_PYTHON=sys.executable, SWEEP_MICRO_BATCH="160")
    assert (done.returncode, done.stderr) == (
        1,
        "[ERROR] SWEEP_MICRO_BATCH is no variable of this driver: did you mean SWEEP_MICRO_BATCHES?\n",
    )


@pytest.mark.parametrize("script", [DRIVER, PHASEB])
def test_they_can_be_executed(script: Path) -> None:
    assert os.access(script, os.X_OK)


def test_what_activation_prints_is_no_variable(programs: Path) -> None:
    noisy = programs / "conda"
    noisy.write_text(noisy.read_text().replace("#!/usr/bin/env bash\n", "#!/usr/bin/env bash\necho 'Loading module cuda/12'\n", 1))
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "ENV_BIN": str(programs / "env"), "CONDA_ENV": "training"}
    done = started(DRIVER, cwd=programs, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{programs / 'env' / 'python'}|")
