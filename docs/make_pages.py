"""Write the pages that are generated from the code: docs/cli.md from every verb's --help, docs/plan.md from the plan's schema,
docs/doctor.md from the checks, docs/reliability.md from the fault table, docs/troubleshooting.md and that of each runbook from the failure
signatures.

python docs/make_pages.py            write them
python docs/make_pages.py --check    exit 1 and name each stale page
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# docs/ and tests/, where the fault table is.
sys.path.insert(0, str(ROOT))

from docs.doctor_page import doctor_page  # noqa: E402
from docs.troubleshooting_page import troubleshooting_page  # noqa: E402
from tests.faults.page import markdown as fault_table  # noqa: E402

from seatrial.cli.main import VERBS  # noqa: E402
from seatrial.plan.reference import markdown as plan_reference  # noqa: E402
from seatrial.records.signatures.registry import STAGE1  # noqa: E402

PARTS = {"plan": ("show", "fit", "schema", "criteria"), "history": ("add", "list", "pin", "unpin")}
# Fixed, so that the page does not depend on the caller's terminal.
HELP_ENVIRONMENT = {"COLUMNS": "110", "TERMINAL_WIDTH": "110", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}


def help_text(*verb: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("FORCE_COLOR", "GITHUB_", "PY_COLORS"))}
    command = [sys.executable, "-m", "seatrial", *verb, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env | HELP_ENVIRONMENT)
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def cli_reference() -> str:
    parts = [
        "# The command line\n",
        "Every verb and option, for looking up. Generated from `--help` by `make docs`.\n",
        f"```text\n{help_text()}\n```\n",
    ]
    for verb in VERBS:
        parts.append(f"## seatrial {verb}\n")
        for parts_of_verb in [(verb, part) for part in PARTS.get(verb, ())] or [(verb,)]:
            parts.append(f"```text\n{help_text(*parts_of_verb)}\n```\n")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Path from the repository's root → its text."""
    return {
        "docs/cli.md": cli_reference(),
        "docs/plan.md": plan_reference(),
        "docs/doctor.md": doctor_page(),
        "docs/reliability.md": fault_table(),
        "docs/troubleshooting.md": troubleshooting_page(),
        "runbooks/stage1/docs/troubleshooting.md": troubleshooting_page(STAGE1),
    }


def main() -> int:
    stale = {name: text for name, text in pages().items() if not (ROOT / name).exists() or (ROOT / name).read_text() != text}
    if "--check" in sys.argv:
        for name in stale:
            print(f"{name} is stale: run `make docs`")
        return 1 if stale else 0
    for name, text in stale.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
