"""Slurm's checks before a job is submitted, with stand-ins for its programs; the real ones are in tests/slurm."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.cli.doctor import node_task, without_unknown_folder
from seatrial.machine import host
from seatrial.machine.slurm import Answer
from seatrial.preflight import slurm
from seatrial.preflight.check_definition import Need, Section
from seatrial.preflight.slurm_smoke import NodeTask, try_jobs
from seatrial.records.plan import SLURM, ContainerSpec, PlaceSpec, SiteSpec, SlurmSpec, WorkloadSpec
from tests.unit.analyse import factory

NO_CONFIGURATION = "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: Could not establish a configuration source"
ACTIVATE_FAILED = "seatrial: item 1 of activate in site.yaml failed with exit code 1"
NO_CONTROLLER = "sinfo: error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(("stderr", "failed"), [(NO_CONFIGURATION, ["Slurm's configuration"]), (NO_CONTROLLER, ["Slurm's controller"])])
def test_programs_without_a_cluster_are_refused_and_a_silent_controller_is_waited_for(
    stderr: str, failed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in slurm.PROGRAMS:
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{stderr}' >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    need = Need(output=Path.cwd(), jobs=(PlaceSpec(kind=SLURM),), base_env={"PATH": str(tmp_path)})
    checks = [check for check in slurm.check_slurm(need) if check.name != slurm.VISIBLE.name]
    assert [check.name for check in checks if not check.ok] == failed


SCRIPT = replace(factory.spec(), workload=WorkloadSpec(name="train.py", script="train.py"))


@pytest.mark.parametrize(
    ("answer", "ok", "found", "files"),
    [
        (Answer(returncode=0, stdout="node1\n"), True, "is seen by node1", (True, "found on node1")),
        (Answer(returncode=0, stdout="node1 0 2\n"), False, "node1 does not see", (False, "node1 does not have the script ")),
        (Answer(returncode=0, stdout="node1 3\n"), True, "is seen by node1", (False, "node1 does not have the interpreter /opt/python")),
        # No node was free, or the nodes cannot reach this host: unknown stays unknown.
        (Answer(returncode=1, stderr="srun: error: Unable to allocate resources"), False, "unknown whether", (False, "unknown whether")),
        (Answer(returncode=None, stderr="no answer"), False, "unknown whether", (False, "unknown whether the nodes have the folder, the")),
    ],
)
def test_a_node_answers_whether_it_sees_the_folder_and_what_the_plan_names(
    answer: Answer, ok: bool, found: str, files: tuple[bool, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "file_system_and_mount", lambda path: ("ext4", "/"))
    (tmp_path / "train.py").write_text("")
    unknown = slurm.VISIBLE.result(False, "unknown whether the nodes have it", refuses=False)
    place = PlaceSpec(kind=SLURM, python="/opt/python", slurm=SlurmSpec(partition="gpu"))
    run = replace(SCRIPT, place=place, cwd=str(tmp_path))
    need = Need(output=tmp_path / "out", jobs=(place,), whole_runs=(run,))
    asked: list[list[str]] = []

    def call(argv: list[str], timeout_s: float) -> Answer:
        asked.append(argv)
        trial, *others = argv[argv.index("sh", argv.index("sh") + 1) + 1 :]
        assert Path(trial).parent == tmp_path and Path(trial).exists()
        assert others == [str(tmp_path), str(tmp_path / "train.py"), "/opt/python"]
        return answer

    check, needed = slurm.check_paths_on_nodes(need, [unknown], call)
    assert (check.ok, found in check.found) == (ok, True)
    assert check.refuses == needed.refuses == (found != "unknown whether") and "--partition=gpu" in asked[0]
    assert (needed.ok, files[1] in needed.found) == (files[0], True), needed.found
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    # What is known is not asked again: all of it is on a file system that nodes share, or in an image.
    known = slurm.VISIBLE.result(True, "nfs4")
    container = ContainerSpec(image="i", mounts=(), workdir="", python="")
    image = replace(run, place=replace(place, slurm=SlurmSpec(container=container)))
    assert slurm.check_paths_on_nodes(replace(need, whole_runs=(image,)), [known], call) == [known]
    monkeypatch.setattr(host, "file_system_and_mount", lambda path: ("nfs4", "/"))
    here = replace(run, place=replace(place, python=""))
    assert slurm.check_paths_on_nodes(replace(need, whole_runs=(here,)), [known], call) == [known] and len(asked) == 1


def test_the_task_on_a_node_says_what_is_not_there(tmp_path: Path) -> None:
    """The shell's own part, run here."""

    def call(argv: list[str], timeout_s: float) -> Answer:
        done = subprocess.run(argv[argv.index("sh") :], capture_output=True, text=True, check=False)
        return Answer(returncode=done.returncode, stdout=done.stdout)

    here, gone = tmp_path / "a b", tmp_path / "gone"
    here.write_text("")
    seen = slurm.missing_on_nodes(PlaceSpec(kind=SLURM), tmp_path / "trial", [here, gone], call)
    assert list(seen.values()) == [{gone}]


@pytest.mark.parametrize(
    ("free", "stdout", "ok", "found"),
    [
        (2, "node2 2\nnode1\n", False, "node2 does not have the script "),
        (2, "node1\nnode2\n", True, "found on node1, node2"),
        # Only one was free: the job may get another one too.
        (1, "node1\n", True, "found on node1 (no more of 2 nodes were free)"),
    ],
)
def test_as_many_nodes_are_asked_as_a_job_has(
    free: int, stdout: str, ok: bool, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "file_system_and_mount", lambda path: ("ext4", "/"))
    place = PlaceSpec(kind=SLURM, python="/opt/python", nodes=2, slurm=SlurmSpec())
    need = Need(output=tmp_path / "out", jobs=(place,), whole_runs=(replace(SCRIPT, place=place, cwd=str(tmp_path)),))

    def call(argv: list[str], timeout_s: float) -> Answer:
        is_free = f"--nodes={free}" in argv
        return Answer(returncode=0, stdout=stdout) if is_free else Answer(returncode=1, stderr="srun: error: Unable to allocate resources")

    (needed,) = slurm.check_paths_on_nodes(need, [], call)
    assert needed.ok == ok and needed.found.startswith(found), needed.found


@pytest.mark.parametrize(
    ("sinfo", "place", "problem"),
    [
        ("gpu*|2|gpu:8|64|up|infinite|n/a|1-infinite", {"time": "1-00:00:00"}, ""),
        ("gpu*|2|gpu:8|64|up|10:00|n/a|1-infinite", {"time": "10"}, ""),
        ("gpu*|2|gpu:8|64|up|10:00|n/a|1-infinite", {"time": "11"}, "11m 00s, and gpu allows 10m 00s"),
        ("gpu*|2|gpu:8|64|up|10:00|n/a|1-infinite", {"time": "UNLIMITED"}, "no limit, and gpu allows 10m 00s"),
        # One of two partitions is enough.
        (
            "gpu|2|gpu:8|64|up|10:00|n/a|1-infinite\nlong|2|gpu:8|64|up|1-0:00:00|n/a|1-infinite",
            {"time": "11", "partition": "gpu,long"},
            "",
        ),
        # Without a limit of its own it has the partition's.
        ("gpu*|2|gpu:8|64|up|10:00|2:00|1-infinite", {}, "the default of gpu, 2m 00s: '0:120' leaves 0 s before the warning"),
        ("gpu*|2|gpu:8|64|up|10:00|5:00|1-infinite", {}, ""),
        # A site may have set it.
        ("gpu*|2|gpu:8|64|up|infinite|n/a|1-infinite", {"time": "2"}, "'2' leaves 0 s before the warning"),
        ("gpu*|2|gpu:8|64|up|infinite|n/a|1", {}, "2 nodes, and gpu allows 1 a job"),
        ("gpu*|2|gpu:8|64|down|infinite|n/a|1-infinite", {}, "gpu is down"),
        ("gpu*|2|gpu:8|64|drain|infinite|n/a|1-infinite", {}, "gpu is drain"),
    ],
)
def test_what_a_partition_does_not_allow_is_refused(
    sinfo: str, place: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch takes such a job, and it would wait for ever."""
    monkeypatch.setattr(slurm.slurm, "call", lambda argv, *_, **__: Answer(returncode=0, stdout=sinfo if argv[0] == "sinfo" else ""))
    monkeypatch.setattr(slurm, "find_on_path", lambda *_: "/usr/bin/it")
    need = Need(output=Path.cwd(), jobs=(PlaceSpec(kind=SLURM, nodes=2, slurm=SlurmSpec(**place)),))  # type: ignore[arg-type]
    failed = [check.found for check in slurm.check_slurm(need) if not check.ok and check.name != slurm.VISIBLE.name]
    assert [problem in found for found in failed] == ([True] if problem else []), failed


def test_the_doctors_tasks_are_started_as_ranks_are(tmp_path: Path) -> None:
    """After the site's lines; in a container without them, as the job around it has had them. No line is in an argument."""
    site = SiteSpec(name="lab", interface="eth0", env={"HF_HOME": "/hf"}, activate=("export HF_TOKEN=planted",))
    place = PlaceSpec(kind=SLURM, python="/opt/python", slurm=SlurmSpec())
    task = node_task(place, site, tmp_path)
    assert (task.variables["HF_HOME"], task.variables["NCCL_SOCKET_IFNAME"]) == ("/hf", "eth0")
    assert task.argv[:2] == ("bash", "-c") and task.argv[4] == "/opt/python" and not any("planted" in argument for argument in task.argv)
    done = subprocess.run([*task.activation, "env"], env={**os.environ, **task.variables}, capture_output=True, text=True, check=True)
    assert "HF_TOKEN=planted\n" in done.stdout
    image = ContainerSpec(image="lab/torch:1", mounts=(), workdir="", python="/usr/bin/python3")
    inside = node_task(replace(place, slurm=SlurmSpec(container=image)), site, tmp_path)
    assert inside.argv[0] == "/usr/bin/python3" and "--container-image=lab/torch:1" in inside.srun_options and inside.activation
    assert node_task(place, None, tmp_path).variables == {}


@pytest.mark.parametrize(
    ("stderr", "found"),
    [
        (
            f"no module cuda\n{ACTIVATE_FAILED}\nsrun: error: node2: task 1: Exited with exit code 1\n",
            f"on node2: no module cuda; {ACTIVATE_FAILED}",
        ),
        (f"{ACTIVATE_FAILED}\n", ACTIVATE_FAILED),
        ("srun: error: Unable to allocate resources: Requested nodes are busy", "Requested nodes are busy"),
    ],
)
def test_the_node_whose_activation_failed_is_named(stderr: str, found: str, tmp_path: Path) -> None:
    task = NodeTask(argv=("python",), activation=("bash",))
    place = PlaceSpec(kind=SLURM, nodes=2, slurm=SlurmSpec())
    (check,) = try_jobs(place, tmp_path, task, lambda *_, **__: Answer(returncode=1, stderr=stderr))
    assert not check.ok and check.found.endswith(found)


@pytest.mark.parametrize("started", ["base_r1/attempt-1/job_start.json", ""])
def test_a_folder_that_a_job_has_written_to_is_seen_by_nodes(started: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "file_system_and_mount", lambda path: ("ext4", "/"))
    (tmp_path / "base_r1" / "attempt-1").mkdir(parents=True)
    (tmp_path / "base_r1" / "attempt-1" / "job_start.json").write_text("{}")
    if started:
        (tmp_path / started).with_name("job.sbatch").write_text("")
    check = next(slurm.check_slurm(Need(output=tmp_path, jobs=(PlaceSpec(kind=SLURM),))))
    assert (check.name, check.ok, started in check.found) == (slurm.VISIBLE.name, bool(started), True)
    sections = (Section(subject="Slurm", checks=(check, slurm.FOUND.result(True, "in PATH"))),)
    kept = [one.name for section in without_unknown_folder(sections) for one in section.checks]
    assert kept == ([slurm.VISIBLE.name] if started else []) + [slurm.FOUND.name]
