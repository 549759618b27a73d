"""The ways of starting agents: words and their quoting, which host gets which way, and what is said when it does not work."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from seatrial.errors import HostError, LaunchError
from seatrial.launch.transports.child import Child, end_all, end_strays
from seatrial.launch.transports.choose import choose, choose_via
from seatrial.launch.transports.here import Here
from seatrial.launch.transports.pdsh import Pdsh, can_name, pdsh_words, run_by_pdsh
from seatrial.launch.transports.pernode import Pernode
from seatrial.launch.transports.ssh import Ssh
from seatrial.launch.transports.transport import Ended, Start, Transport, ending
from seatrial.launch.transports.troubles import host_error, left_error, silence_error
from seatrial.options.ssh import ssh_words
from seatrial.records.run_spec import PlaceSpec
from seatrial.signatures.registry import signature
from tests.processes import is_gone, pids_in
from tests.unit.launch.factory import PATIENCE_S
from tests.waiting import wait_until

HOSTILE = ("env", "A=it's", "$(touch /tmp/x)", "`id`", "a;b|c&d", "two  spaces", "*", "~", "line\nend", "100%", "%h", "%%h", '"', "\\", "")
PRINT_WORDS = "import sys; print(sys.argv[1:])"


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


def test_hostile_words_reach_the_other_side_as_they_are() -> None:
    *ours, host, dashes, for_shell = ssh_words("node1", (sys.executable, "-c", PRINT_WORDS, *HOSTILE), ())
    assert (ours[0], host, dashes) == ("ssh", "node1", "--")
    there = subprocess.run(["sh", "-c", for_shell], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(list(HOSTILE))


def test_ssh_asks_nothing_and_the_users_options_come_first() -> None:
    words = ssh_words("node1", ("true",), ("-p", "2222", "-o", "ConnectTimeout=60"))
    assert words[:5] == ["ssh", "-p", "2222", "-o", "ConnectTimeout=60"]
    assert "BatchMode=yes" in words


def _as_pdsh_does(word: str, host: str) -> str:
    """%h and %%, as pdsh 2.34 replaces them."""
    text, rest = "", word
    while rest:
        letter, rest = rest[0], rest[1:]
        if letter == "%":
            assert rest, "a word that ends in % runs into the next"
            letter = {"%": "%", "h": host}[rest[0]]
            rest = rest[1:]
        text += letter
    return text


def test_pdsh_gives_every_host_its_own_words_and_keeps_ours_whole() -> None:
    def words_for(host: str) -> Sequence[str]:
        return (sys.executable, "-c", PRINT_WORDS, *HOSTILE, f"/out/nodes/{host}/call.json")

    words = pdsh_words(("node1", "node2"), words_for, ("-o", "ProxyCommand=ssh -W %h:%p jump"))
    assert words[:7] == ["pdsh", "-R", "exec", "-f", "32", "-w", "node1,node2"]
    *given, for_shell = [_as_pdsh_does(word, "node2") for word in words[7:]]
    assert given == ssh_words("node2", words_for("node2"), ("-o", "ProxyCommand=ssh -W %h:%p jump"))[:-1]
    assert shlex.split(for_shell) == list(words_for("node2"))
    assert run_by_pdsh("node2", words_for, ("-o", "ProxyCommand=ssh -W %h:%p jump")) == [*given, for_shell]


def _needs_pdsh() -> None:
    """Left out where it is not installed, except under CI=1, where that fails: what nobody ran has shown nothing."""
    if shutil.which("pdsh") is None:
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)("pdsh is not installed (tests/system-packages.sh)")


def test_without_pdsh_the_test_of_it_fails_where_all_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception):
        _needs_pdsh()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception):
        _needs_pdsh()


def test_the_real_pdsh_does_so(tmp_path: Path, fakes: Path) -> None:
    _needs_pdsh()
    _program(fakes, "ssh", "import json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    pdsh = Pdsh(lambda host: ("echo", "100%", *HOSTILE, f"/out/{host}/x"), ("-o", "ProxyCommand=ssh -W %h:%p jump"), {})
    pdsh.start(_starts(tmp_path, ("node1", "node2")))
    wait_until(lambda: len(pdsh.ended()) == 2, "pdsh is over")
    pdsh.close()
    given = json.loads((tmp_path / "node2.log").read_text())
    assert given[:2] == ["-o", "ProxyCommand=ssh -W %h:%p jump"] and given[-3:-1] == ["node2", "--"]
    assert shlex.split(given[-1]) == ["echo", "100%", *HOSTILE, "/out/node2/x"]


def test_pdsh_starts_all_hosts_at_once() -> None:
    hosts = [f"n{number}" for number in range(64)]
    words = pdsh_words(hosts, lambda host: ("true",), ())
    assert words[words.index("-f") + 1] == "64"


@pytest.mark.parametrize(
    ("name", "fits"), [("node-1.lab", True), ("node[1-2]", False), ("^file", False), ("/x/", False), ("ssh:node", False)]
)
def test_names_that_pdsh_would_take_apart(name: str, fits: bool) -> None:
    assert can_name(["node1", name]) is fits


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


def _starts(tmp_path: Path, hosts: Sequence[str], words: tuple[str, ...] = ("true",)) -> list[Start]:
    return [Start(host=host, words=words, log=tmp_path / f"{host}.log") for host in hosts]


def test_what_pdsh_prints_is_sorted_by_host(tmp_path: Path, fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.transports.child.LEAVE_PATIENCE_S", 0.1)
    _program(fakes, "pdsh", FAKE_PDSH)
    pdsh = Pdsh(lambda host: ("wait",))
    pdsh.start(_starts(tmp_path, ("node1.lab", "node2.lab")))
    try:
        wait_until(lambda: (tmp_path / "node2.lab.log").exists() and "own" in (tmp_path / "node2.lab.log").read_text(), "all was read")
        assert pdsh.ended() == {"node1.lab": Ended(words="ssh (by pdsh) ended with exit code 255", returncode=255)}
        assert (tmp_path / "node1.lab.log").read_text().splitlines()[0] == "ssh: connect to host node1 port 22: Connection refused"
        assert (tmp_path / "node2.lab.log").read_text() == "well\npdsh: something of its own\n"
    finally:
        pdsh.close()


def test_the_end_of_pdsh_is_the_end_of_all_its_starts(tmp_path: Path, fakes: Path) -> None:
    _program(fakes, "pdsh", f"{FAKE_PDSH}import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    pdsh = Pdsh(lambda host: ("true",))
    pdsh.start(_starts(tmp_path, ("node1", "node2")))
    wait_until(lambda: "node2" in pdsh.ended(), "pdsh is over")
    ended = pdsh.ended()
    assert ended["node2"].words == "pdsh was killed by signal 9 (SIGKILL)"
    assert ended["node1"].words == "ssh (by pdsh) ended with exit code 255"
    pdsh.close()


# As the real one does: each ssh in a session of its own.
PDSH_OF_SSH = """\
import subprocess, sys
words = [word.replace("%h", "node1") for word in sys.argv[sys.argv.index("ssh"):]]
subprocess.Popen(words, start_new_session=True).wait()
"""
SSH_THAT_STAYS = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"


def test_a_pdsh_that_was_killed_leaves_no_ssh(tmp_path: Path, fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.transports.child.LEAVE_PATIENCE_S", 0.1)
    _program(fakes, "pdsh", PDSH_OF_SSH)
    _program(fakes, "ssh", SSH_THAT_STAYS)
    words = ("agent", f"{tmp_path}/call.json")
    pdsh = Pdsh(lambda host: words)
    pdsh.start(_starts(tmp_path, ("node1",)))
    log = tmp_path / "node1.log"
    wait_until(lambda: log.exists() and log.read_text().strip().isdigit(), "its ssh is up")
    (ssh,) = pids_in(log)
    assert pdsh._child is not None
    # What a script is started with is another word than its own; a real ssh is no script.
    monkeypatch.setattr(
        "seatrial.launch.transports.pdsh.run_by_pdsh",
        lambda host, words_for, ssh_args: [sys.executable, f"{fakes}/ssh", *run_by_pdsh(host, words_for, ssh_args)[1:]],
    )
    os.kill(pdsh._child._process.pid, signal.SIGKILL)
    wait_until(lambda: "node1" in pdsh.ended(), "pdsh is over")
    assert not is_gone(ssh)
    pdsh.close()
    assert is_gone(ssh)


def test_strays_are_told_by_all_their_words() -> None:
    words = (sys.executable, "-c", "import time; time.sleep(600)", "it's")
    mine, other = subprocess.Popen(words), subprocess.Popen((*words, "more"))
    try:
        wait_until(lambda: Path(f"/proc/{mine.pid}/cmdline").read_bytes().endswith(b"it's\0"), "it is up")
        assert end_strays([words], patience_s=0.1) == 1
        assert is_gone(mine.pid) and other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def _errand(transport: Transport, start: Start) -> Ended:
    errand, until_m = transport.errand(start), time.monotonic() + PATIENCE_S
    while (ended := errand.ended()) is None:
        assert time.monotonic() < until_m
        time.sleep(0.01)
    transport.close()
    return ended


@pytest.mark.parametrize("kind", ["ssh", "pdsh"])
def test_an_errand_is_an_ssh_that_is_in_a_hurry(tmp_path: Path, fakes: Path, kind: str) -> None:
    _program(fakes, "ssh", "import sys\nprint(sys.argv[1:])\nsys.exit(7)\n")
    transport = Ssh(("-p", "22")) if kind == "ssh" else Pdsh(lambda host: ("true",), ("-p", "22"), {})
    assert _errand(transport, _starts(tmp_path, ("node1",))[0]) == Ended(words="ssh ended with exit code 7", returncode=7)
    given = (tmp_path / "node1.log").read_text()
    assert given.startswith("['-p', '22', '-o', 'ConnectTimeout=5', '-T'") and given.endswith("'node1', '--', 'true']\n")


def test_an_errand_that_is_dropped_ends(tmp_path: Path) -> None:
    here = Here(tmp_path)
    errand = here.errand(_starts(tmp_path, ("localhost",), ("sleep", "600"))[0])
    assert errand.ended() is None
    errand.drop()
    here.close()
    assert errand.ended() == ending("seatrial.agent --end", -signal.SIGTERM)


def test_users_own_options_for_pdsh_are_taken(tmp_path: Path, fakes: Path) -> None:
    _program(fakes, "pdsh", "import sys\nprint('node1:', sys.argv)\n")
    pdsh = Pdsh(lambda host: ("true",), ("-p", "22"), {"PDSH_SSH_ARGS_APPEND": "-i 'my key'"})
    pdsh.start(_starts(tmp_path, ("node1",)))
    wait_until(lambda: bool(pdsh.ended()), "pdsh is over")
    pdsh.close()
    assert "'ssh', '-p', '22', '-i', 'my key', '-T'" in (tmp_path / "node1.log").read_text()


def test_ssh_writes_each_hosts_log_and_tells_its_end(tmp_path: Path, fakes: Path) -> None:
    _program(fakes, "ssh", "import sys\nprint('to', sys.argv[-3])\nsys.exit(255)\n")
    ssh = Ssh()
    ssh.start(_starts(tmp_path, ("node1", "node2")))
    wait_until(lambda: len(ssh.ended()) == 2, "both ended")
    assert ssh.ended()["node2"] == Ended(words="ssh ended with exit code 255", returncode=255)
    assert (tmp_path / "node2.log").read_text() == "to node2\n"
    ssh.close()


def test_an_agent_here_has_a_session_of_its_own_and_is_ended_at_the_close(tmp_path: Path) -> None:
    here = Here(tmp_path, patience_s=0.0)
    text = "import os, time\nprint(os.getpid() == os.getsid(0), flush=True)\ntime.sleep(600)"
    here.start(_starts(tmp_path, ("localhost",), (sys.executable, "-c", text)))
    wait_until(lambda: (tmp_path / "localhost.log").read_text() == "True\n", "it is up")
    assert here.ended() == {}
    here.close()
    assert here.ended() == {"localhost": ending("the agent", -signal.SIGTERM)}
    here.close(after_run=False)


def test_what_takes_no_term_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.launch.transports.child.LEAVE_PATIENCE_S", 0.1)
    text = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
    child = Child((sys.executable, "-c", text), tmp_path / "log")
    wait_until(lambda: (tmp_path / "log").read_text() == "up\n", "it is up")
    end_all([child], 0.0)
    wait_until(lambda: child.returncode == -signal.SIGKILL, "it is killed")


def test_a_program_that_is_not_there_is_a_launch_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="'/no/such' could not be started"):
        Child(("/no/such",), tmp_path / "log")


def _found(*names: str) -> object:
    return lambda name: f"/usr/bin/{name}" if name in names else None


@pytest.mark.parametrize(
    ("via", "others", "installed", "chosen"),
    [
        ("auto", 2, True, ("pdsh", "it is installed and there are 2 other hosts")),
        ("auto", 1, True, ("ssh", "there is one other host")),
        ("auto", 9, False, ("ssh", "pdsh is not installed")),
        ("ssh", 9, True, ("ssh", "place.via says so")),
        ("pdsh", 1, True, ("pdsh", "place.via says so")),
    ],
)
def test_which_way_and_why(via: str, others: int, installed: bool, chosen: tuple[str, str]) -> None:
    hosts = [f"node{number}" for number in range(others)]
    assert choose_via(via, hosts, _found("pdsh") if installed else _found()) == chosen  # type: ignore[arg-type]


def test_pdsh_that_is_asked_for_and_missing_says_what_to_do() -> None:
    with pytest.raises(HostError, match=r"pdsh is not installed.*apt install pdsh, or leave place.via out: ssh is used then") as caught:
        choose_via("pdsh", ["node1"], _found())  # type: ignore[arg-type]
    assert caught.value.cause == "program_missing"


class _Gate:
    nodes = ("node0", "node1")
    master_addr = "10.0.0.1"

    def __init__(self) -> None:
        self.started: list[tuple[str, tuple[str, ...], dict[str, str], str]] = []
        self.troubles: dict[str, str] = {}

    def start(self, node: str, argv: Sequence[str], env: Mapping[str, str], log: str) -> None:
        self.started.append((node, tuple(argv), dict(env), log))

    def trouble(self, node: str) -> str:
        return self.troubles.get(node, "")

    def python_of(self, node: str) -> str:
        return ""


def test_every_host_gets_its_way(tmp_path: Path) -> None:
    place = PlaceSpec(kind="hostfile", via="ssh")
    chosen = choose(place, ["node1"], ["head"], tmp_path, lambda host: ())
    assert [(transport.kind, hosts) for transport, hosts in chosen.by] == [("here", ("head",)), ("ssh", ("node1",))]
    assert choose(place, [], ["head"], tmp_path, lambda host: ()).via == "here"
    by_gate = choose(place, ["node1"], ["node0"], tmp_path, lambda host: (), _Gate())
    assert ([transport.kind for transport, _ in by_gate.by], by_gate.via) == (["here", "pernode"], "pernode")


def test_without_ssh_the_nodes_own_command_starts_the_agent_and_tells_its_trouble(tmp_path: Path) -> None:
    gate = _Gate()
    shares = Pernode(gate)
    shares.start(_starts(tmp_path, ("node1",)))
    assert gate.started == [("node1", ("true",), {}, str(tmp_path / "node1.log"))]
    assert shares.ended() == {}
    errand = shares.errand(Start(host="node1", words=("end",), log=tmp_path / "node1.log"))
    assert gate.started[-1][:2] == ("node1", ("end",)) and errand.ended() is None
    errand.drop()
    gate.troubles["node1"] = "it ended with exit code 3"
    assert shares.ended() == {"node1": Ended(words="its own command says: it ended with exit code 3")}


SAID = [
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


@pytest.mark.parametrize(("line", "cause", "fix"), SAID)
def test_what_was_said_gives_cause_and_fix(tmp_path: Path, line: str, cause: str, fix: str) -> None:
    log = tmp_path / "start.log"
    log.write_text(f"{line}\npdsh@head: node2: ssh exited with exit code 255\n")
    for error in (host_error({"node2": ending("ssh", 255)}, {"node2": log}), silence_error(["node2"], {"node2": log}, 60.0)):
        assert (error.host, error.cause) == ("node2", cause)
        assert line in str(error) and fix in str(error) and "pdsh@head" not in str(error)
        assert signature(error.cause)


def test_many_hosts_with_trouble_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    hosts = [f"n{number}" for number in range(9)]
    error = host_error({host: ending("ssh", -9) for host in hosts}, dict.fromkeys(hosts, tmp_path / "none"))
    assert "n0: its agent could not be started: ssh was killed by signal 9 (SIGKILL)" in str(error)
    assert "so it is on n1, n2, n3, n4, n5 and 3 more" in str(error) and "see who ended it" in str(error)
    assert left_error("n0", "the other side closed it", {"n0": tmp_path / "none"}).cause == "node_gone"


def test_braces_in_what_a_host_says_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("{host} {0} %s\n")
    assert "{host} {0} %s" in str(host_error({"n": ending("ssh", 1)}, {"n": tmp_path / "log"}))


def test_words_for_people_can_be_pasted() -> None:
    words = ssh_words("node1", ("echo", "a b"), ())
    assert shlex.split(shlex.join(words)) == words
