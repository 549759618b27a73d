"""What the package `seatrial` offers to programs, which is little: its version. The probe has a list of its own."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import metadata

import seatrial


def test_the_version_is_all() -> None:
    assert seatrial.__all__ == ["__version__"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", seatrial.__version__)


def test_it_says_so_itself() -> None:
    text = " ".join((inspect.getdoc(seatrial) or "").split())
    assert "there is no public Python API" in text
    assert "`seatrial.probe`" in text and "the command `seatrial`" in text


def test_importing_it_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import seatrial; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['seatrial']"


def test_the_version_is_the_packages() -> None:
    assert metadata.version("seatrial") == seatrial.__version__


def test_the_commands_are_the_programs() -> None:
    ours = {point.name: point.value for point in metadata.entry_points(group="console_scripts") if point.value.startswith("seatrial")}
    assert ours == {"seatrial": "seatrial.cli.main:main"}
