"""The options of the `deepspeed` runner: which it knows, which of them take a value, and which Seatrial does not pass on.

`OPTIONS` is the table; `option_of`, `split_words` and `values_in` are its own. `NOT_PASSED_ON` says why, for people.
"""

from __future__ import annotations

from types import MappingProxyType

from seatrial.option_words import OptionTable

FLAGS = frozenset(
    {
        "module",
        "no_python",
        "no_local_rank",
        "no_ssh",
        "no_ssh_check",
        "force_multi",
        "save_pid",
        "bind_cores_to_rank",
        "quiet",
        "help",
        # Of older releases.
        "elastic_training",
    }
)
VALUED = frozenset(
    {
        "hostfile",
        "include",
        "exclude",
        "num_nodes",
        "num_gpus",
        "master_port",
        "master_addr",
        "node_rank",
        "launcher",
        "launcher_args",
        "enable_each_rank_log",
        "autotuning",
        "bind_core_list",
        "ssh_port",
        "venv_script",
        "log_level",
        # Of older releases.
        "min_elastic_nodes",
        "max_elastic_nodes",
    }
)
OPTIONS = OptionTable(
    flags=FLAGS,
    valued=VALUED,
    short_names=MappingProxyType({"-H": "hostfile", "-i": "include", "-e": "exclude", "-q": "quiet", "-h": "help"}),
    other_names=MappingProxyType({"num_accelerators": "num_gpus"}),
)
option_of = OPTIONS.option_of
split_words = OPTIONS.split_words
values_in = OPTIONS.values_in

_HOSTS = "runs on several hosts are not built yet; leave it out and run on this machine"
_ELASTIC = "ranks that come and go are not built yet; leave it out"
NOT_PASSED_ON = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "hostfile",
                "num_nodes",
                "node_rank",
                "launcher",
                "launcher_args",
                "force_multi",
                "no_ssh",
                "no_ssh_check",
                "ssh_port",
                "venv_script",
            ),
            _HOSTS,
        ),
        **dict.fromkeys(("elastic_training", "min_elastic_nodes", "max_elastic_nodes"), _ELASTIC),
        "exclude": "name the GPUs to use instead, with place.include",
        "autotuning": "it starts runs of its own that nobody watches; make the settings it would try axes of the plan",
    }
)
"""Option → why it is refused."""
# On one host these say nothing, with these values.
FOR_ONE_HOST = MappingProxyType({"num_nodes": ("1", "-1"), "node_rank": ("0", "-1"), "no_ssh": ("",), "no_ssh_check": ("",)})
QUIET = "Seatrial counts deepspeed's own lines of the ranks that ended well, since its exit code 0 does not tell; leave it out"
"""Why the runner must not be made quiet."""
# At these levels the lines are printed.
SPEAKING_LEVELS = ("debug", "info")


def is_quiet(name: str, value: str) -> bool:
    """Whether an option keeps the runner from saying how each rank ended."""
    return name == "quiet" or (name == "log_level" and value not in SPEAKING_LEVELS)


def is_for_one_host(name: str, value: str) -> bool:
    """Whether an option of runs on several hosts asks for nothing but this one."""
    return value in FOR_ONE_HOST.get(name, ())
