"""Transports: the argv of ssh and pdsh and its quoting, which host gets which transport, and the error when a start fails."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from seatrial.core.errors import HostError, LaunchError
from seatrial.core.launcher_options import ssh_command
from seatrial.launch.transports import ChildProcess, Exit, StartRequest, Transport, describe_exit, end_by_argv, end_children
from seatrial.launch.transports.choice import LocalTransport, PernodeTransport, choose_transports, choose_via
from seatrial.launch.transports.ssh import (
    PdshTransport,
    SshTransport,
    connect_timeout_error,
    disconnect_error,
    is_plain_for_pdsh,
    pdsh_argv,
    ssh_argv_of_pdsh,
    start_error,
)
from seatrial.records.plan import PlaceSpec
from seatrial.records.signatures.registry import signature
from tests.facts import states
from tests.processes import is_gone, own_children, pids_in
from tests.unit.launch.factory import FakeStarter
from tests.waiting import wait_until

HOSTILE = ("env", "A=it's", "$(touch /tmp/x)", "`id`", "a;b|c&d", "two  spaces", "*", "~", "line\nend", "100%", "%h", "%%h", '"', "\\", "")
PRINT_ARGV = "import sys; print(sys.argv[1:])"


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that is first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def _program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!{sys.executable}\n{text}")
    (folder / name).chmod(0o755)


def test_hostile_arguments_reach_the_other_side_unchanged() -> None:
    *ours, host, dashes, for_shell = ssh_command("node1", (sys.executable, "-c", PRINT_ARGV, *HOSTILE), ())
    assert (ours[0], host, dashes) == ("ssh", "node1", "--")
    there = subprocess.run(["sh", "-c", for_shell], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(list(HOSTILE))


def _as_pdsh_does(argument: str, host: str) -> str:
    """%h and %%, as pdsh 2.34 replaces them."""
    text, rest = "", argument
    while rest:
        letter, rest = rest[0], rest[1:]
        if letter == "%":
            assert rest, "an argument that ends in % runs into the next"
            letter = {"%": "%", "h": host}[rest[0]]
            rest = rest[1:]
        text += letter
    return text


def test_pdsh_gives_every_host_its_own_argv() -> None:
    def argv_for(host: str) -> Sequence[str]:
        return (sys.executable, "-c", PRINT_ARGV, *HOSTILE, f"/out/nodes/{host}/call.json")

    argv = pdsh_argv(("node1", "node2"), argv_for, ("-o", "ProxyCommand=ssh -W %h:%p jump"))
    assert argv[:7] == ["pdsh", "-R", "exec", "-f", "32", "-w", "node1,node2"]
    *given, for_shell = [_as_pdsh_does(argument, "node2") for argument in argv[7:]]
    assert given == ssh_command("node2", argv_for("node2"), ("-o", "ProxyCommand=ssh -W %h:%p jump"))[:-1]
    assert shlex.split(for_shell) == list(argv_for("node2"))
    assert ssh_argv_of_pdsh("node2", argv_for, ("-o", "ProxyCommand=ssh -W %h:%p jump")) == [*given, for_shell]


def test_the_real_pdsh_does_so(tmp_path: Path, fakes: Path) -> None:
    if shutil.which("pdsh") is None:
        # Under CI=1 everything must run.
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)("pdsh is not installed (tests/system-packages.sh)")
    _program(fakes, "ssh", "import json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    pdsh = PdshTransport(lambda host: ("echo", "100%", *HOSTILE, f"/out/{host}/x"), ("-o", "ProxyCommand=ssh -W %h:%p jump"), {})
    pdsh.start(_starts(tmp_path, ("node1", "node2")))
    wait_until(lambda: len(pdsh.exits()) == 2, "pdsh is over")
    pdsh.close()
    given = json.loads((tmp_path / "node2.log").read_text())
    assert given[:2] == ["-o", "ProxyCommand=ssh -W %h:%p jump"] and given[-3:-1] == ["node2", "--"]
    assert shlex.split(given[-1]) == ["echo", "100%", *HOSTILE, "/out/node2/x"]


def test_pdsh_starts_all_hosts_at_once() -> None:
    hosts = [f"n{number}" for number in range(64)]
    argv = pdsh_argv(hosts, lambda host: ("true",), ())
    assert argv[argv.index("-f") + 1] == "64"


@pytest.mark.parametrize(
    ("name", "fits"), [("node-1.lab", True), ("node[1-2]", False), ("^file", False), ("/x/", False), ("ssh:node", False)]
)
def test_names_that_pdsh_would_take_apart(name: str, fits: bool) -> None:
    assert is_plain_for_pdsh(["node1", name]) is fits


FAKE_PDSH = """\
import sys
print("node1: ssh: connect to host node1 port 22: Connection refused")
print("pdsh@head: node1: ssh exited with exit code 255", flush=True)
print("node2: well")
print("pdsh: something of its own", flush=True)
if "wait" in sys.argv[-1]:
    import time
    time.sleep(600)
"""


def _starts(tmp_path: Path, hosts: Sequence[str], argv: tuple[str, ...] = ("true",)) -> list[StartRequest]:
    return [StartRequest(host=host, argv=argv, log=tmp_path / f"{host}.log") for host in hosts]


def test_what_pdsh_prints_is_sorted_by_host(tmp_path: Path, fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.transports.EXIT_TIMEOUT_S", 0.1)
    _program(fakes, "pdsh", FAKE_PDSH)
    pdsh = PdshTransport(lambda host: ("wait",))
    pdsh.start(_starts(tmp_path, ("node1.lab", "node2.lab")))
    try:
        wait_until(lambda: (tmp_path / "node2.lab.log").exists() and "own" in (tmp_path / "node2.lab.log").read_text(), "all was read")
        assert pdsh.exits() == {"node1.lab": Exit(text="ssh (by pdsh) ended with exit code 255", returncode=255)}
        assert (tmp_path / "node1.lab.log").read_text().splitlines()[0] == "ssh: connect to host node1 port 22: Connection refused"
        assert (tmp_path / "node2.lab.log").read_text() == "well\npdsh: something of its own\n"
    finally:
        pdsh.close()


def test_the_end_of_pdsh_is_the_end_of_all_its_starts(tmp_path: Path, fakes: Path) -> None:
    _program(fakes, "pdsh", f"{FAKE_PDSH}import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    pdsh = PdshTransport(lambda host: ("true",))
    pdsh.start(_starts(tmp_path, ("node1", "node2")))
    wait_until(lambda: "node2" in pdsh.exits(), "pdsh is over")
    ended = pdsh.exits()
    assert ended["node2"].text == "pdsh was killed by signal 9 (SIGKILL)"
    assert ended["node1"].text == "ssh (by pdsh) ended with exit code 255"
    pdsh.close()


# As the real one does: each ssh in a session of its own.
PDSH_OF_SSH = """\
import subprocess, sys
argv = [argument.replace("%h", "node1") for argument in sys.argv[sys.argv.index("ssh"):]]
subprocess.Popen(argv, start_new_session=True).wait()
"""
SSH_THAT_STAYS = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"


def test_a_pdsh_that_was_killed_leaves_no_ssh(tmp_path: Path, fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.transports.EXIT_TIMEOUT_S", 0.1)
    _program(fakes, "pdsh", PDSH_OF_SSH)
    _program(fakes, "ssh", SSH_THAT_STAYS)
    argv = ("agent", f"{tmp_path}/call.json")
    pdsh = PdshTransport(lambda host: argv)
    pdsh.start(_starts(tmp_path, ("node1",)))
    log = tmp_path / "node1.log"
    wait_until(lambda: log.exists() and log.read_text().strip().isdigit(), "its ssh is up")
    (ssh,) = pids_in(log)
    (child,) = [one for one in own_children() if f"{fakes}/pdsh" in one.cmdline()]
    # The argv of a script begins with its interpreter; a real ssh is no script.
    monkeypatch.setattr(
        "seatrial.launch.transports.ssh.ssh_argv_of_pdsh",
        lambda host, argv_for, ssh_args: [sys.executable, f"{fakes}/ssh", *ssh_argv_of_pdsh(host, argv_for, ssh_args)[1:]],
    )
    child.kill()
    wait_until(lambda: "node1" in pdsh.exits(), "pdsh is over")
    assert not is_gone(ssh)
    pdsh.close()
    assert is_gone(ssh)


def test_strays_are_recognised_by_their_whole_argv() -> None:
    argv = (sys.executable, "-c", "import time; time.sleep(600)", "it's")
    mine, other = subprocess.Popen(argv), subprocess.Popen((*argv, "more"))
    try:
        wait_until(lambda: Path(f"/proc/{mine.pid}/cmdline").read_bytes().endswith(b"it's\0"), "it is up")
        assert end_by_argv([argv], timeout_s=0.1) == 1
        assert is_gone(mine.pid) and other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def _run_remotely(transport: Transport, start: StartRequest) -> Exit:
    ended = wait_until(transport.run_command(start).poll, "the command ends")
    transport.close()
    assert ended is not None
    return ended


@pytest.mark.parametrize("kind", ["ssh", "pdsh"])
def test_a_remote_command_uses_an_ssh_with_a_short_timeout(tmp_path: Path, fakes: Path, kind: str) -> None:
    _program(fakes, "ssh", "import sys\nprint(sys.argv[1:])\nsys.exit(7)\n")
    transport = SshTransport(("-p", "22")) if kind == "ssh" else PdshTransport(lambda host: ("true",), ("-p", "22"), {})
    assert _run_remotely(transport, _starts(tmp_path, ("node1",))[0]) == Exit(text="ssh ended with exit code 7", returncode=7)
    given = (tmp_path / "node1.log").read_text()
    assert given.startswith("['-p', '22', '-o', 'ConnectTimeout=5', '-T'") and given.endswith("'node1', '--', 'true']\n")


def test_an_abandoned_remote_command_ends(tmp_path: Path) -> None:
    here = LocalTransport(tmp_path)
    remote = here.run_command(_starts(tmp_path, ("localhost",), ("sleep", "600"))[0])
    assert remote.poll() is None
    remote.abandon()
    here.close()
    assert remote.poll() == describe_exit("seatrial.agent --end", -signal.SIGTERM)


def test_users_own_options_for_pdsh_are_taken(tmp_path: Path, fakes: Path) -> None:
    _program(fakes, "pdsh", "import sys\nprint('node1:', sys.argv)\n")
    pdsh = PdshTransport(lambda host: ("true",), ("-p", "22"), {"PDSH_SSH_ARGS_APPEND": "-i 'my key'"})
    pdsh.start(_starts(tmp_path, ("node1",)))
    wait_until(lambda: bool(pdsh.exits()), "pdsh is over")
    pdsh.close()
    assert "'ssh', '-p', '22', '-i', 'my key', '-T'" in (tmp_path / "node1.log").read_text()


def test_ssh_writes_each_hosts_log_and_reports_its_exit(tmp_path: Path, fakes: Path) -> None:
    _program(fakes, "ssh", "import sys\nprint('to', sys.argv[-3])\nsys.exit(255)\n")
    ssh = SshTransport()
    ssh.start(_starts(tmp_path, ("node1", "node2")))
    wait_until(lambda: len(ssh.exits()) == 2, "both ended")
    assert ssh.exits()["node2"] == Exit(text="ssh ended with exit code 255", returncode=255)
    assert (tmp_path / "node2.log").read_text() == "to node2\n"
    ssh.close()


def test_an_agent_here_has_a_session_of_its_own_and_is_ended_at_the_close(tmp_path: Path) -> None:
    here = LocalTransport(tmp_path, timeout_s=0.0)
    text = "import os, time\nprint(os.getpid() == os.getsid(0), flush=True)\ntime.sleep(600)"
    here.start(_starts(tmp_path, ("localhost",), (sys.executable, "-c", text)))
    wait_until(lambda: (tmp_path / "localhost.log").read_text() == "True\n", "it is up")
    assert here.exits() == {}
    here.close()
    assert here.exits() == {"localhost": describe_exit("the agent", -signal.SIGTERM)}
    here.close(after_run=False)


def test_what_takes_no_term_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.transports.EXIT_TIMEOUT_S", 0.1)
    text = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
    child = ChildProcess((sys.executable, "-c", text), tmp_path / "log")
    wait_until(lambda: (tmp_path / "log").read_text() == "up\n", "it is up")
    end_children([child], 0.0)
    wait_until(lambda: child.returncode == -signal.SIGKILL, "it is killed")


def test_a_program_that_is_not_there_is_a_launch_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="'/no/such' could not be started"):
        ChildProcess(("/no/such",), tmp_path / "log")


def _found(*names: str) -> object:
    return lambda name: f"/usr/bin/{name}" if name in names else None


@pytest.mark.parametrize(
    ("via", "others", "installed", "chosen"),
    [
        ("auto", 2, True, ("pdsh", "it is installed and there are 2 other hosts")),
        ("auto", 1, True, ("ssh", "there is one other host")),
        ("auto", 9, False, ("ssh", "pdsh is not installed")),
        ("ssh", 9, True, ("ssh", "set by place.via")),
        ("pdsh", 1, True, ("pdsh", "set by place.via")),
    ],
)
def test_which_way_and_why(via: str, others: int, installed: bool, chosen: tuple[str, str]) -> None:
    hosts = [f"node{number}" for number in range(others)]
    assert choose_via(via, hosts, _found("pdsh") if installed else _found()) == chosen  # type: ignore[arg-type]


def test_pdsh_that_is_required_and_missing_is_refused() -> None:
    with pytest.raises(HostError, match=r"pdsh.*apt install pdsh.*place.via") as caught:
        choose_via("pdsh", ["node1"], _found())  # type: ignore[arg-type]
    assert caught.value.cause == "program_missing"


def test_every_host_gets_its_way(tmp_path: Path) -> None:
    place = PlaceSpec(kind="hostfile", via="ssh")
    chosen = choose_transports(place, ["node1"], ["head"], tmp_path, lambda host: ())
    assert [(type(transport), hosts) for transport, hosts in chosen.by] == [(LocalTransport, ("head",)), (SshTransport, ("node1",))]
    assert choose_transports(place, [], ["head"], tmp_path, lambda host: ()).via == "here"
    without_ssh = choose_transports(place, ["node1"], ["node0"], tmp_path, lambda host: (), FakeStarter())
    assert ([type(transport) for transport, _ in without_ssh.by], without_ssh.via) == ([LocalTransport, PernodeTransport], "pernode")


def test_without_ssh_the_nodes_own_command_starts_the_agent_and_reports_its_problem(tmp_path: Path) -> None:
    starter = FakeStarter()
    transport = PernodeTransport(starter)
    transport.start(_starts(tmp_path, ("node1",)))
    assert starter.started == _starts(tmp_path, ("node1",))
    assert transport.exits() == {}
    remote = transport.run_command(StartRequest(host="node1", argv=("end",), log=tmp_path / "node1.log"))
    assert (starter.started[-1].host, starter.started[-1].argv) == ("node1", ("end",)) and remote.poll() is None
    remote.abandon()
    starter.problems["node1"] = "it ended with exit code 3"
    assert transport.exits() == {"node1": Exit(text="its own command reports: it ended with exit code 3")}


LOG_LINES = [
    ("root@node2: Permission denied (publickey).", "ssh_denied", "ssh-copy-id node2"),
    ("Host key verification failed.", "ssh_denied", "accept its key once"),
    ("ssh: Could not resolve hostname node2: Name or service not known", "name_unknown", "/etc/hosts"),
    ("ssh: connect to host node2 port 22: Connection refused", "host_lost", "sshd runs there"),
    ("ssh: connect to host node2 port 22: No route to host", "host_lost", "is up"),
    ("bash: line 1: /opt/venv/bin/python: No such file or directory", "program_missing", "place.python"),
    ("/usr/bin/python: No module named seatrial", "import_error", "install Seatrial on node2"),
    ("seatrial.agent: n2 has no /out/nodes/node2/call.json; check that it is shared", "file_missing", "the same path"),
    ("seatrial.agent: node2 cannot reach the harness at 10.0.0.1:4000 (timed out): a firewall", "node_not_started", "by TCP"),
    ("something nobody knows", "node_not_started", "seatrial doctor"),
]


@pytest.mark.parametrize(("line", "cause", "fix"), LOG_LINES)
def test_the_log_gives_cause_and_fix(tmp_path: Path, line: str, cause: str, fix: str) -> None:
    log = tmp_path / "start.log"
    log.write_text(f"{line}\npdsh@head: node2: ssh exited with exit code 255\n")
    for error in (
        start_error({"node2": describe_exit("ssh", 255)}, {"node2": log}),
        connect_timeout_error(["node2"], {"node2": log}, 60.0),
    ):
        assert (error.host, error.cause) == ("node2", cause)
        assert line in str(error) and fix in str(error) and "pdsh@head" not in str(error)
        assert signature(error.cause)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("srun: error: Unable to create step for job 7: Invalid job credential", "srun_failed"),
        ("srun: error: Task launch for StepId=7.0 failed on node node2: Connection refused", "srun_failed"),
        ("slurmstepd: error: execve(): /opt/python: No such file or directory", "program_missing"),
        ("/usr/bin/python: No module named seatrial", "import_error"),
    ],
)
def test_where_srun_starts_agents_nothing_advises_ssh(tmp_path: Path, line: str, cause: str) -> None:
    log = tmp_path / "start.log"
    log.write_text(f"{line}\n")
    for error in (
        start_error({"node2": describe_exit("srun", 1)}, {"node2": log}, by_srun=True),
        connect_timeout_error(["node2"], {"node2": log}, 60.0, by_srun=True),
    ):
        assert error.cause == cause and line in str(error) and "ssh" not in str(error) + signature(error.cause).action
    assert "ssh" not in str(disconnect_error("n0", "closed", {"n0": log}, by_srun=True))


def test_many_hosts_with_trouble_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    hosts = [f"n{number}" for number in range(9)]
    error = start_error({host: describe_exit("ssh", -9) for host in hosts}, dict.fromkeys(hosts, tmp_path / "none"))
    assert states(str(error), "n0: ", "signal 9 (SIGKILL)")
    assert "the same on n1, n2, n3, n4, n5 and 3 more" in str(error) and "find out who ended it" in str(error)
    assert disconnect_error("n0", "the peer closed the connection", {"n0": tmp_path / "none"}).cause == "node_gone"


def test_braces_in_a_hosts_log_are_literal(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("{host} {0} %s\n")
    assert "{host} {0} %s" in str(start_error({"n": describe_exit("ssh", 1)}, {"n": tmp_path / "log"}))
