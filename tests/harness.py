"""A real `seatrial` process in a folder of its own: what the end-to-end lanes share."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from seatrial.paths import CampaignPaths

PATIENCE_S = 120.0


# As in an activated environment: `python` and `torchrun` in a swept command are this one's.
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


class Harness:
    """Runs the command line in `folder`, and reads what it left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # What a bad disk does not take goes here, and not where another test looks.
        self.fallback = folder / "fallback"
        self.out = CampaignPaths(folder / "out")
        self._started: list[subprocess.Popen[str]] = []

    def plan(self, text: str, name: str = "plan.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, *words: str, code: int | None = 0, env: dict[str, str] | None = None) -> str:
        """Run to the end; stdout and stderr together. `code` None accepts any."""
        done = subprocess.run(
            [sys.executable, "-m", "seatrial", *words],
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

    def start(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "seatrial", *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**ENVIRONMENT, "SEATRIAL_FALLBACK_DIR": str(self.fallback), **(env or {})},
        )
        self._started.append(process)
        return process

    def manifest(self) -> list[dict[str, str]]:
        with open(self.out.manifest, newline="") as table:
            return list(csv.DictReader(table, delimiter="\t"))

    def table(self, path: Path) -> list[dict[str, str]]:
        with open(path, newline="") as table:
            return list(csv.DictReader(table, delimiter="\t" if path.suffix == ".tsv" else ","))

    def verdict(self) -> str:
        return str(json.loads(self.out.verdict.read_text())["verdict"])

    def left_behind(self) -> list[psutil.Process]:
        """Processes that carry this folder's mark in their environment."""
        mine = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("SEATRIAL_RUN_DIR", "").startswith(str(self.folder)):
                    mine.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return mine

    def children_of_ours(self) -> list[psutil.Process]:
        """Processes below this one that run a module of the harness; by its name, as a checkout's folder may be called the same."""
        below = psutil.Process().children(recursive=True)
        return [child for child in below if any(word.partition(".")[0] == "seatrial" for word in child.cmdline())]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def wait_until(happened: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Poll until `happened()` is true; say `what` did not happen when patience ends."""
    end_m = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < end_m, f"did not happen within {patience_s:.0f} s: {what}"
        time.sleep(0.05)
