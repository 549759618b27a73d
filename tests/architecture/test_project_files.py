"""The project files agree with each other: Makefile, CI, pre-commit, version, changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import seatrial

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Not in `.ci/run`: their duration is chosen, and they search for new problems.
NOT_IN_CI = {"fuzz", "bench", "mutate"}


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, flags=re.MULTILINE))


def test_every_target_is_phony_and_there() -> None:
    (line,) = (line for line in MAKEFILE.splitlines() if line.startswith(".PHONY:"))
    assert set(line.split()[1:]) == targets()


def test_ci_runs_style_types_and_every_lane() -> None:
    run = set(re.findall(r"^(?:CI=1 )?lane ([a-z-]+)(?: &)?$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE))
    lanes = {target for target in targets() if target.split("-")[0] == "test"}
    assert run == {"lint", "type"} | lanes
    assert not run & NOT_IN_CI


def test_no_test_is_in_no_lane() -> None:
    """What `make test` leaves out by its marker is run by the lane of that name, or needs a GPU."""
    (expression,) = re.findall(r'-m "(not gpu[^"]*)" tests$', MAKEFILE, flags=re.MULTILINE)
    left_out = set(re.findall(r"not (\w+)", expression)) - {"gpu"}
    assert left_out == set(re.findall(r"pytest .*-m (\w+) tests/", MAKEFILE))


def test_a_folder_that_is_not_collected_has_only_tests_of_its_lane() -> None:
    (folders,) = re.findall(r"^OTHER_LANES := (.*)$", MAKEFILE, flags=re.MULTILINE)
    for folder in folders.split():
        conftest = ROOT / "tests" / folder / "conftest.py"
        if conftest.exists() and f"item.add_marker(pytest.mark.{folder})" in conftest.read_text():
            continue
        for module in (ROOT / "tests" / folder).rglob("test_*.py"):
            assert re.search(rf"^pytestmark = .*\bpytest\.mark\.{folder}\b", module.read_text(), flags=re.MULTILINE), module


def test_markers_are_explained() -> None:
    markers = {line.partition(":")[0] for line in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    assert set(re.findall(r"not (\w+)", MAKEFILE)) <= markers


def test_the_version_is_one() -> None:
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert seatrial.__version__ == PROJECT["project"]["version"] == newest


def test_hooks_are_local_and_start_what_the_virtual_environment_has() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    installed = {re.split(r"[\[>=<;]", line)[0].strip() for line in PROJECT["project"]["optional-dependencies"]["dev"]} | {"python"}
    for hook in repos[0]["hooks"]:
        program, *words = hook["entry"].split()
        assert Path(program).parent == Path(".venv/bin")
        assert Path(program).name in installed
        assert all((ROOT / word).exists() for word in words if word.endswith(".py"))


def test_every_pin_is_of_one_version_and_every_requirement_is_pinned() -> None:
    pins = [line.split(";")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s]+", pin) for pin in pins)
    pinned = {re.sub(r"[-_.]+", "-", pin.partition("==")[0]).lower() for pin in pins}
    wanted = [
        *PROJECT["project"]["dependencies"],
        *(line for extra in PROJECT["project"]["optional-dependencies"].values() for line in extra),
    ]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[>=<; ]", line)[0]).lower() for line in wanted} - {"seatrial"}
    assert names - pinned == set()
