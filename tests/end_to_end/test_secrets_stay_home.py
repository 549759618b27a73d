"""Secrets in the plan, the arguments, URLs and the caller's environment: none is in a file that others can read.

Forty are planted. Every byte of the folder is searched, with the page and what was sent to a tracker, and the terminal.
"""

from __future__ import annotations

import base64
import shutil
import stat
from pathlib import Path

from tests.end_to_end.conftest import SCRIPTS
from tests.harness import Harness

# Invented, in no format that a secret scanner would recognise; each once, with a number.
NAMES_OF_THE_CALLER = (
    "HF_TOKEN", "WANDB_API_KEY", "NCCL_AUTH_TOKEN", "MY_PW", "DB_PW", "SSHPASS", "PGPASS", "BINDPW", "DOCKER_AUTH_CONFIG", "GITLAB_SESSION",
    "COOKIE_JAR", "COOKIE", "AWS_SECRET_ACCESS_KEY", "GH_PAT", "SMTP_PASS", "OPENAI_API_KEY", "RSYNC_PASSWORD", "NVIDIA_API_KEY",
)  # fmt: skip
OF_THE_CALLER = {name: f"caller-hunter-{number:04}" for number, name in enumerate(NAMES_OF_THE_CALLER)}
# The last one looks like nothing, and is not in the list of variables that are recorded.
NAMES_OF_THE_PLAN = (
    "DB_PASSWORD", "LDAP_PW", "MAILPASS", "APP_SESSION", "COOKIES", "REGISTRY_AUTH_CONFIG", "SERVICE_JWT", "STORAGE_KEY", "CI_JOB_TOKEN",
    "SALT",
)  # fmt: skip
OF_THE_PLAN = {name: f"plan-hunter-{number:04}" for number, name in enumerate(NAMES_OF_THE_PLAN)}
IN_URL = {"TRACKING_URI": "postgresql://me:plan-hunter-0100@host/db", "PROXY": "http://me:plan-hunter-0101@host:3128"}
BASIC = base64.b64encode(b"me:args-hunter-0003").decode()
ARGUMENTS = [
    *("--api-key", "args-hunter-0001"),
    "--url=https://me:args-hunter-0002@host/x?token=args-hunter-0004&page=1",
    *("--header", f"Authorization: Basic {BASIC}"),
    *("--header", "Cookie: sid=args-hunter-0005; theme=args-hunter-0006"),
    *("-p", "args-hunter-0007"),
    "--db=Server=x;Password=args-hunter-0008;Database=y",
    "--client-secret=args-hunter-0009",
    *("--user", "me:args-hunter-0010"),
]
SECRETS = (*OF_THE_CALLER.values(), *OF_THE_PLAN.values(), *IN_URL, *(f"args-hunter-{number:04}" for number in range(1, 11)))
KINDS = ("caller-hunter-", "args-hunter-", "plan-hunter-")
SWEPT = ["-P", "n=1", "--out", "out", "--", "python", "leaky_train.py", "--password=args-hunter-0011", "--n", "{n}"]
# These need the secrets to run again, so only their owner may read them.
PRIVATE = {"agent.json", "command.sh"}
# What the user's own script printed.
PRINTED = {"launcher.log"}


def plan_text() -> str:
    variables = "".join(f'    {name}: "{value}"\n' for name, value in {**OF_THE_PLAN, **IN_URL, "EPOCHS": "3", "FLAVOUR": "mint"}.items())
    arguments = "".join(f'    - "{argument}"\n' for argument in ["fail={fail}", "--flavour={flavour}", *ARGUMENTS])
    return (
        f"name: leaky\nworkload:\n  script: leaky_train.py\n  args:\n{arguments}  env:\n{variables}"
        "launcher: python\nplace: {kind: local, ranks: 1}\naxes:\n  fail: [0, 1]\n  flavour: [mint]\noutput: out\n"
    )


def holders(out: Path) -> dict[str, set[str]]:
    """File name → secrets found in it, over every byte of everything in the folder."""
    found: dict[str, set[str]] = {}
    for path in out.rglob("*"):
        if path.is_file():
            text = path.read_bytes().decode("utf-8", errors="replace").replace("'", " ").replace('"', " ")
            for kind in KINDS:
                for piece in text.split(kind)[1:]:
                    found.setdefault(path.name, set()).add(kind + piece[:4])
            if BASIC in text:
                found.setdefault(path.name, set()).add(BASIC)
    return found


def test_only_what_its_owner_alone_can_read_holds_a_secret(harness: Harness) -> None:
    assert len(set(SECRETS)) == 40
    shutil.copy(SCRIPTS / "leaky_train.py", harness.folder)
    plan = str(harness.plan(plan_text()))
    text = harness.run("plan", "show", plan, env=OF_THE_CALLER)
    text += harness.run("run", plan, "--track", "tensorboard", code=2, env=OF_THE_CALLER)
    assert list(harness.out.tensorboard.rglob("events.out.*")), "a tracker was sent the runs"
    found = holders(harness.out.folder)
    assert set(found) == PRIVATE | PRINTED
    for name in PRIVATE:
        assert not any(secret.startswith("caller-") for secret in found[name]), "the caller's variables are inherited, not written"
    for path in harness.out.folder.rglob("*"):
        if path.name in PRIVATE:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert "hunter-" not in text and BASIC not in text, "terminal output is pasted into messages"
    summary = harness.out.summary_md.read_text()
    assert "401 for *** and ***" in summary, "the failure is still reported"
    harness.run("report", str(harness.out.folder), code=2, env={"HF_TOKEN": ""})
    assert set(holders(harness.out.folder)) == PRIVATE | PRINTED
    # What can be no secret is recorded: a count, and a value that is a setting too.
    spec = harness.out.runs()[0].attempts()[0].spec.read_text()
    assert '"EPOCHS": "3"' in spec and '"FLAVOUR": "mint"' in spec and '"SALT": "***"' in spec
    # The run's identity has the values themselves: nothing is run again, and a changed one is.
    assert "finished, would not be run again" in harness.run("plan", "show", plan, env=OF_THE_CALLER)
    changed = str(harness.plan(plan_text().replace(OF_THE_PLAN["SALT"], "plan-hunter-9999")))
    assert "finished, would not be run again" not in harness.run("plan", "show", changed, env=OF_THE_CALLER)


def test_command_of_a_sweep_is_kept_without_its_password(harness: Harness) -> None:
    shutil.copy(SCRIPTS / "leaky_train.py", harness.folder)
    harness.run("sweep", *SWEPT, env=OF_THE_CALLER)
    assert set(holders(harness.out.folder)) == PRIVATE | PRINTED
    assert "--password=***" in harness.out.plan.read_text()
