"""The command line of train.py: Hydra overrides, --help, --cfg, and the launchers' --local_rank."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from hydra.conf import HydraConf
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import OverrideParseException
from omegaconf import OmegaConf

from seatrial.core.errors import nearest
from seatrial_workloads.contrastive.hydra_config.keys import GROUPS
from seatrial_workloads.contrastive.hydra_config.to_settings import ConfigurationError, check_name

TRAIN, HELP, SHOW = "train", "help", "show"
CONFIG_GROUPS = ("experiment", "model", "dataset", "train", "deepspeed")
"""Folders of configs/: `model=csa` selects a file and sets no key."""


SWEEP = "to sweep, use `seatrial run PLAN` or `seatrial sweep`"


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """The parsed command line, without what launchers add."""

    overrides: tuple[Override, ...]
    local_rank: int | None
    action: str


def read_command_line(argv: Sequence[str]) -> CommandLine:
    """Parse launchers' flags and ours; the rest are Hydra overrides."""
    flags, rest = _parser().parse_known_args(list(argv))
    for argument in rest:
        if argument in ("-m", "--multirun"):
            raise ConfigurationError(f"{argument} is not supported: {SWEEP}")
        if argument.startswith("-"):
            raise ConfigurationError(
                f"unknown option '{argument}'; options are --help, --cfg job, --local_rank; keys look like train.seed=1"
            )
    return CommandLine(
        overrides=() if flags.action == HELP else _overrides(rest),
        # torch's old launcher passes -1 to a process outside a group.
        local_rank=flags.local_rank if flags.local_rank is not None and flags.local_rank >= 0 else None,
        action=SHOW if flags.cfg and flags.action == TRAIN else flags.action,
    )


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--local_rank", "--local-rank", type=int, metavar="RANK")
    parser.add_argument("-h", "--help", dest="action", action="store_const", const=HELP, default=TRAIN)
    parser.add_argument("-c", "--cfg", choices=["job"])
    # Hydra's flag for --cfg; everything is resolved here anyway.
    parser.add_argument("--resolve", action="store_true")
    return parser


def _overrides(arguments: Sequence[str]) -> tuple[Override, ...]:
    try:
        overrides = OverridesParser.create().parse_overrides(list(arguments))
    except OverrideParseException as error:
        why = str(error).partition("\nSee https")[0].splitlines()[-1]
        raise ConfigurationError(f"cannot read '{error.override}' ({why}): write key=value, and quote special characters") from None
    for override in overrides:
        _check(override)
    return tuple(overrides)


def _check(override: Override) -> None:
    name = override.key_or_group
    if override.is_sweep_override():
        raise ConfigurationError(f"{override.input_line} has several values: write a list as {name}=[1,2]; {SWEEP}")
    if name.startswith("hydra."):
        _check_hydra_name(name)
    elif "/" not in name and override.package is None and name not in (*CONFIG_GROUPS, *GROUPS):
        check_name(name)


def _check_hydra_name(name: str) -> None:
    """Hydra itself accepts `++hydra.typo=1`."""
    known = OmegaConf.to_container(OmegaConf.structured(HydraConf))
    for part in name.split(".")[1:]:
        # An empty group is for the user to fill: any name is fine.
        if not isinstance(known, dict) or not known:
            return
        if part not in known:
            near = nearest(part, [str(key) for key in known])
            remedy = f"did you mean '{name.replace(part, near)}'?" if near else "Hydra has no such setting"
            raise ConfigurationError(f"unknown key '{name}': {remedy}")
        known = known[part]
