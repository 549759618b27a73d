"""The script of a job, and what srun is asked for."""

from __future__ import annotations

import importlib.util
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.campaign.slurm import ALLOCATION_PROGRAM, RUN_PROGRAM
from seatrial.campaign.slurm.program import start_record
from seatrial.core.errors import LaunchError
from seatrial.core.paths import AttemptPaths
from seatrial.launch.places.job_files import record, record_start, submitted
from seatrial.launch.places.slurm import nodes_of_job, script, submit
from seatrial.launch.prepare import masked_spec
from seatrial.launch.transports.choice import choose_transports
from seatrial.launch.transports.srun import container_options, srun_argv
from seatrial.machine.secrets import MASK
from seatrial.machine.slurm import Answer, call, environment, time_limit_s
from seatrial.records.job import JobOrder, StartedJob, SubmittedJob
from seatrial.records.plan import ContainerSpec, LauncherSpec, PlaceSpec, RunSpec, SiteSpec, SlurmSpec, WorkloadSpec

SPEC = RunSpec(
    run="mb8_r1",
    group="mb8",
    repeat=1,
    plan="p",
    workload=WorkloadSpec(name="train.py", script="train.py"),
    launcher=LauncherSpec(kind="torchrun"),
    place=PlaceSpec(
        kind="slurm",
        ranks=16,
        nodes=2,
        slurm=SlurmSpec(partition="gpu", gpus_per_node=8, cpus_per_task=64, mem="0", time="02:00:00", sbatch_args=("--reservation=exam",)),
    ),
    cwd="/data/my job",
)


def attempt_in(folder: Path) -> AttemptPaths:
    folder.mkdir(parents=True)
    return AttemptPaths(folder)


def test_the_script_asks_for_what_the_plan_says(tmp_path: Path) -> None:
    attempt = attempt_in(tmp_path / "50%" / "mb8_r1" / "attempt-1")
    site = SiteSpec(name="lab", activate=("module load cuda",))
    lines = script(JobOrder(spec=replace(SPEC, site=site)), attempt, RUN_PROGRAM).splitlines()
    asked = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert asked[:3] == ["--job-name=seatrial-mb8_r1", "--nodes=2", "--ntasks-per-node=1"]
    for option in ("--partition=gpu", "--gres=gpu:8", "--cpus-per-task=64", "--mem=0", "--time=02:00:00", "--exclusive", "--requeue"):
        assert option in asked
    assert '--chdir="/data/my job"' in asked and "--reservation=exam" in asked and "--open-mode=append" in asked
    assert any(line.startswith("--output=") and "50%%" in line for line in asked)
    assert lines.index("module load cuda") < len(lines) - 1 and lines[-1].startswith("exec ")
    assert subprocess.run(["bash", "-n"], input="\n".join(lines), text=True, check=False).returncode == 0


@pytest.mark.parametrize("name", ["do$lar `x`", "back\\slash", "it's", "50%", "100%\\n", "[1-2] *"])
def test_a_folder_of_any_name_stands_in_the_script_as_bash_and_sbatch_read_it(tmp_path: Path, name: str) -> None:
    attempt = attempt_in(tmp_path / name / "mb8_r1" / "attempt-1")
    attempt.job_order.write_text("{}")
    text = script(JobOrder(spec=replace(SPEC, cwd=str(tmp_path / name))), attempt, RUN_PROGRAM)
    checked = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    # In place of the program: what bash makes of its last argument.
    shown = subprocess.run(["bash"], input=text.replace("exec ", "printf '%s\\n' "), capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == str(attempt.folder)
    options = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in text.splitlines() if line.startswith("#SBATCH"))
    unescaped = {key: options[key].strip('"').replace("\\\\", "\\") for key in ("chdir", "comment", "output")}
    assert (unescaped["chdir"], unescaped["comment"]) == (str(tmp_path / name), str(attempt.folder))
    # sbatch takes backslashes of a file name away once more, and fills in percent signs only where there are none.
    output = unescaped["output"]
    assert (output.replace("\\\\", "\\") if "\\" in output else output.replace("%%", "%")) == str(attempt.job_log)


@pytest.mark.parametrize("program", [RUN_PROGRAM, ALLOCATION_PROGRAM])
def test_a_script_starts_a_module_that_exists(program: str) -> None:
    assert importlib.util.find_spec(program) is not None


def test_a_path_that_sbatch_cannot_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="without quotes and line breaks"):
        script(JobOrder(spec=replace(SPEC, cwd='/data/"x"')), attempt_in(tmp_path / "r" / "attempt-1"), RUN_PROGRAM)


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        (Answer(returncode=0, stdout="4711;big\n"), "4711"),
        (Answer(returncode=1, stderr="sbatch: error: Unable to contact slurm controller"), None),
    ],
)
def test_a_number_is_written_down_and_no_answer_is_no_refusal(tmp_path: Path, answer: Answer, job: str | None) -> None:
    attempt = attempt_in(tmp_path / "r" / "attempt-1")
    found = submit(attempt, JobOrder(spec=SPEC), RUN_PROGRAM, call=lambda argv, text: answer)
    assert (found.job if found else None) == job and submitted(attempt) == found


@pytest.mark.parametrize("job", ["--user=root", "4711 4712", "", "-t"])
def test_only_a_number_is_a_job_to_be_cancelled(tmp_path: Path, job: str) -> None:
    attempt = attempt_in(tmp_path / "r" / "attempt-1")
    record(attempt, SubmittedJob(job=job))
    record_start(attempt, StartedJob(job=job, started_t=0.0))
    assert submitted(attempt) is None


def test_a_sites_secrets_are_not_recorded() -> None:
    site = SiteSpec(name="lab", env={"LICENSE": "planted-8", "NCCL_IB_DISABLE": "1"}, activate=("export HF_TOKEN=planted-9",))
    shown = masked_spec(replace(SPEC, site=site)).site
    assert shown is not None and "planted" not in str(shown) and shown.env["NCCL_IB_DISABLE"] == "1"


def test_the_record_of_a_start_has_no_token() -> None:
    environ = {"SLURM_JOB_ID": "1", "SLURM_JWT": "planted-7", "SLURM_JOB_PARTITION": "gpu"}
    shown = start_record(environ, ("n1",)).variables
    assert shown["SLURM_JOB_PARTITION"] == "gpu" and shown["SLURM_JWT"] == MASK


def test_a_refusal_names_sbatchs_reason(tmp_path: Path) -> None:
    answer = Answer(returncode=1, stderr="sbatch: error: Batch job submission failed: Invalid account\n")
    with pytest.raises(LaunchError, match="Batch job submission failed: Invalid account"):
        submit(attempt_in(tmp_path / "r" / "attempt-1"), JobOrder(spec=SPEC), RUN_PROGRAM, call=lambda argv, text: answer)


def test_a_job_with_fewer_nodes_than_planned_is_no_run() -> None:
    assert [(host.name, host.ranks) for host in nodes_of_job(SPEC, {}, ["a", "b"]).place.hosts] == [("a", 8), ("b", 8)]
    with pytest.raises(LaunchError, match="the job has 1 nodes"):
        nodes_of_job(SPEC, {}, ["a"])


def test_srun_gets_all_cpus_of_the_smallest_node() -> None:
    argv = srun_argv("n2", ["true"], {"SLURM_JOB_CPUS_PER_NODE": "64(x2),32"})
    assert argv[:5] == ["srun", "--nodes=1", "--ntasks=1", "--nodelist=n2", "--overlap"] and "--cpus-per-task=32" in argv


def test_in_a_container_every_node_is_started_by_srun_with_its_mounts() -> None:
    container = ContainerSpec(
        image="lab/torch:1", mounts=("/data/my:/data/my", "/models:/models:ro"), workdir="/data/my", python="/usr/bin/python3"
    )
    spec = replace(SPEC, place=replace(SPEC.place, slurm=SlurmSpec(container=container)))
    assert container_options(container, Path("/out")) == (
        "--container-image=lab/torch:1",
        "--container-mounts=/out:/out,/data/my:/data/my,/models:/models:ro",
        "--container-workdir=/data/my",
    )
    choice = choose_transports(spec.place, ["b"], ["a"], Path("/out/run/attempt-1"), lambda name: ())
    assert [names for _, names in choice.by] == [("a", "b")] and choice.via == "srun"
    assert nodes_of_job(spec, {}, ["a", "b"]).place.python == "/usr/bin/python3"
    with pytest.raises(LaunchError, match="cannot be mounted"):
        container_options(container, Path("/my out"))


@pytest.mark.parametrize(("place", "base"), [({}, 20_000 + 200 * (4711 % 60)), ({"port_base": 9000}, 9000), ({"port": 29500}, None)])
def test_the_port_is_looked_for_by_job_unless_the_plan_names_one(place: dict[str, int], base: int | None) -> None:
    spec = replace(SPEC, place=replace(SPEC.place, **place))  # type: ignore[arg-type]
    assert nodes_of_job(spec, {"SLURM_JOB_ID": "4711"}, ["a", "b"]).place.port_base == base


def test_variables_that_are_options_of_slurms_programs_do_not_reach_them() -> None:
    shell = {
        "PATH": "/bin",
        "HF_HOME": "/hf",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_JWT": "token",
        "SBATCH_PARTITION": "debug",
        "SLURM_NNODES": "1",
        "SQUEUE_FORMAT": "%i",
        "SALLOC_QOS": "x",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    kept = {"PATH", "HF_HOME", "SLURM_CONF", "SLURM_JWT"}
    assert environment(shell).keys() == kept | {"CUDA_VISIBLE_DEVICES"}
    # GPUs of the job around it are not those of a job that is submitted.
    inside = {**shell, "SLURM_JOB_ID": "7"}
    assert environment(inside).keys() == kept
    assert environment(inside, within_job=True).keys() == kept | {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_NNODES"}


def test_a_call_that_nobody_waits_for_any_more_ends_at_once() -> None:
    assert call(["cat"], "text") == Answer(returncode=0, stdout="text")
    given_up = call(["sleep", "600"], give_up=lambda: True)
    assert given_up.returncode is None and given_up.unreachable
    assert call(["sleep", "600"], timeout_s=0.1).problem == "sleep did not answer within 0 s"
    assert call(["/no/such/program"]).returncode is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 5400), ("30:00", 1800), ("2:00:00", 7200), ("1-12", 129_600), ("1-12:30", 131_400), ("1-12:30:01", 131_460)),
        # Slurm rounds up to minutes, and takes 0 for no limit.
        *(("0:30", 60), ("0", None), ("UNLIMITED", None), ("infinite", None), ("", None), ("n/a", None)),
    ],
)
def test_time_limits_as_slurm_reads_them(text: str, seconds: int | None) -> None:
    assert time_limit_s(text) == seconds
