"""Whether this host can open a session on another by ssh, or on itself, as launchers do: no password, no question about a key."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

from seatrial.options.ssh import CONNECT_S, ssh_words

LIMIT_S = CONNECT_S + 2.0


def ssh(question: Mapping[str, Any]) -> dict[str, Any]:
    """Run `true` on `host` with the user's own `args`; `trouble` is what ssh says."""
    host, args = str(question["host"]), list(map(str, question.get("args", ())))
    argv = ssh_words(host, ["true"], args)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        return {"trouble": "ssh is not installed"}
    except subprocess.TimeoutExpired:
        return {"trouble": f"no session within {LIMIT_S:g} s"}
    said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
    return {} if done.returncode == 0 else {"trouble": said[-1] if said else f"ssh ended with {done.returncode}"}
