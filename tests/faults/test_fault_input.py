"""Bad input to the real program: plans, folders, environments, signals. One sentence, exit code 1, no partial files."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import seatrial
from tests.facts import states
from tests.harness import ENVIRONMENT, Harness
from tests.waiting import wait_until

SEATRIAL = [sys.executable, "-m", "seatrial"]
# Root without its privileges: it owns the files, and permissions count for it as for anybody.
AS_ANYBODY = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
HEAD = "name: a\nworkload: {script: /bin/true, args: ['{x}'], reads: none}\nlauncher: command\n"
PLAN = f"{HEAD}axes: {{x: [1]}}\ntelemetry: {{gpu_s: null, host_s: null}}\noutput: out\n"
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 9)}]\n" for before, here in zip("abcdefgh", "bcdefghi", strict=True)
)


def execute(folder: Path, argv: Sequence[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        cwd=folder,
        env=ENVIRONMENT if env is None else env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        errors="replace",
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence a user sees of what went wrong."""
    assert done.returncode == 1, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr + done.stdout and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("seatrial: ") and done.stdout == ""
    return done.stderr.removeprefix("seatrial: ").rstrip("\n")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(LAUGHS.encode(), "expand to more than a plan can hold", id="bomb of aliases"),
        pytest.param(b"name: " + b"[" * 10_000, "nested too deeply to be a plan", id="ten thousand levels"),
        pytest.param(PLAN.encode("utf-16"), "not UTF-8 text (byte 0); save the plan as UTF-8", id="UTF-16"),
        pytest.param(b"name: a\n\tworkload: x\n", "p.yaml:2: not YAML: ", id="tab"),
        pytest.param(b"extends: q.yaml\n", "circular `extends`: p.yaml → q.yaml → p.yaml", id="extends in a circle"),
        pytest.param(b"name: a/b\nworkload: dummy\n", "name: 'a/b' does not fit", id="slash in a name"),
        pytest.param(b"name:\nworkload:\naxes:\nrepeats:\n", "name: must be text, not null (nothing)", id="null everywhere"),
        pytest.param(f"{PLAN}steps: {'9' * 5000}\n".encode(), "an integer beyond 64 bits", id="number without end"),
        pytest.param(f'{PLAN}env: {{A: "\\0"}}\n'.encode(), "env.A: contains the control character 0x00", id="null byte"),
    ],
)
def test_a_bad_plan_is_one_sentence(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(data)
    (tmp_path / "q.yaml").write_bytes(b"extends: p.yaml\n")
    assert says in refused(execute(tmp_path, [*SEATRIAL, "run", "p.yaml"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.yaml", "q.yaml"]


def test_a_file_that_is_no_plan_is_refused_at_once(tmp_path: Path) -> None:
    with open(tmp_path / "gigabyte.yaml", "wb") as file:
        file.truncate(2**30)
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    expected = {
        "gigabyte.yaml": "larger than 1024 KiB",
        "/dev/zero": "it is a device",
        ".": "it is a folder",
        "loop.yaml": "Too many levels of symbolic links",
        "none.yaml": "no such file",
        f"{'x' * 300}.yaml": "File name too long",
    }
    for name, says in expected.items():
        assert says in refused(execute(tmp_path, [*SEATRIAL, "run", name]))


def test_a_plan_through_a_pipe_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    done = execute(tmp_path, ["bash", "-c", f"{sys.executable} -m seatrial plan show <(cat p.yaml)"])
    assert done.returncode == 0 and "1 groups, 1 runs" in done.stdout


def test_a_huge_matrix_is_refused_at_once_and_a_large_one_needs_yes(tmp_path: Path) -> None:
    values = ", ".join(map(str, range(10)))
    names = "abcdefg"
    args = [f"{{{name}}}" for name in names]
    axes = ", ".join(f"{name}: [{values}]" for name in names)
    (tmp_path / "huge.yaml").write_text(f"name: a\nworkload: {{script: t, args: {args}}}\naxes: {{{axes}}}\n")
    sentence = refused(execute(tmp_path, [*SEATRIAL, "run", "huge.yaml", "--yes"]))
    assert "a (10 values) × b (10 values) × " in sentence and "× 1 repeat is 10,000,000 runs, more than 10,000" in sentence
    (tmp_path / "large.yaml").write_text(f"{HEAD}axes: {{x: [1, 2, 3]}}\nrepeats: 400\noutput: out\n")
    asks = "1,200 runs (x (3 values) × 400 repeats): add --yes to run them all"
    assert asks in refused(execute(tmp_path, [*SEATRIAL, "run", "large.yaml"]))
    assert asks in refused(execute(tmp_path, [*SEATRIAL, "sweep", "-P", "x=1,2,3", "--repeats", "400", "--", "/bin/true", "{x}"]))
    assert "3 groups, 1200 runs" in execute(tmp_path, [*SEATRIAL, "plan", "show", "large.yaml"]).stdout
    assert not (tmp_path / "out").exists()
    # With --yes it reaches the preflight, which finds no such program.
    confirmed = execute(tmp_path, [*SEATRIAL, "run", "large.yaml", "--yes", "--set", "workload.script=no-such-program"])
    assert confirmed.returncode == 2 and "program no-such-program" in confirmed.stderr


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("file", "file is a file"),
        ("file/a/b", "file is a file"),
        ("loop", "Too many levels of symbolic links"),
        ("closed", "closed is not writable: fix its permissions, or its mount"),
        ("closed/a", "closed is not writable: fix its permissions, or its mount"),
        ("o" * 300, "one of its names has 300 bytes"),
        ("ten-bytes/" * 400, "(limit 4095)"),
    ],
    ids=["a file", "under a file", "a loop", "closed", "in a closed one", "long name", "long path"],
)
def test_an_output_that_cannot_be_written_to(out: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "closed").mkdir(mode=0o555)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert says in refused(execute(tmp_path, [*AS_ANYBODY, *SEATRIAL, "run", "p.yaml", "--out", out]))
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_the_folder_one_stands_in_is_gone(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    for arguments in ("run ../p.yaml", "sweep -- /bin/true"):
        # Python itself would look for a module to run with -m in the folder that is gone.
        program = f"{sys.executable} -P -c 'from seatrial.cli.main import main; main()' {arguments}"
        sentence = refused(execute(tmp_path, ["sh", "-c", f"mkdir gone && cd gone && rmdir ../gone && exec {program}"]))
        assert states(sentence, "working directory", "gone")


def fake_git(folder: Path, script: str) -> str:
    """A PATH on which git is this script."""
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    return f"{folder}:{ENVIRONMENT['PATH']}"


ODD_ENVIRONMENTS = {
    "nothing at all": None,
    "no home, no temporary folder, an invalid time zone": {"HOME": "/nonexistent", "TMPDIR": "/nonexistent", "TZ": ":rubbish"},
    "no programs, ASCII output, a terminal one column wide": {
        "PATH": "/nonexistent", "PYTHONIOENCODING": "ascii", "TERM": "dumb", "COLUMNS": "1", "LINES": "0",
    },
    "plain C, bytes that are not UTF-8": {
        "LC_ALL": "POSIX", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "NCCL_ODD": os.fsdecode(b"caf\xe9"),
        "ODD": os.fsdecode(b"\xff"),
    },
    "a missing locale, no asserts": {"LC_ALL": "tr_TR.UTF-8", "PYTHONOPTIMIZE": "2"},
    "warnings are errors": {"PYTHONWARNINGS": "error", "PYTHONHASHSEED": "0"},
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD_ENVIRONMENTS)
def test_an_odd_environment_keeps_nobody_from_running(odd: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    changes = ODD_ENVIRONMENTS[odd]
    done = execute(tmp_path, [*SEATRIAL, "run", "p.yaml"], {} if changes is None else {**ENVIRONMENT, **changes})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr + done.stdout and (tmp_path / "out" / "summary.md").is_file()


@pytest.mark.parametrize("script", ["sleep 60", "head -c 100000 /dev/urandom", "exit 1"], ids=["hangs", "prints rubbish", "fails"])
def test_a_git_that_does_not_work_is_no_git(script: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    done = execute(tmp_path, [*SEATRIAL, "run", "p.yaml"], {**ENVIRONMENT, "PATH": fake_git(tmp_path / "bin", script)})
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "shell",
    ["{} >&-", "{} 2>&-", "{} <&- >&- 2>&-", "{} > /dev/full 2>&1", "{} | head -c 1 > /dev/null", "ulimit -n 64; {}", "umask 000; {}"],
)
def test_streams_and_limits_that_break_end_no_campaign(shell: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    done = execute(tmp_path, ["bash", "-o", "pipefail", "-c", shell.format(f"{sys.executable} -m seatrial run p.yaml")])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and (tmp_path / "out" / "summary.md").is_file()


def test_modules_in_the_folder_that_are_named_like_ours_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAN)
    for name in ("seatrial", "yaml", "json", "typing", "signal", "psutil"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    program = "import sys; sys.path.pop(0) if sys.path[0] == '' else None; from seatrial.cli.main import main; main()"
    done = execute(tmp_path, [sys.executable, "-P", "-c", program, "run", "p.yaml"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_that_nobody_may_write_to(tmp_path: Path) -> None:
    package = tmp_path / "site" / "seatrial"
    shutil.copytree(Path(seatrial.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["chmod", "-R", "a-w", str(package)], check=True)
    (tmp_path / "p.yaml").write_text(PLAN)
    env = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = execute(tmp_path, [*AS_ANYBODY, *SEATRIAL, "run", "p.yaml"], {**env, "PYTHONPATH": str(package.parent)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(package.rglob("__pycache__"))
    subprocess.run(["chmod", "-R", "u+w", str(package)], check=True)


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 1), (signal.SIGHUP, 1)])
def test_a_signal_outside_of_a_campaign_is_ctrl_c(number: signal.Signals, times: int, tmp_path: Path) -> None:
    pipe = tmp_path / "p.yaml"
    os.mkfifo(pipe)
    # The verb blocks on the rest of its plan when the signal arrives.
    keeper = os.open(pipe, os.O_RDWR)
    program = subprocess.Popen(
        [*SEATRIAL, "plan", "show", str(pipe)], cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: str(pipe) in opened_by(program.pid), "the plan is opened")
        for _ in range(times):
            program.send_signal(number)
        out, err = program.communicate(timeout=60)
    finally:
        os.close(keeper)
    assert (program.returncode, out, err) == (130, "", "seatrial: interrupted\n")


def opened_by(pid: int) -> set[str]:
    folder = Path(f"/proc/{pid}/fd")
    found = set()
    for descriptor in folder.iterdir() if folder.is_dir() else ():
        try:
            found.add(str(descriptor.readlink()))
        except OSError:
            continue
    return found


def test_a_signal_at_any_moment_leaves_whole_files(harness: Harness) -> None:
    """The report is in test_fault_harness.py."""
    harness.run("run", str(harness.plan(PLAN)))
    for delay_s, argv in itertools.product((0.2, 0.4, 0.6, 0.8), (["export", "out", "all", "-o", "tables"], ["doctor"])):
        program = harness.start(*argv)
        try:
            program.wait(delay_s)
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGTERM)
        text, _ = program.communicate(timeout=60)
        # Before its handler is installed, TERM kills it; after the last file it has no effect.
        assert program.returncode in (0, 130, -signal.SIGTERM) and "Traceback" not in text, text
    assert not list(harness.folder.rglob("*.part"))
    harness.run("report", "out")
