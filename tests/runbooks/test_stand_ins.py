"""The stub of conda does what the procedures need, and refuses the rest."""

from __future__ import annotations

import subprocess

import pytest

from tests.runbooks.working_folder import STAND_INS


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{STAND_INS}:/usr/bin:/bin", "STAND_IN_CONDA_ENVS": "csref_2 other"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=20)


@pytest.mark.parametrize("options", [["-n", "csref_2"], ["--no-capture-output", "-n", "other"], ["--name=csref_2"]])
def test_conda_runs_a_command_in_an_environment_it_knows(options: list[str]) -> None:
    done = run("conda", "run", *options, "bash", "-c", "echo $0 $1; exit 3", "a b", "c")
    assert (done.stdout, done.returncode) == ("a b c\n", 3)


@pytest.mark.parametrize(
    ("argv", "code", "error"),
    [
        (["run", "-n", "nowhere", "true"], 1, "EnvironmentLocationNotFound: Not a conda environment: nowhere"),
        (["run", "true"], 1, "EnvironmentLocationNotFound"),
        (["run", "-n", "csref_2"], 2, "executable_call"),
        (["run", "--odd", "-n", "csref_2", "true"], 2, "unrecognized arguments: --odd"),
        (["activate", "csref_2"], 2, "invalid choice: 'activate'"),
    ],
)
def test_conda_refuses_the_rest(argv: list[str], code: int, error: str) -> None:
    done = run("conda", *argv)
    assert done.returncode == code
    assert error in done.stderr
