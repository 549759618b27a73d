"""Write the lock file of the running Python: every package that a plain install and its page need, pinned, with the hash of its file.

    for version in 3.11 3.12 3.13; do python$version requirements/lock.py; done

In: the dependencies in pyproject.toml with the extras below, and the versions in constraints.txt. Out: `linux-x86_64-py312.txt` and the
like beside this script, for

    pip install --require-hashes -r requirements/linux-x86_64-py312.txt
    pip install --no-deps --no-build-isolation .

The hashes are of the files that pip would install here, so that each platform has a file of its own. torch is not among them: which build
one installs depends on the machine's CUDA. Standard library and pip only.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = ("charts", "web")
HEAD = """\
# {python} on {system}, for `pip install --require-hashes -r {file}`.
# Written by requirements/lock.py: change pyproject.toml or constraints.txt and run it again.
"""


def wanted() -> list[str]:
    """What pyproject.toml requires, to build it too."""
    stored = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = stored["project"]["optional-dependencies"]
    return [*stored["build-system"]["requires"], *stored["project"]["dependencies"], *(one for name in EXTRAS for one in extras[name])]


def resolved(requirements: list[str]) -> list[dict[str, Any]]:
    """pip's report of what it would install."""
    argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:"]
    argv += ["--report", "-", "--constraint", str(ROOT / "constraints.txt"), *requirements]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
    installed: list[dict[str, Any]] = json.loads(done.stdout)["install"]
    return installed


def lock_file(version: tuple[int, int] = sys.version_info[:2]) -> Path:
    """The lock file of a Python on this platform."""
    return Path(__file__).with_name(f"{platform.system().lower()}-{platform.machine()}-py{version[0]}{version[1]}.txt")


def _locked(metadata: dict[str, str], sha256: str) -> str:
    return f"{metadata['name'].lower()}=={metadata['version']} --hash=sha256:{sha256}"


def main() -> None:
    target = lock_file()
    lines = [_locked(one["metadata"], one["download_info"]["archive_info"]["hashes"]["sha256"]) for one in resolved(wanted())]
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    head = HEAD.format(python=python, system=target.stem.rpartition("-py")[0], file=target.name)
    target.write_text(head + "".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
    sys.stdout.write(f"wrote {target.relative_to(ROOT)}: {len(lines)} packages\n")


if __name__ == "__main__":
    main()
