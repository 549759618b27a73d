"""What a validation ran on. In: this machine and checkout. Out: artifacts/git_sha.txt, collect_env.txt, nvidia_smi.xml.

    python scripts/snapshot.py --out artifacts

The folder is created. Where a fact is unavailable (no checkout, no GPU) the file states it, and the command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.sax.saxutils import quoteattr

from seatrial.core.errors import DONE, WRONG_USE, SeatrialError, printable
from seatrial.core.files import write_text
from seatrial.core.shell import command_output, find_program
from seatrial_runbooks.command_line import StrictParser, write_to

NAME = "snapshot.py"
GIT_SHA, COLLECT_ENV, NVIDIA_SMI = "git_sha.txt", "collect_env.txt", "nvidia_smi.xml"
TIMEOUT_S = 120.0
EXAMPLES = """examples:
  python scripts/snapshot.py
  python scripts/snapshot.py --out outputs/sparse-lm/artifacts"""


def take_snapshot(folder: Path) -> list[Path]:
    """Write the three files; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {GIT_SHA: git_sha(), COLLECT_ENV: collected_environment(), NVIDIA_SMI: nvidia_smi()}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def git_sha() -> str:
    """The commit of the current checkout; for an installation its version."""
    sha = _output(["git", "rev-parse", "HEAD"])
    if sha is None:
        return f"unknown: not a git checkout; seatrial {_version()}\n"
    changed = _output(["git", "status", "--porcelain", "--untracked-files=no"])
    return f"{sha.strip()}{' (with changes)' if changed and changed.strip() else ''}\n"


def collected_environment() -> str:
    text = _output([sys.executable, "-m", "torch.utils.collect_env"])
    return text if text is not None else f"unknown: torch.utils.collect_env failed in {sys.executable}\n"


def nvidia_smi() -> str:
    """The driver's XML; without a GPU an element with the reason."""
    if find_program("nvidia-smi") is None:
        return f"<nvidia_smi_log unavailable={quoteattr('nvidia-smi is not installed')}/>\n"
    text = _output(["nvidia-smi", "-q", "-x"])
    return text if text is not None else f"<nvidia_smi_log unavailable={quoteattr('nvidia-smi failed: no driver, or no GPU')}/>\n"


def _output(argv: Sequence[str]) -> str | None:
    return command_output(list(argv), timeout_s=TIMEOUT_S)


def _version() -> str:
    try:
        return version("seatrial")
    except PackageNotFoundError:
        return "of an unknown version"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files and name them; the exit code."""
    options = StrictParser("Record what a validation runs on.", EXAMPLES)
    options.add_argument("--out", type=Path, default=Path("artifacts"), metavar="DIR", help="Where to write (default %(default)s).")
    try:
        written = take_snapshot(options.parse(argv).out)
    except (SeatrialError, OSError) as error:
        write_to(f"{NAME}: {printable(str(error))}\n", sys.stderr)
        return WRONG_USE
    write_to("".join(f"wrote {path}\n" for path in written), sys.stdout)
    return DONE


if __name__ == "__main__":
    sys.exit(main())
