"""A real `seatrial` process in its own folder."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import psutil
import pytest

from seatrial.cli.main import run_command
from seatrial.core.paths import CampaignPaths
from tests.csv_files import rows_of
from tests.processes import carrying

# As in an activated environment: `python` and `torchrun` in a swept command are those of this one.
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def skip_without(*packages: str) -> None:
    """Skip where one of them is not installed. It is not imported for that: only other processes need it, and it takes seconds."""
    for name in packages:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)


LIGHT_DEEPSPEED = Path(__file__).parent / "light_deepspeed"
"""For the PYTHONPATH of DeepSpeed."""


class Harness:
    """Runs the command line in `folder`, and reads its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Not the default folder, which other tests use too.
        self.fallback = folder / "fallback"
        self.out = CampaignPaths(folder / "out")
        self.started: list[subprocess.Popen[str]] = []

    def plan(self, text: str, name: str = "plan.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def call(self, *argv: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        """As `run`, in this process: for verbs that only read a campaign or refuse one, which a process of their own would keep waiting for
        its imports."""
        output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        environment = {**ENVIRONMENT, "SEATRIAL_FALLBACK_DIR": str(self.fallback), **(env or {})}
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            found = run_command(argv)
        output.seek(0)
        text = output.read()
        assert found == code, f"exit code {found}, expected {code}:\n{text}"
        return text

    def run(self, *argv: str, code: int | None = 0, env: dict[str, str] | None = None) -> str:
        """Run to the end; stdout and stderr together. `code` None accepts any."""
        done = subprocess.run(
            [sys.executable, "-m", "seatrial", *argv],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
            env={**ENVIRONMENT, "SEATRIAL_FALLBACK_DIR": str(self.fallback), **(env or {})},
        )
        assert code is None or done.returncode == code, f"exit code {done.returncode}, expected {code}:\n{done.stdout}"
        return done.stdout

    def start(self, *argv: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "seatrial", *argv],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**ENVIRONMENT, "SEATRIAL_FALLBACK_DIR": str(self.fallback), **(env or {})},
        )
        self.started.append(process)
        return process

    def manifest(self) -> list[dict[str, str]]:
        return rows_of(self.out.manifest)

    def verdict(self) -> str:
        return str(json.loads(self.out.verdict.read_text())["verdict"])

    def left_behind(self) -> list[psutil.Process]:
        """Processes of campaigns in this folder."""
        return carrying("SEATRIAL_RUN_DIR", self.folder)

    def children_of_ours(self) -> list[psutil.Process]:
        """Descendants of this process that run a module of the harness; a checkout's folder may have the same name, so by module name."""
        descendants = psutil.Process().children(recursive=True)
        return [child for child in descendants if any(word.partition(".")[0] == "seatrial" for word in child.cmdline())]

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
