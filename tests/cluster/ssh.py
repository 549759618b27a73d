"""Keys, accounts and sshd of the hosts.

The hosts have their own home, set in a passwd file that is mounted over /etc/passwd inside them, so no user's ~/.ssh is read or written.
Each cluster has its own key pair and host keys. The client's settings only forbid prompts: timeouts and keep-alives are up to the caller.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.state import ClusterError, ClusterState

CLIENT_SETTINGS = "Host *\n  BatchMode yes\n  StrictHostKeyChecking yes\n"

# No sshd; an sshd that accepts no key; an sshd with an unknown host key.
REFUSALS = ("stopped", "key", "host_key")


def make_home(state: ClusterState) -> None:
    """The home shared by all hosts: keys, known hosts, settings."""
    folder, dotssh = Path(state.folder), state.home / ".ssh"
    dotssh.mkdir(parents=True, mode=0o700)
    make_key(folder / "host_key")
    make_key(folder / "unknown_host_key")
    make_key(dotssh / "id_ed25519")
    (dotssh / "authorized_keys").write_bytes((dotssh / "id_ed25519.pub").read_bytes())
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (dotssh / "known_hosts").write_text(
        "".join(f"{host.name},{host.address},{host.second_address} {key}\n" for host in state.hosts.values())
    )
    (dotssh / "config").write_text(CLIENT_SETTINGS)
    for path in dotssh.iterdir():
        path.chmod(0o600)


def make_key(path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test-cluster", "-f", str(path)], check=True, stdin=subprocess.DEVNULL
    )


def write_host_files(state: ClusterState, name: str) -> None:
    """The passwd, hosts and sshd_config that boot.sh installs, without faults."""
    folder = state.host_folder(name)
    (folder / "stage").mkdir(parents=True, exist_ok=True)
    (folder / "shared").write_text("".join(f"{path}\n" for path in state.shared))
    lines = [f"{host.address}\t{host.name}" for host in state.hosts.values()]
    (folder / "hosts").write_text("\n".join(["127.0.0.1\tlocalhost", *lines, ""]))
    (folder / "passwd").write_text(
        "".join(_at_home(line, state.home) for line in Path("/etc/passwd").read_text().splitlines(keepends=True))
    )
    write_sshd_config(state, name, {})


def _at_home(line: str, home: Path) -> str:
    fields = line.rstrip("\n").split(":")
    if fields[0] == "root" and len(fields) == 7:
        fields[5] = str(home)
    return ":".join(fields) + "\n"


def write_sshd_config(state: ClusterState, name: str, environment: dict[str, str]) -> None:
    """`environment` is set for everything this sshd starts."""
    refusal = state.host(name).ssh_refusal
    if refusal and refusal not in REFUSALS:
        raise ClusterError(f"ssh can be refused in these ways: {', '.join(REFUSALS)}; not {refusal!r}")
    lines = [
        f"HostKey {state.folder}/{'unknown_host_key' if refusal == 'host_key' else 'host_key'}",
        f"AuthorizedKeysFile {'none' if refusal == 'key' else state.home / '.ssh' / 'authorized_keys'}",
        "PidFile /run/sshd.pid",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        # The cluster's folder may be below /tmp, which is world-writable.
        "StrictModes no",
        "PrintMotd no",
        "PrintLastLog no",
    ]
    if environment:
        lines.append("SetEnv " + " ".join(f'"{key}={value}"' for key, value in environment.items()))
    (state.host_folder(name) / "sshd_config").write_text("\n".join([*lines, ""]))
