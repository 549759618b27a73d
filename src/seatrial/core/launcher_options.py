"""Command lines of other programs: options of torchrun and deepspeed as their own parsers read them, and calls of ssh. Pure.

In: the arguments typed after the launcher's name, and its `OptionTable` (TORCHRUN, DEEPSPEED). Out: the options by plain name
(`nproc_per_node`), and the script behind them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from seatrial.core.errors import HostError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, kw_only=True)
class ParsedOption:
    """One option of a command line."""

    name: str
    """Its plain name; as typed for one that the launcher does not have, or that could be several."""
    value: str
    """Empty for a flag, and where the value is missing."""
    typed: tuple[str, ...]
    """The arguments as typed."""


@dataclass(frozen=True, kw_only=True)
class ParsedArgv:
    """A launcher's own options and what follows them."""

    options: tuple[ParsedOption, ...]
    rest: tuple[str, ...]
    """The script and its arguments."""


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """The options that one launcher's parser knows: `--option value`, `--option=value`, abbreviated, or one letter."""

    flags: frozenset[str]
    """Options without a value."""
    valued: frozenset[str]
    short_names: Mapping[str, str]
    """`-m` → `module`."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """A second long name → the plain one."""
    dash_is_underscore: bool = False
    """Whether `--log-dir` is `--log_dir` to it."""

    @property
    def names(self) -> frozenset[str]:
        """Every long name it takes."""
        return self.flags | self.valued | frozenset(self.other_names)

    def parse(self, argv: Sequence[str]) -> ParsedArgv:
        """Options up to the script; the script's own options are left alone."""
        options: list[ParsedOption] = []
        position = 0
        while position < len(argv):
            name, inline = self.parse_argument(argv[position])
            if name is None:
                position += argv[position] == "--"
                break
            # An unknown option of a newer launcher probably takes a value.
            width = 1 if inline is not None or name in self.flags else 2
            typed = tuple(argv[position : position + width])
            value = inline if inline is not None else "".join(typed[1:])
            options.append(ParsedOption(name=name, value=value, typed=typed))
            position += width
        return ParsedArgv(options=tuple(options), rest=tuple(argv[position:]))

    def values(self, argv: Sequence[str]) -> dict[str, str]:
        """Plain name → value of every option; of one typed twice the last counts, as it does for the launcher."""
        return {option.name: option.value for option in self.parse(argv).options}

    def parse_argument(self, argument: str) -> tuple[str | None, str | None]:
        """Plain name and inline value of an option: `--nproc-per=2` is ("nproc_per_node", "2"); (None, None) for other arguments."""
        if argument[:2] in self.short_names:
            name, attached = self.short_names[argument[:2]], argument[2:]
            if name in self.flags and attached:
                return None, None
            return name, attached.removeprefix("=") if attached else None
        typed, inline = _split_long(argument)
        return (None if typed is None else self._complete(typed)), inline

    def _complete(self, typed: str) -> str:
        """The one option that begins with `typed`; `typed` itself when there is none, or more than one."""
        name = typed.replace("-", "_") if self.dash_is_underscore else typed
        matches = {name} & self.names or {option for option in self.names if option.startswith(name)}
        plain = {self.other_names.get(match, match) for match in matches}
        return plain.pop() if len(plain) == 1 else name


def long_option(argument: str) -> tuple[str | None, str | None]:
    """Name, with `_` for `-`, and inline value of any program's `--option-name=value`; (None, None) for other arguments."""
    name, inline = _split_long(argument)
    return (None if name is None else name.replace("-", "_")), inline


def _split_long(argument: str) -> tuple[str | None, str | None]:
    if not argument.startswith("--") or argument == "--":
        return None, None
    name, equals, value = argument.removeprefix("--").partition("=")
    return name, value if equals else None


TORCHRUN = OptionTable(
    flags=_names("standalone module no_python run_path use_env virtual_local_rank help"),
    valued=_names(
        """
        nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf max_restarts monitor_interval start_method event_log_handler role
        log_dir redirects tee local_ranks_filter duplicate_stdout_filters duplicate_stderr_filters node_rank master_addr master_port
        local_addr logs_specs numa_binding signals_to_handle shutdown_timeout
        """
    ),
    short_names=MappingProxyType({"-m": "module", "-r": "redirects", "-t": "tee", "-h": "help"}),
    dash_is_underscore=True,
)
# `elastic` ones are of older releases.
DEEPSPEED = OptionTable(
    flags=_names("module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid bind_cores_to_rank quiet help elastic_training"),
    valued=_names(
        """
        hostfile include exclude num_nodes num_gpus master_port master_addr node_rank launcher launcher_args enable_each_rank_log autotuning
        bind_core_list ssh_port venv_script log_level min_elastic_nodes max_elastic_nodes
        """
    ),
    short_names=MappingProxyType({"-H": "hostfile", "-i": "include", "-e": "exclude", "-q": "quiet", "-h": "help"}),
    other_names=MappingProxyType({"num_accelerators": "num_gpus"}),
)

_ELASTIC = "elastic training is not supported yet; leave it out"
_PERNODE = "`place: {kind: pernode, nodes: N}` starts one command on each node, without ssh"
NOT_PASSED_ON = MappingProxyType(
    {
        "hostfile": "`place: {kind: hostfile, hostfile: FILE}` sets the hosts",
        "exclude": "place.include sets which GPUs to use; of a hostfile, place.exclude which not to",
        "num_nodes": "place.include sets which hosts of a hostfile to use, place.ranks how many of their slots",
        "node_rank": _PERNODE,
        "no_ssh": _PERNODE,
        "launcher": "place.via sets what starts the agents on other hosts, pdsh or ssh",
        "launcher_args": "place.ssh_args has the options for ssh",
        "ssh_port": '`place: {ssh_args: ["-p", PORT]}` sets it',
        "venv_script": "place.python sets the interpreter of the hosts",
        "force_multi": "`place: {kind: hostfile}` does so, with one host too; leave it out",
        "no_ssh_check": "deepspeed checks no host, since Seatrial starts it on each; leave it out",
        **dict.fromkeys(("elastic_training", "min_elastic_nodes", "max_elastic_nodes"), _ELASTIC),
        "autotuning": "it starts runs that Seatrial does not see; make the settings it would try axes of the plan",
    }
)
"""Option → why it is refused."""
# On one host these have no effect, with these values.
FOR_ONE_HOST = MappingProxyType({"num_nodes": ("1", "-1"), "node_rank": ("0", "-1"), "no_ssh": ("",), "no_ssh_check": ("",)})
QUIET = "Seatrial counts the ranks that deepspeed logs as ended well, since its exit code is 0 either way; leave it out"
"""Why the runner must not be quiet."""
# At these levels those lines are printed.
VERBOSE_LEVELS = ("debug", "info")


def is_quiet(name: str, value: str) -> bool:
    """Whether an option keeps the runner from logging how each rank ended."""
    return name == "quiet" or (name == "log_level" and value not in VERBOSE_LEVELS)


def is_for_one_host(name: str, value: str) -> bool:
    """Whether an option for several hosts selects this one alone."""
    return value in FOR_ONE_HOST.get(name, ())


# Variable of pdsh with options for its ssh; it counts only where pdsh starts the hosts.
PDSH_APPEND = "PDSH_SSH_ARGS_APPEND"
CONNECT_S = 10
# No prompt, no terminal, no X11, and no wait of minutes for a host that is off or goes off later.
SSH_OPTIONS = (
    "-T", "-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4",
)  # fmt: skip


def ssh_command(host: str, argv: Sequence[str], ssh_args: Sequence[str] = ()) -> list[str]:
    """The command that runs `argv` on `host`, for agents, the doctor and command.sh. Quoted, since the shell there splits it again.

    The user's own options come first, since ssh keeps the first value of each.
    """
    return ["ssh", *ssh_args, *SSH_OPTIONS, host, "--", shlex.join(argv)]


def pdsh_args(ssh_args: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The user's options for an ssh that pdsh runs: the plan's, then those of the environment."""
    text = environ.get(PDSH_APPEND, "")
    try:
        return (*ssh_args, *shlex.split(text))
    except ValueError as error:
        problem = f"{PDSH_APPEND} cannot be split into arguments ({str(error).lower()}): {text}"
        raise HostError(f"{problem}; close its quotes, or unset it and use place.ssh_args", host="", cause="bad_argument") from None
