"""The lock files of the core set: one for each Python, every package pinned as in constraints.txt and hashed, no registry named.

That they install is shown by `make test-pythons`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = ("311", "312", "313")
LINE = re.compile(r"(?P<name>[a-z0-9._-]+)==(?P<version>[\w.+]+) --hash=sha256:[0-9a-f]{64}")
STORED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition(";")[0].strip().split("==") for line in lines if "==" in line.partition("#")[0].partition(";")[0]]
    return {normal(name): version for name, version in pins}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_package_of_the_core_set_is_locked(version: str) -> None:
    text = (ROOT / "requirements" / f"linux-x86_64-py{version}.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found) and "://" not in text, "a line is not NAME==VERSION --hash=sha256:…: run requirements/lock.py"
    locked = {normal(one["name"]): one["version"] for one in found if one}
    pins = pinned()
    assert {name: locked[name] for name in locked if name in pins} == {name: pins[name] for name in locked if name in pins}
    extras = STORED["project"]["optional-dependencies"]
    required = [*STORED["build-system"]["requires"], *STORED["project"]["dependencies"], *extras["charts"], *extras["web"]]
    names = {normal(re.split(r"[<>=;\[ ]", one, maxsplit=1)[0]) for one in required}
    assert names <= set(locked), "pyproject.toml requires more than is locked: run requirements/lock.py with every Python"


def test_there_is_one_for_every_python_that_is_claimed() -> None:
    claimed = [line.rpartition(" ")[2].replace(".", "") for line in STORED["project"]["classifiers"] if re.search(r"3\.\d+$", line)]
    assert tuple(claimed) == VERSIONS
