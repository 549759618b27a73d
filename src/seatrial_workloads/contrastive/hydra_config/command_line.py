"""The words of train.py. In: argv as launchers hand it over. Out: what is wanted, and Hydra's overrides, every key of them known.

`--local_rank=0` in any of its forms comes from a launcher and is taken out: Hydra would refuse it.
"""

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

from seatrial.errors import nearest
from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError, check_name
from seatrial_workloads.contrastive.hydra_config.keys import GROUPS

TRAIN, HELP, SHOW = "train", "help", "show"
CONFIG_GROUPS = ("experiment", "model", "dataset", "train", "deepspeed")
"""Folders of configs/: `model=csa` chooses a file and sets no key."""


SWEEP = "what is to be swept goes to `seatrial run PLAN` or `seatrial sweep`"


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """What was typed, without what launchers add."""

    overrides: tuple[Override, ...]
    local_rank: int | None
    wanted: str


def read_command_line(argv: Sequence[str]) -> CommandLine:
    """Launchers' flags taken out, ours understood, the rest read as Hydra reads it."""
    flags, words = _parser().parse_known_args(list(argv))
    for word in words:
        if word in ("-m", "--multirun"):
            raise ConfigurationError(f"{word} is not taken: {SWEEP}")
        if word.startswith("-"):
            raise ConfigurationError(f"unknown option '{word}': known are --help, --cfg job, --local_rank; a key is given as train.seed=1")
    return CommandLine(
        overrides=() if flags.wanted == HELP else _overrides(words),
        # torch's launcher of old gives -1 to a process that has no place among others.
        local_rank=flags.local_rank if flags.local_rank is not None and flags.local_rank >= 0 else None,
        wanted=SHOW if flags.cfg and flags.wanted == TRAIN else flags.wanted,
    )


class _Parser(argparse.ArgumentParser):
    """One that leaves it to the caller to speak and to exit."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--local_rank", "--local-rank", type=int, metavar="RANK")
    parser.add_argument("-h", "--help", dest="wanted", action="store_const", const=HELP, default=TRAIN)
    parser.add_argument("-c", "--cfg", choices=["job"])
    # Hydra's own flag beside --cfg; here everything is resolved anyway.
    parser.add_argument("--resolve", action="store_true")
    return parser


def _overrides(words: Sequence[str]) -> tuple[Override, ...]:
    try:
        overrides = OverridesParser.create().parse_overrides(list(words))
    except OverrideParseException as error:
        why = str(error).partition("\nSee https")[0].splitlines()[-1]
        raise ConfigurationError(f"cannot read '{error.override}' ({why}): write key=value, with quotes around odd signs") from None
    for override in overrides:
        _check(override)
    return tuple(overrides)


def _check(override: Override) -> None:
    name = override.key_or_group
    if override.is_sweep_override():
        raise ConfigurationError(f"{override.input_line} is several values: write a list as {name}=[1,2]; {SWEEP}")
    if name.startswith("hydra."):
        _check_hydra_name(name)
    elif "/" not in name and override.package is None and name not in (*CONFIG_GROUPS, *GROUPS):
        check_name(name)


def _check_hydra_name(name: str) -> None:
    """Hydra lets `++hydra.typo=1` pass too."""
    known = OmegaConf.to_container(OmegaConf.structured(HydraConf))
    for word in name.split(".")[1:]:
        # Below an empty group every name is right: it is one the user fills.
        if not isinstance(known, dict) or not known:
            return
        if word not in known:
            near = nearest(word, [str(key) for key in known])
            remedy = f"did you mean '{name.replace(word, near)}'?" if near else "Hydra has no such setting"
            raise ConfigurationError(f"unknown key '{name}': {remedy}")
        known = known[word]
