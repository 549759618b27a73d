"""Where a run writes. In: what the keys and the harness say. Out: one folder for all ranks of a start, and who was not followed.

SEATRIAL_RUN_DIR (the harness) > experiment_output_dir > hydra.run.dir > outputs/train/<time>. The time is that of the launcher's start,
so that ranks which begin a second apart still meet in one folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from seatrial.records.events import ENV_RUN_DIR
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.common.start_time import NoCommonTime, shared_start_name
from seatrial_workloads.common.used_folder import holds_a_run
from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError
from seatrial_workloads.contrastive.hydra_config.keys import OUTPUT_DIR

HYDRA_DIR = "hydra.run.dir"
DEFAULT_PARENT = Path("outputs/train")


def choose_run_dir(output_dir: str | None, hydra_dir: str | None, env: Mapping[str, str]) -> tuple[Path, dict[str, Choice]]:
    """The folder, and a word on each other folder that was asked for."""
    asked = {ENV_RUN_DIR: env.get(ENV_RUN_DIR), OUTPUT_DIR: output_dir, HYDRA_DIR: hydra_dir}
    given = {name: folder for name, folder in asked.items() if folder}
    if not given:
        return default_run_dir(env), {}
    winner, chosen = next(iter(given.items()))
    unlike = {name: folder for name, folder in given.items() if Path(folder).absolute() != Path(chosen).absolute()}
    return Path(chosen), {name: Choice(folder, chosen, f"{winner} stands over it") for name, folder in unlike.items()}


def make_run_dir(run_dir: Path, env: Mapping[str, str]) -> None:
    """By rank 0, before it writes there; refused where that cannot be, or where an earlier run's events would be mixed with ours."""
    if holds_a_run(run_dir, env):
        raise ConfigurationError(
            f"{OUTPUT_DIR} is {run_dir}, which holds an earlier run: give a folder of its own; "
            f"to go on after its newest checkpoint add train.resume_from={run_dir}"
        )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{OUTPUT_DIR} is {run_dir}, which cannot be made ({error.strerror}): give another folder") from error


def default_run_dir(env: Mapping[str, str]) -> Path:
    return DEFAULT_PARENT / shared_time(env)


def shared_time(env: Mapping[str, str], pattern: str = "%Y%m%d-%H%M%S") -> str:
    """When this start began, as every rank of it would say."""
    try:
        return shared_start_name(env, pattern)
    except NoCommonTime as which:
        raise ConfigurationError(f"ranks {which} have no time in common to name their folder by: give {OUTPUT_DIR}=FOLDER") from None
