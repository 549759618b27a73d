"""The stub of NVML for tests: built with the system's C compiler, found by the real binding through LD_LIBRARY_PATH."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("nvml.c")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) to build the stub of NVML with")


@functools.cache
def built(*, old_driver: bool = False) -> Path:
    """The folder that holds the library."""
    folder = Path(tempfile.mkdtemp(prefix="nvml-stub-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "libnvidia-ml.so.1"
    flags = ["-DOLD_DRIVER"] if old_driver else []
    subprocess.run(["cc", "-shared", "-fPIC", "-pthread", *flags, "-o", str(library), str(SOURCE)], check=True)
    return folder


def environment(answers: Path, *, old_driver: bool = False) -> dict[str, str]:
    """This process's environment with the stub in it."""
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**inherited, "LD_LIBRARY_PATH": str(built(old_driver=old_driver)), "NVML_STUB": str(answers)}


def told_by(script: str, answers: Path, *, old_driver: bool = False) -> Any:
    """The JSON output of a script that runs against the stub and may call `answer(...)`."""
    code = f"import sys; from pathlib import Path; from tests.stubs.answers import answer; ANSWERS = Path({str(answers)!r})\n{script}"
    env = environment(answers, old_driver=old_driver)
    root = str(SOURCE.parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
