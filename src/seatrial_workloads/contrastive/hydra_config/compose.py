"""From a command line to a training. In: words as typed, the environment. Out: a Start: settings, run folder, what is to be recorded.

    settings_from(["--local_rank=0", "+experiment=limit_longest_1-3_stage1_bf16", "++train.data.num_workers=6"])

Hydra only composes: it changes no folder, writes no file and sets up no logging. torch is not imported: a misspelled key is told at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seatrial.errors import nearest
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError, checked_values
from seatrial_workloads.contrastive.hydra_config.command_line import CommandLine, read_command_line
from seatrial_workloads.contrastive.hydra_config.keys import METADATA, OUTPUT_DIR
from seatrial_workloads.contrastive.hydra_config.run_folder import HYDRA_DIR, choose_run_dir, shared_time
from seatrial_workloads.contrastive.hydra_config.to_settings import ENVIRONMENT, Variable, settings_of, variables_of, without_effect
from seatrial_workloads.contrastive.settings import Settings

CONFIGS = Path(__file__).parent / "configs"
ROOT = "config"
FOLLOWED = (HYDRA_DIR, "hydra.searchpath")
"""Of Hydra's own settings, those that do something here."""


@dataclass(frozen=True, kw_only=True)
class StartupFiles:
    """Which files rank 0 writes before the training."""

    resolved_config: bool
    run_context: bool
    git: bool


@dataclass(frozen=True, kw_only=True)
class Start:
    """All a trainer needs to begin, and all there is to record about how it came to be."""

    settings: Settings
    run_dir: Path
    resolved: dict[str, Any]
    """Every key with its value, nested as in configs/."""
    no_effect: dict[str, Choice]
    """Keys whose value did not become what was asked for, for the trainer to tell."""
    variables: tuple[Variable, ...]
    files: StartupFiles
    environment: dict[str, str]
    """Variables to set before the probe is made."""


def settings_from(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> Start:
    """The whole way; a ConfigurationError for what cannot be done."""
    return start_of(read_command_line(argv), env)


def start_of(line: CommandLine, env: Mapping[str, str] = os.environ) -> Start:
    """The same from words that were read already."""
    tree, hydra_dir = composed_tree(line.overrides, env)
    values = checked_values(tree)
    settings, variables = settings_of(values), variables_of(values, env)
    run_dir, other_folders = choose_run_dir(values[OUTPUT_DIR], hydra_dir, env)
    return Start(
        settings=settings,
        run_dir=run_dir,
        resolved=nested({**values, OUTPUT_DIR: str(run_dir)}),
        no_effect=without_effect(values, variables) | other_folders | _idle_hydra_settings(line.overrides),
        variables=variables,
        files=StartupFiles(**{name: values[f"{METADATA}_{name}"] for name in ("resolved_config", "run_context", "git")}),
        environment=_to_set(variables, line.local_rank, env),
    )


def composed_tree(overrides: Sequence[Override], env: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    """The tree of keys with every default filled, and hydra.run.dir where it was given."""
    words = [str(override.input_line) for override in overrides]
    is_dir_given = any(override.key_or_group == HYDRA_DIR for override in overrides)
    try:
        with warnings.catch_warnings(), initialize_config_dir(str(CONFIGS.absolute()), job_name="train", version_base="1.3"):
            # A search path that is not there would only be warned about, and its experiments be missing.
            warnings.filterwarnings("error", message=".*is not available", category=UserWarning)
            OmegaConf.register_new_resolver("now", lambda pattern: _shared_now(pattern, env), replace=True)
            config = compose(ROOT, overrides=words, return_hydra_config=True)
            hydra_dir = str(config.hydra.run.dir) if is_dir_given else None
            tree: Any = OmegaConf.to_container(
                OmegaConf.masked_copy(config, [str(name) for name in config if name != "hydra"]), resolve=True
            )
            return tree, hydra_dir
    except MissingConfigException as error:
        raise ConfigurationError(_no_such_config(error)) from None
    except OmegaConfBaseException as error:
        why = str(error).splitlines()[0].rpartition("raised while resolving interpolation: ")[2]
        raise ConfigurationError(f"{error.full_key}: {why}") from None
    except (HydraException, yaml.YAMLError, ValueError, UserWarning) as error:
        raise ConfigurationError(" ".join(str(error).split())) from None


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as a tree again."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return tree


def _to_set(variables: Sequence[Variable], local_rank: int | None, env: Mapping[str, str]) -> dict[str, str]:
    to_set = {variable.name: variable.value for variable in variables if variable.given_by != ENVIRONMENT}
    if local_rank is not None and not env.get("LOCAL_RANK"):
        to_set["LOCAL_RANK"] = str(local_rank)
    return to_set


def _shared_now(pattern: str, env: Mapping[str, str]) -> str:
    """Hydra's own ${now:…} is another time for each rank."""
    return shared_time(env, pattern)


def _no_such_config(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    known = list(error.options or ())
    near = nearest(name, known)
    guess = f"did you mean '{near}'? " if near else ""
    return f"there is no {group} '{name}': {guess}known: {', '.join(known)}"


def _idle_hydra_settings(overrides: Sequence[Override]) -> dict[str, Choice]:
    reason = f"of Hydra's own settings only {' and '.join(FOLLOWED)} are followed: it keeps the folder, writes no file, logs nothing"
    return {
        override.key_or_group: Choice(override.get_value_element_as_str(), None, reason)
        for override in overrides
        if override.key_or_group.startswith(("hydra.", "hydra/")) and override.key_or_group not in FOLLOWED
    }
