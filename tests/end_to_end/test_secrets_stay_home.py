"""Secrets in the plan, the arguments, URLs and the caller's environment: none is in a file that others can read."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from tests.end_to_end.conftest import SCRIPTS
from tests.harness import Harness

# Invented, in no format that a secret scanner would recognise.
OF_THE_CALLER = {"HF_TOKEN": "caller-hunter-0001", "WANDB_API_KEY": "caller-hunter-0002", "NCCL_AUTH_TOKEN": "caller-hunter-0003"}
PLAN = """
name: leaky
workload:
  script: leaky_train.py
  args: ["fail={fail}", "--api-key", "args-hunter-0004", "--url=https://me:args-hunter-0005@host/x?token=args-hunter-0006&page=1"]
  env: {DB_PASSWORD: plan-hunter-0007, TRACKING_URI: "postgresql://me:plan-hunter-0008@host/db"}
launcher: python
place: {kind: local, ranks: 1}
axes:
  fail: [0, 1]
output: out
"""
SWEPT = ["-P", "n=1", "--out", "out", "--", "python", "leaky_train.py", "--password=args-hunter-0009", "--n", "{n}"]
# These need the secrets to run again, so only their owner may read them.
PRIVATE = {"agent.json", "command.sh"}
# What the user's own script printed.
PRINTED = {"launcher.log"}


def holders(out: Path) -> dict[str, set[str]]:
    """File name → secrets found in it, over everything in the folder."""
    found: dict[str, set[str]] = {}
    for path in out.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace").replace("'", " ").replace('"', " ")
            for kind in ("caller-hunter-", "args-hunter-", "plan-hunter-"):
                for piece in text.split(kind)[1:]:
                    found.setdefault(path.name, set()).add(kind + piece[:4])
    return found


def test_only_what_its_owner_alone_can_read_holds_a_secret(harness: Harness) -> None:
    shutil.copy(SCRIPTS / "leaky_train.py", harness.folder)
    text = harness.run("run", str(harness.plan(PLAN)), code=2, env=OF_THE_CALLER)
    found = holders(harness.out.folder)
    assert set(found) == PRIVATE | PRINTED
    for name in PRIVATE:
        assert not any(secret.startswith("caller-") for secret in found[name]), "the caller's variables are inherited, not written"
    for path in harness.out.folder.rglob("*"):
        if path.name in PRIVATE:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert "hunter-" not in text, "terminal output is pasted into messages"
    summary = harness.out.summary_md.read_text()
    assert "401 for *** and ***" in summary, "the failure is still reported"
    harness.run("report", str(harness.out.folder), code=2, env={"HF_TOKEN": ""})
    assert set(holders(harness.out.folder)) == PRIVATE | PRINTED


def test_command_of_a_sweep_is_kept_without_its_password(harness: Harness) -> None:
    shutil.copy(SCRIPTS / "leaky_train.py", harness.folder)
    harness.run("sweep", *SWEPT, env=OF_THE_CALLER)
    assert set(holders(harness.out.folder)) == PRIVATE | PRINTED
    assert "--password=***" in harness.out.plan.read_text()
