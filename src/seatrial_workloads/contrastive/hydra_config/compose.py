"""From a command line to a training. In: arguments, the environment. Out: a Start with settings, run folder and what to record.

    settings_from(["--local_rank=0", "+experiment=limit_longest_1-3_stage1_bf16", "++train.data.num_workers=6"])

Hydra only composes: it changes no folder, writes no file and configures no logging. torch is not imported, so that a misspelled key fails
at once.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seatrial.core.errors import nearest
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.settings import field_docs
from seatrial_workloads.contrastive.hydra_config.command_line import CommandLine, read_command_line
from seatrial_workloads.contrastive.hydra_config.keys import KEYS, METADATA, OUTPUT_DIR
from seatrial_workloads.contrastive.hydra_config.run_folder import HYDRA_DIR, STARTUP_FILES, Start, choose_run_dir, shared_time
from seatrial_workloads.contrastive.hydra_config.to_settings import (
    ENVIRONMENT,
    ConfigurationError,
    checked_values,
    settings_of,
    variables_of,
    without_effect,
)
from seatrial_workloads.contrastive.settings import Settings

CONFIGS = Path(__file__).parent / "configs"
ROOT = "config"
SUPPORTED_HYDRA_SETTINGS = (HYDRA_DIR, "hydra.searchpath")
"""Hydra's own settings that have an effect here."""


def settings_from(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> Start:
    """The training that these arguments start; raises ConfigurationError."""
    return start_of(read_command_line(argv), env)


def start_of(line: CommandLine, env: Mapping[str, str] = os.environ) -> Start:
    """Compose a parsed command line."""
    tree, hydra_dir = compose_tree(line.overrides, env)
    values = checked_values(tree)
    settings, variables = settings_of(values), variables_of(values, env)
    run_dir, other_folders = choose_run_dir(values[OUTPUT_DIR], hydra_dir, env)
    local_rank = {} if line.local_rank is None or env.get("LOCAL_RANK") else {"LOCAL_RANK": str(line.local_rank)}
    return Start(
        settings=settings,
        run_dir=run_dir,
        resolved=nested({**values, OUTPUT_DIR: str(run_dir)}),
        no_effect=without_effect(values, variables) | other_folders | _ignored_hydra_settings(line.overrides),
        variables=variables,
        files=frozenset(name for name in STARTUP_FILES if values[f"{METADATA}_{name}"]),
        environment={variable.name: variable.value for variable in variables if variable.given_by != ENVIRONMENT} | local_rank,
    )


def compose_tree(overrides: Sequence[Override], env: Mapping[str, str]) -> tuple[dict[str, Any], str | None]:
    """The tree of keys with all defaults, and hydra.run.dir if given."""
    arguments = [str(override.input_line) for override in overrides]
    is_dir_given = any(override.key_or_group == HYDRA_DIR for override in overrides)
    try:
        with warnings.catch_warnings(), initialize_config_dir(str(CONFIGS.absolute()), job_name="train", version_base="1.3"):
            # Hydra only warns about a missing search path, whose experiments would then be missing.
            warnings.filterwarnings("error", message=".*is not available", category=UserWarning)
            # Hydra's own ${now:…} differs between ranks.
            OmegaConf.register_new_resolver("now", lambda pattern: shared_time(env, pattern), replace=True)
            config = compose(ROOT, overrides=arguments, return_hydra_config=True)
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
    """Dotted names as a nested tree."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return tree


def _no_such_config(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    known = list(error.options or ())
    near = nearest(name, known)
    guess = f"did you mean '{near}'? " if near else ""
    return f"there is no {group} '{name}': {guess}known: {', '.join(known)}"


def _ignored_hydra_settings(overrides: Sequence[Override]) -> dict[str, Choice]:
    reason = f"only {' and '.join(SUPPORTED_HYDRA_SETTINGS)} of Hydra's own settings are supported"
    return {
        override.key_or_group: Choice(override.get_value_element_as_str(), None, reason)
        for override in overrides
        if override.key_or_group.startswith(("hydra.", "hydra/")) and override.key_or_group not in SUPPORTED_HYDRA_SETTINGS
    }


USAGE = """\
usage: train.py [+experiment=NAME] [KEY=VALUE ...] [--cfg job] [--help]

Train the contrastive speech–text model. Keys use Hydra's syntax (train.seed=1, ++train.seed=1), and every key is checked.
--cfg job prints the resolved configuration and trains nothing. --local_rank, which launchers add, is accepted.

  deepspeed --include localhost:0,1 train.py +experiment=limit_longest_1-3_stage1_bf16 ++dataset.root_dir=data/LibriSpeech_16k_trim
  python train.py model.speech_encoder.pretrained_path=tiny model.text_encoder.pretrained_path=tiny train.max_step_iterations=20
"""


def help_text() -> str:
    return "\n".join([USAGE, "experiments (+experiment=NAME):", *_experiments(), "", "keys and their defaults:", *_keys(), ""])


def _experiments() -> Iterator[str]:
    for file in sorted((CONFIGS / "experiment").glob("*.yaml")):
        about = next(line[2:] for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# ") and "@package" not in line)
        yield f"  {file.stem}\n      {about}"


def _keys() -> Iterator[str]:
    """Every key with its default and a line of help: its own, else its field's."""
    docs, (tree, _) = field_docs(Settings), compose_tree((), {})
    for name, value in checked_values(tree).items():
        default = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        yield f"  {name}={default}\n      {KEYS[name].help or docs[KEYS[name].fields[0]]}"
