"""The programs that stand in for conda and ssh: they do what the procedures need of them, and refuse the rest."""

from __future__ import annotations

import subprocess

import pytest

from tests.runbooks.workplace import STAND_INS


def run(*words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{STAND_INS}:/usr/bin:/bin", "STAND_IN_CONDA_ENVS": "csref_2 other"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=20)


@pytest.mark.parametrize("options", [["-n", "csref_2"], ["--no-capture-output", "-n", "other"], ["--name=csref_2"]])
def test_conda_runs_a_command_in_an_environment_it_knows(options: list[str]) -> None:
    done = run("conda", "run", *options, "bash", "-c", "echo $0 $1; exit 3", "a b", "c")
    assert (done.stdout, done.returncode) == ("a b c\n", 3)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "-n", "nowhere", "true"], 1, "EnvironmentLocationNotFound: Not a conda environment: nowhere"),
        (["run", "true"], 1, "EnvironmentLocationNotFound"),
        (["run", "-n", "csref_2"], 2, "executable_call"),
        (["run", "--odd", "-n", "csref_2", "true"], 2, "unrecognized arguments: --odd"),
        (["activate", "csref_2"], 2, "invalid choice: 'activate'"),
    ],
)
def test_conda_refuses_the_rest(words: list[str], code: int, said: str) -> None:
    done = run("conda", *words)
    assert done.returncode == code
    assert said in done.stderr


def test_ssh_reaches_this_machine_alone() -> None:
    assert run("ssh", "-o", "PasswordAuthentication=no", "localhost", "echo", "here").stdout == "here\n"
    assert run("ssh", "localhost", "hostname", "-I").stdout == "127.0.0.1\n"
    assert run("ssh", "elsewhere", "true").returncode == 255
