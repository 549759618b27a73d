"""Another user of the same machine, really one: files that command agents, and locks. Root in the test; skipped otherwise."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from seatrial.agent import slurm_smoke_node
from seatrial.campaign.lock import hold_lock
from seatrial.campaign.slurm import RUN_PROGRAM
from seatrial.campaign.slurm.program import run_attempt
from seatrial.core.errors import CampaignError, LaunchError
from seatrial.core.files import write_private_json
from seatrial.core.paths import TRIAL_PREFIX, AttemptPaths, CampaignPaths
from seatrial.core.private_files import NotPrivateError, is_own, read_private_json
from seatrial.launch.places.hosts import write_connection_files
from seatrial.launch.places.job_files import submitted
from seatrial.launch.places.slurm import submit
from seatrial.machine.slurm import Answer
from seatrial.records.codec import to_json
from seatrial.records.job import JobOrder, StartedJob, SubmittedJob
from tests.unit.agent.running import Node, order_for
from tests.unit.launch.test_slurm_place import SPEC

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")


def as_nobody(program: str, *args: str | Path) -> subprocess.Popen[str]:
    argv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-c", program, *map(str, args)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_as_nobody(program: str, *args: str | Path) -> str:
    with as_nobody(program, *args) as done:
        output, errors = done.communicate()
    assert done.returncode == 0, errors
    return output


@pytest.fixture
def folder() -> Iterator[Path]:
    """Which others can reach, and write to. Not below pytest's own folder: whenever another pytest begins, it closes that to others."""
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        shared = Path(root, "shared")
        shared.mkdir()
        shared.chmod(0o777)
        yield shared


WRITE = "import os, sys; os.umask(0o077); open(sys.argv[1], 'w').write(sys.argv[2])"


def foreign(path: Path, text: str) -> None:
    run_as_nobody(WRITE, path, text)


def linked(path: Path, text: str) -> None:
    """A link to a file of the user's own."""
    target = path.with_name("elsewhere.json")
    write_private_json(target, json.loads(text))
    run_as_nobody("import os, sys; os.symlink(sys.argv[1], sys.argv[2])", target, path)


def writable(path: Path, text: str) -> None:
    write_private_json(path, json.loads(text))
    path.chmod(0o666)


def pipe(path: Path, text: str) -> None:
    run_as_nobody("import os, sys; os.mkfifo(sys.argv[1])", path)


PLANTED = [foreign, linked, writable, pipe]
Plant = Callable[[Path, str], None]


@pytest.mark.parametrize("plant", PLANTED)
def test_what_others_may_have_written_is_not_read(folder: Path, plant: Plant) -> None:
    path = folder / "call.json"
    plant(path, '{"token": "theirs"}')
    with pytest.raises(NotPrivateError, match=str(path)):
        read_private_json(path)
    path.unlink()
    write_private_json(path, {"token": "ours"})
    assert read_private_json(path) == {"token": "ours"}


@pytest.mark.parametrize("plant", PLANTED)
def test_an_agent_runs_no_order_and_answers_no_call_of_others(folder: Path, plant: Plant) -> None:
    order = order_for(folder, "open('wrong', 'w').close()")
    attempt = AttemptPaths(Path(order.attempt_folder))
    attempt.folder.chmod(0o777)
    plant(attempt.agent_order, json.dumps(to_json(order)))
    done = subprocess.run([sys.executable, "-m", "seatrial.agent", str(attempt.agent_order)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and str(attempt.agent_order) in done.stderr and not (folder / "wrong").exists()
    node = Node(folder)
    node.server.close()
    call = node.write_call(1)
    text = call.read_text()
    call.unlink()
    call.parent.chmod(0o777)
    plant(call, text)
    done = subprocess.run([sys.executable, "-m", "seatrial.agent", "--call", str(call)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and str(call) in done.stderr


SWAP = """
import os, sys
path, own = sys.argv[1:]
os.umask(0o077)
print(flush=True)
while True:
    open(own, "w").write('{"token": "theirs"}')
    try:
        os.rename(own, path)
    except OSError:
        pass
"""


def test_renaming_in_between_changes_nothing(folder: Path) -> None:
    """Another user replaces the file as fast as possible, and its owner puts it back: what is read is the owner's, or nothing."""
    path = folder / ".gate.json"
    with as_nobody(SWAP, path, folder / "theirs") as swapping:
        assert swapping.stdout is not None
        swapping.stdout.readline()
        found, refused = set(), 0
        for _ in range(300):
            write_private_json(path, {"token": "ours"})
            try:
                read = read_private_json(path)
            except NotPrivateError:
                refused += 1
            else:
                found.add(None if read is None else read["token"])
        swapping.kill()
    assert found <= {"ours", None}


def test_many_hosts_are_not_commanded_from_a_folder_of_everybody(folder: Path) -> None:
    attempt = AttemptPaths(folder / "run" / "attempt-1")
    with pytest.raises(LaunchError, match=f"{folder} can be written by every user"):
        write_connection_files(attempt, [])
    folder.chmod(0o755)
    write_connection_files(attempt, [])


@pytest.mark.parametrize("plant", PLANTED)
def test_a_job_runs_no_order_of_others(folder: Path, plant: Plant) -> None:
    attempt = AttemptPaths(folder / "run" / "attempt-1")
    attempt.folder.mkdir(parents=True)
    attempt.folder.chmod(0o777)
    plant(attempt.job_order, json.dumps(to_json(JobOrder(spec=SPEC))))
    with pytest.raises(LaunchError, match=str(attempt.job_order)):
        run_attempt(attempt, {})
    assert not attempt.job_start.exists()


@pytest.mark.parametrize("plant", PLANTED)
def test_no_job_is_cancelled_or_followed_by_a_number_of_others(folder: Path, plant: Plant) -> None:
    attempt = AttemptPaths(folder / "run" / "attempt-1")
    attempt.folder.mkdir(parents=True)
    attempt.folder.chmod(0o777)
    for path, record in ((attempt.job_start, StartedJob(job="4711", started_t=0.0)), (attempt.job, SubmittedJob(job="4711"))):
        plant(path, json.dumps(to_json(record)))
        with pytest.raises(LaunchError, match=str(path)):
            submitted(attempt)


def test_the_trial_file_of_a_node_is_written_through_no_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = folder.parent / "of-the-user"
    target.write_text("kept")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setattr(slurm_smoke_node, "SEEN_TIMEOUT_S", 0.0)
    link = folder / f"{TRIAL_PREFIX}12-{socket.gethostname()}"
    run_as_nobody("import os, sys; os.symlink(sys.argv[1], sys.argv[2])", target, link)
    assert slurm_smoke_node.facts(folder, 1)["problem"] and target.read_text() == "kept"
    link.unlink()
    assert slurm_smoke_node.facts(folder, 1)["problem"] == "" and not link.stat().st_mode & 0o077


def test_sbatch_gets_the_script_itself_and_not_a_name_that_others_could_replace(folder: Path) -> None:
    folder.chmod(0o755)
    attempt = AttemptPaths(folder / "run" / "attempt-1")
    attempt.folder.mkdir(parents=True)
    given: list[tuple[Sequence[str], str]] = []

    def call(argv: Sequence[str], text: str) -> Answer:
        given.append((argv, text))
        return Answer(returncode=0, stdout="4711\n")

    submit(attempt, JobOrder(spec=SPEC), RUN_PROGRAM, call)
    assert given == [(["sbatch", "--parsable"], attempt.job_script.read_text())]


def test_no_job_is_submitted_from_a_folder_of_everybody(folder: Path) -> None:
    attempt = AttemptPaths(folder / "run" / "attempt-1")
    attempt.folder.mkdir(parents=True)
    taken: list[object] = []

    def call(argv: object, text: str) -> Answer:
        taken.append(argv)
        return Answer(returncode=0, stdout="4711\n")

    with pytest.raises(LaunchError, match=f"{folder} can be written by every user"):
        submit(attempt, JobOrder(spec=SPEC), RUN_PROGRAM, call)
    assert not taken
    folder.chmod(0o755)
    submit(attempt, JobOrder(spec=SPEC), RUN_PROGRAM, call)
    assert taken and [stat.S_IMODE(path.stat().st_mode) for path in (attempt.job_order, attempt.job_script)] == [0o600, 0o700]


HOLD = """
import fcntl, sys
with open(sys.argv[1], "rb") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_not_opened_by_another_user(folder: Path) -> None:
    folder.chmod(0o755)
    paths = CampaignPaths(folder)
    with hold_lock(paths):
        assert stat.S_IMODE(paths.lock.stat().st_mode) == 0o600
    with as_nobody(HOLD, paths.lock) as other:
        _, errors = other.communicate()
    assert "PermissionError" in errors
    paths.lock.chmod(0o644)
    with hold_lock(paths):
        assert stat.S_IMODE(paths.lock.stat().st_mode) == 0o600, "one of an earlier version is closed"


def test_a_lock_that_another_user_created_and_holds_stops_nobody(folder: Path) -> None:
    paths = CampaignPaths(folder)
    foreign(paths.lock, "")
    with as_nobody(HOLD, paths.lock) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with hold_lock(paths):
            assert paths.lock.stat().st_uid == 0
            with pytest.raises(CampaignError, match="in use"), hold_lock(paths):
                raise AssertionError("it was held")
        other.communicate()


@pytest.mark.parametrize(("owner", "mode"), [(NOBODY, 0o600), (0, 0o755), (NOBODY, 0o777)])
def test_on_a_disk_with_one_owner_or_one_mode_files_like_our_own_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int
) -> None:
    """As root behind root_squash, or in an object store: what this user creates looks like that."""
    path = folder / "call.json"
    write_private_json(path, {"token": "ours"})
    path.chmod(mode)
    os.chown(path, owner, owner)
    created = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, owner, 0, 0, 0, 0))
    with pytest.raises(NotPrivateError):
        read_private_json(path)
    monkeypatch.setattr("seatrial.core.private_files.new_private_file", lambda folder: created)
    assert is_own(path.stat(), folder) and read_private_json(path) == {"token": "ours"}


FINISHED = """
import sys
from pathlib import Path
from seatrial.campaign.resume import finished_attempt
from seatrial.core.paths import CampaignPaths
print(finished_attempt(CampaignPaths(Path(sys.argv[1])).run("mb8_r1"), "hash"))
"""


def test_an_attempt_that_only_its_user_can_read_is_no_error_to_others(folder: Path) -> None:
    CampaignPaths(folder).run("mb8_r1").attempt(1).folder.mkdir(parents=True, mode=0o700)
    assert run_as_nobody(FINISHED, folder) == "None\n"
